//! The folders of the groups' stores. A folder goes in one step, by being renamed: a kill in the middle of a
//! removal leaves no half of a store, which would keep the gateway from starting.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use log::{Disk as _, RealDisk};

use super::ParkedError;

/// Returns the groups that have a folder, each with that. Folders that a kill kept from being removed are
/// removed.
pub(super) fn of_groups(folder: &Path) -> Result<Vec<(String, PathBuf)>, ParkedError> {
    let mut groups = Vec::new();
    let entries = match fs::read_dir(folder) {
        // Nothing was ever parked. After any other error something may be, and would count as indexed.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(groups),
        entries => entries.map_err(|source| failed(folder, source))?,
    };
    for entry in entries {
        let entry = entry.map_err(|source| failed(folder, source))?;
        // No group's name is anything but ASCII.
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if !name.starts_with(REMOVED) {
            groups.push((name, entry.path()));
        } else if let Err(error) = fs::remove_dir_all(entry.path()) {
            let folder = entry.path();
            // Only room depends on this.
            tracing::warn!(folder = %folder.display(), %error, "what is left of a consumer group cannot be removed");
        }
    }
    Ok(groups)
}

/// Makes room for a group's folder to be set aside.
pub(super) fn make_way(folder: &Path, group: &str) -> Result<(), ParkedError> {
    remove(&aside(folder, group))
}

/// Sets a group's folder aside, if there is one: it is gone for good when this returns, and only room depends
/// on the rest.
pub(super) fn set_aside(folder: &Path, group: &str) -> Result<(), ParkedError> {
    match fs::rename(folder.join(group), aside(folder, group)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        renamed => renamed.map_err(|source| failed(&folder.join(group), source))?,
    }
    let synced = RealDisk::default().sync_folder(folder);
    synced.map_err(|source| failed(folder, source))
}

/// Removes the folder of a group that was set aside.
pub(super) fn remove_set_aside(folder: &Path, group: &str) -> Result<(), ParkedError> {
    remove(&aside(folder, group))
}

fn remove(folder: &Path) -> Result<(), ParkedError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(|source| failed(folder, source)),
    }
}

fn aside(folder: &Path, group: &str) -> PathBuf {
    folder.join(format!("{REMOVED}{group}"))
}

fn failed(folder: &Path, source: io::Error) -> ParkedError {
    let folder = folder.to_owned();
    ParkedError::Folder { folder, source }
}

/// What the names of folders begin with that are set aside. No group has such a name.
const REMOVED: &str = ".removed-";

#[cfg(test)]
mod tests {
    use log::Options;

    use super::*;
    use crate::queue::parked::ParkedOfQueue;

    fn open(folder: &Path) -> Result<ParkedOfQueue, ParkedError> {
        let options = Options {
            free_bytes_min: 0,
            ..Options::default()
        };
        ParkedOfQueue::open(folder.to_owned(), options, &[])
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn only_a_folder_that_is_not_there_has_no_groups() {
        let temporary = tempfile::tempdir().unwrap();
        assert!(open(&temporary.path().join("none")).unwrap().all().is_empty());
        let file = temporary.path().join("file");
        fs::write(&file, b"").unwrap();
        assert!(open(&file).is_err(), "what is there is not known");
    }

    #[test]
    fn a_removed_group_is_gone_and_what_a_kill_left_of_it_keeps_nobody_from_starting() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path();
        let parked = open(folder).unwrap();
        for group in ["g", "h"] {
            parked.group(group).unwrap().open_store().unwrap();
        }
        parked.remove("g").unwrap();
        parked.remove("never").unwrap();
        assert_eq!(names(folder), ["h"]);
        // A group of that name may be there again.
        parked.group("g").unwrap().open_store().unwrap();
        parked.remove("g").unwrap();
        assert_eq!(names(folder), ["h"]);
        parked.close();
        // A kill in the middle of the removal, after the file that says what the folder is.
        set_aside(folder, "h").unwrap();
        fs::remove_file(folder.join(".removed-h/LOG")).unwrap();
        fs::write(folder.join(".removed-h/00000000000000000000.segment"), b"").unwrap();
        assert!(open(folder).unwrap().all().is_empty());
        assert!(names(folder).is_empty());
    }
}
