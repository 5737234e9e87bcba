//! A slot, its clients and a node with so many cores, in simulated time: what trying how much a node takes
//! comes to.

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

/// A node works on each shard's part of a request with one thread, and its threads share its cores.
#[derive(Clone, Copy)]
struct Node {
    cores: f64,
    shards: u32,
    /// What a shard's part costs, and each document of it, seconds of a core.
    part: f64,
    doc: f64,
}

/// Clients that send the next bulk so long after each answer.
#[derive(Clone, Copy)]
struct Clients {
    count: usize,
    docs: u32,
    turn: f64,
}

struct Request {
    /// The work left to each shard's thread.
    threads: Vec<f64>,
    since: f64,
    members: Vec<Bulk>,
}

/// What came of it.
#[derive(Debug)]
struct Seen {
    /// Documents a second.
    docs: f64,
    /// Microseconds of the node's cores a document.
    cost: f64,
}

const DOC_BYTES: u64 = 300;

/// As measured on a warm node: some 0.4 ms for each shard that a request touches, and 24 us a document.
const fn node(cores: f64) -> Node {
    Node {
        cores,
        shards: 2,
        part: 0.4e-3,
        doc: 24e-6,
    }
}

fn run(node: Node, clients: Clients, seconds: f64, mut shifts: Shifts) -> Seen {
    let start = Instant::now();
    let at = |now: f64| start + Duration::from_secs_f64(now);
    let settings = Combine {
        enabled: true,
        flush_bytes: 8 << 20,
        docs_max: 100_000,
        requests_max: 1024,
        interval: Duration::from_millis(50),
        adaptive: true,
    };
    let mut slot: Slot<Bulk, ()> = Slot::new(&(), start);
    let mut coming: Vec<(f64, usize)> = (0..clients.count)
        .map(|client| (client as f64 * 1e-4, client))
        .collect();
    let (mut timers, mut open): (Vec<(f64, u64)>, Vec<Request>) = (Vec::new(), Vec::new());
    let (mut now, mut docs, mut work) = (0.0_f64, 0_u64, 0.0_f64);
    while now < seconds {
        // What happens next: somebody comes, a timer goes off, or a thread is done.
        let threads = open
            .iter()
            .flat_map(|request| &request.threads)
            .filter(|left| **left > 0.0);
        let speed = (node.cores / threads.clone().count().max(1) as f64).min(1.0);
        let done = threads.copied().fold(f64::INFINITY, f64::min) / speed;
        let comes = coming.iter().map(|(when, _)| when - now);
        let rings = timers.iter().map(|(when, _)| when - now);
        let passes = comes.chain(rings).fold(done, f64::min).max(0.0);
        now += passes;
        for left in open.iter_mut().flat_map(|request| &mut request.threads) {
            if *left > 0.0 {
                work += passes * speed;
                *left -= passes * speed;
                if *left < 1e-9 {
                    *left = 0.0;
                }
            }
        }
        let (round, mut due) = (slot.round(), false);
        timers.retain(|(when, of)| {
            let rings = *when <= now + 1e-9;
            due |= rings && *of == round;
            !rings
        });
        let mut consider =
            |slot: &mut Slot<Bulk, ()>, shifts: &mut Shifts, open: &mut Vec<Request>, mut due: bool| {
                loop {
                    match slot.next_step(shifts, &settings, at(now)) {
                        _ if std::mem::take(&mut due) => {}
                        SlotAction::Nothing => return,
                        SlotAction::Wait { longest, round } => {
                            return timers.push((now + longest.as_secs_f64(), round));
                        }
                        SlotAction::Send => {}
                    }
                    match slot.take(shifts, (u64::MAX, u64::MAX), at(now)) {
                        Some(((), members)) => open.push(node.request(members, now)),
                        None => return,
                    }
                }
            };
        if due {
            consider(&mut slot, &mut shifts, &mut open, true);
        }
        for index in (0..open.len()).rev() {
            if open[index].threads.iter().any(|left| *left > 0.0) {
                continue;
            }
            let request = open.swap_remove(index);
            let bytes = request.members.iter().map(Weight::bytes).sum();
            let lasted = Duration::from_secs_f64(now - request.since);
            slot.returned(&mut shifts, (request.members.len(), bytes), lasted, at(now));
            for member in request.members {
                docs += u64::from(member.docs);
                coming.push((now + clients.turn, member.client));
            }
            consider(&mut slot, &mut shifts, &mut open, false);
        }
        let here: Vec<_> = coming.extract_if(.., |(when, _)| *when <= now + 1e-9).collect();
        for (_, client) in here {
            let bulk = Bulk {
                client,
                docs: clients.docs,
            };
            if slot.alone(&mut shifts, at(now)) {
                open.push(node.request(vec![bulk], now));
            } else {
                slot.push(&(), bulk);
                consider(&mut slot, &mut shifts, &mut open, false);
            }
        }
    }
    Seen {
        docs: docs as f64 / now,
        cost: work / docs as f64 * 1e6,
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
