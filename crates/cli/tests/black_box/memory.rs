//! Delivery's memory is bounded, and nobody waits for memory that is held for ever.

use std::cell::Cell;
use std::time::Duration;

use testkit::client::Client;
use testkit::fake::{Behaviour, FakeCluster, Fault, Injection, Spec, Unfit};

use crate::gateway::Gateway;
use crate::home::{GatewayHome, drained, queue, wait};

/// Returns a bulk of documents of this many KiB each, with ids that have this prefix.
pub(crate) fn large(index: &str, ids: &str, documents: usize, kib: usize) -> String {
    let text = "x".repeat(kib << 10);
    let one =
        |n| format!("{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"{ids}{n}\"}}}}\n{{\"t\":\"{text}\"}}\n");
    (0..documents).map(one).collect()
}

/// Returns a process's peak memory, in MiB.
pub(crate) fn peak_mib(gateway: &Gateway) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

/// Returns what `/metrics` says about delivery's memory.
fn gauge(gateway: &Gateway, name: &str) -> usize {
    let metrics = gateway.admin().get("/metrics").unwrap().text();
    let name = format!("tidegate_delivery_memory_{name} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
    line.unwrap().parse().unwrap()
}

#[test]
fn groups_that_are_large_are_delivered_one_at_a_time_after_a_kill_too() {
    let names: Vec<String> = (0..12).map(|n| format!("logs{n}")).collect();
    let spec = names
        .iter()
        .fold(Spec::default(), |spec, name| spec.index(name, 1));
    let cluster = FakeCluster::start(spec).unwrap();
    let place = GatewayHome::before(&[&cluster], "");
    place.append("worker: {count: 1, delivery_memory: 8mb, body_memory: 128mb}\n");
    let text = std::fs::read_to_string(&place.file).unwrap();
    std::fs::write(&place.file, text.replace("lanes: 4", "lanes: 64")).unwrap();
    // Each request takes long enough for all of them to be under way at once, if they may.
    cluster.inject(Injection::bulk(Fault::HangUnwritten).always());
    let mut gateway = place.start();
    for name in &names {
        gateway.bulk(&large(name, "d", 128, 64)).ok().unwrap();
    }
    gateway.signal("KILL");
    gateway.wait();
    cluster.behave();
    cluster.inject(Injection::bulk(Fault::Delay(Duration::from_millis(300))).always());
    let gateway = place.start();
    let (held, waiting) = (Cell::new(0), Cell::new(0));
    let done = wait(&gateway, "c0", |one| {
        held.set(held.get().max(gauge(&gateway, "bytes")));
        waiting.set(waiting.get().max(gauge(&gateway, "lanes_waiting")));
        one["pending"] == 0
    });
    assert_eq!(done["indexed"], 12 * 128);
    assert_eq!(gauge(&gateway, "bytes_max"), 8 << 20);
    assert!(held.get() >= 8 << 20 && waiting.get() > 0, "{held:?} {waiting:?}");
    wait(&gateway, "c0", |_| gauge(&gateway, "bytes") == 0);
    let peak = peak_mib(&gateway);
    assert!(peak < 90, "{peak} MiB for 12 requests of 8 MiB");
}

#[test]
fn a_cluster_that_is_away_keeps_no_memory_from_the_others() {
    let clusters = [(); 2].map(|()| FakeCluster::start(Spec::default().index("logs", 6).storing()).unwrap());
    let place = GatewayHome::before(&[&clusters[0], &clusters[1]], "");
    // There are eight lanes: each has room for 64 KiB of its own, and a document has 300.
    place.append("worker: {delivery_memory: 1mb}\n");
    let away = Fault::Status {
        status: 503,
        body: "{}".to_owned(),
    };
    clusters[1].inject(Injection::bulk(away).always());
    let gateway = place.start();
    for round in 0..4 {
        gateway
            .bulk(&large("logs", &format!("{round}-"), 10, 300))
            .ok()
            .unwrap();
        let so_far = 10 * (round + 1);
        wait(&gateway, "c0", |one| one["indexed"] == so_far);
    }
    let behind = queue(&gateway)["groups"]["c1"].clone();
    assert_eq!(behind["pending"], 40, "{behind:#}");
    clusters[1].behave();
    assert_eq!(drained(&gateway, "c1")["indexed"], 40);
    for cluster in &clusters {
        let documents = cluster.docs("logs");
        assert_eq!(documents.len(), 40);
        assert!(
            documents.values().all(|one| one.source.len() == 8 + (300 << 10)),
            "as they were sent"
        );
    }
}

/// A body and its copy in a record both count, and only one of them exists while the gateway waits for the
/// disk.
#[test]
fn large_bulks_that_come_at_once_are_accepted_within_what_bodies_may_take() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 3)).unwrap();
    let place = GatewayHome::before(&[&cluster], "");
    place.append("worker: {count: 2, body_memory: 64mb, delivery_memory: 8mb}\n");
    let text = std::fs::read_to_string(&place.file).unwrap();
    std::fs::write(
        &place.file,
        text.replace(", retry_delay_in_ms", ", auto_start: false, retry_delay_in_ms")
            .replace(
                "router: r, network",
                "router: r, max_request_body_size: 20mb, network",
            ),
    )
    .unwrap();
    let gateway = place.start();
    let before = peak_mib(&gateway);
    let body = large("logs", "d", 240, 64);
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| while gateway.bulk(&body).status == 429 {});
        }
    });
    assert_eq!(queue(&gateway)["accepted"], 12 * 240);
    let peak = peak_mib(&gateway);
    assert!(
        peak < before + 100,
        "{peak} MiB, {before} MiB before, for 12 bulks of 15 MiB"
    );
}

