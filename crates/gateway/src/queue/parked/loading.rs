//! Reads what is parked again when the gateway starts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use log::Missing;

use super::lines::Lines;
use super::state::Standing;
use super::store::{ParkedEntry, Resolved, Store, StoreRecord};
use super::{Parked, ParkedError};

/// What a store on disk says.
#[derive(Default)]
struct Loaded {
    /// The entries of which something is left, by their places, with their bytes and their operations that
    /// are left.
    entries: BTreeMap<u64, (Box<ParkedEntry>, u64, BTreeSet<u32>)>,
    /// The operations that are left of damaged entries.
    damaged: BTreeMap<u64, BTreeSet<u32>>,
    /// The stretches of which nothing can be read, by where they begin.
    gaps: BTreeMap<u64, Gap>,
    dead: u64,
    lost: u64,
    settled_before: u64,
    last_resolved: u64,
}

/// A stretch of the store of which nothing can be read.
struct Gap {
    end: u64,
    /// How many records it had, if that is known, and how many documents these counted.
    records: Option<u64>,
    documents: u64,
    /// Its records of which later ones say that they are gone as a whole, and how many more operations are
    /// gone.
    whole: BTreeSet<u64>,
    parts: u64,
    /// Whether it is written down that what it had is lost.
    is_written_down: bool,
}

// === impl Loaded ===

impl Loaded {
    fn take(&mut self, at: u64, bytes: u64, record: StoreRecord) {
        match record {
            StoreRecord::Put(entry, _) => {
                if let Some(before) = entry.instead_of {
                    self.entries.remove(&before);
                    self.damaged.remove(&before);
                    self.gap_resolved(before, None);
                }
                let mut left: BTreeSet<u32> = (0..entry.ops.len() as u32).collect();
                left.retain(|op| !entry.gone.contains(op));
                self.entries.insert(at, (entry, bytes, left));
            }
            StoreRecord::Damaged(documents) => drop(self.damaged.insert(at, (0..documents).collect())),
            StoreRecord::Missing(missing) => drop(self.gaps.insert(at, Gap::new(missing))),
            StoreRecord::Resolved(resolved) => self.resolved(at, resolved),
            StoreRecord::Settled => self.settled_before = at,
        }
    }

    fn resolved(&mut self, at: u64, resolved: Resolved) {
        self.dead = self.dead.max(resolved.dead);
        self.lost = self.lost.max(resolved.lost);
        self.last_resolved = at;
        for (at, ops) in resolved.ops {
            let of_entry = self.entries.get_mut(&at).map(|(.., left)| left);
            let Some(left) = of_entry.or_else(|| self.damaged.get_mut(&at)) else {
                self.gap_resolved(at, ops.as_deref());
                continue;
            };
            match ops {
                Some(ops) => left.retain(|op| !ops.contains(op)),
                None => left.clear(),
            }
            if left.is_empty() {
                self.entries.remove(&at);
                self.damaged.remove(&at);
            }
        }
    }

    /// Takes note that operations are gone whose record may be in a stretch that cannot be read.
    fn gap_resolved(&mut self, at: u64, ops: Option<&[u32]>) {
        if let Some((begins, gap)) = self.gaps.range_mut(..=at).next_back()
            && at < gap.end
        {
            match ops {
                _ if at == Gap::named(*begins) => gap.is_written_down = true,
                Some(ops) => gap.parts += ops.len() as u64,
                None => drop(gap.whole.insert(at)),
            }
        }
    }

    /// Returns the places by which damaged records are named, each with how many operations are lost there.
    /// More may be told of a stretch of which nothing can be read: its records may have been no entries, and
    /// of an entry that is gone as a whole nothing says how many operations it had.
    fn lost_at(&self) -> impl Iterator<Item = (u64, u64)> {
        let damaged = self.damaged.iter().map(|(at, left)| (*at, left.len() as u64));
        let gaps = self.gaps.iter().map(|(at, gap)| (Gap::named(*at), gap.left()));
        damaged.chain(gaps.filter(|(_, left)| *left > 0))
    }
}

// === impl Gap ===

impl Gap {
    fn new(missing: Missing) -> Self {
        Self {
            end: missing.range.end.max(Self::named(missing.range.start) + 1),
            records: missing.records,
            // If nothing says how many there were, at least that something is lost is told.
            documents: missing.documents.unwrap_or(1),
            whole: BTreeSet::new(),
            parts: 0,
            is_written_down: false,
        }
    }

    /// Returns the place by which a stretch is named when it is written down as lost: one at which there is
    /// no record, because its first record may be gone for other reasons.
    fn named(begins: u64) -> u64 {
        begins + 1
    }

    /// Returns how many operations are lost, at most.
    fn left(&self) -> u64 {
        let whole = self.whole.len() as u64;
        match self.is_written_down || self.records == Some(whole) {
            true => 0,
            false => self.documents.saturating_sub(self.parts + whole),
        }
    }
}

// === impl Parked ===

