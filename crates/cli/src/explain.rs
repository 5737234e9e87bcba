//! `tidegate explain`: where each document of a bulk would go, and why.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bulk::{Ask, NullId, RouteTable, Why};
use cluster::{Cluster, Snapshot};
use config::{Anonymous, Config, DirectRouting, QuickStart};
use serde_json::json;

use crate::access::Access;
use crate::output::why;
use crate::{exit, typed};

/// Show where each document of a bulk would go, and why
///
/// The command reads the bulk, asks the cluster for its topology, and prints one
/// line for each operation: the line of the action, the concrete index, id,
/// routing, shard, the node that holds the primary, and what decided the route. If
/// the gateway would pass the bulk through whole, the last line names the line that
/// is to blame, and the reason. The command writes nothing.
///
///     tidegate explain bulk.ndjson --cluster http://127.0.0.1:9200
///     tidegate explain --cluster http://127.0.0.1:9200 - < bulk.ndjson
///
/// Exit status: 0 it would be split, 1 it would be passed through whole or the file
/// can't be read, 2 wrong usage, 3 the cluster can't be read.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// File with the bulk (NDJSON); - reads standard input
    file: PathBuf,
    /// URL of any node of the cluster; it may contain user:password@
    #[arg(long, value_name = "URL", env = typed::CLUSTER, hide_env_values = true)]
    cluster: String,
    /// Index in the URL of the bulk request, if any
    #[arg(long, value_name = "NAME")]
    index: Option<String>,
    /// URL parameter `routing` of the bulk request, if any
    #[arg(long, value_name = "VALUE")]
    routing: Option<String>,
    /// URL parameter `pipeline` of the bulk request, if any
    #[arg(long, value_name = "NAME")]
    pipeline: Option<String>,
    /// Make an id for documents that have neither id nor routing, as `fix_null_id` does
    #[arg(long)]
    fix_null_id: bool,
    #[command(flatten)]
    access: Access,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let body = match body(&arguments.file) {
        Ok(body) => body,
        Err(error) => return fail(&error, exit::NO),
    };
    match explain(arguments, &body) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(exit::NO),
        Err(error) => fail(&error, exit::FAILED),
    }
}

fn fail(error: &anyhow::Error, status: u8) -> ExitCode {
    let _ = writeln!(io::stderr(), "tidegate: {}", why(error));
    ExitCode::from(status)
}

/// Reads the bulk to be explained.
fn body(file: &Path) -> anyhow::Result<Vec<u8>> {
    use anyhow::Context as _;
    if file.to_str() != Some("-") {
        return std::fs::read(file).with_context(|| file.display().to_string());
    }
    let mut body = Vec::new();
    io::stdin().read_to_end(&mut body)?;
    Ok(body)
}

/// Explains the bulk, and returns whether it would be split.
fn explain(arguments: &Arguments, body: &[u8]) -> anyhow::Result<bool> {
    use anyhow::Context as _;
    let loaded = Config::quick_start(&QuickStart {
        cluster: arguments.cluster.clone(),
        listen: ([127, 0, 0, 1], 0).into(),
        insecure_skip_verify: arguments.access.insecure,
        ca_file: arguments.access.ca.clone(),
        anonymous: Anonymous::Pass,
        admin: None,
        combine: false,
        direct_routing: DirectRouting::Off,
        rewrite_to_bulk: false,
        account: arguments.access.account()?,
    })?;
    let settings = loaded.config.clusters.values().next().context("no cluster")?;
    let cluster = gateway::watch(settings)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    if !runtime.block_on(cluster.learnt(LEARN_TIMEOUT)) {
        let status = cluster.status();
        let hint = status
            .warnings
            .first()
            .map(String::as_str)
            .unwrap_or("is it there?");
        anyhow::bail!("the topology of the cluster could not be read: {hint}");
    }
    let ask = Ask {
        default_index: arguments.index.as_deref(),
        url_routing: arguments.routing.as_deref(),
        url_pipeline: arguments.pipeline.as_deref(),
        level: bulk::Level::Node,
        null_id: match arguments.fix_null_id {
            true => NullId::Mint,
            false => NullId::Keep,
        },
        ..Ask::default()
    };
    let snapshot = runtime.block_on(verified(&cluster, body, &ask));
    let mut out = io::BufWriter::new(io::stdout().lock());
    let printed = print(&mut out, arguments.json, body, &ask, &snapshot, &snapshot.table);
    match printed.and_then(|split| out.flush().map(|()| split)) {
        // A reader that closed the pipe has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(true),
        other => Ok(other?),
    }
}

