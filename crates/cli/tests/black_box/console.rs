//! A `tidegate console` process: logging in, who may ask, the registry, and what is stored.

mod absent;
mod alerts;
mod calls;
mod config;
mod connections;
mod oidc;
pub(crate) mod process;
mod queues;
mod roles;
mod starting;
mod trials;
mod watching;

use serde_json::{Value, json};
use testkit::fake::{FakeCluster, Fault, Injection, On, Spec};

use process::{Console, PASSWORD};

#[test]
fn the_first_start_prints_a_link_that_makes_the_first_user_once() {
    let console = Console::start(&[]);
    let link = console.link.clone().unwrap();
    let session = console.get("/api/session");
    assert_eq!(
        (session.status, &session.json["first_start"]),
        (401, &json!(true))
    );
    let ask = |link: &str, name: &str, password: &str| {
        console.post(
            "/api/setup",
            &json!({"link": link, "name": name, "password": password}),
        )
    };
    assert_eq!(ask("guessed", "eve", PASSWORD).status, 403);
    assert_eq!(ask(&link, "ada", "short").status, 400);
    let made = ask(&link, "ada", PASSWORD);
    assert_eq!((made.status, &made.json["user"]["name"]), (200, &json!("ada")));
    assert_eq!(ask(&link, "eve", PASSWORD).status, 403, "the link works once");
    // After a restart there is a user, and no link.
    let console = console.restarted();
    assert_eq!(console.link, None);
    assert_eq!(console.get("/api/session").json["first_start"], false);
    assert_eq!(
        console
            .post("/api/login", &json!({"name": "ada", "password": PASSWORD}))
            .status,
        200
    );
}

#[test]
fn a_session_is_a_strict_cookie_and_ends_with_its_logout() {
    let console = Console::start(&[]).set_up();
    let login = console.post("/api/login", &json!({"name": "ADA", "password": PASSWORD}));
    let cookie = login.header("set-cookie");
    assert!(
        cookie.contains("; HttpOnly; SameSite=Strict") && cookie.contains("Path=/"),
        "{cookie}"
    );
    assert_eq!(console.get("/api/session").json["user"]["role"], "admin");
    for path in [
        "/api/registry",
        "/api/overview",
        "/api/live",
        "/api/tabs",
        "/api/audit",
    ] {
        assert_eq!(console.without_cookie().get(path).status, 401, "{path}");
    }
    assert_eq!(console.post("/api/logout", &json!({})).status, 200);
    assert_eq!(console.get("/api/registry").status, 401);
}

#[test]
fn guessing_passwords_is_slowed_down_for_known_and_unknown_names_alike() {
    let console = Console::start(&[]).set_up();
    let guess = |name: &str| {
        console.post(
            "/api/login",
            &json!({"name": name, "password": "a wrong password"}),
        )
    };
    for _ in 0..5 {
        let refused = guess("nobody");
        assert_eq!(refused.status, 401);
        assert_eq!(refused.json["error"]["reason"], "name or password is wrong");
    }
    let slowed = guess("nobody");
    assert_eq!(slowed.status, 429);
    assert!(slowed.json["retry_after_s"].as_u64().unwrap() >= 1);
    // The address is slowed down as well, whatever the name is.
    assert_eq!(guess("ada").status, 429);
}

