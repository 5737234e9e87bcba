//! Rights in asynchronous mode: a write is queued only if the cluster would have let its client write.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::client::{Answer, Client};
use testkit::fake::{FakeCluster, Fault, Flavour, Injection, On, Spec, User};

use crate::gateway::{Gateway, PATIENCE, body, statuses};
use crate::home::{GatewayHome, drained, queue};

const EVERYTHING: [&str; 5] = ["index", "create", "update", "delete", "manage"];

/// Makes a cluster with an administrator, whose account the gateway has, and users with fewer rights.
fn secure(flavour: Flavour) -> FakeCluster {
    let spec = Spec::default().index("logs", 6).index("metrics", 2).storing();
    let spec = spec
        .flavour(flavour)
        .basic_auth("u", "p")
        .user(User::new("reader", "p"))
        .user(User::new("writer", "p").may("logs*", &EVERYTHING).token("one"))
        .user(User::new("indexer", "p").may("logs*", &["index"]))
        .user(User::new("creator", "p").may("logs*", &["create"]));
    FakeCluster::start(spec).unwrap()
}

fn before(cluster: &FakeCluster) -> GatewayHome {
    let url = cluster.urls()[0].replace("http://", "http://u:p@");
    GatewayHome::at(&[url], "")
}

fn as_user(gateway: &Gateway, name: &str) -> Client {
    gateway.client().basic_auth(name, "p")
}

fn bulk(client: &Client, body: &str) -> Answer {
    client.post_ndjson("/_bulk", body.as_bytes()).unwrap()
}

fn is_queued(answer: &Answer) -> bool {
    answer.status == 200 && answer.header("x-tidegate-ack").is_some()
}

fn line(operation: &str, index: &str, id: &str) -> String {
    let source = match operation {
        "delete" => "",
        "update" => "{\"doc\":{}}\n",
        _ => "{\"n\":1}\n",
    };
    format!("{{\"{operation}\":{{\"_index\":\"{index}\",\"_id\":\"{id}\"}}}}\n{source}")
}

#[test]
fn a_user_who_may_only_read_is_refused_by_the_cluster_and_nothing_is_written_for_it() {
    for flavour in [Flavour::OpenSearch3, Flavour::Elasticsearch9] {
        let cluster = secure(flavour);
        let place = before(&cluster);
        let gateway = place.start();
        let answer = bulk(&as_user(&gateway, "reader"), &body(20));
        assert!(answer.header("x-tidegate-ack").is_none(), "{}", answer.text());
        let answer = answer.json().unwrap();
        assert_eq!(answer["items"][0]["index"]["error"]["type"], "security_exception");
        assert_eq!(statuses(&answer), [403; 20]);
        assert_eq!(queue(&gateway)["accepted"], json!(0));
        assert_eq!(gateway.passed("rights"), 1);
        assert!(is_queued(&bulk(&as_user(&gateway, "writer"), &body(20))));
        assert_eq!(drained(&gateway, "c0")["indexed"], json!(20));
        assert_eq!(cluster.docs("logs").len(), 20, "{flavour:?}");
    }
}

#[test]
fn what_a_user_may_not_do_is_403_with_a_second_cluster_too() {
    for flavour in [Flavour::OpenSearch3, Flavour::Elasticsearch9] {
        let clusters = [secure(flavour), secure(flavour)];
        let urls = clusters
            .each_ref()
            .map(|cluster| cluster.urls()[0].replace("http://", "http://u:p@"));
        let place = GatewayHome::at(&urls, "");
        let gateway = place.start();
        let answer = bulk(&as_user(&gateway, "reader"), &body(20));
        let told = answer.json().unwrap();
        assert_eq!(
            (answer.status, &told["error"]["type"]),
            (403, &json!("security_exception")),
            "{told}"
        );
        let one = as_user(&gateway, "reader").send(
            "PUT",
            "/logs/_doc/1",
            &[("content-type", "application/json")],
            b"{}",
        );
        assert_eq!(one.unwrap().status, 403);
        assert!(is_queued(&bulk(&as_user(&gateway, "writer"), &body(20))));
        assert_eq!(drained(&gateway, "c0")["indexed"], json!(20));
    }
}

