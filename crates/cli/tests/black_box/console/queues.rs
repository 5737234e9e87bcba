//! A gateway's queues: their accounts, their lag, and what may be done to a gateway.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::fake::{FakeCluster, Fault, Injection, Spec};

use super::process::Console;
use crate::gateway::{Gateway, PATIENCE, body};
use crate::home::{GatewayHome, drained};

/// A gateway's admin port that returns given answers, and records what it was asked.
struct Told {
    address: String,
    queues: Arc<Mutex<Value>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Told {
    fn new(queues: Value) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (queues, asked) = (Arc::new(Mutex::new(queues)), Arc::new(Mutex::new(Vec::new())));
        let (says, heard) = (Arc::clone(&queues), Arc::clone(&asked));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (says, heard) = (Arc::clone(&says), Arc::clone(&heard));
                std::thread::spawn(move || {
                    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                    while let Some(Ok(line)) = lines.next() {
                        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
                        while lines
                            .next()
                            .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
                        {
                        }
                        let queues = says.lock().clone();
                        let answer = match path.as_str() {
                            "/stats" => json!({"version": "1", "gateway": {}, "queues": queues}),
                            "/queue/stats" => queues,
                            _ => json!({}),
                        };
                        heard.lock().push(path);
                        let text = answer.to_string();
                        let head = format!(
                            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                            text.len()
                        );
                        if (&stream).write_all((head + &text).as_bytes()).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self {
            address,
            queues,
            asked,
        }
    }

    fn count(&self, path: &str) -> usize {
        self.asked.lock().iter().filter(|asked| *asked == path).count()
    }
}

fn gateway(console: &Console, name: &str, address: &str) -> String {
    let made = console.post(
        "/api/gateways",
        &json!({"name": name, "url": format!("http://{address}")}),
    );
    made.json["id"]
        .as_str()
        .unwrap_or_else(|| panic!("{}", made.text))
        .to_owned()
}

#[test]
fn accounts_that_do_not_add_up_are_bad_within_two_seconds_and_only_while_they_do_not() {
    let queues = json!({"q": {"accepted": 10, "dead_letters": 0, "groups": {"c0": {
        "indexed": 7, "dead": 0, "parked": 1, "pending": 2, "replayed": 0, "purged": 0, "skipped": 0, "lost": 0, "rewound": 0,
    }}}});
    let told = Told::new(queues.clone());
    let console = Console::start(&[]).set_up();
    let id = gateway(&console, "gw", &told.address);
    console.wait_for_row("gw", |row| row["state"] == "ok" && row["queues"]["pending"] == 2);
    // A busy machine may be late once.
    let (mut row, mut tries) = (Value::Null, 0);
    while tries < 4 {
        tries += 1;
        told.queues.lock()["q"]["groups"]["c0"]["indexed"] = json!(6);
        let began = Instant::now();
        row = console.wait_for_row("gw", |row| row["state"] == "bad");
        if began.elapsed() < Duration::from_secs(2) {
            break;
        }
        assert!(tries < 4, "{:?}", began.elapsed());
        *told.queues.lock() = queues.clone();
        console.wait_for_row("gw", |row| row["state"] == "ok");
    }
    assert_eq!(
        row["why"][0],
        "queue q, group c0: the accounts do not add up: 10 documents were accepted, 9 are accounted for"
    );
    let path = format!("/api/gateways/{id}/queues");
    let group = || console.get(&path).json["queues"]["q"]["groups"]["c0"].clone();
    assert_eq!(
        (&group()["adds_up"], &group()["accounted"], &group()["states"]),
        (&json!(false), &json!(10), &json!(9))
    );
    *told.queues.lock() = queues;
    console.wait_for_row("gw", |row| row["state"] == "ok");
    let began = Instant::now();
    while group()["adds_up"] != true {
        assert!(began.elapsed() < PATIENCE, "{:#}", group());
        std::thread::sleep(Duration::from_millis(100));
    }
    // Many pages cause only one question per second.
    std::thread::sleep(Duration::from_secs(1));
    let (before, began) = (told.count("/queue/stats"), Instant::now());
    for _ in 0..20 {
        assert_eq!(console.get(&path).status, 200);
    }
    let seconds = began.elapsed().as_secs() as usize;
    let asked = told.count("/queue/stats") - before;
    assert!(asked <= 2 + seconds, "{asked} in {seconds} s");
    assert_eq!(console.get("/api/gateways/none/queues").status, 404);
}

#[test]
fn a_real_gateways_queues_are_told_as_its_api_tells_them_and_its_lag_is_kept() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 6).storing()).unwrap();
    let place = GatewayHome::before(&[&cluster], "");
    let queueing = place.start();
    let console = Console::start(&[]).set_up();
    let id = gateway(&console, "gw", &queueing.admin.to_string());
    queueing.bulk(&body(60)).ok().unwrap();
    drained(&queueing, "c0");
    let shown = || console.get(&format!("/api/gateways/{id}/queues")).json;
    let began = Instant::now();
    // The page shows what the console asked for a second ago, or longer.
    while shown()["queues"]["q"]["groups"]["c0"]["indexed"] != 60 {
        assert!(began.elapsed() < PATIENCE, "{:#}", shown());
        std::thread::sleep(Duration::from_millis(100));
    }
    std::thread::sleep(Duration::from_secs(1));
    let told = shown();
    let own: Value = queueing
        .admin()
        .get("/queue/stats")
        .unwrap()
        .ok()
        .unwrap()
        .json()
        .unwrap();
    let (name, queue) = own.as_object().unwrap().iter().next().unwrap();
    let shown = &told["queues"][name];
    assert_eq!(
        (
            &shown["accepted"],
            &shown["groups"]["c0"]["indexed"],
            &shown["groups"]["c0"]["lanes"]
        ),
        (&json!(60), &json!(60), &queue["groups"]["c0"]["lanes"])
    );
    assert_eq!(shown["groups"]["c0"]["adds_up"], true);
    let pending = |console: &Console| {
        let lag = console
            .get(&format!("/api/gateways/{id}/lag?queue={name}&minutes=5"))
            .json;
        let values = lag["groups"]["c0"]["pending"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        values.iter().filter_map(Value::as_f64).fold(-1.0, f64::max)
    };
    let call = |method: &str, path: &str| {
        let call = json!({"method": method, "path": path});
        console.post(&format!("/api/gateways/{id}/call"), &call)
    };
    let pipeline = queue["groups"]["c0"]["pipeline"].as_str().unwrap();
    assert_eq!(
        call("POST", &format!("/pipeline/{pipeline}/_stop?wait_s=5")).json["status"],
        200
    );
    queueing.bulk(&body(40)).ok().unwrap();
    let began = Instant::now();
    while pending(&console) < 40.0 {
        assert!(began.elapsed() < PATIENCE, "{}", pending(&console));
        std::thread::sleep(Duration::from_millis(200));
    }
    while console.get(&format!("/api/gateways/{id}/queues")).json["queues"][name]["groups"]["c0"]["waits"][0]
        ["reason"]
        != "stopped"
    {
        assert!(began.elapsed() < PATIENCE, "it does not say that it is stopped");
        std::thread::sleep(Duration::from_millis(200));
    }
    let noted = console.get("/api/audit?limit=1").json;
    assert_eq!(
        noted["entries"][0]["what"],
        format!("POST /pipeline/{pipeline}/_stop?wait_s=5")
    );
}

#[test]
fn a_node_that_does_not_answer_is_named_within_three_seconds_with_what_it_holds() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 12).storing()).unwrap();
    let place = GatewayHome::before(&[&cluster], "");
    let queueing = place.start();
    let console = Console::start(&[]).set_up();
    let id = gateway(&console, "gw", &queueing.admin.to_string());
    let waits = || {
        let told = console.get(&format!("/api/gateways/{id}/queues")).json;
        told["queues"]["q"]["groups"]["c0"]["waits"].clone()
    };
    // A busy machine may be late a few times.
    for tries in 1.. {
        queueing.bulk(&body(60)).ok().unwrap();
        drained(&queueing, "c0");
        cluster.inject(Injection::bulk(Fault::HangUnwritten).on_node(1).always());
        queueing.bulk(&body(300)).ok().unwrap();
        let began = Instant::now();
        let slow = loop {
            let told = waits();
            let mut all = told.as_array().into_iter().flatten();
            if let Some(slow) = all.find(|one| one["reason"] == "slow_node") {
                break slow.clone();
            }
            assert!(began.elapsed() < PATIENCE, "{told:#}");
            std::thread::sleep(Duration::from_millis(50));
        };
        let took = began.elapsed();
        assert_eq!(slow["node"], "node-2", "{slow:#}");
        assert!(slow["documents"].as_u64().unwrap() > 0 && !slow["lanes"].as_array().unwrap().is_empty());
        cluster.behave();
        if took <= Duration::from_secs(3) {
            break;
        }
        assert!(tries < 5, "{took:?}");
    }
}

