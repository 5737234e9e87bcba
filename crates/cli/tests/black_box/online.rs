//! `tidegate check --online`: distinguishes each thing that can be wrong outside the file, with what to do
//! and an exit status.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use testkit::fake::{FakeCluster, Flavour, Spec, User};

use crate::gateway::cluster;
use crate::home::GatewayHome;

/// A file before a cluster, which is then checked.
struct Checked {
    folder: tempfile::TempDir,
    endpoint: String,
    more: String,
    binding: String,
    queue: String,
    router: String,
    /// Further sections of the file.
    sections: String,
}

impl Checked {
    fn new(endpoint: &str) -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            endpoint: endpoint.to_owned(),
            more: String::new(),
            binding: "127.0.0.1:0".to_owned(),
            queue: String::new(),
            router: String::new(),
            sections: String::new(),
        }
    }

    fn file(&self) -> PathBuf {
        let text = format!(
            "path.data: '{data}'
admin.enabled: false
entry: [{{name: e, router: r, network.binding: '{binding}'}}]
router: [{{name: r, default_flow: f{router}}}]
flow: [{{name: f, filter: [{{bulk_reshuffle: {{elasticsearch: c, mode: async, queue: {{name: q{queue}}}}}}}, {{elasticsearch: {{elasticsearch: c}}}}]}}]
pipeline: [{{name: p, processor: [{{bulk_indexing: {{elasticsearch: c}}}}]}}]
elasticsearch: [{{name: c, endpoint: '{endpoint}'{more}}}]
{sections}",
            data = self.folder.path().join("data").display(),
            binding = self.binding,
            queue = self.queue,
            router = self.router,
            endpoint = self.endpoint,
            more = self.more,
            sections = self.sections,
        );
        let file = self.folder.path().join("gateway.yml");
        std::fs::write(&file, text).unwrap();
        file
    }

    /// Returns the exit status and the output.
    fn run(&self, arguments: &[&str]) -> (i32, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["check", "--online"])
            .args(arguments)
            .arg(self.file())
            .output()
            .unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code().unwrap(), text)
    }

    fn says(&self, status: i32, wanted: &[&str]) {
        let (code, text) = self.run(&[]);
        told(&text, wanted);
        assert_eq!(code, status, "{text}");
    }
}

/// Checks that some line contains all of these.
fn told(text: &str, wanted: &[&str]) {
    let has = |line: &str| wanted.iter().all(|word| line.contains(word));
    assert!(text.lines().any(has), "{wanted:?} is not in one line:\n{text}");
}

#[test]
fn a_file_before_a_healthy_cluster_is_fine_and_nothing_is_left_behind() {
    let cluster = cluster();
    let checked = Checked::new(&cluster.urls()[0]);
    checked.says(0, &["fine: cluster c: opensearch 3", "3 of 3 nodes are up"]);
    checked.says(0, &["fine: queue q: ", " can be written and has ", " free"]);
    checked.says(0, &["fine: entry e: 127.0.0.1:0 is free"]);
    let left = std::fs::read_dir(checked.folder.path()).unwrap().count();
    assert_eq!(left, 1, "only the file itself is there");
    let (status, text) = checked.run(&["--json"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &report["valid"]), (0, &true.into()));
    let found = report["online"].as_array().unwrap();
    // The limit on open files depends on the machine.
    let limit = found.iter().find(|one| one["of"] == "limit").unwrap();
    let but = limit["says"].as_str().unwrap().contains("here, but");
    assert_eq!(but, limit["level"] != "fine", "{limit}");
    let mut found = found.iter().filter(|one| one["of"] != "limit");
    assert!(found.all(|one| one["level"] == "fine"), "{text}");
    let (status, text) = checked.run(&["--quiet"]);
    assert_eq!((status, text.as_str()), (0, ""));
}

#[test]
fn brokers_at_which_nothing_listens_are_named() {
    let (cluster, broker) = (cluster(), TcpListener::bind("127.0.0.1:0").unwrap());
    let address = broker.local_addr().unwrap().to_string();
    let mut checked = Checked::new(&cluster.urls()[0]);
    let brokers = |list: &str| format!(", type: kafka, topic: t, brokers: [{list}]");
    checked.queue = brokers(&format!("'{address}'"));
    checked.says(0, &["fine: queue q: in Kafka", "its brokers accept connections"]);
    checked.queue = brokers(&format!("'{address}', '127.0.0.1:9'"));
    checked.says(
        0,
        &["warning: queue q: in Kafka", "nothing listens at 127.0.0.1:9"],
    );
    checked.queue = brokers("'127.0.0.1:9'");
    checked.says(
        3,
        &[
            "error: queue q: in Kafka",
            "nothing listens at 127.0.0.1:9",
            "start the brokers",
        ],
    );
}

