//! `tidegate init`: a first configuration that can be used as it is, from flags or from answers on a
//! terminal.

use std::path::Path;
use std::process::Command;

use testkit::fake::{FakeCluster, Spec, User};

use crate::gateway::{Gateway, body, cluster};
use crate::terminal::at_a_terminal;

/// Runs the command in a folder without a terminal. Returns its status and its output.
fn init(folder: &Path, arguments: &[&str], password: Option<&str>) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["init", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    command.args(arguments).current_dir(folder);
    command
        .env_remove("TIDEGATE_CLUSTER")
        .env_remove("TIDEGATE_PASSWORD");
    if let Some(password) = password {
        command.env("TIDEGATE_PASSWORD", password);
    }
    let output = command.stdin(std::process::Stdio::null()).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

#[test]
fn flags_make_a_file_that_is_tried_at_once_and_runs_as_it_is() {
    for mode in ["sync", "async"] {
        let (cluster, folder) = (cluster(), tempfile::tempdir().unwrap());
        let url = &cluster.urls()[0];
        let (status, said) = init(folder.path(), &["--cluster", url, "--mode", mode], None);
        assert_eq!(status, Some(0), "{said}");
        assert!(
            said.contains("tidegate.yml: good") && said.contains("fine: cluster main: opensearch 3"),
            "{said}"
        );
        let text = std::fs::read_to_string(folder.path().join("tidegate.yml")).unwrap();
        let comments = text
            .lines()
            .filter(|line| line.trim_start().starts_with("# "))
            .count();
        assert!(comments > 10, "{text}");
        let gateway = Gateway::start_in(folder.path(), &["--config", "tidegate.yml"], &[]);
        gateway.wait_until("the topology is known", |status| status["state"] == "watching");
        let answer = gateway.bulk(&body(30)).ok().unwrap();
        assert_eq!(answer.header("x-tidegate-ack").is_some(), mode == "async");
    }
}

#[test]
fn a_password_is_taken_from_the_environment_and_the_account_s_rights_are_asked_for() {
    let user = User::new("gate", "s3cret-9").may("*", &["index", "create", "update", "delete"]);
    let spec = Spec::default().index("logs", 2).storing();
    let cluster = FakeCluster::start(spec.basic_auth("admin", "p").user(user)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let url = &cluster.urls()[0];
    let how = [
        "--cluster",
        url,
        "--mode",
        "async",
        "--user",
        "gate",
        "--output",
        "etc/gateway.yml",
    ];
    let (status, said) = init(folder.path(), &how, Some("s3cret-9"));
    assert_eq!(status, Some(0), "{said}");
    assert!(
        said.contains("fine: cluster main: the account may index documents"),
        "{said}"
    );
    let text = std::fs::read_to_string(folder.path().join("etc/gateway.yml")).unwrap();
    assert!(
        text.contains("$[[env.TIDEGATE_PASSWORD]]") && !text.contains("s3cret"),
        "{text}"
    );
    let (status, said) = init(
        folder.path(),
        &["--cluster", url, "--user", "gate"],
        Some("wrong"),
    );
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("it refuses the gateway's account"), "{said}");
    // Without the password nothing can be tried, and the command says so.
    let how = ["--cluster", url, "--user", "gate", "--force"];
    let (status, said) = init(folder.path(), &how, None);
    assert_eq!(status, Some(0), "{said}");
    assert!(
        said.contains("it was not checked, because TIDEGATE_PASSWORD is not set"),
        "{said}"
    );
}

#[test]
fn a_password_in_the_url_is_in_no_file_and_the_name_beside_it_is_the_account_s() {
    let folder = tempfile::tempdir().unwrap();
    let how = ["--no-check", "--cluster", "http://ela%73tic:s3cret@es1:9200"];
    let (status, said) = init(folder.path(), &how, None);
    assert_eq!(status, Some(0), "{said}");
    assert!(
        said.contains("the password in the cluster's URL is not written") && !said.contains("s3cret"),
        "{said}"
    );
    let text = std::fs::read_to_string(folder.path().join("tidegate.yml")).unwrap();
    assert!(!text.contains("s3cret") && !text.contains("es1:9200@"), "{text}");
    for line in [
        "- 'http://es1:9200'",
        "username: 'elastic'",
        "password: '$[[env.TIDEGATE_PASSWORD]]'",
    ] {
        assert!(text.lines().any(|found| found.trim() == line), "{line}: {text}");
    }
    // A name that is given goes before the one in the URL.
    let how = [
        "--no-check",
        "--force",
        "--user",
        "gate",
        "--cluster",
        "http://a:s3cret@es1:9200",
    ];
    let (status, said) = init(folder.path(), &how, None);
    assert_eq!(status, Some(0), "{said}");
    let text = std::fs::read_to_string(folder.path().join("tidegate.yml")).unwrap();
    assert!(
        text.contains("username: 'gate'") && !text.contains("s3cret"),
        "{text}"
    );
}

#[test]
fn a_file_that_is_there_is_kept_and_answers_that_make_no_file_are_wrong_usage() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidegate.yml");
    std::fs::write(&file, "mine\n").unwrap();
    let away = ["--cluster", "http://127.0.0.1:9"];
    let (status, said) = init(folder.path(), &away, None);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("exists already"), "{said}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine\n");
    // The file is written before it is tried.
    let (status, said) = init(
        folder.path(),
        &["--cluster", "http://127.0.0.1:9", "--force"],
        None,
    );
    assert_eq!(status, Some(3), "{said}");
    assert!(said.contains("nothing listens at 127.0.0.1:9"), "{said}");
    std::fs::remove_file(&file).unwrap();
    for (arguments, told) in [
        (&[][..], "there is no terminal to ask on: give --cluster URL"),
        (
            &["--cluster", "es1:9200"],
            "has no `http://` or `https://` before it",
        ),
        (
            &["--cluster", "http://a:1", "--mode", "later"],
            "invalid value 'later'",
        ),
        (
            &["--cluster", "http://a:1", "--tls", "maybe"],
            "`maybe` is none of: none, self-signed",
        ),
        (
            &["--cluster", "http://a:1", "--tls", "no.pem,no.key"],
            "`no.pem` can't be read",
        ),
    ] {
        let (status, said) = init(folder.path(), arguments, None);
        assert_eq!(status, Some(2), "{arguments:?}: {said}");
        assert!(said.contains(told), "{arguments:?}: {said}");
        assert!(!file.exists(), "{arguments:?}");
    }
}

#[test]
fn on_a_terminal_it_asks_and_takes_what_is_usual_for_an_empty_answer() {
    let (cluster, folder) = (cluster(), tempfile::tempdir().unwrap());
    let file = folder.path().join("asked.yml");
    let line = format!(
        "{} init --admin 127.0.0.1:0 --output {}",
        env!("CARGO_BIN_EXE_tidegate"),
        file.display()
    );
    let typed = format!("{}\n\nasync\n127.0.0.1:0\nself-signed\n", cluster.urls()[0]);
    let (status, said) = at_a_terminal(&line, &typed);
    assert_eq!(status, Some(0), "{said}");
    assert!(
        said.contains("URL of a node of the cluster [http://127.0.0.1:9200]: "),
        "{said}"
    );
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(
        text.contains("mode: async")
            && text.contains("bulk_indexing")
            && text.contains("    tls:\n      enabled: true"),
        "{text}"
    );
}
