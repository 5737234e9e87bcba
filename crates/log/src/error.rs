//! The errors of a log.

use std::io;
use std::path::PathBuf;

/// A log that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has the log open; a hand-over tries again until that process has closed it.
    #[error("the log in {0} is in use by another process")]
    Locked(PathBuf),
    /// The file is of another kind, or was made by a newer version.
    #[error("{file}: {why}")]
    Format {
        /// Which file.
        file: PathBuf,
        /// The fault.
        why: String,
    },
    /// An option is out of bounds.
    #[error("{0}")]
    Options(String),
    /// The disk failed.
    #[error("{doing} {path}: {source}")]
    Io {
        /// The attempted operation, as in "cannot read".
        doing: &'static str,
        /// The file concerned.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

/// An append that was not done. Nothing of the record will ever be read, except after `Poisoned`: then some
/// of it may be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// No room now; try again later. The client's answer is 429 with `Retry-After`.
    #[error("the log is full: {0}")]
    Full(Full),
    /// A write or sync failed earlier, and this process accepts nothing any more: 503; an operator is needed.
    #[error("the log accepts nothing since a write failed: {0}")]
    Poisoned(String),
    /// The disk failed, and nothing of the record is left: 503, try again later.
    #[error("the log cannot be written: {0}")]
    Io(String),
    /// The log is being closed: 503.
    #[error("the log is closed")]
    Closed,
    /// Longer than a record may be: the request is too large (413).
    #[error("the record has {bytes} bytes of {what}, at most {most} are possible")]
    TooLarge {
        /// The part of the record that is too long.
        what: &'static str,
        /// The length of that part.
        bytes: u64,
        /// The greatest length allowed.
        most: u64,
    },
    /// The record has no documents: there is nothing to append.
    #[error("the record has no documents")]
    Empty,
}

/// The room that is used up.
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
    /// The disk itself is full.
    #[error("no space left on the disk")]
    Disk,
}

/// A read or commit that was not done. Damage is no error: it is [`crate::Next::Lost`].
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is no such lane.
    #[error("there is no lane {lane}, the log has {lanes}")]
    NoLane {
        /// The lane asked for.
        lane: u32,
        /// The number of lanes.
        lanes: u32,
    },
    /// The name is not valid: a consumer's name has 1 to 64 letters, digits, `-` or `_`.
    #[error("{0:?} is not a valid name of a consumer: 1 to 64 letters, digits, '-' or '_'")]
    Name(String),
    /// The consumer was removed.
    #[error("the consumer {0} was removed")]
    Removed(String),
    /// The mark goes back, or beyond the log's end.
    #[error("lane {lane}: a mark at {position} cannot follow one at {committed}")]
    Mark {
        /// The mark's lane.
        lane: u32,
        /// The mark's position.
        position: u64,
        /// The lane's committed position.
        committed: u64,
    },
    /// The disk could not be read; trying again may help.
    #[error("{doing} {path}: {source}")]
    Io {
        /// The attempted operation.
        doing: &'static str,
        /// The file concerned.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}
