//! Where the names lead that the documents of a queue have for their indices, as far as lanes follow from it.
//! A name that comes to lead elsewhere (an alias that is swapped, a rollover, an index that is made again
//! with other shards) gets a [`Fence`], so that documents that are accepted from then on do not overtake
//! queued ones. The index that the name led to is remembered, so that a write whose answer was lost can be
//! looked for where it went.
//!
//! Each request is noted once, before it is put into the log. While nothing changes, this costs two atomic
//! loads, and a bit for each of the request's names. A topology that nobody has asked about yet is compared
//! name by name, behind a lock. A request may be planned by an older topology and be put into the log later:
//! so a fence stays open, and waits for everything before the group in hand, until no such request can be
//! under way.

mod kept;
mod syncing;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use bulk::{Formula, RouteTable, Target, lanes_of};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

use crate::queue::fence::{Fence, LaneSet};
use crate::queue::journal::Journal;
use crate::queue::parked::ParkedOfQueue;
use kept::{FileContents, WhereaboutsFile};
use syncing::{Syncer, Syncs};

/// Where the names of one queue lead.
pub(crate) struct Whereabouts {
    lanes: u32,
    /// Parked operations go out later than their lane, and need the fences for as long: those of a lane keep
    /// their order by them, and lines for indices know from them where names have led.
    parked: Arc<ParkedOfQueue>,
    /// The current epoch, replaced whenever names may lead elsewhere.
    epoch: ArcSwap<Epoch>,
    fences: ArcSwap<Vec<Arc<Fence>>>,
    /// Whether some fence is not closed.
    open: AtomicBool,
    name_table: Mutex<NameTable>,
    syncs: Syncs,
    own: Weak<Self>,
}

/// A time in which names lead where they do. A request that holds an epoch may be put into the log as it was
/// planned in that epoch.
#[derive(Debug)]
pub(crate) struct Epoch {
    number: u64,
    /// `None` before the first topology.
    table: Option<Arc<RouteTable>>,
}

struct NameTable {
    targets: HashMap<String, NameTarget>,
    /// Names that the cluster no longer has, each with the log's end when that was seen.
    gone: BTreeMap<String, u64>,
    /// Earlier epochs that requests may still hold.
    earlier: Vec<Weak<Epoch>>,
    /// For each fence that is not closed, the epochs that may be held by requests that were planned before
    /// the fence.
    holders: Vec<(Arc<Fence>, Vec<Weak<Epoch>>)>,
    fences_made: u64,
    /// Documents before this position may have names that nobody knows.
    unknown_before: u64,
    kept: WhereaboutsFile,
    /// Whether most of the file is of no use.
    is_long: bool,
    syncer: Syncer,
}

/// Where a name leads, as far as lanes follow from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NameTarget {
    pub(crate) index: String,
    pub(crate) shards: u32,
    /// `None` if the number of shards alone decides.
    pub(crate) routing_num_shards: Option<u32>,
    pub(crate) partition_size: u32,
    /// The routing that documents get from an alias.
    pub(crate) alias_routing: Option<String>,
}

/// The knowledge of a core: which names of an epoch are in the name table.
#[derive(Default)]
pub(crate) struct NamesOfCore {
    epoch: u64,
    names: Vec<u64>,
}

/// A note that a request has to hold until its record is handed to the log.
pub(crate) struct NameNote {
    epoch: Arc<Epoch>,
    /// Fences that this record closes: nothing that was planned before them can come behind it.
    closing: Vec<Arc<Fence>>,
    /// The number of fences that have to be synced, if some are not: the record may keep its order by them.
    unsynced: Option<u64>,
}

/// Names that have come to lead to one index.
#[derive(Default)]
struct Moved {
    /// The lanes of the index that the names lead to now.
    of: LaneSet,
    /// The lanes of the indices that the names led to until now.
    past: LaneSet,
    /// The names, each with the index that it led to.
    names: Vec<(String, String)>,
}

// === impl NameTarget ===

impl NameTarget {
    fn of(target: &Target) -> Option<Self> {
        let write = target.write().ok()?;
        let alias_routing = match target {
            Target::Alias { index_routing, .. } => index_routing.as_deref().map(str::to_owned),
            _ => None,
        };
        Some(Self {
            index: write.name.to_string(),
            shards: write.shards(),
            routing_num_shards: match write.formula {
                Formula::Classic { routing_num_shards } => Some(routing_num_shards),
                Formula::Modulo => None,
            },
            partition_size: write.partition_size,
            alias_routing,
        })
    }

