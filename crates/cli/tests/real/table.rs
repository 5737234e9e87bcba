//! Makes a route table from the cluster state, in the simplest way.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use bulk::{Dialect, Formula, IndexRoute, NodeIx, RouteTable, Target};
use serde_json::Value;

use super::http::Http;
use super::server::{Engine, Server};

/// Elasticsearch's first index version that routes by the plain number of shards.
const MOD_ROUTING_FUNCTION: u64 = 9_064_000;

/// Reads everything of the cluster that bulks can name.
pub(crate) fn of_state(server: &Server, http: &mut Http) -> Result<RouteTable> {
    let state = http.get("/_cluster/state/metadata,routing_table,nodes")?;
    let nodes: Vec<&String> = state["nodes"].as_object().context("nodes")?.keys().collect();
    let flavour = match server.engine {
        Engine::OpenSearch => bulk::Flavour::OpenSearch,
        Engine::Elasticsearch => bulk::Flavour::Elasticsearch,
    };
    let dialect = Dialect {
        flavour,
        version: bulk::Version {
            major: server.version.0 as u16,
            minor: server.version.1 as u16,
            patch: 0,
        },
        allow_explicit_index: true,
    };
    let mut builder = RouteTable::builder(dialect, nodes.len() as u16);
    let mut routes: HashMap<String, Arc<IndexRoute>> = HashMap::new();
    let mut aliases: HashMap<String, Vec<(String, Value)>> = HashMap::new();
    for (name, index) in state["metadata"]["indices"].as_object().context("indices")? {
        if index["state"] == "close" {
            continue;
        }
        let settings = &index["settings"]["index"];
        let number = |value: &Value| value.as_str().and_then(|v| v.parse::<u64>().ok());
        let created = number(&settings["version"]["created"]).unwrap_or(0);
        let formula = if server.engine == Engine::Elasticsearch && created >= MOD_ROUTING_FUNCTION {
            Formula::Modulo
        } else {
            let routing_num_shards = index["routing_num_shards"]
                .as_u64()
                .context("routing_num_shards")? as u32;
            Formula::Classic { routing_num_shards }
        };
        let shards = number(&settings["number_of_shards"]).context("number_of_shards")?;
        let mut primaries = vec![None; shards as usize];
        for (shard, copies) in state["routing_table"]["indices"][name]["shards"]
            .as_object()
            .into_iter()
            .flatten()
        {
            for copy in copies
                .as_array()
                .into_iter()
                .flatten()
                .filter(|copy| copy["primary"] == true)
            {
                let at = nodes.iter().position(|id| copy["node"] == **id);
                primaries[shard.parse::<usize>()?] = at.map(|at| NodeIx(at as u16));
            }
        }
        let mut route = IndexRoute::new(name, formula, primaries);
        route.partition_size = number(&settings["routing_partition_size"]).unwrap_or(1) as u32;
        route.routing_required = index["mappings"]["_doc"]["_routing"]["required"] == true;
        let route = Arc::new(route);
        builder.index(route.clone());
        routes.insert(name.clone(), route);
        for (key, value) in state["metadata"]["aliases"][name]
            .as_object()
            .into_iter()
            .flatten()
        {
            aliases
                .entry(key.clone())
                .or_default()
                .push((name.clone(), value.clone()));
        }
        // Older servers list only the names of an index's aliases; their settings are asked for below.
        for alias in index["aliases"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            aliases.entry(alias.to_owned()).or_default();
        }
    }
    for alias in aliases.keys() {
        let said = http.get(&format!("/_alias/{alias}"))?;
        let all = said.as_object().context("aliases by index")?;
        let write = all
            .iter()
            .find(|(_, index)| all.len() == 1 || index["aliases"][alias]["is_write_index"] == true)
            .and_then(|(index, said)| Some((routes.get(index)?, &said["aliases"][alias])));
        if let Some((write, said)) = write {
            let index_routing = said["index_routing"].as_str().map(Into::into);
            builder.name(
                alias,
                Target::Alias {
                    write: write.clone(),
                    index_routing,
                },
            );
        }
    }
    for (name, stream) in state["metadata"]["data_stream"]["data_stream"]
        .as_object()
        .into_iter()
        .flatten()
    {
        let newest = stream["indices"].as_array().and_then(|all| all.last());
        let newest = newest
            .and_then(|index| index["index_name"].as_str())
            .context("a backing index")?;
        builder.name(
            name,
            Target::DataStream {
                write: routes[newest].clone(),
            },
        );
    }
    Ok(builder.build())
}
