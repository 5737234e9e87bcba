//! Real OpenSearch and Elasticsearch clusters for tests and the demo.
//!
//! A *shared* cluster of each [`ClusterKind`] is started once and used by all tests of all processes at the
//! same time. `./dev test` holds these clusters as long as it needs them; without it, the first test that
//! needs one starts it, and the end of the last process stops it. Tests on a shared cluster give their
//! indices names of their own ([`RealCluster::fresh_name`]). A test that breaks nodes takes the cluster
//! *alone*: it waits until the others have let go, and mends what it broke at its end. A cluster with other
//! settings, or one that is to die, is a test's *own*.
//!
//! ```no_run
//! use testkit::real::{ClusterKind, RealCluster};
//!
//! let cluster = RealCluster::shared(ClusterKind::OpenSearch)?;
//! let index = cluster.fresh_name("logs");
//! let settings = serde_json::json!({"settings": {"number_of_shards": 3}});
//! cluster.client()?.put(&format!("/{index}"), &settings)?.ok()?;
//! # anyhow::Ok(())
//! ```
//!
//! A cluster that cannot be started is an error that says why; a test never passes for lack of a cluster.

pub(crate) mod hold;
mod kind;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use serde::Deserialize;

use crate::client::Client;
use hold::Hold;
pub use kind::ClusterKind;

/// A running cluster of real servers. Nodes are numbered from 1.
#[derive(Debug)]
pub struct RealCluster {
    dir: PathBuf,
    launched: Launched,
    usage: Usage,
}

/// The differences of a cluster of one's own from the shared ones.
#[derive(Clone, Debug)]
pub struct Own {
    /// The kind of server.
    pub kind: ClusterKind,
    /// Number of nodes; 3 is usual.
    pub nodes: u16,
    /// `KEY=VALUE` for every node, or `node-2:KEY=VALUE` for one.
    pub settings: Vec<String>,
    /// Whether the nodes start faster and index more slowly (C1 compiler, serial collector): not for
    /// measuring.
    pub quick: bool,
}

impl Own {
    /// Returns three nodes with no settings, started quickly.
    #[must_use]
    pub fn new(kind: ClusterKind) -> Self {
        Self {
            kind,
            nodes: 3,
            settings: Vec::new(),
            quick: true,
        }
    }
}

impl RealCluster {
    /// Joins the shared cluster of this kind, together with other tests, which must not be disturbed.
    ///
    /// # Errors
    /// If the cluster cannot be started: no JDK, no Maven, no memory; the error says which.
    pub fn shared(kind: ClusterKind) -> Result<Self> {
        Self::enter(kind, false)
    }

    /// Takes the shared cluster of this kind once no other test uses it. Its nodes may be killed and paused;
    /// dropping it brings all of them back.
    ///
    /// # Errors
    /// As [`RealCluster::shared`].
    pub fn alone(kind: ClusterKind) -> Result<Self> {
        Self::enter(kind, true)
    }

    /// Starts a cluster for this caller only, on free ports; dropping it stops it. Takes 10 to 25 s.
    ///
    /// # Errors
    /// As [`RealCluster::shared`].
    pub fn own(own: &Own) -> Result<Self> {
        let dir = hold::root()?.join(Self::fresh(&format!("own-{}", own.kind.name())));
        let mut options = own.kind.options();
        let http = free_ports(own.nodes)?;
        options.extend([
            "--nodes".to_owned(),
            own.nodes.to_string(),
            "--base-port".to_owned(),
            http.to_string(),
        ]);
        options.extend(
            own.settings
                .iter()
                .flat_map(|setting| ["--set".to_owned(), setting.clone()]),
        );
        if own.quick {
            options.push("--quick".to_owned());
        }
        let hold = Hold::take(&dir, &options)?;
        let cluster = Self {
            launched: Launched::read(&dir)?,
            dir,
            usage: Usage::Own { _hold: hold },
        };
        cluster.recognise()?;
        Ok(cluster)
    }

    /// Keeps the shared cluster of this kind up until this process ends, without using it.
    ///
    /// # Errors
    /// As [`RealCluster::shared`].
    pub fn hold(kind: ClusterKind) -> Result<()> {
        let mut held = HELD.lock();
        if let Entry::Vacant(place) = held.entry(kind) {
            let mut options = kind.options();
            options.extend([
                "--quick".to_owned(),
                "--base-port".to_owned(),
                kind.base_port().to_string(),
            ]);
            place.insert(Hold::take(&hold::root()?.join(kind.name()), &options)?);
        }
        Ok(())
    }

