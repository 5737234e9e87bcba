//! Keeps parked operations in memory: by key, in the order in which they go out.

mod document_tries;
mod flights;
mod holder;
mod index_lines;
mod joining;
mod lanes;
mod letters;
mod losses;
mod picking;
mod places;
mod shown;
#[cfg(test)]
mod tests;
mod tried;
mod turns;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use cluster::Snapshot;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::FailureRow;
use super::bound::{DOCUMENTS_MAX, OPERATIONS_MAX, PIECES_MAX, ParkedBound};
use super::flight::Flight;
use super::key::ParkKey;
use super::lines::{Behind, Lines};
use super::store::ParkedEntry;
use super::topic::GoneEntry;
use crate::clock::{steady_ms, steady_of};
use document_tries::DocumentTries;
pub(crate) use document_tries::{LEFT_MAX, MORE_TURNS_MAX};
pub(crate) use flights::CATCHES_UP;
pub(crate) use holder::{Holder, HolderQuery};
pub(crate) use index_lines::NamesLed;
use index_lines::{IndexLine, IndexOf, index_in, pieces_of};
pub(crate) use lanes::Dying;
use lanes::OfLane;
pub(crate) use picking::{NextPieces, Picked};
use places::{DocumentPlace, DocumentPlaces};
pub(crate) use tried::Tried;

/// The order in which pieces go out: by the first operation's request and its place there, then by the
/// piece's record.
pub(crate) type Order = (u64, u32, u64);

/// All that is parked of a group.
#[derive(Default)]
pub(crate) struct ParkedState {
    keys: BTreeMap<ParkKey, ParkedKey>,
    /// The keys that hold a name.
    names: HashMap<Box<str>, Vec<ParkKey>>,
    /// The keys that hold a document, each with the number of their operations on it.
    documents: HashMap<u64, Vec<(ParkKey, u32)>>,
    /// The operations whose documents are known one by one.
    known: usize,
    places: DocumentPlaces,
    /// Of documents that wait by themselves, the operations that have gone over into a line.
    joined_lines: HashMap<u64, Vec<Order>>,
    document_tries: DocumentTries,
    /// By lane, the pieces that its batch under way has parked.
    unsettled: HashMap<u32, Vec<(ParkKey, Order)>>,
    /// The generation of the cluster's topology that the names were looked up in.
    followed: Option<u64>,
    /// The same of the names of operations in lines for indices, if each is in the line of its index.
    followed_lines: Option<u64>,
    /// Names of such operations that were parked since: it is not known where these have led.
    unasked: BTreeSet<Box<str>>,
    pieces: usize,
    /// Parked documents whose batch is committed.
    pub(crate) counted: u64,
    /// Parked documents that have become dead letters, ever.
    pub(crate) dead: u64,
    /// Parked documents that the disk has lost, ever.
    pub(crate) lost: u64,
    /// `lost`, and those whose loss is being written down.
    losing: u64,
    /// The places of damaged records whose operations count as lost, which is not written down yet.
    unreadable: BTreeSet<u64>,
    /// `counted` and `dead`, lane by lane.
    lanes: HashMap<u32, OfLane>,
    /// The place of the last record that resolves entries.
    pub(crate) last_resolved: u64,
}

/// The pieces of one key, and how its tries stand.
struct ParkedKey {
    names: BTreeSet<Box<str>>,
    /// The names of its pieces, if it is the line of an index.
    line: IndexLine,
    /// Bytes of the records of its pieces.
    bytes: u64,
    pieces: BTreeMap<Order, EntryPiece>,
    why: Arc<str>,
    since_ms: u64,
    attempts: u64,
    failures: u32,
    next_try: Instant,
    running: bool,
    /// Requests under way with operations of its pieces.
    flights: Vec<Arc<Flight>>,
    /// When the last of them ended.
    flew: Option<Instant>,
    /// When its turn began, the last time that it had one.
    began: Instant,
    /// Whether the tries of its last turn took long.
    slow: bool,
    /// Whether the operator wants no more tries.
    given_up: bool,
    /// The generation of the cluster's topology by which pieces have joined other lines.
    joined: Option<u64>,
}

