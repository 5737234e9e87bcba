//! What is in a log, in numbers.

/// A log, seen from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Position of the first byte that is still there.
    pub start: u64,
    /// Position after the last record that readers may see.
    pub end: u64,
    /// Files.
    pub segments: u64,
    /// Bytes of all segments on disk.
    pub bytes: u64,
    /// Bytes of used-up segments' files on disk, kept to be written again.
    pub spare_bytes: u64,
    /// Bytes that all segments may take; 0: any.
    pub quota_bytes: u64,
    /// Bytes free on the disk when the writer or keeper last looked.
    pub free_bytes: u64,
    /// Bytes of records handed over and not yet durable.
    pub waiting_bytes: u64,
    /// Records since the log's beginning.
    pub records: u64,
    /// Documents since the log's beginning: accepted.
    pub documents: u64,
    /// Documents among them that were lost in a way that no lane can be told; those of a lane count in its
    /// consumers' [`LaneStatus::lost`].
    pub lost: u64,
    /// Syncs of records since the log was opened.
    pub syncs: u64,
    /// Why nothing is accepted any more, if so.
    pub poisoned: Option<String>,
}

/// A consumer group. Of the same [`crate::Log::accounts`]: `documents` of [`Status`] + `rewound` =
/// `indexed` + `dead` + `skipped` + `pending` + both `lost`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerStatus {
    /// Its name.
    pub name: String,
    /// Documents done and neither dead nor lost nor skipped, since the log's beginning.
    pub indexed: u64,
    /// Documents done by being put among the dead letters.
    pub dead: u64,
    /// Documents that could not be read.
    pub lost: u64,
    /// Documents passed over on purpose: before its start, by [`crate::Consumer::seek`], by
    /// [`crate::Mark::skipping`].
    pub skipped: u64,
    /// Documents that it was set back over: they are, or will be, counted once more.
    pub rewound: u64,
    /// Documents not yet done.
    pub pending: u64,
    /// Bytes not yet done, uncompressed.
    pub pending_bytes: u64,
    /// Lane by lane.
    pub lanes: Vec<LaneStatus>,
}

/// One lane of a consumer group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneStatus {
    /// Committed up to here.
    pub position: u64,
    /// Documents accepted into the lane since the log's beginning.
    pub accepted: u64,
    /// Of those, documents done; dead and lost ones included.
    pub done: u64,
    /// Of those done, the dead.
    pub dead: u64,
    /// Of those done, the lost.
    pub lost: u64,
    /// Of those done, the skipped.
    pub skipped: u64,
    /// Documents that were done before, and that the lane was set back over.
    pub rewound: u64,
    /// Bytes accepted and not done, uncompressed.
    pub pending_bytes: u64,
}
