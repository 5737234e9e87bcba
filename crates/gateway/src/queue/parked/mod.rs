//! Operations that wait for something that concerns only their index, their request or themselves, so that
//! their lane goes on with everything else. They are on disk with the reason, and are tried again until they
//! are indexed or dead letters.
//!
//! An entry is put on disk before its batch is committed, and counts from the commit on, as a dead letter
//! does. Later operations for the same index, request or document go behind the entry without being sent, so
//! writes to one document keep their order. A task of the delivery's thread ([`crate::delivery`]) tries the
//! first operations of each key again; operations leave the state below once their fate is on disk.
//!
//! If the queue is in Kafka, any gateway may have a lane next, so "on disk" is a topic there ([`topic`]): a
//! gateway that gets a lane reads its parked operations before it delivers ([`take_over`]).

mod bound;
mod ends;
mod error;
mod failure_row;
mod find;
mod flight;
mod folders;
mod gather;
mod history;
mod key;
mod led_to;
mod lines;
mod loading;
mod putting;
mod state;
mod store;
mod take_over;
mod topic;

use std::collections::BTreeMap;
#[cfg(test)]
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cluster::Snapshot;
use log::{AppendError, Options};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::queue::unconfirmed_letters::UnconfirmedLetters;

pub(crate) use ends::{Ends, LetterFate};
pub(crate) use error::ParkedError;
pub(crate) use failure_row::{FailureRow, Unexplained};
pub(crate) use find::{ParkedFound, ParkedSought};
pub(crate) use flight::{Flight, FlightOp};
pub(crate) use key::{OperationNames, ParkKey, Scope, ShardOf, behind_other_lane, behind_other_line};
pub(crate) use led_to::NameLed;
#[cfg(test)]
use lines::Lines;
use putting::Putting;
#[cfg(test)]
use state::EntryPiece;
#[cfg(test)]
use state::Standing;
pub(crate) use state::{
    CATCHES_UP, Holder, HolderQuery, LEFT_MAX, MORE_TURNS_MAX, NextPieces, Order, ParkedState, Picked, Tried,
};
use state::{Dying, NamesLed};
use store::Bound;
use store::Resolved;
pub(crate) use store::{ParkedEntry, RefusalReason, Store};
pub(crate) use topic::{GoneEntry, LanesBegun, ParkedTopic};

/// The parked operations of one queue and consumer group.
pub(crate) struct Parked {
    folder: PathBuf,
    options: Mutex<Options>,
    /// Made when the first operation is parked.
    store: Mutex<Option<Arc<Store>>>,
    state: Mutex<ParkedState>,
    /// Whether anything is parked: ordinary batches look at nothing else.
    pub(crate) any: AtomicBool,
    /// Notified when there may be something to try.
    pub(crate) changed: Notify,
    /// The operations that are becoming dead letters.
    pub(crate) unconfirmed_letters: Arc<UnconfirmedLetters>,
    putting: Putting,
    /// Whether operations of any group may wait for room among the dead letters.
    letters_wait: Arc<AtomicBool>,
    /// The topic that the next owner of a lane reads, if the queue is in Kafka: the store above is then a
    /// copy of it.
    topic: Option<Arc<ParkedTopic>>,
    /// Held while lanes are taken over.
    pub(crate) taking_over: Mutex<()>,
}

/// The parked operations of one queue, by consumer group.
pub(crate) struct ParkedOfQueue {
    folder: PathBuf,
    options: Mutex<Options>,
    groups: Mutex<BTreeMap<String, Arc<Parked>>>,
    letters_wait: Arc<AtomicBool>,
    /// Whether each group has a topic, if the brokers let it have one.
    in_kafka: bool,
}

/// Why operations were not parked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotParked {
    /// As many operations are parked as may be.
    #[error("no more operations can be parked: {0}")]
    Full(String),
    /// The disk does not take the operations now.
    #[error("operations cannot be parked: {0}")]
    Disk(#[from] ParkedError),
}

// === impl ParkedOfQueue ===

