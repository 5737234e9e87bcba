//! One lane, group by group.

use std::convert::Infallible;
use std::future::Future;

use crate::{Lost, Mark, ReadError};

/// Reads one lane for one consumer group. Blocks on the disk, mostly on the page cache.
pub struct LaneReader {
    never: Infallible,
}

/// What comes next in a lane.
#[derive(Debug)]
pub enum Next {
    /// Documents: their bytes were appended to the buffer.
    Group(Group),
    /// Documents that cannot be read any more. Reported, and counted in the mark; committing it goes past them.
    Lost {
        /// What and why.
        lost: Lost,
        /// The mark that follows them.
        mark: Mark,
    },
}

/// A record's documents of one lane; their bytes are in the buffer given to [`LaneReader::next`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Position of the record, as its client was told.
    pub position: u64,
    /// When it was appended, ms since 1970.
    pub time_ms: u64,
    /// The record's kind.
    pub kind: u8,
    /// The record's parameters.
    pub params: Vec<u8>,
    /// Documents in the group.
    pub documents: u32,
    /// Which group of the record it is, counted from 0 over all lanes.
    pub ordinal: u16,
    /// What to commit when the group, and all before it, is done.
    pub mark: Mark,
}

impl LaneReader {
    /// The lane.
    #[must_use]
    pub fn lane(&self) -> u32 {
        match self.never {}
    }

    /// Appends the next group's bytes to `out` and tells what it is; none if all that is durable was read.
    ///
    /// # Errors
    /// If the disk cannot be read: the reader stays where it was, and may be asked again.
    pub fn next(&mut self, _out: &mut Vec<u8>) -> Result<Option<Next>, ReadError> {
        match self.never {}
    }

    /// Bytes of the next group, as stored, if there is one and it is known without reading: to stop before a batch
    /// becomes too large.
    #[must_use]
    pub fn next_bytes(&mut self) -> Option<u32> {
        match self.never {}
    }

    /// Where it is: the mark after what was read last.
    #[must_use]
    pub fn mark(&self) -> Mark {
        match self.never {}
    }

    /// Goes back (or on) to a mark of this lane, for another try at what was read since.
    pub fn rewind(&mut self, _to: Mark) {
        match self.never {}
    }

    /// Ready once there is something to read. Needs no runtime; wakes on the writer's thread.
    pub fn ready(&self) -> impl Future<Output = ()> + Send + 'static {
        match self.never {}
        #[allow(unreachable_code, reason = "names the type")]
        std::future::ready(())
    }
}
