//! Merging the nodes' replies into one, with every item in the place of its operation.

use crate::items::{Head, HeadKey};
use crate::{Dialect, MergeError, Plan, Reply};

/// The one reply to the client: `took`, `errors` and the items of all parts in the order of the request, as
/// the nodes wrote them. Keys have the order that they have in the nodes' replies.
#[derive(Debug)]
pub struct Merge<'p, 'r> {
    plan: &'p Plan,
    replies: Vec<Reply<'r>>,
    head: Vec<u8>,
    tail: Vec<u8>,
    errors: bool,
    bytes: u64,
    /// Bytes that have been given out.
    given: u64,
    stage: Stage,
    /// Bytes of the present segment that have been given out.
    offset: usize,
    doc: u32,
    /// The next item of each reply.
    next: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Head,
    Items,
    Tail,
    Done,
}

// === impl Merge ===

impl<'p, 'r> Merge<'p, 'r> {
    /// Prepares a merge of one reply for each part, in the order of `plan.parts`. `took_ms` is the `took`
    /// that the client is told. `dialect` gives the shape where no node has answered.
    ///
    /// # Errors
    ///
    /// When replies and parts do not match in number or in items.
    pub fn new(
        plan: &'p Plan,
        replies: Vec<Reply<'r>>,
        took_ms: u64,
        dialect: &Dialect,
    ) -> Result<Self, MergeError> {
        if replies.len() != plan.parts.len() {
            return Err(MergeError::Replies {
                parts: plan.parts.len(),
                replies: replies.len(),
            });
        }
        for (part, reply) in plan.parts.iter().zip(&replies) {
            if part.docs != reply.items() {
                return Err(MergeError::Count {
                    docs: part.docs,
                    items: reply.items(),
                });
            }
        }
        let errors = replies.iter().any(Reply::errors);
        let (head, tail) = frame(&replies, errors, took_ms, dialect);
        let items: u64 = replies.iter().map(item_bytes).sum();
        let bytes = (head.len() + tail.len()) as u64 + items + u64::from(plan.docs).saturating_sub(1);
        let next = vec![0; replies.len()];
        Ok(Self {
            plan,
            replies,
            head,
            tail,
            errors,
            bytes,
            given: 0,
            stage: Stage::Head,
            offset: 0,
            doc: 0,
            next,
        })
    }

    /// Returns the length of the whole reply in bytes: its `Content-Length`.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns whether some item failed.
    pub fn errors(&self) -> bool {
        self.errors
    }

    /// Appends the reply's next bytes to `out`, at most `max` of them, and returns how many; 0 at the end.
    ///
    /// # Panics
    ///
    /// At the end, if an operation has no item or several, or if the reply is not as long as was said. No
    /// reply of a node can cause that; it would be a bug of the planning or of the cutting.
    pub fn next(&mut self, out: &mut Vec<u8>, max: usize) -> usize {
        let before = out.len();
        out.reserve(max.min(usize::try_from(self.bytes).unwrap_or(max)));
        let end = before + max;
        while out.len() < end && self.stage != Stage::Done {
            match self.stage {
                Stage::Head => {
                    if give(&self.head, &mut self.offset, out, end) {
                        self.stage = if self.plan.docs == 0 {
                            Stage::Tail
                        } else {
                            Stage::Items
                        };
                    }
                }
                Stage::Items => {
                    if self.give_items(out, end) {
                        self.stage = Stage::Tail;
                    }
                }
                Stage::Tail => {
                    if give(&self.tail, &mut self.offset, out, end) {
                        self.stage = Stage::Done;
                    }
                }
                Stage::Done => {}
            }
        }
        self.given += (out.len() - before) as u64;
        assert!(
            self.stage != Stage::Done || self.given == self.bytes,
            "a merged reply has the length that its head told: {} bytes, not {}",
            self.bytes,
            self.given
        );
        out.len() - before
    }

    /// Gives items; returns true when all are given.
    fn give_items(&mut self, out: &mut Vec<u8>, end: usize) -> bool {
        while self.doc < self.plan.docs {
            let part = self.plan.part_of(self.doc);
            let reply = &self.replies[part];
            let item = self.next[part];
            let last = self.doc + 1 == self.plan.docs;
            if reply.compact && !last && item + 1 < reply.items() {
                // The item's own comma follows it.
                let (start, stop) = reply.bounds[item as usize];
                if !give(
                    &reply.bytes[start as usize..=stop as usize],
                    &mut self.offset,
                    out,
                    end,
                ) {
                    return false;
                }
            } else {
                let bytes = reply.item(item);
                let length = bytes.len();
                if self.offset < length && !give_part(bytes, &mut self.offset, out, end) {
                    return false;
                }
                if !last {
                    if out.len() == end {
                        return false;
                    }
                    out.push(b',');
                }
                self.offset = 0;
            }
            self.next[part] += 1;
            self.doc += 1;
        }
        assert!(
            self.replies
                .iter()
                .map(Reply::items)
                .eq(self.next.iter().copied()),
            "each item of each part is merged once: {:?} were",
            self.next
        );
        true
    }
}

/// Merges into one buffer what [`Merge`] returns in chunks.
///
/// # Errors
///
/// Like [`Merge::new`].
pub fn merge(
    plan: &Plan,
    replies: Vec<Reply<'_>>,
    took_ms: u64,
    dialect: &Dialect,
    out: &mut Vec<u8>,
) -> Result<(), MergeError> {
    let mut merge = Merge::new(plan, replies, took_ms, dialect)?;
    while merge.next(out, usize::MAX >> 1) > 0 {}
    Ok(())
}

