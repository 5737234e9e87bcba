//! The progress of a consumer group, lane by lane, in memory and on disk.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::disk::File;
use crate::format::bytes::{Take, put_u64};
use crate::format::folder::{CURSOR, Folder};
use crate::format::index::LaneTotal;
use crate::format::slots::Slots;
use crate::{LaneStatus, ReadError};

/// A place in a lane: the documents before it are behind the mark. Each group read comes with the mark that
/// follows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The lane.
    pub lane: u32,
    /// Byte position in the log: groups of the lane that end here or before are behind the mark.
    pub position: u64,
    /// Documents of the lane that are behind the mark, counted from the log's beginning.
    pub documents: u64,
    /// Bytes of those documents, uncompressed.
    pub bytes: u64,
    /// Those documents that this consumer could not read.
    pub lost: u64,
}

/// A mark to commit: everything behind it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    pub(crate) mark: Mark,
    pub(crate) dead: u64,
    pub(crate) skipped: u64,
}

/// One lane of a consumer group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) position: u64,
    pub(crate) documents: u64,
    pub(crate) bytes: u64,
    pub(crate) dead: u64,
    pub(crate) lost: u64,
    /// Those documents that were passed over on request.
    pub(crate) skipped: u64,
    /// Documents that were behind once and that the cursor was set back over: they are counted again, so that
    /// all other numbers may stay.
    pub(crate) rewound: u64,
}

/// The result of moving a consumer, in documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Documents passed over: done now, and neither indexed nor dead nor lost.
    pub skipped: u64,
    /// Documents that the consumer was set back over: to be done once more.
    pub rewound: u64,
}

/// A consumer group's cursors.
pub(crate) struct Cursors {
    pub(crate) name: String,
    lanes: Mutex<Lanes>,
    /// The cursor file, locked while it is written.
    file: Mutex<CursorFile>,
}

struct Lanes {
    now: Vec<Cursor>,
    durable: Vec<Cursor>,
    dirty: bool,
    removed: bool,
}

struct CursorFile {
    /// None if the file is not to be trusted and has to be made again.
    file: Option<Arc<dyn File>>,
    sequence: u64,
}

// === impl Mark ===

impl Mark {
    /// Commits this mark with everything before it indexed (or lost): nothing was put among the dead letters
    /// since the last commit.
    #[must_use]
    pub fn done(self) -> Commit {
        self.done_with(0)
    }

    /// Commits this mark with everything before it done; `dead` documents since the lane's last commit were
    /// put among the dead letters.
    #[must_use]
    pub fn done_with(self, dead: u64) -> Commit {
        Commit {
            mark: self,
            dead,
            skipped: 0,
        }
    }

    /// Commits this mark with everything before it done; `skipped` documents since the lane's last commit
    /// were passed over on purpose.
    #[must_use]
    pub fn skipping(self, skipped: u64) -> Commit {
        Commit {
            mark: self,
            dead: 0,
            skipped,
        }
    }
}

// === impl Commit ===

impl Commit {
    /// Returns the mark: everything before it is done.
    #[must_use]
    pub fn mark(&self) -> Mark {
        self.mark
    }

    /// Returns the documents that were put among the dead letters.
    #[must_use]
    pub fn dead(&self) -> u64 {
        self.dead
    }

    /// Returns the documents that were passed over on purpose.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }
}

// === impl Cursor ===

impl Cursor {
    pub(crate) fn mark(&self, lane: u32) -> Mark {
        Mark {
            lane,
            position: self.position,
            documents: self.documents,
            bytes: self.bytes,
            lost: self.lost,
        }
    }

    pub(crate) fn total(&self) -> LaneTotal {
        LaneTotal {
            documents: self.documents,
            bytes: self.bytes,
        }
    }

