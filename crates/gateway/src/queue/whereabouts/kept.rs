//! Keeps the whereabouts of names in a file: a restart must not forget where the names of queued documents
//! lead. The file has one line of JSON for each fact; of two lines on the same thing, the later one counts.
//! The file is written anew at each start.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use log::{Disk as _, RealDisk};
use serde::{Deserialize, Serialize};

use super::NameTarget;
use crate::queue::fence::{Fence, LaneSet};

/// The file.
pub(super) struct WhereaboutsFile {
    path: PathBuf,
    /// `None` once the file could not be written: then there is no file, and the next start trusts nothing.
    file: Option<File>,
    lines: usize,
}

/// The contents of the file.
#[derive(Default)]
pub(super) struct FileContents {
    pub(super) targets: HashMap<String, NameTarget>,
    pub(super) fences: Vec<Fence>,
    /// Whether the file has every name of queued documents.
    pub(super) whole: bool,
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// The boot of the machine that wrote the file: lines that were not synced are lost when the machine goes
    /// down.
    Boot(String),
    Name(String, NameTarget),
    Fence(StoredFence),
}

/// A fence, as the file has it.
#[derive(Serialize, Deserialize)]
struct StoredFence {
    number: u64,
    low: u64,
    end: Option<u64>,
    of: Vec<u32>,
    past: Vec<u32>,
    #[serde(default)]
    moved: Vec<(String, String)>,
}

// === impl WhereaboutsFile ===

impl WhereaboutsFile {
    /// Reads a file, if there is one. Lines that cannot be read are as if they were not there.
    pub(super) fn read(path: &Path) -> io::Result<FileContents> {
        let text = match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(FileContents::default()),
            read => read?,
        };
        let (mut found, mut walls) = (FileContents::default(), BTreeMap::new());
        for line in text.split(|byte| *byte == b'\n') {
            match serde_json::from_slice(line) {
                Ok(Line::Boot(boot)) => found.whole = boot_id().is_some_and(|now| now == boot),
                Ok(Line::Name(name, target)) => drop(found.targets.insert(name, target)),
                Ok(Line::Fence(wall)) => drop(walls.insert(wall.number, wall)),
                Err(_) => {}
            }
        }
        found.fences = walls.into_values().map(StoredFence::into_fence).collect();
        Ok(found)
    }

    /// Begins a file in place of the existing one; if the disk is full, goes on with the existing file, or
    /// without a file.
    pub(super) fn begin_anyway<'a>(
        path: &Path,
        targets: &HashMap<String, NameTarget>,
        fences: impl Iterator<Item = &'a Fence>,
    ) -> Self {
        Self::begin(path, targets, fences).unwrap_or_else(|error| {
            let shown = path.display();
            tracing::warn!(path = %shown, %error, "where names lead cannot be written down anew");
            Self {
                path: path.to_owned(),
                file: OpenOptions::new().append(true).open(path).ok(),
                lines: 0,
            }
        })
    }

    /// Begins a file in place of the existing one.
    pub(super) fn begin<'a>(
        path: &Path,
        targets: &HashMap<String, NameTarget>,
        fences: impl Iterator<Item = &'a Fence>,
    ) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            RealDisk::default().create_folder(folder)?;
        }
        let mut text = Vec::new();
        if let Some(boot) = boot_id() {
            write_line(&mut text, &Line::Boot(boot));
        }
        for (name, target) in targets {
            write_line(&mut text, &Line::Name(name.clone(), target.clone()));
        }
        for fence in fences {
            write_line(&mut text, &Line::Fence(StoredFence::of(fence)));
        }
        let aside = path.with_extension("new");
        let mut file = File::create(&aside)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&aside, path)?;
        Ok(Self {
            path: path.to_owned(),
            file: Some(OpenOptions::new().append(true).open(path)?),
            lines: 0,
        })
    }

    /// Writes a name that is used from now on.
    pub(super) fn name(&mut self, name: &str, target: &NameTarget) {
        self.write(&Line::Name(name.to_owned(), target.clone()), false);
    }

    /// Writes a fence that was made or closed. An open fence is synced, since without it documents would lose
    /// their order; fences are rare.
    pub(super) fn fence(&mut self, fence: &Fence) {
        self.write(&Line::Fence(StoredFence::of(fence)), fence.end().is_none());
    }

    /// Returns the number of lines that were written since the file was begun.
    pub(super) fn lines(&self) -> usize {
        self.lines
    }

    fn write(&mut self, line: &Line, sync: bool) {
        self.lines += 1;
        let Some(file) = &mut self.file else { return };
        let mut text = Vec::new();
        write_line(&mut text, line);
        let written = file.write_all(&text).and_then(|()| match sync {
            true => file.sync_data(),
            false => Ok(()),
        });
        if let Err(error) = written {
            let path = self.path.display();
            tracing::warn!(%path, %error, "where names lead cannot be written down; the next start trusts nothing");
            self.file = None;
            // A file that lacks something is worse than none.
            let _ = fs::remove_file(&self.path);
        }
    }
}

// === impl StoredFence ===

impl StoredFence {
    fn of(fence: &Fence) -> Self {
        Self {
            number: fence.number,
            low: fence.low,
            end: fence.end(),
            of: fence.of.iter().collect(),
            past: fence.past.iter().collect(),
            moved: fence.moved.clone(),
        }
    }

    fn into_fence(self) -> Fence {
        let lanes = |lanes: Vec<u32>| lanes.into_iter().collect::<LaneSet>();
        let mut fence = Fence::new(
            self.number,
            self.low,
            (lanes(self.of), lanes(self.past)),
            self.end,
        );
        fence.moved = self.moved;
        fence
    }
}

fn write_line(out: &mut Vec<u8>, line: &Line) {
    // A line of plain data always becomes JSON.
    let _ = serde_json::to_writer(&mut *out, line);
    out.push(b'\n');
}

fn boot_id() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_a_line_cut_off_is_no_reason_to_forget_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("whereabouts/q.jsonl");
        assert!(!WhereaboutsFile::read(&path).unwrap().whole);
        let target = |index: &str, shards| NameTarget {
            index: index.to_owned(),
            shards,
            routing_num_shards: Some(1024),
            partition_size: 1,
            alias_routing: None,
        };
        let mut kept = WhereaboutsFile::begin(&path, &HashMap::new(), std::iter::empty()).unwrap();
        kept.name("a", &target("i1", 4));
        kept.name("a", &target("i2", 8));
        let lanes = |lanes: &[u32]| lanes.iter().copied().collect::<LaneSet>();
        let mut fence = Fence::new(7, 100, (lanes(&[1, 2]), lanes(&[3])), None);
        fence.moved.push(("a".to_owned(), "i1".to_owned()));
        kept.fence(&fence);
        fence.close(120);
        kept.fence(&fence);
        fs::write(
            &path,
            [&fs::read(&path).unwrap()[..], b"{\"name\":[\"b\""].concat(),
        )
        .unwrap();
        let found = WhereaboutsFile::read(&path).unwrap();
        assert!(found.whole);
        assert_eq!(found.targets, HashMap::from([("a".to_owned(), target("i2", 8))]));
        let [read] = &found.fences[..] else {
            panic!("{:?}", found.fences)
        };
        assert_eq!(
            (read.low, read.end(), &read.moved),
            (100, Some(120), &fence.moved)
        );
        assert_eq!((&read.of, &read.past), (&fence.of, &fence.past));
    }
}
