//! One request: it is rendered and sent, and its answer is read, judged and counted.

use std::borrow::Cow;
use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use http::header::{CONTENT_ENCODING, HeaderMap};
use http::response::Parts;
use jiff::Timestamp;
use wire::{Buffer, Chunk, Deadlines, Fate, Origin, Outgoing, RequestHead, SendError};

use super::{Core, User};
use crate::answer;
use crate::condition::{Answer, text_of};
use crate::progress::Counts;
use crate::request::{Request, Server, Url, UrlError, escape_target, is_bulk, is_plain_target};
use crate::tally::Tally;
use crate::trouble::in_words;
use crate::variable::Draws;

/// Why a request cannot be rendered from its templates.
#[derive(Debug, thiserror::Error)]
enum RenderError {
    #[error("`{0}` {1}")]
    Url(String, UrlError),
    #[error("the URL is not text")]
    NoText,
    #[error("the body can't be packed: {0}")]
    Pack(std::io::Error),
}

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unanswered(String);

/// The outcome of one request.
#[derive(Debug)]
pub(crate) struct Exchanged {
    /// The answer's status, or why there is none.
    pub(crate) outcome: Result<u16, Unanswered>,
    /// The complaint about the answer, if there was one.
    pub(crate) complaint: Option<String>,
    /// Whether the request has assertions.
    pub(crate) asserted: bool,
    pub(crate) took: Duration,
    pub(crate) ended: Instant,
}

/// A record of a request and its answer, for those who want to see it.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    pub(crate) target: String,
    /// Bytes of the body, as transferred.
    pub(crate) sent_bytes: u64,
    /// The beginning of the body sent, before compression.
    pub(crate) sent: Vec<u8>,
    /// Bytes of the body received, unpacked.
    pub(crate) received_bytes: u64,
    /// The beginning of the body received, unpacked.
    pub(crate) received: Vec<u8>,
}

/// What a request moved.
#[derive(Clone, Copy)]
struct Moved {
    /// Bytes of the body sent, as transferred.
    sent_bytes: u64,
    /// Bytes of the body received, as transferred.
    received_bytes: u64,
    /// Number of operations of a bulk; none if the request is no bulk.
    operations: Option<u64>,
}

/// A rendered request.
struct Rendered<'c> {
    origin: Origin,
    target: Cow<'c, str>,
    headers: Cow<'c, HeaderMap>,
    body: Option<Buffer>,
    sent_bytes: u64,
    /// Number of operations of a bulk; none if the request is no bulk.
    operations: Option<u64>,
    /// The body of a bulk, if accepted documents are noted.
    noted: Option<Vec<u8>>,
}

// === impl Core ===

impl Core {
    /// Sends a request, reads and judges its answer, and counts it. `intended` is the moment at which the
    /// schedule wanted it to be sent.
    pub(crate) async fn exchange(
        &self,
        at: usize,
        user: &mut User,
        intended: Option<Instant>,
        seen: Option<&mut Transcript>,
    ) -> Exchanged {
        let runner = &self.load.runner;
        let logs = runner.log_requests || !runner.log_status_codes.is_empty();
        if !logs {
            return self.exchange_seen(at, user, intended, seen).await;
        }
        let mut own = Transcript::default();
        let seen = seen.unwrap_or(&mut own);
        let exchanged = self.exchange_seen(at, user, intended, Some(seen)).await;
        let status = exchanged.outcome.as_ref().map_or(0, |status| *status);
        if runner.log_requests || runner.log_status_codes.contains(&status) {
            tracing::info!(
                status,
                target = seen.target,
                took_ms = exchanged.took.as_secs_f64() * 1e3,
                error = exchanged.outcome.as_ref().err().map(tracing::field::display),
                complaint = exchanged.complaint,
                sent = %String::from_utf8_lossy(&seen.sent),
                received = %String::from_utf8_lossy(&seen.received),
                "{}",
                self.load.requests[at].name
            );
        }
        exchanged
    }

