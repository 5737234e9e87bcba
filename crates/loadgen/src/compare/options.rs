//! Options of a comparison.

use std::path::PathBuf;
use std::time::Duration;

/// Options of a comparison.
#[derive(Debug, Clone)]
pub struct CompareOptions {
    /// Nodes of the cluster, over which requests are spread. The first one is asked for counts and CPU time.
    pub direct: Vec<String>,
    /// Gateways before the same cluster.
    pub gateway: Vec<String>,
    /// User and password for all of them, in place of those in their URLs.
    pub account: Option<(String, String)>,
    /// Number of documents in each run; raised to a multiple of `batch`.
    pub documents: u64,
    /// Number of documents in each request.
    pub batch: u32,
    /// Whether documents have ids.
    pub ids: bool,
    /// Whether each round ends with updates of the same documents, if they have ids.
    pub updates: bool,
    /// Number of rounds; each writes both ways.
    pub rounds: u32,
    /// Number of users, each with one request under way.
    pub clients: usize,
    /// Number of primaries of each index.
    pub shards: u32,
    /// Number of copies of each primary.
    pub replicas: u32,
    /// `index.refresh_interval`; none: the cluster's default.
    pub refresh_interval: Option<String>,
    /// Further settings of each index, by their names without `index.`.
    pub settings: Vec<(String, String)>,
    /// Prefix of the names of the indices.
    pub index: String,
    /// Do not delete the indices at the end.
    pub keep: bool,
    /// Number of documents that are written each way before the first round, without measuring.
    pub warm_up_documents: u64,
    /// Pause between two runs.
    pub rest: Duration,
    /// Time limit for the index to count what was accepted.
    pub count_timeout: Duration,
    /// Time limit for a request.
    pub timeout: Duration,
    /// Compression level with which bodies are sent gzipped.
    pub gzip: Option<u32>,
    /// Certificate authorities (PEM) to trust; none: the system's.
    pub ca_file: Option<PathBuf>,
    /// Do not check certificates.
    pub insecure: bool,
}

/// The way that documents go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// To the cluster's nodes.
    Direct,
    /// Through the gateway.
    Gateway,
}

/// The kind of documents that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Documents that are not there yet.
    New,
    /// The same documents once more.
    Updates,
}

// === impl CompareOptions ===

impl Default for CompareOptions {
    /// Returns options for four rounds of 300,000 documents with ids, in requests of 10,000 by two users, to
    /// three primaries without copies.
    fn default() -> Self {
        CompareOptions {
            direct: Vec::new(),
            gateway: Vec::new(),
            account: None,
            documents: 300_000,
            batch: 10_000,
            ids: true,
            updates: true,
            rounds: 4,
            clients: 2,
            shards: 3,
            replicas: 0,
            refresh_interval: None,
            settings: Vec::new(),
            index: "tidegate-compare".to_owned(),
            keep: false,
            warm_up_documents: 30_000,
            rest: Duration::from_secs(2),
            count_timeout: Duration::from_secs(300),
            timeout: Duration::from_secs(60),
            gzip: None,
            ca_file: None,
            insecure: false,
        }
    }
}

impl CompareOptions {
    /// The number of requests of each run.
    pub(super) fn requests(&self, documents: u64) -> u64 {
        documents.div_ceil(u64::from(self.batch.max(1))).max(1)
    }

    /// The phases of each round.
    pub(super) fn phases(&self) -> &'static [Phase] {
        if self.ids && self.updates {
            &[Phase::New, Phase::Updates]
        } else {
            &[Phase::New]
        }
    }
}

// === impl Way, Phase ===

impl Way {
    /// Both ways, in the order of a round (counted from 0).
    pub(super) fn order(round: u32) -> [Way; 2] {
        if round.is_multiple_of(2) {
            [Way::Direct, Way::Gateway]
        } else {
            [Way::Gateway, Way::Direct]
        }
    }

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Way::Direct => "direct",
            Way::Gateway => "gateway",
        }
    }
}

impl Phase {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Phase::New => "new",
            Phase::Updates => "updates",
        }
    }
}
