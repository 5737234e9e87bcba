//! A disk in memory that fails as real disks do: it tears, loses and reorders unsynced writes, fills up,
//! fails to sync and forgets what it could not write, and flips bits.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fastrand::Rng;
use log::{Disk, File, Listed, Lock};
use parking_lot::{Mutex, MutexGuard};

/// The disk; clones are the same one.
#[derive(Clone)]
pub(crate) struct SimDisk(Arc<Mutex<World>>);

pub(crate) struct World {
    pub(crate) rng: Rng,
    pub(crate) now_ms: u64,
    /// How far the wall clock is ahead of the time that passes.
    pub(crate) clock_ahead_ms: i64,
    /// The most bytes that fit on the disk.
    pub(crate) capacity: u64,
    /// The calls left before the process dies in the middle of one.
    pub(crate) fuse: Option<u64>,
    /// How many of 1000 syncs fail.
    pub(crate) sync_failures: u32,
    /// How many of 1000 reads fail.
    pub(crate) read_failures: u32,
    /// Spare files that became segments again.
    pub(crate) reused: u32,
    dead: bool,
    /// Which run of the system this is.
    boot: u128,
    files: Vec<Inode>,
    /// The names as the running system sees them.
    names: BTreeMap<PathBuf, usize>,
    /// The names as they are on disk.
    durable_names: BTreeMap<PathBuf, usize>,
    pending_names: Vec<NameChange>,
}

#[derive(Default)]
struct Inode {
    /// The page cache.
    live: Vec<u8>,
    /// The disk.
    durable: Vec<u8>,
    /// The changes that the page cache has and the disk hasn't, in order.
    pending: Vec<Change>,
}

enum Change {
    Write(u64, Vec<u8>),
    Length(u64),
}

enum NameChange {
    Set(PathBuf, usize),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

struct SimFile {
    world: Arc<Mutex<World>>,
    inode: usize,
}

// === impl SimDisk ===

impl SimDisk {
    pub(crate) fn new(seed: u64, capacity: u64) -> Self {
        Self(Arc::new(Mutex::new(World {
            rng: Rng::with_seed(seed),
            now_ms: 100_000_000,
            clock_ahead_ms: 0,
            capacity,
            fuse: None,
            sync_failures: 0,
            read_failures: 0,
            reused: 0,
            dead: false,
            boot: 1,
            files: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            pending_names: Vec::new(),
        })))
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock()
    }

    /// Kills the process: from now on nothing reaches the disk.
    pub(crate) fn die(&self) {
        self.world().dead = true;
    }

    /// Ends the process but not the system: the page cache stays.
    pub(crate) fn kill(&self) {
        let mut world = self.world();
        (world.dead, world.fuse) = (false, None);
    }

    /// Ends the system: unsynced changes are on disk or not, in part, in any order.
    pub(crate) fn power_cut(&self) {
        let mut world = self.world();
        let world = &mut *world;
        (world.dead, world.fuse) = (false, None);
        world.boot += 1;
        for inode in &mut world.files {
            inode.settle(&mut world.rng);
        }
        let kept = world.rng.usize(0..=world.pending_names.len());
        for change in world.pending_names.drain(..).take(kept) {
            change.apply(&mut world.durable_names);
        }
        world.names = world.durable_names.clone();
    }

    /// Flips a bit of one of the files whose names end like this, on disk and in the page cache; returns
    /// whether there was such a file.
    pub(crate) fn flip(&self, ending: &str) -> bool {
        let mut world = self.world();
        let world = &mut *world;
        let named = world
            .names
            .iter()
            .filter(|(name, _)| name.to_string_lossy().ends_with(ending));
        let inodes: Vec<usize> = named
            .map(|(_, inode)| *inode)
            .filter(|inode| !world.files[*inode].live.is_empty())
            .collect();
        let Some(&inode) = world.rng.choice(&inodes) else {
            return false;
        };
        let inode = &mut world.files[inode];
        let (at, bit) = (world.rng.usize(0..inode.live.len()), 1u8 << world.rng.u8(0..8));
        if std::env::var_os("SEED").is_some() {
            println!("bit flipped at {at} of {} in a {ending}", inode.live.len());
        }
        inode.live[at] ^= bit;
        if let Some(byte) = inode.durable.get_mut(at) {
            *byte ^= bit;
        }
        true
    }

