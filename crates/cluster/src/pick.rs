//! Which node takes a request that no primary calls for: weighted round robin among the healthy.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::config::NodeChoice;
use crate::node::Node;

/// What the request is, as far as choosing a node goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PickReason {
    /// Any API: every admitted node will do.
    Request,
    /// Documents without a destination of their own: admitted nodes that hold data, so that some of the documents
    /// are at home there.
    Documents,
}

/// The order in which nodes are asked, made once per snapshot and choice; each slot is a position in the snapshot's
/// nodes.
#[derive(Debug, Default)]
pub(crate) struct Rotations {
    request: Box<[u16]>,
    documents: Box<[u16]>,
    /// By node; 0 keeps it out.
    weights: Box<[u32]>,
    /// Nodes outside the filter, for when nobody inside is well. Those of weight 0 stay out.
    spare: Box<[u16]>,
    /// No node was left, so the choice was ignored.
    pub(crate) filter_ignored: bool,
}

/// Where a rotation stands. One for all cores: a shared counter costs less than cores that beat in step.
#[derive(Debug, Default)]
pub(crate) struct Turn(AtomicUsize);

impl Rotations {
    pub(crate) fn new(nodes: &[Arc<Node>], choice: &NodeChoice) -> Self {
        let weight = |node: &Arc<Node>| match choice.filter.admits(node) {
            true => choice.weight(node),
            false => 0,
        };
        let mut weights: Box<[u32]> = nodes.iter().map(weight).collect();
        let spare = (0..u16::MAX)
            .zip(nodes)
            .filter(|(_, node)| choice.weight(node) > 0 && !choice.filter.admits(node))
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
        Self {
            request,
            documents,
            weights,
            spare,
            filter_ignored,
        }
    }

    /// The weights of the nodes, in the order of the snapshot; 0 for those that are kept out.
    pub(crate) fn weights(&self) -> &[u32] {
        &self.weights
    }

    /// The next healthy node in turn that is not among `not`; when all are down, the next in turn all the same
    /// (better a try than a certain refusal); when all are among `not`, any of them.
    pub(crate) fn pick<'a>(
        &self,
        nodes: &'a [Arc<Node>],
        turn: &Turn,
        reason: PickReason,
        not: &[&Node],
    ) -> Option<&'a Arc<Node>> {
        let slots = match reason {
            PickReason::Request => &self.request,
            PickReason::Documents => &self.documents,
        };
        let start = turn.0.fetch_add(1, Relaxed);
        let in_turn = || {
            (0..slots.len())
                .filter_map(move |step| nodes.get(usize::from(slots[(start + step) % slots.len()])))
        };
        let refused = |node: &Arc<Node>| not.iter().any(|n| std::ptr::eq(*n, Arc::as_ptr(node)));
        in_turn()
            .find(|node| node.health.is_up() && !refused(node))
            // Nobody of the rotation is well: nodes outside it that are.
            .or_else(|| {
                let mut spare = self.spare.iter().filter_map(|at| nodes.get(usize::from(*at)));
                spare.find(|node| node.health.is_up() && !refused(node))
            })
            .or_else(|| in_turn().find(|node| !refused(node)))
            .or_else(|| in_turn().next())
            .or_else(|| nodes.first())
    }
}

/// Smooth weighted round robin, written out: each position appears as often as its (reduced) weight says, spread
/// as evenly as can be.
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

/// Longest rotation; weights are scaled down to it.
const SLOTS_MAX: i64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;
    use crate::config::HealthRules;
    use crate::health::Outcome;
    use crate::testing::node;
    use std::time::Duration;

    fn picks(nodes: &[Arc<Node>], choice: &NodeChoice, reason: PickReason, count: usize) -> String {
        let (rotations, turn) = (Rotations::new(nodes, choice), Turn::default());
        (0..count)
            .map(|_| rotations.pick(nodes, &turn, reason, &[]).unwrap().name.clone())
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
        node.health
            .report(Outcome::ConnectRefused, Duration::ZERO, &HealthRules::default());
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
        assert!(Rotations::new(&nodes, &without("master")).filter_ignored);
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
    fn a_second_try_goes_to_another_node() {
        let nodes = [node("a", &["data"]), node("b", &["data"])];
        let (rotations, turn) = (Rotations::new(&nodes, &everybody()), Turn::default());
        for _ in 0..4 {
            let picked = rotations
                .pick(&nodes, &turn, PickReason::Request, &[&nodes[0]])
                .unwrap();
            assert_eq!(picked.name, "b");
        }
        let all = [&*nodes[0], &*nodes[1]];
        assert!(rotations.pick(&nodes, &turn, PickReason::Request, &all).is_some());
    }

    #[test]
    fn absurd_weights_make_no_absurd_table() {
        assert!(interleave(&[4_000_000_000, 3, 1]).len() <= 4_200);
        assert_eq!(interleave(&[]).len(), 0);
        assert_eq!(interleave(&[0, 0]).len(), 0);
    }
}
