//! Tokens of the admin port: what each may do, and what is written down of it.

use std::process::Command;

use serde_json::Value;

use crate::gateway::{Gateway, cluster, program, replace_text};
use crate::home::GatewayHome;

const READ: &str = "only-looks-9";
const OPERATE: &str = "may-act-9";
const SINGLE: &str = "the-one-9";

/// A gateway with a queue, and a token of each kind.
fn guarded() -> (GatewayHome, Gateway, testkit::fake::FakeCluster) {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    set_rights(&place, "read", "operate");
    let gateway = Gateway::start(&["--config", place.file.to_str().unwrap()]);
    (place, gateway, cluster)
}

fn set_rights(place: &GatewayHome, watch: &str, ops: &str) {
    let text = std::fs::read_to_string(&place.file).unwrap();
    let (before, after) = text.split_once("admin: {").unwrap();
    let (_, after) = after.split_once('\n').unwrap();
    let admin = format!(
        "admin: {{binding: '127.0.0.1:0', token: {SINGLE}, tokens: [{{name: watch, token: {READ}, right: {watch}}}, \
         {{name: ops, token: {OPERATE}, right: {ops}}}]}}"
    );
    replace_text(&place.file, &format!("{before}{admin}\n{after}"));
}

fn asked(gateway: &Gateway, method: &str, path: &str, token: &str) -> (u16, String) {
    let given = format!("Bearer {token}");
    let headers = [
        ("authorization", &*given),
        ("x-actor", "ada"),
        ("content-type", "application/json"),
    ];
    let answer = gateway.admin().send(method, path, &headers, b"{}").unwrap();
    (answer.status, answer.text())
}

#[test]
fn a_token_that_reads_is_let_through_by_each_get_and_refused_by_everything_else() {
    let (_place, gateway, _cluster) = guarded();
    let (status, described) = asked(&gateway, "GET", "/openapi.json", READ);
    assert_eq!(status, 200);
    let described: Value = serde_json::from_str(&described).unwrap();
    let mut refused = 0;
    for (path, operations) in described["paths"].as_object().unwrap() {
        let place = path
            .replace("{name}", "q")
            .replace("{group}", "c0")
            .replace("{cluster}", "c0");
        let place = place.replace("{id}", "1");
        for (method, operation) in operations.as_object().unwrap() {
            let method = method.to_uppercase();
            let (status, told) = asked(&gateway, &method, &place, READ);
            let right = if method == "GET" { "read" } else { "operate" };
            assert_eq!(operation["security"][1]["token"][0], right, "{method} {path}");
            if method == "GET" {
                assert!(![401, 403, 405].contains(&status), "{method} {path}: {status}");
                continue;
            }
            let told: Value = serde_json::from_str(&told).unwrap();
            assert_eq!((status, &told["status"]), (403, &403.into()), "{method} {path}");
            assert_eq!(told["error"]["type"], "security_exception", "{method} {path}");
            assert_eq!(
                told["error"]["reason"],
                "the token `watch` has the right `read`; this call needs `operate`"
            );
            refused += 1;
        }
    }
    assert!(refused >= 17, "{refused}");
    // What there is not is refused like what there is, so that nothing can be found out.
    for (method, path) in [("POST", "/no/such/endpoint"), ("DELETE", "/stats")] {
        assert_eq!(asked(&gateway, method, path, READ).0, 403, "{method} {path}");
    }
    assert_eq!(asked(&gateway, "GET", "/stats", "something-else").0, 401);
}

#[test]
fn tokens_that_operate_act_and_the_log_names_who_did_and_no_token() {
    let (place, gateway, _cluster) = guarded();
    let right = |token: &str| -> Value {
        let (_, told) = asked(&gateway, "GET", "/stats", token);
        serde_json::from_str::<Value>(&told).unwrap()["right"].clone()
    };
    assert_eq!(
        (right(READ), right(OPERATE), right(SINGLE)),
        ("read".into(), "operate".into(), "operate".into())
    );
    assert_eq!(
        asked(&gateway, "POST", "/pipeline/p0/_stop?wait_s=1", READ).0,
        403
    );
    assert_eq!(
        asked(&gateway, "POST", "/pipeline/p0/_stop?wait_s=10", OPERATE).0,
        200
    );
    assert_eq!(asked(&gateway, "POST", "/pipeline/p0/_start", SINGLE).0, 200);
    for (actor, path, status) in [
        ("ada (token watch)", "/pipeline/p0/_stop", 403),
        ("ada (token ops)", "/pipeline/p0/_stop", 200),
        ("ada", "/pipeline/p0/_start", 200),
    ] {
        let line = format!(
            "\"message\":\"admin call\",\"actor\":\"{actor}\",\"method\":\"POST\",\"path\":\"{path}\",\"status\":{status}"
        );
        gateway.logged(&line);
    }
    // Another right holds without a restart.
    set_rights(&place, "operate", "read");
    gateway.signal("HUP");
    gateway.logged("admin.tokens");
    assert_eq!((right(READ), right(OPERATE)), ("operate".into(), "read".into()));
    for path in ["/config", "/config/_file", "/stats", "/"] {
        let (_, told) = asked(&gateway, "GET", path, SINGLE);
        for secret in [READ, OPERATE, SINGLE] {
            assert!(!told.contains(secret), "{path}: {told}");
        }
    }
    for secret in [READ, OPERATE, SINGLE] {
        assert!(!gateway.log().contains(secret), "{}", gateway.log());
    }
}

#[test]
fn a_command_says_which_right_its_token_lacks() {
    let (_place, gateway, _cluster) = guarded();
    let run = |token: &str, arguments: &[&str]| {
        let output = Command::new(program())
            .args(arguments)
            .args(["--admin", &format!("http://{}", gateway.admin)])
            .env("TIDEGATE_ADMIN_TOKEN", token)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().unwrap(), said)
    };
    assert_eq!(run(READ, &["queues", "list"]), (0, String::new()));
    let (status, said) = run(READ, &["pipelines", "stop", "p0"]);
    assert_eq!(status, 3, "{said}");
    assert!(
        said.contains("the token `watch` has the right `read`; this call needs `operate`"),
        "{said}"
    );
    assert_eq!(run(OPERATE, &["pipelines", "stop", "p0"]).0, 0);
}

/// The name of the scheme is the same in any case (RFC 9110, section 11.1).
#[test]
fn a_token_counts_however_its_scheme_is_written() {
    let (_place, gateway, _cluster) = guarded();
    let admin = gateway.admin();
    for (scheme, status) in [("bearer", 200), ("BEARER", 200), ("Bearer", 200), ("Basic", 401)] {
        let given = format!("{scheme} {READ}");
        let answer = admin
            .send("GET", "/stats", &[("authorization", &*given)], b"")
            .unwrap();
        assert_eq!(answer.status, status, "{scheme}");
    }
}