#[test]
fn a_collector_that_is_away_is_a_warning_with_what_to_do() {
    let (cluster, collector) = (cluster(), TcpListener::bind("127.0.0.1:0").unwrap());
    let address = collector.local_addr().unwrap().to_string();
    let mut checked = Checked::new(&cluster.urls()[0]);
    let (_, text) = checked.run(&[]);
    assert!(!text.contains("collector"), "nothing is traced: {text}");
    let tracing = |place: &str| format!("tracing: {{enabled: true, otlp: {{endpoint: 'http://{place}'}}}}\n");
    checked.sections = tracing(&address);
    checked.says(
        0,
        &[&format!("fine: collector {address}: it accepts connections")],
    );
    drop(collector);
    let warning = format!("warning: collector {address}: nothing listens at {address}");
    checked.says(0, &[&warning, "start the collector, or correct the port"]);
    checked.sections = tracing("no-such-host.invalid:4318");
    let warning = "the name `no-such-host.invalid` cannot be looked up";
    checked.says(
        0,
        &[
            "warning: collector no-such-host.invalid:4318",
            warning,
            "correct the name",
        ],
    );
}

#[test]
fn a_name_a_port_a_protocol_and_an_authority_that_are_wrong_are_told_apart() {
    Checked::new("http://no-such-host.invalid:9200").says(
        3,
        &[
            "error: cluster c: the name `no-such-host.invalid` cannot be looked up",
            "correct the name",
        ],
    );
    Checked::new("http://127.0.0.1:9").says(
        3,
        &[
            "nothing listens at 127.0.0.1:9",
            "start the cluster, or correct the port",
        ],
    );
    let secure = FakeCluster::start(Spec::default().tls()).unwrap();
    let url = &secure.urls()[0];
    Checked::new(&url.replacen("https", "http", 1)).says(
        3,
        &[
            "error: cluster c: its topology cannot be read",
            "should begin with https://",
        ],
    );
    Checked::new(url).says(
        3,
        &[
            "error: cluster c: its topology cannot be read",
            "as the CA to trust; write its file as `tls.ca_file`",
        ],
    );
    // This is how Elasticsearch and OpenSearch with TLS answer plain HTTP.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let mute_url = format!("http://{}", mute.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut socket in mute.incoming().map_while(Result::ok) {
            let _ = socket.read(&mut [0; 1024]);
        }
    });
    Checked::new(&mute_url).says(
        3,
        &["its topology cannot be read", "write its endpoint with https://"],
    );
    // This is how servers with plain HTTP answer something that is not HTTP.
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let plain_url = format!("https://{}", plain.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut socket in plain.incoming().map_while(Result::ok) {
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
        }
    });
    Checked::new(&plain_url).says(
        3,
        &["its topology cannot be read", "should the URL begin with http://"],
    );
}

#[test]
fn a_wrong_account_is_an_error_and_says_what_to_mend() {
    let cluster = FakeCluster::start(
        Spec::default()
            .index("logs", 6)
            .basic_auth("u", "right")
            .storing(),
    )
    .unwrap();
    let mut checked = Checked::new(&cluster.urls()[0]);
    checked.says(
        1,
        &[
            "error: cluster c: it requires an account, and none is configured",
            "the cluster does not let the gateway read it",
        ],
    );
    checked.more = ", basic_auth: {username: u, password: wrong}".to_owned();
    checked.says(
        1,
        &[
            "error: cluster c: it refuses the gateway's account",
            "correct `basic_auth` or `api_key`",
        ],
    );
    let (_, text) = checked.run(&[]);
    assert!(!text.contains("wrong"), "no secret is told: {text}");
    checked.more = ", basic_auth: {username: u, password: right}".to_owned();
    checked.says(0, &["fine: cluster c: "]);
}

