//! `./dev prove`: what gathering small bulks is worth on a real cluster, by `tidegate compare`, as tables and a chart in
//! `docs/combine.md`.

use std::fmt::Write as _;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde_json::Value;
use testkit::real::{Kind, Own, RealCluster};

use crate::gateway::{self, Gateway};
use crate::steps::bound_to_us;
use crate::terminal::{Look, paint, say};

/// What to measure.
#[derive(Args)]
pub(crate) struct Options {
    /// Rounds of each row, each both ways
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..))]
    rounds: u32,
    /// Primaries of the indices
    #[arg(long, value_delimiter = ',', default_values_t = [6])]
    shards: Vec<u32>,
    /// Print the table, and leave the page as it is
    #[arg(long)]
    dry: bool,
}

/// A load: so many clients, each with bulks of so many documents, so many documents a run.
struct Load {
    clients: u32,
    batch: u32,
    docs: u32,
}

const LOADS: [Load; 4] = [
    Load {
        clients: 1,
        batch: 10,
        docs: 1_000,
    },
    Load {
        clients: 64,
        batch: 10,
        docs: 20_000,
    },
    Load {
        clients: 8,
        batch: 1_000,
        docs: 100_000,
    },
    Load {
        clients: 4,
        batch: 10_000,
        docs: 160_000,
    },
];

/// One row of the table: ratios of Tidegate to the direct way, with their 95 % confidence intervals.
struct Row {
    name: String,
    direct_per_s: f64,
    gateway_per_s: f64,
    speed: Ratio,
    cpu: Ratio,
    p99_ms: (f64, f64),
}

struct Ratio {
    value: f64,
    interval: Option<(f64, f64)>,
}

/// Measures.
///
/// # Errors
/// When something cannot be started, or a run lost or doubled a document.
pub(crate) fn run_verb(options: &Options) -> Result<()> {
    gateway::build()?;
    say(&paint(Look::Bold, "starting three nodes of OpenSearch ..."));
    let own = Own {
        quick: false,
        ..Own::new(Kind::OpenSearch)
    };
    let cluster = RealCluster::own(&own)?;
    let urls = cluster.urls();
    let gateway = Gateway::combining(&urls[0])?;
    let mut rows = Vec::new();
    for shards in &options.shards {
        for load in &LOADS {
            for ids in [true, false] {
                let row = measure(load, ids, *shards, options.rounds, &urls, gateway.url())?;
                say(&row.line());
                rows.push(row);
            }
        }
    }
    let server = format!("{} {}", cluster.engine(), cluster.version());
    gateway.stop()?;
    drop(cluster);
    let table = table(&rows, &server, options.rounds);
    say(&format!("\n{table}"));
    if options.dry {
        return Ok(());
    }
    let root = crate::root();
    let page = root.join("docs/combine.md");
    let text = std::fs::read_to_string(&page)?;
    let (before, rest) = text
        .split_once(BEGIN)
        .context("docs/combine.md has no place for it")?;
    let (_, after) = rest.split_once(END).context("docs/combine.md has no end of it")?;
    std::fs::write(
        &page,
        format!("{before}{BEGIN}\n\n{table}\n![Cluster CPU for a document](combine.svg)\n\n{END}{after}"),
    )?;
    std::fs::write(root.join("docs/combine.svg"), chart(&rows))?;
    say("docs/combine.md and docs/combine.svg are written");
    Ok(())
}

const BEGIN: &str = "<!-- measured by ./dev prove -->";
const END: &str = "<!-- until here -->";

fn measure(load: &Load, ids: bool, shards: u32, rounds: u32, urls: &[String], gateway: &str) -> Result<Row> {
    let mut command = bound_to_us(crate::root().join("target/release/tidegate"));
    command.args([
        "compare",
        "--json",
        "--direct",
        &urls.join(","),
        "--gateway",
        gateway,
    ]);
    for (flag, value) in [
        ("--docs", load.docs),
        ("--batch", load.batch),
        ("--clients", load.clients),
        ("--rounds", rounds),
        ("--shards", shards),
        ("--warm-up", load.docs / 2),
    ] {
        command.args([flag, &value.to_string()]);
    }
    command.arg(if ids { "--with-ids" } else { "--without-ids" });
    let name = format!(
        "{} × {}, {}, {shards} shards",
        load.clients,
        load.batch,
        if ids { "ids" } else { "no ids" }
    );
    say(&paint(Look::Dim, &format!("{name} ...")));
    let output = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).output()?;
    ensure!(
        output.status.success(),
        "tidegate compare, {name}: {}",
        output.status
    );
    let outcome: Value = serde_json::from_slice(&output.stdout)?;
    Row::of(name, &outcome).context("the outcome lacks something")
}

