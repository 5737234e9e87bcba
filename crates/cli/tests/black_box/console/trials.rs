//! Trials: `tidegate compare` by the console, on a real gateway before a fake cluster that stores.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::fake::{FakeCluster, Spec};

use super::process::{Console, Told};
use crate::gateway::{Gateway, PATIENCE};

const SECRET: &str = "pass-of-the-cluster";

/// A console that knows a gateway and its cluster.
struct Setting {
    cluster: FakeCluster,
    _gateway: Gateway,
    console: Console,
    cluster_id: String,
    path: String,
}

impl Setting {
    fn new() -> Self {
        let cluster = FakeCluster::start(Spec::default().storing().basic_auth("tide", SECRET)).unwrap();
        let url = cluster.urls()[0].clone();
        let arguments = [
            "--cluster",
            &url,
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
        ];
        let account = [("TIDEGATE_USER", "tide"), ("TIDEGATE_PASSWORD", SECRET)];
        let gateway = Gateway::start_with(&arguments, &account);
        gateway.wait_until("the topology is known", |status| status["state"] == "watching");
        let console = Console::start(&[]).set_up();
        let entry =
            json!({"name": "prod", "endpoints": cluster.urls(), "username": "tide", "password": SECRET});
        let cluster_id = console.register(entry);
        let entry = json!({"name": "gw", "url": format!("http://{}", gateway.admin)});
        let id = console.post("/api/gateways", &entry).json["id"]
            .as_str()
            .unwrap()
            .to_owned();
        let setting = Self {
            cluster,
            _gateway: gateway,
            console,
            cluster_id,
            path: format!("/api/gateways/{id}/trial"),
        };
        setting.wait_until("the gateway has told its entries and clusters", |told| {
            told["clusters"][0]["id"] == setting.cluster_id.as_str()
                && told["entries"]
                    .as_object()
                    .is_some_and(|entries| !entries.is_empty())
        });
        setting
    }

    fn show(&self) -> Value {
        self.console.get(&self.path).json
    }

