//! `./dev demo`: writes real documents into a real cluster, directly and through Tidegate in turn, and
//! verifies every one of them.
//!
//! The order is direct, Tidegate, Tidegate, direct, each turn into an index of its own, after a short warm-up
//! of both. A server that becomes faster, or a machine that becomes slower, therefore affects both sides
//! alike. The direct client spreads its bulks over all nodes, as the projects' own clients do.

mod look;
mod run;
mod target;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum};

use crate::gateway::{Build, Gateway};
use crate::terminal::{Look, paint, say};
use run::{Figures, Side};
use target::Target;

/// Options of the demo.
#[derive(Args)]
pub(crate) struct Options {
    /// Kind of server
    #[arg(long, value_enum, default_value_t = Engine::Opensearch)]
    engine: Engine,
    /// Use the fake cluster, which takes seconds and needs no JDK
    #[arg(long, conflicts_with = "engine")]
    fake: bool,
    /// Number of documents in each turn
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    docs: u32,
    /// Load Tidegate until Ctrl-C, with the console to watch it, in place of turns
    #[arg(long, conflicts_with = "docs")]
    console: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Engine {
    Opensearch,
    Elasticsearch,
}

/// Runs the demo.
///
/// # Errors
/// If anything cannot be started, a document is not as it was sent, or too few documents were sent to the
/// right nodes.
pub(crate) fn run_verb(options: &Options) -> Result<()> {
    let build = if options.console {
        Build::DemoWithConsole
    } else {
        Build::Demo
    };
    build.make()?;
    let target = match (options.fake, options.engine) {
        (true, _) => Target::fake()?,
        (false, Engine::Opensearch) => Target::real(testkit::real::ClusterKind::OpenSearch)?,
        (false, Engine::Elasticsearch) => Target::real(testkit::real::ClusterKind::Elasticsearch)?,
    };
    let gateway = Gateway::start(&target.urls()[0])?;
    say(&format!(
        "{}, three nodes; tidegate at {}",
        target.name(),
        gateway.url()
    ));

    if options.console {
        return look::run(&target, &gateway);
    }
    let warm_up = options.docs.div_ceil(4).min(10_000);
    for side in [Side::Direct, Side::Tidegate] {
        run::take(side, "warm-up", warm_up, &target, &gateway)?;
    }
    let mut all = Vec::new();
    for side in [Side::Direct, Side::Tidegate, Side::Tidegate, Side::Direct] {
        let name = format!("turn {} of 4", all.len() + 1);
        all.push(run::take(side, &name, options.docs, &target, &gateway)?);
    }
    let shares = shares(&all, options.docs);
    print_table(&all, &shares, options.docs);
    let passed_because = gateway.passed_because()?;
    say(&passed_because);
    gateway.stop()?;
    drop(target);
    judge(&all, &shares, options.docs).with_context(|| format!("the demo failed ({passed_because})"))?;
    say(&paint(
        Look::Good,
        &format!(
            "all {} documents are in the cluster as they were sent; nothing is left running",
            options.docs * 4
        ),
    ));
    Ok(())
}

/// Checks the result: every document of every turn must be as it was sent, and Tidegate must have sent
/// (nearly) all of them straight to the nodes of their primaries.
fn judge(all: &[Figures], shares: &[Option<f64>], docs: u32) -> Result<()> {
    for (at, one) in all.iter().enumerate() {
        let (turn, verified) = (at + 1, one.verified);
        ensure!(
            verified == docs,
            "turn {turn}: only {verified} of {docs} documents are in the cluster as they were sent"
        );
    }
    for (at, _) in all
        .iter()
        .enumerate()
        .filter(|(_, one)| one.side == Side::Tidegate)
    {
        let (turn, share) = (at + 1, shares[at].unwrap_or(0.0));
        ensure!(
            share >= SHARE_MIN,
            "turn {turn}: only {:.1} % of the documents went straight to their primary's node, at least {:.0} % should",
            share * 100.0,
            SHARE_MIN * 100.0
        );
    }
    Ok(())
}

/// The share is computed from bytes between nodes, so it is not exact. A gateway that does not split reaches
/// a third.
const SHARE_MIN: f64 = 0.9;

/// Returns for each turn the share of documents that were sent to their primary's node at once, where it is
/// known.
fn shares(all: &[Figures], docs: u32) -> Vec<Option<f64>> {
    let known = || {
        all.iter()
            .filter_map(|one| one.misses.map(|misses| (one.passed_on as f64, misses as f64)))
    };
    let per_miss =
        known().map(|(passed_on, _)| passed_on).sum::<f64>() / known().map(|(_, misses)| misses).sum::<f64>();
    let share = |one: &Figures| {
        let misses = one
            .misses
            .map_or(one.passed_on as f64 / per_miss, |misses| misses as f64);
        let share = 1.0 - misses / f64::from(docs);
        share.is_finite().then_some(share.clamp(0.0, 1.0))
    };
    all.iter().map(share).collect()
}

fn print_table(all: &[Figures], shares: &[Option<f64>], docs: u32) {
    say("");
    let head = format!(
        "{:22}{:>9}{:>15}{:>15}{:>18}{:>20}",
        "", "docs/s", "cluster CPU s", "gateway CPU s", "at their primary", "verified"
    );
    say(&paint(Look::Bold, &head));
    for (at, one) in all.iter().enumerate() {
        let seconds =
            |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
        say(&format!(
            "{:22}{:>9.0}{:>15}{:>15}{:>18}{:>20}",
            format!("{}. {}", at + 1, one.side.name()),
            f64::from(docs) / one.took.as_secs_f64(),
            seconds(one.cluster_cpu_seconds),
            seconds(one.gateway_cpu_seconds),
            shares[at].map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0)),
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn turn(side: Side, misses: u64, verified: u32) -> Figures {
        Figures {
            side,
            took: Duration::from_secs(1),
            cluster_cpu_seconds: None,
            gateway_cpu_seconds: None,
            passed_on: misses,
            misses: Some(misses),
            verified,
        }
    }

    fn verdict(all: &[Figures]) -> String {
        match judge(all, &shares(all, 1_000), 1_000) {
            Ok(()) => "good".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_demo_fails_when_documents_are_wrong_or_went_astray() {
        let direct = || turn(Side::Direct, 660, 1_000);
        assert_eq!(verdict(&[direct(), turn(Side::Tidegate, 0, 1_000)]), "good");
        assert_eq!(verdict(&[direct(), turn(Side::Tidegate, 90, 1_000)]), "good");
        let astray = verdict(&[direct(), turn(Side::Tidegate, 500, 1_000)]);
        assert!(astray.contains("turn 2: only 50.0 %"), "{astray}");
        let lost = verdict(&[direct(), turn(Side::Tidegate, 0, 999)]);
        assert!(lost.contains("999 of 1000"), "{lost}");
    }
}
