//! The schedule of a run: its setup, what happens in it, and when. Everything follows from the seed.

use std::ops::RangeInclusive;

use fastrand::Rng;

/// A run.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    pub(crate) setup: Setup,
    /// The acts, each with its moment in ms since the load began, in that order.
    pub(crate) acts: Vec<(u64, Act)>,
    /// Duration of the load in ms; longer if the acts take longer.
    pub(crate) load_ms: u64,
}

/// The gateway's configuration, the clusters and the load.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) lanes: u32,
    pub(crate) fsync: &'static str,
    pub(crate) quota_kb: Option<u32>,
    /// The most documents of a lane in one batch.
    pub(crate) batch_docs: u32,
    /// The size in MB of a small disk of the queue's own, if it has one.
    pub(crate) disk_mb: Option<u32>,
    pub(crate) nodes: [usize; 2],
    pub(crate) shards: [u32; 2],
    /// Number of replicas in the first cluster.
    pub(crate) replicas: u32,
    pub(crate) writers: usize,
    /// Number of writers that give their requests an `Idempotency-Key`, and send them again.
    pub(crate) keyed: usize,
    /// Number of documents that all writers write to.
    pub(crate) shared_ids: u64,
    /// The most operations of a request.
    pub(crate) docs_max: usize,
    /// The interval at which there is a new index, which the clusters do not have yet at the first write to
    /// it.
    pub(crate) index_ms: u64,
    /// The interval in ms at which the gateway looks at its clusters; none: its own.
    pub(crate) look_ms: Option<u32>,
    /// The longest pause of a writer between two requests, in ms.
    pub(crate) pause_ms: u64,
}

/// Something that happens. Clusters and nodes are numbered from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    KillGateway,
    /// SIGTERM; the gateway must end by itself.
    StopGateway,
    StartGateway,
    /// Flips bits in this many records of the queue, while the gateway is down.
    FlipBits(usize),
    KillNodes(usize, Vec<usize>),
    /// Kills a node, and the cluster notices: the node's primaries move to other nodes.
    LoseNode(usize, usize),
    StartNodes(usize, Vec<usize>),
    PauseNode(usize, usize),
    ResumeNode(usize, usize),
    /// Shards move to other nodes.
    MoveShards(usize),
    /// All requests are answered with 429.
    Busy(usize),
    /// Some items are answered with 429.
    BusyItems(usize),
    Calm(usize),
    /// The index that all clients write to is closed.
    CloseIndex(usize),
    OpenIndex(usize),
    /// No shard of the index that is made again has a primary.
    LosePrimaries(usize),
    FindPrimaries(usize),
    /// The answers to this many requests are lost after their execution.
    LoseAnswers(usize, u32),
    FillDisk,
    FreeDisk,
    /// The alias leads to a new index of this many shards, and to no other.
    SwapAlias(usize, u32),
    /// The alias leads to a new index, and keeps the earlier ones.
    RollOver(usize, u32),
    /// The index behind the alias becomes one of this many shards, with its documents.
    Split(usize, u32),
    /// An index is deleted, and made again with this many shards.
    MakeAgain(usize, u32),
}

/// The effect of an act on the part that it concerns; a text names the part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Breaks the part until it is mended.
    Breaks(String),
    Mends(String),
    /// Happens; if a part is named, only while that part is broken.
    Happens(Option<String>),
}

impl Act {
    pub(crate) fn role(&self) -> Role {
        let nodes = |cluster: &usize, nodes: &[usize]| format!("nodes {nodes:?} of {cluster}");
        match self {
            Act::KillGateway | Act::StopGateway => Role::Breaks("gateway".to_owned()),
            Act::StartGateway => Role::Mends("gateway".to_owned()),
            Act::FlipBits(_) => Role::Happens(Some("gateway".to_owned())),
            Act::KillNodes(cluster, some) => Role::Breaks(nodes(cluster, some)),
            Act::LoseNode(cluster, node) => Role::Breaks(nodes(cluster, &[*node])),
            Act::StartNodes(cluster, some) => Role::Mends(nodes(cluster, some)),
            Act::PauseNode(cluster, node) => Role::Breaks(format!("pace of {node} of {cluster}")),
            Act::ResumeNode(cluster, node) => Role::Mends(format!("pace of {node} of {cluster}")),
            Act::Busy(cluster) | Act::BusyItems(cluster) => Role::Breaks(format!("calm of {cluster}")),
            Act::Calm(cluster) => Role::Mends(format!("calm of {cluster}")),
            Act::CloseIndex(cluster) => Role::Breaks(format!("index of {cluster}")),
            Act::OpenIndex(cluster) => Role::Mends(format!("index of {cluster}")),
            Act::LosePrimaries(cluster) => Role::Breaks(format!("primaries of {cluster}")),
            Act::FindPrimaries(cluster) => Role::Mends(format!("primaries of {cluster}")),
            Act::FillDisk => Role::Breaks("disk".to_owned()),
            Act::FreeDisk => Role::Mends("disk".to_owned()),
            Act::MoveShards(_)
            | Act::LoseAnswers(..)
            | Act::SwapAlias(..)
            | Act::RollOver(..)
            | Act::Split(..)
            | Act::MakeAgain(..) => Role::Happens(None),
        }
    }
}

