//! The round robin among the shards of one index.
//!
//! The node is chosen first, then its shard. The small bulks of a node go to one of its shards until that
//! shard has had a run, so that bulks which travel together touch few shards, while all nodes work at the
//! same time. Nodes and shards are chosen by what they have been given so far, so that shards fill evenly.
//! Among nodes that are nearly even, a node with much less to do than the next one in turn goes first.
//!
//! What was given is counted twice. `given` is the true count. The `clock` of a shard advances with it, and
//! decides. The clock of a shard whose node is down advances with the other clocks, so that the shard is not
//! flooded when its node returns: the shard takes its turns, and while it has less than the others its clock
//! runs at half speed. It thus gets twice its share until it has caught up.

use parking_lot::{Mutex, MutexGuard};

use bulk::{NodeIx, Run, run_docs_max};

/// The turns of one index.
#[derive(Debug, Default)]
pub(super) struct RoundRobin(Mutex<Progress>);

#[derive(Debug, Default)]
struct Progress {
    primaries: Box<[Option<NodeIx>]>,
    shards: Vec<Shard>,
    homes: Vec<NodeShards>,
    given: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Shard {
    /// Documents.
    given: u64,
    /// Half documents: each document counts two, or one while the shard has less than the others.
    clock: u64,
    /// The position of the shard's home in `homes`.
    home: usize,
}

/// A node with primaries of the index. The last home is no node, and holds the shards without one.
#[derive(Debug)]
struct NodeShards {
    node: Option<NodeIx>,
    shards: Vec<u32>,
    /// The sum of the clocks of its shards.
    clock: u64,
    /// The shard whose run it is, and the documents that are left in the run.
    current: Option<(u32, u64)>,
    /// Bytes of this index's documents that are on their way to the node.
    bytes_in_flight: u64,
}

impl RoundRobin {
    /// Returns the next run. `busy` returns how much a node has to do, in any unit, as a logarithm, or `None`
    /// if the node is down. Returns `None` when every node is down.
    pub(super) fn next(
        &self,
        primaries: &[Option<NodeIx>],
        busy: impl Fn(NodeIx) -> Option<f32>,
    ) -> Option<Run> {
        let mut state = self.lock();
        state.settle(primaries);
        state.next(busy)
    }

    /// Records that documents were given to a shard, and that `bytes` are on their way.
    pub(super) fn given(&self, shard: u32, docs: u32, bytes: u64) {
        let mut state = self.lock();
        let mean = state.mean();
        let Progress {
            shards, homes, given, ..
        } = &mut *state;
        let Some(one) = shards.get_mut(shard as usize) else {
            return;
        };
        let docs = u64::from(docs);
        let behind = one.given + share(mean, BEHIND) + RUN_DOCS_MIN < mean;
        let ticks = if behind { docs } else { docs * 2 };
        one.given += docs;
        one.clock += ticks;
        *given += docs;
        let home = &mut homes[one.home];
        home.clock += ticks;
        home.bytes_in_flight += bytes;
        if let Some((current, left)) = &mut home.current
            && *current == shard
        {
            *left = left.saturating_sub(docs);
        }
    }

    /// Records that `bytes` are no longer on their way.
    pub(super) fn returned(&self, shard: u32, bytes: u64) {
        let mut state = self.lock();
        if let Some(home) = state.shards.get(shard as usize).map(|shard| shard.home) {
            let home = &mut state.homes[home];
            home.bytes_in_flight = home.bytes_in_flight.saturating_sub(bytes);
        }
    }

