//! The durable segmented log: each record is written once, and each consumer group reads it lane by lane, at
//! its own pace.
//!
//! # The story of a record
//!
//! A client's bulk request becomes one [`Record`]: its documents regrouped by *lane* (lane = hash(index,
//! shard) mod lanes, so that all writes to one document stay in one lane, in order), and a few opaque bytes
//! of parameters. Any thread hands a record to [`Log::append`]. One writer thread takes all the records that
//! have gathered, writes them in one go, syncs once, and then calls each record's completion with its
//! position: this is group commit. A [`Consumer`] (one per target cluster) reads each lane with a
//! [`LaneReader`], sees only durable records, and commits a [`Mark`] once it has dealt with the documents
//! before it. A segment is deleted once every consumer is past it.
//!
//! This crate knows nothing of HTTP, tokio or Elasticsearch. The disk is a trait, so that tests can tear,
//! lose and reorder writes; time and threads can be driven by hand ([`Drive::ByHand`]).
//!
//! # Example
//!
//! ```
//! use log::{Log, Next, Options, RealDisk, StartAt};
//!
//! let folder = tempfile::tempdir()?;
//! let log = Log::open(folder.path(), Options { lanes: 4, ..Options::default() }, RealDisk::default())?;
//! let primary = log.consumer("primary", StartAt::Oldest)?;
//!
//! let mut record = log.record(0, b"pipeline=nginx");
//! record.group(3, 1, |out| out.extend_from_slice(b"{\"delete\":{\"_id\":\"1\"}}\n"));
//! let receipt = log.append_blocking(record)?; // durable from here on
//!
//! let (mut lane, mut bytes) = (primary.reader(3)?, Vec::new());
//! let Some(Next::Group(group)) = lane.next(&mut bytes)? else { panic!("there is one") };
//! assert_eq!((group.position, group.documents), (receipt.position, 1));
//! assert_eq!(group.params, b"pipeline=nginx");
//! assert_eq!(bytes, b"{\"delete\":{\"_id\":\"1\"}}\n");
//! primary.commit(&[group.mark.done()])?; // written within `Options::cursor_interval`; `flush` waits for it
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to read on
//!
//! | folder or file | what it holds |
//! |---|---|
//! | `log` | the functions that users of a log call; `open` and `threads` belong to it |
//! | `format` | the bytes on disk: how they are made, read and checked |
//! | `write` | how records are handed over, gathered, written and synced in one go |
//! | `read` | how a lane is read |
//! | `recover` | the crash rules; what opening and checking a log do |
//! | `shared` | the state that these share: waiting records, what readers may see, cursors, reusable files |
//! | `retention` | which segments are deleted, and when their files are kept for reuse |
//! | `repair` | how a damaged log is repaired |
//! | `disk` | what a log needs of a disk, and the operating system's disk |
//!
//! # Dead letters, and other uses
//!
//! A dead-letter store is a second log in a folder of its own, with one lane (or as many lanes as there are
//! indices to list by) and one record per document. `kind` tells an original from a letter that was written
//! again, `params` holds reason, status, attempts and origin position, and the payload holds the document's
//! action and source lines. [`Log::browse`] lists the letters. A consumer whose cursors advance as letters
//! are dealt with lets the store's segments be deleted ([`Log::roll`] does so for the last segment too).
//! [`Options::quota_bytes`] bounds the store, and [`AppendError::Full`] pauses the lane that would have
//! written there, so that nothing is dropped silently. Delivery commits the lane's mark with
//! [`Mark::done_with`] the number of its dead, after the dead letter is durable: so accepted + rewound =
//! indexed + dead + skipped + pending + lost holds from the cursors alone.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests sleep, lock and look at clocks as they like"
    )
)]

mod disk;
mod format;
mod read;
mod recover;
mod shared;
mod write;

mod error;
mod event;
mod log;
mod open;
mod options;
mod repair;
mod retention;
mod status;
mod threads;

pub use disk::real::RealDisk;
pub use disk::{Disk, File, Listed, Lock};
pub use error::{AppendError, Full, OpenError, ReadError};
pub use event::{Event, Lost, WhyLost};
pub use format::codec::Codec;
pub use format::record::{GROUPS_MAX, PARAMS_MAX, PAYLOAD_MAX, Receipt, Record};
pub use format::shape::Shape;
pub use log::Log;
pub use options::{Discard, Drive, Fsync, Options, Retention};
pub use read::browse::{Browse, Browsed, BrowsedGroup, Found, Missing};
pub use read::consumer::{Consumer, StartAt};
pub use read::reader::{Group, LaneReader, Next};
pub use recover::check::{CursorReport, Damage, Report, SegmentReport, check, dump};
pub use repair::{Repaired, repair};
pub use shared::cursor::{Commit, Mark, Moved};
pub use status::{ConsumerStatus, LaneStatus, Status};
pub use write::append::Append;

/// The most lanes that a log can have.
pub const LANES_MAX: u32 = 4096;
