//! Rights in asynchronous mode, before real clusters with users of few rights: a write is queued if and only
//! if the cluster itself would have accepted it from its user. And the shares of users in synchronous mode.

#![allow(
    clippy::unwrap_used,
    reason = "helpers that meet something unexpected end the test"
)]

#[allow(dead_code, reason = "shared with tests that use more of it")]
#[path = "black_box/gateway.rs"]
mod gateway;
#[path = "real_rights/revoked.rs"]
mod revoked;
#[path = "real_rights/shares.rs"]
mod shares;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use gateway::Gateway;
use revoked::Revoked;
use serde_json::{Value, json};
use testkit::client::{Answer, Client};
use testkit::real::{ClusterKind, RealCluster};

#[test]
fn an_opensearch_user_writes_what_it_may_and_nothing_else() -> Result<()> {
    let cluster = RealCluster::shared(ClusterKind::OpenSearchSecure)?;
    let nodes = cluster.client()?;
    for (name, pattern, actions) in [
        ("reader", "*", json!(["read"])),
        ("writer", "rights-*", json!(["crud", "create_index"])),
        (
            "indexer",
            "rights-*",
            json!(["indices:data/write/index", "indices:data/write/bulk*"]),
        ),
    ] {
        let role = json!({"cluster_permissions": ["cluster_composite_ops"],
            "index_permissions": [{"index_patterns": [pattern], "allowed_actions": actions}]});
        set_user(&nodes, name, &role)?;
    }
    let revoked = Revoked::begin(&cluster, OPENSEARCH)?;
    prove(&cluster, OPENSEARCH, &[])?;
    closed(&cluster)?;
    through_a_pipeline(&cluster)?;
    stream(&cluster)?;
    shares::hold_over_several_addresses(&cluster, OPENSEARCH)?;
    revoked.are_refused()
}

/// Makes a user of an OpenSearch, with a role of its own.
fn set_user(nodes: &Client, name: &str, role: &Value) -> Result<()> {
    let role_name = format!("rights-{name}");
    for (what, name, value) in [
        ("internalusers", name, &json!({"password": OPENSEARCH})),
        ("roles", &*role_name, role),
        ("rolesmapping", &*role_name, &json!({"users": [name]})),
    ] {
        let path = format!("/_plugins/_security/api/{what}/{name}");
        settled(|| nodes.put(&path, value))?.ok()?;
    }
    Ok(())
}

