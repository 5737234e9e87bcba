//! `./dev prove`: measures what Tidegate improves before a real cluster, with `tidegate compare`, and writes
//! tables and charts into `docs/proof.md`. Each set of rows is kept as JSON beside it, so sets can be
//! measured at different times.

mod chart;
mod page;
mod row;

use std::process::Stdio;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};
use serde_json::Value;
use testkit::real::{ClusterKind, Own, RealCluster};

use crate::gateway::{Build, Documents, Gateway};
use crate::steps::bound_to_us;
use crate::terminal::{Look, paint, say};
use row::{Measured, Row};

/// Options: what to measure.
#[derive(Args)]
pub(crate) struct Options {
    /// Number of rounds of each row, each both ways
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..))]
    rounds: u32,
    /// Sets of rows to measure, separated by commas
    #[arg(long, value_delimiter = ',', default_values_t = [Set::Loads, Set::Shards, Set::Translog, Set::Secure, Set::Elasticsearch])]
    sets: Vec<Set>,
    /// Measure only rows whose name contains this; other rows of the set stay as they are
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Print the rows, and leave the pages as they are
    #[arg(long)]
    dry: bool,
}

/// Rows that are measured on one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Set {
    /// All loads and kinds of documents, OpenSearch, 6 primaries
    Loads,
    /// 3 and 30 primaries
    Shards,
    /// The translog is synced every few seconds, not for each request
    Translog,
    /// TLS and basic authentication both ways
    Secure,
    /// Elasticsearch
    Elasticsearch,
}

/// The number of clients, of documents in each of their bulks, and of documents per run.
#[derive(Clone, Copy)]
struct Load {
    clients: u32,
    batch: u32,
    docs: u32,
}

/// A single client.
const LONE: Load = Load {
    clients: 1,
    batch: 10,
    docs: 8_000,
};
const SMALL: Load = Load {
    clients: 64,
    batch: 10,
    // The run takes some seconds through the gateway, so that the first costs of a new index do not matter
    // much.
    docs: 120_000,
};
const MIDDLE: Load = Load {
    clients: 8,
    batch: 1_000,
    docs: 160_000,
};
const LARGE: Load = Load {
    clients: 4,
    batch: 10_000,
    docs: 240_000,
};

/// The measurement for a row.
struct Trial {
    load: Load,
    documents: Documents,
    shards: u32,
    /// `translog.durability=async`.
    lazy: bool,
}

/// Measures.
///
/// # Errors
/// If something cannot be started, or a run lost or doubled a document.
pub(crate) fn run_verb(options: &Options) -> Result<()> {
    Build::Release.make()?;
    for set in &options.sets {
        let trials: Vec<_> = set.trials();
        let trials: Vec<_> = trials
            .into_iter()
            .filter(|trial| trial.name().contains(&options.only))
            .collect();
        if trials.is_empty() {
            bail!("no row of {} holds `{}`", set.name(), options.only);
        }
        let before = Measured::read(&set.file())?;
        // Results are kept row by row, since hours of measuring may be cut short.
        let keep = |measured: &Measured| {
            if options.dry {
                return Ok(());
            }
            let mut measured = measured.clone();
            if let Some(before) = &before {
                measured.fill_from(before.clone(), &set.trials());
            }
            measured.write(&set.file())?;
            page::write()
        };
        let measured = set.measure(&trials, options.rounds, keep)?;
        say(&format!("\n{}", page::table(&measured)));
    }
    Ok(())
}

// === impl Set ===