    /// Takes back documents that were given to a shard and did not arrive there.
    pub(super) fn give_back(&self, shard: u32, docs: u32) {
        let mut state = self.lock();
        let docs = u64::from(docs);
        let Some(one) = state.shards.get_mut(shard as usize) else {
            return;
        };
        let (home, ticks) = (one.home, one.clock.min(docs * 2));
        one.given = one.given.saturating_sub(docs);
        one.clock -= ticks;
        state.homes[home].clock -= ticks;
        state.given = state.given.saturating_sub(docs);
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        wire::shared::touches("round robins of indices");
        self.0.lock()
    }
}

// === impl Progress ===

impl Progress {
    /// Assigns the shards to their nodes, if the nodes are not known yet or have changed. A different number
    /// of shards means another index with the same name.
    fn settle(&mut self, primaries: &[Option<NodeIx>]) {
        if *self.primaries == *primaries {
            return;
        }
        if self.shards.len() != primaries.len() {
            self.shards = vec![Shard::default(); primaries.len()];
            self.given = 0;
        }
        self.primaries = primaries.into();
        let mut nodes: Vec<_> = primaries.iter().flatten().copied().collect();
        nodes.sort_unstable();
        nodes.dedup();
        let home = |node| NodeShards {
            node,
            shards: Vec::new(),
            clock: 0,
            current: None,
            bytes_in_flight: 0,
        };
        self.homes = nodes.iter().copied().map(Some).chain([None]).map(home).collect();
        for ((number, shard), node) in (0..).zip(&mut self.shards).zip(primaries) {
            shard.home = match node {
                Some(node) => nodes.binary_search(node).unwrap_or(nodes.len()),
                None => nodes.len(),
            };
            let home = &mut self.homes[shard.home];
            home.shards.push(number);
            home.clock += shard.clock;
        }
    }

    fn next(&mut self, busy: impl Fn(NodeIx) -> Option<f32>) -> Option<Run> {
        let busy: Vec<Option<f32>> = self.homes.iter().map(|home| busy(home.node?)).collect();
        let up = || {
            let homes = self.homes.iter().zip(&busy).enumerate();
            homes.filter_map(|(at, (home, busy))| Some((at, home, (*busy)?)))
        };
        let (next, first, next_busy) =
            up().min_by(|(_, one, _), (_, other, _)| one.mean_clock().total_cmp(&other.mean_clock()))?;
        let earliest = first.mean_clock();
        let goal = self.mean().max(EVEN_AT_DOCS / self.shards.len() as u64);
        let latest = earliest + (share(goal, NEARLY_EVEN) * 2) as f64;
        // Nodes that are nearly alike keep their turns, whatever their momentary differences.
        let limit = first.load(next_busy) - std::f32::consts::LN_2;
        let chosen = up()
            .filter(|(_, home, busy)| home.mean_clock() <= latest && home.load(*busy) < limit)
            .min_by(|(_, one, busy), (_, other, others)| one.load(*busy).total_cmp(&other.load(*others)))
            .map_or(next, |(at, ..)| at);
        for (home, busy) in self.homes.iter_mut().zip(&busy) {
            if busy.is_none() {
                home.keep_up(&mut self.shards, earliest as u64);
            }
        }
        let shards = &self.shards;
        let home = &mut self.homes[chosen];
        let (shard, left) = match home.current {
            Some((shard, left)) if left > 0 => (shard, left),
            _ => {
                let next = home.shards.iter().min_by_key(|shard| {
                    let shard = &shards[**shard as usize];
                    (shard.clock, shard.given)
                });
                let longest = RUN_DOCS_MAX.min(u64::from(run_docs_max(shards.len() as u32)));
                let docs = share(goal, RUN).max(RUN_DOCS_MIN).min(longest);
                *home.current.insert((*next?, docs))
            }
        };
        Some(Run {
            shard,
            docs: left.max(RUN_DOCS_MIN) as u32,
            bytes: RUN_BYTES_MAX,
        })
    }

    fn mean(&self) -> u64 {
        self.given / self.shards.len().max(1) as u64
    }
}

// === impl NodeShards ===

impl NodeShards {
    fn mean_clock(&self) -> f64 {
        self.clock as f64 / self.shards.len().max(1) as f64
    }

    /// Returns what the node has to do, including the documents of this index, as a logarithm.
    fn load(&self, busy: f32) -> f32 {
        busy + (self.bytes_in_flight as f32 / BYTES_UNIT).ln_1p()
    }

