//! The log as its users hold it.

use std::convert::Infallible;
use std::path::Path;

use crate::{
    Append, AppendError, Browse, Consumer, ConsumerStatus, Disk, OpenError, Options, ReadError, Receipt,
    Record, StartAt, Status,
};

/// An open log. Cheap to clone, for as many threads as there are; the last one dropped closes it.
#[derive(Clone)]
pub struct Log {
    never: Infallible,
}

// === impl Log ===

impl Log {
    /// Opens the log in a folder, or makes it. Reads one header a segment and scans the last segment, whatever the
    /// backlog.
    ///
    /// # Errors
    /// [`OpenError::Locked`] while another process has it; what is wrong with it otherwise. A log that was damaged opens:
    /// [`crate::Event`]s tell what was found.
    pub fn open(_folder: impl AsRef<Path>, _options: Options, _disk: impl Disk) -> Result<Self, OpenError> {
        Err(OpenError::Options("this version has no log".to_owned()))
    }

    /// How many lanes it has.
    #[must_use]
    pub fn lanes(&self) -> u32 {
        match self.never {}
    }

    /// A record to fill. `params` come back with each of its groups; they are on disk in clear.
    #[must_use]
    pub fn record(&self, _kind: u8, _params: &[u8]) -> Record {
        match self.never {}
    }

    /// Hands a record to the writer and returns at once. `done` is called once: from here if there is no room, or else on
    /// the writer's thread, when the record is durable. It must be quick: other clients wait behind it.
    ///
    /// Records of one thread are written in the order of the calls.
    pub fn append(&self, _record: Record, _done: impl FnOnce(Result<Receipt, AppendError>) + Send + 'static) {
        match self.never {}
    }

    /// As [`Log::append`], to be awaited on any runtime.
    pub fn append_async(&self, _record: Record) -> Append {
        match self.never {}
    }

    /// As [`Log::append`], and waits.
    ///
    /// # Errors
    /// As told to `done`.
    pub fn append_blocking(&self, _record: Record) -> Result<Receipt, AppendError> {
        match self.never {}
    }

    /// Whether a record would be refused now, to answer before a body is read.
    ///
    /// # Errors
    /// Why it would be.
    pub fn admit(&self, _bytes: u64) -> Result<(), AppendError> {
        match self.never {}
    }

    /// The consumer group of this name; made, with its cursors durable, if there is none.
    ///
    /// # Errors
    /// If the name is none, or the disk fails.
    pub fn consumer(&self, _name: &str, _start: StartAt) -> Result<Consumer, ReadError> {
        match self.never {}
    }

    /// The names of all consumer groups.
    #[must_use]
    pub fn consumers(&self) -> Vec<String> {
        match self.never {}
    }

    /// Forgets a consumer group and its cursors: nothing is kept for it any more.
    ///
    /// # Errors
    /// If there is none, or the disk fails.
    pub fn remove_consumer(&self, _name: &str) -> Result<(), ReadError> {
        match self.never {}
    }

    /// Records from the first that starts at or after a position, whole.
    #[must_use]
    pub fn browse(&self, _from: u64) -> Browse {
        match self.never {}
    }

    /// The log in numbers.
    #[must_use]
    pub fn status(&self) -> Status {
        match self.never {}
    }

    /// The numbers of the log and of all its consumers at one instant: what is accepted in one is neither missing nor
    /// doubled in the others.
    #[must_use]
    pub fn accounts(&self) -> (Status, Vec<ConsumerStatus>) {
        match self.never {}
    }

    /// Writes what was handed over, refuses more, makes everything durable and ends the threads. Readers and commits
    /// go on until then.
    pub fn close(&self) {
        match self.never {}
    }

    /// [`crate::Drive::ByHand`]: writes and syncs what has gathered, as the writer's thread would; returns how many
    /// records.
    pub fn write_turn(&self) -> usize {
        match self.never {}
    }

    /// [`crate::Drive::ByHand`]: makes cursors durable and deletes what may go, as the keeper's thread would.
    pub fn keep_turn(&self) {
        match self.never {}
    }
}
