//! The slots of all targets, and how many requests a target may have at once. Clients' parts and lanes'
//! parcels gather by the same rules; each side locks its own slots, and sends the members that are due.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::Node;
use config::Combine;

use super::slot::{LeaveRequest, Shifts, Slot, SlotAction, Target, Weight};

/// A target that members gather for.
pub(crate) trait Gathers: Clone + Eq + Hash {
    /// Returns which of the [`Shifts`] counts the target's requests, from 0.
    fn class(&self) -> usize {
        0
    }
}

/// The slots of all targets, with the members that wait for each.
pub(crate) struct Slots<T, M> {
    by_target: HashMap<T, Slot<M, Arc<Node>>>,
    /// The number of slots at which the idle ones are removed.
    sweep_at: usize,
    /// The shifts, by class of target.
    shifts: Vec<Shifts>,
}

/// The number of slots up to which idle ones are kept.
const KEPT: usize = 1024;

// === impl Target ===

impl Gathers for Target {
    fn class(&self) -> usize {
        usize::from(self.large)
    }
}

// === impl Slots ===

impl<T: Gathers, M: Weight> Slots<T, M> {
    pub(crate) fn new(classes: usize, adaptive: bool) -> Self {
        Self {
            by_target: HashMap::new(),
            sweep_at: KEPT,
            shifts: (0..classes).map(|_| Shifts::new(adaptive)).collect(),
        }
    }

    /// Whether a member that comes now has nothing to wait for; if so, it is under way by itself from now on.
    pub(crate) fn alone(&mut self, target: &T, node: &Arc<Node>, now: Instant) -> bool {
        self.make(target, node, now);
        self.at(target)
            .is_some_and(|(slot, shifts)| slot.alone(shifts, now))
    }

    /// Makes a member wait from now on.
    pub(crate) fn push(&mut self, target: &T, node: &Arc<Node>, member: M, now: Instant) {
        self.make(target, node, now).push(node, member);
    }

    pub(crate) fn next_step(&mut self, target: &T, settings: &Combine, now: Instant) -> SlotAction {
        self.at(target).map_or(SlotAction::Nothing, |(slot, shifts)| {
            slot.next_step(shifts, settings, now)
        })
    }

    /// Returns the node of a target for which something waits.
    pub(crate) fn node(&self, target: &T) -> Option<Arc<Node>> {
        let slot = self.by_target.get(target).filter(|slot| slot.waits())?;
        Some(Arc::clone(slot.node()))
    }

    /// Returns whether members that should be sent wait for leave, when the node gives none.
    pub(crate) fn ask(&mut self, target: &T) -> LeaveRequest {
        self.at(target).map_or(LeaveRequest::Done, |(slot, _)| slot.ask())
    }

    /// Returns the node to ask for leave, where nothing is sent without leave; `None` if nothing waits, or
    /// somebody asks already.
    pub(crate) fn ask_always(&mut self, target: &T) -> Option<Arc<Node>> {
        let (slot, _) = self.at(target).filter(|(slot, _)| slot.waits())?;
        slot.ask_always().then(|| Arc::clone(slot.node()))
    }

    /// Records that the one who waited for leave has got it, or no longer waits.
    pub(crate) fn got_leave(&mut self, target: &T) {
        if let Some((slot, _)) = self.at(target) {
            slot.got_leave();
        }
    }

    /// Returns the number of the present round of waiting.
    pub(crate) fn round(&self, target: &T) -> Option<u64> {
        self.by_target.get(target).map(Slot::round)
    }

    /// Returns how long a target's requests take, smoothed; zero if that is not known.
    pub(crate) fn lasts(&self, target: &T) -> Duration {
        self.by_target.get(target).map(Slot::lasts).unwrap_or_default()
    }

    /// Takes the members that wait, up to `most` bytes and operations; they are under way from now on. `None`
    /// if nothing waits.
    pub(crate) fn take(&mut self, target: &T, most: (u64, u64), now: Instant) -> Option<(Arc<Node>, Vec<M>)> {
        let (slot, shifts) = self.at(target)?;
        slot.take(shifts, most, now)
    }

    /// Takes back the member that waits for a target and that `which` accepts. Returns whether there is one.
    pub(crate) fn withdraw(&mut self, target: &T, which: impl Fn(&M) -> bool) -> bool {
        self.at(target).is_some_and(|(slot, _)| slot.withdraw(which))
    }

    /// Records that a request has ended, with its `weight`: its members, and their bytes. Returns how many
    /// requests targets of this class had at once before, and have now, if that has changed.
    pub(crate) fn returned(
        &mut self,
        target: &T,
        weight: (usize, u64),
        lasted: Duration,
        now: Instant,
    ) -> Option<[u32; 2]> {
        let (slot, shifts) = self.at(target)?;
        let before = shifts.usual();
        slot.returned(shifts, weight, lasted, now);
        let at_once = shifts.usual();
        (at_once != before).then_some([before, at_once])
    }

    /// Returns the slot of a target, and the shifts that tell how many requests the target may have at once.
    fn at(&mut self, target: &T) -> Option<(&mut Slot<M, Arc<Node>>, &mut Shifts)> {
        let slot = self.by_target.get_mut(target)?;
        Some((slot, &mut self.shifts[target.class()]))
    }

    /// Returns the slot of a target; makes one if the target has none.
    fn make(&mut self, target: &T, node: &Arc<Node>, now: Instant) -> &mut Slot<M, Arc<Node>> {
        let slots = &mut self.by_target;
        if slots.len() >= self.sweep_at && !slots.contains_key(target) {
            slots.retain(|_, slot| !slot.is_idle());
            self.sweep_at = (slots.len() * 2).max(KEPT);
        }
        slots
            .entry(target.clone())
            .or_insert_with(|| Slot::new(node, now))
    }
}
