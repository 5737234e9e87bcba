//! What an operator does by hand, on real clusters. Dead letters of an OpenSearch and an Elasticsearch are
//! found, edited, replayed and purged; pipelines are stopped and started; a consumer group is set back and
//! another one is forgotten. The accounts are exact all the while. In the end `tidegate diff` finds the two
//! clusters equal, and finds the difference after one of them is changed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use testkit::client::Client;
use testkit::real::{ClusterKind, RealCluster};

use crate::gateway::Gateway;

/// Number of documents that both clusters accept.
const GOOD: u64 = 300;
/// Number of documents with a field of the wrong type, which are edited and replayed.
const BAD: u64 = 6;
/// Number of documents with a field that the mapping doesn't allow, which are purged.
const STRANGE: u64 = 2;

struct Scene {
    left: RealCluster,
    right: RealCluster,
    index: String,
    folder: tempfile::TempDir,
}

#[test]
fn two_clusters_are_operated_by_hand_and_hold_the_same_in_the_end() -> Result<()> {
    let left = RealCluster::shared(ClusterKind::OpenSearchSecure)?;
    let scene = Scene {
        index: left.fresh_name("hand"),
        right: RealCluster::shared(ClusterKind::Elasticsearch)?,
        left,
        folder: tempfile::tempdir()?,
    };
    for (cluster, shards) in [(&scene.left, 3), (&scene.right, 2)] {
        let body = json!({
            "settings": {"number_of_shards": shards, "number_of_replicas": 0},
            "mappings": {"dynamic": "strict", "properties": {"n": {"type": "long"}, "tags": {"type": "keyword"}}},
        });
        cluster.client()?.put(&format!("/{}", scene.index), &body)?.ok()?;
    }
    scene.configure(&["left", "right"])?;
    let mut gateway = scene.start()?;
    let mut queued = scene.warm_up(&gateway)?;
    for group in ["left", "right"] {
        drained(&gateway, group, queued)?;
    }

    // One pipeline is stopped; the other cluster gets its documents all the same.
    run(&gateway, &["pipelines", "stop", "p-left"], &[])?;
    queued += scene.write(&gateway, &documents())?;
    drained(&gateway, "right", queued)?;
    ensure!(account(&gateway, "left", queued)?["pending"] == GOOD + BAD + STRANGE);
    let listed = run(&gateway, &["pipelines", "list", "--json"], &[])?;
    ensure!(listed["p-left"]["state"] == "stopped", "{listed:#}");
    let browsed = run(&gateway, &["queues", "browse", "q", "--text", "--json"], &[])?;
    ensure!(browsed.to_string().contains("no number"), "{browsed:#}");
    run(&gateway, &["pipelines", "start", "p-left"], &[])?;
    drained(&gateway, "left", queued)?;

    // Each group has its own letters, with its cluster's wording.
    let unfit = letters(
        &gateway,
        &["--group", "left", "--type", "mapper_parsing_exception"],
    )?;
    ensure!(unfit.len() as u64 == BAD, "{unfit:#?}");
    let shown = run(
        &gateway,
        &["dead-letters", "show", &id_of(&unfit[0]), "--json"],
        &[],
    )?;
    ensure!(
        shown["status"] == 400 && shown["reason"].to_string().contains("[n]"),
        "{shown:#}"
    );
    let strange = letters(&gateway, &["--group", "left", "--reason", "DYNAMIC"])?;
    ensure!(strange.len() as u64 == STRANGE, "{strange:#?}");
    for group in ["left", "right"] {
        ensure!(letters(&gateway, &["--group", group, "--status", "4xx"])?.len() as u64 == BAD + STRANGE);
        queued += scene.mend(&gateway, group)?;
        drained(&gateway, group, queued)?;
        let strange = letters(&gateway, &["--group", group])?;
        ensure!(strange.len() as u64 == STRANGE, "{strange:#?}");
        run(
            &gateway,
            &["dead-letters", "purge", "--group", group, "--yes"],
            &[],
        )?;
    }
    // A kill makes no difference.
    for _ in 0..2 {
        for group in ["left", "right"] {
            let one = drained(&gateway, group, queued)?;
            let states =
                ["dead", "replayed", "purged", "skipped", "lost", "rewound"].map(|state| one[state].as_u64());
            ensure!(
                states == [0, BAD, STRANGE, BAD, 0, 0].map(Some),
                "{group}: {one:#}"
            );
        }
        gateway.signal("KILL");
        drop(gateway);
        gateway = scene.start()?;
    }

    // A group is set back: everything is delivered once more, and dies once more.
    let refused = try_run(
        &gateway,
        &["queues", "offset", "q", "right", "--to", "earliest", "--yes"],
        &[],
    )?;
    ensure!(refused.0 == 2, "its pipeline runs: {refused:?}");
    run(&gateway, &["pipelines", "stop", "p-right"], &[])?;
    run(
        &gateway,
        &["queues", "offset", "q", "right", "--to", "earliest", "--yes"],
        &[],
    )?;
    run(&gateway, &["pipelines", "start", "p-right"], &[])?;
    let one = drained(&gateway, "right", queued)?;
    ensure!(
        one["rewound"] == queued && one["dead"] == BAD + STRANGE,
        "{one:#}"
    );
    run(
        &gateway,
        &["dead-letters", "purge", "--group", "right", "--yes"],
        &[],
    )?;
    ensure!(drained(&gateway, "right", queued)?["dead"] == 0);

    scene.compare()?;

    // A cluster is given up: what is kept for it is removed once its group is forgotten.
    drop(gateway);
    scene.configure(&["left"])?;
    let gateway = scene.start()?;
    run(&gateway, &["queues", "remove-group", "q", "right", "--yes"], &[])?;
    let stats = gateway.admin().get("/queue/stats")?.ok()?.json()?;
    ensure!(stats["q"]["groups"].get("right").is_none(), "{stats:#}");
    drained(&gateway, "left", queued)?;
    for cluster in [&scene.left, &scene.right] {
        cluster.client()?.delete(&format!("/{}", scene.index))?.ok()?;
    }
    Ok(())
}

