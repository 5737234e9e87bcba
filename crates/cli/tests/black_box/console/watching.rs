//! The overview, live numbers, series and nodes, and what becomes of them when a cluster misbehaves.

use serde_json::{Value, json};
use testkit::fake::{FakeCluster, Fault, Injection, On, Spec};

use super::process::Console;
use crate::admin_tls::{Certificates, configured, start, tls};
use crate::gateway::{Gateway, body};

#[test]
fn a_gateway_brings_its_cluster_along_and_both_tell_of_what_is_written() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 3)).unwrap();
    let gateway = Gateway::before(&cluster);
    let console = Console::start(&[]).set_up();
    let draft = json!({"name": "gw", "url": format!("http://{}", gateway.admin)});
    let tested = console.post("/api/gateways/_test", &draft).json;
    assert_eq!(
        (&tested["ok"], tested["clusters"].as_array().unwrap().len()),
        (&json!(true), 1),
        "{tested:#}"
    );
    let made = console.post("/api/gateways", &draft).json;
    let brought = made["clusters"][0]["cluster_id"]
        .as_str()
        .unwrap_or_else(|| panic!("{made:#}"));
    let registered = console.clusters();
    assert_eq!(
        (registered.len(), &registered[0]["from_gateway"]),
        (1, &made["id"])
    );
    let name = registered[0]["name"].as_str().unwrap();
    let written = |row: &Value| row["docs_per_s"].as_f64().is_some_and(|rate| rate > 0.0);
    for kind in ["gw", name] {
        console.wait_for_row(kind, |row| {
            gateway.bulk(&body(50)).ok().unwrap();
            written(row)
        });
    }
    let row = console.wait_for_row(name, |row| {
        let seen_now = row["seen_ms_ago"].as_i64().is_some_and(|ago| ago < 3_000);
        row["health"] == "green" && row["nodes"] == 3 && !row["docs"].is_null() && seen_now
    });
    assert_eq!(
        (&row["kind"], &row["state"], &row["flavour"]),
        (&json!("cluster"), &json!("ok"), &json!("opensearch"))
    );
    both_series_have_it(&console, &gateway, brought);
    let nodes = console.get(&format!("/api/clusters/{brought}/nodes")).json;
    assert_eq!(nodes["nodes"].as_array().unwrap().len(), 3);
    assert_eq!(
        (
            &nodes["nodes"][0]["heap_pct"],
            &nodes["nodes"][0]["disk_used_bytes"]
        ),
        (&json!(40), &json!(40_000_000_000_u64))
    );
    neither_is_the_other(&console, &cluster, &draft);
}

#[test]
fn a_gateway_is_watched_over_tls_once_its_authority_is_registered() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 3)).unwrap();
    let certificates = Certificates::of(&["port"]);
    let admin = tls(&certificates, "port", "") + ", token: open-sesame-9";
    let gateway = start(&configured(&certificates, &cluster, &admin));
    let console = Console::start(&[]).set_up();
    let url = format!("https://{}", gateway.admin);
    let failing = |draft: Value| {
        let told = console.post("/api/gateways/_test", &draft).json;
        assert_eq!(told["ok"], false, "{told:#}");
        told["steps"].as_array().unwrap().last().unwrap().clone()
    };
    let stranger = failing(json!({"url": url, "token": "open-sesame-9"}));
    assert_eq!(stranger["step"], "tls", "{stranger:#}");
    let plain = failing(json!({"url": url.replace("https", "http"), "token": "open-sesame-9"}));
    assert!(plain.to_string().contains("https://"), "{plain:#}");
    let ca = std::fs::read_to_string(certificates.file("port.pem")).unwrap();
    let entry = json!({"name": "gw", "url": url, "token": "open-sesame-9", "ca_pem": ca});
    assert_eq!(console.post("/api/gateways/_test", &entry).json["ok"], true);
    assert_eq!(console.post("/api/gateways", &entry).status, 200);
    console.wait_for_row("gw", |row| row["state"] == "ok");
}