/// Changes OpenSearch's users: all of them are one document there, which another test may just have changed.
fn settled(change: impl Fn() -> Result<Answer>) -> Result<Answer> {
    let began = Instant::now();
    loop {
        let answer = change()?;
        if answer.status != 409 || began.elapsed() > Duration::from_secs(30) {
            return Ok(answer);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The rights that docs/health.md lists for the gateway's account are the rights that it needs.
#[test]
fn an_account_with_the_documented_rights_is_told_to_have_them_and_another_what_it_lacks() -> Result<()> {
    let cluster = RealCluster::shared(ClusterKind::OpenSearchSecure)?;
    let nodes = cluster.client()?;
    let name = cluster.fresh_name("gate");
    let one_shard = json!({"settings": {"number_of_shards": 1, "number_of_replicas": 0}});
    nodes.put(&format!("/{name}"), &one_shard)?.ok()?;
    let reads = json!({"index_patterns": ["*"], "allowed_actions": ["indices:monitor/settings/get",
        "indices:admin/aliases/get", "indices:admin/resolve/index", "indices:admin/shards/search_shards",
        "indices:data/read/search"]});
    let writes = json!({"index_patterns": [format!("{name}*")], "allowed_actions": ["indices:data/write/index",
        "indices:data/write/update", "indices:data/write/delete", "indices:data/write/bulk*", "indices:admin/mapping/put", "indices:data/read/mget*"]});
    let knows = json!([
        "cluster:monitor/state",
        "cluster:monitor/nodes/info",
        "cluster:admin/ingest/pipeline/get",
        "indices:data/write/bulk",
        "indices:data/read/mget"
    ]);
    for (user, cluster_permissions) in [("knower", knows), ("blind", json!([]))] {
        let role = json!({"cluster_permissions": cluster_permissions, "index_permissions": [reads, writes]});
        set_user(&nodes, user, &role)?;
    }
    let (status, text) = checked(&cluster, "knower", &name)?;
    ensure!(status == Some(0), "{text}");
    let lacking = text.lines().filter(|line| line.contains("may not"));
    for line in lacking {
        ensure!(
            line.starts_with("warning: ") && !line.contains(&name),
            "it has all rights for {name}: {line}"
        );
    }
    ensure!(
        text.contains("fine: cluster c: the account may ask what ingest pipelines do"),
        "{text}"
    );
    let (status, text) = checked(&cluster, "blind", &name)?;
    ensure!(status == Some(1), "{text}");
    ensure!(
        text.contains("error: cluster c: the account may not ask where the shards are; give the account `cluster:monitor/state`"),
        "{text}"
    );
    let documents = nodes.get(&format!("/{name}/_count"))?.ok()?.json()?;
    ensure!(documents["count"] == 0, "asking changes nothing: {documents}");
    nodes.delete(&format!("/{name}"))?.ok()?;
    Ok(())
}

/// Runs `tidegate check --online` with this account, for an index that is certainly written to.
fn checked(cluster: &RealCluster, user: &str, index: &str) -> Result<(Option<i32>, String)> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("gateway.yml");
    let text = format!(
        "path.data: '{}'
admin.enabled: false
entry: [{{name: e, router: r, network.binding: '127.0.0.1:0'}}]
router: [{{name: r, default_flow: f}}]
flow: [{{name: f, filter: [{{bulk_reshuffle: {{elasticsearch: c, mode: async}}}}, {{elasticsearch: {{elasticsearch: c}}}}]}}]
pipeline: [{{name: p, processor: [{{bulk_indexing: {{elasticsearch: c}}}}]}}]
elasticsearch: [{{name: c, endpoint: '{}', tls.ca_file: '{}', basic_auth: {{username: {user}, password: {OPENSEARCH}}}}}]
",
        folder.path().join("data").display(),
        cluster.urls()[0],
        cluster.ca_path().context("a certificate")?.display(),
    );
    std::fs::write(&file, text)?;
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["check", "--online", "--index", index])
        .arg(&file)
        .output()?;
    Ok((output.status.code(), String::from_utf8(output.stdout)?))
}

#[test]
fn an_elasticsearch_user_writes_what_it_may_and_nothing_else() -> Result<()> {
    let cluster = RealCluster::shared(ClusterKind::ElasticsearchSecure)?;
    let revoked = Revoked::begin(&cluster, "admin")?;
    prove(
        &cluster,
        "admin",
        &[("creator", "create", true), ("creator", "index", false)],
    )?;
    who_sent_it(&cluster)?;
    narrowed(&cluster)?;
    shares::hold_over_several_addresses(&cluster, "admin")?;
    revoked.are_refused()
}

/// A password that OpenSearch does not find weak.
const OPENSEARCH: &str = "Tidegate-On-Looker-7";

/// The user, the operation, and whether it is allowed.
const EVERYWHERE: [(&str, &str, bool); 10] = [
    ("reader", "index", false),
    ("reader", "update", false),
    ("reader", "delete", false),
    ("writer", "index", true),
    ("writer", "create", true),
    ("writer", "update", true),
    ("writer", "delete", true),
    ("indexer", "index", true),
    ("indexer", "create", true),
    ("indexer", "delete", false),
];

fn prove(cluster: &RealCluster, password: &str, more: &[(&str, &str, bool)]) -> Result<()> {
    let nodes = cluster.client()?;
    let name = cluster.fresh_name("rights");
    let (index, other) = (format!("rights-{name}"), format!("others-{name}"));
    let one_shard = json!({"settings": {"number_of_shards": 1, "number_of_replicas": 0}});
    for index in [&index, &other] {
        nodes.put(&format!("/{index}"), &one_shard)?.ok()?;
    }
    let place = GatewayHome::before(cluster)?;
    let gateway = &place.gateway;
    for (user, operation, may) in EVERYWHERE.iter().chain(more) {
        let client = gateway.client().basic_auth(user, password);
        let told = told(&client, &line(operation, &index, &format!("{user}-{operation}")))?;
        let expected = if *may { Told::Queued } else { Told::Refused };
        ensure!(
            told == expected,
            "{user} {operation}: {told:?}\n{}",
            gateway.log()
        );
    }
    let writer = gateway.client().basic_auth("writer", password);
    ensure!(told(&writer, &line("index", &other, "1"))? == Told::Refused);
    // A missing index is created with its writer's own rights.
    ensure!(told(&writer, &line("index", &format!("{index}-new"), "1"))? == Told::Queued);
    ensure!(told(&writer, &line("index", &format!("{other}-new"), "1"))? == Told::Refused);
    delivered(gateway)?;
    nodes
        .post(&format!("/{index},{other}/_refresh"), &Value::Null)?
        .ok()?;
    let found = nodes
        .get(&format!("/{index},{other}/_search?size=100"))?
        .ok()?
        .json()?;
    let hits = found["hits"]["hits"].as_array().context("hits")?;
    let mut ids: Vec<&str> = hits.iter().filter_map(|hit| hit["_id"].as_str()).collect();
    ids.sort_unstable();
    let mut expected = vec![
        "indexer-create",
        "indexer-index",
        "writer-create",
        "writer-index",
        "writer-update",
    ];
    expected.retain(|id| *id != "writer-update"); // of a document that is nowhere: a dead letter
    if more.iter().any(|(.., may)| *may) {
        expected.insert(0, "creator-create");
    }
    ensure!(
        ids == expected,
        "what was asked left nothing, and what was refused neither: {ids:?}"
    );
    nodes.delete(&format!("/{index},{other},{index}-new"))?.ok()?;
    Ok(())
}

/// A closed index is reported as closed before rights are checked. A write by a user with rights is queued
/// all the same, and parked until the index is open.
fn closed(cluster: &RealCluster) -> Result<()> {
    let nodes = cluster.client()?;
    let index = format!("rights-{}", cluster.fresh_name("closed"));
    let one_shard = json!({"settings": {"number_of_shards": 1, "number_of_replicas": 0}});
    nodes.put(&format!("/{index}"), &one_shard)?.ok()?;
    nodes.post(&format!("/{index}/_close"), &Value::Null)?.ok()?;
    let place = GatewayHome::before(cluster)?;
    let gateway = &place.gateway;
    for (user, operation, may) in [
        ("reader", "index", false),
        ("reader", "delete", false),
        ("indexer", "delete", false),
        ("indexer", "update", false),
        ("indexer", "index", true),
        ("writer", "index", true),
        ("writer", "update", true),
        ("writer", "delete", true),
    ] {
        let client = gateway.client().basic_auth(user, OPENSEARCH);
        let told = told(&client, &line(operation, &index, user))?;
        ensure!(
            (told == Told::Queued) == may,
            "{user} {operation}: {told:?}\n{}",
            gateway.log()
        );
    }
    wait(gateway, |group| group["parked"] == 4 && group["pending"] == 0)?;
    nodes.post(&format!("/{index}/_open"), &Value::Null)?.ok()?;
    wait(gateway, |group| group["parked"] == 0)?;
    nodes.post(&format!("/{index}/_refresh"), &Value::Null)?.ok()?;
    let found = nodes.get(&format!("/{index}/_search"))?.ok()?.json()?;
    ensure!(
        found["hits"]["total"]["value"] == 1,
        "the writer's document is deleted again: {found}"
    );
    nodes.delete(&format!("/{index}"))?.ok()?;
    Ok(())
}

/// A server that runs a pipeline for many documents at once refuses all of them for one that it cannot parse.
/// Documents queued for it are delivered all the same, and only that one dies.
fn through_a_pipeline(cluster: &RealCluster) -> Result<()> {
    let nodes = cluster.client()?;
    let pipeline = cluster.fresh_name("stamps");
    let stamps = json!({"processors": [{"set": {"field": "stamped", "value": 1}}]});
    nodes
        .put(&format!("/_ingest/pipeline/{pipeline}"), &stamps)?
        .ok()?;
    let (own, named) = (cluster.fresh_name("own"), cluster.fresh_name("named"));
    let settings = json!({"number_of_shards": 3, "number_of_replicas": 0});
    let mut of_own = settings.clone();
    of_own["default_pipeline"] = json!(pipeline);
    nodes
        .put(&format!("/{own}"), &json!({"settings": of_own}))?
        .ok()?;
    nodes
        .put(&format!("/{named}"), &json!({"settings": settings}))?
        .ok()?;
    let (user, password) = cluster.credentials().context("a secure cluster")?;
    let lines = |index: &str, from: usize| -> String {
        let line = |n: usize| {
            let end = ["}", ""][usize::from(n == BROKEN)];
            format!("{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"{n}\"}}}}\n{{\"n\":{n}{end}\n")
        };
        (from..from + 50).map(line).collect()
    };
    // This is what the server itself does with them.
    let direct = nodes.post_ndjson(
        &format!("/_bulk?pipeline={pipeline}"),
        lines(&named, 0).as_bytes(),
    )?;
    let told = direct.ok()?.json()?;
    let all = told["items"].as_array().context("items")?;
    ensure!(
        all.iter()
            .all(|item| item["index"]["error"]["type"] == "parse_exception"),
        "all fail for one: {told}"
    );
    let place = GatewayHome::before(cluster)?;
    let gateway = &place.gateway;
    let client = gateway.client().basic_auth(user, password);
    for from in (0..300).step_by(50) {
        for (index, target) in [
            (&own, "/_bulk".to_owned()),
            (&named, format!("/_bulk?pipeline={pipeline}")),
        ] {
            let answer = client.post_ndjson(&target, lines(index, from).as_bytes())?.ok()?;
            ensure!(answer.header("x-tidegate-ack").is_some(), "{}", answer.text());
        }
    }
    delivered(gateway)?;
    wait(gateway, |group| group["parked"] == 0)?;
    nodes
        .post(&format!("/{own},{named}/_refresh"), &Value::Null)?
        .ok()?;
    for index in [&own, &named] {
        let found = nodes
            .get(&format!("/{index}/_search?q=stamped:1&size=0"))?
            .ok()?
            .json()?;
        ensure!(found["hits"]["total"]["value"] == 299, "{index}: {found}");
    }
    let queues = gateway.admin().get("/queue/stats")?.ok()?.json()?;
    ensure!(queues["q"]["groups"]["c"]["dead"] == 2, "{queues:#}");
    nodes.delete(&format!("/{own},{named}"))?.ok()?;
    Ok(())
}

/// The number of the document whose end is missing.
const BROKEN: usize = 17;

/// A pipeline that writes who sent a document runs as the client, so the document is not queued: from the
/// queue it would run as the gateway.
fn who_sent_it(cluster: &RealCluster) -> Result<()> {
    let nodes = cluster.client()?;
    let pipeline = cluster.fresh_name("sender");
    let processors = json!({"processors": [{"set_security_user": {"field": "sender"}}]});
    nodes
        .put(&format!("/_ingest/pipeline/{pipeline}"), &processors)?
        .ok()?;
    let own = format!("rights-{}", cluster.fresh_name("own"));
    let named = format!("rights-{}", cluster.fresh_name("named"));
    for (index, default) in [(&own, &*pipeline), (&named, "_none")] {
        let settings = json!({"number_of_shards": 1, "number_of_replicas": 0, "default_pipeline": default});
        nodes
            .put(&format!("/{index}"), &json!({"settings": settings}))?
            .ok()?;
    }
    let place = GatewayHome::before(cluster)?;
    let gateway = &place.gateway;
    let client = gateway.client().basic_auth("writer", "admin");
    let answers = [
        client.post_ndjson("/_bulk", line("index", &own, "1").as_bytes())?,
        client.post_ndjson(
            &format!("/_bulk?pipeline={pipeline}"),
            line("index", &named, "1").as_bytes(),
        )?,
        client.put(&format!("/{own}/_doc/2"), &json!({"n": 2}))?,
        client.put(&format!("/{named}/_doc/2?pipeline={pipeline}"), &json!({"n": 2}))?,
    ];
    for answer in answers {
        let answer = answer.ok()?;
        ensure!(answer.header("x-tidegate-ack").is_none(), "{}", answer.text());
    }
    for document in [
        format!("{own}/_doc/1"),
        format!("{named}/_doc/1"),
        format!("{own}/_doc/2"),
        format!("{named}/_doc/2"),
    ] {
        let found = nodes.get(&format!("/{document}"))?.ok()?.json()?;
        ensure!(
            found["_source"]["sender"]["username"] == "writer",
            "{document}: {found}"
        );
    }
    ensure!(told(&client, &line("index", &named, "3"))? == Told::Queued);
    delivered(gateway)?;
    let queues = gateway.admin().get("/queue/stats")?.ok()?.json()?;
    ensure!(queues["q"]["accepted"] == 1, "{queues:#}");
    nodes.delete(&format!("/{own},{named}"))?.ok()?;
    nodes.delete(&format!("/_ingest/pipeline/{pipeline}"))?.ok()?;
    Ok(())
}

/// Elasticsearch narrows a pattern to the indices that its user manages, and answers 200. A switch for the
/// pattern would hold for all indices, so the gateway refuses what the user may not do everywhere.
fn narrowed(cluster: &RealCluster) -> Result<()> {
    let nodes = cluster.client()?;
    let name = cluster.fresh_name("narrowed");
    let (own, other) = (format!("rights-{name}"), format!("others-{name}"));
    let one_shard = json!({"settings": {"number_of_shards": 1, "number_of_replicas": 0}});
    for index in [&own, &other] {
        nodes.put(&format!("/{index}"), &one_shard)?.ok()?;
    }
    let narrow = json!({"index.refresh_interval": "7s"});
    let pattern = format!("/*{name}/_settings");
    let writer = cluster.client()?.basic_auth("writer", "admin");
    writer.put(&pattern, &narrow)?.ok()?;
    let interval = |index: &str| -> Result<Value> {
        let shown = nodes.get(&format!("/{index}/_settings"))?.ok()?.json()?;
        Ok(shown[index]["settings"]["index"]["refresh_interval"].clone())
    };
    ensure!((interval(&own)?, interval(&other)?) == (json!("7s"), Value::Null));
    let place = GatewayHome::before(cluster)?;
    let gateway = &place.gateway;
    let on = json!({"index.direct_routing.enable": true});
    let put = |user: &str, target: &str| -> Result<Answer> {
        gateway.client().basic_auth(user, "admin").put(target, &on)
    };
    // With this parameter, the index that the user has no right for is as one that is not there.
    let both = format!("/{own},{other}/_settings?ignore_unavailable=true");
    writer.put(&both, &narrow)?.ok()?;
    ensure!(interval(&other)? == Value::Null);
    for target in ["/*/_settings", "/_settings", "/_all/_settings", &pattern, &both] {
        let refused = put("writer", target)?;
        ensure!(
            refused.status == 403,
            "{target}: {} {}",
            refused.status,
            refused.text()
        );
        let shown = gateway
            .client()
            .basic_auth("admin", "admin")
            .get(&format!("/{other}/_settings"))?;
        ensure!(
            !shown.text().contains("direct_routing"),
            "{target}: {}",
            shown.text()
        );
    }
    put("writer", &format!("/rights-{name}*/_settings"))?.ok()?;
    put("admin", &pattern)?.ok()?;
    nodes.delete(&format!("/{own},{other}"))?.ok()?;
    Ok(())
}

/// Streams accept `create` only; the gateway asks about rights for the stream's backing indices instead.
fn stream(cluster: &RealCluster) -> Result<()> {
    let nodes = cluster.client()?;
    let name = cluster.fresh_name("stream");
    let stream = format!("rights-{name}");
    let template = json!({"index_patterns": [stream], "data_stream": {}, "priority": 500});
    nodes.put(&format!("/_index_template/{name}"), &template)?.ok()?;
    nodes.put(&format!("/_data_stream/{stream}"), &json!({}))?.ok()?;
    let place = GatewayHome::before(cluster)?;
    let document =
        format!("{{\"create\":{{\"_index\":\"{stream}\"}}}}\n{{\"@timestamp\":\"2020-01-01T00:00:00Z\"}}\n");
    for (user, expected) in [("reader", Told::Refused), ("writer", Told::Queued)] {
        let client = place.gateway.client().basic_auth(user, OPENSEARCH);
        let told = told(&client, &document)?;
        ensure!(told == expected, "{user}: {told:?}\n{}", place.gateway.log());
    }
    delivered(&place.gateway)?;
    nodes.delete(&format!("/_data_stream/{stream}"))?.ok()?;
    nodes.delete(&format!("/_index_template/{name}"))?.ok()?;
    Ok(())
}

#[derive(Debug, PartialEq)]
enum Told {
    Queued,
    /// Refused by the cluster, since a right is missing.
    Refused,
    Other(u16, String),
}

/// Returns what becomes of a bulk; documents of a new index pass for a moment.
fn told(client: &Client, body: &str) -> Result<Told> {
    let began = Instant::now();
    loop {
        let answer = client.post_ndjson("/_bulk", body.as_bytes())?;
        let told = of(&answer)?;
        if !matches!(told, Told::Other(..)) || began.elapsed() > Duration::from_secs(30) {
            return Ok(told);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn of(answer: &Answer) -> Result<Told> {
    if answer.header("x-tidegate-ack").is_some() {
        return Ok(Told::Queued);
    }
    let json = answer.json()?;
    let item = json["items"][0].as_object().and_then(|item| item.values().next());
    let kind = item.map_or(&json["error"]["type"], |item| &item["error"]["type"]);
    Ok(match kind.as_str() {
        Some("security_exception") => Told::Refused,
        _ => Told::Other(answer.status, answer.text()),
    })
}

fn line(operation: &str, index: &str, id: &str) -> String {
    let source = match operation {
        "delete" => "",
        "update" => "{\"doc\":{\"n\":1}}\n",
        _ => "{\"n\":1}\n",
    };
    format!("{{\"{operation}\":{{\"_index\":\"{index}\",\"_id\":\"{id}\"}}}}\n{source}")
}

fn delivered(gateway: &Gateway) -> Result<()> {
    wait(gateway, |group| group["pending"] == 0)
}

fn wait(gateway: &Gateway, is_there: impl Fn(&Value) -> bool) -> Result<()> {
    let began = Instant::now();
    loop {
        let queues = gateway.admin().get("/queue/stats")?.ok()?.json()?;
        if is_there(&queues["q"]["groups"]["c"]) {
            return Ok(());
        }
        ensure!(
            began.elapsed() < Duration::from_secs(30),
            "{queues:#}\n{}",
            gateway.log()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

struct GatewayHome {
    gateway: Gateway,
    _folder: tempfile::TempDir,
}

impl GatewayHome {
    fn before(cluster: &RealCluster) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("tidegate.yml");
        let (user, password) = cluster.credentials().context("a secure cluster")?;
        let ca = cluster.ca_path().context("a secure cluster")?;
        let text = format!(
            "path.data: '{}'
admin: {{binding: '127.0.0.1:0'}}
entry: [{{name: e, router: r, network: {{binding: '127.0.0.1:0'}}}}]
router: [{{name: r, default_flow: f}}]
flow: [{{name: f, filter: [{{bulk_reshuffle: {{elasticsearch: c, mode: async, queue: {{name: q, lanes: 4, min_free: 1mb}}}}}}, {{elasticsearch: {{elasticsearch: c}}}}]}}]
pipeline: [{{name: p, retry_delay_in_ms: 50, processor: [{{bulk_indexing: {{elasticsearch: c}}}}]}}]
elasticsearch: [{{name: c, endpoint: '{}', basic_auth: {{username: {user}, password: '{password}'}}, tls: {{ca_file: '{}'}}}}]
",
            folder.path().join("data").display(),
            cluster.urls()[0],
            ca.display(),
        );
        std::fs::write(&file, text)?;
        let gateway = Gateway::start(&["--config", file.to_str().context("a plain path")?]);
        gateway.wait_until("the topology is known", |status| status["state"] == "watching");
        Ok(Self {
            gateway,
            _folder: folder,
        })
    }
}
