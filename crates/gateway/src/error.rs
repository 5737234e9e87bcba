//! The only place where an error becomes HTTP for the clients of an entry, in the shape that Elasticsearch
//! and OpenSearch give their own errors (`ElasticsearchException.generateFailureXContent`,
//! `OpenSearchException.generateFailureXContent`). The admin port has its own, `admin::refusal`.

use config::router::Undecided;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use log::Full;
use serde_json::json;
use wire::{BodyError, Fate, Outgoing, Refusal, SendError, SendErrorKind, SlowSource, SourceError};

/// An answer that the gateway itself gives because something went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) status: StatusCode,
    /// `type` of the error: a type of the cluster's own where one fits.
    pub(crate) kind: &'static str,
    /// `reason` of the error: who caused it, and what to do next if that is known. It begins with `gateway:`,
    /// so that nobody takes it for a message of the cluster.
    pub(crate) reason: String,
    retry_after_s: Option<u32>,
}

/// The answer to a request that is not carried out.
#[derive(Debug)]
pub(crate) enum Rejection {
    /// The gateway itself refuses the request, or failed.
    Fault(Fault),
    /// The cluster was asked about the request and refuses it, in these words.
    Cluster(Box<Response<Outgoing>>),
}

/// A reply that is larger than `max_response_size`, in bytes.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the node's reply is larger than max_response_size ({0} bytes)")]
pub(crate) struct ReplyTooLarge(pub(crate) u64);