/// How long things last, in ms.
struct Lengths {
    gateway_down: RangeInclusive<u64>,
    node_down: RangeInclusive<u64>,
    cluster_down: RangeInclusive<u64>,
    paused: RangeInclusive<u64>,
    busy: RangeInclusive<u64>,
    closed: RangeInclusive<u64>,
    no_primary: RangeInclusive<u64>,
    disk_full: RangeInclusive<u64>,
}

const FAKE: Lengths = Lengths {
    gateway_down: 1..=100,
    node_down: 30..=250,
    cluster_down: 80..=350,
    paused: 30..=200,
    busy: 40..=250,
    closed: 30..=250,
    no_primary: 100..=600,
    disk_full: 80..=300,
};

const REAL: Lengths = Lengths {
    gateway_down: 10..=3_000,
    node_down: 1_000..=4_000,
    cluster_down: 1_000..=5_000,
    paused: 1_000..=4_000,
    busy: 1_000..=4_000,
    closed: 1_000..=5_000,
    no_primary: 1_000..=5_000,
    disk_full: 1_000..=4_000,
};

/// A kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    KillGateway,
    StopGateway,
    FlipBits,
    KillNode(usize),
    LoseNode(usize),
    PauseNode(usize),
    MoveShards(usize),
    Busy(usize),
    BusyItems(usize),
    CloseIndex(usize),
    LosePrimaries(usize),
    LoseAnswers(usize),
    Down(usize),
    FullDisk,
    SwapAlias(usize),
    RollOver(usize),
    Split(usize),
    MakeAgain(usize),
}

/// Changes of where names lead on real clusters, between other troubles. As in short runs, the alias of the
/// second cluster is not swapped.
const MOVES: [Trouble; 6] = [
    Trouble::SwapAlias(0),
    Trouble::RollOver(0),
    Trouble::RollOver(1),
    Trouble::Split(0),
    Trouble::MakeAgain(0),
    Trouble::MakeAgain(1),
];

/// How long an alias leads to the same index, in ms.
const ALIAS_STAYS_MS: u64 = 120;

/// The part that a trouble concerns: two troubles of one part do not overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Affected {
    Gateway,
    Cluster(usize),
    Index(usize),
    /// The primaries of the index that is made again.
    Primaries(usize),
    Disk,
    /// The index that the alias of a cluster leads to.
    Alias(usize),
}

impl Schedule {
    /// Returns a short run on fake clusters: the gateway is killed at least once, and three to seven more
    /// troubles overlap with that and with one another. `disk` says whether a small disk is possible.
    pub(crate) fn fake(seed: u64, disk: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        let load_ms = rng.u64(450..=800);
        let (troubles, disk) = troubles_of(&mut rng, disk);
        let keyed = rng.usize(..=2);
        let setup = Setup {
            lanes: rng.u32(1..=8),
            // Without syncs, damage at the log's end could not be told from a write that a crash tore.
            fsync: match troubles.contains(&Trouble::FlipBits) {
                true => "always",
                false => ["always", "always", "interval", "os"][rng.usize(..4)],
            },
            // A queue with a quota has small segments: they are used up, and their files are written again,
            // unless answers have to be remembered.
            quota_kb: (!disk && (keyed == 0 || rng.u32(..4) == 0)).then(|| rng.u32(256..=1_024)),
            batch_docs: [10_000, 200, 20][rng.usize(..3)],
            disk_mb: disk.then(|| rng.u32(3..=6)),
            nodes: [3, rng.usize(1..=3)],
            shards: [rng.u32(1..=6), rng.u32(1..=4)],
            replicas: 0,
            writers: rng.usize(2..=4),
            keyed,
            shared_ids: rng.u64(3..=60),
            docs_max: rng.usize(3..=60),
            index_ms: rng.u64(150..=1_000),
            // A short run needs frequent looks.
            look_ms: Some(100),
            pause_ms: rng.u64(2..=15),
        };
        let mut slots: Vec<(Affected, u64, u64)> = Vec::new();
        let mut acts = Vec::new();
        for trouble in troubles {
            let length = trouble.length(&FAKE, &mut rng);
            let fitting = (0..12).find_map(|_| {
                let from = rng.u64(20..load_ms);
                let to = from + length;
                let free = trouble.parts().iter().all(|part| {
                    slots
                        .iter()
                        .all(|(taken, begins, ends)| taken != part || to < *begins || from > *ends)
                });
                free.then_some((from, to))
            });
            // There is no room left for the trouble in this run.
            let Some((from, to)) = fitting else { continue };
            slots.extend(trouble.parts().iter().map(|part| (*part, from, to)));
            trouble.act(from, to, &setup, &mut rng, &mut acts);
        }
        acts.sort_by_key(|(at, _)| *at);
        swaps_come_first(&mut acts);
        Self { setup, acts, load_ms }
    }

