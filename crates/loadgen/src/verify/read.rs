//! Reads documents back by their ids and compares them with the ledger.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use wire::{Client, ClientConfig, Deadlines, Origin, Outgoing, RequestHead};

use super::ledger::{Entry, State, digest};
use super::{Flaw, Verified, VerifyOptions};
use crate::engine::Options;
use crate::file::Load;
use crate::report::Report;
use crate::request::{Server, Url, basic};

/// Why documents could not be read back.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The run kept no ledger ([`Options::ledger`]).
    #[error("the run kept no ledger")]
    NoLedger,
    /// The file's requests don't say where the documents are.
    #[error("no request says where to read: name a URL")]
    NoServer,
    /// A URL is wrong.
    #[error("`{0}` {1}")]
    Url(String, String),
    /// Authorities can't be used.
    #[error("authorities: {0}")]
    Tls(#[from] wire::TlsError),
    /// No runtime.
    #[error(transparent)]
    Threads(#[from] std::io::Error),
    /// The cluster did not answer.
    #[error("{0}")]
    Send(String),
    /// The cluster refused.
    #[error("{0} was answered with {1}: {2}")]
    Refused(String, StatusCode, String),
    /// The answer is not that of a search.
    #[error("{0}: the answer is not that of a search: {1}")]
    Answer(String, serde_json::Error),
}

/// Reads what a run accepted, as `report` has it, back from the cluster and compares.
///
/// # Errors
/// When it can't be read; what is wrong with documents is in the result.
pub fn verify(
    load: &Load,
    options: &Options,
    report: &Report,
    how: &VerifyOptions,
) -> Result<Verified, VerifyError> {
    let ledger = report.ledger.as_ref().ok_or(VerifyError::NoLedger)?;
    let (server, headers) = place(load, how)?;
    let origin = match server.tls {
        true => Origin::https(&server.host, server.port, options.tls()?),
        false => Origin::http(&server.host, server.port),
    };
    let timeout = options.timeout;
    let end = Instant::now() + how.wait;
    let mut verified = Verified {
        unknown: report
            .total
            .documents
            .as_ref()
            .map_or(0, |documents| documents.unknown),
        ..Verified::default()
    };
    wire::run_local(READ_BYTES, async |worker| {
        let reader = Reader {
            client: Client::new(ClientConfig::default(), worker.pool().clone()),
            origin,
            headers,
            timeout,
        };
        let mut indices: Vec<_> = ledger.indices.iter().collect();
        indices.sort_by_key(|(name, _)| *name);
        for (index, documents) in indices {
            verified.documents += documents.len() as u64;
            let mut open: Vec<(&String, &Entry)> = documents.iter().collect();
            open.sort_by_key(|(id, _)| *id);
            loop {
                let flaws = reader.compare(index, &open).await?;
                if flaws.is_empty() || Instant::now() >= end {
                    verified.proven += (documents.len() - flaws.len()) as u64;
                    flaws.into_iter().for_each(|(_, flaw)| verified.add(flaw));
                    break;
                }
                // What is right stays right; only the others are looked at again.
                open = flaws.into_iter().map(|(at, _)| open[at]).collect();
                tokio::time::sleep(WAIT_STEP).await;
            }
        }
        Ok(verified)
    })?
}

/// The server to read from, and the headers to read with.
fn place(load: &Load, how: &VerifyOptions) -> Result<(Server, HeaderMap), VerifyError> {
    let of = |url: &str| {
        let (server, _, account) = Server::of(url).map_err(|why| VerifyError::Url(url.to_owned(), why))?;
        Ok::<_, VerifyError>((server, account.map(|account| basic(account.as_bytes()))))
    };
    let mut servers = load.requests.iter().filter_map(|request| match &request.url {
        Url::Fixed { server, .. } if request.body.is_some() => Some((server, &request.headers.fixed)),
        _ => None,
    });
    let written = servers.next();
    let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    if let Some(account) = written.and_then(|(_, headers)| headers.get(AUTHORIZATION)) {
        headers.insert(AUTHORIZATION, account.clone());
    }
    let server = match (&how.url, written) {
        (Some(url), _) => {
            let (server, account) = of(url)?;
            account.map(|account| headers.insert(AUTHORIZATION, account));
            server
        }
        (None, Some((server, _))) => server.clone(),
        (None, None) => return Err(VerifyError::NoServer),
    };
    Ok((server, headers))
}

impl From<wire::SendError> for VerifyError {
    fn from(error: wire::SendError) -> Self {
        VerifyError::Send(error.to_string())
    }
}

// === impl Verified ===

impl Verified {
    fn add(&mut self, flaw: Flaw) {
        match flaw.what {
            MISSING => self.missing += 1,
            DIFFERENT => self.different += 1,
            REPEATED => self.repeated += 1,
            _ => self.undead += 1,
        }
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(flaw);
        }
    }
}

