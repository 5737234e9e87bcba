//! Questions to clusters and gateways. The client lives on one thread. A caller sends it a job and may drop
//! the future, which closes the connection: so the cluster learns that nobody waits for the answer any more.
//!
//! Polls have connections of their own: users whose calls take all others must not make a cluster look as if
//! it did not answer.

mod room;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use wire::guard::{Work, spawn};
use wire::{Client, ClientConfig, Deadlines, Fate, Outgoing, RequestHead, SendError, SendErrorKind, Worker};

use crate::target::Target;

#[cfg(test)]
pub(crate) use room::BYTES_MAX as ANSWERS_BYTES_MAX;
pub(crate) use room::{AnswerMemory, AnswerRoom, NoRoom};

/// Sends questions. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Outbound {
    jobs: mpsc::UnboundedSender<Job>,
}

/// A question.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// Time limit for the whole exchange, including the answer's body.
    pub(crate) within: Duration,
    /// Longest part of the answer that is read; the rest is left out.
    pub(crate) bytes_max: usize,
    /// The memory that a long answer takes a part of; none if such answers are bounded otherwise.
    pub(crate) memory: Option<AnswerMemory>,
}

/// An answer, whatever its status.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) truncated: bool,
    /// The memory that the body is in.
    pub(crate) room: Option<AnswerRoom>,
}

/// Why there is no answer, or not the expected one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    /// The exchange failed.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The status is not a success.
    #[error("{path} is answered with {status}{}", .words.as_ref().map(|words| format!(": {words}")).unwrap_or_default())]
    Status {
        path: String,
        status: StatusCode,
        words: Option<String>,
    },
    /// The answer is no JSON.
    #[error("{path} is answered with something that is not JSON: {why}")]
    NoJson { path: String, why: String },
    /// The answer is longer than a console reads.
    #[error("{path} is answered with more than {bytes_max} bytes")]
    TooLong { path: String, bytes_max: usize },
    /// There is no memory for the answer.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// The console is stopping.
    #[error("the console is stopping")]
    Stopping,
}

/// What a question is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Call,
    Poll,
}

struct Job {
    target: Arc<Target>,
    ask: Ask,
    purpose: Purpose,
    answer: oneshot::Sender<Result<Answer, AskError>>,
}

/// Executes the jobs, on the thread that has the client.
pub(crate) struct Runner {
    jobs: mpsc::UnboundedReceiver<Job>,
}

impl Outbound {
    pub(crate) fn new() -> (Self, Runner) {
        let (jobs, queue) = mpsc::unbounded_channel();
        (Self { jobs }, Runner { jobs: queue })
    }

    /// Sends a question. Dropping the future gives up, and closes the connection.
    pub(crate) async fn send(&self, target: &Arc<Target>, ask: Ask) -> Result<Answer, AskError> {
        self.ask(Purpose::Call, target, ask).await
    }

    async fn ask(&self, purpose: Purpose, target: &Arc<Target>, ask: Ask) -> Result<Answer, AskError> {
        let (answer, answered) = oneshot::channel();
        let job = Job {
            target: Arc::clone(target),
            ask,
            purpose,
            answer,
        };
        self.jobs.send(job).map_err(|_| AskError::Stopping)?;
        answered.await.map_err(|_| AskError::Stopping)?
    }

    /// Sends `GET path`, and returns the answer as JSON; a status other than success is an error.
    pub(crate) async fn get(
        &self,
        target: &Arc<Target>,
        path: &str,
        within: Duration,
    ) -> Result<Value, AskError> {
        let answer = self.send(target, Ask::get(path, within)).await?;
        answer.json(path)
    }

    /// Does the same for a poll.
    pub(crate) async fn poll(
        &self,
        target: &Arc<Target>,
        path: &str,
        within: Duration,
    ) -> Result<Value, AskError> {
        let ask = Ask::get(path, within);
        self.ask(Purpose::Poll, target, ask).await?.json(path)
    }
}

// === impl AskError ===

impl AskError {
    /// Whether the console lacks something itself, so that this says nothing about the server that was to be
    /// asked.
    pub(crate) fn is_own_lack(&self) -> bool {
        match self {
            Self::Send(error) => matches!(error.kind, SendErrorKind::Busy | SendErrorKind::OverBudget(_)),
            Self::NoRoom(_) | Self::Stopping => true,
            Self::Status { .. } | Self::NoJson { .. } | Self::TooLong { .. } => false,
        }
    }
}

impl Ask {
    /// Creates the question `GET path`.
    pub(crate) fn get(path: &str, within: Duration) -> Self {
        Self {
            method: Method::GET,
            path: path.to_owned(),
            headers: HeaderMap::new(),
            body: Vec::new(),
            within,
            bytes_max: POLL_BYTES_MAX,
            memory: None,
        }
    }
}

impl Answer {
    /// Returns the body of a successful answer.
    pub(crate) fn json(self, path: &str) -> Result<Value, AskError> {
        let path = || path.split('?').next().unwrap_or_default().to_owned();
        if !self.status.is_success() {
            return Err(AskError::Status {
                path: path(),
                status: self.status,
                words: words_of(&self.body),
            });
        }
        if self.truncated {
            return Err(AskError::TooLong {
                path: path(),
                bytes_max: POLL_BYTES_MAX,
            });
        }
        serde_json::from_slice(&self.body).map_err(|error| AskError::NoJson {
            path: path(),
            why: error.to_string(),
        })
    }
}

/// Returns the reason in an error, as clusters and gateways write it, shortened.
fn words_of(body: &[u8]) -> Option<String> {
    let value: Value = serde_json::from_slice(body).ok()?;
    let error = &value["error"];
    let words = error["reason"].as_str().or_else(|| error.as_str())?;
    Some(words.chars().take(WORDS_MAX).collect())
}

