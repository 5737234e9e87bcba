//! The action lines that were read lately. Most of those that follow are the same but for their ids, and are
//! told from them without being read again: also where a body goes to several indices by turns, or mixes
//! operations.

use crate::action::{Action, ID_BYTES_MAX, TypeAt};
use crate::scan;
use crate::walk::Found;

/// Lines read and resolved, and which of them follows which.
#[derive(Default)]
pub(crate) struct Models<'b, 't> {
    list: Vec<Model<'b, 't>>,
    /// The one that the last line was like.
    last: usize,
    /// The one that the next line is expected to be like.
    next: usize,
    /// The one that the next new line takes the place of, once there are [`MODELS_MAX`].
    oldest: usize,
    /// How often a line like none of them may still be compared with all. Lines that are each unlike all
    /// others (a routing in each, say) soon cost one comparison.
    misses_left: u8,
    /// How often one was not compared since then.
    skipped: u8,
}

/// An action line that was read and resolved.
pub(crate) struct Model<'b, 't> {
    /// The line up to its id; the whole line if it has none.
    before: &'b [u8],
    /// The line from the end of its id.
    after: &'b [u8],
    action: Action<'b>,
    pub(crate) found: Found<'t>,
    /// The model of the line that came after one like this.
    next: usize,
}

/// Lines of so many kinds are remembered.
const MODELS_MAX: usize = 16;
const MISSES_MAX: u8 = 32;
const SKIPPED_MAX: u8 = 64;

// === impl Models ===

impl<'b, 't> Models<'b, 't> {
    /// The id and the length of the line that `rest` begins with, if it is like one before, which is the last
    /// one then.
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

    /// The one that the last line was like.
    #[inline]
    pub(crate) fn last(&self) -> &Model<'b, 't> {
        &self.list[self.last]
    }

    /// The same, where the line is not like the one that came after the last one the last time.
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

    /// Remembers a line, which none is like.
    pub(crate) fn learn(&mut self, line: &'b [u8], action: Action<'b>, found: Found<'t>) {
        let mut at = self.list.len();
        if at == MODELS_MAX {
            at = self.oldest;
            self.oldest = (at + 1) % MODELS_MAX;
        }
        // Likely the next one is like this.
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

    /// A line like this one came after the last.
    fn follows(&mut self, at: usize) {
        self.list[self.last].next = at;
        self.last = at;
        self.next = self.list[at].next;
    }
}

// === impl Model ===

impl<'b, 't> Model<'b, 't> {
    /// A line that the fast reader understood.
    fn of(line: &'b [u8], action: Action<'b>, found: Found<'t>, next: usize) -> Self {
        let (before, after) = match action.id {
            None => (line, &line[..0]),
            Some(id) => {
                let at = id.as_ptr() as usize - line.as_ptr() as usize;
                (&line[..at], &line[at + id.len()..])
            }
        };
        Self {
            before,
            after,
            action,
            found,
            next,
        }
    }

    /// The id and the length of the line that `rest` begins with, if it is like this one.
    #[inline(always)]
    fn read(&self, rest: &'b [u8]) -> Option<(Option<&'b [u8]>, usize)> {
        if !rest.starts_with(self.before) {
            return None;
        }
        let at = self.before.len();
        if self.action.id.is_none() {
            return Some((None, at));
        }
        let id = scan::plain_string(rest, at)?;
        let end = at + id.len();
        (id.len() <= ID_BYTES_MAX && rest[end..].starts_with(self.after))
            .then_some((Some(id), end + self.after.len()))
    }

    /// What a line says that is like this one, and has this id.
    #[inline(always)]
    pub(crate) fn action(&self, id: Option<&'b [u8]>) -> Action<'b> {
        let length = id.map_or(0, <[u8]>::len);
        Action {
            id,
            type_at: self.action.type_at.map(|place| self.moved(place, length)),
            ..self.action
        }
    }

    /// What stands behind the id moves with its length.
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
