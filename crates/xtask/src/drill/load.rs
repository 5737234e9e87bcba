//! The load of the drills: clients of the load driver, which enter the outcomes of their requests into the
//! ledger.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use fastrand::Rng;
use serde_json::Value;
use testkit::driver::{self, Client, Connection, Outcome, Reply, Server};

use super::gateway_under_test::GatewayUnderTest;
use super::ledger::{Ledger, Request, Told, Write, WriteKind};
use super::schedule::Setup;
use super::ways::Way;
use super::world::{UNFIT, alias, made_again};

/// The target of clients: its address, the requests that it takes, and the meaning of its answers.
pub(super) trait Target: Sync {
    /// Returns the address for a request; none: no gateway is up.
    fn address(&self, rng: &mut Rng) -> Option<SocketAddr>;

    /// Returns the way in which to send a request.
    fn way(&self, rng: &mut Rng) -> Way;

    /// Gives operations other ids, `age_ms` after the client began.
    fn rename(&self, _writes: &mut [Write], _age_ms: u64) {}

    /// Returns what the client knows from an answer, or from having none, and records ids that the gateway
    /// made. `ended` is the moment at which the request ended, on the ledger's clock.
    ///
    /// # Errors
    /// If the answer is not what the API promises.
    fn told(&self, way: Way, reply: Result<Reply<'_>>, writes: &mut [Write], ended: u64) -> Result<Told>;

    /// The time that a client waits, besides its usual pause, after a request that was not queued.
    fn after_failure(&self) -> Duration;
}

/// A client: what it needs for writing, and for how long it writes.
pub(super) struct Load<'l> {
    pub(super) target: &'l dyn Target,
    pub(super) stop: &'l AtomicBool,
    pub(super) ledger: &'l Ledger,
    pub(super) setup: &'l Setup,
    pub(super) index: &'l str,
    pub(super) rng: Rng,
    /// Whether the client writes through names that come to lead elsewhere.
    pub(super) moving: bool,
    pub(super) begun: Instant,
}

/// What a client remembers of a request that it sends.
pub(super) struct Sent {
    way: Way,
    writes: Vec<Write>,
    process: u32,
    moment: u64,
}

/// A gateway with its queue on its disk.
impl Target for GatewayUnderTest {
    fn address(&self, _rng: &mut Rng) -> Option<SocketAddr> {
        self.listens_at().parse().ok()
    }

    fn way(&self, rng: &mut Rng) -> Way {
        Way::any(rng)
    }

    fn told(&self, way: Way, reply: Result<Reply<'_>>, writes: &mut [Write], _ended: u64) -> Result<Told> {
        match reply {
            Err(_) => Ok(Told::Nothing),
            Ok(reply) => way.told(&reply, writes),
        }
    }

    fn after_failure(&self) -> Duration {
        Duration::from_millis(10)
    }
}

impl Load<'_> {
    /// Writes until it is told to stop.
    ///
    /// # Errors
    /// If an answer is not what the API promises.
    pub(super) fn write(mut self) -> Result<()> {
        driver::drive(Connection::default(), &mut self)
    }

    /// Returns the operations of the next request, and its body if it goes as a bulk.
    pub(super) fn request_by(&mut self, way: Way) -> Result<(Vec<Write>, String)> {
        let age_ms = u64::try_from(self.begun.elapsed().as_millis())?;
        let fresh = format!("{}-new-{}", self.index, age_ms / self.setup.index_ms);
        let mut writes = writes(self.ledger, self.setup, &fresh, &mut self.rng);
        if self.moving {
            let (alias, again) = (alias(self.index), made_again(self.index));
            through_moving_names(&mut writes, &alias, &again, &mut self.rng);
        }
        way.choose(&mut writes);
        self.target.rename(&mut writes, age_ms);
        let body = body(&writes, &mut self.rng);
        Ok((writes, body))
    }

    pub(super) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn pause(&mut self, is_good: bool) {
        let pause = Duration::from_millis(self.rng.u64(..=self.setup.pause_ms));
        std::thread::sleep(match is_good {
            true => pause,
            false => pause + self.target.after_failure(),
        });
    }
}