impl ParkedOfQueue {
    /// Opens the stores that are there. `committed` says how far each group is, lane by lane.
    pub(crate) fn open(
        folder: PathBuf,
        options: Options,
        committed: &[(String, Vec<u64>)],
    ) -> Result<Self, ParkedError> {
        let mut groups = BTreeMap::new();
        let letters_wait = Arc::new(AtomicBool::default());
        for (name, of_group) in folders::of_groups(&folder)? {
            let lanes = committed.iter().find(|(group, _)| *group == name);
            let lanes = lanes.map(|(_, lanes)| lanes.as_slice()).unwrap_or_default();
            let parked = Parked::new(of_group, options.clone(), Arc::clone(&letters_wait), None);
            parked.load(lanes)?;
            groups.insert(name, Arc::new(parked));
        }
        Ok(Self {
            folder,
            options: Mutex::new(options),
            groups: Mutex::new(groups),
            letters_wait,
            in_kafka: false,
        })
    }

    /// Begins with nothing, for a queue in Kafka. The stores in the folder are of lanes that may be others'
    /// by now.
    pub(crate) fn in_kafka(folder: PathBuf, options: Options) -> Self {
        Self {
            folder,
            options: Mutex::new(options),
            groups: Mutex::default(),
            letters_wait: Arc::default(),
            in_kafka: true,
        }
    }

    /// Returns the parked operations of a group; `None` for a group in Kafka that has no topic.
    pub(crate) fn group(&self, name: &str) -> Option<Arc<Parked>> {
        let known = self.groups.lock().get(name).cloned();
        match known {
            None if !self.in_kafka => Some(self.add(name, None)),
            known => known,
        }
    }

    /// Adds a group whose operations are parked in a topic, too.
    pub(crate) fn add_in_topic(&self, name: &str, topic: ParkedTopic) -> Arc<Parked> {
        self.add(name, Some(Arc::new(topic)))
    }

    fn add(&self, name: &str, topic: Option<Arc<ParkedTopic>>) -> Arc<Parked> {
        let mut groups = self.groups.lock();
        let parked = groups.entry(name.to_owned()).or_insert_with(|| {
            let options = self.options.lock().clone();
            let letters_wait = Arc::clone(&self.letters_wait);
            Arc::new(Parked::new(self.folder.join(name), options, letters_wait, topic))
        });
        Arc::clone(parked)
    }

    /// Returns the position of the oldest operation that any group has parked and may still execute, if there
    /// is one.
    pub(crate) fn oldest_waiting(&self) -> Option<u64> {
        let groups = self.groups.lock();
        groups
            .values()
            .filter_map(|parked| parked.state().oldest_waiting())
            .min()
    }

    /// Parks an operation of the group `g`, for tests that need no store.
    #[cfg(test)]
    pub(crate) fn park_sample(&self, key: ParkKey, position: u64) {
        let entry = ParkedEntry {
            key: key.clone(),
            origins: vec![(position, 1)],
            ops: vec![(0, 0)],
            documents: vec![[1; 2]],
            ..ParkedEntry::sample()
        };
        let piece = EntryPiece::new(position, 100, &entry, None, Standing::Ready);
        let group = self.group("g").expect("a group on disk");
        group.state().insert(key, &entry.names, "", piece);
    }

    /// Returns that name of a request whose refused operations find no more room anywhere, and how many bytes
    /// these have.
    pub(crate) fn overfull<'n>(
        &self,
        names: impl Iterator<Item = &'n str> + Clone,
    ) -> Option<(&'n str, u64)> {
        if !self.letters_wait.load(Ordering::Relaxed) {
            return None;
        }
        let mut any = false;
        let over = self.all().into_iter().find_map(|(_, parked)| {
            let (used, most) = parked.opened()?.bytes();
            let state = parked.state();
            any |= state.has_letters();
            state.overfull(names.clone(), used, most)
        });
        if over.is_none() && !any {
            self.letters_wait.store(false, Ordering::Relaxed);
        }
        over
    }

    pub(crate) fn all(&self) -> Vec<(String, Arc<Parked>)> {
        let groups = self.groups.lock();
        let all = groups
            .iter()
            .map(|(name, parked)| (name.clone(), Arc::clone(parked)));
        all.collect()
    }

    /// Takes over the settings of how much there may be.
    pub(crate) fn adjust(&self, options: &Options) -> Result<(), log::OpenError> {
        *self.options.lock() = options.clone();
        for (_, parked) in self.all() {
            *parked.options.lock() = options.clone();
            if let Some(store) = &*parked.store.lock() {
                store.adjust(options)?;
            }
        }
        Ok(())
    }

    /// Forgets a group of which nothing is parked any more, and says so in the log if its folder is still
    /// there.
    pub(crate) fn forget(&self, name: &str) {
        if let Err(error) = self.remove(name) {
            tracing::error!(group = name, %error, "the folder of a removed consumer group is still there");
        }
    }

    /// Removes what is there of a group of which nothing is parked any more. If it fails, it can be called
    /// again.
    pub(crate) fn remove(&self, name: &str) -> Result<(), ParkedError> {
        folders::make_way(&self.folder, name)?;
        {
            // Whoever asks for a group of this name finds the folder as it was, or none.
            let mut groups = self.groups.lock();
            if let Some(parked) = groups.remove(name) {
                parked.close();
            }
            folders::set_aside(&self.folder, name)?;
        }
        folders::remove_set_aside(&self.folder, name)
    }

    pub(crate) fn close(&self) {
        for (_, parked) in self.all() {
            parked.close();
        }
    }
}

