//! Proves that each accepted document is there, once, with its last value.
//!
//! While a load runs, a [`Ledger`](crate::ledger::Ledger) notes each document that an item of an answer
//! accepted: its index, its id (from the item, so that ids made by servers count too), the version that the
//! server gave it and a digest of its source. Afterwards [`verify`] reads the documents back by their ids,
//! over all shards, and compares them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use http::Method;
use http::header::{AUTHORIZATION, HeaderValue};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::ask::{Ask, AskError};
use crate::file::Load;
use crate::ledger::{ExpectedDoc, LastWrite, digest};
use crate::options::Options;
use crate::report::Report;
use crate::request::{Server, Url, UrlError, basic};
use crate::verified::{DIFFERENT, Flaw, MISSING, REPEATED, UNDEAD, Verified};

/// How documents are read back.
#[derive(Debug, Clone, Default)]
pub struct VerifyOptions {
    /// The URL to read from, if not the one written to: the cluster behind a gateway.
    pub url: Option<String>,
    /// How long to wait for documents that are not there yet.
    pub wait: Duration,
}

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
    Url(String, UrlError),
    /// Authorities can't be used.
    #[error("authorities: {0}")]
    Tls(#[from] wire::TlsError),
    /// No runtime.
    #[error(transparent)]
    Threads(#[from] std::io::Error),
    /// The cluster did not answer, or refused.
    #[error(transparent)]
    Ask(#[from] AskError),
}

/// Reads the documents that a run accepted, according to `report`, back from the cluster, and compares them.
///
/// # Errors
/// If they can't be read. The result says what is wrong with documents.
pub fn verify(
    load: &Load,
    options: &Options,
    report: &Report,
    how: &VerifyOptions,
) -> Result<Verified, VerifyError> {
    let ledger = report.ledger.as_ref().ok_or(VerifyError::NoLedger)?;
    let (server, account) = place(load, how)?;
    let tls = options.tls()?;
    let timeout = options.timeout;
    let end = Instant::now() + how.wait;
    let mut verified = Verified {
        unknown: report
            .total
            .documents
            .as_ref()
            .map_or(0, |documents| documents.unknown),
        unread: ledger.unread,
        ..Verified::default()
    };
    wire::run_local(READ_BYTES, async |worker| {
        let ask = Ask::new(&worker, &server, tls, account, timeout);
        let mut indices: Vec<_> = ledger.indices.iter().collect();
        indices.sort_by_key(|(name, _)| *name);
        for (index, documents) in indices {
            verified.documents += documents.len() as u64;
            let is_known = |entry: &LastWrite| entry.expected != ExpectedDoc::Unknown;
            let mut open: Vec<(&String, &LastWrite)> = documents.iter().collect();
            open.retain(|(_, entry)| is_known(entry));
            let known = open.len();
            verified.unordered += (documents.len() - known) as u64;
            open.sort_by_key(|(id, _)| *id);
            loop {
                let flaws = compare(&ask, index, &open).await?;
                if flaws.is_empty() || Instant::now() >= end {
                    verified.proven += (known - flaws.len()) as u64;
                    flaws.into_iter().for_each(|(_, flaw)| verified.add(flaw));
                    break;
                }
                // Documents that are right stay right; only the others are looked at again.
                open = flaws.into_iter().map(|(at, _)| open[at]).collect();
                tokio::time::sleep(WAIT_STEP).await;
            }
        }
        Ok(verified)
    })?
}

/// Returns the server to read from, and the account.
fn place(load: &Load, how: &VerifyOptions) -> Result<(Server, Option<HeaderValue>), VerifyError> {
    let of = |url: &str| {
        let (server, _, account) = Server::of(url).map_err(|why| VerifyError::Url(url.to_owned(), why))?;
        Ok::<_, VerifyError>((server, account.map(|account| basic(account.as_bytes()))))
    };
    let mut servers = load.requests.iter().filter_map(|request| match &request.url {
        Url::Fixed { server, .. } if request.body.is_some() => Some((server, &request.headers.fixed)),
        _ => None,
    });
    let written = servers.next();
    let account = written
        .and_then(|(_, headers)| headers.get(AUTHORIZATION))
        .cloned();
    match (&how.url, written) {
        (Some(url), _) => {
            let (server, in_url) = of(url)?;
            Ok((server, in_url.or(account)))
        }
        (None, Some((server, _))) => Ok((server.clone(), account)),
        (None, None) => Err(VerifyError::NoServer),
    }
}

#[derive(Deserialize)]
struct SearchAnswer {
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

/// Returns the documents that are not as they should be, by their place in the list.
async fn compare(
    ask: &Ask,
    index: &str,
    documents: &[(&String, &LastWrite)],
) -> Result<Vec<(usize, Flaw)>, AskError> {
    ask.bytes(&Method::POST, &format!("/{index}/_refresh"), None)
        .await?;
    let path = format!("/{index}/_search");
    let mut flaws = Vec::new();
    for (batch, documents) in documents.chunks(BATCH).enumerate() {
        let ids: Vec<&str> = documents.iter().map(|(id, _)| id.as_str()).collect();
        // The query goes over all shards, so a document that was routed two ways is found twice.
        let query = json!({"size": ids.len() * 4, "query": {"ids": {"values": ids}}});
        let found: SearchAnswer = ask.json(&Method::POST, &path, Some(&query)).await?;
        let mut copies: HashMap<&str, Vec<&Hit>> = HashMap::new();
        for hit in &found.hits.hits {
            copies.entry(&hit._id).or_default().push(hit);
        }
        for (at, (id, entry)) in documents.iter().enumerate() {
            let copies = copies.get(id.as_str()).map_or(&[][..], Vec::as_slice);
            if let Some(what) = judge(entry.expected, copies) {
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

/// Returns what is wrong with the copies of a document.
fn judge(expected: ExpectedDoc, copies: &[&Hit]) -> Option<&'static str> {
    match (expected, copies) {
        (ExpectedDoc::Nothing, []) | (ExpectedDoc::Some, [_]) | (ExpectedDoc::Unknown, _) => None,
        (ExpectedDoc::Nothing, _) => Some(UNDEAD),
        (_, []) => Some(MISSING),
        (ExpectedDoc::Source(wanted), [one]) => {
            let found = one
                ._source
                .as_ref()
                .and_then(|source| digest(source.get().as_bytes()));
            (found != Some(wanted)).then_some(DIFFERENT)
        }
        (_, _) => Some(REPEATED),
    }
}

const BATCH: usize = 1_000;
const WAIT_STEP: Duration = Duration::from_millis(500);
const READ_BYTES: usize = 1 << 30;

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
        let wanted = ExpectedDoc::Source(digest(br#"{ "a": 1 }"#).unwrap());
        assert_eq!(judge(wanted, &[&one]), None);
        assert_eq!(judge(wanted, &[&two]), Some(DIFFERENT));
        assert_eq!(judge(wanted, &[]), Some(MISSING));
        assert_eq!(judge(wanted, &[&one, &one]), Some(REPEATED));
        assert_eq!(
            (
                judge(ExpectedDoc::Nothing, &[]),
                judge(ExpectedDoc::Nothing, &[&one])
            ),
            (None, Some(UNDEAD))
        );
        assert_eq!(judge(ExpectedDoc::Some, &[&two]), None);
    }
}
