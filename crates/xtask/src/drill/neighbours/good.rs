//! Good clients, which do everything right.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde_json::Value;
use testkit::client::Client;

use super::verdict::Wait;

/// A good client.
pub(super) struct Good<'a> {
    pub(super) url: String,
    pub(super) index: &'static str,
    /// The address where the documents can be read from the cluster, if they get there through the queue.
    pub(super) reads: Option<String>,
    pub(super) number: usize,
    pub(super) stop: &'a AtomicBool,
    /// The phase, one of the constants here: whether hostile clients are there at the moment.
    pub(super) phase: &'a AtomicU8,
    pub(super) pause: Duration,
    pub(super) rng: Rng,
}

/// The answers to a good client.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) index: &'static str,
    /// Ids and tokens of documents that are written, according to the answers.
    pub(super) written: Vec<(String, u64)>,
    /// Answers that a good client should not get.
    pub(super) wronged: Vec<String>,
    pub(super) waits: Vec<Wait>,
    /// The times at which the client began to look for a document in the cluster, and how long the document
    /// took.
    pub(super) followed: Vec<(Instant, Duration)>,
}

impl Good<'_> {
    /// Writes until it is told to stop.
    pub(super) fn write(mut self) -> Told {
        let mut told = Told {
            index: self.index,
            ..Told::default()
        };
        let mut client: Option<Client> = None;
        let mut token = (self.number as u64 + 1) << 32;
        while !self.stop.load(Ordering::SeqCst) {
            let mut documents = Vec::new();
            let mut body = String::new();
            // Some documents are so large that they need memory which others want too.
            let padding = if self.rng.u32(..10) == 0 {
                "x".repeat(30_000)
            } else {
                String::new()
            };
            for _ in 0..self.rng.usize(1..=10) {
                token += 1;
                let id = format!("g{token}");
                body.push_str(&format!(
                    "{{\"index\":{{\"_index\":\"{}\",\"_id\":\"{id}\"}}}}\n{{\"w\":{token},\"of_a_good_client\":true,\"p\":\"{padding}\"}}\n",
                    self.index
                ));
                documents.push((id, token));
            }
            // The client sometimes uses a new connection, like clients that come and go.
            if client.is_none() || self.rng.u32(..20) == 0 {
                client = Client::build(&self.url, None, Duration::from_secs(20)).ok();
            }
            let Some(client) = &client else {
                return Told::broken("a client that cannot be made");
            };
            let phase = self.phase.load(Ordering::SeqCst);
            let began = Instant::now();
            let answer = client.post_ndjson("/_bulk", body.as_bytes());
            let took = began.elapsed();
            // A request that spans two phases says nothing about either.
            if phase != WARMING_UP && phase == self.phase.load(Ordering::SeqCst) {
                let beside = phase == BESIDE;
                told.waits.push(Wait { beside, began, took });
            }
            let last = documents.last().map(|(id, _)| id.clone());
            match answer {
                Err(error) => told.wronged.push(format!("no answer: {error:#}")),
                Ok(answer) if answer.status != 200 => {
                    told.wronged
                        .push(format!("{}: {:.300}", answer.status, answer.text()));
                }
                Ok(answer) => match answer.json().unwrap_or_default() {
                    Value::Object(said) if said.get("errors") == Some(&Value::Bool(false)) => {
                        told.written.extend(documents);
                    }
                    said => told.wronged.push(format!("200 with errors: {said:.300}")),
                },
            }
            if let (Some(id), 0) = (last, self.rng.u32(..20)) {
                told.followed.push((Instant::now(), self.follow(&id)));
            }
            std::thread::sleep(self.pause);
        }
        told
    }

    /// Returns how long a document takes to reach the cluster, as its client sees it.
    fn follow(&self, id: &str) -> Duration {
        let began = Instant::now();
        let Some(url) = &self.reads else {
            return Duration::ZERO;
        };
        let path = format!("/{}/_doc/{id}", self.index);
        let is_there = || {
            let client = Client::build(url, None, Duration::from_secs(5)).ok()?;
            (client.get(&path).ok()?.status == 200).then_some(())
        };
        while is_there().is_none() && began.elapsed() < FOLLOWED_FOR {
            std::thread::sleep(self.pause);
        }
        began.elapsed()
    }
}

/// The gateway has just been started: waits say nothing about hostile clients yet.
pub(super) const WARMING_UP: u8 = 0;
pub(super) const ALONE: u8 = 1;
pub(super) const BESIDE: u8 = 2;

/// Longer than any lag that is allowed.
const FOLLOWED_FOR: Duration = Duration::from_secs(10);

impl Told {
    /// Returns the outcome of a failure of something that has to work.
    pub(super) fn broken(what: &str) -> Self {
        Self {
            wronged: vec![what.to_owned()],
            ..Self::default()
        }
    }
}