// === impl Parked ===

impl Parked {
    /// Makes what has parked nothing yet in a folder, for tests.
    #[cfg(test)]
    pub(crate) fn sample(folder: &Path) -> Self {
        Self::new(folder.to_owned(), Options::default(), Arc::default(), None)
    }

    fn new(
        folder: PathBuf,
        options: Options,
        letters_wait: Arc<AtomicBool>,
        topic: Option<Arc<ParkedTopic>>,
    ) -> Self {
        Self {
            folder,
            options: Mutex::new(options),
            store: Mutex::default(),
            state: Mutex::default(),
            any: AtomicBool::new(false),
            changed: Notify::new(),
            unconfirmed_letters: Arc::default(),
            putting: Putting::default(),
            letters_wait,
            topic,
            taking_over: Mutex::default(),
        }
    }

    pub(crate) fn open_store(&self) -> Result<Arc<Store>, ParkedError> {
        let mut store = self.store.lock();
        if let Some(store) = &*store {
            return Ok(Arc::clone(store));
        }
        let opened = Arc::new(Store::open(&self.folder, self.options.lock().clone())?);
        *store = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Returns the store, if anything was ever parked.
    pub(crate) fn opened(&self) -> Option<Arc<Store>> {
        self.store.lock().clone()
    }

    fn close(&self) {
        if let Some(topic) = &self.topic {
            topic.close();
        }
        if let Some(store) = &*self.store.lock() {
            store.close();
        }
    }

    /// Whether anything is parked.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Locks the state. The lock is held while the accounts are read, so that all numbers are of one instant.
    pub(crate) fn state(&self) -> MutexGuard<'_, ParkedState> {
        self.state.lock()
    }

