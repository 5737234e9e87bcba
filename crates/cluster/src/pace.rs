//! The pace of a node, so that requests that any node may take go to nodes that answer quickly.
//!
//! Requests differ more than nodes do: a bulk of five megabytes takes a quick node longer than `GET /` takes
//! a slow one. So the time of each answer is compared with the usual time for requests of about the same size
//! at this cluster, and a node's slowness is the mean of these comparisons. The slowness is kept as a
//! logarithm: one search that takes a thousand times as long as others must not take its node out of use for
//! minutes, and twice as slow must weigh as much as twice as quick.
//!
//! Measurements are forgotten within seconds, since a node without requests can't show that it is quick
//! again. Requests under way count as well: a node that has stopped gives no answers to measure.
//!
//! Each core has its own figures, and decides by them alone: they change with each exchange, and cores that
//! shared them would wait for one another's cache lines.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The pace of one node, as one core sees it. Lock-free: others look at it, and threads without figures of
/// their own may share some; racing answers may lose one comparison.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// The slowness as a natural logarithm (`f32` bits, low half), and when it was measured (milliseconds
    /// since the first look at the clock, high half; 0: never).
    measured: AtomicU64,
    in_flight: AtomicU32,
    /// Since when nothing has come while something was under way, in microseconds.
    waiting_since_us: AtomicU64,
    /// The usual time of the slowest kind of request under way, in microseconds.
    expected_us: AtomicU64,
}

/// The usual times of one cluster's answers to one core, by the size of the request.
#[derive(Debug, Default)]
pub(crate) struct UsualTimes([AtomicU32; KINDS]);

/// A request on its way to a node, from before it is sent until its answer's head arrives. An exchange that
/// is dropped counts as given up.
#[derive(Debug)]
#[must_use = "what is under way counts as long as this lives"]
pub struct Exchange<'a> {
    pub(crate) pace: &'a Pace,
    pub(crate) kind: usize,
    pub(crate) began: Instant,
}

impl Pace {
    /// Notes that a request goes out.
    pub(crate) fn begin<'a>(&'a self, usual: &UsualTimes, kind: usize) -> Exchange<'a> {
        let began = Instant::now();
        if self.in_flight.fetch_add(1, Relaxed) == 0 {
            self.waiting_since_us.store(micros(began), Relaxed);
            self.expected_us.store(0, Relaxed);
        }
        let expected = usual
            .of(kind)
            .map_or(0.0, |usual| (usual.exp() - FLOOR_US).max(0.0));
        self.expected_us.fetch_max(expected as u64, Relaxed);
        Exchange {
            pace: self,
            kind,
            began,
        }
    }

    /// Notes an answer that took `latency`.
    pub(crate) fn answered(&self, usual: &UsualTimes, kind: usize, latency: Duration) {
        let took = log(latency.as_micros() as f32);
        self.remember(usual.of(kind).map_or(0.0, |usual| took - usual));
        usual.blend(kind, took);
    }

    /// Notes a refusal or a failure that took `latency`. However quickly it came, it stands for other
    /// requests.
    pub(crate) fn failed(&self, usual: &UsualTimes, kind: usize, latency: Duration) {
        let took = log(latency.as_micros() as f32);
        let compared = usual.of(kind).map_or(0.0, |usual| (took - usual).max(0.0));
        self.remember(compared + FAILURE);
    }

    fn remember(&self, compared: f32) {
        let now = millis(Instant::now());
        let (before, age) = self.remembered(now);
        let fresh = age.map_or(1.0, |age| 1.0 - (-age / FORGET_MS).exp()).min(ONE_MAX);
        let blended = before + (compared - before) * fresh.max(1.0 / WINDOW);
        self.measured
            .store(u64::from(now) << 32 | u64::from(blended.to_bits()), Relaxed);
    }

    /// Returns the cost of sending one more request to the node, as a natural logarithm; only differences are
    /// meaningful. `share` is the node's weight divided by the mean weight.
    pub(crate) fn cost(&self, share: f32) -> f32 {
        let now = Instant::now();
        let (slowness, _) = self.remembered(millis(now));
        let in_flight = self.in_flight.load(Relaxed);
        if in_flight == 0 {
            return slowness;
        }
        let silent = micros(now).saturating_sub(self.waiting_since_us.load(Relaxed)) as f32;
        let overdue = log(silent) - log(self.expected_us.load(Relaxed) as f32);
        slowness.max(overdue) + (in_flight as f32 / share).ln_1p()
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }

    /// Returns the slowness as far as it is still believed, and how many milliseconds ago it was measured.
    fn remembered(&self, now_ms: u32) -> (f32, Option<f32>) {
        let measured = self.measured.load(Relaxed);
        let at = (measured >> 32) as u32;
        if at == 0 {
            return (0.0, None);
        }
        let age = now_ms.saturating_sub(at) as f32;
        let slowness = f32::from_bits(measured as u32);
        (slowness * (-age / FORGET_MS).exp(), Some(age))
    }
}

