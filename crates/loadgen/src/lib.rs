//! Sends load from a file of requests to Elasticsearch, OpenSearch or a gateway before them, and reports
//! exactly what became of it.
//!
//! # The story
//!
//! [`Load::read`] reads a load file and compiles it: every text of a request becomes a template of static
//! pieces and slots. [`run`] spreads users over cores. Each user goes through the requests in order, one at a
//! time: the core renders the template into a pooled buffer, sends it with `wire`'s client, and reads the
//! whole answer. It looks at every item of a bulk's answer: a document counts as accepted when its own item
//! says so. Each core counts separately; at the end the counts become a [`Report`].
//!
//! ```
//! use std::path::Path;
//! use std::sync::Arc;
//! use loadgen::{Load, Options, Stop, run};
//! use testkit::fake::{FakeCluster, Spec};
//!
//! let cluster = FakeCluster::start(Spec::default().index("logs", 3))?;
//! let file = format!(r#"
//! variables:
//!   - {{name: id, type: sequence}}
//! requests:
//!   - request:
//!       method: POST
//!       url: {}/_bulk
//!       body_repeat_times: 100
//!       body: |
//!         {{"index":{{"_index":"logs","_id":"$[[id]]"}}}}
//!         {{"message":"hello"}}
//! "#, cluster.urls()[0]);
//! let loaded = Load::parse(&file, Some("loadgen.yml"), Path::new(""), &|_| None)?;
//! let options = Options { requests_max: Some(5), ..Options::default() };
//! let report = run(&Arc::new(loaded.load), &options, &Stop::default(), |_| ())?;
//! assert_eq!(report.total.answers, 5);
//! assert_eq!(report.total.documents.map(|documents| documents.accepted), Some(500));
//! # anyhow::Ok(())
//! ```
//!
//! [`compare()`] measures two ways to a cluster against each other; [`diff()`] finds out whether an index
//! holds the same documents on two clusters.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests sleep, lock and look at clocks as they like"
    )
)]

mod answer;
mod ask;
mod compare;
mod condition;
mod core;
mod csv;
mod diff;
mod engine;
mod file;
mod html;
mod ledger;
mod options;
#[cfg(test)]
mod oracle;
mod pace;
mod progress;
mod prometheus;
mod report;
mod request;
mod sampler;
mod schedule;
#[cfg(feature = "screen")]
mod screen;
mod slot;
mod spread;
mod statsd;
mod tally;
mod template;
mod trouble;
mod units;
mod variable;
mod verified;
mod verify;
mod warm_up;

pub use ask::AskError;
pub use compare::{
    Averages, ChangeVerdict, CompareError, CompareEvent, CompareOptions, Compared, Phase, PhaseOutcome,
    RelativeChange, Run, Way, compare,
};
pub use core::Unanswered;
pub use diff::{
    DiffError, DiffEvent, DiffOptions, DiffSide, Difference, DifferenceCounts, DifferenceKind,
    DocumentDifference, FieldDifference, SideOutcome, diff,
};
pub use engine::{RunError, Stop, run};
pub use file::{Load, Loaded, Runner};
pub use options::Options;
pub use progress::{Counts, Progress};
pub use prometheus::Prometheus;
pub use report::{Documents, Figures, Report};
pub use request::UrlError;
pub use sampler::Sampler;
pub use schedule::{Schedule, ScheduleError};
#[cfg(feature = "screen")]
pub use screen::Screen;
pub use spread::Spread;
pub use statsd::{Statsd, StatsdTarget};
pub use verified::{Flaw, Verified};
pub use verify::{VerifyError, VerifyOptions, verify};
pub use warm_up::{WarmUp, warm_up};