    /// Locks the state after operations have gone over into the lines of the indices that their names lead to
    /// by a topology ([`ParkedState::follow_topology`]). `led` returns the indices that a name has led to
    /// since a request, which is named by its position and its time.
    pub(crate) fn state_by(
        &self,
        snapshot: &Snapshot,
        own: Option<&ParkKey>,
        led: impl Fn(&str, (u64, u64)) -> Vec<String>,
    ) -> MutexGuard<'_, ParkedState> {
        // Where names have led is behind a lock of its own, which others hold when they ask for this one.
        let names = self.state().written_names(snapshot.generation);
        let led = names.into_iter().map(|(name, request)| {
            let indices = led(&name, request);
            (name, indices)
        });
        let led: NamesLed = led.collect();
        let mut state = self.state();
        state.follow_topology(snapshot, own, &led);
        state
    }

    /// Returns the bytes on disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.store.lock().as_ref().map_or(0, |store| store.bytes().0)
    }

    /// Returns how many bytes an entry may have with its lines, if there is a bound.
    pub(crate) fn record_bytes_max(&self) -> Option<usize> {
        self.topic.as_ref().map(|topic| topic.record_bytes_max())
    }

    /// Parks operations of a batch that is not committed yet; they are durable, and in force, when this
    /// returns. If it fails, `copy` says where the operations are on this disk already.
    pub(crate) async fn put(
        &self,
        entry: ParkedEntry,
        lines: &[u8],
        doubt: bool,
        copy: &mut Option<(u64, u64)>,
    ) -> Result<(), NotParked> {
        let documents = match entry.key.holds_documents() {
            true => entry.documents.len(),
            false => 0,
        };
        let bound = match entry.key.is_letters() {
            true => Bound::None,
            false => {
                let state = self.state();
                // Operations that are in the topic, perhaps, cannot have found no room.
                if let Some(bound) = state.bound_before(documents).filter(|_| copy.is_none()) {
                    return Err(NotParked::Full(bound.to_string()));
                }
                Bound::Share(state.bytes_of(&entry.key))
            }
        };
        let store = self.open_store()?;
        let _on_its_way = self.putting.begin(copy.map_or_else(|| store.end(), |(at, _)| at));
        let (at, bytes) = match *copy {
            Some(copy) => copy,
            None => *copy.insert(store.put(&entry, lines, bound).await?),
        };
        if let Some(topic) = &self.topic {
            topic.put(at, &entry, lines).await?;
        }
        if bound == Bound::None {
            self.letters_wait.store(true, Ordering::Relaxed);
        }
        self.state().insert_put(&entry, (at, bytes), doubt);
        self.any.store(true, Ordering::Release);
        Ok(())
    }

    /// Records that a request is under way with the operations that were just put at a place, for a batch of
    /// a lane that is not committed yet.
    pub(crate) fn are_under_way(&self, lane: u32, at: u64, flight: &Arc<Flight>) {
        self.state().are_under_way(lane, at, flight);
    }

    /// Tries the lines again at once that waited for the end of a request.
    pub(crate) fn landed(&self, flight: &Arc<Flight>) {
        self.state().landed(flight);
        self.changed.notify_one();
    }

    /// Whether there is plenty of room: twice as much as these bytes, and for half of all entries.
    pub(crate) fn has_plenty(&self, bytes: u64) -> bool {
        let closed = || (0, self.options.lock().quota_bytes);
        let (used, most) = self.opened().map_or_else(closed, |store| store.bytes());
        self.state().has_plenty() && used.saturating_add(2 * bytes) < most
    }

    /// Commits a lane's batch: its parked operations count from this moment on.
    pub(crate) fn commit<E>(&self, lane: u32, commit: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        if !self.any() {
            return commit();
        }
        let mut state = self.state();
        if let Some(topic) = &self.topic {
            // Without this, other gateways take a committed offset for one before which nothing was parked.
            let (parked, dead) = state.of_lane(lane);
            topic.tell_when_done(lane, parked + state.will_count(lane), dead);
        }
        commit()?;
        if state.count(lane) {
            self.changed.notify_one();
        }
        Ok(())
    }

    /// Records durably that operations are gone. Returns `false` if the lanes may have been others' by then:
    /// the letters of the operations are in doubt until somebody asks ([`Parked::ends_of`]).
    pub(crate) async fn resolve(&self, gone: Vec<GoneEntry>) -> Result<bool, ParkedError> {
        let dead = self.state().will_die(&gone);
        let result = match &self.topic {
            Some(topic) => topic.resolve(&gone, &dead.by_lane).await,
            None => self.resolve_on_disk(&gone, &dead).await.map(|()| true),
        };
        if result.is_err() {
            self.state().will_not_die(&gone);
        }
        result
    }

    async fn resolve_on_disk(&self, gone: &[GoneEntry], dying: &Dying) -> Result<(), ParkedError> {
        let store = self.open_store()?;
        let unreadable = self.state().unreadable();
        let resolved = resolved(gone, &unreadable, dying);
        let at = loop {
            match store.resolve(&resolved).await {
                Ok(at) => break at,
                // The operations are done; tried again, they would be done twice.
                Err(error @ (AppendError::Full(_) | AppendError::Io(_))) => {
                    wire::rationed!(
                        tracing::warn,
                        why = error.to_string(),
                        "that parked operations are done cannot be written down yet; their key waits for it"
                    );
                    tokio::time::sleep(ROOM_AGAIN).await;
                }
                Err(error) => return Err(error.into()),
            }
        };
        let mut state = self.state();
        state.last_resolved = at;
        state.unreadable_gone(&unreadable);
        Ok(())
    }

    /// Writes down that the operations of a piece are lost, because the disk has damaged their record;
    /// returns how many those are.
    pub(crate) async fn lose(&self, key: &ParkKey, order: Order) -> Result<u64, ParkedError> {
        let damaged = self.state().damaged(key, order);
        let Some(damaged) = damaged else {
            return Ok(0);
        };
        let documents = damaged.lost;
        self.resolve(vec![damaged]).await?;
        let mut state = self.state();
        state.lose(key, order);
        self.any.store(!state.is_empty(), Ordering::Release);
        Ok(documents)
    }

    /// Tells the topic how many documents of these lanes are parked, and how many have died.
    pub(crate) fn tell(&self, state: &ParkedState, lanes: impl IntoIterator<Item = u32>) {
        if let Some(topic) = &self.topic {
            for lane in lanes {
                let (parked, dead) = state.of_lane(lane);
                topic.tell(lane, parked, dead);
            }
        }
    }

    /// Gives back the room of records that are no longer needed.
    pub(crate) fn release_room(&self) {
        let Some(store) = self.opened() else { return };
        let (used, most) = store.bytes();
        if used > RELEASE_BYTES.min(most / 2) {
            store.keep_from(self.needed_from(&store));
        }
        if self.topic.as_ref().is_some_and(|topic| topic.is_untidy()) {
            self.tidy();
        }
    }

    /// Returns the place before which nothing in the store is needed. Lanes park meanwhile: an entry is
    /// behind the end that is read first, or on its way, or known to memory by the time that memory is read
    /// last.
    fn needed_from(&self, store: &Store) -> u64 {
        let end = store.end();
        let on_their_way = self.putting.oldest();
        self.state().oldest().min(on_their_way).min(end)
    }

    fn tidy(&self) {
        let live = self.state().pieces().map(|piece| piece.at).collect();
        if let Some(topic) = &self.topic {
            topic.tidy(&live);
        }
    }

    /// Returns the number by which dead letters know the entry at a place.
    pub(crate) fn number_of(&self, at: u64) -> u64 {
        self.topic.as_ref().map_or(at, |topic| topic.number_of(at))
    }

    /// Drops the parked operations of batches that were not committed: these are delivered again. To be
    /// called only while nothing is under way.
    pub(crate) fn drop_unsettled(&self) -> Result<(), ParkedError> {
        if self.topic.is_some() {
            // The entries that count are found when lanes come.
            self.let_go();
            return Ok(());
        }
        self.drop_some(None, 0)?;
        self.state().doubt_all();
        Ok(())
    }

    /// Drops the same of one lane, of which nothing is under way while others may be; only entries from a
    /// place on.
    pub(crate) fn drop_unsettled_of(&self, lane: u32, since: u64) -> Result<(), ParkedError> {
        self.drop_some(Some(lane), since)
    }

    /// Returns the place of the next entry.
    pub(crate) fn end(&self) -> u64 {
        self.opened().map_or(0, |store| store.end())
    }

    fn drop_some(&self, lane: Option<u32>, since: u64) -> Result<(), ParkedError> {
        if self.topic.is_none()
            && let Some(store) = self.opened()
        {
            // An entry whose write failed may be on disk, and nobody knows it here: after a restart it would
            // be executed over what is delivered until then.
            store.is_sound()?;
        }
        let mut state = self.state();
        let unsettled = state.unsettled(lane, since);
        if !unsettled.is_empty() {
            let dead = state.will_die(&unsettled);
            if let Some(topic) = &self.topic {
                topic.resolve_blocking(&unsettled, &dead.by_lane)?;
            } else if let Some(store) = self.store.lock().clone() {
                let unreadable = state.unreadable();
                let resolved = resolved(&unsettled, &unreadable, &dead);
                state.last_resolved = store.resolve_blocking(&resolved)?;
                state.unreadable_gone(&unreadable);
            }
            state.drop_unsettled(lane, since);
        }
        self.any.store(!state.is_empty(), Ordering::Release);
        Ok(())
    }

    /// Makes all that is parked count, wherever the group's cursors are set. To be called only while nothing
    /// is under way, and after [`Parked::drop_unsettled`].
    pub(crate) fn settle(&self) -> Result<(), AppendError> {
        if self.topic.is_some() {
            // Records behind the place that the group is set to are delivered again, and are not parked then.
            return Ok(());
        }
        let store = self.store.lock().clone();
        store.map_or(Ok(()), |store| store.settle())
    }

    /// Lets the first operations of this key (of all keys, if none is named) be tried at once; returns how
    /// many keys that are.
    pub(crate) fn release(&self, key: Option<&str>) -> usize {
        let released = self.state().release(key);
        self.changed.notify_one();
        released
    }

    /// Makes dead letters of this key's operations (of all keys', if none is named) instead of trying them
    /// again; returns how many documents that are.
    pub(crate) fn give_up(&self, key: Option<&str>) -> u64 {
        let documents = self.state().give_up(key);
        self.changed.notify_one();
        documents
    }

    /// Whether an operation of an entry is still parked. The entry is named by the number by which dead
    /// letters know it.
    pub(crate) fn holds(&self, number: u64, op: u32) -> bool {
        self.at_of(number).is_some_and(|at| self.state().has(at, op))
    }

    /// Returns the place of an entry, from the number by which dead letters know it.
    pub(crate) fn at_of(&self, number: u64) -> Option<u64> {
        match &self.topic {
            Some(topic) => topic.at_of(number),
            None => Some(number),
        }
    }
}