/// Operations of one entry that wait for the same key.
pub(crate) struct EntryPiece {
    pub(crate) at: u64,
    /// The operations of the entry; `None` means all.
    pub(crate) ops: Option<Vec<u32>>,
    pub(crate) docs: u32,
    pub(crate) bytes: u64,
    /// The part of these that its key holds: an entry may have pieces for several names.
    share: u64,
    lane: u32,
    order: (u64, u32),
    /// When the request of its first operation was accepted, in ms since 1970.
    accepted_ms: u64,
    /// The place of its last operation.
    last: (u64, u32),
    /// The names by which its operations name their indices, if it is in the line of an index.
    written: Arc<[Box<str>]>,
    pub(crate) parked_ms: u64,
    /// When this gateway came to have it: read again after a restart, it is not given up at once, whatever
    /// the clock says.
    had_ms: u64,
    pub(crate) attempts: u32,
    pub(crate) refusals: u32,
    /// How often in a row all of its operations have failed without anybody's word against them.
    pub(crate) failure_row: FailureRow,
    /// Whether the operations may have been executed.
    pub(crate) doubt: bool,
    pub(crate) standing: Standing,
    wording: Arc<(String, String)>,
    documents: Vec<[u64; 2]>,
    places: Vec<DocumentPlace>,
    /// The lines that it may have to join.
    behind: Option<Box<Behind>>,
    next_try: Option<Instant>,
    /// The request that its operations were in when they were parked, if nobody waits for its answer.
    flight: Option<Arc<Flight>>,
}

/// How far the batch is that a piece came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The batch is not committed.
    Unsettled,
    /// The batch is committed, but not durably yet.
    Counted,
    /// The piece may be tried.
    Ready,
}

/// A key, as the admin port shows it.
pub(crate) struct ShownKey(pub(crate) Value);

// === impl ParkedKey ===

impl ParkedKey {
    /// Whether the batch of any piece is committed.
    fn may_try(&self) -> bool {
        let mut pieces = self.pieces.values();
        pieces.any(|piece| piece.standing != Standing::Unsettled)
    }
}

// === impl EntryPiece ===

impl EntryPiece {
    pub(crate) fn new(
        at: u64,
        bytes: u64,
        entry: &ParkedEntry,
        ops: Option<Vec<u32>>,
        standing: Standing,
    ) -> Self {
        let docs = ops.as_ref().map_or(entry.ops.len(), Vec::len);
        let first = ops.as_ref().and_then(|ops| ops.first()).copied().unwrap_or(0);
        let last = ops.as_ref().and_then(|ops| ops.last()).copied();
        let last = last.unwrap_or_else(|| entry.ops.len().saturating_sub(1) as u32);
        Self {
            at,
            docs: docs as u32,
            bytes,
            lane: entry.lane,
            order: entry.order_of(first),
            accepted_ms: entry.accepted_ms(first),
            last: entry.order_of(last),
            share: bytes,
            written: match entry.key {
                ParkKey::Index { .. } => entry.written_names(ops.as_deref()).into(),
                _ => Arc::default(),
            },
            parked_ms: steady_of(entry.parked_ms),
            had_ms: steady_ms(),
            attempts: entry.attempts,
            refusals: entry.refusals,
            failure_row: entry.failure_row,
            doubt: false,
            standing,
            wording: Arc::new((entry.target.clone(), entry.content_type.clone())),
            documents: match entry.key.holds_documents() {
                true => pick(&entry.documents, ops.as_deref()),
                false => Vec::new(),
            },
            places: match entry.key.holds_documents() {
                true => DocumentPlace::of(entry, ops.as_deref()),
                false => Vec::new(),
            },
            ops,
            behind: None,
            next_try: None,
            flight: None,
        }
    }

    /// Returns the numbers of its documents, by all their names.
    fn numbers(&self) -> impl Iterator<Item = u64> {
        let places = self.places.iter().map(|place| place.now);
        let numbers = self.documents.iter().flatten().copied().chain(places);
        numbers.filter(|number| *number != 0)
    }
}

