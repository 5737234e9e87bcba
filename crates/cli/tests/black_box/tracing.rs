//! Traces: the spans of a request reach a collector, and a client's trace goes on to the nodes.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::Barrier;
use std::time::Duration;

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use testkit::client::Answer;
use testkit::fake::{Behaviour, FakeCluster, Spec};

use crate::collector::{Collector, number, text};
use crate::gateway::{Gateway, body, cluster, replace_text};
use crate::home::{GatewayHome, drained, wait};
use crate::parked::{docs, two_indices};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CLIENT: &str = "00f067aa0ba902b7";

fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{CLIENT}-{flags}")
}

fn section(endpoint: &str, more: &str) -> String {
    format!("tracing: {{enabled: true, sample: 0, otlp: {{endpoint: '{endpoint}'}}{more}}}\n")
}

/// A gateway in synchronous mode whose file changes.
struct Traced {
    gateway: Gateway,
    cluster: FakeCluster,
    folder: tempfile::TempDir,
}

impl Traced {
    fn with(section: &str) -> Self {
        Self::before(cluster(), section)
    }

    fn before(cluster: FakeCluster, section: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tidegate.yml");
        std::fs::write(&file, Self::text(&cluster, section)).unwrap();
        let gateway = Gateway::start(&["--config", file.to_str().unwrap()]);
        gateway.wait_until("the topology is known", |status| status["state"] == "watching");
        Self {
            gateway,
            cluster,
            folder,
        }
    }

    fn text(cluster: &FakeCluster, section: &str) -> String {
        format!(
            "admin: {{binding: '127.0.0.1:0'}}
entry: [{{name: e, router: r, network: {{binding: '127.0.0.1:0'}}}}]
router: [{{name: r, default_flow: f}}]
flow:
  - name: f
    filter:
      - bulk_reshuffle: {{elasticsearch: c, mode: sync, combine: {{enabled: true}}}}
      - elasticsearch: {{elasticsearch: c}}
elasticsearch: [{{name: c, endpoint: '{}'}}]
{section}",
            cluster.urls()[0]
        )
    }

    fn change(&self, section: &str) {
        let reloads = self.gateway.log().matches("configuration reloaded").count();
        let file = self.folder.path().join("tidegate.yml");
        replace_text(&file, &Self::text(&self.cluster, section));
        let began = std::time::Instant::now();
        while self.gateway.log().matches("configuration reloaded").count() == reloads {
            assert!(
                began.elapsed() < crate::gateway::PATIENCE,
                "{}",
                self.gateway.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a bulk of 300 documents with this `traceparent`.
    fn bulk(&self, traceparent: &str) -> Answer {
        bulk(&self.gateway, traceparent)
    }

    /// Returns the `traceparent` headers that nodes got in this trace.
    fn arrived(&self, trace: &str) -> BTreeSet<String> {
        let all = self.cluster.traceparents().into_iter();
        all.filter(|one| one.contains(trace)).collect()
    }

    fn metric(&self, name: &str) -> u64 {
        let page = self.gateway.admin().get("/metrics").unwrap().text();
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name}"))
            .trim()
            .parse()
            .unwrap()
    }
}

fn bulk(gateway: &Gateway, traceparent: &str) -> Answer {
    let headers = [
        ("content-type", "application/x-ndjson"),
        ("traceparent", traceparent),
        ("x-request-id", "mine"),
    ];
    let client = gateway.client();
    client
        .send("POST", "/logs/_bulk", &headers, body(300).as_bytes())
        .unwrap()
        .ok()
        .unwrap()
}

fn named<'a>(spans: &'a [Span], name: &str) -> Vec<&'a Span> {
    spans.iter().filter(|span| span.name == name).collect()
}

fn one<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let [one] = named(spans, name)[..] else {
        let names: Vec<_> = spans.iter().map(|span| &*span.name).collect();
        panic!("not one {name}: {names:?}")
    };
    one
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns how a span is told to whom it calls.
fn told(span: &Span) -> String {
    format!("00-{}-{}-01", hex(&span.trace_id), hex(&span.span_id))
}

