//! One request: rendered, sent, its answer read, judged and counted.

use std::borrow::Cow;
use std::io::Write as _;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::HeaderMap;
use jiff::Timestamp;
use wire::{Buffer, Chunk, Deadlines, Origin, Outgoing, RequestHead, SendError};

use super::Core;
use crate::answer;
use crate::request::{Request, Server, Url, escape_target, is_bulk, is_plain_target};
use crate::tally::Tally;
use crate::variable::Draws;

/// What came of one request.
#[derive(Debug)]
pub(crate) struct Exchanged {
    /// The answer's status, or why there is none.
    pub(crate) outcome: Result<u16, String>,
    /// What was wrong with the answer, if anything was.
    pub(crate) complaint: Option<String>,
    pub(crate) took: Duration,
    pub(crate) ended: Instant,
}

/// What a request and its answer looked like, for those who want to see it.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) target: String,
    /// Bytes of the body, as it travelled.
    pub(crate) sent_bytes: u64,
    /// The beginning of the body sent, before it was packed.
    pub(crate) sent: Vec<u8>,
    pub(crate) received_bytes: u64,
    /// The beginning of the body received.
    pub(crate) received: Vec<u8>,
}

/// A request as it is sent.
struct Rendered<'c> {
    origin: Origin,
    target: Cow<'c, str>,
    headers: Cow<'c, HeaderMap>,
    body: Option<Buffer>,
    sent_bytes: u64,
    /// Operations of a bulk; none: it is no bulk.
    operations: Option<u64>,
}

// === impl Core ===

impl Core {
    /// Sends a request, reads and judges its answer, and counts it.
    pub(crate) async fn exchange(&self, at: usize, mut seen: Option<&mut Seen>) -> Exchanged {
        let request = &self.load.requests[at];
        let rendered = match self.render(at, request, seen.as_deref_mut()) {
            Ok(rendered) => rendered,
            Err(why) => return self.unanswered(at, why, 0, None, Instant::now()),
        };
        let (sent_bytes, operations) = (rendered.sent_bytes, rendered.operations);
        if let Some(seen) = &mut seen {
            seen.sent_bytes = sent_bytes;
        }
        let begun = Instant::now();
        match self.send(request, rendered).await {
            Ok((status, body)) => {
                if let Some(seen) = seen {
                    seen.received_bytes = body.len() as u64;
                    seen.received = beginning(&body);
                }
                self.answered(at, status, &body, sent_bytes, operations, begun)
            }
            Err(error) => self.unanswered(at, error.kind.to_string(), sent_bytes, operations, begun),
        }
    }

