//! What a user says about a cluster.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use settings::Secret;
use wire::{ClientTls, ClientTlsConfig, Roots};

use crate::address::Address;
use crate::role::Role;

/// Everything that [`Cluster::start`](crate::Cluster::start) needs to know.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// The name that flows refer to; it stands in logs, metrics and the status.
    pub name: String,
    /// Where to begin: any nodes of the cluster, at least one. They are the fallback when the cluster cannot
    /// be discovered or its publish addresses cannot be reached from here.
    pub endpoints: Vec<Address>,
    /// How the gateway's own requests authenticate.
    pub credentials: Credentials,
    /// Headers that go with each of the gateway's own requests.
    pub headers: Vec<(HeaderName, Secret)>,
    /// How `https` nodes are trusted.
    pub tls: TlsFiles,
    /// Whether nodes and indices are discovered. Without it the endpoints are all that is known and every
    /// bulk passes through unsplit.
    pub discovery: bool,
    /// How often the cluster is asked whether anything changed. `None`: only when something hints at a change
    /// (see [`Cluster::hint`](crate::Cluster::hint)), or a node leaves the rotation or returns.
    pub refresh: Option<Duration>,
    /// How long one of the gateway's own requests may take.
    pub timeout: Duration,
    /// How predictions are checked against the cluster.
    pub verify: Verify,
    /// When a node leaves the rotation and how it comes back.
    pub health: HealthRules,
}

/// Who the gateway is to the cluster.
#[derive(Clone, Debug, Default)]
pub enum Credentials {
    /// Nobody.
    #[default]
    None,
    /// HTTP basic authentication.
    Basic {
        /// User name.
        username: String,
        /// Password.
        password: Secret,
    },
    /// `Authorization: ApiKey …`: the encoded key as the cluster gave it.
    ApiKey(Secret),
}

/// TLS towards the nodes, by file names. Files are read when the cluster is started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM file with the authorities to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Trust any certificate. Whoever sets it warns the user.
    pub insecure: bool,
    /// PEM file with our certificate chain, where nodes ask for one.
    pub certificate: Option<PathBuf>,
    /// PEM file with the key of `certificate`.
    pub key: Option<PathBuf>,
}

/// Which nodes take the traffic that no primary calls for, and how much of it each. Where that leaves no node
/// at all, it is ignored, and the log and the status say so. Parts of a split bulk go to their primaries'
/// nodes all the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeChoice {
    /// Who takes part.
    pub filter: NodeFilter,
    /// Weight in the rotation by `host:port`, host or node name; 1 for nodes that are not named, 0 keeps a
    /// node out.
    pub weights: BTreeMap<String, u32>,
    /// Nodes that come later get nothing: those take part that were there when the cluster was first read.
    pub frozen: bool,
}

/// Which nodes take part. Empty lists say nothing; `exclude` wins over `include`.
///
/// Taken literally: excluding `master` excludes every node that has the role, whatever else it does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFilter {
    /// Roles; `master` and `cluster_manager` are one.
    pub roles: Terms<Role>,
    /// `host`, `host:port` or node name.
    pub hosts: Terms<String>,
    /// Node attributes, `name=value`.
    pub tags: Terms<(String, String)>,
}

/// A pair of lists. With a non-empty `include`, one of its terms must hold; none of `exclude` may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms<T> {
    /// One of these must hold, unless empty.
    pub include: Vec<T>,
    /// None of these may hold.
    pub exclude: Vec<T>,
}

/// The check of predictions against `GET /INDEX/_search_shards?routing=`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verify {
    /// Check each index with a few made-up routing values before its first split.
    pub before_split: bool,
    /// How many predictions from live traffic are checked per second, at most; 0 turns sampling off.
    pub samples_per_second: u32,
}

/// Passive and active health checking of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthRules {
    /// Failures in a row after which a node leaves the rotation. A refused connection takes it out at once,
    /// and so do its own words that it can do nothing ([`Outcome`](crate::Outcome)).
    pub failures_max: u32,
    /// First pause before a node that is out is probed; doubled up to `probe_interval_max`.
    pub probe_interval_min: Duration,
    /// Longest pause between probes.
    pub probe_interval_max: Duration,
}

/// A configuration that cannot work. Always the configuration's fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadConfig {
    /// There is no endpoint to begin with.
    #[error("cluster '{0}' has no endpoints")]
    NoEndpoint(String),
    /// A header's value holds what no header may hold. The value is a secret and not shown.
    #[error("the value of header '{0}' holds characters that a header cannot carry")]
    Header(String),
    /// A certificate without its key, or the other way round.
    #[error("a client certificate needs both files, the certificate and its key")]
    HalfIdentity,
    /// A TLS file could not be read.
    #[error("{path}: {source}")]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// TLS could not be set up.
    #[error("TLS: {0}")]
    Tls(#[from] wire::TlsError),
    /// The system gave no thread for the watch.
    #[error("the watch's thread could not be started: {0}")]
    Thread(std::io::Error),
}

// === impl ClusterConfig ===

impl ClusterConfig {
    /// A configuration with defaults for everything but name and endpoints.
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
    /// The value of the `Authorization` header, marked sensitive; `None` for no credentials.
    ///
    /// # Errors
    /// A key that no header can hold (line breaks and the like).
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

// === impl TlsFiles ===

impl TlsFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// A file that cannot be read or holds no PEM of the right kind, a certificate without key.
    pub fn load(&self) -> Result<ClientTls, BadConfig> {
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|source| BadConfig::File {
                path: path.clone(),
                source,
            })
        };
        let identity_pem = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
            (None, None) => None,
            _ => return Err(BadConfig::HalfIdentity),
        };
        let roots = self.ca_file.clone().map_or(Roots::Native, Roots::File);
        Ok(ClientTls::new(&ClientTlsConfig {
            roots,
            insecure: self.insecure,
            identity_pem,
        })?)
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

/// One poll costs a node about 0.4 ms of CPU (OpenSearch 3.8, measured), so a thousandth of a core.
const REFRESH_DEFAULT: Duration = Duration::from_millis(300);
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
