//! The law that a limit follows.
//!
//! The limit changes once in a round. A round ends as soon as enough of the requests sent since the last
//! change have been answered, so that each change is judged by its own effect.
//!
//! - **Ebbs** measure the usual time of an answer, when nothing waits: every ten seconds or so the limit is
//!   halved for a round. The usual time is a mean over requests of about the same size, so that answers that
//!   vary by themselves don't look like waiting. Quicker answers correct it at once.
//! - The share of the time beyond the usual time is **waiting**. Of `limit` requests under way, `limit × (1 −
//!   waiting)` are worked on (Little's law), and that number, with a little room to find more, is the next
//!   limit. The room doubles with each round in which nothing waits.
//! - Not every answer that takes longer has waited: requests that share a disk or a core take longer although
//!   more of them are done. So every few seconds a **flood** lets a quarter more through for a round. If more
//!   is done in it, the usual time is stretched to the time it took; if not, the stretch shrinks again.
//! - At the start the limit doubles while nothing waits.
//! - A **refusal** takes a quarter off the limit, and for half a minute the limit stays a tenth below where
//!   it was, so that a node that refuses before requests wait is not pushed to refuse again and again.
//! - While fewer requests come than the limit allows, the limit doesn't grow.

#[cfg(test)]
mod simulated;

use std::time::{Duration, Instant};

/// The law for one node. The time is passed in, so that tests need no real time.
#[derive(Debug)]
pub(super) struct Law {
    limit: f64,
    /// Whether the limit is still doubling.
    young: bool,
    /// The number of consecutive rounds in which nothing waited: the more there are, the larger the next
    /// step.
    calm: u32,
    round: Round,
    /// The usual time of an answer, when nothing waits, by size, in seconds; 0 before it is known.
    usual: [f64; SIZES],
    /// When the last ebb ended, and the limit at that time.
    ebbed: (Instant, f64),
    /// Whether there has been an ebb. Until then everything known stems from the first few answers, on new
    /// connections.
    settled: bool,
    /// The trial that is going on.
    trial: Option<Trial>,
    /// When the last flood ended.
    flooded: Instant,
    /// How many times longer than usual answers may take before that counts as waiting.
    stretch: f64,
    /// The requests that are worked on, judged by the usual time of answers; smoothed.
    worked_on: f64,
    /// The limit at which the node refused, and when.
    refused_at: Option<(f64, Instant)>,
}

/// A round with another limit, to see its effect.
#[derive(Clone, Copy, Debug)]
enum Trial {
    /// A round with a lower limit, after which this limit returns.
    Ebb(f64),
    /// A round with a higher limit, after which this limit returns.
    Flood(f64),
}

/// The results of requests that were sent under the same limit.
#[derive(Debug)]
struct Round {
    began: Instant,
    by_size: [(u32, f64); SIZES],
    /// Whether as many requests were under way as the limit allows.
    full: bool,
}

// === impl Law ===

