//! The span of an exchange with a node, and the headers that carry it there.

use cluster::{Cluster, Node};
use http::{HeaderMap, StatusCode};
use traces::{OpenSpan, SpanKind};
use wire::SendError;

use super::outbound::{Message, Purpose};

/// An exchange that is traced.
pub(crate) struct Traced {
    open: OpenSpan,
    headers: HeaderMap,
}

// === impl Traced ===

impl Traced {
    /// Begins the span of an exchange, if its request is traced.
    pub(crate) fn begin(message: Message<'_>, node: &Node, cluster: &Cluster) -> Option<Box<Self>> {
        let trace = message.request_id.trace()?;
        let mut open = trace.begin(message.purpose.name(), SpanKind::Client);
        open.set("tidegate.cluster", cluster.config().name.clone());
        open.set("tidegate.node", node.name.clone());
        open.set("server.address", node.address.host.clone());
        open.set("server.port", node.address.port);
        open.set("http.request.method", message.method.to_string());
        if let Purpose::Part(operations) = message.purpose {
            open.set("tidegate.operations", operations);
        }
        let headers = open.carried_by(message.headers);
        Some(Box::new(Self { open, headers }))
    }

    /// Returns the headers of the request, with the span in them.
    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Records how the node answered.
    pub(crate) fn answered(&mut self, answer: Result<StatusCode, &SendError>) {
        match answer {
            Ok(status) => {
                self.open.set("http.response.status_code", status.as_u16());
                if status.is_client_error() || status.is_server_error() {
                    self.open.fail("");
                }
            }
            Err(error) => self.open.fail(error.to_string()),
        }
    }
}

// === impl Purpose ===

impl Purpose {
    fn name(self) -> &'static str {
        match self {
            Purpose::Forward => "forward",
            Purpose::Part(_) => "part",
            Purpose::Ask => "ask",
        }
    }
}
