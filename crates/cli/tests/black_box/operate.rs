//! Pipelines are started and stopped, queues are inspected, consumer groups are moved, and the admin port
//! describes itself.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::client::Answer;
use testkit::fake::{Fault, Injection};

use crate::gateway::{Gateway, PATIENCE, body, cluster};
use crate::home::{GatewayHome, account, drained, queue, wait};

fn get(gateway: &Gateway, path: &str) -> Value {
    gateway.admin().get(path).unwrap().ok().unwrap().json().unwrap()
}

fn send(gateway: &Gateway, method: &str, path: &str) -> Answer {
    gateway.admin().send(method, path, &[], &[]).unwrap()
}

fn post(gateway: &Gateway, path: &str) -> Value {
    send(gateway, "POST", path).ok().unwrap().json().unwrap()
}

/// Changes the configuration.
fn rewrite(place: &GatewayHome, from: &str, to: &str) {
    let text = std::fs::read_to_string(&place.file).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(&place.file, text.replace(from, to)).unwrap();
}

/// Returns documents with ids of their own.
fn batch(name: &str, docs: usize) -> String {
    body(docs).replace("\"_id\":\"", &format!("\"_id\":\"{name}-"))
}

/// Runs `tidegate`. Returns its status and what it printed.
fn run(gateway: &Gateway, arguments: &[&str]) -> (i32, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(arguments)
        .args(["--admin", &format!("http://{}", gateway.admin)])
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8([out.stdout, out.stderr].concat()).unwrap();
    (out.status.code().unwrap(), text)
}

#[test]
fn a_pipeline_starts_and_stops_when_it_is_told_and_finishes_what_is_under_way() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    rewrite(&place, "name: p0,", "name: p0, auto_start: false,");
    let gateway = place.start();
    gateway.bulk(&batch("a", 50)).ok().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let one = account(&queue(&gateway), "c0");
    assert_eq!((&one["pending"], &one["state"]), (&json!(50), &json!("stopped")));
    assert!(one["lag_s"].as_f64().unwrap() > 0.1, "{one}");
    assert_eq!(get(&gateway, "/pipeline")["p0"]["auto_start"], false);
    assert_eq!(post(&gateway, "/pipeline/p0/_start")["state"], "running");
    assert_eq!(
        post(&gateway, "/pipeline/p0/_start")["state"],
        "running",
        "said twice"
    );
    drained(&gateway, "c0");

    cluster.inject(Injection::bulk(Fault::Delay(Duration::from_millis(1_500))).always());
    gateway.bulk(&batch("b", 50)).ok().unwrap();
    gateway.wait_for_struck(&cluster, 1);
    let sent = cluster.counts().docs;
    assert_eq!(post(&gateway, "/pipeline/p0/_stop?wait_s=0")["state"], "stopping");
    assert_eq!(send(&gateway, "POST", "/pipeline/p0/_start").status, 409);
    let stopped = post(&gateway, "/pipeline/p0/_stop");
    assert_eq!(
        (&stopped["state"], &stopped["deliveries"][0]["state"]),
        (&json!("stopped"), &json!("stopped"))
    );
    let after = cluster.counts().docs;
    let one = account(&queue(&gateway), "c0");
    assert_eq!(
        one["indexed"],
        json!(after),
        "what was sent was committed ({sent} were under way): {one}"
    );
    cluster.behave();
    gateway.bulk(&batch("c", 50)).ok().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(cluster.counts().docs, after, "a stopped pipeline sends nothing");
    assert_eq!(send(&gateway, "POST", "/pipeline/none/_stop").status, 404);
    post(&gateway, "/pipeline/p0/_start");
    assert_eq!(drained(&gateway, "c0")["indexed"], 150);

    let (status, listed) = run(&gateway, &["pipelines", "list"]);
    assert!(status == 0 && listed.contains("running"), "{listed}");
    let (status, stopped) = run(&gateway, &["pipelines", "stop", "p0"]);
    assert!(status == 0 && stopped.contains("stopped"), "{stopped}");
    assert_eq!(run(&gateway, &["pipelines", "start", "p0"]).0, 0);
    assert_eq!(run(&gateway, &["pipelines", "start", "none"]).0, 1);
    drop(gateway);
    let gateway = place.start();
    assert_eq!(
        get(&gateway, "/pipeline")["p0"]["state"],
        "stopped",
        "as the configuration says"
    );
}

