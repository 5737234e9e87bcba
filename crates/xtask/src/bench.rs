//! `./dev bench`: measures what a document costs on the released binary, with HAProxy beside it in the same
//! run.
//!
//! A load source, the proxy and a fake cluster run as separate processes: the proxy on the first core, the
//! other two on the second, all on loopback. Each case starts everything afresh, warms up, and then measures
//! the proxies in turn, so that other activity on the machine affects all of them. Figures are medians of the
//! rounds, with their extremes. CPU time is the proxy process's own, user and system, as the kernel's
//! scheduler counts it.

mod capacity;
mod case;
mod gateway_file;
mod generators;
mod machine;
mod proxy;
mod queued;
mod rounds;
mod table;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;

use case::Case;
use rounds::Measured;

#[derive(Args)]
pub(crate) struct Options {
    /// Measure only the case of this name; may be repeated
    #[arg(long = "case")]
    cases: Vec<String>,
    /// Measure the second table too: the cost from 3 to 300 shards, 1 to 1,000 connections, and bodies of
    /// 100 KB to 90 MB
    #[arg(long)]
    flat: bool,
    /// Measure what load files and shippers send, in both modes: four indices, JSON with spaces, types,
    /// 1,000 connections
    #[arg(long, conflicts_with_all = ["queued", "flat"])]
    guides: bool,
    /// Measure asynchronous mode, accepting and delivering, with each request synced before it is answered
    #[arg(long = "async")]
    queued: bool,
    /// With `--async`: number of documents of the backlog to drain; 50000000 take 5 GB of disk, 0 leaves it
    /// out
    #[arg(long, default_value_t = 5_000_000)]
    backlog: u64,
    /// Measure this `tidegate` too, in turn with the one of this checkout; it may be of an earlier commit, to
    /// see what a change costs
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["loadgen", "capacity"])]
    before: Option<PathBuf>,
    /// Number of times to measure each proxy in each case [default: 5, and 3 with `--async`]
    #[arg(long)]
    rounds: Option<usize>,
    /// Number of documents in each round, in thousands
    #[arg(long, default_value_t = 1000)]
    kdocs: u64,
    /// Whether to measure HAProxy: `never` leaves it out even where it is installed
    #[arg(long, default_value = "auto", value_parser = ["auto", "never", "only"])]
    haproxy: String,
    /// Use the binaries that are in target/release
    #[arg(long)]
    no_build: bool,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
    /// List the cases
    #[arg(long)]
    list: bool,
    /// Measure load generators against the fake cluster, in place of the proxies: ours, wrk and hey
    #[arg(long)]
    loadgen: bool,
    /// Measure whether delivery finds what a node takes at once when that changes, in place of the proxies
    #[arg(long)]
    capacity: bool,
    /// Duration of each turn of a load generator, in seconds
    #[arg(long, default_value_t = 4)]
    seconds: u64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if options.queued {
        return run_queued(options);
    }
    let rounds = options.rounds.unwrap_or(5);
    let cases = cases(options);
    if options.list {
        cases
            .iter()
            .for_each(|case| say(&format!("{:<24}{}", case.name, case.about)));
        if options.guides {
            say(&queued::list(&queued::guides()));
        }
        return Ok(());
    }
    let queued = match options.guides {
        true => queued::chosen(queued::guides(), &options.cases),
        false => Vec::new(),
    };
    ensure!(
        !cases.is_empty() || !queued.is_empty(),
        "no case of that name; see --list"
    );
    make_ready(options)?;
    if options.capacity {
        return capacity::run();
    }
    if options.loadgen {
        return generators::run(rounds, options.seconds);
    }
    let proxies = proxy::chosen(options.before.as_deref(), &options.haproxy)?;
    let before = machine::load_average();
    let mut measured: Vec<Measured> = Vec::new();
    let mut failed = Vec::new();
    for case in &cases {
        eprintln!("{} …", case.name);
        match rounds::measure(case, &proxies, rounds, options.kdocs * 1000) {
            Ok(figures) => measured.push(figures),
            Err(error) => failed.push(format!("case {}: {error:#}", case.name)),
        }
    }
    let with_haproxy = proxies.iter().any(|one| one.kind == proxy::ProxyKind::Haproxy);
    let mut through_queues = Vec::new();
    for case in &queued::paired(queued, options.before.as_deref()) {
        match queued::measure(case, rounds.min(3), options.kdocs * 1000, with_haproxy) {
            Ok(figures) => through_queues.push(figures),
            Err(error) => failed.push(format!("{error:#}")),
        }
    }
    let queued = through_queues;
    let machine = machine::describe(&before);
    if options.json {
        say(&serde_json::to_string_pretty(
            &serde_json::json!({"machine": machine, "cases": measured, "queued": queued}),
        )?);
    } else {
        if !queued.is_empty() {
            say(&queued::table(&queued));
        }
        say(&table::print(&machine, &measured));
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

/// Returns the cases that were asked for.
fn cases(options: &Options) -> Vec<Case> {
    let mut cases = match options.guides {
        true => case::guides_table(),
        false => case::main_table(),
    };
    if !options.guides && (options.flat || !options.cases.is_empty() || options.list) {
        cases.extend(case::flat_table());
    }
    cases.retain(|case| options.cases.is_empty() || options.cases.iter().any(|name| case.name == name));
    cases
}

fn run_queued(options: &Options) -> Result<()> {
    if options.list {
        say(&queued::list_all());
        return Ok(());
    }
    make_ready(options)?;
    say(&queued::run(queued::Selection {
        names: &options.cases,
        rounds: options.rounds.unwrap_or(3),
        docs: options.kdocs * 1000,
        before: options.before.as_deref(),
        backlog: options.backlog,
        json: options.json,
    })?);
    Ok(())
}

fn make_ready(options: &Options) -> Result<()> {
    ensure!(
        machine::cores()? >= 2,
        "two cores are needed: one for the proxy, one for the load and the cluster"
    );
    match options.no_build {
        true => Ok(()),
        false => build(),
    }
}

/// Builds the measured programs as they are released.
fn build() -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = std::process::Command::new(cargo)
        .args([
            "build",
            "--release",
            "--locked",
            "-p",
            "cli",
            "-p",
            "testkit",
            "--bins",
        ])
        .current_dir(crate::root())
        .status()?;
    ensure!(built.success(), "the release build failed");
    Ok(())
}

#[allow(clippy::print_stdout, reason = "a dev command's answer")]
fn say(text: &str) {
    println!("{text}");
}
