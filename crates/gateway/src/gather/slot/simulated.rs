//! A slot, its clients and a node with this many cores, in simulated time: shows the results of the slot's
//! trials.

use std::time::{Duration, Instant};

use super::*;

/// A client's part of one bulk.
#[derive(Clone, Copy, Debug)]
struct Bulk {
    client: usize,
    docs: u32,
}

impl Weight for Bulk {
    fn bytes(&self) -> u64 {
        u64::from(self.docs) * DOC_BYTES
    }

    fn docs(&self) -> u32 {
        self.docs
    }
}

/// A node: it works on each shard's part of a request with one thread, and its threads share its cores.
#[derive(Clone, Copy)]
struct Node {
    cores: f64,
    shards: u32,
    /// The cost of a shard's part, and of each document in it, in seconds of a core.
    part: f64,
    doc: f64,
}

/// Clients that send the next bulk this long after each answer.
#[derive(Clone, Copy)]
struct Clients {
    count: usize,
    docs: u32,
    turn: f64,
}

struct Request {
    /// The work that is left to each shard's thread.
    threads: Vec<f64>,
    since: f64,
    members: Vec<Bulk>,
}

/// The result of a simulation.
#[derive(Debug)]
struct SimulationResult {
    /// Documents a second.
    docs: f64,
    /// Microseconds of the node's cores for each document.
    cost: f64,
}

const DOC_BYTES: u64 = 300;

/// Makes a node with costs as measured on a warm node: some 0.4 ms for each shard that a request touches, and
/// 24 us for each document.
const fn node(cores: f64) -> Node {
    Node {
        cores,
        shards: 2,
        part: 0.4e-3,
        doc: 24e-6,
    }
}

/// A node, its clients, and the slot between them.
struct Simulation {
    node: Node,
    clients: Clients,
    settings: Combine,
    shifts: Shifts,
    slot: Slot<Bulk, ()>,
    start: Instant,
    /// The time at which each client sends its next bulk.
    coming: Vec<(f64, usize)>,
    /// The time at which a timer goes off, and its round of the slot.
    timers: Vec<(f64, u64)>,
    open: Vec<Request>,
    now: f64,
    docs: u64,
    work: f64,
}

fn run(node: Node, clients: Clients, seconds: f64, shifts: Shifts) -> SimulationResult {
    let mut simulation = Simulation::new(node, clients, shifts);
    while simulation.now < seconds {
        simulation.pass();
        if simulation.ring() {
            simulation.consider(true);
        }
        simulation.answer();
        simulation.come();
    }
    SimulationResult {
        docs: simulation.docs as f64 / simulation.now,
        cost: simulation.work / simulation.docs as f64 * 1e6,
    }
}

impl Simulation {
    fn new(node: Node, clients: Clients, shifts: Shifts) -> Self {
        let start = Instant::now();
        let coming = (0..clients.count).map(|client| (client as f64 * 1e-4, client));
        let settings = Combine {
            enabled: true,
            flush_bytes: 8 << 20,
            docs_max: 100_000,
            requests_max: 1024,
            interval: Duration::from_millis(50),
            adaptive: true,
        };
        Self {
            slot: Slot::new(&(), start),
            coming: coming.collect(),
            timers: Vec::new(),
            open: Vec::new(),
            now: 0.0,
            docs: 0,
            work: 0.0,
            node,
            clients,
            settings,
            shifts,
            start,
        }
    }

    fn at(&self) -> Instant {
        self.start + Duration::from_secs_f64(self.now)
    }

    /// Lets time pass until a client comes, a timer goes off, or a thread is done.
    fn pass(&mut self) {
        let threads = self
            .open
            .iter()
            .flat_map(|request| &request.threads)
            .filter(|left| **left > 0.0);
        let speed = (self.node.cores / threads.clone().count().max(1) as f64).min(1.0);
        let done = threads.copied().fold(f64::INFINITY, f64::min) / speed;
        let comes = self.coming.iter().map(|(when, _)| when - self.now);
        let rings = self.timers.iter().map(|(when, _)| when - self.now);
        let passes = comes.chain(rings).fold(done, f64::min).max(0.0);
        self.now += passes;
        for left in self.open.iter_mut().flat_map(|request| &mut request.threads) {
            if *left > 0.0 {
                self.work += passes * speed;
                *left -= passes * speed;
                if *left < 1e-9 {
                    *left = 0.0;
                }
            }
        }
    }

