//! Reads what is parked again when the gateway starts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

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
    dead: u64,
    lost: u64,
    settled_before: u64,
    last_resolved: u64,
}

// === impl Loaded ===

impl Loaded {
    fn take(&mut self, at: u64, bytes: u64, record: StoreRecord) {
        match record {
            StoreRecord::Put(entry, _) => {
                if let Some(before) = entry.instead_of {
                    self.entries.remove(&before);
                    self.damaged.remove(&before);
                }
                let mut left: BTreeSet<u32> = (0..entry.ops.len() as u32).collect();
                left.retain(|op| !entry.gone.contains(op));
                self.entries.insert(at, (entry, bytes, left));
            }
            StoreRecord::Damaged(documents) => drop(self.damaged.insert(at, (0..documents).collect())),
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
        for (at, left) in loaded.damaged {
            let (folder, documents) = (self.folder.display(), left.len());
            tracing::error!(
                %folder, at, documents,
                "parked operations are lost: the disk has damaged their record"
            );
            state.add_unreadable(at, documents as u64);
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
