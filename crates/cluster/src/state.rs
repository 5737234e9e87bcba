//! The cluster state: the replies that make up one reading of it.
//!
//! Rendering a mapping costs the server the most, even when `filter_path` throws it away afterwards: 150
//! indices of 300 fields cost OpenSearch 3.8 76 ms of CPU in `_cluster/state/metadata`, against 3.5 ms for
//! their settings, 2.5 ms for their aliases and 1 ms for the routing table. So `metadata` is requested only
//! for new indices, by name: its relevant parts (`routing_num_shards`, `_routing.required`) hardly ever
//! change for an index (its uuid) once made. `watch::metadata` knows the exceptions.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde_json::{Map, Value};

/// The poll: it costs one node 0.4 ms of CPU. `local` asks the node itself, so that the elected one is left
/// alone; a node that lost its cluster shows that by having no `master_node`.
pub(crate) const VERSION: &str = "/_cluster/state/version,master_node?local=true\
    &filter_path=cluster_name,version,state_uuid,cluster_uuid,master_node";

/// The nodes, primaries and closed indices.
pub(crate) const TOPOLOGY: &str = "/_cluster/state/version,master_node,nodes,blocks,routing_table?local=true\
    &filter_path=cluster_name,version,state_uuid,cluster_uuid,master_node,nodes.*.ephemeral_id,blocks.indices,\
    routing_table.indices.*.shards.*.primary,routing_table.indices.*.shards.*.state,\
    routing_table.indices.*.shards.*.node";

/// The indices' settings that concern routing.
pub(crate) const SETTINGS: &str = "/_all/_settings/index.uuid,index.version.created,index.number_of_shards,\
    index.number_of_routing_shards,index.number_of_virtual_shards,index.routing_partition_size,index.mode,\
    index.routing_path,index.logsdb.*,index.default_pipeline,index.final_pipeline,index.append_only.*,index.bulk.*,\
    index.hidden,index.history.uuid?expand_wildcards=all&flat_settings=true";

/// The aliases. A `filter_path` would drop aliases without properties.
pub(crate) const ALIASES: &str = "/_alias?expand_wildcards=all";

/// The data streams, in a form that every version since 7.9 and every build has (trimmed builds lack
/// `_data_stream`).
pub(crate) const DATA_STREAMS: &str = "/_resolve/index/*?expand_wildcards=all&filter_path=data_streams";

/// The definitions of ingest pipelines.
pub(crate) const PIPELINES: &str = "/_ingest/pipeline";

/// Returns the requests for metadata that hardly ever changes for an index once made, in chunks that fit a
/// request line.
pub(crate) fn metadata_targets<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut chunks = Vec::new();
    let mut names = names.map(path_segment).peekable();
    while names.peek().is_some() {
        let mut list = String::new();
        while let Some(name) = names.next_if(|n| list.is_empty() || list.len() + n.len() < LINE_BYTES_MAX) {
            if !list.is_empty() {
                list.push(',');
            }
            list.push_str(&name);
        }
        chunks.push(format!(
            "/_cluster/state/metadata/{list}?local=true&ignore_unavailable=true&expand_wildcards=all\
             &filter_path=metadata.indices.*.settings.index.uuid,metadata.indices.*.routing_num_shards,\
             metadata.indices.*.mapping_version,metadata.indices.*.mappings.*._routing,metadata.indices.*.split_shards_metadata"
        ));
    }
    chunks
}

/// Percent-encodes a name for a path.
pub(crate) fn path_segment(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte))
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// The reply to [`VERSION`], and the head of the reply to [`TOPOLOGY`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct StateVersion {
    #[serde(default)]
    pub(crate) cluster_name: String,
    #[serde(default)]
    pub(crate) cluster_uuid: String,
    #[serde(default)]
    pub(crate) version: u64,
    #[serde(default)]
    pub(crate) state_uuid: String,
    /// The elected node; `None` when the node follows none.
    pub(crate) master_node: Option<String>,
}