    /// Returns a long run on real clusters: every kind of trouble, one after the other, in an order that
    /// differs in each round. The gateway is killed in the middle of some of them too.
    pub(crate) fn real(seed: u64, minutes: f64, nodes: [usize; 2], disk: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        let load_ms = (minutes * 60_000.0) as u64;
        let setup = Setup {
            lanes: rng.u32(2..=8),
            fsync: "always",
            quota_kb: None,
            batch_docs: [10_000, 200][rng.usize(..2)],
            disk_mb: disk.then_some(512),
            nodes,
            shards: [3, 2],
            replicas: rng.u32(..2),
            writers: 3,
            keyed: 1,
            shared_ids: 200,
            docs_max: 40,
            index_ms: 20_000,
            look_ms: None,
            pause_ms: 100,
        };
        let mut acts = Vec::new();
        let mut at = 2_000;
        while at < load_ms {
            let mut round = vec![
                Trouble::KillGateway,
                Trouble::KillGateway,
                Trouble::StopGateway,
                Trouble::FlipBits,
                Trouble::KillNode(0),
                Trouble::PauseNode(rng.usize(..2)),
                Trouble::MoveShards(0),
                Trouble::Busy(0),
                Trouble::Busy(1),
                Trouble::CloseIndex(0),
                Trouble::CloseIndex(1),
                Trouble::Down(1),
                Trouble::Down(0),
            ];
            if disk {
                round.push(Trouble::FullDisk);
            }
            rng.shuffle(&mut round);
            for trouble in round {
                if at >= load_ms {
                    break;
                }
                let ends = at + trouble.length(&REAL, &mut rng);
                let mut some = Vec::new();
                trouble.act(at, ends, &setup, &mut rng, &mut some);
                if !trouble.parts().contains(&Affected::Gateway) && rng.bool() {
                    let killed = rng.u64(at..=ends);
                    some.push((killed, Act::KillGateway));
                    some.push((killed + rng.u64(REAL.gateway_down.clone()), Act::StartGateway));
                }
                some.sort_by_key(|(at, _)| *at);
                at = some.last().map_or(ends, |(at, _)| *at) + rng.u64(500..=2_000);
                acts.extend(some);
                let moved = MOVES[rng.usize(..MOVES.len())];
                let mut some = Vec::new();
                moved.act(at, at, &setup, &mut rng, &mut some);
                acts.extend(some);
                at += rng.u64(1_000..=2_000);
            }
        }
        Self { setup, acts, load_ms }
    }
}

/// Returns the troubles of a short run, and whether its disk is small.
fn troubles_of(rng: &mut Rng, disk: bool) -> (Vec<Trouble>, bool) {
    let made_again = rng.usize(..2);
    let mut troubles = vec![
        Trouble::KillGateway,
        Trouble::SwapAlias(0),
        Trouble::RollOver(0),
        // The second cluster's alias is never swapped: after a restart, nobody knows where it led earlier
        // (docs/async.md).
        Trouble::RollOver(1),
        Trouble::MakeAgain(made_again),
    ];
    if rng.bool() {
        troubles.push(Trouble::LosePrimaries(made_again));
    }
    if rng.bool() {
        troubles.push(Trouble::Split(0));
    }
    let disk = disk && rng.u32(..4) == 0;
    if disk {
        troubles.push(Trouble::FullDisk);
    }
    for _ in 0..rng.usize(3..=7) {
        troubles.push(any_trouble(rng));
    }
    (troubles, disk)
}

