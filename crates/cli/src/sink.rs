//! `tidegate sink`: a fake cluster for measuring a gateway or a client without a cluster.

use std::io::{self, Write};
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use serde_json::json;
use sink::{Behaviour, FakeCluster, Flavour, Refusal, Spec, Workers};

use crate::{exit, interrupt};

/// Run a fake cluster, for measuring a gateway or a client without a real one
///
///     tidegate sink --index loadgen:6 &
///     tidegate gateway --cluster http://127.0.0.1:9200 &
///     ES_ENDPOINT=http://127.0.0.1:8000 \
///         tidegate loadgen -config examples/loadgen/bulk.yml
///
/// The nodes answer bulk requests item by item, as fast as they arrive. They count
/// documents by node, and documents that reached a node without their primary. The
/// fake cluster does not show how a real server behaves. The command prints the
/// nodes' addresses, serves until it is stopped, and then prints its counts as
/// JSON. While it runs, `GET /_fake/counts` shows the counts, and
/// `POST /_fake/behaviour?latency_ms=20&capacity=5000&workers=4` makes it slower or
/// faster.
///
/// Exit status: 0 stopped as told, 2 wrong usage, 3 it could not start.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Number of nodes
    #[arg(long, value_name = "NODES", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=64))]
    nodes: u16,
    /// Address of all nodes
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
    /// Port of the first node; the others follow; 0 takes free ports
    #[arg(long, value_name = "PORT", default_value_t = 9200)]
    port: u16,
    /// Kind and version of the cluster: opensearch-1 to -3, elasticsearch-7 to -9
    #[arg(long, value_name = "FLAVOUR", default_value = "opensearch-3")]
    flavour: Flavour,
    /// Index that exists from the start; may be repeated
    #[arg(long, value_name = "NAME:SHARDS", value_parser = index)]
    index: Vec<(String, u32)>,
    /// So many indices more, `index-0` and so on, with this many shards each
    #[arg(long, value_name = "COUNT:SHARDS", value_parser = indices)]
    indices: Option<(u32, u32)>,
    /// Number of such clusters; each prints its nodes in a line of its own if there are several
    #[arg(long, value_name = "CLUSTERS", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    clusters: u16,
    /// Documents a second that a cluster reports beside those it was sent
    #[arg(long, value_name = "DOCUMENTS", default_value_t = 0)]
    claim: u32,
    /// Delay of each answer to a bulk, write or search, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0)]
    latency_ms: u64,
    /// Further delay for each document of a bulk, in microseconds, as if one thread worked them off
    #[arg(long, value_name = "US", default_value_t = 0)]
    doc_us: u64,
    /// Largest number of documents per second that all nodes together accept
    #[arg(long, value_name = "DOCUMENTS")]
    capacity: Option<u32>,
    /// Bulks that a node works on at once; twice as many wait, and others get 429
    #[arg(long, value_name = "BULKS", value_parser = clap::value_parser!(u16).range(1..))]
    workers: Option<u16>,
    /// Refuse every n-th document of each bulk with this status; may be repeated
    #[arg(long, value_name = "STATUS:N", value_parser = refusal)]
    fail: Vec<Refusal>,
    /// Keep documents so that they can be read, in place of only counting them
    #[arg(long)]
    store: bool,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match serve(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "tidegate: {error}");
            ExitCode::from(exit::FAILED)
        }
    }
}

fn serve(arguments: &Arguments) -> io::Result<()> {
    let last = u32::from(arguments.port) + u32::from(arguments.clusters) * u32::from(arguments.nodes);
    // `last` is the port after the last one.
    if last > u32::from(u16::MAX) + 1 {
        return Err(io::Error::other(
            "the ports of all nodes would go beyond 65535: give --port 0",
        ));
    }
    let clusters = (0..arguments.clusters)
        .map(|at| FakeCluster::start(spec(arguments, at)))
        .collect::<io::Result<Vec<_>>>()?;
    let between = if clusters.len() == 1 { "\n" } else { " " };
    for cluster in &clusters {
        writeln!(io::stdout(), "{}", cluster.urls().join(between))?;
    }
    io::stdout().flush()?;
    interrupt::wait()?;
    for cluster in &clusters {
        writeln!(io::stdout(), "{}", json!(cluster.counts()))?;
    }
    Ok(())
}

/// Returns the parts of the cluster at this place among all clusters of the command.
fn spec(arguments: &Arguments, at: u16) -> Spec {
    let (count, shards) = arguments.indices.unwrap_or_default();
    let more = (0..count).map(|number| (format!("index-{number}"), shards));
    Spec {
        nodes: usize::from(arguments.nodes),
        host: arguments.host,
        base_port: match arguments.port {
            0 => 0,
            first => first + at * arguments.nodes,
        },
        flavour: arguments.flavour,
        indices: arguments.index.iter().cloned().chain(more).collect(),
        claimed_docs_per_s: arguments.claim,
        store: arguments.store,
        content_length_max: BODY_BYTES_MAX,
        behaviour: Behaviour {
            latency: Duration::from_millis(arguments.latency_ms),
            work: Duration::from_micros(arguments.doc_us),
            docs_per_s_max: arguments.capacity,
            workers: arguments.workers.map(|workers| Workers {
                at_once: workers.into(),
                waiting_max: 2 * usize::from(workers),
            }),
            failing: arguments.fail.clone(),
            ..Behaviour::default()
        },
        ..Spec::default()
    }
}

/// The type of error that servers give with a status.
fn error_of(status: u16) -> String {
    let kind = match status {
        429 => "es_rejected_execution_exception",
        409 => "version_conflict_engine_exception",
        400 => "mapper_parsing_exception",
        503 => "unavailable_shards_exception",
        _ => "exception",
    };
    json!({"type": kind, "reason": "as asked for by --fail"}).to_string()
}

fn refusal(text: &str) -> anyhow::Result<Refusal> {
    let (status, every) = text
        .split_once(':')
        .context("STATUS:N is expected, as in 429:100")?;
    let wrong_status = || anyhow!("`{status}` is not a status from 400 to 599");
    let status = status.parse().map_err(|_| wrong_status())?;
    if !(400..=599).contains(&status) {
        return Err(wrong_status());
    }
    match every.parse() {
        Ok(every) if every > 0 => Ok(Refusal {
            every,
            status,
            error: error_of(status),
        }),
        _ => bail!("`{every}` is not a number from 1"),
    }
}

fn indices(text: &str) -> anyhow::Result<(u32, u32)> {
    let (count, shards) = index(text)?;
    match count.parse() {
        Ok(count) if (1..=10_000).contains(&count) => Ok((count, shards)),
        _ => bail!("`{count}` is not a number of indices from 1 to 10000"),
    }
}

fn index(text: &str) -> anyhow::Result<(String, u32)> {
    let (name, shards) = text.rsplit_once(':').context("NAME:SHARDS is expected")?;
    match shards.parse() {
        Ok(shards) if (1..=1_024).contains(&shards) => Ok((name.to_owned(), shards)),
        _ => bail!("`{shards}` is not a number of shards from 1 to 1024"),
    }
}

const BODY_BYTES_MAX: usize = 1 << 30;
