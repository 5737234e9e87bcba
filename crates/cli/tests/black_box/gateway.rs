//! A `tidegate gateway` process before a fake cluster.

use std::io::{BufRead as _, BufReader, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;
use testkit::client::{Answer, Client};
use testkit::fake::{FakeCluster, Spec};

/// How long the tests wait for something that happens within moments, since the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A running gateway; dropping it kills it.
pub(crate) struct Gateway {
    process: Child,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    log: Arc<Mutex<String>>,
    /// The folder of its file.
    directory: Option<tempfile::TempDir>,
}

impl Gateway {
    /// Starts a gateway before `cluster` by the command line; returns when it knows the topology.
    pub(crate) fn before(cluster: &FakeCluster) -> Self {
        Self::with(cluster, &[])
    }

    /// Starts a gateway in the same way with more arguments.
    pub(crate) fn with(cluster: &FakeCluster, more: &[&str]) -> Self {
        let url = cluster.urls()[0].clone();
        let mut arguments = vec![
            "--cluster",
            &url,
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
        ];
        arguments.extend(more);
        let gateway = Self::start(&arguments);
        gateway.wait_until("the topology is known", |status| status["state"] == "watching");
        gateway
    }

    /// Starts a gateway with a file whose only flow has these filters, as YAML; `c` is the cluster. Returns
    /// when it knows the topology.
    pub(crate) fn with_filters(cluster: &FakeCluster, filters: &str) -> Self {
        Self::with_file(cluster, filters, "")
    }

    /// Starts a gateway in the same way, with more settings of the cluster.
    pub(crate) fn with_file(cluster: &FakeCluster, filters: &str, settings: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("tidegate.yml");
        let text = format!(
            "path.data: '{}'
admin: {{binding: '127.0.0.1:0'}}
entry: [{{name: e, router: r, network: {{binding: '127.0.0.1:0'}}}}]
router: [{{name: r, default_flow: f}}]
flow:
  - name: f
    filter:
{filters}
elasticsearch: [{{name: c, endpoint: '{}'{settings}}}]
",
            directory.path().join("data").display(),
            cluster.urls()[0]
        );
        std::fs::write(&file, text).unwrap();
        let mut gateway = Self::start(&["--config", file.to_str().unwrap()]);
        gateway.directory = Some(directory);
        gateway.wait_until("the topology is known", |status| status["state"] == "watching");
        gateway
    }

    /// Starts a gateway with these arguments; returns when it listens.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_with(arguments, &[])
    }

    /// Starts a gateway with these additional environment variables.
    pub(crate) fn start_with(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(program());
        command.envs(variables.iter().copied());
        Self::start_by(command, arguments)
    }

    /// Starts a gateway in the same way, in this folder.
    pub(crate) fn start_in(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(program());
        command.envs(variables.iter().copied()).current_dir(folder);
        Self::start_by(command, arguments)
    }

    /// Starts a gateway as this user, which only root can do.
    pub(crate) fn start_as(arguments: &[&str], user: u32) -> Self {
        let mut command = Command::new(program());
        command.uid(user).gid(user);
        Self::start_by(command, arguments)
    }

    /// Starts a gateway with this command.
    pub(crate) fn start_by(mut command: Command, arguments: &[&str]) -> Self {
        command
            .arg("gateway")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut process = loop {
            match command.spawn() {
                // A copy of the program was just written, and a child of another test holds it for a moment.
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                started => break started.unwrap(),
            }
        };
        let log = Arc::new(Mutex::new(String::new()));
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let (mut address, mut admin) = (None, None);
        while address.is_none() || admin.is_none() {
            let Some(Ok(line)) = lines.next() else {
                panic!("tidegate did not start: {:?}\n{}", process.wait(), log.lock());
            };
            let event: Value = serde_json::from_str(&line).unwrap_or_default();
            let listens = || event["address"].as_str().map(|address| address.parse().unwrap());
            match event["message"].as_str() {
                Some("listening") => address = listens(),
                Some("admin API listening") => admin = listens(),
                _ => {}
            }
            let mut log = log.lock();
            log.push_str(&line);
            log.push('\n');
        }
        let kept = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let mut log = kept.lock();
                log.push_str(&line);
                log.push('\n');
            }
        });
        Self {
            process,
            address: address.unwrap(),
            admin: admin.unwrap(),
            log,
            directory: None,
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&format!("http://{}", self.address)).unwrap()
    }

    pub(crate) fn admin(&self) -> Client {
        Client::new(&format!("http://{}", self.admin)).unwrap()
    }

    /// Sends a bulk to `/_bulk`.
    pub(crate) fn bulk(&self, body: &str) -> Answer {
        self.client().post_ndjson("/_bulk", body.as_bytes()).unwrap()
    }

    /// Returns one of the gateway's counters.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let stats = self.admin().get("/stats").unwrap().json().unwrap();
        stats["gateway"][name]
            .as_u64()
            .unwrap_or_else(|| panic!("no counter {name} in {stats}"))
    }

    /// Returns how often bulks passed for this reason.
    pub(crate) fn passed(&self, why: &str) -> u64 {
        let stats = self.admin().get("/stats").unwrap().json().unwrap();
        stats["gateway"]["passed_because"][why].as_u64().unwrap_or(0)
    }

    /// Returns what `/elasticsearch` says about the one cluster.
    pub(crate) fn topology(&self) -> Value {
        let all = self.admin().get("/elasticsearch").unwrap().json().unwrap();
        all.as_object().unwrap().values().next().unwrap().clone()
    }

    /// Waits until the topology meets the condition.
    pub(crate) fn wait_until(&self, what: &str, holds: impl Fn(&Value) -> bool) {
        let began = Instant::now();
        loop {
            let topology = self.topology();
            if holds(&topology) {
                return;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "not so in {PATIENCE:?}: {what}: {topology:#}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until this many requests are being answered at an entry.
    pub(crate) fn wait_for_in_flight(&self, entry: SocketAddr, wanted: u64) {
        let began = Instant::now();
        loop {
            let stats = self.admin().get("/stats").unwrap().json().unwrap();
            let mut entries = stats["entries"].as_object().unwrap().values();
            let address = entry.to_string();
            let found = entries.find(|one| one["address"] == *address);
            if found.is_some_and(|one| one["in_flight"] == wanted) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{stats:#}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until a cluster's injections have hit this many requests.
    pub(crate) fn wait_for_struck(&self, cluster: &FakeCluster, wanted: u64) {
        let began = Instant::now();
        while cluster.struck() < wanted {
            assert!(began.elapsed() < PATIENCE, "{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns everything logged so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().clone()
    }

    /// Waits until something is logged, which happens a moment after it is done. Returns everything logged so
    /// far.
    pub(crate) fn logged(&self, text: &str) -> String {
        let began = Instant::now();
        loop {
            let log = self.log();
            if log.contains(text) {
                return log;
            }
            assert!(began.elapsed() < PATIENCE, "no `{text}` in: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends a signal, by the name that `kill` takes.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-s", name, &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Waits for the process to end.
    pub(crate) fn wait(&mut self) -> std::process::ExitStatus {
        self.process.wait().unwrap()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Makes three nodes that keep what they are sent, with the index `logs` of six shards.
pub(crate) fn cluster() -> FakeCluster {
    FakeCluster::start(Spec::default().index("logs", 6).storing()).unwrap()
}

/// Returns `docs` index operations on `logs`, with ids from 0.
pub(crate) fn body(docs: usize) -> String {
    (0..docs)
        .map(|n| format!("{{\"index\":{{\"_index\":\"logs\",\"_id\":\"{n}\"}}}}\n{{\"n\":{n}}}\n"))
        .collect()
}

/// Returns the items' ids, in order; `operation` is what each item must be.
pub(crate) fn ids(answer: &Value, operation: &str) -> Vec<String> {
    let items = answer["items"].as_array().unwrap();
    items
        .iter()
        .map(|item| item[operation]["_id"].as_str().unwrap().to_owned())
        .collect()
}

/// Returns the items' statuses, in order.
pub(crate) fn statuses(answer: &Value) -> Vec<u64> {
    let items = answer["items"].as_array().unwrap();
    let status = |item: &Value| {
        item.as_object().unwrap().values().next().unwrap()["status"]
            .as_u64()
            .unwrap()
    };
    items.iter().map(status).collect()
}

/// Returns an address of this machine that nobody listens at, and that is not given to a process that asks
/// for any free port: a test that starts meanwhile could take a port that was just given back.
pub(crate) fn free_address() -> SocketAddr {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    // Below the ports that Linux assigns by itself; each process of tests starts from a place of its own.
    let (first, count) = (12_000, 18_000);
    let start = std::process::id().wrapping_mul(137);
    loop {
        let at = start.wrapping_add(NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        let port = first + u16::try_from(at % count).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if std::net::TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

/// Replaces a file's text in one step: a reader sees either the old or the new text.
pub(crate) fn replace_text(file: &Path, text: &str) {
    let beside = file.with_extension("beside");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(beside, file).unwrap();
}

/// Returns the gateway to test: the one that cargo built for this test, unless `TIDEGATE_TEST_PROGRAM` names
/// another.
pub(crate) fn program() -> PathBuf {
    std::env::var_os("TIDEGATE_TEST_PROGRAM")
        .map_or_else(|| env!("CARGO_BIN_EXE_tidegate").into(), PathBuf::from)
}