    /// Lets go of every shared cluster that this process holds, and waits until those that nobody else holds
    /// are stopped. The end of the process does the same without waiting.
    pub fn release_all() {
        Self::release_all_but(&[]);
    }

    /// Does so with every cluster that is of none of these kinds.
    pub fn release_all_but(kinds: &[ClusterKind]) {
        let released: Vec<_> = HELD
            .lock()
            .extract_if(.., |kind, _| !kinds.contains(kind))
            .collect();
        drop(released);
    }

    fn enter(kind: ClusterKind, alone: bool) -> Result<Self> {
        Self::hold(kind)?;
        let dir = hold::root()?.join(kind.name());
        // The lock belongs to the open file, so it ends with the file, and therefore with the process.
        let file = File::create(dir.join("turns.lock"))?;
        if alone {
            file.lock()?
        } else {
            file.lock_shared()?
        }
        let cluster = Self {
            launched: Launched::read(&dir)?,
            dir,
            usage: Usage::Shared { _file: file, alone },
        };
        cluster.mend().context("the cluster is not whole")?;
        cluster.recognise()?;
        Ok(cluster)
    }

    /// Makes sure that each port is answered by the node that we started, and not by some other server.
    fn recognise(&self) -> Result<()> {
        for &node in self.nodes() {
            let pid = self
                .pid(node)
                .with_context(|| format!("node {node} of {} does not run", self.dir.display()))?;
            answers_as(&self.client_of(node)?, pid).with_context(|| {
                format!(
                    "{} is not node {node} of {}; is another cluster on its port?",
                    self.url(node),
                    self.dir.display()
                )
            })?;
        }
        Ok(())
    }

    // === what it is

    /// `opensearch` or `elasticsearch`.
    #[must_use]
    pub fn engine(&self) -> &str {
        &self.launched.engine
    }