/// The nodes' answers contain more than what became of the documents. Delivery neither asks for the rest nor
/// keeps it.
#[test]
fn answers_that_hold_documents_take_no_memory_and_nothing_is_written_twice() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 3).storing()).unwrap();
    let direct = Client::new(&cluster.urls()[0]).unwrap();
    let place = GatewayHome::before(&[&cluster], "");
    place.append("worker: {count: 1}\n");
    let documents = 120;
    for n in 0..documents {
        let ids = format!("{n}-");
        let answer = direct.post_ndjson("/_bulk", large("logs", &ids, 1, 1000).as_bytes());
        answer.unwrap().ok().unwrap();
    }
    let gateway = place.start();
    let before = peak_mib(&gateway);
    let update = |line: &str, value: usize| -> String {
        let one = |n| {
            format!(
                "{{\"update\":{{\"_index\":\"logs\",\"_id\":\"{n}-0\"{line}}}}}\n{{\"doc\":{{\"v\":{value}}}}}\n"
            )
        };
        (0..documents).map(one).collect()
    };
    for (at, (path, line)) in [
        ("/_bulk", ",\"_source\":true"),
        ("/_bulk?_source=true", ""),
        ("/_bulk?_source_includes=t", ""),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = gateway
            .client()
            .post_ndjson(path, update(line, at).as_bytes())
            .unwrap();
        assert!(answer.header("x-tidegate-ack").is_some(), "{path}{line}");
        let so_far = (at + 1) * documents;
        wait(&gateway, "c0", |one| one["indexed"] == so_far);
    }
    let peak = peak_mib(&gateway);
    assert!(
        peak < before + 30,
        "{peak} MiB, {before} MiB before answers of 117 MiB"
    );
    assert!(cluster.docs("logs").values().all(|one| one.version == 4));
}

#[test]
fn a_node_that_says_more_than_it_is_asked_for_takes_no_memory_and_all_is_counted_once() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 3).storing()).unwrap();
    let place = GatewayHome::before(&[&cluster], "");
    place.append("worker: {count: 1}\n");
    let gateway = place.start();
    cluster.inject(Injection::bulk(Fault::Bloated(64 << 10)).always());
    let before = peak_mib(&gateway);
    let bad = "{\"create\":{\"_index\":\"logs\",\"_id\":\"d7\"}}\n{}\n{\"update\":{\"_index\":\"logs\",\"_id\":\"no\"}}\n{\"doc\":{}}\n";
    gateway.bulk(&large("logs", "d", 3000, 0)).ok().unwrap();
    gateway.bulk(bad).ok().unwrap();
    let done = drained(&gateway, "c0");
    assert_eq!((&done["indexed"], &done["dead"]), (&3000.into(), &2.into()));
    let peak = peak_mib(&gateway);
    assert!(
        peak < before + 40,
        "{peak} MiB, {before} MiB before answers of 190 MiB"
    );
    let documents = cluster.docs("logs");
    assert_eq!(documents.len(), 3000);
    assert!(
        documents.values().all(|one| one.version == 1),
        "each was sent once"
    );
}

