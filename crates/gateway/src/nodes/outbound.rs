//! The way to the nodes: every exchange with a node, of whatever kind, goes through [`Outbound`]. It bounds
//! what is in flight, counts, and tells the cluster how its node is doing.

use std::sync::Arc;
use std::time::Duration;

use cluster::{Chooser, Cluster, Node, NodeChoice, Outcome, PickReason, Snapshot};
use config::Sending;
use http::{HeaderMap, Method, response};
use tokio::time::Instant;
use wire::{
    Buffer, Client, ClientConfig, Deadlines, Outgoing, Pool, Reply, RequestHead, SendError, SendErrorKind,
};

use crate::metrics::Counters;
use crate::request_id::RequestId;

/// One core's way to the nodes of one cluster. The client below keeps each node's connections and their
/// bound.
#[derive(Debug)]
pub(crate) struct Outbound {
    client: Client,
    pool: Pool,
    chooser: Arc<Chooser>,
    ledger: Ledger,
    timeout: Duration,
    /// How often something is tried again, and the pause before ([`Tries`](super::Tries)).
    pub(super) retry_count_max: u32,
    pub(super) retry_delay: Duration,
}

/// Where it is written down how exchanges end.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    cluster: Arc<Cluster>,
    pub(crate) counters: Arc<Counters>,
}

/// What is sent, but for the body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) request_id: &'a RequestId,
    pub(crate) method: &'a Method,
    pub(crate) target: &'a str,
    pub(crate) headers: &'a HeaderMap,
}

impl Outbound {
    /// With `sending`'s bounds divided among `cores`. What has no destination of its own goes to the nodes of
    /// `choice`.
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
            ledger: Ledger { cluster, counters },
            timeout: sending.response_timeout,
            retry_count_max: sending.retry_count_max,
            retry_delay: sending.retry_delay,
        }
    }

    /// The cluster that the nodes belong to.
    pub(crate) fn cluster(&self) -> &Cluster {
        &self.ledger.cluster
    }

    /// The node for what has no destination of its own; `tried` are the nodes that had their chance.
    pub(crate) fn pick(&self, snapshot: &Snapshot, reason: PickReason, tried: &[Arc<Node>]) -> Arc<Node> {
        let tried: Vec<&Node> = tried.iter().map(|node| &**node).collect();
        self.chooser.pick(snapshot, reason, &tried)
    }

    /// Where answers are read into.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// For those who read an answer after its exchange.
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Until when an exchange that starts now may last.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Sends one request and waits for the head of its answer; the node's health is reported either way.
    pub(crate) async fn exchange(
        &self,
        node: &Node,
        message: Message<'_>,
        body: Outgoing,
        deadline: Instant,
    ) -> Result<Reply, SendError> {
        let head = RequestHead {
            method: message.method,
            target: message.target,
            headers: message.headers,
        };
        let deadlines = Deadlines {
            overall: deadline,
            head_timeout: None,
        };
        let cluster = &self.ledger.cluster;
        let exchange = cluster.begin(node, is_read(message), body.length());
        let sent = self.client.send(&node.origin, head, body, deadlines).await;
        self.ledger.counters.exchanges.add(1);
        let judged = match sent {
            Ok(reply) => judge(reply).await,
            Err(error) => Err(error),
        };
        match judged {
            Ok((reply, outcome)) => {
                cluster.end(exchange, node, outcome);
                Ok(reply)
            }
            Err(error) => {
                let outcome = self.ledger.broken(node, &error, message.request_id);
                match outcome {
                    Some(outcome) => cluster.end(exchange, node, outcome),
                    None => drop(exchange),
                }
                Err(error)
            }
        }
    }

    /// Sends one bulk request and waits for its whole answer.
    pub(crate) async fn whole(
        &self,
        node: &Node,
        message: Message<'_>,
        body: Outgoing,
        deadline: Instant,
    ) -> Result<(response::Parts, Buffer), SendError> {
        let began = Instant::now();
        let (head, body) = self.exchange(node, message, body, deadline).await?.into_parts();
        match body.collect(REPLY_BYTES_MAX).await {
            Ok(body) => Ok((head, body)),
            Err(error) => {
                self.ledger.failed(node, &error, began, message.request_id);
                Err(error)
            }
        }
    }
}

/// No bulk answer is larger; what memory allows is less.
const REPLY_BYTES_MAX: usize = 1 << 30;

/// What an answer says of its node; its body is looked at where its head doesn't tell.
async fn judge(mut reply: Reply) -> Result<(Reply, Outcome), SendError> {
    let outcome = match Outcome::of_head(reply.status(), reply.headers()) {
        Some(outcome) => outcome,
        None => Outcome::of_words(reply.body_mut().peek().await?),
    };
    Ok((reply, outcome))
}

/// Whether a request surely changes nothing; how long it takes is compared with others of the kind.
fn is_read(message: Message<'_>) -> bool {
    *message.method == Method::GET || *message.method == Method::HEAD
}

// === impl Ledger ===

impl Ledger {
    /// Says that an exchange failed after its answer's head had come.
    pub(crate) fn failed(&self, node: &Node, error: &SendError, began: Instant, request_id: &RequestId) {
        if let Some(outcome) = self.broken(node, error, request_id) {
            self.cluster.report(node, outcome, began.elapsed());
        }
    }

    /// Counts an exchange that failed; what that says of the node.
    fn broken(&self, node: &Node, error: &SendError, request_id: &RequestId) -> Option<Outcome> {
        // A client's body that broke off says nothing about the node.
        if !matches!(error.kind, SendErrorKind::Body(_)) {
            self.counters.exchanges_failed.add(1);
        }
        tracing::debug!(%request_id, node = node.name, %error, fate = ?error.fate, "exchange failed");
        Outcome::of_error(error)
    }
}
