//! Clients that name their requests with an `Idempotency-Key` and send them again until they are answered.
//! Sometimes they send them again after that, at once or much later, to check that they get the same answer.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use fastrand::Rng;
use testkit::client::{Answer, Client};

use super::ledger::{Request, Said, Told};
use super::load::{ANSWER_MAX, Load, position, told};

/// A request that can be sent again, and its outcome so far.
struct Keyed {
    key: String,
    body: String,
    /// The entry for the ledger; it is entered when the request will not be sent again.
    request: Request,
    sent_before: bool,
}

impl Load<'_> {
    /// Writes with keys until it is told to stop.
    ///
    /// # Errors
    /// If an answer is not what the API promises.
    pub(super) fn write_keyed(mut self) -> Result<()> {
        // Requests that were answered, and are still to be sent again.
        let mut held: Vec<Keyed> = Vec::new();
        while !self.is_over() {
            if !held.is_empty() && self.rng.u32(..3) == 0 {
                let one = self.rng.usize(..held.len());
                self.send(&mut held[one])?;
                self.pause(true);
                continue;
            }
            let mut keyed = self.keyed()?;
            let is_queued = self.insist(&mut keyed)?;
            for _ in 0..AT_ONCE[self.rng.usize(..AT_ONCE.len())] {
                self.send(&mut keyed)?;
            }
            match is_queued && self.rng.bool() {
                true => held.push(keyed),
                false => self.ledger.enter(keyed.request),
            }
            if held.len() > HELD_MAX {
                let one = held.swap_remove(self.rng.usize(..held.len()));
                self.ledger.enter(one.request);
            }
            self.pause(is_queued);
        }
        for mut one in held {
            self.send(&mut one)?;
            self.ledger.enter(one.request);
        }
        Ok(())
    }

    fn keyed(&mut self) -> Result<Keyed> {
        let (writes, body) = self.request()?;
        let token = writes.first().context("a request has an operation")?.token;
        Ok(Keyed {
            key: format!("request-of-{token}"),
            body,
            request: Request {
                sent: 0,
                ended: 0,
                processes: (0, 0),
                told: Told::Refused(0),
                writes,
                said: Vec::new(),
            },
            sent_before: false,
        })
    }

    /// Sends the request until it is queued; now and then the client gives up before.
    fn insist(&mut self, keyed: &mut Keyed) -> Result<bool> {
        let mut give_up = None;
        loop {
            self.send(keyed)?;
            if matches!(keyed.request.told, Told::Queued(_)) {
                return Ok(true);
            }
            let now = Instant::now();
            let end = *give_up.get_or_insert(now + INSIST_MAX);
            let is_enough = self.rng.u32(..GIVES_UP_ONE_IN) == 0 || keyed.request.told == Told::Passed;
            if is_enough || self.is_over() && now > end {
                return Ok(false);
            }
            self.pause(false);
        }
    }

    /// Sends the request once; some clients hang up before there can be an answer.
    fn send(&mut self, keyed: &mut Keyed) -> Result<()> {
        let url = self.target.url(&mut self.rng).context("a gateway to write to")?;
        let client = Client::build(&url, None, patience(&mut self.rng))?;
        let (first, sent) = (self.ledger.process(), self.ledger.now());
        if !keyed.sent_before {
            keyed.sent_before = true;
            (keyed.request.sent, keyed.request.processes.0) = (sent, first);
        }
        let headers = [
            ("content-type", "application/x-ndjson"),
            ("idempotency-key", keyed.key.as_str()),
        ];
        let answer = client.send("POST", &self.path(), &headers, keyed.body.as_bytes());
        let request = &mut keyed.request;
        let was_queued = matches!(request.told, Told::Queued(_));
        if !was_queued {
            request.ended = self.ledger.now();
            request.processes.1 = self.ledger.process();
        }
        let Ok(answer) = answer else {
            if !was_queued {
                request.told = Told::Nothing;
            }
            return Ok(());
        };
        let now = match was_queued && answer.status == 200 {
            true => Told::Queued(position(&answer)?),
            false => told(&answer, &mut request.writes)?,
        };
        match (&now, &request.told) {
            (Told::Queued(_), _) => request.said.push(said(&answer)?),
            // A refusal does not say whether the request was accepted earlier, when it got no answer.
            (Told::Refused(status), before) => {
                if !REFUSALS.contains(status) {
                    bail!(
                        "a request that was sent again is refused with {status}: {:.500}",
                        answer.text()
                    );
                }
                if matches!(before, Told::Nothing) {
                    return Ok(());
                }
            }
            _ => {}
        }
        if !was_queued {
            request.told = now;
        }
        Ok(())
    }
}

fn said(answer: &Answer) -> Result<Said> {
    let repeated = match answer.header("x-tidegate-idempotency") {
        Some("kept") => false,
        Some("repeated") => true,
        other => bail!("a request with a key is answered with {other:?}"),
    };
    Ok(Said {
        position: position(answer)?,
        repeated,
        body: answer.text(),
    })
}

/// Returns how long a client waits: some hang up while they send, or while their request is written.
fn patience(rng: &mut Rng) -> Duration {
    match rng.u32(..4) {
        0 => Duration::from_micros(rng.u64(300..8_000)),
        _ => ANSWER_MAX,
    }
}

/// The statuses with which a request with a key may be refused; 409 while the same request is under way.
const REFUSALS: [u16; 3] = [409, 429, 503];
/// How often a request is sent again at once, although it was answered.
const AT_ONCE: [usize; 4] = [0, 0, 1, 2];
/// Number of requests of a client that are still to be sent again, much later.
const HELD_MAX: usize = 6;
/// A client gives up after one in this many failures.
const GIVES_UP_ONE_IN: u32 = 20;
/// How long a client without an answer goes on when the load has ended.
const INSIST_MAX: Duration = Duration::from_secs(3);