#[test]
fn an_index_that_is_new_costs_no_more_memory_than_one_that_is_there() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 6).storing()).unwrap();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    for round in 0..3 {
        let both: String = (0..2)
            .map(|n| large(&format!("new-{round}-{n}"), "d", 2, 1))
            .collect();
        gateway.bulk(&both).ok().unwrap();
    }
    assert_eq!(drained(&gateway, "c0")["indexed"], 12);
    let peak = peak_mib(&gateway);
    assert!(peak < 150, "{peak} MiB for six small indices that are new");
}

/// Accepts this many small documents for each of this many indices of a cluster, and kills the gateway, so
/// that the next gateway has only delivery to use memory for.
fn small_documents_are_queued(cluster: &FakeCluster, indices: usize, documents: usize) -> GatewayHome {
    let place = GatewayHome::before(&[cluster], "");
    place.append("worker: {count: 1, delivery_memory: 8mb, body_memory: 128mb}\n");
    let text = std::fs::read_to_string(&place.file).unwrap();
    std::fs::write(&place.file, text.replace("lanes: 4", "lanes: 64")).unwrap();
    cluster.inject(Injection::bulk(Fault::HangUnwritten).always());
    let mut gateway = place.start();
    for n in 0..indices {
        let lines =
            (0..documents).map(|id| format!("{{\"delete\":{{\"_index\":\"logs{n}\",\"_id\":\"{id}\"}}}}\n"));
        gateway.bulk(&lines.collect::<String>()).ok().unwrap();
    }
    gateway.signal("KILL");
    gateway.wait();
    cluster.behave();
    place
}

fn indices_of_four_shards(indices: usize) -> FakeCluster {
    let spec = (0..indices).fold(Spec::default(), |spec, n| spec.index(&format!("logs{n}"), 4));
    FakeCluster::start(spec).unwrap()
}

/// Returns a fault that refuses all items, each with other words.
fn refused_at_length(status: u16, kind: &str) -> Fault {
    let reason = "e".repeat(400);
    let error = format!("{{\"type\":\"{kind}\",\"reason\":\"[{{id}}] {reason}\"}}");
    Fault::Items {
        every: 1,
        status,
        error,
    }
}

#[test]
fn many_small_documents_whose_answers_are_long_take_no_more_than_is_configured() {
    let cluster = indices_of_four_shards(4);
    let documents = 64 << 10;
    let place = small_documents_are_queued(&cluster, 4, documents);
    cluster
        .inject(Injection::bulk(refused_at_length(503, "process_cluster_event_timeout_exception")).always());
    let gateway = place.start();
    wait(&gateway, "c0", |one| one["docs_retried"].as_u64() > Some(60_000));
    cluster.behave();
    let one = wait(&gateway, "c0", |one| one["pending"] == 0);
    assert_eq!(
        (&one["indexed"], &one["dead"]),
        (&(4 * documents).into(), &0.into())
    );
    let peak = peak_mib(&gateway);
    // It has 60 after its start.
    assert!(
        peak < 110,
        "{peak} MiB for 256 thousand documents, of which 8 MiB may be held"
    );
}

