//! Keeps order across lanes. A document's lane follows from where its name leads when the document is
//! accepted, but the document goes where the name leads when it is delivered. When a name comes to lead
//! elsewhere, later writes to the new index may be in other lanes than earlier writes that have yet to go
//! there. A fence keeps them in order: groups of some lanes, from a position of the log on, wait until some
//! other lanes have delivered the groups before them. A request that was planned by where the name led may be
//! put into the log behind one that was planned by where it leads now: until no such request can come, the
//! lanes of the former wait for those of the latter, too. A lane waits for smaller positions only, so lanes
//! never wait in a circle.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::queue::journal::Consumer;
use crate::queue::parked::OperationNames;

/// All fences of a queue.
pub(crate) type Fences = Arc<Vec<Arc<Fence>>>;

/// Lanes of a queue, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaneSet(Vec<u64>);

/// A rule that makes some lanes wait for others.
#[derive(Debug)]
pub(crate) struct Fence {
    /// Tells the fence from others of its queue.
    pub(crate) number: u64,
    /// The position from which groups wait: nothing that was planned by where the names lead now lies before
    /// it.
    pub(crate) low: u64,
    /// The lanes whose groups wait.
    pub(crate) of: LaneSet,
    /// The lanes that they wait for.
    pub(crate) past: LaneSet,
    /// Names that came to lead elsewhere, and the index that each led to.
    pub(crate) moved: Vec<(String, String)>,
    /// The position behind the last record that was planned by where the names led; [`OPEN`] while that is
    /// not known.
    end: AtomicU64,
}

/// How far the lanes of one consumer group are, for the lanes that wait for them. Belongs to one thread, as
/// the lanes do.
pub(crate) struct Fronts {
    /// By lane: the position of the record that the lane works on, if it has one. All that the lane holds
    /// before it is done.
    fronts: Vec<Cell<Option<u64>>>,
    moved: Notify,
}

// === impl LaneSet ===

impl LaneSet {
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

    pub(crate) fn add(&mut self, others: &LaneSet) {
        others.iter().for_each(|lane| self.insert(lane));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        (0..self.0.len() as u32 * 64).filter(|lane| self.has(*lane))
    }
}

impl FromIterator<u32> for LaneSet {
    fn from_iter<I: IntoIterator<Item = u32>>(lanes: I) -> Self {
        let mut all = Self::default();
        lanes.into_iter().for_each(|lane| all.insert(lane));
        all
    }
}

// === impl Fence ===

impl Fence {
    pub(crate) fn new(number: u64, low: u64, (of, past): (LaneSet, LaneSet), end: Option<u64>) -> Self {
        Self {
            number,
            low,
            of,
            past,
            moved: Vec::new(),
            end: AtomicU64::new(end.unwrap_or(OPEN)),
        }
    }

    /// Returns the position behind the last record that was planned by where the names led; `None` while that
    /// is not known.
    pub(crate) fn end(&self) -> Option<u64> {
        Some(self.end.load(Ordering::Acquire)).filter(|end| *end != OPEN)
    }

    /// Closes the fence: nothing that was planned by where the names led comes at this position or later.
    /// Only the first call counts; returns whether this is the first.
    pub(crate) fn close(&self, end: u64) -> bool {
        let closed = self
            .end
            .compare_exchange(OPEN, end, Ordering::AcqRel, Ordering::Acquire);
        closed.is_ok()
    }

    /// Whether a group at `position` of `lane` comes after groups of `other` because of this fence.
    fn puts_behind(&self, lane: u32, position: u64, other: u32) -> bool {
        let follows = self.of.has(lane) && self.past.has(other);
        let mixes = self.past.has(lane) && self.of.has(other) && self.end().is_none_or(|end| position < end);
        self.low <= position && (follows || mixes)
    }

    /// Whether two groups of a lane are delivered apart from each other, because groups of other lanes may
    /// belong between them. Otherwise what is parked of both is one piece, which has one place among those of
    /// the other lanes.
    fn parts(&self, lane: u32, before: u64, position: u64) -> bool {
        let is_about = self.of.has(lane) || self.past.has(lane);
        is_about && self.low <= position && self.end().is_none_or(|end| before < end)
    }

    /// Whether one of these names may have come to lead elsewhere with this fence. A fence that names none is
    /// for names that nobody knew.
    fn is_about<'n>(&self, mut names: impl Iterator<Item = &'n str>) -> bool {
        let moved = |name: &str| {
            self.moved
                .iter()
                .any(|(moved, index)| moved == name || index == name)
        };
        self.moved.is_empty() || names.any(moved)
    }

    /// Returns the indices that `name` led to, if a write to it that was accepted at `position` may have been
    /// sent there.
    pub(crate) fn left<'a>(&'a self, name: &'a str, position: u64) -> impl Iterator<Item = &'a str> {
        let before = self.end().is_none_or(|end| position < end);
        let moved = self
            .moved
            .iter()
            .filter(move |(moved, _)| before && moved == name);
        moved.map(|(_, index)| index.as_str())
    }
}

/// Whether some fence puts an operation at `position` of `lane`, on an index with these names, behind
/// operations that `other` has parked. These may go out long after both lanes have passed the fence.
pub(crate) fn is_behind(
    fences: &[Arc<Fence>],
    named: &OperationNames,
    (lane, position): (u32, u64),
    other: u32,
) -> bool {
    let puts = |fence: &Arc<Fence>| fence.puts_behind(lane, position, other) && fence.is_about(named.names());
    lane != other && fences.iter().any(puts)
}

// === impl Fronts ===

impl Fronts {
    pub(crate) fn new(lanes: u32) -> Self {
        Self {
            fronts: (0..lanes).map(|_| Cell::default()).collect(),
            moved: Notify::new(),
        }
    }

