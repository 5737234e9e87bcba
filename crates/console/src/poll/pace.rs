//! How often a question is asked: never more often than its answer's cost allows, and less after failures.

use std::time::Duration;

use tokio::time::Instant;

/// When a question is due again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    every: Duration,
    due: Instant,
    failures: u32,
}

impl Pace {
    pub(super) fn new(every: Duration) -> Self {
        Self {
            every,
            due: Instant::now(),
            failures: 0,
        }
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

    /// It was asked at `began` and answered now. What takes long is asked less often: it keeps the target
    /// busy for at most a twentieth of the time.
    pub(super) fn answered(&mut self, began: Instant) {
        let now = Instant::now();
        self.failures = 0;
        let took = now.duration_since(began);
        // In step with the beginning, so that each second has its poll.
        self.due = (self.due.max(began) + self.every).max(began + took * SHARE);
        if self.due < now {
            self.due = now + self.every;
        }
    }

    /// It failed: pauses double.
    pub(super) fn failed(&mut self) {
        let pause = self.every.max(Duration::from_secs(1)) * 2_u32.saturating_pow(self.failures.min(8));
        self.failures += 1;
        self.due = Instant::now() + pause.min(PAUSE_MAX.max(self.every));
    }
}

const SHARE: u32 = 20;
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
}
