//! `tidegate check` and `tidegate config`, tested from outside.

#![allow(clippy::unwrap_used, reason = "a test that meets something unexpected ends")]

use std::path::Path;
use std::process::{Command, Output};

fn tidegate(arguments: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(arguments)
        .current_dir(root)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

const GOOD: &str = "crates/config/tests/config/guide.yml";
const BAD: &str = "crates/config/tests/config/slips.yml";

#[test]
fn check_exits_0_for_good_1_for_bad_2_for_wrong_usage() {
    let good = tidegate(&["check", GOOD]);
    assert_eq!(good.status.code(), Some(0));
    assert!(
        text(&good.stdout).ends_with("guide.yml: good, 4 warnings\n"),
        "{}",
        text(&good.stdout)
    );
    let bad = tidegate(&["check", BAD]);
    assert_eq!(bad.status.code(), Some(1));
    let said = text(&bad.stdout);
    assert!(
        said.contains("slips.yml:3:5: error: entry[0].ruoter: unknown key; did you mean `router`?\n"),
        "{said}"
    );
    assert!(!said.contains('\x1b'), "colours are for terminals");
    assert_eq!(tidegate(&["check", "/nowhere.yml"]).status.code(), Some(1));
    assert_eq!(tidegate(&["check"]).status.code(), Some(2));
    assert_eq!(tidegate(&["check", GOOD, "--jsn"]).status.code(), Some(2));
    assert_eq!(text(&tidegate(&["check", "--quiet", GOOD]).stdout), "");
}

#[test]
fn check_speaks_json() {
    let bad = tidegate(&["check", "--json", BAD]);
    assert_eq!(bad.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&bad.stdout).unwrap();
    assert_eq!(report["valid"], false);
    let first = &report["problems"][0];
    assert_eq!(
        (first["line"].as_u64(), first["column"].as_u64()),
        (Some(3), Some(5))
    );
    assert_eq!(
        (first["severity"].as_str(), first["path"].as_str()),
        (Some("error"), Some("entry[0].ruoter"))
    );
    assert_eq!(
        report["errors"].as_u64().unwrap() as usize,
        report["problems"].as_array().unwrap().len()
    );
}

#[test]
fn examples_pass_the_check_as_they_are() {
    for example in [
        "sync-by-node",
        "several-clusters",
        "role-filter",
        "pass-through",
        "async-kafka",
    ] {
        let checked = tidegate(&["check", &format!("examples/{example}.yml")]);
        assert_eq!(text(&checked.stdout), format!("examples/{example}.yml: good\n"));
    }
}

#[test]
fn config_shows_defaults_and_masks_secrets() {
    let shown = tidegate(&["config", "show", GOOD]);
    let said = text(&shown.stdout);
    assert_eq!(shown.status.code(), Some(0));
    assert!(said.contains("read_timeout: 30s  # default"), "{said}");
    assert!(said.contains("max_concurrency: 200000\n"), "{said}");
    assert!(
        said.contains("password: \"********\"") && !said.contains("password: admin"),
        "{said}"
    );
    assert_eq!(tidegate(&["config", "show", BAD]).status.code(), Some(1));
}

#[test]
fn config_explains_keys_and_prints_the_schema() {
    let explained = text(&tidegate(&["config", "explain", "entry[0].tls.client_ca_file"]).stdout);
    assert!(explained.starts_with("entry.tls.client_ca_file\n"), "{explained}");
    let wrong = tidegate(&["config", "explain", "entry.tls.cert_fiel"]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(text(&wrong.stderr).contains("did you mean `cert_file`?"));
    let schema: serde_json::Value = serde_json::from_slice(&tidegate(&["config", "schema"]).stdout).unwrap();
    assert_eq!(schema["title"], "Tidegate configuration");
}