fn pipeline_of(gateway: &Gateway) -> String {
    let told = gateway.admin().get("/pipeline").unwrap().ok().unwrap();
    let pipelines: Value = told.json().unwrap();
    pipelines.as_object().unwrap().keys().next().unwrap().clone()
}

#[test]
fn calls_to_a_gateway_are_those_of_the_pages_and_its_clusters_fences_hold_for_them() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 2).storing()).unwrap();
    let place = GatewayHome::before(&[&cluster], "");
    let queueing = place.start();
    let console = Console::start(&[]).set_up();
    let cluster_id = console.register(json!({"name": "prod", "endpoints": cluster.urls()}));
    let id = gateway(&console, "gw", &queueing.admin.to_string());
    console.wait_for_row("gw", |row| row["state"] == "ok");
    let began = Instant::now();
    while console.get("/api/registry").json["gateways"][0]["clusters"][0]["cluster_id"] != json!(cluster_id) {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(100));
    }
    let call = |method: &str, path: &str, confirm: Value| {
        let call = json!({"method": method, "path": path, "confirm": confirm});
        console.post(&format!("/api/gateways/{id}/call"), &call)
    };
    for (method, path) in [
        ("GET", "/config"),
        ("PUT", "/switches/c0"),
        ("POST", "/queue/q/groups/c0/offset"),
        ("DELETE", "/dead_letters/1"),
        ("GET", "http://127.0.0.1:1/dead_letters"),
        ("POST", "/dead_letters"),
        ("GET", "/dead_letters/../config"),
    ] {
        assert_eq!(call(method, path, Value::Null).status, 400, "{method} {path}");
    }
    assert_eq!(call("GET", "/dead_letters", Value::Null).json["status"], 200);
    let purge = "/dead_letters/_purge?all=true&confirm=true";
    let register = |more: Value| {
        let mut entry = json!({"name": "prod", "endpoints": cluster.urls()});
        entry
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        assert_eq!(
            console.put(&format!("/api/clusters/{cluster_id}"), &entry).status,
            200
        );
    };
    register(json!({"read_only": true}));
    let refused = call("POST", purge, Value::Null);
    assert_eq!(
        (refused.status, &refused.json["error"]["type"]),
        (403, &json!("read_only"))
    );
    let hidden = "/dead_letters/_purge?all=true&confirm=true&reason=dry_run=true";
    assert_eq!(
        call("POST", hidden, Value::Null).status,
        403,
        "only a parameter counts"
    );
    assert_eq!(call("GET", "/dead_letters", Value::Null).json["status"], 200);
    assert_eq!(
        call("POST", "/dead_letters/_purge?all=true&dry_run=true", Value::Null).json["status"],
        200,
        "what only counts is no write"
    );
    let pipeline = format!("/pipeline/{}/_start?dry_run=true", pipeline_of(&queueing));
    for (method, path) in [("PUT", "/dead_letters/1?dry_run=true"), ("POST", &pipeline)] {
        assert_eq!(
            call(method, path, Value::Null).status,
            403,
            "{path}: only what can count is no write then"
        );
    }
    register(json!({"read_only": false, "protected": true}));
    let asked = call("POST", purge, Value::Null);
    assert_eq!(
        (asked.status, &asked.json["confirm"]["index"]),
        (409, &json!("gw"))
    );
    assert_eq!(
        call("POST", purge, json!({"index": "prod", "reason": "x"})).status,
        409
    );
    assert_eq!(
        call("POST", purge, json!({"index": "gw", "reason": "a repair"})).json["status"],
        200
    );
    assert_eq!(
        console.get("/api/audit?limit=1").json["entries"][0]["reason"],
        "a repair"
    );
}

