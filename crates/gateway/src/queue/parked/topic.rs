//! Keeps the parked operations of a queue in Kafka for the next owner of the lane: in a topic beside the
//! queue's, with a partition for each lane. The parked operations of this gateway's own lanes are on its disk
//! too, in the same store as for queues on disk, so that they can be read and tried again without asking the
//! brokers; that copy is made anew whenever lanes come.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kafka::{Part, SideTopic};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use wire::guard::{Work, thread};

use super::ParkedError;
use super::error::Foreign;
use super::history::{History, kept_from};
use super::led_to::{NAMES_MAX, NameLed, in_records};
use super::store::{ParkedEntry, Resolved};

/// The parked topic of one consumer group.
pub(crate) struct ParkedTopic {
    side_topic: Arc<dyn SideTopic>,
    group: Arc<dyn kafka::Group>,
    lanes: u32,
    owned: Mutex<Owned>,
}

/// The gateway's knowledge of the partitions that are its own.
#[derive(Default)]
struct Owned {
    /// The name under which the gateway holds them; `None` if it holds none.
    owner: Option<u64>,
    /// The lane and the offset of each entry, by the entry's place on this disk.
    places: BTreeMap<u64, (u32, u64)>,
    copies: HashMap<(u32, u64), u64>,
    lanes: BTreeMap<u32, OwnedLane>,
    /// The number of resolving records since records that are no longer needed were last deleted.
    resolutions: usize,
}

#[derive(Default)]
struct OwnedLane {
    owners: Vec<(u64, u64)>,
    last_resolved: Option<u64>,
    deleted_before: u64,
    /// The names that this owner has written down, each with the index that it led to last.
    led_to: HashMap<String, String>,
}

/// Lanes that a gateway holds, and whose parked operations it may still have to read.
pub(crate) struct LanesBegun {
    owner: u64,
    /// The records after which it holds them.
    until: Vec<(u32, u64)>,
    /// How often these could not be read.
    failures: u32,
}

/// The parameters of every record.
#[derive(Serialize, Deserialize)]
struct RecordParams {
    owner: u64,
}

#[derive(Serialize, Deserialize)]
struct Begins {
    committed: u64,
    /// Whether nothing of what was parked was committed in the partition as it is now: then it does not
    /// follow from its places what is delivered again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    anew: bool,
    /// The partition's end: no message from there on was in it. Earlier versions do not tell.
    #[serde(default)]
    end: Option<u64>,
}

/// An entry of which all operations, or some, are gone.
pub(crate) struct GoneEntry {
    pub(crate) at: u64,
    pub(crate) lane: u32,
    pub(crate) ops: Option<Vec<u32>>,
    /// How many of the operations became dead letters, and how many the disk has lost.
    pub(crate) dead: u64,
    pub(crate) lost: u64,
}

/// The parked operations of a lane, as its partition has them.
pub(super) struct ParkedOfLane<T> {
    pub(super) lane: u32,
    pub(super) history: History<T>,
    /// Where names led when former owners sent operations that are in doubt.
    pub(super) led_to: Vec<NameLed>,
    /// How many documents have died: as the partition says, or as the group's totals say if that is more.
    pub(super) dead: u64,
}

// === impl ParkedTopic ===

impl ParkedTopic {
    /// Opens the topic of a consumer group, which is made if it is missing. Blocks on the brokers.
    pub(crate) fn open(
        topic: &dyn kafka::Topic,
        group: &Arc<dyn kafka::Group>,
        name: &str,
    ) -> Result<Self, kafka::OpenError> {
        let side_topic = topic.side_topic(&format!("{}.{}.parked", topic.name(), in_a_topic(name)))?;
        Ok(Self {
            side_topic,
            group: Arc::clone(group),
            lanes: topic.lanes(),
            owned: Mutex::default(),
        })
    }

    /// Returns how many bytes an entry may have with its lines.
    pub(super) fn record_bytes_max(&self) -> usize {
        self.side_topic.part_bytes_max(PARAMS_BYTES_MAX)
    }

