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
//! A second try that is refused for what may pass, or may have come since (429, 403, 5xx), says nothing of
//! the first: the item says that, whatever the operation. What is wrong with the document or its index (400,
//! 404) was so the first time, or the index was made anew and the first try's document is gone with the old
//! one.
//!
//! Operations on one document stay in order within their part, so after a second try the last of them decides
//! as it did after the first, however far the first try got.

use std::collections::BTreeMap;

use crate::failed::write_item;
use crate::walk::Walk;
use crate::{Ask, Op, Plan, RawError, Reply, RouteTable};

/// A part that may be sent again after a try of unknown fate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// The operations, each with the number of its item.
    doubts: Vec<Doubt>,
    /// Whether items name a type.
    typed: bool,
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
            doubts.push(Doubt {
                item,
                op: doc.op,
                index: doc.route.name.clone(),
                id: doc.id.map(Into::into),
            });
            item += 1;
        }
        Some(Self {
            doubts,
            typed: ask.items_have_type(table.dialect()),
        })
    }

    /// Corrects the answer to a second try, so that the effects of the first try are not reported as caused
    /// by somebody else.
    pub fn settle(&self, reply: &mut Reply<'_>) {
        for doubt in &self.doubts {
            let facts = reply.facts(doubt.item);
            match (doubt.op, facts.status, facts.failed) {
                (Op::Create, Some(409), true) if doubt.id.is_none() => {
                    reply.count_as_created(doubt.item);
                }
                (Op::Create, Some(409), true) => doubt.put(reply, self.typed, FOUND),
                (Op::Delete, Some(404), false) => doubt.put(reply, self.typed, NOT_FOUND),
                (_, Some(400 | 404 | 409), true) | (_, _, false) => {}
                (_, status, true) => {
                    let status = status.map_or_else(|| "an error".to_owned(), |status| status.to_string());
                    doubt.put(reply, self.typed, &format!("{REFUSED} {status}"));
                }
            }
        }
    }
}

impl Doubt {
    /// Makes the item say that nobody knows what became of its operation.
    fn put(&self, reply: &mut Reply<'_>, typed: bool, why: &str) {
        let error = RawError {
            status: 503,
            kind: "unavailable_shards_exception",
            reason: why,
        };
        let minted = match self.id {
            Some(_) => None,
            None => id_of(reply.item(self.item)),
        };
        let id = self.id.as_deref().or(minted.as_deref().map(str::as_bytes));
        let mut item = Vec::new();
        write_item(&mut item, self.op, &self.index, id, typed, error);
        reply.replace(self.item, item);
    }
}

/// Returns the id in an item. Ids that were minted here have no character that JSON escapes.
fn id_of(item: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Named {
        #[serde(rename = "_id")]
        id: String,
    }
    let item: BTreeMap<String, Named> = serde_json::from_slice(item).ok()?;
    item.into_values().next().map(|named| named.id)
}

const FOUND: &str = "gateway: a first try of this operation got no answer, and a second one found the document there: \
                     the first try created it, or it had been there before";

const NOT_FOUND: &str = "gateway: a first try of this operation got no answer, and a second one found no document: \
                         the first try deleted it, or there had been none";

const REFUSED: &str = "gateway: a first try of this operation got no answer, and may have been executed; a second one was \
                       refused with";
