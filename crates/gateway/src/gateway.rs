//! Puts the gateway together: workers, listeners, clusters and the admin port, with reload and graceful stop.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use config::diff::{Changes, changes_of, diff, hold_back};
use config::{Loaded, Logging, Secret};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::mpsc;
use wire::{Workers, WorkersConfig};

use crate::admin::{Admin, PortTls, why_not_ready};
use crate::admission::rights::Rights;
use crate::applied::{Applied, ConfigAsked, Configs};
use crate::delivery::{Deliveries, Memory};
use crate::front::{Close, Listeners, Opened, Sockets};
use crate::live::{GatewayState, Live};
use crate::metrics::Metrics;
use crate::own_thread::on_own_thread;
use crate::queue::Queues;
use crate::reloads::Reloads;
use crate::requeue::Requeue;
use crate::reshuffle::Directory;
use crate::start_error::StartError;
use crate::switches::Switches;
use crate::upgrades::{UpgradeAsked, Upgrades};

/// A running gateway. Dropping it cuts every connection; [`Gateway::drain`] stops it gracefully.
#[derive(Debug)]
pub struct Gateway {
    shared: Arc<GatewayState>,
    listeners: Arc<Mutex<Listeners>>,
    /// Held by a reload, which may wait for pipelines that long. Others need the listeners meanwhile.
    reloading: Mutex<()>,
    /// See [`Gateway::texts_in_force`].
    texts: Mutex<Vec<Secret>>,
    admin: Option<Admin>,
    deliveries: Arc<Deliveries>,
    workers: Workers,
}

/// What a reload did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// How the new configuration differs from the previous one. What [`Changes::restart`] names is not in
    /// force.
    pub changes: Changes,
    /// Listeners that were opened.
    pub opened: Vec<Opened>,
}

/// A gateway that is complete except for its listeners.
struct Begun {
    shared: Arc<GatewayState>,
    live: Arc<Live>,
    deliveries: Arc<Deliveries>,
    workers: Workers,
}

impl Begun {
    fn begin(loaded: &Loaded) -> Result<Self, StartError> {
        let config = &loaded.config;
        if let Some(binding) = config.admin.binding
            && !config.admin.needs_token()
            && !binding.ip().is_loopback()
        {
            return Err(StartError::OpenAdmin(binding));
        }
        let workers = Workers::start(WorkersConfig {
            count: config.worker.count.unwrap_or(0),
            budget_bytes: usize::try_from(config.worker.body_memory_bytes_max).unwrap_or(usize::MAX),
            fairness: config.worker.fairness,
            ..WorkersConfig::default()
        })
        .map_err(StartError::Threads)?;
        let switches = Arc::new(Switches::open(loaded)?);
        let queues = Queues::open(config)?;
        let spans = Arc::default();
        let queued = queues.by_name().clone();
        let live = Arc::new(Live::new(loaded.clone(), None, queued, &spans)?);
        let shared = Arc::new(GatewayState {
            live: ArcSwap::new(Arc::clone(&live)),
            metrics: Metrics::new(workers.count()),
            queues: ArcSwap::from_pointee(queues),
            switches,
            directory: Directory::default(),
            body_memory: Arc::clone(workers.budget()),
            delivery_memory: Memory::new(
                usize::try_from(config.worker.delivery_memory_bytes_max).unwrap_or(usize::MAX),
            ),
            draining: AtomicBool::new(false),
            reloads: Reloads::default(),
            upgrades: Upgrades::default(),
            configs: Configs::default(),
            spans,
            rights: Arc::new(Rights::new(&config.paths.data)),
        });
        let deliveries = Arc::new(Deliveries::start(&shared).map_err(StartError::Threads)?);
        Ok(Self {
            shared,
            live,
            deliveries,
            workers,
        })
    }

