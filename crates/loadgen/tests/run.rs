//! Runs load files end to end against the fake cluster.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use loadgen::{Load, Options, Report, Schedule, Stop};
use testkit::fake::{FakeCluster, Fault, Injection, Spec};

fn run(file: &str, options: &Options) -> Result<Report> {
    let loaded = Load::parse(file, Some("loadgen.yml"), Path::new(""), &|_| None)?;
    Ok(loadgen::run(
        &Arc::new(loaded.load),
        options,
        &Stop::default(),
        |_| (),
    )?)
}

fn limit(requests: u64, users: usize) -> Options {
    Options {
        requests_max: Some(requests),
        duration: None,
        users,
        ..Options::default()
    }
}

fn bulk(cluster: &FakeCluster, lines: u32) -> String {
    format!(
        r#"
variables:
  - {{name: id, type: sequence}}
  - {{name: user, type: list, data: [alice, bob]}}
requests:
  - request:
      method: POST
      url: {}/_bulk
      body_repeat_times: {lines}
      runtime_body_line_variables: {{doc: id}}
      body: |
        {{"index":{{"_index":"logs","_id":"$[[doc]]"}}}}
        {{"id":$[[doc]],"user":"$[[user]]"}}
"#,
        cluster.urls()[0]
    )
}

#[test]
fn a_limit_sends_exactly_so_many_requests_and_every_id_once() -> Result<()> {
    let cluster = FakeCluster::start(Spec::default().index("logs", 3).storing())?;
    let report = run(&bulk(&cluster, 25), &limit(40, 4))?;
    assert_eq!(
        (report.total.answers, report.total.errors, report.total.invalid),
        (40, 0, 0)
    );
    let documents = report.total.documents.expect("bulks were sent");
    assert_eq!(
        (documents.accepted, documents.failed, documents.unknown),
        (1_000, 0, 0)
    );
    let ids: BTreeSet<u32> = cluster
        .docs("logs")
        .keys()
        .map(|id| id.parse().expect("a number"))
        .collect();
    assert_eq!(ids, (1..=1_000).collect());
    assert_eq!(report.total.sent_bytes, cluster.counts().body_bytes);
    Ok(())
}

#[test]
fn documents_that_fail_inside_a_200_are_counted_as_failed() -> Result<()> {
    let cluster = FakeCluster::start(Spec::default().index("logs", 1))?;
    let refused = Fault::Items {
        every: 5,
        status: 429,
        error: r#"{"type":"es_rejected_execution_exception","reason":"full"}"#.to_owned(),
    };
    cluster.inject(Injection::bulk(refused).times(3));
    let report = run(&bulk(&cluster, 10), &limit(3, 1))?;
    let documents = report.total.documents.expect("bulks were sent");
    assert_eq!((documents.accepted, documents.failed), (24, 6));
    assert_eq!(documents.errors["es_rejected_execution_exception"], 6);
    assert_eq!((report.total.invalid, report.total.statuses[&200]), (3, 3));
    Ok(())
}

#[test]
fn requests_without_an_answer_are_errors_and_their_documents_of_unknown_fate() -> Result<()> {
    let cluster = FakeCluster::start(Spec::default().index("logs", 1))?;
    cluster.inject(
        Injection::bulk(Fault::Status {
            status: 503,
            body: "{}".into(),
        })
        .times(1),
    );
    let file = bulk(&cluster, 10);
    cluster.kill(0);
    let report = run(&file, &limit(2, 1))?;
    assert_eq!((report.total.answers, report.total.errors), (0, 2));
    assert_eq!(report.total.sent_bytes, 0, "nobody took a byte");
    assert_eq!(
        report.total.documents.map(|documents| documents.unknown),
        Some(20)
    );
    cluster.restart(0)?;
    let report = run(&file, &limit(2, 1))?;
    let documents = report.total.documents.expect("bulks were sent");
    assert_eq!((documents.refused, documents.accepted), (10, 10));
    Ok(())
}

