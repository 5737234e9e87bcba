//! Dead letters: listed, edited, replayed and purged, and kept and counted correctly whatever happens in
//! between.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::client::Answer;
use testkit::fake::{FakeCluster, Fault, Injection, Spec};

use crate::gateway::{Gateway, body, cluster};
use crate::home::{GatewayHome, account, drained, queue, wait};
use crate::terminal::at_a_terminal;

const UNFIT: &str = r#"{"type":"mapper_parsing_exception","reason":"failed to parse field [n]"}"#;

/// Returns a fault that makes all items fail for good.
fn unfit() -> Fault {
    Fault::Items {
        every: 1,
        status: 400,
        error: UNFIT.to_owned(),
    }
}

pub(crate) fn get(gateway: &Gateway, path: &str) -> Value {
    gateway.admin().get(path).unwrap().ok().unwrap().json().unwrap()
}

pub(crate) fn send(gateway: &Gateway, method: &str, path: &str, body: &str) -> Answer {
    gateway.admin().send(method, path, &[], body.as_bytes()).unwrap()
}

pub(crate) fn post(gateway: &Gateway, path: &str) -> Value {
    send(gateway, "POST", path, "").ok().unwrap().json().unwrap()
}

fn letters(gateway: &Gateway, query: &str) -> Vec<Value> {
    let listed = get(gateway, &format!("/dead_letters?{query}"));
    listed["dead_letters"].as_array().unwrap().clone()
}

/// Sends documents that the cluster refuses for good, and waits until they are dead.
pub(crate) fn kill_documents(gateway: &Gateway, cluster: &FakeCluster, text: &str) {
    cluster.inject(Injection::bulk(unfit()).always());
    gateway.bulk(text).ok().unwrap();
    drained(gateway, "c0");
    cluster.behave();
}

#[test]
fn letters_are_counted_by_what_they_share_and_changed_together() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 6).index("other", 2).storing()).unwrap();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let line = |id: usize, n: &str| {
        format!(
            "{{\"index\":{{\"_index\":\"other\",\"_id\":\"{id}\"}}}}\n{{\"big\":12345678901234567890123,\"n\":{n}}}\n"
        )
    };
    let others: String = (0..30).map(|id| line(id, &format!("\"{id}\""))).collect();
    let unfit = line(30, "\"x\"") + &line(31, "5") + "{\"delete\":{\"_index\":\"other\",\"_id\":\"d\"}}\n";
    kill_documents(&gateway, &cluster, &(body(8) + &others + &unfit));
    let facets = get(&gateway, "/dead_letters/_facets");
    assert_eq!(facets["letters"], 41);
    assert_eq!(
        facets["field"],
        json!({"values": [{"value": "n", "letters": 41}], "others": 0})
    );
    let by_index = json!([{"value": "other", "letters": 33}, {"value": "logs", "letters": 8}]);
    assert_eq!(facets["index"]["values"], by_index);
    assert_eq!(facets["like"]["values"][0]["value"], "failed to parse field [n]");
    assert_eq!(get(&gateway, "/dead_letters/_facets?index=logs")["letters"], 8);
    assert_eq!(
        letters(&gateway, "field=n&like=failed%20to%20parse%20field%20%5Bn%5D").len(),
        41
    );
    assert_eq!(letters(&gateway, "field=m").len(), 0);

    let convert = r#"{"patch": [{"convert": {"field": "n", "to": "long"}}]}"#;
    let patch =
        |query: &str, body: &str| send(&gateway, "POST", &format!("/dead_letters/_patch?{query}"), body);
    assert_eq!(patch("", convert).status, 400, "nothing says which");
    for wrong in [
        "",
        "{}",
        r#"{"patch": []}"#,
        r#"{"patch": [{"set": {"field": ""}}]}"#,
        r#"{"patch": [{"eval": {}}]}"#,
    ] {
        assert_eq!(patch("index=other", wrong).status, 400, "{wrong}");
    }
    let told = patch("index=other&dry_run=true", convert);
    let told: Value = told.ok().unwrap().json().unwrap();
    assert_eq!(
        (
            &told["would"],
            &told["unchanged"],
            &told["refused"],
            told["preview"].as_array().unwrap().len()
        ),
        (&json!(30), &json!(1), &json!(2), 20)
    );
    assert!(
        letters(&gateway, "index=other")
            .iter()
            .all(|letter| letter["original"].is_null()),
        "only looked"
    );
    let id = &letters(&gateway, "index=other")[20]["id"];
    let rest = patch(&format!("index=other&dry_run=true&from={id}"), convert);
    let rest: Value = rest.ok().unwrap().json().unwrap();
    let counts = ["would", "unchanged", "refused"].map(|key| rest[key].as_u64().unwrap());
    assert_eq!(counts.iter().sum::<u64>(), 13, "{rest}");
    let told: Value = patch("index=other", convert).ok().unwrap().json().unwrap();
    assert_eq!(
        (&told["patched"], &told["refused"], &told["more"], &told["next"]),
        (&json!(30), &json!(2), &json!(false), &Value::Null)
    );
    let whys = told["refusals"].to_string();
    assert!(
        whys.contains("is not a whole number") && whys.contains("a delete has no source"),
        "{whys}"
    );
    assert_eq!(letters(&gateway, "").len(), 41, "a changed letter is one letter");
    let again: Value = patch("index=other", convert).ok().unwrap().json().unwrap();
    assert_eq!((&again["patched"], &again["unchanged"]), (&json!(0), &json!(31)));
    // The letters are there after a restart, and are replayed as they were edited.
    let mut gateway = gateway;
    gateway.signal("TERM");
    assert!(gateway.wait().success(), "{}", gateway.log());
    let gateway = place.start();
    assert_eq!(
        post(&gateway, "/dead_letters/_replay?index=other&field=n")["replayed"],
        33
    );
    drained(&gateway, "c0");
    let docs = cluster.docs("other");
    assert_eq!(
        docs["7"].source, "{\"big\":12345678901234567890123,\"n\":7}",
        "the rest byte for byte"
    );
    assert_eq!(docs["30"].source, "{\"big\":12345678901234567890123,\"n\":\"x\"}");
}

