//! Group commit: gathered records are written in one go, synced once, then acknowledged.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::Waker;

use crate::disk::File;
use crate::format::folder::Folder;
use crate::format::head::Head;
use crate::format::index::{Index, Totals};
use crate::format::segment::{Footer, Header};
use crate::shared::OpenLog;
use crate::shared::queue::Job;
use crate::write::watermark::{Watermark, WatermarkFile};
use crate::write::written::WrittenFile;
use crate::{AppendError, Fsync, Full, Receipt};

/// The writer of records.
pub(crate) struct Writer {
    active: Option<Active>,
    /// The position at which the log continues.
    end: u64,
    /// The totals of everything written.
    totals: Totals,
    /// The position up to which the log is synced.
    durable: u64,
    mark: WatermarkFile,
    written: WrittenFile,
    /// When the oldest write that is not yet synced was made, by the monotonic clock.
    unsynced_since: Option<u64>,
    syncs: u64,
}

struct Active {
    first: u64,
    file: Arc<dyn File>,
    entries: usize,
    /// Bytes of the file's former use, as far as they were not overwritten.
    stale: u64,
    /// Whether the segment's pages stay in the page cache.
    warm: bool,
    /// Bytes that the page cache was told to drop.
    dropped: u64,
}

/// Records that go into a segment in one write.
#[derive(Default)]
struct RecordRun {
    jobs: Vec<Placed>,
    bytes: u64,
    entries: usize,
    documents: u64,
}

struct Placed {
    job: Job,
    receipt: Receipt,
}

/// The reason why a turn cannot continue.
enum Trouble {
    /// These records are refused; nothing is left of them.
    Refuse(AppendError),
    /// The contents of the disk are unknown.
    Poison(String),
}

// === impl Writer ===

impl Writer {
    pub(crate) fn new(
        active: Option<(u64, Arc<dyn File>, usize)>,
        end: u64,
        totals: Totals,
        mark: WatermarkFile,
    ) -> Self {
        Self {
            active: active.map(|(first, file, entries)| Active {
                first,
                file,
                entries,
                // The bytes behind its end are cut off.
                stale: 0,
                warm: false,
                dropped: 0,
            }),
            end,
            totals,
            durable: end,
            mark,
            written: WrittenFile::default(),
            unsynced_since: None,
            syncs: 0,
        }
    }

    /// Writes the waiting records; returns how many there were.
    pub(crate) fn turn(&mut self, shared: &OpenLog) -> usize {
        let jobs = shared.queue.take();
        let count = jobs.len();
        if count > 0 {
            shared.measure_free();
        }
        let mut run = RecordRun::default();
        for job in jobs {
            if let Some(refusal @ AppendError::Poisoned(_)) = shared.queue.refusal() {
                settle(shared, job, Err(refusal));
            } else if let Err(trouble) = self.place(&mut run, job.bytes, job.record.directory.len(), shared) {
                let error = self.explain(trouble, shared);
                settle(shared, job, Err(error));
            } else {
                run.push(job, self.end);
            }
        }
        self.finish(&mut run, false, shared);
        self.sync_if_due(shared);
        count
    }

    /// Makes room for a record in a segment, a new one if need be.
    fn place(
        &mut self,
        run: &mut RecordRun,
        bytes: u64,
        groups: usize,
        shared: &OpenLog,
    ) -> Result<(), Trouble> {
        if let Some(active) = &self.active {
            let held = self.end + run.bytes - active.first;
            let entries = active.entries + run.entries + groups;
            let whole = held + bytes + Footer::bytes(shared.folder.lanes, entries);
            let begun = held > Header::bytes(shared.folder.lanes);
            if begun && (whole > shared.adjustable().segment_bytes || entries > ENTRIES_MAX) {
                self.finish(run, true, shared);
                self.seal(shared)?;
            }
        }
        if self.active.is_none() {
            self.create(shared)?;
        }
        Ok(())
    }

