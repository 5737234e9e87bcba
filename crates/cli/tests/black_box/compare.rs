//! `tidegate compare`.

use std::process::{Command, Output};

use serde_json::Value;
use testkit::fake::{FakeCluster, Fault, Injection, Spec};

use crate::gateway::Gateway;

fn compare(direct: &FakeCluster, gateway: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["compare", "--direct", &direct.urls()[0], "--gateway", gateway])
        .args([
            "--docs",
            "2000",
            "--batch",
            "500",
            "--pause",
            "0",
            "--warm-up",
            "0",
        ])
        .args(["--count-timeout", "20"])
        .args(arguments)
        .output()
        .unwrap()
}

fn outcome(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn both_ways_are_written_by_turns_counted_and_cleaned_up() {
    let cluster = FakeCluster::start(Spec::default().storing()).unwrap();
    let gateway = Gateway::before(&cluster);
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("compare.html");
    let url = format!("http://{}", gateway.address);
    let more = ["--rounds", "2", "--json", "--html", page.to_str().unwrap()];
    let output = compare(&cluster, &url, &more);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let outcome = outcome(&output);
    let runs = outcome["runs"].as_array().unwrap();
    let order: Vec<String> = runs
        .iter()
        .map(|run| {
            format!(
                "{} {} {}",
                run["round"],
                run["way"].as_str().unwrap(),
                run["phase"].as_str().unwrap()
            )
        })
        .collect();
    let wanted = [
        "1 direct new",
        "1 direct updates",
        "1 gateway new",
        "1 gateway updates",
        "2 gateway new",
        "2 gateway updates",
        "2 direct new",
        "2 direct updates",
    ];
    assert_eq!(order, wanted);
    for run in runs {
        let status = if run["phase"] == "new" { "201" } else { "200" };
        assert_eq!(
            (&run["accepted"], &run["statuses"][status]),
            (&2_000.into(), &2_000.into()),
            "{run}"
        );
        assert_eq!(
            (&run["counted"], &run["flaw"]),
            (&2_000.into(), &Value::Null),
            "{run}"
        );
        let seconds = |key: &str| run[key].as_f64().unwrap();
        assert!(
            seconds("counted_s") >= seconds("acknowledged_s") && seconds("cpu_s") >= 0.0,
            "{run}"
        );
    }
    let phases = outcome["phases"].as_array().unwrap();
    assert_eq!(phases.len(), 2);
    assert!(
        phases.iter().all(|phase| phase["counted"]["interval"].is_array()),
        "{outcome}"
    );
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<svg") && !page.contains("http://") && !page.contains("https://"));
    // The gateway split its requests by node, the direct way did not, and nothing is left. By chance, each
    // way alone sends a third to the right node; the gateway's first bulks pass until its predictions for the
    // index are proven.
    let counts = cluster.counts();
    assert!(counts.misrouted * 10 < counts.docs * 6, "{counts:?}");
    let left = testkit::client::Client::new(&cluster.urls()[0])
        .unwrap()
        .get("/_all/_settings")
        .unwrap();
    assert_eq!(left.json().unwrap(), serde_json::json!({}));
}

#[test]
fn the_documents_are_the_same_both_ways_and_in_every_round() {
    let cluster = FakeCluster::start(Spec::default().storing()).unwrap();
    let url = cluster.urls()[1].clone();
    let more = [
        "--rounds",
        "1",
        "--keep",
        "--index",
        "kept",
        "--clients",
        "3",
        "--json",
    ];
    let output = compare(&cluster, &url, &more);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let client = testkit::client::Client::new(&url).unwrap();
    let indices = client.get("/_all/_settings").unwrap().json().unwrap();
    let names: Vec<&String> = indices.as_object().unwrap().keys().collect();
    assert!(
        names.len() == 2 && names.iter().all(|name| name.starts_with("kept-")),
        "{names:?}"
    );
    let sources = |name: &str| -> Vec<(String, String)> {
        let docs = cluster.docs(name).into_iter();
        docs.map(|(id, doc)| (id, doc.source)).collect()
    };
    let (one, other) = (sources(names[0]), sources(names[1]));
    assert_eq!((one.len(), &one), (2_000, &other));
}

#[test]
fn without_ids_there_are_no_updates_and_one_round_is_no_proof() {
    let cluster = FakeCluster::start(Spec::default().storing()).unwrap();
    let output = compare(&cluster, &cluster.urls()[1], &["--rounds", "1", "--without-ids"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        !text.contains("updates") && text.contains("says nothing about the noise"),
        "{text}"
    );
    let progress = String::from_utf8_lossy(&output.stderr);
    assert!(
        progress.contains("round 1, new") && !progress.contains('\r'),
        "{progress}"
    );
}

#[test]
fn documents_that_fail_spoil_their_run_and_the_exit_status_says_so() {
    let cluster = FakeCluster::start(Spec::default().storing()).unwrap();
    let full = Fault::Items {
        every: 50,
        status: 429,
        error: r#"{"type":"es_rejected_execution_exception","reason":"full"}"#.to_owned(),
    };
    cluster.inject(Injection::bulk(full).times(1));
    let output = compare(&cluster, &cluster.urls()[1], &["--rounds", "1", "--without-ids"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("10 documents were not accepted") && text.contains("rejected_execution"),
        "{text}"
    );
    assert!(text.contains("in no round both runs were fine"), "{text}");
}

#[test]
fn a_gateway_of_another_cluster_is_refused_and_so_is_one_that_is_not_there() {
    let (cluster, other) = (
        FakeCluster::start(Spec::default()).unwrap(),
        FakeCluster::start(Spec::default()).unwrap(),
    );
    let output = compare(&cluster, &other.urls()[0], &[]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("leads to another cluster"));
    other.kill(0);
    let output = compare(&cluster, &other.urls()[0], &[]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("connect failed"));
}

#[test]
fn an_interrupt_removes_the_indices() {
    let cluster = FakeCluster::start(Spec::default().storing()).unwrap();
    let process = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args([
            "compare",
            "--direct",
            &cluster.urls()[0],
            "--gateway",
            &cluster.urls()[1],
        ])
        .args(["--docs", "1000", "--batch", "10", "--rounds", "1000"])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    while cluster.counts().bulks == 0 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let interrupted = Command::new("kill")
        .args(["-INT", &process.id().to_string()])
        .status()
        .unwrap();
    assert!(interrupted.success());
    let output = process.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let client = testkit::client::Client::new(&cluster.urls()[0]).unwrap();
    assert_eq!(
        client.get("/_all/_settings").unwrap().json().unwrap(),
        serde_json::json!({})
    );
}

#[test]
fn accounts_come_from_flags_the_environment_or_the_url_and_certificates_are_checked() {
    let cluster =
        FakeCluster::start(Spec::default().tls().basic_auth("admin", "s$[[cret").storing()).unwrap();
    let url = cluster.urls()[1].clone();
    let flags = ["--rounds", "1", "--without-ids"];
    let output = compare(&cluster, &url, &flags);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("certificate is not trusted"),
        "{output:?}"
    );
    let output = compare(&cluster, &url, &[&flags[..], &["--insecure"]].concat());
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("401"),
        "{output:?}"
    );
    let account = ["--insecure", "--user", "admin", "--password", "s$[[cret"];
    let output = compare(&cluster, &url, &[&flags[..], &account].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args([
        "compare",
        "--insecure",
        "--direct",
        &cluster.urls()[0],
        "--gateway",
        &url,
    ]);
    command.args([
        "--docs",
        "10",
        "--batch",
        "10",
        "--rounds",
        "1",
        "--pause",
        "0",
        "--warm-up",
        "0",
    ]);
    command.envs([("TIDEGATE_USER", "admin"), ("TIDEGATE_PASSWORD", "s$[[cret")]);
    assert_eq!(command.output().unwrap().status.code(), Some(0));
    // A password without a user: on the command line it is a mistake, in the environment it is for something
    // else.
    let output = compare(&cluster, &url, &["--password", "x"]);
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("--password needs --user"),
        "{output:?}"
    );
    let output = command.env_remove("TIDEGATE_USER").output().unwrap();
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("401"),
        "{output:?}"
    );
}

#[test]
fn a_page_that_can_t_be_written_is_told_before_the_first_run_and_never_costs_the_outcome() {
    let cluster = FakeCluster::start(Spec::default().storing()).unwrap();
    let url = cluster.urls()[1].clone();
    let flags = ["--rounds", "1", "--without-ids", "--json", "--html"];
    let output = compare(
        &cluster,
        &url,
        &[&flags[..], &["/no/such/folder/x.html"]].concat(),
    );
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("/no/such/folder/x.html: "));
    assert_eq!(cluster.counts().bulks, 0);
    let output = compare(&cluster, &url, &[&flags[..], &["/dev/full"]].concat());
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(outcome(&output)["runs"].as_array().unwrap().len(), 2);
}