#[test]
fn a_bulk_has_a_span_for_each_step_and_each_part_in_its_clients_trace() {
    let collector = Collector::start();
    let more = ", attributes: {deployment.environment.name: test}";
    let traced = Traced::with(&section(&collector.endpoint(), more));
    traced.bulk(&traceparent("01"));
    let spans = collector.wait("the request's own span", |spans| {
        spans.iter().any(|span| span.name == "POST _bulk")
    });
    let request = one(&spans, "POST _bulk");
    assert!(spans.iter().all(|span| hex(&span.trace_id) == TRACE));
    assert_eq!(hex(&request.parent_span_id), CLIENT);
    assert_eq!(request.kind(), SpanKind::Server);
    for (key, value) in [
        ("url.path", "/logs/_bulk"),
        ("tidegate.request_id", "mine"),
        ("tidegate.entry", "e"),
    ] {
        assert_eq!(text(&request.attributes, key).as_deref(), Some(value), "{key}");
    }
    assert_eq!(
        number(&request.attributes, "http.response.status_code"),
        Some(200)
    );
    for step in ["read", "plan", "merge"] {
        let step = one(&spans, step);
        assert_eq!(step.parent_span_id, request.span_id);
        assert!(request.start_time_unix_nano <= step.start_time_unix_nano);
        assert!(step.end_time_unix_nano <= request.end_time_unix_nano);
    }
    let plan = one(&spans, "plan");
    assert_eq!(number(&plan.attributes, "tidegate.operations"), Some(300));
    assert_eq!(number(&plan.attributes, "tidegate.parts"), Some(3));
    let parts = named(&spans, "part");
    assert_eq!(parts.len(), 3, "one for each node");
    let operations = parts
        .iter()
        .map(|part| number(&part.attributes, "tidegate.operations").unwrap());
    assert_eq!(operations.sum::<i64>(), 300);
    assert!(
        parts
            .iter()
            .all(|part| part.kind() == SpanKind::Client && part.parent_span_id == request.span_id)
    );
    // Each node was told of its own part.
    assert_eq!(
        traced.arrived(TRACE),
        parts.iter().map(|part| told(part)).collect()
    );
    assert_eq!(collector.resource("service.name").as_deref(), Some("tidegate"));
    assert_eq!(
        collector.resource("deployment.environment.name").as_deref(),
        Some("test")
    );
    let head = &collector.heads()[0];
    assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("content-type: application/x-protobuf"), "{head}");
}

#[test]
fn a_request_that_is_no_bulk_has_one_span_for_its_way_to_a_node() {
    let collector = Collector::start();
    let traced = Traced::with(&section(&collector.endpoint(), ""));
    let headers = [("traceparent", &*traceparent("01"))];
    traced
        .gateway
        .client()
        .send("GET", "/logs/_search", &headers, b"")
        .unwrap();
    let spans = collector.wait("both spans", |spans| spans.len() >= 2);
    let (request, forward) = (one(&spans, "GET _search"), one(&spans, "forward"));
    assert_eq!(forward.parent_span_id, request.span_id);
    assert_eq!(traced.arrived(TRACE), BTreeSet::from([told(forward)]));
}

#[test]
fn requests_that_are_not_sampled_go_on_with_the_headers_that_they_came_with() {
    let collector = Collector::start();
    let traced = Traced::with(&section(&collector.endpoint(), ""));
    traced.bulk(&traceparent("00"));
    assert_eq!(traced.arrived(TRACE), BTreeSet::from([traceparent("00")]));
    traced.change("");
    traced.bulk(&traceparent("01"));
    let both = BTreeSet::from([traceparent("00"), traceparent("01")]);
    assert_eq!(traced.arrived(TRACE), both, "nobody records");
    assert!(collector.spans().is_empty() && collector.heads().is_empty());
}

