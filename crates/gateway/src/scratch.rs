//! What plans leave behind for the next ones.

use std::cell::RefCell;

use bulk::Scratch;

/// Plans with what earlier plans have left. It is away meanwhile: after a panic it may be half changed, and
/// is made anew.
pub(crate) fn with_scratch<T>(kept: &RefCell<Scratch>, plan: impl FnOnce(&mut Scratch) -> T) -> T {
    let mut scratch = kept.take();
    let planned = plan(&mut scratch);
    kept.replace(scratch);
    planned
}
