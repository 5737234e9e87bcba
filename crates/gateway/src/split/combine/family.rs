//! Requests whose parts may travel together: those that tell the cluster the same.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::Node;
use config::Combine;
use http::header::{CONTENT_LENGTH, USER_AGENT};
use http::{HeaderMap, HeaderName, Method};
use parking_lot::{Mutex, MutexGuard};

use super::batch::Member;
use crate::gather::{self, Asking, Shifts, SlotAction, Target};
use crate::nodes::Message;

type Slot = gather::Slot<Member, Arc<Node>>;

/// Requests with the same method, path, parameters and headers, credentials among them.
pub(crate) struct Family {
    pub(super) method: Method,
    pub(super) target: String,
    /// What they have in common.
    pub(super) headers: HeaderMap,
    slots: Mutex<Slots>,
}

/// What waits for each target.
struct Slots {
    by_target: HashMap<Target, Slot>,
    /// How many requests a target has at once: small parts' and large parts'.
    shifts: [Shifts; 2],
}

/// All families of a configuration: those that some request belongs to, and some that none does any more.
#[derive(Debug, Default)]
pub(crate) struct Families(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    by_key: HashMap<Box<[u8]>, Arc<Family>>,
    /// The size at which the idle ones are cleared out.
    sweep_at: usize,
}

/// Headers in which requests of one family may differ: they tell who asks and from where in what program,
/// which changes nothing about what is executed. A request that carries several clients' parts carries none
/// of them.
static APART: [HeaderName; 7] = [
    CONTENT_LENGTH,
    USER_AGENT,
    HeaderName::from_static("baggage"),
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
    HeaderName::from_static("x-elastic-client-meta"),
    HeaderName::from_static("x-request-id"),
];

/// What requests of one family have in common, as bytes.
fn key(filter: &[u8], message: Message<'_>, peculiar: [bool; 2]) -> Vec<u8> {
    let mut key = Vec::with_capacity(256);
    key.extend_from_slice(filter);
    key.push(b'\n');
    key.extend_from_slice(&peculiar.map(u8::from));
    for text in [message.method.as_str(), message.target] {
        key.extend_from_slice(text.as_bytes());
        key.push(b'\n');
    }
    let mut headers: Vec<_> = message.headers.iter().collect();
    headers.retain(|(name, _)| !APART.contains(name));
    // Programs send the same headers in different orders. Values of one name stay in theirs.
    headers.sort_by(|one, other| one.0.as_str().cmp(other.0.as_str()));
    for (name, value) in headers {
        key.extend_from_slice(name.as_str().as_bytes());
        key.push(b':');
        key.extend_from_slice(value.as_bytes());
        key.push(b'\n');
    }
    key
}

// === impl Families ===

impl Families {
    pub(super) fn of(
        &self,
        filter: &[u8],
        message: Message<'_>,
        peculiar: [bool; 2],
        settings: &Combine,
    ) -> Arc<Family> {
        let key = key(filter, message, peculiar);
        let mut known = self.0.lock();
        if let Some(family) = known.by_key.get(&*key) {
            return Arc::clone(family);
        }
        if known.by_key.len() >= known.sweep_at {
            // Who has none but this reference has no request either.
            known.by_key.retain(|_, family| Arc::strong_count(family) > 1);
            known.sweep_at = (known.by_key.len() * 2).max(FAMILIES_KEPT);
        }
        let family = Arc::new(Family::new(message, settings));
        known.by_key.insert(key.into(), Arc::clone(&family));
        family
    }
}

// === impl Family ===

impl Family {
    fn new(message: Message<'_>, settings: &Combine) -> Self {
        // Copied, not removed: removing would change the order of the others.
        let common = message.headers.iter().filter(|(name, _)| !APART.contains(name));
        let mut headers = HeaderMap::new();
        for (name, value) in common {
            headers.append(name, value.clone());
        }
        Self {
            method: message.method.clone(),
            target: message.target.to_owned(),
            headers,
            slots: Mutex::new(Slots {
                by_target: HashMap::new(),
                shifts: [(); 2].map(|()| Shifts::new(settings.adaptive)),
            }),
        }
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock()
    }

    /// Whether a part that comes now finds nobody to wait for, and is under way by itself from now on.
    pub(super) fn alone(&self, target: &Target, node: &Arc<Node>) -> bool {
        let (now, mut slots) = (Instant::now(), self.slots());
        slots.make(target, node, now);
        slots
            .at(target)
            .is_some_and(|(slot, shifts)| slot.alone(shifts, now))
    }

    pub(super) fn wait(&self, target: &Target, node: &Arc<Node>, member: Member) {
        let mut slots = self.slots();
        slots.make(target, node, Instant::now()).push(node, member);
    }

