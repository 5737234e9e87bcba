//! Small bulks of many clients that travel to the nodes together: each client gets its own answer.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::client::Client;
use testkit::fake::{Behaviour, FakeCluster, Fault, HeldUp, Injection, Spec};

use crate::gateway::{Gateway, PATIENCE, cluster, ids, statuses};

/// Makes nodes that are slow enough for other bulks to gather meanwhile.
fn busy() -> FakeCluster {
    let spec = Spec {
        behaviour: busy_behaviour(),
        ..Spec::default()
    };
    FakeCluster::start(spec.index("logs", 6).storing()).unwrap()
}

fn busy_behaviour() -> Behaviour {
    Behaviour {
        latency: Duration::from_millis(30),
        ..Behaviour::default()
    }
}

fn combining(cluster: &FakeCluster, more: &str) -> Gateway {
    Gateway::with_filters(
        cluster,
        &format!(
            "      - bulk_reshuffle: {{elasticsearch: c, mode: sync, combine: {{enabled: true{more}}}}}
      - elasticsearch: {{elasticsearch: c}}"
        ),
    )
}

const CLIENTS: usize = 24;

/// Returns `docs` operations, with ids that no other client uses.
fn own(client: usize, round: usize, docs: usize) -> (String, Vec<String>) {
    let ids: Vec<String> = (0..docs).map(|n| format!("{client}-{round}-{n}")).collect();
    let lines = ids.iter().map(|id| {
        format!("{{\"index\":{{\"_index\":\"logs\",\"_id\":\"{id}\"}}}}\n{{\"client\":{client}}}\n")
    });
    (lines.collect(), ids)
}

/// Each client sends its bulks one after another; all clients send at once.
fn all_at_once(gateway: &Gateway, rounds: usize, act: impl Fn(&Client, usize, usize) + Sync) {
    let start = Barrier::new(CLIENTS);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (start, act) = (&start, &act);
            scope.spawn(move || {
                let connection = gateway.client();
                start.wait();
                for round in 0..rounds {
                    act(&connection, client, round);
                }
            });
        }
    });
}

fn send(client: &Client, body: &str) -> Value {
    let answer = client.post_ndjson("/_bulk", body.as_bytes()).unwrap();
    answer.ok().unwrap().json().unwrap()
}

#[test]
fn many_clients_bulks_reach_the_nodes_as_few_and_each_client_gets_its_own_items() {
    let cluster = busy();
    let gateway = combining(&cluster, "");
    all_at_once(&gateway, 5, |client, who, round| {
        let (body, wanted) = own(who, round, 10);
        let answer = send(client, &body);
        assert_eq!(answer["errors"], json!(false));
        assert_eq!(ids(&answer, "index"), wanted);
    });
    let docs = CLIENTS * 5 * 10;
    let counts = cluster.counts();
    assert_eq!((counts.docs, counts.misrouted), (docs as u64, 0));
    assert_eq!(cluster.docs("logs").len(), docs);
    // Ten documents on six shards nearly always need all three nodes.
    let alone = CLIENTS as u64 * 5 * 3;
    assert!(
        counts.bulks < alone / 3,
        "{} requests for {alone} parts",
        counts.bulks
    );
    let (requests, parts) = (
        gateway.counter("combined_requests"),
        gateway.counter("combined_parts"),
    );
    assert!(
        requests > 0 && parts >= 2 * requests,
        "{parts} parts in {requests}"
    );
    assert_eq!(gateway.counter("docs_direct"), docs as u64);
}

#[test]
fn documents_without_ids_gather_as_whole_requests_and_nodes_take_turns() {
    let cluster = busy();
    let gateway = combining(&cluster, "");
    all_at_once(&gateway, 5, |client, _, _| {
        let body = "{\"index\":{\"_index\":\"logs\"}}\n{}\n".repeat(10);
        assert_eq!(statuses(&send(client, &body)), [201; 10]);
    });
    let counts = cluster.counts();
    assert_eq!(counts.docs, CLIENTS as u64 * 50);
    assert!(counts.bulks < CLIENTS as u64 * 5 / 2, "{} requests", counts.bulks);
    assert!(
        counts.docs_by_node.iter().all(|docs| *docs > 0),
        "{:?}",
        counts.docs_by_node
    );
}

#[test]
fn a_lone_client_never_waits_for_others() {
    let cluster = cluster();
    let gateway = combining(&cluster, ", interval: 10s");
    let client = gateway.client();
    let began = Instant::now();
    for round in 0..50 {
        let (body, wanted) = own(0, round, 10);
        assert_eq!(ids(&send(&client, &body), "index"), wanted);
    }
    // Without combining it would take ten seconds.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(gateway.counter("combined_requests"), 0);
}