impl Set {
    const ALL: [Self; 5] = [
        Self::Loads,
        Self::Shards,
        Self::Translog,
        Self::Secure,
        Self::Elasticsearch,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Loads => "loads",
            Self::Shards => "shards",
            Self::Translog => "translog",
            Self::Secure => "secure",
            Self::Elasticsearch => "elasticsearch",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Loads => "Small, middle and large bulks",
            Self::Shards => "Few and many shards",
            Self::Translog => "With the translog synced every five seconds",
            Self::Secure => "With TLS and basic authentication",
            Self::Elasticsearch => "Elasticsearch",
        }
    }

    fn file(self) -> std::path::PathBuf {
        crate::root().join(format!("docs/proof/{}.json", self.name()))
    }

    fn kind(self) -> ClusterKind {
        match self {
            Self::Loads | Self::Shards | Self::Translog => ClusterKind::OpenSearch,
            Self::Secure => ClusterKind::OpenSearchSecure,
            Self::Elasticsearch => ClusterKind::Elasticsearch,
        }
    }

    fn trials(self) -> Vec<Trial> {
        let trial = |load, documents, shards, lazy| Trial {
            load,
            documents,
            shards,
            lazy,
        };
        let of = |kinds: &[Documents], shards, lazy| -> Vec<Trial> {
            let loads = [SMALL, MIDDLE, LARGE].into_iter();
            loads
                .flat_map(|load| kinds.iter().map(move |kind| trial(load, *kind, shards, lazy)))
                .collect()
        };
        let of_every_kind = |shards, lazy| of(&Documents::ALL, shards, lazy);
        match self {
            Self::Loads => {
                let mut trials = of_every_kind(6, false);
                // Last, when Java has long been warm: its runs are short.
                trials.push(trial(LONE, Documents::WithIds, 6, false));
                trials
            }
            Self::Shards => {
                let kinds = [Documents::WithIds, Documents::WithoutIds, Documents::Packed];
                let shards = [3, 30].into_iter();
                let mut trials: Vec<_> = shards.flat_map(|shards| of(&kinds, shards, false)).collect();
                // This set has twice as many rows as the others, and small bulks for 30 shards take long.
                for trial in &mut trials {
                    trial.load.docs /= 2;
                }
                trials
            }
            Self::Translog => of_every_kind(6, true),
            Self::Secure | Self::Elasticsearch => of_every_kind(6, false),
        }
    }

    fn measure(
        self,
        trials: &[Trial],
        rounds: u32,
        keep: impl Fn(&Measured) -> Result<()>,
    ) -> Result<Measured> {
        let kind = self.kind();
        say(&paint(
            Look::Bold,
            &format!("starting three nodes of {} ...", kind.name()),
        ));
        let own = Own {
            quick: false,
            ..Own::new(kind)
        };
        let cluster = RealCluster::own(&own)?;
        let mut measured = Measured::new(self.title(), &cluster, rounds);
        // Java is fast only once it has compiled its code.
        for load in [SMALL, MIDDLE] {
            let warm = Trial {
                load: Load {
                    docs: load.docs * 3 / 2,
                    ..load
                },
                documents: Documents::WithIds,
                shards: 6,
                lazy: false,
            };
            warm.measure(&cluster, 1, true)?;
        }
        for trial in trials {
            let row = trial.measure(&cluster, rounds, false)?;
            say(&page::line(&row));
            measured.rows.push(row);
            keep(&measured)?;
        }
        Ok(measured)
    }
}

impl std::fmt::Display for Set {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.name())
    }
}

// === impl Trial ===

impl Trial {
    fn name(&self) -> String {
        format!(
            "{} × {}, {}, {} shards{}",
            self.load.clients,
            self.load.batch,
            self.documents.name(),
            self.shards,
            if self.lazy { ", async translog" } else { "" }
        )
    }

    fn measure(&self, cluster: &RealCluster, rounds: u32, warming: bool) -> Result<Row> {
        let name = self.name();
        say(&paint(
            Look::Dim,
            &format!("{} {name} ...", if warming { "warming up:" } else { "" }),
        ));
        let gateway = Gateway::combining(cluster, self.documents)?;
        let mut command = bound_to_us(Build::Release.program());
        let (direct, through) = (cluster.urls().join(","), gateway.url().to_owned());
        command.args(["compare", "--json", "--no-updates", "--pause", "1"]);
        command.args(["--direct", &direct, "--gateway", &through]);
        for (flag, value) in [
            ("--docs", self.load.docs),
            ("--batch", self.load.batch),
            ("--clients", self.load.clients),
            ("--rounds", rounds),
            ("--shards", self.shards),
            ("--warm-up", self.load.docs / 4),
        ] {
            command.args([flag, &value.to_string()]);
        }
        if self.documents != Documents::WithIds {
            command.arg("--without-ids");
        }
        if self.lazy {
            command.args(["--setting", "translog.durability=async"]);
        }
        if let Some((user, password)) = cluster.credentials() {
            command.arg("--insecure");
            command.envs([("TIDEGATE_USER", user), ("TIDEGATE_PASSWORD", password)]);
        }
        let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output()?;
        ensure!(
            output.status.success(),
            "tidegate compare, {name}: {}: {}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        let outcome: Value = serde_json::from_slice(&output.stdout)?;
        let parts = gateway.parts_a_request()?;
        gateway.stop()?;
        Row::of(name, &outcome, parts).context("the outcome lacks something")
    }
}
