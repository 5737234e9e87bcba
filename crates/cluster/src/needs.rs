//! The watch's requests to a cluster, and the right that the gateway's account needs for each of them.

use crate::{discover, state};

/// A request that changes nothing, and its purpose.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// The path and parameters of a GET.
    pub target: &'static str,
    /// The information in its answer.
    pub tells: &'static str,
    /// The privilege that includes it, as Elasticsearch names it.
    pub elasticsearch: &'static str,
    /// The permission for it, as OpenSearch's security plug-in names it.
    pub opensearch: &'static str,
    /// The gateway's behaviour without an answer; `None`: nothing is known of the cluster then, so bulks pass
    /// whole and nothing is delivered.
    pub without: Option<&'static str>,
}

/// The requests of [`crate::Cluster`]'s watch.
pub const NEEDS: [Need; 6] = [
    Need {
        target: state::TOPOLOGY,
        tells: "where the shards are",
        elasticsearch: "cluster privilege `monitor`",
        opensearch: "`cluster:monitor/state`",
        without: None,
    },
    Need {
        target: discover::NODES,
        tells: "which nodes there are",
        elasticsearch: "cluster privilege `monitor`",
        opensearch: "`cluster:monitor/nodes/info`",
        without: None,
    },
    Need {
        target: state::SETTINGS,
        tells: "how indices route documents",
        elasticsearch: "`view_index_metadata` for `*`",
        opensearch: "`indices:monitor/settings/get` for `*`",
        without: Some("bulks pass whole"),
    },
    Need {
        target: state::ALIASES,
        tells: "what aliases lead to",
        elasticsearch: "`view_index_metadata` for `*`",
        opensearch: "`indices:admin/aliases/get` for `*`",
        without: Some("bulks that write to an alias pass whole"),
    },
    Need {
        target: state::DATA_STREAMS,
        tells: "what data streams lead to",
        elasticsearch: "`view_index_metadata` for `*`",
        opensearch: "`indices:admin/resolve/index` for `*`",
        without: Some("bulks that write to a data stream pass whole"),
    },
    Need {
        target: state::PIPELINES,
        tells: "what ingest pipelines do",
        elasticsearch: "cluster privilege `read_pipeline` (7.10: `manage_pipeline`)",
        opensearch: "`cluster:admin/ingest/pipeline/get`",
        without: Some("bulks for indices with an ingest pipeline pass whole"),
    },
];
