//! `tidegate loadgen`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use testkit::fake::{Cue, FakeCluster, Fault, On, Spec};

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
    cluster.cue(Cue::new(On::Path("/loadgen/_search".to_owned()), found).times(21));
    let file = "examples/loadgen/search.yml";
    let output = loadgen(&cluster, &["-config", file, "-l", "20", "-c", "2"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(
        text.contains("20 requests in") && text.contains("Invalid answers:"),
        "{text}"
    );
    assert!(String::from_utf8_lossy(&output.stderr).contains("warm-up: GET /loadgen/_search → 200"));
    // From now on the index is gone: the warm-up allows that, the assertions don't.
    let gone = Fault::Status {
        status: 404,
        body: r#"{"error":{"type":"index_not_found_exception"}}"#.to_owned(),
    };
    cluster.cue(Cue::new(On::Path("/loadgen/_search".to_owned()), gone).times(6));
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
    assert_eq!(output.status.code(), Some(2));
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
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(report(&output)["documents"]["unknown"], 2_000);
}

#[test]
fn a_wrong_file_is_told_off_with_line_key_and_nearest_key() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("l.yml");
    std::fs::write(&file, "requests:\n  - request: {methd: GET, url: 'http://a/'}\n").unwrap();
    let cluster = FakeCluster::start(Spec::default()).unwrap();
    let output = loadgen(&cluster, &["-config", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
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
    assert_eq!(output.status.code(), Some(2), "the example says assert_error");
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
    assert_eq!(run("insecure: false").status.code(), Some(2));
    let both = run("insecure: true, ca: ca.pem");
    let text = String::from_utf8_lossy(&both.stderr);
    assert!(
        text.contains("runner.ca: is of no use with `insecure: true`"),
        "{text}"
    );
}
