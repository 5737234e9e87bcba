//! The lines of operations that wait for an index ([`ParkKey::Index`]), and the order between these lines.
//!
//! An operation waits in the line of the index that its name leads to. When a name comes to lead elsewhere,
//! its operations go over into the line of that index, each to its place by acceptance. So the writes to one
//! document are in one line, and nothing waits for an index that its name has left.
//!
//! An operation whose name has moved counts for the indices that the name has led to since it was accepted,
//! too. It may have been sent there, and then it may have to stay there ([`crate::delivery`]); and the name
//! may come back. Operations of a line that is being tried, or given up, stay in it for that time, and count
//! for the index that their name leads to. The rule for all lines is:
//!
//! *An operation goes out only if no operation that was accepted before it is in another line for an index
//! and has its name, or counts for the index of its line.*
//!
//! Operations wait for earlier ones alone. The earliest one of all lines waits for none, so lines never wait
//! for each other in a circle.

use std::collections::{BTreeMap, BTreeSet};

use cluster::Snapshot;

use super::super::key::{OperationNames, ParkKey};
use super::super::store::ParkedEntry;
use super::{EntryPiece, Order, ParkedKey, ParkedState, Picked, Standing};

/// The pieces of a line for an index, by the names that they have.
#[derive(Default)]
pub(super) struct IndexLine {
    names: BTreeMap<Box<str>, WrittenName>,
    /// Other indices that pieces of the line count for, each with the names of these.
    counts_for: BTreeMap<Box<str>, BTreeSet<Box<str>>>,
}

/// The pieces of a line that have one name.
#[derive(Default)]
struct WrittenName {
    pieces: BTreeSet<Order>,
    /// When the earliest of their requests was accepted, in ms since 1970. In Kafka the first piece may be a
    /// later one: positions in different partitions say nothing about each other.
    since_ms: u64,
    /// Indices that the name has led to, each with the last piece that it may have been accepted before.
    led_to: BTreeMap<Box<str>, Order>,
    /// The index that the name leads to, if it is another one, and the pieces have yet to go over there.
    leads: Option<Box<str>>,
}

/// The names of pieces, each with the first position of their requests, and when the earliest was accepted.
pub(crate) type WrittenNames = BTreeMap<Box<str>, (u64, u64)>;

/// Returns the index that a name leads to, if that is known.
pub(crate) type IndexOf<'t> = dyn Fn(&str) -> Option<String> + 't;

/// Indices that names have led to.
pub(crate) type NamesLed = Vec<(Box<str>, Vec<String>)>;

// === impl WrittenName ===

impl WrittenName {
    /// Returns the first piece, if any may go to an index that the name does not lead to.
    fn first_for(&self, index: &str) -> Option<Order> {
        let first = self.pieces.first()?;
        let has_led = self.led_to.get(index).is_some_and(|last| last >= first);
        (has_led || self.leads.as_deref() == Some(index)).then_some(*first)
    }
}

// === impl IndexLine ===

impl IndexLine {
    /// Returns the names by which later operations may have to wait for pieces of the line of an index.
    fn names(&self) -> impl Iterator<Item = &str> {
        self.names
            .keys()
            .chain(self.counts_for.keys())
            .map(|name| &**name)
    }

