//! Errors of the places where parked operations are.

use std::io;
use std::path::PathBuf;

use log::{AppendError, OpenError, ReadError};

/// Why parked operations cannot be read, put somewhere or taken out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ParkedError {
    #[error("{}: {source}", .folder.display())]
    Folder { folder: PathBuf, source: io::Error },
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Append(#[from] AppendError),
    #[error("what is parked finds no room on this disk: {0}")]
    NoCopy(#[source] AppendError),
    #[error(transparent)]
    TopicRead(#[from] kafka::ReadError),
    #[error(transparent)]
    TopicAppend(#[from] kafka::AppendError),
    #[error("these lanes are not this gateway's any more")]
    NotOwner,
    #[error("partition {lane} of {topic} is another's")]
    OfAnother { lane: u32, topic: String },
    #[error("the record at {at} of the parked topic is none of a gateway's: {why}")]
    Foreign { at: u64, why: Foreign },
    #[error(
        "the record at {at} in {} is whole, and this version cannot read it ({why}): a newer version wrote it, so \
         start that one",
        .folder.display()
    )]
    ForeignRecord { at: u64, folder: PathBuf, why: Foreign },
}

/// Why this version cannot read a record of parked operations that checks.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Foreign {
    #[error(transparent)]
    Head(#[from] kafka::HeadError),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("it has no lines")]
    NoLines,
    #[error("its kind is {0}")]
    Kind(u8),
}
