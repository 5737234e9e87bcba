//! Picking a node for a request that no primary calls for: weighted round robin among the healthy nodes, in
//! which requests that any node may take pass over slow ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::address::Address;
use crate::config::NodeChoice;
use crate::node::Node;

/// The kind of a request, as far as choosing a node is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PickReason {
    /// Any API: every admitted node will do, and a slow one is passed over.
    Request,
    /// Documents without a destination of their own: they go to admitted nodes that hold data, so that some
    /// of the documents are at home there. The nodes are strictly in turn: that fills shards evenly, and a
    /// slow node holds its primaries anyway.
    Documents,
}

/// The order in which nodes are asked, made once for each snapshot and choice; each slot is a position in the
/// snapshot's nodes.
#[derive(Debug, Default)]
pub(crate) struct Rotations {
    request: Box<[u16]>,
    documents: Box<[u16]>,
    /// The weight of each node; 0 keeps the node out.
    weights: Box<[u32]>,
    /// The weights divided by the mean of those that are not 0.
    shares: Box<[f32]>,
    /// Nodes outside the filter, for when no node inside is healthy. Nodes of weight 0 stay out.
    spare: Box<[u16]>,
    /// Whether no node was left, so that the choice was ignored.
    pub(crate) filter_ignored: bool,
}

/// One core's position in a rotation.
#[derive(Debug, Default)]
pub(crate) struct RoundRobin(AtomicUsize);

// === impl RoundRobin ===

impl RoundRobin {
    /// Begins at a place of its own, so that cores do not go to the same nodes in step.
    pub(crate) fn beginning_at(place: usize) -> Self {
        Self(AtomicUsize::new(place))
    }
}

// === impl Rotations ===

impl Rotations {
    /// Makes the rotations of the nodes; of only those with the addresses in `only`, if that is given.
    pub(crate) fn new(nodes: &[Arc<Node>], choice: &NodeChoice, only: Option<&[Address]>) -> Self {
        let admits = |node: &Arc<Node>| {
            choice.filter.admits(node) && only.is_none_or(|only| only.contains(&node.address))
        };
        let weight = |node: &Arc<Node>| match admits(node) {
            true => choice.weight(node),
            false => 0,
        };
        let mut weights: Box<[u32]> = nodes.iter().map(weight).collect();
        let spare = (0..u16::MAX)
            .zip(nodes)
            .filter(|(_, node)| choice.weight(node) > 0 && !admits(node))
            .map(|(at, _)| at)
            .collect();
        let filter_ignored = weights.iter().all(|weight| *weight == 0);
        if filter_ignored {
            weights.fill(1);
        }
        let slots = |wanted: &dyn Fn(&Node) -> bool| {
            let of = |(node, weight): (&Arc<Node>, &u32)| if wanted(node) { *weight } else { 0 };
            let weights: Vec<u32> = nodes.iter().zip(&weights).map(of).collect();
            interleave(&weights)
        };
        let request = slots(&|_| true);
        let mut documents = slots(&Node::holds_data);
        if documents.is_empty() {
            documents.clone_from(&request);
        }
        let sum: f32 = weights.iter().map(|weight| *weight as f32).sum();
        let mean = sum / weights.iter().filter(|weight| **weight > 0).count().max(1) as f32;
        let shares = weights.iter().map(|weight| *weight as f32 / mean).collect();
        Self {
            request,
            documents,
            shares,
            weights,
            spare,
            filter_ignored,
        }
    }

    /// Returns the weights of the nodes, in the order of the snapshot; 0 for nodes that are kept out.
    pub(crate) fn weights(&self) -> &[u32] {
        &self.weights
    }

