//! Discovery of the nodes: parsing the reply to `_nodes/http,settings`.

use std::collections::BTreeMap;

use bulk::{Dialect, Flavour, Version};
use serde::Deserialize;
use serde_json::Value;

use crate::flavour::{flavour_of, parse_version, show_version};
use crate::role::Role;

/// The request that discovers nodes. `GET /` is not used: trimmed builds of Elasticsearch answer it with 405.
/// Without a timeout, a node that hangs delays the answer for as long as the server's connection to it lasts;
/// with one, it is left out.
pub(crate) const NODES: &str = "/_nodes/http,settings?timeout=2s&filter_path=cluster_name,nodes.*.name,nodes.*.version,\
    nodes.*.build_flavor,nodes.*.roles,nodes.*.attributes,nodes.*.http,nodes.*.settings.rest,nodes.*.settings.http.compression";

/// The request of a probe: is the node alive, and which node is it?
pub(crate) const WHO: &str = "/_nodes/_local/http?filter_path=nodes.*.name";

/// The reply to [`WHO`].
#[derive(Debug, Deserialize)]
pub(crate) struct WhoReply {
    #[serde(default)]
    pub(crate) nodes: BTreeMap<String, Value>,
}

/// All nodes as they describe themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Discovered {
    pub(crate) cluster_name: String,
    pub(crate) nodes: Vec<DiscoveredNode>,
    /// How bodies are read, by the lowest version; `None` when no node gives a version that we can read, and
    /// when both engines are among the nodes.
    pub(crate) dialect: Option<Dialect>,
    /// The versions, lowest first, without duplicates.
    pub(crate) versions: Vec<Version>,
    /// The smallest limit among the nodes, in bytes.
    pub(crate) max_content_length_bytes: Option<u64>,
    /// `http.compression`, if nodes have it set; false if one of them says so.
    pub(crate) compression: Option<bool>,
    pub(crate) warnings: Vec<String>,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DiscoveredNode {
    pub(crate) id: String,
    pub(crate) name: String,
    /// `None` for a node whose HTTP is off, or not up yet: nodes join the cluster first.
    pub(crate) publish_address: Option<String>,
    pub(crate) roles: Vec<Role>,
    pub(crate) attributes: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Reply {
    #[serde(default)]
    cluster_name: String,
    nodes: BTreeMap<String, NodeReply>,
}

#[derive(Deserialize)]
struct NodeReply {
    #[serde(default)]
    name: String,
    #[serde(default)]
    version: String,
    build_flavor: Option<Value>,
    #[serde(default)]
    roles: Vec<String>,
    #[serde(default)]
    attributes: BTreeMap<String, String>,
    http: Option<HttpReply>,
    settings: Option<Value>,
}

#[derive(Deserialize)]
struct HttpReply {
    publish_address: Option<String>,
    max_content_length_in_bytes: Option<u64>,
}

impl Discovered {
    /// Returns whether a node has told where it can be reached.
    pub(crate) fn knows(&self, id: &str) -> bool {
        let mut nodes = self.nodes.iter();
        nodes.any(|node| node.id == id && node.publish_address.is_some())
    }

    /// Reads the reply to [`NODES`].
    pub(crate) fn parse(body: &[u8]) -> Result<Self, serde_json::Error> {
        let reply: Reply = serde_json::from_slice(body)?;
        let mut warnings = Vec::new();
        let (mut versions, mut flavours) = (Vec::new(), Vec::new());
        let (mut allow_explicit_index, mut compression) = (true, None);
        for node in reply.nodes.values() {
            match parse_version(&node.version) {
                Some(version) => {
                    versions.push(version);
                    flavours.push(flavour_of(version, node.build_flavor.is_some()));
                }
                None => warnings.push(format!(
                    "node {} has a version that cannot be read: '{}'",
                    node.name, node.version
                )),
            }
            allow_explicit_index &= node.settings.as_ref().is_none_or(allows_explicit_index);
            if let Some(compresses) = node.settings.as_ref().and_then(compresses) {
                compression = Some(compresses && compression != Some(false));
            }
        }
        versions.sort_unstable();
        versions.dedup();
        flavours.dedup();
        if let [lowest, .., highest] = versions.as_slice() {
            let (lowest, highest) = (show_version(lowest), show_version(highest));
            warnings.push(format!(
                "nodes run versions {lowest} to {highest}: bodies are read as {lowest} reads them"
            ));
        }
        let dialect = match (versions.first(), flavours.as_slice()) {
            (Some(version), [flavour]) => Some(Dialect {
                flavour: *flavour,
                version: *version,
                allow_explicit_index,
            }),
            (Some(_), _) => {
                warnings.push(
                    "OpenSearch and Elasticsearch nodes are mixed: bulks pass through unsplit".to_owned(),
                );
                None
            }
            (None, _) => None,
        };
        let limits = reply
            .nodes
            .values()
            .filter_map(|n| n.http.as_ref()?.max_content_length_in_bytes);
        Ok(Self {
            cluster_name: reply.cluster_name,
            dialect,
            versions,
            max_content_length_bytes: limits.min(),
            compression,
            warnings,
            nodes: reply
                .nodes
                .into_iter()
                .map(|(id, node)| DiscoveredNode::new(id, node))
                .collect(),
        })
    }

    /// Returns the engine, when there is only one.
    pub(crate) fn flavour(&self) -> Option<Flavour> {
        self.dialect.map(|dialect| dialect.flavour)
    }
}

impl DiscoveredNode {
    fn new(id: String, node: NodeReply) -> Self {
        Self {
            id,
            name: node.name,
            publish_address: node.http.and_then(|http| http.publish_address),
            roles: node.roles.iter().map(|role| Role::parse(role)).collect(),
            attributes: node.attributes,
        }
    }
}

/// Returns the node setting `rest.action.multi.allow_explicit_index`; absent means `true`.
fn allows_explicit_index(settings: &Value) -> bool {
    let value = settings.pointer("/rest/action/multi/allow_explicit_index");
    !value.is_some_and(|value| *value == Value::Bool(false) || value.as_str() == Some("false"))
}

/// Returns `http.compression`, if it is set.
fn compresses(settings: &Value) -> Option<bool> {
    let value = settings.pointer("/http/compression")?;
    value.as_bool().or_else(|| value.as_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fixture;

    #[test]
    fn every_engine_and_version_is_told_from_its_nodes() {
        for (name, flavour, version) in [
            ("opensearch-3.8.0", Flavour::OpenSearch, Version::new(3, 8, 0)),
            ("opensearch-2.19.4", Flavour::OpenSearch, Version::new(2, 19, 4)),
            (
                "elasticsearch-7.10.2",
                Flavour::Elasticsearch,
                Version::new(7, 10, 2),
            ),
            (
                "elasticsearch-8.19.21",
                Flavour::Elasticsearch,
                Version::new(8, 19, 21),
            ),
            (
                "elasticsearch-9.5.3",
                Flavour::Elasticsearch,
                Version::new(9, 5, 3),
            ),
        ] {
            let found = Discovered::parse(fixture(name, "nodes").as_bytes()).unwrap();
            let dialect = found.dialect.unwrap();
            assert_eq!((dialect.flavour, dialect.version), (flavour, version), "{name}");
            assert!(dialect.allow_explicit_index);
            assert_eq!(found.nodes.len(), 3);
            assert_eq!(found.max_content_length_bytes, Some(104_857_600));
            assert!(
                found
                    .nodes
                    .iter()
                    .all(|n| n.roles.contains(&Role::Master) && n.roles.contains(&Role::Data))
            );
            assert!(
                found
                    .nodes
                    .iter()
                    .all(|n| n.publish_address.as_deref().unwrap().starts_with("127.0.0.1:"))
            );
            assert!(found.warnings.is_empty());
        }
    }

    #[test]
    fn mixed_versions_are_read_as_the_lowest_and_said_to_be_mixed() {
        let body = r#"{"nodes":{
            "a":{"name":"a","version":"8.19.2","build_flavor":"default"},
            "b":{"name":"b","version":"9.5.3","build_flavor":"default"}}}"#;
        let found = Discovered::parse(body.as_bytes()).unwrap();
        assert_eq!(found.dialect.unwrap().version, Version::new(8, 19, 2));
        assert!(
            found.warnings[0].contains("8.19.2 to 9.5.3"),
            "{:?}",
            found.warnings
        );
    }

    #[test]
    fn mixed_engines_have_no_dialect() {
        let body = r#"{"nodes":{
            "a":{"name":"a","version":"7.10.2","build_flavor":"oss"},
            "b":{"name":"b","version":"1.3.0"}}}"#;
        let found = Discovered::parse(body.as_bytes()).unwrap();
        assert_eq!(found.dialect, None);
        assert!(
            found.warnings.iter().any(|w| w.contains("mixed")),
            "{:?}",
            found.warnings
        );
    }

    #[test]
    fn a_node_that_forbids_explicit_indices_decides_for_all_and_the_smallest_limit_counts() {
        let body = r#"{"nodes":{
            "a":{"name":"a","version":"3.8.0","http":{"publish_address":"h/1.2.3.4:9200","max_content_length_in_bytes":99},
                 "settings":{"rest":{"action":{"multi":{"allow_explicit_index":"false"}}}}},
            "b":{"name":"b","version":"3.8.0","http":{"max_content_length_in_bytes":100}}}}"#;
        let found = Discovered::parse(body.as_bytes()).unwrap();
        assert!(!found.dialect.unwrap().allow_explicit_index);
        assert_eq!(found.max_content_length_bytes, Some(99));
    }
}
