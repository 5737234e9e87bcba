//! Why a gateway cannot start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use wire::TlsError;

/// Why a gateway cannot start, or a new configuration cannot be put in force. Always something that the operator can
/// mend.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A cluster's settings cannot work.
    #[error(transparent)]
    Cluster(#[from] cluster::BadConfig),
    /// An entry's certificate cannot be used.
    #[error("entry '{entry}': {source}")]
    Tls {
        /// The entry's name.
        entry: Arc<str>,
        /// Why.
        source: TlsError,
    },
    /// A file of an entry's TLS settings cannot be read.
    #[error("entry '{entry}': {path}: {source}")]
    File {
        /// The entry's name.
        entry: Arc<str>,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// An address cannot be listened on.
    #[error("{what} cannot listen on {address}: {source}")]
    Listen {
        /// The entry, or the admin port.
        what: String,
        /// Where.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// A self-signed certificate could not be made.
    #[error("entry '{entry}': no certificate could be made: {reason}")]
    SelfSigned {
        /// The entry's name.
        entry: Arc<str>,
        /// Why.
        reason: String,
    },
    /// A queue, or its dead letters, cannot be opened.
    #[error("queue '{queue}': {why}")]
    Queue {
        /// Its name.
        queue: Arc<str>,
        /// Why.
        why: String,
    },
    /// A reload that would change queues or pipelines.
    #[error(
        "queues and pipelines are as they were at the start: another `queue`, `pipeline` or `path.data` needs a restart"
    )]
    QueuesDiffer,
    /// The admin port is open to strangers and has no token.
    #[error("the admin port is not on loopback ({0}) and has no token: set one, or bind it to 127.0.0.1")]
    OpenAdmin(SocketAddr),
    /// The system gave no thread.
    #[error("threads could not be started: {0}")]
    Threads(#[source] io::Error),
}
