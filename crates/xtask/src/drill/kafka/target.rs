//! The target of clients before Kafka: any gateway that is up.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, bail};
use fastrand::Rng;
use testkit::driver::Reply;

use super::run::Gateway;
use crate::drill::ledger::{Told, Write};
use crate::drill::load::{Target, take_ids};
use crate::drill::ways::Way;

/// Gateways that share a topic.
pub(super) struct Gateways<'g>(pub(super) &'g [Gateway]);

impl Target for Gateways<'_> {
    fn address(&self, rng: &mut Rng) -> Option<SocketAddr> {
        let up: Vec<&Gateway> = self.0.iter().filter(|one| one.is_up()).collect();
        rng.choice(up)?.place.listens_at().parse().ok()
    }

    fn way(&self, _rng: &mut Rng) -> Way {
        Way::Bulk
    }

    /// Gives shared documents other ids every few seconds. The documents of the time before then stay as they
    /// are, so a flaw in them still shows in the end.
    fn rename(&self, writes: &mut [Write], age_ms: u64) {
        for write in writes.iter_mut().filter(|write| !write.only) {
            write.id = write.id.take().map(|id| format!("{id}-{}", age_ms / EPOCH_MS));
        }
    }

    /// Identifies a request by the moment at which it ended, since it has no position that could be compared.
    fn told(&self, _way: Way, reply: Result<Reply<'_>>, writes: &mut [Write], ended: u64) -> Result<Told> {
        let Ok(answer) = reply else {
            return Ok(Told::Perhaps);
        };
        match answer.status {
            200 if answer.header("x-tidegate-ack").is_none() => Ok(Told::Passed),
            200 => {
                take_ids(&answer, writes)?;
                Ok(Told::Queued(ended))
            }
            429 | 503 => Ok(Told::Perhaps),
            status => bail!("{status}: {:.300}", answer.text()),
        }
    }

    fn after_failure(&self) -> Duration {
        Duration::from_millis(100)
    }
}

const EPOCH_MS: u64 = 3_000;