    /// Records that a lane works on the group accepted at this position; `None`: it looks for its next group.
    pub(crate) fn set(&self, lane: u32, position: Option<u64>) {
        self.fronts[lane as usize].set(position);
        self.moved.notify_waiters();
    }

    /// Returns the lane that the group at `position` of `lane` has to wait for, if there is one. It is the
    /// lane itself if the group does not go along with the one at `after`, which is delivered first.
    pub(crate) fn awaited(
        &self,
        fences: &[Arc<Fence>],
        consumer: &Consumer,
        lane: u32,
        (after, position): (Option<u64>, u64),
    ) -> Option<u32> {
        if fences.is_empty() {
            return None;
        }
        let is_apart = |after| fences.iter().any(|fence| fence.parts(lane, after, position));
        if after.is_some_and(is_apart) {
            return Some(lane);
        }
        let mut bound_of = vec![0; self.fronts.len()];
        for fence in fences.iter().filter(|fence| fence.low <= position) {
            let bound = fence.end().unwrap_or(position).min(position);
            let mut wait_for = |others: &LaneSet| {
                for other in others.iter().filter(|other| *other != lane) {
                    if let Some(most) = bound_of.get_mut(other as usize) {
                        *most = bound.max(*most);
                    }
                }
            };
            if fence.of.has(lane) {
                wait_for(&fence.past);
            }
            // As long as the fence is open, a group that was planned by where the names led follows the
            // groups that were not.
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
        // A lane that has nothing more is past everything: all groups before the one in hand can be read by
        // now.
        let holds = |(other, bound): &(usize, u64)| {
            lanes
                .get(*other)
                .is_some_and(|lane| lane.position < *bound && lane.done < lane.accepted)
        };
        let (other, bound) = unsure.find(holds)?;
        self.assert_smaller((lane, position), (other, bound));
        Some(other as u32)
    }

    /// Asserts that a lane which is at `position` and has to wait for another to come to `bound` waits for
    /// smaller positions only.
    ///
    /// # Panics
    ///
    /// If not: lanes could wait in a circle, and none would go on.
    fn assert_smaller(&self, (lane, position): (u32, u64), (other, bound): (usize, u64)) {
        let front = self.fronts[other].get();
        assert!(
            other != lane as usize && bound <= position && front.is_none_or(|front| front < position),
            "a fence lets a lane wait for smaller positions of other lanes: lane {lane} at {position} for lane \
             {other} to come to {bound} from {front:?}"
        );
    }

    /// Waits until some lane has come further, but not for long.
    pub(crate) async fn moved(&self) {
        let _ = tokio::time::timeout(LOOK_AGAIN, self.moved.notified()).await;
    }
}

const OPEN: u64 = u64::MAX;
/// The interval between two looks at lanes that have not moved.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_a_set() {
        let mut lanes: LaneSet = [1, 64, 200].into_iter().collect();
        lanes.add(&[1, 3].into_iter().collect());
        assert_eq!(lanes.iter().collect::<Vec<_>>(), [1, 3, 64, 200]);
        assert!(lanes.has(64) && !lanes.has(65) && !lanes.has(9_999));
    }

    #[test]
    fn a_write_may_be_where_its_name_led_only_if_it_was_accepted_before_all_knew_better() {
        let mut fence = Fence::new(1, 10, (LaneSet::default(), LaneSet::default()), None);
        fence.moved.push(("a".to_owned(), "i1".to_owned()));
        let left = |fence: &Fence, name, position| fence.left(name, position).next() == Some("i1");
        assert!(left(&fence, "a", 99) && !left(&fence, "b", 9));
        assert!(fence.close(20) && !fence.close(30));
        assert!(left(&fence, "a", 19) && !left(&fence, "a", 20));
        assert_eq!(fence.end(), Some(20));
    }

    #[test]
    fn groups_go_along_only_if_both_lie_before_or_both_behind_all_that_a_fence_puts_in_order() {
        let lanes = |lane: u32| [lane].into_iter().collect();
        let fence = Fence::new(1, 10, (lanes(5), lanes(3)), None);
        let parted = |fence: &Fence, lane| {
            [(8, 9), (9, 10), (10, 11), (19, 20), (20, 21)].map(|(one, other)| fence.parts(lane, one, other))
        };
        for lane in [3, 5] {
            assert_eq!(parted(&fence, lane), [false, true, true, true, true]);
        }
        assert!(fence.close(20));
        for lane in [3, 5] {
            assert_eq!(parted(&fence, lane), [false, true, true, true, false]);
        }
        assert_eq!(parted(&fence, 4), [false; 5], "it is about other lanes");
    }

    fn fronts() -> Fronts {
        let fronts = Fronts::new(2);
        fronts.set(1, Some(40));
        fronts
    }

    #[test]
    fn a_lane_waits_for_what_another_holds_before_it() {
        fronts().assert_smaller((0, 50), (1, 50));
    }

    #[test]
    #[should_panic(expected = "a fence lets a lane wait for smaller positions of other lanes")]
    fn no_lane_waits_for_one_that_is_further() {
        fronts().assert_smaller((0, 40), (1, 40));
    }

    #[test]
    #[should_panic(expected = "a fence lets a lane wait for smaller positions of other lanes")]
    fn no_lane_waits_for_another_to_overtake_it() {
        fronts().assert_smaller((0, 50), (1, 51));
    }

    #[test]
    #[should_panic(expected = "a fence lets a lane wait for smaller positions of other lanes")]
    fn no_lane_waits_for_itself() {
        fronts().assert_smaller((1, 50), (1, 50));
    }
}
