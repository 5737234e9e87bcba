//! Finds out how many requests for each target are under way before parts gather.
//!
//! One request at a time carries the most, and costs a node the least. But a node works on a shard's part of
//! a request with one thread: a node with cores to spare gets more done with several requests, and a node
//! without does not. Which kind a node is only shows when several are tried. So now and then all targets of a
//! kind take turns: for some answers with as many requests as usual, and for some with twice or half as many.
//! The work of all targets together decides: measured alone, a target would also gain the work that it takes
//! from others on the same machine. More requests have to gain a good deal, since they cost the nodes more.

use std::time::{Duration, Instant};

/// Follows the slots of one kind. The caller passes the time.
#[derive(Debug)]
pub(crate) struct Shifts {
    usual: u32,
    trial: Option<Trial>,
    /// The answers, bytes and time counted since the last change.
    tally: Tally,
    /// The time up to which the tally counts; `None` before the first request.
    until: Option<Instant>,
    /// The longest time with nothing under way that counts: as long as the last answer took. Clients that
    /// take a while to come back are part of the comparison; a load that pauses is not.
    gap_most: Duration,
    /// The requests under way; `most` is the most at once since the last change.
    under_way: u32,
    most: u32,
    /// Answers to come that say nothing of the present number, since their requests were sent under another.
    stale: u32,
    /// The time of the tally at which the next trial begins.
    pause: Duration,
    /// Whether the next trial is with fewer requests.
    fewer: bool,
}

/// A trial: turns with the usual number of requests and with another.
#[derive(Debug)]
struct Trial {
    other: u32,
    turns: usize,
    /// The time that the trial has taken.
    time: Duration,
    /// The rate of the last turn with the usual number, in bytes a second.
    rate: f64,
    /// How many times as much the next turn, with the other number, got through.
    gains: [f64; PAIRS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    answers: u32,
    bytes: u64,
    time: Duration,
}

/// The most requests for a target at once. A node's limiter may allow fewer.
const MOST: u32 = 16;

/// The turns of a trial with each number. The median counts, because a node pauses and is busy with other
/// things now and then.
const PAIRS: usize = 5;

/// The answers of a turn, for each request under way; and how long a turn lasts at least and at most, unless
/// answers take longer.
const TURN_ANSWERS: u32 = 4;
const TURN_LEAST: Duration = Duration::from_millis(30);
const TURN_MOST: Duration = Duration::from_millis(800);

/// The pause before the first trial, and the longest pause between trials that change nothing.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_MOST: Duration = Duration::from_mins(1);

/// The pause between trials that change nothing is at least this many times as long as a trial: half of a
/// trial is with the wrong number.
const TRIAL_SHARE: u32 = 10;

/// Twice as many requests have to get through this many times as much. With cores to spare it is nearly twice
/// as much.
const WORTH: f64 = 1.5;

/// Half as many requests are accepted if they get through at most this many times less. This is smaller than
/// `WORTH`, or the number would oscillate.
const NO_LOSS: f64 = 1.25;

// === impl Shifts ===

impl Shifts {
    /// With `adaptive`, the number of requests is found out; otherwise it is always one.
    pub(crate) fn new(adaptive: bool) -> Self {
        if adaptive {
            Self::starting_with(1)
        } else {
            Self::fixed(1)
        }
    }

    /// Makes shifts with a number that never changes.
    pub(super) fn fixed(usual: u32) -> Self {
        Self {
            pause: Duration::MAX,
            ..Self::starting_with(usual)
        }
    }

    pub(super) fn starting_with(usual: u32) -> Self {
        Self {
            usual,
            trial: None,
            tally: Tally::default(),
            until: None,
            gap_most: Duration::ZERO,
            under_way: 0,
            most: 0,
            stale: 0,
            pause: PAUSE_FIRST,
            fewer: false,
        }
    }

    /// Returns the number of requests under way beyond which parts gather now.
    pub(super) fn allowed(&self) -> u32 {
        match &self.trial {
            Some(trial) if trial.turns % 2 == 1 => trial.other,
            _ => self.usual,
        }
    }

