//! Requests with an `Idempotency-Key`: which request is executed, and the answer to one that was accepted
//! before.

use std::sync::Arc;

use bulk::IdMint;
use cluster::Snapshot;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use wire::Outgoing;

use super::{Accept, Queued};
use crate::admission::rights::Caller;
use crate::error::{Fault, Rejection};
use crate::nodes::Outbound;
use crate::queue::idempotency::{Accepted, Claim, Claimed, HEADER, Keyed, Keys, digest_of, key_of};
use crate::request_id::RequestId;

/// The treatment of a request that has a key.
pub(crate) enum Occurrence {
    /// Accept the request.
    First(Claim),
    /// Answer the request as this earlier one was answered.
    Again(Accepted),
}

/// A request that has a key.
#[derive(Clone, Copy)]
pub(crate) struct KeyedRequest<'a> {
    pub(crate) head: &'a Parts,
    /// The request's headers, with the account that it gets if it brings none.
    pub(crate) headers: &'a HeaderMap,
    pub(crate) target: &'a str,
    pub(crate) body: &'a [u8],
    pub(crate) snapshot: &'a Snapshot,
}

/// The header that says whether a request is remembered, or repeats another.
pub(super) static SAYS: HeaderName = HeaderName::from_static("x-tidegate-idempotency");

// === impl Occurrence ===

impl Occurrence {
    /// Makes the request's ids.
    pub(crate) fn mint(&self) -> IdMint {
        match self {
            Occurrence::First(claim) => claim.keyed().mint(),
            Occurrence::Again(accepted) => accepted.keyed.mint(),
        }
    }
}

// === impl Accept ===

impl Accept {
    /// Returns the keys of the queue, if they count and the request has one.
    pub(crate) fn keys_for(&self, headers: &HeaderMap) -> Option<&Arc<Keys>> {
        let keys = self.queue.keys.as_ref();
        keys.filter(|_| headers.contains_key(&HEADER))
    }

    /// Claims the key of a request, if the cluster lets its client in.
    pub(crate) async fn claim(
        &self,
        outbound: &Outbound,
        keys: &Arc<Keys>,
        asked: KeyedRequest<'_>,
    ) -> Result<Occurrence, Rejection> {
        let request_id = RequestId::of(&asked.head.extensions);
        let caller = Caller {
            outbound,
            snapshot: asked.snapshot,
            headers: asked.headers,
            request_id: &request_id,
        };
        let client = self.rights.authenticate(caller).await?;
        let key = match key_of(&asked.head.headers, client.user()) {
            Ok(Some(key)) => key,
            Ok(None) | Err(_) => return Err(Fault::bad_key().into()),
        };
        let end = self.queue.log.status().end;
        match keys.claim(key, digest_of(asked.target, asked.body), end).await {
            Claimed::First(claim) => Ok(Occurrence::First(claim)),
            Claimed::Again(accepted) => Ok(Occurrence::Again(accepted)),
            Claimed::Other => Err(Fault::key_of_another().into()),
            Claimed::UnderWay => Err(Fault::key_under_way().into()),
            Claimed::Full => Err(Fault::too_many_keys().into()),
            Claimed::Share => Err(Fault::too_many_keys_of_one().into()),
        }
    }

    /// Makes the answer once more that was given when this request was accepted.
    pub(super) fn again(&self, queued: Queued<'_>, accepted: &Accepted) -> Response<Outgoing> {
        let place = format!("position={}", accepted.position);
        let mut response = super::answer(queued.head, accepted.keyed.took, queued.items, &place);
        response
            .headers_mut()
            .insert(&SAYS, HeaderValue::from_static("repeated"));
        response
    }
}

/// Returns the record's entry for the key, with the time that the answer will say it took: the body does not
/// tell that.
pub(super) fn kept(claim: &Claim, took: u64) -> Keyed {
    Keyed {
        took,
        ..claim.keyed()
    }
}