    /// Writes a run, syncs it as the options say (in any case if `now` is set), shows it to readers and
    /// acknowledges it.
    fn finish(&mut self, run: &mut RecordRun, now: bool, shared: &OpenLog) {
        let run = std::mem::take(run);
        let outcome = self.write(&run, shared).and_then(|run_end| {
            if !run.jobs.is_empty() {
                self.unsynced_since
                    .get_or_insert_with(|| shared.folder.disk.elapsed_ms());
            }
            if now || shared.adjustable().fsync == Fsync::Always {
                self.sync(run_end, &run)?;
            } else if !run.jobs.is_empty() {
                let mark = self.mark_at(run_end, &run);
                self.written.write(&shared.folder, &mark);
            }
            Ok(run_end)
        });
        match outcome {
            Ok(end) => self.publish(run, end, shared),
            Err(trouble) => {
                let error = self.explain(trouble, shared);
                for placed in run.jobs {
                    settle(shared, placed.job, Err(error.clone()));
                }
            }
        }
    }

    /// Writes a run behind the records that are there; returns where it ends.
    fn write(&self, run: &RecordRun, shared: &OpenLog) -> Result<u64, Trouble> {
        let Some(active) = self.active.as_ref().filter(|_| !run.jobs.is_empty()) else {
            return Ok(self.end);
        };
        run.assert_placed(self.end);
        let now = shared.folder.disk.now_ms();
        let mut heads = Vec::with_capacity(run.jobs.len());
        let mut documents_before = self.totals.documents;
        for (placed, number) in run.jobs.iter().zip(self.totals.records..) {
            let record = &placed.job.record;
            let head = Head {
                position: placed.receipt.position,
                synced: self.durable,
                time_ms: now,
                number,
                documents_before,
                payload: record.payload.len() as u32,
                documents: placed.receipt.documents,
                params: (record.head.len() - crate::format::record::HEAD_BYTES) as u16,
                groups: record.directory.len() as u16,
                kind: record.kind,
                codec: record.codec,
            };
            documents_before += u64::from(placed.receipt.documents);
            let mut bytes = Vec::with_capacity(head.bytes());
            bytes.extend_from_slice(&record.head);
            head.write(&mut bytes, &record.directory, shared.folder.key);
            heads.push(bytes);
        }
        let mut slices = Vec::with_capacity(heads.len() * 3);
        for (placed, head) in run.jobs.iter().zip(&heads) {
            let payload = &placed.job.record.payload;
            let padding = placed.job.bytes as usize - head.len() - payload.len();
            slices.extend([head, payload, &ZEROS[..padding]].map(IoSlice::new));
        }
        let at = self.end - active.first;
        let written = active.file.write_at(&mut slices, at);
        drop(slices);
        match written {
            Ok(()) => Ok(self.end + run.bytes),
            Err(error) => Err(undo(&*active.file, at, &error)),
        }
    }

    fn sync(&mut self, end: u64, run: &RecordRun) -> Result<(), Trouble> {
        let Some(active) = &mut self.active else {
            return Ok(());
        };
        if self.unsynced_since.is_some() {
            active
                .file
                .sync()
                .map_err(|error| Trouble::Poison(format!("sync of segment {}: {error}", active.first)))?;
            self.syncs += 1;
            self.unsynced_since = None;
            let cold = (end - active.first).saturating_sub(CACHED_BYTES);
            if !active.warm && cold > active.dropped + CACHED_BYTES / 4 {
                active.file.drop_cached(active.dropped..cold);
                active.dropped = cold;
            }
        }
        self.durable = end;
        let mark = self.mark_at(end, run);
        self.mark.write(&mark);
        Ok(())
    }

    /// Returns the watermark at the end of a run.
    fn mark_at(&self, end: u64, run: &RecordRun) -> Watermark {
        Watermark {
            synced: end,
            records: self.totals.records + run.jobs.len() as u64,
            documents: self.totals.documents + run.documents,
        }
    }