/// Copies as much of a segment as fits; returns true when all of it is given, and then the next segment
/// begins.
#[inline]
fn give(segment: &[u8], offset: &mut usize, out: &mut Vec<u8>, end: usize) -> bool {
    let whole = give_part(segment, offset, out, end);
    if whole {
        *offset = 0;
    }
    whole
}

#[inline]
fn give_part(segment: &[u8], offset: &mut usize, out: &mut Vec<u8>, end: usize) -> bool {
    let rest = &segment[*offset..];
    let length = rest.len().min(end - out.len());
    out.extend_from_slice(&rest[..length]);
    *offset += length;
    length == rest.len()
}

fn item_bytes(reply: &Reply<'_>) -> u64 {
    match (reply.bounds.first(), reply.bounds.last()) {
        (Some((start, _)), Some((_, end))) if reply.compact => {
            u64::from(end - start) - (reply.bounds.len() as u64 - 1)
        }
        _ => (0..reply.items()).map(|item| reply.item(item).len() as u64).sum(),
    }
}

/// Returns the bytes before and after the items.
fn frame(replies: &[Reply<'_>], errors: bool, took_ms: u64, dialect: &Dialect) -> (Vec<u8>, Vec<u8>) {
    let ingest_took_ms = replies.iter().filter_map(Reply::ingest_took_ms).max();
    let answered = || {
        replies
            .iter()
            .map(|reply| &reply.head)
            .filter(|head| !head.keys.is_empty())
    };
    let model = answered()
        .find(|head| head.ingest_took_ms == ingest_took_ms)
        .or_else(|| answered().next());
    let own;
    let keys = match model {
        Some(Head { keys, .. }) => keys,
        None => {
            own = if dialect.errors_first() {
                vec![HeadKey::Errors, HeadKey::Took, HeadKey::Items]
            } else {
                vec![HeadKey::Took, HeadKey::Errors, HeadKey::Items]
            };
            &own
        }
    };
    write_frame(keys, errors, took_ms, ingest_took_ms.unwrap_or_default())
}

/// Writes a reply with these keys and no items, cut where the items go.
pub(crate) fn write_frame(
    keys: &[HeadKey],
    errors: bool,
    took_ms: u64,
    ingest_took_ms: u64,
) -> (Vec<u8>, Vec<u8>) {
    let mut frame = vec![b'{'];
    let mut items_at = 0;
    for (nth, key) in keys.iter().enumerate() {
        if nth > 0 {
            frame.push(b',');
        }
        match key {
            HeadKey::Took => frame.extend_from_slice(format!("\"took\":{took_ms}").as_bytes()),
            HeadKey::Errors => frame.extend_from_slice(format!("\"errors\":{errors}").as_bytes()),
            HeadKey::IngestTook => {
                frame.extend_from_slice(format!("\"ingest_took\":{ingest_took_ms}").as_bytes());
            }
            HeadKey::Items => {
                frame.extend_from_slice(b"\"items\":[");
                items_at = frame.len();
                frame.push(b']');
            }
            HeadKey::Other(text) => frame.extend_from_slice(text),
        }
    }
    frame.push(b'}');
    let tail = frame.split_off(items_at);
    (frame, tail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Flavour, Part, Version};

    fn part(docs: u32) -> Part {
        Part {
            docs,
            ..Part::default()
        }
    }

    fn plan(docs: u32, parts: [u32; 2], order: &[u16]) -> Plan {
        let mut plan = Plan::default();
        plan.parts = parts.map(part).into();
        (plan.docs, plan.order) = (docs, order.to_vec());
        plan
    }

    fn merge<'p>(plan: &'p Plan, texts: &'p [String; 2]) -> Merge<'p, 'p> {
        let replies = texts.iter().zip(&plan.parts);
        let replies = replies.map(|(text, part)| Reply::split(text.as_bytes(), part.docs).unwrap());
        let dialect = Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0));
        Merge::new(plan, replies.collect(), 1, &dialect).unwrap()
    }

    fn reply(statuses: &[u16]) -> String {
        let items = statuses
            .iter()
            .map(|status| format!("{{\"index\":{{\"status\":{status}}}}}"));
        let items = items.collect::<Vec<_>>().join(",");
        format!("{{\"took\":1,\"errors\":false,\"items\":[{items}]}}")
    }

    fn whole(mut merge: Merge<'_, '_>) -> String {
        let mut out = Vec::new();
        while merge.next(&mut out, 7) > 0 {}
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn items_are_merged_in_the_order_of_their_operations() {
        let plan = plan(3, [2, 1], &[0, 1, 0]);
        let texts = [reply(&[201, 203]), reply(&[202])];
        assert_eq!(whole(merge(&plan, &texts)), reply(&[201, 202, 203]));
    }

    #[test]
    #[should_panic(expected = "each item of each part is merged once: [2, 0] were")]
    fn no_item_is_left_out() {
        let plan = plan(2, [2, 1], &[0, 0]);
        whole(merge(&plan, &[reply(&[201, 201]), reply(&[201])]));
    }

    #[test]
    #[should_panic(expected = "a merged reply has the length that its head told")]
    fn no_reply_is_longer_or_shorter_than_was_said() {
        let plan = plan(2, [1, 1], &[0, 1]);
        let texts = [reply(&[201]), reply(&[201])];
        let mut merge = merge(&plan, &texts);
        merge.bytes += 1;
        whole(merge);
    }
}