    fn has_written(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// Returns the first piece with a name, or that counts for an index of that name.
    fn first(&self, name: &str) -> Option<Order> {
        let others = self.counts_for.get(name).into_iter().flatten();
        let others = others.filter_map(|written| self.names.get(written)?.first_for(name));
        others.chain(self.first_written(name)).min()
    }

    /// Returns the first piece that was written through a name.
    pub(super) fn first_written(&self, name: &str) -> Option<Order> {
        self.names.get(name)?.pieces.first().copied()
    }

    /// Notes the names of a piece; returns whether later operations may have to wait by another one.
    fn enter(&mut self, order: Order, piece: &EntryPiece, led_to: &[&str]) -> bool {
        let mut is_news = false;
        for name in piece.written.iter() {
            is_news |= !self.names.contains_key(name);
            let known = self.names.entry(name.clone()).or_default();
            known.since_ms = match known.pieces.is_empty() {
                true => piece.accepted_ms,
                false => known.since_ms.min(piece.accepted_ms),
            };
            known.pieces.insert(order);
            for index in led_to {
                is_news |= !known.led_to.contains_key(*index);
                let last = known.led_to.entry((*index).into()).or_insert(order);
                *last = order.max(*last);
            }
        }
        is_news
    }

    /// Forgets a piece; returns whether later operations wait by a name less.
    fn leave(&mut self, order: Order, piece: &EntryPiece) -> bool {
        let mut is_news = false;
        for name in piece.written.iter() {
            let Some(known) = self.names.get_mut(name) else {
                continue;
            };
            known.pieces.remove(&order);
            let first = known.pieces.first().copied();
            let before = known.led_to.len();
            known
                .led_to
                .retain(|_, last| first.is_some_and(|first| first <= *last));
            is_news |= known.led_to.len() < before || first.is_none();
            if first.is_none() {
                self.names.remove(name);
            }
        }
        is_news
    }

    /// Takes over the new place of a piece's record.
    pub(super) fn moved(&mut self, before: Order, now: Order, piece: &EntryPiece) {
        for name in piece.written.iter() {
            if let Some(known) = self.names.get_mut(name)
                && known.pieces.remove(&before)
            {
                known.pieces.insert(now);
                let last = known.led_to.values_mut().filter(|last| **last == before);
                last.for_each(|last| *last = now);
            }
        }
    }

    /// Notes where names have led since the first piece of each was accepted.
    fn note_led(&mut self, led: &NamesLed) {
        for (name, led) in led {
            if let Some(known) = self.names.get_mut(name)
                && let Some(last) = known.pieces.last()
            {
                let led = led.iter().filter(|led| ***led != **name);
                known.led_to.extend(led.map(|led| (led.as_str().into(), *last)));
            }
        }
    }

    /// Finds out which other indices than its own the pieces of the line count for.
    fn count_for(&mut self, index: &str) {
        self.counts_for.clear();
        for (name, known) in &self.names {
            let others = known.led_to.keys().chain(&known.leads);
            for other in others.filter(|other| ***other != *index) {
                self.counts_for
                    .entry(other.clone())
                    .or_default()
                    .insert(name.clone());
            }
        }
    }
}

// === impl ParkedState ===

impl ParkedState {
    /// Returns the line of an operation that waits for its index: that of the index that its name leads to;
    /// if that is not known, the line where others of its name are.
    pub(crate) fn index_line(&self, named: &OperationNames) -> ParkKey {
        let of = |index: &str| ParkKey::Index {
            index: index.to_owned(),
        };
        let Some(index) = &named.concrete else {
            let keys = self.names.get(&*named.written).into_iter().flatten();
            let mut with_name = keys.filter(|key| {
                let held = self.keys.get(*key).filter(|_| key.rank() == 0);
                held.is_some_and(|held| held.line.has_written(&named.written))
            });
            return with_name.next().cloned().unwrap_or_else(|| of(&named.written));
        };
        of(index)
    }

    /// Notes the names of a piece that enters the line of an index. `led_to` says where they have led.
    pub(super) fn enter_line(&mut self, key: &ParkKey, order: Order, piece: &EntryPiece, led_to: &[String]) {
        let ParkKey::Index { index } = key else { return };
        let Some(held) = self.keys.get_mut(key) else {
            return;
        };
        let is_other = |led: &&str| *led != index && !piece.written.iter().any(|name| **name == **led);
        let led_to: Vec<&str> = led_to.iter().map(String::as_str).filter(is_other).collect();
        let is_news = held.line.enter(order, piece, &led_to);
        if is_news {
            held.line.count_for(index);
            self.followed_lines = None;
            self.hold_by_names(key);
        }
        if !led_to.is_empty() || piece.written.iter().any(|name| **name != **index) {
            self.unasked.extend(piece.written.iter().cloned());
        }
    }

    /// Notes where names have led whose pieces are in the right lines.
    pub(super) fn note_led(&mut self, led: &NamesLed) {
        let of_name = led.iter().filter_map(|(name, _)| self.names.get(name)).flatten();
        let keys: BTreeSet<ParkKey> = of_name.filter(|key| key.rank() == 0).cloned().collect();
        for key in keys {
            if let (ParkKey::Index { index }, Some(held)) = (&key, self.keys.get_mut(&key)) {
                held.line.note_led(led);
                held.line.count_for(index);
            }
            self.hold_by_names(&key);
        }
    }

    /// Returns the indices that the names of a piece in the line of an index have led to, as far as the line
    /// needs to know.
    pub(super) fn led_to(&self, key: &ParkKey, order: Order) -> Vec<String> {
        let held = self.keys.get(key);
        let piece = held.and_then(|held| held.pieces.get(&order));
        let written = piece.map_or(&[][..], |piece| &piece.written);
        let known = written.iter().filter_map(|name| held?.line.names.get(name));
        let led_to = known.flat_map(|known| &known.led_to);
        let led_to = led_to.filter(|(_, last)| **last >= order);
        led_to.map(|(led, _)| String::from(&**led)).collect()
    }

    /// Forgets the names of a piece that leaves the line of an index.
    pub(super) fn leave_line(&mut self, key: &ParkKey, order: Order, piece: &EntryPiece) {
        let ParkKey::Index { index } = key else { return };
        let Some(held) = self.keys.get_mut(key) else {
            return;
        };
        if held.line.leave(order, piece) {
            held.line.count_for(index);
            self.hold_by_names(key);
        }
    }

