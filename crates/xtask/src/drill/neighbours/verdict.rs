//! What must hold for good clients. It is pure, so that tests can plant what has to be found.
//!
//! Runs last a moment, on machines with few cores and other work. So a client's wait is compared with that of
//! a client that talked to the cluster directly at the same moment ([`Control`]): what held up that client
//! too was not the gateway. The remaining wait has to stay within the bounds, over all seeds together.

use std::time::{Duration, Instant};

use super::control::Control;
use super::good::{Followed, Told};

/// A request of a good client: whether it was beside hostile clients, when it began, and how long it waited.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    pub(super) beside: bool,
    pub(super) began: Instant,
    pub(super) took: Duration,
}

/// The waits of good clients, alone and beside hostile ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits {
    alone: Vec<Duration>,
    beside: Vec<Duration>,
    /// The same waits, without the part for which the machine is to blame.
    alone_net: Vec<Duration>,
    beside_net: Vec<Duration>,
    /// The control's waits in the same time.
    alone_control: Vec<Duration>,
    beside_control: Vec<Duration>,
    /// The longest that a document of a good client took through the queue, and the longest that the control
    /// waited for a new field.
    lag_max: Duration,
    mapping_max: Duration,
}

/// Observations of the gateway and the cluster.
#[derive(Debug, Default)]
pub(super) struct Observations {
    pub(super) resident_bytes_max: u64,
    /// Looks at the gateway's admin port: the answered ones with their times, and those that failed.
    pub(super) looks: Vec<(Instant, Duration)>,
    pub(super) looks_failed: Vec<String>,
    /// Accounts that did not add up.
    pub(super) accounts: Vec<String>,
    /// Documents that should be in the cluster, but are missing or different.
    pub(super) missing: Vec<String>,
    /// Answers to hostile clients that contain what good clients wrote.
    pub(super) leaks: Vec<String>,
    /// Whether an index was created that the requests for it forbid to create.
    pub(super) has_forbidden: bool,
}

/// Something that is not as it has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flaw {
    pub(super) what: String,
    /// Whether a machine that stood still may have caused it: a wait that was too long, or that was given up.
    pub(super) of_time: bool,
}

// === impl Flaw ===

impl Flaw {
    pub(super) fn new(what: String) -> Self {
        Self { what, of_time: false }
    }

    fn of_time(what: String) -> Self {
        Self { what, of_time: true }
    }
}

// === impl Waits ===

impl Waits {
    pub(super) fn of(waits: &[Wait], control: &Control) -> Self {
        let mut all = Self::default();
        for wait in waits {
            let net = net(control, wait.began, wait.took);
            let (gross, without) = match wait.beside {
                true => (&mut all.beside, &mut all.beside_net),
                false => (&mut all.alone, &mut all.alone_net),
            };
            gross.push(wait.took);
            without.push(net);
        }
        let (alone, beside) = control.took();
        all.alone_control.extend(alone);
        all.beside_control.extend(beside);
        all
    }

    pub(super) fn and(mut self, other: &Waits) -> Self {
        self.alone.extend(&other.alone);
        self.beside.extend(&other.beside);
        self.alone_net.extend(&other.alone_net);
        self.beside_net.extend(&other.beside_net);
        self.alone_control.extend(&other.alone_control);
        self.beside_control.extend(&other.beside_control);
        self.lag_max = self.lag_max.max(other.lag_max);
        self.mapping_max = self.mapping_max.max(other.mapping_max);
        self
    }

    /// Notes how long documents took through the queue, and new fields.
    pub(super) fn with_lags(mut self, told: &[Told], control: &Control) -> Self {
        self.mapping_max = control.mapping_max();
        let followed = told.iter().flat_map(|one| &one.followed);
        self.lag_max = followed.map(|one| one.took).max().unwrap_or_default();
        self
    }

    pub(super) fn count(&self) -> usize {
        self.alone.len() + self.beside.len()
    }