#[test]
fn many_small_documents_that_are_parked_and_tried_again_take_no_more_than_is_configured() {
    let cluster = indices_of_four_shards(1);
    let documents = 32 << 10;
    let place = small_documents_are_queued(&cluster, 1, documents);
    let blocked = r#"{"type":"cluster_block_exception","reason":"index [logs0] blocked by: [FORBIDDEN/8/index write (api)];"}"#;
    cluster.refuse_writes("logs0", Some((403, blocked)));
    let gateway = place.start();
    wait(&gateway, "c0", |one| one["parked"] == documents);
    cluster.refuse_writes("logs0", None);
    let one = wait(&gateway, "c0", |one| one["pending"] == 0 && one["parked"] == 0);
    assert_eq!((&one["indexed"], &one["dead"]), (&documents.into(), &0.into()));
    let peak = peak_mib(&gateway);
    assert!(
        peak < 110,
        "{peak} MiB for 32 thousand parked documents, with 8 MiB for delivery"
    );
}

#[test]
fn many_small_documents_that_die_of_long_reasons_take_no_more_than_is_configured() {
    let cluster = indices_of_four_shards(1);
    let documents = 16 << 10;
    let place = small_documents_are_queued(&cluster, 1, documents);
    cluster.inject(Injection::bulk(refused_at_length(400, "mapper_parsing_exception")).always());
    let gateway = place.start();
    let one = wait(&gateway, "c0", |one| one["pending"] == 0);
    assert_eq!((&one["indexed"], &one["dead"]), (&0.into(), &documents.into()));
    let peak = peak_mib(&gateway);
    assert!(
        peak < 110,
        "{peak} MiB for 16 thousand dead letters, with 8 MiB for delivery"
    );
    let letters = gateway
        .admin()
        .get("/dead_letters?queue=q&limit=1")
        .unwrap()
        .text();
    assert!(letters.contains(&"e".repeat(200)), "{letters:.900}");
}

/// Each node's answer would take all of the memory for answers.
#[test]
fn long_answers_of_several_nodes_to_one_batch_wait_for_none_of_them() {
    let cluster = indices_of_four_shards(1);
    let place = GatewayHome::before(&[&cluster], "");
    place.append("worker: {count: 1, delivery_memory: 8mb, body_memory: 128mb}\n");
    let text = std::fs::read_to_string(&place.file).unwrap();
    std::fs::write(&place.file, text.replace("lanes: 4", "lanes: 1")).unwrap();
    cluster.inject(Injection::bulk(refused_at_length(400, "mapper_parsing_exception")).always());
    let gateway = place.start();
    let documents = 6_000;
    let lines =
        (0..documents).map(|id| format!("{{\"delete\":{{\"_index\":\"logs0\",\"_id\":\"{id}\"}}}}\n"));
    gateway.bulk(&lines.collect::<String>()).ok().unwrap();
    let one = wait(&gateway, "c0", |one| one["pending"] == 0);
    assert_eq!((&one["indexed"], &one["dead"]), (&0.into(), &documents.into()));
}

/// The nodes of the first cluster take minutes for each answer, and have begun with those before the others
/// do.
#[test]
fn long_answers_that_trickle_hold_up_no_other_cluster() {
    let clusters = [(); 2].map(|()| FakeCluster::start(Spec::default().index("logs", 6).storing()).unwrap());
    let place = GatewayHome::before(&[&clusters[0], &clusters[1]], "");
    place.append("worker: {count: 1, delivery_memory: 8mb}\n");
    for cluster in &clusters {
        let words = "e".repeat(300 << 10);
        cluster.set_behaviour(Behaviour {
            unfit: Some(Unfit {
                holds: "{\"t\":".to_owned(),
                status: 400,
                error: format!("{{\"type\":\"mapper_parsing_exception\",\"reason\":\"{words}\"}}"),
            }),
            ..Behaviour::default()
        });
    }
    clusters[0].inject(Injection::bulk(Fault::SlowReply(20_000)).always());
    clusters[1].inject(Injection::bulk(Fault::Delay(Duration::from_secs(6))).always());
    let gateway = place.start();
    let documents = 32;
    gateway.bulk(&large("logs", "d", documents, 1)).ok().unwrap();
    let one = wait(&gateway, "c1", |one| one["pending"] == 0);
    assert_eq!((&one["indexed"], &one["dead"]), (&0.into(), &documents.into()));
    let slow = queue(&gateway)["groups"]["c0"].clone();
    assert_eq!(
        (&slow["dead"], &slow["indexed"]),
        (&0.into(), &0.into()),
        "{slow}"
    );
}