/// Returns the record that says that operations are gone, and those of damaged records too.
fn resolved(gone: &[GoneEntry], unreadable: &[u64], dying: &Dying) -> Resolved {
    let gone = gone.iter().map(|one| (one.at, one.ops.clone()));
    Resolved {
        ops: gone.chain(unreadable.iter().map(|at| (*at, None))).collect(),
        dead: dying.all,
        lost: dying.lost,
    }
}

/// Makes the state of entries that are read again, each with its place and its operations that are left.
#[cfg(test)]
pub(crate) fn read_again(entries: &[(u64, ParkedEntry, BTreeSet<u32>)]) -> ParkedState {
    let lines = Lines::of(entries.iter().map(|(_, entry, left)| (entry, left.iter())));
    let mut state = ParkedState::default();
    for (at, entry, left) in entries {
        state.insert_again(&lines, entry, left, (*at, 100), Standing::Ready);
    }
    state
}

/// Returns the folder of a queue's parked operations.
pub(crate) fn folder_of(data: &Path, queue: &str) -> PathBuf {
    data.join("parked").join(queue)
}

/// Returns the folder of the copy of a Kafka queue's parked operations.
pub(crate) fn copies_of(data: &Path, queue: &str) -> PathBuf {
    data.join("parked_copies").join(queue)
}

