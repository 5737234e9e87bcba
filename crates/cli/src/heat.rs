//! `tidegate heat`: which shards a gateway writes to most, and where nodes reject documents or are slow.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::ValueEnum;
use serde_json::{Value, json};

use crate::admin::{self, AdminArguments, Terms};
use crate::output::table;

/// Print the shards that a running gateway writes to most
///
/// The command asks twice, --seconds apart, and prints what each shard got between:
/// documents and bytes a second, documents that nodes rejected (429), and the mean
/// time of answers. Documents whose shard the cluster chooses are not counted.
///
/// The command asks the gateway's admin port. It reads a token from --token-file or
/// TIDEGATE_ADMIN_TOKEN, never from the command line.
///
/// Exit status: 0 done, 1 nothing was written meanwhile, 2 wrong usage, 3 the
/// gateway could not be asked.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// The figure whose highest values come first
    #[arg(long, value_enum, value_name = "FIGURE", default_value_t = Figure::Docs)]
    by: Figure,
    /// Number of shards to print
    #[arg(long, value_name = "SHARDS", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    top: u16,
    /// Time between the two questions, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=50))]
    seconds: u64,
    #[command(flatten)]
    admin: AdminArguments,
}

#[derive(Clone, Copy, ValueEnum)]
enum Figure {
    Docs,
    Bytes,
    Rejected,
    Latency,
}

/// What a shard got between the two questions.
struct Row<'a> {
    cluster: &'a str,
    index: &'a str,
    shard: usize,
    node: &'a Value,
    docs: u64,
    bytes: u64,
    rejected: u64,
    latency_ms: Option<f64>,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    admin::exit_code(dispatch(arguments))
}

fn dispatch(arguments: &Arguments) -> Result<bool> {
    let admin = arguments.admin.client()?;
    let before = admin.get("/heat", &Terms::new())?;
    let began = Instant::now();
    std::thread::sleep(Duration::from_secs(arguments.seconds));
    let now = admin.get("/heat", &Terms::new())?;
    let seconds = began.elapsed().as_secs_f64();
    let mut rows = rows(&before, &now);
    rows.retain(|row| row.docs > 0 || row.rejected > 0);
    rows.sort_by(|left, right| right.figure(arguments.by).total_cmp(&left.figure(arguments.by)));
    let any = !rows.is_empty();
    rows.truncate(arguments.top.into());
    let mut out = io::stdout().lock();
    if arguments.admin.json {
        let shards: Vec<Value> = rows.iter().map(|row| row.to_json(seconds)).collect();
        writeln!(out, "{:#}", json!({"seconds": seconds, "shards": shards}))?;
    } else {
        let heads = [
            "cluster",
            "index",
            ">shard",
            "node",
            ">docs/s",
            ">bytes/s",
            ">rejected/s",
            ">latency ms",
        ];
        let rows: Vec<Vec<String>> = rows.iter().map(|row| row.cells(seconds)).collect();
        table(&mut out, &heads, &rows)?;
    }
    Ok(any)
}

fn rows<'a>(before: &Value, now: &'a Value) -> Vec<Row<'a>> {
    // The gateway may have begun to count anew.
    let goes_on = now["counted_s"].as_f64() >= before["counted_s"].as_f64();
    let none = Value::Null;
    let before = if goes_on { before } else { &none };
    let mut rows = Vec::new();
    for (cluster, told) in now["clusters"].as_object().into_iter().flatten() {
        for (index, lists) in told["indices"].as_object().into_iter().flatten() {
            let was = &before["clusters"][cluster.as_str()]["indices"][index.as_str()];
            for shard in 0..lists["docs"].as_array().map_or(0, Vec::len) {
                let more = |list: &str| {
                    let at = |lists: &Value| lists[list][shard].as_u64().unwrap_or(0);
                    at(lists).saturating_sub(at(was))
                };
                let (answers, node) = (more("answers"), lists["nodes"][shard].as_u64());
                rows.push(Row {
                    cluster,
                    index,
                    shard,
                    node: node.map_or(&Value::Null, |node| &told["nodes"][node as usize]["name"]),
                    docs: more("docs"),
                    bytes: more("bytes"),
                    rejected: more("rejected"),
                    latency_ms: (answers > 0).then(|| more("answer_us") as f64 / answers as f64 / 1e3),
                });
            }
        }
    }
    rows
}

// === impl Row ===

impl Row<'_> {
    fn figure(&self, by: Figure) -> f64 {
        match by {
            Figure::Docs => self.docs as f64,
            Figure::Bytes => self.bytes as f64,
            Figure::Rejected => self.rejected as f64,
            Figure::Latency => self.latency_ms.unwrap_or(0.0),
        }
    }

    fn to_json(&self, seconds: f64) -> Value {
        json!({
            "cluster": self.cluster, "index": self.index, "shard": self.shard, "node": self.node,
            "docs_per_s": self.docs as f64 / seconds, "bytes_per_s": self.bytes as f64 / seconds,
            "rejected_per_s": self.rejected as f64 / seconds, "latency_ms": self.latency_ms,
        })
    }

    fn cells(&self, seconds: f64) -> Vec<String> {
        let rate = |count: u64| format!("{:.0}", count as f64 / seconds);
        vec![
            self.cluster.to_owned(),
            self.index.to_owned(),
            self.shard.to_string(),
            self.node.as_str().unwrap_or("-").to_owned(),
            rate(self.docs),
            rate(self.bytes),
            rate(self.rejected),
            self.latency_ms
                .map_or_else(|| "-".to_owned(), |latency| format!("{latency:.1}")),
        ]
    }
}