#[test]
fn rights_are_those_for_each_index_and_each_kind_of_operation() {
    for flavour in [Flavour::OpenSearch3, Flavour::Elasticsearch9] {
        let cluster = secure(flavour);
        cluster.alias("also-logs", &["logs"]);
        let place = before(&cluster);
        let gateway = place.start();
        gateway.wait_until("the alias is known", |_| {
            is_queued(&bulk(
                &gateway.client().basic_auth("u", "p"),
                &line("index", "also-logs", "a"),
            ))
        });
        let by_name = flavour == Flavour::Elasticsearch9;
        // Whether a user's operation on an index is queued.
        for (user, operation, index, queued) in [
            ("indexer", "index", "logs", true),
            ("indexer", "create", "logs", !by_name),
            ("indexer", "delete", "logs", false),
            ("indexer", "update", "logs", false),
            ("creator", "create", "logs", by_name),
            ("creator", "index", "logs", false),
            ("writer", "update", "logs", true),
            ("writer", "delete", "logs", true),
            ("writer", "index", "metrics", false),
            // OpenSearch checks the indices behind an alias, Elasticsearch its name.
            ("writer", "index", "also-logs", !by_name),
        ] {
            let answer = bulk(&as_user(&gateway, user), &line(operation, index, "1"));
            assert_eq!(
                is_queued(&answer),
                queued,
                "{flavour:?} {user} {operation} {index}: {}",
                answer.text()
            );
        }
        // One line too many is enough for a refusal.
        let mixed = line("index", "logs", "2") + &line("index", "metrics", "2");
        assert!(!is_queued(&bulk(&as_user(&gateway, "writer"), &mixed)));
        let both = line("index", "logs", "3") + &line("delete", "logs", "4");
        assert!(!is_queued(&bulk(&as_user(&gateway, "indexer"), &both)));
        drained(&gateway, "c0");
        assert_eq!(cluster.docs("metrics").len(), 0);
        let made = cluster
            .docs("logs")
            .keys()
            .filter(|id| id.starts_with("tidegate"))
            .count();
        assert_eq!(made, 0, "asking changes nothing");
    }
}

/// Servers read `;` as `&`: a pipeline behind one could write anywhere, by the gateway's own account.
#[test]
fn a_parameter_behind_a_semicolon_is_not_queued_past_the_rights() {
    let cluster = secure(Flavour::OpenSearch3);
    let place = before(&cluster);
    let gateway = place.start();
    let writer = as_user(&gateway, "writer");
    let lines = line("index", "logs", "1");
    for query in [
        "routing=a;pipeline=p",
        "refresh=true;pipeline=p",
        "timeout=1m;x=1",
    ] {
        let answer = writer
            .post_ndjson(&format!("/_bulk?{query}"), lines.as_bytes())
            .unwrap();
        assert!(
            answer.header("x-tidegate-ack").is_none(),
            "{query}: {}",
            answer.text()
        );
    }
    assert_eq!(queue(&gateway)["accepted"], 0);
    let plain = writer.post_ndjson("/_bulk?routing=a", lines.as_bytes()).unwrap();
    assert!(is_queued(&plain), "{}", plain.text());
}

#[test]
fn what_was_asked_is_not_asked_again_for_a_while() {
    let cluster = secure(Flavour::OpenSearch3);
    let place = before(&cluster);
    let gateway = place.start();
    let writer = as_user(&gateway, "writer");
    assert!(is_queued(&bulk(&writer, &body(1))));
    drained(&gateway, "c0");
    cluster.reset_counts();
    for n in 0..20 {
        assert!(is_queued(&bulk(
            &as_user(&gateway, "writer"),
            &line("index", "logs", &n.to_string())
        )));
    }
    drained(&gateway, "c0");
    let counts = cluster.counts();
    assert_eq!(counts.docs, 20, "no document but those of the client: {counts:?}");
}

