//! The measurements, and how they are stored.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use testkit::real::RealCluster;

use super::Trial;

/// A set of rows, as stored in the file beside the page.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Measured {
    pub(super) title: String,
    /// Engine and version.
    pub(super) server: String,
    pub(super) cores: usize,
    /// Number of rounds of the rows measured last.
    pub(super) rounds: u32,
    pub(super) rows: Vec<Row>,
}

/// One row: ratios of Tidegate to the direct way, with their 95 % confidence intervals.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) direct_per_s: f64,
    pub(super) gateway_per_s: f64,
    /// Speed, until the index counts the documents.
    pub(super) speed: Ratio,
    /// CPU time of all nodes, per document.
    pub(super) cpu: Ratio,
    /// CPU seconds of all nodes per million documents, the direct way.
    pub(super) direct_cpu: f64,
    pub(super) gateway_cpu: f64,
    pub(super) direct_p99_ms: f64,
    pub(super) gateway_p99_ms: f64,
    /// Parts of bulks in the requests that carried several, on average; 0 if there was none.
    pub(super) parts_a_request: f64,
}

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Ratio {
    pub(super) value: f64,
    pub(super) interval: Option<(f64, f64)>,
}

// === impl Measured ===

impl Measured {
    pub(super) fn new(title: &str, cluster: &RealCluster, rounds: u32) -> Self {
        Self {
            title: title.to_owned(),
            server: format!("{} {}", cluster.engine(), cluster.version()),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            rounds,
            rows: Vec::new(),
        }
    }

    pub(super) fn write(&self, file: &Path) -> Result<()> {
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
    }

    /// Takes the rows that were not measured now from `before`, in the order of `trials`. Rows of another
    /// server are dropped.
    pub(super) fn fill_from(&mut self, before: Self, trials: &[Trial]) {
        let same_server = before.server == self.server;
        let mut rows: Vec<Row> = self.rows.drain(..).collect();
        for row in before.rows {
            if same_server && rows.iter().all(|measured| measured.name != row.name) {
                rows.push(row);
            }
        }
        let place = |row: &Row| trials.iter().position(|trial| trial.name() == row.name);
        rows.retain(|row| place(row).is_some());
        rows.sort_by_key(place);
        self.rows = rows;
    }

    /// Reads a set; `None` if it was not measured yet.
    pub(super) fn read(file: &Path) -> Result<Option<Self>> {
        match std::fs::read_to_string(file) {
            Ok(text) => Ok(Some(serde_json::from_str(&text)?)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

// === impl Row ===

impl Row {
    /// Creates a row from what `tidegate compare --json` prints.
    pub(super) fn of(name: String, outcome: &Value, parts_a_request: f64) -> Option<Self> {
        let phase = &outcome["phases"][0];
        let per_s = |way: &str| phase[way]["counted_per_s"].as_f64();
        let median = |way: &str, of: &dyn Fn(&Value) -> Option<f64>| {
            let runs = outcome["runs"].as_array()?.iter();
            let mut all: Vec<f64> = runs
                .filter(|run| run["way"] == way && run["flaw"].is_null())
                .filter_map(of)
                .collect();
            all.sort_by(f64::total_cmp);
            all.get(all.len() / 2).copied()
        };
        let p99 = |run: &Value| run["p99_ms"].as_f64();
        let cpu = |run: &Value| Some(run["cpu_s"].as_f64()? * 1e6 / run["counted"].as_f64()?);
        Some(Self {
            name,
            direct_per_s: per_s("direct")?,
            gateway_per_s: per_s("gateway")?,
            speed: Ratio::of(&phase["counted"]).unwrap_or_default(),
            cpu: Ratio::of(&phase["cpu"]).unwrap_or_default(),
            direct_cpu: median("direct", &cpu)?,
            gateway_cpu: median("gateway", &cpu)?,
            direct_p99_ms: median("direct", &p99)?,
            gateway_p99_ms: median("gateway", &p99)?,
            parts_a_request,
        })
    }
}

// === impl Ratio ===

impl Default for Ratio {
    fn default() -> Self {
        Self {
            value: f64::NAN,
            interval: None,
        }
    }
}

impl Ratio {
    /// Converts a change in percent to a ratio.
    fn of(change: &Value) -> Option<Self> {
        let ratio = |percent: f64| 1.0 + percent / 100.0;
        let bound = |at: usize| change["interval"][at].as_f64().map(ratio);
        Some(Self {
            value: ratio(change["percent"].as_f64()?),
            interval: bound(0).zip(bound(1)),
        })
    }

    pub(super) fn text(&self) -> String {
        match self.interval {
            Some((low, high)) => format!("**{:.2}** ({low:.2} to {high:.2})", self.value),
            None => format!("{:.2}", self.value),
        }
    }
}