    /// Begins with lanes that came: from here on, records of others count for nothing. Finds the parked
    /// operations of the lanes, and looks out for the ends of others; `keep` is given each entry with its
    /// lines, and returns its companion. What fails may be tried again with the same `begun`: it says what
    /// is written already. Blocks on the brokers.
    pub(super) fn take_over<T>(
        &self,
        lanes: &[u32],
        begun: &mut Option<LanesBegun>,
        asked: &BTreeSet<(u64, u32)>,
        keep: impl FnMut(&ParkedEntry, &[u8]) -> Result<T, ParkedError>,
    ) -> Result<Vec<ParkedOfLane<T>>, ParkedError> {
        let cursors = self.group.status();
        let done = |lane: u32| {
            cursors
                .get(lane as usize)
                .map(|lane| lane.done)
                .unwrap_or_default()
        };
        // The partition may have been made anew since: then it never has these records.
        let known = begun.take().filter(|begun| begun.failures < READS_MAX);
        let known = match known {
            Some(known) => begun.insert(known),
            None => begun.insert(self.begin(lanes, |lane| done(lane).offset)?),
        };
        known.failures += 1;
        let owner = known.owner;
        let found = self.read(&known.until, asked, keep)?;
        for lane in lanes {
            let is_ours = found.get(lane).is_some_and(|history| history.counts(owner));
            if !is_ours {
                *begun = None;
                return Err(ParkedError::OfAnother {
                    lane: *lane,
                    topic: self.side_topic.name().to_owned(),
                });
            }
        }
        let found = found.into_iter().map(|(lane, mut history)| {
            let (committed, any) = (done(lane).offset, !history.live.is_empty());
            let is_in_doubt = any || committed < self.group.end_when_taken(lane);
            let led_to = history.names.take_from(committed, any);
            ParkedOfLane {
                lane,
                led_to: if is_in_doubt { led_to } else { Vec::new() },
                dead: history.dead.max(done(lane).parked_dead),
                history,
            }
        });
        let mut found: Vec<_> = found.collect();
        self.say_again(owner, &mut found)?;
        *self.owned.lock() = Owned {
            owner: Some(owner),
            ..Owned::default()
        };
        Ok(found)
    }

    /// Makes the gateway the owner of lanes, each of which is `committed` so far.
    fn begin(&self, lanes: &[u32], committed: impl Fn(u32) -> u64) -> Result<LanesBegun, ParkedError> {
        let owner = fastrand::u64(1..);
        let begins = |lane| {
            let begins = Begins {
                committed: committed(lane),
                anew: self.group.began_anew(lane),
                end: Some(self.group.end_when_taken(lane)),
            };
            serde_json::to_vec(&begins).unwrap_or_default()
        };
        self.say(BEGINS, owner, lanes, begins)?;
        // If another gateway had taken the lanes since, the brokers would refuse this: so of two gateways
        // that began, the later one is the owner.
        self.group.confirm()?;
        Ok(LanesBegun {
            owner,
            until: self.say(HOLDS, owner, lanes, |_| b"{}".to_vec())?,
            failures: 0,
        })
    }

    /// Reads the lanes' partitions up to records that are known to be there.
    fn read<T>(
        &self,
        until: &[(u32, u64)],
        asked: &BTreeSet<(u64, u32)>,
        mut keep: impl FnMut(&ParkedEntry, &[u8]) -> Result<T, ParkedError>,
    ) -> Result<BTreeMap<u32, History<T>>, ParkedError> {
        let mut found: BTreeMap<u32, History<T>> = BTreeMap::new();
        let mut failed = None;
        let read = self.side_topic.read(until, &mut |lane, record| {
            let history = found.entry(lane);
            let history = history.or_insert_with(|| self.history_of(lane, asked));
            if let Err(why) = take_in(history, record, &mut keep) {
                failed.get_or_insert(why);
            }
        });
        read?;
        failed.map_or(Ok(found), Err)
    }

    /// Reads the lanes' partitions as they are now, whoever holds the lanes.
    pub(super) fn read_up_to_now(
        &self,
        lanes: &[u32],
        asked: &BTreeSet<(u64, u32)>,
    ) -> Result<BTreeMap<u32, History<()>>, ParkedError> {
        // A record of nobody counts for nothing, and marks the end.
        let until = self.say(LED_TO, NOBODY, lanes, |_| b"[]".to_vec())?;
        self.read(&until, asked, |_, _| Ok(()))
    }

