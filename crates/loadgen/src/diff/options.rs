//! Options of a comparison of two indices.

use std::path::PathBuf;
use std::time::Duration;

/// Options of a comparison of two indices.
#[derive(Debug, Clone)]
pub struct DiffOptions {
    /// The left side.
    pub left: DiffSide,
    /// The right side.
    pub right: DiffSide,
    /// Certificate authorities (PEM) against which servers' certificates are checked; none: the system's.
    pub ca_file: Option<PathBuf>,
    /// Do not check certificates at all.
    pub insecure: bool,
    /// Time limit for a request.
    pub timeout: Duration,
    /// Refresh both sides before anything is read.
    pub refresh: bool,
    /// Compare only the numbers of documents.
    pub counts_only: bool,
    /// Number of documents in a page.
    pub page: u32,
    /// Number of slices of a side that are read at the same time, each on a thread of its own; no more than
    /// the side has shards.
    pub slices: u32,
    /// Memory for digests and for what differs, in bytes, whatever the size of the indices. Two pages of each
    /// slice that is read at the same time come on top.
    pub memory_bytes: u64,
    /// Number of differences after which the comparison stops; none: it finds all.
    pub limit: Option<usize>,
}

/// An index of a cluster.
#[derive(Debug, Clone)]
pub struct DiffSide {
    /// URL of any node of the cluster; `http://USER:PASSWORD@HOST:PORT` names an account.
    pub url: String,
    /// The index, or an alias, a data stream or several names separated by commas.
    pub index: String,
    /// User and password, in place of those in the URL.
    pub account: Option<(String, String)>,
}
