//! The way to the nodes: every exchange with a node, of whatever kind, goes through [`Outbound`], which
//! bounds what is in flight, counts, and reports the health of the node to the cluster.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::{Chooser, Cluster, Node, NodeChoice, NodeOutcome, PickReason, Snapshot};
use config::Sending;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, Method, response};
use tokio::time::Instant;
use wire::{
    Buffer, Client, ClientConfig, Deadlines, Outgoing, Pool, Reply, RequestHead, SendError, SendErrorKind,
};

use crate::metrics::Counters;
use crate::nodes::traced::Traced;
use crate::request_id::RequestId;

/// One core's way to the nodes of one cluster. The client inside keeps the connections to each node and
/// limits their number.
#[derive(Debug)]
pub(crate) struct Outbound {
    client: Client,
    pool: Pool,
    chooser: Arc<Chooser>,
    ledger: Rc<Ledger>,
    timeout: Duration,
    /// The number of retries, and the pause before a retry ([`Tries`](super::Tries)).
    pub(super) retry_count_max: u32,
    pub(super) retry_delay: Duration,
}

/// Records how exchanges end.
#[derive(Debug)]
pub(crate) struct Ledger {
    cluster: Arc<Cluster>,
    pub(crate) counters: Arc<Counters>,
}

/// A request without its body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) request_id: &'a RequestId,
    pub(crate) purpose: Purpose,
    pub(crate) method: &'a Method,
    pub(crate) target: &'a str,
    pub(crate) headers: &'a HeaderMap,
}

/// What an exchange with a node is for, as traces name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A client's request goes on as it came.
    Forward,
    /// A part of a bulk, of this many operations.
    Part(u32),
    /// A question of the gateway's own.
    Ask,
}

/// When a request has to be answered, and from when on it must not be sent any more.
#[derive(Clone, Copy)]
pub(crate) struct SendTimes {
    pub(crate) overall: Instant,
    pub(crate) start_by: Option<Instant>,
}

impl From<Instant> for SendTimes {
    fn from(overall: Instant) -> Self {
        Self {
            overall,
            start_by: None,
        }
    }
}

