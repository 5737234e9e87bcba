//! Clients of several gateways. Each sends one request after another, to any gateway that is there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use fastrand::Rng;
use testkit::client::{Answer, Client};

use super::run::Gateway;
use crate::drill::ledger::{Ledger, Request, Told, Write};
use crate::drill::load::{ANSWER_MAX, body, take_ids, through_moving_names, writes};
use crate::drill::schedule::Setup;
use crate::drill::world::{alias, made_again};

/// A client.
pub(super) struct Writer<'l> {
    pub(super) stop: &'l AtomicBool,
    pub(super) ledger: &'l Ledger,
    pub(super) setup: &'l Setup,
    pub(super) gateways: &'l [Gateway],
    pub(super) index: &'l str,
    pub(super) rng: Rng,
}

impl Writer<'_> {
    /// Writes until it is told to stop.
    ///
    /// # Errors
    /// When an answer is not what the API promises.
    pub(super) fn write(mut self) -> Result<()> {
        let begun = Instant::now();
        while !self.stop.load(Ordering::Relaxed) {
            let up: Vec<&Gateway> = self.gateways.iter().filter(|one| one.is_up()).collect();
            let Some(gateway) = self.rng.choice(&up) else {
                std::thread::sleep(AFTER_FAILURE);
                continue;
            };
            let (mut writes, body) = self.request(begun.elapsed());
            let (process, sent) = (self.ledger.process(), self.ledger.now());
            let answer = Client::build(&gateway.place.url(), None, ANSWER_MAX)
                .and_then(|client| client.post_ndjson(&format!("/{}/_bulk", self.index), body.as_bytes()));
            let ended = self.ledger.now();
            let told = match answer {
                Ok(answer) => told(&answer, &mut writes, ended)?,
                Err(_) => Told::Perhaps,
            };
            let is_good = matches!(told, Told::Queued(_));
            self.ledger.enter(Request {
                sent,
                ended,
                processes: (process, process),
                told,
                writes,
                said: Vec::new(),
            });
            let pause = Duration::from_millis(self.rng.u64(..=self.setup.pause_ms));
            std::thread::sleep(if is_good { pause } else { pause + AFTER_FAILURE });
        }
        Ok(())
    }

    /// What is written again and again has other ids every few seconds: what became of it by then stays, and
    /// shows in the end.
    fn request(&mut self, since: Duration) -> (Vec<Write>, String) {
        let age = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let fresh = format!("{}-new-{}", self.index, age / self.setup.index_ms);
        let mut writes = writes(self.ledger, self.setup, &fresh, &mut self.rng);
        if MOVES {
            let (alias, again) = (alias(self.index), made_again(self.index));
            through_moving_names(&mut writes, &alias, &again, &mut self.rng);
        }
        for write in writes.iter_mut().filter(|write| !write.only) {
            write.id = write.id.take().map(|id| format!("{id}-{}", age / EPOCH_MS));
        }
        let body = body(&writes, &mut self.rng);
        (writes, body)
    }
}

/// Reads an answer. `moment` names the request, since it has no position that could be compared.
fn told(answer: &Answer, writes: &mut [Write], moment: u64) -> Result<Told> {
    match answer.status {
        200 if answer.header("x-tidegate-ack").is_none() => Ok(Told::Passed),
        200 => {
            take_ids(answer, writes)?;
            Ok(Told::Queued(moment))
        }
        429 | 503 => Ok(Told::Perhaps),
        status => bail!("{status}: {:.300}", answer.text()),
    }
}

/// Whether clients write through names that come to lead elsewhere.
const MOVES: bool = false;
const AFTER_FAILURE: Duration = Duration::from_millis(100);
const EPOCH_MS: u64 = 3_000;
