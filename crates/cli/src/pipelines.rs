//! `tidegate pipelines`: lists, starts and stops what delivers from queues.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use serde_json::Value;

use crate::admin::{self, AdminArguments, Terms};
use crate::output::table;

/// List, start and stop pipelines of a running gateway
///
/// A pipeline stays started or stopped until the gateway restarts. Then the
/// configuration decides which pipelines run (auto_start).
///
/// The command asks the gateway's admin port. It reads a token from --token-file or
/// TIDEGATE_ADMIN_TOKEN, never from the command line.
///
/// Exit status: 0 done, 1 there is no such pipeline or it has not stopped yet, 2
/// wrong usage, 3 the gateway could not be asked.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    admin: AdminArguments,
}

#[derive(Subcommand)]
enum Verb {
    /// List pipelines and what each delivers
    List,
    Start(Start),
    Stop(Stop),
}

/// Start a pipeline
#[derive(clap::Args)]
struct Start {
    /// Name of the pipeline
    name: String,
}

/// Stop a pipeline
///
/// The pipeline finishes and commits its batches under way. A batch that is being
/// tried again is dropped, and delivered after the next start. Clients can still
/// write; their documents wait in the queue.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
struct Stop {
    /// Name of the pipeline
    name: String,
    /// Time limit for batches under way to end, in seconds; 60 at most
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    wait: u64,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    admin::exit_code(dispatch(arguments))
}

fn dispatch(arguments: &Arguments) -> Result<bool> {
    let admin = arguments.admin.client()?;
    let mut out = io::stdout().lock();
    let (answer, named) = match &arguments.verb {
        Verb::List => (admin.get("/pipeline", &Terms::new())?, None),
        Verb::Start(start) => {
            let path = format!("/pipeline/{}/_start", admin::segment(&start.name));
            (admin.post(&path, &Terms::new())?, Some(&start.name))
        }
        Verb::Stop(stop) => {
            let path = format!("/pipeline/{}/_stop", admin::segment(&stop.name));
            let query = vec![("wait_s", stop.wait.to_string())];
            (admin.post(&path, &query)?, Some(&stop.name))
        }
    };
    if arguments.admin.json {
        writeln!(out, "{answer:#}")?;
    } else {
        let rows = match named {
            Some(name) => rows(name, &answer),
            None => answer
                .as_object()
                .into_iter()
                .flatten()
                .flat_map(|(name, one)| rows(name, one))
                .collect(),
        };
        let heads = [
            "pipeline",
            "state",
            "queue",
            "group",
            "cluster",
            ">pending",
            ">paused",
            ">retrying",
            "why",
        ];
        table(&mut out, &heads, &rows)?;
    }
    Ok(!matches!(arguments.verb, Verb::Stop(_)) || answer["state"] == "stopped")
}

fn rows(name: &str, pipeline: &Value) -> Vec<Vec<String>> {
    let deliveries = pipeline["deliveries"].as_array().into_iter().flatten();
    let row = |delivery: &Value| {
        let text = |key: &str| match &delivery[key] {
            Value::String(text) => text.clone(),
            Value::Null => "-".to_owned(),
            value => value.to_string(),
        };
        let mut row = vec![name.to_owned()];
        let keys = [
            "state",
            "queue",
            "group",
            "cluster",
            "pending",
            "paused_lanes",
            "retrying_lanes",
            "why",
        ];
        row.extend(keys.map(text));
        row
    };
    deliveries.map(row).collect()
}