    pub(super) fn next_step(&self, target: &Target, settings: &Combine) -> SlotAction {
        let mut slots = self.slots();
        slots.at(target).map_or(SlotAction::Nothing, |(slot, shifts)| {
            slot.next_step(shifts, settings, Instant::now())
        })
    }

    /// The node of a target for which something waits.
    pub(super) fn node(&self, target: &Target) -> Option<Arc<Node>> {
        let slots = self.slots();
        let slot = slots.by_target.get(target).filter(|slot| slot.waits())?;
        Some(Arc::clone(slot.node()))
    }

    /// What is to be done when what waits should be sent and the node gives no leave.
    pub(super) fn ask(&self, target: &Target) -> Asking {
        let mut slots = self.slots();
        slots.at(target).map_or(Asking::Done, |(slot, _)| slot.ask())
    }

    /// Who waited for leave has got it.
    pub(super) fn got_leave(&self, target: &Target) {
        if let Some((slot, _)) = self.slots().at(target) {
            slot.got_leave();
        }
    }

    /// The number of the present round of waiting.
    pub(super) fn round(&self, target: &Target) -> Option<u64> {
        self.slots().by_target.get(target).map(Slot::round)
    }

    /// What waits, up to `bytes_max`, as under way from now on; `None` if nothing does.
    pub(super) fn take(&self, target: &Target, bytes_max: u64) -> Option<(Arc<Node>, Vec<Member>)> {
        let mut slots = self.slots();
        let (slot, shifts) = slots.at(target)?;
        slot.take(shifts, (bytes_max, u64::MAX), Instant::now())
    }

    /// `weight`: the parts that travelled, and their bytes.
    pub(super) fn returned(&self, target: &Target, weight: (usize, u64), lasted: Duration) {
        let mut slots = self.slots();
        let Some((slot, shifts)) = slots.at(target) else {
            return;
        };
        let before = shifts.usual();
        slot.returned(shifts, weight, lasted, Instant::now());
        let at_once = shifts.usual();
        if at_once != before {
            let large = target.large;
            tracing::debug!(
                at_once,
                before,
                large,
                "nodes are sent another number of combined requests at once"
            );
        }
    }
}

// === impl Slots ===

impl Slots {
    /// The slot of a target, and what tells how many requests it may have at once.
    fn at(&mut self, target: &Target) -> Option<(&mut Slot, &mut Shifts)> {
        let slot = self.by_target.get_mut(target)?;
        Some((slot, &mut self.shifts[usize::from(target.large)]))
    }

    /// The slot of a target; a new one, if it has none.
    fn make(&mut self, target: &Target, node: &Arc<Node>, now: Instant) -> &mut Slot {
        let slots = &mut self.by_target;
        if slots.len() >= SLOTS_KEPT && !slots.contains_key(target) {
            slots.retain(|_, slot| !slot.is_idle());
        }
        slots
            .entry(target.clone())
            .or_insert_with(|| Slot::new(node, now))
    }
}

impl std::fmt::Debug for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Headers hold credentials.
        f.debug_struct("Family")
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

/// Families kept before the first search for idle ones.
const FAMILIES_KEPT: usize = 64;

/// Slots of a family beyond which idle ones are cleared out.
const SLOTS_KEPT: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_id::RequestIds;

    fn key_of(target: &str, headers: &[(&'static str, &str)]) -> Vec<u8> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let message = Message {
            request_id: &RequestIds::new(1).of(&HeaderMap::new()),
            method: &Method::POST,
            target,
            headers: &map,
        };
        key(b"f", message, [false; 2])
    }

    #[test]
    fn who_asks_for_the_same_is_family_and_credentials_parameters_and_tasks_keep_apart() {
        let same = key_of("/_bulk", &[("authorization", "a"), ("user-agent", "x")]);
        let traced = [("authorization", "a"), ("traceparent", "1"), ("user-agent", "y")];
        assert_eq!(same, key_of("/_bulk", &traced));
        let (one, other) = (("accept", "*/*"), ("authorization", "a"));
        assert_eq!(key_of("/_bulk", &[one, other]), key_of("/_bulk", &[other, one]));
        for (target, headers) in [
            ("/_bulk", vec![("authorization", "b")]),
            ("/_bulk", vec![]),
            ("/_bulk?refresh=true", vec![("authorization", "a")]),
            ("/i/_bulk", vec![("authorization", "a")]),
            ("/_bulk", vec![("authorization", "a"), ("x-opaque-id", "1")]),
            ("/_bulk", vec![("authorization", "a"), ("cookie", "s=1")]),
        ] {
            assert_ne!(same, key_of(target, &headers), "{target} {headers:?}");
        }
    }
}
