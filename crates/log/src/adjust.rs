//! What may be changed while a log is open.

use crate::lock::lock;
use crate::log::check;
use crate::options::Fsync;
use crate::shared::Shared;
use crate::{Codec, Log, OpenError, Options};

/// What of [`Options`] may be changed while a log is open: the rest of it says how the log lies on the disk, or who does
/// the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Adjustable {
    pub(crate) fsync: Fsync,
    pub(crate) codec: Codec,
    pub(crate) segment_bytes: u64,
    pub(crate) quota_bytes: u64,
    pub(crate) free_bytes_min: u64,
    pub(crate) retention: crate::Retention,
    pub(crate) spare_bytes: u64,
}

// === impl Adjustable ===

impl Adjustable {
    pub(crate) fn of(options: &Options) -> Self {
        Self {
            fsync: options.fsync,
            codec: options.codec,
            segment_bytes: options.segment_bytes,
            quota_bytes: options.quota_bytes,
            free_bytes_min: options.free_bytes_min,
            retention: options.retention,
            spare_bytes: options.spare_bytes,
        }
    }
}

// === impl Log ===

impl Log {
    /// Takes over from `options` when appends count as done, how records are compressed, how large segments get, quota, free
    /// space, retention and spare files; the rest of it means nothing here. Holds for what is appended from now on (`codec`
    /// for records that are begun from now on). What was appended before is synced first where `fsync` changes.
    ///
    /// # Errors
    /// [`OpenError::Options`], as when a log is opened; nothing has changed then.
    pub fn adjust(&self, options: &Options) -> Result<(), OpenError> {
        check(options)?;
        let shared = self.shared();
        let now = Adjustable::of(options);
        let before = std::mem::replace(&mut *lock(&shared.adjustable), now);
        if before.fsync != now.fsync {
            lock(&shared.writer).sync_all(shared);
            // It looks anew when the next sync is due.
            shared.ring();
        }
        Ok(())
    }
}

// === impl Shared ===

impl Shared {
    pub(crate) fn adjustable(&self) -> Adjustable {
        *lock(&self.adjustable)
    }
}
