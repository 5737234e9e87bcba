//! How far each lane of a consumer group may have sent. Commits are made durable only now and then, so after
//! a kill an earlier run may have executed much that counts as pending; and where a name has come to lead
//! elsewhere meanwhile, an operation has to be looked for before it is sent again. Each lane therefore writes
//! down how far it is about to send: eight bytes of a small file, written and not synced. Written bytes
//! survive a kill.
//!
//! If the machine itself goes down (another boot), these bytes may be lost. For that case the file has one
//! mark for all lanes. The mark is synced before any of them sends records beyond it, and is set [`AHEAD`] of
//! them, so that this is rare. After another boot, any record before the mark may have been sent.
//!
//! The file has [`MAGIC`], the boot as 16 bytes, the number of lanes as 8, then 8 bytes for each lane: the
//! position before which the lane may have sent. The mark for all lanes comes last. All numbers are
//! little-endian.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use log::{Disk as _, RealDisk};

/// How far the lanes of one consumer group may have sent.
pub(crate) struct SentMarks {
    /// `None` if the marks cannot be kept.
    file: Option<File>,
    /// By lane: the position before which the lane may have sent.
    before: Vec<AtomicU64>,
    /// The mark for all lanes, as it is synced.
    synced: AtomicU64,
}

/// The contents of an earlier run's file.
struct EarlierMarks {
    before: Vec<u64>,
    synced: u64,
}

impl SentMarks {
    /// Opens the marks of a group, with those that an earlier run has left in the file at `path`. All that is
    /// queued lies before `end`, which is 0 if nothing is queued. Where the file does not tell, all of it may
    /// have been sent.
    pub(crate) fn open(path: &Path, lanes: u32, end: u64) -> Self {
        let boot = RealDisk::default().boot();
        let found = fs::read(path).ok().and_then(|bytes| found(&bytes, boot, lanes));
        let found = found.unwrap_or_else(|| EarlierMarks {
            before: vec![end; lanes as usize],
            synced: end,
        });
        let synced = found.synced.max(end).saturating_add(AHEAD);
        let file = boot
            .map(|boot| begin(path, boot, &found.before, synced))
            .transpose();
        let file = file.unwrap_or_else(|error| {
            tracing::warn!(path = %path.display(), %error, "how far lanes send cannot be written down: after a kill all that is queued may have been sent");
            // A file of an earlier run would say too little.
            let _ = fs::remove_file(path);
            None
        });
        Self {
            file,
            before: found.before.into_iter().map(AtomicU64::new).collect(),
            synced: AtomicU64::new(synced),
        }
    }

    /// Records that a lane is about to send the records before `end`.
    pub(crate) fn sends(&self, lane: u32, end: u64) {
        let Some((before, file)) = self.before.get(lane as usize).zip(self.file.as_ref()) else {
            return;
        };
        if before.fetch_max(end, Ordering::Relaxed) >= end {
            return;
        }
        let mut written = file.write_all_at(&end.to_le_bytes(), HEAD_BYTES + u64::from(lane) * 8);
        if end > self.synced.load(Ordering::Relaxed) {
            written = written.and_then(|()| self.sync(file, end.saturating_add(AHEAD)));
        }
        if let Err(error) = written {
            wire::rationed!(
                tracing::warn,
                lane,
                %error,
                "how far a lane sends cannot be written down: after a kill some may be sent twice"
            );
        }
    }