    fn listen(self, loaded: &Loaded, mut left: Sockets) -> Result<Gateway, StartError> {
        let Self {
            shared,
            live,
            deliveries,
            workers,
        } = self;
        let admin_tls = PortTls::load(loaded.config.admin.tls.as_ref())?;
        let mut listeners = Listeners::default();
        let change = listeners.prepare_with(&loaded.config.entries, &mut left)?;
        listeners.apply(change, &live, &workers, &shared)?;
        let listeners = Arc::new(Mutex::new(listeners));
        let admin = loaded.config.admin.binding.map(|address| {
            let put_back = left.put_back;
            let left = left.admin.take().filter(|(binding, _)| *binding == address);
            Admin::start(
                (address, left.map(|(_, socket)| socket), admin_tls),
                put_back,
                Arc::clone(&shared),
                Arc::clone(&listeners),
                Arc::clone(workers.budget()),
                Arc::clone(&deliveries),
            )
            .map_err(|source| StartError::Admin { address, source })
        });
        Ok(Gateway {
            admin: admin.transpose()?,
            shared,
            listeners,
            reloading: Mutex::default(),
            texts: Mutex::new(loaded.text().cloned().into_iter().collect()),
            deliveries,
            workers,
        })
    }
}

impl Gateway {
    /// Starts everything. Listeners accept at once; bulks pass whole until the topology of their cluster is
    /// known.
    ///
    /// # Errors
    /// Returns what the operator has to correct. A cluster that cannot be reached is not an error.
    pub fn start(loaded: &Loaded) -> Result<Self, StartError> {
        Begun::begin(loaded)?.listen(loaded, Sockets::default())
    }

    /// Starts like [`Gateway::start`], but on the sockets of the program that ran before. Connections that
    /// wait in these sockets are accepted once the topologies are known, so that answers do not reveal the
    /// change of programs, or after `patience` at the latest.
    ///
    /// # Errors
    /// The same as for [`Gateway::start`].
    pub async fn take_over(
        loaded: &Loaded,
        sockets: Sockets,
        patience: Duration,
    ) -> Result<Self, StartError> {
        let begun = Begun::begin(loaded)?;
        learnt(&begun.live, patience).await;
        begun.listen(loaded, sockets)
    }

    /// Returns the name of each entry and the address that it actually listens on.
    pub fn entries(&self) -> Vec<Opened> {
        self.listeners().addresses()
    }

