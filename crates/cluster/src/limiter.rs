//! The limit on the requests that a node is sent at once, found from its answers.
//!
//! Too few requests leave a node idle; too many wait in its queue, where they do no good, until it refuses
//! them. No API says how many requests a node can work on at once, and the number changes. So a [`Law`] finds
//! it from how long answers take, and from refusals. All senders to a node share its limiter, on whatever
//! thread they are.

mod law;

use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::law::Law;

/// One node's limiter.
#[derive(Debug)]
pub struct Limiter {
    permits: Arc<Semaphore>,
    state: Mutex<Permits>,
}

#[derive(Debug)]
struct Permits {
    law: Law,
    /// The permits in circulation, including those that are taken.
    issued: usize,
    /// The permits to be taken out of circulation when they come back.
    surplus: usize,
    under_way: usize,
}

/// Permission to send one request to a node. Dropping it without [`Permit::end`] says nothing about the node.
#[derive(Debug)]
#[must_use = "whoever lets go of it has nothing to send"]
pub struct Permit {
    limiter: Arc<Limiter>,
    permit: Option<OwnedSemaphorePermit>,
    began: Instant,
    /// Whether [`Permit::end`] has been called.
    told: bool,
}

/// The result of a request, as far as the node's capacity is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The node executed it; larger requests take longer, so the bytes of its operations are given.
    Worked {
        /// The request's size.
        bytes: u64,
    },
    /// The node refused it, or a part of it, because there was too much (429).
    Refused,
    /// There was no answer in time, or it broke off.
    Lost,
}

// === impl Limiter ===

impl Default for Limiter {
    fn default() -> Self {
        let law = Law::new(Instant::now());
        let issued = law.limit();
        Self {
            permits: Arc::new(Semaphore::new(issued)),
            state: Mutex::new(Permits {
                law,
                issued,
                surplus: 0,
                under_way: 0,
            }),
        }
    }
}

impl Limiter {
    /// Waits, in the order of the calls, until the node may be sent one more request.
    pub async fn acquire(self: &Arc<Self>) -> Permit {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        self.give(permit.ok())
    }

    /// Returns a permit if the node may be sent one more request now and nobody waits.
    pub fn try_acquire(self: &Arc<Self>) -> Option<Permit> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        Some(self.give(Some(permit)))
    }

    fn give(self: &Arc<Self>, permit: Option<OwnedSemaphorePermit>) -> Permit {
        let mut state = self.state();
        state.under_way += 1;
        let (under_way, limit) = (state.under_way, state.law.limit());
        if under_way >= limit {
            state.law.is_full();
        }
        drop(state);
        Permit {
            limiter: Arc::clone(self),
            permit,
            began: Instant::now(),
            told: false,
        }
    }

    /// Returns how many requests may be at the node at once, now.
    pub fn limit(&self) -> usize {
        self.state().law.limit()
    }

    fn end(&self, permit: Option<OwnedSemaphorePermit>, began: Instant, now: Instant, ended: Option<Ended>) {
        let mut state = self.state();
        state.under_way = state.under_way.saturating_sub(1);
        match ended {
            Some(Ended::Worked { bytes }) => state.law.worked(began, now, bytes),
            Some(Ended::Refused) => state.law.refused(began, now),
            Some(Ended::Lost) => state.law.lost(began, now),
            None => {}
        }
        let wanted = state.law.limit();
        let standing = state.issued - state.surplus;
        if wanted < standing {
            state.surplus += standing - wanted;
        } else {
            let missing = wanted - standing;
            let back = missing.min(state.surplus);
            state.surplus -= back;
            state.issued += missing - back;
            self.permits.add_permits(missing - back);
        }
        if state.surplus > 0
            && let Some(permit) = permit
        {
            permit.forget();
            state.surplus -= 1;
            state.issued -= 1;
        }
        let idle = self.permits.forget_permits(state.surplus);
        state.surplus -= idle;
        state.issued -= idle;
    }

    fn state(&self) -> MutexGuard<'_, Permits> {
        wire::shared::touches("limit of a node");
        // These are numbers, each of which is useful by itself.
        self.state.lock()
    }
}

// === impl Permit ===

impl Permit {
    /// Reports the result of the request that was sent with this permit.
    pub fn end(self, ended: Ended) {
        self.end_at(Instant::now(), ended);
    }

    fn end_at(mut self, now: Instant, ended: Ended) {
        let permit = self.permit.take();
        self.limiter.end(permit, self.began, now, Some(ended));
        self.told = true;
    }

    /// Notes that the request is sent now, and not when the permit was given.
    pub fn sent(&mut self) {
        self.began = Instant::now();
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.told {
            let permit = self.permit.take();
            self.limiter.end(permit, self.began, Instant::now(), None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const WORKED: Ended = Ended::Worked { bytes: 1_000 };
    /// The time that each request takes at the node.
    const TAKES: Duration = Duration::from_millis(3);

    /// Takes as many permits as the limit allows, for requests that are sent at `now`.
    fn take_all(limiter: &Arc<Limiter>, now: Instant) -> Vec<Permit> {
        let taken = || {
            let mut permit = limiter.try_acquire()?;
            permit.began = now;
            Some(permit)
        };
        let permits: Vec<Permit> = std::iter::from_fn(taken).collect();
        assert_eq!(permits.len(), limiter.limit());
        permits
    }

    /// Takes as many permits as the limit allows, and gives them back as for executed requests. No real time
    /// passes: `now` moves on by the time that a request takes.
    fn work(limiter: &Arc<Limiter>, now: &mut Instant) -> usize {
        let permits = take_all(limiter, *now);
        let count = permits.len();
        *now += TAKES;
        permits.into_iter().for_each(|permit| permit.end_at(*now, WORKED));
        count
    }

    #[test]
    fn permits_follow_the_limit_up_and_down() {
        let limiter = Arc::new(Limiter::default());
        let mut now = Instant::now();
        assert_eq!(work(&limiter, &mut now), 1);
        let mut most = 1;
        for _ in 0..40 {
            most = work(&limiter, &mut now).max(most);
        }
        assert!(most > 2, "{most}");
        let before = limiter.limit();
        let mut permits = take_all(&limiter, now);
        permits
            .pop()
            .into_iter()
            .for_each(|permit| permit.end_at(now, Ended::Refused));
        assert!(limiter.limit() < before);
        drop(permits);
        work(&limiter, &mut now);
        let state = limiter.state();
        assert_eq!(
            (state.under_way, state.surplus, state.issued),
            (0, 0, state.law.limit())
        );
    }

    #[test]
    fn leave_that_is_not_used_says_nothing() {
        let limiter = Arc::new(Limiter::default());
        for _ in 0..100 {
            drop(limiter.try_acquire().expect("nobody else has a permit"));
        }
        assert_eq!(limiter.limit(), 1);
    }

    #[test]
    fn a_permit_that_comes_back_wakes_who_waits() {
        let ran = wire::run_local(1 << 20, |_| async {
            let limiter = Arc::new(Limiter::default());
            let first = limiter.acquire().await;
            let mut second = std::pin::pin!(limiter.acquire());
            tokio::select! {
                biased;
                _ = &mut second => panic!("one permit, and two have it"),
                () = std::future::ready(()) => {}
            }
            drop(first);
            let _second = second.await;
            assert!(limiter.try_acquire().is_none());
        });
        ran.expect("a thread to run on");
    }
}