impl Parked {
    /// Reads the entries on disk. Entries whose lane has not come past their origin are to be dropped before
    /// delivery starts.
    pub(super) fn load(&self, committed: &[u64]) -> Result<(), ParkedError> {
        // A store is made when it is first wanted. A store that was not finished, because a full disk or a
        // kill came in between, must not keep the gateway from starting on that disk.
        if !Store::is_there(&self.folder)? {
            return Ok(());
        }
        let store = self.open_store()?;
        let mut loaded = Loaded::default();
        store.each(|at, bytes, record| loaded.take(at, bytes, record))?;
        let mut state = self.state.lock();
        state.died_before(0, loaded.dead);
        state.lost_before(loaded.lost);
        state.last_resolved = loaded.last_resolved;
        for (at, documents) in loaded.lost_at() {
            let folder = self.folder.display();
            tracing::error!(
                %folder, at, documents,
                "parked operations are lost: the disk has damaged their records"
            );
            state.add_unreadable(at, documents);
        }
        let entries = loaded.entries;
        let lines = Lines::of(entries.values().map(|(entry, _, left)| (&**entry, left.iter())));
        for (at, (entry, bytes, left)) in entries {
            let position = entry.origins.first().map_or(0, |(position, _)| *position);
            let committed = committed.get(entry.lane as usize).copied().unwrap_or_default();
            let standing = match at < loaded.settled_before || position < committed {
                true => Standing::Ready,
                false => Standing::Unsettled,
            };
            state.insert_again(&lines, &entry, &left, (at, bytes), standing);
        }
        self.letters_wait.store(state.has_letters(), Ordering::Relaxed);
        self.any.store(!state.is_empty(), Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;
    use std::path::Path;

    use log::{Log, Options, RealDisk};

    use super::*;

    fn options() -> Options {
        Options {
            free_bytes_min: 0,
            ..Options::default()
        }
    }

    /// Puts entries of so many operations each into a store; returns their places.
    fn put(folder: &Path, entries: &[u32]) -> Vec<u64> {
        let store = Store::open(folder, options()).unwrap();
        let put = |operations: &u32| {
            let entry = ParkedEntry {
                ops: (0..*operations).map(|op| (0, op)).collect(),
                ..ParkedEntry::sample()
            };
            store.put_copy(&entry, b"lines").unwrap().0
        };
        let places = entries.iter().map(put).collect();
        store.close();
        places
    }

    fn resolve(folder: &Path, ops: Vec<(u64, Option<Vec<u32>>)>) {
        let store = Store::open(folder, options()).unwrap();
        let resolved = Resolved {
            ops,
            ..Resolved::default()
        };
        store.resolve_blocking(&resolved).unwrap();
        store.close();
    }

    /// Damages the heads of the records at these places, all in the first segment.
    fn damage(folder: &Path, places: &[u64]) {
        let segment = folder.join("00000000000000000000.segment");
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(segment)
            .unwrap();
        for at in places {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at + 30).unwrap();
            file.write_all_at(&[byte[0] ^ 1], at + 30).unwrap();
        }
    }

    fn loaded(folder: &Path) -> Parked {
        let parked = Parked::sample(folder);
        *parked.options.lock() = options();
        parked.load(&[u64::MAX]).unwrap();
        parked
    }

    /// Returns how many operations wait, and how many are lost.
    fn accounts(folder: &Path) -> (u64, u64) {
        let parked = loaded(folder);
        let state = parked.state();
        let accounts = (
            state.pieces().map(|piece| u64::from(piece.docs)).sum(),
            state.lost,
        );
        drop(state);
        parked.close();
        accounts
    }

    #[test]
    fn entries_whose_heads_are_damaged_are_lost_and_that_is_written_down_once() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let places = put(folder, &[2, 3, 4, 5]);
        assert_eq!(accounts(folder), (14, 0));
        damage(folder, &places[1..2]);
        assert_eq!(accounts(folder), (11, 3));
        damage(folder, &places[3..]);
        assert_eq!(accounts(folder), (6, 8), "also at the end");
        let parked = loaded(folder);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(parked.resolve(Vec::new())).unwrap();
        assert_eq!(parked.state().lost, 8);
        parked.close();
        let parked = loaded(folder);
        assert_eq!(parked.state().lost, 8, "by what is written down");
        assert!(parked.state().unreadable().is_empty());
        parked.close();
    }

    #[test]
    fn operations_that_were_gone_before_the_disk_damaged_their_entry_are_not_lost() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let places = put(folder, &[2, 3, 4, 5]);
        resolve(
            folder,
            vec![
                (places[0], None),
                (places[1], Some(vec![1])),
                (places[2], Some(vec![0, 3])),
            ],
        );
        assert_eq!(accounts(folder), (2 + 2 + 5, 0));
        damage(folder, &places[..1]);
        assert_eq!(accounts(folder), (2 + 2 + 5, 0));
        damage(folder, &places[2..3]);
        assert_eq!(accounts(folder), (2 + 5, 2));
        damage(folder, &places[1..2]);
        let (waiting, lost) = accounts(folder);
        assert_eq!(waiting, 5);
        // Nothing says any more how many operations the first entry had.
        assert!((4..=5).contains(&lost), "{lost}");
    }

    #[test]
    fn what_a_newer_version_wrote_is_not_passed_over() {
        for (kind, bytes) in [
            (0, &b"{\"key\":\"of another kind\"}\nlines"[..]),
            (0, b"no lines"),
            (1, b"{\"of\":1}"),
            (9, b"{}"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            put(folder.path(), &[1]);
            let log = Log::open(folder.path(), options(), RealDisk::default()).unwrap();
            let mut record = log.record(kind, b"");
            record.group(0, 1, |out| out.extend_from_slice(bytes));
            let at = log.append_blocking(record).unwrap().position;
            log.close();
            let parked = Parked::sample(folder.path());
            *parked.options.lock() = options();
            let refusal = parked.load(&[u64::MAX]).unwrap_err().to_string();
            let said = refusal.contains("newer version") && refusal.contains(&format!("record at {at} "));
            assert!(said, "{refusal}");
            parked.close();
        }
    }
}