#[test]
fn a_pipeline_that_tries_again_stops_all_the_same_and_its_batch_is_delivered_later() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let busy = Fault::Status {
        status: 503,
        body: "{}".to_owned(),
    };
    cluster.inject(Injection::bulk(busy).always());
    gateway.bulk(&batch("a", 100)).ok().unwrap();
    wait(&gateway, "c0", |one| one["retrying_lanes"].as_u64().unwrap() > 0);
    assert_eq!(post(&gateway, "/pipeline/p0/_stop")["state"], "stopped");
    let one = account(&queue(&gateway), "c0");
    assert_eq!(
        (&one["pending"], &one["retrying_lanes"]),
        (&json!(100), &json!(0))
    );
    cluster.behave();
    post(&gateway, "/pipeline/p0/_start");
    assert_eq!(drained(&gateway, "c0")["indexed"], 100);
    assert_eq!(cluster.docs("logs").len(), 100);
}

#[test]
fn a_queue_shows_its_depth_its_lanes_and_its_records() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    rewrite(&place, "name: p0,", "name: p0, auto_start: false,");
    let gateway = place.start();
    for name in ["a", "b", "c"] {
        gateway
            .client()
            .post_ndjson("/logs/_bulk?timeout=1m", batch(name, 40).as_bytes())
            .unwrap()
            .ok()
            .unwrap();
    }
    let shown = get(&gateway, "/queue/q");
    let one = &shown["groups"]["c0"];
    assert_eq!((&shown["accepted"], &one["pending"]), (&json!(120), &json!(120)));
    assert!(
        one["lag_s"].as_f64().unwrap() > 0.0 && one["pending_bytes"].as_u64().unwrap() > 1000,
        "{shown:#}"
    );
    assert_eq!(one["lanes"].as_array().unwrap().len(), 4);
    assert!(shown["accepted_per_s"].as_f64().unwrap() > 0.0, "{shown:#}");
    assert_eq!(one["indexed_per_s"], 0.0);
    assert_eq!(send(&gateway, "GET", "/queue/none").status, 404);

    let all = get(&gateway, "/queue/q/records");
    let records = all["records"].as_array().unwrap();
    assert_eq!((records.len(), &all["next"]), (3, &Value::Null));
    assert_eq!(records[0]["params"]["target"], "/logs/_bulk?timeout=1m");
    let text = |record: &Value| -> String {
        let groups = record["groups"].as_array().unwrap().iter();
        groups.map(|group| group["text"].as_str().unwrap()).collect()
    };
    let lines = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(lines(&text(&records[1])), lines(&batch("b", 40)));
    // Read page by page, and lane by lane, the result is the same.
    let first = get(&gateway, "/queue/q/records?limit=1");
    let rest = get(&gateway, &format!("/queue/q/records?from={}", first["next"]));
    assert_eq!(rest["records"].as_array().unwrap(), &records[1..]);
    let mut documents = 0;
    for lane in 0..4 {
        let of_lane = get(&gateway, &format!("/queue/q/records?lane={lane}"));
        for record in of_lane["records"].as_array().unwrap() {
            let groups = record["groups"].as_array().unwrap();
            assert!(groups.iter().all(|group| group["lane"] == lane));
            documents += groups
                .iter()
                .map(|group| group["documents"].as_u64().unwrap())
                .sum::<u64>();
        }
    }
    assert_eq!(documents, 120);
    let cut = get(&gateway, "/queue/q/records?text_bytes=10&limit=1");
    assert_eq!(
        (
            text(&cut["records"][0]).len(),
            &cut["records"][0]["groups"][0]["cut"]
        ),
        (10, &json!(true))
    );
    assert_eq!(send(&gateway, "GET", "/queue/q/records?lane=4").status, 400);

    let (status, listed) = run(&gateway, &["queues", "list"]);
    assert!(status == 0 && listed.contains("120"), "{listed}");
    let (status, shown) = run(&gateway, &["queues", "show", "q"]);
    assert!(status == 0 && shown.contains("120 documents accepted"), "{shown}");
    assert!(shown.contains(" in 1 segment, "), "{shown}");
    let (status, browsed) = run(&gateway, &["queues", "browse", "q", "--text", "--limit", "1"]);
    assert!(
        status == 0 && browsed.contains("\"a-7\"") && browsed.contains("more: --from"),
        "{browsed}"
    );
}