#[test]
fn letters_are_found_by_what_they_are_edited_and_replayed_and_the_books_say_so() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 6).index("other", 2).storing()).unwrap();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let other = "{\"create\":{\"_index\":\"other\",\"_id\":\"o\"}}\n{\"n\":1.50}\n{\"delete\":{\"_index\":\"other\",\"_id\":\"d\"}}\n";
    kill_documents(&gateway, &cluster, &(body(8) + other));
    assert_eq!(letters(&gateway, "").len(), 10);
    assert_eq!(letters(&gateway, "index=other").len(), 2);
    assert_eq!(
        letters(
            &gateway,
            "status=4xx&reason=PARSE%20field&type=mapper_parsing_exception&group=c0"
        )
        .len(),
        10
    );
    for none in [
        "status=500-599",
        "type=x",
        "reason=x",
        "group=c1",
        "until=1000",
        "since=2100-01-01T00:00:00Z",
    ] {
        assert_eq!(letters(&gateway, none).len(), 0, "{none}");
    }
    for wrong in ["status=x", "since=x", "id=x", "what=1", "queue=none"] {
        assert!(
            gateway
                .admin()
                .get(&format!("/dead_letters?{wrong}"))
                .unwrap()
                .status
                >= 400,
            "{wrong}"
        );
    }
    // Read page by page, the list is the same.
    let (mut paged, mut from) = (Vec::new(), json!(0));
    while !from.is_null() {
        let page = get(&gateway, &format!("/dead_letters?limit=3&from={from}"));
        paged.extend(page["dead_letters"].as_array().unwrap().clone());
        from = page["next"].clone();
    }
    assert_eq!(paged, letters(&gateway, ""));

    assert_eq!(letters(&gateway, "index=other&limit=1").len(), 1);
    let others = letters(&gateway, "index=other");
    let is_create = |letter: &&Value| letter["action"]["create"]["_id"] == "o";
    let create = others.iter().find(is_create).unwrap();
    let id = create["id"].as_u64().unwrap();
    let path = format!("/dead_letters/{id}");
    for wrong in [
        "",
        "{}x",
        "{\"source\": 1}",
        "{\"action\":{\"what\":{}}}",
        "{\"action\":{\"delete\":{}},\"source\":{}}",
    ] {
        assert_eq!(send(&gateway, "PUT", &path, wrong).status, 400, "{wrong}");
    }
    assert_eq!(&get(&gateway, &path), create, "nothing of that changed it");
    let edit = "{\"source\": {\n\"n\": 2.50}}";
    let edited = send(&gateway, "PUT", &path, edit).ok().unwrap().json().unwrap();
    assert_eq!(
        (&edited["id"], &edited["original"]["source"]["n"]),
        (&json!(id), &json!(1.5))
    );
    assert_eq!(get(&gateway, &path)["source"]["n"], 2.5);
    assert_eq!(letters(&gateway, "").len(), 10, "an edited letter is one letter");
    assert_eq!(send(&gateway, "PUT", "/dead_letters/3", edit).status, 404);

    assert_eq!(
        send(&gateway, "POST", "/dead_letters/_replay", "").status,
        400,
        "nothing says which"
    );
    assert_eq!(
        post(&gateway, "/dead_letters/_replay?all=true&dry_run=true")["would"],
        10
    );
    let done = post(&gateway, "/dead_letters/_replay?index=other");
    assert_eq!((&done["replayed"], &done["refused"]), (&json!(2), &json!(0)));
    drained(&gateway, "c0");
    assert_eq!(
        cluster.docs("other")["o"].source,
        "{ \"n\": 2.50}",
        "as it was written"
    );
    assert_eq!(post(&gateway, "/dead_letters/_replay?all=true")["replayed"], 8);
    let one = drained(&gateway, "c0");
    assert_eq!(
        [&one["indexed"], &one["dead"], &one["replayed"]],
        [&json!(10), &json!(0), &json!(10)]
    );
    assert_eq!(
        queue(&gateway)["accepted"],
        20,
        "what is replayed is accepted once more"
    );
    assert_eq!(cluster.docs("logs").len(), 8);
    assert!(letters(&gateway, "").is_empty());
    assert_eq!(gateway.admin().get(&path).unwrap().status, 404);
    drop(gateway);
    let gateway = place.start();
    let one = account(&queue(&gateway), "c0");
    assert_eq!(
        (&one["dead"], &one["replayed"]),
        (&json!(0), &json!(10)),
        "the catalog outlives a restart"
    );
}

