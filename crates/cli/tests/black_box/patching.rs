//! `tidegate dead-letters patch`: one change for many letters.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::dead_letters::{get, kill_documents, post, run, send};
use crate::gateway::{body, cluster};
use crate::home::GatewayHome;
use crate::terminal::at_a_terminal;

#[test]
fn the_command_line_changes_many_letters_and_shows_them_before() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    kill_documents(&gateway, &cluster, &body(5));
    let step = r#"{"set":{"field":"fixed","value":12345678901234567890}}"#;
    let other = r#"{"rename":{"field":"nowhere","to":"m"}}"#;
    let (status, would, _) = run(&gateway, &["patch", "--all", "--step", step, "--dry-run"], "");
    assert!(status == 0 && would.starts_with("would patch: 5\n"), "{would}");
    let shown: Vec<&str> = would.lines().filter(|line| line.starts_with("  -> ")).collect();
    assert!(
        shown.len() == 5 && shown.iter().all(|line| line.contains("12345678901234567890")),
        "{would}"
    );
    let (_, listed, _) = run(&gateway, &["list", "--json"], "");
    assert!(!listed.contains("12345678901234567890"), "{listed}");
    let (status, _, told) = run(&gateway, &["patch", "--all", "--step", step], "");
    assert!(
        status == 2 && told.contains("patch 5 dead letters? ") && told.contains("--yes"),
        "{told}"
    );
    for (wrong, words) in [
        ("nonsense", "not JSON"),
        (r#"{"sort":{}}"#, "set, remove, rename, convert"),
    ] {
        let (status, _, told) = run(&gateway, &["patch", "--all", "--yes", "--step", wrong], "");
        assert!(status == 2 && told.contains(words), "{status} {told}");
    }
    let steps = ["patch", "--field", "n", "--yes", "--step", step, "--step", other];
    assert_eq!(
        run(&gateway, &steps, ""),
        (0, "patched: 5\n".to_owned(), String::new())
    );
    assert_eq!(run(&gateway, &steps, "").1, "patched: 0\nunchanged: 5\n");
    let (_, listed, _) = run(&gateway, &["list", "--json"], "");
    assert_eq!(listed.matches("12345678901234567890").count(), 5, "{listed}");
    let convert = r#"{"convert":{"field":"fixed","to":"boolean"}}"#;
    let (status, done, _) = run(&gateway, &["patch", "--all", "--yes", "--step", convert], "");
    assert!(
        status == 1 && done.starts_with("patched: 0\nrefused: 5\n  "),
        "{done}"
    );
}

/// An admin port that answers one request after the other with these texts; returns its address, and the
/// paths that were asked for.
fn scripted(answers: &[Value]) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (heard, answers) = (Arc::clone(&asked), answers.to_vec());
    std::thread::spawn(move || {
        for answer in answers {
            let (stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(&stream);
            let (mut bytes, mut line) = (0, String::new());
            while reader.read_line(&mut line).unwrap() > 2 {
                let head = line.trim_end().to_ascii_lowercase();
                if let Some(length) = head.strip_prefix("content-length: ") {
                    bytes = length.parse().unwrap();
                } else if head.starts_with("post ") {
                    heard.lock().push(head.split(' ').nth(1).unwrap().to_owned());
                }
                line.clear();
            }
            reader.read_exact(&mut vec![0; bytes]).unwrap();
            let text = answer.to_string();
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n";
            write!(&stream, "{head}Content-Length: {}\r\n\r\n{text}", text.len()).unwrap();
        }
    });
    (address, asked)
}

/// Runs a command against a scripted admin port.
fn run_at(address: &str, arguments: &[&str]) -> (i32, String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["dead-letters", "--admin", &format!("http://{address}")])
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (out.status.code().unwrap(), text(out.stdout), text(out.stderr))
}

