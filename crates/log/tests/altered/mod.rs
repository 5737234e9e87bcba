//! The real disk with some answers altered by a test.

use std::io::{self, IoSlice};
use std::ops::{Deref, Range};
use std::path::Path;

use log::{Disk, File, Listed, Lock, RealDisk};

/// The answers that a test may alter; by default they are the real disk's.
pub(crate) trait Alter: Clone + Default + Send + Sync + 'static {
    fn free_bytes(&self, disk: &RealDisk, folder: &Path) -> io::Result<u64> {
        disk.free_bytes(folder)
    }

    fn now_ms(&self, disk: &RealDisk) -> u64 {
        disk.now_ms()
    }

    fn elapsed_ms(&self, disk: &RealDisk) -> u64 {
        disk.elapsed_ms()
    }

    /// Called once a file is opened to be read.
    fn opened(&self) {}

    /// Called before a file is synced.
    fn syncs(&self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Clone, Default)]
pub(crate) struct Altered<A> {
    disk: RealDisk,
    by: A,
}

impl<A> Deref for Altered<A> {
    type Target = A;

    fn deref(&self) -> &A {
        &self.by
    }
}

impl<A: Alter> Altered<A> {
    fn altered(&self, file: Box<dyn File>) -> Box<dyn File> {
        let by = self.by.clone();
        Box::new(AlteredFile { file, by })
    }
}

/// A file that is written to.
struct AlteredFile<A> {
    file: Box<dyn File>,
    by: A,
}

impl<A: Alter> File for AlteredFile<A> {
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(into, at)
    }

    fn append_at(&self, into: &mut Vec<u8>, bytes: usize, at: u64) -> io::Result<usize> {
        self.file.append_at(into, bytes, at)
    }

    fn write_at(&self, slices: &mut [IoSlice<'_>], at: u64) -> io::Result<()> {
        self.file.write_at(slices, at)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn bytes(&self) -> io::Result<u64> {
        self.file.bytes()
    }

    fn sync(&self) -> io::Result<()> {
        self.by.syncs()?;
        self.file.sync()
    }

    fn drop_cached(&self, range: Range<u64>) {
        self.file.drop_cached(range);
    }
}

impl<A: Alter> Disk for Altered<A> {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.disk.create_folder(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<Listed>> {
        self.disk.list(folder)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let file = self.disk.open(path)?;
        self.by.opened();
        Ok(file)
    }

    fn open_to_write(&self, path: &Path) -> io::Result<Box<dyn File>> {
        Ok(self.altered(self.disk.open_to_write(path)?))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn File>> {
        Ok(self.altered(self.disk.create(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.disk.sync_folder(folder)
    }

    fn free_bytes(&self, folder: &Path) -> io::Result<u64> {
        self.by.free_bytes(&self.disk, folder)
    }

    fn lock(&self, path: &Path) -> io::Result<Lock> {
        self.disk.lock(path)
    }

    fn now_ms(&self) -> u64 {
        self.by.now_ms(&self.disk)
    }

    fn elapsed_ms(&self) -> u64 {
        self.by.elapsed_ms(&self.disk)
    }
}
