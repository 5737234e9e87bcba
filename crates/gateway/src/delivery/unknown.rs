//! Why nobody can tell whether an operation that may have been executed was executed.

use std::sync::Arc;

use http::StatusCode;
use wire::SendError;

use crate::delivery::server_error::{is_in_servers_words, words_of};

/// Why it cannot be determined whether an operation that may have been executed was executed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum UnknownOutcome {
    #[error("the document that is there cannot be looked at")]
    Unreadable,
    #[error(transparent)]
    NotReadable(#[from] NotReadable),
    #[error(transparent)]
    Unanswered(#[from] Arc<SendError>),
    #[error("{status} when asked what {name} stands for")]
    Name { name: String, status: StatusCode },
    #[error("{0} when asked for documents that may have been written")]
    Documents(StatusCode),
}

/// Why a document cannot be read: in words for whoever can change that.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "{status} when [{index}] is read, so nobody can tell whether the document that is there is of an earlier try: \
     {missing}; the answer was: {words}"
)]
pub(crate) struct NotReadable {
    status: StatusCode,
    index: String,
    missing: &'static str,
    words: String,
}

// === impl UnknownOutcome ===

impl UnknownOutcome {
    /// Whether the node has answered, and would answer otherwise about another document, as far as is known.
    pub(crate) fn is_of_document(&self) -> bool {
        match self {
            UnknownOutcome::Unreadable | UnknownOutcome::NotReadable(_) => true,
            UnknownOutcome::Unanswered(_) => false,
            UnknownOutcome::Name { status, .. } | UnknownOutcome::Documents(status) => {
                !status.is_server_error()
                    && !status.is_redirection()
                    && !matches!(
                        *status,
                        StatusCode::UNAUTHORIZED
                            | StatusCode::PROXY_AUTHENTICATION_REQUIRED
                            | StatusCode::TOO_MANY_REQUESTS
                            | StatusCode::REQUEST_TIMEOUT
                    )
            }
        }
    }
}

// === impl NotReadable ===

impl NotReadable {
    /// Reads the refusal of a question about a document; `None` if it is not about what somebody may.
    pub(super) fn of(index: &str, status: StatusCode, body: &[u8]) -> Option<Self> {
        let missing = match (status, is_in_servers_words(status, body)) {
            (StatusCode::FORBIDDEN, true) => {
                "the gateway's account needs the right `read` for the index (in OpenSearch `indices:data/read/get`)"
            }
            (StatusCode::FORBIDDEN, false) => {
                "something between the gateway and the cluster has to let the gateway read"
            }
            _ => return None,
        };
        Some(Self {
            status,
            index: index.to_owned(),
            missing,
            words: words_of(body, WORDS_BYTES),
        })
    }
}

/// How much is shown of the words in which a question is refused.
const WORDS_BYTES: usize = 300;
