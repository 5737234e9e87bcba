//! A record's shape, for tools that look at bytes without a log around them.

use std::ops::Range;

use crate::format::checksum::Key;
use crate::format::head::Head;

/// What a record consists of; ranges are bytes from its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Its length, with the zeros at its end.
    pub bytes: u64,
    /// Its documents.
    pub documents: u32,
    /// Its parameters.
    pub params: Range<usize>,
    /// Lane, documents and place of each group. The payload may be shorter than they say: only its head was
    /// looked at.
    pub groups: Vec<(u32, u32, Range<usize>)>,
}

impl Shape {
    /// The shape of the record that these bytes begin with, if they are a record of the log with this id, at
    /// this position. The payload's checksums are not looked at.
    #[must_use]
    pub fn of(bytes: &[u8], log: u64, position: u64, lanes: u32) -> Option<Self> {
        let parsed = Head::parse(bytes, position, lanes, Key::new(log))?;
        let start = crate::format::record::HEAD_BYTES;
        Some(Self {
            bytes: parsed.head.record_bytes(),
            documents: parsed.head.documents,
            params: start..start + parsed.params.len(),
            groups: parsed
                .groups()
                .map(|(range, entry)| (entry.lane, entry.documents, range))
                .collect(),
        })
    }
}
