//! What opening a log does after whatever ended the last process, and what it can promise because of that:
//! the crash rules.
//!
//! - **Acknowledged means synced** ([`Fsync::Always`](crate::Fsync::Always)), or written
//!   ([`Fsync::Interval`](crate::Fsync::Interval), [`Fsync::Os`](crate::Fsync::Os): kill -9 loses nothing, a
//!   power cut may lose the last stretch, but never a record from between).
//! - **Directories are synced** after a file in them is made, renamed or removed. A segment's header is
//!   synced before the first record follows, a segment before the next one is made: so only the last segment
//!   can be torn.
//! - **A used-up segment's file is written again** ([`Options::spare_bytes`](crate::Options::spare_bytes)),
//!   unless somebody still reads it. It gets a spare one's name, which is synced before anybody takes it; a
//!   new header, which is synced under that name; and then a segment's name. What is left of its past lies
//!   behind the last record until there is a footer, to which the file is cut. Nothing takes it for records
//!   of the new segment: each tells its own position.
//! - **Opening** syncs the last segment and drops it from the page cache (a page whose sync failed earlier
//!   would read as if it were on disk), then reads its heads, and the payloads beyond `MARK`.
//! - **A torn tail is cut**: the first bad record of the last segment that lies beyond everything known to be
//!   durable (`MARK`, and the `synced` field of any valid record after it) and all that follows. None of it
//!   was acknowledged. [`Event::TornTail`](crate::Event::TornTail) says how much. After a kill, in the same
//!   run of the system, all that was acknowledged without a sync counts as durable here too (`WRITTEN`): the
//!   page cache has outlived the process. (Two bits that rot, one in the last record and one in `MARK`, can
//!   make an acknowledged record look like this.)
//! - **A bad record below that is damage**, wherever it is: its bytes are copied to `quarantine/`,
//!   [`Event::Lost`](crate::Event::Lost) says what it held, readers get [`Next::Lost`](crate::Next::Lost) in
//!   its place and count its documents as lost. They go on with the next record: found by the segment's
//!   index, or by searching for a head whose position and keyed CRC are right.
//! - **A missing or shortened segment** is told the same way, from the running totals. Where damage leaves no
//!   trace of the lane (a head in a segment that has no index yet), its documents count in
//!   [`Status::lost`](crate::Status::lost); a consumer that had counted them before gives them back to their
//!   lane.
//! - **Cursors are synced before they are believed**, and brought back to the log's end if they are beyond it
//!   (without [`Fsync::Always`](crate::Fsync::Always), after a power cut), before anything is appended in the
//!   place of what they had counted.
//! - **A footer that does not check** is rebuilt in memory from the records. A header that does not check in
//!   the last segment means that the segment was being made: it is removed, unless there are records in it.
//! - **A failed sync poisons the log** ([`AppendError::Poisoned`](crate::AppendError::Poisoned)): the kernel
//!   may have dropped the pages, so a second sync proves nothing. Nothing is accepted any more by this
//!   process; what was durable stays readable. So does a failed write or a failed cut of what a failed write
//!   left. A *full* disk is no failure: the write is cut off again, and the answer is [`Full`](crate::Full).

pub(crate) mod check;
pub(crate) mod recovery;