    async fn exchange_seen(
        &self,
        at: usize,
        user: &mut User,
        intended: Option<Instant>,
        mut seen: Option<&mut Transcript>,
    ) -> Exchanged {
        let request = &self.load.requests[at];
        let rendered = self.draws.borrow_mut().with(&mut user.registered, |draws| {
            self.render(at, request, draws, seen.as_deref_mut())
        });
        let mut rendered = match rendered {
            Ok(rendered) => rendered,
            Err(why) => return self.unanswered(at, why.to_string(), 0, None, Instant::now()),
        };
        let (sent_bytes, operations) = (rendered.sent_bytes, rendered.operations);
        if let Some(seen) = &mut seen {
            seen.sent_bytes = sent_bytes;
        }
        let noted = rendered.noted.take();
        let begun = Instant::now();
        let outcome = self.send(request, rendered).await;
        let ended = Instant::now();
        if let Some(intended) = intended {
            let tally = &mut self.tallies.borrow_mut()[at];
            tally.behind(begun.saturating_duration_since(intended));
        }
        match outcome {
            Ok((head, body)) => {
                let moved = Moved {
                    sent_bytes,
                    received_bytes: body.len() as u64,
                    operations,
                };
                let body = unpacked(&head, &body);
                if let Some(seen) = seen {
                    seen.received_bytes = body.len() as u64;
                    seen.received = beginning(&body);
                }
                let answer = Answer::new(head.status.as_u16(), &head.headers, &body, ended - begun);
                if let Some(noted) = noted {
                    self.ledger.borrow_mut().note(&noted, head.status.as_u16(), &body);
                }
                for (name, field) in &request.register {
                    let value = field.read(&answer).map_or(String::new(), |value| text_of(&value));
                    user.registered[usize::from(*name)] = value.into_bytes();
                }
                let broken = self.judge(request, &answer, user);
                let latency = ended.saturating_duration_since(intended.unwrap_or(begun));
                self.tallies.borrow_mut()[at].latency(latency, intended.map(|_| answer.elapsed));
                let complaint = self.answered(at, &answer, broken, latency, moved);
                Exchanged {
                    outcome: Ok(answer.status),
                    complaint,
                    asserted: request.assertion.is_some(),
                    took: answer.elapsed,
                    ended,
                }
            }
            Err(error) => {
                let sent_bytes = match error.fate {
                    Fate::NothingSent => 0,
                    Fate::Unknown => sent_bytes,
                };
                self.unanswered(at, in_words(&error.kind), sent_bytes, operations, begun)
            }
        }
    }

    /// Returns what the request's assertions find wrong with an answer.
    fn judge(&self, request: &Request, answer: &Answer<'_>, user: &User) -> Option<String> {
        let broken = request
            .assertion
            .as_ref()?
            .check(answer, &user.registered)
            .err()?;
        let skipped = broken.absent && self.load.runner.skip_invalid_assert;
        (!skipped).then_some(broken.why)
    }

