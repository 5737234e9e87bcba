//! The operations that the log needs of a disk: few, so that a simulated disk can get each of them wrong.

pub(crate) mod real;

use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::Path;

/// A file system, real or simulated in memory with torn writes.
///
/// Each path is the folder that the log was opened with, joined with a name. All calls block.
pub trait Disk: Send + Sync + 'static {
    /// Creates a folder and its missing parents. Not yet durable.
    ///
    /// # Errors
    /// What the operating system says.
    fn create_folder(&self, path: &Path) -> io::Result<()>;
    /// Returns the files of a folder, in any order; folders are left out.
    ///
    /// # Errors
    /// What the operating system says.
    fn list(&self, folder: &Path) -> io::Result<Vec<Listed>>;
    /// Opens a file to read it.
    ///
    /// # Errors
    /// What the operating system says; [`io::ErrorKind::NotFound`] if there is none.
    fn open(&self, path: &Path) -> io::Result<Box<dyn File>>;
    /// Opens a file to read and write it.
    ///
    /// # Errors
    /// As for `open`.
    fn open_to_write(&self, path: &Path) -> io::Result<Box<dyn File>>;
    /// Creates an empty file, replacing any that is there, and opens it to read and write it.
    ///
    /// # Errors
    /// What the operating system says.
    fn create(&self, path: &Path) -> io::Result<Box<dyn File>>;
    /// Moves a file over another, atomically.
    ///
    /// # Errors
    /// What the operating system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    ///
    /// # Errors
    /// What the operating system says.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes the creations, renames and removals in a folder durable.
    ///
    /// # Errors
    /// What the operating system says.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
    /// Returns the bytes that this process may still use on the file system of this folder.
    ///
    /// # Errors
    /// What the operating system says.
    fn free_bytes(&self, folder: &Path) -> io::Result<u64>;
    /// Locks a file, creating it if need be, until the lock is dropped or the process ends.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if another process holds the lock.
    fn lock(&self, path: &Path) -> io::Result<Lock>;
    /// Returns the wall clock's time in milliseconds since 1970; a simulated disk has its own. This clock may
    /// be set forward or back at any time.
    fn now_ms(&self) -> u64;
    /// Returns the milliseconds of a monotonic clock with an arbitrary origin, to measure durations with.
    fn elapsed_ms(&self) -> u64;
    /// Returns the id of the current boot of the system: as long as it lasts, written data is there, synced
    /// or not. None if the id is unknown.
    fn boot(&self) -> Option<u128> {
        None
    }
}

/// An open file. Reads and writes take a position, so that one file can be shared.
pub trait File: Send + Sync {
    /// Reads into `into` from `at`, as much as there is: less than asked for only at the end of the file.
    ///
    /// # Errors
    /// What the operating system says.
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize>;
    /// Appends `bytes` bytes from `at` to `into`, or as many as there are; how many that were.
    ///
    /// # Errors
    /// What the operating system says; some of it may have been appended.
    fn append_at(&self, into: &mut Vec<u8>, bytes: usize, at: u64) -> io::Result<usize> {
        let start = into.len();
        into.resize(start + bytes, 0);
        let read = self.read_at(&mut into[start..], at);
        into.truncate(start + read.as_ref().map_or(0, |read| *read));
        read
    }
    /// Writes all slices, one after the other, from `at`.
    ///
    /// # Errors
    /// What the operating system says; some of it may have been written.
    fn write_at(&self, slices: &mut [IoSlice<'_>], at: u64) -> io::Result<()>;
    /// Cuts or extends the file to this length.
    ///
    /// # Errors
    /// What the operating system says.
    fn set_len(&self, bytes: u64) -> io::Result<()>;
    /// Returns the length of the file.
    ///
    /// # Errors
    /// What the operating system says.
    fn bytes(&self) -> io::Result<u64>;
    /// Makes the written bytes and the length durable.
    ///
    /// # Errors
    /// What the operating system says. What is on disk is unknown then, and a second call proves nothing.
    fn sync(&self) -> io::Result<()>;
    /// Drops a range of the file from the page cache, as far as it is synced, so that later reads come from
    /// the disk.
    fn drop_cached(&self, range: Range<u64>);
}

/// A file in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The file's name in the folder.
    pub name: String,
    /// The file's length in bytes.
    pub bytes: u64,
}

/// A lock, held until it is dropped.
pub type Lock = Box<dyn std::any::Any + Send + Sync>;
