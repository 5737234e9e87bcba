//! The load source as a process of its own, for measurements. It prints `ready` when its requests are built
//! and its connections are open, waits for a line on its standard input, sends, and prints its report as
//! JSON.
#![allow(clippy::print_stdout, reason = "the report is what the caller reads")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use testkit::load::{Load, Until};
use testkit::nginx::{Bulk, Documents, Ids, Operation, Style};

#[derive(Parser)]
struct Arguments {
    /// Address to send to.
    #[arg(long)]
    to: SocketAddr,
    /// Number of documents in all.
    #[arg(long, required_unless_present = "seconds")]
    docs: Option<u64>,
    /// Duration of the run, in place of a number of documents.
    #[arg(long, conflicts_with = "docs")]
    seconds: Option<u64>,
    /// Number of documents in each request.
    #[arg(long, default_value_t = 5_000)]
    bulk: usize,
    /// The index that each action names.
    #[arg(long, default_value = "bench")]
    index: String,
    /// Number of indices; with more than one they are named NAME-0, NAME-1, …
    #[arg(long, default_value_t = 1)]
    indices: usize,
    /// Style of actions and sources: compact, spaced, typed, python or logstash.
    #[arg(long, default_value_t = Style::Compact)]
    style: Style,
    /// Send `create` in place of `index`.
    #[arg(long)]
    create: bool,
    /// Leave the ids to the server.
    #[arg(long)]
    no_ids: bool,
    /// Send documents of 200 bytes in place of access-log lines.
    #[arg(long)]
    short: bool,
    /// Number of different bodies, sent in turn.
    #[arg(long, default_value_t = 4)]
    bodies: usize,
    /// Number of connections, each with one request at a time.
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// Send no id twice.
    #[arg(long)]
    fresh_ids: bool,
    /// Send gzipped bodies.
    #[arg(long)]
    gzip: bool,
    /// Speak TLS and trust this PEM file.
    #[arg(long)]
    ca: Option<PathBuf>,
    /// Stay on this core.
    #[arg(long)]
    core: Option<usize>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let Some(core) = arguments.core {
        testkit::pin::to_core(core)?;
    }
    let ca_pem = arguments.ca.map(|path| {
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    });
    let load = Load {
        bulk: Bulk {
            ids: if arguments.no_ids { Ids::None } else { Ids::Given },
            documents: if arguments.short {
                Documents::Short
            } else {
                Documents::Nginx
            },
            operation: if arguments.create {
                Operation::Create
            } else {
                Operation::Index
            },
            style: arguments.style,
            indices: arguments.indices,
            ..Bulk::new(&arguments.index, arguments.bulk)
        },
        bodies: arguments.bodies,
        connections: arguments.connections,
        gzip: arguments.gzip,
        fresh_ids: arguments.fresh_ids,
        ca_pem: ca_pem.transpose()?,
        ..Load::at(arguments.to)
    };
    let prepared = load.prepare()?;
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    let report = prepared.run(match arguments.seconds {
        Some(seconds) => Until::Time(Duration::from_secs(seconds)),
        None => Until::Docs(arguments.docs.unwrap_or_default()),
    })?;
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}
