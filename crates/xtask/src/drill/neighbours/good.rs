//! Good clients, which do everything right.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use fastrand::Rng;
use testkit::client;
use testkit::driver::{self, Client, Connection, Outcome, Reply, Server};

use super::verdict::Wait;

/// A good client.
pub(super) struct Good<'a> {
    pub(super) address: SocketAddr,
    /// The address where the documents can be read from the cluster, if they get there through the queue.
    pub(super) reads: Option<String>,
    /// Says what the gateway's queue waits for.
    pub(super) queue: &'a (dyn Fn() -> String + Sync),
    /// Whether the cluster has users: then this client is one of them.
    pub(super) has_account: bool,
    /// The number in its last document.
    pub(super) token: u64,
    /// What it was told so far.
    pub(super) told: Told,
    pub(super) stop: &'a AtomicBool,
    /// The phase, one of the constants here: whether hostile clients are there at the moment.
    pub(super) phase: &'a AtomicU8,
    pub(super) pause: Duration,
    pub(super) rng: Rng,
}

/// A request of a good client.
pub(super) struct Sent {
    documents: Vec<(String, u64)>,
    /// The phase in which it was sent.
    phase: u8,
    /// Whether it was sent on a new connection.
    is_new: bool,
    bytes: usize,
}

/// The answers to a good client.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) index: &'static str,
    /// Ids and tokens of documents that are written, according to the answers.
    pub(super) written: Vec<(String, u64)>,
    /// Answers that a good client should not get.
    pub(super) wronged: Vec<String>,
    /// Requests without an answer: when each began, how long the client waited, and how it ended.
    pub(super) unanswered: Vec<(Instant, Duration, String)>,
    pub(super) waits: Vec<Wait>,
    pub(super) followed: Vec<Followed>,
}

/// A document that a client looked for in the cluster once its write was answered.
#[derive(Clone, Debug)]
pub(super) struct Followed {
    pub(super) began: Instant,
    pub(super) took: Duration,
    /// What the gateway said of its queue while the document was late.
    pub(super) queue: Option<String>,
}

impl Good<'_> {
    /// Writes until it is told to stop.
    pub(super) fn write(mut self) -> Told {
        let connection = Connection::open(&self.server());
        match connection.and_then(|connection| driver::drive(connection, &mut self)) {
            Ok(()) => self.told,
            Err(why) => Told::broken(&format!("a good client: {why:#}")),
        }
    }

    fn server(&self) -> Server {
        Server::plain(self.address, ANSWER_MAX)
    }

    fn account(&self) -> Option<(&'static str, &'static str)> {
        self.has_account.then_some(ACCOUNT)
    }

    /// Looks for a document until it is in the cluster, if it gets there through the queue.
    fn follow(&self, id: &str) -> Option<Followed> {
        let (began, mut queue) = (Instant::now(), None);
        let url = self.reads.as_ref()?;
        let path = format!("/{}/_doc/{id}", self.told.index);
        let is_there = || {
            let client = client::Client::build(url, None, Duration::from_secs(5)).ok()?;
            let account = self.account();
            let found = client.send("GET", &path, account.as_slice(), b"");
            (found.ok()?.status == 200).then_some(())
        };
        while is_there().is_none() && began.elapsed() < FOLLOWED_FOR {
            if queue.is_none() && began.elapsed() > LATE {
                queue = Some((self.queue)());
            }
            std::thread::sleep(self.pause);
        }
        let took = began.elapsed();
        Some(Followed { began, took, queue })
    }
}

