//! A consumer group: named, with a cursor in each lane.

use std::convert::Infallible;

use crate::{Commit, ConsumerStatus, LaneReader, Mark, ReadError};

/// Where a consumer that is new begins; one that exists goes on where it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartAt {
    /// With the oldest record that is still there.
    #[default]
    Oldest,
    /// With the next record that comes.
    Newest,
    /// With the first record at or after this position.
    Position(u64),
}

/// A consumer group, shared by whoever reads for it. Cheap to clone.
#[derive(Clone)]
pub struct Consumer {
    never: Infallible,
}

impl Consumer {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self.never {}
    }

    /// Reads a lane from what is committed. Readers are independent: two of one lane read the same twice.
    ///
    /// # Errors
    /// If there is no such lane, or the consumer was removed.
    pub fn reader(&self, _lane: u32) -> Result<LaneReader, ReadError> {
        match self.never {}
    }

    /// Says that everything before these marks is done, all at once or none of it: after a crash either all or none are
    /// committed. Durable within [`crate::Options::cursor_interval`], earlier with [`Consumer::flush`]; never waits
    /// for the disk. A mark equal to what is committed is no error.
    ///
    /// # Errors
    /// [`ReadError::Mark`] if one goes back or beyond the end; then none is taken.
    pub fn commit(&self, _commits: &[Commit]) -> Result<(), ReadError> {
        match self.never {}
    }

    /// Waits until what was committed is durable.
    ///
    /// # Errors
    /// What the disk says.
    pub fn flush(&self) -> Result<(), ReadError> {
        match self.never {}
    }

    /// What is committed in a lane.
    ///
    /// # Errors
    /// If there is no such lane.
    pub fn committed(&self, _lane: u32) -> Result<Mark, ReadError> {
        match self.never {}
    }

    /// Sets all lanes to a place, forward or back, for an operator who knows why. What is skipped counts as done, what
    /// is gone back over as pending again. Readers that exist keep their place: stop them before.
    ///
    /// # Errors
    /// What the disk says.
    pub fn seek(&self, _to: StartAt) -> Result<(), ReadError> {
        match self.never {}
    }

    /// Numbers of all lanes.
    #[must_use]
    pub fn status(&self) -> ConsumerStatus {
        match self.never {}
    }
}