    /// Whether a target leads here; allocates nothing.
    fn is(&self, target: &Target) -> bool {
        let Ok(write) = target.write() else { return false };
        let alias_routing = match target {
            Target::Alias { index_routing, .. } => index_routing.as_deref(),
            _ => None,
        };
        let routing_num_shards = match write.formula {
            Formula::Classic { routing_num_shards } => Some(routing_num_shards),
            Formula::Modulo => None,
        };
        *self.index == *write.name
            && (self.shards, self.routing_num_shards, self.partition_size)
                == (write.shards(), routing_num_shards, write.partition_size)
            && self.alias_routing.as_deref() == alias_routing
    }

    fn lanes(&self, lanes: u32) -> LaneSet {
        lanes_of(&self.index, self.shards, lanes).collect()
    }
}

// === impl NamesOfCore ===

impl NamesOfCore {
    fn has_all(&self, epoch: u64, names: &[u32]) -> bool {
        let has = |name: &u32| {
            let word = self.names.get(*name as usize / 64).copied().unwrap_or_default();
            word & (1 << (name % 64)) != 0
        };
        self.epoch == epoch && names.iter().all(has)
    }

    fn learn(&mut self, epoch: u64, names: &[u32]) {
        if self.epoch != epoch {
            self.names.clear();
            self.epoch = epoch;
        }
        for name in names {
            let at = *name as usize / 64;
            if self.names.len() <= at {
                self.names.resize(at + 1, 0);
            }
            self.names[at] |= 1 << (name % 64);
        }
    }
}

// === impl Whereabouts ===

impl Whereabouts {
    /// Opens the whereabouts of a queue and loads what an earlier run recorded.
    pub(crate) fn open(
        data: &Path,
        queue: &str,
        journal: &Journal,
        parked: Arc<ParkedOfQueue>,
    ) -> io::Result<Arc<Self>> {
        let path = data.join("whereabouts").join(format!("{queue}.jsonl"));
        let status = journal.status();
        let FileContents {
            mut targets,
            mut fences,
            whole,
            unknown_before,
        } = WhereaboutsFile::read(&path)?;
        if status.documents == 0 {
            // The queue is new.
            targets.clear();
            fences.clear();
        }
        for fence in &fences {
            fence.close(status.end);
        }
        let needed_from = needed_from(&parked, status.start);
        fences.retain(|fence| fence.end() > Some(needed_from));
        let unknown_before = match status.documents {
            0 => 0,
            _ if !whole => status.end,
            // Documents that old are gone by now.
            _ if unknown_before <= needed_from => 0,
            _ => unknown_before,
        };
        let kept = WhereaboutsFile::begin_anyway(&path, &targets, fences.iter(), unknown_before);
        let fences_made = fences.iter().map(|fence| fence.number).max().unwrap_or_default();
        Ok(Arc::new_cyclic(|own| Self {
            lanes: journal.lanes(),
            parked,
            epoch: ArcSwap::from_pointee(Epoch {
                number: 1,
                table: None,
            }),
            fences: ArcSwap::from_pointee(fences.into_iter().map(Arc::new).collect()),
            open: AtomicBool::new(false),
            name_table: Mutex::new(NameTable {
                targets,
                gone: BTreeMap::new(),
                earlier: Vec::new(),
                holders: Vec::new(),
                fences_made,
                unknown_before,
                kept,
                is_long: false,
                syncer: Syncer::Idle,
            }),
            syncs: Syncs::default(),
            own: Weak::clone(own),
        }))
    }

    /// Returns the current fences.
    pub(crate) fn fences(&self) -> arc_swap::Guard<Arc<Vec<Arc<Fence>>>> {
        self.fences.load()
    }

    /// Adds the lanes that documents of some lanes may have been in before their names led where they do.
    pub(crate) fn add_earlier(&self, lanes: &mut HashSet<u32>) {
        for fence in self.fences.load().iter() {
            lanes.extend(fence.of.iter().chain(fence.past.iter()));
        }
    }

