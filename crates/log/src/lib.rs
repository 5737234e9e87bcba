//! The durable segmented log: written once, read lane by lane by each consumer group, at its own pace.
//!
//! # The story of a record
//!
//! A client's bulk request becomes one [`Record`]: its documents regrouped by *lane* (lane = hash(index, shard) mod
//! lanes, so that all writes to one document stay in one lane, in order), and a few opaque bytes of parameters. Any
//! thread hands it to [`Log::append`]. One writer thread takes all that have gathered, writes them in one go, syncs
//! once, and then calls each one's completion with its position: that is group commit. A [`Consumer`] (one per target
//! cluster) reads each lane with a [`LaneReader`], sees durable records only, and commits a [`Mark`] once it is done with
//! what it read. A segment goes when every consumer is past it.
//!
//! Nothing here knows HTTP, tokio or Elasticsearch. The disk is a trait, so that tests can tear, lose and reorder
//! writes; time and threads can be driven by hand ([`Drive::ByHand`]).
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
//! # On disk
//!
//! All numbers are little-endian and unsigned. Checksums are CRC-32 (ISO-HDLC, as in gzip; made with carry-less
//! multiplication); those marked *keyed* start from the log's random id, so that no client can place bytes in a body
//! that look like a record of this log. A *position* is a u64 byte offset in the log as a whole; one
//! that a client was told is never used again ([`Fsync::Always`]).
//!
//! ```text
//! DIR/LOG                        what the log is: written once, by rename
//! DIR/LOCK                       locked while a process has the log open for writing
//! DIR/MARK                       how far the log is known to be durable
//! DIR/<position>.segment         20 digits: the position of the segment's first byte
//! DIR/<position>.spare           the file of a segment that was used up, to be written again
//! DIR/<group>.cursor             one per consumer group
//! DIR/quarantine/<position>.bad  copies of what was found broken
//! DIR/*.new                      a file that was about to be renamed when the process ended: deleted when opened
//! ```
//!
//! ## `LOG`
//! `"TGLOG"`, version byte (1), 2 zero bytes, log id u64, lanes u32 (1 to [`LANES_MAX`]), CRC of the 20 bytes before.
//! Another version is refused, never guessed at. The number of lanes is fixed when the log is made: a document's lane
//! must not change under it.
//!
//! ## Segment
//! ```text
//! header    64 bytes + 16 per lane, CRC keyed
//!   0 "TGSEG"  5 version (1)  6 u16 zero  8 CRC u32 of all that follows  12 lanes u32
//!   16 position u64 of the segment's first byte    24 time u64, ms since 1970, when it was made
//!   32 records u64 before it, in the whole log     40 documents u64 before it, lost ones too
//!   48 stale u64: bytes that the file had before, if it was a spare one    56 8 zero bytes
//!   64 for each lane: documents u64 before it, bytes u64 before it (uncompressed)
//! records   each starts at a multiple of 8 and never crosses a segment's end
//! footer    only when the segment is full: an index by lane, and the running totals at its end
//!   for each lane, 32 bytes: first entry u32, entries u32, CRC u32 (keyed) of its entries, u32 zero,
//!            documents u64 up to here, bytes u64 up to here (uncompressed)
//!   entries, 16 bytes each, lane after lane, in order of position: record u32, group u32 (both bytes from the
//!            segment's start), stored length u32, documents u32
//!   trailer, 48 bytes: "TGEND", version (1), u16 zero, CRC u32 (keyed) of the lane table and of the rest of the trailer,
//!            lanes u32, entries u32, footer length u32, position u64 of the segment's first byte,
//!            records u64 up to here, documents u64 up to here, lost ones too
//! ```
//! A segment begins at the position where the one before it ends, its footer included, so a missing or shortened file
//! shows from names and lengths alone. The running totals in each header say how many documents of each lane a gap
//! held: that is why accepted = delivered + pending + lost can be told exactly after any accident, and why opening a
//! log reads the last segment only.
//!
//! ## Record
//! ```text
//! 0  "TGR1"                  4  CRC u32, keyed, of bytes 8 up to the payload
//! 8  position u64 of itself  16 synced u64: up to where the log was durable when this was written
//! 24 time u64, ms            32 number u64: records before it in the log
//! 40 documents u64 before it in the log
//! 48 payload length u32      52 documents u32
//! 56 parameters length u16   58 groups u16   60 kind u8   61 codec u8 (0 none, 1 lz4, 2 zstd)   62 u16 zero
//! 64 parameters              opaque: URL parameters, pipeline, a *reference* to credentials; never a secret
//!    directory               for each group: lane u32, documents u32, stored length u32, raw length u32, CRC u32 of the
//!                            stored bytes
//!    payload                 the groups' bytes in the order of the directory, each compressed by itself
//!    zeros up to a multiple of 8
//! ```
//! A lane's reader checks the head and its own groups only. Bounds: [`PARAMS_MAX`], [`GROUPS_MAX`], [`PAYLOAD_MAX`]; every
//! group has at least one document and one byte. A record longer than [`Options::segment_bytes`] gets a segment to itself.
//!
//! ## Slots: cursors and `MARK`
//! Both are overwritten in place, in two slots in turn, so that a torn write leaves the other; the valid slot with the
//! higher sequence counts. The first is at 0, the second at the next multiple of 4096 that is beyond the first. A slot:
//! magic of 5 bytes, version (1), u16 zero, CRC u32 (keyed) of all that follows, body length u32, sequence u64, body. The
//! slot's number is its sequence modulo 2.
//!
//! - `"TGCUR"`, a consumer group: for each lane 56 bytes: position u64 (all groups of the lane that end there or before are
//!   done), documents u64 done (from the log's beginning, lost ones too), bytes u64 of those, dead u64, lost u64, skipped
//!   u64, rewound u64. A file with 40 bytes a lane, without the last two, is read as if they were 0, and made anew. All
//!   lanes are committed in one write. If a write or sync fails, the file is not trusted again: the next commit writes a new one
//!   and renames it. A commit that a crash undoes means that groups are delivered again, never that they are skipped.
//! - `"TGMRK"`, `MARK`: synced u64, records u64 and documents u64 before that position. Written after each sync, not synced
//!   itself: whatever value it has was true.
//!
//! # Crash rules
//!
//! - **Acknowledged means synced** ([`Fsync::Always`]), or written ([`Fsync::Interval`], [`Fsync::Os`]: kill -9 loses
//!   nothing, a power cut may lose the last stretch, but never a record from between).
//! - **Directories are synced** after a file in them is made, renamed or removed. A segment's header is synced before the
//!   first record follows, a segment before the next one is made: so only the last segment can be torn.
//! - **A used-up segment's file is written again** ([`Options::spare_bytes`]), unless somebody still reads it. It gets a spare
//!   one's name, which is synced before anybody takes it; a new header, which is synced under that name; and then a segment's
//!   name. What is left of its past lies behind the last record until there is a footer, to which the file is cut. Nothing
//!   takes it for records of the new segment: each tells its own position.
//! - **Opening** syncs the last segment and drops it from the page cache (a page whose sync failed earlier would read as
//!   if it were on disk), then reads its heads, and the payloads beyond `MARK`.
//! - **A torn tail is cut**: the first bad record of the last segment that lies beyond everything known to be durable
//!   (`MARK`, and the `synced` field of any valid record after it) and all that follows. None of it was acknowledged.
//!   [`Event::TornTail`] says how much. (Two bits that rot, one in the last record and one in `MARK`, can make an acknowledged
//!   record look like this.)
//! - **A bad record below that is damage**, wherever it is: its bytes are copied to `quarantine/`, [`Event::Lost`] says
//!   what it held, readers get [`Next::Lost`] in its place and count its documents as lost. They go on with the next
//!   record: found by the segment's index, or by searching for a head whose position and keyed CRC are right.
//! - **A missing or shortened segment** is told the same way, from the running totals. Where damage leaves no trace of the
//!   lane (a head in a segment that has no index yet), its documents count in [`Status::lost`]; a consumer that had counted
//!   them before gives them back to their lane.
//! - **Cursors are synced before they are believed**, and brought back to the log's end if they are beyond it (without
//!   [`Fsync::Always`], after a power cut), before anything is appended in the place of what they had counted.
//! - **A footer that does not check** is rebuilt in memory from the records. A header that does not check in the last
//!   segment means that the segment was being made: it is removed, unless there are records in it.
//! - **A failed sync poisons the log** ([`AppendError::Poisoned`]): the kernel may have dropped the pages, so a second sync
//!   proves nothing. Nothing is accepted any more by this process; what was durable stays readable. So does a failed write
//!   or a failed cut of what a failed write left. A *full* disk is no failure: the write is cut off again, and the answer
//!   is [`Full`].
//!
//! # Dead letters, and other uses
//!
//! A dead-letter store is a second log in a folder of its own: one lane (or as many as there are indices to list by),
//! one record per document, `kind` telling an original from one that was written again, `params` holding reason, status,
//! attempts and origin position, the payload its action and source lines. [`Log::browse`] lists it; a consumer that is set
//! on as letters go lets its segments go ([`Log::roll`] the last one too); [`Options::quota_bytes`] bounds it,
//! and [`AppendError::Full`] pauses the lane that would have written there, so that nothing is dropped in silence.
//! Delivery commits the lane's mark with [`Mark::done_with`] the number of its dead, after the dead letter is durable: so
//! accepted + rewound = indexed + dead + skipped + pending + lost holds from the cursors alone.

