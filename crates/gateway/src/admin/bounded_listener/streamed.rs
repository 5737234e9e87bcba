//! Answers that go on, such as a stream of changes: how far the client has taken one, and how it ends.

use std::sync::atomic::Ordering;

use tokio::sync::watch;

use super::{OfConnection, Terms, UnderWay};

/// The connection of an answer that goes on. Its request is under way until this is dropped.
#[derive(Debug)]
pub(in super::super) struct StreamedTo {
    under_way: UnderWay,
    flushes: watch::Receiver<u64>,
    terms: watch::Receiver<Terms>,
}

// === impl OfConnection ===

impl OfConnection {
    /// Begins an answer that goes on. The system is then told to hold little of what the client has not
    /// taken, and to end the connection if the client takes nothing for some time.
    pub(in super::super) fn streams(self) -> StreamedTo {
        self.0.begins_stream.store(true, Ordering::Relaxed);
        StreamedTo {
            flushes: self.0.flushes.subscribe(),
            terms: self.0.terms.clone(),
            under_way: UnderWay::begin(self.0),
        }
    }
}

// === impl StreamedTo ===

impl StreamedTo {
    /// Returns whether the system has taken everything at some moment since this was last asked.
    pub(in super::super) fn has_taken_all(&mut self) -> bool {
        let has_taken = self.flushes.has_changed().unwrap_or(false);
        self.flushes.mark_unchanged();
        has_taken
    }

    /// Waits until the system has taken everything.
    pub(in super::super) async fn takes_all(&mut self) {
        if self.flushes.changed().await.is_err() {
            std::future::pending::<()>().await; // the connection is gone, and this with it
        }
    }

    /// Waits until connections begin otherwise.
    pub(in super::super) async fn terms_change(&mut self) {
        if self.terms.changed().await.is_err() {
            std::future::pending::<()>().await; // the port is gone
        }
    }

    /// Returns whether connections begin otherwise now.
    pub(in super::super) fn is_of_before(&self) -> bool {
        self.under_way.0.is_of_before()
    }

    /// Closes the connection once the client has taken the rest of the answer.
    pub(in super::super) fn end(&self) {
        self.under_way.0.is_dismissed.store(true, Ordering::Relaxed);
    }

    /// Closes the connection at once.
    pub(in super::super) fn cut(&self, why: &str) {
        let client = self.under_way.0.address;
        wire::rationed!(tracing::warn, %client, "admin port: a client is cut off: {why}");
        self.under_way.0.leave();
    }
}