#[test]
fn a_duration_ends_the_run_and_a_stop_does() -> Result<()> {
    let cluster = FakeCluster::start(Spec::default().index("logs", 1))?;
    let options = Options {
        duration: Some(Duration::from_millis(300)),
        users: 2,
        ..Options::default()
    };
    let begun = Instant::now();
    let report = run(&bulk(&cluster, 10), &options)?;
    assert!(report.total.answers > 2 && report.seconds >= 0.3, "{report:?}");
    let loaded = Load::parse(&bulk(&cluster, 10), None, Path::new(""), &|_| None)?;
    let stop = Stop::default();
    stop.stop();
    let report = loadgen::run(&Arc::new(loaded.load), &limit(1_000_000_000, 2), &stop, |_| ())?;
    assert_eq!(report.total.answers, 0);
    assert!(begun.elapsed() < Duration::from_secs(30));
    Ok(())
}

#[test]
fn packed_bodies_arrive_as_they_were() -> Result<()> {
    let cluster = FakeCluster::start(Spec::default().index("logs", 3).storing())?;
    let options = Options {
        gzip: Some(1),
        ..limit(2, 1)
    };
    let report = run(&bulk(&cluster, 100), &options)?;
    assert_eq!(
        report.total.documents.map(|documents| documents.accepted),
        Some(200)
    );
    assert_eq!(cluster.docs("logs").len(), 200);
    assert!(
        report.total.sent_bytes < 200 * 60 / 2,
        "{}",
        report.total.sent_bytes
    );
    Ok(())
}

#[test]
fn bytes_of_answers_count_as_they_travelled() -> Result<()> {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let text = "{\"hits\":[]}".repeat(1_000);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(text.as_bytes())?;
    let packed = packed.finish()?;
    let length = packed.len() as u64;
    std::thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        let (mut request, mut buffer) = (Vec::new(), [0; 1_024]);
        while !request.ends_with(b"\r\n\r\n") {
            let read = stream.read(&mut buffer)?;
            request.extend_from_slice(&buffer[..read]);
        }
        let head = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length";
        write!(stream, "{head}: {length}\r\n\r\n")?;
        stream.write_all(&packed)
    });
    let file = format!(
        "requests: [{{request: {{url: 'http://{address}/'}}, \
         assert: {{equals: {{_ctx.response.body_length: {}}}}}}}]\n",
        text.len()
    );
    let report = run(&file, &limit(1, 1))?;
    assert_eq!(
        (report.total.answers, report.total.invalid),
        (1, 0),
        "{:?}",
        report.total.invalid_by_kind
    );
    assert_eq!(report.total.received_bytes, length);
    Ok(())
}

#[test]
fn an_answer_with_errors_and_without_items_is_invalid() -> Result<()> {
    let cluster = FakeCluster::start(Spec::default().index("logs", 1))?;
    let filtered = Fault::Status {
        status: 200,
        body: r#"{"took":1,"errors":true}"#.to_owned(),
    };
    cluster.inject(Injection::bulk(filtered).times(1));
    let report = run(&bulk(&cluster, 10), &limit(1, 1))?;
    assert_eq!((report.total.answers, report.total.invalid), (1, 1));
    let documents = report.total.documents.expect("bulks were sent");
    assert_eq!((documents.accepted, documents.unknown), (0, 10));
    Ok(())
}

#[test]
fn credentials_headers_and_urls_take_variables() -> Result<()> {
    let spec = Spec::default().index("logs-5", 1).index("logs-6", 1);
    let cluster = FakeCluster::start(spec.basic_auth("admin", "s$cret").storing())?;
    let file = format!(
        r#"
env: {{LOGIN: "admin"}}
runner: {{default_endpoint: "{}"}}
variables:
  - {{name: password, type: list, data: ["s$cret"]}}
  - {{name: id, type: sequence, from: 5, to: 6}}
requests:
  - request:
      method: POST
      url: /logs-$[[id]]/_bulk
      basic_auth: {{username: "$[[env.LOGIN]]", password: "$[[password]]"}}
      headers:
        - X-Opaque-Id: "load of $[[password]]"
      body: "{{\"index\":{{}}}}\n{{}}"
"#,
        cluster.urls()[0]
    );
    let report = run(&file, &limit(4, 1))?;
    assert_eq!(
        report.total.statuses.get(&200),
        Some(&4),
        "{:?}",
        report.total.statuses
    );
    assert_eq!(
        (cluster.docs("logs-5").len(), cluster.docs("logs-6").len()),
        (2, 2)
    );
    Ok(())
}

