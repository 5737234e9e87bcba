//! Why a gateway cannot start, or why a new configuration cannot be put in force, and which key of the file
//! causes it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use config::file::{ConfigFile, EntryTlsFile};
use config::{Loaded, Problem};
use wire::TlsError;

/// Why a gateway cannot start, or why a new configuration cannot be put in force. The operator can always
/// correct the cause; [`StartError::problem`] says where.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A cluster's settings cannot work.
    #[error("{source}")]
    Cluster {
        /// The name of the cluster.
        cluster: Arc<str>,
        /// The reason.
        source: cluster::BadConfig,
    },
    /// A listener's certificate cannot be used.
    #[error("{owner}: {files}: {source}")]
    Tls {
        /// The listener.
        owner: TlsOwner,
        /// The files that cannot be used.
        files: String,
        /// The reason.
        source: TlsError,
    },
    /// A file of a listener's TLS settings cannot be read.
    #[error("{owner}: {path}: {source}")]
    File {
        /// The listener.
        owner: TlsOwner,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// An entry's address cannot be listened on.
    #[error("entry '{entry}' cannot listen on {address}: {source}")]
    Listen {
        /// The name of the entry.
        entry: Arc<str>,
        /// The address.
        address: SocketAddr,
        /// The reason.
        source: io::Error,
    },
    /// The admin port's address cannot be listened on.
    #[error("the admin port cannot listen on {address}: {source}")]
    Admin {
        /// The address.
        address: SocketAddr,
        /// The reason.
        source: io::Error,
    },
    /// A self-signed certificate could not be made.
    #[error("{owner}: no certificate could be made: {reason}")]
    SelfSigned {
        /// The listener.
        owner: TlsOwner,
        /// The reason.
        reason: String,
    },
    /// A queue, or its dead letters, cannot be opened.
    #[error("queue '{queue}': {why}")]
    Queue {
        /// The name of the queue.
        queue: Arc<str>,
        /// The reason.
        why: String,
    },
    /// The file with the settings that were switched at run time cannot be read.
    #[error(
        "what was switched at run time cannot be read: {}: {why}; mend the file, or remove it, which leaves every switch to the configuration",
        .file.display()
    )]
    Switches {
        /// The file.
        file: PathBuf,
        /// The reason.
        why: String,
    },
    /// A reload asks for a change of queues or pipelines that cannot be made now.
    #[error("{why}")]
    QueuesDiffer {
        /// The section that differs.
        key: &'static str,
        /// The reason.
        why: String,
    },
    /// The admin port is open to strangers and has no token.
    #[error("the admin port is not on loopback ({0}) and has no token: set one, or bind it to 127.0.0.1")]
    OpenAdmin(SocketAddr),
    /// The files of `tracing.otlp.tls` cannot be used.
    #[error("traces cannot be exported: {0}")]
    Tracing(#[source] cluster::BadConfig),
    /// The system could not start a thread.
    #[error("threads could not be started: {0}")]
    Threads(#[source] io::Error),
}

/// The listener whose TLS an error is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsOwner {
    /// The entry of this name.
    Entry(Arc<str>),
    /// The admin port.
    Admin,
}

// === impl TlsOwner ===

impl fmt::Display for TlsOwner {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry(name) => write!(out, "entry '{name}'"),
            Self::Admin => out.write_str("the admin port"),
        }
    }
}

// === impl StartError ===

impl StartError {
    /// Returns this error as a problem of the configuration file, with the key to correct and its place.
    pub fn problem(&self, loaded: &Loaded) -> Problem {
        loaded.problem(&self.key(&loaded.file), self.to_string())
    }

    /// Returns the key to correct, or an empty string if no single key is the cause.
    fn key(&self, file: &ConfigFile) -> String {
        let of_entry = |name: &Arc<str>, key: &dyn Fn(&EntryTlsFile) -> &'static str| {
            let at = file.entry.iter().position(|entry| *entry.name == **name);
            at.map_or_else(String::new, |at| {
                format!("entry[{at}].{}", key(&file.entry[at].tls))
            })
        };
        let of_admin = |key: &dyn Fn(&EntryTlsFile) -> &'static str| {
            let (section, tls) = match (&file.api, &file.admin) {
                (Some(api), _) => ("api", api.tls.as_ref()),
                (None, admin) => ("admin", admin.as_ref().and_then(|admin| admin.tls.as_ref())),
            };
            tls.map_or_else(String::new, |tls| format!("{section}.{}", key(tls)))
        };
        let of_owner = |owner: &TlsOwner, key: &dyn Fn(&EntryTlsFile) -> &'static str| match owner {
            TlsOwner::Entry(name) => of_entry(name, key),
            TlsOwner::Admin => of_admin(key),
        };
        match self {
            StartError::Cluster { cluster, .. } => {
                let mut clusters = file.elasticsearch.iter();
                let at = clusters.position(|section| *section.name == **cluster);
                at.map_or_else(String::new, |at| format!("elasticsearch[{at}]"))
            }
            StartError::Listen { entry, .. } => of_entry(entry, &|_| "network.binding"),
            StartError::Tls { owner, .. } | StartError::SelfSigned { owner, .. } => {
                of_owner(owner, &|_| "tls")
            }
            StartError::File { owner, path, .. } => of_owner(owner, &|tls| {
                let is =
                    |file: &Option<String>| file.as_ref().is_some_and(|file| path.as_os_str() == &**file);
                match tls {
                    tls if is(&tls.cert_file) => "tls.cert_file",
                    tls if is(&tls.key_file) => "tls.key_file",
                    _ => "tls.client_ca_file",
                }
            }),
            StartError::Admin { .. } | StartError::OpenAdmin(_) => match file.api {
                Some(_) => "api.network.binding".to_owned(),
                None => "admin.binding".to_owned(),
            },
            StartError::QueuesDiffer { key, .. } => (*key).to_owned(),
            StartError::Tracing(_) => "tracing.otlp.tls".to_owned(),
            StartError::Switches { .. } => "path.data".to_owned(),
            StartError::Queue { .. } | StartError::Threads(_) => String::new(),
        }
    }
}