    /// Returns the numbers of the lane, of which so much was accepted.
    ///
    /// # Panics
    /// If more is done than was accepted: no commit gets there, and cursors of an earlier run are brought
    /// back when the log is opened.
    pub(crate) fn status(&self, accepted: LaneTotal) -> LaneStatus {
        assert!(
            self.documents <= accepted.documents,
            "no more documents of a lane are done than were accepted: {} of {}",
            self.documents,
            accepted.documents
        );
        assert!(
            self.is_sound(),
            "only documents behind the cursor are dead, lost or skipped: {self:?}"
        );
        LaneStatus {
            position: self.position,
            accepted: accepted.documents,
            done: self.documents,
            dead: self.dead,
            lost: self.lost,
            skipped: self.skipped,
            rewound: self.rewound,
            pending_bytes: accepted.bytes.saturating_sub(self.bytes),
        }
    }

    /// Returns the cursor after a commit.
    ///
    /// # Panics
    /// If the commit goes back, or counts documents that it does not cover: such commits were refused before.
    fn after(&self, Commit { mark, dead, skipped }: &Commit) -> Self {
        assert!(
            mark.position >= self.position && mark.documents >= self.documents && mark.lost >= self.lost,
            "a commit moves the cursor of its lane forward: {mark:?} after {self:?}"
        );
        let after = Self {
            position: mark.position,
            documents: mark.documents,
            bytes: mark.bytes,
            dead: self.dead + dead,
            lost: mark.lost,
            skipped: self.skipped + skipped,
            rewound: self.rewound,
        };
        assert!(
            after.is_sound(),
            "only documents behind the cursor are dead, lost or skipped: {after:?}"
        );
        after
    }

    /// Returns whether the documents that are dead, lost or skipped are among those behind the cursor.
    fn is_sound(&self) -> bool {
        let apart = [self.dead, self.lost, self.skipped].into_iter();
        let apart = apart.fold(0u64, |sum, more| sum.saturating_add(more));
        apart <= self.documents.saturating_add(self.rewound)
    }

    /// Moves to another place, and counts the documents passed over and those gone back over.
    fn seek(&mut self, to: &Self, moved: &mut Moved) {
        let (forward, back) = (
            to.documents.saturating_sub(self.documents),
            self.documents.saturating_sub(to.documents),
        );
        self.position = to.position;
        self.documents = to.documents;
        self.bytes = to.bytes;
        self.skipped += forward;
        self.rewound += back;
        moved.skipped += forward;
        moved.rewound += back;
    }

    /// Moves back to what the log still has; documents that it no longer has count as neither dead nor lost
    /// nor skipped.
    fn shrink(&mut self, end: u64, total: &LaneTotal) {
        self.position = self.position.min(end);
        self.documents = self.documents.min(total.documents);
        self.bytes = self.bytes.min(total.bytes);
        self.make_sound();
    }

    /// Cuts the numbers of dead, lost and skipped documents down to those that are behind the cursor.
    fn make_sound(&mut self) {
        let counted = self.documents.saturating_add(self.rewound);
        self.lost = self.lost.min(counted);
        self.dead = self.dead.min(counted - self.lost);
        self.skipped = self.skipped.min(counted - self.lost - self.dead);
    }
}

// === impl Cursors ===

impl Cursors {
    /// Creates the cursors of a new consumer; they are durable when this returns.
    pub(crate) fn create(name: &str, start: Vec<Cursor>, folder: &Folder) -> io::Result<Self> {
        let cursors = Self {
            name: name.to_owned(),
            lanes: Mutex::new(Lanes {
                durable: start.clone(),
                now: start,
                dirty: true,
                removed: false,
            }),
            file: Mutex::new(CursorFile {
                file: None,
                sequence: 0,
            }),
        };
        cursors.write(folder)?;
        Ok(cursors)
    }

