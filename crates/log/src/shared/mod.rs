//! The state that the threads of an open log share: waiting records, what readers may see, each consumer's
//! cursors, and the files kept for reuse. Nothing here writes records, reads them or deletes segments.
//!
//! Locks are taken in this order: placing, writer, state, consumers, cursors.

pub(crate) mod adjustable;
pub(crate) mod ages;
pub(crate) mod cursor;
pub(crate) mod queue;
pub(crate) mod readable;
pub(crate) mod spares;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::{Condvar, Mutex};

use crate::disk::Lock;
use crate::format::folder::Folder;
use crate::format::index::Index;
use crate::format::pool::Pool;
use crate::format::quarantine::Quarantine;
use crate::format::segment::{Footer, Header};
use crate::shared::adjustable::Adjustable;
use crate::shared::ages::Ages;
use crate::shared::cursor::Cursors;
use crate::shared::queue::{Queue, Room};
use crate::shared::readable::Readable;
use crate::shared::spares::Spares;
use crate::{AppendError, Event, Options};

/// An open log.
pub(crate) struct OpenLog {
    pub(crate) folder: Folder,
    pub(crate) options: Options,
    /// The options that may change. These values count, not those in `options`.
    pub(crate) adjustable: Mutex<Adjustable>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) queue: Queue,
    pub(crate) state: Mutex<Readable>,
    pub(crate) consumers: Mutex<BTreeMap<String, Arc<Cursors>>>,
    /// Held while a consumer group is given a place, and while it is decided that nobody wants a segment.
    pub(crate) placing: Mutex<()>,
    pub(crate) quarantine: Quarantine,
    pub(crate) spares: Spares,
    pub(crate) ages: Ages,
    /// The index that was rebuilt last, for the readers of the other lanes.
    pub(crate) rebuilt: Mutex<Option<(u64, Arc<Index>)>>,
    /// Wakes the writer; `calls` says what for.
    pub(crate) bell: Condvar,
    /// Wakes the keeper, to end it.
    pub(crate) keeper_bell: Condvar,
    pub(crate) calls: Mutex<Calls>,
    /// The folder's lock, held until the log is closed.
    pub(crate) lock: Mutex<Option<Lock>>,
}

/// The reasons for which the threads are woken.
#[derive(Default)]
pub(crate) struct Calls {
    pub(crate) records: bool,
    pub(crate) closing: bool,
}

// === impl OpenLog ===

impl OpenLog {
    pub(crate) fn tell(&self, event: &Event) {
        (self.options.on_event)(event);
    }

    /// Returns the adjustable options as they are now.
    pub(crate) fn adjustable(&self) -> Adjustable {
        *self.adjustable.lock()
    }

    /// Returns the limits that hold now.
    pub(crate) fn room(&self) -> Room {
        let now = self.adjustable();
        Room {
            waiting_bytes_max: self.options.waiting_bytes_max,
            quota_bytes: now.quota_bytes,
            free_bytes_min: now.free_bytes_min,
        }
    }

    /// Wakes the writer for records that were pushed.
    pub(crate) fn ring(&self) {
        let mut calls = self.calls.lock();
        if !calls.records {
            calls.records = true;
            self.bell.notify_one();
        }
    }

    /// Refuses everything from now on.
    pub(crate) fn poison(&self, why: &str) {
        self.queue.refuse(AppendError::Poisoned(why.to_owned()));
        self.tell(&Event::Poisoned { why: why.to_owned() });
    }

    /// Tells the queue how many bytes are used.
    pub(crate) fn measure(&self, state: &Readable) {
        let sealing = match state.active {
            Some(_) => Footer::bytes(self.folder.lanes, state.index.entries),
            None => 0,
        };
        let used = state.bytes() + sealing + Header::bytes(self.folder.lanes);
        self.queue.used.store(used, Ordering::Relaxed);
    }

    pub(crate) fn measure_free(&self) {
        // A disk that cannot say is asked again; its earlier answer still counts.
        if let Ok(free) = self.folder.disk.free_bytes(&self.folder.path) {
            self.queue.free.store(free, Ordering::Relaxed);
        }
    }

    /// Returns the consumers as they are now.
    pub(crate) fn cursors(&self) -> Vec<Arc<Cursors>> {
        self.consumers.lock().values().cloned().collect()
    }
}
