//! Items for operations that no node has answered.

use crate::action::{Form, Op};
use crate::items::Head;
use crate::walk::Walk;
use crate::{Ask, ID_LENGTH, Plan, Reply, RouteTable};

/// An error that the items of a part carry because no node has answered them.
#[derive(Clone, Copy, Debug)]
pub struct RawError<'a> {
    /// HTTP status of the items, e.g. 503.
    pub status: u16,
    /// `type` of the error, e.g. `unavailable_shards_exception`.
    pub kind: &'a str,
    /// `reason` of the error, in words.
    pub reason: &'a str,
}

impl Reply<'static> {
    /// Makes the items of a part that no node has answered, in the form of an item failure of this cluster
    /// (`BulkItemResponse.toXContent`): the concrete index, the id as given (minted ids included) or null,
    /// the status and the error.
    ///
    /// `body`, `ask` and `table` are those from which `plan` was made.
    pub fn failed(
        plan: &Plan,
        part: usize,
        body: &[u8],
        ask: &Ask<'_>,
        table: &RouteTable,
        error: RawError<'_>,
    ) -> Self {
        let mut text = Vec::new();
        let mut bounds = Vec::new();
        let mut minted = 0;
        let typed = ask.items_have_type(table.dialect());
        let mut doc_number = 0;
        let walk = Walk::new(body, ask, table, true);
        if let Ok(mut walk) = walk {
            while let Ok(Some(doc)) = walk.next() {
                let id = if doc.choice.mints() {
                    let id = minted_id(plan, &mut minted, doc.id_gap.form);
                    Some(id)
                } else {
                    doc.id
                };
                if plan.part_of(doc_number) == part {
                    let start = text.len() as u32;
                    write_item(&mut text, doc.op, &doc.route.name, id, typed, error);
                    bounds.push((start, text.len() as u32));
                }
                doc_number += 1;
            }
        }
        let head = Head {
            keys: Vec::new(),
            errors: true,
            ingest_took_ms: None,
        };
        Self {
            bytes: text.into(),
            bounds,
            replaced: Default::default(),
            head,
            compact: false,
        }
    }
}

/// Writes one failed item. `typed`: with its type.
pub(crate) fn write_item(
    out: &mut Vec<u8>,
    op: Op,
    index: &str,
    id: Option<&[u8]>,
    typed: bool,
    error: RawError<'_>,
) {
    out.extend_from_slice(b"{\"");
    out.extend_from_slice(op.as_str().as_bytes());
    out.extend_from_slice(b"\":{\"_index\":");
    write_string(out, index);
    if typed {
        out.extend_from_slice(b",\"_type\":\"_doc\"");
    }
    out.extend_from_slice(b",\"_id\":");
    match id {
        Some(id) => write_string(out, &String::from_utf8_lossy(id)),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(format!(",\"status\":{},\"error\":{{\"type\":", error.status).as_bytes());
    write_string(out, error.kind);
    out.extend_from_slice(b",\"reason\":");
    write_string(out, error.reason);
    out.extend_from_slice(b"}}}");
}

/// The text before a routing value that is given to documents.
pub(crate) const ROUTING_KEY: &[u8] = b"\"routing\":\"";

/// Returns the length of an arena's first entry, if that is a routing value.
fn routing_entry(arena: &[u8]) -> Option<usize> {
    let before = usize::from(arena.first() == Some(&b','));
    let value = arena[before..].strip_prefix(ROUTING_KEY)?;
    let end = before + ROUTING_KEY.len() + memchr::memchr(b'"', value)? + 1;
    Some(end + usize::from(before == 0 && arena.get(end) == Some(&b',')))
}

pub(crate) fn write_string(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a Vec takes all that is written");
}

/// Returns the next minted id of the arena, whose entries are in the order of the documents, with routing
/// values among them.
pub(crate) fn minted_id<'p>(plan: &'p Plan, at: &mut usize, form: Form) -> &'p [u8] {
    while let Some(routing) = routing_entry(&plan.arena[*at..]) {
        *at += routing;
    }
    let (before, after) = match form {
        Form::Only => (7, 1),
        Form::First => (7, 2),
        Form::Value => (1, 1),
    };
    let start = *at + before;
    *at = start + ID_LENGTH + after;
    &plan.arena[start..start + ID_LENGTH]
}