    /// Writes again what is needed of former owners' records besides their entries: so these can be deleted.
    fn say_again<T>(&self, owner: u64, found: &mut [ParkedOfLane<T>]) -> Result<(), ParkedError> {
        let names = self.parts_of_names(found.iter().map(|one| (one.lane, &*one.led_to)));
        if !names.is_empty() {
            self.side_topic.append_blocking(LED_TO, &said(owner), names)?;
        }
        let totals = found.iter().filter(|one| one.history.last_resolved.is_some());
        let totals = totals.map(|one| {
            let resolved = Resolved {
                dead: one.dead,
                ..Resolved::default()
            };
            Part {
                lane: one.lane,
                documents: 1,
                bytes: serde_json::to_vec(&resolved).unwrap_or_default(),
            }
        });
        let totals: Vec<_> = totals.collect();
        if totals.is_empty() {
            return Ok(());
        }
        let receipt = self.side_topic.append_blocking(RESOLVED, &said(owner), totals)?;
        for (lane, offset) in receipt.places {
            let of_lane = found.iter_mut().find(|one| one.lane == lane);
            if let Some(one) = of_lane {
                one.history.last_resolved = Some(offset);
            }
        }
        Ok(())
    }

    /// Writes down where names lead, if that is news, before operations of these lanes are sent through them;
    /// all in-sync replicas have it when this returns.
    pub(super) async fn note_names(
        &self,
        lanes: &[u32],
        names: &BTreeMap<&str, &str>,
        now_ms: u64,
    ) -> Result<(), ParkedError> {
        let (owner, mut news) = (self.owner()?, Vec::new());
        {
            let owned = self.owned.lock();
            for number in lanes {
                let none = OwnedLane::default();
                let lane = owned.lanes.get(number).unwrap_or(&none);
                news.push((*number, lane.news(names, now_ms)));
            }
        }
        self.write_down(owner, news).await
    }

    /// Writes down where those names lead now through which operations were sent that led elsewhere then.
    pub(super) async fn note_moves(
        &self,
        index_of: impl Fn(&str) -> Option<String>,
        now_ms: u64,
    ) -> Result<(), ParkedError> {
        let (owner, mut news) = (self.owner()?, Vec::new());
        for (number, lane) in &self.owned.lock().lanes {
            let led = lane.led_to.iter().filter_map(|(name, known)| {
                let index = index_of(name).filter(|index| index != known)?;
                Some(NameLed::now(name, &index, now_ms))
            });
            news.push((*number, led.collect::<Vec<_>>()));
        }
        self.write_down(owner, news).await
    }

    async fn write_down(&self, owner: u64, news: Vec<(u32, Vec<NameLed>)>) -> Result<(), ParkedError> {
        let parts = self.parts_of_names(news.iter().map(|(lane, led)| (*lane, &**led)));
        if parts.is_empty() {
            return Ok(());
        }
        self.side_topic.append(LED_TO, &said(owner), parts).await?;
        let mut owned = self.owned.lock();
        if owned.owner != Some(owner) {
            return Err(ParkedError::NotOwner);
        }
        for (number, led) in news {
            let known = &mut owned.lanes.entry(number).or_default().led_to;
            known.extend(led.into_iter().map(|led| (led.name, led.index)));
        }
        Ok(())
    }