#[test]
fn a_reload_switches_traces_on_and_off_and_changes_what_is_sampled() {
    let collector = Collector::start();
    let traced = Traced::with("");
    traced.gateway.bulk(&body(10));
    let all = format!(
        "tracing: {{enabled: true, sample: 1, otlp: {{endpoint: '{}'}}}}\n",
        collector.endpoint()
    );
    traced.change(&all);
    traced.gateway.bulk(&body(10));
    let spans = collector.wait("a request's span", |spans| {
        spans.iter().any(|span| span.name == "POST _bulk")
    });
    let request = one(&spans, "POST _bulk");
    assert!(request.parent_span_id.is_empty(), "the trace begins here");
    let parts: BTreeSet<_> = named(&spans, "part").into_iter().map(told).collect();
    assert_eq!(traced.arrived(&hex(&request.trace_id)), parts);
    traced.change("");
    let before = traced.cluster.traceparents().len();
    traced.gateway.bulk(&body(10));
    assert_eq!(traced.cluster.traceparents().len(), before);
}

#[test]
fn what_is_queued_is_linked_from_its_delivery_to_its_acceptance() {
    let (cluster, collector) = (cluster(), Collector::start());
    let home = GatewayHome::before(&[&cluster], "");
    home.append(&section(&collector.endpoint(), ""));
    let gateway = home.start();
    bulk(&gateway, &traceparent("01"));
    drained(&gateway, "c0");
    let spans = collector.wait("the delivery's spans", |spans| {
        spans.iter().any(|span| span.name == "POST _bulk") && named(spans, "deliver").len() == 4
    });
    let (request, append) = (one(&spans, "POST _bulk"), one(&spans, "append"));
    assert_eq!(append.parent_span_id, request.span_id);
    assert_eq!(append.kind(), SpanKind::Producer);
    let mut operations = 0;
    for deliver in named(&spans, "deliver") {
        assert_eq!(deliver.kind(), SpanKind::Consumer);
        assert_ne!(hex(&deliver.trace_id), TRACE, "it is a trace of its own");
        let [link] = &deliver.links[..] else {
            panic!("{deliver:?}")
        };
        assert_eq!(
            (&link.trace_id, &link.span_id),
            (&append.trace_id, &append.span_id)
        );
        assert_eq!(text(&deliver.attributes, "tidegate.queue").as_deref(), Some("q"));
        operations += number(&deliver.attributes, "tidegate.operations").unwrap();
        let trace = &deliver.trace_id;
        let mut parts = spans
            .iter()
            .filter(|span| span.name == "part" && span.trace_id == *trace);
        assert!(parts.all(|part| part.parent_span_id == deliver.span_id));
    }
    assert_eq!(operations, 300);
    let carried = named(&spans, "part");
    let carried = carried
        .iter()
        .filter(|part| number(&part.attributes, "http.response.status_code").is_some());
    let arrived: BTreeSet<_> = cluster.traceparents().into_iter().collect();
    for part in carried {
        assert!(arrived.contains(&told(part)));
    }
    assert!(
        !arrived
            .iter()
            .any(|one| one.contains(TRACE) && one.contains(CLIENT))
    );
}