#[test]
fn one_huge_bulk_holds_up_no_small_ones() {
    let cluster = cluster();
    let gateway = combining(&cluster, "");
    for node in 0..3 {
        let long = Fault::Delay(Duration::from_secs(6));
        cluster.inject(Injection::bulk(long).on_node(node).times(1));
    }
    let (huge, _) = own(CLIENTS, 0, 60_000);
    std::thread::scope(|scope| {
        let under_way = scope.spawn(|| send(&gateway.client(), &huge));
        // The request has reached all nodes.
        gateway.wait_for_struck(&cluster, 3);
        let began = Instant::now();
        all_at_once(&gateway, 3, |client, who, round| {
            let (body, wanted) = own(who, round, 10);
            assert_eq!(ids(&send(client, &body), "index"), wanted);
        });
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        assert!(!under_way.is_finished());
        assert_eq!(under_way.join().unwrap()["errors"], json!(false));
    });
}

/// Returns a behaviour that answers bulks after 30 ms, and those with `stuck` among them later by so much.
fn stuck_for(wait: Duration) -> Behaviour {
    Behaviour {
        latency: Duration::from_millis(30),
        held_up: Some(HeldUp {
            holds: "\"stuck\"".to_owned(),
            wait,
        }),
        ..Behaviour::default()
    }
}

fn with_indices(indices: &[&str], behaviour: Behaviour) -> FakeCluster {
    let spec = Spec {
        behaviour,
        ..Spec::default()
    };
    let spec = indices.iter().fold(spec, |spec, index| spec.index(index, 6));
    FakeCluster::start(spec.storing()).unwrap()
}

/// Returns an operation for each of these indices, with ids that no other client uses.
fn one_for_each(indices: &[&str], client: usize, round: usize) -> String {
    let line = |index: &&str| {
        format!(
            "{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"{client}-{round}\"}}}}\n{{\"client\":{client}}}\n"
        )
    };
    indices.iter().map(line).collect()
}

/// Sends a bulk, and returns how long the answer took.
fn timed(client: &Client, body: &str) -> Duration {
    let began = Instant::now();
    assert_eq!(send(client, body)["errors"], json!(false));
    began.elapsed()
}

const STUCK_FOR: Duration = Duration::from_secs(3);

#[test]
fn an_index_whose_operations_wait_holds_up_no_bulks_for_another_index() {
    let cluster = with_indices(&["stuck", "logs"], stuck_for(STUCK_FOR));
    let gateway = combining(&cluster, "");
    all_at_once(&gateway, 10, |client, who, round| {
        let stuck = who % 4 == 0;
        if stuck && round > 0 {
            return;
        }
        let index = if stuck { "stuck" } else { "logs" };
        let took = timed(client, &one_for_each(&[index], who, round));
        assert!(stuck || took < STUCK_FOR, "{took:?}");
    });
    assert!(gateway.counter("combined_requests") > 0);
}

#[test]
fn a_bulk_with_several_indices_waits_for_an_index_of_others_once_at_most() {
    let cluster = with_indices(&["stuck", "a", "b", "c"], stuck_for(Duration::ZERO));
    let gateway = combining(&cluster, "");
    let pairs = [["a", "b"], ["b", "c"], ["c", "a"], ["a", "stuck"]];
    let of = |who: usize, round: usize| one_for_each(&pairs[who % 4], who, round);
    all_at_once(&gateway, 2, |client, who, round| {
        timed(client, &of(who, round));
    });
    // From now on none of these indices is new, and all may travel together.
    std::thread::sleep(Duration::from_secs(3));
    let before = gateway.counter("combined_requests");
    all_at_once(&gateway, 5, |client, who, round| {
        timed(client, &of(who, round + 2));
    });
    assert!(gateway.counter("combined_requests") > before);
    cluster.set_behaviour(stuck_for(STUCK_FOR));
    let late: Vec<AtomicUsize> = (0..CLIENTS).map(|_| AtomicUsize::new(0)).collect();
    all_at_once(&gateway, 20, |client, who, round| {
        if who % 4 == 3 && round > 2 {
            return;
        }
        let took = timed(client, &of(who, round + 7));
        late[who].fetch_add(usize::from(took >= STUCK_FOR), Ordering::Relaxed);
    });
    let late: Vec<usize> = late.into_iter().map(AtomicUsize::into_inner).collect();
    let others = (0..CLIENTS).filter(|who| who % 4 < 3);
    assert!(others.map(|who| late[who]).max() <= Some(1), "{late:?}");
    let stuck = (3..CLIENTS).step_by(4);
    assert!(stuck.map(|who| late[who]).min() >= Some(1), "{late:?}");
}

