//! Small files that are replaced as a whole.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Replaces a file so that at any moment either the old or the new content is there. When this function
/// returns, the new content survives a power failure. Only the gateway's user can read the file.
pub(crate) fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    create_private_folder(directory)?;
    let mut new = file.as_os_str().to_owned();
    new.push(".new");
    // A process that was killed midway may have left such a file, possibly with other permissions.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut out = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    out.write_all(bytes)?;
    out.sync_all()?;
    fs::rename(&new, file)?;
    File::open(directory)?.sync_all()
}

/// Creates a folder that only the gateway's user can read, and its missing parents. When this function
/// returns, they survive a power failure.
pub(crate) fn create_private_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let parent = match folder.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    create_private_folder(parent)?;
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    File::open(parent)?.sync_all()
}
