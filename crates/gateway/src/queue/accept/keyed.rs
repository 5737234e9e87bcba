//! Requests with an `Idempotency-Key`: what their records keep, and the answer to one that was accepted
//! before.

use http::{HeaderName, HeaderValue, Response};
use wire::Outgoing;

use super::{Accept, Queued};
use crate::admission::keys::{Accepted, Claim, Keyed};

/// The header that says whether a request is remembered, or repeats another.
pub(super) static SAYS: HeaderName = HeaderName::from_static("x-tidegate-idempotency");

impl Accept {
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
