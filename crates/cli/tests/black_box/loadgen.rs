//! `tidegate loadgen`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use testkit::fake::{FakeCluster, Fault, Injection, On, Spec};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn loadgen(cluster: &FakeCluster, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("loadgen")
        .args(arguments)
        .env("ES_ENDPOINT", &cluster.urls()[0])
        .current_dir(root())
        .output()
        .unwrap()
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn the_example_with_sequence_ids_writes_each_of_them_once() {
    let cluster = FakeCluster::start(Spec::default().index("loadgen", 6).storing()).unwrap();
    let output = loadgen(
        &cluster,
        &[
            "-config",
            "examples/loadgen/sequence.yml",
            "-l",
            "6",
            "-c",
            "3",
            "--json",
        ],
    );
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = report(&output);
    assert_eq!(
        (&report["answers"], &report["documents"]["accepted"]),
        (&6.into(), &6_000.into())
    );
    let docs = cluster.docs("loadgen");
    assert_eq!(docs.len(), 6_000);
    assert!((1..=6_000).all(|id| docs.contains_key(&id.to_string())));
}

#[test]
fn the_bulk_example_never_writes_an_id_twice_and_takes_its_lines_from_the_environment() {
    let cluster = FakeCluster::start(Spec::default().index("loadgen", 6).storing()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command
        .args([
            "loadgen",
            "--config",
            "examples/loadgen/bulk.yml",
            "--l=4",
            "--compress",
            "--json",
        ])
        .envs([("ES_ENDPOINT", cluster.urls()[0].as_str()), ("LINES", "10000")])
        .current_dir(root());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = report(&output);
    assert_eq!(report["documents"]["accepted"], 40_000);
    assert_eq!(report["documents"]["statuses"]["201"], 40_000);
    assert_eq!(cluster.docs("loadgen").len(), 40_000);
}

#[test]
fn the_search_example_asks_for_users_of_its_file_and_its_assertions_judge() {
    let cluster = FakeCluster::start(Spec::default().index("loadgen", 1)).unwrap();
    let found = Fault::Status {
        status: 200,
        body: r#"{"took":1,"hits":{"total":{"value":3}}}"#.to_owned(),
    };
    cluster.inject(Injection::new(On::Path("/loadgen/_search".to_owned()), found).times(21));
    let file = "examples/loadgen/search.yml";
    let output = loadgen(&cluster, &["-config", file, "-l", "20", "-c", "2"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(
        text.contains("20 requests in") && text.contains("Invalid answers:"),
        "{text}"
    );
    assert!(String::from_utf8_lossy(&output.stderr).contains("warm-up: GET /loadgen/_search → 200"));
    // From now on the index is gone: the warm-up allows that, but the assertions don't.
    let gone = Fault::Status {
        status: 404,
        body: r#"{"error":{"type":"index_not_found_exception"}}"#.to_owned(),
    };
    cluster.inject(Injection::new(On::Path("/loadgen/_search".to_owned()), gone).times(6));
    let output = loadgen(&cluster, &["-config", file, "-l", "5", "--json"]);
    let report = report(&output);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!((&report["answers"], &report["invalid"]), (&5.into(), &5.into()));
}

#[test]
fn a_warm_up_that_goes_wrong_stops_where_nobody_can_be_asked() {
    let cluster = FakeCluster::start(Spec::default()).unwrap();
    cluster.kill(0);
    let output = loadgen(&cluster, &["-config", "examples/loadgen/search.yml", "-d", "1"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("no terminal to ask"),
        "{output:?}"
    );
}

#[test]
fn a_server_that_is_not_there_is_an_error_at_the_end() {
    let cluster = FakeCluster::start(Spec::default()).unwrap();
    cluster.kill(0);
    let file = "examples/loadgen/sequence.yml";
    let output = loadgen(&cluster, &["-config", file, "-l", "2", "--json"]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(report(&output)["documents"]["unknown"], 2_000);
}

#[test]
fn a_wrong_file_is_told_off_with_line_key_and_nearest_key() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("l.yml");
    std::fs::write(&file, "requests:\n  - request: {methd: GET, url: 'http://a/'}\n").unwrap();
    let cluster = FakeCluster::start(Spec::default()).unwrap();
    let output = loadgen(&cluster, &["-config", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("l.yml:2:15: error: requests[0].request.methd: unknown key; did you mean `method`?"),
        "{text}"
    );
}

#[test]
fn a_certificate_that_nobody_vouches_for_is_refused_and_the_error_says_what_to_do() {
    let cluster = FakeCluster::start(Spec::default().index("loadgen", 1).tls()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca.pem");
    std::fs::write(&ca, cluster.ca_pem().unwrap()).unwrap();
    let file = ["-config", "examples/loadgen/sequence.yml", "-l", "1", "--json"];
    let with = |more: &[&str]| loadgen(&cluster, &[&file, more].concat());

    let output = with(&[]);
    assert_eq!(output.status.code(), Some(3), "the example says assert_error");
    let errors = report(&output)["errors_by_kind"].to_string();
    for wanted in ["certificate is not trusted", "-ca FILE", "-insecure"] {
        assert!(errors.contains(wanted), "{wanted} is not in {errors}");
    }
    assert_eq!(cluster.counts().bulks, 0);

    let accepted = |output: Output| {
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        report(&output)["documents"]["accepted"].clone()
    };
    assert_eq!(accepted(with(&["-ca", ca.to_str().unwrap()])), 1_000);
    assert_eq!(accepted(with(&["-insecure"])), 1_000);
}

#[test]
fn a_file_may_name_authorities_beside_it_or_ask_for_no_check() {
    let cluster = FakeCluster::start(Spec::default().tls()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("ca.pem"), cluster.ca_pem().unwrap()).unwrap();
    let run = |runner: &str| {
        let file = directory.path().join("l.yml");
        let text = format!(
            "runner: {{no_warm: true, assert_error: true, {runner}}}\nrequests: [{{request: {{url: '{}/'}}}}]\n",
            cluster.urls()[0]
        );
        std::fs::write(&file, text).unwrap();
        loadgen(
            &cluster,
            &["-config", file.to_str().unwrap(), "-l", "1", "--json"],
        )
    };
    assert_eq!(run("ca: ca.pem").status.code(), Some(0));
    assert_eq!(run("insecure: true").status.code(), Some(0));
    assert_eq!(run("insecure: false").status.code(), Some(3));
    let both = run("insecure: true, ca: ca.pem");
    let text = String::from_utf8_lossy(&both.stderr);
    assert!(
        text.contains("runner.ca: is of no use with `insecure: true`"),
        "{text}"
    );
}

#[test]
fn figures_go_to_statsd_prometheus_a_table_and_a_page_while_the_load_runs() {
    let cluster = FakeCluster::start(Spec::default().index("loadgen", 3)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let statsd = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    statsd
        .set_read_timeout(Some(std::time::Duration::from_secs(20)))
        .unwrap();
    let free = crate::gateway::free_address();
    let text = format!(
        "statsd: {{port: {}, namespace: load}}\nrunner: {{no_warm: true}}\nrequests: [{{request: {{method: POST, url: \
         '{}/loadgen/_bulk', body_repeat_times: 10, body: \"{{\\\"index\\\":{{}}}}\\n{{}}\"}}}}]\n",
        statsd.local_addr().unwrap().port(),
        cluster.urls()[0]
    );
    std::fs::write(path("l.yml"), text).unwrap();
    let mut load = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args([
            "loadgen",
            "-config",
            &path("l.yml"),
            "-d",
            "6",
            "-json",
            "-prometheus",
            &free.to_string(),
        ])
        .args(["-csv", &path("load.csv"), "-html", &path("load.html")])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut datagram = [0; 4_096];
    let length = statsd.recv(&mut datagram).unwrap();
    let counted = String::from_utf8_lossy(&datagram[..length]).into_owned();
    assert!(
        counted.contains("load.requests:") && counted.contains("load.documents:"),
        "{counted}"
    );
    let scraper = testkit::client::Client::new(&format!("http://{free}")).unwrap();
    let scrape = || String::from_utf8(scraper.get("/metrics").unwrap().body).unwrap();
    while !scrape().contains("quantile=\"0.99\"") {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let page = scrape();
    assert!(page.contains("# TYPE loadgen_documents_total counter"), "{page}");
    assert!(load.wait().unwrap().success());
    let table = std::fs::read_to_string(path("load.csv")).unwrap();
    assert!(
        table.lines().count() >= 3 && table.starts_with("at_s,answers_per_s,"),
        "{table}"
    );
    assert!(
        std::fs::read_to_string(path("load.html"))
            .unwrap()
            .contains("<svg")
    );
}

/// Returns what a command writes to a terminal of its own; `keys` are typed once the terminal shows `shows`.
fn on_a_terminal(cluster: &FakeCluster, command: &str, shows: &str, keys: &str) -> (Option<i32>, String) {
    use std::io::{Read as _, Write as _};
    let binary = env!("CARGO_BIN_EXE_tidegate");
    let mut script = Command::new("script")
        .args([
            "-qec",
            &format!("stty rows 24 cols 80; {binary} {command}"),
            "/dev/null",
        ])
        .env("ES_ENDPOINT", &cluster.urls()[0])
        .env("TERM", "xterm-256color")
        .current_dir(root())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let (mut input, mut screen) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
    let (mut shown, mut buffer, mut typed) = (Vec::new(), [0; 4096], false);
    while let Ok(count @ 1..) = screen.read(&mut buffer) {
        shown.extend_from_slice(&buffer[..count]);
        if !typed && String::from_utf8_lossy(&shown).contains(shows) {
            input.write_all(keys.as_bytes()).unwrap();
            typed = true;
        }
    }
    let shown = String::from_utf8_lossy(&shown).into_owned();
    assert!(typed, "{shows} never stood there: {shown}");
    let status = script.wait().unwrap();
    drop(input);
    (status.code(), shown)
}

#[test]
fn on_a_terminal_there_is_a_screen_that_a_key_ends_and_the_terminal_is_given_back() {
    let cluster = FakeCluster::start(Spec::default().index("loadgen", 3)).unwrap();
    let command = "loadgen -config examples/loadgen/bulk.yml -d 60";
    let (status, shown) = on_a_terminal(&cluster, command, "documents/s", "q");
    assert_eq!(status, Some(0), "{shown}");
    let (enter, leave) = (
        shown.find("\x1b[?1049h").unwrap(),
        shown.find("\x1b[?1049l").unwrap(),
    );
    let screen = &shown[enter..leave];
    for wanted in [
        "tidegate loadgen",
        "examples/loadgen/bulk.yml",
        "documents/s",
        "q ends the run",
    ] {
        assert!(screen.contains(wanted), "{wanted} is not in {screen:?}");
    }
    assert!(shown[leave..].contains("Documents accepted:"), "{shown:?}");
}

#[test]
fn on_a_terminal_the_warm_up_asks_whether_to_go_on_after_an_error() {
    let cluster = FakeCluster::start(Spec::default().index("loadgen", 3)).unwrap();
    let broken = Fault::Status {
        status: 500,
        body: r#"{"error":"broken"}"#.to_owned(),
    };
    cluster.inject(Injection::new(On::Any, broken).always());
    let command = "loadgen -config examples/loadgen/search.yml -l 3";
    let (status, shown) = on_a_terminal(&cluster, command, "go on anyway?", "n\r");
    assert_eq!(status, Some(1), "declined: {shown}");
    assert!(
        shown.contains("→ 500") && shown.contains("broken") && shown.contains("go on anyway?"),
        "{shown}"
    );
    let (status, shown) = on_a_terminal(&cluster, command, "go on anyway?", "y\r");
    assert_eq!(status, Some(1), "the example says assert_invalid: {shown}");
    assert!(shown.contains("3 requests in"), "{shown}");
}

/// Runs a load file with these requests and these arguments.
fn run_file(cluster: &FakeCluster, runner: &str, requests: &str, arguments: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("l.yml");
    let url = &cluster.urls()[0];
    let text = format!("runner: {{default_endpoint: '{url}', {runner}}}\nrequests:\n{requests}");
    std::fs::write(&file, text).unwrap();
    loadgen(
        cluster,
        &[&["-config", file.to_str().unwrap(), "--json"], arguments].concat(),
    )
}

#[test]
fn the_runner_s_options_say_how_often_what_is_logged_and_what_is_skipped() {
    let cluster = FakeCluster::start(Spec::default().basic_auth("admin", "secret")).unwrap();
    let runner = "no_warm: true, total_rounds: 2, skip_invalid_assert: true, log_status_codes: [400], \
                  default_basic_auth: {username: admin, password: secret}";
    let requests = "
  - request: {url: /}
    assert: {equals: {_ctx.response.body_json.nothing.here: 1}}
  - request: {url: /_no/such/api, execute_repeat_times: 3}
";
    let output = run_file(&cluster, runner, requests, &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let told = report(&output);
    assert_eq!(
        (&told["answers"], &told["invalid"]),
        (&8.into(), &6.into()),
        "{told}"
    );
    assert_eq!(
        (&told["statuses"]["200"], &told["statuses"]["400"]),
        (&2.into(), &6.into())
    );
    let log = String::from_utf8_lossy(&output.stderr);
    let logged = |status: &str| log.matches(&format!("status={status}")).count();
    assert_eq!((logged("400"), logged("200")), (6, 0), "{log}");
    let strict = runner.replace("skip_invalid_assert: true", "assert_invalid: true");
    let output = run_file(&cluster, &strict, requests, &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn a_server_that_is_late_is_given_up_after_the_time_that_was_said() {
    let cluster = FakeCluster::start(Spec::default()).unwrap();
    let late = Fault::Delay(std::time::Duration::from_secs(20));
    cluster.inject(Injection::new(On::Any, late).always());
    let requests = "  - request: {url: /}\n";
    for flag in ["-read-timeout", "-timeout"] {
        let begun = std::time::Instant::now();
        let arguments = [flag, "1", "-l", "1"];
        let output = run_file(
            &cluster,
            "no_warm: true, assert_error: true",
            requests,
            &arguments,
        );
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        assert_eq!(report(&output)["errors"], 1);
        assert!(begun.elapsed() < std::time::Duration::from_secs(15), "{flag}");
    }
}

#[test]
fn the_cluster_may_be_named_as_for_all_other_commands_and_a_load_file_s_own_name_counts_more() {
    let cluster = FakeCluster::start(Spec::default().index("loadgen", 3)).unwrap();
    let urls = cluster.urls();
    let url = urls[0].as_str();
    let documents = |variables: &[(&str, &str)]| {
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args([
                "loadgen",
                "-config",
                "examples/loadgen/sequence.yml",
                "-l",
                "1",
                "--json",
            ])
            .env_remove("ES_ENDPOINT")
            .envs(variables.iter().copied())
            .current_dir(root())
            .output()
            .unwrap();
        report(&output)["documents"]["accepted"].clone()
    };
    assert_eq!(documents(&[("TIDEGATE_CLUSTER", url)]), 1_000);
    let nobody = "http://127.0.0.1:9";
    assert_eq!(
        documents(&[("TIDEGATE_CLUSTER", nobody), ("ES_ENDPOINT", url)]),
        1_000
    );
    assert_eq!(
        documents(&[("TIDEGATE_CLUSTER", url), ("ES_ENDPOINT", nobody)]),
        0
    );
}

#[test]
fn a_variable_as_shells_write_it_is_an_error_in_an_address_with_the_way_to_write_it() {
    let cluster = FakeCluster::start(Spec::default()).unwrap();
    for url in ["$ES_ENDPOINT/_bulk", "${ES_ENDPOINT}/", "http://$HOST:9200/"] {
        let output = run_file(
            &cluster,
            "no_warm: true",
            &format!("  - request: {{url: '{url}'}}\n"),
            &[],
        );
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{url}: {text}");
        assert!(
            text.contains("for a variable write `$[[env.NAME]]`"),
            "{url}: {text}"
        );
    }
}

#[test]
fn wrong_usage_is_2_and_an_answer_of_the_warm_up_that_is_not_fine_is_1() {
    let cluster = FakeCluster::start(Spec::default()).unwrap();
    let output = loadgen(&cluster, &["-config", "examples/loadgen/search.yml", "-nonsense"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let broken = Fault::Status {
        status: 500,
        body: r#"{"error":"broken"}"#.to_owned(),
    };
    cluster.inject(Injection::new(On::Any, broken).always());
    let output = loadgen(&cluster, &["-config", "examples/loadgen/search.yml", "-l", "1"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn a_report_that_can_t_be_written_is_told_before_the_run_and_never_lost() {
    let cluster = FakeCluster::start(Spec::default()).unwrap();
    let requests = "  - request: {url: /}\n";
    for flag in ["-csv", "-html"] {
        let output = run_file(&cluster, "no_warm: true", requests, &[flag, "/no/such/folder/x"]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        assert!(text.contains("/no/such/folder/x: "), "{text}");
        assert!(output.stdout.is_empty(), "nothing was sent: {output:?}");
        // A disk that is full only at the end does not take the report along.
        let output = run_file(
            &cluster,
            "no_warm: true",
            requests,
            &[flag, "/dev/full", "-l", "2"],
        );
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        assert_eq!(report(&output)["answers"], 2);
    }
}

#[test]
fn a_warm_up_that_stops_leaves_no_file_behind() {
    let cluster = FakeCluster::start(Spec::default()).unwrap();
    cluster.kill(0);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("load.csv");
    let arguments = ["-csv", file.to_str().unwrap(), "-l", "1"];
    let output = run_file(&cluster, "no_warm: false", "  - request: {url: /}\n", &arguments);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(!file.exists());
}

#[test]
fn what_was_due_after_the_last_round_is_not_reported_as_unsent() {
    let cluster = FakeCluster::start(Spec::default()).unwrap();
    let arguments = ["-r", "100", "-d", "60", "-total-rounds", "10"];
    let output = run_file(&cluster, "no_warm: true", "  - request: {url: /}\n", &arguments);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = report(&output);
    assert_eq!((&report["answers"], &report["unsent"]), (&10.into(), &0.into()));
}