/// Returns the mean of cores' values. The later a core's pace was measured, compared with the others, the
/// more its value counts; threads that answer no requests have no pace.
pub(crate) fn mean_of_recent<'a>(values: impl Iterator<Item = (u64, &'a Pace)> + Clone) -> u64 {
    let now = millis(Instant::now());
    let aged = values
        .clone()
        .filter_map(|(value, pace)| Some((value, pace.remembered(now).1?)));
    let youngest = aged.clone().map(|(_, age)| age).fold(f32::MAX, f32::min);
    let (mut sum, mut weights) = (0.0, 0.0);
    for (value, age) in aged {
        let weight = f64::from(((youngest - age) / FORGET_MS).exp());
        sum += value as f64 * weight;
        weights += weight;
    }
    if weights > 0.0 {
        return (sum / weights) as u64;
    }
    values.clone().map(|(value, _)| value).sum::<u64>() / values.count().max(1) as u64
}

/// Returns how many times longer than usual a node's answers take, from the paces of all cores. The later a
/// core has measured, the more it counts.
pub(crate) fn slowness<'a>(paces: impl Iterator<Item = &'a Pace>) -> f32 {
    let now = millis(Instant::now());
    let (mut sum, mut weights) = (0.0, 0.0);
    for (slowness, age) in paces.map(|pace| pace.remembered(now)) {
        let weight = age.map_or(0.0, |age| (-age / FORGET_MS).exp());
        sum += slowness * weight;
        weights += weight;
    }
    // After a long silence, nothing is left of either.
    if weights > f32::MIN_POSITIVE {
        (sum / weights).exp()
    } else {
        1.0
    }
}

// === impl UsualTimes ===

impl UsualTimes {
    /// Returns the natural logarithm of the usual time in microseconds; `None` before the first answer.
    fn of(&self, kind: usize) -> Option<f32> {
        let bits = self.0[kind].load(Relaxed);
        (bits != 0).then(|| f32::from_bits(bits))
    }

    fn blend(&self, kind: usize, took: f32) {
        let blended = self
            .of(kind)
            .map_or(took, |usual| usual + (took - usual) / USUAL_WINDOW);
        self.0[kind].store(blended.to_bits(), Relaxed);
    }
}

/// Returns the kind of a request: requests are compared with others of the same kind, which are reads or
/// writes of a similar body size (within a factor of four).
pub(crate) fn kind_of(read: bool, body_bytes: Option<u64>) -> usize {
    let size = match body_bytes {
        Some(bytes) => (bytes >> 10)
            .checked_ilog2()
            .map_or(0, |log| 1 + log as usize / 2),
        None => SIZES - 1,
    };
    size.min(SIZES - 1) + if read { 0 } else { SIZES }
}

// === impl Exchange ===

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        self.pace.in_flight.fetch_sub(1, Relaxed);
        self.pace.waiting_since_us.store(micros(Instant::now()), Relaxed);
    }
}

/// Returns a logarithm in which differences that are small beside [`FLOOR_US`] hardly count: they are noise.
fn log(us: f32) -> f32 {
    (us + FLOOR_US).ln()
}

fn micros(at: Instant) -> u64 {
    at.saturating_duration_since(start()).as_micros() as u64
}

fn millis(at: Instant) -> u32 {
    // This wraps after 49 days; one measurement then looks old, or new, once.
    (at.saturating_duration_since(start()).as_millis() as u32).max(1)
}

fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