    fn wait_until(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let told = self.show();
            if holds(&told) {
                return told;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "not so: {what}: {told:#}\n{}",
                self.console.log()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn begin(&self, documents: u64, rounds: u64) -> Told {
        let told = self.show();
        let entry = told["entries"].as_object().unwrap().keys().next().unwrap();
        let load = json!({
            "documents": documents, "batch": 100, "rounds": rounds, "clients": 2, "shards": 3, "replicas": 0,
            "ids": true,
        });
        let wish =
            json!({"cluster": self.cluster_id, "entry": entry, "indices": told["indices"], "load": load});
        self.console.post(&self.path, &wish)
    }

    /// The names of the cluster's indices.
    fn indices(&self) -> Vec<String> {
        let client = testkit::client::Client::new(&self.cluster.urls()[0]).unwrap();
        let client = client.basic_auth("tide", SECRET);
        let told = client.get("/_all/_settings").unwrap().json().unwrap();
        told.as_object().unwrap().keys().cloned().collect()
    }

    fn wait_for_index(&self) {
        let began = Instant::now();
        while self.indices().is_empty() {
            assert!(
                began.elapsed() < PATIENCE,
                "{:#}\n{}",
                self.show(),
                self.console.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn wait_for_no_index(&self) {
        let began = Instant::now();
        while !self.indices().is_empty() {
            assert!(began.elapsed() < PATIENCE, "{:?}", self.indices());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn a_trial_compares_both_ways_keeps_the_figures_and_leaves_no_index() {
    let setting = Setting::new();
    let begun = setting.begin(400, 2);
    assert_eq!(begun.status, 200, "{}", begun.text);
    let refused = setting.begin(400, 2);
    assert_eq!(
        (refused.status, &refused.json["error"]["type"]),
        (409, &json!("busy"))
    );
    let running = setting.show();
    assert_eq!(
        (&running["running"]["progress"]["runs"], &running["is_busy"]),
        (&json!(4), &json!(true)),
        "{running:#}"
    );
    let told = setting.wait_until("the trial is over", |told| !told["last"].is_null());
    let last = &told["last"];
    assert_eq!(
        (&last["state"], &told["running"]),
        (&json!("compared"), &Value::Null),
        "{told:#}"
    );
    let figures = &last["figures"];
    assert_eq!(
        (&figures["runs"], &figures["flawed_runs"]),
        (&json!(4), &json!(0))
    );
    let phase = &figures["phases"][0];
    for way in ["direct", "gateway"] {
        assert!(phase[way]["counted_per_s"].as_f64().unwrap() > 0.0, "{figures:#}");
    }
    // So little work may take less CPU time than the nodes can measure.
    assert!(
        phase["counted"]["interval"].is_array() && phase["direct"]["cpu_s"].is_number(),
        "{figures:#}"
    );
    assert_eq!(setting.indices(), [""; 0]);
    assert!(
        !setting.console.log().contains(SECRET),
        "{}",
        setting.console.log()
    );
    let audit = setting.console.get("/api/audit?limit=3").json;
    let entry = &audit["entries"][0];
    assert_eq!(
        (
            &entry["user"],
            &entry["what"],
            &entry["target"],
            &entry["after"]["cluster"]
        ),
        (&json!("ada"), &json!("begin trial"), &json!("gw"), &json!("prod"))
    );
    assert!(
        entry["after"]["indices"]
            .as_str()
            .unwrap()
            .starts_with("tidegate-trial-")
    );
    // Figures outlive the console.
    let path = setting.path.clone();
    let console = setting.console.restarted();
    let login = json!({"name": "ada", "password": super::PASSWORD});
    assert_eq!(console.post("/api/login", &login).status, 200);
    assert_eq!(console.get(&path).json["last"]["figures"], *figures);
}

#[test]
fn a_trial_that_is_cancelled_and_one_whose_console_is_killed_remove_their_indices() {
    let mut setting = Setting::new();
    assert_eq!(setting.begin(20_000, 10).status, 200);
    setting.wait_for_index();
    assert_eq!(setting.console.delete(&setting.path).json["cancelled"], true);
    let told = setting.wait_until("it is cancelled", |told| told["last"]["state"] == "cancelled");
    assert_eq!(
        (&told["last"]["figures"], &told["leftovers"]),
        (&Value::Null, &json!([]))
    );
    assert_eq!(setting.indices(), [""; 0]);
    assert_eq!(setting.console.delete(&setting.path).json["cancelled"], false);

    assert_eq!(setting.begin(20_000, 10).status, 200);
    setting.wait_for_index();
    let indices = setting.show()["running"]["trial"]["indices"]
        .as_str()
        .unwrap()
        .to_owned();
    // The process is killed; that of the trial sees it, and cleans up.
    setting.console = setting.console.restarted();
    assert!(
        setting.console.log().contains(&format!("{indices}-*")),
        "{}",
        setting.console.log()
    );
    setting.wait_for_no_index();
    let login = json!({"name": "ada", "password": super::PASSWORD});
    assert_eq!(setting.console.post("/api/login", &login).status, 200);
    setting.wait_until("it was interrupted, and left nothing", |told| {
        told["last"]["state"] == "interrupted" && told["leftovers"] == json!([])
    });
    // What is left is named.
    let index = format!("{indices}-1-1-direct");
    let call = setting
        .console
        .call(&setting.cluster_id, "PUT", &format!("/{index}"), Some("{}"));
    assert_eq!(call.json["status"], 200, "{}", call.text);
    setting.wait_until("what is left is named", |told| {
        told["leftovers"] == json!([index])
    });

    // A console that is told to stop waits until nothing is left.
    assert_eq!(setting.begin(20_000, 10).status, 200);
    let deleted = setting
        .console
        .call(&setting.cluster_id, "DELETE", &format!("/{index}"), None);
    assert_eq!(deleted.json["status"], 200, "{}", deleted.text);
    setting.wait_for_index();
    setting.console.terminate();
    assert_eq!(setting.indices(), [""; 0]);
}

#[test]
fn a_trial_ends_with_the_registration_of_its_gateway_or_its_cluster() {
    for of_gateway in [true, false] {
        let mut setting = Setting::new();
        // The trial takes longer than the test waits for its end.
        assert_eq!(setting.begin(20_000, 10).status, 200);
        setting.wait_for_index();
        let entry = match of_gateway {
            true => setting.path.trim_end_matches("/trial").to_owned(),
            false => format!("/api/clusters/{}", setting.cluster_id),
        };
        let removed = setting.console.delete(&entry);
        assert_eq!(removed.status, 200, "{}", removed.text);
        // Any gateway's page says whether a trial is running.
        let other = json!({"name": "other", "url": "http://127.0.0.1:9"});
        let other = setting.console.post("/api/gateways", &other).json;
        setting.path = format!("/api/gateways/{}/trial", other["id"].as_str().unwrap());
        setting.wait_until("no trial is running", |told| told["is_busy"] == false);
        assert_eq!(setting.indices(), [""; 0]);
    }
}

#[test]
fn of_several_clusters_a_trial_runs_on_the_one_to_which_its_entry_delivers_alone() {
    let clusters = [(); 2].map(|()| FakeCluster::start(Spec::default().storing()).unwrap());
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("tidegate.yml");
    let text = format!(
        "admin: {{binding: '127.0.0.1:0'}}
entry:
  - {{name: alone, router: alone, network: {{binding: '127.0.0.1:0'}}}}
  - {{name: both, router: both, network: {{binding: '127.0.0.1:0'}}}}
router:
  - {{name: alone, default_flow: one}}
  - {{name: both, default_flow: one, rules: [{{pattern: ['/other/*'], flow: two}}]}}
flow:
  - {{name: one, filter: [{{bulk_reshuffle: {{elasticsearch: one, mode: sync}}}}, {{elasticsearch: {{elasticsearch: one}}}}]}}
  - {{name: two, filter: [{{elasticsearch: {{elasticsearch: two}}}}]}}
elasticsearch:
  - {{name: one, endpoint: '{}'}}
  - {{name: two, endpoint: '{}'}}
",
        clusters[0].urls()[0],
        clusters[1].urls()[0]
    );
    std::fs::write(&file, text).unwrap();
    let gateway = Gateway::start(&["--config", file.to_str().unwrap()]);
    let console = Console::start(&[]).set_up();
    let ids = ["one", "two"].map(|name| {
        let at = usize::from(name == "two");
        console.register(json!({"name": name, "endpoints": clusters[at].urls()}))
    });
    let entry = json!({"name": "gw", "url": format!("http://{}", gateway.admin)});
    let id = console.post("/api/gateways", &entry).json["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = format!("/api/gateways/{id}/trial");
    let began = Instant::now();
    let told = loop {
        let told = console.get(&path).json;
        if told["entries"]["alone"].is_string() {
            break told;
        }
        assert!(began.elapsed() < PATIENCE, "{told:#}");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(told["reach"], json!({"alone": [ids[0]]}));
    assert_eq!(told["refused"], Value::Null);
    let load = json!({
        "documents": 200, "batch": 100, "rounds": 1, "clients": 1, "shards": 1, "replicas": 0, "ids": true,
    });
    let begin = |cluster: &str, entry: &str| {
        let wish = json!({"cluster": cluster, "entry": entry, "indices": told["indices"], "load": load});
        console.post(&path, &wish).status
    };
    assert_eq!([begin(&ids[0], "both"), begin(&ids[1], "alone")], [400, 400]);
    assert_eq!(begin(&ids[0], "alone"), 200);
    let last = loop {
        let last = console.get(&path).json["last"].clone();
        if last.is_object() {
            break last;
        }
        assert!(began.elapsed() < 2 * PATIENCE, "{}", console.log());
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(
        matches!(last["state"].as_str(), Some("compared" | "flawed")),
        "{last:#}"
    );
    for cluster in &clusters {
        let client = testkit::client::Client::new(&cluster.urls()[0]).unwrap();
        let left = client.get("/_all/_settings").unwrap().json().unwrap();
        assert_eq!(left, json!({}));
    }
}

#[test]
fn a_trial_is_refused_where_writes_are_and_says_why_it_failed() {
    let setting = Setting::new();
    let wrong = setting.begin(400, 11);
    assert_eq!(
        (wrong.status, &wrong.json["error"]["reason"]),
        (400, &json!("rounds: 1 to 10"))
    );
    let wish = |entry: &str, indices: &str| {
        let load = json!({
            "documents": 1, "batch": 1, "rounds": 1, "clients": 1, "shards": 1, "replicas": 0, "ids": false,
        });
        let wish = json!({"cluster": setting.cluster_id, "entry": entry, "indices": indices, "load": load});
        setting.console.post(&setting.path, &wish).status
    };
    let entry = setting.show()["entries"]
        .as_object()
        .unwrap()
        .keys()
        .next()
        .unwrap()
        .clone();
    assert_eq!(wish("http://elsewhere:80", "tidegate-trial-12345678"), 400);
    assert_eq!(wish(&entry, "logs"), 400, "an index of somebody else");
    assert_eq!(wish(&entry, "tidegate-trial-*,logs"), 400);
    for restriction in ["read_only", "protected"] {
        let path = format!("/api/clusters/{}", setting.cluster_id);
        setting.console.put(&path, &json!({restriction: true}));
        let refused = setting.begin(400, 1);
        assert_eq!(
            (refused.status, &refused.json["error"]["type"]),
            (403, &json!(restriction))
        );
        assert_eq!(setting.show()["refused"][0], restriction);
        setting.console.put(&path, &json!({restriction: false}));
    }
    assert_eq!(setting.show()["refused"], Value::Null);
    // The registered address is that of another cluster.
    let other = FakeCluster::start(Spec::default().storing().basic_auth("tide", SECRET)).unwrap();
    let path = format!("/api/clusters/{}", setting.cluster_id);
    let changed = setting
        .console
        .put(&path, &json!({"endpoints": other.urls(), "password": SECRET}));
    assert_eq!(changed.status, 200, "{}", changed.text);
    assert_eq!(setting.begin(400, 1).status, 200);
    let told = setting.wait_until("it failed", |told| told["last"]["state"] == "failed");
    let why = told["why"].as_str().unwrap();
    assert!(why.contains("another cluster"), "{why}");
}
