//! The real disk with some answers altered by a test.

use std::io;
use std::ops::Deref;
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

impl<A: Alter> Disk for Altered<A> {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.disk.create_folder(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<Listed>> {
        self.disk.list(folder)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn File>> {
        self.disk.open(path)
    }

    fn open_to_write(&self, path: &Path) -> io::Result<Box<dyn File>> {
        self.disk.open_to_write(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn File>> {
        self.disk.create(path)
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