    pub(super) fn shown(&self) -> String {
        let ms = |waits: &[Duration]| percentile_99(waits).unwrap_or_default().as_secs_f64() * 1e3;
        format!(
            "99 % were answered within {:.1} ms alone and {:.1} ms beside them, without the machine's own stalls {:.1} \
             and {:.1} ms, the control's within {:.1} and {:.1} ms; queued documents arrived within {:.1} s, \
             the control's new fields within {:.1} s",
            ms(&self.alone),
            ms(&self.beside),
            ms(&self.alone_net),
            ms(&self.beside_net),
            ms(&self.alone_control),
            ms(&self.beside_control),
            self.lag_max.as_secs_f64(),
            self.mapping_max.as_secs_f64(),
        )
    }

    /// Returns how many times longer the control waited beside hostile clients, who reach the cluster and
    /// take their share of the machine's cores. The gateway is not to blame for such a factor. At least 1.
    fn slower(&self) -> f64 {
        let (alone, beside) = (
            percentile_99(&self.alone_control),
            percentile_99(&self.beside_control),
        );
        let (Some(alone), Some(beside)) = (alone, beside) else {
            return 1.0;
        };
        (beside.as_secs_f64() / alone.as_secs_f64().max(1e-6)).max(1.0)
    }

    /// Returns what is wrong with the waits, if anything. Waits of less than `free` are never wrong.
    pub(super) fn flaw(&self, free: Duration) -> Option<String> {
        let both = (percentile_99(&self.alone_net), percentile_99(&self.beside_net));
        let (Some(alone), Some(beside)) = both else {
            return Some("too few requests of good clients to tell".to_owned());
        };
        let most = alone.mul_f64(2.0 * self.slower()).max(free);
        (beside > most).then(|| format!("good clients wait too long: {}", self.shown()))
    }
}

// === impl Observations ===

impl Observations {
    /// Returns the outcome if nothing could be seen.
    pub(super) fn broken(what: &str) -> Self {
        Self {
            looks_failed: vec![what.to_owned()],
            ..Self::default()
        }
    }
}

/// Returns everything that is not as it has to be, except for the waits, which need many runs.
pub(super) fn flaws(told: &[Told], seen: &Observations, control: &Control) -> Vec<Flaw> {
    let mut flaws = Vec::new();
    let wronged = told.iter().flat_map(|one| &one.wronged);
    flaws.extend(wronged.map(|what| {
        let told = format!("a good client got {what}");
        match BUSY.iter().any(|status| what.starts_with(status)) {
            true => Flaw::of_time(told),
            false => Flaw::new(told),
        }
    }));
    let unanswered = told.iter().flat_map(|one| &one.unanswered);
    flaws.extend(unanswered.map(|(began, took, what)| {
        let stalled = control.stalled(*began, *began + *took);
        Flaw::of_time(format!(
            "a good client got {what}, after {took:?}, {:.1?} ago; the longest wait of the control was {stalled:?}",
            began.elapsed()
        ))
    }));
    if told.iter().all(|one| one.written.is_empty()) {
        flaws.push(Flaw::new("no good client wrote anything".to_owned()));
    }
    flaws.extend(
        seen.missing
            .iter()
            .map(|what| Flaw::new(format!("not delivered: {what}"))),
    );
    let followed = told.iter().flat_map(|one| &one.followed);
    flaws.extend(followed.filter_map(|one| late(one, control)));
    if seen.resident_bytes_max > RESIDENT_BYTES_MAX {
        let mib = seen.resident_bytes_max >> 20;
        flaws.push(Flaw::new(format!("the gateway took {mib} MiB")));
    }
    let looks_late = seen.looks.iter();
    let looks_late = looks_late.filter(|(began, took)| net(control, *began, *took) > LOOK_MAX);
    let unseen = looks_late.map(|(_, took)| format!("for {took:?}"));
    let unseen = unseen.chain(seen.looks_failed.iter().cloned());
    flaws.extend(unseen.map(|what| Flaw::of_time(format!("the admin port did not answer: {what}"))));
    let accounts = seen.accounts.iter();
    flaws.extend(accounts.map(|what| Flaw::new(format!("the accounts do not add up: {what}"))));
    let leaks = seen.leaks.iter();
    flaws.extend(
        leaks.map(|what| Flaw::new(format!("a hostile client was told of others' documents: {what}"))),
    );
    if seen.has_forbidden {
        flaws.push(Flaw::new(
            "an index was created by requests that forbid it".to_owned(),
        ));
    }
    if seen.looks.is_empty() {
        flaws.push(Flaw::new("nobody could look at the gateway".to_owned()));
    }
    if control.count() == 0 {
        flaws.push(Flaw::new("nobody could tell how slow the machine is".to_owned()));
    }
    flaws
}

