//! Bounds the memory of heads that have begun and not ended: a client may open many connections and send a
//! part of a head on each.
//!
//! All such heads together may take one part in [`HEADS_SHARE`] of the budget, whatever listener they came
//! to. Beyond that, heads are refused until they take [`KEPT_PERCENT`] of it: those of the addresses whose
//! heads take most, down to what is left for each address, and the largest heads of an address first.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::budget::Budget;
use crate::connections::OpenConnection;

/// All heads that have begun and not ended.
#[derive(Debug, Default)]
pub(crate) struct UnendedHeads(Mutex<Heads>);

#[derive(Debug, Default)]
struct Heads {
    bytes: usize,
    /// By their numbers, the oldest first.
    all: BTreeMap<u64, Head>,
    /// Those that are refused and have their memory still.
    refused_bytes: usize,
    refused: BTreeMap<u64, Head>,
    next_number: u64,
}

#[derive(Debug)]
struct Head {
    bytes: usize,
    opened: Arc<OpenConnection>,
}

/// Heads up to this size are small: they are waited for also where memory is short.
pub(crate) const HEAD_BYTES_FREE: usize = 4 << 10;

/// A head that has begun, until it has ended and this is dropped. It counts from the moment on when it is
/// waited for: as a rule a head comes at once.
#[derive(Debug)]
pub(crate) struct BegunHead<'b> {
    budget: &'b Budget,
    number: Option<u64>,
}

// === impl BegunHead ===

impl<'b> BegunHead<'b> {
    pub(crate) fn new(budget: &'b Budget) -> Self {
        BegunHead { budget, number: None }
    }

    /// Notes that more of the head is waited for, and how much memory it takes. Returns whether there is room
    /// for it: some connections, this one perhaps among them, have to leave if all heads take too much.
    pub(crate) fn waits(&mut self, bytes: usize, opened: &Arc<OpenConnection>) -> bool {
        let most = self.budget.limit() / HEADS_SHARE;
        let mut heads = self.budget.heads.0.lock();
        if self.number.is_some_and(|number| !heads.all.contains_key(&number)) {
            return false;
        }
        let number = *self.number.get_or_insert_with(|| heads.number());
        heads.put(number, bytes, opened);
        // Many may come at once, before those that are refused give back their memory. A small head is waited
        // for all the same: others may share the address.
        if bytes > HEAD_BYTES_FREE && heads.bytes + heads.refused_bytes > most && heads.refuses(opened.peer) {
            heads.take(number);
            return false;
        }
        if heads.bytes <= most {
            return true;
        }
        let leaving = heads.beyond(most / 100 * KEPT_PERCENT);
        let stays = heads.all.contains_key(&number);
        // With the lock: nobody is told whose head has ended by now.
        leaving.iter().for_each(|opened| opened.leave());
        drop(heads);
        crate::rationed!(
            tracing::warn,
            connections = leaving.len(),
            bytes_max = most,
            "heads that do not end take too much memory: the largest are refused"
        );
        stays
    }

    /// Notes that the whole head has come. Its connection is not told to leave any more; what it has been
    /// told before, [`Activity::Asks`](crate::connections::Activity::Asks) takes back.
    pub(crate) fn ends(&mut self) {
        if let Some(number) = self.number.take() {
            let mut heads = self.budget.heads.0.lock();
            heads.take(number);
            heads.forget(number);
        }
    }
}

impl Drop for BegunHead<'_> {
    fn drop(&mut self) {
        self.ends();
    }
}

// === impl Heads ===

impl Heads {
    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn put(&mut self, number: u64, bytes: usize, opened: &Arc<OpenConnection>) {
        self.take(number);
        self.bytes += bytes;
        let opened = Arc::clone(opened);
        self.all.insert(number, Head { bytes, opened });
    }

    fn take(&mut self, number: u64) -> Option<Head> {
        let head = self.all.remove(&number)?;
        self.bytes -= head.bytes;
        Some(head)
    }

    /// Refuses a head; it has its memory until its connection has heard of that.
    fn refuse(&mut self, number: u64) -> Option<Arc<OpenConnection>> {
        let head = self.take(number)?;
        let opened = Arc::clone(&head.opened);
        self.refused_bytes += head.bytes;
        self.refused.insert(number, head);
        Some(opened)
    }

    fn forget(&mut self, number: u64) {
        if let Some(head) = self.refused.remove(&number) {
            self.refused_bytes -= head.bytes;
        }
    }

    /// Whether heads of an address are refused that have their memory still.
    fn refuses(&self, peer: IpAddr) -> bool {
        self.refused.values().any(|head| head.opened.peer == peer)
    }