    /// Puts values in every slot.
    fn render<'c>(
        &'c self,
        at: usize,
        request: &'c Request,
        mut seen: Option<&mut Seen>,
    ) -> Result<Rendered<'c>, String> {
        let mut draws = self.draws.borrow_mut();
        draws.begin(Timestamp::now(), &request.needs, &request.once);
        let (origin, target) = self.place(request, &mut draws)?;
        let headers = if request.headers.vary() {
            Cow::Owned(request.headers.render(&self.headers[at], &mut draws))
        } else {
            Cow::Borrowed(&self.headers[at])
        };
        if let Some(seen) = &mut seen {
            seen.target = format!("{}{target}", origin.authority());
        }
        let bulk = is_bulk(target.as_bytes());
        let mut rendered = Rendered {
            origin,
            target,
            headers,
            body: None,
            sent_bytes: 0,
            operations: None,
        };
        if let Some(body) = &request.body {
            let mut buffer = self.pool.take(self.room[at].get());
            let first = body.render(&mut draws, buffer.as_mut_vec());
            self.room[at].set(self.room[at].get().max(buffer.len() + buffer.len() / 16));
            if bulk {
                let operations = if body.uniform {
                    answer::operations(&buffer[..first]) * u64::from(body.repeat)
                } else {
                    answer::operations(&buffer)
                };
                rendered.operations = Some(operations);
            }
            if let Some(seen) = &mut seen {
                seen.sent = beginning(&buffer);
            }
            let buffer = self.pack(buffer)?;
            rendered.sent_bytes = buffer.len() as u64;
            rendered.body = Some(buffer);
        }
        Ok(rendered)
    }

    /// Where a request goes: the server and the request line's target.
    fn place<'c>(&self, request: &'c Request, draws: &mut Draws) -> Result<(Origin, Cow<'c, str>), String> {
        let (server, template, at) = match &request.url {
            Url::Fixed { server, target } => {
                if let Some(text) = target.fixed()
                    && let Ok(text) = std::str::from_utf8(text)
                    && is_plain_target(text.as_bytes())
                {
                    return Ok((self.origin(server), Cow::Borrowed(text)));
                }
                (Some(server), target, 0)
            }
            Url::Moving(url) => (None, url, 0),
        };
        let mut text = Vec::with_capacity(128);
        template.render(draws, &mut text);
        let (origin, at) = match server {
            Some(server) => (self.origin(server), at),
            None => {
                let url = String::from_utf8_lossy(&text);
                let (server, at, _) = Server::of(&url).map_err(|why| format!("`{url}` {why}"))?;
                (self.origin(&server), at)
            }
        };
        text.drain(..at);
        if text.first() != Some(&b'/') {
            text.insert(0, b'/');
        }
        escape_target(&mut text);
        let target = String::from_utf8(text).map_err(|_| "the URL is no text".to_owned())?;
        Ok((origin, Cow::Owned(target)))
    }

    fn origin(&self, server: &Server) -> Origin {
        if let Some(origin) = self.origins.borrow().get(server) {
            return origin.clone();
        }
        let origin = match server.tls {
            true => Origin::https(&server.host, server.port, self.tls.clone()),
            false => Origin::http(&server.host, server.port),
        };
        self.origins.borrow_mut().insert(server.clone(), origin.clone());
        origin
    }

    /// The body as it travels.
    fn pack(&self, body: Buffer) -> Result<Buffer, String> {
        let Some(level) = self.options.gzip else {
            return Ok(body);
        };
        let mut packed = self.pool.take(body.len() / 4);
        let mut encoder = GzEncoder::new(packed.as_mut_vec(), Compression::new(level));
        encoder
            .write_all(&body)
            .and_then(|()| encoder.finish().map(drop))
            .map_err(|error| format!("the body can't be packed: {error}"))?;
        Ok(packed)
    }

    async fn send(&self, request: &Request, rendered: Rendered<'_>) -> Result<(u16, Buffer), SendError> {
        let head = RequestHead {
            method: &request.method,
            target: &rendered.target,
            headers: &rendered.headers,
        };
        let deadlines = Deadlines {
            head_timeout: self.options.read_timeout,
            ..Deadlines::within(self.options.timeout)
        };
        let body = match rendered.body {
            Some(buffer) => Outgoing::Full(Chunk::Buffer(buffer)),
            None => Outgoing::Empty,
        };
        let reply = self.client.send(&rendered.origin, head, body, deadlines).await?;
        let status = reply.status().as_u16();
        let body = reply.into_body().collect(ANSWER_BYTES_MAX).await?;
        Ok((status, body))
    }

    fn answered(
        &self,
        at: usize,
        status: u16,
        body: &[u8],
        sent_bytes: u64,
        operations: Option<u64>,
        begun: Instant,
    ) -> Exchanged {
        let ended = Instant::now();
        let took = ended - begun;
        let mut tallies = self.tallies.borrow_mut();
        let tally = &mut tallies[at];
        tally.latency(took);
        *tally.statuses.entry(status).or_default() += 1;
        tally.sent_bytes += sent_bytes;
        tally.received_bytes += body.len() as u64;
        let complaint = match operations {
            _ if status >= 400 => {
                tally.items.refused += operations.unwrap_or(0);
                Some(format!("status {status}"))
            }
            Some(operations) => self.look(tally, body, operations),
            None => None,
        };
        let live = &self.shared.live;
        live.answers.fetch_add(1, Ordering::Relaxed);
        if complaint.is_some() {
            tally.invalid += 1;
            live.invalid.fetch_add(1, Ordering::Relaxed);
        }
        Exchanged {
            outcome: Ok(status),
            complaint,
            took,
            ended,
        }
    }

    /// What became of the operations of a bulk.
    fn look(&self, tally: &mut Tally, body: &[u8], operations: u64) -> Option<String> {
        let (succeeded, failed) = (tally.items.succeeded, tally.items.failed);
        let complaint = match answer::look(body, operations, &mut tally.items) {
            Ok(took_ms) => {
                if let Some(took_ms) = took_ms {
                    tally.took_ms.saturating_record(took_ms);
                }
                let failed = tally.items.failed - failed;
                (failed > 0).then(|| format!("{failed} of {operations} documents failed"))
            }
            Err(why) => {
                tally.items.unknown += operations;
                Some(why)
            }
        };
        let live = &self.shared.live;
        let (succeeded, failed) = (tally.items.succeeded - succeeded, tally.items.failed - failed);
        live.documents.fetch_add(succeeded, Ordering::Relaxed);
        live.failed_documents.fetch_add(failed, Ordering::Relaxed);
        complaint
    }

    fn unanswered(
        &self,
        at: usize,
        why: String,
        sent_bytes: u64,
        operations: Option<u64>,
        begun: Instant,
    ) -> Exchanged {
        let ended = Instant::now();
        let mut tallies = self.tallies.borrow_mut();
        let tally = &mut tallies[at];
        *tally.errors.entry(why.clone()).or_default() += 1;
        tally.sent_bytes += sent_bytes;
        tally.items.unknown += operations.unwrap_or(0);
        self.shared.live.errors.fetch_add(1, Ordering::Relaxed);
        Exchanged {
            outcome: Err(why),
            complaint: None,
            took: ended - begun,
            ended,
        }
    }
}

fn beginning(body: &[u8]) -> Vec<u8> {
    body[..body.len().min(SEEN_BYTES_MAX)].to_vec()
}

/// Larger answers are errors.
const ANSWER_BYTES_MAX: usize = 1 << 30;
/// So much is kept of a body for those who want to see it.
const SEEN_BYTES_MAX: usize = 1 << 10;