fn patch_at(address: &str, arguments: &[&str]) -> (i32, String, String) {
    let step = ["patch", "--step", r#"{"set":{"field":"price","value":0}}"#];
    run_at(address, &[&step[..], arguments].concat())
}

fn part(patched: u64, unchanged: u64, refusals: Value, more: bool) -> Value {
    let refused = refusals.as_array().unwrap().len();
    json!({"patched": patched, "unchanged": unchanged, "refused": refused, "refusals": refusals,
        "preview": [], "more": more})
}

/// A request that is sent again as it was does the steps to the same letters again.
#[test]
fn a_patch_goes_on_where_the_gateway_stopped_and_adds_up_what_it_says() {
    let mut parts = [
        part(3, 1, json!([{"id": 7, "why": "no"}]), true),
        part(0, 5, json!([{"id": 80, "why": "nor this"}]), true),
        part(2, 0, json!([]), false),
    ];
    parts[0]["next"] = json!(77);
    parts[1]["next"] = json!(99);
    let (address, asked) = scripted(&parts);
    assert_eq!(
        patch_at(&address, &["--all", "--yes"]),
        (
            1,
            "patched: 5\nunchanged: 6\nrefused: 2\n  7: no\n  80: nor this\n".to_owned(),
            String::new()
        )
    );
    let path = "/dead_letters/_patch?all=true";
    assert_eq!(
        *asked.lock(),
        [
            path.to_owned(),
            format!("{path}&from=77"),
            format!("{path}&from=99")
        ]
    );
    // A gateway that does not say where to go on is not asked again, and nothing is called missing.
    let (address, asked) = scripted(&[part(3, 0, json!([]), true), part(3, 0, json!([]), false)]);
    assert_eq!(
        patch_at(&address, &["1", "2", "3", "4", "5", "--yes"]),
        (
            1,
            "patched: 3\nnot all were looked at\n".to_owned(),
            String::new()
        )
    );
    assert_eq!(asked.lock().len(), 1);
    // Where it broke off, the command says from where to go on.
    let (address, _) = scripted(&parts[..1]);
    let (status, _, told) = patch_at(&address, &["--all", "--yes"]);
    assert!(status == 3 && told.contains("--from 77"), "{status} {told}");
}

/// Letters come while a question waits for its answer.
#[test]
fn the_commands_mean_the_letters_that_they_have_asked_about() {
    let mut would = part(0, 0, json!([]), false);
    (would["would"], would["before"]) = (json!(3), json!(700));
    let replayed = json!({"replayed": 3, "refused": 0, "refusals": [], "stopped": null, "more": false});
    let patch = r#"patch --step '{"remove":{"field":"n"}}'"#;
    for (command, name, done, more) in [
        ("purge", "purge", json!({"purged": 3}), "&confirm=true"),
        ("replay", "replay", replayed, ""),
        (patch, "patch", part(3, 0, json!([]), false), ""),
    ] {
        let (address, asked) = scripted(&[would.clone(), done]);
        let program = env!("CARGO_BIN_EXE_tidegate");
        let line = format!("{program} dead-letters --admin http://{address} {command} --all");
        let (status, said) = at_a_terminal(&line, "y\n");
        assert_eq!(status, Some(0), "{said}");
        let path = format!("/dead_letters/_{name}?all=true");
        let counted = [format!("{path}&dry_run=true"), format!("{path}&before=700{more}")];
        assert_eq!(*asked.lock(), counted);
    }
}

#[test]
fn what_does_not_fit_is_named_wherever_it_is_asked_and_moves_no_cursor() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    // U+009B, which JSON need not escape, begins a control sequence as ESC [ does.
    let text = "{\"index\":{\"_index\":\"logs\",\"_id\":\"1\"}}\n{\"n\":\"\u{9b}31m\"}\n";
    kill_documents(&gateway, &cluster, text);
    let convert = r#"{"convert":{"field":"n","to":"long"}}"#;
    let patch = |more: &str| run(&gateway, &["patch", "--all", "--step", convert, more], "");
    let (status, done, _) = patch("--yes");
    assert!(
        status == 1 && done.starts_with("patched: 0\nrefused: 1\n  "),
        "{done}"
    );
    assert!(done.contains("n: \" 31m\" is not a whole number\n"), "{done:?}");
    let (status, would, _) = patch("--dry-run");
    assert_eq!((status, would), (1, done.replace("patched: 0", "would patch: 0")));
    let line = format!(
        "{} dead-letters --admin http://{} patch --all --step '{convert}'",
        env!("CARGO_BIN_EXE_tidegate"),
        gateway.admin
    );
    let (status, said) = at_a_terminal(&line, "y\n");
    assert_eq!(status, Some(1), "{said}");
    assert!(said.replace("\r\n", "\n").ends_with(&done), "{said}");
}

#[test]
fn a_preview_shows_numbers_with_all_their_digits() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let source = r#"{"big":12345678901234567890123,"n":1.50}"#;
    let text = format!("{{\"index\":{{\"_index\":\"logs\",\"_id\":\"1\"}}}}\n{source}\n");
    kill_documents(&gateway, &cluster, &text);
    let step = r#"{"set":{"field":"m","value":2.50}}"#;
    let dry = ["patch", "--all", "--dry-run", "--step", step];
    let (status, would, _) = run(&gateway, &dry, "");
    let after = source.replace('}', ",\"m\":2.50}");
    assert!(
        status == 0 && would.contains(&format!(": {source}\n  -> {after}\n")),
        "{would}"
    );
    let (_, would, _) = run(&gateway, &[&dry[..], &["--json"]].concat(), "");
    assert!(would.contains(source) && would.contains(&after), "{would}");
    let (_, help, _) = run(&gateway, &["patch", "--help"], "");
    assert!(!help.contains("how many letters are selected"), "{help}");
}