#[test]
fn items_that_fail_are_their_owners_alone() {
    let cluster = busy();
    let gateway = combining(&cluster, "");
    all_at_once(&gateway, 4, |client, who, round| {
        let (body, wanted) = own(who, round, 6);
        // From the second round on, every second client creates documents that already exist.
        let clashes = who % 2 == 1;
        let body = match clashes {
            true => body
                .replace(&format!("{who}-{round}-"), &format!("{who}-0-"))
                .replace("\"index\":{", "\"create\":{"),
            false => body,
        };
        let answer = send(client, &body);
        assert_eq!(
            answer["errors"],
            json!(clashes && round > 0),
            "client {who}, round {round}"
        );
        if clashes {
            let expected = if round > 0 { 409 } else { 201 };
            assert_eq!(statuses(&answer), [expected; 6]);
        } else {
            assert_eq!(ids(&answer, "index"), wanted);
        }
    });
    assert!(gateway.counter("combined_requests") > 0);
}

#[test]
fn a_request_that_is_refused_as_a_whole_is_sent_again_part_by_part() {
    let cluster = busy();
    let gateway = combining(&cluster, "");
    // One client's document makes the nodes refuse the request that contains it.
    cluster.inject(
        Injection::bulk(Fault::StatusIfHolds {
            text: "poison".to_owned(),
            status: 400,
            body: r#"{"error":{"type":"illegal_argument_exception","reason":"no"},"status":400}"#.to_owned(),
        })
        .always(),
    );
    all_at_once(&gateway, 3, |client, who, round| {
        let (body, wanted) = own(who, round, 10);
        if who == 0 {
            let answer = client.post_ndjson("/_bulk", body.replace("client", "poison").as_bytes());
            assert_eq!(answer.unwrap().status, 400);
        } else {
            assert_eq!(ids(&send(client, &body), "index"), wanted);
        }
    });
    assert_eq!(cluster.docs("logs").len(), (CLIENTS - 1) * 30);
    assert!(gateway.counter("combined_again") > 0);
}

#[test]
fn what_a_balancer_gave_up_waiting_for_is_sent_again_only_where_that_doubles_nothing() {
    let cluster = busy();
    let gateway = combining(&cluster, "");
    // Something in front of the nodes answers in their place, so nobody knows what the nodes do with the
    // request.
    let given_up = Fault::Status {
        status: 504,
        body: r#"{"error":"gateway timeout","status":504}"#.to_owned(),
    };
    cluster.inject(Injection::bulk(given_up).always());
    all_at_once(&gateway, 2, |client, who, round| {
        let (body, _) = own(who, round, 10);
        let answer = client.post_ndjson("/_bulk", body.as_bytes()).unwrap();
        assert_eq!(answer.status, 504, "its own: {}", answer.text());
    });
    assert!(gateway.counter("combined_requests") > 0);
    let (again, parts) = (gateway.counter("parts_retried"), gateway.counter("parts"));
    assert!(again > 0);
    all_at_once(&gateway, 2, |client, _, _| {
        let body = "{\"index\":{\"_index\":\"logs\"}}\n{}\n".repeat(10);
        let answer = client.post_ndjson("/_bulk", body.as_bytes()).unwrap();
        // A request that travels alone gets the answer itself.
        if answer.status != 504 {
            assert_eq!(statuses(&answer.json().unwrap()), [503; 10]);
        }
    });
    assert_eq!(gateway.counter("parts_retried"), again);
    assert_eq!(gateway.counter("parts") - parts, CLIENTS as u64 * 2);
}

#[test]
fn a_node_that_breaks_off_is_asked_again_for_each_as_if_alone() {
    let cluster = busy();
    let gateway = combining(&cluster, "");
    cluster.inject(Injection::bulk(Fault::CloseWritten).on_node(1).after(2).times(3));
    all_at_once(&gateway, 4, |client, who, round| {
        let (body, wanted) = own(who, round, 10);
        let answer = send(client, &body);
        assert_eq!(
            (ids(&answer, "index"), &answer["errors"]),
            (wanted, &json!(false))
        );
    });
    assert_eq!(cluster.docs("logs").len(), CLIENTS * 40);
    assert!(gateway.counter("parts_retried") > 0);
}

