//! How far each lane of a consumer group may have sent. What is committed is made durable now and then, so
//! after a kill an earlier run may have executed much that counts as pending; and where a name has come to
//! lead elsewhere meanwhile, it has to be looked for before it is sent again. Each lane therefore says what
//! it is about to send: eight bytes of a small file, written and not synced. A kill leaves what was written;
//! after the machine itself went down (another boot) nobody knows.
//!
//! The file: [`MAGIC`], the boot as 16 bytes, the number of lanes as 8, then 8 bytes for each lane, all
//! little-endian: the position before which it may have sent.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use log::{Disk as _, RealDisk};

/// How far the lanes of one consumer group may have sent.
pub(crate) struct SentMarks {
    /// None: they cannot be kept.
    file: Option<File>,
    /// By lane: what lies before this may have been sent.
    before: Vec<AtomicU64>,
    /// Whether an earlier run's marks were found, so that nothing behind them was sent.
    known: bool,
}

impl SentMarks {
    /// Those of a group, with what an earlier run has left in the file at `path`. All that is queued lies
    /// before `end`, 0 if that is nothing.
    pub(crate) fn open(path: &Path, lanes: u32, end: u64) -> Self {
        let boot = RealDisk::default().boot();
        let found = boot.and_then(|boot| found(&fs::read(path).ok()?, boot, lanes));
        let known = boot.is_some() && (found.is_some() || end == 0);
        // Where nobody knows, the next run must not think that it knows better.
        let before = found.unwrap_or_else(|| vec![end; lanes as usize]);
        let file = boot.map(|boot| begin(path, boot, &before)).transpose();
        let file = file.unwrap_or_else(|error| {
            tracing::warn!(path = %path.display(), %error, "how far lanes send cannot be written down: after a kill all that is queued may have been sent");
            // What is there of an earlier run would say too little.
            let _ = fs::remove_file(path);
            None
        });
        Self {
            file,
            before: before.into_iter().map(AtomicU64::new).collect(),
            known,
        }
    }

    /// A lane is about to send what lies before `end`.
    pub(crate) fn sends(&self, lane: u32, end: u64) {
        let Some((before, file)) = self.before.get(lane as usize).zip(self.file.as_ref()) else {
            return;
        };
        if before.fetch_max(end, Ordering::Relaxed) >= end {
            return;
        }
        if let Err(error) = file.write_all_at(&end.to_le_bytes(), HEAD_BYTES + u64::from(lane) * 8) {
            wire::rationed!(
                tracing::warn,
                lane,
                %error,
                "how far a lane sends cannot be written down: after a kill some may be sent twice"
            );
        }
    }

    /// What a lane holds before this may have been sent; none: nobody knows.
    pub(crate) fn before(&self, lane: u32) -> Option<u64> {
        let before = self.before.get(lane as usize).filter(|_| self.known)?;
        Some(before.load(Ordering::Relaxed))
    }
}

/// What the file of an earlier run says, if it is of this boot and whole.
fn found(bytes: &[u8], boot: u128, lanes: u32) -> Option<Vec<u64>> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let rest = rest.strip_prefix(&boot.to_le_bytes())?;
    let rest = rest.strip_prefix(&u64::from(lanes).to_le_bytes())?;
    let (marks, more) = rest.as_chunks::<8>();
    let whole = marks.len() == lanes as usize && more.is_empty();
    whole.then(|| marks.iter().map(|mark| u64::from_le_bytes(*mark)).collect())
}

/// Writes the file anew beside the one that is there, which it replaces: a kill leaves either of them.
fn begin(path: &Path, boot: u128, before: &[u64]) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let marks = before.iter().flat_map(|mark| mark.to_le_bytes());
    let head = [MAGIC, &boot.to_le_bytes(), &(before.len() as u64).to_le_bytes()].concat();
    let bytes: Vec<u8> = head.into_iter().chain(marks).collect();
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new~");
    fs::write(&beside, bytes)?;
    fs::rename(beside, path)?;
    File::options().write(true).open(path)
}

const MAGIC: &[u8] = b"TGSENT01";
const HEAD_BYTES: u64 = 8 + 16 + 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_lane_was_about_to_send_is_known_after_a_kill() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sent/q/c0");
        let marks = SentMarks::open(&path, 3, 0);
        assert_eq!(marks.before(1), Some(0), "a queue that is new");
        marks.sends(1, 700);
        marks.sends(1, 600);
        marks.sends(2, u64::MAX);
        drop(marks);
        let marks = SentMarks::open(&path, 3, 900);
        let before = [0, 1, 2].map(|lane| marks.before(lane));
        assert_eq!(before, [Some(0), Some(700), Some(u64::MAX)]);
        assert_eq!(marks.before(3), None);
    }

    #[test]
    fn of_another_boot_or_another_queue_nobody_knows_and_what_is_sent_since_is_written_down() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c0");
        let before = |lanes| SentMarks::open(&path, lanes, 50).before(0);
        assert_eq!(before(2), None, "no file");
        assert_eq!(before(2), Some(50), "an earlier run did not know");
        SentMarks::open(&path, 2, 50).sends(0, 90);
        assert_eq!(before(2), Some(90));
        assert_eq!(before(5), None, "other lanes");
        let mut bytes = fs::read(&path).unwrap();
        bytes[8] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert_eq!(before(5), None, "another boot");
        fs::write(&path, b"TGSENT01").unwrap();
        assert_eq!(before(5), None, "cut");
    }
}
