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
    /// The time that the latest answer took; none before the first one.
    took: Duration,
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
            took: Duration::ZERO,
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

    /// Notes that the question was asked at `began` and answered now. Slow answers make the question rarer:
    /// it keeps the target busy for at most a twentieth of the time, or is asked each half minute. What
    /// counts is the quicker of the last two answers, since one alone may be the first of a server that has
    /// just started, and twenty times that would keep the page without a rate; after such an answer, the
    /// target rests for as long as the answer took.
    pub(super) fn answered(&mut self, began: Instant) {
        let now = Instant::now();
        self.failures = 0;
        let took = now.duration_since(began);
        let before = std::mem::replace(&mut self.took, took);
        let every = self.every * self.factor();
        // A question that was asked a moment after its beat is due on a beat again.
        let regular = self.next_beat(began + every - self.every / 2);
        let rest = (took.min(before) * SHARE).min(PAUSE_MAX).max(took * 2);
        self.due = regular.max(self.next_beat(began + rest));
    }

    /// Returns the first beat that is not before this time.
    fn next_beat(&self, earliest: Instant) -> Instant {
        let since = earliest.saturating_duration_since(self.beat).as_nanos();
        let beats = since.div_ceil(self.every.as_nanos().max(1));
        self.beat + self.every * u32::try_from(beats).unwrap_or(u32::MAX)
    }

    /// Notes a failure. A question that is rarely asked is soon asked again, too; each further failure
    /// doubles the pause.
    pub(super) fn failed(&mut self) {
        let pause = self.every.clamp(RETRY_MIN, RETRY_MAX) * 2_u32.saturating_pow(self.failures.min(8));
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
/// The bounds of the pause after a first failure.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the seconds from question to question, if the answers take so long.
    async fn distances(pace: &mut Pace, answers_ms: &[u64]) -> Vec<f64> {
        let mut distances = Vec::new();
        for took in answers_ms {
            tokio::time::sleep_until(pace.due()).await;
            let began = Instant::now();
            tokio::time::advance(Duration::from_millis(*took)).await;
            pace.answered(began);
            distances.push(pace.due().duration_since(began).as_secs_f64());
        }
        distances
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_stays_dear_is_asked_less_often_until_it_is_cheap_again() {
        let mut pace = Pace::new(Duration::from_secs(1));
        let told = distances(&mut pace, &[20, 500, 500, 600, 20, 20]).await;
        assert_eq!(told, [1.0, 1.0, 10.0, 10.0, 1.0, 1.0]);
    }

    #[tokio::test(start_paused = true)]
    async fn one_slow_answer_alone_puts_the_next_question_off_by_no_more_than_it_took_itself() {
        // The first answer of a server that has just started takes long, and there is no rate before the
        // second one.
        let mut pace = Pace::new(Duration::from_secs(2));
        assert_eq!(distances(&mut pace, &[1_000, 50, 50]).await, [2.0, 2.0, 2.0]);
        let mut pace = Pace::new(Duration::from_secs(2));
        assert_eq!(distances(&mut pace, &[8_000, 50, 50]).await, [16.0, 2.0, 2.0]);
        // A pause of a collector, later.
        assert_eq!(distances(&mut pace, &[3_000, 50]).await, [6.0, 2.0]);
    }

    #[tokio::test(start_paused = true)]
    async fn however_slow_its_answers_a_target_is_asked_every_half_minute_and_rests_most_of_it() {
        let mut pace = Pace::new(Duration::from_secs(2));
        let told = distances(&mut pace, &[9_000, 9_000, 9_000, 2_000, 2_000]).await;
        assert_eq!(told, [18.0, 30.0, 30.0, 30.0, 30.0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failing_question_is_asked_less_and_less_and_a_rare_one_soon_again_too() {
        for (every_s, pauses_s) in [
            (1, [1, 2, 4, 8, 16, 30, 30]),
            (2, [2, 4, 8, 16, 30, 30, 30]),
            (30, [2, 4, 8, 16, 30, 30, 30]),
            (60, [2, 4, 8, 16, 32, 60, 60]),
        ] {
            let mut pace = Pace::new(Duration::from_secs(every_s));
            let told = pauses_s.map(|_| {
                pace.failed();
                pace.due().duration_since(Instant::now()).as_secs()
            });
            assert_eq!(told, pauses_s, "{every_s}");
        }
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
        for (late_ms, takes_ms, due_s) in [
            (0, 10, 0),
            (3, 20, 1),
            (40, 45, 2),
            (0, 400, 3),
            (0, 400, 11),
            (900, 1, 13),
        ] {
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