#[test]
fn a_gateway_that_asks_for_client_certificates_is_watched_once_one_is_registered() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 3)).unwrap();
    let certificates = Certificates::of(&["port", "mine", "other"]);
    let asks = format!(", client_ca_file: '{}'", certificates.file("mine.pem").display());
    let gateway = start(&configured(
        &certificates,
        &cluster,
        &tls(&certificates, "port", &asks),
    ));
    let console = Console::start(&[]).set_up();
    let read = |name: &str| std::fs::read_to_string(certificates.file(name)).unwrap();
    let url = format!("https://{}", gateway.admin);
    let draft = |client_pem: Option<String>| json!({"name": "gw", "url": url, "ca_pem": read("port.pem"), "client_pem": client_pem});
    let failing = |client_pem| {
        let told = console.post("/api/gateways/_test", &draft(client_pem)).json;
        assert_eq!(told["ok"], false, "{told:#}");
        told["steps"].as_array().unwrap().last().unwrap().clone()
    };
    let without = failing(None);
    assert_eq!(without["step"], "tls", "{without:#}");
    assert!(
        without["detail"].as_str().unwrap().contains("client certificate"),
        "{without:#}"
    );
    let other = failing(Some(read("other.pem") + &read("other.key")));
    assert_eq!(other["step"], "tls", "{other:#}");
    let mixed = failing(Some(read("mine.pem") + &read("other.key")));
    assert_eq!(mixed["step"], "tls", "{mixed:#}");
    let keyless = failing(Some(read("mine.pem")));
    assert!(
        keyless["detail"]
            .as_str()
            .unwrap()
            .contains("no private key found"),
        "{keyless:#}"
    );

    let all_in_one_line = draft(Some((read("mine.pem") + &read("mine.key")).replace('\n', " ")));
    for path in ["/api/gateways/_test", "/api/gateways"] {
        let told = console.post(path, &all_in_one_line);
        let bytes = format!("{:?}", &read("mine.key").as_bytes()[100..110]);
        assert!(
            !told.text.contains(bytes.trim_matches(['[', ']'])),
            "{}",
            told.text
        );
        assert!(told.text.contains("line breaks"), "{}", told.text);
    }
    assert_eq!(console.post("/api/gateways", &all_in_one_line).status, 400);

    let good = draft(Some(read("mine.pem") + &read("mine.key")));
    let told = console.post("/api/gateways/_test", &good).json;
    assert_eq!(told["ok"], true, "{told:#}");
    let kept = console.post("/api/gateways", &good);
    assert_eq!((kept.status, &kept.json["has_client_pem"]), (200, &json!(true)));
    console.wait_for_row("gw", |row| row["state"] == "ok");
    let key = read("mine.key");
    let key = key.lines().nth(1).unwrap();
    for told in ["/api/registry", "/api/audit"] {
        assert!(!console.get(told).text.contains(key), "{told}");
    }
    // A change that does not name it keeps it.
    let id = kept.json["id"].as_str().unwrap();
    let renamed = json!({"name": "renamed"});
    assert_eq!(console.put(&format!("/api/gateways/{id}"), &renamed).status, 200);
    console.wait_for_row("renamed", |row| row["state"] == "ok");
}

