//! A model of lanes and parked operations against indices that are blocked or closed, deleted and made again,
//! and aliases that move, at random: writes to one document are executed in the order in which they were
//! accepted, and nothing waits for an index that its name does not lead to. Nodes keep requests of lanes and
//! of tries, whose writes are parked meanwhile, and are sent nothing more. In some runs the lanes are those
//! of a queue in Kafka, each with positions of its own.

mod checks;
mod tries;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::key_batch::{DueSteps, Held};
use crate::delivery::same_document::SameDocument;
use crate::queue::parked::{
    Flight, FlightOp, Holder, HolderQuery, OperationNames, ParkKey, ParkedEntry, ParkedState, Picked, Tried,
    read_again,
};

const INDICES: [&str; 4] = ["b", "i1", "i2", "z"];
const ALIASES: [&str; 2] = ["a", "y"];
const IDS: usize = 3;
const LANES: u32 = 3;

/// Where names lead. An alias may lead nowhere for a while; an index leads to itself, unless it is not there.
type Topology = BTreeMap<&'static str, Option<&'static str>>;

/// A write that was accepted.
#[derive(Clone, Debug)]
struct Write {
    written: &'static str,
    id: usize,
    lane: u32,
    /// In its queue, and among all that was accepted.
    position: u64,
    accepted: u64,
    /// The index that its name led to when it was accepted, as far as was known.
    accepted_for: Option<&'static str>,
    /// Whether it has to stay in the index that has its document, if it may have been executed there.
    scripted: bool,
    doubt: bool,
    settled: bool,
    /// Whether its batch is committed, for which other lanes wait.
    committed: bool,
    /// Whether it has waited by itself.
    alone: bool,
}

/// A batch of a lane that is under way.
struct LaneBatch {
    all: Vec<usize>,
    left: Vec<usize>,
    /// Writes that are at the cluster, and where names led when they were sent.
    sent: Vec<usize>,
    sent_by: Option<Topology>,
    /// Writes that are being put on disk, each under its key.
    putting: Vec<ToPut>,
}

/// Writes that are being put on disk, and the request that is under way with them, if one is.
struct ToPut {
    key: ParkKey,
    writes: Vec<usize>,
    topology: Topology,
    flight: Option<Arc<Flight>>,
}

/// A request that a node keeps.
struct Kept {
    flight: Arc<Flight>,
    writes: Vec<usize>,
    /// Where names led when it was sent, and how much had been executed by then.
    topology: Topology,
    executed: usize,
    /// What keeps others from its documents, if it was a try's.
    number: Option<u64>,
}

/// A try of a key that is under way.
struct Try {
    key: ParkKey,
    /// What the state knows it by, if its key may have several.
    number: Option<u64>,
    topology: Topology,
    picked: Vec<Picked>,
    /// The operations, each with its piece and its number in the entry.
    of: Vec<(usize, u32)>,
    sent: Option<Vec<usize>>,
    moved: Vec<(usize, ParkKey)>,
    /// Operations that are not sent, since their node keeps others.
    kept: Vec<usize>,
}

struct Model {
    random: u64,
    /// What may happen besides moves and blocks.
    restarts: bool,
    /// Whether the queue is in Kafka.
    partitions: bool,
    writes: Vec<Write>,
    state: ParkedState,
    generation: u64,
    known: Topology,
    /// All topologies that were known, each with the position that was accepted first.
    history: Vec<(u64, Topology)>,
    cluster: Topology,
    blocked: BTreeSet<&'static str>,
    /// How often each index was made again.
    made: BTreeMap<&'static str, usize>,
    lanes: Vec<Option<LaneBatch>>,
    tries: Vec<Try>,
    /// Requests that nodes keep.
    kept: Vec<Kept>,
    /// Entries on disk, and their writes.
    disk: BTreeMap<u64, (ParkedEntry, Vec<usize>, BTreeSet<u32>)>,
    /// Entries of batches that are not committed.
    unsettled: BTreeMap<u32, Vec<u64>>,
    next_at: u64,
    /// What each index has executed since it was made, whether the write was sent there knowingly, and how
    /// many topologies were known by then.
    executed: Vec<(Made, usize, bool, usize)>,
}