/// Asks a cluster.
struct Reader {
    client: Client,
    origin: Origin,
    headers: HeaderMap,
    timeout: Duration,
}

#[derive(Deserialize)]
struct Found {
    hits: Hits,
}

#[derive(Deserialize)]
struct Hits {
    hits: Vec<Hit>,
}

#[derive(Deserialize)]
struct Hit {
    _id: String,
    _source: Option<Box<RawValue>>,
}

// === impl Reader ===

impl Reader {
    /// Those of the documents that are not as they should be, by their place in the list.
    async fn compare(
        &self,
        index: &str,
        documents: &[(&String, &Entry)],
    ) -> Result<Vec<(usize, Flaw)>, VerifyError> {
        self.ask(&format!("/{index}/_refresh"), Vec::new()).await?;
        let mut flaws = Vec::new();
        for (batch, documents) in documents.chunks(BATCH).enumerate() {
            let ids: Vec<&str> = documents.iter().map(|(id, _)| id.as_str()).collect();
            // Over all shards: a document that was routed two ways is found twice.
            let query = json!({"size": ids.len() * 4, "query": {"ids": {"values": ids}}});
            let path = format!("/{index}/_search");
            let answer = self.ask(&path, query.to_string().into_bytes()).await?;
            let found: Found =
                serde_json::from_slice(&answer).map_err(|error| VerifyError::Answer(path, error))?;
            let mut copies: HashMap<&str, Vec<&Hit>> = HashMap::new();
            for hit in &found.hits.hits {
                copies.entry(&hit._id).or_default().push(hit);
            }
            for (at, (id, entry)) in documents.iter().enumerate() {
                let copies = copies.get(id.as_str()).map_or(&[][..], Vec::as_slice);
                if let Some(what) = judge(entry.state, copies) {
                    let flaw = Flaw {
                        index: index.to_owned(),
                        id: (*id).clone(),
                        what,
                    };
                    flaws.push((batch * BATCH + at, flaw));
                }
            }
        }
        Ok(flaws)
    }

    async fn ask(&self, path: &str, body: Vec<u8>) -> Result<Vec<u8>, VerifyError> {
        let head = RequestHead {
            method: &Method::POST,
            target: path,
            headers: &self.headers,
        };
        let body = if body.is_empty() {
            Outgoing::Empty
        } else {
            Outgoing::from(body)
        };
        let deadlines = Deadlines::within(self.timeout);
        let reply = self.client.send(&self.origin, head, body, deadlines).await?;
        let status = reply.status();
        let answer = reply.into_body().collect(ANSWER_BYTES_MAX).await?;
        if !status.is_success() {
            let text = String::from_utf8_lossy(&answer).chars().take(300).collect();
            return Err(VerifyError::Refused(path.to_owned(), status, text));
        }
        Ok(answer.to_vec())
    }
}

/// What is wrong with the copies of a document.
fn judge(state: State, copies: &[&Hit]) -> Option<&'static str> {
    match (state, copies) {
        (State::Nothing, []) | (State::Some, [_]) => None,
        (State::Nothing, _) => Some(UNDEAD),
        (_, []) => Some(MISSING),
        (State::Source(wanted), [one]) => {
            let found = one
                ._source
                .as_ref()
                .and_then(|source| digest(source.get().as_bytes()));
            (found != Some(wanted)).then_some(DIFFERENT)
        }
        (_, _) => Some(REPEATED),
    }
}

const MISSING: &str = "missing";
const DIFFERENT: &str = "another value";
const REPEATED: &str = "more than once";
const UNDEAD: &str = "deleted, and there";
const BATCH: usize = 1_000;
const EXAMPLES_MAX: usize = 20;
const WAIT_STEP: Duration = Duration::from_millis(500);
const READ_BYTES: usize = 1 << 30;
const ANSWER_BYTES_MAX: usize = 512 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_judged_by_number_and_value() {
        let hit = |source: &str| Hit {
            _id: "1".to_owned(),
            _source: RawValue::from_string(source.to_owned()).ok(),
        };
        let (one, two) = (hit(r#"{"a":1}"#), hit(r#"{"a":2}"#));
        let wanted = State::Source(digest(br#"{ "a": 1 }"#).unwrap());
        assert_eq!(judge(wanted, &[&one]), None);
        assert_eq!(judge(wanted, &[&two]), Some(DIFFERENT));
        assert_eq!(judge(wanted, &[]), Some(MISSING));
        assert_eq!(judge(wanted, &[&one, &one]), Some(REPEATED));
        assert_eq!(
            (judge(State::Nothing, &[]), judge(State::Nothing, &[&one])),
            (None, Some(UNDEAD))
        );
        assert_eq!(judge(State::Some, &[&two]), None);
    }
}