#[test]
fn a_wrong_file_is_told_where_and_what_is_near() {
    let file = r#"
runer: {no_warm: true}
variables:
  - {name: id, type: sequense}
  - {name: user, type: list}
requests:
  - request:
      method: POST
      url: localhost:9200/_bulk
      body_repeat_time: 5
      body: '{"_id":"$[[idd]]"}'
"#;
    let rejected = Load::parse(file, Some("l.yml"), Path::new(""), &|_| None).unwrap_err();
    let lines: Vec<String> = rejected.problems.iter().map(ToString::to_string).collect();
    let all = lines.join("\n");
    for wanted in [
        "l.yml:2:1: error: runer: unknown key; did you mean `runner`?",
        "l.yml:4:22: error: variables[0].type: `sequense` is not a type of variable; did you mean `sequence`?",
        "l.yml:10:7: error: requests[0].request.body_repeat_time: unknown key; did you mean `body_repeat_times`?",
        "has no scheme",
        "there is not one value in it",
    ] {
        assert!(all.contains(wanted), "{wanted} is not in\n{all}");
    }
}

#[test]
fn what_an_answer_registers_is_what_later_requests_and_assertions_use() -> Result<()> {
    let cluster = FakeCluster::start(Spec::default().index("logs", 1).storing())?;
    let file = format!(
        r#"
runner: {{default_endpoint: "{}", reset_context: true}}
variables:
  - {{name: id, type: sequence}}
requests:
  - request:
      method: POST
      url: /_bulk
      body: |
        {{"index":{{"_index":"logs","_id":"doc-$[[id]]"}}}}
        {{}}
    register:
      - document: _ctx.response.body_json.items.0.index._id
      - status: _ctx.response.status
    sleep: {{sleep_in_milli_seconds: 1}}
  - request:
      method: GET
      url: /logs/_doc/$[[document]]
    assert:
      and:
        - equals: {{_ctx.response.status: 200, _ctx.response.body_json._id: "$[[document]]"}}
        - in: {{_ctx.response.status: ["$[[status]]", 201]}}
        - or:
            - contains: {{_ctx.response.header.content-type: xml}}
            - regexp: {{_ctx.response.header.content-type: "^application/json"}}
        - not: {{exists: [_ctx.response.body_json.error]}}
        - range: {{_ctx.elapsed.lt: 60000, _ctx.response.body_length: {{gt: 0}}}}
"#,
        cluster.urls()[0]
    );
    let file = file
        .replace("}'\n    register", "}\\n'\n    register")
        .replace("}}\n{}\\n'", "}}\\n{}\\n'");
    let file = file
        .replace("body: '", "body: \"")
        .replace("\\n{}\\n'", "\\n{}\\n\"");
    let options = Options {
        rounds_max: Some(5),
        duration: None,
        ..Options::default()
    };
    let report = run(&file, &options)?;
    assert_eq!(
        (report.total.answers, report.total.invalid),
        (10, 0),
        "{:?}",
        report.total.invalid_by_kind
    );
    assert_eq!(cluster.docs("logs").len(), 5);
    Ok(())
}

#[test]
fn a_round_ends_where_an_assertion_fails_unless_the_file_goes_on() -> Result<()> {
    let cluster = FakeCluster::start(Spec::default().index("logs", 1))?;
    let file = |goes_on: bool| {
        format!(
            r#"
runner: {{default_endpoint: "{}", continue_on_assert_invalid: {goes_on}}}
requests:
  - request: {{url: /_cat/nothing}}
    assert: {{equals: {{_ctx.response.status: 299}}}}
  - request: {{url: /, execute_repeat_times: 3}}
"#,
            cluster.urls()[0]
        )
    };
    let options = Options {
        rounds_max: Some(2),
        duration: None,
        ..Options::default()
    };
    let stopped = run(&file(false), &options)?;
    assert_eq!((stopped.total.answers, stopped.total.invalid), (2, 2));
    let (complaint, _) = stopped
        .total
        .invalid_by_kind
        .first_key_value()
        .expect("there is one");
    assert!(complaint.ends_with("not `299`"), "{complaint}");
    let went_on = run(&file(true), &options)?;
    assert_eq!((went_on.total.answers, went_on.total.invalid), (8, 2));
    Ok(())
}

