//! Alerts: they begin and end by themselves, a real receiver gets each message in its order, and silences
//! hold messages back.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::fake::{FakeCluster, Fault, Injection, On, Spec};

use super::process::Console;
use crate::gateway::{Gateway, body};
use crate::home::{GatewayHome, drained};

/// Enough for an alert that has to last a minute on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(150);

/// A receiver of webhooks: it answers with the statuses that are given to it, and with 200 after them.
struct Receiver {
    url: String,
    statuses: Arc<Mutex<Vec<u16>>>,
    /// Head, body and answered status of each request.
    heard: Arc<Mutex<Vec<(String, Value, u16)>>>,
}

impl Receiver {
    fn start(statuses: &[u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hooks/hunter2?a=b", listener.local_addr().unwrap());
        let statuses = Arc::new(Mutex::new(statuses.to_vec()));
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (says, hears) = (Arc::clone(&statuses), Arc::clone(&heard));
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let Some((head, body)) = read(&mut stream) else {
                    continue;
                };
                let mut says = says.lock();
                let status = if says.is_empty() { 200 } else { says.remove(0) };
                hears.lock().push((head, body, status));
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status} x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                );
            }
        });
        Self { url, statuses, heard }
    }

    /// Returns the messages that were taken, as status and rule.
    fn taken(&self) -> Vec<(String, String)> {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let heard = self.heard.lock();
        let taken = heard.iter().filter(|(_, _, status)| *status == 200);
        taken
            .map(|(_, body, _)| (word(&body["status"]), word(&body["rule"])))
            .collect()
    }
}

fn read(stream: &mut TcpStream) -> Option<(String, Value)> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut buffer).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let head = head.to_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))?;
        if body.len() >= length.trim().parse().ok()? {
            return Some((head.clone(), serde_json::from_str(body).ok()?));
        }
    }
}

