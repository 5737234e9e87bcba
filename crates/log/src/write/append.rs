//! A future for an append, without any runtime.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::{AppendError, Receipt};

/// The outcome of an append, to be awaited on any runtime: the writer's thread wakes the task. Dropping it
/// doesn't undo the append.
#[must_use = "an append is acknowledged when this says so"]
pub struct Append(Arc<Mutex<AppendState>>);

/// The writer's end of an [`Append`].
pub(crate) struct Settle(Arc<Mutex<AppendState>>);

#[derive(Default)]
struct AppendState {
    result: Option<Result<Receipt, AppendError>>,
    told: bool,
    waker: Option<Waker>,
}

// === impl Append ===

impl Append {
    pub(crate) fn new() -> (Self, Settle) {
        let shared = Arc::new(Mutex::new(AppendState::default()));
        (Self(Arc::clone(&shared)), Settle(shared))
    }
}

impl Future for Append {
    type Output = Result<Receipt, AppendError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut outcome = self.0.lock();
        if let Some(result) = outcome.result.take() {
            return Poll::Ready(result);
        }
        outcome.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

// === impl Settle ===

impl Settle {
    pub(crate) fn settle(self, result: Result<Receipt, AppendError>) {
        self.tell(result);
    }

    /// Settles the outcome, unless it was settled before.
    fn tell(&self, result: Result<Receipt, AppendError>) {
        let mut outcome = self.0.lock();
        if std::mem::replace(&mut outcome.told, true) {
            return;
        }
        outcome.result = Some(result);
        let waker = outcome.waker.take();
        drop(outcome);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Settle {
    /// Settles the append, so that nobody waits for ever, whatever became of the writer.
    fn drop(&mut self) {
        self.tell(Err(AppendError::Closed));
    }
}
