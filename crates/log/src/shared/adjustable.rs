//! The settings that may be changed while a log is open.

use crate::options::{Fsync, Retention};
use crate::{Codec, Options};

/// The part of [`Options`] that may be changed while a log is open; the rest says how the log lies on disk,
/// or who does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Adjustable {
    pub(crate) fsync: Fsync,
    pub(crate) codec: Codec,
    pub(crate) segment_bytes: u64,
    pub(crate) quota_bytes: u64,
    pub(crate) free_bytes_min: u64,
    pub(crate) retention: Retention,
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
