//! Decides which parts may be sent again when their fate is unknown, and what the second answer is worth.
//!
//! Executing an operation twice must have the same effect as executing it once, and where the answers differ,
//! the answer to the second try must not be taken for the answer to the first:
//!
//! | operation | sent again | the second answer |
//! |---|---|---|
//! | `index` with an id | yes | stands; it may say `updated` and a higher version |
//! | `create` with an id that was minted for it | yes | a conflict can only be with the first try: created |
//! | `create` with an id of the client's | yes | whose conflict it is cannot be known: the item says so |
//! | `delete` | yes | whether `not_found` is due to the first try cannot be known: the item says so |
//! | `update` | no: a script may count | |
//! | `index`, `create` without an id | no: it would be doubled | |
//! | with a version or a sequence number | no: it conflicts with itself | |
//!
//! Operations on one document stay in order within their part, so after a second try the last of them decides
//! as it did after the first, however far the first try got.

use crate::failed::write_item;
use crate::walk::Walk;
use crate::{Ask, Dialect, Op, Plan, RawError, Reply, RouteTable};

/// A part that may be sent again after a try of unknown fate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// The items whose second answer may have to be changed.
    doubts: Vec<Doubt>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Doubt {
    item: u32,
    op: Op,
    index: Box<str>,
    /// The id; `None` if it was minted here.
    id: Option<Box<[u8]>>,
}

// === impl Repeat ===

impl Repeat {
    /// Returns the rules for sending a part again; `None` if it may not be sent again.
    ///
    /// `body`, `ask` and `table` are those from which `plan` was made. `now` is the newest table: if a name
    /// leads to another index by now (after a rollover), a second try would put the document into both.
    pub fn of(
        plan: &Plan,
        part: usize,
        body: &[u8],
        ask: &Ask<'_>,
        table: &RouteTable,
        now: &RouteTable,
    ) -> Option<Self> {
        let mut doubts = Vec::new();
        let (mut doc_number, mut item) = (0, 0);
        let mut walk = Walk::new(body, ask, table, true).ok()?;
        while let Some(doc) = walk.next().ok()? {
            doc_number += 1;
            if plan.part_of(doc_number - 1) != part {
                continue;
            }
            let minted = doc.choice.mints();
            let has_id = doc.id.is_some() || minted;
            if doc.op == Op::Update || doc.versioned || !has_id {
                return None;
            }
            let name = doc.index.or(ask.default_index.map(str::as_bytes))?;
            let write = now.entry(name)?.target.write().ok()?;
            if write.name != doc.route.name {
                return None;
            }
            if matches!(doc.op, Op::Create | Op::Delete) {
                doubts.push(Doubt {
                    item,
                    op: doc.op,
                    index: doc.route.name.clone(),
                    id: doc.id.map(Into::into),
                });
            }
            item += 1;
        }
        Some(Self { doubts })
    }

    /// Corrects the answer to a second try, so that the effects of the first try are not reported as caused
    /// by somebody else.
    pub fn settle(&self, reply: &mut Reply<'_>, dialect: &Dialect) {
        for doubt in &self.doubts {
            let facts = reply.facts(doubt.item);
            let why = match (doubt.op, facts.status, facts.failed) {
                (Op::Create, Some(409), true) => FOUND,
                (Op::Delete, Some(404), false) => NOT_FOUND,
                _ => continue,
            };
            let Some(id) = &doubt.id else {
                reply.count_as_created(doubt.item);
                continue;
            };
            let error = RawError {
                status: 503,
                kind: "unavailable_shards_exception",
                reason: why,
            };
            let mut item = Vec::new();
            write_item(&mut item, doubt.op, &doubt.index, Some(id), dialect, error);
            reply.replace(doubt.item, item);
        }
    }
}

const FOUND: &str = "gateway: a first try of this operation got no answer, and a second one found the document there: \
                     the first try created it, or it had been there before";

const NOT_FOUND: &str = "gateway: a first try of this operation got no answer, and a second one found no document: \
                         the first try deleted it, or there had been none";
