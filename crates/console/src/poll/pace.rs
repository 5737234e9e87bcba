//! Decides how often a question is asked: never more often than its answer's cost allows, and less often
//! after failures.

use std::time::Duration;

use tokio::time::Instant;

/// The time at which a question is due again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    every: Duration,
    due: Instant,
    failures: u32,
    /// Whether somebody looks at the results.
    looked_at: bool,
}

impl Pace {
    pub(super) fn new(every: Duration) -> Self {
        Self {
            every,
            due: Instant::now(),
            failures: 0,
            looked_at: true,
        }
    }

    /// Notes whether somebody looks at the results. If nobody does, the question is asked less often; once
    /// somebody does again, it is due at once.
    pub(super) fn attend(&mut self, looked_at: bool) {
        if looked_at && !self.looked_at && !self.is_failing() {
            self.due = Instant::now();
        }
        self.looked_at = looked_at;
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.due
    }

    pub(super) fn is_failing(&self) -> bool {
        self.failures > 0
    }

    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Notes that the question was asked at `began` and answered now. A slow answer makes the question rarer:
    /// it keeps the target busy for at most a twentieth of the time.
    pub(super) fn answered(&mut self, began: Instant) {
        let now = Instant::now();
        self.failures = 0;
        let took = now.duration_since(began);
        let every = self.every * if self.looked_at { 1 } else { UNSEEN };
        // The due times stay in step with the first one, so that each second has its poll.
        self.due = (self.due.max(began) + every).max(began + took * SHARE);
        if self.due < now {
            self.due = now + every;
        }
    }

    /// Notes a failure: each failure doubles the pause.
    pub(super) fn failed(&mut self) {
        let pause = self.every.max(Duration::from_secs(1)) * 2_u32.saturating_pow(self.failures.min(8));
        self.failures += 1;
        self.due = Instant::now() + pause.min(PAUSE_MAX.max(self.every));
    }
}

const SHARE: u32 = 20;
/// The factor by which pauses are longer while nobody looks.
const UNSEEN: u32 = 5;
const PAUSE_MAX: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_dear_question_is_asked_less_often_and_a_failing_one_less_and_less() {
        let mut pace = Pace::new(Duration::from_secs(1));
        let began = Instant::now();
        tokio::time::advance(Duration::from_millis(20)).await;
        pace.answered(began);
        assert_eq!(pace.due(), began + Duration::from_secs(1));
        let began = Instant::now();
        tokio::time::advance(Duration::from_millis(500)).await;
        pace.answered(began);
        assert_eq!(pace.due(), began + Duration::from_secs(10));
        let pauses: Vec<u64> = (0..7)
            .map(|_| {
                pace.failed();
                pace.due().duration_since(Instant::now()).as_secs()
            })
            .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_looks_at_is_asked_less_often_until_somebody_does() {
        let mut pace = Pace::new(Duration::from_secs(1));
        pace.attend(false);
        let began = Instant::now();
        pace.answered(began);
        assert_eq!(pace.due(), began + Duration::from_secs(5));
        tokio::time::advance(Duration::from_secs(2)).await;
        pace.attend(true);
        assert!(pace.is_due(Instant::now()));
        pace.answered(Instant::now());
        pace.attend(true);
        assert!(!pace.is_due(Instant::now()), "it is in step again");
    }
}