/// The wait before the next try of a key whose condition has passed for a while.
pub(crate) const SOON: Duration = Duration::from_millis(20);
/// The interval between two tries to record that operations are gone, while the disk does not take that.
const ROOM_AGAIN: Duration = Duration::from_secs(1);
/// The bytes on disk from which those that are no longer needed are given back; a store that may have little
/// gives them back from half of that on.
const RELEASE_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_may_have_little_gives_back_what_is_gone_before_it_is_full() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            quota_bytes: 256 << 10,
            segment_bytes: 32 << 10,
            free_bytes_min: 0,
            ..Options::default()
        };
        let parked = Parked::new(folder.path().to_owned(), options, Arc::default(), None);
        let store = parked.open_store().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let (entry, lines) = (ParkedEntry::sample(), [b'x'; 8 << 10]);
        let filled = async || {
            while let Ok((at, _)) = store.put(&entry, &lines, Bound::Quota).await {
                let gone = GoneEntry {
                    at,
                    lane: 0,
                    ops: None,
                    dead: 0,
                    lost: 0,
                };
                parked.resolve(vec![gone]).await.unwrap();
            }
        };
        let has_room = async || {
            let (used, most) = store.bytes();
            assert!(most < RELEASE_BYTES);
            // The log deletes segments when it comes to that.
            while store.bytes().0 > used / 2 {
                parked.release_room();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        runtime.block_on(filled());
        let waited =
            runtime.block_on(async { tokio::time::timeout(Duration::from_secs(30), has_room()).await });
        waited.expect("what is gone leaves room");
    }

    #[test]
    fn delivery_rests_while_an_entry_may_be_on_disk_that_nobody_knows() {
        let folder = tempfile::tempdir().unwrap();
        let parked = Parked::sample(folder.path());
        parked.drop_unsettled().unwrap();
        *parked.store.lock() = Some(Arc::new(Store::open_on_failing_disk(folder.path())));
        parked.drop_unsettled().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let put = runtime.block_on(parked.put(ParkedEntry::sample(), b"line", false, &mut None));
        assert!(matches!(put, Err(NotParked::Disk(_))), "{put:?}");
        for dropped in [parked.drop_unsettled(), parked.drop_unsettled_of(0, 0)] {
            assert!(matches!(
                dropped,
                Err(ParkedError::Append(AppendError::Poisoned(_)))
            ));
        }
        parked.close();
    }
}
