//! The queue of records handed over and not yet written.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::{AppendError, Full, Receipt, Record};

/// The function to call when a record is durable, or never will be.
pub(crate) type Done = Box<dyn FnOnce(Result<Receipt, AppendError>) + Send>;

/// A record on its way to the disk.
pub(crate) struct Job {
    pub(crate) record: Record,
    pub(crate) bytes: u64,
    pub(crate) done: Done,
}

/// The limits on what a log may take.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    pub(crate) waiting_bytes_max: u64,
    pub(crate) quota_bytes: u64,
    pub(crate) free_bytes_min: u64,
}

/// Records that wait for the writer, and the room there is for more.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    /// Bytes of all segments, with those that sealing the last one will take.
    pub(crate) used: AtomicU64,
    /// Bytes free on the disk, as last seen.
    pub(crate) free: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    /// Bytes of the jobs here, and of those that the writer has taken and not settled.
    bytes: u64,
    refusal: Option<AppendError>,
}

// === impl Queue ===

impl Queue {
    /// Takes a record, or gives it back with the reason why not.
    pub(crate) fn push(&self, job: Job, room: &Room) -> Result<(), Box<(Job, AppendError)>> {
        let mut waiting = self.waiting.lock();
        let mut room = *room;
        if job.record.beyond_quota {
            room.quota_bytes = 0;
        }
        match self.fits(&waiting, job.bytes, &room) {
            Err(error) => Err(Box::new((job, error))),
            Ok(()) => {
                waiting.bytes += job.bytes;
                waiting.jobs.push_back(job);
                Ok(())
            }
        }
    }

    /// Checks whether a record of this length would be taken.
    pub(crate) fn admit(&self, bytes: u64, room: &Room) -> Result<(), AppendError> {
        self.fits(&self.waiting.lock(), bytes, room)
    }

    fn fits(&self, waiting: &Waiting, bytes: u64, room: &Room) -> Result<(), AppendError> {
        if let Some(refusal) = &waiting.refusal {
            return Err(refusal.clone());
        }
        let coming = waiting.bytes + bytes;
        let most = room.waiting_bytes_max;
        if waiting.bytes > 0 && coming > most {
            let waiting = waiting.bytes;
            return Err(AppendError::Full(Full::Waiting { waiting, most }));
        }
        let (used, quota) = (self.used.load(Ordering::Relaxed), room.quota_bytes);
        if quota > 0 && used + coming > quota {
            return Err(AppendError::Full(Full::Quota { used, quota }));
        }
        let (free, floor) = (self.free.load(Ordering::Relaxed), room.free_bytes_min);
        if free < coming.saturating_add(floor) {
            return Err(AppendError::Full(Full::Floor { free, floor }));
        }
        Ok(())
    }

    /// Returns the bytes free on the disk, as last seen.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.free.load(Ordering::Relaxed)
    }

    /// Takes all waiting jobs. They count as waiting until they are settled.
    pub(crate) fn take(&self) -> VecDeque<Job> {
        std::mem::take(&mut self.waiting.lock().jobs)
    }

    /// Notes that `bytes` bytes of the taken jobs are durable or refused.
    pub(crate) fn settled(&self, bytes: u64) {
        self.waiting.lock().bytes -= bytes;
    }

    /// Refuses everything from now on. The newest reason is kept, but that the log is poisoned is never
    /// replaced.
    pub(crate) fn refuse(&self, error: AppendError) {
        let mut waiting = self.waiting.lock();
        if !matches!(waiting.refusal, Some(AppendError::Poisoned(_))) {
            waiting.refusal = Some(error);
        }
    }

    /// Returns why everything is refused, if it is.
    pub(crate) fn refusal(&self) -> Option<AppendError> {
        self.waiting.lock().refusal.clone()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.lock().jobs.is_empty()
    }

    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.waiting.lock().bytes
    }
}
