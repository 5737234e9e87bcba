//! The action lines that were read lately. Most of those that follow are the same but for their ids, and are told from them
//! without being read again: also where a body goes to several indices by turns, or mixes operations.

use crate::action::{Action, ID_BYTES_MAX};
use crate::scan;
use crate::walk::Found;

/// Lines read and resolved, and which of them follows which.
#[derive(Default)]
pub(crate) struct Models<'b, 't> {
    list: Vec<Model<'b, 't>>,
    /// The one that the last line was like.
    last: usize,
    /// The one that the next new line takes the place of, once there are [`MODELS_MAX`].
    oldest: usize,
    /// How often a line like none of them may still be compared with all. Lines that are each unlike all others (a routing in
    /// each, say) soon cost one comparison.
    misses_left: u8,
    /// How often one was not compared since then.
    skipped: u8,
}

/// An action line that was read and resolved.
struct Model<'b, 't> {
    /// The line up to its id; the whole line if it has none.
    before: &'b [u8],
    /// The line from the end of its id.
    after: &'b [u8],
    action: Action<'b>,
    found: Found<'t>,
    /// The model of the line that came after one like this.
    next: usize,
}

/// Lines of so many kinds are remembered.
const MODELS_MAX: usize = 16;
const MISSES_MAX: u8 = 32;
const SKIPPED_MAX: u8 = 64;

// === impl Models ===

impl<'b, 't> Models<'b, 't> {
    /// The action and the length of the line that `rest` begins with, and what it stands for, if it is like one before.
    #[inline]
    pub(crate) fn read(&mut self, rest: &'b [u8]) -> Option<(Action<'b>, usize, Found<'t>)> {
        let next = self.list.get(self.last)?.next;
        match self.list[next].read(rest) {
            Some(read) => {
                self.last = next;
                Some(read)
            }
            None => self.read_unexpected(rest, next),
        }
    }

    /// The same, where the line is not like the one that came after the last one the last time.
    #[inline(never)]
    fn read_unexpected(&mut self, rest: &'b [u8], unlike: usize) -> Option<(Action<'b>, usize, Found<'t>)> {
        if self.misses_left == 0 {
            self.skipped = (self.skipped + 1) % SKIPPED_MAX;
            // Lines may come to be alike later in the body.
            if self.skipped != 0 {
                return None;
            }
            self.misses_left = 1;
        }
        for at in (0..self.list.len()).filter(|at| *at != unlike) {
            if let Some(read) = self.list[at].read(rest) {
                self.list[self.last].next = at;
                self.last = at;
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
        // Likely the next one is like this, or like the first of a round.
        let model = Model::of(line, action, found, at);
        match self.list.get_mut(at) {
            Some(old) => *old = model,
            None => self.list.push(model),
        }
        match self.list.len() {
            1 => self.misses_left = MISSES_MAX,
            _ => self.list[self.last].next = at,
        }
        self.last = at;
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

    #[inline]
    fn read(&self, rest: &'b [u8]) -> Option<(Action<'b>, usize, Found<'t>)> {
        if !rest.starts_with(self.before) {
            return None;
        }
        let at = self.before.len();
        if self.action.id.is_none() {
            return Some((self.action, at, self.found));
        }
        let id = scan::plain_string(rest, at)?;
        let end = at + id.len();
        let is_like = id.len() <= ID_BYTES_MAX && rest[end..].starts_with(self.after);
        let mut action = Action {
            id: Some(id),
            ..self.action
        };
        if let Some(place) = &mut action.type_at
            && place.start as usize > at
        {
            // What stands behind the id moves with its length.
            let before = self.action.id.map_or(0, <[u8]>::len) as u32;
            place.start = place.start + id.len() as u32 - before;
            place.end = place.end + id.len() as u32 - before;
        }
        is_like.then_some((action, end + self.after.len(), self.found))
    }
}
