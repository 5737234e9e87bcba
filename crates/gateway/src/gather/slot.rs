//! The parts that wait for one target, and when they go. The slot is pure: its driver passes the time, and
//! sends.

#[cfg(test)]
mod model;
mod shifts;
#[cfg(test)]
mod simulated;

use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::Node;
use config::Combine;

pub(crate) use self::shifts::Shifts;

/// The target of parts: a node, and also an index or a shard where parts are made for one. Large parts have
/// targets of their own, so that small ones never wait for the answer to a large one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    /// The address of the node's health, which outlives changes of the topology; the slot keeps the node.
    /// `None`: any node may take the parts, and passes them on to all shards, so the fewer requests the
    /// better, whichever node gets them.
    node: Option<usize>,
    index: Option<Box<str>>,
    shard: Option<u32>,
    pub(crate) large: bool,
    /// Parts with different numbers must not travel together.
    company: u64,
}

/// The weight of a member, which a slot has to know.
pub(crate) trait Weight {
    /// The bytes of the member's operations.
    fn bytes(&self) -> u64;
    /// The number of the member's operations.
    fn docs(&self) -> u32;
}

/// The parts `M` for one target at node `N`.
pub(crate) struct Slot<M, N> {
    node: N,
    waiting: Vec<M>,
    bytes: u64,
    docs: u64,
    under_way: u32,
    /// The parts that the requests under way carry.
    parts_under_way: usize,
    /// Whether somebody waits for the node's leave to send the parts that wait here.
    asked: bool,
    /// How often waiting parts were taken away.
    round: u64,
    /// The round for which somebody watches the clock, and whether they wait for a request under way to
    /// return.
    watched: Option<(u64, bool)>,
    /// The clients that seem to write to this target: those whose parts returned last, who are about to come
    /// back, and those whose parts waited or were under way then.
    clients: usize,
    /// How long requests take, smoothed.
    lasts: Duration,
    /// When the last request returned.
    returned: Instant,
}

/// The next step for a slot.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SlotAction {
    /// Nothing waits, or somebody will come for it.
    Nothing,
    /// Send the parts that wait.
    Send,
    /// Send the parts that wait after this time, if it is still the same round.
    Wait {
        /// The longest time to wait.
        longest: Duration,
        /// The round to wait for.
        round: u64,
    },
}

/// Whether parts that should be sent have to wait for the node's leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaveRequest {
    /// Nothing is under way, so it may go without leave.
    Needless,
    /// They have to wait, and the caller is the first: it waits for leave.
    New,
    /// They have to wait, and somebody waits for leave already.
    Done,
}

// === impl Target ===

impl Target {
    /// Names a target. `node` is `None` where any node may take the parts.
    pub(crate) fn new(
        node: Option<&Arc<Node>>,
        index: Option<&str>,
        shard: Option<u32>,
        large: bool,
        company: u64,
    ) -> Self {
        Self {
            node: node.map(|node| Arc::as_ptr(&node.health).addr()),
            index: index.map(Into::into),
            shard,
            large,
            company,
        }
    }
}

// === impl Slot ===