#[test]
fn a_group_is_set_elsewhere_while_it_is_stopped_and_the_books_stay_exact() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let unfit = Fault::Items {
        every: 2,
        status: 400,
        error: r#"{"type":"x","reason":"y"}"#.to_owned(),
    };
    cluster.inject(Injection::bulk(unfit).always());
    gateway.bulk(&batch("a", 40)).ok().unwrap();
    let before = drained(&gateway, "c0");
    let (indexed, dead) = (
        before["indexed"].as_u64().unwrap(),
        before["dead"].as_u64().unwrap(),
    );
    assert!(indexed > 0 && dead > 0 && indexed + dead == 40, "{before}");
    cluster.behave();
    let path = "/queue/q/groups/c0/offset";
    assert_eq!(
        send(&gateway, "POST", &format!("{path}?to=earliest&confirm=true")).status,
        409,
        "it delivers"
    );
    post(&gateway, "/pipeline/p0/_stop");
    assert_eq!(
        send(&gateway, "POST", &format!("{path}?to=earliest")).status,
        400,
        "not confirmed"
    );
    assert_eq!(
        send(&gateway, "POST", &format!("{path}?to=nowhere&confirm=true")).status,
        400
    );
    let end = queue(&gateway)["end"].as_u64().unwrap();
    let beyond = send(&gateway, "POST", &format!("{path}?to={end}0&confirm=true"));
    assert_eq!(beyond.status, 400, "it would pass over all that is pending");
    let told = String::from_utf8_lossy(&beyond.body);
    assert!(
        told.contains(&format!("the queue has positions 0 to {end}")),
        "{told}"
    );
    let moved = post(&gateway, &format!("{path}?to=earliest&confirm=true"));
    assert_eq!(moved["moved"], json!({"skipped": 0, "rewound": 40}));
    let one = account(&queue(&gateway), "c0");
    assert_eq!(
        (&one["pending"], &one["indexed"], &one["dead"]),
        (&json!(40), &json!(indexed), &json!(dead))
    );
    // The gateway is killed in between: the earlier letters stay, and stay counted.
    gateway.signal("KILL");
    drop(gateway);
    let gateway = place.start();
    let one = drained(&gateway, "c0");
    assert_eq!(
        [&one["indexed"], &one["dead"], &one["rewound"]],
        [&json!(indexed + 40), &json!(dead), &json!(40)]
    );
    assert_eq!(
        get(&gateway, "/dead_letters")["dead_letters"]
            .as_array()
            .unwrap()
            .len() as u64,
        dead
    );
    assert_eq!(cluster.docs("logs").len(), 40, "all are taken now");

    // The group moves forward: to a position, and to a time.
    post(&gateway, "/pipeline/p0/_stop");
    gateway.bulk(&batch("b", 10)).ok().unwrap();
    let answer = gateway.bulk(&batch("c", 10)).ok().unwrap();
    let position = answer
        .header("x-tidegate-ack")
        .unwrap()
        .rsplit_once('=')
        .unwrap()
        .1
        .to_owned();
    let (status, told) = run(&gateway, &["queues", "offset", "q", "c0", "--to", &position]);
    assert!(status == 2 && told.contains("--yes"), "{told}");
    let (status, told) = run(
        &gateway,
        &["queues", "offset", "q", "c0", "--to", &position, "--yes"],
    );
    assert!(status == 0 && told.contains("skipped 10, rewound 0"), "{told}");
    let moved = post(&gateway, &format!("{path}?to=2000-01-01T00:00:00Z&confirm=true"));
    assert_eq!(
        moved["moved"]["rewound"], 50,
        "all that is there is younger: {moved}"
    );
    let moved = post(&gateway, &format!("{path}?to=2100-01-01T00:00:00Z&confirm=true"));
    assert_eq!(
        (&moved["moved"]["skipped"], &moved["pending"]),
        (&json!(60), &json!(0))
    );
    let (status, told) = run(&gateway, &["queues", "offset", "q", "c0"]);
    assert!(status == 0 && told.lines().count() == 5, "{told}");
    post(&gateway, "/pipeline/p0/_start");
    gateway.bulk(&batch("d", 10)).ok().unwrap();
    let one = drained(&gateway, "c0");
    assert_eq!((&one["skipped"], &one["rewound"]), (&json!(70), &json!(90)));
    assert_eq!(cluster.docs("logs").len(), 50, "b and c were passed over");
}

