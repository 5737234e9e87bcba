//! What exports and imports of a queue have in common: the list of an export's files, and copies of files
//! that are either complete or absent.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use aws_lc_rs::digest::{Context as Digest, SHA256};
use serde::{Deserialize, Serialize};

use super::ground::open_file;

/// The name of an export's list of files, which is written once all of the files are there.
pub(super) const LIST: &str = "EXPORT";
/// The file that marks the folder of an unfinished export.
pub(super) const BEGUN: &str = "EXPORTING";

/// The format of the list. Nothing can be known about an export whose list has another number.
const FORMAT: u32 = 1;

/// The list of an export's files.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct List {
    format: u32,
    /// The version of Tidegate that made the export.
    tidegate: String,
    pub(super) queue: String,
    pub(super) made: String,
    /// The files, by their paths in the export.
    pub(super) files: BTreeMap<String, Listed>,
}

/// A file in the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Listed {
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

/// Limits copying to a number of bytes per second.
pub(super) struct Pace {
    rate: Option<u64>,
    begun: Instant,
    bytes: u64,
}

/// Counts of what was done with the files.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) copied: u64,
    /// Files that were there from an earlier attempt.
    pub(super) there: u64,
    pub(super) bytes: u64,
}

// === impl List ===

impl List {
    pub(super) fn new(queue: &str, files: BTreeMap<String, Listed>) -> Self {
        Self {
            format: FORMAT,
            tidegate: env!("CARGO_PKG_VERSION").to_owned(),
            queue: queue.to_owned(),
            made: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            files,
        }
    }

    /// Writes the list into the export's folder, durably, with a checksum of the list as its last line.
    pub(super) fn write(&self, export: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        let sum = sum_of(text.as_bytes());
        put(&export.join(LIST), format!("{text}sha256 {sum}\n").as_bytes())
    }

    /// Reads the list and its checksum; returns none if the export is not finished, or the folder is no
    /// export.
    pub(super) fn read(export: &Path) -> Result<Option<(Self, String)>> {
        // Everything may be there, but the queue that it was copied from may not be marked as moved.
        if export.join(BEGUN).exists() {
            return Ok(None);
        }
        let file = export.join(LIST);
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| file.display().to_string()),
        };
        let damaged = || format!("{} is damaged: copy the export again", file.display());
        let (text, sum) = text.rsplit_once("sha256 ").with_context(damaged)?;
        ensure!(sum == format!("{}\n", sum_of(text.as_bytes())), damaged());
        let format = serde_json::from_str::<serde_json::Value>(text)?["format"].as_u64();
        if format != Some(FORMAT.into()) {
            let format = format.unwrap_or_default();
            bail!(
                "{} was made by another version of Tidegate: its format is {format}, this one reads {FORMAT}",
                file.display()
            );
        }
        let list: Self = serde_json::from_str(text).with_context(damaged)?;
        for path in list.files.keys() {
            let mut parts = Path::new(path).components();
            let inside = parts.all(|part| matches!(part, Component::Normal(_)));
            ensure!(
                inside && !path.is_empty(),
                "{}: `{path}` is not a file of an export",
                file.display()
            );
        }
        Ok(Some((list, sum.trim_end().to_owned())))
    }
}

// === impl Pace ===

impl Pace {
    pub(super) fn new(rate: Option<u64>) -> Self {
        Self {
            rate,
            begun: Instant::now(),
            bytes: 0,
        }
    }

    fn went(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        let Some(rate) = self.rate.filter(|rate| *rate > 0) else {
            return;
        };
        let due = Duration::from_secs_f64(self.bytes as f64 / rate as f64);
        std::thread::sleep(due.saturating_sub(self.begun.elapsed()));
    }
}

// === impl Listed ===

impl Listed {
    /// Reads a file, and returns its length and checksum.
    pub(super) fn of(file: &Path) -> Result<Self> {
        let mut read = open_file(file)?;
        read_through(&mut read, |_| Ok(())).with_context(|| file.display().to_string())
    }

