//! The tries of parked operations that are at each node. A node that keeps what it is sent, and answers
//! nothing, is sent next to nothing more: so it holds up only what is for it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use cluster::Node;

use crate::delivery::memory::AnswerHeld;
use crate::delivery::outcome::Outcome;
use crate::queue::parked::{Flight, FlightOp};

/// The tries under way by node, and what late answers have said.
#[derive(Default)]
pub(super) struct TriesAtNodes {
    nodes: RefCell<HashMap<NodeName, AtNode>>,
    answers: RefCell<Vec<LateAnswer>>,
    next_number: Cell<u64>,
}

/// What a node is known by here: the address of its health.
type NodeName = usize;

#[derive(Default)]
struct AtNode {
    /// The tries under way, each with its number and when it began.
    tries: Vec<(u64, Instant)>,
    /// When the last of those began that became late.
    late: Option<Instant>,
}

/// A try at a node, until this is dropped.
pub(super) struct TryAtNode {
    at_nodes: Rc<TriesAtNodes>,
    node: NodeName,
    number: u64,
    began: Instant,
}

/// What the answer to a request said that its try did not wait for.
pub(super) struct LateAnswer {
    /// Nobody asks for what it said once nothing waits for this any more.
    pub(super) flight: Weak<Flight>,
    /// The most operations that the try sent at once.
    pub(super) limit: usize,
    /// The outcomes of the operations that are not done.
    pub(super) not_done: HashMap<FlightOp, Outcome>,
    /// The memory that the outcomes' texts take.
    pub(super) held: Vec<Rc<AnswerHeld>>,
}

/// The outcome of an operation by a late answer.
pub(super) struct LateOutcome {
    pub(super) outcome: Outcome,
    pub(super) limit: usize,
    pub(super) held: Vec<Rc<AnswerHeld>>,
}

/// Returns what a node is known by.
fn name_of(node: &Node) -> NodeName {
    Arc::as_ptr(&node.health).addr()
}

// === impl TriesAtNodes ===

impl TriesAtNodes {
    /// Begins a try at a node; `None` if the node keeps others, and is to be sent nothing more now. `takes`
    /// says whether the node has taken a request that began then or later.
    pub(super) fn begin(self: &Rc<Self>, node: &Node, takes: impl Fn(Instant) -> bool) -> Option<TryAtNode> {
        self.begin_at(name_of(node), takes, Instant::now())
    }

    fn begin_at(
        self: &Rc<Self>,
        node: NodeName,
        takes: impl Fn(Instant) -> bool,
        now: Instant,
    ) -> Option<TryAtNode> {
        let mut nodes = self.nodes.borrow_mut();
        let at_node = nodes.entry(node).or_default();
        at_node.late = at_node.late.filter(|late| !takes(*late));
        if at_node.late.is_some() && !at_node.may_be_asked(now) {
            return None;
        }
        let number = self.next_number.get();
        self.next_number.set(number + 1);
        at_node.tries.push((number, now));
        Some(TryAtNode {
            at_nodes: Rc::clone(self),
            node,
            number,
            began: now,
        })
    }

    /// Keeps what a late answer has said until it is asked for.
    pub(super) fn keep(&self, answer: LateAnswer) {
        let mut answers = self.answers.borrow_mut();
        answers.retain(LateAnswer::is_wanted);
        if answers.len() >= ANSWERS_MAX {
            // Its operations are in doubt, as after a restart.
            answers.remove(0);
        }
        answers.push(answer);
    }

    /// Whether the answer to an ended request has said something of an operation.
    pub(super) fn has_answer(&self, flight: Option<&Arc<Flight>>, operation: FlightOp) -> bool {
        let answers = self.answers.borrow();
        let mut of_it = answers.iter().filter(|one| one.is_to(flight));
        of_it.any(|one| one.not_done.contains_key(&operation))
    }

    /// Takes what the answer to an ended request has said of an operation that is not done.
    pub(super) fn take(&self, flight: Option<&Arc<Flight>>, operation: FlightOp) -> Option<LateOutcome> {
        let mut answers = self.answers.borrow_mut();
        let mut of_it = answers.iter_mut().filter(|one| one.is_to(flight));
        let outcome = of_it.find_map(|one| {
            Some(LateOutcome {
                outcome: one.not_done.remove(&operation)?,
                limit: one.limit,
                held: one.held.clone(),
            })
        });
        // The memory of its texts counts until then.
        answers.retain(LateAnswer::is_wanted);
        outcome
    }
}

// === impl AtNode ===