#[test]
fn refused_logins_are_in_the_audit_log_and_a_guesser_does_not_fill_it() {
    let mut console = Console::start(&[]).set_up();
    let typed = "my-own-password-in-the-wrong-field";
    let guess = |name: &str| {
        let login = json!({"name": name, "password": "a wrong password"});
        console.without_cookie().post("/api/login", &login).status
    };
    assert_eq!(guess(typed), 401);
    let mut refused = [0, 0];
    for _ in 0..250 {
        refused[usize::from(guess("ADA") == 429)] += 1;
    }
    assert!(refused[0] >= 4 && refused[1] > 200, "{refused:?}");
    let own = console.post(
        "/api/password",
        &json!({"old": "not the old one", "new": "a new password"}),
    );
    assert_eq!(own.status, 429);
    console.post(
        "/api/setup",
        &json!({"link": "x", "name": "eve", "password": PASSWORD}),
    );
    let noted = |told: Value| -> Vec<(String, String, u64)> {
        let entries = told["entries"].as_array().unwrap().iter().rev();
        let failed = entries.filter(|entry| entry["what"].as_str().unwrap().starts_with("failed"));
        failed
            .map(|entry| {
                let after = &entry["after"];
                assert_eq!(after["address"], "127.0.0.1");
                let tries = after["wrong"].as_u64().unwrap() + after["throttled"].as_u64().unwrap();
                let word = |name: &str| entry[name].as_str().unwrap().to_owned();
                (word("user"), word("what"), tries)
            })
            .collect()
    };
    let entry = |user: &str, what: &str, tries| (user.to_owned(), what.to_owned(), tries);
    let mut expected = vec![
        entry("(unknown)", "failed login", 1),
        entry("ada", "failed login", 1),
        entry("ada", "failed login", 10),
        entry("ada", "failed login", 100),
        entry("ada", "failed change of password", 1),
        entry("(unknown)", "failed setup", 1),
    ];
    assert_eq!(noted(console.get("/api/audit").json), expected);
    // What was counted since is noted when the console stops.
    console.terminate();
    let console = console.restarted();
    let login = json!({"name": "ada", "password": PASSWORD});
    assert_eq!(console.post("/api/login", &login).status, 200);
    expected.push(entry("ada", "failed login", 250));
    assert_eq!(noted(console.get("/api/audit").json), expected);
    for file in std::fs::read_dir(console.folder()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        let found = bytes
            .windows(typed.len())
            .any(|window| window == typed.as_bytes());
        assert!(!found, "what was typed as a name is stored");
    }
}

#[test]
fn other_pages_other_names_and_other_forms_of_bodies_are_refused() {
    let console = Console::start(&[]).set_up();
    let status = |headers: &[(&str, &str)]| console.send("POST", "/api/clusters", headers, "{}").status;
    let json = ("content-type", "application/json");
    assert_eq!(
        status(&[json, ("sec-fetch-site", "same-origin")]),
        400,
        "it is read"
    );
    assert_eq!(status(&[json, ("sec-fetch-site", "cross-site")]), 403);
    assert_eq!(status(&[json, ("sec-fetch-site", "same-site")]), 403);
    assert_eq!(status(&[json, ("sec-fetch-site", "none")]), 403);
    assert_eq!(status(&[json, ("origin", "http://evil.example")]), 403);
    assert_eq!(status(&[json, ("origin", "null")]), 403);
    assert_eq!(status(&[json]), 403, "neither is said");
    let own = format!("http://{}", console.address());
    assert_eq!(status(&[json, ("origin", &own)]), 400);
    assert_eq!(
        status(&[("content-type", "text/plain"), ("sec-fetch-site", "same-origin")]),
        403
    );
    let read = |headers: &[(&str, &str)]| console.send("GET", "/api/registry", headers, "").status;
    assert_eq!(read(&[("sec-fetch-site", "cross-site")]), 403);
    assert_eq!(
        read(&[("host", "evil.example")]),
        403,
        "a name that leads here, of somebody else's making"
    );
    assert_eq!(read(&[("host", "localhost:9000")]), 200);
    let page = console.send("GET", "/", &[("host", "evil.example:9000")], "");
    assert_eq!(page.status, 403);
}

#[test]
fn the_page_is_served_with_its_headers_and_nothing_beside_it() {
    let console = Console::start(&[]);
    let page = console.get("/");
    assert_eq!(
        (page.status, page.header("content-type")),
        (200, "text/html; charset=utf-8")
    );
    let policy = page.header("content-security-policy");
    assert!(
        policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"),
        "{policy}"
    );
    assert!(policy.ends_with("require-trusted-types-for 'script'"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), "nosniff");
    let script = page
        .text
        .split("src=\"./")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap()
        .to_owned();
    let file = console.send("GET", &format!("/{script}"), &[("accept-encoding", "gzip")], "");
    assert_eq!((file.status, file.header("content-encoding")), (200, "gzip"));
    assert!(file.header("cache-control").contains("immutable"));
    let etag = file.header("etag").to_owned();
    assert_eq!(
        console
            .send("GET", &format!("/{script}"), &[("if-none-match", &etag)], "")
            .status,
        304
    );
    for path in [
        "/../Cargo.toml",
        "/assets/../../Cargo.toml",
        "/%2e%2e/Cargo.toml",
        "/assets",
        "/index.htm",
    ] {
        assert_eq!(console.get(path).status, 404, "{path}");
    }
}