fn until(console: &Console, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let told = console.get("/api/alerts").json;
        if holds(&told) {
            return told;
        }
        assert!(began.elapsed() < PATIENCE, "{what}: {told:#}\n{}", console.log());
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn has(told: &Value, list: &str, rule: &str) -> bool {
    told[list]
        .as_array()
        .unwrap()
        .iter()
        .any(|one| one["rule"] == rule)
}

fn register(console: &Console, gateway: &Gateway) -> String {
    let entry = json!({"name": "gw", "url": format!("http://{}", gateway.admin)});
    let made = console.post("/api/gateways", &entry).json;
    made["id"].as_str().unwrap().to_owned()
}

/// Waits until the receiver has taken these messages, and no other.
fn wait_for_messages(receiver: &Receiver, console: &Console, expected: &[(&str, &str)]) {
    let began = Instant::now();
    loop {
        let taken = receiver.taken();
        let taken: Vec<(&str, &str)> = taken.iter().map(|(status, rule)| (&**status, &**rule)).collect();
        if taken == expected {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{taken:?}\n{}", console.log());
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn dead_letters_and_a_silent_gateway_are_told_to_a_receiver_that_is_busy_at_first_and_so_is_their_end() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 2).storing()).unwrap();
    let place = GatewayHome::before(&[&cluster], "");
    let mut gateway = place.start();
    let receiver = Receiver::start(&[503, 429]);
    let console = Console::start(&[]).set_up();
    let hook = json!({"url": receiver.url, "secret": "s3cret"});
    assert_eq!(console.put("/api/alerts/webhook", &hook).status, 200);
    register(&console, &gateway);
    console.wait_for_row("gw", |row| row["state"] == "ok");
    let unfit = r#"{"type":"mapper_parsing_exception","reason":"failed to parse field [n]"}"#;
    let fault = Fault::Items {
        every: 1,
        status: 400,
        error: unfit.to_owned(),
    };
    cluster.inject(Injection::bulk(fault).always());
    gateway.bulk(&body(5)).ok().unwrap();
    drained(&gateway, "c0");
    cluster.behave();
    let told = until(&console, "dead letters", |told| {
        has(told, "active", "dead_letters")
    });
    let alert = &told["active"][0];
    assert_eq!(
        (&alert["name"], &alert["part"], &alert["severity"]),
        (&json!("gw"), &json!("q"), &json!("warn"))
    );
    assert_eq!(alert["words"], "queue q has 5 dead letters");
    let row = console.wait_for_row("gw", |row| !row["alerts"].as_array().unwrap().is_empty());
    assert_eq!(row["alerts"][0]["rule"], "dead_letters");
    let mut expected = vec![("firing", "dead_letters")];
    wait_for_messages(&receiver, &console, &expected);
    {
        let heard = receiver.heard.lock();
        let statuses: Vec<u16> = heard.iter().map(|(_, _, status)| *status).collect();
        assert_eq!(statuses, [503, 429, 200]);
        let ids: Vec<&Value> = heard.iter().map(|(_, body, _)| &body["id"]).collect();
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        let (head, body, _) = &heard[2];
        assert!(head.starts_with("post /hooks/hunter2?a=b http/1.1"), "{head}");
        assert!(head.contains("authorization: bearer s3cret"), "{head}");
        assert_eq!(
            (&body["target"]["name"], &body["text"]),
            (
                &json!("gw"),
                &json!("[firing] gateway gw: queue q has 5 dead letters")
            )
        );
    }
    // They are thrown away, and the alert ends by itself.
    let purged = gateway
        .admin()
        .send("POST", "/dead_letters/_purge?all=true&confirm=true", &[], b"");
    assert_eq!(purged.unwrap().status, 200);
    until(&console, "the letters' end", |told| {
        has(told, "ended", "dead_letters")
    });
    expected.push(("resolved", "dead_letters"));
    wait_for_messages(&receiver, &console, &expected);
    // A gateway that is gone, as the console finds after its restart, too: it is told once.
    gateway.signal("KILL");
    gateway.wait();
    until(&console, "silence", |told| has(told, "active", "no_answer"));
    expected.push(("firing", "no_answer"));
    wait_for_messages(&receiver, &console, &expected);
    let console = console.restarted();
    let login = json!({"name": "ada", "password": super::PASSWORD});
    assert_eq!(console.post("/api/login", &login).status, 200);
    until(&console, "it is still silent", |told| {
        has(told, "active", "no_answer")
    });
    drop(gateway);
    let id = console.get("/api/registry").json["gateways"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(console.delete(&format!("/api/gateways/{id}")).status, 200);
    expected.push(("resolved", "no_answer"));
    wait_for_messages(&receiver, &console, &expected);
}

#[test]
fn a_silence_holds_the_message_back_until_it_is_over_and_a_red_cluster_is_told_then() {
    let cluster = FakeCluster::start(Spec::default().index("logs", 2).storing()).unwrap();
    let red = r#"{"status":"red","number_of_nodes":3,"unassigned_shards":4}"#;
    let receiver = Receiver::start(&[]);
    let console = Console::start(&[]).set_up();
    let id = console.register(json!({"name": "prod", "endpoints": cluster.urls()}));
    let silence = |minutes: u32, reason: &str| {
        let wanted =
            json!({"rule": "cluster_red", "kind": "cluster", "id": id, "minutes": minutes, "reason": reason});
        console.post("/api/alerts/_silence", &wanted)
    };
    assert_eq!(silence(60, " ").status, 400, "a reason is wanted");
    assert_eq!(silence(60, "a disk is changed").status, 200);
    let tried = console.post("/api/alerts/webhook/_test", &json!({"url": receiver.url}));
    assert_eq!(tried.json["ok"], true, "{}", tried.text);
    assert_eq!(
        console
            .put("/api/alerts/webhook", &json!({"url": receiver.url}))
            .status,
        200
    );
    let kept = console.get("/api/alerts/webhook");
    assert!(!kept.text.contains("hunter2"), "{}", kept.text);
    cluster.inject(
        Injection::new(
            On::Path("/_cluster/health".to_owned()),
            Fault::Garbage(red.to_owned()),
        )
        .always(),
    );
    let told = until(&console, "red", |told| has(told, "active", "cluster_red"));
    let alert = &told["active"][0];
    assert_eq!(alert["words"], "health is red: 4 shards are not assigned");
    assert_eq!(alert["silence"]["reason"], "a disk is changed");
    let row = console.wait_for_row("prod", |row| row["alerts"][0]["silenced"] == true);
    assert_eq!(row["alerts"].as_array().unwrap().len(), 1);
    assert_eq!(receiver.taken(), [("test".to_owned(), String::new())]);
    assert_eq!(silence(0, "").status, 200);
    wait_for_messages(&receiver, &console, &[("test", ""), ("firing", "cluster_red")]);
    let audit = console.get("/api/audit").json["entries"].clone();
    let noted: Vec<&str> = audit
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|entry| entry["what"].as_str())
        .take(3)
        .collect();
    assert_eq!(noted, ["end silence", "set webhook", "silence alert"]);
    assert!(!audit.to_string().contains("hunter2"));
    assert_eq!(console.delete("/api/alerts/webhook").status, 200);
    assert_eq!(console.get("/api/alerts/webhook").json["webhook"], Value::Null);
    assert!(receiver.statuses.lock().is_empty());
}
