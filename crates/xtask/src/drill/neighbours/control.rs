//! The control: a client that talks to the cluster directly while the good clients talk to the gateway. It
//! shows what the machine is to blame for.
//!
//! Whatever holds the control up (other processes on few cores, the load generator's own threads, a slow
//! cluster) also holds up the good clients, and is nothing that the gateway could have prevented.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use testkit::client::Client;

use super::good::{ALONE, BESIDE};

/// The control's requests, one after the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Control {
    waits: Vec<(Instant, Duration)>,
    /// How long the requests took while good clients were alone, and beside hostile ones.
    alone: Vec<Duration>,
    beside: Vec<Duration>,
}

impl Control {
    /// Writes small bulks until it is told to stop.
    pub(super) fn run(url: &str, stop: &AtomicBool, phase: &AtomicU8, pause: Duration) -> Self {
        let mut control = Self::default();
        let body = "{\"index\":{\"_index\":\"control\",\"_id\":\"1\"}}\n{\"n\":1}\n".repeat(5);
        let Ok(client) = Client::build(url, None, Duration::from_secs(20)) else {
            return control;
        };
        while !stop.load(Ordering::SeqCst) {
            let (began, during) = (Instant::now(), phase.load(Ordering::SeqCst));
            let answer = client.post_ndjson("/_bulk", body.as_bytes());
            let took = began.elapsed();
            if answer.is_ok_and(|answer| answer.status == 200) {
                control.add(began, took);
                if during == phase.load(Ordering::SeqCst) {
                    control.count_in(during, took);
                }
            }
            std::thread::sleep(pause);
        }
        control
    }

    pub(super) fn add(&mut self, began: Instant, took: Duration) {
        self.waits.push((began, took));
    }

    /// Counts the duration of a request in a phase.
    pub(super) fn count_in(&mut self, phase: u8, took: Duration) {
        match phase {
            ALONE => self.alone.push(took),
            BESIDE => self.beside.push(took),
            _ => {}
        }
    }

    /// Returns how long the requests took while good clients were alone, and beside hostile ones.
    pub(super) fn took(&self) -> (&[Duration], &[Duration]) {
        (&self.alone, &self.beside)
    }

    pub(super) fn count(&self) -> usize {
        self.waits.len()
    }

    /// Returns the longest wait of a request that was under way in this time.
    pub(super) fn stalled(&self, from: Instant, to: Instant) -> Duration {
        let newest_first = self.waits.iter().rev();
        let under_way = newest_first
            .skip_while(|(began, _)| *began > to)
            .take_while(|(began, took)| *began + *took >= from);
        under_way.map(|(_, took)| *took).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_told_to_those_who_were_there() {
        let at = |ms: u64| Duration::from_millis(ms);
        let (zero, mut control) = (Instant::now(), Control::default());
        for (began, took) in [(0, 1), (10, 200), (220, 2), (300, 3)] {
            control.add(zero + at(began), at(took));
        }
        let stalled = |from, to| control.stalled(zero + at(from), zero + at(to));
        assert_eq!(stalled(0, 5), at(1));
        assert_eq!(stalled(100, 120), at(200));
        assert_eq!(stalled(205, 230), at(200));
        assert_eq!(stalled(215, 230), at(2));
        assert_eq!(stalled(240, 290), Duration::ZERO);
        assert_eq!(stalled(310, 400), Duration::ZERO);
    }
}
