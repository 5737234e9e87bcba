//! The bytes on disk: making, reading and checking them.
//!
//! All numbers are little-endian and unsigned. Checksums are CRC-32 (ISO-HDLC, as in gzip; computed with
//! carry-less multiplication); those marked *keyed* start from the log's random id, so that no client can
//! place bytes in a body that look like a record of this log. A *position* is a u64 byte offset in the log as
//! a whole; one that a client was told is never used again ([`Fsync::Always`](crate::Fsync::Always)).
//!
//! ```text
//! DIR/LOG                        what the log is: written once, by rename
//! DIR/LOCK                       locked while a process has the log open for writing
//! DIR/MARK                       how far the log is known to be durable
//! DIR/WRITTEN                    how far it was written, where it is not synced at once
//! DIR/<position>.segment         20 digits: the position of the segment's first byte
//! DIR/<position>.spare           the file of a segment that was used up, to be written again
//! DIR/<group>.cursor             one per consumer group
//! DIR/quarantine/<position>.bad  copies of damaged bytes
//! DIR/*.new                      a file whose renaming a crash prevented: removed when opened
//! ```
//!
//! # `LOG`
//! `"TGLOG"`, version byte (1), 2 zero bytes, log id u64, lanes u32 (1 to [`LANES_MAX`](crate::LANES_MAX)),
//! CRC of the 20 bytes before. A file of another version is refused; its contents are never guessed. The
//! number of lanes is fixed when the log is made, because a document's lane must not change while the log
//! exists.
//!
//! # Segment
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
//!   entries, 16 bytes each, lane after lane, in order of position: record u32, group u32 (both bytes from
//!            the segment's start), stored length u32, documents u32
//!   trailer, 48 bytes: "TGEND", version (1), u16 zero, CRC u32 (keyed) of the lane table and of the
//!            rest of the trailer, lanes u32, entries u32, footer length u32, position u64 of the segment's
//!            first byte, records u64 up to here, documents u64 up to here, lost ones too
//! ```
//! A segment begins at the position where the one before it ends, its footer included, so a missing or
//! shortened file shows from names and lengths alone. The running totals in each header say how many
//! documents of each lane a gap held: so accepted = delivered + pending + lost can be stated exactly after
//! any accident, and opening a log reads only the last segment.
//!
//! # Record
//! ```text
//! 0  "TGR1"                  4  CRC u32, keyed, of bytes 8 up to the payload
//! 8  position u64 of itself  16 synced u64: up to where the log was durable when this was written
//! 24 time u64, ms            32 number u64: records before it in the log
//! 40 documents u64 before it in the log
//! 48 payload length u32      52 documents u32
//! 56 parameters length u16   58 groups u16   60 kind u8   61 codec u8 (0 none, 1 lz4, 2 zstd)   62 u16 zero
//! 64 parameters              opaque: URL parameters, pipeline, a *reference* to credentials; never a secret
//!    directory               for each group: lane u32, documents u32, stored length u32, raw length u32,
//!                            CRC u32 of the stored bytes
//!    payload                 the groups' bytes in the order of the directory, each compressed by itself
//!    zeros up to a multiple of 8
//! ```
//! A lane's reader checks only the head and its own groups. Bounds: [`PARAMS_MAX`](crate::PARAMS_MAX),
//! [`GROUPS_MAX`](crate::GROUPS_MAX), [`PAYLOAD_MAX`](crate::PAYLOAD_MAX); every group has at least one
//! document and one byte. A record longer than [`Options::segment_bytes`](crate::Options::segment_bytes) gets
//! a segment to itself.
//!
//! # Slots: cursors, `MARK` and `WRITTEN`
//! These files are overwritten in place, alternating between two slots, so that a torn write leaves the other
//! slot intact; the valid slot with the higher sequence counts. The first is at 0, the second at the next
//! multiple of 4096 that is beyond the first. A slot consists of: a magic of 5 bytes, version (1), u16 zero,
//! CRC u32 (keyed) of all that follows, body length u32, sequence u64, body. The slot's number is its
//! sequence modulo 2.
//!
//! - `"TGCUR"`, a consumer group: for each lane 56 bytes: position u64 (all groups of the lane that end there
//!   or before are done), documents u64 done (from the log's beginning, lost ones too), bytes u64 of those,
//!   dead u64, lost u64, skipped u64, rewound u64. A file with 40 bytes a lane, without the last two, is read
//!   as if they were 0, and rewritten. All lanes are committed in one write. If a write or sync fails, the
//!   file is not trusted again: the next commit writes a new one and renames it. A commit that a crash undoes
//!   means that groups are delivered again, never that they are skipped.
//! - `"TGMRK"`, `MARK`: synced u64, records u64 and documents u64 before that position. It is written after
//!   each sync and not synced itself; any value that it may hold was true.
//! - `"TGWRT"`, `WRITTEN`: the id of the system's run (u64, u64), written u64, records u64 and documents u64
//!   before that position. It is written before records that are not yet synced are acknowledged, once for
//!   all of them; it counts only in the same run of the system.

pub(crate) mod bytes;
pub(crate) mod checksum;
pub(crate) mod codec;
pub(crate) mod folder;
pub(crate) mod head;
pub(crate) mod index;
pub(crate) mod pool;
pub(crate) mod quarantine;
pub(crate) mod record;
pub(crate) mod scan;
pub(crate) mod segment;
pub(crate) mod shape;
pub(crate) mod slots;
