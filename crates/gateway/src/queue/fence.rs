//! Order across lanes. A document's lane follows from where its name leads when it is accepted, and its line
//! goes where the name leads when it is delivered. When a name comes to lead elsewhere, later writes to what
//! it leads to now may be in other lanes than earlier ones that have yet to go there. A fence says so: groups
//! of some lanes, from a position of the log on, wait until some other lanes have delivered what came before.
//! A request that was planned by where the name led may be put into the log behind one that was planned by
//! where it leads: until no such request can come, the lanes that it has wait for the others, too. Whoever
//! waits, waits for smaller positions only, so nobody waits in a circle.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::queue::journal::Consumer;

/// Lanes of a queue, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lanes(Vec<u64>);

/// What waits for what.
#[derive(Debug)]
pub(crate) struct Fence {
    /// Tells it from others of its queue.
    pub(crate) number: u64,
    /// From here on groups wait: nothing that was planned by where names lead now lies before.
    pub(crate) low: u64,
    /// The groups of these lanes.
    pub(crate) of: Lanes,
    /// For what these lanes hold.
    pub(crate) past: Lanes,
    /// Names that came to lead elsewhere, and the index that each led to.
    pub(crate) moved: Vec<(String, String)>,
    /// Behind the last record that was planned by where the names led; [`OPEN`] while that is not known.
    end: AtomicU64,
}

/// How far the lanes of one consumer group are, for those that wait for them. Of one thread, as the lanes
/// are.
pub(crate) struct Fronts {
    /// By lane: the position of the record that it works on, if it has one: all that it holds before is done.
    fronts: Vec<Cell<Option<u64>>>,
    moved: Notify,
}

// === impl Lanes ===

impl Lanes {
    pub(crate) fn has(&self, lane: u32) -> bool {
        let word = self.0.get(lane as usize / 64).copied().unwrap_or_default();
        word & (1 << (lane % 64)) != 0
    }

    pub(crate) fn insert(&mut self, lane: u32) {
        let at = lane as usize / 64;
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        self.0[at] |= 1 << (lane % 64);
    }

    pub(crate) fn add(&mut self, others: &Lanes) {
        others.iter().for_each(|lane| self.insert(lane));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        (0..self.0.len() as u32 * 64).filter(|lane| self.has(*lane))
    }
}

impl FromIterator<u32> for Lanes {
    fn from_iter<I: IntoIterator<Item = u32>>(lanes: I) -> Self {
        let mut all = Self::default();
        lanes.into_iter().for_each(|lane| all.insert(lane));
        all
    }
}

// === impl Fence ===

impl Fence {
    pub(crate) fn new(number: u64, low: u64, (of, past): (Lanes, Lanes), end: Option<u64>) -> Self {
        Self {
            number,
            low,
            of,
            past,
            moved: Vec::new(),
            end: AtomicU64::new(end.unwrap_or(OPEN)),
        }
    }

    /// Behind the last record that was planned by where the names led; none while that is not known.
    pub(crate) fn end(&self) -> Option<u64> {
        Some(self.end.load(Ordering::Acquire)).filter(|end| *end != OPEN)
    }

    /// Nothing that is planned by where the names led comes at this position or later. The first word holds.
    pub(crate) fn close(&self, end: u64) -> bool {
        let closed = self
            .end
            .compare_exchange(OPEN, end, Ordering::AcqRel, Ordering::Acquire);
        closed.is_ok()
    }

    /// The indices that `name` led to, if a write to it that was accepted at `position` may have been sent
    /// there.
    pub(crate) fn left<'a>(&'a self, name: &'a str, position: u64) -> impl Iterator<Item = &'a str> {
        let before = self.end().is_none_or(|end| position < end);
        let moved = self
            .moved
            .iter()
            .filter(move |(moved, _)| before && moved == name);
        moved.map(|(_, index)| index.as_str())
    }
}

// === impl Fronts ===

impl Fronts {
    pub(crate) fn new(lanes: u32) -> Self {
        Self {
            fronts: (0..lanes).map(|_| Cell::default()).collect(),
            moved: Notify::new(),
        }
    }

    /// A lane works on what was accepted at this position; none: it looks for what is next.
    pub(crate) fn set(&self, lane: u32, position: Option<u64>) {
        self.fronts[lane as usize].set(position);
        self.moved.notify_waiters();
    }

    /// The lane that the group at `position` of `lane` has to wait for, if there is one.
    pub(crate) fn awaited(
        &self,
        fences: &[Arc<Fence>],
        consumer: &Consumer,
        lane: u32,
        position: u64,
    ) -> Option<u32> {
        if fences.is_empty() {
            return None;
        }
        let mut bound_of = vec![0; self.fronts.len()];
        for fence in fences.iter().filter(|fence| fence.low <= position) {
            let bound = fence.end().unwrap_or(position).min(position);
            let mut wait_for = |others: &Lanes| {
                for other in others.iter().filter(|other| *other != lane) {
                    if let Some(most) = bound_of.get_mut(other as usize) {
                        *most = bound.max(*most);
                    }
                }
            };
            if fence.of.has(lane) {
                wait_for(&fence.past);
            }
            // What was planned by where the names led comes behind what was not, as long as the fence is
            // open.
            if fence.past.has(lane) && fence.end().is_none_or(|end| position < end) {
                wait_for(&fence.of);
            }
        }
        let front = |other: usize| self.fronts[other].get();
        let behind =
            |(other, bound): &(usize, u64)| *bound > 0 && front(*other).is_none_or(|front| front < *bound);
        let mut unsure = bound_of.into_iter().enumerate().filter(behind).peekable();
        unsure.peek()?;
        let lanes = consumer.status().lanes;
        // Whoever has nothing more is past everything: what lies before the group in hand can be read by now.
        let holds = |(other, bound): &(usize, u64)| {
            lanes
                .get(*other)
                .is_some_and(|lane| lane.position < *bound && lane.done < lane.accepted)
        };
        unsure.find(holds).map(|(other, _)| other as u32)
    }

    /// Waits until some lane has come further, for a moment at most.
    pub(crate) async fn moved(&self) {
        let _ = tokio::time::timeout(LOOK_AGAIN, self.moved.notified()).await;
    }
}

const OPEN: u64 = u64::MAX;
/// Between two looks at lanes that nobody has heard of.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_a_set() {
        let mut lanes: Lanes = [1, 64, 200].into_iter().collect();
        lanes.add(&[1, 3].into_iter().collect());
        assert_eq!(lanes.iter().collect::<Vec<_>>(), [1, 3, 64, 200]);
        assert!(lanes.has(64) && !lanes.has(65) && !lanes.has(9_999));
    }

    #[test]
    fn a_write_may_be_where_its_name_led_only_if_it_was_accepted_before_all_knew_better() {
        let mut fence = Fence::new(1, 10, (Lanes::default(), Lanes::default()), None);
        fence.moved.push(("a".to_owned(), "i1".to_owned()));
        let left = |fence: &Fence, name, position| fence.left(name, position).next() == Some("i1");
        assert!(left(&fence, "a", 99) && !left(&fence, "b", 9));
        assert!(fence.close(20) && !fence.close(30));
        assert!(left(&fence, "a", 19) && !left(&fence, "a", 20));
        assert_eq!(fence.end(), Some(20));
    }
}
