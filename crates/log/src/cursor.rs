//! How far a consumer group is, lane by lane.

/// A place in a lane: everything before it is behind. Each group read comes with the mark that follows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The lane.
    pub lane: u32,
    /// Byte position in the log: groups of the lane that end here or before are behind.
    pub position: u64,
    /// Documents of the lane that are behind, counted from the log's beginning.
    pub documents: u64,
    /// Documents of the lane that were lost since the reader began, up to here: they count among `documents`.
    pub lost: u64,
}

/// A mark to commit: what is behind it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    pub(crate) mark: Mark,
    pub(crate) dead: u64,
}

// === impl Mark ===

impl Mark {
    /// Everything before is indexed (or lost); nothing was put among the dead letters since the last commit.
    #[must_use]
    pub fn done(self) -> Commit {
        self.done_with(0)
    }

    /// Everything before is done, `dead` documents since the lane's last commit by being put among the dead letters.
    #[must_use]
    pub fn done_with(self, dead: u64) -> Commit {
        Commit { mark: self, dead }
    }
}
