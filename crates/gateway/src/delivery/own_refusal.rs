//! Finds out whom the refusal of an operation by itself concerns, if such a refusal passes as a rule: 429,
//! 408, 503, or a missing right. A node that has too much to do refuses operations in this way, and their
//! lane waits for it. But a pipeline can answer so for one document for ever (for example because a service
//! that it asks does), and then everything behind the document in its lane would wait, too. So after a few
//! such refusals, the shard is sent another operation for the same document, which changes nothing and goes
//! through no pipeline. If the shard takes that, the refused one waits apart from its lane.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bulk::Op;
use cluster::{PickReason, Snapshot};
use http::StatusCode;

use crate::delivery::doubt::Document;
use crate::delivery::lane::Route;
use crate::delivery::outcome::{Again, Outcome};
use crate::delivery::refused_whole::{BLAMED_MAX, harmless_for, place};
use crate::delivery::work::Work;
use crate::queue::parked::Scope;

// === impl Route ===

impl Route {
    /// Returns the outcome of an operation that is to be tried again, and that waits apart if a node refuses
    /// it again and again while its shard takes others.
    pub(super) async fn own_refusal(
        &self,
        work: &Work<'_>,
        operation: usize,
        again: Arc<Again>,
        snapshot: &Snapshot,
    ) -> Outcome {
        // A conflict is looked at instead.
        let is_refused = again.own_error().is_some_and(|error| error.status != 409);
        if !is_refused || work.attempts[operation] < REFUSED_MAX || self.group.parked().is_none() {
            return Outcome::Again(again);
        }
        // What many documents of a batch have in common is their index.
        if work.blamed.get() >= BLAMED_MAX {
            return Outcome::Park(Scope::Index, again);
        }
        let is_known = |asked: Instant| asked.elapsed() < ASKED_AGAIN;
        if work.shard_refused.get().is_some_and(is_known) {
            return Outcome::Again(again);
        }
        if self.takes_alike(work, operation, snapshot).await {
            work.blamed.set(work.blamed.get() + 1);
            return Outcome::Park(Scope::Document, again);
        }
        work.shard_refused.set(Some(Instant::now()));
        Outcome::Again(again)
    }

    /// Whether the shard of an operation's document takes another operation for the document now, or says for
    /// certain that it never will.
    async fn takes_alike(&self, work: &Work<'_>, operation: usize, snapshot: &Snapshot) -> bool {
        let at = work.operations[operation];
        let document = Document::read(&work.body[at.start..at.end], work.head);
        let name = work.named(operation, snapshot).written;
        let outbound = self.outbound();
        let node = outbound.pick(snapshot, PickReason::Documents, &[]);
        let request = harmless_for(Op::Delete, &name, place(work, snapshot), document.as_ref());
        match self.asked(&node, request, &outbound).await {
            Ok((StatusCode::OK, told)) => !told.into_iter().any(|told| matches!(told, Outcome::Again(_))),
            Ok(_) | Err(_) => false,
        }
    }
}

/// How often an operation is tried before it is asked whether it is to blame.
const REFUSED_MAX: u32 = 4;
/// For how long the shards of a batch are not asked again after one that took nothing.
const ASKED_AGAIN: Duration = Duration::from_secs(1);