#[test]
fn what_is_purged_is_counted_and_its_disk_is_given_back() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], ", dead_letters_max_size: 2mb");
    let gateway = place.start();
    let padding = "x".repeat(400);
    let text: String = (0..700)
        .map(|n| {
            format!(
                "{{\"index\":{{\"_index\":\"logs\",\"_id\":\"{n}\"}}}}\n{{\"n\":{n},\"p\":\"{padding}\"}}\n"
            )
        })
        .collect();
    kill_documents(&gateway, &cluster, &text);
    let bytes = |gateway: &Gateway| queue(gateway)["dead_letters_bytes"].as_u64().unwrap();
    let full = bytes(&gateway);
    assert!(full > 500 << 10, "{full}");
    assert_eq!(
        send(&gateway, "POST", "/dead_letters/_purge?all=true", "").status,
        400,
        "not confirmed"
    );
    // Every tenth letter stays: together they hold each segment, so segments are merged.
    let all = letters(&gateway, "limit=1000");
    let (kept, gone): (Vec<_>, Vec<_>) = all.iter().enumerate().partition(|(n, _)| n % 10 == 0);
    let ids: Vec<String> = gone.iter().map(|(_, letter)| letter["id"].to_string()).collect();
    for some in ids.chunks(100) {
        let purged = post(
            &gateway,
            &format!("/dead_letters/_purge?confirm=true&id={}", some.join(",")),
        );
        assert_eq!(purged["purged"], some.len());
    }
    let shrinks = |least: u64| {
        let began = Instant::now();
        while bytes(&gateway) > least {
            assert!(
                began.elapsed() < Duration::from_secs(30),
                "{} of {full}",
                bytes(&gateway)
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    shrinks(full / 4);
    let left = letters(&gateway, "limit=1000");
    let ids = |letters: &[Value]| {
        let mut ids: Vec<u64> = letters
            .iter()
            .map(|letter| letter["id"].as_u64().unwrap())
            .collect();
        ids.sort_unstable();
        ids
    };
    let kept: Vec<Value> = kept.into_iter().map(|(_, letter)| letter.clone()).collect();
    assert_eq!(ids(&left), ids(&kept), "their ids stay");
    let shown = get(&gateway, &format!("/dead_letters/{}", kept[0]["id"]));
    assert_eq!(shown, kept[0], "and all that is known of them");
    let one = account(&queue(&gateway), "c0");
    assert_eq!((&one["dead"], &one["purged"]), (&json!(70), &json!(630)));
    assert_eq!(
        post(&gateway, "/dead_letters/_purge?confirm=true&all=true")["purged"],
        70
    );
    shrinks(4096);
    drop(gateway);
    let gateway = place.start();
    let one = account(&queue(&gateway), "c0");
    assert_eq!((&one["dead"], &one["purged"]), (&json!(0), &json!(700)));
}

#[test]
fn letters_of_a_batch_that_was_cut_off_are_not_counted_and_not_left_behind() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    // Some documents of each batch die, and others keep the batch from being committed.
    let busy = Fault::Status {
        status: 429,
        body: "{}".to_owned(),
    };
    cluster.inject(Injection::bulk(unfit()).on_node(1).always());
    cluster.inject(Injection::bulk(busy.clone()).on_node(0).always());
    cluster.inject(Injection::bulk(busy).on_node(2).always());
    gateway.bulk(&body(400)).ok().unwrap();
    // Each lane is either done, or has something that holds it.
    let one = crate::home::wait(&gateway, "c0", |one| {
        let lanes = one["lanes"].as_array().unwrap().iter();
        let held = lanes.filter(|lane| lane["accepted"] != lane["done"]).count();
        held > 2 && one["retrying_lanes"] == held
    });
    // Marks are durable within a tenth of a second; anything not yet durable is delivered again, and accepted
    // then.
    std::thread::sleep(Duration::from_secs(2));
    let listed = letters(&gateway, "limit=1000").len() as u64;
    assert_eq!(account(&queue(&gateway), "c0")["dead"], listed, "{one}");
    gateway.signal("KILL");
    drop(gateway);
    cluster.behave();
    let gateway = place.start();
    let one = drained(&gateway, "c0");
    assert_eq!(one["dead"].as_u64().unwrap(), listed);
    assert_eq!(letters(&gateway, "limit=1000").len() as u64, listed);
    assert_eq!(
        cluster.docs("logs").len() as u64,
        400 - listed,
        "what was cut off has been taken since"
    );
}

#[test]
fn a_replay_that_is_killed_at_any_moment_loses_nothing_and_counts_nothing_twice() {
    // The first kill may come too late for the whole replay.
    assert!((0..5).any(|_| crashes_of_a_replay() > 0), "no replay was cut off");
}

/// Kills gateways while they replay, until everything is replayed. Returns how often a replay was cut off.
fn crashes_of_a_replay() -> usize {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let mut gateway = place.start();
    let documents = 3000;
    cluster.inject(Injection::bulk(unfit()).always());
    for _ in 0..3 {
        gateway
            .bulk(&body(documents / 3).replace("\"_id\":\"", &format!("\"_id\":\"{}-", fastrand::u32(..))))
            .ok()
            .unwrap();
    }
    assert_eq!(drained(&gateway, "c0")["dead"], documents);
    cluster.behave();
    let mut crashes = 0;
    loop {
        let admin = gateway.admin();
        let asked =
            std::thread::spawn(move || admin.send("POST", "/dead_letters/_replay?all=true", &[], &[]));
        std::thread::sleep(Duration::from_micros(fastrand::u64(0..25_000)));
        let finished = asked.is_finished();
        gateway.signal("KILL");
        drop(gateway);
        let _ = asked.join().unwrap();
        gateway = place.start();
        let queue = queue(&gateway);
        let one = account(&queue, "c0");
        let (dead, replayed) = (one["dead"].as_u64().unwrap(), one["replayed"].as_u64().unwrap());
        assert_eq!(dead + replayed, documents as u64, "{one}");
        assert_eq!(queue["accepted"], documents as u64 + replayed);
        assert_eq!(letters(&gateway, "limit=10000").len() as u64, dead);
        if dead == 0 {
            break;
        }
        crashes += 1;
        assert!(crashes < 60, "{one}");
        if finished || crashes > 8 {
            // The kill was too late, or there were enough.
            post(&gateway, "/dead_letters/_replay?all=true");
        }
    }
    let one = drained(&gateway, "c0");
    assert_eq!((&one["indexed"], &one["dead"]), (&json!(documents), &json!(0)));
    assert_eq!(cluster.docs("logs").len(), documents);
    crashes
}

#[test]
fn writes_to_one_document_are_replayed_in_the_order_in_which_they_were_accepted() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    for round in 0..3 {
        let text: String = (0..20)
            .map(|n| {
                let (id, n) = (n % 5, round * 100 + n);
                format!("{{\"index\":{{\"_index\":\"logs\",\"_id\":\"{id}\"}}}}\n{{\"n\":{n}}}\n")
            })
            .collect();
        kill_documents(&gateway, &cluster, &text);
    }
    // An edited letter is written again behind the others, but keeps its turn.
    let first = &letters(&gateway, "limit=1")[0];
    let path = format!("/dead_letters/{}", first["id"]);
    send(&gateway, "PUT", &path, r#"{"source": {"n": 7777}}"#)
        .ok()
        .unwrap();
    assert_eq!(post(&gateway, "/dead_letters/_replay?all=true")["replayed"], 60);
    assert_eq!(drained(&gateway, "c0")["indexed"], 60);
    for id in 0..5 {
        let source: Value = serde_json::from_str(&cluster.docs("logs")[&id.to_string()].source).unwrap();
        assert_eq!(source["n"], 215 + id, "the last version of {id}");
    }
}

#[test]
fn a_purge_that_is_killed_at_any_moment_is_done_or_not_done() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let mut gateway = place.start();
    kill_documents(&gateway, &cluster, &body(300));
    let (mut left, mut tries) = (300, 0);
    while left > 0 {
        let some: Vec<String> = letters(&gateway, "limit=60")
            .iter()
            .map(|letter| letter["id"].to_string())
            .collect();
        let path = format!("/dead_letters/_purge?confirm=true&id={}", some.join(","));
        let admin = gateway.admin();
        let asked = std::thread::spawn(move || admin.send("POST", &path, &[], &[]));
        std::thread::sleep(Duration::from_micros(fastrand::u64(0..8_000)));
        gateway.signal("KILL");
        drop(gateway);
        let _ = asked.join().unwrap();
        gateway = place.start();
        let one = account(&queue(&gateway), "c0");
        let dead = one["dead"].as_u64().unwrap() as usize;
        assert!(
            dead == left || dead + some.len() == left,
            "all of it or nothing: {one}"
        );
        assert_eq!(one["purged"], 300 - dead);
        assert_eq!(letters(&gateway, "limit=1000").len(), dead);
        left = dead;
        tries += 1;
        if tries > 12 {
            post(&gateway, "/dead_letters/_purge?confirm=true&all=true");
            break;
        }
    }
}