/// An index, and how often it had been made again.
type Made = (&'static str, usize);

// === impl ToPut ===

impl ToPut {
    fn new(key: ParkKey, writes: Vec<usize>, topology: &Topology, flight: Option<Arc<Flight>>) -> Self {
        let topology = topology.clone();
        Self {
            key,
            writes,
            topology,
            flight,
        }
    }
}

fn resolve(topology: &Topology, name: &str) -> Option<&'static str> {
    let leads = topology.get(name).copied().flatten()?;
    topology.get(leads).copied().flatten()
}

// === impl Model ===

impl Model {
    fn new(seed: u64) -> Self {
        let aliases = ALIASES.iter().map(|alias| (*alias, Some("i1")));
        let known: Topology = aliases
            .chain(INDICES.iter().map(|index| (*index, Some(*index))))
            .collect();
        Self {
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            restarts: seed.is_multiple_of(2),
            partitions: seed.is_multiple_of(3),
            writes: Vec::new(),
            state: ParkedState::default(),
            generation: 1,
            history: vec![(0, known.clone())],
            cluster: known.clone(),
            known,
            blocked: BTreeSet::new(),
            made: BTreeMap::new(),
            lanes: (0..LANES).map(|_| None).collect(),
            tries: Vec::new(),
            kept: Vec::new(),
            disk: BTreeMap::new(),
            unsettled: BTreeMap::new(),
            next_at: 10,
            executed: Vec::new(),
        }
    }

