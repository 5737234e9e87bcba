//! Why nothing can be compared.

use wire::TlsError;

use crate::ask::AskError;
use crate::engine::RunError;
use crate::request::UrlError;

/// Why nothing can be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// A URL is wrong.
    #[error("`{0}` {1}")]
    Url(String, UrlError),
    /// Certificate authorities can't be used.
    #[error("authorities: {0}")]
    Tls(#[from] TlsError),
    /// No runtime.
    #[error(transparent)]
    Threads(#[from] std::io::Error),
    /// The cluster did not answer, or refused.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// A load could not be run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The gateway leads to another cluster.
    #[error("the gateway leads to another cluster ({gateway}) than {direct}: its counts would say nothing")]
    OtherCluster {
        /// Its name and uuid.
        direct: String,
        /// Its name and uuid.
        gateway: String,
    },
    /// The comparison was told to stop.
    #[error("stopped; the indices of this comparison are removed")]
    Stopped,
    /// The load file made for the comparison was rejected: a bug in loadgen.
    #[error("the requests of the comparison are not understood: {0}")]
    Load(String),
}
