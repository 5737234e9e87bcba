//! Keeps the whereabouts of names in a file: a restart must not forget where the names of queued documents
//! lead. The file has one line of JSON for each fact; of two lines on the same thing, the later one counts.
//! The file is written anew at each start.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use log::{Disk as _, RealDisk};
use serde::{Deserialize, Serialize};

use super::NameTarget;
use crate::queue::fence::{Fence, LaneSet};

/// The file.
pub(super) struct WhereaboutsFile {
    path: PathBuf,
    /// `None` once the file could not be written: then there is no file, and the next start trusts nothing.
    file: Option<Arc<File>>,
    lines: usize,
    /// How many of the lines another file has that is being made.
    lines_anew: usize,
    /// Names that have moved, which are written once the fences are synced that were made for that.
    moved: Vec<u8>,
    /// While another file is made: all that is written meanwhile, which that one gets, too.
    meanwhile: Option<Vec<u8>>,
}

/// Lines of the file that are about to be synced. What is done with it needs no lock.
pub(super) struct Syncing {
    file: Option<Arc<File>>,
    /// The folder, if the file has its name since a moment ago.
    folder: Option<PathBuf>,
    moved: Vec<u8>,
}

/// The result of a sync.
pub(super) struct Synced {
    moved: Vec<u8>,
    result: io::Result<()>,
}

/// A file that is about to be written in place of the existing one. What is done with it needs no lock.
pub(super) struct Anew {
    path: PathBuf,
    text: Vec<u8>,
}

/// A file that has everything that was known when it was begun.
pub(super) struct Written(io::Result<File>);

/// The contents of the file.
#[derive(Default)]
pub(super) struct FileContents {
    pub(super) targets: HashMap<String, NameTarget>,
    pub(super) fences: Vec<Fence>,
    /// Whether the file has every name of queued documents, but for those before `unknown_before`.
    pub(super) whole: bool,
    pub(super) unknown_before: u64,
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// The boot of the machine that wrote the file: lines that were not synced are lost when the machine goes
    /// down.
    Boot(String),
    /// Documents before this position may have names that the file does not have, because an earlier file was
    /// not whole. Without this, the next start would take a file for whole that was made from such a one.
    UnknownBefore(u64),
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
    /// Reads a file, if there is one. If a line cannot be read, the file is not whole, and unless that is a
    /// last line that was cut off, where names lead is unknown; the fences count.
    pub(super) fn read(path: &Path) -> io::Result<FileContents> {
        let text = match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(FileContents::default()),
            read => read?,
        };
        let (mut found, mut walls, mut unread) = (FileContents::default(), BTreeMap::new(), 0u64);
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match serde_json::from_slice(line) {
                Ok(Line::Boot(boot)) => found.whole = boot_id().is_some_and(|now| now == boot),
                Ok(Line::UnknownBefore(position)) => found.unknown_before = position,
                Ok(Line::Name(name, target)) => drop(found.targets.insert(name, target)),
                Ok(Line::Fence(wall)) => drop(walls.insert(wall.number, wall)),
                Err(_) => unread += 1,
            }
        }
        if unread > 0 {
            let path = path.display();
            tracing::warn!(%path, lines = unread, "what says where names lead cannot be read as a whole");
            found.whole = false;
            // Unless it was only the last one, cut off by a kill before anything was sent: it may be a later
            // line of a name that another line tells of.
            let is_cut_off = unread == 1 && !text.ends_with(b"\n");
            if !is_cut_off {
                found.targets.clear();
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
        unknown_before: u64,
    ) -> Self {
        Self::begin(path, targets, fences, unknown_before).unwrap_or_else(|error| {
            let shown = path.display();
            tracing::warn!(path = %shown, %error, "where names lead cannot be written down anew");
            Self {
                path: path.to_owned(),
                file: OpenOptions::new().append(true).open(path).ok().map(Arc::new),
                ..Self::without_file(path)
            }
        })
    }

    /// Begins a file in place of the existing one.
    pub(super) fn begin<'a>(
        path: &Path,
        targets: &HashMap<String, NameTarget>,
        fences: impl Iterator<Item = &'a Fence>,
        unknown_before: u64,
    ) -> io::Result<Self> {
        let mut kept = Self::without_file(path);
        let written = kept.begin_anew(targets, fences, unknown_before).write();
        kept.rename(written.0?)?;
        let synced = kept.syncing_renamed().sync();
        kept.synced(synced);
        Ok(kept)
    }

    fn without_file(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            file: None,
            lines: 0,
            lines_anew: 0,
            moved: Vec::new(),
            meanwhile: None,
        }
    }

    /// Begins to write another file in place of the existing one, which stays until
    /// [`go_on_with`](Self::go_on_with).
    pub(super) fn begin_anew<'a>(
        &mut self,
        targets: &HashMap<String, NameTarget>,
        fences: impl Iterator<Item = &'a Fence>,
        unknown_before: u64,
    ) -> Anew {
        let mut text = Vec::new();
        if let Some(boot) = boot_id() {
            write_line(&mut text, &Line::Boot(boot));
        }
        if unknown_before > 0 {
            write_line(&mut text, &Line::UnknownBefore(unknown_before));
        }
        for (name, target) in targets {
            write_line(&mut text, &Line::Name(name.clone(), target.clone()));
        }
        for fence in fences {
            write_line(&mut text, &Line::Fence(StoredFence::of(fence)));
        }
        self.meanwhile = Some(Vec::new());
        self.lines_anew = self.lines;
        Anew {
            path: self.path.clone(),
            text,
        }
    }

    /// Goes on with a file that was written, if that went well; it has to be synced once more then.
    pub(super) fn go_on_with(&mut self, written: Written) -> Option<Syncing> {
        match written.0.and_then(|file| self.rename(file)) {
            Ok(()) => Some(self.syncing_renamed()),
            Err(error) => {
                self.meanwhile = None;
                let path = self.path.display();
                tracing::warn!(%path, %error, "where names lead could not be written anew");
                None
            }
        }
    }

    fn rename(&mut self, mut file: File) -> io::Result<()> {
        file.write_all(self.meanwhile.as_deref().unwrap_or_default())?;
        fs::rename(aside(&self.path), &self.path)?;
        // From here on the file before this one has no name: who goes on with it writes to nobody.
        self.file = Some(Arc::new(file));
        self.lines -= self.lines_anew;
        self.meanwhile = None;
        Ok(())
    }

    /// Writes a name that is used from now on.
    pub(super) fn name(&mut self, name: &str, target: &NameTarget) {
        self.write(&Line::Name(name.to_owned(), target.clone()));
    }

    /// Writes, after the next sync, where a name has come to lead.
    pub(super) fn moved(&mut self, name: &str, target: &NameTarget) {
        self.lines += 1;
        write_line(&mut self.moved, &Line::Name(name.to_owned(), target.clone()));
    }

    /// Writes a fence that was made or closed. An open fence has to be synced, since without it documents
    /// would lose their order; fences are rare.
    pub(super) fn fence(&mut self, fence: &Fence) {
        self.write(&Line::Fence(StoredFence::of(fence)));
    }

    /// Returns all that was written so far, to be synced.
    pub(super) fn syncing(&mut self) -> Syncing {
        Syncing {
            file: self.file.clone(),
            folder: None,
            moved: std::mem::take(&mut self.moved),
        }
    }

    fn syncing_renamed(&mut self) -> Syncing {
        Syncing {
            folder: Some(folder_of(&self.path)),
            ..self.syncing()
        }
    }

    /// Takes in the result of a sync.
    pub(super) fn synced(&mut self, synced: Synced) {
        match synced.result {
            Ok(()) => self.write_text(&synced.moved),
            Err(error) => self.give_up(&error),
        }
    }

    /// Returns the number of lines that were written since the file was begun.
    pub(super) fn lines(&self) -> usize {
        self.lines
    }

    fn write(&mut self, line: &Line) {
        self.lines += 1;
        let mut text = Vec::new();
        write_line(&mut text, line);
        self.write_text(&text);
    }

    fn write_text(&mut self, text: &[u8]) {
        if let Some(meanwhile) = &mut self.meanwhile {
            meanwhile.extend_from_slice(text);
        }
        let Some(file) = &self.file else { return };
        if let Err(error) = (&**file).write_all(text) {
            self.give_up(&error);
        }
    }

    fn give_up(&mut self, error: &io::Error) {
        let path = self.path.display();
        tracing::warn!(%path, %error, "where names lead cannot be written down; the next start trusts nothing");
        self.file = None;
        // A file that lacks something is worse than none.
        let _ = fs::remove_file(&self.path);
    }
}