    /// The server's version, as in `3.8.0`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.launched.version
    }

    /// The numbers of all nodes, from 1.
    #[must_use]
    pub fn nodes(&self) -> &[u16] {
        &self.launched.node_numbers
    }

    /// Every node's origin, node 1 first.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.nodes().iter().map(|&node| self.url(node)).collect()
    }

    /// One node's origin: `http://127.0.0.1:29200`.
    #[must_use]
    pub fn url(&self, node: u16) -> String {
        let scheme = if self.launched.secure { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.launched.base_port + node - 1)
    }

    /// User and password, if the cluster requires them.
    #[must_use]
    pub fn credentials(&self) -> Option<(&'static str, &'static str)> {
        self.launched.secure.then_some(("admin", "admin"))
    }

    /// The folder with a node's configuration, which holds the users of a secure Elasticsearch.
    #[must_use]
    pub fn config_folder(&self, node: u16) -> PathBuf {
        self.dir.join(format!("node-{node}")).join("config")
    }

    /// The PEM file of the authority of the nodes' certificates, if they have any.
    #[must_use]
    pub fn ca_path(&self) -> Option<PathBuf> {
        self.launched
            .secure
            .then(|| self.dir.join("certs").join("ca.pem"))
    }

    /// Returns a client of the first node that runs, with the account and the authority that it needs.
    ///
    /// # Errors
    /// If no node runs.
    pub fn client(&self) -> Result<Client> {
        let node = self.nodes().iter().find(|&&node| self.pid(node).is_some());
        self.client_of(*node.context("no node of the cluster runs")?)
    }

    /// Returns a client of one node.
    ///
    /// # Errors
    /// If the authority's file cannot be read.
    pub fn client_of(&self, node: u16) -> Result<Client> {
        self.client_within(node, Duration::from_secs(60))
    }

    fn client_within(&self, node: u16, timeout: Duration) -> Result<Client> {
        let client = Client::build(&self.url(node), self.ca_path().as_deref(), timeout)?;
        Ok(match self.credentials() {
            Some((user, password)) => client.basic_auth(user, password),
            None => client,
        })
    }

    /// Returns a name for an index (or anything else) that no other test uses.
    #[must_use]
    pub fn fresh_name(&self, prefix: &str) -> String {
        Self::fresh(prefix)
    }

    fn fresh(prefix: &str) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        format!(
            "{prefix}-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        )
    }

    /// Returns the CPU time that one node's process has used since its start, in seconds; `None` if it does
    /// not run.
    #[must_use]
    pub fn cpu_seconds(&self, node: u16) -> Option<f64> {
        cpu_seconds(self.pid(node)?)
    }

    /// Returns the process id of one node, if it runs.
    #[must_use]
    pub fn pid(&self, node: u16) -> Option<u32> {
        let folder = self.dir.join(format!("node-{node}"));
        let pid: u32 = std::fs::read_to_string(folder.join("node.pid"))
            .ok()?
            .trim()
            .parse()
            .ok()?;
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let own = folder.to_str()?.as_bytes();
        command.windows(own.len()).any(|part| part == own).then_some(pid)
    }

    // === breaking and mending

    /// Kills a node with `kill -9`: the node is gone when this returns, and its connections are reset.
    ///
    /// # Errors
    /// If the node does not run.
    ///
    /// # Panics
    /// If the cluster is shared at the time (as all functions below): take it with [`RealCluster::alone`].
    pub fn kill_node(&self, node: u16) -> Result<()> {
        self.disturb("kill-node", node, &[])
    }

    /// Starts a node that does not run, and waits until the cluster is green with it.
    ///
    /// # Errors
    /// If the node runs already, or the cluster does not become green.
    pub fn start_node(&self, node: u16) -> Result<()> {
        self.disturb("start-node", node, &[])
    }

    /// Starts nodes that do not run, all at once, and waits until each of them sees a cluster that is at
    /// least yellow. This is for the case that all of them, or the majority, were down.
    /// # Errors
    /// As [`RealCluster::start_node`].
    pub fn start_nodes(&self, nodes: &[u16]) -> Result<()> {
        std::thread::scope(|scope| {
            let start =
                |&node: &u16| scope.spawn(move || self.disturb("start-node", node, &["--wait", "yellow"]));
            let starting: Vec<_> = nodes.iter().map(start).collect();
            let mut ends = starting.into_iter().map(std::thread::ScopedJoinHandle::join);
            ends.try_for_each(|end| end.unwrap_or_else(|_| bail!("starting a node panicked")))
        })
    }

    /// Pauses a node (SIGSTOP): it accepts connections (its kernel does) and never answers.
    ///
    /// # Errors
    /// If the node does not run.
    pub fn pause_node(&self, node: u16) -> Result<()> {
        self.disturb("pause-node", node, &[])
    }

    /// Resumes a node (SIGCONT).
    ///
    /// # Errors
    /// If the node does not run.
    pub fn resume_node(&self, node: u16) -> Result<()> {
        self.disturb("resume-node", node, &[])
    }

    /// Waits until every node that runs sees a green cluster of all of them.
    ///
    /// # Errors
    /// After two minutes.
    pub fn wait_green(&self) -> Result<()> {
        let running: Vec<u16> = self
            .nodes()
            .iter()
            .copied()
            .filter(|&node| self.pid(node).is_some())
            .collect();
        let until = Instant::now() + Duration::from_secs(120);
        for &node in &running {
            let client = self.client_within(node, Duration::from_secs(10))?;
            loop {
                let health = client.get("/_cluster/health").and_then(|answer| answer.json());
                if let Ok(health) = &health
                    && health["status"] == "green"
                    && health["number_of_nodes"] == running.len()
                {
                    break;
                }
                if Instant::now() > until {
                    bail!(
                        "node {node} of {} does not see a green cluster: {health:?}",
                        self.dir.display()
                    );
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        Ok(())
    }

    fn disturb(&self, command: &str, node: u16, options: &[&str]) -> Result<()> {
        assert!(
            !matches!(self.usage, Usage::Shared { alone: false, .. }),
            "{command} on a cluster that others use; take it with RealCluster::alone"
        );
        let node = node.to_string();
        let args: Vec<&str> = std::iter::once(node.as_str())
            .chain(options.iter().copied())
            .collect();
        hold::command(&self.dir, command, &args)
    }

    /// Starts the nodes that are down. No node can be paused here: only a test that holds the cluster alone
    /// pauses nodes, and it resumes them.
    fn mend(&self) -> Result<()> {
        for &node in self.nodes() {
            if self.pid(node).is_none() {
                hold::command(
                    &self.dir,
                    "start-node",
                    &[node.to_string(), "--wait".to_owned(), "yellow".to_owned()],
                )?;
            }
        }
        Ok(())
    }
}

impl Drop for RealCluster {
    fn drop(&mut self) {
        if !matches!(self.usage, Usage::Shared { alone: true, .. }) {
            return;
        }
        let mended = self
            .nodes()
            .iter()
            .filter(|&&node| self.pid(node).is_some())
            .try_for_each(|&node| self.resume_node(node))
            .and_then(|()| self.mend());
        if let Err(error) = mended {
            tell(&format!("{} could not be mended: {error:#}", self.dir.display()));
        }
    }
}

/// The shared clusters that this process holds.
static HELD: Mutex<BTreeMap<ClusterKind, Hold>> = Mutex::new(BTreeMap::new());

/// The way in which this process may use the cluster.
#[derive(Debug)]
enum Usage {
    Shared { _file: File, alone: bool },
    Own { _hold: Hold },
}

/// The part of the launcher's `cluster.json` that is needed here.
#[derive(Debug, Deserialize)]
struct Launched {
    engine: String,
    version: String,
    secure: bool,
    base_port: u16,
    node_numbers: Vec<u16>,
}

impl Launched {
    fn read(dir: &Path) -> Result<Self> {
        let path = dir.join("cluster.json");
        let text = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} is not as expected", path.display()))
    }
}

/// Checks that the server that answers `client` is this process.
fn answers_as(client: &Client, pid: u32) -> Result<()> {
    let answer = client.get("/_nodes/_local/process?filter_path=nodes.*.process.id")?;
    let answer = answer.ok()?.json()?;
    let nodes = answer["nodes"].as_object().into_iter().flatten();
    let told: Vec<_> = nodes
        .filter_map(|(_, node)| node["process"]["id"].as_u64())
        .collect();
    if told != [u64::from(pid)] {
        bail!("process {pid} should answer there, but the answer comes from {told:?}");
    }
    Ok(())
}

/// Returns the CPU time that a process has used, in seconds, all threads together; `None` if it has ended.
#[must_use]
pub fn cpu_seconds(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    if fields.next()? == "Z" {
        return None; // dead, and its parent hasn't looked yet
    }
    let mut fields = fields.skip(10);
    let ticks: u64 = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Returns the first of `count` free HTTP ports whose transport ports, 100 above, are free too.
fn free_ports(count: u16) -> Result<u16> {
    let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    (0..40)
        .map(|_| 20_000 + 10 * fastrand::u16(0..880))
        .find(|base| (0..count).all(|node| free(base + node) && free(base + 100 + node)))
        .context("no free ports between 20000 and 28900")
}

#[expect(clippy::print_stderr, reason = "a drop has no other way to say it")]
fn tell(text: &str) {
    eprintln!("{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_ports_of_its_own() {
        let mut ports: Vec<u16> = ClusterKind::ALL.iter().map(|kind| kind.base_port()).collect();
        ports.sort_unstable();
        assert!(ports.windows(2).all(|pair| pair[1] - pair[0] >= 10), "{ports:?}");
        assert!(
            ports[ports.len() - 1] + 110 < 32_768,
            "a port of the ephemeral range may be taken any time"
        );
    }

    #[test]
    fn another_server_on_the_port_is_not_taken_for_ours() {
        let stranger = crate::fake::FakeCluster::start(crate::fake::Spec::default()).unwrap();
        let client = Client::new(&stranger.urls()[0]).unwrap();
        let error = answers_as(&client, std::process::id()).unwrap_err().to_string();
        assert!(error.contains("should answer there"), "{error}");
    }

    #[test]
    fn the_cpu_time_of_a_process_grows_with_its_work() {
        let before = cpu_seconds(std::process::id()).unwrap();
        let until = before + 0.05;
        while cpu_seconds(std::process::id()).unwrap() < until {
            std::hint::black_box((0..100_000).fold(0_u64, u64::wrapping_add));
        }
        assert_eq!(cpu_seconds(u32::MAX), None);
    }
}
