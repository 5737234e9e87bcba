//! Clients that name their requests with an `Idempotency-Key` and send them again until they are answered.
//! Sometimes they send them again after that, at once or much later, to check that they get the same answer.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use fastrand::Rng;
use testkit::driver::{self, Client, Connection, Outcome, Reply, Server};

use super::ledger::{Ledger, Request, Said, Told};
use super::load::{ANSWER_MAX, Load, position, told};
use super::ways::Way;

/// A client that names its requests.
struct Keyed<'l> {
    load: Load<'l>,
    /// Requests that were answered, and are still to be sent again.
    held: Vec<KeyedRequest>,
    /// What is to be sent again at once.
    next: Option<(KeyedRequest, Step)>,
}

/// A request that can be sent again, and its outcome so far.
struct KeyedRequest {
    key: String,
    body: String,
    /// The entry for the ledger; it is entered when the request will not be sent again.
    request: Request,
    sent_before: bool,
}

/// Why a request is sent.
#[derive(Clone, Copy)]
enum Step {
    /// Until it is queued. The moment is when the client gives up, once the load has ended.
    Insist(Option<Instant>),
    /// Although it was answered, so many times.
    AtOnce { left: usize, is_queued: bool },
    /// Much later.
    Later,
    /// Because the load has ended.
    Last,
}

impl Load<'_> {
    /// Writes with keys until it is told to stop.
    ///
    /// # Errors
    /// If an answer is not what the API promises.
    pub(super) fn write_keyed(self) -> Result<()> {
        let mut keyed = Keyed {
            load: self,
            held: Vec::new(),
            next: None,
        };
        driver::drive(Connection::default(), &mut keyed)
    }
}

impl Client for Keyed<'_> {
    type Sent = (KeyedRequest, Step);

    fn request(&mut self) -> Result<Option<(driver::Request<'_>, Self::Sent)>> {
        let next = match self.next.take() {
            None => self.choose()?,
            next => next,
        };
        let Some((mut keyed, step)) = next else {
            return Ok(None);
        };
        let load = &mut self.load;
        let address = load.target.address(&mut load.rng);
        let address = address.context("a gateway to write to")?;
        let headers = [driver::NDJSON, ("idempotency-key", keyed.key.as_str())];
        let bulk = format!("/{}/_bulk", load.index);
        let request = driver::Request {
            // Some clients hang up before there can be an answer.
            connect: Some(Server::plain(address, patience(&mut load.rng))),
            bytes: driver::request(("POST", &bulk), address, &headers, keyed.body.as_bytes()).into(),
        };
        let (process, sent) = (load.ledger.process(), load.ledger.now());
        if !keyed.sent_before {
            keyed.sent_before = true;
            (keyed.request.sent, keyed.request.processes.0) = (sent, process);
        }
        Ok(Some((request, (keyed, step))))
    }

    fn outcome(&mut self, (mut keyed, step): Self::Sent, outcome: Outcome<'_>) -> Result<()> {
        keyed.note(outcome.reply, self.load.ledger)?;
        let step = match step {
            Step::Later => {
                self.held.push(keyed);
                self.load.pause(true);
                return Ok(());
            }
            Step::Last => {
                self.load.ledger.enter(keyed.request);
                return Ok(());
            }
            Step::Insist(give_up) => self.after_insisting(&keyed, give_up),
            Step::AtOnce { left, is_queued } => {
                let left = left - 1;
                Step::AtOnce { left, is_queued }
            }
        };
        match step {
            Step::AtOnce { left: 0, is_queued } => self.conclude(keyed, is_queued),
            step => self.next = Some((keyed, step)),
        }
        Ok(())
    }
}

impl Keyed<'_> {
    /// Returns what to send next; none: the load has ended, and nothing is to be sent again.
    fn choose(&mut self) -> Result<Option<(KeyedRequest, Step)>> {
        if self.load.is_over() {
            return Ok(self.held.pop().map(|one| (one, Step::Last)));
        }
        if !self.held.is_empty() && self.load.rng.u32(..3) == 0 {
            let one = self.load.rng.usize(..self.held.len());
            return Ok(Some((self.held.swap_remove(one), Step::Later)));
        }
        let (writes, body) = self.load.request_by(Way::Bulk)?;
        let token = writes.first().context("a request has an operation")?.token;
        let keyed = KeyedRequest {
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
        };
        Ok(Some((keyed, Step::Insist(None))))
    }

    /// Decides whether the request is sent until it is queued; now and then the client gives up before.
    fn after_insisting(&mut self, keyed: &KeyedRequest, give_up: Option<Instant>) -> Step {
        let (load, told) = (&mut self.load, &keyed.request.told);
        let is_queued = matches!(told, Told::Queued(_));
        if !is_queued {
            let now = Instant::now();
            let end = give_up.unwrap_or(now + INSIST_MAX);
            let is_enough = load.rng.u32(..GIVES_UP_ONE_IN) == 0 || *told == Told::Passed;
            if !(is_enough || load.is_over() && now > end) {
                load.pause(false);
                return Step::Insist(Some(end));
            }
        }
        let left = AT_ONCE[load.rng.usize(..AT_ONCE.len())];
        Step::AtOnce { left, is_queued }
    }

    /// Keeps a request for later, or enters it into the ledger.
    fn conclude(&mut self, keyed: KeyedRequest, is_queued: bool) {
        let load = &mut self.load;
        match is_queued && load.rng.bool() {
            true => self.held.push(keyed),
            false => load.ledger.enter(keyed.request),
        }
        if self.held.len() > HELD_MAX {
            let one = self.held.swap_remove(load.rng.usize(..self.held.len()));
            load.ledger.enter(one.request);
        }
        load.pause(is_queued);
    }
}

impl KeyedRequest {
    /// Notes what one sending of the request came to.
    fn note(&mut self, reply: Result<Reply<'_>>, ledger: &Ledger) -> Result<()> {
        let request = &mut self.request;
        let was_queued = matches!(request.told, Told::Queued(_));
        if !was_queued {
            request.ended = ledger.now();
            request.processes.1 = ledger.process();
        }
        let Ok(answer) = reply else {
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

fn said(answer: &Reply<'_>) -> Result<Said> {
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
