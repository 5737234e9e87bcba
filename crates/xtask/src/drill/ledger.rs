//! What clients sent and what they were told: the one side of what the checker compares.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

/// What an operation does to its document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Create,
    Index,
    /// The whole document, made if it is not there: executed twice it leaves what executing it once leaves.
    Update,
    Delete,
}

/// One operation of a request.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    /// None: the gateway is to make one, and nobody knows it yet.
    pub(crate) id: Option<String>,
    pub(crate) kind: Kind,
    /// In the document; no other operation of the run has it.
    pub(crate) token: u64,
    /// The clusters will not take it.
    pub(crate) unfit: bool,
    /// Its document is written by this operation only.
    pub(crate) only: bool,
    /// None: the one that all writers share.
    pub(crate) index: Option<String>,
}

/// A request and what became of it.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Moments are numbers of one clock that all clients share: what has a higher one happened later.
    pub(crate) sent: u64,
    pub(crate) ended: u64,
    /// The first and the last gateway process that may have got it, counted from 1.
    pub(crate) processes: (u32, u32),
    pub(crate) told: Told,
    pub(crate) writes: Vec<Write>,
    /// Of a request with an `Idempotency-Key`, which may have been sent many times: every answer from the
    /// queue, in the order in which they came.
    pub(crate) said: Vec<Said>,
}

/// An answer from the queue to a request with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) position: u64,
    /// It says that the request was accepted before.
    pub(crate) repeated: bool,
    /// What it says of the operations.
    pub(crate) body: String,
}

/// What the client knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// All of it is in the queue, here.
    Queued(u64),
    /// Nothing of it was accepted.
    Refused(u16),
    /// 200, but not from the queue: nothing was promised for the second cluster, nor any order.
    Passed,
    /// No answer, or half of one.
    Nothing,
    /// Before a queue in Kafka: no answer, or that not all of it was accepted. Any part of it may be in the
    /// queue, or come there later.
    Perhaps,
}

/// The requests of a run, as they end.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    clock: AtomicU64,
    tokens: AtomicU64,
    process: AtomicU32,
    queued_documents: AtomicU64,
    requests: Mutex<Vec<Request>>,
}

impl Ledger {
    /// A moment later than all before.
    pub(crate) fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn token(&self) -> u64 {
        self.tokens.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The gateway process that requests go to now.
    pub(crate) fn process(&self) -> u32 {
        self.process.load(Ordering::SeqCst)
    }

    /// The one before is dead: nothing that was sent to it will be accepted any more.
    pub(crate) fn next_process(&self) {
        self.process.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn enter(&self, request: Request) {
        if matches!(request.told, Told::Queued(_)) {
            self.queued_documents
                .fetch_add(request.writes.len() as u64, Ordering::SeqCst);
        }
        self.requests.lock().push(request);
    }

    /// Documents whose clients were told so far that they are in the queue.
    pub(crate) fn queued_documents(&self) -> u64 {
        self.queued_documents.load(Ordering::SeqCst)
    }

    /// All requests, in no particular order.
    pub(crate) fn take(&self) -> Vec<Request> {
        std::mem::take(&mut *self.requests.lock())
    }

    /// The indices beside the shared one.
    pub(crate) fn indices(&self) -> BTreeSet<String> {
        let requests = self.requests.lock();
        let writes = requests.iter().flat_map(|request| &request.writes);
        writes.filter_map(|write| write.index.clone()).collect()
    }

    /// Positions of the records that clients were told of, with the number of documents in each.
    pub(crate) fn positions(&self) -> Vec<(u64, usize)> {
        let requests = self.requests.lock();
        let mut positions: Vec<_> = requests
            .iter()
            .filter_map(|request| match request.told {
                Told::Queued(position) => Some((position, request.writes.len())),
                _ => None,
            })
            .collect();
        positions.sort_unstable();
        positions
    }
}