/// The reply to [`TOPOLOGY`].
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Topology {
    #[serde(flatten)]
    pub(crate) at: StateVersion,
    /// The nodes by id; the value changes when the node restarts.
    #[serde(default)]
    pub(crate) nodes: BTreeMap<String, Value>,
    #[serde(default)]
    pub(crate) blocks: Blocks,
    #[serde(default)]
    pub(crate) routing_table: RoutingTable,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Blocks {
    #[serde(default)]
    indices: HashMap<String, Map<String, Value>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct RoutingTable {
    #[serde(default)]
    pub(crate) indices: BTreeMap<String, IndexShards>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct IndexShards {
    #[serde(default)]
    shards: BTreeMap<u32, Vec<ShardCopy>>,
}

#[derive(Clone, Debug, Deserialize)]
struct ShardCopy {
    #[serde(default)]
    primary: bool,
    #[serde(default)]
    state: String,
    node: Option<String>,
}

/// An index's settings, as far as routing is concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IndexSettings {
    pub(crate) uuid: String,
    /// `index.version.created`. OpenSearch masks its ids with a bit of its own: never compare ids across
    /// engines.
    pub(crate) created: u64,
    pub(crate) shards: u32,
    /// `index.number_of_routing_shards`, reported only where it was set.
    pub(crate) routing_shards: Option<u32>,
    pub(crate) partition_size: u32,
    pub(crate) default_pipeline: Option<String>,
    pub(crate) final_pipeline: Option<String>,
    pub(crate) placement: Placement,
    /// `index.history.uuid`: another one after each restore from a snapshot.
    pub(crate) history: Option<String>,
}

/// The way in which the shard is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Placement {
    /// By the routing value or the id.
    #[default]
    Hash,
    /// By the document's content: time series, logsdb, `routing_path`, and modes that we do not know.
    Content,
    /// By the server, unpredictably: append-only, adaptive and virtual shards of OpenSearch 3.
    Adaptive,
}

/// The metadata that hardly ever changes for an index once made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IndexMetadata {
    /// `None` in Elasticsearch 6, which does not report it.
    pub(crate) routing_num_shards: Option<u32>,
    pub(crate) routing_required: bool,
    /// Whether shards were split in place (OpenSearch 3): the formula no longer gives the shard.
    pub(crate) split_in_place: bool,
    /// Whether the index may have no mapping yet: the first one may still say `_routing.required`. The
    /// version is 1 until a mapping is put into an index that is there; one that it was made with does not
    /// count.
    pub(crate) may_be_unmapped: bool,
}

/// An alias on one of its members.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct AliasMember {
    /// The index or data stream; not part of the reply's inner object.
    #[serde(skip)]
    pub(crate) of: String,
    pub(crate) is_write_index: Option<bool>,
    pub(crate) index_routing: Option<String>,
}

// === impl Topology ===

impl Topology {
    pub(crate) fn is_closed(&self, index: &str) -> bool {
        // 4 is the closed block's id in both engines (`MetadataIndexStateService.INDEX_CLOSED_BLOCK_ID`).
        self.blocks
            .indices
            .get(index)
            .is_some_and(|blocks| blocks.contains_key("4"))
    }
}

impl IndexShards {
    /// Returns, for each of `shards` shards, the id of the node that holds its started primary.
    pub(crate) fn primaries(&self, shards: u32) -> impl Iterator<Item = Option<&str>> {
        (0..shards).map(|shard| {
            let copies = self.shards.get(&shard)?;
            let primary = copies.iter().find(|copy| copy.primary)?;
            matches!(primary.state.as_str(), "STARTED" | "RELOCATING").then_some(primary.node.as_deref()?)
        })
    }
}

// === impl IndexSettings ===

