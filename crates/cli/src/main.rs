//! The one binary, `tidegate`: one file per subcommand.

mod check;
mod config;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The fast, truthful write gateway for Elasticsearch and OpenSearch.
#[derive(Parser)]
#[command(name = "tidegate", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Check(check::Arguments),
    Config(config::Arguments),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Check(arguments) => check::run(&arguments),
        Command::Config(arguments) => config::run(&arguments),
    }
}