mod adjust;
mod ages;
mod append;
mod browse;
mod bytes;
mod check;
mod checksum;
mod codec;
mod consumer;
mod cursor;
mod disk;
mod error;
mod event;
mod folder;
mod head;
mod index;
mod lock;
mod log;
mod options;
mod places;
mod pool;
mod quarantine;
mod queue;
mod reader;
mod real_disk;
mod record;
mod recovery;
mod repair;
mod retention;
mod scan;
mod segment;
mod shape;
mod shared;
mod slots;
mod spares;
mod state;
mod status;
mod threads;
mod watermark;
mod writer;

pub use append::Append;
pub use browse::{Browse, Browsed, BrowsedGroup};
pub use check::{CursorReport, Damage, Report, SegmentReport, check, dump};
pub use codec::Codec;
pub use consumer::{Consumer, StartAt};
pub use cursor::{Commit, Mark, Moved};
pub use disk::{Disk, File, Listed, Lock};
pub use error::{AppendError, Full, OpenError, ReadError};
pub use event::{Event, Lost, WhyLost};
pub use log::Log;
pub use options::{Discard, Drive, Fsync, Options, Retention};
pub use reader::{Group, LaneReader, Next};
pub use real_disk::RealDisk;
pub use record::{GROUPS_MAX, PARAMS_MAX, PAYLOAD_MAX, Receipt, Record};
pub use repair::{Repaired, repair};
pub use shape::Shape;
pub use status::{ConsumerStatus, LaneStatus, Status};

/// The most lanes that a log can have.
pub const LANES_MAX: u32 = 4096;