fn pick<T: Clone>(all: &[T], ops: Option<&[u32]>) -> Vec<T> {
    match ops {
        None => all.to_vec(),
        Some(ops) => ops
            .iter()
            .filter_map(|op| all.get(*op as usize).cloned())
            .collect(),
    }
}

/// Counts one operation more for a key.
fn add_key(keys: &mut Vec<(ParkKey, u32)>, key: &ParkKey) {
    match keys.iter_mut().find(|(held, _)| held == key) {
        Some((_, count)) => *count += 1,
        None => keys.push((key.clone(), 1)),
    }
}

/// Counts one operation less for a key.
fn remove_key(keys: &mut Vec<(ParkKey, u32)>, key: &ParkKey) {
    if let Some(at) = keys.iter().position(|(held, _)| held == key) {
        keys[at].1 -= 1;
        if keys[at].1 == 0 {
            keys.swap_remove(at);
        }
    }
}

// === impl ParkedState ===

impl ParkedState {
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(crate) fn is_full(&self, documents: usize) -> bool {
        self.bound_before(documents).is_some()
    }

    /// Returns the bound that keeps one more entry out, whose key holds this many documents; `None` if there
    /// is room for it.
    pub(crate) fn bound_before(&self, documents: usize) -> Option<ParkedBound> {
        let is_any = documents > 0;
        if self.pieces >= PIECES_MAX {
            Some(ParkedBound::Entries)
        } else if is_any && self.documents.len() + 2 * documents > 2 * DOCUMENTS_MAX {
            Some(ParkedBound::Documents)
        } else if is_any && self.known + documents > OPERATIONS_MAX {
            Some(ParkedBound::Operations)
        } else {
            None
        }
    }

    pub(crate) fn insert(&mut self, key: ParkKey, names: &[String], why: &str, mut piece: EntryPiece) {
        for document in piece.documents.iter().flatten() {
            add_key(self.documents.entry(*document).or_default(), &key);
        }
        self.known += piece.documents.len();
        if self.places.enter(&key, &mut piece) {
            self.followed = None;
        }
        if piece.standing != Standing::Unsettled {
            self.add(piece.lane, u64::from(piece.docs));
        }
        self.pieces += 1;
        let held = self.keys.entry(key.clone()).or_insert_with(|| ParkedKey {
            names: BTreeSet::new(),
            line: IndexLine::default(),
            bytes: 0,
            pieces: BTreeMap::new(),
            why: why.into(),
            since_ms: steady_ms(),
            attempts: 0,
            failures: 0,
            next_try: Instant::now(),
            running: false,
            flights: Vec::new(),
            flew: None,
            began: Instant::now(),
            slow: false,
            given_up: false,
            joined: None,
        });
        if !why.is_empty() {
            held.why = why.into();
        }
        held.since_ms = held.since_ms.min(piece.parked_ms);
        let (position, place) = piece.order;
        let order = (position, place, piece.at);
        if key == ParkKey::Documents && piece.next_try.is_none() {
            held.next_try = held.next_try.min(Instant::now() + super::SOON);
        }
        held.bytes += piece.share;
        if let Some(flight) = &piece.flight {
            held.flies_with(flight);
        }
        match key.rank() {
            0 => self.enter_line(&key, order, &piece, names),
            _ => self.add_names(&key, names),
        }
        if piece.standing == Standing::Unsettled {
            let unsettled = self.unsettled.entry(piece.lane).or_default();
            unsettled.push((key.clone(), order));
        }
        if let Some(held) = self.keys.get_mut(&key) {
            held.pieces.insert(order, piece);
        }
    }

    /// Adds names by which later operations wait for a key that is not an index.
    fn add_names(&mut self, key: &ParkKey, names: &[String]) {
        let Some(held) = self.keys.get_mut(key) else {
            return;
        };
        for name in names {
            if held.names.insert(name.as_str().into()) && key.holds_names() {
                self.names
                    .entry(name.as_str().into())
                    .or_default()
                    .push(key.clone());
            }
        }
    }

