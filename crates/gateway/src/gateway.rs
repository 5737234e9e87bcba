//! The whole, put together: workers, listeners, clusters, admin port; reload and graceful stop.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use wire::{Workers, WorkersConfig};

use crate::admin::Admin;
use crate::config::{Config, Entry, Loaded};
use crate::delivery::Deliveries;
use crate::listening::{Listening, check_descriptors, listen};
use crate::live::{Live, Shared};
use crate::metrics::Metrics;
use crate::queue::Queues;
use crate::start_error::StartError;

/// A running gateway. Dropping it cuts every connection; see [`Gateway::drain`].
#[derive(Debug)]
pub struct Gateway {
    shared: Arc<Shared>,
    entries: Arc<Vec<Listening>>,
    admin: Option<Admin>,
    deliveries: Deliveries,
    workers: Workers,
}

/// What a reload did not put in force, in sentences; the rest is in force for requests from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// What needs a restart.
    pub needs_restart: Vec<String>,
}

impl Gateway {
    /// Starts everything. Listeners accept at once; until a cluster's topology is learnt its bulks pass whole.
    ///
    /// # Errors
    /// What the operator has to mend. Clusters that cannot be reached are no error.
    pub fn start(loaded: Loaded) -> Result<Self, StartError> {
        let config = &loaded.config;
        if let (Some(binding), None) = (config.admin.binding, &config.admin.token)
            && !binding.ip().is_loopback()
        {
            return Err(StartError::OpenAdmin(binding));
        }
        check_descriptors(&config.entries);
        let workers = Workers::start(WorkersConfig {
            count: config.worker.count.unwrap_or(0),
            budget_bytes: usize::try_from(config.worker.body_memory_bytes_max).unwrap_or(usize::MAX),
            ..WorkersConfig::default()
        })
        .map_err(StartError::Threads)?;
        let metrics = Metrics::new(workers.count());
        let entries = config.entries.clone();
        let admin_settings = config.admin.clone();
        let queues = Queues::open(&loaded.config)?;
        let live = Live::new(loaded, None)?;
        let shared = Arc::new(Shared {
            live: ArcSwap::from_pointee(live),
            metrics,
            queues,
        });
        let deliveries = Deliveries::start(&shared).map_err(StartError::Threads)?;
        let listening: Result<Vec<Listening>, StartError> = entries
            .iter()
            .map(|entry| listen(entry, &workers, &shared))
            .collect();
        let entries = Arc::new(listening?);
        let admin = match admin_settings.binding {
            None => None,
            Some(binding) => Some(
                Admin::start(
                    binding,
                    admin_settings.token,
                    Arc::clone(&shared),
                    Arc::clone(&entries),
                    Arc::clone(workers.budget()),
                )
                .map_err(|source| StartError::Listen {
                    what: "the admin port".to_owned(),
                    address: binding,
                    source,
                })?,
            ),
        };
        Ok(Self {
            shared,
            entries,
            admin,
            deliveries,
            workers,
        })
    }

    /// Each entry's name and the address that it really listens on.
    pub fn entries(&self) -> impl Iterator<Item = (&str, SocketAddr)> {
        self.entries.iter().map(|entry| (&*entry.name, entry.address))
    }

    /// Where the admin port listens, if it does.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::address)
    }

    /// Waits until every cluster's topology is known; `false` when that took longer than `timeout`.
    pub async fn learnt(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let live = self.shared.live.load_full();
        for cluster in live.clusters.values() {
            if !cluster
                .learnt(deadline.saturating_duration_since(Instant::now()))
                .await
            {
                return false;
            }
        }
        true
    }

    /// Puts a new configuration in force for requests from now on: routers, flows, clusters, logging thresholds.
    ///
    /// # Errors
    /// A cluster's settings that cannot work; the old configuration stays in force.
    pub fn reload(&self, loaded: Loaded) -> Result<Reloaded, StartError> {
        let config = &loaded.config;
        let before = self.shared.live.load_full();
        let queues = |config: &Config| (config.queues.clone(), config.deliveries.clone());
        let queued = !config.queues.is_empty() && before.config.paths.data != config.paths.data;
        if queues(&before.config) != queues(config) || queued {
            return Err(StartError::QueuesDiffer);
        }
        let mut needs_restart = Vec::new();
        if listeners_differ(&before.config.entries, &config.entries) {
            needs_restart.push("entry: listeners keep their old settings until a restart".to_owned());
        }
        if before.config.paths != config.paths {
            needs_restart.push("path: directories stay as they are until a restart".to_owned());
        }
        let (logging, was) = (&config.logging, &before.config.logging);
        if (logging.level, logging.format) != (was.level, was.format) {
            needs_restart.push("logging: level and format stay as they are until a restart".to_owned());
        }
        if before.config.admin != config.admin {
            needs_restart.push("admin: the admin port keeps its old settings until a restart".to_owned());
        }
        if before.config.worker != config.worker {
            needs_restart.push("worker: threads and memory stay as they are until a restart".to_owned());
        }
        let live = Arc::new(Live::new(loaded, Some(&before))?);
        self.shared.live.store(Arc::clone(&live));
        before.retire(&live);
        Ok(Reloaded { needs_restart })
    }

    /// Loads certificates whose files have changed; new connections get them. Returns the entries that changed, and
    /// logs those whose files cannot be used (they keep what they have).
    pub fn reload_certificates(&self) -> Vec<String> {
        let mut changed = Vec::new();
        for entry in self.entries.iter() {
            let Some(watched) = &entry.tls else { continue };
            match watched.reload() {
                Ok(false) => {}
                Ok(true) => changed.push(entry.name.to_string()),
                Err(error) if watched.is_news(&error.to_string()) => {
                    tracing::error!(entry = &*entry.name, %error, "certificate not reloaded");
                }
                Err(_) => {}
            }
        }
        changed
    }

    /// Stops accepting, lets requests under way finish within `deadline`, then stops.
    /// Returns how many connections had to be cut.
    pub async fn drain(self, deadline: Duration) -> u64 {
        let ends = Instant::now() + deadline;
        let mut drains = tokio::task::JoinSet::new();
        for entry in self.entries.iter() {
            let server = entry.server.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(server) = server {
                drains.spawn(server.drain(ends.saturating_duration_since(Instant::now())));
            }
        }
        let mut cut = 0;
        while let Some(report) = drains.join_next().await {
            cut += report.map_or(0, |report| report.cut);
        }
        drop(self.admin);
        // Joins the workers' threads.
        drop(self.workers);
        // Batches under way are finished; what is not delivered by then is delivered after the next start.
        let left = ends.saturating_duration_since(Instant::now());
        let deliveries = self.deliveries;
        let shared = self.shared;
        let ended = tokio::task::spawn_blocking(move || {
            deliveries.stop(left.max(DELIVERY_STOP_MIN));
            shared.queues.close();
        });
        if let Err(error) = ended.await {
            tracing::error!(%error, "queues were not closed");
        }
        cut
    }
}

/// Everything about listeners but the router, which requests look up anew.
fn listeners_differ(before: &[Entry], after: &[Entry]) -> bool {
    let without_router = |entry: &Entry| Entry {
        router: Arc::from(""),
        ..entry.clone()
    };
    !before
        .iter()
        .map(without_router)
        .eq(after.iter().map(without_router))
}

/// A batch under way gets this long at least, however long connections took to drain.
const DELIVERY_STOP_MIN: Duration = Duration::from_millis(500);
