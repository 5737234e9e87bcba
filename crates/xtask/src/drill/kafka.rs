//! The drill of a queue in Kafka: a real cluster of three brokers, gateways that share a topic before two
//! fake clusters, and clients that write to any gateway that is up. Meanwhile single brokers are killed and
//! paused, all brokers are away, gateways are killed, stopped, frozen, added and removed, and the clusters
//! have their own troubles. Ledger and checker are those of the other drill.

mod run;
mod target;
mod troubles;

use std::ops::Range;
use std::path::Path;

use anyhow::{Result, bail};

use super::{FLAWS_SHOWN, Options, clear, tell};
use crate::terminal::{Look, paint, say};
use run::Report;

/// Runs each of these seeds, one after another.
pub(super) fn run(options: &Options, seeds: Range<u64>, program: &Path) -> Result<()> {
    let mut flawed = Vec::new();
    for seed in seeds {
        let folder = crate::root().join(format!("target/drill/kafka-{seed}"));
        clear(&folder)?;
        let verbose = options.verbose && !options.json;
        let told = |text: &str| {
            if verbose {
                say(&paint(Look::Dim, text));
            }
        };
        tell(
            options,
            &paint(
                Look::Bold,
                &format!("seed {seed}: starting three brokers (fetched with Maven the first time) ..."),
            ),
        );
        let report = run::run(seed, options.minutes, (&folder, program), &told);
        show(options, &report)?;
        if report.outcome.flaws.is_empty() {
            clear(&folder)?;
        } else {
            tell(options, &format!("  kept: {}", folder.display()));
            flawed.push(seed.to_string());
        }
    }
    if !flawed.is_empty() {
        bail!("runs with flaws: seeds {}", flawed.join(", "));
    }
    tell(
        options,
        &paint(
            Look::Good,
            "every acknowledged document is in both clusters once, as it was last written, or dead with a reason",
        ),
    );
    Ok(())
}

fn show(options: &Options, report: &Report) -> Result<()> {
    let Report { outcome, .. } = report;
    if options.json {
        say(&serde_json::to_string(report)?);
        return Ok(());
    }
    let tally = &outcome.tally;
    let happened = report
        .happened
        .iter()
        .map(|(what, times)| format!("{what} {times}"));
    say(&format!(
        "seed {}: {} flaws in {:.0} s: {} documents of {} acknowledged requests, {} requests not acknowledged; {} documents in the topic, {} dead letters; lanes came to a gateway {} times; {} commits were refused and had been taken; {}",
        outcome.seed,
        outcome.flaws.len(),
        outcome.took_s,
        tally.documents,
        tally.queued,
        tally.unanswered,
        report.in_topic,
        tally.dead,
        report.assignments,
        report.refused_and_taken,
        happened.collect::<Vec<_>>().join(", "),
    ));
    for flaw in outcome.flaws.iter().take(FLAWS_SHOWN) {
        say(&paint(Look::Bad, &format!("  {:?}: {}", flaw.kind, flaw.what)));
    }
    Ok(())
}