    /// Inserts operations of an entry that was put on disk at a place.
    pub(crate) fn insert_put(&mut self, entry: &ParkedEntry, (at, bytes): (u64, u64), doubt: bool) {
        let pieces = pieces_of(entry, None);
        let share = bytes / pieces.len() as u64;
        for ops in pieces {
            let names = entry.names_in(&entry.key, ops.as_deref());
            let mut piece = EntryPiece::new(at, bytes, entry, ops, Standing::Unsettled);
            (piece.doubt, piece.share) = (doubt, share);
            self.insert(entry.key.clone(), &names, &entry.why, piece);
        }
    }

    /// Inserts the operations that are left of an entry, which was read again from this place on disk.
    pub(super) fn insert_again(
        &mut self,
        lines: &Lines,
        entry: &ParkedEntry,
        left: &BTreeSet<u32>,
        (at, bytes): (u64, u64),
        standing: Standing,
    ) {
        for ((key, behind), ops) in lines.split(entry, left.iter()) {
            let moved;
            let of_line = match key == entry.key {
                true => entry,
                false => {
                    moved = ParkedEntry {
                        key: key.clone(),
                        ..entry.clone()
                    };
                    &moved
                }
            };
            let ops = (ops.len() < entry.ops.len()).then_some(ops);
            for ops in pieces_of(of_line, ops) {
                let names = entry.names_in(&key, ops.as_deref());
                let mut piece = EntryPiece::new(at, bytes, of_line, ops, standing);
                piece.share = bytes * u64::from(piece.docs) / left.len().max(1) as u64;
                piece.doubt = true;
                piece.behind = behind.clone().map(Box::new);
                self.insert(key.clone(), &names, &entry.why, piece);
            }
        }
    }

    /// Returns the bytes that a key holds.
    pub(crate) fn bytes_of(&self, key: &ParkKey) -> u64 {
        self.keys.get(key).map_or(0, |held| held.bytes)
    }

    /// Returns the bytes that all keys hold, which are at most those of the records.
    pub(super) fn shares(&self) -> u64 {
        self.keys.values().map(|held| held.bytes).sum()
    }

    /// Makes the parked operations of a lane's batch count now; returns whether there are any.
    pub(crate) fn count(&mut self, lane: u32) -> bool {
        let before = self.counted;
        for (key, order) in self.unsettled.remove(&lane).unwrap_or_default() {
            let held = self.keys.get_mut(&key);
            if let Some(piece) = held.and_then(|held| held.pieces.get_mut(&order)) {
                piece.standing = Standing::Counted;
                self.counted += u64::from(piece.docs);
                self.lanes.entry(lane).or_default().counted += u64::from(piece.docs);
            }
        }
        self.counted > before
    }

    /// Returns how many documents [`ParkedState::count`] will count.
    pub(crate) fn will_count(&self, lane: u32) -> u64 {
        let unsettled = self.unsettled.get(&lane).into_iter().flatten();
        let pieces = unsettled.filter_map(|(key, order)| self.keys.get(key)?.pieces.get(order));
        pieces.map(|piece| u64::from(piece.docs)).sum()
    }

    /// Whether a piece of the key counts that is not yet durably committed.
    pub(crate) fn counts_some(&self, key: &ParkKey) -> bool {
        let held = self.keys.get(key);
        held.is_some_and(|held| {
            let mut standings = held.pieces.values().map(|piece| piece.standing);
            standings.any(|standing| standing == Standing::Counted)
        })
    }

    /// Records that the pieces that count are durably committed.
    pub(crate) fn ready(&mut self) {
        for piece in self.keys.values_mut().flat_map(|held| held.pieces.values_mut()) {
            if piece.standing == Standing::Counted {
                piece.standing = Standing::Ready;
            }
        }
    }

