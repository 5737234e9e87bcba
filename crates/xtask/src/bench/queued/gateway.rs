//! A gateway with a queue, whose pipeline the bench starts and stops.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::Value;
use testkit::client::Client;

use super::super::gateway_file::gateway_file;
use super::super::machine::cpu_seconds;
use super::super::proxy::{Contender, Nodes, Proxy, client, free_address};
use super::QueuedCase;

/// The gateway and the nodes behind it. Dropping it deletes what it has queued.
pub(super) struct Gateway {
    pub(super) folder: PathBuf,
    config: String,
    case: QueuedCase,
    address: SocketAddr,
    proxy: Proxy,
    admin: Client,
    nodes: Client,
    backend: Nodes,
}

/// The progress of the cluster and the queue.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Progress {
    /// CPU seconds of the gateway so far.
    pub(super) cpu: f64,
    /// Documents that the nodes were sent since the last reset.
    pub(super) docs: u64,
}

// === impl Gateway ===

impl Gateway {
    /// Starts everything; the pipeline is stopped.
    pub(super) fn start(case: &QueuedCase) -> Result<Gateway> {
        let folder = std::env::temp_dir().join(format!("tidegate-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let nodes = Nodes::start(&case.load, &folder)?;
        let (address, admin) = (free_address()?, free_address()?);
        let config = yml(case, &nodes.urls[0], address, admin, &folder);
        Ok(Gateway {
            proxy: Proxy::tidegate(&case.gateway(), &config, &case.load, address, &folder)?,
            admin: Client::new(&format!("http://{admin}"))?,
            nodes: client(&nodes.urls[0], &case.load, &folder)?,
            backend: nodes,
            case: case.clone(),
            config,
            address,
            folder,
        })
    }

    /// Starts HAProxy before the same nodes.
    pub(super) fn haproxy(&self) -> Result<Proxy> {
        Proxy::start(
            &Contender::haproxy(),
            &self.case.load,
            &self.backend,
            &self.folder,
        )
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn pid(&self) -> u32 {
        self.proxy.pid()
    }

    pub(super) fn cpu(&self) -> Result<f64> {
        cpu_seconds(self.pid())
    }

    /// Kills the gateway with everything that it has queued, and starts it again. Returns the time until it
    /// answered.
    pub(super) fn kill_and_start(&mut self) -> Result<Duration> {
        self.proxy.kill()?;
        let begun = Instant::now();
        self.proxy = Proxy::tidegate(
            &self.case.gateway(),
            &self.config,
            &self.case.load,
            self.address,
            &self.folder,
        )?;
        Ok(begun.elapsed())
    }

    pub(super) fn start_pipeline(&self) -> Result<()> {
        self.admin.post("/pipeline/deliver/_start", &Value::Null)?.ok()?;
        Ok(())
    }

    pub(super) fn stop_pipeline(&self) -> Result<()> {
        let answer = self.admin.post("/pipeline/deliver/_stop", &Value::Null)?.ok()?;
        ensure!(
            !answer.text().contains("\"stopping\""),
            "the pipeline did not stop: {}",
            answer.text()
        );
        Ok(())
    }

    /// Returns the queue's figures.
    pub(super) fn queue(&self) -> Result<Value> {
        self.admin.get("/queue/bench")?.ok()?.json()
    }

    /// Resets the nodes' counters.
    pub(super) fn reset(&self) -> Result<()> {
        self.nodes.post("/_fake/counts/reset", &Value::Null)?.ok()?;
        Ok(())
    }

    /// Returns what the nodes were sent since the last reset.
    pub(super) fn counts(&self) -> Result<Value> {
        self.nodes.get("/_fake/counts")?.ok()?.json()
    }

    pub(super) fn progress(&self) -> Result<Progress> {
        let docs = self.counts()?["docs"].as_u64().unwrap_or_default();
        Ok(Progress {
            cpu: self.cpu()?,
            docs,
        })
    }

    /// Waits until the nodes have been sent this many documents, and the queue reports that it is empty.
    /// `watch` gets the progress on the way.
    pub(super) fn drained(&self, docs: u64, mut watch: impl FnMut(Progress)) -> Result<Progress> {
        let (mut last, mut moved) = (0, Instant::now());
        loop {
            let progress = self.progress()?;
            watch(progress);
            if progress.docs >= docs {
                break;
            }
            if progress.docs > last {
                (last, moved) = (progress.docs, Instant::now());
            }
            ensure!(
                moved.elapsed() < STUCK,
                "delivery is stuck at {last} of {docs} documents: {}",
                self.queue()?
            );
            std::thread::sleep(LOOK_AGAIN);
        }
        while self.queue()?["groups"]["fake"]["pending"] != 0 {
            ensure!(
                moved.elapsed() < STUCK,
                "the queue is not empty: {}",
                self.queue()?
            );
            std::thread::sleep(LOOK_AGAIN);
        }
        let progress = self.progress()?;
        ensure!(
            progress.docs == docs,
            "{} documents arrived, {docs} were sent",
            progress.docs
        );
        Ok(progress)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // The gateway would write into its folder until it is gone. Remains in a temporary folder do no harm.
        let _ = self.proxy.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn yml(case: &QueuedCase, node: &str, address: SocketAddr, admin: SocketAddr, folder: &Path) -> String {
    let filters = format!(
        "      - bulk_reshuffle:
          elasticsearch: fake
          mode: async
          queue: {{name: bench, fsync: always, compression: {compression}}}",
        compression = case.compression,
    );
    let delivery = format!(
        "pipeline:
  - name: deliver
    auto_start: false
    processor:
      - bulk_indexing: {{elasticsearch: fake, bulk.compress: {compress}}}
elasticsearch:
  - name: fake
    endpoints: [\"{node}\"]
",
        compress = case.wire_gzip,
    );
    gateway_file(folder, address, admin, "", &filters) + &delivery
}

const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// If nothing arrives for this time, something is wrong.
const STUCK: Duration = Duration::from_secs(30);
