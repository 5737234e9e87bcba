//! The configuration of a cluster.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use settings::Secret;

use crate::address::Address;
use crate::role::Role;
use crate::tls_files::TlsFiles;

/// Everything that [`Cluster::start`](crate::Cluster::start) needs to know.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// The name that flows refer to; it appears in logs, metrics and the status.
    pub name: String,
    /// The addresses to begin with: any nodes of the cluster, at least one. They are the fallback when the
    /// cluster cannot be discovered or its publish addresses cannot be reached from here.
    pub endpoints: Vec<Address>,
    /// The credentials of the gateway's own requests.
    pub credentials: Credentials,
    /// The headers of each of the gateway's own requests.
    pub headers: Vec<(HeaderName, Secret)>,
    /// The TLS files for `https` nodes.
    pub tls: TlsFiles,
    /// Whether nodes and indices are discovered. Without discovery only the endpoints are known, and every
    /// bulk passes through unsplit.
    pub discovery: bool,
    /// The interval in which the cluster is asked whether anything changed. `None`: only when something hints
    /// at a change (see [`Cluster::hint`](crate::Cluster::hint)), or a node leaves the rotation or returns.
    pub refresh: Option<Duration>,
    /// The longest time that one of the gateway's own requests may take.
    pub timeout: Duration,
    /// The rules for checking predictions against the cluster.
    pub verify: Verify,
    /// The rules by which a node leaves the rotation and comes back.
    pub health: HealthRules,
}

/// The gateway's identity towards the cluster.
#[derive(Clone, Debug, Default)]
pub enum Credentials {
    /// No credentials.
    #[default]
    None,
    /// HTTP basic authentication.
    Basic {
        /// User name.
        username: String,
        /// Password.
        password: Secret,
    },
    /// `Authorization: ApiKey …` with the encoded key as the cluster gave it.
    ApiKey(Secret),
}

/// The nodes that take the traffic that no primary calls for, with their weights. A choice that leaves no
/// node at all is ignored, and the log and the status say so. The parts of a split bulk go to their
/// primaries' nodes all the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeChoice {
    /// The nodes that take part.
    pub filter: NodeFilter,
    /// The weights in the rotation by `host:port`, host or node name; 1 for nodes that are not named, 0 keeps
    /// a node out.
    pub weights: BTreeMap<String, u32>,
    /// Whether nodes that join later get nothing: only nodes that were there when the cluster was first read
    /// take part.
    pub frozen: bool,
}

/// The nodes that take part. Empty lists have no effect; `exclude` wins over `include`.
///
/// Terms are taken literally: excluding `master` excludes every node that has the role, whatever else it
/// does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFilter {
    /// The roles; `master` and `cluster_manager` are one.
    pub roles: Terms<Role>,
    /// The `host`, `host:port` or node name.
    pub hosts: Terms<String>,
    /// The node attributes, as `name=value`.
    pub tags: Terms<(String, String)>,
}

/// A pair of lists. With a non-empty `include`, one of its terms must hold; none of `exclude` may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms<T> {
    /// One of these terms must hold, unless there are none.
    pub include: Vec<T>,
    /// None of these terms may hold.
    pub exclude: Vec<T>,
}

/// The check of predictions against `GET /INDEX/_search_shards?routing=`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verify {
    /// Whether to check each index with a few made-up routing values before its first split.
    pub before_split: bool,
    /// The most predictions for live traffic that are checked per second; 0 turns sampling off.
    pub samples_per_second: u32,
}

/// Passive and active health checking of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthRules {
    /// The failures in a row after which a node leaves the rotation. A refused connection takes it out at
    /// once, and so does its own statement that it can do nothing ([`NodeOutcome`](crate::NodeOutcome)).
    pub failures_max: u32,
    /// The first pause before a node that is out is probed; it is doubled up to `probe_interval_max`.
    pub probe_interval_min: Duration,
    /// The longest pause between probes.
    pub probe_interval_max: Duration,
}

/// A configuration that cannot work. The configuration is always at fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadConfig {
    /// There is no endpoint to begin with.
    #[error("cluster '{0}' has no endpoints")]
    NoEndpoint(String),
    /// A header's value has characters that no header may have. The value is a secret and not shown.
    #[error("the value of header '{0}' holds characters that a header cannot carry")]
    Header(String),
    /// There is a certificate without its key, or the other way round.
    #[error("a client certificate needs both files, the certificate and its key")]
    HalfIdentity,
    /// A TLS file could not be read.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// TLS could not be set up.
    #[error("TLS: {0}")]
    Tls(#[from] wire::TlsError),
    /// The system provided no thread for the watch.
    #[error("the watch's thread could not be started: {0}")]
    Thread(std::io::Error),
}

// === impl ClusterConfig ===

impl ClusterConfig {
    /// Makes a configuration with defaults for everything except name and endpoints.
    pub fn new(name: impl Into<String>, endpoints: Vec<Address>) -> Self {
        Self {
            name: name.into(),
            endpoints,
            credentials: Credentials::None,
            headers: Vec::new(),
            tls: TlsFiles::default(),
            discovery: true,
            refresh: Some(REFRESH_DEFAULT),
            timeout: TIMEOUT_DEFAULT,
            verify: Verify::default(),
            health: HealthRules::default(),
        }
    }
}

// === impl Credentials ===

impl Credentials {
    /// Returns the value of the `Authorization` header, marked as sensitive; `None` for no credentials.
    ///
    /// # Errors
    /// If the key cannot be sent in a header (because of line breaks and the like).
    pub fn authorization(&self) -> Result<Option<HeaderValue>, BadConfig> {
        use base64::Engine as _;
        let text = match self {
            Self::None => return Ok(None),
            Self::Basic { username, password } => {
                let pair = format!("{username}:{}", password.expose());
                format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair))
            }
            Self::ApiKey(key) => format!("ApiKey {}", key.expose()),
        };
        let mut value =
            HeaderValue::from_str(&text).map_err(|_| BadConfig::Header("authorization".to_owned()))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

// === impl Terms ===

impl<T> Default for Terms<T> {
    fn default() -> Self {
        Self {
            include: Vec::new(),
            exclude: Vec::new(),
        }
    }
}

impl<T> Terms<T> {
    pub(crate) fn admits(&self, holds: impl Fn(&T) -> bool) -> bool {
        !self.exclude.iter().any(&holds) && (self.include.is_empty() || self.include.iter().any(holds))
    }
}

// === impl Verify ===

impl Default for Verify {
    fn default() -> Self {
        Self {
            before_split: true,
            samples_per_second: 2,
        }
    }
}

// === impl HealthRules ===

impl Default for HealthRules {
    fn default() -> Self {
        Self {
            failures_max: 3,
            probe_interval_min: Duration::from_millis(250),
            probe_interval_max: Duration::from_secs(10),
        }
    }
}

/// One poll costs a node about 0.4 ms of CPU (OpenSearch 3.8, measured), so about a thousandth of a core.
const REFRESH_DEFAULT: Duration = Duration::from_millis(300);
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