/// Reads the reply to [`SETTINGS`]. Indices whose settings make no sense are left out, so their names stay
/// unknown.
pub(crate) fn parse_settings(body: &[u8]) -> Result<BTreeMap<String, IndexSettings>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Entry {
        settings: Map<String, Value>,
    }
    let reply: BTreeMap<String, Entry> = serde_json::from_slice(body)?;
    Ok(reply
        .into_iter()
        .filter_map(|(name, entry)| Some((name, IndexSettings::read(&entry.settings)?)))
        .collect())
}

impl IndexSettings {
    fn read(settings: &Map<String, Value>) -> Option<Self> {
        let text = |key: &str| settings.get(key).and_then(Value::as_str);
        let number = |key: &str| text(key).and_then(|t| t.parse::<i64>().ok());
        let unsigned = |key: &str| number(key).and_then(|n| u32::try_from(n).ok());
        let pipeline = |key: &str| text(key).filter(|name| *name != "_none").map(str::to_owned);
        let on = |key: &str| text(key) == Some("true");
        let mode = text("index.mode").unwrap_or("standard");
        let placement = if on("index.append_only.enabled")
            || on("index.bulk.adaptive_shard_selection.enabled")
            || number("index.number_of_virtual_shards").is_some_and(|n| n > 0)
        {
            Placement::Adaptive
        } else if !matches!(mode, "standard" | "lookup")
            || settings.contains_key("index.routing_path")
            || on("index.logsdb.route_on_sort_fields")
        {
            Placement::Content
        } else {
            Placement::Hash
        };
        Some(Self {
            uuid: text("index.uuid")?.to_owned(),
            created: text("index.version.created").and_then(|t| t.parse().ok())?,
            shards: unsigned("index.number_of_shards")?,
            routing_shards: unsigned("index.number_of_routing_shards"),
            partition_size: unsigned("index.routing_partition_size").unwrap_or(1),
            default_pipeline: pipeline("index.default_pipeline"),
            final_pipeline: pipeline("index.final_pipeline"),
            placement,
            history: text("index.history.uuid").map(str::to_owned),
        })
    }

    /// Returns what is another value if the index was restored from a snapshot, under the same uuid.
    pub(crate) fn origin(&self) -> (u64, Option<u32>, Option<String>) {
        (self.created, self.routing_shards, self.history.clone())
    }
}

// === impl StateVersion ===

impl StateVersion {
    /// Returns whether the node that told this follows an elected node.
    pub(crate) fn is_led(&self) -> bool {
        self.master_node.is_some() && self.cluster_uuid != "_na_"
    }
}

// === impl IndexMetadata ===

/// Parses a reply to one of [`metadata_targets`]; returns the metadata with the uuid of each index.
pub(crate) fn parse_metadata(body: &[u8]) -> Result<Vec<(String, IndexMetadata)>, serde_json::Error> {
    let reply: Value = serde_json::from_slice(body)?;
    let Some(indices) = reply.pointer("/metadata/indices").and_then(Value::as_object) else {
        return Ok(Vec::new());
    };
    let read = |index: &Value| {
        let uuid = index.pointer("/settings/index/uuid")?.as_str()?.to_owned();
        let types = index.get("mappings").and_then(Value::as_object);
        let required = |mapping: &Value| mapping.pointer("/_routing/required") == Some(&Value::Bool(true));
        let split = index.pointer("/split_shards_metadata/root_shards_to_all_children");
        let routing = |mapping: &Value| mapping.get("_routing").is_some();
        let mapped = types.is_some_and(|types| types.values().any(routing));
        let version = index.get("mapping_version").and_then(Value::as_u64);
        let metadata = IndexMetadata {
            may_be_unmapped: version == Some(1) && !mapped,
            routing_num_shards: index
                .get("routing_num_shards")
                .and_then(Value::as_u64)
                .and_then(|n| n.try_into().ok()),
            routing_required: types.is_some_and(|types| types.values().any(required)),
            split_in_place: split
                .and_then(Value::as_object)
                .is_some_and(|children| !children.is_empty()),
        };
        Some((uuid, metadata))
    };
    Ok(indices.values().filter_map(read).collect())
}

// === aliases and data streams ===

