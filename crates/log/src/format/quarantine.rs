//! Copies of damaged bytes: the segment around them may be deleted, the evidence stays.

use std::io::{self, IoSlice};
use std::ops::Range;

use parking_lot::Mutex;

use crate::disk::File;
use crate::format::folder::{Folder, QUARANTINE};

/// The number of bytes copied so far, which bounds further copies.
#[derive(Default)]
pub(crate) struct Quarantine {
    /// None until the folder has been looked at.
    bytes: Mutex<Option<u64>>,
}

// === impl Quarantine ===

impl Quarantine {
    /// Copies a range of a segment that starts at `first`. Returns the copy's name, or none if the copy
    /// failed or would exceed the bound. The loss is reported either way.
    pub(crate) fn keep(
        &self,
        folder: &Folder,
        file: &dyn File,
        first: u64,
        range: &Range<u64>,
        bytes_max: u64,
    ) -> Option<String> {
        let mut used = self.bytes.lock();
        let name = format!("{:020}.bad", range.start);
        let path = folder.path.join(QUARANTINE);
        let listed = folder.disk.list(&path).unwrap_or_default();
        let before = *used.get_or_insert_with(|| listed.iter().map(|file| file.bytes).sum());
        if listed.iter().any(|file| file.name == name) {
            return Some(name);
        }
        let bytes = range.end - range.start;
        if before.saturating_add(bytes) > bytes_max {
            return None;
        }
        copy(folder, file, range.start - first..range.end - first, &name).ok()?;
        *used = Some(before + bytes);
        Some(name)
    }
}

fn copy(folder: &Folder, from: &dyn File, range: Range<u64>, name: &str) -> io::Result<()> {
    let path = folder.path.join(QUARANTINE);
    folder.disk.create_folder(&path)?;
    let to = folder.disk.create(&path.join(name))?;
    let (mut at, mut buffer) = (range.start, vec![0; 1 << 20]);
    while at < range.end {
        let wanted = (range.end - at).min(buffer.len() as u64) as usize;
        let read = from.read_at(&mut buffer[..wanted], at)?;
        if read == 0 {
            break;
        }
        to.write_at(&mut [IoSlice::new(&buffer[..read])], at - range.start)?;
        at += read as u64;
    }
    to.sync()?;
    folder.disk.sync_folder(&path)
}
