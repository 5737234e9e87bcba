//! Models of recent action lines. Most lines differ from one of them only in their ids, and are recognized
//! without being parsed again, even where a body alternates between several indices, or mixes operations.

use crate::action::{Action, ID_BYTES_MAX, TypeAt};
use crate::scan;
use crate::walk::ResolvedName;

/// Lines that were parsed and resolved, and which of them follows which.
#[derive(Default)]
pub(crate) struct Models<'b, 't> {
    list: Vec<Model<'b, 't>>,
    /// The model that matched the last line.
    last: usize,
    /// The model that the next line is expected to match.
    next: usize,
    /// The model that the next new line replaces, once there are [`MODELS_MAX`].
    oldest: usize,
    /// How many more lines that match none of the models may be compared with all of them. Lines that are
    /// each unlike all others (with a different routing in each, for example) soon cost one comparison.
    misses_left: u8,
    /// How many lines were not compared since then.
    skipped: u8,
}

/// An action line that was parsed and resolved.
pub(crate) struct Model<'b, 't> {
    /// The line up to its id; the whole line if it has none.
    before: &'b [u8],
    /// The line from the end of its id.
    after: Ending<'b>,
    action: Action<'b>,
    found: ResolvedName<'t>,
    /// The model of the line that followed the last line like this one.
    next: usize,
}

/// The end of a line. It is short, and compared as a number.
struct Ending<'b> {
    bytes: &'b [u8],
    /// The first eight bytes, and those of their bits that count.
    word: u64,
    mask: u64,
}

/// The most kinds of lines that are remembered.
const MODELS_MAX: usize = 16;
const MISSES_MAX: u8 = 32;
const SKIPPED_MAX: u8 = 64;

// === impl Models ===

impl<'b, 't> Models<'b, 't> {
    /// Returns the id and the length of the line that `rest` begins with, if a model matches it; that model
    /// is then the last one.
    #[inline(always)]
    pub(crate) fn read(&mut self, rest: &'b [u8]) -> Option<(Option<&'b [u8]>, usize)> {
        let model = self.list.get(self.next)?;
        match model.read(rest) {
            Some(read) => {
                self.last = std::mem::replace(&mut self.next, model.next);
                Some(read)
            }
            None => self.read_unexpected(rest),
        }
    }

    /// Returns the model that matched the last line.
    #[inline]
    pub(crate) fn last(&self) -> &Model<'b, 't> {
        &self.list[self.last]
    }

    /// Reads a line that does not match the expected model, by comparing it with the other models.
    #[inline(never)]
    fn read_unexpected(&mut self, rest: &'b [u8]) -> Option<(Option<&'b [u8]>, usize)> {
        if self.misses_left == 0 {
            self.skipped = (self.skipped + 1) % SKIPPED_MAX;
            // Lines may come to be alike later in the body.
            if self.skipped != 0 {
                return None;
            }
            self.misses_left = 1;
        }
        for at in (0..self.list.len()).filter(|at| *at != self.next) {
            if let Some(read) = self.list[at].read(rest) {
                self.follows(at);
                self.misses_left = MISSES_MAX;
                return Some(read);
            }
        }
        self.misses_left -= 1;
        None
    }

    /// Remembers a line that no model matches.
    pub(crate) fn learn(&mut self, line: &'b [u8], action: Action<'b>, found: ResolvedName<'t>) {
        let mut at = self.list.len();
        if at == MODELS_MAX {
            at = self.oldest;
            self.oldest = (at + 1) % MODELS_MAX;
        }
        // The next line is likely to be like this one.
        let model = Model::of(line, action, found, at);
        match self.list.get_mut(at) {
            Some(old) => *old = model,
            None => {
                if self.list.is_empty() {
                    self.misses_left = MISSES_MAX;
                }
                self.list.push(model);
            }
        }
        self.follows(at);
    }

    /// Notes that a line like the model at `at` came after the last.
    fn follows(&mut self, at: usize) {
        self.list[self.last].next = at;
        self.last = at;
        self.next = self.list[at].next;
    }
}

// === impl Model ===

