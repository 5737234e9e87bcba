//! Test helpers: replies captured from real clusters.

use std::path::Path;

/// Returns a reply as a real cluster gave it: `fixture("opensearch-3.8.0", "settings")`.
pub(crate) fn fixture(cluster: &str, reply: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(cluster)
        .join(format!("{reply}.json"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Makes a node that was discovered, called `name` in every respect.
pub(crate) fn node(name: &str, roles: &[&str]) -> std::sync::Arc<crate::node::Node> {
    std::sync::Arc::new(crate::node::Node {
        id: name.to_owned(),
        name: name.to_owned(),
        address: crate::Address {
            tls: false,
            host: name.to_owned(),
            port: 9200,
        },
        origin: wire::Origin::http(name, 9200),
        roles: roles.iter().map(|r| crate::Role::parse(r)).collect(),
        attributes: std::collections::BTreeMap::new(),
        discovered: true,
        health: std::sync::Arc::default(),
    })
}
