//! A reader of one lane, group by group.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::disk::File;
use crate::format::checksum::{self, PIECE_BYTES, Sum};
use crate::format::folder::read_error;
use crate::format::head::Head;
use crate::format::index::{GroupEntry, LaneTotal};
use crate::format::record::{DirectoryEntry, HEAD_BYTES};
use crate::read::groups::{self, LaneGroups};
use crate::shared::OpenLog;
use crate::{Codec, Event, Lost, Mark, ReadError, WhyLost};

/// Reads one lane for one consumer group. It blocks on the disk, mostly on the page cache.
pub struct LaneReader {
    shared: Arc<OpenLog>,
    mark: Mark,
    view: Option<View>,
    /// The bytes read of a record.
    buffer: Vec<u8>,
    /// Set while the reader only looks ahead: a loss is reported when it is read.
    quiet: bool,
    /// Whether the last group read was compressed.
    packed: bool,
}

/// The segment that a reader is in.
struct View {
    first: u64,
    file: Arc<dyn File>,
    entries: Vec<GroupEntry>,
    /// The index of the next group in `entries`.
    at: usize,
    /// Whether more entries may come.
    live: bool,
}

/// The next item of a lane.
#[derive(Debug)]
pub enum Next {
    /// Documents: their bytes were appended to the buffer.
    Group(Group),
    /// Documents that can no longer be read. They are reported, and counted in the mark; committing the mark
    /// goes past them.
    Lost {
        /// The stretch, and why it is lost.
        lost: Lost,
        /// The mark that follows the lost documents.
        mark: Mark,
    },
}

/// A record's documents of one lane; their bytes are in the buffer given to [`LaneReader::next`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The position of the record, as its client was told.
    pub position: u64,
    /// When the record was written, in ms since 1970.
    pub time_ms: u64,
    /// The record's kind.
    pub kind: u8,
    /// The record's parameters.
    pub params: Vec<u8>,
    /// Documents in the group.
    pub documents: u32,
    /// The number of the group in its record, counted from 0 over all lanes.
    pub ordinal: u16,
    /// The mark to commit when the group, and everything before it, is done.
    pub mark: Mark,
}

// === impl LaneReader ===

impl LaneReader {
    pub(crate) fn new(shared: Arc<OpenLog>, mark: Mark) -> Self {
        Self {
            shared,
            mark,
            view: None,
            buffer: Vec::new(),
            quiet: false,
            packed: false,
        }
    }

    /// Returns the lane.
    #[must_use]
    pub fn lane(&self) -> u32 {
        self.mark.lane
    }

    /// Returns the reader's place: the mark after the last group read.
    #[must_use]
    pub fn mark(&self) -> Mark {
        self.mark
    }

    /// Goes back (or forward) to a mark of this lane, to read the groups after it again.
    ///
    /// # Panics
    /// If the mark is of another lane.
    pub fn rewind(&mut self, to: Mark) {
        assert_eq!(to.lane, self.mark.lane, "a mark of this lane");
        self.mark = to;
        self.view = None;
    }

    /// Closes the reader's current segment, which is looked up again when there is more to read: an open file
    /// takes room on the disk even after it was deleted.
    pub fn rest(&mut self) {
        self.view = None;
    }

    /// Appends the next group's bytes to `out` and returns its description; none if all that is durable was
    /// read.
    ///
    /// # Errors
    /// If the disk cannot be read. The reader then stays where it was, and may be asked again.
    #[allow(clippy::should_implement_trait, reason = "it fills a buffer of the caller's")]
    pub fn next(&mut self, out: &mut Vec<u8>) -> Result<Option<Next>, ReadError> {
        if let Some(lost) = self.arrive()? {
            return Ok(Some(lost));
        }
        let Some(view) = &self.view else { return Ok(None) };
        let Some(&listed) = view.entries.get(view.at) else {
            return Ok(None);
        };
        let length = out.len();
        let group = self.read(listed, out).inspect_err(|_| out.truncate(length))?;
        if let Some(view) = &mut self.view {
            view.at += 1;
        }
        if group.is_none() {
            out.truncate(length);
        }
        Ok(Some(group.unwrap_or_else(|| self.damaged(listed))))
    }

    /// Returns the bytes of the next group, as stored, if there is one: to stop before a batch becomes too
    /// large.
    ///
    /// # Errors
    /// If the disk cannot be read.
    pub fn peek(&mut self) -> Result<Option<u32>, ReadError> {
        let mark = self.mark;
        self.quiet = true;
        let lost = self.arrive();
        self.quiet = false;
        if lost?.is_some() {
            // `next` reports it again.
            self.rewind(mark);
            return Ok(Some(0));
        }
        let view = self.view.as_ref();
        Ok(view
            .and_then(|view| view.entries.get(view.at))
            .map(|listed| listed.stored))
    }