#[test]
fn other_credentials_and_other_parameters_never_travel_together() {
    let cluster = busy();
    let gateway = combining(&cluster, "");
    all_at_once(&gateway, 2, |client, who, round| {
        let client = client.clone().basic_auth("u", &who.to_string());
        let (body, wanted) = own(who, round, 10);
        assert_eq!(ids(&send(&client, &body), "index"), wanted);
    });
    assert_eq!(
        gateway.counter("combined_requests"),
        0,
        "each has an account of its own"
    );
    all_at_once(&gateway, 2, |client, who, round| {
        let (body, wanted) = own(who, round + 2, 10);
        let target = format!("/_bulk?timeout={who}s");
        let answer = client.post_ndjson(&target, body.as_bytes()).unwrap();
        assert_eq!(ids(&answer.ok().unwrap().json().unwrap(), "index"), wanted);
    });
    assert_eq!(
        gateway.counter("combined_requests"),
        0,
        "each has parameters of its own"
    );
}

#[test]
fn what_a_client_sent_before_it_went_away_is_executed_as_a_node_would_and_delays_nobody() {
    let cluster = busy();
    let gateway = combining(&cluster, "");
    all_at_once(&gateway, 4, |client, who, round| {
        let (body, wanted) = own(who, round, 10);
        if who % 3 > 0 {
            assert_eq!(ids(&send(client, &body), "index"), wanted);
            return;
        }
        let mut hasty = TcpStream::connect(gateway.address).unwrap();
        let head = format!(
            "POST /_bulk HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-ndjson\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        hasty.write_all(format!("{head}{body}").as_bytes()).unwrap();
        // The connection is closed without waiting for an answer, and before its next bulk.
    });
    let began = Instant::now();
    while cluster.docs("logs").len() < CLIENTS * 40 {
        assert!(
            began.elapsed() < PATIENCE,
            "{} documents",
            cluster.docs("logs").len()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(cluster.counts().docs, CLIENTS as u64 * 40, "each once");
}

/// Starts a cluster of one node, with one shard, that holds up bulks with "stuck" for `stuck` beyond the
/// 800 ms that every bulk takes.
fn one_slow_node(stuck: Duration) -> FakeCluster {
    let behaviour = Behaviour {
        latency: Duration::from_millis(800),
        ..stuck_for(stuck)
    };
    let spec = Spec {
        nodes: 1,
        behaviour,
        ..Spec::default()
    };
    FakeCluster::start(spec.index("logs", 1).index("hasty", 1).storing()).unwrap()
}

/// Returns an operation whose source is `words`.
fn saying(id: &str, words: &str) -> String {
    format!("{{\"index\":{{\"_id\":\"{id}\"}}}}\n{{\"says\":\"{words}\"}}\n")
}

/// The first of two parts that travel together has waited so long that it is late before the node answers.
/// Its client gives up; the other client has its answer, of the only try.
#[test]
fn a_part_that_has_waited_long_does_not_end_the_request_for_those_that_came_later() {
    let cluster = one_slow_node(Duration::from_millis(700));
    let filters = "      - bulk_reshuffle: {elasticsearch: c, mode: sync, timeout: 2s, combine: {enabled: true, interval: 10s}}
      - elasticsearch: {elasticsearch: c}";
    let gateway = Gateway::with_filters(&cluster, filters);
    let (begin, gateway) = (Instant::now(), &gateway);
    let after = |wait: u64, id: &'static str, words: &'static str| {
        move || {
            std::thread::sleep(Duration::from_millis(wait).saturating_sub(begin.elapsed()));
            let (sent, client) = (Instant::now(), gateway.client());
            let answer = client
                .post_ndjson("/logs/_bulk", saying(id, words).as_bytes())
                .unwrap();
            (answer.status, answer.json().unwrap(), sent.elapsed())
        }
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(after(0, "first", "stuck"));
        let early = scope.spawn(after(100, "early", "nothing"));
        let late = scope.spawn(after(1_200, "late", "nothing"));
        assert_eq!(first.join().unwrap().0, 200);
        // The parts that wait go when the first client is back.
        assert_eq!(after(0, "again", "nothing")().0, 200);
        let (_, early, took) = early.join().unwrap();
        let item = &early["items"][0]["index"];
        assert_eq!(item["status"], json!(503), "{early}");
        let reason = item["error"]["reason"].as_str().unwrap();
        assert!(
            reason.contains("may or may not") && reason.contains("deadline"),
            "{early}"
        );
        assert!((1_900..2_200).contains(&took.as_millis()), "{took:?}");
        let (_, late, _) = late.join().unwrap();
        assert_eq!(late["items"][0]["index"]["status"], json!(201), "{late}");
    });
    assert_eq!(gateway.counter("combined_requests"), 1);
    assert_eq!((cluster.counts().docs, gateway.counter("parts_retried")), (4, 0));
}

/// A part that waits for the node's leave gives up in time, and is not executed.
#[test]
fn a_large_part_that_gets_no_leave_is_answered_at_its_deadline() {
    let cluster = one_slow_node(Duration::from_secs(3));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tidegate.yml");
    let flow = |name: &str, timeout: u64| {
        format!(
            "  - name: {name}
    filter:
      - bulk_reshuffle: {{elasticsearch: c, mode: sync, timeout: {timeout}s, combine: {{enabled: true, flush_threshold_size: 1kb}}}}
      - elasticsearch: {{elasticsearch: c}}\n"
        )
    };
    let text = format!(
        "path.data: '{}'
admin: {{binding: '127.0.0.1:0'}}
entry: [{{name: e, router: r, network: {{binding: '127.0.0.1:0'}}}}]
router: [{{name: r, default_flow: patient, rules: [{{method: ['*'], pattern: ['/hasty/_bulk'], flow: [hasty]}}]}}]
flow:
{}{}elasticsearch: [{{name: c, endpoint: '{}'}}]
",
        directory.path().join("data").display(),
        flow("patient", 20),
        flow("hasty", 1),
        cluster.urls()[0]
    );
    std::fs::write(&file, text).unwrap();
    let gateway = Gateway::start(&["--config", file.to_str().unwrap()]);
    gateway.wait_until("the topology is known", |status| status["state"] == "watching");
    let large = "x".repeat(1_000);
    std::thread::scope(|scope| {
        let stuck = saying("stuck", &format!("stuck\",\"more\":\"{large}"));
        let client = gateway.client();
        let holding = scope.spawn(move || client.post_ndjson("/logs/_bulk", stuck.as_bytes()).unwrap());
        std::thread::sleep(Duration::from_millis(300));
        let began = Instant::now();
        let answer = gateway
            .client()
            .post_ndjson("/hasty/_bulk", saying("hasty", &large).as_bytes());
        let answer = answer.unwrap();
        let took = began.elapsed();
        assert!((900..1_500).contains(&took.as_millis()), "{took:?}");
        assert_eq!(answer.status, 504);
        assert!(answer.text().contains("deadline passed"), "{}", answer.text());
        assert_eq!(holding.join().unwrap().json().unwrap()["errors"], json!(false));
    });
    assert_eq!(cluster.counts().docs, 1, "what is refused is not executed");
}

#[test]
fn parts_do_not_gather_beyond_what_the_nodes_accept() {
    let spec = Spec {
        content_length_max: 8 << 10,
        behaviour: busy_behaviour(),
        ..Spec::default()
    };
    let cluster = FakeCluster::start(spec.index("logs", 6).storing()).unwrap();
    let gateway = combining(&cluster, "");
    all_at_once(&gateway, 5, |client, who, round| {
        let (body, wanted) = own(who, round, 30);
        assert_eq!(ids(&send(client, &body), "index"), wanted);
    });
    assert!(gateway.counter("combined_requests") > 0);
    assert_eq!(
        (gateway.counter("combined_again"), cluster.counts().docs),
        (0, CLIENTS as u64 * 150)
    );
}

/// With the ids that would be made for its documents, the bulk is larger than what the node accepts.
#[test]
fn a_bulk_that_ids_would_make_too_large_passes_whole() {
    let spec = Spec {
        content_length_max: 8 << 10,
        ..Spec::default()
    };
    let cluster = FakeCluster::start(spec.index("logs", 6)).unwrap();
    let gateway = Gateway::with_filters(
        &cluster,
        "      - bulk_reshuffle: {elasticsearch: c, mode: sync, direct_routing: mint-packed}
      - elasticsearch: {elasticsearch: c}",
    );
    let line = "{\"index\":{\"_index\":\"logs\"}}\n{\"a\":1}\n";
    for (fill, passed) in [(50, 0), (100, 1)] {
        let docs = (8 << 10) * fill / 100 / line.len();
        let answer = send(&gateway.client(), &line.repeat(docs));
        assert_eq!(statuses(&answer), vec![201; docs]);
        assert_eq!(gateway.passed("too_large"), passed);
    }
}