impl Law {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            limit: 1.0,
            young: true,
            calm: 0,
            round: Round::new(now),
            usual: [0.0; SIZES],
            ebbed: (now, 1.0),
            settled: false,
            trial: None,
            flooded: now,
            stretch: 1.0,
            worked_on: 0.0,
            refused_at: None,
        }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit as usize
    }

    /// Notes that as many requests are under way as allowed.
    pub(super) fn is_full(&mut self) {
        self.round.full = true;
    }

    pub(super) fn worked(&mut self, began: Instant, now: Instant, bytes: u64) {
        if began < self.round.began {
            return;
        }
        let (count, sum) = &mut self.round.by_size[size_of(bytes)];
        *count += 1;
        *sum += now.saturating_duration_since(began).as_secs_f64();
        let least = match self.trial {
            Some(Trial::Ebb(_)) => EBB_ANSWERS,
            Some(Trial::Flood(_)) => FLOOD_ANSWERS,
            None if self.young => YOUNG_ANSWERS,
            None => ROUND_ANSWERS,
        };
        if f64::from(self.round.answers()) >= least.max(self.limit * ROUND_TIMES) {
            self.turn(now);
        }
    }

    pub(super) fn refused(&mut self, began: Instant, now: Instant) {
        let (at, next) = match self.trial {
            Some(Trial::Ebb(limit)) => (limit, limit * REFUSED),
            // The refusal was to be expected, and the limit before was good.
            Some(Trial::Flood(limit)) => (self.limit, limit),
            None => (self.limit, self.limit * REFUSED),
        };
        if began >= self.round.began {
            self.refused_at = Some((at, now));
        }
        self.cut(began, now, next);
    }

    pub(super) fn lost(&mut self, began: Instant, now: Instant) {
        self.cut(began, now, self.limit * LOST);
    }

    /// Lowers the limit, unless the request was sent before the last change: that change has already
    /// accounted for it.
    fn cut(&mut self, began: Instant, now: Instant, limit: f64) {
        if began >= self.round.began {
            (self.young, self.trial, self.stretch) = (false, None, 1.0);
            self.set(limit, now);
        }
    }

    fn set(&mut self, limit: f64, now: Instant) {
        self.limit = limit.clamp(1.0, LIMIT_MAX);
        self.round = Round::new(now);
    }

    /// Ends a round.
    fn turn(&mut self, now: Instant) {
        // As many as could be under way, which is never a fraction.
        let limit = self.limit.floor();
        match self.trial.take() {
            Some(Trial::Ebb(limit)) => {
                self.learn(true);
                (self.ebbed, self.settled) = ((now, limit), true);
                return self.set(limit, now);
            }
            Some(Trial::Flood(before)) => return self.flood_ends(before, now),
            None => self.learn(false),
        }
        let times = self.round.times(&self.usual);
        self.worked_on = match self.worked_on {
            0.0 => limit / times,
            // An increase counts at once: otherwise a flood could take credit for it.
            before => (before + (limit / times - before) * 0.3).max(limit / times),
        };
        let waited = 1.0 - self.stretch / times;
        let waiting = ((waited - TOLERANCE) / (1.0 - TOLERANCE)).max(0.0);
        self.calm = if waiting < CALM {
            (self.calm + 1).min(CALM_MAX)
        } else {
            0
        };
        let room = (limit * ROOM).max(1.0) * f64::from(1 << self.calm.saturating_sub(1));
        let mut next = limit * (1.0 - waiting) + room;
        if self.young && waiting < YOUNG_WAITING {
            next = next.max(limit * 2.0);
        } else {
            self.young = false;
        }
        if let Some((refused, at)) = self.refused_at {
            // A node that can do much less since then has refused for another reason.
            let holds = now.saturating_duration_since(at) < REFUSED_MEMORY && limit > refused * SUNK;
            match holds {
                true => next = next.min((refused * BELOW_REFUSED).max(limit)),
                false => self.refused_at = None,
            }
        }
        if next >= limit && !self.round.full {
            next = limit;
        }
        let takes = self.round.mean();
        let pause = match self.settled {
            true => EBB_EVERY.max(takes * EBB_ANSWER_TIMES),
            false => EBB_FIRST.max(takes * EBB_ANSWER_TIMES / 6),
        };
        let due = !self.young && now.saturating_duration_since(self.ebbed.0) > pause;
        // If the limit is much lower than when it was measured, the work itself may take longer now.
        let sunk = next < self.ebbed.1 * SUNK && !self.young;
        if (due || sunk) && next >= 2.0 {
            self.trial = Some(Trial::Ebb(next));
            next /= 2.0;
        } else if sunk {
            self.learn(true);
            self.ebbed = (now, next);
        } else if self.may_flood(now) && next >= 2.0 {
            self.trial = Some(Trial::Flood(next));
            next = (next * FLOOD).max(next + 1.0);
        } else if next < limit {
            // Go only half way: one round may be chance.
            next = (next + limit) / 2.0;
        }
        self.set(next, now);
    }

    /// Ends a round in which more was let through, and judges whether more was done, too.
    fn flood_ends(&mut self, before: f64, now: Instant) {
        let times = self.round.times(&self.usual);
        let more = self.limit.floor() / times > self.worked_on * FLOOD_GAIN;
        self.flooded = now;
        self.stretch = match more {
            true => self.stretch.max(times.min(STRETCH_MAX)),
            false => 1.0 + (self.stretch - 1.0) * STRETCH_SHRINKS,
        };
        self.set(if more { self.limit } else { before }, now);
    }

    fn may_flood(&self, now: Instant) -> bool {
        let due = now.saturating_duration_since(self.flooded) > FLOOD_EVERY;
        due && self.round.full && !self.young && self.refused_at.is_none()
    }

    /// Corrects the usual times of answers; `calm` means that nothing waited in this round.
    fn learn(&mut self, calm: bool) {
        // Requests of a size that has not been seen wait as the others do.
        let times = if calm { 1.0 } else { self.round.times(&self.usual) };
        for (usual, (count, sum)) in self.usual.iter_mut().zip(self.round.by_size) {
            if count == 0 {
                continue;
            }
            let mean = sum / f64::from(count);
            if *usual == 0.0 {
                *usual = mean / times;
                continue;
            }
            let trust = match calm {
                // The result of an ebb is a mean over few answers as well; a large difference means that the
                // facts have changed.
                true if (mean / *usual - 1.0).abs() < ALIKE => {
                    if mean > *usual {
                        0.8
                    } else {
                        0.4
                    }
                }
                true => (f64::from(count) / 4.0).min(1.0),
                // A small difference is chance: if it were believed each time, the least of all means would
                // become the usual time.
                false if mean < *usual * QUICKER && count >= QUICKER_ANSWERS => 0.5,
                false => 0.0,
            };
            *usual += (mean - *usual) * trust;
        }
    }
}