const SIZES: usize = 8;
const KINDS: usize = 2 * SIZES;
/// A few milliseconds more or less are no reason to prefer a node.
const FLOOR_US: f32 = 5_000.0;
/// The time in which slowness is forgotten to a third, so that a node that gets nothing is tried again after
/// a few seconds.
const FORGET_MS: f32 = 2_000.0;
/// A failure counts as an answer that takes eight times as long (natural logarithm).
const FAILURE: f32 = 2.08;
/// The most that a single answer counts for.
const ONE_MAX: f32 = 0.25;
/// The number of answers over which a node's slowness is about the mean, when they come quickly.
const WINDOW: f32 = 16.0;
const USUAL_WINDOW: f32 = 64.0;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn slowness(pace: &Pace) -> f32 {
        super::slowness(std::iter::once(pace))
    }

    fn answers(pace: &Pace, usual: &UsualTimes, kind: usize, latency: Duration, count: usize) {
        (0..count).for_each(|_| pace.answered(usual, kind, latency));
    }

    #[test]
    fn slowness_is_measured_against_requests_of_the_same_kind() {
        let (usual, node, other) = (UsualTimes::default(), Pace::default(), Pace::default());
        let (small, large) = (kind_of(true, Some(0)), kind_of(false, Some(5 << 20)));
        for _ in 0..20 {
            answers(&node, &usual, large, 400 * MS, 4);
            answers(&other, &usual, small, MS, 4);
        }
        assert!((0.9..1.1).contains(&slowness(&node)), "{node:?}");
        assert!((0.9..1.1).contains(&slowness(&other)), "{other:?}");
        answers(&node, &usual, small, 30 * MS, 20);
        assert!(slowness(&node) > 2.5, "{node:?}");
    }

    #[test]
    fn one_long_answer_does_not_condemn_a_node() {
        let (usual, node) = (UsualTimes::default(), Pace::default());
        answers(&node, &usual, 0, MS, 50);
        answers(&node, &usual, 0, 5_000 * MS, 1);
        assert!(slowness(&node) < 2.0, "{node:?}");
    }

    #[test]
    fn what_is_under_way_and_overdue_costs() {
        let (usual, node) = (UsualTimes::default(), Pace::default());
        answers(&node, &usual, 0, MS, 1);
        let idle = node.cost(1.0);
        let first = node.begin(&usual, 0);
        let one = node.cost(1.0);
        assert!(one > idle + 0.6);
        assert!(
            node.cost(0.1) > one,
            "a node of little weight is to have less under way"
        );
        std::thread::sleep(50 * MS);
        assert!(node.cost(1.0) > one + 1.2, "nothing has come for long");
        drop(first);
        assert!((node.cost(1.0) - idle).abs() < 0.1);
    }

    #[test]
    fn refusals_that_come_quickly_make_no_quick_node() {
        let (usual, node) = (UsualTimes::default(), Pace::default());
        answers(&node, &usual, 0, 10 * MS, 20);
        (0..20).for_each(|_| node.failed(&usual, 0, MS / 10));
        assert!(slowness(&node) > 2.0, "{node:?}");
    }

    #[test]
    fn a_mean_is_that_of_the_cores_that_have_measured_lately() {
        let usual = UsualTimes::default();
        let [busy, older, unused] = [Pace::default(), Pace::default(), Pace::default()];
        answers(&busy, &usual, 0, MS, 20);
        let long_ago = 1_u64 << 32; // a millisecond after the first look at the clock
        older.measured.store(long_ago, Relaxed);
        let mean = |values: &[(u64, &Pace)]| mean_of_recent(values.iter().copied());
        assert_eq!(mean(&[(400, &busy), (2, &unused)]), 400);
        assert_eq!(mean(&[(400, &busy), (300, &busy)]), 350);
        assert_eq!(
            mean(&[(2, &older), (4, &unused)]),
            2,
            "it is the latest that there is"
        );
        assert_eq!(mean(&[(2, &unused), (4, &unused)]), 3, "nobody has measured");
        assert_eq!(mean(&[]), 0);
    }

    #[test]
    fn a_core_that_has_measured_lately_counts_more_and_one_that_has_not_does_not_count() {
        let usual = UsualTimes::default();
        let [node, other, unused] = [Pace::default(), Pace::default(), Pace::default()];
        answers(&other, &usual, 0, 10 * MS, 20);
        answers(&node, &usual, 0, 400 * MS, 20);
        let (slow, even) = (slowness(&node), slowness(&other));
        let together = super::slowness([&node, &unused].into_iter());
        assert!((together / slow - 1.0).abs() < 0.05, "{together} {slow}");
        let together = super::slowness([&node, &other].into_iter());
        assert!(
            (together - (slow * even).sqrt()).abs() < 0.2,
            "{together} {slow} {even}"
        );
        assert_eq!(super::slowness([&unused].into_iter()), 1.0);
    }

    #[test]
    fn kinds_are_sizes_and_whether_it_is_a_read() {
        assert_ne!(kind_of(true, Some(0)), kind_of(false, Some(0)));
        assert_eq!(kind_of(true, Some(0)), kind_of(true, Some(1_000)));
        assert_ne!(kind_of(false, Some(100 << 10)), kind_of(false, Some(5 << 20)));
        assert!((0..64).all(|log| kind_of(false, Some(1 << log)) < KINDS));
        assert!(kind_of(false, None) < KINDS);
    }
}