/// Returns a snapshot in which the body's indices are verified, or the newest one if the verification takes
/// too long.
async fn verified(cluster: &Cluster, body: &[u8], ask: &Ask<'_>) -> Arc<Snapshot> {
    let mut generations = cluster.generations();
    let waited = generations.wait_for(|_| {
        let snapshot = cluster.snapshot();
        let mut explained = bulk::explain(body, ask, &snapshot.table);
        !explained.any(|doc| doc.is_err_and(|pass| pass.why == Why::UnverifiedIndex))
    });
    // Whether or not the wait succeeded, the newest snapshot is the one to show.
    let _ = tokio::time::timeout(VERIFY_TIMEOUT, waited).await;
    cluster.snapshot()
}

fn print(
    out: &mut impl Write,
    as_json: bool,
    body: &[u8],
    ask: &Ask<'_>,
    snapshot: &Snapshot,
    table: &RouteTable,
) -> io::Result<bool> {
    if !as_json {
        writeln!(
            out,
            "{:>7}  {:6}  {:24}  {:24}  {:12}  {:>5}  {:16}  DECIDED BY",
            "LINE", "ACTION", "INDEX", "ID", "ROUTING", "SHARD", "NODE"
        )?;
    }
    for explained in bulk::explain(body, ask, table) {
        let doc = match explained {
            Ok(doc) => doc,
            Err(pass) => {
                match as_json {
                    true => writeln!(
                        out,
                        "{}",
                        json!({"passed_because": pass.why.as_str(), "meaning": pass.why.meaning(), "line": pass.line})
                    )?,
                    false => match pass.line {
                        Some(line) => writeln!(
                            out,
                            "passed through whole, because of line {line}: {}: {}",
                            pass.why,
                            pass.why.meaning()
                        )?,
                        None => writeln!(out, "passed through whole: {}: {}", pass.why, pass.why.meaning())?,
                    },
                }
                return Ok(false);
            }
        };
        let node = doc.node.and_then(|node| snapshot.nodes.get(usize::from(node.0)));
        if as_json {
            let line = json!({
                "line": doc.line,
                "action": doc.op.as_str(),
                "index": doc.index,
                "id": doc.id,
                "routing": doc.routing,
                "shard": doc.shard,
                "node": node.map(|node| &node.name),
                "address": node.map(|node| node.address.to_string()),
                "decided_by": doc.by.as_str(),
            });
            writeln!(out, "{line}")?;
        } else {
            let shard = doc.shard.map_or("-".to_owned(), |shard| shard.to_string());
            writeln!(
                out,
                "{:>7}  {:6}  {:24}  {:24}  {:12}  {:>5}  {:16}  {}",
                doc.line,
                doc.op.as_str(),
                doc.index,
                doc.id.as_deref().unwrap_or("-").escape_debug().to_string(),
                doc.routing.as_deref().unwrap_or("-").escape_debug().to_string(),
                shard,
                node.map_or("any", |node| &node.name),
                doc.by.as_str(),
            )?;
        }
    }
    Ok(true)
}

/// Time limit for reading the topology; then the last error is shown.
const LEARN_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for the verification of indices, which takes only moments if the cluster answers.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(5);
