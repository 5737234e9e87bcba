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
    after: &'b [u8],
    action: Action<'b>,
    pub(crate) found: ResolvedName<'t>,
    /// The model of the line that followed the last line like this one.
    next: usize,
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
            after,
            action,
            found,
            next,
        }
    }

    /// Returns the id and the length of the line that `rest` begins with, if it matches this model.
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

    /// Returns the action of a line that matches this model and has this id.
    #[inline(always)]
    pub(crate) fn action(&self, id: Option<&'b [u8]>) -> Action<'b> {
        let length = id.map_or(0, <[u8]>::len);
        Action {
            id,
            type_at: self.action.type_at.map(|place| self.moved(place, length)),
            ..self.action
        }
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