    /// Shows records to readers and wakes the tasks that wait for them.
    fn publish(&mut self, run: RecordRun, end: u64, shared: &OpenLog) {
        let Some(active) = self.active.as_mut().filter(|_| !run.jobs.is_empty()) else {
            return;
        };
        let mut wakers: Vec<Waker> = Vec::new();
        let mut state = shared.state.lock();
        for placed in &run.jobs {
            let record = &placed.job.record;
            let at = (placed.receipt.position - active.first) as u32;
            let head = record.head.len() + record.directory.len() * crate::format::record::ENTRY_BYTES;
            let mut group_at = at + head as u32;
            for entry in &record.directory {
                state
                    .index
                    .push(entry.lane, at, group_at, entry.stored, entry.documents);
                group_at += entry.stored;
                wakers.append(&mut state.wakers[entry.lane as usize]);
            }
            self.totals.add(
                record
                    .directory
                    .iter()
                    .map(|entry| (entry.lane, entry.documents, entry.raw)),
            );
        }
        active.entries = state.index.entries;
        self.end = end;
        state.end = end;
        state.segments.insert(active.first, end - active.first);
        state.totals.clone_from(&self.totals);
        state.syncs = self.syncs;
        shared.measure(&state);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        for placed in run.jobs {
            settle(shared, placed.job, Ok(placed.receipt));
        }
    }

    /// Ends the active segment with its index. All its records are published by now.
    fn seal(&mut self, shared: &OpenLog) -> Result<(), Trouble> {
        still_sound(shared)?;
        let Some(active) = &self.active else { return Ok(()) };
        let footer = Footer::encode(
            active.first,
            &shared.state.lock().index,
            &self.totals,
            shared.folder.key,
        );
        let at = self.end - active.first;
        let written = active.file.write_at(&mut [IoSlice::new(&footer)], at);
        written.map_err(|error| undo(&*active.file, at, &error))?;
        let synced = active
            .cut_stale(at + footer.len() as u64)
            .and_then(|()| active.file.sync());
        synced.map_err(|error| Trouble::Poison(format!("sync of segment {}: {error}", active.first)))?;
        self.syncs += 1;
        self.unsynced_since = None;
        self.end += footer.len() as u64;
        self.durable = self.end;
        let mut state = shared.state.lock();
        state.segments.insert(active.first, self.end - active.first);
        state.active = None;
        state.end = self.end;
        state.index = Index::new(shared.folder.lanes);
        self.active = None;
        shared.measure(&state);
        Ok(())
    }

    /// Begins a segment. Its header and its name are durable when this returns.
    fn create(&mut self, shared: &OpenLog) -> Result<(), Trouble> {
        still_sound(shared)?;
        let folder = &shared.folder;
        let first = self.end;
        let mut header = Header {
            first,
            time_ms: folder.disk.now_ms(),
            totals: self.totals.clone(),
            stale: 0,
        };
        let file = match shared.spares.begin(folder, &mut header) {
            Some(file) => file,
            None => begin(folder, &header)?,
        };
        let synced = folder.disk.sync_folder(&folder.path);
        synced.map_err(|error| Trouble::Poison(format!("sync of the new segment {first}: {error}")))?;
        self.syncs += 1;
        shared.ages.begun(first, folder.disk.elapsed_ms());
        let held = shared.state.lock().bytes();
        self.active = Some(Active {
            first,
            file,
            entries: 0,
            stale: header.stale,
            warm: header.stale > 0 || held < shared.adjustable().spare_bytes,
            dropped: 0,
        });
        self.end = first + Header::bytes(folder.lanes);
        self.durable = self.end;
        let mut state = shared.state.lock();
        state.segments.insert(first, self.end - first);
        state.active = Some(first);
        state.end = self.end;
        state.index = Index::new(folder.lanes);
        shared.measure(&state);
        Ok(())
    }

