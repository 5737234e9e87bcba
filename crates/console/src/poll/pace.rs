//! Decides how often a question is asked: never more often than its answer's cost allows, and less often
//! after failures.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use tokio::time::Instant;

use super::attention::Gaze;

/// The time at which a question is due again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    every: Duration,
    due: Instant,
    /// The question is asked at this time, and at multiples of `every` from then on.
    beat: Instant,
    failures: u32,
    gaze: Gaze,
    /// The factor by which pauses are longer while somebody looks, but elsewhere.
    elsewhere: u32,
}

impl Pace {
    pub(super) fn new(every: Duration) -> Self {
        Self {
            every,
            due: Instant::now(),
            beat: Instant::now(),
            failures: 0,
            gaze: Gaze::Here,
            elsewhere: 1,
        }
    }

    /// Sets the beat. The first question is asked at once all the same.
    pub(super) fn on(self, beat: Instant) -> Self {
        Self { beat, ..self }
    }

    /// Makes pauses so much longer while somebody looks, but at no page of the target's own.
    pub(super) fn elsewhere(self, factor: u32) -> Self {
        Self {
            elsewhere: factor,
            ..self
        }
    }

    /// Notes what is looked at. The less it is the target, the less often the question is asked; once
    /// somebody comes closer, it is due at once.
    pub(super) fn attend(&mut self, gaze: Gaze) {
        let before = std::mem::replace(&mut self.gaze, gaze);
        if gaze > before && self.factor() < self.factor_for(before) && !self.is_failing() {
            self.due = Instant::now();
        }
    }

    fn factor(&self) -> u32 {
        self.factor_for(self.gaze)
    }

    fn factor_for(&self, gaze: Gaze) -> u32 {
        match gaze {
            Gaze::Here => 1,
            Gaze::Elsewhere => self.elsewhere,
            Gaze::Away => UNSEEN,
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

    /// Notes that the question was asked at `began` and answered now. A slow answer makes the question rarer:
    /// it keeps the target busy for at most a twentieth of the time.
    pub(super) fn answered(&mut self, began: Instant) {
        let now = Instant::now();
        self.failures = 0;
        let took = now.duration_since(began);
        let every = self.every * self.factor();
        // A question that was asked a moment after its beat is due on a beat again.
        let regular = self.next_beat(began + every - self.every / 2);
        self.due = regular
            .max(self.next_beat(began + took * SHARE))
            .max(self.next_beat(now));
    }

    /// Returns the first beat that is not before this time.
    fn next_beat(&self, earliest: Instant) -> Instant {
        let since = earliest.saturating_duration_since(self.beat).as_nanos();
        let beats = since.div_ceil(self.every.as_nanos().max(1));
        self.beat + self.every * u32::try_from(beats).unwrap_or(u32::MAX)
    }

    /// Notes a failure: each failure doubles the pause.
    pub(super) fn failed(&mut self) {
        let pause = self.every.max(Duration::from_secs(1)) * 2_u32.saturating_pow(self.failures.min(8));
        self.failures += 1;
        self.due = Instant::now() + pause.min(PAUSE_MAX.max(self.every));
    }
}

/// Returns a part of `within` that follows from an id.
pub(super) fn spread(id: &str, within: Duration) -> Duration {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    within.mul_f64((hasher.finish() % 1000) as f64 / 1000.0)
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
        let first = began - Duration::from_millis(20);
        assert_eq!(
            pace.due(),
            first + Duration::from_secs(11),
            "the first beat after ten seconds"
        );
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
        pace.attend(Gaze::Away);
        let began = Instant::now();
        pace.answered(began);
        assert_eq!(pace.due(), began + Duration::from_secs(5));
        tokio::time::advance(Duration::from_secs(2)).await;
        pace.attend(Gaze::Here);
        assert!(pace.is_due(Instant::now()));
        pace.answered(Instant::now());
        pace.attend(Gaze::Here);
        assert!(!pace.is_due(Instant::now()), "it is in step again");
    }

    #[tokio::test(start_paused = true)]
    async fn due_times_keep_their_beat_however_late_questions_and_answers_are() {
        let second = Duration::from_secs(1);
        let beat = Instant::now() + Duration::from_millis(300);
        let mut pace = Pace::new(second).on(beat);
        for (late_ms, takes_ms, due_s) in [(0, 10, 0), (3, 20, 1), (40, 45, 2), (0, 400, 10), (900, 1, 12)] {
            tokio::time::sleep_until(pace.due() + Duration::from_millis(late_ms)).await;
            let began = Instant::now();
            tokio::time::advance(Duration::from_millis(takes_ms)).await;
            pace.answered(began);
            // The first one is asked before the first beat.
            let due = match due_s {
                0 => beat + second,
                _ => beat + second * (due_s + 1),
            };
            assert_eq!(pace.due(), due, "{late_ms} {takes_ms}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_looks_elsewhere_halves_only_what_says_so() {
        let second = Duration::from_secs(1);
        for (mut pace, every) in [
            (Pace::new(second), second),
            (Pace::new(second).elsewhere(2), 2 * second),
        ] {
            pace.attend(Gaze::Elsewhere);
            let began = Instant::now();
            pace.answered(began);
            assert_eq!(pace.due(), began + every);
            pace.attend(Gaze::Here);
            assert_eq!(pace.is_due(began), every > second);
        }
    }
}
