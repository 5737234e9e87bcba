//! Flips bits on the disk, and fills the disk.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use fastrand::Rng;

/// Flips a bit in each of `count` records of a log that nobody has open, chosen from those whose positions
/// clients were told. Returns the positions of the damaged records. Records that are damaged `already` are
/// left alone, since nobody can say where their bits are.
pub(crate) fn flip_bits(
    folder: &Path,
    told: &[(u64, usize)],
    (count, already): (usize, &HashSet<u64>),
    rng: &mut Rng,
) -> Result<HashSet<u64>> {
    let segments = segments(folder)?;
    // Only the newest half: the other records have long been delivered, and damage to them loses nothing.
    let there: Vec<u64> = told
        .iter()
        .map(|(position, _)| *position)
        .filter(|position| segments.first().is_some_and(|(first, _)| position >= first))
        .collect();
    let recent = &there[there.len() / 2..];
    let mut damaged = HashSet::new();
    for _ in 0..count {
        let Some(&position) = rng.choice(recent) else {
            break;
        };
        let (first, path) = segments
            .iter()
            .rev()
            .find(|(first, _)| *first <= position)
            .context("a record is in a segment")?;
        if !already.contains(&position) && damaged.insert(position) {
            flip_one(path, position - first, rng)?;
        }
    }
    Ok(damaged)
}

/// Returns the log's segments by position, the first one first; their names are their positions.
fn segments(folder: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let mut segments = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("no queue in {}", folder.display()))? {
        let path = entry?.path();
        let is_segment = path.extension().is_some_and(|extension| extension == "segment");
        let first = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
        if let (true, Some(first)) = (is_segment, first) {
            segments.push((first, path));
        }
    }
    segments.sort();
    Ok(segments)
}

/// Flips a bit of the record at this offset: anywhere in its head, parameters, directory or documents.
fn flip_one(path: &Path, at: u64, rng: &mut Rng) -> Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut head = [0; HEAD_BYTES];
    file.read_exact_at(&mut head, at)
        .with_context(|| format!("no record at {at} of {}", path.display()))?;
    ensure!(
        head.starts_with(b"TGR1"),
        "{} has no record at {at}",
        path.display()
    );
    let number = |from: usize, bytes: usize| {
        let mut wide = [0; 8];
        wide[..bytes].copy_from_slice(&head[from..from + bytes]);
        u64::from_le_bytes(wide)
    };
    let (payload, params, groups) = (number(48, 4), number(56, 2), number(58, 2));
    let bytes = HEAD_BYTES as u64 + params + groups * ENTRY_BYTES + payload;
    let place = at + rng.u64(..bytes);
    let mut byte = [0];
    file.read_exact_at(&mut byte, place)?;
    byte[0] ^= 1 << rng.u32(..8);
    file.write_all_at(&byte, place)?;
    file.sync_all()?;
    Ok(())
}

/// The sizes in a record's layout, as documented in `crates/log`.
const HEAD_BYTES: usize = 64;
const ENTRY_BYTES: u64 = 20;

/// A disk of a few megabytes, in memory.
pub(crate) struct SmallDisk {
    folder: PathBuf,
}

impl SmallDisk {
    /// Whether this process may mount a disk.
    pub(crate) fn is_possible() -> bool {
        rustix::process::geteuid().is_root()
            && Command::new("unshare")
                .args(["--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"])
                .output()
                .is_ok_and(|done| done.status.success())
    }

    pub(crate) fn mount(folder: &Path, megabytes: u32) -> Result<Self> {
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tmpfs"])
            .arg(folder)
            .output()
            .context("cannot run mount")?;
        if !done.status.success() {
            bail!("mount: {}", String::from_utf8_lossy(&done.stderr).trim_end());
        }
        Ok(Self {
            folder: folder.to_owned(),
        })
    }

    /// Unmounts the disk; a process that still has a file open there keeps it until then. Does nothing if
    /// there is no disk.
    pub(crate) fn unmount(folder: &Path) {
        if rustix::process::geteuid().is_root() {
            let _ = Command::new("umount").arg("-l").arg(folder).output();
        }
    }

    /// Fills the remaining space with another file.
    pub(crate) fn fill(&self) -> Result<()> {
        let mut file = File::create(self.ballast())?;
        for size in [64 << 10, 4 << 10, 1] {
            while file.write_all(&vec![b'b'; size]).is_ok() {}
        }
        Ok(())
    }

    pub(crate) fn free(&self) -> Result<()> {
        fs::remove_file(self.ballast()).context("the file that fills the disk")
    }

    fn ballast(&self) -> PathBuf {
        self.folder.join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        Self::unmount(&self.folder);
    }
}
