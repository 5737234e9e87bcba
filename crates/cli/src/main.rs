//! The one binary, `tidegate`: one file per subcommand.

mod access;
mod admin;
mod allocator;
mod applied;
mod changes;
mod check;
mod compare;
mod config;
mod console;
mod dead_letters;
mod diff;
mod exit;
mod explain;
mod gateway;
mod handover;
mod health;
mod heat;
mod init;
mod interrupt;
mod loadgen;
mod log;
mod logging;
mod manual;
mod output;
mod pipelines;
mod queues;
mod service;
mod sink;
mod standstill;
mod switch;
mod trace;
mod typed;
mod upgrade;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

/// The fast, truthful write gateway for Elasticsearch and OpenSearch.
#[derive(Parser)]
#[command(
    name = "tidegate",
    version,
    propagate_version = true,
    max_term_width = 100,
    after_help = "Exit status of every command but loadgen: 0 done, 1 the answer is no, 2 wrong usage, \
                  3 it could not be done (for example, a server can't be reached), 130 stopped."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Init(init::Arguments),
    Gateway(gateway::Arguments),
    Health(health::Arguments),
    Upgrade(upgrade::Arguments),
    Explain(explain::Arguments),
    Check(check::Arguments),
    Config(config::Arguments),
    Loadgen(Box<loadgen::Arguments>),
    Compare(Box<compare::Arguments>),
    Diff(Box<diff::Arguments>),
    Sink(sink::Arguments),
    Log(log::Arguments),
    Switch(switch::Arguments),
    DeadLetters(dead_letters::Arguments),
    Pipelines(pipelines::Arguments),
    #[command(visible_alias = "queue")]
    Queues(queues::Arguments),
    Trace(trace::Arguments),
    Heat(heat::Arguments),
    Changes(changes::Arguments),
    Console(console::Arguments),
    Service(service::Arguments),
    Manual(manual::ManualArguments),
    Completions(manual::CompletionsArguments),
}

fn main() -> ExitCode {
    let arguments = loadgen::dashes(std::env::args_os());
    let arguments = typed::with_two_dashes(&Arguments::command(), arguments);
    match Arguments::parse_from(arguments).command {
        Command::Init(arguments) => init::run(&arguments),
        Command::Gateway(arguments) => gateway::run(&arguments),
        Command::Health(arguments) => health::run(&arguments),
        Command::Upgrade(arguments) => upgrade::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Config(arguments) => config::run(&arguments),
        Command::Loadgen(arguments) => loadgen::run(&arguments),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Diff(arguments) => diff::run(&arguments),
        Command::Sink(arguments) => sink::run(&arguments),
        Command::Log(arguments) => log::run(&arguments),
        Command::Switch(arguments) => switch::run(&arguments),
        Command::DeadLetters(arguments) => dead_letters::run(&arguments),
        Command::Pipelines(arguments) => pipelines::run(&arguments),
        Command::Queues(arguments) => queues::run(&arguments),
        Command::Trace(arguments) => trace::run(&arguments),
        Command::Heat(arguments) => heat::run(&arguments),
        Command::Changes(arguments) => changes::run(&arguments),
        Command::Console(arguments) => console::run(&arguments),
        Command::Service(arguments) => service::run(&arguments),
        Command::Manual(arguments) => manual::run(&arguments),
        Command::Completions(arguments) => manual::complete(&arguments),
    }
}