    /// Makes `names` say by which names later operations have to wait for the line of an index.
    pub(super) fn hold_by_names(&mut self, key: &ParkKey) {
        let ParkKey::Index { index } = key else { return };
        let mut now: BTreeSet<Box<str>> = BTreeSet::new();
        let line = self.keys.get(key).map(|held| &held.line);
        if let Some(line) = line.filter(|line| !line.names.is_empty()) {
            now.insert(index.as_str().into());
            now.extend(line.names().map(Box::from));
        }
        let before = match self.keys.get_mut(key) {
            Some(held) => std::mem::replace(&mut held.names, now.clone()),
            None => BTreeSet::new(),
        };
        for name in now.difference(&before) {
            self.names.entry(name.clone()).or_default().push(key.clone());
        }
        for name in before.difference(&now) {
            self.let_go_of_name(name, key);
        }
    }

    /// Returns the names of pieces in lines for indices, unless it is known where they have led by a
    /// topology.
    pub(crate) fn written_names(&self, generation: u64) -> WrittenNames {
        let mut written = WrittenNames::new();
        let is_known = self.followed_lines == Some(generation);
        if is_known && self.unasked.is_empty() {
            return written;
        }
        let lines = self.keys.iter().filter(|(key, _)| key.rank() == 0);
        for held in lines.map(|(_, held)| held) {
            let names = held.line.names.iter();
            for (name, known) in names.filter(|(name, _)| !is_known || self.unasked.contains(*name)) {
                let Some((position, ..)) = known.pieces.first() else {
                    continue;
                };
                let first = written.entry(name.clone()).or_insert((*position, known.since_ms));
                *first = (first.0.min(*position), first.1.min(known.since_ms));
            }
        }
        written
    }

    /// Has pieces go over into the lines of the indices that their names lead to by a topology. `own` is the
    /// key of a line that is being tried, and of which nothing is under way. Returns whether all have gone
    /// over.
    pub(super) fn follow_lines(
        &mut self,
        resolve: impl Fn(&str) -> Option<String>,
        own: Option<&ParkKey>,
        led: &NamesLed,
    ) -> bool {
        let mut going = Vec::new();
        let given_up = |to: &str| {
            let key = ParkKey::Index { index: to.to_owned() };
            self.keys.get(&key).is_some_and(|held| held.given_up)
        };
        for (key, held) in &self.keys {
            let ParkKey::Index { index } = key else { continue };
            let stays = held.given_up || held.running && own != Some(key);
            for name in held.line.names.keys() {
                let to = resolve(name).filter(|to| to != index);
                let goes = to.as_deref().is_some_and(|to| !stays && !given_up(to));
                going.push((key.clone(), name.clone(), to, goes));
            }
        }
        self.keys.values_mut().for_each(|held| held.line.note_led(led));
        let mut is_done = true;
        for (key, name, to, goes) in going {
            let held = self.keys.get_mut(&key);
            if let Some(known) = held.and_then(|held| held.line.names.get_mut(&name)) {
                known.leads = to.as_deref().map(Box::from);
            }
            match to {
                Some(to) if goes => self.go_over(&key, &name, &to),
                Some(_) => is_done = false,
                None => {}
            }
        }
        let keys: Vec<ParkKey> = self.keys.keys().filter(|key| key.rank() == 0).cloned().collect();
        for key in keys {
            if let (ParkKey::Index { index }, Some(held)) = (&key, self.keys.get_mut(&key)) {
                held.line.count_for(index);
            }
            self.hold_by_names(&key);
        }
        is_done
    }

    /// Has the pieces of a name go over into the line of the index that the name leads to.
    fn go_over(&mut self, key: &ParkKey, name: &str, to: &str) {
        let (ParkKey::Index { index }, Some(held)) = (key, self.keys.get(key)) else {
            return;
        };
        let Some(known) = held.line.names.get(name) else {
            return;
        };
        // Of what an earlier version has parked, it is not known which operations have which name.
        let alone = |order: &&Order| {
            held.pieces
                .get(order)
                .is_some_and(|piece| piece.written.len() == 1)
        };
        let orders: Vec<Order> = known.pieces.iter().filter(alone).copied().collect();
        let (why, to) = (
            format!("it waited for {}", key.shown()),
            ParkKey::Index { index: to.to_owned() },
        );
        for order in orders {
            let mut led_to = self.led_to(key, order);
            led_to.push(index.clone());
            let Some(mut piece) = self.remove(key, order) else {
                continue;
            };
            if piece.standing == Standing::Unsettled
                && let Some(places) = self.unsettled.get_mut(&piece.lane)
            {
                places.retain(|place| *place != (key.clone(), order));
            }
            piece.next_try = None;
            let why = if self.keys.contains_key(&to) { "" } else { &why };
            self.insert(to.clone(), &led_to, why, piece);
        }
        self.forget_if_empty(key);
    }

