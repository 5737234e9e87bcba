//! Where each operation of some lines is.

use std::ops::Range;

use bulk::Op;

/// Returns where each operation of these lines is: an action, and a source unless the action is a `delete`.
pub(crate) fn lines_of(lines: &[u8]) -> Vec<Range<usize>> {
    let (mut ranges, mut at) = (Vec::new(), 0);
    let end = |from: usize| {
        let newline = memchr::memchr(b'\n', &lines[from..]);
        newline.map_or(lines.len(), |found| from + found + 1)
    };
    while at < lines.len() {
        let action_ends = end(at);
        let subject = bulk::subject(&lines[at..action_ends]);
        let ends = match subject.is_some_and(|subject| subject.op == Op::Delete) {
            true => action_ends,
            false => end(action_ends),
        };
        ranges.push(at..ends);
        at = ends;
    }
    ranges
}