/// Why a request was not appended to a journal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotQueued {
    #[error(transparent)]
    Disk(#[from] log::AppendError),
    #[error(transparent)]
    Kafka(#[from] kafka::AppendError),
    /// A reload removes the queue.
    #[error("a reload is removing the queue")]
    Leaving,
}

// === impl Rejection ===

impl From<Fault> for Rejection {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<Response<Outgoing>> for Rejection {
    fn from(answer: Response<Outgoing>) -> Self {
        Self::Cluster(Box::new(answer))
    }
}

impl Rejection {
    /// Returns the answer to send.
    pub(crate) fn response(self) -> Response<Outgoing> {
        match self {
            Self::Fault(fault) => fault.response(),
            Self::Cluster(answer) => *answer,
        }
    }
}

// === impl NotQueued ===

impl NotQueued {
    /// Returns whether the request is longer than a record may be, however much room there is.
    pub(crate) fn is_too_large(&self) -> bool {
        matches!(
            self,
            NotQueued::Disk(log::AppendError::TooLarge { .. })
                | NotQueued::Kafka(kafka::AppendError::TooLarge { .. })
        )
    }
}

impl Fault {
    fn new(status: StatusCode, kind: &'static str, reason: impl Into<String>) -> Self {
        Self {
            status,
            kind,
            reason: format!("gateway: {}", reason.into()),
            retry_after_s: None,
        }
    }

    /// The client broke a rule of HTTP or one of our limits.
    pub(crate) fn refused(refusal: Refusal) -> Self {
        let status = refusal.status();
        let kind = match status {
            StatusCode::PAYLOAD_TOO_LARGE => "content_too_long_exception",
            StatusCode::REQUEST_TIMEOUT => "timeout_exception",
            StatusCode::INTERNAL_SERVER_ERROR => "exception",
            _ => "illegal_argument_exception",
        };
        Self::new(status, kind, refusal.reason())
    }

    /// The client's body could not be read; `None` when there is no client left to answer.
    pub(crate) fn body(error: &BodyError) -> Option<Self> {
        Some(match error {
            BodyError::Refused(refusal) => Self::refused(*refusal),
            BodyError::Inflated { .. } => Self::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "content_too_long_exception",
                error.to_string(),
            ),
            BodyError::OverBudget(_) => Self {
                retry_after_s: Some(1),
                ..Self::new(
                    StatusCode::TOO_MANY_REQUESTS,
                    "circuit_breaking_exception",
                    format!("{error}; send again later, or raise worker.body_memory"),
                )
            },
            BodyError::UnsupportedEncoding => Self::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "illegal_argument_exception",
                error.to_string(),
            ),
            BodyError::Corrupt(_) => Self::new(StatusCode::BAD_REQUEST, "parse_exception", error.to_string()),
            BodyError::Disconnected | BodyError::Io(_) => return None,
            _ => Self::new(
                StatusCode::BAD_REQUEST,
                "illegal_argument_exception",
                error.to_string(),
            ),
        })
    }

    /// No node could be asked, or none answered.
    pub(crate) fn upstream(error: &SendError) -> Self {
        // The client's body broke on its way through.
        if let SendErrorKind::Body(source) = &error.kind
            && let Some(error) = source.downcast_ref::<BodyError>()
        {
            return Self::body(error).unwrap_or_else(Self::gone);
        }
        let (status, kind) = match &error.kind {
            SendErrorKind::Body(source) if source.is::<SlowSource>() => {
                (StatusCode::REQUEST_TIMEOUT, "timeout_exception")
            }
            SendErrorKind::Deadline | SendErrorKind::Timeout => {
                (StatusCode::GATEWAY_TIMEOUT, "timeout_exception")
            }
            SendErrorKind::Malformed(_) | SendErrorKind::TooLarge { .. } => {
                (StatusCode::BAD_GATEWAY, "node_disconnected_exception")
            }
            // It was executed, perhaps: nobody should take it for a request that can be sent again.
            SendErrorKind::OverBudget(_) if error.fate == Fate::Unknown => {
                (StatusCode::BAD_GATEWAY, "circuit_breaking_exception")
            }
            SendErrorKind::OverBudget(_) => (StatusCode::TOO_MANY_REQUESTS, "circuit_breaking_exception"),
            SendErrorKind::Connect(_) | SendErrorKind::ConnectTimeout | SendErrorKind::Tls(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, "connect_transport_exception")
            }
            SendErrorKind::Busy => (StatusCode::TOO_MANY_REQUESTS, "es_rejected_execution_exception"),
            _ => (StatusCode::SERVICE_UNAVAILABLE, "node_disconnected_exception"),
        };
        let is_done_perhaps =
            matches!(error.kind, SendErrorKind::OverBudget(_)) && error.fate == Fate::Unknown;
        let retry_after_s = (status != StatusCode::GATEWAY_TIMEOUT && !is_done_perhaps).then_some(1);
        Self {
            retry_after_s,
            ..Self::new(status, kind, error.to_string())
        }
    }

    /// A node's reply is larger than the configuration allows.
    pub(crate) fn reply_too_large(error: ReplyTooLarge) -> Self {
        Self::new(
            StatusCode::BAD_GATEWAY,
            "content_too_long_exception",
            error.to_string(),
        )
    }

    /// A reply that broke off before a byte of it had been passed on.
    pub(crate) fn broke_off(error: &SourceError) -> Self {
        if let Some(error) = error.downcast_ref::<ReplyTooLarge>() {
            return Self::reply_too_large(*error);
        }
        match error.downcast_ref::<SendError>() {
            Some(error) => Self::upstream(error),
            None => Self::refused(Refusal::Failed),
        }
    }

    /// The gateway itself failed on a request.
    pub(crate) fn panicked() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "exception",
            "the gateway failed on this request, which is a bug of the gateway (the log says where); \
             the writes of the request may have been executed"
                .to_owned(),
        )
    }

    /// Nodes answered, but their answers contradict the plan of the request.
    pub(crate) fn unmerged(why: &str) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "exception",
            format!("the nodes' answers could not be merged, operations may have been executed: {why}"),
        )
    }

    /// A write of a single document was sent, and no usable answer came.
    pub(crate) fn unknown_fate(why: &str) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "unavailable_shards_exception",
            format!(
                "the node that was asked gave no usable answer, so this operation may or may not have been executed: {why}"
            ),
        )
    }

    /// A bulk that the queue did not take: nothing of it will be delivered, except for parts that Kafka may
    /// have.
    pub(crate) fn not_queued(error: &NotQueued) -> Self {
        use kafka::AppendError as OfKafka;
        use log::AppendError as OfDisk;
        // The cause that kept the rest out decides the status; the reason says that some of the bulk was
        // taken.
        let (why, partly) = match error {
            NotQueued::Kafka(OfKafka::Partly { why, .. }) => (&NotQueued::Kafka((**why).clone()), true),
            other => (other, false),
        };
        let too_many = (StatusCode::TOO_MANY_REQUESTS, "es_rejected_execution_exception");
        let away = (StatusCode::SERVICE_UNAVAILABLE, "unavailable_shards_exception");
        let too_large = (StatusCode::PAYLOAD_TOO_LARGE, "content_too_long_exception");
        let ((status, kind), retry_after_s) = match why {
            NotQueued::Disk(OfDisk::TooLarge { .. }) | NotQueued::Kafka(OfKafka::TooLarge { .. }) => {
                (too_large, None)
            }
            // Such a refusal ends with the next sync, or with the next answer of the brokers. Room on the
            // disk takes longer.
            NotQueued::Disk(OfDisk::Full(Full::Waiting { .. })) => (too_many, Some(1)),
            NotQueued::Disk(OfDisk::Full(_)) => (too_many, Some(10)),
            // A 429 would say that nothing of the bulk was executed.
            NotQueued::Kafka(OfKafka::Full { .. }) => (if partly { away } else { too_many }, Some(1)),
            NotQueued::Kafka(OfKafka::Away(_)) | NotQueued::Leaving => (away, Some(1)),
            _ => (away, Some(10)),
        };
        let reason = match why {
            _ if partly && retry_after_s.is_none() => format!("not all of it was accepted: {error}"),
            NotQueued::Kafka(of) if partly || matches!(of, OfKafka::Away(_)) => format!(
                "not all of it was accepted; send it again, parts of it may be executed twice: {error}"
            ),
            _ => format!("nothing was accepted: {error}"),
        };
        Self {
            retry_after_s,
            ..Self::new(status, kind, reason)
        }
    }

    /// The dead letters of an index have no room left, and more of its refused documents wait for room.
    pub(crate) fn letters_full(index: &str, bytes: u64) -> Self {
        Self {
            retry_after_s: Some(10),
            ..Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "es_rejected_execution_exception",
                format!(
                    "nothing was accepted: the dead letters of [{index}] have no more room, and {bytes} bytes of its refused \
                     documents wait for room: replay or purge dead letters, or raise dead_letters_max_size"
                ),
            )
        }
    }

    /// The idempotency key is not valid.
    pub(crate) fn bad_key() -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "illegal_argument_exception",
            "nothing was accepted: Idempotency-Key must be one value of 1 to 255 bytes",
        )
    }

    /// The idempotency key belongs to another request.
    pub(crate) fn key_of_another() -> Self {
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "illegal_argument_exception",
            "nothing was accepted: this Idempotency-Key was used for a request with another path, other parameters or another body",
        )
    }

    /// The request with this idempotency key is already under way, and takes long.
    pub(crate) fn key_under_way() -> Self {
        Self {
            retry_after_s: Some(1),
            ..Self::new(
                StatusCode::CONFLICT,
                "es_rejected_execution_exception",
                "the request that this one repeats is still under way; send it again later",
            )
        }
    }

    /// So many requests had idempotency keys that no further key can be remembered.
    pub(crate) fn too_many_keys() -> Self {
        Self {
            retry_after_s: Some(10),
            ..Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "es_rejected_execution_exception",
                "nothing was accepted: no more Idempotency-Keys can be remembered; send it again later, or raise idempotency.max_keys",
            )
        }
    }

    /// One client used so many idempotency keys that it gets no more, so that others have room.
    pub(crate) fn too_many_keys_of_one() -> Self {
        Self {
            retry_after_s: Some(10),
            ..Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "es_rejected_execution_exception",
                "nothing was accepted: this client has more Idempotency-Keys than are left for all others; send it again later, or raise idempotency.max_keys",
            )
        }
    }

    /// A repeated request whose answer cannot be produced again.
    pub(crate) fn not_repeatable(position: u64, why: &str) -> Self {
        Self::new(
            StatusCode::CONFLICT,
            "version_conflict_engine_exception",
            format!(
                "this request was accepted before (queued; position={position}) and nothing was written now; its answer cannot be given again, because it would not be queued now: {why}"
            ),
        )
    }

    /// The queued writes before this write were not delivered in time, and this write must not overtake them.
    pub(crate) fn would_overtake(queue: &str) -> Self {
        Self {
            retry_after_s: Some(1),
            ..Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "unavailable_shards_exception",
                format!(
                    "nothing was executed: this write is not queued, and what is in the queue `{queue}` before it has not been delivered yet"
                ),
            )
        }
    }

    /// A write that cannot be queued, although other clusters receive what is queued.
    pub(crate) fn would_be_missing(queue: &str, clusters: &[&str], why: &str) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "illegal_argument_exception",
            format!(
                "nothing was executed: this write cannot be queued ({why}), and would be missing in {}, which the queue `{queue}` is delivered to as well; `passing_second_cluster: accept` of the queue lets such writes go to the first cluster alone",
                clusters.join(", ")
            ),
        )
    }

    /// A write that the cluster refuses to its client, wholly or in part. If it went to that cluster alone,
    /// the other clusters would miss it.
    pub(crate) fn not_allowed(queue: &str, clusters: &[&str]) -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "security_exception",
            format!(
                "nothing was executed: the cluster does not allow this client to do all that the request asks; what it does allow would be missing in {}, which the queue `{queue}` is delivered to as well",
                clusters.join(", ")
            ),
        )
    }

    /// A bulk for a queue, before anything is known about the cluster.
    pub(crate) fn nothing_learnt() -> Self {
        Self {
            retry_after_s: Some(1),
            ..Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "unavailable_shards_exception",
                "nothing was accepted: the cluster's topology has not been read yet; `/elasticsearch` of the admin port says why",
            )
        }
    }

    /// A write for a queue. Too little is known about one of its indices to determine the lanes of its
    /// documents.
    pub(crate) fn index_not_ready() -> Self {
        Self {
            retry_after_s: Some(1),
            ..Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "unavailable_shards_exception",
                "nothing was accepted: an index of this request is not ready, and its shards are not known yet",
            )
        }
    }

    /// A bulk for a queue, with an index that the cluster has not created yet.
    pub(crate) fn not_introduced(index: &str) -> Self {
        Self {
            retry_after_s: Some(1),
            ..Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "unavailable_shards_exception",
                format!(
                    "nothing was accepted: the index [{index}] is new, and the cluster could not be asked to create it"
                ),
            )
        }
    }

    /// No node could say whether the cluster accepts the client's credentials.
    pub(crate) fn unchecked(why: &str) -> Self {
        Self {
            retry_after_s: Some(1),
            ..Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "unavailable_shards_exception",
                format!("nothing was accepted: no node of the cluster could check the credentials: {why}"),
            )
        }
    }

    /// No node could say whether the cluster accepts requests with these parameters and headers.
    pub(crate) fn form_unknown(why: &str) -> Self {
        Self {
            retry_after_s: Some(1),
            ..Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "unavailable_shards_exception",
                format!(
                    "nothing was accepted: no node of the cluster could say whether it takes a bulk with these parameters and headers: {why}"
                ),
            )
        }
    }

    /// A setting of the gateway that is not valid: nothing has changed, here or in the cluster.
    pub(crate) fn bad_switch(why: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "illegal_argument_exception", why)
    }

    /// A setting of the gateway for indices whose settings this client may not change.
    pub(crate) fn not_covered(patterns: &str) -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "security_exception",
            format!(
                "nothing was changed: [{patterns}] covers indices whose settings this user may not update; name those that it may, or a pattern that covers no others"
            ),
        )
    }

    /// Switches that the cluster accepted and that could not be written to the disk.
    pub(crate) fn not_kept(why: &dyn std::fmt::Display) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "exception",
            format!(
                "no switch was changed, because the change could not be saved ({why}); other settings of the request are in force at the cluster"
            ),
        )
    }

    /// A request that no flow answers.
    pub(crate) fn no_flow() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "illegal_argument_exception",
            "no filter of this request's flow answers it; add an elasticsearch filter at the flow's end",
        )
    }

    /// A request whose flow cannot be determined from rules for certain indices.
    pub(crate) fn undecided(why: Undecided) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "illegal_argument_exception",
            format!("nothing was executed: no rule of this router can say where this request belongs: {why}"),
        )
    }

    /// A bulk with operations for an index that a rule sends to another flow.
    pub(crate) fn belongs_elsewhere(index: &str) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "illegal_argument_exception",
            format!(
                "nothing was executed: a line of this bulk is for [{index}], which belongs to another flow than the request's path; send it as a bulk of its own with the index in the path"
            ),
        )
    }

    /// A body that names an index which belongs to another flow than the request's path.
    pub(crate) fn named_elsewhere(index: &str) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "illegal_argument_exception",
            format!(
                "nothing was executed: the request's body names [{index}], which belongs to another flow than its path; ask for it \
                 in a request of its own with the index in the path"
            ),
        )
    }

    /// A body that cannot be read and may name indices which belong to another flow.
    pub(crate) fn names_unreadable() -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "illegal_argument_exception",
            "nothing was executed: the indices that this request's body names cannot be read, and some belong to a flow of their own; \
             send it as JSON, or with the index in the path",
        )
    }

    /// A request that a gateway does not support.
    pub(crate) fn unsupported(what: &str) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "illegal_argument_exception", what)
    }

    /// The client left before its whole request had arrived. Nobody reads this answer, but the log shows it.
    pub(crate) fn gone() -> Self {
        Self::new(
            StatusCode::REQUEST_TIMEOUT,
            "timeout_exception",
            "the client closed the connection before the end of its request",
        )
    }

    /// Returns the answer to send. The fault travels in its extensions, for the log.
    pub(crate) fn response(self) -> Response<Outgoing> {
        let cause = json!({"type": self.kind, "reason": self.reason});
        let body = json!({
            "error": {"root_cause": [cause], "type": self.kind, "reason": self.reason},
            "status": self.status.as_u16(),
        });
        let mut response = Response::new(Outgoing::from(body.to_string()));
        *response.status_mut() = self.status;
        response.headers_mut().insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/json; charset=UTF-8"),
        );
        if let Some(seconds) = self.retry_after_s {
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_clusters_shape() {
        let mut response = Fault::refused(Refusal::AmbiguousLength).response();
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        let Outgoing::Full(body) = std::mem::take(response.body_mut()) else {
            panic!("one chunk expected")
        };
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["status"], 400);
        assert_eq!(body["error"]["type"], "illegal_argument_exception");
        assert_eq!(body["error"]["root_cause"][0]["reason"], body["error"]["reason"]);
    }

    #[test]
    fn nobody_is_told_that_nothing_was_accepted_of_what_is_stored_in_part() {
        use kafka::AppendError as OfKafka;
        let told = |error: OfKafka| Fault::not_queued(&NotQueued::Kafka(error));
        let partly = |why| OfKafka::Partly {
            stored: 1,
            parts: 2,
            why: Box::new(why),
        };
        let too_large = || OfKafka::TooLarge { bytes: 9, most: 0 };
        let full = || OfKafka::Full { waiting: 9, most: 9 };
        for (error, status, retry, says) in [
            (
                too_large(),
                413,
                None,
                "nothing was accepted: 9 bytes, and the topic takes smaller",
            ),
            (
                partly(too_large()),
                413,
                None,
                "not all of it was accepted: 1 of its 2 parts are in the topic",
            ),
            (full(), 429, Some(1), "nothing was accepted"),
            (
                partly(full()),
                503,
                Some(1),
                "not all of it was accepted; send it again",
            ),
            (
                partly(OfKafka::Closed),
                503,
                Some(10),
                "not all of it was accepted; send it again",
            ),
        ] {
            let fault = told(error);
            assert_eq!((fault.status.as_u16(), fault.retry_after_s), (status, retry));
            assert!(fault.reason.contains(says), "{}", fault.reason);
        }
    }

    #[test]
    fn a_client_that_went_away_is_told_nothing() {
        assert!(Fault::body(&BodyError::Disconnected).is_none());
    }
}