    /// Returns the next healthy node in turn that is not among `not`; for a request, another node if that
    /// costs less than half. When all are down, returns the next in turn all the same (a try is better than a
    /// certain refusal); when all are among `not`, any of them.
    pub(crate) fn pick<'a>(
        &self,
        nodes: &'a [Arc<Node>],
        round_robin: &RoundRobin,
        reason: PickReason,
        not: &[&Node],
    ) -> Option<&'a Arc<Node>> {
        let slots = match reason {
            PickReason::Request => &self.request,
            PickReason::Documents => &self.documents,
        };
        let start = round_robin.0.fetch_add(1, Relaxed);
        let in_turn = || {
            (0..slots.len())
                .filter_map(move |step| nodes.get(usize::from(slots[(start + step) % slots.len()])))
        };
        let refused = |node: &Arc<Node>| not.iter().any(|other| other.is(node));
        let well = |node: &&Arc<Node>| node.health.is_up() && !refused(node);
        let next = in_turn().find(well);
        let next = match reason {
            PickReason::Request => next.map(|next| self.or_quicker(next, nodes, well)),
            PickReason::Documents => next,
        };
        next
            // No node of the rotation is healthy: try healthy nodes outside it.
            .or_else(|| {
                let mut spare = self.spare.iter().filter_map(|at| nodes.get(usize::from(*at)));
                spare.find(well)
            })
            .or_else(|| in_turn().find(|node| !refused(node)))
            .or_else(|| in_turn().next())
            .or_else(|| nodes.first())
    }

    /// Returns a node in place of `next`, if one of two that are drawn at random, by weight, costs less than
    /// half as much. So nodes that are alike keep their turns, whatever chance does to their latencies; and
    /// the quickest node isn't every core's choice at the same moment, as it would be if all nodes were
    /// compared.
    fn or_quicker<'a>(
        &self,
        next: &'a Arc<Node>,
        nodes: &'a [Arc<Node>],
        well: impl Fn(&&'a Arc<Node>) -> bool,
    ) -> &'a Arc<Node> {
        let slots = &self.request;
        let draw = |not: &[&Arc<Node>]| {
            let start = fastrand::usize(..slots.len());
            let drawn = (0..slots.len()).map(|step| slots[(start + step) % slots.len()]);
            let mut drawn = drawn.filter_map(|at| Some((at, nodes.get(usize::from(at))?)));
            drawn.find(|(_, node)| well(node) && !not.iter().any(|other| other.is(node)))
        };
        let Some((first_at, first)) = draw(&[next]) else {
            return next;
        };
        let cost = |node: &Arc<Node>, at: u16| node.health.pace().cost(self.shares[usize::from(at)]);
        let next_at = nodes.iter().position(|node| Arc::ptr_eq(node, next)).unwrap_or(0) as u16;
        let mut best = (first, cost(first, first_at));
        if let Some((second_at, second)) = draw(&[next, first]) {
            let second_cost = cost(second, second_at);
            if second_cost < best.1 {
                best = (second, second_cost);
            }
        }
        match best.1 + std::f32::consts::LN_2 < cost(next, next_at) {
            true => best.0,
            false => next,
        }
    }
}

