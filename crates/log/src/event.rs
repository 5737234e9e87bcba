//! The events that an operator must be told of.

use std::ops::Range;

/// Something that happened to the log and is not an answer to a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The log ended with a write that a crash had interrupted; that write is cut off. It held nothing that
    /// was acknowledged.
    TornTail {
        /// The positions that were cut off.
        range: Range<u64>,
    },
    /// Documents that had been accepted can no longer be read.
    Lost(Lost),
    /// A segment's index did not check and was rebuilt from its records, all of which are intact.
    IndexRebuilt {
        /// The segment.
        segment: u64,
    },
    /// A consumer had committed documents that the log no longer has: a power cut can cause this without
    /// [`crate::Fsync::Always`]. The consumer continues at the log's end.
    CursorsAhead {
        /// The consumer's name.
        consumer: String,
        /// The number of documents that the consumer was ahead.
        documents: u64,
    },
    /// The log accepts nothing any more.
    Poisoned {
        /// The write or sync that failed.
        why: String,
    },
    /// Cursors could not be made durable; the log tries again with a new file. Until that succeeds, a crash
    /// causes more documents to be delivered again.
    CursorsStuck {
        /// The consumer's name.
        consumer: String,
        /// The operating system's error.
        why: String,
    },
    /// Segments could not be deleted.
    RetentionStuck {
        /// The operating system's error, or another reason.
        why: String,
    },
}

/// A stretch of the log that can no longer be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The positions of the stretch.
    pub range: Range<u64>,
    /// The lane of its documents; none if it cannot be determined.
    pub lane: Option<u32>,
    /// The number of documents in it; none if it is only found later, at the next running total.
    pub documents: Option<u64>,
    /// Why the stretch cannot be read.
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
    /// The stretch was given up by [`crate::Retention::discard`].
    Discarded,
}