    fn below(&mut self, end: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((self.random >> 33) as usize) % end
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn named(&self, write: usize, topology: &Topology) -> OperationNames {
        let write = &self.writes[write];
        let concrete = resolve(topology, write.written).map(str::to_owned);
        OperationNames::new(write.written.to_owned(), concrete, Some(&write.id.to_string()))
    }

    fn document(&self, write: usize, topology: &Topology) -> u64 {
        self.named(write, topology).document[1]
    }

    /// The indices that a write's name has led to since it was accepted.
    fn led_since(&self, name: &str, accepted: u64) -> Vec<String> {
        let later = self
            .history
            .iter()
            .rposition(|(from, _)| *from <= accepted)
            .unwrap_or_default();
        let led = self.history[later..]
            .iter()
            .filter_map(|(_, topology)| resolve(topology, name));
        led.map(str::to_owned).collect()
    }

    fn follow(&mut self, own: Option<&ParkKey>) {
        let led = self.state.written_names(self.generation).into_iter();
        let led = led.map(|(name, (_, accepted))| {
            let indices = self.led_since(&name, accepted);
            (name, indices)
        });
        let led: Vec<_> = led.collect();
        let known = self.known.clone();
        let index = |name: &str| resolve(&known, name).map(str::to_owned);
        self.state.follow_by((self.generation, &index), own, &led);
    }

    fn accept(&mut self) {
        let names = INDICES.len() + 2 * ALIASES.len();
        let written = match self.below(names) {
            at if at < INDICES.len() => INDICES[at],
            at => ALIASES[at % ALIASES.len()],
        };
        let (id, accepted) = (self.below(IDS), 1000 + self.writes.len() as u64);
        let accepted_for = resolve(&self.known, written);
        let lane = accepted_for
            .unwrap_or(written)
            .bytes()
            .map(u32::from)
            .sum::<u32>()
            + id as u32;
        let lane = if self.partitions { id as u32 } else { lane } % LANES;
        let of_lane = self.writes.iter().filter(|write| write.lane == lane);
        let position = match self.partitions {
            true => 1000 + of_lane.count() as u64,
            false => accepted,
        };
        let scripted = self.restarts && self.one_in(4);
        self.writes.push(Write {
            written,
            id,
            lane,
            position,
            accepted,
            accepted_for,
            scripted,
            doubt: false,
            settled: false,
            committed: false,
            alone: false,
        });
    }

    fn learn(&mut self) {
        self.known = self.cluster.clone();
        self.generation += 1;
        self.history
            .push((1000 + self.writes.len() as u64, self.known.clone()));
    }

    fn move_alias(&mut self) {
        let alias = ALIASES[self.below(ALIASES.len())];
        let index = match self.one_in(8) {
            true => None,
            false => Some(INDICES[self.below(INDICES.len())]),
        };
        // No alias leads to an index that is not there.
        let index = index.filter(|index| self.cluster[index].is_some());
        self.cluster.insert(alias, index);
    }

    /// Deletes an index with its aliases, or makes it again.
    fn delete_or_make(&mut self) {
        let index = INDICES[self.below(INDICES.len())];
        if self.cluster[index].is_none() {
            *self.made.entry(index).or_default() += 1;
            self.cluster.insert(index, Some(index));
            return;
        }
        self.cluster
            .values_mut()
            .filter(|leads| **leads == Some(index))
            .for_each(|leads| *leads = None);
    }

    fn make_all(&mut self) {
        for index in INDICES {
            if self.cluster[index].is_none() {
                *self.made.entry(index).or_default() += 1;
                self.cluster.insert(index, Some(index));
            }
        }
    }

    fn made(&self, index: &'static str) -> Made {
        (index, self.made.get(index).copied().unwrap_or_default())
    }

    /// Whether an index that is there has executed a write.
    fn has_executed(&self, (index, made): Made) -> bool {
        self.cluster[index].is_some() && self.made(index) == (index, made)
    }

    /// Executes a write at the cluster; returns whether it was.
    fn execute(&mut self, write: usize, sent_by: &Topology) -> bool {
        let (one, done) = (
            self.writes[write].clone(),
            self.executed
                .iter()
                .any(|(index, of, ..)| *of == write && self.has_executed(*index)),
        );
        // It is looked for before it is sent again.
        if done && one.doubt {
            return true;
        }
        let now = resolve(sent_by, one.written);
        let has = |index: &str| {
            let mut all = self.executed.iter();
            all.any(|(of, other, ..)| {
                of.0 == index && self.has_executed(*of) && self.writes[*other].id == one.id
            })
        };
        let led = self.led_since(one.written, one.accepted);
        let stays = led.iter().find(|led| Some(led.as_str()) != now && has(led));
        let stays = stays.filter(|_| one.doubt && one.scripted && !now.is_some_and(has));
        let stays = stays
            .and_then(|led| INDICES.iter().find(|index| *index == led))
            .copied();
        match stays.or_else(|| resolve(&self.cluster, one.written)) {
            Some(index) if !self.blocked.contains(index) => {
                let knowingly = stays.is_some() || now == Some(index);
                let made = self.made(index);
                self.executed.push((made, write, knowingly, self.history.len()));
                true
            }
            _ => false,
        }
    }

    /// Takes the next writes of a lane, as far as nothing earlier on their documents is elsewhere.
    fn begin(&mut self, lane: u32) {
        let (mut left, most) = (Vec::new(), 1 + self.below(5));
        for at in 0..self.writes.len() {
            let one = &self.writes[at];
            if one.settled || one.lane != lane {
                continue;
            }
            let earlier = self.writes[..at].iter();
            let mut elsewhere = earlier.filter(|before| before.id == one.id && before.lane != lane);
            // Lanes do not read across a fence.
            let mut moves = self.history.iter().map(|(from, _)| *from);
            let first = left
                .first()
                .map_or(one.accepted, |first: &usize| self.writes[*first].accepted);
            let is_parted = !self.partitions && moves.any(|from| first < from && from <= one.accepted);
            if left.len() == most || is_parted || elsewhere.any(|before| !before.committed) {
                break;
            }
            left.push(at);
        }
        if !left.is_empty() {
            self.lanes[lane as usize] = Some(LaneBatch {
                all: left.clone(),
                left,
                sent: Vec::new(),
                sent_by: None,
                putting: Vec::new(),
            });
        }
    }

    fn step_lane(&mut self, lane: u32) {
        let Some(mut batch) = self.lanes[lane as usize].take() else {
            return self.begin(lane);
        };
        if let Some(to_put) = batch.putting.pop() {
            self.put(lane, to_put);
        } else if let Some(topology) = batch.sent_by.take() {
            self.settle_lane(&mut batch, topology);
        } else if batch.left.is_empty() {
            self.unsettled.remove(&lane);
            self.state.count(lane);
            batch
                .all
                .iter()
                .for_each(|write| self.writes[*write].committed = true);
            return;
        } else {
            self.send_lane(lane, &mut batch);
        }
        self.lanes[lane as usize] = Some(batch);
    }

    /// Parks what has to wait, and sends the first write to each other document.
    fn send_lane(&mut self, lane: u32, batch: &mut LaneBatch) {
        self.follow(None);
        let mut by_key: BTreeMap<ParkKey, Vec<usize>> = BTreeMap::new();
        let (known, mut left) = (self.known.clone(), Vec::new());
        for write in std::mem::take(&mut batch.left) {
            match self.holder(write, lane, &known, None) {
                Some(Holder::Key(key)) => by_key.entry(key).or_default().push(write),
                Some(Holder::OtherLane(_)) => unreachable!("no line is for one lane"),
                None => left.push(write),
            }
        }
        let held: Vec<_> = by_key
            .into_iter()
            .map(|(key, of)| ToPut::new(key, of, &known, None))
            .collect();
        if !held.is_empty() {
            (batch.putting, batch.left) = (held, left);
            return;
        }
        let mut same = SameDocument::default();
        for write in left {
            let is_first = same.next(self.document(write, &known), None)
                == crate::delivery::same_document::TryStep::Send;
            let to = if is_first {
                &mut batch.sent
            } else {
                &mut batch.left
            };
            to.push(write);
        }
        batch.sent_by = Some(known);
    }

    fn holder(&self, write: usize, lane: u32, known: &Topology, after: Option<&ParkKey>) -> Option<Holder> {
        let named = self.named(write, known);
        let query = HolderQuery {
            named: &named,
            lane,
            position: self.writes[write].position,
            target: "/_bulk",
            fences: &[],
            shard: &|| None,
        };
        self.state.holder(&query, after)
    }

    fn settle_lane(&mut self, batch: &mut LaneBatch, topology: Topology) {
        let mut by_key: BTreeMap<ParkKey, Vec<usize>> = BTreeMap::new();
        let flight = self.one_in(4).then(Arc::default);
        if let Some(flight) = &flight {
            self.kept.push(Kept {
                flight: Arc::clone(flight),
                writes: batch.sent.clone(),
                topology: topology.clone(),
                executed: self.executed.len(),
                number: None,
            });
        }
        let are_alone = flight.is_some() && self.one_in(2);
        for write in std::mem::take(&mut batch.sent) {
            if flight.is_none() && self.execute(write, &topology) {
                self.writes[write].settled = true;
                continue;
            }
            let named = self.named(write, &topology);
            let key = match are_alone || flight.is_none() && self.one_in(6) {
                true => ParkKey::Documents,
                false => self.state.index_line(&named),
            };
            self.writes[write].alone |= key == ParkKey::Documents;
            by_key.entry(key).or_default().push(write);
        }
        batch.putting = by_key
            .into_iter()
            .map(|(key, of)| ToPut::new(key, of, &topology, flight.clone()))
            .collect();
    }

    fn flight_op(&self, write: usize) -> FlightOp {
        (self.writes[write].lane, self.writes[write].position, 0)
    }

    /// Lets a node answer one of the requests that it keeps, or lose its answer.
    fn land(&mut self) {
        let one = self.below(self.kept.len());
        let Kept {
            flight,
            writes,
            topology,
            executed,
            number,
        } = self.kept.swap_remove(one);
        let again = self.executed[executed..]
            .iter()
            .find(|(_, of, ..)| writes.contains(of));
        assert!(again.is_none(), "sent although a node kept it: {again:?}");
        let is_lost = self.one_in(3);
        let mut done = HashSet::new();
        for write in writes {
            if !self.one_in(5) && self.execute(write, &topology) && !is_lost {
                done.insert(self.flight_op(write));
            }
        }
        flight.lands(done);
        number.into_iter().for_each(|number| self.state.end_try(number));
        self.state.landed(&flight);
    }

    fn put(&mut self, lane: u32, to_put: ToPut) {
        let ToPut {
            key,
            writes,
            topology,
            flight,
        } = to_put;
        let mut entry = ParkedEntry {
            key,
            lane,
            names: Vec::new(),
            origins: Vec::new(),
            ops: Vec::new(),
            ..ParkedEntry::sample()
        };
        for write in &writes {
            let (named, one) = (self.named(*write, &topology), &self.writes[*write]);
            entry.add_names(&named);
            entry.ops.push((entry.origins.len() as u32, 0));
            entry.origins.push((one.position, one.accepted));
            if let Some(index) = one.accepted_for.filter(|index| *index != one.written) {
                let request = entry.origins.len() as u32 - 1;
                entry
                    .led_to
                    .push((request, one.written.to_owned(), index.to_owned()));
            }
        }
        let doubt = flight.is_some() || writes.iter().any(|write| self.writes[*write].doubt);
        let at = self.next_at;
        self.next_at += 10;
        self.state.insert_put(&entry, (at, 100), doubt);
        if let Some(flight) = flight {
            self.state.are_under_way(lane, at, &flight);
        }
        writes.iter().for_each(|write| self.writes[*write].settled = true);
        let left = (0..writes.len() as u32).collect();
        self.disk.insert(at, (entry, writes, left));
        self.unsettled.entry(lane).or_default().push(at);
    }

    fn step_parked(&mut self) {
        let under_way = self.tries.len();
        match self.below(under_way + 1) {
            at if at < under_way => self.step_try(at),
            _ => self.begin_try(),
        }
    }

    fn begin_try(&mut self) {
        self.state.ready();
        self.state.release(None);
        // All tries under way are late by then.
        let later = tokio::time::Instant::now() + Duration::from_secs(3600);
        let mut due = self.state.due_at(later, usize::MAX, usize::MAX);
        if due.is_empty() {
            return;
        }
        let key = due.swap_remove(self.below(due.len()));
        for other in due {
            self.state.wait_behind(&other, "", Duration::ZERO);
        }
        self.try_key(key);
    }

    /// Starts again with what is on disk: what was under way may have been executed.
    fn restart(&mut self) {
        let mut under_way: Vec<(usize, Topology)> = Vec::new();
        for batch in self.lanes.iter_mut().filter_map(Option::take) {
            if let Some(topology) = batch.sent_by {
                under_way.extend(batch.sent.into_iter().map(|write| (write, topology.clone())));
            }
        }
        for one in std::mem::take(&mut self.tries) {
            let sent = one.sent.clone().unwrap_or_default();
            let sent = sent.into_iter().map(|operation| self.write_of(&one, operation));
            under_way.extend(sent.map(|write| (write, one.topology.clone())));
        }
        for kept in std::mem::take(&mut self.kept) {
            let writes = kept.writes.into_iter();
            under_way.extend(writes.map(|write| (write, kept.topology.clone())));
        }
        for (write, topology) in under_way {
            if self.one_in(2) {
                self.execute(write, &topology);
            }
        }
        for at in std::mem::take(&mut self.unsettled).into_values().flatten() {
            let (_, writes, _) = self.disk.remove(&at).unwrap();
            writes
                .iter()
                .for_each(|write| self.writes[*write].settled = false);
        }
        // A batch is delivered again as a whole.
        for write in &mut self.writes {
            (write.doubt, write.committed) = (true, write.settled);
        }
        let entries: Vec<_> = self
            .disk
            .iter()
            .map(|(at, (entry, _, left))| (*at, entry.clone(), left.clone()))
            .collect();
        self.state = read_again(&entries);
    }

    fn happen(&mut self) {
        match self.below(60) {
            0..8 => self.accept(),
            8..11 => self.move_alias(),
            11..14 => self.learn(),
            14..17 => {
                let index = INDICES[self.below(INDICES.len())];
                if !self.blocked.remove(index) {
                    self.blocked.insert(index);
                }
            }
            19 if self.one_in(2) => self.delete_or_make(),
            17 if self.restarts && self.one_in(4) => self.restart(),
            18 if self.one_in(20) => drop(self.state.give_up(None)),
            _ => self.go_on(),
        }
    }

    fn go_on(&mut self) {
        if !self.kept.is_empty() && self.one_in(12) {
            return self.land();
        }
        match self.one_in(2) {
            true => {
                let lane = self.below(LANES as usize) as u32;
                self.step_lane(lane);
            }
            false => self.step_parked(),
        }
    }
}

fn run(seed: u64) {
    let mut model = Model::new(seed);
    for _ in 0..600 {
        model.happen();
    }
    // Nothing changes any more: what is not blocked goes through.
    model.make_all();
    for leads in model.cluster.values_mut() {
        leads.get_or_insert("z");
    }
    model.learn();
    for _ in 0..4_000 {
        model.go_on();
    }
    model.check_order(seed);
    if !model.restarts {
        model.check_waits(seed);
    }
    model.blocked.clear();
    for alias in ALIASES {
        model.cluster.insert(alias, Some("i2"));
    }
    model.learn();
    for _ in 0..4_000 {
        model.go_on();
    }
    assert!(
        model.disk.is_empty() && model.state.is_empty(),
        "seed {seed}: {:?}",
        model.disk
    );
    assert!(model.writes.iter().all(|write| write.settled), "seed {seed}");
    model.check_order(seed);
}

#[test]
fn writes_keep_their_order_and_wait_for_their_own_index_alone_whatever_moves() {
    let from = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let count = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let from = from.unwrap_or(0);
    for seed in from..from + count.unwrap_or(100) {
        run(seed);
    }
}