    /// Reads the cursors of a consumer whose file is there; none if neither slot checks.
    pub(crate) fn read(name: &str, folder: &Folder) -> io::Result<Option<Self>> {
        let path = folder.path.join(format!("{name}{CURSOR}"));
        let file: Arc<dyn File> = Arc::from(folder.disk.open_to_write(&path)?);
        // Bytes that a failed sync left only in the page cache are no commit.
        file.sync()?;
        file.drop_cached(0..u64::MAX);
        let Some(CursorContents {
            sequence,
            mut lanes,
            old,
        }) = newest(&*file, folder)?
        else {
            return Ok(None);
        };
        // Whatever the file says: the log asserts that its own numbers are sound.
        lanes.iter_mut().for_each(Cursor::make_sound);
        Ok(Some(Self {
            name: name.to_owned(),
            lanes: Mutex::new(Lanes {
                durable: lanes.clone(),
                now: lanes,
                dirty: old,
                removed: false,
            }),
            file: Mutex::new(CursorFile {
                // A file of the earlier layout is made again.
                file: Some(file).filter(|_| !old),
                sequence,
            }),
        }))
    }

    /// Takes all commits or none. `accepted` is what the log has in each lane.
    pub(crate) fn commit(
        &self,
        commits: &[Commit],
        end: u64,
        accepted: &[LaneTotal],
    ) -> Result<(), ReadError> {
        let mut lanes = self.lanes.lock();
        if lanes.removed {
            return Err(ReadError::Removed(self.name.clone()));
        }
        let mut now = lanes.now.clone();
        for commit @ Commit { mark, dead, skipped } in commits {
            let most = accepted.len() as u32;
            let cursor = now.get_mut(mark.lane as usize).ok_or(ReadError::NoLane {
                lane: mark.lane,
                lanes: most,
            })?;
            let within = mark.position >= cursor.position
                && mark.documents >= cursor.documents
                && mark.position <= end
                && mark.documents <= accepted[mark.lane as usize].documents
                && mark.lost >= cursor.lost
                && [*dead, cursor.skipped, *skipped, mark.lost]
                    .iter()
                    .fold(cursor.dead, |sum, more| sum.saturating_add(*more))
                    <= mark.documents.saturating_add(cursor.rewound);
            if !within {
                return Err(ReadError::Mark {
                    lane: mark.lane,
                    position: mark.position,
                    committed: cursor.position,
                });
            }
            *cursor = cursor.after(commit);
        }
        lanes.dirty |= lanes.now != now;
        lanes.now = now;
        Ok(())
    }

    /// Moves all lanes, forward or back.
    pub(crate) fn seek(&self, to: &[Cursor]) -> Moved {
        let (mut lanes, mut moved) = (self.lanes.lock(), Moved::default());
        for (cursor, to) in lanes.now.iter_mut().zip(to) {
            cursor.seek(to, &mut moved);
        }
        lanes.dirty = true;
        moved
    }

    /// Moves cursors that are beyond the log's end back to it; returns how many documents that were, if any
    /// cursor was beyond.
    pub(crate) fn clamp(&self, end: u64, accepted: &[LaneTotal]) -> Option<u64> {
        let mut lanes = self.lanes.lock();
        let mut ahead = None;
        for (cursor, total) in lanes.now.iter_mut().zip(accepted) {
            if cursor.documents > total.documents || cursor.position > end {
                *ahead.get_or_insert(0) += cursor.documents.saturating_sub(total.documents);
                cursor.shrink(end, total);
            }
        }
        lanes.dirty |= ahead.is_some();
        ahead
    }

    /// Makes everything committed so far durable.
    pub(crate) fn write(&self, folder: &Folder) -> io::Result<()> {
        let mut file = self.file.lock();
        let now = {
            let mut lanes = self.lanes.lock();
            if !lanes.dirty || lanes.removed {
                return Ok(());
            }
            lanes.dirty = false;
            lanes.now.clone()
        };
        let written = file.write(&self.name, &now, folder);
        let mut lanes = self.lanes.lock();
        match written {
            Ok(()) => lanes.durable = now,
            Err(_) => lanes.dirty = true,
        }
        written
    }

    /// Removes the file. If the disk fails, the cursors are as they were.
    pub(crate) fn remove(&self, folder: &Folder) -> io::Result<()> {
        let mut file = self.file.lock();
        self.lanes.lock().removed = true;
        let path = folder.path.join(format!("{}{CURSOR}", self.name));
        let removed = match folder.disk.remove(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        };
        let removed = removed.and_then(|()| folder.disk.sync_folder(&folder.path));
        if removed.is_err() {
            // The file may be gone, though: it is made again.
            file.file = None;
            let mut lanes = self.lanes.lock();
            (lanes.removed, lanes.dirty) = (false, true);
        }
        removed
    }