#[test]
fn a_cluster_without_security_is_asked_once_for_all_clients() {
    let cluster = crate::gateway::cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    for user in 0..20 {
        let client = gateway.client().basic_auth(&user.to_string(), "p");
        assert!(is_queued(&bulk(
            &client,
            &line("index", "logs", &user.to_string())
        )));
    }
    drained(&gateway, "c0");
    assert_eq!(cluster.counts().docs, 20);
}

/// Returns a bulk's answer once it is not 503 any more.
fn once_served(client: &Client) -> Answer {
    let began = Instant::now();
    loop {
        let answer = bulk(client, &body(1));
        if answer.status != 503 {
            return answer;
        }
        assert!(began.elapsed() < PATIENCE, "{}", answer.text());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Makes every node answer only with this status.
fn overload(cluster: &FakeCluster, status: u16) {
    let busy = Fault::Status {
        status,
        body: r#"{"error":{"type":"es_rejected_execution_exception","reason":"too busy"}}"#.to_owned(),
    };
    cluster.inject(Injection::new(On::Any, busy).always());
}

#[test]
fn a_user_whose_rights_are_gone_is_out_within_half_a_minute_however_busy_the_nodes_are() {
    let cluster = secure(Flavour::OpenSearch3);
    let place = before(&cluster);
    let gateway = place.start();
    let writer = as_user(&gateway, "writer");
    assert!(is_queued(&bulk(&writer, &body(5))));
    drained(&gateway, "c0");
    let began = Instant::now();
    cluster.remove_user("writer");
    overload(&cluster, 429);
    let refused = loop {
        let answer = bulk(&writer, &body(1));
        if !is_queued(&answer) {
            break answer;
        }
        assert!(began.elapsed() < Duration::from_secs(40), "still in");
        std::thread::sleep(Duration::from_millis(200));
    };
    assert!(
        began.elapsed() > Duration::from_secs(20),
        "remembered for a while"
    );
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert_eq!(
        bulk(&writer, &body(1)).status,
        503,
        "nodes that have no time are not away"
    );
    cluster.behave();
    overload(&cluster, 503);
    assert_eq!(bulk(&writer, &body(1)).status, 503, "nor are those that say 503");
    cluster.behave();
    assert_eq!(once_served(&writer).status, 401);
}

#[test]
fn whoever_was_let_in_on_one_core_is_known_to_all_when_the_cluster_is_away() {
    let cluster = secure(Flavour::OpenSearch3);
    let place = before(&cluster);
    let text = std::fs::read_to_string(&place.file).unwrap();
    std::fs::write(&place.file, text + "worker: {count: 2}\n").unwrap();
    let gateway = place.start();
    assert!(is_queued(&bulk(&as_user(&gateway, "writer"), &body(5))));
    drained(&gateway, "c0");
    (0..3).for_each(|node| cluster.kill(node));
    // Each client has a connection of its own; connections are dealt to the cores in turn.
    let clients: Vec<Client> = (0..8).map(|_| as_user(&gateway, "writer")).collect();
    for client in &clients {
        let answer = bulk(client, &body(1));
        assert!(is_queued(&answer), "{}", answer.text());
    }
    // A right that was never asked about cannot be known.
    let others = bulk(&clients[0], &line("delete", "logs", "1"));
    assert_eq!(others.status, 503, "{}", others.text());
    assert_eq!(bulk(&as_user(&gateway, "indexer"), &body(1)).status, 503);
}

#[test]
fn whoever_was_let_in_is_known_after_a_restart_and_nothing_that_is_kept_is_a_secret() {
    let cluster = secure(Flavour::OpenSearch3);
    let place = before(&cluster);
    let mut gateway = place.start();
    assert!(is_queued(&bulk(&as_user(&gateway, "writer"), &body(5))));
    drained(&gateway, "c0");
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    let folder = place.data().join("rights");
    let known: Value = serde_json::from_slice(&std::fs::read(folder.join("known.json")).unwrap()).unwrap();
    assert_eq!(
        known["clusters"]["c0"]["clients"].as_array().map(Vec::len),
        Some(1),
        "{known}"
    );
    let shown = base64_of("writer:p");
    assert!(
        !known.to_string().contains(&shown) && !known.to_string().contains("writer"),
        "{known}"
    );
    for file in ["key", "known.json"] {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(folder.join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    let gateway = place.start();
    (0..3).for_each(|node| cluster.kill(node));
    let answer = bulk(&as_user(&gateway, "writer"), &body(1));
    assert!(is_queued(&answer), "{}", answer.text());
    assert_eq!(bulk(&as_user(&gateway, "indexer"), &body(1)).status, 503);
}

fn base64_of(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

#[test]
fn a_door_that_stood_open_before_a_restart_is_open_while_no_node_can_be_reached_and_not_while_they_are_busy()
{
    let cluster = crate::gateway::cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    assert!(is_queued(&bulk(&gateway.client(), &body(5))));
    drained(&gateway, "c0");
    gateway.signal("TERM");
    drop(gateway);
    let gateway = place.start();
    // The cluster may have been given security since.
    overload(&cluster, 503);
    let answer = bulk(&gateway.client(), &body(1));
    assert_eq!(
        (answer.status, answer.header("retry-after")),
        (503, Some("1")),
        "{}",
        answer.text()
    );
    (0..3).for_each(|node| cluster.kill(node));
    let answer = once_served(&gateway.client());
    assert!(is_queued(&answer), "{}", answer.text());
}

#[test]
fn a_user_whose_rights_are_gone_does_not_come_in_since_nodes_hang_up() {
    let cluster = secure(Flavour::OpenSearch3);
    let place = before(&cluster);
    let mut gateway = place.start();
    let writer = as_user(&gateway, "writer");
    assert!(is_queued(&bulk(&writer, &body(5))));
    drained(&gateway, "c0");
    gateway.signal("TERM");
    assert!(gateway.wait().success(), "who was let in is kept by then");
    // Earlier findings are checked again at once.
    let gateway = place.start();
    gateway.wait_until("the topology is known", |status| status["state"] == "watching");
    cluster.remove_user("writer");
    cluster.inject(Injection::new(On::Any, Fault::CloseAtHead).always());
    let answer = bulk(&as_user(&gateway, "writer"), &body(1));
    assert_eq!(answer.status, 503, "{}", answer.text());
    cluster.behave();
    assert_eq!(once_served(&as_user(&gateway, "writer")).status, 401);
}

/// A bulk reports that an index is closed before rights are checked.
#[test]
fn an_index_that_is_closed_is_queued_for_by_who_may_write_to_it_and_by_nobody_else() {
    for flavour in [Flavour::OpenSearch3, Flavour::Elasticsearch9] {
        let cluster = secure(flavour);
        let place = before(&cluster);
        let gateway = place.start();
        cluster.close_index("logs");
        gateway.wait_until("the index is known as closed", |status| {
            status["routes"]["indices_passed"]["index_closed"] == 1
        });
        for (user, operation, may) in [
            ("reader", "index", false),
            ("writer", "index", true),
            ("writer", "update", true),
            ("writer", "delete", true),
            ("indexer", "index", true),
            ("indexer", "update", false),
            ("indexer", "delete", false),
        ] {
            let answer = bulk(&as_user(&gateway, user), &line(operation, "logs", user));
            assert_eq!(
                is_queued(&answer),
                may,
                "{flavour:?}: {user} {operation}: {}",
                answer.text()
            );
        }
        crate::home::wait(&gateway, "c0", |one| one["parked"] == 4 && one["pending"] == 0);
        cluster.open_index("logs");
        let group = drained(&gateway, "c0");
        assert_eq!(group["dead"], 0, "{group:#}");
        assert_eq!(
            cluster.docs("logs").len(),
            1,
            "indexer's: the writer's is deleted again"
        );
    }
}
