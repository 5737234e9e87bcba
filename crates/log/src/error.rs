//! What can go wrong, and whose fault it is.

use std::io;
use std::path::PathBuf;

/// A log that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open; a hand-over tries again until that one has closed it.
    #[error("the log in {0} is in use by another process")]
    Locked(PathBuf),
    /// The file says that it is something else, or was made by a newer version.
    #[error("{file}: {why}")]
    Format {
        /// Which file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// An option is out of bounds.
    #[error("{0}")]
    Options(String),
    /// The disk.
    #[error("{doing} {path}: {source}")]
    Io {
        /// What was tried, as in "cannot read".
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// An append that was not done. Nothing of the record will ever be read, unless it is `Poisoned`: then it may
/// be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// No room now; try again later. The client's answer is 429 with `Retry-After`.
    #[error("the log is full: {0}")]
    Full(Full),
    /// A write or sync failed earlier: this process accepts nothing any more. 503; needs an operator.
    #[error("the log accepts nothing since a write failed: {0}")]
    Poisoned(String),
    /// The disk would not, and nothing of the record is left: 503, try again later.
    #[error("the log cannot be written: {0}")]
    Io(String),
    /// The log is being closed: 503.
    #[error("the log is closed")]
    Closed,
    /// Longer than a record may be: the request is too large (413).
    #[error("the record has {bytes} bytes of {what}, at most {most} are possible")]
    TooLarge {
        /// Which part of it.
        what: &'static str,
        /// How long it is.
        bytes: u64,
        /// How long it may be.
        most: u64,
    },
    /// No documents in it: there is nothing to append.
    #[error("the record has no documents")]
    Empty,
}

/// What there is no room in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// [`crate::Options::quota_bytes`].
    #[error("{used} bytes are used, and {quota} may be")]
    Quota {
        /// Bytes on disk.
        used: u64,
        /// Bytes allowed.
        quota: u64,
    },
    /// [`crate::Options::free_bytes_min`].
    #[error("{free} bytes free on the disk, {floor} must stay free")]
    Floor {
        /// Bytes free.
        free: u64,
        /// Bytes that must stay free.
        floor: u64,
    },
    /// [`crate::Options::waiting_bytes_max`]: records come faster than the disk takes them.
    #[error("{waiting} bytes wait to be written, at most {most} may")]
    Waiting {
        /// Bytes waiting.
        waiting: u64,
        /// Bytes that may wait.
        most: u64,
    },
    /// The disk itself said so.
    #[error("no space left on the disk")]
    Disk,
}

/// A read or commit that was not done. Damage is no error: it is [`crate::Next::Lost`].
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is no such lane.
    #[error("there is no lane {lane}, the log has {lanes}")]
    NoLane {
        /// Asked for.
        lane: u32,
        /// How many there are.
        lanes: u32,
    },
    /// A consumer's name has 1 to 64 letters, digits, `-` or `_`.
    #[error("{0:?} is no name for a consumer: 1 to 64 letters, digits, '-' or '_'")]
    Name(String),
    /// The consumer was removed.
    #[error("the consumer {0} was removed")]
    Removed(String),
    /// A mark that goes back, or beyond the log's end.
    #[error("lane {lane}: a mark at {position} cannot follow one at {committed}")]
    Mark {
        /// Of which lane.
        lane: u32,
        /// The mark.
        position: u64,
        /// Where the lane was.
        committed: u64,
    },
    /// The disk could not be read; trying again may help.
    #[error("{doing} {path}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}