    /// Advances the clocks of the home's shards, although they are given nothing.
    fn keep_up(&mut self, shards: &mut [Shard], clock: u64) {
        for shard in &self.shards {
            let shard = &mut shards[*shard as usize];
            let ticks = clock.saturating_sub(shard.clock);
            shard.clock += ticks;
            self.clock += ticks;
        }
    }
}

/// Returns `parts` thousandths of a number.
fn share(of: u64, parts: u64) -> u64 {
    of * parts / 1_000
}

/// The number of documents in an index from which on its shards are to be within 2 % of each other. With
/// fewer documents, and with more than about a hundred shards, the shards may be a few runs apart.
const EVEN_AT_DOCS: u64 = 1_000_000;

/// The length of a run, in thousandths of what a shard has (or will have, at [`EVEN_AT_DOCS`]). Two shards
/// can be two runs apart.
const RUN: u64 = 6;

/// How near a node has to be to the one whose turn it is, in thousandths, to go before it if it has less than
/// half as much to do.
const NEARLY_EVEN: u64 = 3;

/// How far a shard has to be below the mean, in thousandths, to catch up.
const BEHIND: u64 = 8;

/// The fewest documents that go to one shard, however many shards there are: the bulks of a few clients.
const RUN_DOCS_MIN: u64 = 32;

/// The most documents of a run: a large bulk is divided among shards, so that no shard has all the work while
/// the others wait.
const RUN_DOCS_MAX: u64 = 2_000;

/// The most bytes of a run.
const RUN_BYTES_MAX: u64 = 1 << 20;

/// The number of bytes on their way that weigh as much as one request.
const BYTES_UNIT: f32 = (128 << 10) as f32;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Primaries distributed over nodes in turn.
    fn dealt(shards: u32, nodes: u16) -> Vec<Option<NodeIx>> {
        (0..shards)
            .map(|shard| Some(NodeIx(shard as u16 % nodes)))
            .collect()
    }

    /// Gives a request's documents their shards, as planning does.
    fn request(
        turns: &RoundRobin,
        primaries: &[Option<NodeIx>],
        docs: u32,
        busy: impl Fn(NodeIx) -> Option<f32>,
        mut each: impl FnMut(u32, u32),
    ) {
        let mut left = docs;
        while left > 0 {
            let run = turns.next(primaries, &busy).unwrap();
            let now = left.min(run.docs);
            turns.given(run.shard, now, u64::from(now) * 600);
            turns.returned(run.shard, u64::from(now) * 600);
            each(run.shard, now);
            left -= now;
        }
    }

    fn spread(counts: &[u64]) -> f64 {
        let (min, max) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        (max - min) as f64 / mean
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn shards_are_within_two_percent_after_a_million_documents(
            shards in prop::sample::select(vec![2_u32, 3, 5, 6, 7, 12, 30, 60]),
            nodes in 1_u16..8,
            largest in prop::sample::select(vec![7_u32, 10, 300, 1_000, 10_000, 25_000]),
            slow in 0_u16..8,
            seed in any::<u64>(),
        ) {
            let (turns, primaries) = (RoundRobin::default(), dealt(shards, nodes));
            let mut random = fastrand::Rng::with_seed(seed);
            let mut counts = vec![0_u64; shards as usize];
            let mut given = 0;
            while given < 1_000_000 {
                let docs = random.u32(1..=largest);
                // One node always has more to do than the others; the load of the others changes.
                let change = random.f32() - 0.5;
                let load = |node: NodeIx| Some(if node.0 == slow { 9.0 } else { f32::from(node.0) * change });
                request(&turns, &primaries, docs, load, |shard, docs| counts[shard as usize] += u64::from(docs));
                given += docs;
            }
            prop_assert!(spread(&counts) <= 0.02, "{:?}", counts);
        }
    }