    /// Returns the same number, leaving trials aside.
    pub(crate) fn usual(&self) -> u32 {
        self.usual
    }

    /// Records that one more request is under way.
    pub(super) fn began(&mut self, now: Instant) {
        self.passes(now);
        self.under_way += 1;
        self.most = self.most.max(self.under_way);
    }

    fn passes(&mut self, now: Instant) {
        let since = self.until.replace(now).unwrap_or(now);
        let time = now.saturating_duration_since(since);
        let idle = self.under_way == 0;
        self.tally.time += if idle { time.min(self.gap_most) } else { time };
    }

    /// Records that a request with `bytes` has returned after this time. `clients` is how many seem to write
    /// to its target.
    pub(super) fn ended(&mut self, bytes: u64, lasted: Duration, clients: usize, now: Instant) {
        self.passes(now);
        self.under_way = self.under_way.saturating_sub(1);
        self.gap_most = lasted;
        if self.stale > 0 {
            self.stale -= 1;
            if self.stale == 0 {
                self.tally = Tally::default();
            }
            return;
        }
        if self.trial.is_some() {
            self.tally.answers += 1;
            self.tally.bytes += bytes;
            if self.turn_is_over() {
                self.turn();
            }
        } else if self.tally.time >= self.pause && clients > 1 {
            self.try_another(clients);
        }
    }

    fn turn_is_over(&self) -> bool {
        let enough = self.tally.answers >= TURN_ANSWERS * self.most.max(1) && self.tally.time >= TURN_LEAST;
        enough || (self.tally.time >= TURN_MOST && self.tally.answers >= self.most.max(TURN_ANSWERS / 2))
    }

    fn try_another(&mut self, clients: usize) {
        // More requests than there are clients could not be told from as many as there are clients.
        let most = self.usual >= MOST || clients <= self.usual as usize;
        let fewer = self.usual > 1 && (self.fewer || most);
        let other = if fewer { self.usual / 2 } else { self.usual * 2 };
        self.trial = Some(Trial {
            other,
            turns: 0,
            time: Duration::ZERO,
            rate: 0.0,
            gains: [0.0; PAIRS],
        });
        self.begin_turn();
    }

    /// Ends a turn.
    fn turn(&mut self) {
        let rate = self.tally.rate();
        let Some(trial) = &mut self.trial else { return };
        trial.time += self.tally.time;
        match trial.turns % 2 {
            0 => trial.rate = rate,
            _ => trial.gains[trial.turns / 2] = rate / trial.rate,
        }
        trial.turns += 1;
        if trial.turns == 2 * PAIRS {
            self.decide();
        }
        self.begin_turn();
    }

    fn begin_turn(&mut self) {
        self.tally = Tally::default();
        // At least one answer does not count: the parts that wait gathered under the number before.
        self.stale = self.under_way.max(1);
        self.most = self.under_way;
    }

    fn decide(&mut self) {
        let Some(mut trial) = self.trial.take() else {
            return;
        };
        trial.gains.sort_by(f64::total_cmp);
        let gain = trial.gains[PAIRS / 2];
        let more = trial.other > self.usual;
        let changes = if more { gain > WORTH } else { gain * NO_LOSS > 1.0 };
        if changes {
            self.usual = trial.other;
            self.pause = PAUSE_FIRST;
            self.fewer = !more;
        } else {
            self.pause = (self.pause * 2).max(trial.time * TRIAL_SHARE).min(PAUSE_MOST);
            self.fewer = more;
        }
    }
}

// === impl Tally ===

impl Tally {
    /// Returns bytes a second.
    fn rate(&self) -> f64 {
        self.bytes.max(1) as f64 / self.time.as_secs_f64().max(1e-6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_of_trials_answers_are_not_counted_however_many_there_are() {
        let (mut shifts, now) = (Shifts::starting_with(1), Instant::now());
        shifts.tally.answers = u32::MAX;
        shifts.began(now);
        shifts.ended(1, Duration::ZERO, 1, now);
        assert_eq!(shifts.allowed(), 1);
    }
}
