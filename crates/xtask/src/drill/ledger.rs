//! The ledger of what clients sent and what they were told: one side of what the checker compares.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

/// The effect of an operation on its document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteKind {
    Create,
    Index,
    /// An update with the whole document, which is created if it is missing: a second execution has no
    /// further effect.
    Update,
    Delete,
}

/// One operation of a request.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    /// The document's id; none: the gateway is to make one, and nobody knows it yet.
    pub(crate) id: Option<String>,
    pub(crate) kind: WriteKind,
    /// A number in the document that no other operation of the run has.
    pub(crate) token: u64,
    /// Whether the clusters refuse the operation.
    pub(crate) unfit: bool,
    /// Whether no other operation writes to the document.
    pub(crate) only: bool,
    /// The index; none: the one that all writers share.
    pub(crate) index: Option<String>,
}

/// A request and its outcome.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The moment of sending. Moments are numbers of a clock that all clients share: a higher number is
    /// later.
    pub(crate) sent: u64,
    pub(crate) ended: u64,
    /// The first and the last gateway process that may have received the request, counted from 1.
    pub(crate) processes: (u32, u32),
    pub(crate) told: Told,
    pub(crate) writes: Vec<Write>,
    /// All answers from the queue to a request with an `Idempotency-Key`, which may have been sent many
    /// times, in the order in which they came.
    pub(crate) said: Vec<Said>,
}

/// An answer from the queue to a request with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) position: u64,
    /// Whether the answer says that the request was accepted before.
    pub(crate) repeated: bool,
    /// The answer's body, which describes the operations.
    pub(crate) body: String,
}

/// The client's knowledge about its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// The whole request is in the queue, at this position.
    Queued(u64),
    /// Nothing of the request was accepted.
    Refused(u16),
    /// The answer was 200, but not from the queue: nothing was promised for the second cluster, and no order.
    Passed,
    /// There was no answer, or only half of one.
    Nothing,
    /// Before a queue in Kafka: there was no answer, or not all of the request was accepted. Any part of it
    /// may be in the queue, or enter it later.
    Perhaps,
}

/// The requests of a run, in the order in which they end.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    clock: AtomicU64,
    tokens: AtomicU64,
    process: AtomicU32,
    queued_documents: AtomicU64,
    requests: Mutex<Vec<Request>>,
}

impl Ledger {
    /// Returns a moment later than all earlier ones.
    pub(crate) fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn token(&self) -> u64 {
        self.tokens.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the gateway process that requests go to now.
    pub(crate) fn process(&self) -> u32 {
        self.process.load(Ordering::SeqCst)
    }

    /// Notes that the previous process is dead, so that nothing sent to it will be accepted any more.
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

    /// Returns how many documents clients were told so far are in the queue.
    pub(crate) fn queued_documents(&self) -> u64 {
        self.queued_documents.load(Ordering::SeqCst)
    }

    /// Takes all requests, in no particular order.
    pub(crate) fn take(&self) -> Vec<Request> {
        std::mem::take(&mut *self.requests.lock())
    }

    /// Returns the indices besides the shared one.
    pub(crate) fn indices(&self) -> BTreeSet<String> {
        let requests = self.requests.lock();
        let writes = requests.iter().flat_map(|request| &request.writes);
        writes.filter_map(|write| write.index.clone()).collect()
    }

    /// Returns the positions of the records that clients were told of, with the number of documents in each.
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
