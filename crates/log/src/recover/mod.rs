//! The crash rules: what opening a log does after the last process ended, however it ended, and what the log
//! can promise because of that.
//!
//! - **Acknowledged means synced** ([`Fsync::Always`](crate::Fsync::Always)), or written
//!   ([`Fsync::Interval`](crate::Fsync::Interval), [`Fsync::Os`](crate::Fsync::Os): kill -9 loses nothing, a
//!   power cut may lose the last stretch, but never a record from between).
//! - **Directories are synced** after a file in them is made, renamed or removed. A segment's header is
//!   synced before its first record is written, and a segment is synced before the next one is made, so only
//!   the last segment can be torn.
//! - **A used-up segment's file is written again** ([`Options::spare_bytes`](crate::Options::spare_bytes)),
//!   unless somebody still reads it. The file gets a spare file's name, which is synced before the file is
//!   taken; then a new header, which is synced under that name; and then a segment's name. Its old bytes lie
//!   behind the last record until the footer is written, where the file is cut. They cannot be mistaken for
//!   records of the new segment, since each record states its own position.
//! - **Opening** syncs the last segment and drops it from the page cache (a page whose sync failed earlier
//!   would read as if it were on disk), then reads its heads, and the payloads beyond `MARK`.
//! - **A torn tail is cut**: the first bad record of the last segment that lies beyond everything known to be
//!   durable (`MARK`, and the `synced` field of any valid record after it) and everything after it. None of
//!   it was acknowledged. [`Event::TornTail`](crate::Event::TornTail) reports what was cut. After a kill, in
//!   the same run of the system, everything acknowledged without a sync counts as durable here too
//!   (`WRITTEN`), because the page cache has outlived the process. (Two rotten bits, one in the last record
//!   and one in `MARK`, can make an acknowledged record look like a torn tail.)
//! - **A bad record before that place is damage**, wherever it is: its bytes are copied to `quarantine/`,
//!   [`Event::Lost`](crate::Event::Lost) reports what it held, and readers get
//!   [`Next::Lost`](crate::Next::Lost) in its place and count its documents as lost. They continue with the
//!   next record, which is found by the segment's index, or by searching for a head whose position and keyed
//!   CRC are right.
//! - **A missing or shortened segment** is reported the same way, from the running totals. Where damage
//!   leaves no trace of the lane (a head in a segment that has no index yet), its documents count in
//!   [`Status::lost`](crate::Status::lost); a consumer that had counted them before gives them back to their
//!   lane.
//! - **Cursors are synced before they are believed**, and brought back to the log's end if they are beyond it
//!   (without [`Fsync::Always`](crate::Fsync::Always), after a power cut), before anything is appended in
//!   place of the documents that they had counted.
//! - **A footer that does not check** is rebuilt in memory from the records. If the header of the last
//!   segment does not check, the segment was still being made: it is removed, unless there are records in it.
//! - **A header that does not check** is made up for by the footer before it, which has the same totals, or
//!   else by the next totals behind it: so segments that are done are still deleted, and consumers can be
//!   given a place there.
//! - **A failed sync poisons the log** ([`AppendError::Poisoned`](crate::AppendError::Poisoned)): the kernel
//!   may have dropped the pages, so a second sync proves nothing. This process accepts nothing any more;
//!   durable records stay readable. A failed write poisons the log too, and so does a failed attempt to cut
//!   off what it left. A *full* disk is no failure: the write is cut off again, and the answer is
//!   [`Full`](crate::Full).

pub(crate) mod check;
pub(crate) mod recovery;