/// Returns a random trouble of a short run.
fn any_trouble(rng: &mut Rng) -> Trouble {
    let cluster = rng.usize(..2);
    match rng.u32(..13) {
        0 | 1 => Trouble::KillGateway,
        2 => Trouble::StopGateway,
        3 => Trouble::FlipBits,
        4 => Trouble::KillNode(cluster),
        5 => Trouble::LoseNode(cluster),
        6 => Trouble::PauseNode(cluster),
        7 => Trouble::MoveShards(cluster),
        8 => Trouble::Busy(cluster),
        9 => Trouble::BusyItems(cluster),
        10 => Trouble::LoseAnswers(cluster),
        11 => Trouble::CloseIndex(cluster),
        _ => Trouble::Down(cluster),
    }
}

/// Moves swaps of the alias before its other changes. Nobody knows where an alias led only between two looks
/// of the gateway (docs/async.md). So the alias is swapped only away from its first index, and later indices
/// stay behind it, or are split.
fn swaps_come_first(acts: &mut [(u64, Act)]) {
    let rank = |act: &Act| match act {
        Act::SwapAlias(0, _) => Some(0),
        Act::RollOver(0, _) => Some(1),
        Act::Split(0, _) => Some(2),
        _ => None,
    };
    let places: Vec<usize> = (0..acts.len())
        .filter(|at| rank(&acts[*at].1).is_some())
        .collect();
    let mut moves: Vec<Act> = places.iter().map(|at| acts[*at].1.clone()).collect();
    moves.sort_by_key(rank);
    for (at, act) in places.into_iter().zip(moves) {
        acts[at].1 = act;
    }
}

// === impl Setup ===

impl Setup {
    /// Whether clients send operations that the clusters refuse. Replicas of an OpenSearch lack documents
    /// that were acknowledged beside refused ones (docs/correctness.md), which shows when a replica becomes
    /// the primary.
    pub(crate) fn with_unfit(&self) -> bool {
        self.replicas == 0
    }
}

// === impl Trouble ===

impl Trouble {
    fn length(self, lengths: &Lengths, rng: &mut Rng) -> u64 {
        let range = match self {
            Trouble::KillGateway | Trouble::StopGateway | Trouble::FlipBits => &lengths.gateway_down,
            Trouble::KillNode(_) | Trouble::LoseNode(_) => &lengths.node_down,
            Trouble::PauseNode(_) => &lengths.paused,
            Trouble::Busy(_) | Trouble::BusyItems(_) => &lengths.busy,
            Trouble::CloseIndex(_) => &lengths.closed,
            Trouble::LosePrimaries(_) => &lengths.no_primary,
            Trouble::Down(_) => &lengths.cluster_down,
            Trouble::FullDisk => &lengths.disk_full,
            Trouble::SwapAlias(_) | Trouble::RollOver(_) | Trouble::Split(_) => return ALIAS_STAYS_MS,
            Trouble::MoveShards(_) | Trouble::LoseAnswers(_) | Trouble::MakeAgain(_) => return 0,
        };
        rng.u64(range.clone())
    }

    fn parts(self) -> Vec<Affected> {
        match self {
            Trouble::KillGateway | Trouble::StopGateway | Trouble::FlipBits => vec![Affected::Gateway],
            // A resumed node executes what a gateway that has died since had sent to it while it was paused,
            // perhaps after later operations. No client of these servers can prevent that (docs/drill.md).
            Trouble::PauseNode(cluster) => vec![Affected::Gateway, Affected::Cluster(cluster)],
            Trouble::KillNode(cluster)
            | Trouble::LoseNode(cluster)
            | Trouble::Busy(cluster)
            | Trouble::BusyItems(cluster)
            | Trouble::Down(cluster) => vec![Affected::Cluster(cluster)],
            Trouble::CloseIndex(cluster) => vec![Affected::Index(cluster)],
            Trouble::LosePrimaries(cluster) => vec![Affected::Primaries(cluster)],
            Trouble::SwapAlias(cluster) | Trouble::RollOver(cluster) | Trouble::Split(cluster) => {
                vec![Affected::Alias(cluster)]
            }
            Trouble::MoveShards(_) | Trouble::LoseAnswers(_) | Trouble::MakeAgain(_) => Vec::new(),
            Trouble::FullDisk => vec![Affected::Disk],
        }
    }

