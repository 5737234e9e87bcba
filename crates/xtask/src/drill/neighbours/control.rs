//! The control: a client that talks to the cluster directly while the good clients talk to the gateway. It
//! shows what the machine is to blame for.
//!
//! Whatever holds the control up (other processes on few cores, the load generator's own threads, a slow
//! cluster) also holds up the good clients, and is nothing that the gateway could have prevented.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use testkit::driver::{self, Client, Connection, Outcome, Server};

use super::good::{ACCOUNT, ALONE, BESIDE};
use super::setup::Fabric;

/// The control's requests, one after the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Control {
    waits: Vec<(Instant, Duration)>,
    /// How long the requests took while good clients were alone, and beside hostile ones.
    alone: Vec<Duration>,
    beside: Vec<Duration>,
    /// The requests that add a field to a mapping. The cluster's master does this, after everything that it
    /// was asked to do before, and no timeout of the request bounds the wait.
    mappings: Vec<(Instant, Duration)>,
}

/// The requests of a control.
enum Writes {
    /// The same bulk each time.
    Same(Vec<u8>),
    /// A document with one more field each time.
    Fields { to: SocketAddr, count: u32 },
}

/// The control at work.
struct Working<'a> {
    control: Control,
    writes: Writes,
    stop: &'a AtomicBool,
    phase: &'a AtomicU8,
    pause: Duration,
}

impl Client for Working<'_> {
    /// The phase in which the request was sent.
    type Sent = u8;

    fn request(&mut self) -> Result<Option<(driver::Request<'_>, u8)>> {
        let during = self.phase.load(Ordering::SeqCst);
        let connect = None;
        let bytes = match &mut self.writes {
            Writes::Same(bytes) => bytes.as_slice().into(),
            Writes::Fields { to, count } => {
                *count += 1;
                let body = format!("{ACTION}{{\"of_the_control_{count}\":1}}\n");
                driver::request(("POST", "/_bulk"), *to, &[driver::NDJSON], body.as_bytes()).into()
            }
        };
        let is_over = self.stop.load(Ordering::SeqCst);
        Ok((!is_over).then_some((driver::Request { connect, bytes }, during)))
    }

    fn outcome(&mut self, during: u8, outcome: Outcome<'_>) -> Result<()> {
        let is_taken = outcome.reply.is_ok_and(|reply| reply.status == 200);
        if matches!(self.writes, Writes::Fields { .. }) {
            // One that the cluster refuses or does not answer has waited as well.
            self.control.mappings.push((outcome.began, outcome.took));
        } else if is_taken {
            self.control.add(outcome.began, outcome.took);
            if during == self.phase.load(Ordering::SeqCst) {
                self.control.count_in(during, outcome.took);
            }
        }
        std::thread::sleep(self.pause);
        Ok(())
    }
}

impl Control {
    /// Writes small bulks until it is told to stop. A control that cannot connect has no waits, which is a
    /// flaw of the run.
    pub(super) fn run(to: SocketAddr, fabric: &Fabric, stop: &AtomicBool, phase: &AtomicU8) -> Self {
        let account = fabric.is_secured().then_some(ACCOUNT);
        let headers: Vec<_> = [driver::NDJSON].into_iter().chain(account).collect();
        let body = format!("{ACTION}{{\"n\":1}}\n").repeat(5);
        let bytes = driver::request(("POST", "/_bulk"), to, &headers, body.as_bytes());
        let pause = fabric.pause();
        Self::run_with(Writes::Same(bytes), to, (stop, phase, pause))
    }

    /// Adds fields to a mapping until it is told to stop, if the cluster is a real one.
    pub(super) fn run_fields(to: SocketAddr, fabric: &Fabric, stop: &AtomicBool, phase: &AtomicU8) -> Self {
        match fabric {
            Fabric::Fake(..) => Self::default(),
            Fabric::Real(_) => {
                Self::run_with(Writes::Fields { to, count: 0 }, to, (stop, phase, BETWEEN_FIELDS))
            }
        }
    }

    fn run_with(
        writes: Writes,
        to: SocketAddr,
        (stop, phase, pause): (&AtomicBool, &AtomicU8, Duration),
    ) -> Self {
        let mut working = Working {
            control: Self::default(),
            writes,
            stop,
            phase,
            pause,
        };
        let connection = Connection::open(&Server::plain(to, Duration::from_secs(20)));
        let _ = connection.and_then(|connection| driver::drive(connection, &mut working));
        working.control
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

    /// Takes over the requests of another control that add fields.
    pub(super) fn with_fields_of(mut self, other: Self) -> Self {
        self.mappings = other.mappings;
        self
    }

    /// Returns the longest wait of a request that was under way in this time.
    pub(super) fn stalled(&self, from: Instant, to: Instant) -> Duration {
        longest(&self.waits, (from, to))
    }

    /// Returns the longest wait of a request that added a field to a mapping and was under way in this time.
    pub(super) fn mapping_took(&self, from: Instant, to: Instant) -> Duration {
        longest(&self.mappings, (from, to))
    }

    pub(super) fn mapping_max(&self) -> Duration {
        let waits = self.mappings.iter().map(|(_, took)| *took);
        waits.max().unwrap_or_default()
    }

    #[cfg(test)]
    pub(super) fn add_mapping(&mut self, began: Instant, took: Duration) {
        self.mappings.push((began, took));
    }
}

/// Returns the longest of some waits, one after the other, that were under way in this time.
fn longest(waits: &[(Instant, Duration)], (from, to): (Instant, Instant)) -> Duration {
    let newest_first = waits.iter().rev();
    let under_way = newest_first
        .skip_while(|(began, _)| *began > to)
        .take_while(|(began, took)| *began + *took >= from);
    under_way.map(|(_, took)| *took).max().unwrap_or_default()
}

const ACTION: &str = "{\"index\":{\"_index\":\"control\",\"_id\":\"1\"}}\n";
/// A mapping may have 1,000 fields.
const BETWEEN_FIELDS: Duration = Duration::from_millis(200);

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
