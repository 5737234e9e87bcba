//! Cutting one node's reply into its items.
//!
//! A reply is `{"took":…,"errors":…,"items":[{"op":{…}},{"op":{…}}]}`. In a compact reply each boundary
//! between two items reads `}},{"`. The same text may occur elsewhere too (in an error's nested causes, in an
//! id); but since every true boundary matches, there is no false match if there are exactly as many matches
//! as boundaries. Otherwise a reader that follows strings and brackets cuts the reply.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use memchr::{memchr2, memmem};

use crate::action::Op;
use crate::boundaries;

/// The answer to one part: it has as many items as the part has operations.
#[derive(Debug)]
pub struct Reply<'r> {
    pub(crate) bytes: Cow<'r, [u8]>,
    /// The start and end of each item.
    pub(crate) bounds: Vec<(u32, u32)>,
    pub(crate) replaced: BTreeMap<u32, Vec<u8>>,
    pub(crate) head: Head,
    /// Whether the items follow each other with only a comma between them.
    pub(crate) compact: bool,
}

/// The parts of a reply before and after the items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// Keys in the order of the reply.
    pub(crate) keys: Vec<HeadKey>,
    pub(crate) errors: bool,
    pub(crate) ingest_took_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HeadKey {
    Took,
    Errors,
    IngestTook,
    Items,
    /// A key that we do not know, with its scalar value, as in the reply.
    Other(Box<[u8]>),
}

/// The reason why replies cannot be merged. The node is at fault: the gateway answers as if the part's fate
/// were unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// A reply is not the JSON of a bulk answer.
    #[error("a node's reply is not a bulk reply: {0}")]
    Malformed(&'static str),
    /// A reply has more or fewer items than its part has operations.
    #[error("a node answered {items} items to {docs} operations")]
    Count {
        /// Operations sent.
        docs: u32,
        /// Items received.
        items: u32,
    },
    /// There are not as many replies as parts.
    #[error("{replies} replies to {parts} parts")]
    Replies {
        /// Parts of the plan.
        parts: usize,
        /// Replies given.
        replies: usize,
    },
}

/// The facts that an item states about its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemFacts {
    /// The action that the item answers.
    pub op: Option<Op>,
    /// The item's HTTP status; `None` if it has none.
    pub status: Option<u16>,
    /// Whether the item carries an `error`. (A delete that found nothing has status 404 and no error.)
    pub failed: bool,
}

// === impl Reply ===

impl<'r> Reply<'r> {
    /// Cuts a node's reply (the whole body of a 200) into items, `docs` of them.
    ///
    /// # Errors
    ///
    /// [`MergeError::Malformed`] when it is not a bulk reply, [`MergeError::Count`] when it has another
    /// number of items.
    pub fn split(bytes: &'r [u8], docs: u32) -> Result<Self, MergeError> {
        let mut splitting = Splitting::new(bytes, docs)?;
        while !splitting.advance(usize::MAX)? {}
        splitting.end()
    }

    /// Like [`Reply::split`], for replies with many items: between two stretches of items it awaits `turn`,
    /// so that other work on the thread can continue meanwhile.
    ///
    /// # Errors
    ///
    /// Like [`Reply::split`].
    pub async fn split_in_turns(
        bytes: &'r [u8],
        docs: u32,
        mut turn: impl AsyncFnMut(),
    ) -> Result<Self, MergeError> {
        let mut splitting = Splitting::new(bytes, docs)?;
        while !splitting.advance(STRETCH_ITEMS)? {
            turn().await;
        }
        splitting.end()
    }

    /// Returns the number of items.
    pub fn items(&self) -> u32 {
        self.bounds.len() as u32
    }

    /// Returns the bytes of an item, `{"index":{…}}`. Panics if there is no such item.
    pub fn item(&self, item: u32) -> &[u8] {
        if let Some(bytes) = self.replaced.get(&item) {
            return bytes;
        }
        let (start, end) = self.bounds[item as usize];
        &self.bytes[start as usize..end as usize]
    }

    /// Returns the facts that an item states. Panics if there is no such item.
    pub fn facts(&self, item: u32) -> ItemFacts {
        facts(self.item(item)).unwrap_or(ItemFacts {
            op: None,
            status: None,
            failed: true,
        })
    }

