//! `GET /changes`: as a stream of server-sent events, or as an answer that waits for the next change.
//!
//! A stream takes changes from the ring when its connection has room for them. A client that does not take in
//! time what was handed over is cut off; until then it costs [`UNTAKEN_BYTES_MAX`], a chunk more, and what
//! the system holds for its socket.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{ConnectInfo, Query, State as Shared};
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::super::AdminState;
use super::super::bounded_listener::{OfConnection, StreamedTo};
use super::super::guard;
use super::super::refusal::Refusal;
use super::change::{Change, Level};
use super::ring::Kept;
use super::state::State;
use super::{Follower, News};
use crate::clock::now_ms;

/// Where to go on, and how long to wait for a change.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct From {
    since: Option<u64>,
    wait_s: Option<u64>,
}

pub(in super::super) async fn follow(
    Shared(admin): Shared<Arc<AdminState>>,
    ConnectInfo(connection): ConnectInfo<OfConnection>,
    headers: HeaderMap,
    query: Result<Query<From>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(from) = query.map_err(|error| Refusal::invalid(error.body_text()))?;
    let accepts = headers.get(ACCEPT).map(HeaderValue::as_bytes).unwrap_or_default();
    let streams = accepts
        .split(|byte| *byte == b',')
        .any(|one| one.trim_ascii().starts_with(EVENT_STREAM.as_bytes()));
    if !streams {
        return answer(&admin, &headers, &from).await;
    }
    // A browser that connects again repeats the first URL, so its header has the later id.
    let last = headers.get("last-event-id").map(|last| {
        let id = last.to_str().ok().and_then(|last| last.parse().ok());
        id.ok_or_else(|| Refusal::invalid("`Last-Event-ID` is not the id of a change"))
    });
    let since = last.transpose()?.or(from.since);
    if from.wait_s.is_some() {
        return Err(Refusal::invalid(
            "`wait_s` means nothing to a stream: it waits for ever",
        ));
    }
    stream(admin, connection, headers, since)
}

/// Answers with the changes since then, once there are some or the time is over.
async fn answer(admin: &AdminState, headers: &HeaderMap, from: &From) -> Result<Response, Refusal> {
    let wait_s = from.wait_s.unwrap_or(0).min(WAIT_S_MAX);
    let until = Instant::now() + Duration::from_secs(wait_s);
    let changes = &admin.changes;
    let now = || State::of(admin);
    let _follower = match wait_s {
        0 => {
            changes.glance(now);
            None
        }
        _ => Some(changes.enter(now).ok_or_else(too_many)?),
    };
    let mut news = changes.news.subscribe();
    let since = from.since.unwrap_or_else(|| changes.last());
    let (found, end) = loop {
        let end = news.borrow_and_update().end;
        let found = changes.after(since, ANSWER_BYTES_MAX);
        if !found.is_empty() || end.is_some() || timeout_at(until, news.changed()).await.is_err() {
            break (found, end);
        }
    };
    if !guard::is_admitted(headers, admin) {
        return Ok(guard::unknown());
    }
    let next = found.last().map_or(since, |last| last.id);
    let last = end.map(|why| ended(next, why));
    let lines: Vec<&str> = found
        .iter()
        .chain(&last)
        .filter_map(|kept| std::str::from_utf8(&kept.line).ok())
        .collect();
    let (more, lines) = (next < changes.last(), lines.join(","));
    let text = format!("{{\"changes\":[{lines}],\"next\":{next},\"more\":{more}}}");
    let json = HeaderValue::from_static("application/json");
    let no_store = HeaderValue::from_static("no-store");
    Ok(([(CONTENT_TYPE, json), (CACHE_CONTROL, no_store)], text).into_response())
}

