//! The runs of directed documents in one body: the shard that each index's documents go to now, and the
//! progress of that run.

use crate::action::Form;
use crate::direct::Value;
use crate::failed::ROUTING_KEY;
use crate::plan::{ARENA, Piece};
use crate::walk::Doc;
use crate::{Directing, IndexRoute, Run};

/// The runs under way, one for each index.
#[derive(Debug, Default)]
pub(crate) struct Runs<'t> {
    all: Vec<IndexRun<'t>>,
    /// The run that was used last.
    last: usize,
}

#[derive(Debug)]
struct IndexRun<'t> {
    ordinal: u32,
    route: &'t IndexRoute,
    /// The run; `None` if no shard is known, for the rest of the body.
    run: Option<Run>,
    docs: u32,
    bytes: u64,
    /// The place of the routing value in the arena, in each form.
    entries: [Option<Piece>; 3],
}

/// The shard that a document was assigned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Assigned {
    pub(crate) shard: u32,
    /// The run that the document belongs to.
    held: usize,
}

impl<'t> Runs<'t> {
    /// Returns the shard of the next document, and counts the document.
    #[inline]
    pub(crate) fn next(&mut self, doc: &Doc<'_, 't>, directing: &dyn Directing) -> Option<Assigned> {
        let held = self.held(doc);
        let one = &mut self.all[held];
        let full = match &one.run {
            Some(run) => one.docs >= run.docs || one.bytes >= run.bytes,
            None => false,
        };
        if full {
            one.end(directing);
        }
        if full || one.is_new() {
            one.run = directing.begin(one.route);
            one.entries = [None; 3];
        }
        one.docs += 1;
        one.bytes += (doc.end - doc.start) as u64;
        let shard = one.run?.shard;
        Some(Assigned { shard, held })
    }

    /// Ends all runs.
    pub(crate) fn end(&mut self, directing: &dyn Directing) {
        for one in &mut self.all {
            one.end(directing);
        }
    }

    /// Returns the routing value of a document in the form that its action line takes; it is written to the
    /// arena once per run.
    pub(crate) fn entry(
        &mut self,
        assigned: Assigned,
        form: Form,
        value: impl FnOnce() -> Value,
        arena: &mut Vec<u8>,
    ) -> Piece {
        let entry = &mut self.all[assigned.held].entries[form as usize];
        *entry.get_or_insert_with(|| {
            let start = arena.len() as u32 | ARENA;
            if form == Form::Value {
                arena.push(b',');
            }
            arena.extend_from_slice(ROUTING_KEY);
            arena.extend_from_slice(value().as_bytes());
            arena.push(b'"');
            if form == Form::First {
                arena.push(b',');
            }
            Piece {
                start,
                end: arena.len() as u32,
            }
        })
    }

    fn held(&mut self, doc: &Doc<'_, 't>) -> usize {
        if self
            .all
            .get(self.last)
            .is_some_and(|held| held.ordinal == doc.ordinal)
        {
            return self.last;
        }
        self.last = match self.all.binary_search_by_key(&doc.ordinal, |held| held.ordinal) {
            Ok(at) => at,
            Err(at) => {
                let new = IndexRun {
                    ordinal: doc.ordinal,
                    route: doc.route,
                    run: None,
                    docs: 0,
                    bytes: 0,
                    entries: [None; 3],
                };
                self.all.insert(at, new);
                at
            }
        };
        self.last
    }
}

// === impl IndexRun ===

impl IndexRun<'_> {
    fn is_new(&self) -> bool {
        self.docs == 0
    }

    fn end(&mut self, directing: &dyn Directing) {
        if let Some(run) = &self.run
            && self.docs > 0
        {
            directing.end(self.route, run.shard, self.docs, self.bytes);
        }
        (self.docs, self.bytes) = (0, 0);
    }
}