/// Makes a cluster whose user `gate` may write only to `logs*`, and may not update or delete.
fn with_few_rights(flavour: Flavour, kept_from: &[&str]) -> FakeCluster {
    let mut gate = User::new("gate", "p").may("logs*", &["index", "create"]);
    for path in kept_from {
        gate = gate.kept_from(path);
    }
    let spec = Spec::default().index("logs", 6).index("metrics", 2).storing();
    FakeCluster::start(spec.flavour(flavour).basic_auth("admin", "p").user(gate)).unwrap()
}

fn as_gate(cluster: &FakeCluster) -> Checked {
    let mut checked = Checked::new(&cluster.urls()[0]);
    checked.more = ", basic_auth: {username: gate, password: p}".to_owned();
    checked
}

#[test]
fn each_right_that_the_account_has_or_lacks_is_told_and_asking_changes_nothing() {
    for flavour in [Flavour::OpenSearch3, Flavour::Elasticsearch9] {
        let cluster = with_few_rights(flavour, &[]);
        let checked = as_gate(&cluster);
        let (status, text) = checked.run(&[]);
        assert_eq!(status, 0, "{text}");
        for wanted in [
            &["fine: cluster c: the account may ask where the shards are"][..],
            &["fine: cluster c: the account may ask what ingest pipelines do"],
            &[
                "fine: cluster c: the account may look documents up",
                "2 of 2 names",
            ],
            &[
                "warning: cluster c: the account may not index documents in metrics (1 of 2 names)",
                "give the account `",
                "if anybody writes there through the gateway",
            ],
            &["warning: cluster c: the account may not delete documents in logs, metrics"],
        ] {
            told(&text, wanted);
        }
        let (_, text) = checked.run(&["--json"]);
        let report: Value = serde_json::from_str(&text).unwrap();
        let found = report["online"].as_array().unwrap();
        let rights = found.iter().filter(|one| {
            let says = one["says"].as_str().unwrap_or_default();
            one["of"] == "cluster" && says.starts_with("the account may")
        });
        assert_eq!(rights.count(), 12, "{text}");
        assert!(cluster.docs("logs").is_empty() && cluster.docs("metrics").is_empty());
    }
}

#[test]
fn a_name_that_is_written_to_for_certain_makes_a_missing_right_an_error() {
    let cluster = with_few_rights(Flavour::OpenSearch3, &[]);
    let mut checked = as_gate(&cluster);
    let (status, text) = checked.run(&["--index", "logs,metrics"]);
    assert_eq!(status, 1, "{text}");
    assert!(
        text.contains("error: cluster c: the account may not index documents in metrics"),
        "{text}"
    );
    assert_eq!(checked.run(&["--index", "logs"]).0, 0);
    // The router names the index too.
    checked.router = ", rules: [{pattern: ['/metrics/_bulk'], flow: [f]}]".to_owned();
    checked.says(
        1,
        &["error: cluster c: the account may not index documents in metrics"],
    );
}

#[test]
fn a_name_that_is_not_there_yet_is_not_made_by_asking() {
    let cluster = with_few_rights(Flavour::OpenSearch3, &[]);
    let (status, text) = as_gate(&cluster).run(&["--index", "logs-new"]);
    assert_eq!(status, 0, "{text}");
    assert!(
        text.contains(
            "warning: cluster c: it is unknown whether the account may create logs-new, which the cluster does not have yet"
        ) && text.contains("cannot be asked without making them"),
        "{text}"
    );
    let cluster = with_few_rights(Flavour::Elasticsearch9, &[]);
    let (status, text) = as_gate(&cluster).run(&["--index", "logs-new"]);
    assert_eq!(status, 0, "{text}");
    assert!(
        text.contains("warning: cluster c: the account may not create logs-new")
            && text.contains("give the account `auto_configure` or `create_index`"),
        "{text}"
    );
    let node = testkit::client::Client::new(&cluster.urls()[0])
        .unwrap()
        .basic_auth("admin", "p");
    assert_eq!(node.get("/logs-new/_settings").unwrap().status, 404);
}

