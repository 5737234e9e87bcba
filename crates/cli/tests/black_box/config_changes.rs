//! A running gateway gets another configuration through the admin port: it is checked, compared, put in
//! force, and goes back by itself unless it is confirmed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::fake::FakeCluster;

use crate::gateway::{Gateway, PATIENCE, cluster, free_address, program};

/// A gateway with a file that may be replaced.
struct Changing {
    gateway: Gateway,
    cluster: FakeCluster,
    folder: tempfile::TempDir,
}

/// An answer of the admin port.
struct Told {
    status: u16,
    json: Value,
}

impl Changing {
    fn start() -> Self {
        let (cluster, folder) = (cluster(), tempfile::tempdir().unwrap());
        std::fs::write(folder.path().join("tidegate.yml"), text(&cluster)).unwrap();
        let gateway = start(folder.path());
        Self {
            gateway,
            cluster,
            folder,
        }
    }

    /// Kills the gateway with SIGKILL and starts it again.
    fn killed(self) -> Self {
        let Self {
            gateway,
            cluster,
            folder,
        } = self;
        drop(gateway);
        let gateway = start(folder.path());
        Self {
            gateway,
            cluster,
            folder,
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("tidegate.yml")
    }

    fn on_disk(&self) -> String {
        std::fs::read_to_string(self.path()).unwrap()
    }

    fn get(&self, path: &str) -> Value {
        self.gateway
            .admin()
            .get(path)
            .unwrap()
            .ok()
            .unwrap()
            .json()
            .unwrap()
    }

    fn post(&self, path: &str, body: &str) -> Told {
        let headers = [("content-type", "application/yaml"), ("x-actor", "ada")];
        let answer = self.gateway.admin().send("POST", path, &headers, body.as_bytes());
        let answer = answer.unwrap();
        Told {
            status: answer.status,
            json: serde_json::from_str(&answer.text()).unwrap(),
        }
    }

    /// Applies a text as a change of what is in force.
    fn apply(&self, text: &str, within_s: u64) -> Told {
        let file = self.get("/config/_file");
        let version = file["version"].as_str().unwrap();
        self.post(
            &format!("/config/_apply?version={version}&within_s={within_s}"),
            text,
        )
    }

    /// Waits until what was applied has this state.
    fn becomes(&self, state: &str) -> Value {
        let began = Instant::now();
        loop {
            let applied = self.get("/config/_applied");
            if applied["state"] == state {
                return applied;
            }
            assert!(
                began.elapsed() < 2 * PATIENCE,
                "{state}: {applied:#}\n{}",
                self.gateway.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn in_force(&self) -> String {
        self.gateway.admin().get("/config").unwrap().text()
    }

    fn command(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = Command::new(program())
            .arg("config")
            .args(arguments)
            .args(["--admin", &format!("http://{}", self.gateway.admin)])
            .output()
            .unwrap();
        let told = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(told).unwrap())
    }
}

fn start(folder: &Path) -> Gateway {
    let gateway = Gateway::start(&["--config", folder.join("tidegate.yml").to_str().unwrap()]);
    gateway.wait_until("the topology is known", |status| status["state"] == "watching");
    gateway
}

fn text(cluster: &FakeCluster) -> String {
    format!(
        "# kept by hand
admin: {{binding: '127.0.0.1:0'}}
router: [{{name: r, default_flow: f}}]
flow:
  - {{name: f, filter: [{{bulk_reshuffle: {{elasticsearch: c, mode: sync}}}}, {{elasticsearch: {{elasticsearch: c}}}}]}}
elasticsearch:
  - {{name: c, endpoint: '{}', basic_auth: {{username: u, password: hunter2}}}}
entry:
  - {{name: e, router: r, network: {{binding: '127.0.0.1:0'}}, max_concurrency: 500}}
",
        cluster.urls()[0]
    )
}

/// The text with another limit, as somebody changes it who does not see the secrets.
fn another(changing: &Changing) -> String {
    let shown = changing.get("/config/_file")["text"].as_str().unwrap().to_owned();
    assert!(
        !shown.contains("hunter2") && shown.contains("# kept by hand"),
        "{shown}"
    );
    shown.replace("max_concurrency: 500", "max_concurrency: 600")
}

#[test]
fn a_text_is_checked_and_compared_and_what_cannot_be_put_in_force_changes_nothing() {
    let changing = Changing::start();
    let before = changing.on_disk();
    let told = changing.post("/config/_check", &before.replace("router: r,", "ruoter: r,"));
    let problem = &told.json["problems"][1];
    assert_eq!((told.status, &told.json["valid"]), (200, &Value::from(false)));
    assert_eq!(
        (problem["line"].as_u64(), problem["path"].as_str()),
        (Some(9), Some("entry[0].ruoter")),
        "{problem}"
    );
    assert_eq!(problem["help"], "did you mean `router`?");
    let told = changing.post("/config/_diff", &another(&changing));
    assert_eq!(told.json["changes"]["entries"]["e"], "changed", "{}", told.json);
    assert_eq!(
        told.json["words"], "entries: e changed",
        "the masked secret is the same"
    );

    let stale = changing.post("/config/_apply?version=0", &another(&changing));
    assert_eq!(stale.status, 409, "{}", stale.json);
    let nothing = changing.apply(&before, 30);
    assert_eq!(
        nothing.json["error"]["reason"],
        "this is the configuration in force"
    );
    let restart = changing.apply(&format!("{before}worker.count: 1\n"), 30);
    let reason = restart.json["error"]["reason"].as_str().unwrap();
    assert!(
        restart.status == 409 && reason.contains("worker.count"),
        "{reason}"
    );
    let wrong = changing.apply(&before.replace("500", "many"), 30);
    assert_eq!(
        (wrong.status, wrong.json["problems"][0]["line"].as_u64()),
        (400, Some(9))
    );
    let renamed = another(&changing)
        .replace("name: c,", "name: d,")
        .replace("elasticsearch: c", "elasticsearch: d");
    let masked = changing.apply(&renamed, 30);
    let reason = masked.json["error"]["reason"].as_str().unwrap();
    assert!(
        reason.contains("elasticsearch.d.basic_auth.password: is masked"),
        "{reason}"
    );
    // Only the attempt shows that the address is taken.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refused = changing.apply(
        &another(&changing).replacen(
            "binding: '127.0.0.1:0'}, max",
            &format!("binding: '{address}'}}, max"),
            1,
        ),
        30,
    );
    assert_eq!(refused.status, 400, "{}", refused.json);
    assert!(
        refused.json["error"]["reason"]
            .as_str()
            .unwrap()
            .contains("entry[0].network.binding")
    );

    assert_eq!(changing.on_disk(), before);
    assert_eq!(changing.get("/config/_file")["in_force"], true);
    assert!(changing.in_force().contains("max_concurrency: 500"));
    assert!(!changing.gateway.log().contains("hunter2"));
    let names = std::fs::read_dir(changing.folder.path()).unwrap().count();
    assert_eq!(names, 1, "nothing is left beside the file");
}

#[test]
fn a_text_with_masked_values_of_env_can_be_applied_and_its_problems_have_their_places() {
    let (cluster, folder) = (cluster(), tempfile::tempdir().unwrap());
    let with_env = text(&cluster)
        .replace("max_concurrency: 500", "max_concurrency: '$[[env.MOST]]'")
        .replace("password: hunter2", "password: hunter2hunter2hunter2")
        + "env: {MOST: '500'}\nlogging.level: info\n";
    std::fs::write(folder.path().join("tidegate.yml"), &with_env).unwrap();
    let gateway = start(folder.path());
    let changing = Changing {
        gateway,
        cluster,
        folder,
    };
    let shown = changing.get("/config/_file")["text"].as_str().unwrap().to_owned();
    assert!(!shown.contains("500") && !shown.contains("hunter2"), "{shown}");
    let told = changing.post("/config/_check", &shown);
    assert_eq!(told.json["valid"], true, "{}", told.json);
    let wrong = shown.replace("\"********\"}}", "\"********\"}, endpiont: x}");
    let told = changing.post("/config/_check", &wrong);
    let line = wrong.lines().position(|line| line.contains("endpiont")).unwrap();
    let column = wrong.lines().nth(line).unwrap().find("endpiont").unwrap();
    let problem = &told.json["problems"][0];
    assert_eq!(
        (&told.json["errors"], &problem["line"], &problem["column"]),
        (&Value::from(1), &Value::from(line + 1), &Value::from(column + 1)),
        "{}",
        told.json
    );
    let applied = changing.apply(&shown.replace("info", "debug"), 600);
    assert_eq!(
        applied.json["changes"], "changed: logging.level",
        "{}",
        applied.json
    );
    assert_eq!(changing.on_disk(), with_env.replace("info", "debug"));
}

#[test]
fn what_is_confirmed_stays_and_the_former_file_is_beside_it() {
    let changing = Changing::start();
    let before = changing.on_disk();
    let told = changing.apply(&another(&changing), 600);
    assert_eq!(
        (told.status, told.json["state"].as_str()),
        (200, Some("unconfirmed")),
        "{}",
        told.json
    );
    assert_eq!(
        (told.json["actor"].as_str(), told.json["changes"].as_str()),
        (Some("ada"), Some("entries: e changed"))
    );
    assert!(changing.in_force().contains("max_concurrency: 600"));
    let second = changing.apply(&before, 30);
    assert_eq!(second.status, 409, "one at a time: {}", second.json);
    let reason = second.json["error"]["reason"].as_str().unwrap();
    assert!(reason.contains("take it back (POST /config/_revert)"), "{reason}");
    assert_eq!(changing.post("/config/_confirm", "").status, 200);
    assert_eq!(
        changing.post("/config/_confirm", "").status,
        409,
        "it is confirmed already"
    );
    let after = before.replace("500", "600");
    assert_eq!(changing.on_disk(), after, "with its secret and its comment");
    let former = changing.folder.path().join("tidegate.yml.former");
    assert_eq!(std::fs::read_to_string(former).unwrap(), before);
    let log = changing.gateway.logged("applied configuration confirmed");
    assert!(
        log.contains("\"actor\":\"ada\"") && !log.contains("hunter2"),
        "{log}"
    );
    // A restart keeps it, and it can still be taken back, which is a change like any other.
    let changing = changing.killed();
    assert!(changing.in_force().contains("max_concurrency: 600"));
    assert_eq!(
        changing.post("/config/_revert?within_s=600", "").json["state"],
        "unconfirmed"
    );
    assert_eq!(changing.post("/config/_confirm", "").json["state"], "confirmed");
    assert_eq!(changing.on_disk(), before);
}

#[test]
fn what_nobody_confirms_goes_back_by_itself_or_at_once_when_told() {
    let changing = Changing::start();
    let before = changing.on_disk();
    changing.apply(&another(&changing), 5);
    let applied = changing.becomes("reverted");
    assert_eq!(applied["why"], "nobody confirmed it within 5 s");
    assert_eq!(changing.on_disk(), before);
    assert!(changing.in_force().contains("max_concurrency: 500"));
    changing.apply(&another(&changing), 600);
    let told = changing.post("/config/_revert", "");
    assert_eq!(
        (told.json["state"].as_str(), told.json["why"].as_str()),
        (Some("reverted"), Some("ada took it back"))
    );
    assert_eq!(changing.on_disk(), before);
    changing.apply(&another(&changing), 600);
    std::fs::remove_file(changing.folder.path().join("tidegate.yml.former")).unwrap();
    assert_eq!(changing.post("/config/_revert", "").json["state"], "reverted");
    assert_eq!(
        changing.on_disk(),
        before,
        "the gateway itself knows the former text"
    );
    // Whoever writes the file decides.
    changing.apply(&another(&changing), 600);
    let by_hand = before.replace("500", "700");
    crate::gateway::replace_text(&changing.path(), &by_hand);
    let told = changing.post("/config/_revert", "");
    assert_eq!(
        (told.status, changing.on_disk()),
        (409, by_hand.clone()),
        "{}",
        told.json
    );
    changing.becomes("overtaken");
    let changing = changing.killed();
    assert_eq!(changing.on_disk(), by_hand);
}

/// The former configuration's address was taken meanwhile.
#[test]
fn what_cannot_be_put_in_force_again_at_once_is_tried_until_it_can_and_not_said_to_be_in_force() {
    let changing = Changing::start();
    let address = free_address();
    let moved = "binding: '127.0.0.1:0'}, max";
    let before = changing
        .on_disk()
        .replace(moved, &format!("binding: '{address}'}}, max"));
    assert_eq!(changing.apply(&before, 600).status, 200);
    assert_eq!(changing.post("/config/_confirm", "").status, 200);
    let there = std::net::TcpStream::connect(address);
    there.expect("the entry is there");
    changing.apply(&before.replace(&address.to_string(), "127.0.0.1:0"), 600);
    let began = Instant::now();
    let taken = loop {
        match std::net::TcpListener::bind(address) {
            Ok(taken) => break taken,
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(changing.post("/config/_revert", "").status, 409);
    let applied = changing.get("/config/_applied");
    let why = applied["why"].as_str().unwrap();
    assert!(
        applied["state"] == "unconfirmed" && why.contains("cannot be put in force: "),
        "{applied}"
    );
    assert_eq!(changing.on_disk(), before);
    assert!(!changing.in_force().contains(&address.to_string()));
    assert_eq!(changing.post("/config/_confirm", "").status, 409);
    drop(taken);
    let applied = changing.becomes("reverted");
    assert_eq!(applied["why"], "ada took it back");
    assert!(changing.in_force().contains(&address.to_string()));
}

#[test]
fn a_configuration_with_which_the_gateway_is_not_ready_goes_back() {
    let changing = Changing::start();
    let before = changing.on_disk();
    let nobody = format!("http://{}", free_address());
    let away = another(&changing).replace(&changing.cluster.urls()[0], &nobody);
    assert_eq!(changing.apply(&away, 20).status, 200);
    let applied = changing.becomes("reverted");
    let why = applied["why"].as_str().unwrap();
    assert!(
        why.starts_with("the gateway was not ready with it for 6 s: ") && why.contains("`c`"),
        "{why}"
    );
    assert_eq!(changing.on_disk(), before);
    let ready = changing.gateway.admin();
    let began = Instant::now();
    while ready.get("/health/ready").unwrap().status != 200 {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_gateway_that_is_killed_before_the_confirmation_starts_with_the_former_configuration() {
    let changing = Changing::start();
    let before = changing.on_disk();
    changing.apply(&another(&changing), 600);
    assert!(changing.on_disk().contains("600"));
    let changing = changing.killed();
    assert_eq!(changing.on_disk(), before);
    assert!(changing.in_force().contains("max_concurrency: 500"));
    let applied = changing.get("/config/_applied");
    assert_eq!(applied["state"], "reverted");
    assert_eq!(
        applied["why"],
        "the gateway ended before anybody had confirmed it"
    );
    changing.gateway.logged("an applied configuration was taken back");
    let changing = changing.killed();
    assert_eq!(changing.get("/config/_applied"), Value::Null, "that is told once");
}

#[test]
fn without_a_file_or_its_permission_nothing_is_applied() {
    let cluster = cluster();
    let gateway = Gateway::before(&cluster);
    let told = gateway.admin().get("/config/_file").unwrap();
    assert_eq!(told.status, 409, "{}", told.text());
    if !rustix::process::geteuid().is_root() {
        return; // only root can start a gateway as somebody else
    }
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let file = folder.path().join("tidegate.yml");
    std::fs::write(&file, text(&cluster)).unwrap();
    let changing = Changing {
        gateway: Gateway::start_as(&["--config", file.to_str().unwrap()], 65_534),
        cluster,
        folder,
    };
    assert_eq!(
        changing.get("/config/_file")["read_only"],
        "Permission denied (os error 13)"
    );
    let told = changing.apply(&another(&changing), 30);
    let reason = told.json["error"]["reason"].as_str().unwrap();
    assert!(
        told.status == 409 && reason.contains("Permission denied"),
        "{reason}"
    );
}

#[test]
fn the_command_applies_watches_confirms_and_goes_back() {
    let changing = Changing::start();
    let before = changing.on_disk();
    let wanted = changing.folder.path().join("wanted.yml");
    let name = wanted.to_str().unwrap();
    std::fs::write(&wanted, before.replace("router: r,", "ruoter: r,")).unwrap();
    let (status, told) = changing.command(&["apply", name]);
    assert_eq!(status, Some(1), "{told}");
    assert!(
        told.contains("wanted.yml:9:15: error: entry[0].ruoter: unknown key; did you mean `router`?"),
        "{told}"
    );
    std::fs::write(&wanted, before.replace("500", "600")).unwrap();
    let (status, told) = changing.command(&["apply", name, "--dry-run"]);
    assert_eq!((status, &*told), (Some(0), "entries: e changed\n"));
    assert_eq!(changing.on_disk(), before);
    let (status, told) = changing.command(&["apply", name, "--watch", "1"]);
    assert!(status == Some(0) && told.contains("\nconfirmed\n"), "{told}");
    assert!(changing.on_disk().contains("600"));
    for more in [&["--watch", "1"][..], &["--dry-run"]] {
        let (status, told) = changing.command(&[&["apply", name], more].concat());
        assert_eq!((status, &*told), (Some(0), "unchanged\n"));
    }
    let masked = changing.get("/config/_file")["text"].as_str().unwrap().to_owned();
    std::fs::write(&wanted, masked).unwrap();
    let (status, told) = changing.command(&["apply", name]);
    assert_eq!(
        (status, &*told),
        (Some(0), "unchanged\n"),
        "the masks stand for the secrets"
    );
    let (status, told) = changing.command(&["revert", "--watch", "1"]);
    assert!(status == Some(0) && told.contains("\nconfirmed\n"), "{told}");
    assert_eq!(changing.on_disk(), before);
}