    fn sync(&self, file: &File, mark: u64) -> io::Result<()> {
        file.write_all_at(&mark.to_le_bytes(), HEAD_BYTES + self.before.len() as u64 * 8)?;
        file.sync_data()?;
        self.synced.fetch_max(mark, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the position before which a lane's records may have been sent.
    pub(crate) fn before(&self, lane: u32) -> u64 {
        let before = self.before.get(lane as usize);
        before.map_or(u64::MAX, |before| before.load(Ordering::Relaxed))
    }
}

/// Reads a file, if it is whole: the marks of each lane, or, if the file is of another boot, the mark for all
/// lanes.
fn found(bytes: &[u8], boot: Option<u128>, lanes: u32) -> Option<EarlierMarks> {
    let (rest, is_new) = match bytes.strip_prefix(MAGIC) {
        Some(rest) => (rest, true),
        None => (bytes.strip_prefix(MAGIC_BEFORE)?, false),
    };
    let (of, rest) = rest.split_at_checked(16)?;
    let is_of_boot = boot.is_some_and(|boot| of == boot.to_le_bytes());
    let rest = rest.strip_prefix(&u64::from(lanes).to_le_bytes())?;
    let (marks, more) = rest.as_chunks::<8>();
    let mut before: Vec<u64> = marks.iter().map(|mark| u64::from_le_bytes(*mark)).collect();
    let synced = if is_new { Some(before.pop()?) } else { None };
    if before.len() != lanes as usize || !more.is_empty() {
        return None;
    }
    if !is_of_boot {
        before.fill(synced?);
    }
    let sent = before.iter().copied().max().unwrap_or_default();
    Some(EarlierMarks {
        before,
        synced: synced.unwrap_or(sent),
    })
}

/// Writes the file anew beside the existing one, which it then replaces: after a kill, or after the machine
/// goes down, one of the two is there.
fn begin(path: &Path, boot: u128, before: &[u64], synced: u64) -> io::Result<File> {
    let folder = path.parent().unwrap_or(Path::new("."));
    RealDisk::default().create_folder(folder)?;
    let marks = before.iter().chain([&synced]).flat_map(|mark| mark.to_le_bytes());
    let head = [MAGIC, &boot.to_le_bytes(), &(before.len() as u64).to_le_bytes()].concat();
    let bytes: Vec<u8> = head.into_iter().chain(marks).collect();
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new~");
    let mut file = File::create(&beside)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(beside, path)?;
    File::open(folder)?.sync_all()?;
    Ok(file)
}

const MAGIC: &[u8] = b"TGSENT02";
/// The magic of a file without the mark for all lanes.
const MAGIC_BEFORE: &[u8] = b"TGSENT01";
const HEAD_BYTES: u64 = 8 + 16 + 8;
/// How far the mark for all lanes is set ahead of the lanes, in bytes of the queue.
const AHEAD: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_lane_was_about_to_send_is_known_after_a_kill() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sent/q/c0");
        let marks = SentMarks::open(&path, 3, 0);
        assert_eq!(marks.before(1), 0, "a queue that is new");
        marks.sends(1, 700);
        marks.sends(1, 600);
        marks.sends(2, 800);
        drop(marks);
        let marks = SentMarks::open(&path, 3, 900);
        assert_eq!([0, 1, 2].map(|lane| marks.before(lane)), [0, 700, 800]);
        assert_eq!(marks.before(3), u64::MAX);
    }

    #[test]
    fn of_another_queue_nobody_knows_and_what_is_sent_since_is_written_down() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c0");
        let before = |lanes| SentMarks::open(&path, lanes, 50).before(0);
        assert_eq!(before(2), 50, "no file");
        SentMarks::open(&path, 2, 50).sends(0, 90);
        assert_eq!(before(2), 90);
        assert_eq!(before(5), 50, "other lanes");
        fs::write(&path, MAGIC).unwrap();
        assert_eq!(before(5), 50, "cut");
    }

    #[test]
    fn after_the_machine_went_down_nothing_lies_behind_the_mark_that_is_synced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c0");
        let marks = SentMarks::open(&path, 2, 0);
        let synced = || {
            let bytes = fs::read(&path).unwrap();
            u64::from_le_bytes(*bytes.last_chunk().unwrap())
        };
        assert_eq!(synced(), AHEAD);
        marks.sends(0, AHEAD);
        assert_eq!(synced(), AHEAD, "it is ahead still");
        marks.sends(1, AHEAD + 5);
        assert_eq!(synced(), 2 * AHEAD + 5);
        drop(marks);
        let mut bytes = fs::read(&path).unwrap();
        bytes[8] ^= 1;
        // Bytes that were not synced are as they were before.
        bytes[HEAD_BYTES as usize..][..16].fill(0);
        fs::write(&path, &bytes).unwrap();
        let marks = SentMarks::open(&path, 2, 700);
        assert_eq!([marks.before(0), marks.before(1)], [2 * AHEAD + 5; 2]);
        assert_eq!(synced(), 3 * AHEAD + 5);
    }

    #[test]
    fn a_file_of_an_older_version_tells_of_its_own_boot() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c0");
        SentMarks::open(&path, 2, 0).sends(1, 70);
        let mut bytes = fs::read(&path).unwrap();
        bytes[..8].copy_from_slice(MAGIC_BEFORE);
        bytes.truncate(bytes.len() - 8);
        fs::write(&path, &bytes).unwrap();
        let marks = SentMarks::open(&path, 2, 100);
        assert_eq!([marks.before(0), marks.before(1)], [0, 70]);
        bytes[8] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert_eq!(SentMarks::open(&path, 2, 100).before(1), 100);
    }
}