/// Returns good, bad and strange documents.
fn documents() -> String {
    let good = (0..GOOD)
        .map(|id| format!("{{\"index\":{{\"_id\":\"{id}\"}}}}\n{{\"n\":{id},\"tags\":[\"a\",\"b\"]}}\n"));
    let bad = (0..BAD).map(|id| format!("{{\"index\":{{\"_id\":\"bad-{id}\"}}}}\n{{\"n\":\"no number\"}}\n"));
    let strange = (0..STRANGE)
        .map(|id| format!("{{\"create\":{{\"_id\":\"strange-{id}\"}}}}\n{{\"n\":1,\"what\":2}}\n"));
    good.chain(bad).chain(strange).collect()
}

// === impl Scene ===

impl Scene {
    fn file(&self) -> PathBuf {
        self.folder.path().join("tidegate.yml")
    }

    /// Configures a pipeline for each of these clusters.
    fn configure(&self, delivered: &[&str]) -> Result<()> {
        let mut text = format!(
            "path.data: '{}'
admin: {{binding: '127.0.0.1:0'}}
entry: [{{name: e, router: r, network: {{binding: '127.0.0.1:0'}}}}]
router: [{{name: r, default_flow: f}}]
flow: [{{name: f, filter: [{{bulk_reshuffle: {{elasticsearch: left, queue: {{name: q, lanes: 4, min_free: 1mb}}}}}}, {{elasticsearch: {{elasticsearch: left}}}}]}}]
pipeline:
",
            self.folder.path().join("data").display()
        );
        for name in delivered {
            text.push_str(&format!(
                "  - {{name: p-{name}, retry_delay_in_ms: 50, processor: [{{bulk_indexing: {{elasticsearch: {name}}}}}]}}\n"
            ));
        }
        text.push_str("elasticsearch:\n");
        for (name, cluster) in [("left", &self.left), ("right", &self.right)] {
            let account = cluster.credentials().map_or(String::new(), |(user, password)| {
                format!(", basic_auth: {{username: {user}, password: '{password}'}}")
            });
            let tls = cluster.ca_path().map_or(String::new(), |ca| {
                format!(", tls: {{ca_file: '{}'}}", ca.display())
            });
            let url = &cluster.urls()[0];
            text.push_str(&format!(
                "  - {{name: {name}, endpoint: '{url}'{account}{tls}}}\n"
            ));
        }
        std::fs::write(self.file(), text)?;
        Ok(())
    }

