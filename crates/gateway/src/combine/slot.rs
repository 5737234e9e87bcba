//! What waits for one target, and when it goes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::Node;

use super::batch::Member;
use super::{UNDER_WAY_MAX, linger};
use crate::config::Combine;

/// Whom parts are for: a node, and where parts are made for an index or a shard, that too.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Target {
    /// The address of the node's health, which outlives changes of the topology; the slot keeps the node.
    node: usize,
    index: Option<Box<str>>,
    shard: Option<u32>,
}

/// The parts for one target.
pub(super) struct Slot {
    node: Arc<Node>,
    waiting: Vec<Member>,
    bytes: u64,
    docs: u64,
    under_way: u32,
    /// Counts how often what waited was taken away.
    round: u64,
    /// The round that somebody watches the clock for, and whether they wait for a request under way to return.
    watched: Option<(u64, bool)>,
    /// Clients that write to this target, it seems: those whose parts returned last, who are about to come back, and
    /// those whose parts waited then.
    expected: usize,
    /// What requests last, smoothed.
    lasts: Duration,
    /// When the last one returned.
    returned: Instant,
}

/// What is to be done for a slot.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing waits, or somebody will come for it.
    Nothing,
    /// Send what waits.
    Send,
    /// Send what waits after this time, if it is still the same round.
    Wait {
        /// The time.
        longest: Duration,
        /// The round.
        round: u64,
    },
}

// === impl Target ===

impl Target {
    pub(super) fn new(node: &Arc<Node>, index: Option<&str>, shard: Option<u32>) -> Self {
        Self {
            node: Arc::as_ptr(&node.health).addr(),
            index: index.map(Into::into),
            shard,
        }
    }
}

// === impl Slot ===

impl Slot {
    pub(super) fn new(node: &Arc<Node>) -> Self {
        Self {
            node: Arc::clone(node),
            waiting: Vec::new(),
            bytes: 0,
            docs: 0,
            under_way: 0,
            round: 0,
            watched: None,
            expected: 1,
            lasts: Duration::ZERO,
            returned: Instant::now(),
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.under_way == 0
    }

    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn round(&self) -> u64 {
        self.round
    }

    pub(super) fn push(&mut self, node: &Arc<Node>, member: Member) {
        // The same node, perhaps with an address that has been looked up anew.
        self.node = Arc::clone(node);
        self.bytes += member.bytes();
        self.docs += u64::from(member.docs());
        self.waiting.push(member);
    }

    pub(super) fn next_step(&mut self, settings: &Combine) -> Step {
        if self.waiting.is_empty() {
            return Step::Nothing;
        }
        let full = self.bytes >= settings.flush_bytes
            || self.docs >= u64::from(settings.docs_max)
            || self.waiting.len() >= settings.requests_max as usize;
        let busy = self.under_way >= UNDER_WAY_MAX;
        // Those who were about to come back have not, if it is longer ago.
        let patience = linger(self.lasts).saturating_sub(self.returned.elapsed());
        let complete = self.waiting.len() >= self.expected || patience.is_zero();
        if full || (!busy && complete) {
            return Step::Send;
        }
        let watched = (self.round, busy);
        if self.watched == Some(watched) {
            return Step::Nothing;
        }
        self.watched = Some(watched);
        let longest = if busy {
            settings.interval
        } else {
            patience.min(settings.interval)
        };
        Step::Wait {
            longest,
            round: self.round,
        }
    }

    pub(super) fn take(&mut self) -> Option<(Arc<Node>, Vec<Member>)> {
        if self.waiting.is_empty() {
            return None;
        }
        self.round += 1;
        self.under_way += 1;
        (self.bytes, self.docs) = (0, 0);
        Some((Arc::clone(&self.node), std::mem::take(&mut self.waiting)))
    }

    pub(super) fn returned(&mut self, parts: usize, lasted: Duration) {
        self.under_way = self.under_way.saturating_sub(1);
        self.expected = parts + self.waiting.len();
        self.lasts = match self.lasts {
            Duration::ZERO => lasted,
            before => (before * 7 + lasted) / 8,
        };
        self.returned = Instant::now();
    }
}