    /// Returns the parked pieces of batches that are not committed, of one lane or of all, from a place on.
    pub(crate) fn unsettled(&self, lane: Option<u32>, since: u64) -> Vec<GoneEntry> {
        let lanes = self.unsettled.iter();
        let places = lanes.filter(|(of, _)| lane.is_none_or(|lane| lane == **of));
        let places = places.flat_map(|(_, places)| places);
        let pieces = places.filter_map(|(key, order)| self.keys.get(key)?.pieces.get(order));
        let pieces = pieces.filter(|piece| piece.at >= since);
        let gone = pieces.map(|piece| GoneEntry {
            at: piece.at,
            lane: piece.lane,
            ops: piece.ops.clone(),
            dead: 0,
            lost: 0,
        });
        gone.collect()
    }

    pub(crate) fn drop_unsettled(&mut self, lane: Option<u32>, since: u64) {
        let (keys, mut dropped) = (&self.keys, Vec::new());
        let is_since = |(key, order): &(ParkKey, Order)| {
            let piece = keys.get(key).and_then(|held| held.pieces.get(order));
            piece.is_none_or(|piece| piece.at >= since)
        };
        for (of, places) in &mut self.unsettled {
            if lane.is_none_or(|lane| lane == *of) {
                dropped.extend(places.extract_if(.., |place| is_since(place)));
            }
        }
        self.unsettled.retain(|_, places| !places.is_empty());
        for (key, order) in dropped {
            self.remove(&key, order);
            self.forget_if_empty(&key);
        }
    }

    /// Records that an earlier run may have sent everything.
    pub(crate) fn doubt_all(&mut self) {
        self.document_tries.more_turns = 0;
        for held in self.keys.values_mut() {
            held.running = false;
            held.pieces.values_mut().for_each(|piece| piece.doubt = true);
        }
    }

    /// Records that the operations of a key may have been executed.
    pub(crate) fn doubt(&mut self, key: &ParkKey) {
        let pieces = self.keys.get_mut(key).into_iter();
        for piece in pieces.flat_map(|held| held.pieces.values_mut()) {
            piece.doubt = true;
        }
    }

    /// Whether an operation of an entry still waits for a key.
    pub(crate) fn holds(&self, key: &ParkKey, at: u64, op: u32) -> bool {
        let pieces = self
            .keys
            .get(key)
            .into_iter()
            .flat_map(|held| held.pieces.values());
        let mut pieces = pieces.filter(|piece| piece.at == at);
        pieces.any(|piece| piece.ops.as_ref().is_none_or(|ops| ops.contains(&op)))
    }

    /// Makes sure that keys that wait long are looked at soon: something has changed at the cluster.
    pub(crate) fn hurry(&mut self) {
        let soon = Instant::now() + Duration::from_millis(200);
        for held in self.keys.values_mut() {
            held.next_try = held.next_try.min(soon);
        }
    }

    /// Holds the indices, too, that names stand for now, and has operations go over into the lines of these,
    /// if the cluster has changed. `own` is the key of a line that is being tried, and of which nothing is
    /// under way; `led` says where [`ParkedState::written_names`] have led.
    pub(crate) fn follow_topology(&mut self, snapshot: &Snapshot, own: Option<&ParkKey>, led: &NamesLed) {
        self.follow_by((snapshot.generation, &index_in(snapshot)), own, led);
    }