#[test]
fn a_later_try_of_what_is_parked_has_a_span_that_is_linked_to_its_acceptance() {
    let (cluster, collector) = (two_indices(), Collector::start());
    let home = GatewayHome::before(&[&cluster], "");
    home.append(&section(&collector.endpoint(), ""));
    let gateway = home.start();
    let blocked = r#"{"type":"cluster_block_exception","reason":"index [blocked] blocked by: [FORBIDDEN/8/index write (api)];"}"#;
    cluster.refuse_writes("blocked", Some((403, blocked)));
    let headers = [
        ("content-type", "application/x-ndjson"),
        ("traceparent", &*traceparent("01")),
    ];
    for (lines, headers) in [
        (docs("blocked", 20, 1), &headers[..]),
        (docs("blocked", 5, 2), &headers[..1]),
    ] {
        let client = gateway.client();
        client
            .send("POST", "/_bulk", headers, lines.as_bytes())
            .unwrap()
            .ok()
            .unwrap();
    }
    wait(&gateway, "c0", |one| one["parked"] == 25 && one["pending"] == 0);
    let spans = collector.wait("the acceptance", |spans| !named(spans, "append").is_empty());
    let append = one(&spans, "append").clone();
    // What is parked is read again from the disk.
    drop(gateway);
    let before = collector.spans().len();
    let gateway = home.start();
    cluster.refuse_writes("blocked", None);
    drained(&gateway, "c0");
    let retried = |spans: &[Span]| {
        let of_parked = |span: &Span| text(&span.attributes, "tidegate.parked").is_some();
        let all = named(spans, "deliver")
            .into_iter()
            .filter(|span| of_parked(span))
            .cloned();
        all.collect::<Vec<_>>()
    };
    let carried_by = |spans: &[Span], deliver: &Span| {
        let parts = named(spans, "part").into_iter();
        let mut own = parts.filter(|part| part.parent_span_id == deliver.span_id);
        own.any(|part| cluster.traceparents().contains(&told(part)))
    };
    let spans = collector.wait("a later try, with its part", |spans| {
        let spans = &spans[before..];
        retried(spans).iter().any(|deliver| carried_by(spans, deliver))
    });
    for deliver in retried(&spans) {
        assert_eq!(deliver.kind(), SpanKind::Consumer);
        assert_ne!(hex(&deliver.trace_id), TRACE, "it is a trace of its own");
        let [link] = &deliver.links[..] else {
            panic!("{deliver:?}")
        };
        assert_eq!(
            (&link.trace_id, &link.span_id),
            (&append.trace_id, &append.span_id)
        );
        let key = text(&deliver.attributes, "tidegate.parked");
        assert_eq!(key.as_deref(), Some("index:blocked"));
    }
}

#[test]
fn traced_bulks_that_travel_together_each_have_their_wait_and_their_part() {
    const CLIENTS: usize = 8;
    let behaviour = Behaviour {
        latency: Duration::from_millis(50),
        ..Behaviour::default()
    };
    let spec = Spec {
        nodes: 1,
        behaviour,
        ..Spec::default()
    };
    let cluster = FakeCluster::start(spec.index("logs", 1).storing()).unwrap();
    let collector = Collector::start();
    let traced = Traced::before(cluster, &section(&collector.endpoint(), ""));
    let start = Barrier::new(CLIENTS);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (start, traced) = (&start, &traced);
            scope.spawn(move || {
                start.wait();
                for round in 1..=4 {
                    traced.bulk(&format!("00-{:032x}-{CLIENT}-01", client * 10 + round));
                }
            });
        }
    });
    let requests = CLIENTS * 4;
    let spans = collector.wait("all requests' spans", |spans| {
        named(spans, "POST _bulk").len() == requests
    });
    assert!(traced.gateway.counter("combined_parts") > 0);
    let mut waited = 0;
    for request in named(&spans, "POST _bulk") {
        let own: Vec<_> = spans
            .iter()
            .filter(|span| span.trace_id == request.trace_id)
            .collect();
        let parts = own.iter().filter(|span| span.name == "part");
        assert_eq!(
            parts.count(),
            1,
            "{:?}",
            own.iter().map(|span| &span.name).collect::<Vec<_>>()
        );
        waited += own.iter().filter(|span| span.name == "wait").count();
    }
    let combined = traced.gateway.counter("combined_parts");
    assert!(
        waited as u64 >= combined,
        "{waited} waits, {combined} parts that travelled with others"
    );
    let carried = named(&spans, "part");
    let carried = carried
        .iter()
        .filter(|part| number(&part.attributes, "http.response.status_code").is_some());
    let arrived: BTreeSet<_> = traced.cluster.traceparents().into_iter().collect();
    assert_eq!(carried.map(|part| told(part)).collect::<BTreeSet<_>>(), arrived);
}

#[test]
fn a_collector_that_is_away_costs_spans_and_no_requests() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let all =
        format!("tracing: {{enabled: true, sample: 1, otlp: {{endpoint: '{endpoint}', timeout: 1s}}}}\n");
    let traced = Traced::with(&all);
    // The socket takes connections, and nobody answers.
    let client = traced.gateway.client();
    while traced.metric("tidegate_spans_dropped_total{why=\"queue_full\"}") == 0 {
        client
            .post_ndjson("/_bulk", body(3).as_bytes())
            .unwrap()
            .ok()
            .unwrap();
    }
    let collector = Collector::listening(listener);
    collector.wait("it is back, and gets spans", |spans| !spans.is_empty());
}