impl Client for Good<'_> {
    type Sent = Sent;

    fn request(&mut self) -> Result<Option<(driver::Request<'_>, Self::Sent)>> {
        if self.stop.load(Ordering::SeqCst) {
            return Ok(None);
        }
        let (mut documents, mut body) = (Vec::new(), String::new());
        // Some documents are so large that they need memory which others want too.
        let padding = "x".repeat(if self.rng.u32(..10) == 0 { 30_000 } else { 0 });
        for _ in 0..self.rng.usize(1..=10) {
            self.token += 1;
            let (index, token) = (self.told.index, self.token);
            let id = format!("g{token}");
            body.push_str(&format!(
                "{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"{id}\"}}}}\n{{\"w\":{token},\"of_a_good_client\":true,\"p\":\"{padding}\"}}\n"
            ));
            documents.push((id, token));
        }
        // The client sometimes uses a new connection, like clients that come and go.
        let is_new = self.rng.u32(..20) == 0;
        let to = ("POST", "/_bulk");
        let headers: Vec<_> = [driver::NDJSON].into_iter().chain(self.account()).collect();
        let request = driver::Request {
            connect: is_new.then(|| self.server()),
            bytes: driver::request(to, self.address, &headers, body.as_bytes()).into(),
        };
        let sent = Sent {
            documents,
            phase: self.phase.load(Ordering::SeqCst),
            is_new,
            bytes: body.len(),
        };
        Ok(Some((request, sent)))
    }

    fn outcome(&mut self, sent: Sent, outcome: Outcome<'_>) -> Result<()> {
        let (phase, documents) = (sent.phase, sent.documents);
        // A request that spans two phases says nothing about either.
        if phase != WARMING_UP && phase == self.phase.load(Ordering::SeqCst) {
            self.told.waits.push(Wait {
                beside: phase == BESIDE,
                began: outcome.began,
                took: outcome.took,
            });
        }
        let last = documents.last().map(|(id, _)| id.clone());
        let queued = self.reads.is_some();
        match outcome.reply.map(|reply| flaw(&reply, queued)) {
            Err(error) => {
                let (index, bytes, count) = (self.told.index, sent.bytes, documents.len());
                let on = if sent.is_new { "a new" } else { "an open" };
                let beside = if phase == BESIDE {
                    "beside hostile ones"
                } else {
                    "alone"
                };
                let what = format!(
                    "no answer to {count} documents ({bytes} bytes) for `{index}` on {on} connection, {beside}: {error:#}"
                );
                self.told.unanswered.push((outcome.began, outcome.took, what));
            }
            Ok(Some(flaw)) => self.told.wronged.push(flaw),
            Ok(None) => self.told.written.extend(documents),
        }
        if let (Some(id), 0) = (last, self.rng.u32(..20)) {
            self.told.followed.extend(self.follow(&id));
        }
        std::thread::sleep(self.pause);
        Ok(())
    }
}

/// Returns what is wrong with a reply to a good client. `queued`: nothing hostile brings its writes past the
/// queue.
fn flaw(reply: &Reply<'_>, queued: bool) -> Option<String> {
    match reply.status {
        200 if queued && reply.header("x-tidegate-ack").is_none() => Some("200 past the queue".to_owned()),
        200 if reply.json().is_ok_and(|said| said["errors"] == false) => None,
        200 => Some(format!("200 with errors: {:.300}", reply.text())),
        status => Some(format!("{status}: {:.300}", reply.text())),
    }
}

/// The gateway has just been started: waits say nothing about hostile clients yet.
pub(super) const WARMING_UP: u8 = 0;
pub(super) const ALONE: u8 = 1;
pub(super) const BESIDE: u8 = 2;

/// The header by which a good client is known where there are users.
pub(super) const ACCOUNT: (&str, &str) = ("authorization", "Bearer good");
/// How long clients wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// The lag from which on it is worth knowing what the queue waits for.
const LATE: Duration = Duration::from_millis(2_500);
/// Longer than any lag that is allowed on a cluster that does not stand still.
const FOLLOWED_FOR: Duration = Duration::from_secs(20);

impl Told {
    /// Returns the answers of a client that was told nothing yet.
    pub(super) fn of(index: &'static str) -> Self {
        Self {
            index,
            ..Self::default()
        }
    }

    /// Returns the outcome of a failure of something that has to work.
    pub(super) fn broken(what: &str) -> Self {
        Self {
            wronged: vec![what.to_owned()],
            ..Self::default()
        }
    }
}