#[test]
fn what_the_watch_may_not_ask_is_told_with_what_comes_of_it() {
    let cluster = with_few_rights(Flavour::OpenSearch3, &["/_ingest", "/_mget"]);
    let (status, text) = as_gate(&cluster).run(&[]);
    assert_eq!(status, 0, "{text}");
    told(
        &text,
        &[
            "warning: cluster c: the account may not ask what ingest pipelines do",
            "give the account `cluster:admin/ingest/pipeline/get`: without it bulks for indices with an ingest pipeline pass whole",
        ],
    );
    told(
        &text,
        &[
            "warning: cluster c: the account may not look documents up",
            "is sent again without a look",
        ],
    );
    let cluster = with_few_rights(Flavour::OpenSearch3, &["/_nodes"]);
    let (status, text) = as_gate(&cluster).run(&[]);
    assert_eq!(status, 1, "{text}");
    for wanted in [
        "error: cluster c: it refuses the gateway's account",
        "error: cluster c: the account may not ask which nodes there are; give the account `cluster:monitor/nodes/info`",
        "fine: cluster c: the account may ask where the shards are",
    ] {
        told(&text, &[wanted]);
    }
    // Without the nodes nobody knows which kind of cluster this is.
    let cluster = with_few_rights(Flavour::Elasticsearch9, &["/_nodes"]);
    let (status, text) = as_gate(&cluster).run(&[]);
    assert_eq!(status, 1, "{text}");
    told(
        &text,
        &[
            "the account may not ask which nodes there are; give the account `cluster:monitor/nodes/info` \
             in OpenSearch, cluster privilege `monitor` in Elasticsearch: without it",
        ],
    );
}

#[test]
fn a_port_that_is_taken_is_an_error_unless_a_gateway_holds_it() {
    let cluster = cluster();
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut checked = Checked::new(&cluster.urls()[0]);
    checked.binding = holder.local_addr().unwrap().to_string();
    checked.says(
        1,
        &[
            "error: entry e: ",
            "is taken by another program",
            "or write another `binding`",
        ],
    );
    checked.binding = "192.0.2.1:8000".to_owned();
    checked.says(
        1,
        &["error: entry e: 192.0.2.1:8000 is not an address of this machine"],
    );

    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let text = std::fs::read_to_string(&place.file).unwrap();
    let text = text
        .replacen(
            "admin: {binding: '127.0.0.1:0'}",
            &format!("admin: {{binding: '{}'}}", gateway.admin),
            1,
        )
        .replacen(
            "network: {binding: '127.0.0.1:0'}",
            &format!("network: {{binding: '{}'}}", gateway.address),
            1,
        );
    let file = place.folder().join("held.yml");
    std::fs::write(&file, text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["check", "--online"])
        .arg(&file)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_eq!(
        text.matches("is held by the gateway that answers at the admin port")
            .count(),
        2,
        "{text}"
    );

    // Another program has the port although a gateway is running, which does not use it.
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let other = other.local_addr().map(|address| (other, address)).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    let text = text.replace(&gateway.address.to_string(), &other.1.to_string());
    std::fs::write(&file, text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["check", "--online"])
        .arg(&file)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains(&format!("{} is taken by another program", other.1)),
        "{text}"
    );
}

#[test]
fn fewer_open_files_than_connections_are_a_warning() {
    let cluster = cluster();
    let checked = Checked::new(&cluster.urls()[0]);
    let line = format!(
        "ulimit -n 200; {} check --online {}",
        env!("CARGO_BIN_EXE_tidegate"),
        checked.file().display()
    );
    let output = Command::new("bash").args(["-c", &line]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    told(
        &text,
        &[
            "warning: limit open files: 200 are allowed here, but `max_concurrency` promises ",
            "LimitNOFILE",
        ],
    );
    assert_eq!(output.status.code(), Some(0), "{text}");
}

#[test]
fn a_queue_without_room_or_folder_is_an_error() {
    let cluster = cluster();
    let mut checked = Checked::new(&cluster.urls()[0]);
    checked.queue = ", min_free: 900tb".to_owned();
    checked.says(
        1,
        &[
            "error: queue q: ",
            "must stay free: nothing would be accepted",
            "lower `queue.min_free`",
        ],
    );
    checked.queue = ", max_size: 900tb".to_owned();
    checked.says(
        0,
        &[
            "warning: queue q: ",
            "less than the queue may take",
            "lower `queue.max_size`",
        ],
    );
    checked.queue = String::new();
    // There is a file where the folder should be. The folder above can be written, so this error is left to
    // the start.
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["check", "--online", "/nowhere.yml"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
}