    pub(crate) fn follow_by(
        &mut self,
        (generation, resolve): (u64, &IndexOf<'_>),
        own: Option<&ParkKey>,
        led: &NamesLed,
    ) {
        if self.followed_lines != Some(generation) {
            let is_done = self.follow_lines(resolve, own, led);
            self.followed_lines = is_done.then_some(generation);
        } else if !led.is_empty() {
            self.note_led(led);
        }
        self.unasked.clear();
        // Others may have gone over into the line after its last operation had left.
        if let Some(held) = own.and_then(|own| self.keys.get_mut(own)) {
            held.running = true;
        }
        if self.followed != Some(generation) {
            self.followed = Some(generation);
            self.follow(resolve);
            self.follow_documents(resolve);
        }
    }

    /// Holds the indices, too, that the names of parked operations stand for now.
    fn follow(&mut self, resolve: impl Fn(&str) -> Option<String>) {
        for (key, held) in &mut self.keys {
            if !key.holds_names() || key.rank() == 0 {
                continue;
            }
            let now: Vec<Box<str>> = held
                .names
                .iter()
                .filter_map(|name| resolve(name))
                .map(Into::into)
                .collect();
            for name in now {
                if held.names.insert(name.clone()) {
                    self.names.entry(name).or_default().push(key.clone());
                }
            }
        }
    }

    pub(crate) fn is_given_up(&self, key: &ParkKey) -> bool {
        self.keys.get(key).is_some_and(|held| held.given_up)
    }

    /// Ends a key's turn.
    pub(crate) fn rest(
        &mut self,
        key: &ParkKey,
        progress: bool,
        why: Option<&str>,
        delay: impl FnOnce(u32) -> Duration,
    ) {
        self.ends_turn(key);
        let Some(held) = self.keys.get_mut(key) else {
            return;
        };
        held.failures = if progress { 0 } else { held.failures + 1 };
        if let Some(why) = why {
            held.attempts += 1;
            held.why = why.into();
        }
        let mut next = Instant::now() + delay(held.failures);
        if *key == ParkKey::Documents {
            let pieces = held.pieces.values();
            let earliest = pieces.map(|piece| piece.next_try.unwrap_or(next)).min();
            next = earliest.unwrap_or(next).max(Instant::now() + super::SOON);
        }
        held.next_try = next;
    }

    /// Ends a key's turn in which nothing could be tried before other lines have come further.
    pub(crate) fn wait_behind(&mut self, key: &ParkKey, why: &str, again: Duration) {
        self.ends_turn(key);
        if let Some(held) = self.keys.get_mut(key) {
            held.why = why.into();
            held.next_try = Instant::now() + again;
        }
    }

    /// Returns the place before which nothing on disk is needed.
    pub(crate) fn oldest(&self) -> u64 {
        let pieces = self.keys.values().flat_map(|held| held.pieces.values());
        let oldest = pieces
            .map(|piece| piece.at)
            .chain(self.unreadable.first().copied());
        let oldest = oldest.min();
        oldest.map_or(self.last_resolved, |oldest| oldest.min(self.last_resolved))
    }

    pub(crate) fn pieces(&self) -> impl Iterator<Item = &EntryPiece> {
        self.keys.values().flat_map(|held| held.pieces.values())
    }

    /// Takes over the new places of records that were written again.
    pub(crate) fn moved(&mut self, places: &BTreeMap<u64, u64>) {
        self.joined_moved(places);
        for held in self.keys.values_mut() {
            let orders: Vec<Order> = held
                .pieces
                .keys()
                .filter(|(.., at)| places.contains_key(at))
                .copied()
                .collect();
            for order in orders {
                let Some(mut piece) = held.pieces.remove(&order) else {
                    continue;
                };
                piece.at = places[&piece.at];
                let now = (order.0, order.1, piece.at);
                held.line.moved(order, now, &piece);
                held.pieces.insert(now, piece);
            }
        }
    }

    pub(crate) fn has(&self, at: u64, op: u32) -> bool {
        let pieces = self.keys.values().flat_map(|held| held.pieces.values());
        pieces
            .filter(|piece| piece.at == at)
            .any(|piece| piece.ops.as_ref().is_none_or(|ops| ops.contains(&op)))
    }

    pub(crate) fn release(&mut self, key: Option<&str>) -> usize {
        let mut released = 0;
        for (of, held) in &mut self.keys {
            if key.is_none_or(|key| of.shown() == key) {
                held.next_try = Instant::now();
                held.failures = 0;
                held.pieces.values_mut().for_each(|piece| piece.next_try = None);
                released += 1;
            }
        }
        released
    }

    pub(crate) fn give_up(&mut self, key: Option<&str>) -> u64 {
        let mut documents = 0;
        for (of, held) in &mut self.keys {
            if key.is_none_or(|key| of.shown() == key) {
                held.given_up = true;
                held.next_try = Instant::now();
                documents += held
                    .pieces
                    .values()
                    .map(|piece| u64::from(piece.docs))
                    .sum::<u64>();
            }
        }
        documents
    }

    /// Whether operations of such a lane are parked that may still be executed.
    pub(crate) fn has_lane(&self, wanted: impl Fn(u32) -> bool) -> bool {
        let waiting = self.keys.iter().filter(|(key, _)| !key.is_letters());
        let mut pieces = waiting.flat_map(|(_, held)| held.pieces.values());
        pieces.any(|piece| wanted(piece.lane))
    }

    /// Whether operations that may still be executed are parked for an index of such a name.
    pub(crate) fn has_name(&self, wanted: impl Fn(&str) -> bool) -> bool {
        let waiting = self.keys.iter().filter(|(key, _)| !key.is_letters());
        let mut names = waiting.flat_map(|(_, held)| &held.names);
        names.any(|name| wanted(name))
    }

    /// Returns how many keys there are.
    pub(crate) fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// Returns when the oldest parked operation was parked, in ms since 1970.
    pub(crate) fn since_ms(&self) -> Option<u64> {
        self.keys.values().map(|held| held.since_ms).min()
    }

    /// Returns at most `most` keys, those with most documents first.
    pub(crate) fn shown(&self, most: usize) -> Vec<ShownKey> {
        let docs = |held: &ParkedKey| {
            held.pieces
                .values()
                .map(|piece| u64::from(piece.docs))
                .sum::<u64>()
        };
        let mut keys: Vec<_> = self
            .keys
            .iter()
            .map(|(key, held)| (docs(held), key, held))
            .collect();
        keys.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        let now = Instant::now();
        let shown = keys.into_iter().take(most).map(|(documents, key, held)| {
            let mut value = json!(key);
            value["key"] = json!(key.shown());
            value["documents"] = json!(documents);
            value["why"] = json!(held.why);
            value["since_ms"] = json!(held.since_ms);
            value["attempts"] = json!(held.attempts);
            value["next_try_s"] = json!(held.next_try.saturating_duration_since(now).as_secs_f64());
            ShownKey(value)
        });
        shown.collect()
    }

    fn remove(&mut self, key: &ParkKey, order: Order) -> Option<EntryPiece> {
        let leaving = self.keys.get(key)?.pieces.get(&order)?;
        if leaving.standing != Standing::Unsettled {
            self.take_off(leaving.lane, leaving.docs.into());
        }
        let held = self.keys.get_mut(key)?;
        let piece = held.pieces.remove(&order)?;
        held.bytes = held.bytes.saturating_sub(piece.share);
        for document in piece.documents.iter().flatten() {
            if let Some(keys) = self.documents.get_mut(document) {
                remove_key(keys, key);
                if keys.is_empty() {
                    self.documents.remove(document);
                }
            }
        }
        self.known -= piece.documents.len();
        self.places.leave(key, &piece);
        self.leave_line(key, order, &piece);
        self.pieces -= 1;
        Some(piece)
    }

    fn forget_if_empty(&mut self, key: &ParkKey) {
        if self.keys.get(key).is_none_or(|held| !held.pieces.is_empty()) {
            return;
        }
        let Some(held) = self.keys.remove(key) else { return };
        if self.keys.is_empty() {
            self.joined_lines.clear();
        }
        for name in &held.names {
            self.let_go_of_name(name, key);
        }
    }

    /// Records that later operations with a name do not wait for a key any more.
    fn let_go_of_name(&mut self, name: &str, key: &ParkKey) {
        let Some(keys) = self.names.get_mut(name) else {
            return;
        };
        keys.retain(|of| of != key);
        // Operations of another lane may have waited for this one's.
        for other in keys.iter() {
            if let Some(other) = self.keys.get_mut(other) {
                other.next_try = other.next_try.min(Instant::now() + super::SOON);
            }
        }
        if keys.is_empty() {
            self.names.remove(name);
        }
    }
}
