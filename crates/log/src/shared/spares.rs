//! Files of used-up segments, kept for reuse. A file that has its blocks, and its pages in the page cache,
//! costs a third of a new one to write, and syncing it needs no journal.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::disk::File;
use crate::format::folder::Folder;
use crate::format::segment::{self, Header};

/// The spare files of a log.
#[derive(Default)]
pub(crate) struct Spares {
    /// The spare files. The last one was set aside last and is used first, since most of its pages are still
    /// in the page cache.
    kept: Mutex<Vec<Spare>>,
}

struct Spare {
    /// The position that the file's segment had, which is still in its name.
    first: u64,
    bytes: u64,
    /// When the file was set aside, by the monotonic clock.
    since_ms: u64,
}

// === impl Spares ===

impl Spares {
    /// Takes over a file that durably has a spare file's name.
    pub(crate) fn add(&self, first: u64, bytes: u64, now_ms: u64) {
        self.kept.lock().push(Spare {
            first,
            bytes,
            since_ms: now_ms,
        });
    }

    /// Returns the bytes of all spare files.
    pub(crate) fn bytes(&self) -> u64 {
        self.kept.lock().iter().map(|spare| spare.bytes).sum()
    }

    /// Gives a segment's file a spare file's name, unless the spare files would exceed `most` bytes, or
    /// somebody still has the file open. Returns whether it did; call [`Spares::add`] once the name is
    /// durable.
    pub(crate) fn set_aside(&self, folder: &Folder, first: u64, bytes: u64, most: u64) -> io::Result<bool> {
        Ok(self.bytes() + bytes <= most && folder.set_aside(first, &path(folder, first))?)
    }

    /// Turns a spare file into a segment with a synced header, and notes the file's length in it; none if
    /// there is no spare file, or none that works. The segment's name is not yet durable.
    pub(crate) fn begin(&self, folder: &Folder, header: &mut Header) -> Option<Arc<dyn File>> {
        let spare = self.kept.lock().pop()?;
        let path = path(folder, spare.first);
        let made = folder.disk.open_to_write(&path).and_then(|file| {
            header.stale = file.bytes()?;
            header.write(&*file, folder.key)?;
            file.sync()?;
            // Rename the file only with its header: otherwise it could be mistaken for a damaged segment.
            folder.disk.rename(&path, &folder.segment(header.first))?;
            Ok(file)
        });
        if made.is_err() {
            header.stale = 0;
            // The file would be in the way. A new file shows whether the disk works.
            let _ = folder.disk.remove(&path);
        }
        made.ok().map(Arc::from)
    }

    /// Removes files that were idle for an hour, and the oldest of those beyond `most` bytes.
    pub(crate) fn tidy(&self, folder: &Folder, most: u64) -> io::Result<()> {
        let now_ms = folder.disk.elapsed_ms();
        let mut kept = self.kept.lock();
        let mut sum: u64 = kept.iter().map(|spare| spare.bytes).sum();
        while let Some(oldest) = kept.first() {
            let idle = now_ms.saturating_sub(oldest.since_ms) > IDLE_MS;
            if !idle && sum <= most {
                break;
            }
            match folder.disk.remove(&path(folder, oldest.first)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            sum -= oldest.bytes;
            kept.remove(0);
        }
        Ok(())
    }
}

/// Returns the position in a spare file's name.
pub(crate) fn first_of(name: &str) -> Option<u64> {
    segment::position_in(name, SUFFIX)
}

fn path(folder: &Folder, first: u64) -> PathBuf {
    folder.path.join(format!("{first:020}{SUFFIX}"))
}

const SUFFIX: &str = ".spare";
/// After this time a queue gives its disk space back.
const IDLE_MS: u64 = 60 * 60 * 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RealDisk;

    #[test]
    fn what_lies_idle_or_is_too_much_goes_oldest_first_and_what_is_gone_is_missed_by_nobody() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::open(temporary.path(), 1, Arc::new(RealDisk::default())).unwrap();
        let (spares, now_ms) = (Spares::default(), folder.disk.elapsed_ms());
        for (first, age_ms) in [(0, IDLE_MS + 5000), (100, 0), (200, 0), (300, 0)] {
            std::fs::write(path(&folder, first), [0; 100]).unwrap();
            spares.add(first, 100, now_ms - age_ms);
        }
        let there = || -> Vec<bool> {
            [0, 100, 200, 300]
                .map(|first| path(&folder, first).exists())
                .to_vec()
        };
        spares.tidy(&folder, 400).unwrap();
        assert_eq!(there(), [false, true, true, true]);
        spares.tidy(&folder, 250).unwrap();
        assert_eq!((there(), spares.bytes()), (vec![false, false, true, true], 200));

        let mut header = Header {
            first: 4096,
            time_ms: 0,
            totals: crate::format::index::Totals::new(1),
            stale: 0,
        };
        assert!(spares.begin(&folder, &mut header).is_some());
        assert_eq!((header.stale, there()), (100, vec![false, false, true, false]));
        assert!(folder.segment(4096).exists());
        std::fs::remove_file(path(&folder, 200)).unwrap();
        assert!(spares.begin(&folder, &mut header).is_none());
        assert_eq!((header.stale, spares.bytes()), (0, 0));
        assert_eq!(first_of("00000000000000000200.spare"), Some(200));
        assert_eq!(first_of("200.spare"), None);
    }
}