    /// Takes the timers that go off. Returns whether one is of the slot's round.
    fn ring(&mut self) -> bool {
        let (round, now, mut due) = (self.slot.round(), self.now, false);
        self.timers.retain(|(when, of)| {
            let rings = *when <= now + 1e-9;
            due |= rings && *of == round;
            !rings
        });
        due
    }

    /// Sends the parts that are to go now.
    fn consider(&mut self, mut due: bool) {
        let at = self.at();
        loop {
            match self.slot.next_step(&self.shifts, &self.settings, at) {
                _ if std::mem::take(&mut due) => {}
                SlotAction::Nothing => return,
                SlotAction::Wait { longest, round } => {
                    return self.timers.push((self.now + longest.as_secs_f64(), round));
                }
                SlotAction::Send => {}
            }
            match self.slot.take(&mut self.shifts, (u64::MAX, u64::MAX), at) {
                Some(((), members)) => self.open.push(self.node.request(members, self.now)),
                None => return,
            }
        }
    }

    /// Answers the requests that all threads are done with. The clients then come again.
    fn answer(&mut self) {
        for index in (0..self.open.len()).rev() {
            if self.open[index].threads.iter().any(|left| *left > 0.0) {
                continue;
            }
            let request = self.open.swap_remove(index);
            let bytes = request.members.iter().map(Weight::bytes).sum();
            let lasted = Duration::from_secs_f64(self.now - request.since);
            let (members, at) = (request.members.len(), self.at());
            self.slot.returned(&mut self.shifts, (members, bytes), lasted, at);
            for member in request.members {
                self.docs += u64::from(member.docs);
                self.coming.push((self.now + self.clients.turn, member.client));
            }
            self.consider(false);
        }
    }

    /// Takes the bulks of the clients that come now.
    fn come(&mut self) {
        let now = self.now;
        let here: Vec<_> = self
            .coming
            .extract_if(.., |(when, _)| *when <= now + 1e-9)
            .collect();
        for (_, client) in here {
            let docs = self.clients.docs;
            let (bulk, at) = (Bulk { client, docs }, self.at());
            if self.slot.alone(&mut self.shifts, at) {
                self.open.push(self.node.request(vec![bulk], now));
            } else {
                self.slot.push(&(), bulk);
                self.consider(false);
            }
        }
    }
}

impl Node {
    fn request(&self, members: Vec<Bulk>, now: f64) -> Request {
        let docs: u32 = members.iter().map(|member| member.docs).sum();
        let each = self.part + self.doc * f64::from(docs) / f64::from(self.shards);
        Request {
            threads: vec![each; self.shards as usize],
            since: now,
            members,
        }
    }
}

/// Bulks of 10, 1,000 and 10,000 documents, spread over three nodes.
const LOADS: [(usize, u32); 4] = [(64, 3), (8, 333), (32, 333), (4, 3333)];

const fn clients((count, docs): (usize, u32)) -> Clients {
    Clients {
        count,
        docs,
        turn: 1e-3,
    }
}

#[test]
fn a_node_with_cores_to_spare_is_given_more_at_once() {
    for (load, times) in LOADS.into_iter().zip([1.3, 3.0, 2.8, 3.0]) {
        let one = run(node(8.0), clients(load), 10.0, Shifts::fixed(1));
        let found = run(node(8.0), clients(load), 60.0, Shifts::starting_with(1));
        assert!(found.docs > one.docs * times, "{load:?}: {one:?} {found:?}");
    }
}

#[test]
fn a_node_that_has_none_gets_one_at_a_time() {
    for cores in [0.7, 2.0] {
        for load in LOADS {
            let one = run(node(cores), clients(load), 10.0, Shifts::fixed(1));
            let found = run(node(cores), clients(load), 40.0, Shifts::starting_with(1));
            assert!(found.docs > one.docs * 0.97, "{load:?}: {one:?} {found:?}");
            assert!(found.cost < one.cost * 1.03, "{load:?}: {one:?} {found:?}");
        }
    }
}

#[test]
fn when_it_has_no_longer_any_it_goes_back_to_one() {
    for load in LOADS {
        let one = run(node(0.7), clients(load), 10.0, Shifts::fixed(1));
        let found = run(node(0.7), clients(load), 240.0, Shifts::starting_with(8));
        assert!(found.docs > one.docs * 0.95, "{load:?}: {one:?} {found:?}");
        assert!(found.cost < one.cost * 1.1, "{load:?}: {one:?} {found:?}");
    }
}
