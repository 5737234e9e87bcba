//! What an operator must be told.

use std::ops::Range;

/// Something that happened to the log which is not an answer to a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The end of the log was a write that a crash had interrupted; it is cut off. Nothing acknowledged was
    /// in it.
    TornTail {
        /// What was cut.
        range: Range<u64>,
    },
    /// Documents that had been accepted cannot be read any more.
    Lost(Lost),
    /// A segment's index did not check and was made anew from its records: they are all right.
    IndexRebuilt {
        /// The segment.
        segment: u64,
    },
    /// A consumer had committed documents that the log no longer has: without [`crate::Fsync::Always`] a
    /// power cut can do that. It goes on at the log's end.
    CursorsAhead {
        /// Whose.
        consumer: String,
        /// How many documents ahead.
        documents: u64,
    },
    /// The log accepts nothing any more.
    Poisoned {
        /// The write or sync that failed.
        why: String,
    },
    /// Cursors could not be made durable; tried again with a new file. After a crash more would be delivered
    /// again.
    CursorsStuck {
        /// Whose.
        consumer: String,
        /// What the operating system said.
        why: String,
    },
    /// Segments could not be deleted.
    RetentionStuck {
        /// What the operating system said.
        why: String,
    },
}

/// A stretch of the log that cannot be read any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Where it was.
    pub range: Range<u64>,
    /// Of which lane; none when that cannot be told.
    pub lane: Option<u32>,
    /// Documents in it; none when that is found out later, at the next running total.
    pub documents: Option<u64>,
    /// Why.
    pub why: WhyLost,
    /// The file in `quarantine/` with a copy of the bytes, where there were bytes to copy.
    pub quarantined: Option<String>,
}

/// Why a stretch cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WhyLost {
    /// A checksum is wrong.
    Damaged,
    /// A segment is missing, or shorter than it was.
    Missing,
    /// Given up by [`crate::Retention::discard`].
    Discarded,
}
