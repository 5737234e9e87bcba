//! The `tidegate` binary before a real cluster, and its admin port.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::http::{Http, Origin};
use super::server::Server;

/// A running gateway; dropping it stops it.
pub(crate) struct Gateway {
    /// The address for clients.
    pub(crate) origin: Origin,
    running: Option<Running>,
}

struct Running {
    /// The gateway's working folder: without a configuration file it keeps its state where it was started.
    _home: tempfile::TempDir,
    process: Child,
    admin: Origin,
    log: std::path::PathBuf,
}

impl Gateway {
    /// Starts Tidegate before a cluster and waits until it knows the cluster. With
    /// `TIDEGATE_PROOF_AGAINST=direct` it is one of the cluster's own nodes instead, to check that a test is
    /// sound.
    pub(crate) fn before(server: &Server) -> Result<Self> {
        if std::env::var_os("TIDEGATE_PROOF_AGAINST").is_some_and(|v| v == "direct") {
            let node = server.nodes.get(1).unwrap_or(&server.nodes[0]);
            return Ok(Self {
                origin: node.clone(),
                running: None,
            });
        }
        Self::before_url(&server.nodes[0].url(), server)
    }

    /// Starts Tidegate so that it directs documents without id and routing.
    pub(crate) fn directing(server: &Server, how: &str) -> Result<Self> {
        Self::run(&server.nodes[0].url(), server, &["--direct-routing", how])
    }

    /// Starts Tidegate so that writes of single documents travel as bulks, combined with others.
    pub(crate) fn rewriting(server: &Server) -> Result<Self> {
        if std::env::var_os("TIDEGATE_PROOF_AGAINST").is_some_and(|v| v == "direct") {
            return Self::before(server);
        }
        Self::run(&server.nodes[0].url(), server, &["--rewrite-to-bulk"])
    }

    /// Starts Tidegate with another address of the cluster.
    pub(crate) fn before_url(url: &str, server: &Server) -> Result<Self> {
        Self::run(url, server, &[])
    }

    /// Starts Tidegate in asynchronous mode.
    pub(crate) fn queueing(server: &Server) -> Result<Self> {
        let (listen, admin, home) = (free_address()?, free_address()?, tempfile::tempdir()?);
        let file = home.path().join("tidegate.yml");
        let text = format!(
            "path.data: '{}'
admin: {{binding: '{admin}'}}
entry: [{{name: e, router: r, network: {{binding: '{listen}'}}}}]
router: [{{name: r, default_flow: f}}]
flow:
  - name: f
    filter:
      - bulk_reshuffle: {{elasticsearch: c, mode: async, queue: {{name: q, min_free: 1mb}}}}
      - elasticsearch: {{elasticsearch: c}}
pipeline: [{{name: p, processor: [{{bulk_indexing: {{elasticsearch: c}}}}]}}]
elasticsearch: [{{name: c, endpoint: '{}'}}]
",
            home.path().join("data").display(),
            server.nodes[0].url(),
        );
        std::fs::write(&file, text)?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(["gateway", "--config"]).arg(&file);
        Self::started(command, home, listen, admin, server)
    }

    /// Starts Tidegate with a file. `text` writes it for the two addresses to listen on: for clients, and for
    /// admins.
    pub(crate) fn from_file(server: &Server, text: impl Fn(&str, &str) -> String) -> Result<Self> {
        let (listen, admin, home) = (free_address()?, free_address()?, tempfile::tempdir()?);
        std::fs::write(home.path().join("gateway.yml"), text(&listen, &admin))?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command
            .args(["gateway", "-config", "gateway.yml"])
            .current_dir(home.path());
        Self::started(command, home, listen, admin, server)
    }

