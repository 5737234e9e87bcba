//! Requests that the brokers do not acknowledge in time.
//!
//! The library can time messages out by itself, and goes on then with a new epoch, since the numbers of its
//! messages have a gap. It sends with the new epoch whatever it has to send again, and some of that may be in
//! the topic already, from before: brokers know duplicates within one epoch only. So no message ever times
//! out in the library. Once a request has waited too long, the producer gives up all that it has, and the
//! epoch begins with nothing to send again.
//!
//! The producer itself stays, and with it its id: brokers refuse what arrives late from an earlier epoch of
//! the same producer (it may lie unread in a broker's connection), so it cannot come behind later messages.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::produce::Producing;
use super::threads::{self, caught};

/// The requests that wait for a producer, by when they began. Those that began within [`STEP`] have one
/// entry, so that the memory for this is bounded.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Mutex<VecDeque<(Instant, Arc<()>)>>);

/// A request that waits, until this is dropped.
#[derive(Debug)]
pub(crate) struct Waits(#[expect(dead_code, reason = "it is counted")] Arc<()>);

// === impl Waiting ===

impl Waiting {
    pub(crate) fn begin(&self) -> Waits {
        let mut waiting = self.0.lock();
        let now = Instant::now();
        match waiting.back() {
            Some((since, those)) if now.saturating_duration_since(*since) < STEP => Waits(Arc::clone(those)),
            _ => {
                let those = Arc::new(());
                waiting.push_back((now, Arc::clone(&those)));
                Waits(those)
            }
        }
    }

    /// Whether a request has waited for at least this time. If so, all count as if they began now: they are
    /// about to be given up, and what escapes that is late again after the same time.
    pub(crate) fn is_late(&self, time: Duration) -> bool {
        let mut waiting = self.0.lock();
        waiting.retain(|(_, those)| Arc::strong_count(those) > 1);
        let is_late = waiting.front().is_some_and(|(since, _)| since.elapsed() >= time);
        if is_late {
            let now = Instant::now();
            waiting.iter_mut().for_each(|(since, _)| *since = now);
        }
        is_late
    }
}

/// Starts to look for late requests, until their topic is gone.
pub(crate) fn start(producing: &Arc<Producing>) -> io::Result<()> {
    let producing = Arc::downgrade(producing);
    threads::spawn("kafka-late", move || run(&producing)).map(drop)
}

fn run(producing: &Weak<Producing>) {
    while let Some(producing) = producing.upgrade() {
        caught("late messages are looked for again in a moment", || {
            producing.give_up_late();
            producing.replace_if_broken();
        });
        let step = (producing.ack_timeout() / 10).clamp(STEP, STEP_MAX);
        drop(producing);
        thread::sleep(step);
    }
}

/// The least and the longest time between two looks for late requests.
const STEP: Duration = Duration::from_millis(100);
const STEP_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_request_that_still_waits_is_what_counts_and_those_of_a_moment_take_one_place() {
        let waiting = Waiting::default();
        assert!(!waiting.is_late(Duration::ZERO));
        let first: Vec<Waits> = (0..1000).map(|_| waiting.begin()).collect();
        let places = waiting.0.lock().len();
        assert!(places < 50, "{places}");
        thread::sleep(2 * STEP);
        let second = waiting.begin();
        assert!(waiting.is_late(2 * STEP));
        assert!(!waiting.is_late(2 * STEP), "all are given up");
        thread::sleep(2 * STEP);
        let third = waiting.begin();
        drop((first, second));
        assert!(!waiting.is_late(2 * STEP), "the third has not waited so long");
        assert!(waiting.is_late(Duration::ZERO));
        drop(third);
        assert!(!waiting.is_late(Duration::ZERO));
        assert!(waiting.0.lock().is_empty());
    }
}