#[test]
fn a_gateways_traffic_is_what_the_gateway_counts_and_silence_has_no_rate() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 3)).unwrap();
    let mut gateway = Gateway::before(&cluster);
    let console = Console::start(&[]).set_up();
    let draft = json!({"name": "gw", "url": format!("http://{}", gateway.admin)});
    let id = console.post("/api/gateways", &draft).json["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let traffic = || console.get(&format!("/api/gateways/{id}/traffic?minutes=5")).json;
    let until = |what: &str, holds: &dyn Fn(&Value) -> bool| {
        let began = std::time::Instant::now();
        loop {
            let told = traffic();
            if holds(&told) {
                return told;
            }
            assert!(began.elapsed() < crate::gateway::PATIENCE, "{what}: {told:#}");
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    };
    until("it answers", &|told| {
        told["now"]["clusters"]["cluster"]["state"] == "watching"
    });
    gateway.bulk(&body(50)).ok().unwrap();
    // The cluster refuses it in its own words.
    let empty_id = gateway.bulk("{\"index\":{\"_index\":\"logs\",\"_id\":\"\"}}\n{}\n");
    assert!(empty_id.status < 500, "{}", empty_id.text());
    let told = until("it has counted them", &|told| {
        told["now"]["counters"]["bulk_passed"]["total"] == 1
    });
    let now = &told["now"];
    assert_eq!(now["counters"]["docs"]["total"], 50, "{told:#}");
    assert!(now["counters"]["docs"]["per_s"].as_f64().unwrap() > 0.0);
    let (gain, direct) = (&now["gain"], &now["counters"]["docs_direct"]["per_s"]);
    let hops = direct.as_f64().unwrap() * (1.0 - 1.0 / 3.0);
    assert!(
        hops > 0.0 && (gain["hops_per_s"].as_f64().unwrap() - hops).abs() < 1e-6,
        "{gain}"
    );
    assert!(
        gain["requests_per_s"].is_number() && gain["cores"].is_number(),
        "{gain}"
    );
    let flow = &now["flows"]["flow"];
    assert_eq!(flow["counters"]["requests"]["total"], 2, "{flow}");
    assert_eq!(flow["counters"]["docs"]["total"], 50, "{flow}");
    assert_eq!(flow["passed"], now["passed"]);
    assert_eq!(
        now["passed"],
        json!([{"kind": "bulk", "why": "empty_id", "meaning": "The `_id` is an empty string.",
            "total": 1, "per_s": now["passed"][0]["per_s"]}])
    );
    let entries: Vec<&Value> = now["entries"].as_object().unwrap().values().collect();
    assert_eq!(
        (entries.len(), &entries[0]["address"]),
        (1, &json!(gateway.address.to_string()))
    );
    assert!(entries[0]["requests_per_s"].as_f64().unwrap() > 0.0);
    assert!(now["memory"]["buffers_bytes_max"].as_u64().unwrap() > 0);
    let nodes = now["clusters"]["cluster"]["nodes"].as_array().unwrap();
    assert_eq!((nodes.len(), &nodes[0]["health"]["up"]), (3, &json!(true)));
    let told = until("a second of it is in the series", &|told| {
        let values = told["series"]["split_per_s"].as_array().unwrap();
        values
            .iter()
            .any(|value| value.as_f64().is_some_and(|rate| rate > 0.0))
    });
    assert_eq!(told["series"]["split_per_s"].as_array().unwrap().len(), 300);
    gateway.signal("KILL");
    gateway.wait();
    until("its totals stay without a rate", &|told| {
        let docs = &told["now"]["counters"]["docs"];
        docs["total"] == 50 && docs["per_s"].is_null()
    });
}

fn both_series_have_it(console: &Console, gateway: &Gateway, id: &str) {
    let began = std::time::Instant::now();
    for name in ["cluster_docs_per_s", "gateway_docs_per_s"] {
        loop {
            // A second that has not ended is not reported yet.
            gateway.bulk(&body(50)).ok().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(300));
            let series = console.get(&format!("/api/clusters/{id}/series?minutes=5")).json;
            assert_eq!(series["step_ms"], 1000);
            let values = series["series"][name].as_array().unwrap();
            assert_eq!(values.len(), 300, "{name}");
            assert!(values[0].is_null(), "what was not measured is a gap");
            if values
                .iter()
                .any(|value| value.as_f64().is_some_and(|rate| rate > 0.0))
            {
                break;
            }
            assert!(began.elapsed().as_secs() < 60, "{name}: {values:?}");
        }
    }
}

fn neither_is_the_other(console: &Console, cluster: &FakeCluster, draft: &Value) {
    // A gateway is not a cluster, and a cluster is not a gateway.
    let swapped = console
        .post("/api/gateways/_test", &json!({"url": cluster.urls()[0]}))
        .json;
    assert_eq!(
        (
            &swapped["ok"],
            &swapped["steps"].as_array().unwrap().last().unwrap()["step"]
        ),
        (&json!(false), &json!("version"))
    );
    let swapped = console
        .post("/api/clusters/_test", &json!({"endpoints": [draft["url"]]}))
        .json;
    assert_eq!(
        (
            &swapped["ok"],
            &swapped["steps"].as_array().unwrap().last().unwrap()["step"]
        ),
        (&json!(false), &json!("version"))
    );
}

