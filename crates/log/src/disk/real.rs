//! The operating system's disk.

#![allow(
    clippy::disallowed_methods,
    reason = "the one place that asks the operating system"
)]

use std::fs;
use std::io::{self, IoSlice};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Instant, SystemTime};

use rustix::fs::{Advice, FlockOperation};

use crate::disk::{Disk, File, Listed, Lock};

/// The operating system's disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk {}

struct RealFile(fs::File);

// === impl RealDisk ===

impl Disk for RealDisk {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        create_levels(path, |folder| self.sync_folder(folder))
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<Listed>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                // It was removed since: treat it as if it had never been there.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            if metadata.is_file()
                && let Ok(name) = entry.file_name().into_string()
            {
                files.push(Listed {
                    name,
                    bytes: metadata.len(),
                });
            }
        }
        Ok(files)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn File>> {
        Ok(Box::new(RealFile(fs::File::open(path)?)))
    }

    fn open_to_write(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let file = fs::OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Box::new(RealFile(file)))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        Ok(Box::new(RealFile(options.open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        fs::File::open(folder)?.sync_all()
    }

    fn free_bytes(&self, folder: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(folder)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn lock(&self, path: &Path) -> io::Result<Lock> {
        let mut options = fs::OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Box::new(file))
    }

    fn now_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn elapsed_ms(&self) -> u64 {
        static START: OnceLock<Instant> = OnceLock::new();
        let passed = START.get_or_init(Instant::now).elapsed().as_millis();
        FIRST_MS + u64::try_from(passed).unwrap_or_default()
    }

    fn boot(&self) -> Option<u128> {
        static BOOT: OnceLock<Option<u128>> = OnceLock::new();
        *BOOT.get_or_init(|| {
            let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
            u128::from_str_radix(&id.trim().replace('-', ""), 16).ok()
        })
    }
}

/// Creates a folder and its missing parents. Each must outlast a power cut, so `sync` is called for the
/// parent of each created folder, from the top down, and always for the parent of `path`, even if another
/// process created `path`.
fn create_levels(path: &Path, mut sync: impl FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let missing = |level: &&Path| !level.as_os_str().is_empty() && !level.exists();
    let made = path.ancestors().take_while(missing).count();
    fs::create_dir_all(path)?;
    let levels: Vec<&Path> = path.ancestors().take(made.max(1)).collect();
    for parent in levels.iter().rev().filter_map(|level| level.parent()) {
        let here = parent.as_os_str().is_empty();
        sync(if here { Path::new(".") } else { parent })?;
    }
    Ok(())
}

// === impl RealFile ===

impl File for RealFile {
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let mut read = 0;
        while read < into.len() {
            match self.0.read_at(&mut into[read..], at + read as u64) {
                Ok(0) => break,
                Ok(bytes) => read += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }

    /// Into memory that nobody has cleared before: what is read overwrites it.
    fn append_at(&self, into: &mut Vec<u8>, bytes: usize, at: u64) -> io::Result<usize> {
        into.reserve(bytes);
        let mut read = 0;
        while read < bytes {
            let room = &mut into.spare_capacity_mut()[..bytes - read];
            match rustix::io::pread(&self.0, room, at + read as u64) {
                Ok(([], _)) => break,
                Ok((filled, _)) => {
                    let length = filled.len();
                    read += length;
                    let end = into.len() + length;
                    // SAFETY: the kernel has just written the first `length` bytes of the spare room, which
                    // are those up to `end`.
                    unsafe { into.set_len(end) };
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(read)
    }

    fn write_at(&self, mut slices: &mut [IoSlice<'_>], mut at: u64) -> io::Result<()> {
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            let some = &slices[..slices.len().min(SLICES_MAX)];
            match rustix::io::pwritev(&self.0, some, at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => {
                    at += bytes as u64;
                    IoSlice::advance_slices(&mut slices, bytes);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn sync(&self) -> io::Result<()> {
        // fdatasync makes the length durable too.
        self.0.sync_data()
    }

    fn drop_cached(&self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        // No length means "to the end". One that overflows would be refused.
        let length = NonZeroU64::new(range.end - range.start).filter(|length| length.get() < i64::MAX as u64);
        // This is advice: whether it is taken does not affect what is promised.
        let _ = rustix::fs::fadvise(&self.0, range.start, length, Advice::DontNeed);
    }
}

/// The first value of the monotonic clock, so that moments before the start of the process can be expressed
/// too.
const FIRST_MS: u64 = 1 << 40;
/// The most slices in one call; Linux refuses more.
const SLICES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_appended_is_what_a_file_has_from_there_and_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let bytes: Vec<u8> = (0..100_000u32).map(|at| at as u8).collect();
        fs::write(&path, &bytes).unwrap();
        let file = RealDisk::default().open(&path).unwrap();
        for (at, wanted, there) in [
            (0, 10, 10),
            (99_990, 20, 10),
            (50_000, 50_000, 50_000),
            (100_000, 1, 0),
        ] {
            let mut into = b"kept".to_vec();
            assert_eq!(file.append_at(&mut into, wanted, at as u64).unwrap(), there);
            assert_eq!(into[4..], bytes[at..at + there]);
            assert_eq!(&into[..4], b"kept");
        }
    }

    #[test]
    fn each_level_that_is_made_is_synced_where_it_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("data/queue/logs");
        let made_in = |path: &Path| {
            let mut synced = Vec::new();
            let sync = |folder: &Path| {
                synced.push(folder.to_owned());
                Ok(())
            };
            create_levels(path, sync).unwrap();
            synced
        };
        let (data, queue) = (folder.path().join("data"), folder.path().join("data/queue"));
        assert_eq!(made_in(&deep), [folder.path(), &data, &queue]);
        assert!(deep.is_dir());
        assert_eq!(
            made_in(&deep),
            [&*queue],
            "nobody knows who made it, and whether it was synced"
        );
        assert_eq!(made_in(&queue.join("more")), [&*queue]);
        let failing = create_levels(&folder.path().join("x/y"), |_| Err(io::Error::other("no")));
        assert!(failing.is_err());
    }
}
