//! One node's reply, cut into its items.

use crate::Dialect;

/// One part's answer: as many items as the part has operations.
#[derive(Debug)]
pub struct Reply<'r> {
    bytes: std::borrow::Cow<'r, [u8]>,
}

/// Why replies cannot be merged. The node's fault: the gateway answers as if the part's fate were unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// A reply is not the JSON that a bulk is answered with.
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

/// An error that items of a part carry which no node has answered.
#[derive(Clone, Copy, Debug)]
pub struct RawError<'a> {
    /// HTTP status of the items, e.g. 503.
    pub status: u16,
    /// `type` of the error, e.g. `unavailable_shards_exception`.
    pub kind: &'a str,
    /// `reason` of the error, in words.
    pub reason: &'a str,
}

// === impl Reply ===

impl<'r> Reply<'r> {
    /// Cuts a node's reply (the whole body of a 200) into items.
    pub fn split(bytes: &'r [u8], docs: u32) -> Result<Self, MergeError> {
        let _ = docs;
        Ok(Self { bytes: bytes.into() })
    }

    /// Makes the items of a part that no node has answered, shaped as this cluster shapes an item failure.
    pub fn failed(
        plan: &crate::Plan,
        part: usize,
        body: &[u8],
        ask: &crate::Ask<'_>,
        table: &crate::RouteTable,
        error: RawError<'_>,
    ) -> Self {
        let _ = (plan, part, body, ask, table, error);
        Self {
            bytes: std::borrow::Cow::Owned(Vec::new()),
        }
    }

    /// Number of items.
    pub fn items(&self) -> u32 {
        0
    }

    /// The bytes of an item, `{"index":{…}}`.
    pub fn item(&self, item: u32) -> &[u8] {
        let _ = item;
        &self.bytes
    }

    /// The HTTP status of an item; `None` if it says none.
    pub fn status(&self, item: u32) -> Option<u16> {
        let _ = item;
        None
    }

    /// Puts another item in an item's place, e.g. one that a retry brought.
    pub fn replace(&mut self, item: u32, bytes: Vec<u8>) {
        let _ = (item, bytes);
    }

    /// Whether some item failed: as the node said, or after replacements as the items say.
    pub fn errors(&self) -> bool {
        false
    }
}

/// The one reply to the client: `{took, errors, items}` with all parts' items in the order of the request.
#[derive(Debug)]
pub struct Merge<'p, 'r> {
    plan: &'p crate::Plan,
    replies: Vec<Reply<'r>>,
}

// === impl Merge ===

impl<'p, 'r> Merge<'p, 'r> {
    /// Gets ready to merge: one reply for each part, in the order of `plan.parts`.
    pub fn new(
        plan: &'p crate::Plan,
        replies: Vec<Reply<'r>>,
        took_ms: u64,
        dialect: &Dialect,
    ) -> Result<Self, MergeError> {
        let _ = (took_ms, dialect);
        Ok(Self { plan, replies })
    }

    /// Length of the whole reply, bytes: its `Content-Length`.
    pub fn bytes(&self) -> u64 {
        self.replies.len() as u64 + self.plan.parts.len() as u64
    }

    /// Whether some item failed.
    pub fn errors(&self) -> bool {
        false
    }

    /// Appends the reply's next bytes to `out`, at most `max` of them, and returns how many; 0 at the end.
    pub fn next(&mut self, out: &mut Vec<u8>, max: usize) -> usize {
        let _ = (out, max);
        0
    }
}