#[test]
fn a_base_path_holds_everything() {
    let console = Console::start(&["--base-path", "/tide"]);
    assert_eq!(console.get("/tide/api/session").status, 401);
    assert_eq!(console.get("/tide/").status, 200);
    let moved = console.get("/tide");
    assert_eq!((moved.status, moved.header("location")), (308, "/tide/"));
    assert_eq!(console.get("/api/session").status, 404);
    assert_eq!(console.get("/tidex/api/session").status, 404);
    assert!(console.link_url.as_ref().unwrap().contains("/tide/#setup="));
}

#[test]
fn it_does_not_listen_to_other_machines_in_clear() {
    let folder = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args([
            "console",
            "--listen",
            "0.0.0.0:0",
            "--data",
            folder.path().to_str().unwrap(),
        ])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--tls-cert"));
}

#[test]
fn secrets_are_in_no_file_answer_or_line_of_the_log() {
    let secret = "s3cret-hunter2";
    let cluster = FakeCluster::start(Spec::default().basic_auth("tide", secret)).unwrap();
    let console = Console::start(&[]).set_up();
    let entry = json!({"name": "prod", "endpoints": cluster.urls(), "username": "tide", "password": secret});
    let made = console.post("/api/clusters", &entry);
    assert_eq!((made.status, &made.json["has_password"]), (200, &json!(true)));
    let id = made.json["id"].as_str().unwrap();
    // The stored password works, for the poll and for a test that does not give it.
    console.wait_for_row("prod", |row| row["state"] == "ok");
    let tested = console.post(
        "/api/clusters/_test",
        &json!({"id": id, "endpoints": cluster.urls()}),
    );
    assert_eq!(tested.json["ok"], true, "{}", tested.text);
    // Without the password the cluster refuses, and the row says so.
    let removed = console.put(
        &format!("/api/clusters/{id}"),
        &json!({"password": null, "username": null}),
    );
    assert_eq!(removed.json["has_password"], false);
    console.wait_for_row("prod", |row| {
        row["state"] == "bad" && row["why"][0].as_str().unwrap().contains("401")
    });
    let again = console.put(
        &format!("/api/clusters/{id}"),
        &json!({"password": secret, "username": "tide"}),
    );
    assert_eq!(again.status, 200);
    let yaml = format!("gateways: [{{name: gw, url: 'http://127.0.0.1:9', token: {secret}}}]");
    assert_eq!(
        console.post("/api/registry/_import", &json!({"yaml": yaml})).json["added"],
        json!(["gw"])
    );
    for path in ["/api/registry", "/api/overview", "/api/audit", "/api/session"] {
        let answer = console.get(path);
        assert!(!answer.text.contains("hunter2"), "{path}: {}", answer.text);
    }
    let encoded = "dGlkZTpzM2NyZXQtaHVudGVyMg"; // tide:s3cret-hunter2
    for file in std::fs::read_dir(console.folder()).unwrap() {
        let file = file.unwrap().path();
        let bytes = std::fs::read(&file).unwrap();
        for needle in [secret, PASSWORD, encoded] {
            let found = bytes
                .windows(needle.len())
                .any(|window| window == needle.as_bytes());
            assert!(!found, "{needle} is in {}", file.display());
        }
    }
    let log = console.log();
    assert!(
        !log.contains("hunter2") && !log.contains(PASSWORD) && !log.contains(encoded),
        "{log}"
    );
}

