//! How many requests for each target are under way before parts gather.
//!
//! One at a time carries the most, and costs a node the least. But a node works on a shard's part of a
//! request with one thread: nodes with cores to spare get more done with several, and those without do not.
//! Which it is only shows when it is tried. So now and then all targets of a kind go in turns, some answers
//! with as many requests as usual and some with twice or half as many, and what is got through in all
//! decides: by itself a node would also gain what it takes from others on the same machine. More have to gain
//! a good deal, since they cost the nodes more.

use std::time::{Duration, Instant};

/// Follows the slots of one kind. Time is given.
#[derive(Debug)]
pub(crate) struct Shifts {
    usual: u32,
    trial: Option<Trial>,
    /// What has been got through since the last change.
    tally: Tally,
    /// Up to when the tally's time goes; none before the first request.
    until: Option<Instant>,
    /// The longest that counts of a time with nothing under way: what the last answer took. Clients that take
    /// a while to come back are part of what is compared, a load that pauses is not.
    gap_most: Duration,
    /// Requests under way, and the most at once since the last change.
    under_way: u32,
    most: u32,
    /// Answers to come that say nothing of the present number, since they were sent under another.
    stale: u32,
    /// The time of the tally at which the next trial begins.
    pause: Duration,
    /// The next trial is with fewer.
    fewer: bool,
}

/// Turns with the usual number and another.
#[derive(Debug)]
struct Trial {
    other: u32,
    turns: usize,
    /// What it has taken.
    time: Duration,
    /// What the last turn with the usual number got through, bytes a second.
    rate: f64,
    /// How many times as much the turn with the other number after it did.
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

/// Turns of a trial with each number. The median counts: a node pauses and is busy with other things now and
/// then.
const PAIRS: usize = 5;

/// Answers of a turn, for each request under way, and how long it lasts at least and at most, unless answers
/// take longer.
const TURN_ANSWERS: u32 = 4;
const TURN_LEAST: Duration = Duration::from_millis(30);
const TURN_MOST: Duration = Duration::from_millis(800);

/// Before the first trial, and the longest between trials that change nothing.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_MOST: Duration = Duration::from_mins(1);

/// Between trials that change nothing is at least so many times what they take: half of it was with the wrong
/// number.
const TRIAL_SHARE: u32 = 10;

/// Twice as many requests have to get through so much more. With cores to spare it is nearly twice as much.
const WORTH: f64 = 1.5;

/// With half as many this much less is no loss. Smaller than `WORTH`, or it would go to and fro.
const NO_LOSS: f64 = 1.25;

// === impl Shifts ===

impl Shifts {
    /// `adaptive`: how many it is is found out; else it is always one.
    pub(crate) fn new(adaptive: bool) -> Self {
        if adaptive {
            Self::starting_with(1)
        } else {
            Self::fixed(1)
        }
    }

    /// Always so many.
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

    /// Requests under way beyond which parts gather, now.
    pub(super) fn allowed(&self) -> u32 {
        match &self.trial {
            Some(trial) if trial.turns % 2 == 1 => trial.other,
            _ => self.usual,
        }
    }

    /// The same, but for trials.
    pub(crate) fn usual(&self) -> u32 {
        self.usual
    }

    /// One more request is under way.
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

    /// One with `bytes` has returned after so long. `clients`: those that write to its target, it seems.
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
        // More than there are clients could not be told from as many.
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

    /// The end of a turn.
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
        // At least one: what waits gathered under the number before.
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
    /// Bytes a second.
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
