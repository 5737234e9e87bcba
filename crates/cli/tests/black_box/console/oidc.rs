//! A console with the settings of an OpenID provider, which is not there.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::json;

use super::process::{Console, PASSWORD};

const SETTINGS: &str = "issuer: http://127.0.0.1:1/realms/ops
client_id: tidegate-console
client_secret: hunter2
url: https://console.example/tide
label: Log in with Ops
roles:
  - {value: ops, role: operator}
";

#[test]
fn a_console_with_a_provider_offers_it_at_its_name_and_says_so_when_it_is_down() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("oidc.yml");
    std::fs::write(&file, SETTINGS).unwrap();
    let mut console = Console::start(&["--oidc", file.to_str().unwrap()]).set_up();
    let stranger = console.without_cookie();
    assert_eq!(
        stranger.get("/api/session").json["login"],
        json!({"password": true, "oidc": {"label": "Log in with Ops"}})
    );
    // The host name of the console's address is known without `--host`.
    let named = |name| console.send("GET", "/api/session", &[("host", name)], "").status;
    assert_eq!((named("console.example"), named("other.example")), (200, 403));
    let begun = stranger.get("/api/oidc/login?page=/");
    assert_eq!(
        (begun.status, begun.header("location")),
        (303, "https://console.example/tide/#login=provider")
    );
    let login = json!({"name": "ada", "password": PASSWORD});
    assert_eq!(stranger.post("/api/login", &login).status, 200);
    console.terminate();
    assert!(!console.log().contains("hunter2"));
    for file in std::fs::read_dir(console.folder()).unwrap() {
        let file = file.unwrap().path();
        let bytes = std::fs::read(&file).unwrap();
        let is_there = bytes.windows(7).any(|part| part == b"hunter2");
        assert!(!is_there, "{}", file.display());
    }
}

fn refused(file: &Path) -> Output {
    let folder = tempfile::tempdir().unwrap();
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["console", "--listen", "127.0.0.1:0", "--data"])
        .arg(folder.path())
        .arg("--oidc")
        .arg(file)
        .output()
        .unwrap()
}

#[test]
fn wrong_settings_of_a_provider_are_told_with_their_place_and_start_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("oidc.yml");
    for (text, told) in [
        (
            SETTINGS.replace("client_id", "client_ident"),
            "line 2, column 1: ",
        ),
        (
            SETTINGS.replace("client_id", "client_ident"),
            "did you mean `client_id`?",
        ),
        (
            SETTINGS.replace("http://127.0.0.1:1", "http://login.example"),
            "`issuer`: an address with https:// is wanted",
        ),
        (
            SETTINGS.replace("operator", "operater"),
            "line 7, column 24: `viewer`, `operator` or `admin` is wanted",
        ),
    ] {
        std::fs::write(&file, text).unwrap();
        let output = refused(&file);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(output.stdout.is_empty(), "nothing is announced");
        assert!(said.contains(told) && said.contains("--oidc: "), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
    let output = refused(&folder.path().join("none.yml"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("none.yml") && said.contains("No such file"),
        "{said}"
    );
}
