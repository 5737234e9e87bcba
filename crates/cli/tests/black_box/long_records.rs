//! Records of long bulks, in which a lane's documents for one node lie next to each other: what is accepted
//! arrives once each lane is done, whatever is killed on the way and wherever shards have gone by then.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};
use testkit::client::Client;
use testkit::fake::{FakeCluster, Fault, Formula, Injection, Spec, routing_num_shards, shard_of};

use crate::gateway::Gateway;
use crate::home::{GatewayHome, account, drained, queue, wait};

const NODES: usize = 3;
/// As a [`GatewayHome`] has it.
const LANES: usize = 4;
/// Each lane has shards on each node.
const SHARDS: u32 = 24;
const RECORDS: usize = 4;
/// Documents that each record writes twice.
const IDS: usize = 160;
const CREATED: usize = 40;
const OPERATIONS: usize = RECORDS * (2 * IDS + CREATED + 1);
/// A stretch of this length is sent from where it was read.
const LONG: usize = 32 << 10;

/// The record that no lane gets beyond at first.
const HELD_BACK: usize = 2;
/// A lane that fails waits longer than the test takes, and a batch is one record.
const SLOWLY: [(&str, &str); 2] = [
    (
        "retry_delay_in_ms: 20",
        "auto_start: false, retry_delay_in_ms: 30000",
    ),
    (
        "{elasticsearch: c0}}]",
        "{elasticsearch: c0, bulk.batch_size_in_docs: 120}}]",
    ),
];

/// The documents that the cluster is to have at the end.
type Expected = BTreeMap<String, Value>;

/// Returns a source that no other operation has.
fn source(record: usize, n: usize) -> Value {
    let mut random = fastrand::Rng::with_seed((record << 32 | n) as u64);
    let text: String = (0..2_000).map(|_| random.alphanumeric()).collect();
    json!({"record": format!("r{record}"), "text": text})
}

/// Returns the lines of an operation, and does to `documents` what it does.
fn operation(name: &str, id: &str, source: Value, documents: &mut Expected) -> String {
    let action = json!({name: {"_index": "logs", "_id": id}});
    match name {
        "delete" => {
            documents.remove(id);
            return format!("{action}\n");
        }
        "update" => {
            documents.get_mut(id).unwrap()["changed"] = source.clone();
            let partial = json!({"doc": {"changed": source}});
            return format!("{action}\n{partial}\n");
        }
        _ => documents.insert(id.to_owned(), source.clone()),
    };
    format!("{action}\n{source}\n")
}

/// Returns a bulk that writes the same documents as all of them, each twice, and some of its own, together
/// with a document that was there before, so that creating it fails.
fn bulk(record: usize, documents: &mut Expected) -> String {
    let mut lines = String::new();
    for again in [0, 1] {
        for n in 0..IDS {
            let name = match (n % 3, again) {
                (1, _) if record + again > 0 => "update",
                (2, 1) if (n + record).is_multiple_of(2) => "delete",
                _ => "index",
            };
            let source = source(record, again * IDS + n);
            lines += &operation(name, &n.to_string(), source, documents);
        }
    }
    for n in 0..CREATED {
        let source = source(record, 2 * IDS + n);
        lines += &operation("create", &format!("c{record}-{n}"), source, documents);
    }
    let (taken, source) = (format!("taken-{record}"), source(record, 2 * IDS + CREATED));
    lines + &operation("create", &taken, source, &mut Expected::new())
}

/// Returns how long the stretches are, in the order of a queue's files, in which documents for one node lie
/// next to each other. The queue is one that is not compressed.
fn stretches(place: &GatewayHome, cluster: &FakeCluster) -> Vec<usize> {
    let formula = Formula::Classic {
        routing_num_shards: routing_num_shards(SHARDS),
    };
    let folder = fs::read_dir(place.data().join("queue/q")).unwrap();
    let mut files: Vec<_> = folder.map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "segment"));
    files.sort();
    let (mut stretches, mut last) = (Vec::new(), None);
    for file in files {
        let bytes = fs::read(file).unwrap();
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = String::from_utf8_lossy(line);
            if let Some(id) = text.split("\"_id\":\"").nth(1) {
                let shard = shard_of(id.split('"').next().unwrap(), SHARDS, formula);
                let node = cluster.node_of("logs", shard);
                if last.replace(node) != Some(node) {
                    stretches.push(0);
                }
            }
            if let Some(stretch) = stretches.last_mut() {
                *stretch += line.len();
            }
        }
    }
    // What follows the last document is not part of it.
    stretches.pop();
    stretches
}

fn begin(gateway: &Gateway) {
    let started = gateway.admin().send("POST", "/pipeline/p0/_start", &[], &[]);
    started.unwrap().ok().unwrap();
}