    /// Removes one of the files whose names end like this, but not the last; returns whether there was one to
    /// remove.
    pub(crate) fn steal(&self, ending: &str) -> bool {
        let mut world = self.world();
        let world = &mut *world;
        let mut names: Vec<PathBuf> = world
            .names
            .keys()
            .filter(|name| name.to_string_lossy().ends_with(ending))
            .cloned()
            .collect();
        names.pop();
        let Some(name) = world.rng.choice(&names) else {
            return false;
        };
        world.names.remove(name);
        world.durable_names.remove(name);
        true
    }

    /// Returns the names that end like this.
    pub(crate) fn names(&self, ending: &str) -> Vec<String> {
        let names = self.world();
        let names = names
            .names
            .keys()
            .map(|name| name.file_name().unwrap().to_string_lossy().into_owned());
        names.filter(|name| name.ends_with(ending)).collect()
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let mut world = self.world();
        world.step()?;
        let inode = *world.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(SimFile {
            world: Arc::clone(&self.0),
            inode,
        }))
    }
}

impl Disk for SimDisk {
    fn create_folder(&self, _: &Path) -> io::Result<()> {
        self.world().step()
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<Listed>> {
        let mut world = self.world();
        world.step()?;
        let inside = world
            .names
            .iter()
            .filter(|(name, _)| name.parent() == Some(folder));
        let listed = inside.map(|(name, inode)| Listed {
            name: name.file_name().unwrap().to_string_lossy().into_owned(),
            bytes: world.files[*inode].live.len() as u64,
        });
        Ok(listed.collect())
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn File>> {
        self.open(path)
    }

    fn open_to_write(&self, path: &Path) -> io::Result<Box<dyn File>> {
        self.open(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let mut world = self.world();
        world.step()?;
        let inode = world.files.len();
        world.files.push(Inode::default());
        world.change_name(NameChange::Set(path.to_owned(), inode));
        Ok(Box::new(SimFile {
            world: Arc::clone(&self.0),
            inode,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut world = self.world();
        world.step()?;
        world.reused += u32::from(from.extension().is_some_and(|of| of == "spare"));
        world.change_name(NameChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut world = self.world();
        world.step()?;
        world.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        world.change_name(NameChange::Remove(path.to_owned()));
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        let mut world = self.world();
        world.step()?;
        if world.sync_fails() {
            return Err(io::Error::other("simulated failure to sync a folder"));
        }
        let pending = std::mem::take(&mut world.pending_names);
        let (synced, others): (Vec<_>, Vec<_>) = pending.into_iter().partition(|change| change.is_in(folder));
        world.pending_names = others;
        for change in synced {
            change.apply(&mut world.durable_names);
        }
        Ok(())
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        let world = self.world();
        Ok(world.capacity.saturating_sub(world.used()))
    }

    fn lock(&self, _: &Path) -> io::Result<Lock> {
        self.world().step()?;
        Ok(Box::new(()))
    }

    fn now_ms(&self) -> u64 {
        let world = self.world();
        world.now_ms.saturating_add_signed(world.clock_ahead_ms)
    }

    fn elapsed_ms(&self) -> u64 {
        self.world().now_ms
    }

    fn boot(&self) -> Option<u128> {
        Some(self.world().boot)
    }
}

// === impl World ===

impl World {
    /// Counts a call: the process may die in it.
    fn step(&mut self) -> io::Result<()> {
        if let Some(fuse) = &mut self.fuse {
            match fuse.checked_sub(1) {
                Some(left) => *fuse = left,
                None => self.dead = true,
            }
        }
        if self.dead {
            Err(io::Error::other("the process is dead"))
        } else {
            Ok(())
        }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead
    }

    fn sync_fails(&mut self) -> bool {
        self.sync_failures > 0 && self.rng.u32(0..1000) < self.sync_failures
    }

    fn read_fails(&mut self) -> bool {
        self.read_failures > 0 && self.rng.u32(0..1000) < self.read_failures
    }

    fn used(&self) -> u64 {
        self.names
            .values()
            .map(|inode| self.files[*inode].live.len() as u64)
            .sum()
    }

    fn change_name(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.pending_names.push(change);
    }
}

// === impl NameChange ===

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        match self {
            Self::Set(path, inode) => {
                names.insert(path.clone(), *inode);
            }
            Self::Rename(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
            Self::Remove(path) => {
                names.remove(path);
            }
        }
    }

    fn is_in(&self, folder: &Path) -> bool {
        let (Self::Set(path, _) | Self::Rename(path, _) | Self::Remove(path)) = self;
        path.parent() == Some(folder)
    }
}

// === impl Inode ===

impl Inode {
    /// Settles the file after a power cut.
    fn settle(&mut self, rng: &mut Rng) {
        let pending = std::mem::take(&mut self.pending);
        let kept = rng.usize(0..=pending.len());
        let reorder = rng.bool();
        for (number, change) in pending.into_iter().enumerate() {
            if reorder || number < kept {
                // Any part of the last change, or of any change if the disk reorders.
                let partly = reorder || number + 1 == kept;
                change.settle(&mut self.durable, partly, rng);
            }
        }
        self.live = self.durable.clone();
    }
}

// === impl Change ===

impl Change {
    fn apply(&self, file: &mut Vec<u8>) {
        match self {
            Self::Write(at, bytes) => put(file, *at as usize, bytes),
            Self::Length(length) => file.resize(*length as usize, 0),
        }
    }

    /// Applies it to what is on disk, perhaps only some of its sectors; the gaps hold zeros or rubbish.
    fn settle(&self, file: &mut Vec<u8>, partly: bool, rng: &mut Rng) {
        let Self::Write(at, bytes) = self else {
            return if !partly || rng.bool() {
                self.apply(file)
            };
        };
        if !partly || rng.u8(0..3) == 0 {
            return self.apply(file);
        }
        let rubbish = rng.bool();
        for (number, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
            let at = *at as usize + number * SECTOR_BYTES;
            if rng.bool() {
                let before = file.len();
                put(file, at, sector);
                if rubbish && at > before {
                    file[before..at].fill_with(|| rng.u8(..));
                }
            }
        }
    }
}

// === impl SimFile ===

impl File for SimFile {
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let mut world = self.world.lock();
        world.step()?;
        if world.read_fails() {
            return Err(io::Error::other("simulated failure to read"));
        }
        let live = &world.files[self.inode].live;
        let from = &live[live.len().min(at as usize)..];
        let count = from.len().min(into.len());
        into[..count].copy_from_slice(&from[..count]);
        Ok(count)
    }

    fn write_at(&self, slices: &mut [IoSlice<'_>], at: u64) -> io::Result<()> {
        let mut bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        let mut world = self.world.lock();
        let alive = !world.dead;
        let stepped = world.step();
        if stepped.is_err() && alive {
            // The process was killed in the middle of the write.
            let some = world.rng.usize(0..=bytes.len());
            bytes.truncate(some);
        } else {
            stepped
                .as_ref()
                .map_err(|error| io::Error::other(error.to_string()))?;
        }
        let growth = (at + bytes.len() as u64).saturating_sub(world.files[self.inode].live.len() as u64);
        let full = world.used() + growth > world.capacity;
        if full {
            let excess = world.used() + growth - world.capacity;
            bytes.truncate((bytes.len() as u64).saturating_sub(excess) as usize);
        }
        let inode = &mut world.files[self.inode];
        put(&mut inode.live, at as usize, &bytes);
        inode.pending.push(Change::Write(at, bytes));
        stepped?;
        if full {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let mut world = self.world.lock();
        world.step()?;
        let inode = &mut world.files[self.inode];
        inode.live.resize(bytes as usize, 0);
        inode.pending.push(Change::Length(bytes));
        Ok(())
    }

    fn bytes(&self) -> io::Result<u64> {
        let mut world = self.world.lock();
        world.step()?;
        Ok(world.files[self.inode].live.len() as u64)
    }

    fn sync(&self) -> io::Result<()> {
        let mut world = self.world.lock();
        world.step()?;
        let fails = world.sync_fails();
        let world = &mut *world;
        let inode = &mut world.files[self.inode];
        for change in std::mem::take(&mut inode.pending) {
            // After a failure the kernel takes pages for written that are not; they never will be.
            if !fails || world.rng.bool() {
                change.apply(&mut inode.durable);
            }
        }
        if fails {
            Err(io::Error::other("simulated failure to sync"))
        } else {
            Ok(())
        }
    }

    fn drop_cached(&self, _: Range<u64>) {
        let mut world = self.world.lock();
        let inode = &mut world.files[self.inode];
        let mut file = inode.durable.clone();
        inode.pending.iter().for_each(|change| change.apply(&mut file));
        inode.live = file;
    }
}

fn put(file: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if file.len() < at + bytes.len() {
        file.resize(at + bytes.len(), 0);
    }
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

const SECTOR_BYTES: usize = 512;