/// Parses the reply to [`ALIASES`]; returns the members of each alias by its name.
pub(crate) fn parse_aliases(body: &[u8]) -> Result<BTreeMap<String, Vec<AliasMember>>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Entry {
        #[serde(default)]
        aliases: BTreeMap<String, AliasMember>,
    }
    let reply: BTreeMap<String, Entry> = serde_json::from_slice(body)?;
    let mut aliases: BTreeMap<String, Vec<AliasMember>> = BTreeMap::new();
    for (of, entry) in reply {
        for (alias, member) in entry.aliases {
            aliases.entry(alias).or_default().push(AliasMember {
                of: of.clone(),
                ..member
            });
        }
    }
    Ok(aliases)
}

/// Parses the reply to [`DATA_STREAMS`]; returns the backing indices of each stream by its name, the write
/// index last.
pub(crate) fn parse_data_streams(body: &[u8]) -> Result<BTreeMap<String, Vec<String>>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Reply {
        #[serde(default)]
        data_streams: Vec<Stream>,
    }
    #[derive(Deserialize)]
    struct Stream {
        name: String,
        #[serde(default)]
        backing_indices: Backing,
    }
    // Some versions' resolve API reports a single backing index as a plain string.
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Backing {
        Many(Vec<String>),
        One(String),
    }
    impl Default for Backing {
        fn default() -> Self {
            Self::Many(Vec::new())
        }
    }
    let reply: Reply = serde_json::from_slice(body)?;
    let backing = |stream: Stream| {
        let backing = match stream.backing_indices {
            Backing::Many(list) => list,
            Backing::One(name) => vec![name],
        };
        (!backing.is_empty()).then_some((stream.name, backing))
    };
    Ok(reply.data_streams.into_iter().filter_map(backing).collect())
}

