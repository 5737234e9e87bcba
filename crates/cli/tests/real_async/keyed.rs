//! Updates with a key, through an alias that comes to have a routing: what was queued is not executed once
//! more by the cluster.

use anyhow::{Result, ensure};
use serde_json::json;
use testkit::real::{ClusterKind, RealCluster};

use crate::gateway::Gateway;
use crate::typed::delivered;
use crate::{Prepared, prepare, start};

#[test]
fn a_queued_update_is_not_repeated_directly_once_its_alias_has_a_routing() -> Result<()> {
    let cluster = RealCluster::shared(ClusterKind::OpenSearch)?;
    let nodes = cluster.client()?;
    let Prepared {
        index,
        folder: _folder,
        file,
    } = prepare(&cluster, "keyed")?;
    let text = std::fs::read_to_string(&file)?;
    std::fs::write(
        &file,
        text.replace("min_free: 1mb}", "min_free: 1mb}, idempotency: {enabled: true}"),
    )?;
    let alias = format!("{index}-alias");
    let leads = |more: serde_json::Value| {
        let mut add = json!({"index": index, "alias": alias});
        add.as_object_mut()
            .into_iter()
            .for_each(|add| add.extend(more.as_object().cloned().unwrap_or_default()));
        let actions = json!({"actions": [{"add": add}]}).to_string();
        let headers = [("content-type", "application/json")];
        nodes
            .send("POST", "/_aliases", &headers, actions.as_bytes())?
            .ok()
    };
    leads(json!({}))?;
    nodes
        .put(&format!("/{index}/_doc/1?refresh=true"), &json!({"n": 1}))?
        .ok()?;
    let mut gateway = start(&file);
    let update = |gateway: &Gateway| {
        let body = b"{\"script\":{\"source\":\"ctx._source.n += 1\"},\"upsert\":{\"n\":1}}";
        let headers = [("content-type", "application/json"), ("idempotency-key", "k")];
        let path = format!("/{alias}/_update/1");
        gateway.client().send("POST", &path, &headers, body)
    };
    let first = update(&gateway)?;
    ensure!(
        first.header("x-tidegate-idempotency") == Some("kept"),
        "{}",
        first.text()
    );
    delivered(&gateway)?;
    leads(json!({"index_routing": "r"}))?;
    // A gateway that starts knows of the routing at once, and of the key.
    gateway.signal("TERM");
    ensure!(gateway.wait().success());
    let gateway = start(&file);
    let again = update(&gateway)?;
    ensure!(again.status == 409, "{}: {}", again.status, again.text());
    ensure!(
        again.text().contains("nothing was written now"),
        "{}",
        again.text()
    );
    let found = nodes.get(&format!("/{index}/_doc/1"))?.ok()?.json()?;
    ensure!(found["_source"]["n"] == 2, "{found}");
    nodes.delete(&format!("/{index}"))?.ok()?;
    Ok(())
}