    #[test]
    fn a_nodes_small_bulks_share_a_shard_and_all_nodes_work() {
        let (turns, primaries) = (RoundRobin::default(), dealt(30, 3));
        // Requests of ten documents each, of which 30 are always on their way.
        let mut under_way = std::collections::VecDeque::new();
        let mut by_node = [const { Vec::new() }; 3];
        for _ in 0..300 {
            let run = turns.next(&primaries, |_| Some(0.0)).unwrap();
            turns.given(run.shard, 10, 6_000);
            under_way.push_back(run.shard);
            by_node[run.shard as usize % 3].push(run.shard);
            if under_way.len() > 30 {
                turns.returned(under_way.pop_front().unwrap(), 6_000);
            }
        }
        for shards in by_node {
            assert!((80..=120).contains(&shards.len()), "{}", shards.len());
            let changes = shards.windows(2).filter(|pair| pair[0] != pair[1]).count();
            // A run is 200 documents: 20 requests.
            assert!(changes <= 6, "{changes} changes in {} requests", shards.len());
        }
    }

    #[test]
    fn a_node_that_is_down_is_given_nothing_and_catches_up_without_a_flood() {
        let (turns, primaries) = (RoundRobin::default(), dealt(6, 3));
        let mut counts = [0_u64; 6];
        let mut write = |docs: u32, down: Option<u16>| {
            let mut given = [0_u64; 3];
            let busy = |node: NodeIx| (Some(node.0) != down).then_some(0.0);
            for _ in 0..docs / 100 {
                request(&turns, &primaries, 100, busy, |shard, docs| {
                    counts[shard as usize] += u64::from(docs);
                    given[shard as usize % 3] += u64::from(docs);
                });
            }
            (given, spread(&counts))
        };
        write(300_000, None);
        let (while_down, _) = write(300_000, Some(1));
        assert_eq!(while_down[1], 0);
        let (first, _) = write(60_000, None);
        assert!(
            (25_000..=45_000).contains(&first[1]),
            "half of it, and no more: {first:?}"
        );
        let (_, after) = write(600_000, None);
        assert!(after <= 0.02, "{after}");
    }

    #[test]
    fn when_every_node_is_down_nobody_is_preferred() {
        let (turns, primaries) = (RoundRobin::default(), dealt(4, 2));
        assert_eq!(turns.next(&primaries, |_| None), None);
        assert_eq!(turns.next(&[None, None], |_| Some(0.0)), None);
    }

    #[test]
    fn counts_survive_primaries_that_move_and_not_another_number_of_shards() {
        let (turns, mut primaries) = (RoundRobin::default(), dealt(4, 2));
        let mut counts = [0_u64; 4];
        for round in 0..400 {
            // One primary moves now and then, and is nowhere for a while.
            primaries[3] = [Some(NodeIx(1)), None, Some(NodeIx(2))][round / 50 % 3];
            request(
                &turns,
                &primaries,
                5_000,
                |_| Some(0.0),
                |shard, docs| {
                    counts[shard as usize] += u64::from(docs);
                },
            );
        }
        primaries[3] = Some(NodeIx(2));
        for _ in 0..400 {
            request(
                &turns,
                &primaries,
                5_000,
                |_| Some(0.0),
                |shard, docs| {
                    counts[shard as usize] += u64::from(docs);
                },
            );
        }
        assert!(spread(&counts) <= 0.02, "{counts:?}");
        let primaries = dealt(2, 2);
        let mut fresh = [0_u64; 2];
        request(
            &turns,
            &primaries,
            100_000,
            |_| Some(0.0),
            |shard, docs| {
                fresh[shard as usize] += u64::from(docs);
            },
        );
        assert!(spread(&fresh) <= 0.05, "{fresh:?}");
    }

    #[test]
    fn what_was_refused_is_given_again() {
        let (turns, primaries) = (RoundRobin::default(), dealt(4, 2));
        let mut counts = [0_u64; 4];
        for round in 0..2_000 {
            request(
                &turns,
                &primaries,
                500,
                |_| Some(0.0),
                |shard, docs| {
                    if shard == 1 && round % 3 == 0 {
                        turns.give_back(shard, docs);
                    } else {
                        counts[shard as usize] += u64::from(docs);
                    }
                },
            );
        }
        assert!(spread(&counts) <= 0.02, "{counts:?}");
    }
}
