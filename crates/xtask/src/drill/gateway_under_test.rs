//! The place of a gateway in a run: a folder that outlives each of its processes, its configuration, and the
//! process.

use std::fs::{self, File, OpenOptions};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use parking_lot::{Mutex, MutexGuard};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::client::Client;

use super::schedule::Setup;
use super::world::Cluster;
use crate::interrupt;
use crate::steps::bound_to_us;

/// The gateway's folder, its configuration, and its process if one runs.
pub(crate) struct GatewayUnderTest {
    folder: PathBuf,
    program: PathBuf,
    listen: String,
    admin: String,
    process: Mutex<Option<Child>>,
}

impl GatewayUnderTest {
    /// Makes a gateway before these clusters; `folder` is empty.
    pub(crate) fn make(folder: &Path, program: &Path, setup: &Setup, clusters: &[Cluster]) -> Result<Self> {
        Self::with(folder, program, |place| place.configuration(setup, clusters))
    }

    /// Makes a gateway with another configuration; `folder` is empty.
    pub(crate) fn with(
        folder: &Path,
        program: &Path,
        configuration: impl FnOnce(&Self) -> String,
    ) -> Result<Self> {
        let place = Self {
            folder: folder.to_owned(),
            program: program.to_owned(),
            listen: free_address()?,
            admin: free_address()?,
            process: Mutex::new(None),
        };
        fs::create_dir_all(place.disk())?;
        fs::write(place.file(), configuration(&place))?;
        Ok(place)
    }

    /// The folder for everything that the gateway must keep; may be a disk of its own.
    pub(crate) fn disk(&self) -> PathBuf {
        self.folder.join("disk")
    }

    /// The folder of the queue.
    pub(crate) fn queue(&self) -> PathBuf {
        self.disk().join("data/queue/q")
    }

    fn file(&self) -> PathBuf {
        self.folder.join("tidegate.yml")
    }

    fn configuration(&self, setup: &Setup, clusters: &[Cluster]) -> String {
        let quota = setup
            .quota_kb
            .map(|kb| format!(", max_size: {kb}kb"))
            .unwrap_or_default();
        // A disk of a few megabytes has no more to spare; the file that fills the disk takes this too.
        let min_free = if setup.disk_mb.is_some() { "256kb" } else { "1mb" };
        let mut text = format!(
            "path.data: '{}'
worker: {{drain_timeout: 2s}}
admin: {{binding: '{}'}}
entry: [{{name: e, router: r, network: {{binding: '{}'}}}}]
router: [{{name: r, default_flow: f}}]
flow:
  - name: f
    filter:
      - bulk_reshuffle:
          elasticsearch: c0
          mode: async
          queue: {{name: q, lanes: {}, fsync: {}, fsync_interval: 100ms, min_free: {min_free}{quota}}}
          idempotency: {{enabled: {}}}
      - elasticsearch: {{elasticsearch: c0}}
pipeline:
",
            self.disk().join("data").display(),
            self.admin,
            self.listen,
            setup.lanes,
            setup.fsync,
            setup.keyed > 0,
        );
        for number in 0..clusters.len() {
            text.push_str(&format!(
                "  - {{name: p{number}, retry_delay_in_ms: 20, processor: [{{bulk_indexing: {{elasticsearch: c{number}, \
                 bulk: {{batch_size_in_docs: {}}}}}}}]}}\n",
                setup.batch_docs
            ));
        }
        text.push_str("elasticsearch:\n");
        let look = |ms: u32| format!(", discovery: {{refresh: {{interval: {ms}ms}}}}");
        let discovery = setup.look_ms.map(look).unwrap_or_default();
        for (number, cluster) in clusters.iter().enumerate() {
            let urls = cluster.urls().join("', '");
            text.push_str(&format!(
                "  - {{name: c{number}, endpoints: ['{urls}']{discovery}}}\n"
            ));
        }
        text
    }

    // === the process

