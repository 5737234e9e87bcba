//! The numbers of a log.

/// The state of a log in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Position of the first byte that is still there.
    pub start: u64,
    /// Position after the last record that readers may see.
    pub end: u64,
    /// Number of segment files.
    pub segments: u64,
    /// Bytes of all segments on disk.
    pub bytes: u64,
    /// Bytes of used-up segments' files on disk, kept for reuse.
    pub spare_bytes: u64,
    /// Bytes that all segments may take; 0 means no quota.
    pub quota_bytes: u64,
    /// Bytes that were free on the disk when the writer or keeper last looked.
    pub free_bytes: u64,
    /// Bytes of records handed over and not yet durable.
    pub waiting_bytes: u64,
    /// Records appended since the log's beginning.
    pub records: u64,
    /// Documents accepted since the log's beginning.
    pub documents: u64,
    /// Accepted documents that were lost and whose lane is unknown; lost documents of a known lane count in
    /// its consumers' [`LaneStatus::lost`].
    pub lost: u64,
    /// Syncs of records since the log was opened.
    pub syncs: u64,
    /// Why nothing is accepted any more, if that is the case.
    pub poisoned: Option<String>,
}

/// The numbers of a consumer group. Within one result of [`crate::Log::accounts`]: `documents` of
/// [`Status`] + `rewound` = `indexed` + `dead` + `skipped` + `pending` + both `lost`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerStatus {
    /// The group's name.
    pub name: String,
    /// Documents done, without the dead, lost and skipped ones, since the log's beginning.
    pub indexed: u64,
    /// Documents that were put among the dead letters, and so are done.
    pub dead: u64,
    /// Documents that could not be read.
    pub lost: u64,
    /// Documents passed over on purpose: before the group's start, by [`crate::Consumer::seek`], by
    /// [`crate::Mark::skipping`].
    pub skipped: u64,
    /// Documents that the group was set back over: they are, or will be, counted once more.
    pub rewound: u64,
    /// Documents not yet done.
    pub pending: u64,
    /// Bytes not yet done, uncompressed.
    pub pending_bytes: u64,
    /// The numbers of each lane.
    pub lanes: Vec<LaneStatus>,
}

/// The numbers of one lane of a consumer group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneStatus {
    /// The position up to which the lane is committed.
    pub position: u64,
    /// Documents accepted into the lane since the log's beginning.
    pub accepted: u64,
    /// Documents of those that are done, including dead and lost ones.
    pub done: u64,
    /// Done documents that are dead.
    pub dead: u64,
    /// Done documents that were lost.
    pub lost: u64,
    /// Done documents that were skipped.
    pub skipped: u64,
    /// Documents that were done before the lane was set back over them.
    pub rewound: u64,
    /// Bytes accepted and not yet done, uncompressed.
    pub pending_bytes: u64,
}
