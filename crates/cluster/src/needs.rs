//! What the watch asks of a cluster, and the right that the gateway's account needs for each question.

use crate::{discover, state};

/// A question that changes nothing, and what it is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// Path and parameters of a GET.
    pub target: &'static str,
    /// What it tells.
    pub tells: &'static str,
    /// The privilege that includes it, as Elasticsearch calls it.
    pub elasticsearch: &'static str,
    /// The permission for it, as OpenSearch's security plug-in calls it.
    pub opensearch: &'static str,
    /// What the gateway does without an answer; `None`: nothing of the cluster is known then, so that bulks
    /// pass whole and nothing is delivered.
    pub without: Option<&'static str>,
}

/// The questions of [`crate::Cluster`]'s watch.
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
