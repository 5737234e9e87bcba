//! What is compared, and how.

use std::path::PathBuf;
use std::time::Duration;

/// What is compared, and how.
#[derive(Debug, Clone)]
pub struct CompareOptions {
    /// Nodes of the cluster; requests are spread over them. The first one is asked for counts and CPU time.
    pub direct: Vec<String>,
    /// Gateways before the same cluster.
    pub gateway: Vec<String>,
    /// User and password for all of them, in place of what their URLs say.
    pub account: Option<(String, String)>,
    /// Documents of each run; raised to a multiple of `batch`.
    pub documents: u64,
    /// Documents of each request.
    pub batch: u32,
    /// Documents have ids.
    pub ids: bool,
    /// Each round ends with updates of the same documents, if they have ids.
    pub updates: bool,
    /// Rounds; each writes both ways.
    pub rounds: u32,
    /// Users that send, each with one request under way.
    pub clients: usize,
    /// Primaries of each index.
    pub shards: u32,
    /// Copies of each primary.
    pub replicas: u32,
    /// `index.refresh_interval`; none: the cluster's default.
    pub refresh_interval: Option<String>,
    /// Further settings of each index, by their names without `index.`.
    pub settings: Vec<(String, String)>,
    /// What the names of the indices begin with.
    pub index: String,
    /// Leave the indices there.
    pub keep: bool,
    /// Documents that are written each way before the first round, and not measured.
    pub warm_up_documents: u64,
    /// Between two runs.
    pub rest: Duration,
    /// Longest wait for the index to count what was accepted.
    pub count_timeout: Duration,
    /// Longest time of a request.
    pub timeout: Duration,
    /// Bodies are sent gzipped, at this level.
    pub gzip: Option<u32>,
    /// Authorities (PEM) to trust; none: the system's.
    pub ca_file: Option<PathBuf>,
    /// Certificates are not checked.
    pub insecure: bool,
}

/// Which way documents go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// To the cluster's nodes.
    Direct,
    /// Through the gateway.
    Gateway,
}

/// What is written.
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
    /// Four rounds of 300,000 documents with ids, in requests of 10,000 by two users, to three primaries
    /// without copies.
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
    /// Requests of each run.
    pub(super) fn requests(&self, documents: u64) -> u64 {
        documents.div_ceil(u64::from(self.batch.max(1))).max(1)
    }

    /// What each round writes.
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
    /// Both, in the order of a round (from 0).
    pub(super) fn order(round: u32) -> [Way; 2] {
        if round.is_multiple_of(2) {
            [Way::Direct, Way::Gateway]
        } else {
            [Way::Gateway, Way::Direct]
        }
    }

    /// As tables call it.
    pub fn name(self) -> &'static str {
        match self {
            Way::Direct => "direct",
            Way::Gateway => "gateway",
        }
    }
}

impl Phase {
    /// As tables call it.
    pub fn name(self) -> &'static str {
        match self {
            Phase::New => "new",
            Phase::Updates => "updates",
        }
    }
}