/// Queues long bulks, and returns what they lead to; none of them is delivered.
fn queued(cluster: &FakeCluster, place: &GatewayHome) -> Expected {
    let direct = Client::new(&cluster.urls()[0]).unwrap();
    let (mut expected, mut taken) = (Expected::new(), String::new());
    for record in 0..RECORDS {
        let source = source(RECORDS, record);
        taken += &operation("index", &format!("taken-{record}"), source, &mut expected);
    }
    direct
        .post_ndjson("/_bulk", taken.as_bytes())
        .unwrap()
        .ok()
        .unwrap();
    cluster.reset_counts();
    let gateway = place.start();
    for record in 0..RECORDS {
        let answer = gateway.bulk(&bulk(record, &mut expected)).ok().unwrap();
        assert!(answer.header("x-tidegate-ack").is_some(), "{:?}", answer.text());
    }
    gateway.signal("KILL");
    drop(gateway);
    assert_eq!(cluster.counts().docs, 0);
    expected
}

/// Delivers until each lane has met this fault, and kills the gateway, which has nothing under way by then.
/// Returns how many operations were pending before, and how many are.
fn killed_while_delivering(cluster: &FakeCluster, place: &GatewayHome, fault: Injection) -> [u64; 2] {
    let gateway = place.start();
    let pending = |one: &Value| one["pending"].as_u64().unwrap();
    let before = pending(&account(&queue(&gateway), "c0"));
    cluster.inject(fault.always());
    begin(&gateway);
    let one = wait(&gateway, "c0", |one| one["retrying_lanes"] == LANES);
    gateway.signal("KILL");
    cluster.behave();
    [before, pending(&one)]
}

/// Queues long bulks, kills the gateway before it delivers any of them and again while it does, with shards
/// moving in between if `moves`, and checks what arrives.
fn arrives_whatever_is_killed(compression: &str, moves: bool) {
    let cluster = FakeCluster::start(Spec::default().index("logs", SHARDS).storing()).unwrap();
    let place = GatewayHome::before(&[&cluster], &format!(", compression: {compression}"));
    SLOWLY.iter().for_each(|(now, slowly)| place.replace(now, slowly));
    let expected = queued(&cluster, &place);
    if compression == "none" {
        let stretches = stretches(&place, &cluster);
        let long = stretches.iter().filter(|bytes| **bytes >= LONG).count();
        assert!(stretches.len() <= RECORDS * LANES * NODES, "{stretches:?}");
        assert!(long * 4 > stretches.len() * 3, "{stretches:?}");
    }
    if moves {
        for shard in 0..SHARDS {
            cluster.move_shard("logs", shard, (shard as usize / 5) % NODES);
        }
    }
    let held_back = Fault::CloseIfHolds(format!("\"r{HELD_BACK}\""));
    let [before, some_done] = killed_while_delivering(&cluster, &place, Injection::bulk(held_back));
    assert_eq!(before, OPERATIONS as u64);
    assert!((1..before).contains(&some_done), "{some_done}");
    // What a node is sent, it executes, and nobody hears of it.
    let unheard = Injection::bulk(Fault::CloseWritten).on_node(1);
    let [pending, still] = killed_while_delivering(&cluster, &place, unheard);
    // The kill may have come before the last commits were written down; what they say is delivered again.
    assert!(
        (some_done..=before).contains(&pending),
        "{some_done}, then {pending}"
    );
    assert!((1..=pending).contains(&still), "{pending}, then {still}");
    // The last time, batches are of several records.
    SLOWLY.iter().for_each(|(now, slowly)| place.replace(slowly, now));
    let gateway = place.start();
    let one = drained(&gateway, "c0");
    let states = ["indexed", "dead", "lost"].map(|state| one[state].as_u64().unwrap() as usize);
    assert_eq!(states, [OPERATIONS - RECORDS, RECORDS, 0], "{one}");
    assert_eq!(cluster.counts().misrouted, 0);
    let stored = cluster.docs("logs").into_iter();
    let stored: Expected = stored
        .map(|(id, document)| (id, serde_json::from_str(&document.source).unwrap()))
        .collect();
    assert!(stored.keys().eq(expected.keys()), "{:?}", stored.keys());
    for (id, document) in &stored {
        assert!(
            *document == expected[id],
            "{id}: {document} in place of {}",
            expected[id]
        );
    }
    let letters = gateway.admin().get("/dead_letters?queue=q").unwrap();
    let letters = letters.ok().unwrap().json().unwrap();
    let letters = letters["dead_letters"].as_array().unwrap();
    let mut dead: Vec<_> = letters
        .iter()
        .map(|letter| letter["action"]["create"]["_id"].as_str().unwrap())
        .collect();
    dead.sort_unstable();
    let taken: Vec<_> = (0..RECORDS).map(|record| format!("taken-{record}")).collect();
    assert_eq!(dead, taken);
}

#[test]
fn documents_of_long_bulks_arrive_whatever_is_killed_before_and_during_delivery() {
    arrives_whatever_is_killed("none", false);
}

#[test]
fn documents_of_long_bulks_arrive_whatever_is_killed_when_their_record_is_compressed() {
    arrives_whatever_is_killed("zstd", false);
}

#[test]
fn documents_of_long_bulks_arrive_whatever_is_killed_where_their_shards_are_by_then() {
    arrives_whatever_is_killed("none", true);
}