    /// Ends a segment that every consumer has read, so that it can be deleted. Does nothing to an empty one.
    pub(crate) fn roll(&mut self, shared: &OpenLog) {
        let header = Header::bytes(shared.folder.lanes);
        if self
            .active
            .as_ref()
            .is_some_and(|active| self.end > active.first + header)
            && shared.queue.refusal().is_none()
        {
            self.finish(&mut RecordRun::default(), true, shared);
            let rolled = self.seal(shared).and_then(|()| self.create(shared));
            if let Err(Trouble::Poison(why)) = rolled {
                shared.poison(&why);
            }
        }
    }

    /// With [`Fsync::Interval`]: syncs records that were written that long ago.
    pub(crate) fn sync_if_due(&mut self, shared: &OpenLog) {
        let Fsync::Interval(interval) = shared.adjustable().fsync else {
            return;
        };
        let due =
            |since: u64| shared.folder.disk.elapsed_ms().saturating_sub(since) >= interval.as_millis() as u64;
        if self.unsynced_since.is_some_and(due) {
            self.sync_all(shared);
        }
    }

    /// Syncs everything written.
    pub(crate) fn sync_all(&mut self, shared: &OpenLog) {
        if !matches!(shared.queue.refusal(), Some(AppendError::Poisoned(_)))
            && let Err(trouble) = self.sync(self.end, &RecordRun::default())
        {
            self.explain(trouble, shared);
        }
        shared.state.lock().syncs = self.syncs;
    }

    /// Does the last work of a log that is closed.
    pub(crate) fn close(&mut self, shared: &OpenLog) {
        self.sync_all(shared);
        let poisoned = matches!(shared.queue.refusal(), Some(AppendError::Poisoned(_)));
        if let Some(active) = self.active.as_ref().filter(|_| !poisoned) {
            // If the file cannot be cut, the process that opens it next finds where the records end.
            let _ = active.cut_stale(self.end - active.first);
        }
        self.mark.sync();
    }

    /// Returns when [`Writer::sync_if_due`] is next due, in ms from now; never again in a poisoned log.
    pub(crate) fn sync_due_ms(&self, shared: &OpenLog) -> Option<u64> {
        let Fsync::Interval(interval) = shared.adjustable().fsync else {
            return None;
        };
        if matches!(shared.queue.refusal(), Some(AppendError::Poisoned(_))) {
            return None;
        }
        let since = self.unsynced_since?;
        Some((since + interval.as_millis() as u64).saturating_sub(shared.folder.disk.elapsed_ms()))
    }

    fn explain(&self, trouble: Trouble, shared: &OpenLog) -> AppendError {
        match trouble {
            Trouble::Refuse(error) => error,
            Trouble::Poison(why) => {
                shared.poison(&why);
                AppendError::Poisoned(why)
            }
        }
    }
}

// === impl Active ===

impl Active {
    /// Cuts off the bytes of the file's former use behind its end.
    fn cut_stale(&self, end: u64) -> io::Result<()> {
        if end < self.stale {
            self.file.set_len(end)
        } else {
            Ok(())
        }
    }
}

// === impl RecordRun ===

impl RecordRun {
    fn push(&mut self, job: Job, end: u64) {
        let documents = u32::try_from(job.record.documents()).expect("checked when it was handed over");
        let receipt = Receipt {
            position: end + self.bytes,
            bytes: job.bytes,
            documents,
        };
        self.bytes += job.bytes;
        self.entries += job.record.directory.len();
        self.documents += u64::from(documents);
        self.jobs.push(Placed { job, receipt });
    }