    fn parts_of_names<'l>(&self, all: impl Iterator<Item = (u32, &'l [NameLed])>) -> Vec<Part> {
        let bytes_max = self.record_bytes_max();
        let parts = all.flat_map(|(lane, led)| {
            let records = in_records(led, bytes_max).into_iter();
            records.map(move |bytes| Part {
                lane,
                documents: 1,
                bytes,
            })
        });
        parts.collect()
    }

    /// Takes over the places of a lane's entries.
    pub(super) fn knows<T>(&self, lane: u32, copies: &[(u64, u64)], history: History<T>) {
        let mut owned = self.owned.lock();
        for (offset, at) in copies {
            owned.place(*at, (lane, *offset));
        }
        let lane = owned.lanes.entry(lane).or_default();
        lane.last_resolved = history.last_resolved;
        lane.owners = history.owners();
    }

    /// Lets go of the lanes: they are others' from now on.
    pub(super) fn let_go(&self) {
        *self.owned.lock() = Owned::default();
    }

    /// Puts operations into the topic; they are acknowledged by all in-sync replicas when this returns.
    pub(super) async fn put(&self, at: u64, entry: &ParkedEntry, lines: &[u8]) -> Result<(), ParkedError> {
        let owner = self.owner()?;
        let mut bytes = serde_json::to_vec(entry).unwrap_or_default();
        bytes.push(b'\n');
        bytes.extend_from_slice(lines);
        let part = Part {
            lane: entry.lane,
            documents: entry.ops.len().max(1) as u32,
            bytes,
        };
        let receipt = self.side_topic.append(PUT, &said(owner), vec![part]).await?;
        let place = receipt.places.first().copied().unwrap_or_default();
        self.owned.lock().place(at, place);
        Ok(())
    }

    /// Records that operations are gone, and how many of each lane became dead letters. Returns whether that
    /// counts for certain.
    pub(super) async fn resolve(
        &self,
        gone: &[GoneEntry],
        dead: &BTreeMap<u32, u64>,
    ) -> Result<bool, ParkedError> {
        let owner = self.owner()?;
        let mut tries = 0;
        loop {
            let parts = self.resolutions(gone, dead);
            match self.side_topic.append(RESOLVED, &said(owner), parts).await {
                Ok(receipt) => {
                    self.has_resolved(&receipt);
                    // A gateway that was frozen writes as a former owner without being refused.
                    return Ok(self.may_write());
                }
                Err(error) if tries == TRIES_MAX || !self.may_write() => return Err(error.into()),
                Err(_) => {}
            }
            tries += 1;
            tokio::time::sleep(AGAIN).await;
        }
    }

    pub(super) fn resolve_blocking(
        &self,
        gone: &[GoneEntry],
        dead: &BTreeMap<u32, u64>,
    ) -> Result<(), ParkedError> {
        let parts = self.resolutions(gone, dead);
        let owner = said(self.owner()?);
        self.has_resolved(&self.side_topic.append_blocking(RESOLVED, &owner, parts)?);
        Ok(())
    }

    /// Tells the group how many of a lane's documents are parked, and how many that were parked have died.
    pub(super) fn tell(&self, lane: u32, parked: u64, dead: u64) {
        self.group.keep(lane, parked, dead);
    }

    /// Tells the group the same, from the moment on that more of the lane is done.
    pub(super) fn tell_when_done(&self, lane: u32, parked: u64, dead: u64) {
        self.group.keep_when_done(lane, parked, dead);
    }

    /// Converts a position on this disk to a number that identifies the entry on every gateway. The number is
    /// never used for another entry.
    pub(super) fn number_of(&self, at: u64) -> u64 {
        let owned = self.owned.lock();
        let place = owned.places.get(&at).copied();
        place.map_or(u64::MAX, |(lane, offset)| {
            offset * u64::from(self.lanes) + u64::from(lane)
        })
    }

    /// Returns the place on this disk for such a number, if the number is of one of this gateway's lanes.
    pub(super) fn at_of(&self, number: u64) -> Option<u64> {
        let place = (self.lane_of(number), self.offset_of(number));
        self.owned.lock().copies.get(&place).copied()
    }

    /// Returns the lane of the entry that such a number identifies.
    pub(super) fn lane_of(&self, number: u64) -> u32 {
        (number % u64::from(self.lanes)) as u32
    }

    /// Returns the offset of the entry that such a number identifies.
    pub(super) fn offset_of(&self, number: u64) -> u64 {
        number / u64::from(self.lanes)
    }

    /// The name under which the gateway holds its lanes, if it holds any.
    pub(super) fn held_as(&self) -> Option<u64> {
        self.owned.lock().owner
    }

    /// Whether the gateway holds a lane, and knows what is parked of it.
    pub(super) fn holds(&self, lane: u32) -> bool {
        self.owned.lock().lanes.contains_key(&lane)
    }

    /// Takes over the new places of entries that were written again on this disk.
    pub(super) fn moved(&self, moved: &BTreeMap<u64, u64>) {
        let mut owned = self.owned.lock();
        for (from, to) in moved {
            if let Some(place) = owned.places.remove(from) {
                owned.place(*to, place);
            }
        }
    }

    /// Whether many entries were resolved since records that are no longer needed were last deleted.
    pub(super) fn is_untidy(&self) -> bool {
        self.owned.lock().resolutions >= TIDY_AFTER
    }

    /// Deletes records that are no longer needed; `live` has the entries that are left, by their places on
    /// this disk.
    pub(super) fn tidy(self: &Arc<Self>, live: &BTreeSet<u64>) {
        let places = {
            let mut owned = self.owned.lock();
            owned.resolutions = 0;
            owned.places.retain(|at, _| live.contains(at));
            owned.copies.retain(|_, at| live.contains(at));
            owned.needless()
        };
        if places.is_empty() {
            return;
        }
        let topic = Arc::clone(self);
        // Only the brokers' disks depend on this.
        let tidied = thread("parked-tidy", Work::Parked, move || topic.delete_before(&places));
        drop(tidied);
    }

    /// Deletes the records before these places. What the brokers refuse is tried again, and in the end left
    /// to the next time.
    #[allow(clippy::disallowed_methods, reason = "it has a thread of its own")]
    fn delete_before(&self, places: &[(u32, u64)]) {
        for tries in 1.. {
            let Err(error) = self.side_topic.delete_before(places) else {
                return self.owned.lock().deleted_before(places);
            };
            if tries == TRIES_MAX || !self.may_write() {
                let topic = self.side_topic.name();
                tracing::debug!(topic, %error, "what is needed no more stays");
                return;
            }
            std::thread::sleep(AGAIN);
        }
    }

    pub(super) fn close(&self) {
        self.side_topic.close();
    }

    fn owner(&self) -> Result<u64, ParkedError> {
        self.owned.lock().owner.ok_or(ParkedError::NotOwner)
    }

    fn may_write(&self) -> bool {
        let lease = self.group.lease();
        lease.is_some_and(|until| Instant::now() < until)
    }

    /// Writes a record into each lane's partition; returns where the records are.
    fn say(
        &self,
        kind: u8,
        owner: u64,
        lanes: &[u32],
        bytes: impl Fn(u32) -> Vec<u8>,
    ) -> Result<Vec<(u32, u64)>, ParkedError> {
        let parts = lanes.iter().map(|lane| Part {
            lane: *lane,
            documents: 1,
            bytes: bytes(*lane),
        });
        let receipt = self
            .side_topic
            .append_blocking(kind, &said(owner), parts.collect());
        Ok(receipt?.places)
    }

    fn resolutions(&self, gone: &[GoneEntry], dead: &BTreeMap<u32, u64>) -> Vec<Part> {
        let owned = self.owned.lock();
        type Ordinals = Vec<(u64, Option<Vec<u32>>)>;
        let mut by_lane: BTreeMap<u32, Ordinals> = BTreeMap::new();
        for one in gone {
            if let Some((lane, offset)) = owned.places.get(&one.at) {
                by_lane.entry(*lane).or_default().push((*offset, one.ops.clone()));
            }
        }
        let parts = by_lane.into_iter().map(|(lane, ops)| {
            let resolved = Resolved {
                ops,
                dead: dead.get(&lane).copied().unwrap_or_default(),
                ..Resolved::default()
            };
            Part {
                lane,
                documents: 1,
                bytes: serde_json::to_vec(&resolved).unwrap_or_default(),
            }
        });
        parts.collect()
    }

    fn has_resolved(&self, receipt: &kafka::Receipt) {
        let mut owned = self.owned.lock();
        owned.resolutions += receipt.places.len();
        for (lane, offset) in &receipt.places {
            owned.lanes.entry(*lane).or_default().last_resolved = Some(*offset);
        }
    }
}