#[test]
fn a_cluster_that_misbehaves_leaves_the_overview_standing_with_its_reason_and_age() {
    let well = FakeCluster::start(Spec::default().index("logs", 1)).unwrap();
    let ill = FakeCluster::start(Spec::default().index("logs", 1)).unwrap();
    let console = Console::start(&[]).set_up();
    console.register(json!({"name": "well", "endpoints": well.urls()}));
    console.register(json!({"name": "ill", "endpoints": ill.urls()}));
    console.wait_for_row("ill", |row| row["state"] == "ok" && row["docs_per_s"] == 0.0);
    let status = |status: u16| Fault::Status {
        status,
        body: r#"{"error": {"reason": "so it says"}}"#.to_owned(),
    };
    for (fault, state, words) in [
        (
            Fault::Garbage(r#"{"_all": {"primaries": {"indexing": {"index_to"#.to_owned()),
            "warn",
            "not JSON",
        ),
        (Fault::Garbage(r#"["another", "shape"]"#.to_owned()), "warn", ""),
        (status(429), "warn", "429"),
        (status(401), "bad", "401"),
        (status(503), "bad", "so it says"),
        (Fault::CloseAtHead, "bad", "closed"),
    ] {
        ill.inject(Injection::new(On::Any, fault.clone()).always());
        let row = console.wait_for_row("ill", |row| {
            row["state"] == state && row["why"][0].as_str().unwrap_or_default().contains(words)
        });
        assert!(row["seen_ms_ago"].as_i64().is_some(), "{fault:?}: {row:#}");
        ill.behave();
        console.wait_for_row("ill", |row| row["state"] == "ok");
    }
    console.wait_for_row("well", |row| row["state"] == "ok");
    let first = |console: &Console| console.get("/api/overview").json["rows"][0]["name"].clone();
    for node in 0..3 {
        ill.kill(node);
    }
    let dead = console.wait_for_row("ill", |row| {
        row["state"] == "bad" && row["seen_ms_ago"].as_i64() > Some(2_000)
    });
    assert_eq!(
        (&dead["docs_per_s"], &dead["health"]),
        (&Value::Null, &json!("green")),
        "old, and its age is told"
    );
    assert_eq!(first(&console), "ill", "the worst is first");
    console.wait_for_row("well", |row| row["state"] == "ok");
}

#[test]
fn the_overview_ticks_once_a_second() {
    let cluster = FakeCluster::start(Spec::default()).unwrap();
    let console = Console::start(&[]).set_up();
    console.register(json!({"name": "prod", "endpoints": cluster.urls()}));
    let began = std::time::Instant::now();
    let events = console.events(4);
    let took = began.elapsed().as_secs_f64();
    assert!((1.0..25.0).contains(&took), "{took}");
    let times: Vec<i64> = events
        .iter()
        .filter_map(|event| event["at_ms"].as_i64())
        .collect();
    assert!(
        times.len() >= 3 && times.windows(2).all(|pair| pair[1] > pair[0]),
        "{events:?}"
    );
    assert_eq!(events.last().unwrap()["rows"][0]["name"], "prod");
}

#[test]
fn a_hot_shard_is_first_on_the_heat_map_within_seconds_and_the_cluster_is_not_asked() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 6)).unwrap();
    let gateway = Gateway::before(&cluster);
    let console = Console::start(&[]).set_up();
    let draft = json!({"name": "gw", "url": format!("http://{}", gateway.admin)});
    let made = console.post("/api/gateways", &draft).json;
    let id = made["clusters"][0]["cluster_id"].as_str().unwrap().to_owned();
    let heat = || console.get(&format!("/api/clusters/{id}/heat")).json;
    assert_eq!((&heat()["gateways"], &heat()["shards"]), (&json!(1), &json!([])));
    gateway.bulk(&body(60)).ok().unwrap();
    let hot: String = (0..200)
        .map(|n| format!("{{\"index\":{{\"_index\":\"logs\",\"_id\":\"h{n}\",\"routing\":\"r\"}}}}\n{{}}\n"))
        .collect();
    let began = std::time::Instant::now();
    let hottest = loop {
        gateway.bulk(&hot).ok().unwrap();
        let told = heat();
        let first = &told["shards"][0];
        let rate = |at: usize| told["shards"][at]["docs_per_s"].as_f64().unwrap_or(0.0);
        if rate(0) > 100.0 && rate(0) > 10.0 * rate(1) {
            assert_eq!(told["shards"].as_array().unwrap().len(), 6);
            let node = first["node"].as_u64().unwrap() as usize;
            assert!(told["nodes"][node].is_string(), "{told:#}");
            break first.clone();
        }
        assert!(began.elapsed() < crate::gateway::PATIENCE, "{told:#}");
        std::thread::sleep(std::time::Duration::from_millis(200));
    };
    assert_eq!(hottest["index"], "logs");
    let own: Value = gateway
        .admin()
        .get("/heat")
        .unwrap()
        .ok()
        .unwrap()
        .json()
        .unwrap();
    let clusters = own["clusters"].as_object().unwrap();
    let docs = &clusters.values().next().unwrap()["indices"]["logs"]["docs"];
    let most = docs.as_array().unwrap().iter().max_by_key(|docs| docs.as_u64());
    assert_eq!(
        &docs[hottest["shard"].as_u64().unwrap() as usize],
        most.unwrap(),
        "it is the gateway's own hottest"
    );
}