    fn start(&self) -> Result<Gateway> {
        let gateway = Gateway::start(&["--config", self.file().to_str().context("a plain path")?]);
        until("both topologies are known", || {
            let clusters = gateway.admin().get("/elasticsearch")?.ok()?.json()?;
            let all = clusters.as_object().context("clusters by name")?;
            Ok(all
                .values()
                .all(|cluster| cluster["state"] == "watching")
                .then_some(()))
        })?;
        Ok(gateway)
    }

    fn client(&self, gateway: &Gateway) -> Client {
        match self.left.credentials() {
            Some((user, password)) => gateway.client().basic_auth(user, password),
            None => gateway.client(),
        }
    }

    /// Writes until the index's bulks are queued: bulks for a new index pass until its first prediction is
    /// verified.
    fn warm_up(&self, gateway: &Gateway) -> Result<u64> {
        let probe = b"{\"index\":{\"_id\":\"0\"}}\n{\"n\":0}\n";
        until("bulks are queued", || {
            let answer = self
                .client(gateway)
                .post_ndjson(&format!("/{}/_bulk", self.index), probe)?
                .ok()?;
            Ok(answer.header("x-tidegate-ack").map(|_| 1))
        })
    }

    fn write(&self, gateway: &Gateway, text: &str) -> Result<u64> {
        let answer = self
            .client(gateway)
            .post_ndjson(&format!("/{}/_bulk", self.index), text.as_bytes())?
            .ok()?;
        ensure!(answer.header("x-tidegate-ack").is_some(), "{}", answer.text());
        Ok(GOOD + BAD + STRANGE)
    }

    /// Gives each bad letter of a group a fitting source and replays it. Returns the number of such letters.
    fn mend(&self, gateway: &Gateway, group: &str) -> Result<u64> {
        let source = self.folder.path().join("source.json");
        let mut mended = vec!["dead-letters".to_owned(), "replay".to_owned(), "--yes".to_owned()];
        for letter in letters(gateway, &["--group", group])? {
            let document = letter["action"]["index"]["_id"].as_str().unwrap_or_default();
            let Some(number) = document.strip_prefix("bad-") else {
                continue;
            };
            std::fs::write(&source, format!("{{\"n\":100{number}}}"))?;
            let id = id_of(&letter);
            let file = source.to_str().context("a plain path")?;
            let edited = run(
                gateway,
                &["dead-letters", "edit", &id, "--source", file, "--json"],
                &[],
            )?;
            ensure!(
                edited.to_string().contains("no number"),
                "the first lines are kept: {edited:#}"
            );
            mended.push(id);
        }
        let mended: Vec<&str> = mended.iter().map(String::as_str).collect();
        run(gateway, &mended, &[])?;
        let count = mended.len() as u64 - 3;
        ensure!(count == BAD, "{count}");
        Ok(count)
    }

    /// Runs `tidegate diff` for the two clusters.
    fn diff(&self) -> Result<(i32, Value)> {
        let (left, right) = (self.left.urls(), self.right.urls());
        let mut arguments = vec!["diff", "--left", &left[0], "--right", &right[0]];
        arguments.extend(["--index", &self.index, "--page", "100", "--json"]);
        let ca = self.left.ca_path().map(|ca| ca.display().to_string());
        if let Some(ca) = &ca {
            arguments.extend(["--ca", ca]);
        }
        let account = self.left.credentials().unwrap_or_default();
        let variables = [
            ("TIDEGATE_LEFT_USER", account.0),
            ("TIDEGATE_LEFT_PASSWORD", account.1),
        ];
        let out = tidegate(&arguments, &variables)?;
        let found = serde_json::from_slice(&out.stdout);
        let found = found.with_context(|| String::from_utf8_lossy(&out.stderr).into_owned())?;
        Ok((out.status.code().unwrap_or(-1), found))
    }