    /// Returns the HTTP status of an item; `None` if it has none. Panics if there is no such item.
    pub fn status(&self, item: u32) -> Option<u16> {
        self.facts(item).status
    }

    /// Replaces an item by another, for example by one from a retry. Panics if there is no such item.
    pub fn replace(&mut self, item: u32, bytes: Vec<u8>) {
        assert!(item < self.items(), "only an item that exists can be replaced");
        self.replaced.insert(item, bytes);
        self.compact = false;
    }

    /// Turns a `create` that failed with a version conflict into a success. This is for a caller who knows
    /// that the conflict is with its own earlier attempt, whose answer was lost: the document is the one that
    /// was to be created.
    ///
    /// The item keeps its names and says `_version` 1, `created` and 201; sequence number and shards, which
    /// are unknown, are left out. Returns false, and changes nothing, for any other item.
    pub(crate) fn count_as_created(&mut self, item: u32) -> bool {
        let bytes = self.item(item);
        let Some((facts, status_at)) = read_item(bytes) else {
            return false;
        };
        let conflict = memmem::find(bytes, b"\"version_conflict_engine_exception\"").is_some();
        if facts.op != Some(Op::Create) || facts.status != Some(409) || !facts.failed || !conflict {
            return false;
        }
        let mut created = bytes[..status_at].to_vec();
        created.extend_from_slice(b"\"_version\":1,\"result\":\"created\",\"status\":201}}");
        self.replace(item, created);
        true
    }

    /// Returns whether some item failed: as the node said, or, after replacements, as the items say.
    pub fn errors(&self) -> bool {
        if self.replaced.is_empty() {
            self.head.errors
        } else {
            (0..self.items()).any(|item| self.facts(item).failed)
        }
    }

    /// Returns the `took` of ingest pipelines in ms, if the node gives one.
    pub fn ingest_took_ms(&self) -> Option<u64> {
        self.head.ingest_took_ms
    }
}

// === impl Head ===

impl Head {
    fn key(&mut self, key: &[u8], value: &[u8], whole: &[u8]) -> Result<HeadKey, MergeError> {
        let number = || {
            std::str::from_utf8(value)
                .ok()
                .and_then(|value| value.parse::<u64>().ok())
        };
        Ok(match key {
            b"took" => HeadKey::Took,
            b"errors" => {
                self.errors = match value {
                    b"true" => true,
                    b"false" => false,
                    _ => return Err(MergeError::Malformed("errors is not a boolean")),
                };
                HeadKey::Errors
            }
            b"ingest_took" => {
                let ms = number().ok_or(MergeError::Malformed("ingest_took is not a number"))?;
                self.ingest_took_ms = Some(ms);
                HeadKey::IngestTook
            }
            b"items" => return Err(MergeError::Malformed("items is not an array")),
            _ => HeadKey::Other(whole.into()),
        })
    }
}

/// Items between two turns: they take some tenths of a millisecond.
const STRETCH_ITEMS: usize = 4_096;

/// A reply that is being cut.
struct Splitting<'r> {
    docs: u32,
    read: Read<'r>,
    head: Head,
    /// The items, while they are cut.
    cutting: Option<Cutting<'r>>,
    bounds: Vec<(u32, u32)>,
    compact: bool,
}

/// The items of a reply that are being cut.
enum Cutting<'r> {
    Compact(CompactCut<'r>),
    Bytewise(BytewiseCut<'r>),
}

/// Cuts fast, as long as the result is certain.
struct CompactCut<'r> {
    /// The items.
    inner: &'r [u8],
    from: usize,
    docs: usize,
    bounds: Vec<(u32, u32)>,
    /// Where the next item begins.
    start: u32,
}

/// Cuts by following strings and brackets.
struct BytewiseCut<'r> {
    read: Read<'r>,
    bounds: Vec<(u32, u32)>,
}

// === impl Splitting ===

impl<'r> Splitting<'r> {
    fn new(bytes: &'r [u8], docs: u32) -> Result<Self, MergeError> {
        if u32::try_from(bytes.len()).is_err() {
            return Err(MergeError::Malformed("longer than 4 GiB"));
        }
        let mut read = Read { bytes, at: 0 };
        read.take(b'{')?;
        Ok(Self {
            docs,
            read,
            head: Head::default(),
            cutting: None,
            bounds: Vec::new(),
            compact: false,
        })
    }