    /// Returns the indices that a write to `name`, accepted at `position`, may have gone to: those that the
    /// name has left since, and the last one that it is known to have led to. A topology that was read in the
    /// middle of a swap may not say where the name leads, and then no fence says yet that it left that index.
    pub(crate) fn led_to(&self, name: &str, position: u64) -> Vec<String> {
        let last = self
            .name_table()
            .targets
            .get(name)
            .map(|target| target.index.clone());
        let fences = self.fences.load();
        let left = fences.iter().flat_map(|fence| fence.left(name, position));
        left.map(str::to_owned).chain(last).collect()
    }

    /// Whether documents may wait for a name that the cluster no longer has, and for which `is_meant` is
    /// true.
    pub(crate) fn may_have_lost(&self, is_meant: &dyn Fn(&str) -> bool) -> bool {
        let name_table = self.name_table();
        name_table.unknown_before > 0 || name_table.gone.keys().any(|name| is_meant(name))
    }

    /// Announces that a request planned with `table`, using these names, is about to be appended to the log;
    /// `newest` returns the newest table when it is called. There must be no waiting between this call and
    /// the hand-over.
    pub(crate) fn note(
        &self,
        table: &Arc<RouteTable>,
        newest: impl FnOnce() -> Arc<RouteTable>,
        names: &[u32],
        known: &mut NamesOfCore,
        journal: &Journal,
    ) -> NameNote {
        let epoch = self.epoch.load_full();
        let current = epoch.is_of(table) && known.has_all(epoch.number, names);
        let epoch = match current {
            true => epoch,
            false => self.note_slowly(table, newest, names, known, journal),
        };
        let closing = match self.open.load(Ordering::Acquire) {
            true => self.closing(),
            false => Vec::new(),
        };
        NameNote {
            epoch,
            closing,
            unsynced: self.syncs.unsynced(),
        }
    }

    /// Records that the noted record is durable at this position, and waits until the fences are, too, by
    /// which it keeps its order.
    pub(crate) async fn durable(&self, noted: NameNote, position: u64) {
        let NameNote {
            epoch,
            closing,
            unsynced,
        } = noted;
        drop(epoch);
        for fence in closing {
            if fence.close(position) {
                self.name_table().keep_fence(&fence);
            }
        }
        if let Some(number) = unsynced {
            self.syncs.reach(number).await;
        }
    }

