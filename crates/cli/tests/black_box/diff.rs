//! `tidegate diff`.

use std::process::{Command, Output};

use serde_json::{Value, json};
use testkit::client::Client;
use testkit::fake::{FakeCluster, Fault, Injection, On, Spec};

fn command(left: &FakeCluster, right: &FakeCluster, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["diff", "--left", &left.urls()[0], "--right", &right.urls()[1]]);
    command.args(arguments);
    command
}

fn diff(left: &FakeCluster, right: &FakeCluster, arguments: &[&str]) -> Output {
    command(left, right, arguments).output().unwrap()
}

fn found(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Makes an OpenSearch and an Elasticsearch whose indices have different numbers of shards.
fn pair() -> [FakeCluster; 2] {
    [
        Spec::default().index("logs", 6),
        Spec::default()
            .flavour(testkit::fake::Flavour::Elasticsearch9)
            .index("logs", 2),
    ]
    .map(|spec| FakeCluster::start(spec.storing()).unwrap())
}

fn write(cluster: &FakeCluster, text: &str) {
    let client = Client::new(&cluster.urls()[0]).unwrap();
    let answer = client.post_ndjson("/logs/_bulk", text.as_bytes()).unwrap();
    assert_eq!(answer.ok().unwrap().json().unwrap()["errors"], json!(false));
}

fn documents(numbers: std::ops::Range<u32>) -> String {
    numbers
        .map(|n| format!("{{\"index\":{{\"_id\":\"{n}\"}}}}\n{{\"n\":{n},\"tags\":[1,2]}}\n"))
        .collect()
}

#[test]
fn the_same_documents_are_the_same_however_they_are_written() {
    let [left, right] = pair();
    write(&left, &documents(0..3000));
    write(&right, &documents(0..3000));
    let spelt = "{\"index\":{\"_id\":\"7\",\"routing\":\"r\"}}\n{\"a\":1,\"b\":\"é\"}\n";
    write(&left, spelt);
    write(
        &right,
        "{\"index\":{\"_id\":\"7\",\"routing\":\"r\"}}\n{ \"b\":\"\\u00e9\", \"a\" : 1.0 }\n",
    );
    let output = diff(&left, &right, &["--index", "logs", "--page", "700"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("logs: 3,000 documents") && text.ends_with("The same\n"),
        "{text}"
    );
    assert!(
        output.stderr.is_empty(),
        "no progress where there is no terminal: {output:?}"
    );
}

#[test]
fn what_differs_is_told_by_id_with_the_first_field_that_differs() {
    let [left, right] = pair();
    write(&left, &documents(0..2000));
    write(&right, &documents(5..2003));
    write(
        &right,
        "{\"index\":{\"_id\":\"77\"}}\n{\"n\":77,\"tags\":[1,3]}\n",
    );
    write(
        &right,
        "{\"index\":{\"_id\":\"88\",\"routing\":\"x\"}}\n{\"n\":88,\"tags\":[1,2]}\n",
    );
    let output = diff(&left, &right, &["--index", "logs", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let found = found(&output);
    assert_eq!(
        (&found["same"], &found["complete"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(
        found["found"],
        json!({"only_left": 5, "only_right": 3, "different": 2})
    );
    assert_eq!(
        (&found["left"]["documents"], &found["right"]["documents"]),
        (&json!(2000), &json!(1998))
    );
    let listed = found["documents"].as_array().unwrap();
    let of = |id: &str| listed.iter().find(|document| document["id"] == id).unwrap();
    assert_eq!(listed.len(), 10);
    assert_eq!(of("0")["what"], "only_left");
    assert_eq!(of("2002")["what"], "only_right");
    assert_eq!(
        of("77")["field"],
        json!({"path": "tags[1]", "left": "2", "right": "3"})
    );
    assert_eq!(
        of("88")["field"],
        json!({"path": "_routing", "left": null, "right": "x"})
    );
    assert!(String::from_utf8_lossy(&output.stderr).contains("2000 documents left, 1998 right"));
    // The same result as a table, of the first documents.
    let output = diff(&left, &right, &["--index", "logs", "--limit", "2"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.starts_with("id") && text.contains("--limit 0 finds all"),
        "{text}"
    );
    // With little memory it takes more passes, and an index can be read in any number of slices: the result
    // is the same.
    for more in [["--memory", "1mb"], ["--slices", "1"], ["--slices", "6"]] {
        let all = ["--index", "logs", "--json", "--limit", "0", "--page", "100"];
        let output = diff(&left, &right, &[&all[..], &more].concat());
        assert_eq!(self::found(&output)["documents"], found["documents"], "{more:?}");
    }
}

#[test]
fn names_may_differ_and_counts_may_be_enough() {
    let [left, right] = pair();
    right.create_index("copy", 3);
    write(&left, &documents(0..10));
    let names = ["--left-index", "logs", "--right-index", "copy"];
    let output = diff(&left, &right, &[&names[..], &["--counts-only"]].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("Different numbers\n"));
    let output = diff(
        &left,
        &right,
        &["--index", "logs", "--counts-only", "--right-index", "logs"],
    );
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let output = diff(&left, &left, &["--index", "logs", "--counts-only"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("contents were not compared"));
}

#[test]
fn what_cannot_be_read_whole_is_not_compared() {
    let [left, right] = pair();
    write(&left, &documents(0..10));
    let output = diff(&left, &right, &["--index", "nothing"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("left: ") && text.contains("no such index [nothing]"),
        "{text}"
    );
    let broken = Fault::Status {
        status: 503,
        body: "{\"error\":\"not now\"}".to_owned(),
    };
    right.inject(Injection::new(On::Path("/logs/_search".to_owned()), broken));
    let output = diff(&left, &right, &["--index", "logs"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("right: ") && text.contains("not now"), "{text}");
    assert!(output.stdout.is_empty());
}

#[test]
fn each_side_has_its_account_and_passwords_are_not_shown() {
    let secured = |password: &str| {
        let spec = Spec::default()
            .index("logs", 1)
            .storing()
            .basic_auth("u", password);
        FakeCluster::start(spec).unwrap()
    };
    let (left, right) = (secured("one"), secured("two"));
    let run = |variables: &[(&str, &str)], arguments: &[&str]| {
        let mut command = command(&left, &right, &["--index", "logs"]);
        command
            .args(arguments)
            .envs(variables.iter().copied())
            .output()
            .unwrap()
    };
    let output = run(&[], &[]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("401"),
        "{output:?}"
    );
    let passwords = [
        ("TIDEGATE_LEFT_PASSWORD", "one"),
        ("TIDEGATE_RIGHT_PASSWORD", "two"),
    ];
    let output = run(&passwords, &["--user", "u"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let output = run(&passwords[1..], &["--right-user", "u", "--left-user", "u"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let url = left.urls()[0].replace("http://", "http://u:one@");
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["diff", "--left", &url, "--right", &url, "--index", "logs"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(
        !String::from_utf8_lossy(&output.stdout).contains("one@"),
        "{output:?}"
    );
}