// === impl Round ===

impl Round {
    fn new(began: Instant) -> Self {
        Self {
            began,
            by_size: [(0, 0.0); SIZES],
            full: false,
        }
    }

    fn answers(&self) -> u32 {
        self.by_size.iter().map(|(count, _)| count).sum()
    }

    fn mean(&self) -> Duration {
        let sum: f64 = self.by_size.iter().map(|(_, sum)| sum).sum();
        Duration::from_secs_f64(sum / f64::from(self.answers().max(1)))
    }

    /// Returns how many times longer than usual the answers took whose sizes are known.
    fn times(&self, usual: &[f64; SIZES]) -> f64 {
        let (mut took, mut needed) = (0.0, 0.0);
        for ((count, sum), usual) in self.by_size.iter().zip(usual) {
            if *usual > 0.0 {
                took += sum;
                needed += usual * f64::from(*count);
            }
        }
        if took > 0.0 && needed > 0.0 {
            took / needed
        } else {
            1.0
        }
    }
}

/// Returns the size class of a request: requests of about the same size (within a factor of two) are
/// compared.
fn size_of(bytes: u64) -> usize {
    let size = (bytes >> 10).checked_ilog2().map_or(0, |log| 1 + log as usize);
    size.min(SIZES - 1)
}

const SIZES: usize = 18;
const LIMIT_MAX: f64 = 1024.0;
/// The answers that a round waits for, times the limit. The first answers are the quickest ones: with fewer
/// answers, their time would be taken for that of all.
const ROUND_TIMES: f64 = 2.0;
/// The same at the start: answers that take long should not hold the limit at one for long.
const YOUNG_ANSWERS: f64 = 3.0;
const ROUND_ANSWERS: f64 = 6.0;
const EBB_ANSWERS: f64 = 10.0;
const EBB_EVERY: Duration = Duration::from_secs(10);
const EBB_FIRST: Duration = Duration::from_secs(1);
/// The least time between ebbs, in times of one answer: an ebb costs a few percent at most.
const EBB_ANSWER_TIMES: u32 = 60;
const FLOOD: f64 = 1.25;
/// The least number of answers by which a flood is judged.
const FLOOD_ANSWERS: f64 = 40.0;
const FLOOD_EVERY: Duration = Duration::from_secs(4);
/// Chance alone gains less than this.
const FLOOD_GAIN: f64 = 1.1;
const STRETCH_MAX: f64 = 2.5;
const STRETCH_SHRINKS: f64 = 0.5;
const SUNK: f64 = 0.6;
const ALIKE: f64 = 0.3;
const QUICKER: f64 = 0.6;
const QUICKER_ANSWERS: u32 = 12;
/// A share of waiting up to this counts as no waiting.
const TOLERANCE: f64 = 0.05;
/// The room to find more.
const ROOM: f64 = 0.05;
const CALM: f64 = 0.02;
const CALM_MAX: u32 = 4;
const YOUNG_WAITING: f64 = 0.2;
const REFUSED: f64 = 0.75;
const BELOW_REFUSED: f64 = 0.9;
const REFUSED_MEMORY: Duration = Duration::from_secs(30);
const LOST: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::simulated::{Load, Node, RunResult};
    use super::*;

    /// Asserts that at least 80 % of the possible work was done, and that the requests under way were at most
    /// one half, or four requests, more than could be worked on.
    fn is_found(node: &Node, seconds: f64, seen: &RunResult) {
        let could = node.workers as f64 / node.takes * seconds;
        assert!(seen.worked as f64 > 0.8 * could, "{seen:?} of {could}");
        let workers = node.workers as f64;
        assert!(
            seen.under_way < (workers * 1.5).max(workers + 4.0),
            "{seen:?} for {workers}"
        );
        assert!(seen.refused * 100 <= seen.worked, "{seen:?}");
    }

    #[test]
    fn capacity_is_found_and_followed_up_and_down_without_a_storm_of_refusals() {
        for (seed, varies) in (0..3).flat_map(|seed| [0.0, 0.3, 0.6].map(|varies| (seed, varies))) {
            let mut load = Load::new(seed);
            for workers in [12, 3, 24, 6, 1, 16] {
                let node = Node {
                    workers,
                    queue: 2 * workers,
                    takes: 0.05,
                    varies,
                    shares: 0.0,
                };
                load.run(&node, 5.0, 1_000);
                let seen = load.run(&node, 30.0, 1_000);
                is_found(&node, 30.0, &seen);
            }
        }
    }

    #[test]
    fn work_that_varies_twentyfold_costs_a_tenth_of_the_capacity_at_most() {
        let (mut could, mut worked, mut refused) = (0.0, 0, 0);
        for seed in 0..3 {
            let mut load = Load::new(seed);
            for workers in [12, 3, 24, 6, 1, 16] {
                let node = Node {
                    workers,
                    queue: 2 * workers,
                    takes: 0.05,
                    varies: 0.9,
                    shares: 0.0,
                };
                let seen = load.run(&node, 30.0, 1_000);
                (worked, refused) = (worked + seen.worked, refused + seen.refused);
                could += workers as f64 / 0.05 * 30.0;
            }
        }
        assert!(
            worked as f64 > 0.9 * could && refused * 200 < worked,
            "{worked} of {could}, {refused} refused"
        );
    }

    #[test]
    fn a_node_whose_work_takes_longer_keeps_as_much_of_it() {
        let mut load = Load::new(7);
        for takes in [0.02, 0.2, 0.01, 0.1] {
            let node = Node {
                workers: 10,
                queue: 20,
                takes,
                varies: 0.3,
                shares: 0.0,
            };
            load.run(&node, 20.0, 1_000);
            let seen = load.run(&node, 30.0, 1_000);
            is_found(&node, 30.0, &seen);
        }
    }

    #[test]
    fn a_node_that_refuses_before_anything_waits_is_not_asked_again_and_again() {
        let mut load = Load::new(9);
        let node = Node {
            workers: 10,
            queue: 0,
            takes: 0.05,
            varies: 0.3,
            shares: 0.0,
        };
        load.run(&node, 10.0, 1_000);
        let seen = load.run(&node, 120.0, 1_000);
        is_found(&node, 120.0, &seen);
        assert!(seen.refused <= 24, "{seen:?}");
    }

    #[test]
    fn work_that_takes_longer_beside_others_and_is_more_all_the_same_is_let_through() {
        for seed in 0..3 {
            let mut load = Load::new(seed);
            let node = Node {
                workers: 1_000,
                queue: 0,
                takes: 0.05,
                varies: 0.3,
                shares: 0.1,
            };
            load.run(&node, 40.0, 1_000);
            let seen = load.run(&node, 40.0, 1_000);
            // With an unlimited number at once, ten could be done in the time of one.
            let could = 10.0 / 0.05 * 40.0;
            assert!(seen.worked as f64 > 0.5 * could, "{seen:?} of {could}");
            assert!(seen.under_way < 60.0, "{seen:?}");
        }
    }

    #[test]
    fn what_is_not_used_does_not_grow() {
        let mut load = Load::new(11);
        let node = Node {
            workers: 64,
            queue: 64,
            takes: 0.01,
            varies: 0.3,
            shares: 0.0,
        };
        load.run(&node, 30.0, 3);
        assert!(load.law.limit() <= 8, "{}", load.law.limit());
    }

    #[test]
    fn it_starts_with_one() {
        assert_eq!(Law::new(Instant::now()).limit(), 1);
    }

    #[test]
    fn many_losses_at_once_count_as_one() {
        let start = Instant::now();
        let mut law = Law::new(start);
        law.set(16.0, start);
        let later = start + Duration::from_secs(1);
        (0..16).for_each(|_| law.lost(start, later));
        assert_eq!(law.limit(), 8);
    }
}