#[test]
fn a_gateway_whose_token_only_reads_is_shown_and_refuses_to_be_acted_on_in_its_own_words() {
    let cluster = FakeCluster::start(Spec::default()).unwrap();
    let home = GatewayHome::before(&[&cluster], "");
    let text = std::fs::read_to_string(&home.file).unwrap();
    let guarded = "admin: {binding: '127.0.0.1:0', tokens: [{name: watch, token: only-looks-9}]}";
    let text = text.replace("admin: {binding: '127.0.0.1:0'}", guarded);
    std::fs::write(&home.file, text).unwrap();
    let gateway = Gateway::start(&["--config", home.file.to_str().unwrap()]);
    let console = Console::start(&[]).set_up();
    let entry = json!({"name": "gw", "url": format!("http://{}", gateway.admin), "token": "only-looks-9"});
    let told = console.post("/api/gateways", &entry);
    assert_eq!(told.status, 200, "{}", told.text);
    let row = console.wait_for_row("gw", |row| row["right"] == "read");
    let id = row["id"].as_str().unwrap();
    let queues = console.get(&format!("/api/gateways/{id}/queues"));
    assert_eq!(queues.status, 200, "{}", queues.text);
    let call = json!({"method": "POST", "path": "/pipeline/p0/_stop"});
    let told = console.post(&format!("/api/gateways/{id}/call"), &call).json;
    assert_eq!(told["status"], 403, "{told}");
    let words = told["body"].as_str().unwrap();
    assert!(
        words.contains("the token `watch` has the right `read`"),
        "{words}"
    );
    gateway.logged("\"actor\":\"ada (token watch)\"");
}