impl AtNode {
    /// Whether a node that keeps requests may be sent one more, which shows whether it takes any again: the
    /// earlier ones may have no answer ever.
    fn may_be_asked(&self, now: Instant) -> bool {
        let newest = self.tries.iter().map(|(_, began)| *began).max();
        let wait = ASK_AGAIN * u32::try_from(self.tries.len()).unwrap_or(u32::MAX);
        let has_waited = newest.is_none_or(|newest| now.saturating_duration_since(newest) >= wait);
        self.tries.len() < KEPT_MAX && has_waited
    }
}

// === impl TryAtNode ===

impl TryAtNode {
    /// Records that the try has no answer still, although it should have.
    pub(super) fn is_late(&self) {
        let mut nodes = self.at_nodes.nodes.borrow_mut();
        let at_node = nodes.entry(self.node).or_default();
        at_node.late = at_node.late.max(Some(self.began));
    }
}

impl Drop for TryAtNode {
    fn drop(&mut self) {
        let mut nodes = self.at_nodes.nodes.borrow_mut();
        if let Some(at_node) = nodes.get_mut(&self.node) {
            at_node.tries.retain(|(number, _)| *number != self.number);
        }
        let now = Instant::now();
        // A node that has gone from the cluster answers nothing any more.
        nodes.retain(|_, at_node| {
            let is_late = |late: Instant| now.saturating_duration_since(late) < FORGOTTEN;
            !at_node.tries.is_empty() || at_node.late.is_some_and(is_late)
        });
    }
}

// === impl LateAnswer ===

impl LateAnswer {
    fn is_wanted(&self) -> bool {
        self.flight.strong_count() > 0 && !self.not_done.is_empty()
    }

    fn is_to(&self, flight: Option<&Arc<Flight>>) -> bool {
        flight.is_some_and(|flight| std::ptr::eq(self.flight.as_ptr(), Arc::as_ptr(flight)))
    }
}

/// The most tries at a node that keeps them, unless they were sent before that was known.
const KEPT_MAX: usize = 3;
/// The time before such a node is sent another one, times the number of those that it has.
const ASK_AGAIN: Duration = Duration::from_secs(30);
/// The time after which it is forgotten that a node has kept a try.
const FORGOTTEN: Duration = Duration::from_secs(3600);
/// The most late answers that are kept for their operations' next tries, which come at once as a rule.
const ANSWERS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeName = 7;

    fn begin(at: &Rc<TriesAtNodes>, node: NodeName, now: Instant) -> Option<TryAtNode> {
        at.begin_at(node, |_| false, now)
    }

    #[test]
    fn a_node_that_keeps_a_try_is_asked_rarely_until_it_takes_something_and_others_always() {
        let (at, now) = (Rc::<TriesAtNodes>::default(), Instant::now());
        let first: Vec<_> = (0..8).filter_map(|_| begin(&at, NODE, now)).collect();
        assert_eq!(first.len(), 8, "nobody knows yet");
        first[0].is_late();
        let hour = now + Duration::from_secs(3600);
        assert!(begin(&at, NODE, hour).is_none(), "it has enough");
        assert!(begin(&at, NODE + 1, now).is_some());
        drop(first);
        let second = begin(&at, NODE, now);
        assert!(second.is_some(), "it is asked whether it takes something");
        assert!(begin(&at, NODE, now + ASK_AGAIN / 2).is_none());
        let third = begin(&at, NODE, now + ASK_AGAIN);
        assert!(third.is_some());
        assert!(begin(&at, NODE, now + 2 * ASK_AGAIN).is_none(), "more rarely");
        let since = |late: Instant| late <= now;
        assert!(
            at.begin_at(NODE, since, now + ASK_AGAIN).is_some(),
            "it has taken one"
        );
        assert!(begin(&at, NODE, now + ASK_AGAIN).is_some());
    }

    #[test]
    fn what_a_late_answer_says_is_told_once_and_to_nobody_else() {
        let (at, flight, other) = (TriesAtNodes::default(), Arc::default(), Arc::default());
        at.keep(LateAnswer {
            flight: Arc::downgrade(&flight),
            limit: 5,
            not_done: [((0, 1, 2), Outcome::Done)].into(),
            held: Vec::new(),
        });
        assert!(at.has_answer(Some(&flight), (0, 1, 2)) && !at.has_answer(Some(&flight), (0, 1, 3)));
        assert!(!at.has_answer(Some(&other), (0, 1, 2)) && !at.has_answer(None, (0, 1, 2)));
        assert_eq!(at.take(Some(&flight), (0, 1, 2)).map(|told| told.limit), Some(5));
        assert!(at.take(Some(&flight), (0, 1, 2)).is_none());
    }
}