    /// Whether a file matches this entry; a file of another length is not read.
    pub(super) fn is(&self, file: &Path) -> Result<bool> {
        match fs::metadata(file) {
            Ok(found) if found.is_file() && found.len() == self.bytes => Ok(Self::of(file)? == *self),
            Ok(_) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).with_context(|| file.display().to_string()),
        }
    }
}

/// Copies a file so that the copy is either whole and durable, or absent. Returns the copy's length and
/// checksum. Whoever may not read the queue may not read the copy either.
pub(super) fn copy(read: &mut File, to: &Path, pace: &mut Pace) -> Result<Listed> {
    written(to, |write| {
        read_through(read, |bytes| {
            pace.went(bytes.len());
            write.write_all(bytes)
        })
    })
}

/// Writes a small file, durably.
pub(super) fn put(file: &Path, bytes: &[u8]) -> Result<()> {
    written(file, |write| write.write_all(bytes))
}

/// Makes a file for its owner alone, durably, by a name of its own first.
fn written<T>(to: &Path, fill: impl FnOnce(&mut File) -> io::Result<T>) -> Result<T> {
    let folder = to.parent().context("a file is in a folder")?;
    make_folder(folder)?;
    let part = PathBuf::from(format!("{}.part", to.display()));
    let filled = new_file(&part).and_then(|mut write| {
        let filled = fill(&mut write)?;
        write.sync_all()?;
        Ok(filled)
    });
    let filled = filled.with_context(|| part.display().to_string())?;
    fs::rename(&part, to).with_context(|| to.display().to_string())?;
    sync_folder(folder)?;
    Ok(filled)
}

/// Makes a file in the place of one that an earlier attempt has left, and never one behind a link.
pub(crate) fn new_file(file: &Path) -> io::Result<File> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(file)
}

/// Makes a folder, and the missing ones around it, for their owner alone.
pub(super) fn make_folder(folder: &Path) -> Result<()> {
    if folder.is_dir() || folder.as_os_str().is_empty() {
        return Ok(());
    }
    let around = folder.parent().unwrap_or(Path::new("."));
    make_folder(around)?;
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists || !folder.is_dir() => {
            return Err(error).with_context(|| folder.display().to_string());
        }
        _ => {}
    }
    sync_folder(around)
}

pub(super) fn sync_folder(folder: &Path) -> Result<()> {
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let synced = File::open(folder).and_then(|open| open.sync_all());
    synced.with_context(|| folder.display().to_string())
}

/// Lists the files below a folder by their relative paths. For a file, the list has only the empty path.
pub(super) fn files_below(path: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(vec![PathBuf::new()]),
        Err(error) => return Err(error).with_context(|| path.display().to_string()),
    };
    for entry in entries {
        let entry = entry?;
        let name = PathBuf::from(entry.file_name());
        if entry.file_type()?.is_dir() {
            let below = files_below(&entry.path())?;
            found.extend(below.into_iter().map(|file| name.join(file)));
        } else {
            found.push(name);
        }
    }
    found.sort();
    Ok(found)
}

/// Reads the file to its end, and returns its length and checksum.
fn read_through(read: &mut File, mut seen: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<Listed> {
    let (mut digest, mut bytes) = (Digest::new(&SHA256), 0);
    let mut buffer = vec![0; 256 << 10];
    loop {
        match read.read(&mut buffer)? {
            0 => break,
            length => {
                digest.update(&buffer[..length]);
                bytes += length as u64;
                seen(&buffer[..length])?;
            }
        }
    }
    let sha256 = hex(digest.finish().as_ref());
    Ok(Listed { bytes, sha256 })
}

fn sum_of(bytes: &[u8]) -> String {
    hex(aws_lc_rs::digest::digest(&SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}"); // writing to a string cannot fail
    }
    text
}
