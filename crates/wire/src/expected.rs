//! Room that is promised to answers before they are due.
//!
//! What was executed needs its answer, so memory for it cannot be refused when it comes. So before a request
//! is sent whose answer will be large, it waits until it may expect it. Nobody waits behind one that wants
//! more: who asks gets room if there is any. While others wait, an address or a user may expect its share
//! ([`Fairness::peer_share_percent`](crate::Fairness)); one request is always allowed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::budget::{Budget, OverBudget, ROOM_AGAIN};
use crate::holder::{Holder, Sender};
use crate::pool::PooledBytes;

/// What is promised, and who waits for a promise.
#[derive(Debug, Default)]
pub(crate) struct ExpectedAnswers(Mutex<Expected>);

#[derive(Debug, Default)]
struct Expected {
    bytes: usize,
    by: HashMap<Holder, usize>,
    waiting: usize,
    waiting_of: HashMap<Holder, usize>,
}

/// Room that is promised to the answer of one request, until this is dropped.
#[derive(Debug)]
pub struct AnswerRoom {
    budget: Arc<Budget>,
    sender: Option<Sender>,
    bytes: usize,
}

/// A request that waits for a promise.
struct Waits<'b> {
    budget: &'b Budget,
    sender: Option<Sender>,
}

impl Budget {
    /// Waits until an answer to `sender` may be expected to take `wanted` bytes. Answers that are expected
    /// may take as much together as the budget has, and one of them is taken for three quarters of that at
    /// most.
    pub(crate) async fn expect_answer_of(
        self: &Arc<Self>,
        sender: Option<Sender>,
        wanted: usize,
        within: Duration,
    ) -> Result<AnswerRoom, OverBudget> {
        let until = Instant::now() + within;
        self.until_not_used_up(wanted, within).await?;
        let bytes = wanted.min(self.limit() / 4 * 3);
        let waits = Waits::begin(self, sender);
        while !self.promises(sender, bytes) {
            if Instant::now() >= until {
                let (used, limit) = (self.used(), self.limit());
                return Err(OverBudget { wanted, used, limit });
            }
            tokio::time::sleep(ROOM_AGAIN).await;
        }
        drop(waits);
        let room = AnswerRoom {
            budget: Arc::clone(self),
            sender,
            bytes,
        };
        // Others that waited at the same time have taken the memory, perhaps.
        let left = until.saturating_duration_since(Instant::now());
        self.until_not_used_up(wanted, left).await?;
        Ok(room)
    }

    fn promises(&self, sender: Option<Sender>, bytes: usize) -> bool {
        let share = self.limit() / 100 * usize::from(self.admission.fairness.peer_share_percent);
        let mut expected = self.expected.0.lock();
        let fits = expected.bytes == 0 || expected.bytes + bytes <= self.limit();
        let has_share = |holder: Holder| {
            let held = expected.by.get(&holder).copied().unwrap_or_default();
            let own = expected.waiting_of.get(&holder).copied().unwrap_or_default();
            held == 0 || held + bytes <= share || expected.waiting <= own
        };
        if !fits || !holders(sender).all(has_share) {
            return false;
        }
        expected.bytes += bytes;
        for holder in holders(sender) {
            *expected.by.entry(holder).or_default() += bytes;
        }
        true
    }
}

// === impl PooledBytes ===

impl PooledBytes {
    /// Waits until the answer to the request with this body may be expected to take `wanted` bytes: before
    /// anything is done for it, since its memory is never refused later. Answers that are expected may take
    /// as much together as the budget has; no address and no user has more than its share while others wait.
    /// One that wants more than three quarters of the budget counts as three quarters.
    ///
    /// # Errors
    /// Fails if there is no room for it `within` this time.
    pub async fn expect_answer(&self, wanted: usize, within: Duration) -> Result<AnswerRoom, OverBudget> {
        let sender = self.whole().claim().map(|claim| claim.record().sender);
        let pool = self.whole().pool();
        pool.budget().expect_answer_of(sender, wanted, within).await
    }
}

// === impl AnswerRoom ===

impl Drop for AnswerRoom {
    fn drop(&mut self) {
        let mut expected = self.budget.expected.0.lock();
        expected.bytes -= self.bytes;
        for holder in holders(self.sender) {
            take_off(&mut expected.by, holder, self.bytes);
        }
    }
}

// === impl Waits ===

impl<'b> Waits<'b> {
    fn begin(budget: &'b Budget, sender: Option<Sender>) -> Self {
        let mut expected = budget.expected.0.lock();
        expected.waiting += 1;
        for holder in holders(sender) {
            *expected.waiting_of.entry(holder).or_default() += 1;
        }
        Self { budget, sender }
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let mut expected = self.budget.expected.0.lock();
        expected.waiting -= 1;
        for holder in holders(self.sender) {
            take_off(&mut expected.waiting_of, holder, 1);
        }
    }
}

fn holders(sender: Option<Sender>) -> impl Iterator<Item = Holder> {
    sender.into_iter().flat_map(Sender::holders)
}

fn take_off(all: &mut HashMap<Holder, usize>, holder: Holder, less: usize) {
    if let Some(of_holder) = all.get_mut(&holder) {
        *of_holder -= less;
        if *of_holder == 0 {
            all.remove(&holder);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    const MIB: usize = 1 << 20;
    const SECOND: Duration = Duration::from_secs(1);

    fn sender(last: u8) -> Option<Sender> {
        Some(Sender::unknown(IpAddr::from([127, 0, 0, last])))
    }

    #[tokio::test(start_paused = true)]
    async fn answers_are_expected_together_as_far_as_the_budget_goes_and_the_largest_leaves_some() {
        let budget = Arc::new(Budget::new(100 * MIB));
        let expect = |mib: usize| budget.expect_answer_of(None, mib * MIB, SECOND);
        let first = expect(1_000).await.expect("it counts as 75");
        let second = expect(15).await.expect("90 of 100");
        let began = Instant::now();
        expect(20).await.expect_err("110 of 100");
        assert_eq!(began.elapsed(), SECOND);
        let small = expect(10)
            .await
            .expect("nobody waits behind those that want more");
        drop((first, second, small));
        budget.charge(101 * MIB);
        expect(1).await.expect_err("nothing is left");
        budget.forget(101 * MIB);
        assert_eq!(budget.expected.0.lock().bytes, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_expects_its_share_gets_no_more_while_others_wait() {
        let budget = Arc::new(Budget::new(100 * MIB));
        let expect = |who, mib: usize| budget.expect_answer_of(sender(who), mib * MIB, SECOND);
        let first = expect(1, 40).await.expect("there is room");
        let second = expect(1, 40).await.expect("nobody else is there");
        let (other, third) = tokio::join!(expect(2, 30), async {
            tokio::time::sleep(SECOND / 10).await;
            let third = budget.expect_answer_of(sender(1), 10 * MIB, SECOND / 2).await;
            drop(first);
            third
        });
        third.expect_err("another waits");
        let other = other.expect("70 of 100");
        drop((second, other));
        let expected = budget.expected.0.lock();
        assert!(expected.bytes == 0 && expected.by.is_empty() && expected.waiting_of.is_empty());
    }
}
