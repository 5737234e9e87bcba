//! `./dev demo`: real documents into a real cluster, directly and through Tidegate by turns, and every one verified.
//!
//! The turns go direct, Tidegate, Tidegate, direct, each into an index of its own, after a short warm-up of
//! both, so that a server that grows faster or a machine that grows slower meets both sides alike. The
//! direct client spreads its bulks over all nodes, as the projects' own clients do.

mod gateway;
mod target;
mod turn;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};

use crate::steps::{cargo, run};
use crate::terminal::{Look, paint, say};
use gateway::Gateway;
use target::Target;
use turn::{Figures, Side};

/// What to show.
#[derive(Args)]
pub(crate) struct Options {
    /// Which server
    #[arg(long, value_enum, default_value_t = Engine::Opensearch)]
    engine: Engine,
    /// The fake cluster instead of a real one: seconds, and no JDK
    #[arg(long, conflicts_with = "engine")]
    fake: bool,
    /// Documents a turn
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    docs: u32,
}

#[derive(Clone, Copy, ValueEnum)]
enum Engine {
    Opensearch,
    Elasticsearch,
}

/// Shows it.
///
/// # Errors
/// When anything cannot be started, or a document is not as it was sent.
pub(crate) fn run_verb(options: &Options) -> Result<()> {
    say(&paint(Look::Bold, "building tidegate (release) ..."));
    run(&mut cargo(&[
        "build",
        "--release",
        "--locked",
        "--quiet",
        "--package",
        "cli",
    ]))?;
    let target = match (options.fake, options.engine) {
        (true, _) => Target::fake()?,
        (false, Engine::Opensearch) => Target::real(testkit::real::Kind::OpenSearch)?,
        (false, Engine::Elasticsearch) => Target::real(testkit::real::Kind::Elasticsearch)?,
    };
    let gateway = Gateway::start(&target.urls()[0])?;
    say(&format!(
        "{}, three nodes; tidegate at {}",
        target.name(),
        gateway.url()
    ));

    let warm_up = options.docs.div_ceil(4).min(10_000);
    for side in [Side::Direct, Side::Tidegate] {
        turn::take(side, "warm-up", warm_up, &target, &gateway)?;
    }
    let mut all = Vec::new();
    for side in [Side::Direct, Side::Tidegate, Side::Tidegate, Side::Direct] {
        let name = format!("turn {} of 4", all.len() + 1);
        all.push(turn::take(side, &name, options.docs, &target, &gateway)?);
    }
    print_table(&all, options.docs);
    say(&gateway.passed_because()?);
    let verified: u32 = all.iter().map(|figures| figures.verified).sum();
    let sent = options.docs * 4;
    gateway.stop()?;
    drop(target);
    ensure!(
        verified == sent,
        "only {verified} of {sent} documents are in the cluster as they were sent"
    );
    say(&paint(
        Look::Good,
        &format!("all {sent} documents are in the cluster as they were sent; nothing is left running"),
    ));
    Ok(())
}

fn print_table(all: &[Figures], docs: u32) {
    say("");
    let head = format!(
        "{:22}{:>9}{:>15}{:>15}{:>18}{:>20}",
        "", "docs/s", "cluster CPU s", "gateway CPU s", "at their primary", "verified"
    );
    say(&paint(Look::Bold, &head));
    let known = || {
        all.iter()
            .filter_map(|one| one.misses.map(|misses| (one.passed_on as f64, misses as f64)))
    };
    let per_miss =
        known().map(|(passed_on, _)| passed_on).sum::<f64>() / known().map(|(_, misses)| misses).sum::<f64>();
    let share = |one: &Figures, per_miss: f64| {
        let misses = one
            .misses
            .map_or(one.passed_on as f64 / per_miss, |misses| misses as f64);
        let share = 1.0 - misses / f64::from(docs);
        share.is_finite().then_some(share.clamp(0.0, 1.0))
    };
    for (at, one) in all.iter().enumerate() {
        let seconds =
            |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
        say(&format!(
            "{:22}{:>9.0}{:>15}{:>15}{:>18}{:>20}",
            format!("{}. {}", at + 1, one.side.name()),
            f64::from(docs) / one.took.as_secs_f64(),
            seconds(one.cluster_cpu_seconds),
            seconds(one.gateway_cpu_seconds),
            share(one, per_miss).map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0)),
            format!("{} of {docs}", one.verified),
        ));
    }
    say(&paint(
        Look::Dim,
        "A small run, the servers started to be quick to start: `./dev bench` measures. At their primary: documents\n\
         that were sent to the node of their shard's primary at once; the cluster passed on the others. Counted where\n\
         we choose the node, else worked out from the bytes that the nodes sent one another.",
    ));
}