impl<M: Weight, N: Clone> Slot<M, N> {
    pub(crate) fn new(node: &N, now: Instant) -> Self {
        Self {
            node: node.clone(),
            waiting: Vec::new(),
            bytes: 0,
            docs: 0,
            under_way: 0,
            parts_under_way: 0,
            asked: false,
            round: 0,
            watched: None,
            clients: 1,
            lasts: Duration::ZERO,
            returned: now,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.under_way == 0 && !self.asked
    }

    pub(crate) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(crate) fn round(&self) -> u64 {
        self.round
    }

    /// Returns how long requests take, smoothed.
    pub(crate) fn lasts(&self) -> Duration {
        self.lasts
    }

    /// Whether a part that comes now has nothing to wait for; if so, it is under way by itself from now on.
    pub(crate) fn alone(&mut self, shifts: &mut Shifts, now: Instant) -> bool {
        let alone = self.waiting.is_empty()
            && !self.is_busy(shifts)
            && (self.expected(shifts) <= 1 || self.patience(now).is_zero());
        if alone {
            self.leaves(1, shifts, now);
        }
        alone
    }

    /// Whether parts gather until an answer has come.
    fn is_busy(&self, shifts: &Shifts) -> bool {
        self.under_way >= shifts.allowed()
    }

    /// Returns how many parts make a request complete: an even share of the clients' parts.
    fn expected(&self, shifts: &Shifts) -> usize {
        self.clients.div_ceil(shifts.allowed() as usize)
    }

    fn leaves(&mut self, parts: usize, shifts: &mut Shifts, now: Instant) {
        self.under_way += 1;
        self.parts_under_way += parts;
        shifts.began(now);
    }

    /// Returns how long it is worth waiting for clients that were about to come back.
    fn patience(&self, now: Instant) -> Duration {
        linger(self.lasts).saturating_sub(now.saturating_duration_since(self.returned))
    }

    pub(crate) fn push(&mut self, node: &N, member: M) {
        // The node is the same, perhaps with an address that has been looked up anew.
        self.node = node.clone();
        self.bytes += member.bytes();
        self.docs += u64::from(member.docs());
        self.waiting.push(member);
    }

    pub(crate) fn node(&self) -> &N {
        &self.node
    }

    /// Returns whether parts that should be sent wait for leave, when the node gives none.
    pub(crate) fn ask(&mut self) -> LeaveRequest {
        match (self.under_way, self.asked) {
            (0, _) => LeaveRequest::Needless,
            (_, true) => LeaveRequest::Done,
            (_, false) => {
                self.asked = true;
                LeaveRequest::New
            }
        }
    }

    /// Records that somebody is to wait for the node's leave, however much is under way; returns whether
    /// nobody did yet.
    pub(crate) fn ask_always(&mut self) -> bool {
        !std::mem::replace(&mut self.asked, true)
    }

    /// Records that the one who waited for leave has got it.
    pub(crate) fn got_leave(&mut self) {
        self.asked = false;
    }

    pub(crate) fn next_step(&mut self, shifts: &Shifts, settings: &Combine, now: Instant) -> SlotAction {
        // With nothing under way, the parts that wait need no leave.
        if self.waiting.is_empty() || (self.asked && self.under_way > 0) {
            return SlotAction::Nothing;
        }
        let full = self.bytes >= settings.flush_bytes
            || self.docs >= u64::from(settings.docs_max)
            || self.waiting.len() >= settings.requests_max as usize;
        let busy = self.is_busy(shifts);
        let patience = self.patience(now);
        let complete = self.waiting.len() >= self.expected(shifts) || patience.is_zero();
        if full || (!busy && complete) {
            return SlotAction::Send;
        }
        let watched = (self.round, busy);
        if self.watched == Some(watched) {
            return SlotAction::Nothing;
        }
        self.watched = Some(watched);
        let longest = if busy {
            settings.interval
        } else {
            patience.min(settings.interval)
        };
        SlotAction::Wait {
            longest,
            round: self.round,
        }
    }

    /// Takes the parts that wait, in the order in which they came, up to `bytes_max` and `docs_max`, but at
    /// least one; they are under way from now on.
    pub(crate) fn take(
        &mut self,
        shifts: &mut Shifts,
        (bytes_max, docs_max): (u64, u64),
        now: Instant,
    ) -> Option<(N, Vec<M>)> {
        if self.waiting.is_empty() {
            return None;
        }
        self.round += 1;
        let (mut bytes, mut docs, mut members) = (0, 0, 0);
        for member in &self.waiting {
            let fits = bytes + member.bytes() <= bytes_max && docs + u64::from(member.docs()) <= docs_max;
            if members > 0 && !fits {
                break;
            }
            bytes += member.bytes();
            docs += u64::from(member.docs());
            members += 1;
        }
        self.bytes -= bytes;
        self.docs -= docs;
        self.leaves(members, shifts, now);
        let rest = self.waiting.split_off(members);
        Some((self.node.clone(), std::mem::replace(&mut self.waiting, rest)))
    }

    /// Takes back the part that waits and that `which` accepts. Returns whether there is one.
    pub(crate) fn withdraw(&mut self, which: impl Fn(&M) -> bool) -> bool {
        let Some(at) = self.waiting.iter().position(which) else {
            return false;
        };
        let member = self.waiting.remove(at);
        self.bytes -= member.bytes();
        self.docs -= u64::from(member.docs());
        if self.waiting.is_empty() {
            // Whoever watches the clock for them finds another round, and the next part has its own watch.
            self.round += 1;
        }
        true
    }

    /// Records that the answer to `parts` with `bytes` has come, after this time.
    pub(crate) fn returned(
        &mut self,
        shifts: &mut Shifts,
        (parts, bytes): (usize, u64),
        lasted: Duration,
        now: Instant,
    ) {
        self.clients = self.parts_under_way + self.waiting.len();
        self.under_way = self.under_way.saturating_sub(1);
        self.parts_under_way = self.parts_under_way.saturating_sub(parts);
        shifts.ended(bytes, lasted, self.clients, now);
        self.lasts = match self.lasts {
            Duration::ZERO => lasted,
            before => (before * 7 + lasted) / 8,
        };
        self.returned = now;
    }
}

/// Returns a share of how long requests take.
fn linger(lasts: Duration) -> Duration {
    lasts / LINGER_SHARE
}

/// The most times `flush_threshold_size` that a request is when its node falls behind.
pub(crate) const GROWTH_MAX: u64 = 2;

/// The longest wait for clients that are about to come back, as a share of how long requests take.
const LINGER_SHARE: u32 = 2;
