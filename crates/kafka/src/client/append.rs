//! An append that can be awaited without a runtime.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::{Mutex, MutexGuard};

use super::late::Waits;
use crate::{Append, AppendError, Receipt};

/// The outcome of an append.
struct AppendFuture(Arc<Pending>);

/// What a whole topic has accepted, and what waits for the brokers.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) documents: AtomicU64,
    pub(crate) records: AtomicU64,
    pub(crate) waiting_bytes: AtomicU64,
}

/// A request whose parts are under way.
pub(crate) struct Pending {
    counts: Arc<Counts>,
    documents: u64,
    bytes: u64,
    parts: usize,
    state: Mutex<Progress>,
}

struct Progress {
    /// The number of parts under way.
    left: usize,
    /// Says that the request waits, until its last part has ended.
    waits: Option<Waits>,
    receipt: Receipt,
    failed: Option<AppendError>,
    waker: Option<Waker>,
}

/// Returns an append that has already failed.
pub(crate) fn refused(error: AppendError) -> Append {
    Box::pin(std::future::ready(Err(error)))
}

// === impl AppendFuture ===

impl Future for AppendFuture {
    type Output = Result<Receipt, AppendError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.lock();
        if state.left > 0 {
            state.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(match state.failed.take() {
            Some(error) => Err(error),
            None => Ok(std::mem::take(&mut state.receipt)),
        })
    }
}

// === impl Pending ===

impl Pending {
    /// Creates a request of `parts` parts, which counts as waiting from now on.
    pub(crate) fn new(
        counts: &Arc<Counts>,
        waits: Waits,
        (parts, documents, bytes): (usize, u64, u64),
    ) -> Arc<Self> {
        counts.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        Arc::new(Self {
            counts: Arc::clone(counts),
            documents,
            bytes,
            parts,
            state: Mutex::new(Progress {
                left: parts,
                waits: Some(waits),
                receipt: Receipt::default(),
                failed: None,
                waker: None,
            }),
        })
    }

    /// Returns the outcome of the request.
    pub(crate) fn outcome(self: &Arc<Self>) -> Append {
        Box::pin(AppendFuture(Arc::clone(self)))
    }

    /// Records that a part is stored.
    pub(crate) fn stored(&self, lane: u32, offset: u64) {
        let mut state = self.lock();
        state.receipt.places.push((lane, offset));
        self.ended(state, 1);
    }

    /// Records that `parts` parts are not stored, or that this is unknown.
    pub(crate) fn failed(&self, parts: usize, error: AppendError) {
        let mut state = self.lock();
        // What is said of the whole must not leave out that another part may be there all the same.
        match &state.failed {
            Some(first) if !first.is_refusal() || error.is_refusal() => {}
            _ => state.failed = Some(error),
        }
        self.ended(state, parts);
    }

    fn ended(&self, mut state: MutexGuard<'_, Progress>, parts: usize) {
        state.left -= parts;
        if state.left > 0 {
            return;
        }
        state.waits = None;
        state.receipt.places.sort_unstable();
        // A client must not be told that nothing was accepted if some parts are stored, whatever happened to
        // the others.
        let stored = state.receipt.places.len();
        if let Some(why) = state.failed.take_if(|_| stored > 0) {
            state.failed = Some(AppendError::Partly {
                stored,
                parts: self.parts,
                why: Box::new(why),
            });
        }
        let (accepted, waker) = (state.failed.is_none(), state.waker.take());
        drop(state);
        self.counts.waiting_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        if accepted {
            self.counts.documents.fetch_add(self.documents, Ordering::Relaxed);
            self.counts.records.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.state.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::late::Waiting;

    fn waits() -> Waits {
        Waiting::default().begin()
    }

    fn poll(append: &mut Append) -> Poll<Result<Receipt, AppendError>> {
        append.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_request_is_accepted_when_its_last_part_is_and_refused_when_none_is_under_way_any_more() {
        let counts = Arc::default();
        let pending = Pending::new(&counts, waits(), (2, 10, 100));
        let mut append = pending.outcome();
        pending.stored(3, 7);
        assert!(poll(&mut append).is_pending());
        assert_eq!(counts.waiting_bytes.load(Ordering::Relaxed), 100);
        pending.stored(1, 9);
        let receipt = Receipt {
            places: vec![(1, 9), (3, 7)],
        };
        assert_eq!(poll(&mut append), Poll::Ready(Ok(receipt)));
        assert_eq!(counts.documents.load(Ordering::Relaxed), 10);

        let pending = Pending::new(&counts, waits(), (3, 10, 100));
        let mut append = pending.outcome();
        pending.failed(1, AppendError::Closed);
        assert!(poll(&mut append).is_pending(), "two parts are under way");
        pending.stored(0, 1);
        pending.failed(1, AppendError::Away("late".to_owned()));
        // One part was refused, and of another one nobody knows: that counts for more.
        let partly = AppendError::Partly {
            stored: 1,
            parts: 3,
            why: Box::new(AppendError::Away("late".to_owned())),
        };
        assert_eq!(poll(&mut append), Poll::Ready(Err(partly)), "one part is there");
        assert_eq!(
            counts.documents.load(Ordering::Relaxed),
            10,
            "nothing of it counts"
        );
        assert_eq!(counts.waiting_bytes.load(Ordering::Relaxed), 0);

        for away_first in [true, false] {
            let pending = Pending::new(&counts, waits(), (2, 10, 100));
            let mut append = pending.outcome();
            let (large, away) = (
                AppendError::TooLarge { bytes: 9, most: 8 },
                AppendError::Away("late".to_owned()),
            );
            let (first, second) = match away_first {
                true => (&away, &large),
                false => (&large, &away),
            };
            pending.failed(1, first.clone());
            pending.failed(1, second.clone());
            assert_eq!(poll(&mut append), Poll::Ready(Err(away)), "it may be there");
        }

        let pending = Pending::new(&counts, waits(), (2, 10, 100));
        let mut append = pending.outcome();
        pending.failed(2, AppendError::Closed);
        assert_eq!(
            poll(&mut append),
            Poll::Ready(Err(AppendError::Closed)),
            "nothing is there"
        );
    }
}
