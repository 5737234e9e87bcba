//! `elasticsearch`: clusters.

use std::time::Duration;

use settings::Secret;

use super::{Ignored, Names, OneOrMany, Time, section};
use crate::runtime::Anonymous;

section! {
    /// A cluster of Elasticsearch or OpenSearch.
    #[schemars(extend("required" = ["name"]))]
    ElasticsearchFile {
        /// Its name.
        name: String = String::new(),
        /// Switch it on.
        enabled: bool = true,
        /// Where to reach it: `http://` or `https://`, host, port. Give one of `endpoint`, `endpoints`, `host`,
        /// `hosts`.
        endpoint: Option<String> = None,
        /// Where to reach it, several nodes.
        endpoints: Names = OneOrMany(Vec::new()),
        /// Where to reach it, as `host:port`; `schema` says how.
        host: Option<String> = None,
        /// Where to reach it, several nodes as `host:port`; `schema` says how.
        hosts: Names = OneOrMany(Vec::new()),
        /// How to speak to `host` and `hosts`.
        schema: SchemeFile = SchemeFile::Http,
        /// The gateway's own account, for discovery; and for clients without one, if `anonymous` says so.
        basic_auth: Option<BasicAuthFile> = None,
        /// The gateway's own account as an API key: `id:api_key`, or that in base64.
        api_key: Option<Secret> = None,
        /// What happens to client requests that carry no credentials: `pass` sends them as they are, and the
        /// cluster decides; `use_gateway_account` sends them with the gateway's own account, so that whoever
        /// reaches the port acts with it.
        anonymous: Anonymous = Anonymous::Pass,
        /// Check of the nodes' certificates, for `https`.
        tls: ClusterTlsFile = ClusterTlsFile::default(),
        /// Watching the cluster.
        discovery: DiscoveryFile = DiscoveryFile::default(),
        /// Version.
        #[schemars(extend("x-ignored" = "flavour and version are asked of the cluster"))]
        version: Ignored = Ignored,
        /// Distribution.
        #[schemars(extend("x-ignored" = "flavour and version are asked of the cluster"))]
        distribution: Ignored = Ignored,
        /// Monitoring.
        #[schemars(extend("x-ignored" = "the gateway watches what it needs, and monitors nothing else"))]
        monitored: Ignored = Ignored,
        /// Metadata.
        #[schemars(extend("x-ignored" = "see `discovery`"))]
        metadata_configs: Ignored = Ignored,
        /// Metadata.
        #[schemars(extend("x-ignored" = "the cluster's metadata is always kept in memory"))]
        metadata_cache_enabled: Ignored = Ignored,
        /// Limits of traffic.
        #[schemars(extend("x-ignored" = "requests are limited by connections (`max_connection_per_node` of the filters) and memory (`worker.body_memory`), not by rate"))]
        traffic_control: Ignored = Ignored,
        /// Elections.
        #[schemars(extend("x-ignored" = "requests are forwarded whether or not there is a master; the cluster answers"))]
        allow_access_when_master_not_found: Ignored = Ignored,
        /// A remark.
        #[schemars(extend("x-ignored" = "a remark"))]
        description: Ignored = Ignored,
        /// A remark.
        #[schemars(extend("x-ignored" = "a remark"))]
        project: Ignored = Ignored,
        /// A remark.
        #[schemars(extend("x-ignored" = "a remark"))]
        location: Ignored = Ignored,
        /// A remark.
        #[schemars(extend("x-ignored" = "a remark"))]
        labels: Ignored = Ignored,
        /// A remark.
        #[schemars(extend("x-ignored" = "a remark"))]
        tags: Ignored = Ignored,
    }
}

/// How to speak to a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SchemeFile {
    /// Plain HTTP.
    Http,
    /// HTTP over TLS.
    Https,
}

section! {
    /// An account.
    #[schemars(extend("required" = ["username", "password"]))]
    BasicAuthFile {
        /// User name.
        username: String = String::new(),
        /// Password.
        password: Secret = Secret::default(),
    }
}

section! {
    /// Check of the nodes' certificates.
    ClusterTlsFile {
        /// Take any certificate. Whoever sits on the way can then read and change everything, credentials
        /// included; for trying things out.
        insecure_skip_verify: bool = false,
        /// Authorities (PEM) in place of the system's.
        ca_file: Option<String> = None,
        /// Certificate (PEM) that the gateway shows.
        cert_file: Option<String> = None,
        /// Its private key (PEM).
        key_file: Option<String> = None,
    }
}

section! {
    /// Watching the cluster.
    DiscoveryFile {
        /// Ask the cluster for its nodes (`true`), or use the given endpoints only (`false`): without a topology
        /// every bulk passes whole.
        enabled: bool = true,
        /// How often.
        refresh: DiscoveryRefreshFile = DiscoveryRefreshFile::default(),
        /// Longest wait for an answer to one look.
        timeout: Time = Time(Duration::from_secs(10)),
    }
}

section! {
    /// How often the cluster is looked at.
    DiscoveryRefreshFile {
        /// Look again and again. `false`: look at the start, and then only when something hints at a change: an answer, a
        /// prediction that was wrong, a node that fails or returns. Answers stay right, but what nothing hints at is not
        /// seen: see "A topology that is not polled" in nodes.md.
        enabled: bool = true,
        /// Between two looks: what has changed is seen after this long at most. A shorter `refresh.interval` of an
        /// `elasticsearch` filter holds instead.
        interval: Time = Time(Duration::from_millis(300)),
    }
}