impl Outbound {
    /// Creates the way to a cluster. The limits of `sending` are divided among `cores`. Requests without a
    /// destination of their own go to the nodes of `choice`.
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        choice: NodeChoice,
        sending: &Sending,
        cores: usize,
        pool: Pool,
        counters: Arc<Counters>,
    ) -> Self {
        let config = ClientConfig {
            connections_per_origin_max: sending.connections_per_node_max.div_ceil(cores.max(1)).max(1),
            connect_timeout: sending.connect_timeout,
            idle_timeout: sending.idle_timeout,
            stall_timeout: sending.write_timeout,
            ..ClientConfig::default()
        };
        Self {
            client: Client::new(config, pool.clone()),
            pool,
            chooser: cluster.chooser(choice),
            ledger: Rc::new(Ledger { cluster, counters }),
            timeout: sending.response_timeout,
            retry_count_max: sending.retry_count_max,
            retry_delay: sending.retry_delay,
        }
    }

    /// Returns the cluster that the nodes belong to.
    pub(crate) fn cluster(&self) -> &Cluster {
        &self.ledger.cluster
    }

    /// Returns the node for a request without a destination of its own. `tried` lists the nodes that were
    /// already tried.
    pub(crate) fn pick(&self, snapshot: &Snapshot, reason: PickReason, tried: &[Arc<Node>]) -> Arc<Node> {
        let tried: Vec<&Node> = tried.iter().map(|node| &**node).collect();
        self.chooser.pick(snapshot, reason, &tried)
    }

    /// Returns the pool that answers are read into.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns the ledger, for code that reads an answer after its exchange.
    pub(crate) fn ledger(&self) -> &Rc<Ledger> {
        &self.ledger
    }

    /// Returns the deadline of an exchange that starts now.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Sends one request and waits for the head of its answer. The node's health is reported in every case.
    pub(crate) async fn exchange(
        &self,
        node: &Node,
        message: Message<'_>,
        body: Outgoing,
        deadline: Instant,
    ) -> Result<Reply, SendError> {
        let mut traced = Traced::begin(message, node, self.cluster());
        let answered = self.exchange_in(&mut traced, node, message, body, deadline);
        answered.await
    }

    /// Sends one request in the same way. Its span lasts until the caller drops it.
    pub(crate) async fn exchange_in(
        &self,
        traced: &mut Option<Box<Traced>>,
        node: &Node,
        message: Message<'_>,
        body: Outgoing,
        deadline: impl Into<SendTimes>,
    ) -> Result<Reply, SendError> {
        self.send(traced, node, message, (body, false), deadline.into())
            .await
    }

    /// Like [`exchange`](Self::exchange), for a request whose body is passed on as a client has sent it. A
    /// server closes the connection on a body that it cannot decode, so if the body is encoded, that is not
    /// held against the node.
    pub(crate) async fn pass_on(
        &self,
        node: &Node,
        message: Message<'_>,
        body: Outgoing,
        deadline: Instant,
    ) -> Result<Reply, SendError> {
        let may_break = message.headers.contains_key(CONTENT_ENCODING);
        let mut traced = Traced::begin(message, node, self.cluster());
        let answered = self.send(&mut traced, node, message, (body, may_break), deadline.into());
        answered.await
    }

    async fn send(
        &self,
        traced: &mut Option<Box<Traced>>,
        node: &Node,
        message: Message<'_>,
        (body, may_break): (Outgoing, bool),
        times: SendTimes,
    ) -> Result<Reply, SendError> {
        let head = RequestHead {
            method: message.method,
            target: message.target,
            headers: traced.as_ref().map_or(message.headers, |traced| traced.headers()),
        };
        let deadlines = Deadlines {
            overall: times.overall,
            head_timeout: None,
            start_by: times.start_by,
        };
        let cluster = &self.ledger.cluster;
        let exchange = cluster.begin(node, is_read(message), body.length());
        let sent = self.client.send(&node.origin, head, body, deadlines).await;
        self.ledger.counters.exchanges.add(1);
        let judged = match sent {
            Ok(reply) => judge(reply).await,
            Err(error) => Err(error),
        };
        if let Some(traced) = traced {
            traced.answered(judged.as_ref().map(|(reply, _)| reply.status()));
        }
        match judged {
            Ok((reply, outcome)) => {
                cluster.end(exchange, node, outcome);
                Ok(reply)
            }
            Err(error) => {
                let outcome = self.ledger.broken(node, &error, message.request_id);
                match outcome.filter(|outcome| !(may_break && *outcome == NodeOutcome::Broken)) {
                    Some(outcome) => cluster.end(exchange, node, outcome),
                    None => drop(exchange),
                }
                Err(error)
            }
        }
    }

    /// Sends one bulk request and waits for its complete answer.
    pub(crate) async fn whole(
        &self,
        node: &Node,
        message: Message<'_>,
        body: Outgoing,
        deadline: impl Into<SendTimes>,
    ) -> Result<(response::Parts, Buffer), SendError> {
        let began = Instant::now();
        let mut traced = Traced::begin(message, node, self.cluster());
        let reply = self.exchange_in(&mut traced, node, message, body, deadline);
        let (head, body) = reply.await?.into_parts();
        match body.collect(REPLY_BYTES_MAX).await {
            Ok(body) => Ok((head, body)),
            Err(error) => {
                self.ledger.failed(node, &error, began, message.request_id);
                if let Some(traced) = &mut traced {
                    traced.answered(Err(&error));
                }
                Err(error)
            }
        }
    }
}

/// The largest bulk answer that is read. The memory limit is usually lower.
const REPLY_BYTES_MAX: usize = 1 << 30;

/// Returns what an answer shows about its node. The body is read only if the head does not tell.
async fn judge(mut reply: Reply) -> Result<(Reply, NodeOutcome), SendError> {
    let outcome = match NodeOutcome::of_head(reply.status(), reply.headers()) {
        Some(outcome) => outcome,
        None => NodeOutcome::of_words(reply.body_mut().peek().await?),
    };
    Ok((reply, outcome))
}

/// Returns whether a request certainly changes nothing. Its duration is compared with that of requests of the
/// same kind.
fn is_read(message: Message<'_>) -> bool {
    *message.method == Method::GET || *message.method == Method::HEAD
}

// === impl Ledger ===

impl Ledger {
    /// Records that an exchange failed after the head of its answer had arrived.
    pub(crate) fn failed(&self, node: &Node, error: &SendError, began: Instant, request_id: &RequestId) {
        if let Some(outcome) = self.broken(node, error, request_id) {
            self.cluster.report(node, outcome, began.elapsed());
        }
    }

    /// Counts an exchange that failed, and returns what the failure shows about the node.
    fn broken(&self, node: &Node, error: &SendError, request_id: &RequestId) -> Option<NodeOutcome> {
        // A client's body that broke off shows nothing about the node.
        if !matches!(error.kind, SendErrorKind::Body(_)) {
            self.counters.exchanges_failed.add(1);
        }
        tracing::debug!(%request_id, node = node.name, %error, fate = ?error.fate, "exchange failed");
        NodeOutcome::of_error(error)
    }
}