// === impl OwnedLane ===

impl OwnedLane {
    /// Returns which of these names have not been written down with the index that they lead to now. Of names
    /// beyond [`NAMES_MAX`], the next owner keeps nothing, so they are not written down.
    fn news(&self, names: &BTreeMap<&str, &str>, now_ms: u64) -> Vec<NameLed> {
        let mut room = NAMES_MAX.saturating_sub(self.led_to.len());
        let led = names
            .iter()
            .filter(|(name, index)| match self.led_to.get(**name) {
                Some(known) => known != **index,
                None if room == 0 => false,
                None => {
                    room -= 1;
                    true
                }
            });
        led.map(|(name, index)| NameLed::now(name, index, now_ms))
            .collect()
    }
}

// === impl Owned ===

impl Owned {
    fn place(&mut self, at: u64, place: (u32, u64)) {
        self.places.insert(at, place);
        self.copies.insert(place, at);
    }

    /// Returns for each lane the place before which nothing is needed, where that is news.
    fn needless(&self) -> Vec<(u32, u64)> {
        let mut oldest: BTreeMap<u32, u64> = BTreeMap::new();
        for (lane, offset) in self.places.values() {
            let least = oldest.entry(*lane).or_insert(*offset);
            *least = (*least).min(*offset);
        }
        let mut places = Vec::new();
        for (number, lane) in &self.lanes {
            let held_from = lane.owners.last().map_or(0, |(holds, _)| *holds);
            let oldest = oldest.get(number).copied();
            let needed = oldest.into_iter().chain(lane.last_resolved).min();
            let before = kept_from(&lane.owners, needed.unwrap_or(held_from));
            if before > lane.deleted_before {
                places.push((*number, before));
            }
        }
        places
    }