    /// Waits until the fences are durable by which a noted record keeps its order. Blocks for as long as the
    /// disk takes.
    #[allow(clippy::disallowed_methods, reason = "a replay has a thread of its own")]
    pub(crate) fn wait_for_fences(&self, noted: &NameNote) {
        while noted.unsynced.is_some_and(|number| !self.syncs.has(number)) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Checks whether names lead elsewhere in a newer topology.
    pub(crate) fn look(
        &self,
        table: &Arc<RouteTable>,
        newest: impl FnOnce() -> Arc<RouteTable>,
        journal: &Journal,
    ) {
        if !self.epoch.load().is_of(table) {
            let mut name_table = self.name_table();
            self.publish(&mut name_table, &newest(), journal);
        }
    }

    #[cold]
    fn note_slowly(
        &self,
        table: &Arc<RouteTable>,
        newest: impl FnOnce() -> Arc<RouteTable>,
        names: &[u32],
        known: &mut NamesOfCore,
        journal: &Journal,
    ) -> Arc<Epoch> {
        let mut name_table = self.name_table();
        // `newest` is called behind the lock, so that nobody goes back to an older topology.
        let newest = &newest();
        self.publish(&mut name_table, newest, journal);
        let before = self.epoch.load_full();
        let mut fences = Vec::new();
        for number in names {
            let name = table.name_of(*number);
            let Some(target) = table.laned(name).and_then(NameTarget::of) else {
                continue;
            };
            match name_table.targets.get(name) {
                Some(there) if *there == target => {}
                // The request was planned before the name came to lead elsewhere, and comes behind requests
                // that were not.
                Some(there) => {
                    let lanes = (there.lanes(self.lanes), target.lanes(self.lanes));
                    let mut fence = name_table.fence(journal.status().end, lanes, None);
                    fence.moved.push((name.to_owned(), target.index));
                    fences.push(fence);
                }
                None => {
                    if name_table.unknown_before > 0 {
                        fences.extend(self.unknown(&mut name_table, &target, journal));
                    }
                    name_table.insert(name, target);
                }
            }
        }
        let stale = !before.is_of(table);
        let now = match fences.is_empty() {
            true => Arc::clone(&before),
            false => self.begin(&mut name_table, newest, fences, journal),
        };
        if !stale {
            known.learn(now.number, names);
        }
        if stale { before } else { now }
    }

    /// Compares all names with a new topology.
    fn publish(&self, name_table: &mut NameTable, newest: &Arc<RouteTable>, journal: &Journal) {
        if self.epoch.load().is_of(newest) {
            return;
        }
        let status = journal.status();
        let mut moved: BTreeMap<String, Moved> = BTreeMap::new();
        let earlier = self.fences.load();
        let (mut gone, mut back) = (Vec::new(), Vec::new());
        for (name, target) in &mut name_table.targets {
            let Some(laned) = newest.laned(name) else {
                gone.push(name.clone());
                continue;
            };
            if target.is(laned) {
                continue;
            }
            let Some(now) = NameTarget::of(laned) else {
                continue;
            };
            let mut past = target.lanes(self.lanes);
            // Documents that have yet to go where the name led until now come here too.
            for fence in earlier
                .iter()
                .filter(|fence| fence.moved.iter().any(|(moved, _)| moved == name))
            {
                past.add(&fence.past);
            }
            let entry = moved.entry(now.index.clone()).or_default();
            entry.of.add(&now.lanes(self.lanes));
            entry.past.add(&past);
            entry.names.push((name.clone(), target.index.clone()));
            *target = now;
            back.push(name.clone());
        }
        for name in gone {
            name_table.gone.entry(name).or_insert(status.end);
        }
        name_table.forget(newest, needed_from(&self.parked, status.start));
        let mut fences = Vec::new();
        for (_, moved) in moved {
            let mut fence = name_table.fence(status.end, (moved.of, moved.past), None);
            fence.moved = moved.names;
            fences.push(fence);
        }
        self.begin(name_table, newest, fences, journal);
        // The names are written once the fences are synced: whatever ends between the two, what starts next
        // finds the names still with their old targets, or the fences.
        for name in back {
            name_table.keep_moved(&name);
        }
    }

    /// Makes a fence for a name that is used for the first time since a start that did not know all names:
    /// queued documents may have the name.
    fn unknown(&self, name_table: &mut NameTable, target: &NameTarget, journal: &Journal) -> Option<Fence> {
        let (status, groups) = journal.accounts();
        let lanes = groups.iter().flat_map(|group| group.lanes.iter().zip(0..));
        let pending =
            lanes.filter(|(lane, _)| lane.position < name_table.unknown_before && lane.done < lane.accepted);
        let past: LaneSet = pending.map(|(_, lane)| lane).collect();
        if past == LaneSet::default() {
            if status.start >= name_table.unknown_before {
                name_table.unknown_before = 0;
            }
            return None;
        }
        let (of, end) = (target.lanes(self.lanes), name_table.unknown_before);
        Some(name_table.fence(status.end, (of, past), Some(end)))
    }

    /// Begins an epoch, with these fences besides those that are still of use.
    fn begin(
        &self,
        name_table: &mut NameTable,
        table: &Arc<RouteTable>,
        made: Vec<Fence>,
        journal: &Journal,
    ) -> Arc<Epoch> {
        let needed_from = needed_from(&self.parked, journal.status().start);
        let before = self.epoch.load_full();
        name_table.earlier.retain(|epoch| epoch.strong_count() > 0);
        name_table.earlier.push(Arc::downgrade(&before));
        let made: Vec<Arc<Fence>> = made.into_iter().map(Arc::new).collect();
        for fence in &made {
            name_table.keep_fence(fence);
            if fence.end().is_none() {
                self.syncs.want();
                name_table
                    .holders
                    .push((Arc::clone(fence), name_table.earlier.clone()));
                self.open.store(true, Ordering::Release);
            }
        }
        let known = self.fences.load();
        let useful = known
            .iter()
            .filter(|fence| fence.end().is_none_or(|end| end > needed_from));
        let mut fences: Vec<_> = useful.cloned().chain(made).collect();
        if fences.len() > FENCES_MAX {
            let (closed, open): (Vec<_>, Vec<_>) =
                fences.into_iter().partition(|fence| fence.end().is_some());
            let (old, new) = closed.split_at(closed.len().saturating_sub(FENCES_MAX / 2));
            fences = joined(old)
                .into_iter()
                .chain(new.iter().cloned())
                .chain(open)
                .collect();
        }
        name_table.tidy(fences.len());
        // Every reader of documents that are accepted from now on must see the fences.
        self.fences.store(Arc::new(fences));
        let now = Arc::new(Epoch {
            number: before.number + 1,
            table: Some(Arc::clone(table)),
        });
        self.epoch.store(Arc::clone(&now));
        self.sync_soon(name_table);
        now
    }

    /// Returns the fences that can be closed: nothing more can come before them than is handed over by now.
    #[cold]
    fn closing(&self) -> Vec<Arc<Fence>> {
        let mut name_table = self.name_table();
        name_table.holders.retain(|(fence, _)| fence.end().is_none());
        self.open.store(!name_table.holders.is_empty(), Ordering::Release);
        let closing = name_table
            .holders
            .iter()
            .filter(|(_, holders)| holders.iter().all(|epoch| epoch.strong_count() == 0));
        closing.map(|(fence, _)| Arc::clone(fence)).collect()
    }

    fn name_table(&self) -> MutexGuard<'_, NameTable> {
        self.name_table.lock()
    }
}

