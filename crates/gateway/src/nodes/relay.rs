//! A forwarded reply on its way to the client. Its size is limited, and its failure is logged and reported.

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use cluster::Node;
use tokio::time::Instant;
use wire::{Chunk, Outgoing, ReplyBody, SendError, Source, SourceError};

use crate::error::ReplyTooLarge;
use crate::nodes::outbound::Ledger;
use crate::request_id::RequestId;

/// Passes a node's reply on, piece by piece.
pub(crate) struct Relay {
    body: ReplyBody,
    /// The number of bytes that may still come, and the limit from which it is counted down.
    left: Option<(u64, u64)>,
    passed: u64,
    ledger: Rc<Ledger>,
    node: Arc<Node>,
    began: Instant,
    request_id: RequestId,
}

impl Relay {
    /// Returns the body to answer with: at most `bytes_max` of `body`, which `node` has been sending since
    /// `began`.
    pub(crate) fn of(
        body: ReplyBody,
        bytes_max: Option<u64>,
        ledger: Rc<Ledger>,
        node: Arc<Node>,
        began: Instant,
        request_id: RequestId,
    ) -> Outgoing {
        match body.length() {
            Some(0) => Outgoing::Empty,
            length => Outgoing::stream(
                Self {
                    body,
                    left: bytes_max.map(|limit| (limit, limit)),
                    passed: 0,
                    ledger,
                    node,
                    began,
                    request_id,
                },
                length,
            ),
        }
    }

    fn count_down(&mut self, bytes: u64) -> Result<(), ReplyTooLarge> {
        if let Some((left, limit)) = &mut self.left {
            *left = left.checked_sub(bytes).ok_or(ReplyTooLarge(*limit))?;
        }
        self.passed += bytes;
        Ok(())
    }

    /// Records why the reply ends here.
    fn broken(&self, error: SourceError) -> SourceError {
        self.ledger.counters.replies_broken.add(1);
        wire::rationed!(
            tracing::warn,
            request_id = %self.request_id,
            node = self.node.name,
            bytes = self.passed,
            %error,
            "a node's reply was not passed on to its end"
        );
        if let Some(error) = error.downcast_ref::<SendError>() {
            self.ledger
                .failed(&self.node, error, self.began, &self.request_id);
        }
        error
    }
}

impl Source for Relay {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, SourceError>>> {
        let piece = match ready!(self.body.poll_next(cx)) {
            Some(Ok(piece)) => self
                .count_down(piece.len() as u64)
                .map(|()| piece)
                .map_err(SourceError::from),
            Some(Err(error)) => Err(error),
            None => return Poll::Ready(None),
        };
        Poll::Ready(Some(piece.map_err(|error| self.broken(error))))
    }
}
