//! Logins before a real OpenID provider: the example server of `zitadel/oidc`, which Go (1.26 or later)
//! builds from `tests/oidc_provider`. Ignored unless asked for, because that takes up to a minute.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::client::{Answer, Client};

use crate::console::process::Console;
use crate::gateway::{PATIENCE, free_address};
use crate::go;

/// A running provider; dropping it ends it.
struct Provider {
    process: Child,
    issuer: String,
}

/// Builds the provider, once.
fn program() -> PathBuf {
    static BUILT: OnceLock<tempfile::TempDir> = OnceLock::new();
    go::program("oidc_provider", &BUILT)
}

impl Provider {
    /// Starts a provider for a console at this address.
    fn start(console: SocketAddr) -> Self {
        let mut process = Command::new(program())
            .args([free_address().to_string(), format!("http://{console}")])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap()).lines();
        let issuer = output.next().unwrap().unwrap();
        Self { process, issuer }
    }

    /// Returns the console's settings, with `more` of them.
    fn settings(&self, console: SocketAddr, more: &str) -> String {
        format!(
            "issuer: {}
client_id: console
url: http://{console}
roles:
  - {{value: search-admins, role: operator}}
  - {{value: everybody, role: viewer}}
{more}
",
            self.issuer
        )
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A browser: it keeps cookies by server, and follows redirections.
#[derive(Default)]
struct Browser(BTreeMap<String, BTreeMap<String, String>>);

impl Browser {
    fn send(&mut self, method: &str, url: &str, kind: &str, body: &str) -> Answer {
        let at = url.match_indices('/').nth(2).map_or(url.len(), |(at, _)| at);
        let (origin, path) = url.split_at(at);
        let jar = self.0.entry(origin.to_owned()).or_default();
        let cookies: Vec<String> = jar
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let cookies = cookies.join("; ");
        let headers = [
            ("cookie", &*cookies),
            ("content-type", kind),
            ("sec-fetch-site", "same-origin"),
        ];
        let client = Client::new(origin).unwrap();
        let path = path.split('#').next().unwrap();
        let answer = client.send(method, path, &headers, body.as_bytes()).unwrap();
        for cookie in answer.headers.get_all("set-cookie") {
            let pair = cookie.to_str().unwrap().split(';').next().unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            jar.insert(name.to_owned(), value.to_owned());
        }
        answer
    }

    /// Goes to a page. Returns its address and the answer, after all redirections.
    fn visit(&mut self, url: &str) -> (String, Answer) {
        let mut place = url.to_owned();
        for _ in 0..REDIRECTIONS_MAX {
            let answer = self.send("GET", &place, "", "");
            match answer.header("location") {
                Some(to) => place = beside(&place, to),
                None => return (place, answer),
            }
        }
        panic!("redirections without end: {place}");
    }

    /// Logs in at the provider. Returns the address of the page to which that leads.
    fn log_in(&mut self, console: SocketAddr, user: &str) -> String {
        let begin = format!("http://{console}/api/oidc/login?page=/%23/registry");
        let (place, form) = self.visit(&begin);
        let (page, id) = place.split_once("?authRequestID=").unwrap();
        assert_eq!(form.status, 200, "{place}");
        let typed = format!("id={id}&username={user}&password=verysecure");
        let answer = self.send("POST", page, "application/x-www-form-urlencoded", &typed);
        let to = answer
            .header("location")
            .unwrap_or_else(|| panic!("{}", answer.text()));
        self.visit(&beside(page, to)).0
    }

    fn json(&mut self, method: &str, url: &str) -> (u16, Value) {
        let body = if method == "POST" { "{}" } else { "" };
        let answer = self.send(method, url, "application/json", body);
        (answer.status, answer.json().unwrap())
    }
}

/// Returns the address that a page gives.
fn beside(place: &str, to: &str) -> String {
    match to.starts_with('/') {
        true => format!("{}{to}", place.split('/').take(3).collect::<Vec<_>>().join("/")),
        false => to.to_owned(),
    }
}

fn console(address: SocketAddr, settings: &str) -> (tempfile::TempDir, Console) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("oidc.yml");
    std::fs::write(&file, settings).unwrap();
    let console = Console::listening(address, &["--oidc", file.to_str().unwrap()]);
    (folder, console.set_up())
}

#[test]
#[ignore = "builds a provider with Go"]
fn users_of_a_real_provider_log_in_with_the_roles_of_their_groups_and_log_out_there_too() {
    let address = free_address();
    let provider = Provider::start(address);
    let settings = provider.settings(address, "client_secret: secret");
    let (folder, console) = console(address, &settings);
    let origin = format!("http://{address}");
    let mut admin = Browser::default();
    assert_eq!(
        admin.log_in(address, "test-user%40127.0.0.1"),
        format!("{origin}/#/registry")
    );
    let (status, session) = admin.json("GET", &format!("{origin}/api/session"));
    assert_eq!(status, 200, "{session}");
    let user = &session["user"];
    assert_eq!(
        (&user["name"], &user["role"], &user["oidc"]),
        (&json!("test-user@127.0.0.1"), &json!("operator"), &json!(true))
    );
    // The secret is stored, so a later start needs none.
    let file = folder.path().join("oidc.yml");
    std::fs::write(&file, provider.settings(address, "")).unwrap();
    let console = console.restarted_listening(address, &["--oidc", file.to_str().unwrap()]);
    let mut other = Browser::default();
    other.log_in(address, "test-user2");
    let (_, session) = other.json("GET", &format!("{origin}/api/session"));
    let user = &session["user"];
    assert_eq!(
        (&user["name"], &user["role"]),
        (&json!("test-user2"), &json!("viewer")),
        "{}",
        console.log()
    );
    // A logout ends both sessions, and the provider leads back to the console.
    let (status, told) = admin.json("POST", &format!("{origin}/api/logout"));
    let there = told["end_session"].as_str().unwrap();
    assert!(status == 200 && there.starts_with(&provider.issuer), "{told}");
    let (place, answer) = admin.visit(there);
    assert_eq!((place, answer.status), (format!("{origin}/"), 200));
    assert_eq!(admin.json("GET", &format!("{origin}/api/session")).0, 401);
    assert_eq!(other.json("GET", &format!("{origin}/api/session")).0, 200);
}

#[test]
#[ignore = "builds a provider with Go"]
fn a_real_provider_refuses_a_wrong_secret_and_the_log_says_so() {
    let address = free_address();
    let provider = Provider::start(address);
    let settings = provider.settings(address, "client_secret: wrong");
    let (_folder, console) = console(address, &settings);
    let mut browser = Browser::default();
    assert_eq!(
        browser.log_in(address, "test-user2"),
        format!("http://{address}/#login=failed")
    );
    let (status, _) = browser.json("GET", &format!("http://{address}/api/session"));
    assert_eq!(status, 401);
    let began = Instant::now();
    while !console.log().contains("does not exchange the code") {
        assert!(began.elapsed() < PATIENCE, "{}", console.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    let log = console.log();
    assert!(log.contains("invalid_client") && !log.contains("wrong"), "{log}");
}

const REDIRECTIONS_MAX: usize = 10;
