//! Dev tasks: `./dev demo | test | bench | ci | tidy | fuzz`, or `cargo xtask …` once everything is installed.

mod bench;

use std::path::{Path, PathBuf};

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
    /// What a document costs, on the released binary, with HAProxy beside it
    Bench(bench::Options),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().verb {
        Verb::Bench(options) => bench::run(&options),
    }
}

/// The workspace's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the crate lies two below the root")
}
