//! `elasticsearch`: clusters.

use std::time::Duration;

use settings::Secret;

use super::{Ignored, Names, OneOrMany, Time, section};
use crate::runtime::Anonymous;

section! {
    /// A cluster of Elasticsearch or OpenSearch.
    #[schemars(extend("required" = ["name"]))]
    ElasticsearchFile {
        /// Name of the cluster.
        name: String = String::new(),
        /// Use this cluster.
        enabled: bool = true,
        /// URL of a node: `http://` or `https://`, host, port. Give one of `endpoint`, `endpoints`, `host`,
        /// `hosts`.
        endpoint: Option<String> = None,
        /// URLs of several nodes.
        endpoints: Names = OneOrMany(Vec::new()),
        /// A node, as `host:port`, reached by `schema`.
        host: Option<String> = None,
        /// Several nodes, as `host:port`, reached by `schema`.
        hosts: Names = OneOrMany(Vec::new()),
        /// Scheme for `host` and `hosts`.
        schema: SchemeFile = SchemeFile::Http,
        /// The gateway's own account: for discovery, and for clients without credentials if `anonymous`
        /// allows it.
        basic_auth: Option<BasicAuthFile> = None,
        /// The gateway's own account as an API key: `id:api_key`, or that in base64.
        api_key: Option<Secret> = None,
        /// What happens to client requests without credentials: `pass` sends them as they are, and the
        /// cluster decides. `use_gateway_account` sends them with the gateway's own account, so anyone who
        /// reaches the port acts with it, unless other headers say whom the request is for (`X-Proxy-User`,
        /// `es-security-runas-user` and the like).
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
        /// A comment for readers of the file.
        #[schemars(extend("x-ignored" = "a remark"))]
        description: Ignored = Ignored,
        /// A comment for readers of the file.
        #[schemars(extend("x-ignored" = "a remark"))]
        project: Ignored = Ignored,
        /// A comment for readers of the file.
        #[schemars(extend("x-ignored" = "a remark"))]
        location: Ignored = Ignored,
        /// A comment for readers of the file.
        #[schemars(extend("x-ignored" = "a remark"))]
        labels: Ignored = Ignored,
        /// A comment for readers of the file.
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
        /// Accept any certificate; for tests only. Anyone on the network path can then read and change
        /// everything, with credentials.
        insecure_skip_verify: bool = false,
        /// PEM file of the certificate authorities to trust instead of the system's.
        ca_file: Option<String> = None,
        /// PEM file of the certificate that the gateway presents.
        cert_file: Option<String> = None,
        /// PEM file of the private key.
        key_file: Option<String> = None,
    }
}

section! {
    /// Watching the cluster.
    DiscoveryFile {
        /// Ask the cluster for its nodes (`true`), or use the given endpoints only (`false`): without a
        /// topology every bulk passes whole.
        enabled: bool = true,
        /// How often the gateway looks at the cluster.
        refresh: DiscoveryRefreshFile = DiscoveryRefreshFile::default(),
        /// Longest wait for an answer from the cluster.
        timeout: Time = Time(Duration::from_secs(10)),
    }
}

section! {
    /// How often the cluster is looked at.
    DiscoveryRefreshFile {
        /// Look repeatedly. `false`: look at the start, and then only when something hints at a change: an
        /// answer, a wrong prediction, a node that fails or returns. Answers stay right, but a change that
        /// nothing hints at is not seen: see "A topology that is not polled" in nodes.md.
        enabled: bool = true,
        /// Time between two looks, after which a change is seen at the latest. A shorter `refresh.interval`
        /// of an `elasticsearch` filter applies instead.
        interval: Time = Time(Duration::from_millis(300)),
    }
}
