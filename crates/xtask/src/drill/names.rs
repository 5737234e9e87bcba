//! Names in a real cluster that come to lead elsewhere while clients write, as operators and ILM do it.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};
use testkit::real::RealCluster;

/// Creates the alias and its first index. New indices get their mapping from a template, also those that a
/// client's write creates while an index is being made again.
pub(super) fn prepare(
    cluster: &RealCluster,
    index: &str,
    (alias, first): (&str, &str),
    shards: u32,
) -> Result<()> {
    let template = json!({
        "index_patterns": [format!("{index}-alias-*"), format!("{index}-again")],
        "settings": {"index.unassigned.node_left.delayed_timeout": "0s", "number_of_replicas": 0},
        "mappings": {"properties": {
            "w": {"type": "long"}, "n": {"type": "long"}, "p": {"type": "keyword", "index": false},
        }},
    });
    let client = cluster.client()?;
    client.put(&format!("/_template/{index}"), &template)?.ok()?;
    create(cluster, first, shards)?;
    let add = json!({"add": {"index": first, "alias": alias, "is_write_index": true}});
    change_aliases(cluster, &[add])
}

/// Removes the template.
pub(super) fn forget(cluster: &RealCluster, index: &str) -> Result<()> {
    cluster.client()?.delete(&format!("/_template/{index}"))?;
    Ok(())
}

fn create(cluster: &RealCluster, name: &str, shards: u32) -> Result<()> {
    let settings = json!({"settings": {"number_of_shards": shards}});
    cluster.client()?.put(&format!("/{name}"), &settings)?.ok()?;
    Ok(())
}

fn change_aliases(cluster: &RealCluster, actions: &[Value]) -> Result<()> {
    let actions = json!({ "actions": actions });
    cluster.client()?.post("/_aliases?timeout=30s", &actions)?.ok()?;
    Ok(())
}

/// Makes the alias, which leads to `last`, lead to the next index; with `roll`, it keeps the earlier ones
/// too.
pub(super) fn move_alias(
    cluster: &RealCluster,
    alias: &str,
    last: &str,
    (next, shards): (&str, u32),
    roll: bool,
) -> Result<()> {
    create(cluster, next, shards)?;
    let leave = match roll {
        true => json!({"add": {"index": last, "alias": alias, "is_write_index": false}}),
        false => json!({"remove": {"index": format!("{alias}-*"), "alias": alias}}),
    };
    let lead = json!({"add": {"index": next, "alias": alias, "is_write_index": true}});
    change_aliases(cluster, &[leave, lead])
}

/// Replaces the index behind the alias: the index stops taking writes and is split to twice as many shards,
/// or shrunk to one if it has many, and the new index takes its place.
pub(super) fn split_behind(cluster: &RealCluster, alias: &str, last: &str, next: &str) -> Result<()> {
    cluster.wait_green()?;
    let client = cluster.client()?;
    let all = client.get(&format!("/{last}/_settings"))?.ok()?.json()?;
    let said = all[last]["settings"]["index"]["number_of_shards"].as_str();
    let shards: u32 = said.unwrap_or_default().parse()?;
    let shrinks = shards > SPLIT_MAX;
    let home = if shrinks { json!(HOME) } else { Value::Null };
    let stop = json!({"index.blocks.write": true, "index.routing.allocation.require._name": home});
    client.put(&format!("/{last}/_settings"), &stop)?.ok()?;
    if shrinks {
        wait_until_home(cluster, last)?;
    }
    let (action, shards) = if shrinks {
        ("_shrink", 1)
    } else {
        ("_split", shards * 2)
    };
    let settings = json!({"settings": {
        "index.number_of_shards": shards,
        // Templates do not count here. A replica may lack documents (`Setup::with_unfit`), and it would keep
        // a later shrink from finding all shards on one node.
        "index.number_of_replicas": 0,
        "index.blocks.write": null,
        "index.routing.allocation.require._name": null,
    }});
    client
        .post(&format!("/{last}/{action}/{next}?timeout=30s"), &settings)?
        .ok()?;
    wait_for(cluster, next, "wait_for_status=green")?;
    let lead = json!({"add": {"index": next, "alias": alias, "is_write_index": true}});
    change_aliases(cluster, &[lead, json!({"remove_index": {"index": last}})])
}

/// Waits until all shards of an index are on one node. That no shard moves is not enough, since some may wait
/// for their turn.
fn wait_until_home(cluster: &RealCluster, index: &str) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let path = format!("/_cat/shards/{index}?format=json&h=shard,state,node");
        let shards = cluster.client()?.get(&path)?.ok()?.json()?;
        let at_home = |shard: &Value| shard["state"] == "STARTED" && shard["node"] == HOME;
        if shards
            .as_array()
            .is_some_and(|all| !all.is_empty() && all.iter().all(at_home))
        {
            return Ok(());
        }
        ensure!(
            Instant::now() < until,
            "{index} does not come to {HOME}: {shards}"
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn wait_for(cluster: &RealCluster, index: &str, what: &str) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let path = format!("/_cluster/health/{index}?{what}&timeout=10s");
        let health = cluster.client()?.get(&path)?.json()?;
        if health["timed_out"] == false {
            return Ok(());
        }
        ensure!(
            Instant::now() < until,
            "{index} does not come to {what}: {health}"
        );
    }
}

/// Deletes an index, if it is there, and creates it again. A client's write may create it in between.
pub(super) fn make_again(cluster: &RealCluster, name: &str, shards: u32) -> Result<()> {
    for _ in 0..20 {
        cluster.client()?.delete(&format!("/{name}"))?;
        let settings = json!({"settings": {"number_of_shards": shards}});
        let made = cluster.client()?.put(&format!("/{name}"), &settings)?;
        if made.status != 400 || !made.text().contains("resource_already_exists_exception") {
            made.ok()?;
            return Ok(());
        }
    }
    bail!("{name} is made by others each time that it is deleted")
}

/// The number of shards above which an index is shrunk.
const SPLIT_MAX: u32 = 4;
/// The node that an index moves to before it is shrunk.
const HOME: &str = "node-1";