impl Runner {
    /// Executes jobs until nobody can send any more.
    pub(crate) async fn run(mut self, worker: Worker) {
        let config = ClientConfig {
            connections_per_origin_max: CONNECTIONS_MAX,
            queue_max: 1_000,
            ..ClientConfig::default()
        };
        let calls = Client::new(config.clone(), worker.pool().clone());
        let polls = Client::new(config, worker.pool().clone());
        while let Some(mut job) = self.jobs.recv().await {
            let client = match job.purpose {
                Purpose::Call => calls.clone(),
                Purpose::Poll => polls.clone(),
            };
            spawn(Work::Watch, async move {
                let done = tokio::select! {
                    done = exchange(&client, &job.target, &job.ask) => Some(done),
                    () = job.answer.closed() => None,
                };
                if let Some(done) = done {
                    let _ = job.answer.send(done);
                }
            });
        }
    }
}

/// Runs one exchange. Another address is tried only if nothing was sent.
async fn exchange(client: &Client, target: &Target, ask: &Ask) -> Result<Answer, AskError> {
    let mut headers = ask.headers.clone();
    headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    if !headers.contains_key(header::ACCEPT) {
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    }
    if let Some(authorization) = &target.authorization {
        headers.insert(header::AUTHORIZATION, authorization.clone());
    }
    let head = RequestHead {
        method: &ask.method,
        target: &ask.path,
        headers: &headers,
    };
    let deadlines = Deadlines::within(ask.within);
    let mut last = None;
    for (at, origin) in target.origins() {
        let body = if ask.body.is_empty() {
            Outgoing::Empty
        } else {
            ask.body.clone().into()
        };
        match client.send(origin, head, body, deadlines).await {
            Ok(reply) => {
                target.answered(at);
                return read(reply, ask).await;
            }
            Err(error) if error.fate == Fate::NothingSent => {
                // No other address has time left, and would seem not to answer.
                let is_over =
                    matches!(error.kind, SendErrorKind::Busy) && Instant::now() >= deadlines.overall;
                last = Some(error);
                if is_over {
                    break;
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    // A target without an address could not have been created.
    Err(last
        .unwrap_or_else(|| unreachable!("a target without an address"))
        .into())
}

async fn read(reply: wire::Reply, ask: &Ask) -> Result<Answer, AskError> {
    let (head, mut body) = reply.into_parts();
    let told = head.headers.get(header::CONTENT_LENGTH);
    let told = told.and_then(|told| told.to_str().ok()?.parse::<usize>().ok());
    let mut room = ask.memory.as_ref().map(AnswerMemory::room);
    let (mut bytes, mut truncated) = (Vec::new(), false);
    while let Some(chunk) = body.chunk().await? {
        let part = &chunk[..chunk.len().min(ask.bytes_max - bytes.len())];
        truncated = part.len() < chunk.len();
        let needed = bytes.len() + part.len();
        if let Some(room) = &mut room
            && room.bytes() < needed
        {
            // If the length is known, the room is taken at once; otherwise it doubles.
            let length = told.unwrap_or(2 * bytes.len()).min(ask.bytes_max).max(needed);
            room.grow(length).await?;
            bytes.reserve_exact(length - bytes.len());
        }
        bytes.extend_from_slice(part);
        if truncated {
            break;
        }
    }
    Ok(Answer {
        status: head.status,
        headers: head.headers,
        body: bytes,
        truncated,
        room,
    })
}

const USER_AGENT: &str = concat!("tidegate-console/", env!("CARGO_PKG_VERSION"));
/// The largest answer to a poll that is read, in bytes.
pub(crate) const POLL_BYTES_MAX: usize = 32 << 20;
/// The largest number of connections to one address.
const CONNECTIONS_MAX: usize = 8;
/// The number of characters of a server's error text that are passed on.
const WORDS_MAX: usize = 300;

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use futures_util::future::join_all;

    use super::*;
    use crate::store::ClusterEntry;

    /// Starts a cluster with two addresses that answers each request but those to `/slow`.
    fn cluster() -> Arc<Target> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let entry = ClusterEntry {
            endpoints: ["127.0.0.1", "localhost"]
                .map(|host| format!("http://{host}:{port}"))
                .into(),
            ..ClusterEntry::default()
        };
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                std::thread::spawn(move || {
                    let (mut stream, mut head) = (stream.unwrap(), [0; 4096]);
                    while let Ok(read @ 1..) = stream.read(&mut head) {
                        if !head[..read].starts_with(b"GET /slow") {
                            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
                            stream.write_all(answer).unwrap();
                        }
                    }
                });
            }
        });
        Arc::new(Target::cluster(&entry, None).unwrap())
    }

    #[test]
    fn calls_that_take_all_connections_leave_polls_theirs() {
        let target = cluster();
        wire::run_local(1 << 20, async |worker| {
            let (outbound, runner) = Outbound::new();
            spawn(Work::Watch, runner.run(worker));
            let slow = (0..CONNECTIONS_MAX).map(|_| outbound.get(&target, "/slow", Duration::from_secs(60)));
            let test = async {
                let short = Duration::from_millis(300);
                let busy = outbound.get(&target, "/", short).await.unwrap_err();
                assert!(busy.is_own_lack(), "{busy}");
                outbound
                    .poll(&target, "/", Duration::from_secs(10))
                    .await
                    .unwrap();
                let silent = outbound.poll(&target, "/slow", short).await.unwrap_err();
                assert!(!silent.is_own_lack(), "{silent}");
            };
            tokio::select! {
                // They are sent first.
                biased;
                _ = join_all(slow) => panic!("they are slow"),
                () = test => {}
            }
        })
        .unwrap();
    }
}