    /// Checks that the two are equal, until somebody changes one of them.
    fn compare(&self) -> Result<()> {
        let (status, same) = self.diff()?;
        ensure!(status == 0 && same["same"] == true, "{same:#}");
        ensure!(same["left"]["documents"] == GOOD + BAD, "{same:#}");
        let right = self.right.client()?;
        let plant = "{\"delete\":{\"_id\":\"5\"}}\n{\"index\":{\"_id\":\"new\"}}\n{\"n\":1}\n\
            {\"index\":{\"_id\":\"7\"}}\n{\"tags\":[\"a\",\"c\"],\"n\":7.0}\n\
            {\"index\":{\"_id\":\"8\"}}\n{ \"tags\": [\"\\u0061\",\"b\"], \"n\": 8.0 }\n";
        right
            .post_ndjson(&format!("/{}/_bulk", self.index), plant.as_bytes())?
            .ok()?;
        let (status, found) = self.diff()?;
        ensure!(status == 1 && found["complete"] == true, "{found:#}");
        let documents = json!([
            {"id": "5", "what": "only_left"},
            {"id": "7", "what": "different", "field": {"path": "tags[1]", "left": "\"b\"", "right": "\"c\""}},
            {"id": "new", "what": "only_right"},
        ]);
        ensure!(found["documents"] == documents, "{found:#}");
        ensure!(
            found["found"] == json!({"only_left": 1, "only_right": 1, "different": 1}),
            "{found:#}"
        );
        Ok(())
    }
}

fn tidegate(arguments: &[&str], variables: &[(&str, &str)]) -> Result<std::process::Output> {
    let mut command = Command::new(Path::new(env!("CARGO_BIN_EXE_tidegate")));
    command.args(arguments).envs(variables.iter().copied());
    Ok(command.stdin(std::process::Stdio::null()).output()?)
}

/// Runs a command that uses the admin port. Returns its status, and what it printed.
fn try_run(gateway: &Gateway, arguments: &[&str], more: &[&str]) -> Result<(i32, String)> {
    let admin = format!("http://{}", gateway.admin);
    let out = tidegate(&[arguments, more, &["--admin", &admin]].concat(), &[])?;
    let text = String::from_utf8([out.stdout, out.stderr].concat())?;
    Ok((out.status.code().unwrap_or(-1), text))
}

/// Runs a command that must succeed. Returns its JSON if that was asked for.
fn run(gateway: &Gateway, arguments: &[&str], more: &[&str]) -> Result<Value> {
    let (status, text) = try_run(gateway, arguments, more)?;
    ensure!(status == 0, "{arguments:?}: {status}: {text}");
    match arguments.contains(&"--json") {
        true => Ok(serde_json::from_str(&text).with_context(|| text.clone())?),
        false => Ok(Value::Null),
    }
}

fn letters(gateway: &Gateway, filter: &[&str]) -> Result<Vec<Value>> {
    let listed = run(gateway, &["dead-letters", "list", "--json"], filter)?;
    let letters = listed["dead_letters"].as_array().or_else(|| listed.as_array());
    Ok(letters.with_context(|| listed.to_string())?.clone())
}

fn id_of(letter: &Value) -> String {
    letter["id"].to_string()
}

/// Returns a group's exact account: every one of the `accepted` documents is in one of its states.
fn account(gateway: &Gateway, group: &str, accepted: u64) -> Result<Value> {
    let all = gateway.admin().get("/queue/stats")?.ok()?.json()?;
    let one = &all["q"]["groups"][group];
    let of = |state: &str| one[state].as_u64().unwrap_or_default();
    let states = [
        "indexed", "dead", "parked", "replayed", "purged", "skipped", "lost", "pending",
    ];
    ensure!(all["q"]["accepted"] == accepted, "{accepted}: {all:#}");
    ensure!(
        states.iter().map(|state| of(state)).sum::<u64>() == accepted + of("rewound"),
        "{group}: {all:#}"
    );
    Ok(one.clone())
}

fn drained(gateway: &Gateway, group: &str, accepted: u64) -> Result<Value> {
    let drained = until("nothing is pending", || {
        let one = account(gateway, group, accepted)?;
        // A slow cluster may have parked what it takes later.
        Ok((one["pending"] == 0 && one["parked"] == 0).then_some(one))
    });
    drained.with_context(|| gateway.log())
}

/// Asks until there is a result, for half a minute at most.
fn until<T>(what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let began = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if began.elapsed() > Duration::from_secs(30) {
            bail!("not so after 30 s: {what}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