    fn act(self, from: u64, to: u64, setup: &Setup, rng: &mut Rng, acts: &mut Vec<(u64, Act)>) {
        let mut from_to = |begin: Act, end: Act| acts.extend([(from, begin), (to, end)]);
        match self {
            Trouble::KillGateway => from_to(Act::KillGateway, Act::StartGateway),
            Trouble::StopGateway => from_to(Act::StopGateway, Act::StartGateway),
            Trouble::FlipBits => {
                let flips = Act::FlipBits(rng.usize(1..=3));
                acts.extend([(from, Act::KillGateway), (from, flips), (to, Act::StartGateway)]);
            }
            Trouble::KillNode(cluster) => {
                let node = vec![rng.usize(..setup.nodes[cluster])];
                from_to(
                    Act::KillNodes(cluster, node.clone()),
                    Act::StartNodes(cluster, node),
                );
            }
            Trouble::LoseNode(cluster) => {
                let node = rng.usize(..setup.nodes[cluster]);
                let start = Act::StartNodes(cluster, vec![node]);
                match setup.nodes[cluster] {
                    1 => from_to(Act::KillNodes(cluster, vec![node]), start),
                    _ => from_to(Act::LoseNode(cluster, node), start),
                }
            }
            Trouble::PauseNode(cluster) => {
                let node = rng.usize(..setup.nodes[cluster]);
                from_to(Act::PauseNode(cluster, node), Act::ResumeNode(cluster, node));
            }
            Trouble::MoveShards(cluster) => acts.push((from, Act::MoveShards(cluster))),
            Trouble::Busy(cluster) => from_to(Act::Busy(cluster), Act::Calm(cluster)),
            Trouble::BusyItems(cluster) => from_to(Act::BusyItems(cluster), Act::Calm(cluster)),
            Trouble::CloseIndex(cluster) => from_to(Act::CloseIndex(cluster), Act::OpenIndex(cluster)),
            Trouble::LosePrimaries(cluster) => {
                from_to(Act::LosePrimaries(cluster), Act::FindPrimaries(cluster));
                // The lanes of documents change while writes to them are parked.
                acts.push((to - (to - from) / 8, Act::MakeAgain(cluster, rng.u32(1..=6))));
            }
            Trouble::LoseAnswers(cluster) => acts.push((from, Act::LoseAnswers(cluster, rng.u32(1..=4)))),
            Trouble::Down(cluster) => {
                let all: Vec<usize> = (0..setup.nodes[cluster]).collect();
                from_to(
                    Act::KillNodes(cluster, all.clone()),
                    Act::StartNodes(cluster, all),
                );
            }
            Trouble::FullDisk => from_to(Act::FillDisk, Act::FreeDisk),
            Trouble::SwapAlias(cluster) => acts.push((from, Act::SwapAlias(cluster, rng.u32(1..=6)))),
            Trouble::RollOver(cluster) => acts.push((from, Act::RollOver(cluster, rng.u32(1..=6)))),
            Trouble::Split(cluster) => acts.push((from, Act::Split(cluster, rng.u32(1..=6)))),
            Trouble::MakeAgain(cluster) => acts.push((from, Act::MakeAgain(cluster, rng.u32(1..=6)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_run_again_and_another_seed_another() {
        let shown = |seed| format!("{:?}", Schedule::fake(seed, true));
        assert_eq!(shown(7), shown(7));
        assert_ne!(shown(7), shown(8));
        let shown = |seed| format!("{:?}", Schedule::real(seed, 2.0, [3, 3], true));
        assert_eq!(shown(7), shown(7));
        assert_ne!(shown(7), shown(8));
    }

    #[test]
    fn all_that_is_broken_is_mended_and_all_kinds_of_trouble_come() {
        let mut kinds = std::collections::BTreeSet::new();
        let schedules = (0..300).map(|seed| Schedule::fake(seed, true));
        let real = (0..20).map(|seed| Schedule::real(seed, 3.0, [3, 3], true));
        for schedule in schedules.chain(real) {
            let mut broken = std::collections::BTreeSet::new();
            for (_, act) in &schedule.acts {
                kinds.insert(
                    format!("{act:?}")
                        .split('(')
                        .next()
                        .unwrap_or_default()
                        .to_owned(),
                );
                match act.role() {
                    Role::Breaks(part) => assert!(broken.insert(part), "{schedule:#?}"),
                    Role::Mends(part) => assert!(broken.remove(&part), "{schedule:#?}"),
                    Role::Happens(Some(part)) => assert!(broken.contains(&part), "{schedule:#?}"),
                    Role::Happens(None) => {}
                }
            }
            assert!(broken.is_empty(), "{schedule:#?}");
        }
        assert_eq!(kinds.len(), 24, "{kinds:?}");
    }
}
