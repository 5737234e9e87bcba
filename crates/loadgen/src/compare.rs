//! A cluster written to directly against the same cluster through a gateway, done right.
//!
//! Each round writes the same documents into an index of its own each way; which way goes first alternates (A B, B A,
//! A B, …), so that what drifts meets both. Then, where documents have ids, the same documents once more: updates. A
//! run's time ends when the index *counts* the documents, not when they were acknowledged (that time is told too), and
//! every item of every answer is looked at. Of the rounds' paired differences the report says what the gateway changes,
//! with the interval in which the truth is with 95 % confidence, and says so when that is within the noise.

mod documents;
mod estimate;
mod outcome;
mod page;
mod run;
mod servers;

use std::path::PathBuf;
use std::time::Duration;

use wire::TlsError;

pub use self::estimate::{Change, Verdict};
pub use self::outcome::{Averages, Compared, PhaseOutcome, Run};
use self::run::Legs;
use self::servers::Servers;
use crate::ask::AskError;
use crate::engine::{RunError, Stop};
use crate::progress::Progress;

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
    /// Documents have ids; then each round ends with updates of the same ones.
    pub ids: bool,
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

/// What happens while a comparison runs.
#[derive(Debug)]
pub enum CompareEvent<'e> {
    /// Something worth a line.
    Note(&'e str),
    /// A run begins.
    Begun {
        /// From 1; 0 is the warm-up.
        round: u32,
        /// Which way.
        way: Way,
        /// What is written.
        phase: Phase,
    },
    /// A second of a run has passed.
    Sending(&'e Progress),
    /// All was acknowledged, and the index counts so many.
    Counting(u64),
    /// A run is over.
    Ended(&'e Run),
}

/// Why nothing can be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// A URL is wrong.
    #[error("`{0}` {1}")]
    Url(String, String),
    /// Authorities can't be used.
    #[error("authorities: {0}")]
    Tls(#[from] TlsError),
    /// No runtime.
    #[error(transparent)]
    Threads(#[from] std::io::Error),
    /// The cluster did not answer, or refused.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// A load could not be run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The gateway leads to another cluster.
    #[error("the gateway leads to another cluster ({gateway}) than {direct}: its counts would say nothing")]
    OtherCluster {
        /// Name and uuid.
        direct: String,
        /// Name and uuid.
        gateway: String,
    },
    /// It was asked to stop.
    #[error("stopped; the indices of this comparison are removed")]
    Stopped,
    /// The requests made for the comparison are not understood: a fault of ours.
    #[error("the requests of the comparison are not understood: {0}")]
    Load(String),
}

impl Default for CompareOptions {
    /// Four rounds of 300,000 documents with ids, in requests of 10,000 by two users, to three primaries without copies.
    fn default() -> Self {
        CompareOptions {
            direct: Vec::new(),
            gateway: Vec::new(),
            account: None,
            documents: 300_000,
            batch: 10_000,
            ids: true,
            rounds: 4,
            clients: 2,
            shards: 3,
            replicas: 0,
            refresh_interval: None,
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
    fn requests(&self, documents: u64) -> u64 {
        documents.div_ceil(u64::from(self.batch.max(1))).max(1)
    }

    /// What each round writes.
    fn phases(&self) -> &'static [Phase] {
        if self.ids {
            &[Phase::New, Phase::Updates]
        } else {
            &[Phase::New]
        }
    }
}

// === impl Way, Phase ===

impl Way {
    /// Both, in the order of a round (from 0).
    fn order(round: u32) -> [Way; 2] {
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

/// Compares. Indices that were made are removed whatever happens, unless they are to be kept.
///
/// # Errors
/// When nothing can be compared. What was wrong with single runs is in the outcome.
pub fn compare(
    options: &CompareOptions,
    stop: &Stop,
    mut watch: impl FnMut(CompareEvent<'_>),
) -> Result<Compared, CompareError> {
    let servers = Servers::new(options)?;
    let cluster = servers.cluster()?;
    let mut legs = Legs::new(options, &servers, stop);
    let measured = measure(options, &mut legs, &mut watch);
    if !options.keep {
        for (index, error) in legs.clean_up() {
            watch(CompareEvent::Note(&format!(
                "index {index} is still there: {error}"
            )));
        }
    }
    Ok(Compared::new(options, cluster, measured?))
}

fn measure(
    options: &CompareOptions,
    legs: &mut Legs<'_>,
    watch: &mut dyn FnMut(CompareEvent<'_>),
) -> Result<Vec<Run>, CompareError> {
    if options.warm_up_documents > 0 {
        watch(CompareEvent::Note("warming up both ways"));
        for way in Way::order(0) {
            legs.leg(0, way, options.warm_up_documents, &mut |_| ())?;
        }
    }
    let mut runs = Vec::new();
    for round in 0..options.rounds {
        for way in Way::order(round) {
            runs.extend(legs.leg(round + 1, way, options.documents, watch)?);
        }
    }
    Ok(runs)
}