/// Returns that a document took too long to the cluster, if it did. However long the cluster's master needs
/// to add a field to a mapping, others' documents do not wait for it.
fn late(one: &Followed, control: &Control) -> Option<Flaw> {
    let (lag, until) = (one.took, one.began + one.took);
    let (stalled, mapping) = (
        control.stalled(one.began, until),
        control.mapping_took(one.began, until),
    );
    let queue = one.queue.as_deref().unwrap_or_default();
    (lag.saturating_sub(stalled * HOPS) > LAG_MAX).then(|| {
        Flaw::of_time(format!(
            "a good client's document took {lag:?} to the cluster; meanwhile the control waited up to {stalled:?}, \
             and up to {mapping:?} for a new field; the queue was: {queue}"
        ))
    })
}

/// Returns the part of a wait for which the machine is not to blame.
fn net(control: &Control, began: Instant, took: Duration) -> Duration {
    took.saturating_sub(control.stalled(began, began + took) * HOPS)
}

/// Returns the 99th percentile; `None` if there are too few waits.
fn percentile_99(waits: &[Duration]) -> Option<Duration> {
    let mut sorted = waits.to_vec();
    sorted.sort_unstable();
    (sorted.len() >= 20).then(|| sorted[(sorted.len() * 99 / 100).min(sorted.len() - 1)])
}