// === impl Row ===

impl Row {
    fn of(name: String, outcome: &Value) -> Option<Self> {
        // New documents; updates cost much the same in all ways.
        let phase = &outcome["phases"][0];
        let per_s = |way: &str| phase[way]["counted_per_s"].as_f64();
        let p99 = |way: &str| {
            let runs = outcome["runs"].as_array()?.iter();
            let of_way = runs.filter(|run| run["way"] == way && run["phase"] == outcome["runs"][0]["phase"]);
            let mut all: Vec<f64> = of_way.filter_map(|run| run["p99_ms"].as_f64()).collect();
            all.sort_by(f64::total_cmp);
            all.get(all.len() / 2).copied()
        };
        Some(Self {
            name,
            direct_per_s: per_s("direct")?,
            gateway_per_s: per_s("gateway")?,
            speed: Ratio::of(&phase["counted"])?,
            cpu: Ratio::of(&phase["cpu"])?,
            p99_ms: (p99("direct")?, p99("gateway")?),
        })
    }

    fn line(&self) -> String {
        format!(
            "| {} | {:.0} | {:.0} | {} | {} | {:.0} | {:.0} |",
            self.name,
            self.direct_per_s,
            self.gateway_per_s,
            self.speed.text(),
            self.cpu.text(),
            self.p99_ms.0,
            self.p99_ms.1
        )
    }
}

// === impl Ratio ===

impl Ratio {
    /// From a change in percent.
    fn of(change: &Value) -> Option<Self> {
        let ratio = |percent: f64| 1.0 + percent / 100.0;
        let bound = |at: usize| change["interval"][at].as_f64().map(ratio);
        Some(Self {
            value: ratio(change["percent"].as_f64()?),
            interval: bound(0).zip(bound(1)),
        })
    }

    fn text(&self) -> String {
        match self.interval {
            Some((low, high)) => format!("**{:.2}** ({low:.2} to {high:.2})", self.value),
            None => format!("{:.2}", self.value),
        }
    }
}

fn table(rows: &[Row], server: &str, rounds: u32) -> String {
    let mut table = format!(
        "{server}, three nodes on one machine of {} cores with the load and the gateway; {rounds} rounds, by turns. Ratios are \
         Tidegate's to the direct way's (round robin over all nodes), with 95 % confidence intervals; documents a second \
         count until the index counts them; CPU is that of all nodes.\n\n\
         | clients × documents | direct, docs/s | Tidegate, docs/s | throughput | cluster CPU | direct p99, ms | Tidegate p99, ms |\n\
         |---|---|---|---|---|---|---|\n",
        std::thread::available_parallelism().map_or(0, usize::from)
    );
    for row in rows {
        let _ = writeln!(table, "{}", row.line());
    }
    table
}

/// Bars: what a document costs the cluster through Tidegate, with the direct way as 1.
fn chart(rows: &[Row]) -> String {
    const ROW: usize = 26;
    let height = rows.len() * ROW + 40;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 760 {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"760\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"10\" y=\"20\" font-weight=\"bold\">Cluster CPU for a document through Tidegate; directly = 1</text>\n\
         <line x1=\"640\" y1=\"28\" x2=\"640\" y2=\"{height}\" stroke=\"#999\" stroke-dasharray=\"3 3\"/>\n"
    );
    for (at, row) in rows.iter().enumerate() {
        let y = 34 + at * ROW;
        let width = (row.cpu.value * 400.0).clamp(1.0, 500.0);
        let _ = writeln!(
            svg,
            "<text x=\"10\" y=\"{}\">{}</text><rect x=\"240\" y=\"{y}\" width=\"{width:.0}\" height=\"18\" fill=\"#2a7f9e\"/>\
             <text x=\"{:.0}\" y=\"{}\">{:.2}</text>",
            y + 14,
            row.name,
            246.0 + width,
            y + 14,
            row.cpu.value
        );
    }
    svg.push_str("</svg>\n");
    svg
}