    fn deleted_before(&mut self, places: &[(u32, u64)]) {
        for (number, before) in places {
            if let Some(lane) = self.lanes.get_mut(number) {
                lane.deleted_before = lane.deleted_before.max(*before);
            }
        }
    }
}

/// Takes a record into a lane's history.
fn take_in<T>(
    history: &mut History<T>,
    record: kafka::Browsed,
    keep: &mut impl FnMut(&ParkedEntry, &[u8]) -> Result<T, ParkedError>,
) -> Result<(), ParkedError> {
    let at = record.offset;
    let foreign = |why: Foreign| ParkedError::Foreign { at, why };
    let json = |error: serde_json::Error| foreign(error.into());
    let head = record.head.map_err(|error| foreign(error.into()))?;
    let said: RecordParams = serde_json::from_slice(&record.params).map_err(json)?;
    match head.kind {
        BEGINS => {
            let begins: Begins = serde_json::from_slice(&record.lines).map_err(json)?;
            let redelivered = begins.committed..begins.end.unwrap_or(u64::MAX);
            history.begins(at, said.owner, redelivered, begins.anew);
        }
        HOLDS => history.holds(at, said.owner),
        PUT | RESOLVED | LED_TO if !history.counts(said.owner) => {}
        RESOLVED => history.resolved(at, serde_json::from_slice(&record.lines).map_err(json)?),
        LED_TO => history.led_to(serde_json::from_slice(&record.lines).map_err(json)?),
        PUT => {
            let ends = memchr::memchr(b'\n', &record.lines).ok_or_else(|| foreign(Foreign::NoLines))?;
            let entry: Box<ParkedEntry> = serde_json::from_slice(&record.lines[..ends]).map_err(json)?;
            let with = keep(&entry, &record.lines[ends + 1..])?;
            history.put(at, entry, with);
        }
        kind => return Err(foreign(Foreign::Kind(kind))),
    }
    Ok(())
}

fn said(owner: u64) -> Vec<u8> {
    serde_json::to_vec(&RecordParams { owner }).unwrap_or_default()
}

/// Returns a group's name as it stands in the name of a topic, which takes letters, digits and some signs.
fn in_a_topic(name: &str) -> String {
    let mut out = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' => out.push(char::from(byte)),
            byte => out.push_str(&format!("_{byte:02x}")),
        }
    }
    out
}

const PUT: u8 = 0;
const RESOLVED: u8 = 1;
const BEGINS: u8 = 2;
const HOLDS: u8 = 3;
const LED_TO: u8 = 4;
const PARAMS_BYTES_MAX: usize = 64;
/// The name that no owner has.
const NOBODY: u64 = 0;
/// How often the gateway tries to record that operations are gone, after which they stay parked and may be
/// executed once more; and how often it tries to delete records.
const TRIES_MAX: u32 = 10;
const AGAIN: Duration = Duration::from_millis(500);
/// How often the gateway tries to read what is parked of lanes before it begins with them anew.
const READS_MAX: u32 = 10;
/// The number of resolving records after which records that are no longer needed are deleted.
const TIDY_AFTER: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_those_that_the_next_owner_keeps_are_not_written_down_again_and_again() {
        let mut lane = OwnedLane::default();
        let numbered = |number: usize| (format!("n{number:04}"), "i".to_owned());
        lane.led_to.extend((1..NAMES_MAX).map(numbered));
        let names = BTreeMap::from([("n0001", "i"), ("n0002", "j"), ("x1", "i"), ("x2", "i")]);
        let news = lane.news(&names, 5);
        let news: Vec<_> = news.iter().map(|led| (&*led.name, &*led.index)).collect();
        assert_eq!(
            news,
            [("n0002", "j"), ("x1", "i")],
            "what is news, as far as there is room"
        );
        lane.led_to.insert("x1".to_owned(), "i".to_owned());
        assert!(lane.news(&BTreeMap::from([("x2", "i")]), 5).is_empty());
    }

    #[test]
    fn a_group_has_a_topic_of_its_own_whatever_its_name() {
        assert_eq!(in_a_topic("prod-2.x"), "prod-2.x");
        assert_ne!(in_a_topic("a b"), in_a_topic("a_b"));
        assert_eq!(in_a_topic("a b_ü"), "a_20b_5f_c3_bc");
    }
}