    /// Returns the address of the admin port, if there is one.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::address)
    }

    /// Waits until the topology of every cluster is known. Returns `false` when that takes longer than
    /// `timeout`.
    pub async fn learnt(&self, timeout: Duration) -> bool {
        learnt(&self.shared.live.load_full(), timeout).await
    }

    /// Duplicates the listening sockets for the next program.
    ///
    /// # Errors
    /// Fails when the system has no descriptor left.
    pub fn sockets(&self) -> io::Result<Sockets> {
        Ok(Sockets {
            entries: self.listeners().sockets()?,
            admin: self.admin.as_ref().map(Admin::socket).transpose()?,
            put_back: false,
        })
    }

    /// Puts a new configuration in force. Routers, flows, clusters and limits apply to requests from now on;
    /// queues, pipelines and listeners change at once (new listeners are opened, and removed ones finish what
    /// they have in flight). Either everything except what [`Changes::restart`] names is put in force, or
    /// nothing.
    ///
    /// # Errors
    /// Returns what cannot work. The old configuration then stays in force, with all of its listeners.
    pub fn reload(&self, loaded: &Loaded) -> Result<Reloaded, StartError> {
        let reloaded = self.put_in_force(loaded);
        match &reloaded {
            Ok(reloaded) => self.shared.reloads.succeeded(reloaded.changes.restart.len()),
            Err(_) => self.shared.reloads.failed(),
        }
        reloaded
    }

    /// Records that a changed file cannot be used, so that there was nothing to [`reload`](Self::reload).
    pub fn not_reloaded(&self) {
        self.shared.reloads.failed();
    }

    fn put_in_force(&self, loaded: &Loaded) -> Result<Reloaded, StartError> {
        let _alone = self.reloading.lock();
        let before = self.shared.live.load_full();
        let paths = (&before.config.paths.data, &loaded.config.paths.data);
        if paths.0 != paths.1 && !(before.config.queues.is_empty() && loaded.config.queues.is_empty()) {
            return Err(StartError::QueuesDiffer {
                key: "path.data",
                why: "queues stay where they are: another `path.data` needs a restart".to_owned(),
            });
        }
        let queues = self.shared.queues.load_full();
        let mut requeue = Requeue::prepare(&queues, &before.config, &loaded.config)?;
        let mut loaded = loaded.clone();
        let restart = hold_back(&mut loaded, &before.config, &before.file);
        let changes = Changes {
            restart,
            ..diff(&before.config, &loaded.config)
        };
        let (queues, text) = (requeue.queues().clone(), loaded.text().cloned());
        let live = Arc::new(Live::new(loaded, Some(&before), queues, &self.shared.spans)?);
        let admin_tls = (before.config.admin.tls != live.config.admin.tls)
            .then(|| PortTls::identity(live.config.admin.tls.as_ref()))
            .transpose();
        let change =
            admin_tls.and_then(|admin_tls| Ok((admin_tls, self.listeners().prepare(&live.config.entries)?)));
        let opened = change
            .and_then(|(admin_tls, change)| {
                requeue.put_in_force(&self.shared, &self.deliveries)?;
                let opened = self
                    .listeners()
                    .apply(change, &live, &self.workers, &self.shared)?;
                if let (Some(admin), Some(identity)) = (&self.admin, admin_tls) {
                    admin.tls().put_in_force(identity);
                }
                Ok(opened)
            })
            .inspect_err(|_| {
                requeue.back(&self.shared, &self.deliveries);
                live.retire(&before);
            })?;
        before.retire(&live);
        requeue.finish(&self.shared, &self.deliveries);
        if let Some(text) = text {
            let mut texts = self.texts.lock();
            let whole = texts.pop().filter(|_| !changes.restart.is_empty());
            *texts = std::iter::once(text).chain(whole).collect();
        }
        Ok(Reloaded { changes, opened })
    }

    /// Returns the receiver of upgrade requests from the admin port, each of which asks to replace this
    /// program. Only the first call returns it.
    pub fn upgrades(&self) -> Option<mpsc::Receiver<UpgradeAsked>> {
        self.shared.upgrades.hear()
    }

    /// Returns the receiver of requests from the admin port to put another configuration in force. Only the
    /// first call returns it.
    pub fn config_asks(&self) -> Option<mpsc::Receiver<ConfigAsked>> {
        self.shared.configs.hear()
    }

    /// Returns what was applied through the admin port last.
    pub fn applied(&self) -> Option<Applied> {
        self.shared.configs.last()
    }

    /// Records what was applied through the admin port, and what became of it.
    pub fn set_applied(&self, applied: Applied) {
        self.shared.configs.set_last(applied);
    }

    /// Returns the version of the text in force, and the text's fingerprint; none without a file.
    pub fn version(&self) -> Option<(String, u64)> {
        let fingerprint = self.shared.live.load().fingerprint?;
        Some((self.shared.configs.version(fingerprint), fingerprint))
    }

    /// Returns what a reload with `loaded` would change, and which keys would wait for a restart.
    pub fn would_change(&self, loaded: &Loaded) -> Changes {
        let live = self.shared.live.load_full();
        changes_of(loaded.clone(), &live.config, &live.file)
    }

    /// Returns the text of the configuration file in force; if a part of it waits for a restart, also the
    /// last text of which everything was in force. This gateway could be started once more with one of them.
    /// Empty without a file.
    pub fn texts_in_force(&self) -> Vec<Secret> {
        self.texts.lock().clone()
    }

    /// Returns why the gateway cannot do what its entries promise; nothing if it is ready.
    pub fn why_not_ready(&self) -> Vec<String> {
        why_not_ready(&self.shared)
    }

    /// Returns the log settings of the configuration in force.
    pub fn logging(&self) -> Logging {
        self.shared.live.load().config.logging.clone()
    }

    /// Returns whether the configuration in force asks for its file to be reloaded when the file changes.
    pub fn auto_reload(&self) -> bool {
        self.shared.live.load().config.auto_reload
    }

    /// Returns how long a stop waits for requests under way, according to the configuration in force.
    pub fn drain_timeout(&self) -> Duration {
        self.shared.live.load().config.worker.drain_timeout
    }

    /// Loads certificates whose files have changed; new connections get them. With `asked`, listeners with
    /// `tls.hot_reload: false` are checked too. Returns the entries that changed, and logs the listeners
    /// whose files cannot be used (these keep their present certificates).
    pub fn reload_certificates(&self, asked: bool) -> Vec<Arc<str>> {
        if let Some(admin) = &self.admin {
            admin.tls().look(asked);
        }
        self.listeners().look_at_certificates(asked)
    }

    /// Stops accepting, lets requests under way finish within `deadline`, then stops.
    /// Returns how many connections had to be cut.
    pub async fn drain(self, deadline: Duration) -> u64 {
        self.end(deadline, Close::ForGood).await
    }

    /// Stops like [`Gateway::drain`] before another program takes over the [`Gateway::sockets`]: connections
    /// that are between two requests stay open for a moment, and their next answer tells the client to
    /// reconnect.
    pub async fn leave(self, deadline: Duration) -> u64 {
        self.end(deadline, Close::ForTheNext).await
    }

    async fn end(self, deadline: Duration, way: Close) -> u64 {
        self.shared.draining.store(true, Ordering::Relaxed);
        let ends = Instant::now() + deadline;
        let closing = self.listeners().close(deadline, way);
        let mut cut = 0;
        for closed in closing {
            let left = ends.saturating_duration_since(Instant::now()) + CUT_MAX;
            if let Ok(Ok(connections)) = tokio::time::timeout(left, closed).await {
                cut += connections;
            }
        }
        if let Some(admin) = self.admin {
            admin.stop(way.why()).await;
        }
        // Joins the workers' threads.
        drop(self.workers);
        // Batches under way are finished. What is not delivered by then is delivered after the next start.
        let left = ends.saturating_duration_since(Instant::now());
        let least = match way {
            // Clients wait in the sockets meanwhile, but a batch that is given up is executed twice.
            Close::ForTheNext => UPGRADE_STOP_MIN.min(deadline),
            Close::ForGood => DELIVERY_STOP_MIN,
        };
        let deliveries = self.deliveries;
        let shared = self.shared;
        let close = {
            let (deliveries, shared) = (Arc::clone(&deliveries), Arc::clone(&shared));
            move || {
                deliveries.stop(left.max(least));
                shared.queues.load().close();
                shared.rights.close();
            }
        };
        if on_own_thread(close.clone()).await.is_err() {
            // The last step of the stop may block: no other work is left on this thread.
            close();
        }
        // Nothing is traced any more.
        if let Some(recorder) = &shared.live.load().recorder {
            recorder.close(SPANS_WITHIN).await;
        }
        cut
    }

    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock()
    }
}

/// Waits until the topology of every cluster is known. Returns `false` when that takes longer than `timeout`.
async fn learnt(live: &Live, timeout: Duration) -> bool {
    let deadline = Instant::now() + timeout;
    for cluster in live.clusters.values() {
        let left = deadline.saturating_duration_since(Instant::now());
        if !cluster.learnt(left).await {
            return false;
        }
    }
    true
}

/// The same at an upgrade.
const UPGRADE_STOP_MIN: Duration = Duration::from_secs(10);

/// The time that a batch under way gets at least at a stop, however long the connections took to drain.
const DELIVERY_STOP_MIN: Duration = Duration::from_secs(5);

/// The longest time that a stop waits for the collector of traces.
const SPANS_WITHIN: Duration = Duration::from_secs(2);

/// The time that cutting connections after the deadline may take.
const CUT_MAX: Duration = Duration::from_secs(1);
