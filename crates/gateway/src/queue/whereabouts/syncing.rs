//! What the file of whereabouts has to do with the disk that takes time: syncing fences, and writing the file
//! anew. No core waits for that, and the table of names is not locked meanwhile. A thread does it, which is
//! there for as long as there is something to do. Whoever tells a client that a document is safe waits until
//! the fences are synced by which the document keeps its order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use wire::guard::{self, Work};

use super::{NameTable, Whereabouts};

/// How many fences are to be synced, and how many are.
#[derive(Default)]
pub(super) struct Syncs {
    wanted: AtomicU64,
    done: AtomicU64,
    moved: Notify,
}

/// The state of the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syncer {
    Idle,
    Running,
    /// There will be none any more.
    Closed,
}

/// Does what the thread leaves undone if it panics.
struct Unwinding {
    own: Arc<Whereabouts>,
    /// Whether the thread has come to its end; another one may run since.
    has_ended: bool,
}

// === impl Syncs ===

impl Syncs {
    /// Returns the number of fences that have to be synced before what is noted now is safe; `None` if all
    /// are.
    pub(super) fn unsynced(&self) -> Option<u64> {
        let wanted = self.wanted();
        (!self.has(wanted)).then_some(wanted)
    }

    pub(super) fn want(&self) {
        self.wanted.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether so many fences are synced.
    pub(super) fn has(&self, number: u64) -> bool {
        self.done.load(Ordering::Acquire) >= number
    }

    /// Waits until so many fences are synced.
    pub(super) async fn reach(&self, number: u64) {
        loop {
            let moved = self.moved.notified();
            if self.has(number) {
                return;
            }
            moved.await;
        }
    }

    fn wanted(&self) -> u64 {
        self.wanted.load(Ordering::Acquire)
    }

    fn did(&self, number: u64) {
        self.done.fetch_max(number, Ordering::AcqRel);
        self.moved.notify_waiters();
    }
}

// === impl Unwinding ===

impl Drop for Unwinding {
    fn drop(&mut self) {
        if !self.has_ended {
            let mut name_table = self.own.name_table();
            self.own.sync_here(&mut name_table);
            name_table.syncer = Syncer::Idle;
        }
    }
}

// === impl Whereabouts ===

impl Whereabouts {
    /// Has the thread do what there is to do. Where there can be none, it is done here.
    pub(super) fn sync_soon(&self, name_table: &mut NameTable) {
        if !self.has_work(name_table) || name_table.syncer == Syncer::Running {
            return;
        }
        let own = self.own.upgrade().filter(|_| name_table.syncer == Syncer::Idle);
        let Some(own) = own else {
            return self.sync_here(name_table);
        };
        name_table.syncer = Syncer::Running;
        // It begins once the lock is released.
        let spawned = guard::thread("whereabouts", Work::Housekeeping, move || {
            let mut thread = Unwinding {
                own,
                has_ended: false,
            };
            while thread.own.sync_once() {}
            thread.has_ended = true;
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread can be started that syncs where names lead: a core does it");
            name_table.syncer = Syncer::Idle;
            self.sync_here(name_table);
        }
    }

    /// Waits until nothing is done with the file any more; blocks for as long as the disk takes. From now on
    /// no thread is started.
    #[allow(
        clippy::disallowed_methods,
        reason = "a queue is closed by a thread of its own"
    )]
    pub(crate) fn close(&self) {
        loop {
            let mut name_table = self.name_table();
            if name_table.syncer != Syncer::Running {
                name_table.syncer = Syncer::Closed;
                return;
            }
            drop(name_table);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn has_work(&self, name_table: &NameTable) -> bool {
        self.syncs.unsynced().is_some() || name_table.is_long
    }

    fn sync_here(&self, name_table: &mut NameTable) {
        let Some(wanted) = self.syncs.unsynced() else {
            return;
        };
        let synced = name_table.kept.syncing().sync();
        name_table.kept.synced(synced);
        self.syncs.did(wanted);
    }

    /// Does one of the things that there are to do; returns whether there was one. The thread ends if not.
    fn sync_once(&self) -> bool {
        let mut name_table = self.name_table();
        if name_table.is_long {
            name_table.is_long = false;
            drop(name_table);
            self.write_anew();
            return true;
        }
        let Some(wanted) = self.syncs.unsynced() else {
            name_table.syncer = Syncer::Idle;
            return false;
        };
        let syncing = name_table.kept.syncing();
        drop(name_table);
        let synced = syncing.sync();
        self.name_table().kept.synced(synced);
        self.syncs.did(wanted);
        true
    }

    /// Writes the file anew, since most of it is of no use. If that fails, the file stays as it is.
    fn write_anew(&self) {
        let mut name_table = self.name_table();
        let fences = self.fences();
        let fences = fences.iter().map(|fence| &**fence);
        let NameTable {
            targets,
            unknown_before,
            kept,
            ..
        } = &mut *name_table;
        let anew = kept.begin_anew(targets, fences, *unknown_before);
        drop(name_table);
        let written = anew.write();
        let mut name_table = self.name_table();
        // Fences that were made meanwhile are in both files.
        let wanted = self.syncs.wanted();
        let renamed = name_table.kept.go_on_with(written);
        // It was long until now.
        name_table.is_long &= renamed.is_none();
        drop(name_table);
        if let Some(renamed) = renamed {
            let synced = renamed.sync();
            self.name_table().kept.synced(synced);
            self.syncs.did(wanted);
        }
    }
}
