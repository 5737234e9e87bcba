//! The log lines of requests. With an access log, every request has a line. Slow requests, and requests that
//! the gateway itself refused or could not answer, have a line in any case. Every line has the request's id.

use std::cell::Cell;
use std::time::{Duration, Instant};

use config::Logging;
use http::{Method, Request, Response};
use wire::{Incoming, Outgoing, Peer};

use crate::error::Fault;
use crate::request_id::RequestId;

/// What the log needs to know about a request, noted before the request is answered.
pub(crate) struct RequestFacts {
    began: Instant,
    id: RequestId,
    method: Method,
    /// The path without the query, which may contain secrets.
    path: String,
    peer: Peer,
    bytes_in: Option<u64>,
}

/// The access log of a listener on one core.
#[derive(Debug, Default)]
pub(crate) struct AccessLog {
    seen: Cell<u32>,
}

/// The `target` of the lines. The level filter passes it whatever the lowest level is.
pub const ACCESS_LOG: &str = "access";

// === impl RequestFacts ===

impl RequestFacts {
    pub(crate) fn of(request: &Request<Incoming>, id: RequestId) -> Self {
        Self {
            began: Instant::now(),
            id,
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            peer: request.body().peer().clone(),
            bytes_in: request.body().length(),
        }
    }

    /// Returns how long the request has taken so far.
    pub(crate) fn took(&self) -> Duration {
        self.began.elapsed()
    }
}

// === impl AccessLog ===

impl AccessLog {
    /// Logs a request that has its answer, or at least the head of it.
    pub(crate) fn answered(
        &self,
        noted: &RequestFacts,
        entry: &str,
        response: &Response<Outgoing>,
        logging: &Logging,
    ) {
        let took = noted.took();
        let (request_id, method, path) = (&noted.id, &noted.method, &*noted.path);
        let (status, took_ms) = (response.status().as_u16(), took.as_millis() as u64);
        if self.is_turn(logging.access) {
            tracing::info!(
                target: ACCESS_LOG,
                %request_id,
                entry,
                client = %noted.peer.address,
                %method,
                path,
                status,
                bytes_in = noted.bytes_in,
                bytes_out = response.body().length(),
                took_ms,
                "request"
            );
        } else {
            tracing::debug!(%request_id, %method, path, status, took_ms, "request");
        }
        if let Some(fault) = response.extensions().get::<Fault>() {
            let reason = &*fault.reason;
            if response.status().is_server_error() {
                wire::rationed!(tracing::warn, %request_id, %method, path, status, reason, "request failed");
            } else {
                wire::rationed!(tracing::info, %request_id, %method, path, status, reason, "request refused");
            }
        }
        if logging.slow_request.is_some_and(|slow| took >= slow) {
            wire::rationed!(tracing::warn, %request_id, %method, path, status, took_ms, "slow request");
        }
    }

    /// Logs a request that was refused before it could be read.
    pub(crate) fn refused(
        &self,
        request_id: &RequestId,
        entry: &str,
        peer: Option<&Peer>,
        response: &Response<Outgoing>,
        logging: &Logging,
    ) {
        let client = peer.map(|peer| tracing::field::display(peer.address));
        let status = response.status().as_u16();
        let fault = response.extensions().get::<Fault>();
        let reason = fault.map(|fault| &*fault.reason);
        if self.is_turn(logging.access) {
            tracing::info!(target: ACCESS_LOG, %request_id, entry, client, status, reason, "request");
        }
        wire::rationed!(tracing::info, %request_id, client, status, reason, "request refused");
    }

    /// Returns whether this request is one of the sampled ones.
    fn is_turn(&self, sample: Option<u32>) -> bool {
        let Some(sample) = sample else { return false };
        let seen = self.seen.get();
        self.seen.set((seen + 1) % sample.max(1));
        seen == 0
    }
}

/// Logs that the answer broke off before a byte of it was sent, and that `instead` is sent in its place.
pub(crate) fn broke_off(request_id: &RequestId, instead: &Response<Outgoing>) {
    let status = instead.status().as_u16();
    let fault = instead.extensions().get::<Fault>();
    let reason = fault.map(|fault| &*fault.reason);
    wire::rationed!(tracing::warn, %request_id, status, reason, "request failed");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_in_so_many_is_written_and_none_when_it_is_off() {
        let written = |sample, requests: usize| {
            let log = AccessLog::default();
            (0..requests).filter(|_| log.is_turn(sample)).count()
        };
        assert_eq!(written(None, 9), 0);
        assert_eq!(written(Some(1), 9), 9);
        assert_eq!(written(Some(3), 9), 3);
    }
}