/// A client that sends each request once.
impl Client for Load<'_> {
    type Sent = Sent;

    fn request(&mut self) -> Result<Option<(driver::Request<'_>, Sent)>> {
        let address = loop {
            if self.is_over() {
                return Ok(None);
            }
            match self.target.address(&mut self.rng) {
                Some(address) => break address,
                None => std::thread::sleep(self.target.after_failure()),
            }
        };
        let way = self.target.way(&mut self.rng);
        let (writes, body) = self.request_by(way)?;
        let request = driver::Request {
            // Each request gets a new connection: one that broke while it was idle would cause another kind
            // of failure.
            connect: Some(Server::plain(address, ANSWER_MAX)),
            bytes: way.request(address, self.index, &writes, &body)?.into(),
        };
        let (process, moment) = (self.ledger.process(), self.ledger.now());
        let sent = Sent {
            way,
            writes,
            process,
            moment,
        };
        Ok(Some((request, sent)))
    }

    fn outcome(&mut self, mut sent: Sent, outcome: Outcome<'_>) -> Result<()> {
        let ended = self.ledger.now();
        let told = self
            .target
            .told(sent.way, outcome.reply, &mut sent.writes, ended)?;
        let is_good = matches!(told, Told::Queued(_));
        self.ledger.enter(Request {
            sent: sent.moment,
            ended,
            processes: (sent.process, self.ledger.process()),
            told,
            writes: sent.writes,
            said: Vec::new(),
        });
        self.pause(is_good);
        Ok(())
    }
}

/// Reads an answer, and records ids that the gateway made.
pub(super) fn told(answer: &Reply<'_>, writes: &mut [Write]) -> Result<Told> {
    if answer.status != 200 {
        return Ok(Told::Refused(answer.status));
    }
    if answer.header("x-tidegate-ack").is_none() {
        return Ok(Told::Passed);
    }
    let position = position(answer)?;
    take_ids(answer, writes)?;
    Ok(Told::Queued(position))
}

/// Reads an answer that acknowledges everything, and records ids that the gateway made.
pub(super) fn take_ids(answer: &Reply<'_>, writes: &mut [Write]) -> Result<()> {
    let answer = answer.json()?;
    let items = answer["items"].as_array().context("items in an answer")?;
    anyhow::ensure!(
        answer["errors"] == false && items.len() == writes.len(),
        "{} items for {} operations, errors {}",
        items.len(),
        writes.len(),
        answer["errors"]
    );
    for (item, write) in items.iter().zip(writes) {
        let item = item.as_object().and_then(|item| item.values().next());
        let id = item
            .and_then(|item| item["_id"].as_str())
            .context("an id in an item")?;
        match &write.id {
            Some(sent) => anyhow::ensure!(sent == id, "the item of {sent} says {id}"),
            None => write.id = Some(id.to_owned()),
        }
    }
    Ok(())
}

/// Returns the position in the queue that an answer names.
pub(super) fn position(answer: &Reply<'_>) -> Result<u64> {
    let ack = answer.header("x-tidegate-ack").unwrap_or_default();
    let position = ack
        .rsplit_once("position=")
        .and_then(|(_, position)| position.parse().ok());
    position.with_context(|| format!("no position in {ack:?}"))
}