impl<'b, 't> Model<'b, 't> {
    /// Makes the model of a line that the fast reader understood.
    fn of(line: &'b [u8], action: Action<'b>, found: ResolvedName<'t>, next: usize) -> Self {
        let (before, after) = match action.id {
            None => (line, &line[..0]),
            Some(id) => {
                let at = id.as_ptr() as usize - line.as_ptr() as usize;
                (&line[..at], &line[at + id.len()..])
            }
        };
        Self {
            before,
            after: Ending::of(after),
            action,
            found,
            next,
        }
    }

    /// Returns the id and the length of the line that `rest` begins with, if it matches this model.
    #[inline(always)]
    fn read(&self, rest: &'b [u8]) -> Option<(Option<&'b [u8]>, usize)> {
        if !begins_with(rest, self.before) {
            return None;
        }
        let at = self.before.len();
        if self.action.id.is_none() {
            return Some((None, at));
        }
        let id = scan::plain_string(rest, at)?;
        let end = at + id.len();
        (id.len() <= ID_BYTES_MAX && self.after.begins(&rest[end..]))
            .then_some((Some(id), end + self.after.bytes.len()))
    }

    /// Returns the action of the line that was parsed.
    #[inline(always)]
    pub(crate) fn action(&self) -> &Action<'b> {
        &self.action
    }

    /// Returns the meaning of the name in lines that match this model.
    #[inline(always)]
    pub(crate) fn found(&self) -> &ResolvedName<'t> {
        &self.found
    }

    /// Returns the place of the type in a line that matches this model and has this id.
    #[inline(always)]
    pub(crate) fn type_at(&self, id: Option<&[u8]>) -> Option<TypeAt> {
        let place = self.action.type_at?;
        Some(self.moved(place, id.map_or(0, <[u8]>::len)))
    }

    /// Moves the place of a type that stands behind the id, as the id's length requires.
    #[inline(never)]
    fn moved(&self, place: TypeAt, length: usize) -> TypeAt {
        let before = self.action.id.map_or(0, <[u8]>::len) as u32;
        match place.start as usize > self.before.len() {
            true => TypeAt {
                start: place.start + length as u32 - before,
                end: place.end + length as u32 - before,
                ..place
            },
            false => place,
        }
    }
}

// === impl Ending ===

impl<'b> Ending<'b> {
    fn of(bytes: &'b [u8]) -> Self {
        let mut word = [0; 8];
        let length = bytes.len().min(word.len());
        word[..length].copy_from_slice(&bytes[..length]);
        Self {
            bytes,
            word: u64::from_le_bytes(word),
            mask: u64::MAX.checked_shr(64 - 8 * length as u32).unwrap_or(0),
        }
    }

    /// Returns whether `rest` begins with these bytes.
    #[inline(always)]
    fn begins(&self, rest: &[u8]) -> bool {
        match rest.first_chunk() {
            Some(word) if self.bytes.len() <= word.len() => {
                (u64::from_le_bytes(*word) ^ self.word) & self.mask == 0
            }
            _ => rest.starts_with(self.bytes),
        }
    }
}

/// Like `text.starts_with(start)`, without a call if `start` is long.
#[inline(always)]
fn begins_with(text: &[u8], start: &[u8]) -> bool {
    let Some(text) = text.get(..start.len()) else {
        return false;
    };
    let (Some(end), Some(text_end)) = (start.last_chunk::<16>(), text.last_chunk::<16>()) else {
        return text == start;
    };
    let chunks = start.as_chunks::<16>().0.iter();
    end == text_end
        && chunks
            .zip(text.as_chunks::<16>().0)
            .all(|(one, other)| one == other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_and_endings_are_compared_to_their_last_byte() {
        let text: Vec<u8> = (0..60).collect();
        for length in 0..50 {
            let (start, short) = (&text[..length], &text[..length.saturating_sub(1)]);
            assert!(begins_with(&text, start) && Ending::of(start).begins(&text));
            assert!(begins_with(start, start) && Ending::of(start).begins(start));
            assert_eq!(begins_with(short, start), length == 0);
            assert_eq!(Ending::of(start).begins(short), length == 0);
            for changed in 0..length {
                let mut other = text.clone();
                other[changed] ^= 0x80;
                assert!(!begins_with(&other, start), "{length}, {changed}");
                assert!(!Ending::of(start).begins(&other), "{length}, {changed}");
                assert!(!Ending::of(start).begins(&other[..length]), "{length}, {changed}");
            }
        }
    }
}
