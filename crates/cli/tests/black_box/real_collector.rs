//! Traces before the real thing: the OTLP receiver of the OpenTelemetry collector, which Go (1.26 or later)
//! builds from `tests/collector`. Ignored unless asked for, because that takes a minute.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;
use testkit::fake::{FakeCluster, Spec};

use crate::gateway::{Gateway, PATIENCE, body, cluster, free_address};
use crate::go;

/// A running receiver; dropping it ends it.
struct Receiver {
    process: Child,
    lines: Arc<Mutex<Vec<Value>>>,
    grpc: SocketAddr,
    http: SocketAddr,
}

/// Builds the receiver, once.
fn program() -> PathBuf {
    static BUILT: OnceLock<tempfile::TempDir> = OnceLock::new();
    go::program("collector", &BUILT)
}

impl Receiver {
    /// Starts a receiver; with TLS if there are a certificate and its key.
    fn start(secured: &[&Path]) -> Self {
        let (grpc, http) = (free_address(), free_address());
        let mut process = Command::new(program())
            .args([grpc.to_string(), http.to_string()])
            .args(secured)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap()).lines();
        let listens = output.next().unwrap().unwrap();
        assert_eq!(listens, "{}");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in output.map_while(Result::ok) {
                kept.lock().push(serde_json::from_str(&line).unwrap());
            }
        });
        Self {
            process,
            lines,
            grpc,
            http,
        }
    }

    /// Returns the spans so far, as OTLP's JSON has them.
    fn spans(&self) -> Vec<Value> {
        let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
        let requests = self.lines.lock().clone();
        let groups = requests.iter().flat_map(|request| list(request, "resourceSpans"));
        let scopes = groups.flat_map(|group| list(&group, "scopeSpans"));
        scopes.flat_map(|scope| list(&scope, "spans")).collect()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CLIENT: &str = "00f067aa0ba902b7";

/// Sends a traced bulk before a gateway that exports to the receiver in this way, and checks its spans.
fn export(receiver: &Receiver, otlp: &str) {
    let (cluster, folder) = (cluster(), tempfile::tempdir().unwrap());
    let file = folder.path().join("tidegate.yml");
    let text = format!(
        "admin: {{binding: '127.0.0.1:0'}}
entry: [{{name: e, router: r, network: {{binding: '127.0.0.1:0'}}}}]
router: [{{name: r, default_flow: f}}]
flow: [{{name: f, filter: [{{bulk_reshuffle: {{elasticsearch: c, mode: sync}}}}, {{elasticsearch: {{elasticsearch: c}}}}]}}]
elasticsearch: [{{name: c, endpoint: '{}'}}]
tracing: {{enabled: true, sample: 0, otlp: {{{otlp}}}}}
",
        cluster.urls()[0]
    );
    std::fs::write(&file, text).unwrap();
    let gateway = Gateway::start(&["--config", file.to_str().unwrap()]);
    gateway.wait_until("the topology is known", |status| status["state"] == "watching");
    let parent = format!("00-{TRACE}-{CLIENT}-01");
    let headers = [
        ("content-type", "application/x-ndjson"),
        ("traceparent", &*parent),
    ];
    // Two bulks, a moment apart, travel in two requests on one connection.
    for requests in 1..=2 {
        let client = gateway.client();
        client
            .send("POST", "/_bulk", &headers, body(300).as_bytes())
            .unwrap()
            .ok()
            .unwrap();
        let began = Instant::now();
        let of = |name: &str| {
            receiver
                .spans()
                .iter()
                .filter(|span| span["name"] == name)
                .count()
        };
        while of("POST _bulk") < requests || of("part") < 3 * requests {
            let log = gateway.log();
            assert!(
                began.elapsed() < PATIENCE,
                "{otlp}: {:#?}\n{log}",
                receiver.spans()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    let spans = receiver.spans();
    assert!(spans.iter().all(|span| span["traceId"] == TRACE));
    let request = spans.iter().find(|span| span["name"] == "POST _bulk").unwrap();
    assert_eq!(
        (&request["parentSpanId"], &request["kind"]),
        (&CLIENT.into(), &2.into())
    );
    let part = spans.iter().find(|span| span["name"] == "part").unwrap();
    assert_eq!(part["kind"], 3);
    let names = spans.iter().map(|span| span["name"].as_str().unwrap());
    for step in ["read", "plan", "merge"] {
        assert_eq!(names.clone().filter(|name| *name == step).count(), 2, "{step}");
    }
    receiver.lines.lock().clear();
}

#[test]
#[ignore = "builds a receiver with Go"]
fn a_real_collector_takes_spans_by_both_protocols() {
    let receiver = Receiver::start(&[]);
    for compression in ["none", "gzip"] {
        let more = format!("compression: {compression}");
        export(
            &receiver,
            &format!("endpoint: 'http://{}', {more}", receiver.http),
        );
        export(
            &receiver,
            &format!("endpoint: 'http://{}', protocol: grpc, {more}", receiver.grpc),
        );
    }
}

#[test]
#[ignore = "builds a receiver with Go"]
fn a_real_collector_takes_spans_by_both_protocols_under_tls() {
    let identity = FakeCluster::start(Spec::default().tls()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("c.pem"), folder.path().join("c.key"));
    std::fs::write(&certificate, identity.ca_pem().unwrap()).unwrap();
    std::fs::write(&key, identity.key_pem().unwrap()).unwrap();
    let receiver = Receiver::start(&[&certificate, &key]);
    let tls = format!("tls: {{ca_file: '{}'}}", certificate.display());
    export(
        &receiver,
        &format!("endpoint: 'https://{}', {tls}", receiver.http),
    );
    export(
        &receiver,
        &format!("endpoint: 'https://{}', protocol: grpc, {tls}", receiver.grpc),
    );
}