#[test]
fn a_cluster_that_is_added_begins_where_it_is_told_and_one_that_is_gone_can_be_forgotten() {
    let (first, second) = (cluster(), cluster());
    let place = GatewayHome::before(&[&first], "");
    let gateway = place.start();
    gateway.bulk(&batch("a", 30)).ok().unwrap();
    drained(&gateway, "c0");
    assert_eq!(
        send(&gateway, "DELETE", "/queue/q/groups/c0?confirm=true").status,
        409,
        "it is configured"
    );
    drop(gateway);
    let two = GatewayHome::before(&[&first, &second], "");
    let text = std::fs::read_to_string(&two.file).unwrap();
    let data = text.lines().next().unwrap().to_owned();
    let own = format!("path.data: {}", place.data().display());
    let group = "elasticsearch: c1}";
    rewrite(&two, &data, &own);
    rewrite(&two, group, "elasticsearch: c1, consumer: {start: latest}}");
    let gateway = two.start();
    gateway.bulk(&batch("b", 20)).ok().unwrap();
    let one = drained(&gateway, "c1");
    assert_eq!((&one["indexed"], &one["skipped"]), (&json!(20), &json!(30)));
    assert_eq!(second.docs("logs").len(), 20);
    let mut gateway = gateway;
    gateway.signal("TERM");
    assert!(gateway.wait().success(), "{}", gateway.log());
    drop(gateway);
    let gateway = place.start();
    gateway.bulk(&batch("c", 5)).ok().unwrap();
    assert_eq!(account(&queue(&gateway), "c1")["pending"], 5, "its place is kept");
    assert_eq!(
        send(&gateway, "DELETE", "/queue/q/groups/c1").status,
        400,
        "not confirmed"
    );
    let aimed = send(&gateway, "DELETE", "/queue/q/groups/c1?confirm=true&lane=0");
    assert_eq!(aimed.status, 400, "a group has no part that could be removed");
    let (status, told) = run(&gateway, &["queues", "remove-group", "q", "c1", "--yes"]);
    assert!(status == 0 && told.contains("5 documents pending"), "{told}");
    assert_eq!(queue(&gateway)["groups"]["c1"], Value::Null);
    assert_eq!(
        send(&gateway, "DELETE", "/queue/q/groups/c1?confirm=true").status,
        404
    );
}

#[test]
fn the_admin_port_describes_all_that_it_serves_and_nothing_else() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let described = get(&gateway, "/openapi.json");
    assert_eq!(described["openapi"], "3.1.0");
    let listed = get(&gateway, "/");
    let listed = listed["endpoints"].as_object().unwrap();
    let mut operations = 0;
    for (path, methods) in described["paths"].as_object().unwrap() {
        let concrete = path
            .replace("{name}", "q")
            .replace("{group}", "c0")
            .replace("{id}", "1")
            .replace("{cluster}", "c0");
        for method in ["GET", "PUT", "POST", "DELETE"] {
            // The port is asked for an upgrade, too; a request at the moment of an upgrade is repeated.
            let began = Instant::now();
            let answer = loop {
                match gateway.admin().send(method, &concrete, &[], &[]) {
                    Ok(answer) => break answer,
                    Err(error) => assert!(began.elapsed() < PATIENCE, "{method} {concrete}: {error:#}"),
                }
                std::thread::sleep(Duration::from_millis(50));
            };
            let served = answer.status != 405 && !answer.text().contains("no such endpoint");
            let is_described = methods.get(method.to_lowercase()).is_some();
            assert_eq!(served, is_described, "{method} {path}: {}", answer.text());
            operations += usize::from(is_described);
            let name = if method == "GET" {
                path.clone()
            } else {
                format!("{method} {path}")
            };
            assert_eq!(listed.contains_key(&name), is_described, "{name}");
        }
    }
    assert_eq!(operations, listed.len());
    assert!(operations > 15, "{operations}");
}