    /// Returns the documents of the next group, as last seen by [`LaneReader::peek`].
    #[must_use]
    pub fn peeked_documents(&self) -> u32 {
        let next = self.view.as_ref().and_then(|view| view.entries.get(view.at));
        next.map_or(0, |listed| listed.documents)
    }

    /// Returns the bytes of the next group once unpacked; 0 for a damaged one.
    ///
    /// # Errors
    /// If the disk cannot be read.
    pub fn peek_unpacked(&mut self) -> Result<Option<u32>, ReadError> {
        let stored = self.peek()?;
        let may_be_packed = self.packed || self.shared.adjustable().codec != Codec::None;
        let (Some(bytes), Some(view)) = (stored, &self.view) else {
            return Ok(stored);
        };
        let Some(&listed) = view
            .entries
            .get(view.at)
            .filter(|_| may_be_packed || bytes >= LARGE)
        else {
            return Ok(stored);
        };
        let (shared, record) = (&self.shared, u64::from(listed.record));
        let failed = |source| read_error("cannot read", &shared.folder.segment(view.first), source);
        fill(&*view.file, &mut self.buffer, record, HEAD_GUESS).map_err(failed)?;
        let Some(head) = Head::read(&self.buffer) else {
            return Ok(Some(0));
        };
        if head.bytes() > self.buffer.len() {
            fill(&*view.file, &mut self.buffer, record, head.bytes()).map_err(failed)?;
        }
        let (lanes, key) = (shared.folder.lanes, shared.folder.key);
        let parsed = Head::parse(&self.buffer, view.first + record, lanes, key);
        let at = (listed.group - listed.record) as usize;
        let entry = parsed.and_then(|parsed| {
            let mut groups = parsed.groups();
            groups
                .find(|(range, _)| range.start == at)
                .map(|(_, entry)| entry)
        });
        Ok(Some(entry.map_or(0, |entry| entry.raw)))
    }

    /// Returns the bytes (unpacked) and the documents that the lane has yet to read, going by the accounts.
    #[must_use]
    pub fn waiting(&self) -> (u64, u64) {
        let end = self.shared.state.lock().totals.lanes[self.mark.lane as usize];
        let bytes = end.bytes.saturating_sub(self.mark.bytes);
        (bytes, end.documents.saturating_sub(self.mark.documents))
    }

    /// Returns when the record of the next group was written, in ms since 1970; none at the end, or if the
    /// record's head is damaged.
    pub(crate) fn peek_time(&mut self) -> Result<Option<u64>, ReadError> {
        if self.peek()?.is_none() {
            return Ok(None);
        }
        let Some(view) = &self.view else { return Ok(None) };
        let Some(listed) = view.entries.get(view.at) else {
            return Ok(None);
        };
        let read = fill(
            &*view.file,
            &mut self.buffer,
            u64::from(listed.record),
            HEAD_BYTES,
        );
        read.map_err(|source| read_error("cannot read", &self.shared.folder.segment(view.first), source))?;
        let position = view.first + u64::from(listed.record);
        Ok(Head::read(&self.buffer)
            .filter(|head| head.position == position)
            .map(|head| head.time_ms))
    }