/// Returns the operations of a request: on documents of its own, with and without ids, and on documents that
/// everybody writes to. At least one operation is on a document of its own and acceptable to the clusters, so
/// that the outcome of a request shows.
fn writes(ledger: &Ledger, setup: &Setup, fresh: &str, rng: &mut Rng) -> Vec<Write> {
    let count = rng.usize(1..=setup.docs_max);
    let mut deleted = Vec::new();
    let one = |number: usize| {
        let token = ledger.token();
        let is_own = number == 0 || rng.u32(..100) < 40;
        if is_own {
            let index = (rng.u32(..8) == 0).then(|| fresh.to_owned());
            return Write {
                id: rng.bool().then(|| format!("u{token}")),
                kind: WriteKind::Create,
                token,
                // A new index maps the field to whatever comes first, so nothing is unfit there.
                unfit: number > 0 && setup.with_unfit() && index.is_none() && rng.u32(..40) == 0,
                only: true,
                index,
            };
        }
        let id = format!("s{}", rng.u64(..setup.shared_ids));
        let kind = match rng.u32(..10) {
            // At most one delete per document, since a dead letter of a delete names only the document.
            0 if !deleted.contains(&id) => WriteKind::Delete,
            1..=3 => WriteKind::Update,
            _ => WriteKind::Index,
        };
        if kind == WriteKind::Delete {
            deleted.push(id.clone());
        }
        Write {
            id: Some(id),
            kind,
            token,
            unfit: kind != WriteKind::Delete && setup.with_unfit() && rng.u32(..40) == 0,
            only: false,
            index: None,
        }
    };
    let mut writes: Vec<Write> = (0..count).map(one).collect();
    rng.shuffle(&mut writes);
    writes
}

/// Lets some operations go through names that come to lead elsewhere. The ids of their documents have a
/// prefix that distinguishes them.
fn through_moving_names(writes: &mut [Write], alias: &str, again: &str, rng: &mut Rng) {
    for write in writes.iter_mut().filter(|write| write.index.is_none()) {
        match (write.only, rng.u32(..3)) {
            (true, 0) => write.index = Some(alias.to_owned()),
            (false, 0 | 1) => {
                let (name, prefix) = match rng.bool() {
                    true => (alias, IN_MANY),
                    false => (again, MADE_AGAIN),
                };
                write.index = Some(name.to_owned());
                write.id = write.id.take().map(|id| format!("{prefix}{id}"));
            }
            _ => {}
        }
    }
}

fn body(writes: &[Write], rng: &mut Rng) -> String {
    let mut text = String::new();
    for write in writes {
        let operation = match write.kind {
            WriteKind::Create => "create",
            WriteKind::Index => "index",
            WriteKind::Update => "update",
            WriteKind::Delete => "delete",
        };
        let id = write.id.iter().map(|id| format!("\"_id\":\"{id}\""));
        let index = write.index.iter().map(|index| format!("\"_index\":\"{index}\""));
        let meta: Vec<String> = index.chain(id).collect();
        text.push_str(&format!("{{\"{operation}\":{{{}}}}}\n", meta.join(",")));
        if write.kind == WriteKind::Delete {
            continue;
        }
        let n = match write.unfit {
            true => Value::from(format!("{UNFIT}-{}", write.token)),
            false => Value::from(rng.u32(..)),
        };
        let padding = "x".repeat(rng.usize(..200));
        let source = format!("{{\"w\":{},\"n\":{n},\"p\":\"{padding}\"}}", write.token);
        match write.kind {
            WriteKind::Update => text.push_str(&format!("{{\"doc\":{source},\"doc_as_upsert\":true}}\n")),
            _ => text.push_str(&format!("{source}\n")),
        }
    }
    text
}

/// The prefix of ids of documents that may be in several of an alias's indices.
pub(super) const IN_MANY: &str = "many-";
/// The prefix of ids of documents in an index that is deleted and made again.
pub(super) const MADE_AGAIN: &str = "renewed-";
/// A client that waits longer than this has no answer.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drill::schedule::Schedule;

    #[test]
    fn every_request_has_an_operation_of_its_own_that_will_be_taken_and_one_delete_a_document() {
        let (ledger, mut rng) = (Ledger::default(), Rng::with_seed(1));
        for seed in 0..50 {
            let setup = Schedule::fake(seed, false).setup;
            let writes = writes(&ledger, &setup, "new", &mut rng);
            assert!(writes.iter().any(|write| write.only && !write.unfit));
            let deletes = |id: &Option<String>| {
                writes
                    .iter()
                    .filter(|write| write.kind == WriteKind::Delete && write.id == *id)
                    .count()
            };
            assert!(writes.iter().all(|write| deletes(&write.id) <= 1));
            let lines = body(&writes, &mut rng);
            for line in lines.lines() {
                assert!(serde_json::from_str::<Value>(line).is_ok(), "{line}");
            }
        }
    }
}
