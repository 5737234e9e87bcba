//! What is compared, and how.

use std::path::PathBuf;
use std::time::Duration;

/// What is compared, and how.
#[derive(Debug, Clone)]
pub struct DiffOptions {
    /// One side.
    pub left: DiffSide,
    /// The other.
    pub right: DiffSide,
    /// Authorities (PEM) that servers' certificates are checked against; none: the system's.
    pub ca_file: Option<PathBuf>,
    /// Certificates are not checked at all.
    pub insecure: bool,
    /// For a request.
    pub timeout: Duration,
    /// Refresh both before anything is read.
    pub refresh: bool,
    /// Compare numbers of documents only.
    pub counts_only: bool,
    /// Documents of a page.
    pub page: u32,
    /// Parts of a side that are read at the same time, each on a thread of its own; no more than it has
    /// shards.
    pub slices: u32,
    /// Bytes for digests and for what differs, whatever the size of the indices; two pages of each part that
    /// is read at the same time come on top.
    pub memory_bytes: u64,
    /// Differences after which the rest is left unlooked at; none: all are found.
    pub limit: Option<usize>,
}

/// An index of a cluster.
#[derive(Debug, Clone)]
pub struct DiffSide {
    /// Any node of the cluster; `http://USER:PASSWORD@HOST:PORT` names an account.
    pub url: String,
    /// The index; an alias, a data stream and several names with commas will do too.
    pub index: String,
    /// User and password, in place of what the URL says.
    pub account: Option<(String, String)>,
}
