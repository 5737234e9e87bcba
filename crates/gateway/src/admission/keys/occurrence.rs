//! A request with a key: whether it is executed, or answered as an earlier one was.

use std::sync::Arc;

use bulk::IdMint;
use http::HeaderMap;

use super::fingerprint::{HEADER, digest_of, key_of};
use super::{Accepted, Claim, Claimed, Keys};
use crate::admission::rights::{Caller, ClusterRights};
use crate::error::{Fault, Rejection};

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
    pub(crate) caller: Caller<'a>,
    /// The request's headers as they came.
    pub(crate) headers: &'a HeaderMap,
    pub(crate) target: &'a str,
    pub(crate) body: &'a [u8],
}

/// Returns whether a request has a key.
pub(crate) fn is_given(headers: &HeaderMap) -> bool {
    headers.contains_key(&HEADER)
}

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

// === impl Keys ===

impl Keys {
    /// Claims the key of a request, if the cluster lets its client in. `end` is the end of the queue's log
    /// now, or an earlier end.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        rights: &ClusterRights,
        asked: KeyedRequest<'_>,
        end: u64,
    ) -> Result<Occurrence, Rejection> {
        let client = rights.authenticate(asked.caller).await?;
        let key = match key_of(asked.headers, client.user()) {
            Ok(Some(key)) => key,
            Ok(None) | Err(_) => return Err(Fault::bad_key().into()),
        };
        match self.claim(key, digest_of(asked.target, asked.body), end).await {
            Claimed::First(claim) => Ok(Occurrence::First(claim)),
            Claimed::Again(accepted) => Ok(Occurrence::Again(accepted)),
            Claimed::Other => Err(Fault::key_of_another().into()),
            Claimed::UnderWay => Err(Fault::key_under_way().into()),
            Claimed::Full => Err(Fault::too_many_keys().into()),
            Claimed::Share => Err(Fault::too_many_keys_of_one().into()),
        }
    }
}