/// Returns the slots of a smooth weighted round robin: each position appears as often as its (reduced) weight
/// says, spread as evenly as possible.
fn interleave(weights: &[u32]) -> Box<[u16]> {
    let divisor = weights.iter().copied().filter(|w| *w > 0).fold(0, gcd).max(1);
    let mut weights: Vec<i64> = weights.iter().map(|w| i64::from(w / divisor)).collect();
    let sum: i64 = weights.iter().sum();
    if sum > SLOTS_MAX {
        for weight in weights.iter_mut().filter(|w| **w > 0) {
            *weight = (*weight * SLOTS_MAX / sum).max(1);
        }
    }
    let total: i64 = weights.iter().sum();
    let mut credit = vec![0i64; weights.len()];
    let mut slots = Vec::new();
    for _ in 0..total {
        for (credit, weight) in credit.iter_mut().zip(&weights) {
            *credit += weight;
        }
        let Some(best) = (0..credit.len())
            .filter(|i| weights[*i] > 0)
            .max_by_key(|i| (credit[*i], usize::MAX - i))
        else {
            break;
        };
        credit[best] -= total;
        slots.push(u16::try_from(best).unwrap_or(u16::MAX));
    }
    slots.into()
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The longest rotation; weights are scaled down to it.
const SLOTS_MAX: i64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;
    use crate::config::HealthRules;
    use crate::health::NodeOutcome;
    use crate::pace::UsualTimes;
    use crate::testing::node;
    use std::time::Duration;

    fn picks(nodes: &[Arc<Node>], choice: &NodeChoice, reason: PickReason, count: usize) -> String {
        let (rotations, round_robin) = (Rotations::new(nodes, choice, None), RoundRobin::default());
        (0..count)
            .map(|_| {
                rotations
                    .pick(nodes, &round_robin, reason, &[])
                    .unwrap()
                    .name
                    .clone()
            })
            .collect()
    }

    fn everybody() -> NodeChoice {
        NodeChoice::default()
    }

    fn without(role: &str) -> NodeChoice {
        let mut choice = NodeChoice::default();
        choice.filter.roles.exclude = vec![Role::parse(role)];
        choice
    }

    fn weighing(weights: &[(&str, u32)]) -> NodeChoice {
        let weights = weights.iter();
        NodeChoice {
            weights: weights
                .map(|(name, weight)| ((*name).to_owned(), *weight))
                .collect(),
            ..NodeChoice::default()
        }
    }

    fn down(node: &Node) {
        node.health.report(
            NodeOutcome::ConnectRefused,
            Duration::ZERO,
            &HealthRules::default(),
        );
    }

    #[test]
    fn equal_nodes_take_turns() {
        let nodes = [node("a", &["data"]), node("b", &["data"]), node("c", &["data"])];
        assert_eq!(picks(&nodes, &everybody(), PickReason::Request, 6), "abcabc");
    }

    #[test]
    fn weights_are_kept_and_spread() {
        let nodes = [node("a", &["data"]), node("b", &["data"]), node("c", &["data"])];
        let choice = weighing(&[("a", 40), ("b:9200", 20), ("c", 0)]);
        assert_eq!(picks(&nodes, &choice, PickReason::Request, 6), "abaaba");
        nodes[..2].iter().for_each(|node| down(node));
        assert_eq!(
            picks(&nodes, &choice, PickReason::Request, 2),
            "ab",
            "weight 0 stays out even then"
        );
    }

    #[test]
    fn excluded_and_dead_nodes_get_nothing() {
        let nodes = [node("a", &["master"]), node("b", &["data"]), node("c", &["data"])];
        assert_eq!(picks(&nodes, &without("master"), PickReason::Request, 4), "bcbc");
        down(&nodes[1]);
        assert_eq!(picks(&nodes, &without("master"), PickReason::Request, 4), "cccc");
        down(&nodes[2]);
        assert_eq!(
            picks(&nodes, &without("master"), PickReason::Request, 2),
            "aa",
            "a healthy node outside the filter beats a dead one"
        );
        down(&nodes[0]);
        assert_eq!(
            picks(&nodes, &without("master"), PickReason::Request, 4),
            "bcbc",
            "all dead: all are tried in turn"
        );
    }

    #[test]
    fn a_filter_that_leaves_nobody_is_ignored_and_said_to_be() {
        let nodes = [node("a", &["master", "data"]), node("b", &["master", "data"])];
        assert!(Rotations::new(&nodes, &without("master"), None).filter_ignored);
        assert_eq!(picks(&nodes, &without("master"), PickReason::Request, 4), "abab");
    }

    #[test]
    fn documents_go_to_nodes_that_hold_data() {
        let nodes = [
            node("a", &["ingest"]),
            node("b", &["data_hot"]),
            node("c", &["data"]),
        ];
        assert_eq!(picks(&nodes, &everybody(), PickReason::Documents, 4), "bcbc");
        assert_eq!(picks(&nodes[..1], &everybody(), PickReason::Documents, 1), "a");
    }

    #[test]
    fn nodes_that_came_later_are_spare_for_a_choice_that_is_frozen() {
        let nodes = [node("a", &["data"]), node("b", &["data"]), node("new", &["data"])];
        let first = [nodes[0].address.clone(), nodes[1].address.clone()];
        let (rotations, round_robin) = (
            Rotations::new(&nodes, &everybody(), Some(&first)),
            RoundRobin::default(),
        );
        let pick = || {
            rotations
                .pick(&nodes, &round_robin, PickReason::Request, &[])
                .unwrap()
                .name
                .clone()
        };
        assert_eq!([pick(), pick(), pick(), pick()].concat(), "abab");
        nodes[..2].iter().for_each(|node| down(node));
        assert_eq!(pick(), "new");
    }

    #[test]
    fn a_second_try_goes_to_another_node() {
        let nodes = [node("a", &["data"]), node("b", &["data"])];
        let (rotations, round_robin) = (Rotations::new(&nodes, &everybody(), None), RoundRobin::default());
        for _ in 0..4 {
            let picked = rotations
                .pick(&nodes, &round_robin, PickReason::Request, &[&nodes[0]])
                .unwrap();
            assert_eq!(picked.name, "b");
        }
        let all = [&*nodes[0], &*nodes[1]];
        assert!(
            rotations
                .pick(&nodes, &round_robin, PickReason::Request, &all)
                .is_some()
        );
    }

    #[test]
    fn a_slow_node_is_passed_over_by_requests_and_keeps_its_turns_for_documents() {
        let usual = UsualTimes::default();
        let nodes = [node("a", &["data"]), node("b", &["data"]), node("c", &["data"])];
        for (node, ms) in nodes.iter().zip([1, 60, 2]) {
            (0..20).for_each(|_| node.health.pace().answered(&usual, 0, Duration::from_millis(ms)));
        }
        let taken = picks(&nodes, &everybody(), PickReason::Request, 30);
        let by = |name| taken.matches(name).count();
        assert_eq!(by("b"), 0, "{taken}");
        assert!(by("a") >= 10 && by("c") >= 10, "{taken}");
        assert_eq!(picks(&nodes, &everybody(), PickReason::Documents, 6), "abcabc");
        down(&nodes[0]);
        down(&nodes[2]);
        assert_eq!(
            picks(&nodes, &everybody(), PickReason::Request, 2),
            "bb",
            "slow is better than down"
        );
    }

    #[test]
    fn nodes_that_are_all_slow_take_turns() {
        let usual = UsualTimes::default();
        let nodes = [node("a", &["data"]), node("b", &["data"])];
        for ms in (0..400).rev() {
            nodes.iter().for_each(|node| {
                node.health
                    .pace()
                    .answered(&usual, 0, Duration::from_millis(1_000 - ms))
            });
        }
        assert_eq!(picks(&nodes, &everybody(), PickReason::Request, 6), "ababab");
    }

    #[test]
    fn what_is_under_way_goes_where_there_is_least_of_it() {
        let usual = UsualTimes::default();
        let nodes = [node("a", &["data"]), node("b", &["data"])];
        let _open: Vec<_> = (0..5).map(|_| nodes[0].health.pace().begin(&usual, 0)).collect();
        assert_eq!(picks(&nodes, &everybody(), PickReason::Request, 4), "bbbb");
    }

    #[test]
    fn absurd_weights_make_no_absurd_table() {
        assert!(interleave(&[4_000_000_000, 3, 1]).len() <= 4_200);
        assert_eq!(interleave(&[]).len(), 0);
        assert_eq!(interleave(&[0, 0]).len(), 0);
    }
}