    /// Returns a future that is ready once there is something to read. It needs no runtime; the writer's
    /// thread wakes it.
    pub fn ready(&self) -> impl Future<Output = ()> + Send + 'static {
        Ready {
            shared: Arc::clone(&self.shared),
            lane: self.mark.lane as usize,
            documents: self.mark.documents,
        }
    }

    /// Moves to the next entry, through as many segments as that takes; reports documents that are missing on
    /// the way.
    fn arrive(&mut self) -> Result<Option<Next>, ReadError> {
        for _ in 0..TRIES_MAX {
            let first = match &mut self.view {
                Some(view) if view.at < view.entries.len() => return Ok(None),
                Some(view) if view.live => match self.refresh()? {
                    true => continue,
                    false => return Ok(self.at_end()),
                },
                Some(view) => groups::next_segment(&self.shared, view.first),
                None => groups::segment_at(&self.shared, self.mark.position),
            };
            let Some(first) = first else {
                return Ok(self.at_end());
            };
            match self.enter(first) {
                Ok(None) => {}
                Ok(Some(lost)) => return Ok(Some(lost)),
                // The segment was deleted since: the lane is past it, so look for the next one.
                Err(_) if !groups::is_there(&self.shared, first) => self.view = None,
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Takes over entries that have come to the active segment since; returns whether anything changed.
    fn refresh(&mut self) -> Result<bool, ReadError> {
        let Some(view) = &mut self.view else {
            return Ok(false);
        };
        if let Some(more) = groups::more(&self.shared, view.first, self.mark.lane, view.entries.len()) {
            // Entries already read are not needed, only their number.
            let changed = !more.is_empty();
            view.entries.extend(more);
            return Ok(changed);
        }
        let LaneGroups { entries, live } = groups::of(&self.shared, &view.file, view.first, self.mark.lane)?;
        let at = view.at.min(entries.len());
        (view.entries, view.at, view.live) = (entries, at, live);
        Ok(true)
    }

    /// Enters a segment; reports documents that should have come before it.
    fn enter(&mut self, first: u64) -> Result<Option<Next>, ReadError> {
        let (shared, lane) = (&self.shared, self.mark.lane);
        let file = shared.folder.open_segment(first)?;
        let mut lost = None;
        if self.mark.position <= first || self.view.is_some() {
            // A header that does not check gives no totals; the next one does.
            if let Some(header) = shared.folder.header(&*file, first)? {
                lost = Some((
                    header.totals.lanes[lane as usize],
                    self.mark.position.min(first)..first,
                ));
                self.mark.position = self.mark.position.max(first);
            }
        }
        let LaneGroups { entries, live } = groups::of(shared, &file, first, lane)?;
        let at = entries.partition_point(|listed| first + u64::from(listed.group) < self.mark.position);
        self.view = Some(View {
            first,
            file,
            entries,
            at,
            live,
        });
        Ok(lost.and_then(|(total, range)| self.fall_behind(total, range)))
    }

    /// Reports documents of the lane that are missing at the end of the log, where all must have come.
    fn at_end(&mut self) -> Option<Next> {
        let view = self.view.as_ref().map(|view| (view.first, view.entries.len()));
        let (end, total) = groups::total_at_end(&self.shared, view, self.mark.lane)?;
        let range = self.mark.position.min(end)..end;
        self.fall_behind(total, range)
    }

    /// Takes over a running total; reports documents that should have come by then and did not.
    fn fall_behind(&mut self, total: LaneTotal, range: Range<u64>) -> Option<Next> {
        let missing = total
            .documents
            .checked_sub(self.mark.documents)
            .filter(|missing| *missing > 0)?;
        self.mark.position = self.mark.position.max(range.end);
        self.mark.lost += missing;
        (self.mark.documents, self.mark.bytes) = (total.documents, total.bytes);
        Some(self.tell(Lost {
            range,
            lane: Some(self.mark.lane),
            documents: Some(missing),
            why: WhyLost::Missing,
            quarantined: None,
        }))
    }

    /// Reads a group; none if it is damaged.
    fn read(&mut self, listed: GroupEntry, out: &mut Vec<u8>) -> Result<Option<Next>, ReadError> {
        let Some(view) = &self.view else { return Ok(None) };
        let failed = |source| read_error("cannot read", &self.shared.folder.segment(view.first), source);
        let record = u64::from(listed.record);
        let span = (listed.group + listed.stored).saturating_sub(listed.record) as usize;
        // A short record is read in one go; of a long one the head is read first, then the group.
        let ahead = if span <= SPAN_MAX { span } else { HEAD_GUESS };
        fill(&*view.file, &mut self.buffer, record, ahead).map_err(failed)?;
        let Some(head) = Head::read(&self.buffer) else {
            return Ok(None);
        };
        if head.bytes() > self.buffer.len() {
            fill(&*view.file, &mut self.buffer, record, head.bytes()).map_err(failed)?;
        }
        let (lanes, key) = (self.shared.folder.lanes, self.shared.folder.key);
        let Some(parsed) = Head::parse(&self.buffer, view.first + record, lanes, key) else {
            return Ok(None);
        };
        let at = (listed.group - listed.record) as usize;
        let found = parsed
            .groups()
            .enumerate()
            .find(|(_, (range, _))| range.start == at);
        let Some((ordinal, (range, entry))) = found else {
            return Ok(None);
        };
        let mut mark = self.mark;
        mark.position = view.first + u64::from(listed.group) + u64::from(entry.stored);
        mark.documents += u64::from(entry.documents);
        mark.bytes += u64::from(entry.raw);
        let group = Group {
            position: head.position,
            time_ms: head.time_ms,
            kind: head.kind,
            params: parsed.params.to_vec(),
            documents: entry.documents,
            ordinal: ordinal as u16,
            mark,
        };
        let right = if let Some(stored) = self.buffer.get(range) {
            unpack(stored, &entry, head.codec, out)
        } else if head.codec == Codec::None {
            append(&*view.file, out, u64::from(listed.group), &entry).map_err(failed)?
        } else {
            fill(
                &*view.file,
                &mut self.buffer,
                u64::from(listed.group),
                entry.stored as usize,
            )
            .map_err(failed)?;
            unpack(&self.buffer, &entry, head.codec, out)
        };
        if !right || entry.lane != self.mark.lane || entry.documents != listed.documents {
            return Ok(None);
        }
        self.mark = mark;
        self.packed = head.codec != Codec::None;
        if self.buffer.capacity() > BUFFER_KEPT {
            self.buffer = Vec::new();
        }
        Ok(Some(Next::Group(group)))
    }

    /// Goes past a group that does not check.
    fn damaged(&mut self, listed: GroupEntry) -> Next {
        let mut quarantined = None;
        let mut range = self.mark.position..self.mark.position;
        if let Some(view) = &self.view {
            let end = view.first + u64::from(listed.group) + u64::from(listed.stored);
            range = view.first + u64::from(listed.record)..end;
            let (shared, most) = (&self.shared, self.shared.options.quarantine_bytes_max);
            quarantined = shared
                .quarantine
                .keep(&shared.folder, &*view.file, view.first, &range, most);
        }
        self.mark.position = range.end;
        self.mark.documents += u64::from(listed.documents);
        // The uncompressed group may have been longer; the next header has the true total.
        self.mark.bytes += u64::from(listed.stored);
        self.mark.lost += u64::from(listed.documents);
        self.tell(Lost {
            range,
            lane: Some(self.mark.lane),
            documents: Some(listed.documents.into()),
            why: WhyLost::Damaged,
            quarantined,
        })
    }

    fn tell(&self, lost: Lost) -> Next {
        if !self.quiet {
            self.shared.tell(&Event::Lost(lost.clone()));
        }
        Next::Lost {
            lost,
            mark: self.mark,
        }
    }
}

/// Appends a group's bytes if they are right.
fn unpack(stored: &[u8], entry: &DirectoryEntry, codec: Codec, out: &mut Vec<u8>) -> bool {
    checksum::of(stored) == entry.crc
        && stored.len() == entry.stored as usize
        && codec.unpack(stored, entry.raw as usize, out).is_ok()
}

/// Appends a group that is not compressed, as it stands in the file; returns whether it is whole and right.
fn append(file: &dyn File, out: &mut Vec<u8>, mut at: u64, entry: &DirectoryEntry) -> std::io::Result<bool> {
    let (mut left, mut sum) = (entry.stored as usize, Sum::default());
    out.reserve(left);
    while left > 0 {
        let (start, piece) = (out.len(), left.min(PIECE_BYTES));
        if file.append_at(out, piece, at)? < piece {
            return Ok(false);
        }
        sum.update(&out[start..]);
        at += piece as u64;
        left -= piece;
    }
    Ok(sum.finish() == entry.crc)
}

/// Reads `bytes` bytes, or as many as there are.
fn fill(file: &dyn File, buffer: &mut Vec<u8>, at: u64, bytes: usize) -> std::io::Result<()> {
    buffer.resize(bytes, 0);
    let read = file.read_at(buffer, at)?;
    buffer.truncate(read);
    Ok(())
}

/// Waits until a lane has more documents than these.
struct Ready {
    shared: Arc<OpenLog>,
    lane: usize,
    documents: u64,
}

// === impl Ready ===

impl Future for Ready {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.shared.state.lock();
        if state.totals.lanes[self.lane].documents > self.documents {
            return Poll::Ready(());
        }
        let wakers = &mut state.wakers[self.lane];
        if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            wakers.push(context.waker().clone());
        }
        Poll::Pending
    }
}

/// From this size on, a group's unpacked length is determined even if nothing has been compressed lately.
const LARGE: u32 = 256 << 10;
/// The most memory that is kept of a record buffer.
const BUFFER_KEPT: usize = 256 << 10;
/// Groups that end within this many bytes of their record's start are read together with its head. Beyond
/// that, copying the bytes in between costs more than a second read: each lane's reader would copy half the
/// record.
const SPAN_MAX: usize = 8 << 10;
/// Bytes in which most heads fit.
const HEAD_GUESS: usize = 1024;
/// The most segments passed in one call; after that the caller is asked to come again.
const TRIES_MAX: usize = 10_000;
