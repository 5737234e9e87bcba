//! What the log asks of a disk: few things, so that a simulated one can do each of them badly.

pub(crate) mod real;

use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::Path;

/// A file system, or one in memory that tears writes.
///
/// Paths are those that the log was opened with, joined with names. All calls block.
pub trait Disk: Send + Sync + 'static {
    /// Makes a folder and those above it, unless they are there. Not yet durable.
    ///
    /// # Errors
    /// What the operating system says.
    fn create_folder(&self, path: &Path) -> io::Result<()>;
    /// The files of a folder, in any order; folders left out.
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
    /// Makes an empty file, in place of one that may be there, to read and write it.
    ///
    /// # Errors
    /// What the operating system says.
    fn create(&self, path: &Path) -> io::Result<Box<dyn File>>;
    /// Puts a file in another's place, at once or not at all.
    ///
    /// # Errors
    /// What the operating system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    ///
    /// # Errors
    /// What the operating system says.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes what was created, renamed and removed in a folder durable.
    ///
    /// # Errors
    /// What the operating system says.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
    /// Bytes free for us on the file system of this folder.
    ///
    /// # Errors
    /// What the operating system says.
    fn free_bytes(&self, folder: &Path) -> io::Result<u64>;
    /// Locks a file, made if need be, until the lock is dropped or the process ends.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if another has it.
    fn lock(&self, path: &Path) -> io::Result<Lock>;
    /// Milliseconds since 1970: a simulated disk comes with its own time. Somebody may set this clock forward
    /// or back.
    fn now_ms(&self) -> u64;
    /// Milliseconds of a clock that nobody sets, counted from any moment: for how long something lasts.
    fn elapsed_ms(&self) -> u64;
    /// Which run of the system this is: as long as it lasts, what was written is there, synced or not. None:
    /// nobody knows.
    fn boot(&self) -> Option<u128> {
        None
    }
}

/// An open file. Reads and writes say where, so that one can be shared.
pub trait File: Send + Sync {
    /// Reads into `into` from `at`, as much as there is: less than asked for only at the end of the file.
    ///
    /// # Errors
    /// What the operating system says.
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize>;
    /// Writes all slices, one after the other, from `at`.
    ///
    /// # Errors
    /// What the operating system says; some of it may have been written.
    fn write_at(&self, slices: &mut [IoSlice<'_>], at: u64) -> io::Result<()>;
    /// Cuts or extends.
    ///
    /// # Errors
    /// What the operating system says.
    fn set_len(&self, bytes: u64) -> io::Result<()>;
    /// How long it is.
    ///
    /// # Errors
    /// What the operating system says.
    fn bytes(&self) -> io::Result<u64>;
    /// Makes what was written durable, and the length with it.
    ///
    /// # Errors
    /// What the operating system says. Nobody knows then what is on disk, and a second call proves nothing.
    fn sync(&self) -> io::Result<()>;
    /// Forgets what the page cache holds of a stretch of the file, as far as it is synced: later reads come
    /// from the disk.
    fn drop_cached(&self, range: Range<u64>);
}

/// A file of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name in the folder.
    pub name: String,
    /// Its length.
    pub bytes: u64,
}

/// Held as long as the lock is.
pub type Lock = Box<dyn std::any::Any + Send + Sync>;