    /// Asserts that the records lie one behind the other from this position on: positions ascend, and so they
    /// do in each lane.
    ///
    /// # Panics
    /// If they do not: receipts would tell of other places than those that are written.
    fn assert_placed(&self, start: u64) {
        let mut at = start;
        for Placed { receipt, .. } in &self.jobs {
            assert_eq!(
                receipt.position, at,
                "a record lies where the record before it ends"
            );
            at += receipt.bytes;
        }
        assert_eq!(at, start + self.bytes, "a run is as long as its records together");
    }
}

/// Creates a file for a segment, with its header synced.
fn begin(folder: &Folder, header: &Header) -> Result<Arc<dyn File>, Trouble> {
    let path = folder.segment(header.first);
    let made = folder.disk.create(&path).and_then(|file| {
        header.write(&*file, folder.key)?;
        Ok(file)
    });
    let file = made.map_err(|error| {
        // An empty file would do no harm: it is made again, or removed when the log is opened.
        let _ = folder.disk.remove(&path);
        Trouble::Refuse(refusal(&error))
    })?;
    let synced = file.sync();
    synced.map_err(|error| Trouble::Poison(format!("sync of the new segment {}: {error}", header.first)))?;
    Ok(Arc::from(file))
}

fn settle(shared: &OpenLog, job: Job, result: Result<Receipt, AppendError>) {
    shared.queue.settled(job.bytes);
    drop(job.record);
    (job.done)(result);
}

/// Checks that no write or sync has failed: after a failure nothing more is written, not even by a turn
/// already on its way.
fn still_sound(shared: &OpenLog) -> Result<(), Trouble> {
    match shared.queue.refusal() {
        Some(poisoned @ AppendError::Poisoned(_)) => Err(Trouble::Refuse(poisoned)),
        _ => Ok(()),
    }
}

/// Cuts off a write that failed half-way. It must be gone for good before any client is told that it was
/// refused.
fn undo(file: &dyn File, at: u64, error: &io::Error) -> Trouble {
    let full = refusal(error);
    if !matches!(full, AppendError::Full(_)) {
        return Trouble::Poison(format!("write: {error}"));
    }
    match file.set_len(at).and_then(|()| file.sync()) {
        Ok(()) => Trouble::Refuse(full),
        Err(error) => Trouble::Poison(format!("cutting off what did not fit on the disk: {error}")),
    }
}

fn refusal(error: &io::Error) -> AppendError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            AppendError::Full(Full::Disk)
        }
        _ => AppendError::Io(error.to_string()),
    }
}

/// The most groups of a segment: its index is in memory while it is written, 16 bytes for each group.
const ENTRIES_MAX: usize = 1 << 18;
/// Bytes of a segment's end that stay in the page cache for readers that keep up. The memory of earlier pages
/// is reused for the following ones while it is still warm: taking new memory for each page costs several
/// times the copy.
const CACHED_BYTES: u64 = 16 << 20;
/// The bytes that pad a record.
const ZEROS: [u8; 8] = [0; 8];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::pool::Pool;
    use crate::{Codec, Record};

    fn run(end: u64) -> RecordRun {
        let mut run = RecordRun::default();
        for bytes in [64, 128] {
            let record = Record::new(0, b"", 1, Codec::None, Arc::new(Pool::default()));
            let done = Box::new(|_| ());
            run.push(Job { record, bytes, done }, end);
        }
        run.assert_placed(end);
        run
    }

    #[test]
    #[should_panic(expected = "a record lies where the record before it ends")]
    fn no_record_is_placed_before_or_far_behind_the_one_before_it() {
        let mut run = run(512);
        run.jobs.swap(0, 1);
        run.assert_placed(512);
    }

    #[test]
    #[should_panic(expected = "a record lies where the record before it ends")]
    fn no_record_is_written_elsewhere_than_its_receipt_says() {
        run(512).assert_placed(520);
    }

    #[test]
    #[should_panic(expected = "a run is as long as its records together")]
    fn no_stretch_ends_elsewhere_than_its_last_record() {
        let mut run = run(512);
        run.bytes += 8;
        run.assert_placed(512);
    }
}