#[test]
fn a_request_that_the_collector_has_no_time_for_comes_again_and_one_that_it_refuses_does_not() {
    let collector = Collector::start();
    let traced = Traced::with(&section(&collector.endpoint(), ""));
    collector.answer(&[503]);
    traced.bulk(&traceparent("01"));
    collector.wait("they came again", |spans| !spans.is_empty());
    let exported = traced.metric("tidegate_spans_exported_total");
    assert!(exported > 0);
    collector.answer(&[400]);
    traced.bulk(&traceparent("01"));
    traced.gateway.logged("spans were not exported");
    assert!(traced.gateway.log().contains("the collector answers 400"));
    assert!(traced.metric("tidegate_spans_dropped_total{why=\"not_exported\"}") > 0);
}

#[test]
fn what_is_exported_is_compressed_if_the_configuration_says_so_and_else_not() {
    let collector = Collector::start();
    let traced = Traced::with(&section(&collector.endpoint(), ""));
    let mut bytes = Vec::new();
    for compression in ["none", "gzip"] {
        traced.change(&format!(
            "tracing: {{enabled: true, sample: 0, otlp: {{endpoint: '{}', compression: {compression}}}}}\n",
            collector.endpoint()
        ));
        let before = (collector.spans().len(), collector.heads().len());
        traced.bulk(&traceparent("01"));
        let spans = collector.wait("the request's own span", |spans| {
            spans[before.0..].iter().any(|span| span.name == "POST _bulk")
        });
        assert_eq!(named(&spans[before.0..], "part").len(), 3);
        let heads = collector.heads().split_off(before.1);
        let packed = heads
            .iter()
            .filter(|head| head.contains("content-encoding: gzip\r\n"));
        assert_eq!(
            packed.count(),
            if compression == "gzip" { heads.len() } else { 0 }
        );
        let length = |head: &String| {
            let after = head.split_once("content-length: ").unwrap().1;
            after.split("\r\n").next().unwrap().parse::<usize>().unwrap()
        };
        bytes.push(heads.iter().map(length).sum::<usize>());
    }
    assert!(bytes[1] < bytes[0], "{bytes:?}");
}

#[test]
fn a_stop_exports_what_was_traced_until_then() {
    let collector = Collector::start();
    let mut traced = Traced::with(&section(&collector.endpoint(), ""));
    traced.bulk(&traceparent("01"));
    traced.gateway.signal("TERM");
    assert!(traced.gateway.wait().success());
    assert_eq!(named(&collector.spans(), "POST _bulk").len(), 1);
}

#[test]
fn a_collectors_certificate_is_checked_and_headers_are_sent_but_never_told() {
    // It is no collector: it refuses what it is sent, but only after the handshake.
    let other = FakeCluster::start(Spec::default().tls()).unwrap();
    let ca = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(ca.path(), other.ca_pem().unwrap()).unwrap();
    let secured = |tls: &str| {
        format!(
            "tracing: {{enabled: true, sample: 0, otlp: {{endpoint: '{}', headers: {{x-key: geheim}}, tls: {{{tls}}}}}}}\n",
            other.urls()[0]
        )
    };
    let traced = Traced::with(&secured(&format!("ca_file: '{}'", ca.path().display())));
    traced.bulk(&traceparent("01"));
    traced.gateway.logged("the collector answers");
    let stranger = Traced::with(&secured(""));
    let requests = other.counts().requests;
    stranger.bulk(&traceparent("01"));
    stranger.gateway.logged("spans were not exported");
    assert_eq!(other.counts().requests, requests, "nothing was sent");
    assert!(!traced.gateway.log().contains("geheim") && !stranger.gateway.log().contains("geheim"));
    let collector = Collector::start();
    traced.change(&format!(
        "tracing: {{enabled: true, sample: 0, otlp: {{endpoint: '{}', headers: {{x-key: geheim}}}}}}\n",
        collector.endpoint()
    ));
    traced.bulk(&traceparent("01"));
    collector.wait("a span", |spans| !spans.is_empty());
    assert!(collector.heads()[0].contains("x-key: geheim"));
}