    /// Goes on by so many items at most; returns whether that was the end.
    fn advance(&mut self, items: usize) -> Result<bool, MergeError> {
        loop {
            let known = match &mut self.cutting {
                Some(cutting) => {
                    if !cutting.advance(items, self.read.bytes)? {
                        return Ok(false);
                    }
                    self.take_items()?;
                    HeadKey::Items
                }
                None => {
                    let start = self.read.spaces();
                    let key = self.read.string()?;
                    self.read.take(b':')?;
                    let value = self.read.spaces();
                    if key == b"items" && self.read.bytes.get(value) == Some(&b'[') {
                        self.cutting = Some(Cutting::new(self.read.bytes, value + 1, self.docs));
                        continue;
                    }
                    let text = self.read.scalar()?;
                    self.head.key(key, text, &self.read.bytes[start..self.read.at])?
                }
            };
            if known != HeadKey::Items && self.head.keys.contains(&known) {
                return Err(MergeError::Malformed("a key stands twice"));
            }
            self.head.keys.push(known);
            self.read.spaces();
            if self.read.comma_or(b'}')? {
                return Ok(true);
            }
        }
    }

    /// Takes over the items that have been cut.
    fn take_items(&mut self) -> Result<(), MergeError> {
        match self.cutting.take() {
            Some(Cutting::Compact(cut)) => {
                (self.bounds, self.compact) = (cut.bounds, true);
                // Behind the bracket that ends the items.
                self.read.at = self.read.bytes.len() - 1;
            }
            Some(Cutting::Bytewise(cut)) => {
                (self.bounds, self.compact, self.read.at) = (cut.bounds, false, cut.read.at);
            }
            None => {}
        }
        match self.bounds.len() == self.docs as usize {
            true => Ok(()),
            false => Err(MergeError::Count {
                docs: self.docs,
                items: self.bounds.len() as u32,
            }),
        }
    }

    fn end(mut self) -> Result<Reply<'r>, MergeError> {
        if self.read.spaces() != self.read.bytes.len() {
            return Err(MergeError::Malformed("it goes on after its end"));
        }
        for needed in [HeadKey::Took, HeadKey::Errors, HeadKey::Items] {
            if self.head.keys.iter().filter(|key| **key == needed).count() != 1 {
                return Err(MergeError::Malformed("took, errors and items must stand once"));
            }
        }
        Ok(Reply {
            bytes: Cow::Borrowed(self.read.bytes),
            bounds: self.bounds,
            replaced: BTreeMap::new(),
            head: self.head,
            compact: self.compact,
        })
    }
}

// === impl Cutting ===

impl<'r> Cutting<'r> {
    /// Begins to cut the items that begin at `from`, after the bracket.
    fn new(bytes: &'r [u8], from: usize, docs: u32) -> Self {
        match CompactCut::new(bytes, from, docs) {
            Some(cut) => Cutting::Compact(cut),
            None => Cutting::Bytewise(BytewiseCut::new(bytes, from)),
        }
    }

    /// Cuts so many items at most; returns whether that was the last one.
    fn advance(&mut self, items: usize, bytes: &'r [u8]) -> Result<bool, MergeError> {
        match self {
            Cutting::Compact(cut) => match cut.advance(items) {
                Some(ended) => Ok(ended),
                None => {
                    *self = Cutting::Bytewise(BytewiseCut::new(bytes, cut.from));
                    Ok(false)
                }
            },
            Cutting::Bytewise(cut) => cut.advance(items),
        }
    }
}

// === impl CompactCut ===

impl<'r> CompactCut<'r> {
    /// Returns `None` if the result would not be certain.
    fn new(bytes: &'r [u8], from: usize, docs: u32) -> Option<Self> {
        // Nothing may follow the items: then the last item's end is known from the reply's end.
        let inner = bytes.get(from..)?.strip_suffix(b"]}")?;
        if !begins_item(inner) || !inner.ends_with(b"}}") {
            return None;
        }
        Some(Self {
            inner,
            from,
            docs: docs as usize,
            bounds: Vec::with_capacity(docs as usize),
            start: from as u32,
        })
    }