    /// Returns the first piece of another line that must go out before a piece of the line of an index, and
    /// that line.
    pub(super) fn ahead_in_other_lines(
        &self,
        key: &ParkKey,
        piece: &EntryPiece,
    ) -> Option<(Order, &ParkKey)> {
        let ParkKey::Index { index } = key else {
            return None;
        };
        let names = piece.written.iter().map(|name| &**name).chain([index.as_str()]);
        let ahead = names.flat_map(|name| {
            let others = self.names.get(name).into_iter().flatten();
            let others = others.filter(move |other| *other != key && other.rank() == 0);
            others.filter_map(move |other| Some((self.keys.get(other)?.first_for(other, name)?, other)))
        });
        ahead.min()
    }

    /// Has picked operations stay that come behind the next piece of their lane that is not picked: pieces of
    /// a lane may overlap if they are of one batch.
    pub(super) fn stop_at_next(&self, key: &ParkKey, picked: &mut [Picked]) {
        let Some(held) = self.keys.get(key) else { return };
        let orders: BTreeSet<Order> = picked.iter().map(|one| one.order).collect();
        let lane = |order: &Order| held.pieces.get(order).map(|piece| piece.lane);
        let last = orders
            .iter()
            .filter_map(|order| Some(held.pieces.get(order)?.last));
        let (Some(first), Some(last)) = (orders.first(), last.max()) else {
            return;
        };
        let mut next: BTreeMap<u32, Order> = BTreeMap::new();
        // An earlier version wrote some entries whose operations do not ascend.
        if (first.0, first.1) > (last.0, last.1) {
            return;
        }
        for (order, piece) in held.pieces.range(*first..=(last.0, last.1, u64::MAX)) {
            if !orders.contains(order) {
                next.entry(piece.lane).or_insert(*order);
            }
        }
        for one in picked {
            let next = lane(&one.order).and_then(|lane| next.get(&lane)).copied();
            one.until = one.until.into_iter().chain(next).min();
        }
    }
}

// === impl ParkedKey ===

impl ParkedKey {
    /// Returns the first piece of the line of an index that a later operation with a name has to wait for.
    pub(super) fn first_for(&self, key: &ParkKey, name: &str) -> Option<Order> {
        let of_index = matches!(key, ParkKey::Index { index } if index == name);
        let first = self.pieces.keys().next().filter(|_| of_index).copied();
        first.into_iter().chain(self.line.first(name)).min()
    }
}

// === impl ParkedEntry ===

impl ParkedEntry {
    /// Returns some operations (`None` means all) by the name that they have; all together, if an earlier
    /// version has not written which operation has which.
    fn by_written(&self, ops: Option<Vec<u32>>) -> Vec<Option<Vec<u32>>> {
        if self.places.len() != self.ops.len() {
            return vec![ops];
        }
        let mut by_name: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let all = ops
            .clone()
            .unwrap_or_else(|| (0..self.ops.len() as u32).collect());
        for op in all {
            let name = self.places.get(op as usize).map_or(0, |place| place.0);
            by_name.entry(name).or_default().push(op);
        }
        match by_name.len() {
            0 | 1 => vec![ops],
            _ => by_name.into_values().map(Some).collect(),
        }
    }

    /// Returns the names by which some operations name their indices; all of the entry's, if an earlier
    /// version has not written which operation has which.
    pub(super) fn written_names(&self, ops: Option<&[u32]>) -> Vec<Box<str>> {
        if self.places.len() != self.ops.len() {
            return self.names.iter().map(|name| name.as_str().into()).collect();
        }
        let places = super::pick(&self.places, ops);
        let numbers: BTreeSet<u32> = places.iter().map(|place| place.0).collect();
        let names = numbers
            .iter()
            .filter_map(|number| self.names.get(*number as usize));
        names.map(|name| name.as_str().into()).collect()
    }
}

/// Returns operations of an entry (`None` means all), as the pieces that they are in a line.
pub(super) fn pieces_of(entry: &ParkedEntry, ops: Option<Vec<u32>>) -> Vec<Option<Vec<u32>>> {
    match entry.key.rank() {
        0 => entry.by_written(ops),
        _ => vec![ops],
    }
}

/// Looks up the index that a name leads to in a topology.
pub(super) fn index_in(snapshot: &Snapshot) -> impl Fn(&str) -> Option<String> {
    move |name: &str| snapshot.table.write_index(name.as_bytes()).map(str::to_owned)
}
