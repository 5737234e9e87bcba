//! The durable segmented log: written once, read lane by lane by each consumer group, at its own pace.
//!
//! # The story of a record
//!
//! A client's bulk request becomes one [`Record`]: its documents regrouped by *lane* (lane = hash(index,
//! shard) mod lanes, so that all writes to one document stay in one lane, in order), and a few opaque bytes
//! of parameters. Any thread hands it to [`Log::append`]. One writer thread takes all that have gathered,
//! writes them in one go, syncs once, and then calls each one's completion with its position: that is group
//! commit. A [`Consumer`] (one per target cluster) reads each lane with a [`LaneReader`], sees durable
//! records only, and commits a [`Mark`] once it is done with what it read. A segment goes when every consumer
//! is past it.
//!
//! Nothing here knows HTTP, tokio or Elasticsearch. The disk is a trait, so that tests can tear, lose and
//! reorder writes; time and threads can be driven by hand ([`Drive::ByHand`]).
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
//! assert_eq!((group.params.as_slice(), bytes.as_slice()), (&b"pipeline=nginx"[..], &b"{\"delete\":{\"_id\":\"1\"}}\n"[..]));
//! primary.commit(&[group.mark.done()])?; // written within `Options::cursor_interval`; `flush` waits for it
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to read on
//!
//! | folder or file | what it tells |
//! |---|---|
//! | `log` | what users of a log call; `open` and `threads` beside it |
//! | `format` | what lies on the disk, byte by byte, and how it is made, read and checked |
//! | `write` | how records are handed over, gathered, written and synced in one go |
//! | `read` | how a lane is read |
//! | `recover` | the crash rules; what opening and checking a log do |
//! | `shared` | what all of these work on: what waits, what readers may see, consumers' cursors, files to be written again |
//! | `retention` | which segments go, and when their files are kept to be used again |
//! | `repair` | how a damaged log is put right |
//! | `disk` | what a log asks of a disk, and the operating system's |
//!
//! # Dead letters, and other uses
//!
//! A dead-letter store is a second log in a folder of its own: one lane (or as many as there are indices to
//! list by), one record per document, `kind` telling an original from one that was written again, `params`
//! holding reason, status, attempts and origin position, the payload its action and source lines.
//! [`Log::browse`] lists it; a consumer that is set on as letters go lets its segments go ([`Log::roll`] the
//! last one too); [`Options::quota_bytes`] bounds it, and [`AppendError::Full`] pauses the lane that would
//! have written there, so that nothing is dropped in silence. Delivery commits the lane's mark with
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
pub use read::browse::{Browse, Browsed, BrowsedGroup};
pub use read::consumer::{Consumer, StartAt};
pub use read::reader::{Group, LaneReader, Next};
pub use recover::check::{CursorReport, Damage, Report, SegmentReport, check, dump};
pub use repair::{Repaired, repair};
pub use shared::cursor::{Commit, Mark, Moved};
pub use status::{ConsumerStatus, LaneStatus, Status};
pub use write::append::Append;

/// The most lanes that a log can have.
pub const LANES_MAX: u32 = 4096;