    /// Cuts so many items at most; returns whether that was the last one, or `None` if the result would not
    /// be certain.
    fn advance(&mut self, items: usize) -> Option<bool> {
        let begun = self.start as usize - self.from;
        let (mut left, mut certain) = (items, true);
        let cut = boundaries::each(&self.inner[begun..], |boundary| {
            let end = begun + boundary + 2;
            certain = self.bounds.len() + 1 < self.docs && begins_item(&self.inner[end + 1..]);
            if !certain {
                return ControlFlow::Break(());
            }
            let end = (self.from + end) as u32;
            self.bounds.push((self.start, end));
            self.start = end + 1;
            left -= 1;
            match left {
                0 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        });
        if !certain {
            return None;
        }
        if cut.is_break() {
            return Some(false);
        }
        let end = self.from + self.inner.len();
        self.bounds.push((self.start, end as u32));
        (self.bounds.len() == self.docs).then_some(true)
    }
}

// === impl BytewiseCut ===

impl<'r> BytewiseCut<'r> {
    fn new(bytes: &'r [u8], from: usize) -> Self {
        Self {
            read: Read { bytes, at: from },
            bounds: Vec::new(),
        }
    }

    /// Cuts so many items at most; returns whether that was the last one.
    fn advance(&mut self, items: usize) -> Result<bool, MergeError> {
        let read = &mut self.read;
        if self.bounds.is_empty() && read.bytes.get(read.spaces()) == Some(&b']') {
            read.at += 1;
            return Ok(true);
        }
        for _ in 0..items {
            let start = read.spaces();
            if read.bytes.get(start) != Some(&b'{') {
                return Err(MergeError::Malformed("an item is not an object"));
            }
            read.skip_nested()?;
            self.bounds.push((start as u32, read.at as u32));
            read.spaces();
            if read.comma_or(b']')? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Returns whether the bytes after a boundary look like an item. If not, the boundary text was part of
/// something else, such as an error's nested causes, and would make up for an item that is not there.
#[inline]
fn begins_item(bytes: &[u8]) -> bool {
    const BEGINS: [&[u8]; 4] = [
        b"{\"index\":{",
        b"{\"create\":{",
        b"{\"update\":{",
        b"{\"delete\":{",
    ];
    BEGINS.iter().any(|begin| bytes.starts_with(begin))
}

/// Returns the facts that an item states; `None` if it is not an item.
fn facts(item: &[u8]) -> Option<ItemFacts> {
    read_item(item).map(|(facts, _)| facts)
}

/// Returns the facts that an item states, and where its key `status` begins (its end if there is none).
fn read_item(item: &[u8]) -> Option<(ItemFacts, usize)> {
    let mut read = Read { bytes: item, at: 0 };
    read.take(b'{').ok()?;
    let op = Op::parse(read.string().ok()?);
    read.take(b':').ok()?;
    read.take(b'{').ok()?;
    let mut facts = ItemFacts {
        op,
        status: None,
        failed: false,
    };
    let mut status_at = item.len();
    loop {
        let start = read.spaces();
        let key = read.string().ok()?;
        read.take(b':').ok()?;
        read.spaces();
        match *read.bytes.get(read.at)? {
            b'{' | b'[' => {
                facts.failed |= key == b"error";
                read.skip_nested().ok()?;
            }
            _ => {
                let value = read.scalar().ok()?;
                if key == b"status" {
                    status_at = start;
                    facts.status = std::str::from_utf8(value).ok()?.parse().ok();
                }
                facts.failed |= key == b"error" && value != b"null";
            }
        }
        read.spaces();
        if read.comma_or(b'}').ok()? {
            return Some((facts, status_at));
        }
    }
}

/// Follows JSON without validating it.
struct Read<'a> {
    bytes: &'a [u8],
    at: usize,
}

// === impl Read ===

impl<'a> Read<'a> {
    fn spaces(&mut self) -> usize {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.bytes.get(self.at) {
            self.at += 1;
        }
        self.at
    }

    fn take(&mut self, byte: u8) -> Result<(), MergeError> {
        let at = self.spaces();
        if self.bytes.get(at) != Some(&byte) {
            return Err(MergeError::Malformed("not the JSON of a bulk reply"));
        }
        self.at += 1;
        Ok(())
    }

    fn comma_or(&mut self, close: u8) -> Result<bool, MergeError> {
        if self.bytes.get(self.at) == Some(&close) {
            self.at += 1;
            return Ok(true);
        }
        self.take(b',').map(|()| false)
    }

    /// Reads a string; returns it as it stands between its quotes.
    fn string(&mut self) -> Result<&'a [u8], MergeError> {
        self.take(b'"')?;
        let start = self.at;
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let stop = memchr2(b'"', b'\\', rest).ok_or(MergeError::Malformed("a string has no end"))?;
            self.at += stop;
            if self.bytes[self.at] == b'"' {
                self.at += 1;
                return Ok(&self.bytes[start..self.at - 1]);
            }
            self.at += 2;
        }
    }