/// Returns the position from which on documents are in the log, which begins at `start`, or parked.
fn needed_from(parked: &ParkedOfQueue, start: u64) -> u64 {
    parked.oldest_waiting().map_or(start, |oldest| oldest.min(start))
}

/// Joins fences into few that hold back everything that any of them does. A fence that names nothing is about
/// every name, so it is not joined with those that name some.
fn joined(fences: &[Arc<Fence>]) -> Vec<Arc<Fence>> {
    let (of_any_name, of_some): (Vec<_>, Vec<_>) =
        fences.iter().cloned().partition(|fence| fence.moved.is_empty());
    [of_any_name, of_some]
        .iter()
        .filter_map(|alike| in_one(alike))
        .collect()
}

fn in_one(fences: &[Arc<Fence>]) -> Option<Arc<Fence>> {
    let (mut of, mut past, mut moved, mut end) =
        (LaneSet::default(), LaneSet::default(), Vec::new(), Some(0));
    for fence in fences {
        of.add(&fence.of);
        past.add(&fence.past);
        moved.extend(fence.moved.iter().cloned());
        end = end.zip(fence.end()).map(|(one, other)| one.max(other));
    }
    let first = fences.first()?;
    let low = fences.iter().map(|fence| fence.low).min().unwrap_or_default();
    let mut all = Fence::new(first.number, low, (of, past), end);
    all.moved = moved;
    Some(Arc::new(all))
}

// === impl Epoch ===

impl Epoch {
    fn is_of(&self, table: &Arc<RouteTable>) -> bool {
        self.table.as_ref().is_some_and(|own| Arc::ptr_eq(own, table))
    }
}

// === impl NameTable ===

impl NameTable {
    fn fence(&mut self, low: u64, lanes: (LaneSet, LaneSet), end: Option<u64>) -> Fence {
        self.fences_made += 1;
        Fence::new(self.fences_made, low, lanes, end)
    }

    fn insert(&mut self, name: &str, target: NameTarget) {
        self.kept.name(name, &target);
        self.targets.insert(name.to_owned(), target);
    }

    fn keep_moved(&mut self, name: &str) {
        if let Some(target) = self.targets.get(name) {
            self.kept.moved(name, target);
        }
    }

    fn keep_fence(&mut self, fence: &Fence) {
        self.kept.fence(fence);
    }

    /// Has the file written anew once most of it is of no use.
    fn tidy(&mut self, fences: usize) {
        self.is_long |= self.kept.lines() >= LINES_MIN + 4 * (self.targets.len() + fences);
    }

    /// Forgets names that the cluster no longer has and that no document in the log or among the parked ones,
    /// which begin at `start`, can have.
    fn forget(&mut self, newest: &RouteTable, start: u64) {
        let targets = &mut self.targets;
        self.gone.retain(|name, since| {
            let back = newest.laned(name).is_some();
            let forgotten = !back && *since < start;
            if forgotten {
                targets.remove(name);
            }
            !back && !forgotten
        });
    }
}

/// The number of fences that are kept one by one; older ones become one.
const FENCES_MAX: usize = 256;
/// The file is not written anew for fewer lines.
const LINES_MIN: usize = 4_096;

#[cfg(test)]
#[path = "whereabouts/tests.rs"]
mod tests;