#[test]
fn a_server_that_stalls_for_two_seconds_shows_in_the_percentiles_of_an_open_loop() -> Result<()> {
    let stalled = |schedule: Option<Schedule>| -> Result<Report> {
        let cluster = FakeCluster::start(Spec::default().index("logs", 1))?;
        cluster.inject(Injection::bulk(Fault::Delay(Duration::from_secs(2))).times(2));
        let options = Options {
            users: 2,
            duration: Some(Duration::from_secs(3)),
            schedule,
            ..Options::default()
        };
        run(&bulk(&cluster, 10), &options)
    };
    let closed = std::thread::spawn(move || stalled(None));
    let open = stalled(Schedule::constant(100.0))?;
    let closed = closed.join().expect("it does not panic")?;
    // In the closed loop the users wait during the stall with two requests under way, so it all but vanishes
    // from the figures.
    let latency = closed.total.latency_ms.expect("there were answers");
    assert!(latency.p90 < 1_000.0 && latency.max > 1_900.0, "{latency:?}");
    // The schedule had 200 of its 300 requests to send while the server stalled, and they waited.
    let latency = open.total.latency_ms.expect("there were answers");
    assert_eq!(open.total.answers + open.unsent, 300);
    assert!(latency.p50 > 300.0 && latency.p90 > 1_300.0, "{latency:?}");
    let service = open.total.service_ms.expect("on a schedule");
    assert!(service.p90 < 1_000.0, "{service:?}");
    Ok(())
}

#[test]
fn requests_that_a_schedule_could_not_send_are_counted() -> Result<()> {
    let cluster = FakeCluster::start(Spec::default().index("logs", 1))?;
    cluster.inject(Injection::bulk(Fault::Delay(Duration::from_millis(200))).always());
    let options = Options {
        duration: Some(Duration::from_millis(500)),
        schedule: Schedule::constant(100.0),
        ..Options::default()
    };
    let report = run(&bulk(&cluster, 1), &options)?;
    assert!(
        (2..=3).contains(&report.total.answers),
        "{}",
        report.total.answers
    );
    assert_eq!(report.total.answers + report.unsent, 50);
    assert!(report.to_string().contains("Not sent in time:"), "{report}");
    Ok(())
}

#[test]
fn what_comes_after_the_last_round_was_not_due() -> Result<()> {
    let cluster = FakeCluster::start(Spec::default().index("logs", 1))?;
    let options = |duration_ms, rounds| Options {
        users: 2,
        duration: Some(Duration::from_millis(duration_ms)),
        rounds_max: Some(rounds),
        schedule: Schedule::constant(100.0),
        ..Options::default()
    };
    let report = run(&bulk(&cluster, 1), &options(30_000, 10))?;
    assert_eq!((report.total.answers, report.unsent), (10, 0));
    assert!(report.seconds < 10.0, "{}", report.seconds);
    // What is left of the rounds at the end was due.
    cluster.inject(Injection::bulk(Fault::Delay(Duration::from_millis(200))).always());
    let report = run(&bulk(&cluster, 1), &options(500, 20))?;
    assert!(report.total.answers < 20, "{}", report.total.answers);
    assert_eq!(report.total.answers + report.unsent, 20);
    Ok(())
}

#[test]
fn what_an_assertion_leaves_out_of_a_round_was_not_due() -> Result<()> {
    let cluster = FakeCluster::start(Spec::default().index("logs", 1))?;
    let file = format!(
        r#"
runner: {{default_endpoint: "{}"}}
requests:
  - request: {{url: /, execute_repeat_times: 2}}
    assert: {{equals: {{_ctx.response.status: 299}}}}
  - request: {{url: /, execute_repeat_times: 3}}
"#,
        cluster.urls()[0]
    );
    let options = Options {
        rounds_max: Some(4),
        duration: Some(Duration::from_secs(30)),
        schedule: Schedule::constant(200.0),
        ..Options::default()
    };
    let report = run(&file, &options)?;
    assert_eq!((report.total.answers, report.unsent), (4, 0));
    Ok(())
}