    /// Starts the gateway; its admin port answers when this returns.
    pub(crate) fn start(&self) -> Result<()> {
        let until = Instant::now() + START_MAX;
        while !self.try_start(until)? {
            // A connection of another process had one of our ports.
            if Instant::now() > until {
                bail!("the gateway did not start: {}", self.last_words());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn try_start(&self, until: Instant) -> Result<bool> {
        let log = OpenOptions::new().create(true).append(true).open(self.log())?;
        let child = bound_to_us(&self.program)
            .args(["gateway", "--config"])
            .arg(self.file())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("cannot start tidegate")?;
        interrupt::watch(&child);
        *self.process() = Some(child);
        let admin = self.admin_client()?;
        loop {
            if admin.get("/health").is_ok() {
                return Ok(true);
            }
            if let Some(child) = &mut *self.process()
                && child.try_wait()?.is_some()
            {
                interrupt::unwatch(child);
                return Ok(false);
            }
            if Instant::now() > until {
                bail!("the gateway does not answer: {}", self.last_words());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends the process with `kill -9`; it is gone when this returns.
    pub(crate) fn kill(&self) -> Result<()> {
        self.end(Signal::KILL, Duration::from_secs(10))
    }

    /// Sends SIGTERM; the process must end by itself.
    pub(crate) fn stop(&self) -> Result<()> {
        self.end(Signal::TERM, STOP_MAX)
    }

    /// Sends SIGSTOP: the process does nothing until it [goes on](Self::resume), and does not notice.
    pub(crate) fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    pub(crate) fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let process = self.process();
        let id = process.as_ref().context("a gateway runs")?.id();
        let pid = i32::try_from(id).ok().and_then(Pid::from_raw);
        Ok(kill_process(pid.context("a process has an id")?, signal)?)
    }

    fn end(&self, signal: Signal, within: Duration) -> Result<()> {
        let Some(mut child) = self.process().take() else {
            return Ok(());
        };
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.context("a process has an id")?, signal)?;
        let until = Instant::now() + within;
        while child.try_wait()?.is_none() {
            if Instant::now() > until {
                let _ = child.kill();
                let _ = child.wait();
                interrupt::unwatch(&child);
                bail!("the gateway did not end within {within:?} of signal {signal:?}");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        interrupt::unwatch(&child);
        Ok(())
    }

    /// Returns a description if the process has ended without being told to.
    pub(crate) fn has_crashed(&self) -> Option<String> {
        let mut process = self.process();
        let status = process.as_mut()?.try_wait().ok()??;
        drop(process);
        Some(format!(
            "the gateway ended by itself: {status}: {}",
            self.last_words()
        ))
    }

    fn process(&self) -> MutexGuard<'_, Option<Child>> {
        self.process.lock()
    }

    // === talking to it

    pub(crate) fn listens_at(&self) -> &str {
        &self.listen
    }

    pub(crate) fn admin_at(&self) -> &str {
        &self.admin
    }

    /// Returns the peak resident memory of the process since its start.
    pub(crate) fn resident_bytes_max(&self) -> Option<u64> {
        let id = self.process().as_ref()?.id();
        let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    }

    pub(crate) fn admin_client(&self) -> Result<Client> {
        Client::build(&format!("http://{}", self.admin), None, Duration::from_secs(10))
    }

    /// Returns the queue's accounts.
    pub(crate) fn stats(&self, admin: &Client) -> Result<Value> {
        let mut all = admin.get("/queue/stats")?.ok()?.json()?;
        Ok(all["q"].take())
    }

    fn log(&self) -> PathBuf {
        self.folder.join("gateway.log")
    }

    /// Returns the last lines that the gateway logged.
    pub(crate) fn last_words(&self) -> String {
        let text = fs::read(self.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Counts the lines of the log that contain this text.
    pub(crate) fn logged(&self, text: &str) -> usize {
        let log = fs::read(self.log()).unwrap_or_default();
        String::from_utf8_lossy(&log).matches(text).count()
    }

    /// Writes a file beside the log, for whoever investigates a flaw.
    pub(crate) fn keep(&self, name: &str, text: &str) -> Result<()> {
        use std::io::Write as _;
        File::create(self.folder.join(name))?.write_all(text.as_bytes())?;
        Ok(())
    }
}

impl Drop for GatewayUnderTest {
    fn drop(&mut self) {
        // Callers that wait for the end report errors; here the process only has to be gone.
        let _ = self.kill();
    }
}

/// Returns an address that stays free while the gateway is down: below the range from which connections get
/// their ports, and not given away before by this process.
pub(crate) fn free_address() -> Result<String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    (0..PORTS)
        .map(|_| PORT_MIN + (std::process::id() * 61 + NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS)
        .map(|port| format!("127.0.0.1:{port}"))
        .find(|address| TcpListener::bind(address).is_ok())
        .context("no free port")
}

const PORT_MIN: u32 = 10_000;
const PORTS: u32 = 9_000;
const START_MAX: Duration = Duration::from_secs(60);
/// Time limit for the stop; the gateway gives batches under way up after `worker.drain_timeout`.
const STOP_MAX: Duration = Duration::from_secs(60);
