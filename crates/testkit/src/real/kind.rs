//! The kinds of real clusters, and how each one is started.

/// A server and the way it is set up. Every cluster has three nodes, all of them eligible for everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClusterKind {
    /// OpenSearch 3.8.0, plain HTTP (on a machine without a JDK 21 or newer: 2.19.4).
    OpenSearch,
    /// OpenSearch 2.19.4 with TLS and basic authentication; the newest version with its security plugin in
    /// Maven.
    OpenSearchSecure,
    /// Elasticsearch 9.5.3, plain HTTP (without a JDK 21: 8.19.21). Routes by modulo. No painless, ingest,
    /// reindex.
    Elasticsearch,
    /// Elasticsearch as above, with TLS and basic authentication.
    ElasticsearchSecure,
    /// Elasticsearch 8.19.21, plain HTTP. No painless, ingest, reindex.
    Elasticsearch8,
    /// Elasticsearch 7.10.2, plain HTTP: the lightest, with painless, ingest and reindex, without data
    /// streams.
    Elasticsearch7,
    /// OpenSearch 1.3.20, plain HTTP.
    OpenSearch1,
}

impl ClusterKind {
    /// All kinds, in the order in which `./dev test` starts them.
    pub const ALL: [Self; 7] = [
        Self::OpenSearch,
        Self::Elasticsearch7,
        Self::OpenSearch1,
        Self::Elasticsearch,
        Self::OpenSearchSecure,
        Self::ElasticsearchSecure,
        Self::Elasticsearch8,
    ];

    /// The name of the cluster's folder, which people also see.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenSearch => "opensearch",
            Self::OpenSearchSecure => "opensearch-secure",
            Self::Elasticsearch => "elasticsearch",
            Self::ElasticsearchSecure => "elasticsearch-secure",
            Self::Elasticsearch8 => "elasticsearch-8",
            Self::Elasticsearch7 => "elasticsearch-7",
            Self::OpenSearch1 => "opensearch-1",
        }
    }

    /// Whether the cluster requires TLS and an account.
    #[must_use]
    pub fn secure(self) -> bool {
        matches!(self, Self::OpenSearchSecure | Self::ElasticsearchSecure)
    }

    /// The launcher's options: engine, and versions in order of preference.
    pub(super) fn options(self) -> Vec<String> {
        let (engine, versions) = match self {
            Self::OpenSearch => ("opensearch", "3.8.0,2.19.4"),
            Self::OpenSearchSecure => ("opensearch", "2.19.4"),
            Self::Elasticsearch | Self::ElasticsearchSecure => ("elasticsearch", "9.5.3,8.19.21"),
            Self::Elasticsearch8 => ("elasticsearch", "8.19.21"),
            Self::Elasticsearch7 => ("elasticsearch", "7.10.2"),
            Self::OpenSearch1 => ("opensearch", "1.3.20"),
        };
        let mut options: Vec<String> = ["--engine", engine, "--version", versions]
            .map(str::to_owned)
            .into();
        // With the serial collector, uncollected garbage counts as use: bulks would sometimes be answered
        // with 429.
        options.extend(["--set", "indices.breaker.total.use_real_memory=false"].map(str::to_owned));
        if self.secure() {
            options.push("--secure".to_owned());
        }
        options
    }

    /// The HTTP port of node 1 of the shared cluster; the transport port is 100 above. Both are below the
    /// ephemeral range.
    pub(super) fn base_port(self) -> u16 {
        29_200 + 10 * self as u16
    }
}