/// Both engines refuse request lines over 4,096 bytes by default; this leaves room for the query.
const LINE_BYTES_MAX: usize = 3_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fixture;

    const ALL: [&str; 5] = [
        "opensearch-3.8.0",
        "opensearch-2.19.4",
        "elasticsearch-7.10.2",
        "elasticsearch-8.19.21",
        "elasticsearch-9.5.3",
    ];

    #[test]
    fn the_state_of_every_engine_is_read() {
        for name in ALL {
            let version: StateVersion = serde_json::from_str(&fixture(name, "version")).unwrap();
            assert!(version.version > 0 && version.master_node.is_some(), "{name}");
            assert!(
                !version.state_uuid.is_empty() && !version.cluster_uuid.is_empty(),
                "{name}"
            );
            let topology: Topology = serde_json::from_str(&fixture(name, "topology")).unwrap();
            assert_eq!(topology.at.cluster_uuid, version.cluster_uuid);
            assert!(topology.at.is_led(), "{name}");
            assert_eq!(topology.nodes.len(), 3, "{name}");
            let plain = &topology.routing_table.indices["plain"];
            assert_eq!(plain.primaries(6).flatten().count(), 6, "{name}");
            assert!(topology.is_closed("shut") && !topology.is_closed("plain") && !topology.is_closed("nrs"));
        }
    }

    #[test]
    fn settings_that_concern_routing_are_read_from_every_engine() {
        for name in ALL {
            let settings = parse_settings(fixture(name, "settings").as_bytes()).unwrap();
            assert_eq!(settings["plain"].shards, 6, "{name}");
            assert_eq!(settings["routed"].partition_size, 2);
            assert_eq!(settings["piped"].default_pipeline.as_deref(), Some("p1"));
            assert_eq!(settings["piped"].final_pipeline, None, "_none is no pipeline");
            assert_eq!(settings["plain"].placement, Placement::Hash);
        }
        let opensearch = parse_settings(fixture("opensearch-3.8.0", "settings").as_bytes()).unwrap();
        assert_eq!(opensearch["ao"].placement, Placement::Adaptive);
        assert_eq!(opensearch["nrs"].routing_shards, Some(6));
        let elasticsearch = parse_settings(fixture("elasticsearch-9.5.3", "settings").as_bytes()).unwrap();
        assert_eq!(elasticsearch["logsdb"].placement, Placement::Content);
        let series = elasticsearch
            .iter()
            .find(|(name, _)| name.starts_with(".ds-ts-a"))
            .unwrap();
        assert_eq!(series.1.placement, Placement::Content);
    }

    #[test]
    fn metadata_tells_the_routing_shards_and_whether_routing_is_required() {
        for name in ALL {
            let settings = parse_settings(fixture(name, "settings").as_bytes()).unwrap();
            let metadata: HashMap<_, _> = parse_metadata(fixture(name, "metadata").as_bytes())
                .unwrap()
                .into_iter()
                .collect();
            let of = |index: &str| &metadata[&settings[index].uuid];
            assert_eq!(of("plain").routing_num_shards, Some(768), "{name}");
            assert_eq!(of("nrs6").routing_num_shards, Some(6), "{name}");
            assert!(of("routed").routing_required && !of("plain").routing_required);
            assert!(!of("plain").split_in_place);
        }
    }

    #[test]
    fn shards_split_in_place_are_noticed() {
        let body = r#"{"metadata":{"indices":{"a":{"settings":{"index":{"uuid":"u"}},"routing_num_shards":4,
            "split_shards_metadata":{"root_shards_to_all_children":{"0":[2,3]}}}}}}"#;
        assert!(parse_metadata(body.as_bytes()).unwrap()[0].1.split_in_place);
    }

    #[test]
    fn aliases_keep_their_members_even_without_properties() {
        for name in ALL {
            let aliases = parse_aliases(fixture(name, "aliases").as_bytes()).unwrap();
            let al = &aliases["al"][0];
            assert_eq!(
                (al.of.as_str(), al.is_write_index, al.index_routing.as_deref()),
                ("piped", Some(true), Some("x"))
            );
            assert_eq!(aliases["al2"][0].is_write_index, None, "{name}");
        }
    }

    #[test]
    fn the_last_backing_index_is_the_write_index() {
        let streams = parse_data_streams(fixture("opensearch-3.8.0", "data_streams").as_bytes()).unwrap();
        assert_eq!(streams["logs-a"].last().unwrap(), ".ds-logs-a-000002");
        assert!(parse_data_streams(b"{}").unwrap().is_empty());
        let one = r#"{"data_streams":[{"name":"a","backing_indices":".ds-a-1"}]}"#;
        assert_eq!(parse_data_streams(one.as_bytes()).unwrap()["a"], [".ds-a-1"]);
    }

    #[test]
    fn a_primary_that_is_not_started_has_no_node_and_a_relocating_one_stays_where_it_is() {
        let shards: IndexShards = serde_json::from_str(
            r#"{"shards":{"0":[{"state":"INITIALIZING","primary":true,"node":"a"}],
                          "1":[{"state":"RELOCATING","primary":true,"node":"a"},{"state":"STARTED","primary":false,"node":"b"}],
                          "2":[{"state":"UNASSIGNED","primary":true,"node":null}]}}"#,
        )
        .unwrap();
        assert_eq!(
            shards.primaries(4).collect::<Vec<_>>(),
            [None, Some("a"), None, None]
        );
    }

    #[test]
    fn many_names_are_asked_in_lines_that_servers_accept() {
        let names: Vec<String> = (0..500).map(|i| format!("index-with-a-long-name-{i}")).collect();
        let targets = metadata_targets(names.iter().map(String::as_str));
        assert!(targets.len() > 1 && targets.iter().all(|t| t.len() < 4_000));
        let asked: usize = targets.iter().map(|t| t.matches("index-with").count()).sum();
        assert_eq!(asked, 500);
        assert!(metadata_targets(["é+"].into_iter())[0].contains("/%C3%A9%2B?"));
        assert!(metadata_targets(std::iter::empty()).is_empty());
    }
}