fn stream(
    admin: Arc<AdminState>,
    connection: OfConnection,
    headers: HeaderMap,
    since: Option<u64>,
) -> Result<Response, Refusal> {
    let follower = admin.changes.enter(|| State::of(&admin)).ok_or_else(too_many)?;
    let id = admin.changes.last();
    let mut first = format!("retry: {RETRY_MS}\n\n");
    if since.is_none() {
        let version = env!("CARGO_PKG_VERSION");
        let details = json!({"version": version, "started_ms": admin.started_ms});
        let text = "changes follow; what is now, the other endpoints say".to_owned();
        let line = Change::new("begin", Level::Info, text, details).to_line(id, now_ms());
        first += &format!("id: {id}\ndata: {line}\n\n");
    }
    let stream = Stream {
        news: admin.changes.news.subscribe(),
        since: since.unwrap_or(id),
        first: Some(first.into()),
        connection: connection.streams(),
        untaken: 0,
        is_over: false,
        headers,
        admin,
        _follower: follower,
    };
    let chunks = futures_util::stream::unfold(stream, |mut stream| async move {
        let chunk = stream.next().await?;
        Some((Ok::<_, Infallible>(chunk), stream))
    });
    let event_stream = HeaderValue::from_static(EVENT_STREAM);
    let no_store = HeaderValue::from_static("no-store");
    let heads = [(CONTENT_TYPE, event_stream), (CACHE_CONTROL, no_store)];
    Ok((heads, Body::from_stream(chunks)).into_response())
}

/// A stream of changes to a client.
struct Stream {
    admin: Arc<AdminState>,
    _follower: Follower,
    news: watch::Receiver<News>,
    /// The id of the last change that was handed over.
    since: u64,
    first: Option<Bytes>,
    connection: StreamedTo,
    /// Bytes that were handed over since the connection had last taken all.
    untaken: usize,
    is_over: bool,
    /// Those of the request: what they admit may change.
    headers: HeaderMap,
}

// === impl Stream ===

impl Stream {
    /// Returns the next bytes; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        if self.is_over || !self.is_taken().await {
            return None;
        }
        if let Some(first) = self.first.take() {
            return Some(self.hands_over(first));
        }
        loop {
            if !guard::is_admitted(&self.headers, &self.admin) {
                return Some(self.ends("the token of this stream is not valid any more"));
            }
            let end = self.news.borrow_and_update().end;
            let found = self.admin.changes.after(self.since, CHUNK_BYTES);
            if let Some(last) = found.last() {
                self.since = last.id;
                let text: String = found.iter().map(event).collect();
                return Some(self.hands_over(text.into()));
            }
            if let Some(why) = end {
                return Some(self.ends(why));
            }
            if self.connection.is_of_before() {
                return Some(self.ends("the TLS of this port has changed"));
            }
            tokio::select! {
                _ = self.news.changed() => {}
                () = self.connection.terms_change() => {}
                () = sleep(HEARTBEAT) => return Some(self.hands_over(Bytes::from_static(b":\n\n"))),
            }
        }
    }

    /// Waits for room. Returns false, and cuts the connection off, if its client does not make
    /// any in time.
    async fn is_taken(&mut self) -> bool {
        if self.connection.has_taken_all() {
            self.untaken = 0;
        }
        if self.untaken < UNTAKEN_BYTES_MAX {
            return true;
        }
        if timeout(TAKEN_WITHIN, self.connection.takes_all()).await.is_err() {
            self.connection
                .cut("it does not take the changes that it asked for");
            return false;
        }
        self.untaken = 0;
        true
    }

    fn hands_over(&mut self, chunk: Bytes) -> Bytes {
        self.untaken += chunk.len();
        chunk
    }

    fn ends(&mut self, why: &str) -> Bytes {
        self.is_over = true;
        self.connection.end();
        event(&ended(self.since, why)).into()
    }
}

fn ended(id: u64, why: &str) -> Kept {
    let text = format!("the stream ends: {why}");
    let change = Change::new("end", Level::Info, text, json!({"why": why}));
    Kept {
        id,
        line: change.to_line(id, now_ms()).into(),
    }
}

fn event(kept: &Kept) -> String {
    format!(
        "id: {}\ndata: {}\n\n",
        kept.id,
        String::from_utf8_lossy(&kept.line)
    )
}

fn too_many() -> Refusal {
    Refusal::unavailable(format!(
        "{} clients follow the changes already; try again later",
        super::FOLLOWERS_MAX
    ))
}

const EVENT_STREAM: &str = "text/event-stream";

/// How long a browser waits before it connects again.
const RETRY_MS: u64 = 2_000;

/// Short enough for proxies that close what is silent for half a minute.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// How much is handed over at once.
const CHUNK_BYTES: usize = 16 << 10;

/// The most bytes that wait for a client to take them; one chunk more may.
const UNTAKEN_BYTES_MAX: usize = 64 << 10;

/// How long a client may take for all of that.
const TAKEN_WITHIN: Duration = Duration::from_secs(10);

/// The longest wait for a change, in seconds.
const WAIT_S_MAX: u64 = 60;
const ANSWER_BYTES_MAX: usize = 256 << 10;
