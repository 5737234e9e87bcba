//! Questions to clusters and gateways. The client lives on one thread. A caller sends it a job and may drop
//! the future, which closes the connection: so the cluster learns that nobody waits for the answer any more.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use wire::guard::{Work, spawn};
use wire::{Client, ClientConfig, Deadlines, Fate, Outgoing, RequestHead, SendError, Worker};

use crate::target::Target;

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
}

/// An answer, whatever its status.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) truncated: bool,
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
    /// The console is stopping.
    #[error("the console is stopping")]
    Stopping,
}

struct Job {
    target: Arc<Target>,
    ask: Ask,
    answer: oneshot::Sender<Result<Answer, SendError>>,
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
        let (answer, answered) = oneshot::channel();
        let job = Job {
            target: Arc::clone(target),
            ask,
            answer,
        };
        self.jobs.send(job).map_err(|_| AskError::Stopping)?;
        Ok(answered.await.map_err(|_| AskError::Stopping)??)
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
        let client = Client::new(config, worker.pool().clone());
        while let Some(mut job) = self.jobs.recv().await {
            let client = client.clone();
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
async fn exchange(client: &Client, target: &Target, ask: &Ask) -> Result<Answer, SendError> {
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
                return read(reply, ask.bytes_max).await;
            }
            Err(error) if error.fate == Fate::NothingSent => last = Some(error),
            Err(error) => return Err(error),
        }
    }
    // A target without an address could not have been created.
    Err(last.unwrap_or_else(|| unreachable!("a target without an address")))
}

async fn read(reply: wire::Reply, bytes_max: usize) -> Result<Answer, SendError> {
    let (head, mut body) = reply.into_parts();
    let (mut bytes, mut truncated) = (Vec::new(), false);
    while let Some(chunk) = body.chunk().await? {
        let room = bytes_max - bytes.len();
        truncated = chunk.len() > room;
        bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if truncated {
            break;
        }
    }
    Ok(Answer {
        status: head.status,
        headers: head.headers,
        body: bytes,
        truncated,
    })
}

const USER_AGENT: &str = concat!("tidegate-console/", env!("CARGO_PKG_VERSION"));
/// The largest answer to a poll that is read, in bytes.
pub(crate) const POLL_BYTES_MAX: usize = 32 << 20;
/// The largest number of connections to one address.
const CONNECTIONS_MAX: usize = 8;
/// The number of characters of a server's error text that are passed on.
const WORDS_MAX: usize = 300;