    pub(crate) fn now(&self) -> Vec<Cursor> {
        self.lanes.lock().now.clone()
    }

    pub(crate) fn durable(&self) -> Vec<Cursor> {
        self.lanes.lock().durable.clone()
    }
}

// === impl CursorFile ===

impl CursorFile {
    fn write(&mut self, name: &str, now: &[Cursor], folder: &Folder) -> io::Result<()> {
        let (slots, body, next) = (slots(folder, NUMBERS), encode(now), self.sequence + 1);
        // The file is taken out: it comes back only if everything succeeds.
        if let Some(file) = self.file.take() {
            slots.write(&*file, next, &body)?;
            file.sync()?;
            self.file = Some(file);
            self.sequence = next;
        } else {
            let file = folder.replace(&format!("{name}{CURSOR}"), |file| {
                // Write both slots, so that no later write needs room on the disk.
                slots.write(file, next, &body)?;
                slots.write(file, next + 1, &body)
            })?;
            self.file = Some(file);
            self.sequence = next + 1;
        }
        Ok(())
    }
}

/// The contents of a cursor file.
pub(crate) struct CursorContents {
    pub(crate) sequence: u64,
    pub(crate) lanes: Vec<Cursor>,
    /// Whether the file was written before lanes had all the numbers that they have now.
    pub(crate) old: bool,
}

/// Reads the newest slot of a cursor file that checks.
pub(crate) fn newest(file: &dyn File, folder: &Folder) -> io::Result<Option<CursorContents>> {
    for (numbers, old) in [(NUMBERS, false), (NUMBERS_BEFORE, true)] {
        if let Some((sequence, body)) = slots(folder, numbers).read(file)? {
            let lanes = parse(&body, folder.lanes, numbers);
            return Ok(Some(CursorContents { sequence, lanes, old }));
        }
    }
    Ok(None)
}

/// Returns the layout of a cursor file.
fn slots(folder: &Folder, numbers: usize) -> Slots {
    Slots::new(b"TGCUR", folder.key, folder.lanes as usize * numbers * 8)
}

fn encode(lanes: &[Cursor]) -> Vec<u8> {
    let mut body = Vec::with_capacity(lanes.len() * NUMBERS * 8);
    for lane in lanes {
        for number in [
            lane.position,
            lane.documents,
            lane.bytes,
            lane.dead,
            lane.lost,
            lane.skipped,
            lane.rewound,
        ] {
            put_u64(&mut body, number);
        }
    }
    body
}

fn parse(body: &[u8], lanes: u32, numbers: usize) -> Vec<Cursor> {
    let mut take = Take(body);
    let mut cursor = || {
        let mut cursor = Cursor {
            position: take.u64()?,
            documents: take.u64()?,
            bytes: take.u64()?,
            dead: take.u64()?,
            lost: take.u64()?,
            ..Cursor::default()
        };
        if numbers == NUMBERS {
            (cursor.skipped, cursor.rewound) = (take.u64()?, take.u64()?);
        }
        Some(cursor)
    };
    (0..lanes).map_while(|_| cursor()).collect()
}