#[test]
fn a_letter_goes_back_to_the_cluster_that_would_not_take_it_and_to_no_other() {
    let (primary, backup) = (cluster(), cluster());
    let place = GatewayHome::before(&[&primary, &backup], "");
    let gateway = place.start();
    backup.inject(Injection::bulk(unfit()).always());
    gateway.bulk(&body(60)).ok().unwrap();
    drained(&gateway, "c0");
    drained(&gateway, "c1");
    backup.behave();
    primary.reset_counts();
    assert_eq!(post(&gateway, "/dead_letters/_replay?all=true")["replayed"], 60);
    let (first, second) = (drained(&gateway, "c0"), drained(&gateway, "c1"));
    assert_eq!((&first["indexed"], &first["skipped"]), (&json!(60), &json!(60)));
    assert_eq!(
        (&second["indexed"], &second["replayed"]),
        (&json!(60), &json!(60))
    );
    assert_eq!((primary.counts().docs, backup.docs("logs").len()), (0, 60));
}

#[test]
fn a_letter_whose_index_is_gone_is_refused_and_stays() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    kill_documents(&gateway, &cluster, &body(3));
    let id = letters(&gateway, "limit=1")[0]["id"].clone();
    let edit = r#"{"action": {"index": {"_index": "nowhere", "_id": "1"}}}"#;
    send(&gateway, "PUT", &format!("/dead_letters/{id}"), edit)
        .ok()
        .unwrap();
    let done = post(&gateway, "/dead_letters/_replay?all=true");
    assert_eq!(
        (&done["replayed"], &done["refused"]),
        (&json!(2), &json!(1)),
        "{done}"
    );
    assert_eq!(done["refusals"][0]["id"], id);
    assert!(
        done["refusals"][0]["why"].as_str().unwrap().contains("index"),
        "{done}"
    );
    let one = drained(&gateway, "c0");
    assert_eq!((&one["dead"], &one["indexed"]), (&json!(1), &json!(2)));
}