/// Statuses that tell a client to come again: a machine that stands still for seconds brings them about.
const BUSY: [&str; 2] = ["429", "503"];
/// A health check would have given up by then.
const LOOK_MAX: Duration = Duration::from_secs(2);
const LAG_MAX: Duration = Duration::from_secs(5);
const RESIDENT_BYTES_MAX: u64 = 256 << 20;
/// How many times more often a request is handed from thread to thread through the gateway than directly, on
/// its way from a client to the cluster. Each time it waits for a core.
const HOPS: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drill::neighbours::good::{ALONE, BESIDE};

    const FREE: Duration = Duration::from_millis(50);

    fn told() -> Vec<Told> {
        vec![Told {
            index: "good",
            written: vec![("g1".to_owned(), 1)],
            ..Told::default()
        }]
    }

    fn seen() -> Observations {
        Observations {
            looks: vec![(Instant::now(), Duration::from_millis(1))],
            ..Observations::default()
        }
    }

    /// A control on a machine that is quiet, or stalls for half a second every second.
    fn control(zero: Instant, stalls: bool) -> Control {
        let mut control = Control::default();
        for second in 0..10 {
            let began = zero + Duration::from_secs(second);
            let took = if stalls { 500 } else { 1 };
            control.add(began, Duration::from_millis(took));
            control.add(began + Duration::from_millis(700), Duration::from_millis(1));
        }
        control
    }

    #[test]
    fn no_document_is_late_for_what_the_master_does_for_others() {
        let began = Instant::now();
        let late_by = |took, stalls, mapping: u64| {
            let mut control = control(began, stalls);
            control.add_mapping(began, Duration::from_millis(mapping));
            let took = Duration::from_secs(took);
            late(
                &Followed {
                    began,
                    took,
                    queue: None,
                },
                &control,
            )
            .is_some()
        };
        assert!(!late_by(4, false, 2_000));
        assert!(late_by(6, false, 2_000), "whatever new fields take");
        assert!(!late_by(6, true, 2_000), "the machine stalled");
    }

    #[test]
    fn each_planted_flaw_is_found_and_nothing_else() {
        let quiet = control(Instant::now(), false);
        let flaws = |told: &[Told], seen: &Observations| flaws(told, seen, &quiet);
        assert_eq!(flaws(&told(), &seen()), Vec::<Flaw>::new());
        let mut refused = told();
        refused[0].wronged.push("429: too much at once".to_owned());
        refused[0].wronged.push("500: another's error".to_owned());
        let of_time: Vec<bool> = flaws(&refused, &seen()).iter().map(|flaw| flaw.of_time).collect();
        assert_eq!(
            of_time,
            [true, false],
            "whose error somebody gets does not depend on time"
        );
        assert_eq!(flaws(&[], &seen()).len(), 1, "nothing written");
        let mut unanswered = told();
        let without = (Instant::now(), Duration::from_secs(20), "no answer".to_owned());
        unanswered[0].unanswered.push(without);
        assert_eq!(flaws(&unanswered, &seen()).len(), 1);
        let mut late = told();
        late[0].followed.push(Followed {
            began: Instant::now(),
            took: Duration::from_secs(6),
            queue: None,
        });
        assert_eq!(flaws(&late, &seen()).len(), 1);
        let plants: [fn(&mut Observations); 8] = [
            |seen| seen.missing.push("g1".to_owned()),
            |seen| seen.resident_bytes_max = 300 << 20,
            |seen| seen.looks_failed.push("refused".to_owned()),
            |seen| seen.looks.push((Instant::now(), Duration::from_secs(3))),
            |seen| seen.looks.clear(),
            |seen| seen.accounts.push("one is missing".to_owned()),
            |seen| seen.leaks.push("a document".to_owned()),
            |seen| seen.has_forbidden = true,
        ];
        for (number, plant) in plants.into_iter().enumerate() {
            let mut seen = seen();
            plant(&mut seen);
            assert_eq!(flaws(&told(), &seen).len(), 1, "{number}");
        }
        let blind = Control::default();
        assert_eq!(super::flaws(&told(), &seen(), &blind).len(), 1, "no control");
    }

    /// Returns a hundred waits alone and as many beside. `slow` of each hundred take this many ms, and begin
    /// `after_ms` ms after a full second.
    fn waits(zero: Instant, (alone_ms, beside_ms): (u64, u64), slow: u64, after_ms: u64) -> Vec<Wait> {
        let of = |number: u64, slow_ms: u64, beside: bool| Wait {
            beside,
            began: zero + Duration::from_millis(1_000 * (number % 10) + after_ms),
            took: Duration::from_millis(if number < slow { slow_ms } else { 1 }),
        };
        (0..100)
            .flat_map(|number| [of(number, alone_ms, false), of(number, beside_ms, true)])
            .collect()
    }

    #[test]
    fn waits_that_more_than_double_are_a_flaw_and_so_are_too_few() {
        let zero = Instant::now();
        let flaw = |both, slow| Waits::of(&waits(zero, both, slow, 600), &control(zero, false)).flaw(FREE);
        assert_eq!(flaw((60, 110), 2), None);
        assert!(flaw((60, 130), 2).is_some());
        assert_eq!(flaw((1, 40), 2), None, "as quick as anybody can tell");
        assert!(Waits::default().flaw(FREE).is_some());
    }

    #[test]
    fn what_neighbours_do_to_who_passes_the_gateway_by_is_not_its_fault() {
        let zero = Instant::now();
        let flaw = |alone_ms, beside_ms| {
            let mut control = control(zero, false);
            for number in 0..100 {
                let ms = |slow| Duration::from_millis(if number < 2 { slow } else { 1 });
                control.count_in(ALONE, ms(alone_ms));
                control.count_in(BESIDE, ms(beside_ms));
            }
            Waits::of(&waits(zero, (60, 170), 2, 600), &control).flaw(FREE)
        };
        assert!(flaw(10, 10).is_some());
        assert_eq!(flaw(10, 15), None);
        assert!(
            flaw(15, 10).is_some(),
            "a control that was quicker makes nothing worse, and nothing better"
        );
    }

    #[test]
    fn what_the_machine_is_to_blame_for_is_no_flaw_and_hides_none() {
        let zero = Instant::now();
        let flaw = |beside_ms, after_ms, stalls| {
            let waits = waits(zero, (1, beside_ms), 5, after_ms);
            Waits::of(&waits, &control(zero, stalls)).flaw(FREE)
        };
        assert!(flaw(600, 10, false).is_some(), "the machine was quiet");
        assert_eq!(flaw(600, 10, true), None, "the control stood still as well");
        assert!(
            flaw(90, 600, true).is_some(),
            "it went on when the gateway did not"
        );
        assert!(flaw(2_000, 10, true).is_some(), "far longer than the control");
    }
}