    /// Waits until everything queued is delivered: this many documents are indexed, and this many are dead.
    pub(crate) fn delivered(&self, indexed: u64, dead: u64) -> Result<()> {
        let Some(running) = &self.running else {
            return Ok(());
        };
        let began = Instant::now();
        loop {
            let mut admin = Http::with_patience(&running.admin, Duration::from_secs(30));
            let account = admin.get("/queue/stats")?["q"]["groups"]["c"].clone();
            if account["pending"] == 0 && account["parked"] == 0 {
                let found = (account["indexed"].as_u64(), account["dead"].as_u64());
                ensure!(
                    found == (Some(indexed), Some(dead)),
                    "{account} and not {indexed} indexed, {dead} dead"
                );
                return Ok(());
            }
            ensure!(
                began.elapsed() < Duration::from_secs(60),
                "not delivered: {account}\n{}",
                tail(&running.log)
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn run(url: &str, server: &Server, more: &[&str]) -> Result<Self> {
        let (listen, admin) = (free_address()?, free_address()?);
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args([
            "gateway",
            "--cluster",
            url,
            "--listen",
            &listen,
            "--admin",
            &admin,
        ]);
        command.args(more);
        if let Some((user, password)) = &server.nodes[0].basic_auth {
            command.args(["--user", user]).env("TIDEGATE_PASSWORD", password);
        }
        if let Some(ca) = server.cluster.ca_path() {
            command.arg("--ca").arg(ca);
        }
        Self::started(command, tempfile::tempdir()?, listen, admin, server)
    }

    fn started(
        mut command: Command,
        home: tempfile::TempDir,
        listen: String,
        admin: String,
        server: &Server,
    ) -> Result<Self> {
        let log = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("gateway-{}.log", listen.replace(':', "-")));
        let process = command
            .current_dir(home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log)?)
            .spawn()
            .context("tidegate could not be started")?;
        let basic_auth = server.nodes[0].basic_auth.clone();
        let plain = |address: String, basic_auth| Origin {
            address,
            tls: false,
            basic_auth,
        };
        let mut gateway = Self {
            origin: plain(listen, basic_auth),
            running: Some(Running {
                _home: home,
                process,
                admin: plain(admin, None),
                log,
            }),
        };
        gateway.wait_until("it watches the cluster", Duration::from_secs(20), |status| {
            status["state"] == "watching"
        })?;
        Ok(gateway)
    }

    pub(crate) fn url(&self) -> String {
        self.origin.url()
    }

    pub(crate) fn http(&self) -> Http {
        Http::to(&self.origin)
    }

    /// Waits until the gateway has seen the cluster's current state, and has compared its predictions for all
    /// indices with the cluster's: until then bulks for a new index pass whole. The wait is limited, since
    /// other tests keep making indices.
    pub(crate) fn wait_for_now(&mut self, http: &mut Http) -> Result<()> {
        let now = http.get("/_cluster/state/version")?["version"]
            .as_u64()
            .context("a version")?;
        let began = Instant::now();
        let seen = move |status: &Value| {
            let unverified = &status["routes"]["indices_passed"]["unverified_index"];
            let verified = unverified.as_u64().unwrap_or(0) == 0 || began.elapsed() > VERIFIED_WITHIN;
            verified && status["state_version"].as_u64().is_some_and(|seen| seen >= now)
        };
        self.wait_until("it has seen the newest state", SEEN_WITHIN, seen)
    }

    /// Returns what `/elasticsearch` says about the cluster; `Null` without a gateway.
    pub(crate) fn topology(&self) -> Result<Value> {
        let Some(running) = &self.running else {
            return Ok(Value::Null);
        };
        let all = Http::with_patience(&running.admin, Duration::from_secs(30)).get("/elasticsearch")?;
        let one = all.as_object().and_then(|all| all.values().next().cloned());
        one.context("one cluster")
    }

    /// Returns the counters; `Null` without a gateway.
    pub(crate) fn counters(&self) -> Result<Value> {
        let Some(running) = &self.running else {
            return Ok(Value::Null);
        };
        Ok(Http::with_patience(&running.admin, Duration::from_secs(30)).get("/stats")?["gateway"].clone())
    }

    /// Waits until the topology meets the condition; without a gateway there is nothing to wait for.
    pub(crate) fn wait_until(
        &mut self,
        what: &str,
        patience: Duration,
        holds: impl Fn(&Value) -> bool,
    ) -> Result<()> {
        let Some(running) = &mut self.running else {
            return Ok(());
        };
        let began = Instant::now();
        loop {
            if let Some(status) = running.process.try_wait()? {
                bail!("tidegate ended with {status}: {}", tail(&running.log));
            }
            let admin = running.admin.clone();
            let answer = Http::with_patience(&admin, Duration::from_secs(30)).get("/elasticsearch");
            let one = answer
                .as_ref()
                .ok()
                .and_then(|all| all.as_object()?.values().next().cloned());
            if one.as_ref().is_some_and(&holds) {
                return Ok(());
            }
            ensure!(
                began.elapsed() < patience,
                "not so after {patience:?}: {what}; topology {one:?} {answer:?}\n{}",
                tail(&running.log)
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Checks the share of split bulks: a proof through a gateway that passes everything on proves little.
    pub(crate) fn split_at_least(&self, share: f64) -> Result<()> {
        let counters = self.counters()?;
        if counters.is_null() {
            return Ok(());
        }
        let count = |name: &str| counters[name].as_u64().unwrap_or(0) as f64;
        let (split, passed) = (count("bulk_requests"), count("bulk_passed"));
        println!(
            "split {split}, passed {passed}: {}; direct {}",
            counters["passed_because"], counters["direct_share"]
        );
        ensure!(
            split > 0.0 && split >= share * (split + passed),
            "hardly any bulk was split: {counters}"
        );
        Ok(())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Some(running) = &mut self.running {
            let _ = running.process.kill();
            let _ = running.process.wait();
        }
    }
}

/// The longest time in which a busy machine tells the gateway of a change.
const SEEN_WITHIN: Duration = Duration::from_secs(30);
const VERIFIED_WITHIN: Duration = Duration::from_secs(30);

/// Returns an address that nobody listens at, and that is not given to a process that asks for any free port:
/// such a process could take a port that was just given back.
fn free_address() -> Result<String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Below the ports that Linux assigns by itself; each process of tests starts from a place of its own.
    let start = std::process::id().wrapping_mul(137);
    loop {
        let at = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let address = format!("127.0.0.1:{}", 12_000 + at % 18_000);
        if TcpListener::bind(&address).is_ok() {
            return Ok(address);
        }
    }
}

fn tail(log: &std::path::Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(15).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}