#[test]
fn a_page_of_another_origin_cannot_purge() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    kill_documents(&gateway, &cluster, &body(1));
    let path = "/dead_letters/_purge?confirm=true&all=true";
    let headers = [("origin", "http://evil.example")];
    assert_eq!(
        gateway.admin().send("POST", path, &headers, &[]).unwrap().status,
        403
    );
    assert_eq!(letters(&gateway, "").len(), 1);
}

/// Runs `tidegate dead-letters`. Returns its status, its output, and its complaints.
pub(crate) fn run(gateway: &Gateway, arguments: &[&str], input: &str) -> (i32, String, String) {
    let mut process = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["dead-letters", "--admin", &format!("http://{}", gateway.admin)])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    process.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let out = process.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (out.status.code().unwrap(), text(out.stdout), text(out.stderr))
}

#[test]
fn the_command_line_lists_shows_edits_replays_and_purges() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    kill_documents(&gateway, &cluster, &body(5));
    let (status, _, why) = run(&gateway, &["list", "--since", "tomorrow"], "");
    assert!(status == 2 && why.contains("is not a time"), "{status}: {why}");
    let (status, listed, _) = run(&gateway, &["list", "--status", "4xx", "--since", "1h"], "");
    assert_eq!((status, listed.lines().count()), (0, 6), "{listed}");
    assert!(listed.contains("mapper_parsing_exception"), "{listed}");
    let (status, counted, _) = run(&gateway, &["count"], "");
    assert!(
        status == 0 && counted.contains("      5  reason like  failed to parse field [n]"),
        "{counted}"
    );
    for filter in [["--field", "n"], ["--like", "failed to parse field [n]"]] {
        let (_, listed, _) = run(&gateway, &[&["list"], &filter[..]].concat(), "");
        assert_eq!(listed.lines().count(), 6, "{listed}");
        let (_, none, _) = run(&gateway, &["list", filter[0], "other"], "");
        assert_eq!(none.lines().count(), 1, "{none}");
    }
    let (_, all, _) = run(&gateway, &["list", "--json"], "");
    let all: Value = serde_json::from_str(&all).unwrap();
    let id = all["dead_letters"][0]["id"].to_string();
    let (status, shown, _) = run(&gateway, &["show", &id], "");
    assert!(
        status == 0 && shown.contains("failed to parse field [n]"),
        "{shown}"
    );
    let (status, edited, _) = run(&gateway, &["edit", &id, "--source", "-"], "{\"n\": 77}\n");
    assert!(
        status == 0 && edited.contains("{\"n\": 77}") || edited.contains("{\"n\":77}"),
        "{edited}"
    );
    let (status, _, told) = run(&gateway, &["edit", &id, "--source", "-"], "nonsense");
    assert!(status == 2 && told.contains("not JSON"), "{status} {told}");
    let (status, _, told) = run(&gateway, &["replay", &id], "");
    assert!(status == 2 && told.contains("--yes"), "{status} {told}");
    let (status, done, _) = run(&gateway, &["replay", &id, "--yes"], "");
    assert_eq!((status, done.as_str()), (0, "replayed: 1\n"));
    let (status, would, _) = run(&gateway, &["purge", "--all", "--dry-run"], "");
    assert_eq!((status, would.as_str()), (0, "would purge: 4\n"));
    let (status, done, _) = run(&gateway, &["purge", "--reason", "parse", "--yes"], "");
    assert_eq!((status, done.as_str()), (0, "purged: 4\n"));
    assert_eq!(run(&gateway, &["show", &id], "").0, 1, "it is not there any more");
    let (status, _, told) = run(&gateway, &["purge", "--yes"], "");
    assert!(
        status == 2 && told.contains("or --all"),
        "nothing says which: {told}"
    );
    for verb in ["purge", "replay"] {
        let (status, _, told) = run(&gateway, &[verb, &id, "--yes"], "");
        assert!(
            status == 1 && told.contains("1 of the named letters does not exist"),
            "{verb}: {status} {told}"
        );
    }
    assert_eq!(run(&gateway, &["list", "--admin", "http://127.0.0.1:9"], "").0, 3);
    assert!(
        !run(&gateway, &["list", "--help"], "").1.contains("--token "),
        "a token is no argument"
    );
    drained(&gateway, "c0");
    assert!(cluster.docs("logs").values().any(|doc| doc.source.contains("77")));
}

