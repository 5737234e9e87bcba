//! Why two indices can't be compared.

use wire::TlsError;

use crate::ask::AskError;
use crate::request::UrlError;

/// Why two indices can't be compared.
#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    /// A URL is wrong.
    #[error("`{0}` {1}")]
    Url(String, UrlError),
    /// Certificate authorities can't be used.
    #[error("authorities: {0}")]
    Tls(#[from] TlsError),
    /// No runtime, or no thread.
    #[error(transparent)]
    Threads(#[from] std::io::Error),
    /// A side did not answer, refused, or gave a partial answer.
    #[error("{side}: {why}")]
    Side {
        /// `left` or `right`, with the side's address.
        side: String,
        /// The cause.
        why: String,
    },
    /// The differences in one range of ids need more memory than is allowed.
    #[error("{0} bytes are too few for what differs: allow more with --memory")]
    Memory(u64),
    /// The comparison was told to stop.
    #[error("stopped")]
    Stopped,
}

/// A failure of one side.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error("{0}: the answer is not what was asked for: {1}")]
    Answer(String, String),
    #[error("{0}: only a part was answered: {1}")]
    Partial(String, String),
    #[error("no room")]
    NoRoom,
    #[error(transparent)]
    Threads(#[from] std::io::Error),
    #[error("stopped")]
    Stopped,
}
