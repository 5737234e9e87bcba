//! Dev tasks: `./dev demo | test | drill | bench | prove | console-scale | dist | docs | ci | tidy | fuzz`,
//! or `cargo xtask …` once everything is installed.

mod bench;
mod ci;
mod demo;
mod dist;
mod docs;
mod drill;
mod fuzz;
mod gateway;
mod idle;
mod interrupt;
mod page;
mod portable;
mod prove;
mod steps;
mod suite;
mod tally;
mod terminal;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Builds, tests, shows and measures Tidegate.
#[derive(Parser)]
#[command(name = "./dev", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Write documents to a real cluster, directly and through Tidegate in turn, and verify them
    Demo(demo::Options),
    /// Run all tests, on real clusters too
    Test(suite::Options),
    /// Break gateways, clusters and disks under load, and check that no document is lost, doubled or out of
    /// date
    Drill(drill::Options),
    /// Measure what a document costs, on the released binary, with HAProxy beside it
    Bench(bench::Options),
    /// Measure what combining small bulks is worth on a real cluster, and write docs/proof.md
    Prove(prove::Options),
    /// Measure the console before 100 clusters and 50 gateways, in a real browser
    ConsoleScale(page::ScaleOptions),
    /// Build what people install into dist/: packages, an archive and an image
    Dist(dist::Options),
    /// Build the user guide as a site into dist/docs, and check all its links
    Docs,
    /// Check everything that guards main: format, lints, supply chain, documentation, all tests, fuzzing,
    /// instruction counts
    Ci(ci::Options),
    /// Check the rules of the house that no other tool knows
    Tidy,
    /// Fuzz each target for a while
    Fuzz(fuzz::Options),
    /// Print this help
    Help,
}

fn main() -> ExitCode {
    interrupt::install();
    let result = match Cli::parse().verb {
        Verb::Demo(options) => demo::run_verb(&options),
        Verb::Test(options) => suite::run_verb(&options),
        Verb::Drill(options) => drill::run_verb(&options),
        Verb::Bench(options) => bench::run(&options),
        Verb::Prove(options) => prove::run_verb(&options),
        Verb::ConsoleScale(options) => page::scale(&options),
        Verb::Dist(options) => dist::run_verb(&options),
        Verb::Docs => docs::run_verb(),
        Verb::Ci(options) => ci::run_verb(&options),
        Verb::Tidy => tidy::run(),
        Verb::Fuzz(options) => fuzz::run_verb(&options),
        Verb::Help => {
            let mut command = <Cli as clap::CommandFactory>::command();
            command.print_long_help().map_err(Into::into)
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::fail(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// The folder where cargo puts what it builds.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The workspace's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the crate lies two below the root")
}
