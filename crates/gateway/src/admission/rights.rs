//! Decides who may write in asynchronous mode. Queued documents are delivered with the gateway's own account,
//! so the cluster is asked beforehand, with the client's credentials, who the client is ([`ask`]) and whether
//! it may make the writes of its request ([`probe`]): per client, name of an index as it is written, and kind
//! of operation. All cores together remember the answers for [`memory::FRESH`] ([`memory`]), and over
//! restarts in case the cluster is away ([`kept`]).
//!
//! A request for something that its client may not do is not refused here. It passes to the cluster as it
//! came, and the cluster refuses it.

mod account;
mod ask;
mod closed;
mod cluster;

mod identity;
mod kept;
mod memory;
mod probe;
mod senders;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};

pub use account::{AccountRight, AccountRights, AccountUse, RightVerdict, account_rights};
pub(crate) use ask::{Caller, covers};
pub(crate) use cluster::{ClusterRights, Denied};
pub(crate) use senders::{Senders, Stranger};

use identity::HashKey;
use kept::Keeper;

/// The gateway's knowledge of the clients of all clusters.
#[derive(Debug)]
pub(crate) struct Rights {
    folder: PathBuf,
    clusters: Mutex<BTreeMap<Arc<str>, Arc<ClusterRights>>>,
    kept: OnceLock<Persistent>,
    /// What is known where nothing outlives the process, because no queue needs it.
    in_memory: Mutex<BTreeMap<Arc<str>, Arc<ClusterRights>>>,
}

/// The state that outlives the process; it is read when the first filter needs it.
#[derive(Debug)]
struct Persistent {
    key: HashKey,
    clock: Clock,
    keeper: Option<Keeper>,
}

/// Milliseconds since the process began to count; answers to earlier processes have negative times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    fn now(self) -> i64 {
        i64::try_from(self.0.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

// === impl Rights ===

impl Rights {
    /// Makes the rights that are kept below `data`, the folder of all data.
    pub(crate) fn new(data: &Path) -> Self {
        Self {
            folder: data.join("rights"),
            clusters: Mutex::default(),
            kept: OnceLock::new(),
            in_memory: Mutex::default(),
        }
    }

    /// Returns what is known of the clients of a cluster, by the cluster's name in the configuration.
    pub(crate) fn of(self: &Arc<Self>, cluster: &Arc<str>) -> Arc<ClusterRights> {
        let kept = self.kept.get_or_init(|| self.read());
        let mut clusters = self.clusters();
        let rights = clusters.entry(Arc::clone(cluster)).or_insert_with(|| {
            let note = kept.keeper.as_ref().map(Keeper::signal);
            Arc::new(ClusterRights::new(
                Arc::clone(cluster),
                kept.key.clone(),
                kept.clock,
                note,
            ))
        });
        Arc::clone(rights)
    }

    /// Returns what is known of the clients of a cluster, without anything on the disk: as [`Rights::of`], if
    /// that was called for a queue, or else for as long as the process lives.
    pub(crate) fn in_memory(self: &Arc<Self>, cluster: &Arc<str>) -> Arc<ClusterRights> {
        if self.kept.get().is_some() {
            return self.of(cluster);
        }
        let mut clusters = self.in_memory.lock();
        let rights = clusters.entry(Arc::clone(cluster)).or_insert_with(|| {
            let (key, clock) = (HashKey::new(), Clock(Instant::now()));
            Arc::new(ClusterRights::new(Arc::clone(cluster), key, clock, None))
        });
        Arc::clone(rights)
    }

    /// Writes the changes since the last write.
    pub(crate) fn close(&self) {
        if let Some(keeper) = self.kept.get().and_then(|kept| kept.keeper.as_ref()) {
            keeper.close();
        }
    }

    fn read(self: &Arc<Self>) -> Persistent {
        let clock = Clock(Instant::now());
        let found = kept::open(&self.folder);
        let (key, clusters) = match found {
            Ok(found) => found,
            Err(error) => {
                let folder = self.folder.display();
                tracing::warn!(%folder, %error, "who may write cannot be kept: it is asked again after a restart");
                return Persistent {
                    key: HashKey::new(),
                    clock,
                    keeper: None,
                };
            }
        };
        let keeper = Keeper::start(&self.folder, Arc::downgrade(self), clock)
            .inspect_err(
                |error| tracing::warn!(%error, "who may write is not kept over a restart: no thread for it"),
            )
            .ok();
        let signal = keeper.as_ref().map(Keeper::signal);
        let mut known = self.clusters();
        for (cluster, memory) in clusters {
            let rights =
                ClusterRights::with(Arc::clone(&cluster), key.clone(), clock, signal.clone(), memory);
            known.insert(cluster, Arc::new(rights));
        }
        drop(known);
        Persistent { key, clock, keeper }
    }

    fn clusters(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<ClusterRights>>> {
        self.clusters.lock()
    }
}