#[test]
fn the_command_line_shows_the_token_of_its_environment_or_file() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let text = std::fs::read_to_string(&place.file).unwrap();
    let guarded = text.replace("admin: {", "admin: {token: s3cret, ");
    std::fs::write(&place.file, guarded).unwrap();
    let gateway = Gateway::start(&["--config", place.file.to_str().unwrap()]);
    let file = place.file.with_file_name("token");
    std::fs::write(&file, "s3cret\n").unwrap();
    let list = |arguments: &[&str], token: &str| {
        let out = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args([
                "dead-letters",
                "list",
                "--admin",
                &format!("http://{}", gateway.admin),
            ])
            .args(arguments)
            .env("TIDEGATE_ADMIN_TOKEN", token)
            .output()
            .unwrap();
        out.status.code().unwrap()
    };
    assert_eq!((list(&[], ""), list(&[], "wrong")), (3, 3));
    assert_eq!(
        (
            list(&[], "s3cret"),
            list(&["--token-file", file.to_str().unwrap()], "")
        ),
        (0, 0)
    );
}

#[test]
fn a_question_that_is_answered_with_no_changes_nothing_and_exits_with_1() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    kill_documents(&gateway, &cluster, &body(2));
    let answered = |answer: &str| {
        let line = format!(
            "{} dead-letters --admin http://{} purge --all",
            env!("CARGO_BIN_EXE_tidegate"),
            gateway.admin
        );
        at_a_terminal(&line, answer)
    };
    let (status, said) = answered("n\n");
    assert!(said.contains("purge 2 dead letters? [y/N]"), "{said}");
    assert!(
        status == Some(1) && said.contains("nothing was done"),
        "{status:?} {said}"
    );
    assert_eq!(letters(&gateway, "").len(), 2);
    let (status, said) = answered("y\n");
    assert!(
        status == Some(0) && said.contains("purged: 2"),
        "{status:?} {said}"
    );
}