    /// Fills every slot of the request with a value.
    fn render<'c>(
        &'c self,
        at: usize,
        request: &'c Request,
        draws: &mut Draws,
        mut seen: Option<&mut Transcript>,
    ) -> Result<Rendered<'c>, RenderError> {
        draws.begin(Timestamp::now(), &request.needs, &request.once);
        let (origin, target) = self.place(request, draws)?;
        let headers = if request.headers.vary() {
            Cow::Owned(request.headers.render(&self.headers[at], draws))
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
            noted: None,
        };
        if let Some(body) = &request.body {
            let mut buffer = self.pool.take(self.room[at].get());
            let first = body.render(draws, buffer.as_mut_vec());
            self.room[at].set(self.room[at].get().max(buffer.len() + buffer.len() / 16));
            if bulk {
                let operations = if body.uniform {
                    answer::operations(&buffer[..first]) * u64::from(body.repeat)
                } else {
                    answer::operations(&buffer)
                };
                rendered.operations = Some(operations);
                rendered.noted = self.options.ledger.then(|| buffer.to_vec());
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

    /// Returns the request's server, and the target of its request line.
    fn place<'c>(
        &self,
        request: &'c Request,
        draws: &mut Draws,
    ) -> Result<(Origin, Cow<'c, str>), RenderError> {
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
                let (server, at, _) =
                    Server::of(&url).map_err(|why| RenderError::Url(url.clone().into_owned(), why))?;
                (self.origin(&server), at)
            }
        };
        text.drain(..at);
        if text.first() != Some(&b'/') {
            text.insert(0, b'/');
        }
        escape_target(&mut text);
        let target = String::from_utf8(text).map_err(|_| RenderError::NoText)?;
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

    /// Compresses the body, if it is to be sent gzipped.
    fn pack(&self, body: Buffer) -> Result<Buffer, RenderError> {
        let Some(level) = self.options.gzip else {
            return Ok(body);
        };
        let mut packed = self.pool.take(body.len() / 4);
        let mut encoder = GzEncoder::new(packed.as_mut_vec(), Compression::new(level));
        encoder
            .write_all(&body)
            .and_then(|()| encoder.finish().map(drop))
            .map_err(RenderError::Pack)?;
        Ok(packed)
    }

    async fn send(&self, request: &Request, rendered: Rendered<'_>) -> Result<(Parts, Buffer), SendError> {
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
        let (head, body) = reply.into_parts();
        Ok((head, body.collect(ANSWER_BYTES_MAX).await?))
    }

    /// Counts an answer and returns what is wrong with it. `broken` is what its assertions found; without
    /// assertions an answer must have a status below 400 and no failed document.
    fn answered(
        &self,
        at: usize,
        answer: &Answer<'_>,
        broken: Option<String>,
        latency: Duration,
        moved: Moved,
    ) -> Option<String> {
        let mut tallies = self.tallies.borrow_mut();
        let tally = &mut tallies[at];
        let before = (tally.items.succeeded, tally.items.failed);
        *tally.statuses.entry(answer.status).or_default() += 1;
        tally.sent_bytes += moved.sent_bytes;
        tally.received_bytes += moved.received_bytes;
        let flaw = match moved.operations {
            _ if answer.status >= 400 => {
                tally.items.refused += moved.operations.unwrap_or(0);
                Some(format!("status {}", answer.status))
            }
            Some(operations) => self.look(tally, answer.body, operations),
            None => None,
        };
        let asserted = self.load.requests[at].assertion.is_some();
        let complaint = if asserted { broken } else { flaw };
        if let Some(complaint) = &complaint {
            tally.complain(complaint);
            self.interval.complain(complaint);
            tracing::debug!(
                request = self.load.requests[at].name,
                "invalid answer: {complaint}"
            );
        }
        self.interval.add(
            latency,
            &Counts {
                answers: 1,
                invalid: u64::from(complaint.is_some()),
                documents: tally.items.succeeded - before.0,
                failed_documents: tally.items.failed - before.1,
                sent_bytes: moved.sent_bytes,
                received_bytes: moved.received_bytes,
                ..Counts::default()
            },
        );
        complaint
    }

    /// Counts what became of the operations of a bulk.
    fn look(&self, tally: &mut Tally, body: &[u8], operations: u64) -> Option<String> {
        let failed = tally.items.failed;
        match answer::look(body, operations, &mut tally.items) {
            Ok(took_ms) => {
                if let Some(took_ms) = took_ms {
                    tally.took_ms.saturating_record(took_ms);
                }
                let failed = tally.items.failed - failed;
                (failed > 0).then(|| format!("{failed} of {operations} documents failed"))
            }
            Err(why) => {
                tally.items.unknown += operations;
                Some(why.to_string())
            }
        }
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
        self.interval.complain(&why);
        tally.sent_bytes += sent_bytes;
        tally.items.unknown += operations.unwrap_or(0);
        let counts = Counts {
            errors: 1,
            sent_bytes,
            ..Counts::default()
        };
        self.interval.count(&counts);
        Exchanged {
            outcome: Err(Unanswered(why)),
            complaint: None,
            asserted: false,
            took: ended - begun,
            ended,
        }
    }
}

/// Unpacks the body of an answer that came compressed because the file's headers asked for it. If it can't be
/// unpacked, it is returned as it came.
fn unpacked<'b>(head: &Parts, body: &'b [u8]) -> Cow<'b, [u8]> {
    let packed = head
        .headers
        .get(CONTENT_ENCODING)
        .is_some_and(|coding| coding == "gzip");
    if !packed {
        return Cow::Borrowed(body);
    }
    let mut out = Vec::with_capacity(body.len() * 4);
    match GzDecoder::new(body)
        .take(ANSWER_BYTES_MAX as u64)
        .read_to_end(&mut out)
    {
        Ok(_) => Cow::Owned(out),
        Err(_) => Cow::Borrowed(body),
    }
}

fn beginning(body: &[u8]) -> Vec<u8> {
    body[..body.len().min(SEEN_BYTES_MAX)].to_vec()
}

/// The size above which an answer is an error.
const ANSWER_BYTES_MAX: usize = 1 << 30;
/// How much of a body is kept for those who want to see it.
const SEEN_BYTES_MAX: usize = 1 << 10;