    /// Takes out heads, so that the rest takes no more than `most` bytes; returns their connections.
    fn beyond(&mut self, most: usize) -> Vec<Arc<OpenConnection>> {
        let mut by_peer: HashMap<IpAddr, (usize, Vec<(usize, u64)>)> = HashMap::new();
        for (number, head) in &self.all {
            let (sum, heads) = by_peer.entry(head.opened.peer).or_default();
            *sum += head.bytes;
            heads.push((head.bytes, *number));
        }
        let each = level(by_peer.values().map(|(sum, _)| *sum).collect(), most);
        let mut leaving = Vec::new();
        for (mut sum, mut heads) in by_peer.into_values() {
            // Of heads that are as large, the oldest goes first.
            heads.sort_by_key(|(bytes, number)| (std::cmp::Reverse(*bytes), *number));
            for (bytes, number) in heads {
                if sum <= each {
                    break;
                }
                sum -= bytes;
                leaving.extend(self.refuse(number));
            }
        }
        leaving
    }
}

/// Returns the bytes that each may keep at most, so that all together keep no more than `most`.
fn level(mut sums: Vec<usize>, most: usize) -> usize {
    sums.sort_unstable();
    let mut left = most;
    for (at, sum) in sums.iter().enumerate() {
        let each = left / (sums.len() - at);
        if *sum > each {
            return each;
        }
        left -= sum;
    }
    usize::MAX
}

/// Heads that have not ended may take one part in this many of the budget.
const HEADS_SHARE: usize = 8;
/// What heads keep of that when they took more, so that not each further byte closes a connection.
const KEPT_PERCENT: usize = 80;

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn opened(last: u8) -> Arc<OpenConnection> {
        let peer = IpAddr::from([127, 0, 0, last]);
        Arc::new(OpenConnection::new(peer, Instant::now()))
    }

    #[test]
    fn the_largest_heads_of_who_has_most_leave_and_nobody_elses() {
        let budget = Budget::new(8_000);
        let begin = |opened: &Arc<OpenConnection>, bytes| {
            let mut head = BegunHead::new(&budget);
            assert!(head.waits(bytes, opened));
            head
        };
        let (small, other): (Vec<_>, _) = ((0..4).map(|_| opened(1)).collect(), opened(2));
        let _small: Vec<_> = small.iter().map(|opened| begin(opened, 50)).collect();
        let _other = begin(&other, 300);
        let large: Vec<_> = (0..2).map(|_| opened(1)).collect();
        let mut heads: Vec<_> = large.iter().map(|opened| begin(opened, 100)).collect();
        assert!(!large[0].has_to_leave(), "there is room");
        assert!(!heads[0].waits(500, &large[0]) && !heads[0].waits(500, &large[0]));
        let left = |all: &[Arc<OpenConnection>]| all.iter().filter(|one| one.has_to_leave()).count();
        assert!(large[0].has_to_leave() && !large[1].has_to_leave());
        assert_eq!((left(&small), other.has_to_leave()), (0, false));
        drop(heads);
        let left = budget.heads.0.lock();
        assert_eq!((left.bytes, left.refused_bytes), (4 * 50 + 300, 0));
    }

    #[test]
    fn who_is_refused_begins_no_more_heads_than_fit_beside_those_that_are_not_gone_yet() {
        let budget = Budget::new(800_000);
        let (greedy, other) = (opened(1), opened(2));
        let mut heads: Vec<BegunHead<'_>> = Vec::new();
        let mut begin = |opened| {
            let mut head = BegunHead::new(&budget);
            let stays = head.waits(10_000, opened);
            if stays {
                heads.push(head);
            }
            stays
        };
        let begun = (0..50).filter(|_| begin(&greedy)).count();
        assert!(begun <= 11, "{begun} of 10,000 bytes, 100,000 are allowed");
        assert!(begin(&other), "it is not its fault");
        assert!(
            BegunHead::new(&budget).waits(HEAD_BYTES_FREE, &greedy),
            "small ones are waited for"
        );
        // Those that are refused have gone.
        heads.retain(|head| {
            budget
                .heads
                .0
                .lock()
                .all
                .contains_key(&head.number.unwrap_or_default())
        });
        assert_eq!(budget.heads.0.lock().refused_bytes, 0);
        assert!(BegunHead::new(&budget).waits(5_000, &greedy));
    }

    #[test]
    fn all_have_as_much_left_as_each_may_have_without_taking_from_those_with_less() {
        assert_eq!(level(vec![10, 20, 900], 100), 70);
        assert_eq!(level(vec![50, 50, 50, 50], 100), 25);
        assert_eq!(level(vec![10, 20], 100), usize::MAX);
    }
}