#[test]
fn what_is_done_is_in_the_audit_log() {
    let console = Console::start(&[]).set_up();
    let made = console.post(
        "/api/clusters",
        &json!({"name": "prod", "endpoints": ["http://127.0.0.1:9"]}),
    );
    let id = made.json["id"].as_str().unwrap().to_owned();
    console.put(&format!("/api/clusters/{id}"), &json!({"colour": "#ff0000"}));
    assert_eq!(console.delete(&format!("/api/clusters/{id}")).status, 200);
    assert_eq!(console.delete(&format!("/api/clusters/{id}")).status, 404);
    let audit = console.get("/api/audit?limit=3");
    let done: Vec<&Value> = audit.json["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| &entry["what"])
        .collect();
    assert_eq!(done, ["remove cluster", "change cluster", "register cluster"]);
    let changed = &audit.json["entries"][1];
    assert_eq!(
        (&changed["user"], &changed["target"]),
        (&json!("ada"), &json!("prod"))
    );
    assert_eq!(
        (&changed["before"]["colour"], &changed["after"]["colour"]),
        (&Value::Null, &json!("#ff0000"))
    );
}

#[test]
fn a_file_is_imported_whole_or_its_problems_are_told_by_line_and_column() {
    let console = Console::start(&[]).set_up();
    let import = |yaml: &str| console.post("/api/registry/_import", &json!({"yaml": yaml})).json;
    let told = import(
        "clusters:\n  - name: a\n    endpoints: [http://127.0.0.1:9]\n  - name: b\n    endpoint: 'ftp://x'\n    colr: '#fff'\n",
    );
    assert_eq!((&told["added"], console.clusters().len()), (&json!([]), 0));
    let problems = told["problems"].as_array().unwrap();
    let places: Vec<(&Value, &Value)> = problems
        .iter()
        .map(|one| (&one["line"], &one["column"]))
        .collect();
    assert_eq!(
        places,
        [(&json!(4), &json!(5)), (&json!(6), &json!(5))],
        "{told:#}"
    );
    assert!(
        problems[1]["reason"]
            .as_str()
            .unwrap()
            .contains("did you mean `colour`?")
    );
    let yaml = "clusters:\n  - name: a\n    endpoints: [http://127.0.0.1:9]\n    read_only: true\n";
    assert_eq!(import(yaml)["added"], json!(["a"]));
    assert_eq!(
        import(yaml)["changed"],
        json!(["a"]),
        "the same file again changes what it made"
    );
    assert_eq!(console.clusters()[0]["read_only"], true);
}

#[test]
fn the_registry_of_the_page_can_be_imported() {
    let page = include_str!("../../../../docs/console.md");
    let (_, rest) = page.split_once("\n    clusters:\n").unwrap();
    let block = rest.lines().take_while(|line| line.starts_with("    "));
    let yaml: String = block.map(|line| format!("{}\n", &line[4..])).collect();
    let console = Console::start(&[]).set_up();
    let told = console.post(
        "/api/registry/_import",
        &json!({"yaml": format!("clusters:\n{yaml}")}),
    );
    assert_eq!(
        told.json["added"],
        json!(["prod", "archive", "edge"]),
        "{}",
        told.text
    );
}

#[test]
fn the_connection_test_names_the_step_that_fails() {
    let console = Console::start(&[]).set_up();
    let failing = |draft: Value| {
        let told = console.post("/api/clusters/_test", &draft).json;
        let steps = told["steps"].as_array().unwrap_or_else(|| panic!("{told}"));
        let last = steps.last().unwrap();
        assert_eq!(
            (&told["ok"], &last["ok"]),
            (&json!(false), &json!(false)),
            "{told:#}"
        );
        assert!(
            steps[..steps.len() - 1].iter().all(|step| step["ok"] == true),
            "{told:#}"
        );
        last["step"].as_str().unwrap().to_owned()
    };
    let at = |url: &str| json!({"endpoints": [url]});
    assert_eq!(failing(at("http://nowhere.invalid:9200")), "dns");
    assert_eq!(failing(at("http://127.0.0.1:9")), "tcp");
    assert_eq!(
        failing(json!({"endpoints": ["https://127.0.0.1:9"], "ca_pem": "no certificate"})),
        "tls"
    );
    let secured = FakeCluster::start(Spec::default().tls().basic_auth("tide", "pass")).unwrap();
    let url = &secured.urls()[0];
    let ca = secured.ca_pem().unwrap();
    assert_eq!(failing(at(url)), "tls", "nobody vouches for it");
    assert_eq!(
        failing(at(&url.replace("https://", "http://"))),
        "tls",
        "it speaks TLS, and was asked without"
    );
    assert_eq!(failing(json!({"endpoints": [url], "ca_pem": ca})), "auth");
    let wrong = json!({"endpoints": [url], "ca_pem": ca, "username": "tide", "password": "wrong"});
    assert_eq!(failing(wrong), "auth");
    let right = json!({"endpoints": [url], "ca_pem": ca, "username": "tide", "password": "pass"});
    let told = console.post("/api/clusters/_test", &right).json;
    assert_eq!(
        (&told["ok"], &told["found"]["flavour"]),
        (&json!(true), &json!("opensearch")),
        "{told:#}"
    );
    secured.inject(Injection::new(On::Any, Fault::Garbage("<html>not a cluster".to_owned())).always());
    assert_eq!(failing(right), "version");
}