#[test]
fn the_reasons_of_a_replay_move_no_cursor() {
    let told = json!({"replayed": 0, "refused": 1, "refusals": [{"id": 1, "why": "red \u{1b}[31m"}],
        "stopped": "away \u{1b}[2J", "more": false});
    let (address, _) = scripted(&[told]);
    let (_, done, _) = run_at(&address, &["replay", "--all", "--yes"]);
    assert_eq!(
        done,
        "replayed: 0\nrefused: 1\n  1: red  [31m\nstopped: away  [2J\n"
    );
}

#[test]
fn the_command_line_shows_every_digit_and_field_of_a_letter_before_and_after_an_edit() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let [written, edited] = ["12345678901234567890123", "98765432109876543210987"]
        .map(|big| format!(r#"{{"n":"x","big":{big},"f":0.1000,"f":1.0e5}}"#));
    // What hardly any reader takes: half a pair, a number beyond all, and more brackets than a letter can be
    // indented by.
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    let odd = format!(r#","s":"\ud83d","x":1e999,"deep":{deep}}}"#);
    let written = format!("{}{odd}", written.strip_suffix('}').unwrap());
    let action = r#"{"index":{"_index":"logs","_id":"1"}}"#;
    kill_documents(&gateway, &cluster, &format!("{action}\n{written}\n"));
    let (_, listed, _) = run(&gateway, &["list"], "");
    let id = listed.lines().nth(1).unwrap().split_whitespace().next().unwrap();
    // Only the spaces between them may differ.
    let compact = |text: &str| text.replace(char::is_whitespace, "");
    let shown = |arguments: &[&str], input: &str| {
        let (status, shown, told) = run(&gateway, arguments, input);
        assert_eq!(status, 0, "{told}");
        compact(&shown)
    };
    for arguments in [&["list", "--json"][..], &["show", id], &["show", id, "--json"]] {
        let shown = shown(arguments, "");
        assert!(shown.contains(&written), "{arguments:?}: {shown}");
    }
    for arguments in [
        &["edit", id, "--source", "-"][..],
        &["show", id],
        &["show", id, "--json"],
    ] {
        let shown = shown(arguments, &edited);
        assert!(
            shown.contains(&written) && shown.contains(&edited),
            "{arguments:?}: {shown}"
        );
    }
}

#[test]
fn what_was_counted_is_acted_on_and_no_letter_that_came_since() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let convert = r#"{"patch": [{"set": {"field": "seen", "value": true}}]}"#;
    let patch = |query: &str| -> Value {
        let path = format!("/dead_letters/_patch?{query}");
        send(&gateway, "POST", &path, convert)
            .ok()
            .unwrap()
            .json()
            .unwrap()
    };
    kill_documents(&gateway, &cluster, &body(8));
    let told = [
        get(&gateway, "/dead_letters/_facets"),
        patch("all=true&dry_run=true"),
        post(&gateway, "/dead_letters/_purge?all=true&dry_run=true"),
        post(&gateway, "/dead_letters/_replay?all=true&dry_run=true"),
    ];
    let before = told[0]["before"].as_u64().unwrap();
    assert!(told.iter().all(|one| one["before"] == before), "{told:?}");
    kill_documents(&gateway, &cluster, &body(5));
    let counted = |query: &str| get(&gateway, &format!("/dead_letters/_facets?{query}"))["letters"].clone();
    assert_eq!(
        (counted(""), counted(&format!("before={before}"))),
        (json!(13), json!(8))
    );
    assert_eq!(patch(&format!("all=true&before={before}"))["patched"], 8);
    // A changed letter keeps its id, so it is still one of those that were counted.
    let purged = post(
        &gateway,
        &format!("/dead_letters/_purge?all=true&confirm=true&before={before}"),
    );
    assert_eq!((&purged["purged"], counted("")), (&json!(8), json!(5)));
    let replayed = post(
        &gateway,
        &format!("/dead_letters/_replay?all=true&before={before}"),
    );
    assert_eq!((&replayed["replayed"], counted("")), (&json!(0), json!(5)));
}