    /// Reads a string, number or word; returns it as it stands.
    fn scalar(&mut self) -> Result<&'a [u8], MergeError> {
        let start = self.spaces();
        if self.bytes.get(start) == Some(&b'"') {
            self.string()?;
        } else {
            while let Some(b'a'..=b'z' | b'0'..=b'9' | b'-' | b'+' | b'.' | b'E') = self.bytes.get(self.at) {
                self.at += 1;
            }
        }
        if self.at == start {
            return Err(MergeError::Malformed("a value that is not expected"));
        }
        Ok(&self.bytes[start..self.at])
    }

    /// Moves to the place after the object or array that begins here.
    fn skip_nested(&mut self) -> Result<(), MergeError> {
        let mut depth = 0_usize;
        loop {
            match self.bytes.get(self.at) {
                Some(b'"') => {
                    self.string()?;
                    continue;
                }
                Some(b'{' | b'[') => depth += 1,
                Some(b'}' | b']') => depth -= 1,
                Some(_) => {}
                None => return Err(MergeError::Malformed("it breaks off")),
            }
            self.at += 1;
            if depth == 0 {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const PLAIN: &str = r#"{"took":3,"errors":true,"items":[{"index":{"_index":"a","_id":"1","status":201}},{"create":{"_index":"a","_id":"2","status":409,"error":{"type":"version_conflict_engine_exception","reason":"y"}}},{"delete":{"_id":"3","result":"not_found","status":404}}]}"#;

    #[test]
    fn a_boundary_inside_an_error_does_not_make_up_for_a_missing_item() {
        let reply = br#"{"took":1,"errors":true,"items":[{"index":{"_id":"}},{\"","status":400,"error":{"a":[{"b":{"c":1}},{"d":1}]}}},{"delete":{"status":404}}]}"#;
        assert_eq!(
            Reply::split(reply, 3).unwrap_err(),
            MergeError::Count { docs: 3, items: 2 }
        );
        assert_eq!(
            Reply::split(reply, 2).unwrap().item(1),
            br#"{"delete":{"status":404}}"#
        );
    }

    #[test]
    fn a_reply_of_many_items_is_cut_in_turns_into_the_same_items() {
        let items = 4 * STRETCH_ITEMS;
        let item = |n| format!("{{\"index\":{{\"_id\":\"{n}\",\"status\":201}}}}");
        // A boundary that looks like one and is none has the reply cut once more.
        let tricky = |n| match n + 1 == items {
            true => "{\"index\":{\"_id\":\"}},{\\\"\",\"status\":201}}".to_owned(),
            false => item(n),
        };
        let joined = |item: &dyn Fn(usize) -> String, comma| {
            let items: Vec<String> = (0..items).map(item).collect();
            let items = items.join(comma);
            format!("{{\"took\":1,\"errors\":false,\"items\":[{items}]}}")
        };
        for text in [joined(&item, ","), joined(&item, " , "), joined(&tricky, ",")] {
            let at_once = Reply::split(text.as_bytes(), items as u32).unwrap();
            let mut turns = 0;
            let sliced = {
                let turn = async || turns += 1;
                let split = Reply::split_in_turns(text.as_bytes(), items as u32, turn);
                match pin!(split).poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(reply) => reply.unwrap(),
                    Poll::Pending => panic!("a turn takes no time"),
                }
            };
            assert_eq!(
                (&at_once.bounds, at_once.compact),
                (&sliced.bounds, sliced.compact)
            );
            assert!(turns >= 3, "{turns}");
        }
    }

    #[test]
    fn items_of_a_compact_reply_are_found_and_understood() {
        let reply = Reply::split(PLAIN.as_bytes(), 3).expect("a reply");
        assert!(reply.compact && reply.errors());
        assert_eq!(
            reply.item(0),
            br#"{"index":{"_index":"a","_id":"1","status":201}}"#
        );
        assert_eq!(
            reply.facts(1),
            ItemFacts {
                op: Some(Op::Create),
                status: Some(409),
                failed: true
            }
        );
        assert_eq!(
            reply.facts(2),
            ItemFacts {
                op: Some(Op::Delete),
                status: Some(404),
                failed: false
            }
        );
    }

    #[test]
    fn false_boundaries_and_white_space_are_seen_through() {
        let tricky = r#"{"errors":false,"took":3,"ingest_took":9,"items":[{"index":{"_id":"}},{\"","status":201}},{"index":{"_id":"b","status":200}}]}"#;
        let reply = Reply::split(tricky.as_bytes(), 2).expect("a reply");
        assert_eq!(reply.item(1), br#"{"index":{"_id":"b","status":200}}"#);
        assert_eq!(reply.ingest_took_ms(), Some(9));
        let causes = r#"{"took":1,"errors":true,"items":[{"index":{"error":{"caused_by":{"a":{"b":1}},"list":[{"x":{"y":1}},{"x":1}]},"status":400}}]}"#;
        let reply = Reply::split(causes.as_bytes(), 1).expect("a reply");
        assert_eq!(reply.status(0), Some(400));
        let pretty = "{\n  \"took\" : 3,\n  \"errors\" : false,\n  \"items\" : [\n    {\n  \"index\" : { \"status\" : 201 } } ,\n {\"index\":{\"status\":200}}\n ]\n}\n";
        let reply = Reply::split(pretty.as_bytes(), 2).expect("a reply");
        assert_eq!((reply.status(0), reply.status(1)), (Some(201), Some(200)));
    }

    #[test]
    fn a_wrong_number_of_items_is_an_error() {
        for docs in [0, 1, 2, 4, 100] {
            let error = Reply::split(PLAIN.as_bytes(), docs).expect_err("count");
            assert_eq!(error, MergeError::Count { docs, items: 3 });
        }
        assert!(Reply::split(br#"{"took":1,"errors":false,"items":[]}"#, 1).is_err());
    }

    #[test]
    fn what_is_not_a_bulk_reply_is_an_error_at_every_length() {
        for end in 0..PLAIN.len() {
            assert!(Reply::split(&PLAIN.as_bytes()[..end], 3).is_err(), "{end}");
        }
        for text in [
            r#"{"error":{"type":"x"},"status":400}"#,
            r#"{"took":1,"items":[]}"#,
            r#"{"took":1,"took":1,"errors":false,"items":[]}"#,
            r#"{"took":1,"errors":false,"items":[1]}"#,
            r#"{"took":1,"errors":false,"items":[]}x"#,
            "[]",
        ] {
            assert!(Reply::split(text.as_bytes(), 0).is_err(), "{text}");
        }
    }

    #[test]
    fn only_a_create_that_met_itself_counts_as_created() {
        let mut reply = Reply::split(PLAIN.as_bytes(), 3).expect("a reply");
        assert!(!reply.count_as_created(0) && !reply.count_as_created(2));
        assert!(reply.count_as_created(1));
        let expected = r#"{"create":{"_index":"a","_id":"2","_version":1,"result":"created","status":201}}"#;
        assert_eq!(std::str::from_utf8(reply.item(1)), Ok(expected));
        assert!(!reply.errors() && !reply.count_as_created(1));
    }

    #[test]
    fn replaced_items_count_anew() {
        let mut reply = Reply::split(PLAIN.as_bytes(), 3).expect("a reply");
        reply.replace(1, br#"{"create":{"_id":"2","status":201}}"#.to_vec());
        assert!(!reply.errors());
        assert_eq!(reply.status(1), Some(201));
    }
}