/// The parts of a letter that an answer or a request can make arbitrarily long must not keep the letter out
/// of the store: that stopped the lane.
#[test]
fn a_letter_whose_cause_is_long_once_escaped_is_kept_and_its_lane_goes_on() {
    let mut spec = Spec::default().index("logs", 1).storing();
    spec.long_heads = true;
    let cluster = FakeCluster::start(spec).unwrap();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    // 6,000 characters, each of which JSON writes with six bytes, in the reason and in the error's type.
    let zeros = "\\u0000".repeat(6_000);
    cluster.inject(
        Injection::bulk(Fault::Items {
            every: 1,
            status: 400,
            error: format!(r#"{{"type":"{zeros}","reason":"{zeros}"}}"#),
        })
        .always(),
    );
    gateway.bulk(&body(1)).ok().unwrap();
    drained(&gateway, "c0");
    // The request's own text nearly fills a record's parameters: the cause does not fit beside it.
    let path = format!("/_bulk?routing={}", "r".repeat(16_000));
    let content_type = format!("application/json; x=\"{}\"", "x".repeat(15_000));
    let long = "{\"index\":{\"_index\":\"logs\",\"_id\":\"long\"}}\n{\"n\":1}\n";
    let headers = [("content-type", content_type.as_str())];
    let queued = gateway
        .client()
        .send("POST", &path, &headers, long.as_bytes())
        .unwrap();
    assert!(queued.ok().unwrap().header("x-tidegate-ack").is_some());
    drained(&gateway, "c0");
    cluster.behave();
    gateway
        .bulk("{\"index\":{\"_index\":\"logs\",\"_id\":\"after\"}}\n{}\n")
        .ok()
        .unwrap();
    assert_eq!(drained(&gateway, "c0")["dead"], 2);
    assert!(cluster.docs("logs").contains_key("after"));

    let listed = letters(&gateway, "");
    assert_eq!(listed.len(), 2);
    assert!(
        listed
            .iter()
            .all(|letter| letter["reason"].as_str().unwrap().starts_with("\0\0\0"))
    );
    let target = |letter: &Value| letter["origin"]["target"].as_str().unwrap().to_owned();
    assert_eq!(
        target(&listed[1]),
        path,
        "nothing of what it needs to be sent again is cut"
    );
    let id = listed[1]["id"].as_u64().unwrap();
    let edit = send(
        &gateway,
        "PUT",
        &format!("/dead_letters/{id}"),
        "{\"source\":{\"n\":2}}",
    );
    assert_eq!(edit.status, 200, "{}", edit.text());
    let letter = get(&gateway, &format!("/dead_letters/{id}"));
    assert_eq!(
        (&letter["source"]["n"], &letter["original"]["source"]["n"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(target(&letter), path);
    let done = post(&gateway, "/dead_letters/_replay?all=true");
    assert_eq!(
        (&done["replayed"], &done["refused"]),
        (&json!(2), &json!(0)),
        "{done:#}"
    );
    drained(&gateway, "c0");
    assert_eq!(cluster.docs("logs")["long"].source, "{\"n\":2}");
    assert_eq!(
        cluster.docs("logs")["long"].routing.as_deref().map(str::len),
        Some(16_000)
    );
}

#[test]
fn a_letter_larger_than_the_whole_store_is_kept_all_the_same() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 1).storing()).unwrap();
    let place = GatewayHome::before(&[&cluster], ", dead_letters_max_size: 256kb");
    let gateway = place.start();
    let large = format!(
        "{{\"index\":{{\"_index\":\"logs\",\"_id\":\"large\"}}}}\n{{\"text\":\"{}\"}}\n",
        "x".repeat(1 << 20)
    );
    kill_documents(&gateway, &cluster, &large);
    let listed = letters(&gateway, "");
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["source"]["text"].as_str().map(str::len), Some(1 << 20));
    // The store is more than full now: documents that die next are parked until it is emptied.
    cluster.inject(Injection::bulk(unfit()).always());
    gateway.bulk(&body(1)).ok().unwrap();
    wait(&gateway, "c0", |one| one["parked"] == 1 && one["pending"] == 0);
    assert_eq!(
        post(&gateway, "/dead_letters/_purge?all=true&confirm=true")["purged"],
        1
    );
    assert_eq!(drained(&gateway, "c0")["dead"], 1);
}