// === impl Syncing ===

impl Syncing {
    /// Blocks until the disk has it.
    pub(super) fn sync(self) -> Synced {
        let of_folder = self
            .folder
            .map_or(Ok(()), |folder| RealDisk::default().sync_folder(&folder));
        let of_file = self.file.map_or(Ok(()), |file| file.sync_data());
        Synced {
            moved: self.moved,
            result: of_folder.and(of_file),
        }
    }
}

// === impl Anew ===

impl Anew {
    /// Blocks until the disk has it.
    pub(super) fn write(self) -> Written {
        let write = || {
            RealDisk::default().create_folder(&folder_of(&self.path))?;
            let mut file = File::create(aside(&self.path))?;
            file.write_all(&self.text)?;
            file.sync_all()?;
            Ok(file)
        };
        Written(write())
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

fn folder_of(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new(".")).to_owned()
}

/// Returns where a file is written that is to take the place of this one.
fn aside(path: &Path) -> PathBuf {
    path.with_extension("new")
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
        let mut kept = WhereaboutsFile::begin(&path, &HashMap::new(), std::iter::empty(), 7).unwrap();
        kept.name("a", &target("i1", 4));
        kept.name("a", &target("i2", 8));
        let lanes = |lanes: &[u32]| lanes.iter().copied().collect::<LaneSet>();
        let mut fence = Fence::new(7, 100, (lanes(&[1, 2]), lanes(&[3])), None);
        fence.moved.push(("a".to_owned(), "i1".to_owned()));
        kept.fence(&fence);
        fence.close(120);
        kept.fence(&fence);
        let found = WhereaboutsFile::read(&path).unwrap();
        assert!(found.whole && found.unknown_before == 7);
        fs::write(
            &path,
            [&fs::read(&path).unwrap()[..], b"{\"name\":[\"b\""].concat(),
        )
        .unwrap();
        let found = WhereaboutsFile::read(&path).unwrap();
        assert!(!found.whole, "a name is missing");
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