/// Numbers of a lane in a slot.
const NUMBERS: usize = 7;
/// Numbers of a lane in a slot before skipped and rewound documents were counted.
const NUMBERS_BEFORE: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Disk as _, Log, Options, RealDisk, StartAt};

    #[test]
    fn a_file_from_before_skipped_and_rewound_were_counted_is_read_and_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let open = || {
            let options = Options {
                lanes: 2,
                free_bytes_min: 0,
                ..Options::default()
            };
            Log::open(folder.path(), options, RealDisk::default()).unwrap()
        };
        let log = open();
        for _ in 0..5 {
            let mut record = log.record(0, b"");
            record.group(1, 3, |out| out.extend_from_slice(b"abc"));
            log.append_blocking(record).unwrap();
        }
        let consumer = log.consumer("c", StartAt::Oldest).unwrap();
        let mut reader = consumer.reader(1).unwrap();
        reader.next(&mut Vec::new()).unwrap();
        let mark = reader.mark();
        let inside = &log.shared().folder;
        let old = slots(inside, NUMBERS_BEFORE);
        let mut body = Vec::new();
        for lane in [[0; 5], [mark.position, mark.documents, mark.bytes, 1, 0]] {
            lane.into_iter().for_each(|number| put_u64(&mut body, number));
        }
        let path = folder.path().join("c.cursor");
        drop(reader);
        log.close();
        let file = RealDisk::default().create(&folder.path().join("c.made")).unwrap();
        old.write(&*file, 8, &body).unwrap();
        std::fs::rename(folder.path().join("c.made"), &path).unwrap();
        for _ in 0..2 {
            let log = open();
            let status = log.consumer("c", StartAt::Oldest).unwrap().status();
            assert_eq!(
                (
                    status.indexed,
                    status.dead,
                    status.skipped,
                    status.rewound,
                    status.pending
                ),
                (2, 1, 0, 0, 12)
            );
            log.close();
        }
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(
            &bytes[12..16],
            &(2 * 7 * 8u32).to_le_bytes(),
            "it has the new shape"
        );
    }

    fn committed() -> Cursor {
        Cursor {
            position: 80,
            documents: 5,
            dead: 2,
            ..Cursor::default()
        }
    }

    fn mark(position: u64, documents: u64) -> Mark {
        Mark {
            position,
            documents,
            ..Mark::default()
        }
    }

    #[test]
    #[should_panic(expected = "a commit moves the cursor of its lane forward")]
    fn no_commit_moves_a_cursor_back() {
        let _ = committed().after(&mark(72, 5).done());
    }

    #[test]
    #[should_panic(expected = "only documents behind the cursor are dead, lost or skipped")]
    fn no_commit_counts_documents_that_it_does_not_cover() {
        assert_eq!(committed().after(&mark(96, 7).done_with(5)).dead, 7);
        let _ = committed().after(&mark(96, 7).done_with(6));
    }

    #[test]
    #[should_panic(expected = "no more documents of a lane are done than were accepted: 5 of 4")]
    fn no_lane_is_done_with_documents_that_it_was_not_given() {
        let accepted = |documents| LaneTotal { documents, bytes: 0 };
        assert_eq!(committed().status(accepted(5)).done, 5);
        let _ = committed().status(accepted(4));
    }

    #[test]
    fn a_file_that_counts_more_than_there_is_is_cut_down_to_what_the_log_asserts() {
        let folder = tempfile::tempdir().unwrap();
        let options = || Options {
            lanes: 1,
            free_bytes_min: 0,
            ..Options::default()
        };
        let log = Log::open(folder.path(), options(), RealDisk::default()).unwrap();
        let mut record = log.record(0, b"");
        record.group(0, 3, |out| out.extend_from_slice(b"abc"));
        log.append_blocking(record).unwrap();
        log.consumer("c", StartAt::Oldest).unwrap();
        let end = log.status().end;
        let file = |name: &str| folder.path().join(name);
        let made = RealDisk::default().create(&file("c.made")).unwrap();
        let claims = Cursor {
            position: end + 8,
            documents: 9,
            dead: 8,
            lost: 2,
            skipped: u64::MAX,
            ..Cursor::default()
        };
        let inside = &log.shared().folder;
        slots(inside, NUMBERS)
            .write(&*made, 9, &encode(&[claims]))
            .unwrap();
        log.close();
        std::fs::rename(file("c.made"), file("c.cursor")).unwrap();
        let log = Log::open(folder.path(), options(), RealDisk::default()).unwrap();
        let status = log.consumer("c", StartAt::Oldest).unwrap().status();
        let numbers = [
            status.indexed,
            status.dead,
            status.lost,
            status.skipped,
            status.pending,
        ];
        assert_eq!(numbers, [0, 1, 2, 0, 0]);
    }
}