#[test]
fn what_comes_after_a_stop_was_not_due() -> Result<()> {
    let cluster = FakeCluster::start(Spec::default().index("logs", 1))?;
    cluster.inject(Injection::bulk(Fault::Delay(Duration::from_secs(2))).always());
    let loaded = Load::parse(&bulk(&cluster, 1), None, Path::new(""), &|_| None)?;
    let stop = Stop::default();
    let options = Options {
        users: 2,
        duration: Some(Duration::from_secs(30)),
        schedule: Schedule::constant(1_000.0),
        ..Options::default()
    };
    let stopping = std::thread::spawn({
        let stop = stop.clone();
        move || {
            std::thread::sleep(Duration::from_millis(200));
            stop.stop();
            Instant::now()
        }
    });
    let begun = Instant::now();
    let report = loadgen::run(&Arc::new(loaded.load), &options, &stop, |_| ())?;
    let asked = stopping.join().expect("it does not panic");
    // The requests under way take two seconds, in which nothing more is due.
    let due = report.total.answers + report.unsent;
    let most = (asked - begun).as_millis() as u64 + 1;
    assert!(report.seconds > 1.9 && (2..=most).contains(&due), "{due} {most}");
    Ok(())
}

#[test]
fn a_schedule_sends_what_it_says_and_ends() -> Result<()> {
    let cluster = FakeCluster::start(Spec::default().index("logs", 1))?;
    let options = Options {
        users: 3,
        duration: None,
        schedule: Some(Schedule::parse("0..400/500ms,200/250ms").expect("it is one")),
        ..Options::default()
    };
    let report = run(&bulk(&cluster, 1), &options)?;
    assert_eq!((report.total.answers, report.unsent), (150, 0));
    assert!(report.seconds > 0.7, "{}", report.seconds);
    Ok(())
}

#[test]
fn the_report_comes_as_json_csv_and_html_that_agree() -> Result<()> {
    let cluster = FakeCluster::start(Spec::default().index("logs", 1))?;
    let report = run(&bulk(&cluster, 10), &limit(20, 2))?;
    let json: serde_json::Value = serde_json::to_value(&report)?;
    assert_eq!(json["answers"], 20);
    assert_eq!(json["documents"]["accepted"], 200);
    let mut csv = Vec::new();
    report.write_csv(&mut csv)?;
    let csv = String::from_utf8(csv)?;
    let columns: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
    assert!(
        columns.len() >= 2 && columns.iter().all(|count| *count == 14),
        "{csv}"
    );
    let seconds = json["timeline"].as_array().expect("a list");
    let answers: u64 = seconds
        .iter()
        .filter_map(|second| second["last"]["answers"].as_u64())
        .sum();
    assert_eq!(answers, 20);
    let mut html = Vec::new();
    report.write_html("a <title>", &mut html)?;
    let html = String::from_utf8(html)?;
    assert!(
        html.contains("a &lt;title&gt;") && html.contains("<td>Documents accepted<td>200"),
        "{html}"
    );
    assert!(
        !html.contains("http://") && !html.contains("https://"),
        "it loads nothing"
    );
    Ok(())
}

#[test]
fn the_files_of_the_manual_load() -> Result<()> {
    let page = include_str!("../../../docs/loadgen.md");
    let indented: Vec<&str> = page
        .split("\n\n    ")
        .skip(1)
        .map(|block| block.split("\n\n").next().unwrap_or(""))
        .collect();
    let start = indented
        .iter()
        .find_map(|block| block.split_once("<<'EOF'\n"))
        .expect("there is one to start with");
    let start = start
        .1
        .split("    EOF")
        .next()
        .unwrap_or("")
        .replace("\n    ", "\n");
    Load::parse(start.trim_start(), Some("start"), Path::new(""), &|_| None)?;
    let requests = indented
        .iter()
        .find(|block| block.starts_with("requests:"))
        .expect("there is one");
    let variables = "variables:\n  - {name: uuid, type: uuid}\n  - {name: index, type: list, data: [a]}\n";
    let file = format!("{variables}{}", requests.replace("\n    ", "\n"));
    Load::parse(&file, Some("requests"), Path::new(""), &|_| None)?;
    let assert = indented
        .iter()
        .find(|block| block.starts_with("assert:"))
        .expect("there is one");
    let file = format!("requests:\n  - request: {{url: 'http://a/'}}\n    {assert}\n");
    Load::parse(&file, Some("assert"), Path::new(""), &|_| None)?;
    Ok(())
}
