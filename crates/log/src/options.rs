//! The options with which a log is opened.

use std::sync::Arc;
use std::time::Duration;

use crate::{Codec, Event, LANES_MAX, OpenError};

/// How a log is kept. `Options::default()` is durable, with 16 lanes, no compression and no quota.
#[derive(Clone)]
pub struct Options {
    /// Number of lanes, 1 to [`crate::LANES_MAX`], for a new log; an existing log keeps its number
    /// ([`crate::Log::lanes`] returns it).
    pub lanes: u32,
    /// When an append counts as done.
    pub fsync: Fsync,
    /// How each group is compressed.
    pub codec: Codec,
    /// Bytes after which a new segment is begun: 4 KiB to 2 GiB. After a crash, a tail of up to this size is
    /// scanned.
    pub segment_bytes: u64,
    /// Bytes that all segments together may take on disk; appends beyond that are refused. 0 means no quota;
    /// any other value is at least two segments, since the one that is being written cannot be deleted.
    pub quota_bytes: u64,
    /// Bytes that must stay free on the file system, whatever uses the rest.
    pub free_bytes_min: u64,
    /// Bytes of records that may be handed over and not yet durable; appends beyond that are refused. A
    /// record is always taken when nothing else waits.
    pub waiting_bytes_max: u64,
    /// Which consumed segments are kept longer, and which unconsumed ones are given up.
    pub retention: Retention,
    /// Bytes of used-up segments' files that are kept for reuse, which costs two thirds less than new files.
    /// As long as all segments together have no more bytes than this, they stay in the page cache too. Spare
    /// files never take room from the log: neither from its quota nor from the space that must stay free. A
    /// spare file that is unused for an hour is removed.
    pub spare_bytes: u64,
    /// The longest time after [`crate::Consumer::commit`] until the cursors are durable.
    pub cursor_interval: Duration,
    /// Bytes of copies that `quarantine/` may hold; damage beyond that is reported, but not copied.
    pub quarantine_bytes_max: u64,
    /// The threads that do the work.
    pub drive: Drive,
    /// Called with each event that an operator must know of. It runs on whichever thread noticed, so it must
    /// be quick.
    pub on_event: Arc<dyn Fn(&Event) + Send + Sync>,
}

/// When an append counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Fsync {
    /// Once it is synced; one sync covers all records that arrived while the previous one ran.
    #[default]
    Always,
    /// Once it is written; it is synced at most this long after.
    Interval(Duration),
    /// Once it is written; it is synced when the operating system chooses, and at each new segment.
    Os,
}

/// When segments are deleted.
///
/// A segment that every consumer is past is deleted, unless one of the `keep` settings holds it. In a log
/// without consumers nothing is ever consumed, and nothing is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Consumed segments younger than this are kept, so that a consumer added later can start with them.
    pub keep_for: Duration,
    /// The newest consumed segments are kept while all segments together have no more bytes than this.
    pub keep_bytes: u64,
    /// Gives up segments that were *not* consumed. The loss is always reported: by [`Event::Lost`], and by
    /// [`crate::Next::Lost`] to each consumer.
    pub discard: Option<Discard>,
}

/// When segments that some consumer has yet to read are given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discard {
    /// Segments older than this are given up.
    pub older_than: Duration,
    /// The oldest segments are given up while all segments together have more bytes than this.
    pub beyond_bytes: u64,
}

/// The threads that write, sync and delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Drive {
    /// The log's own threads: a writer, and a keeper of cursors and retention.
    #[default]
    Threads,
    /// The caller, with [`crate::Log::write_turn`] and [`crate::Log::keep_turn`]: for simulations.
    ByHand,
}

// === impl Options ===

impl Options {
    /// Checks that the options describe a possible log.
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let wrong = |what: String| Err(OpenError::Options(what));
        if !(1..=LANES_MAX).contains(&self.lanes) {
            return wrong(format!("a log has 1 to {LANES_MAX} lanes, not {}", self.lanes));
        }
        let (least, most) = (4 << 10, 2 << 30);
        if !(least..=most).contains(&self.segment_bytes) {
            return wrong(format!(
                "a segment has {least} to {most} bytes, not {}",
                self.segment_bytes
            ));
        }
        let least = self.segment_bytes.saturating_mul(2);
        if self.quota_bytes != 0 && self.quota_bytes < least {
            return wrong(format!(
                "the quota is at least two segments, {least} bytes, not {}",
                self.quota_bytes
            ));
        }
        Ok(())
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lanes: 16,
            fsync: Fsync::Always,
            codec: Codec::None,
            segment_bytes: 256 << 20,
            quota_bytes: 0,
            free_bytes_min: 1 << 30,
            waiting_bytes_max: 64 << 20,
            retention: Retention::default(),
            spare_bytes: 0,
            cursor_interval: Duration::from_millis(100),
            quarantine_bytes_max: 1 << 30,
            drive: Drive::Threads,
            on_event: Arc::new(|_| ()),
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("lanes", &self.lanes)
            .field("fsync", &self.fsync)
            .field("codec", &self.codec)
            .field("segment_bytes", &self.segment_bytes)
            .field("quota_bytes", &self.quota_bytes)
            .field("free_bytes_min", &self.free_bytes_min)
            .field("retention", &self.retention)
            .field("spare_bytes", &self.spare_bytes)
            .field("drive", &self.drive)
            .finish_non_exhaustive()
    }
}
