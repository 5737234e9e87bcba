//! The shape of a record, for tools that look at bytes without an open log.

use std::ops::Range;

use crate::format::checksum::Key;
use crate::format::head::Head;

/// The parts of a record; ranges are bytes from its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The record's length, with the zeros at its end.
    pub bytes: u64,
    /// The record's documents.
    pub documents: u32,
    /// The range of its parameters.
    pub params: Range<usize>,
    /// The lane, documents and range of each group. The bytes may be shorter than the ranges say, since only
    /// the head was looked at.
    pub groups: Vec<(u32, u32, Range<usize>)>,
}

impl Shape {
    /// Returns the shape of the record that these bytes begin with, if they are a record of the log with this
    /// id, at this position. The payload's checksums are not checked.
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
