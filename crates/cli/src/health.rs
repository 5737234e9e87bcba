//! `tidegate health`: asks a running gateway how it is, for health checks that can only run a command.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;

use crate::admin::{self, AdminArguments};

/// Ask a running gateway whether it is ready, or alive
///
/// The command is for health checks of containers, and for scripts. A gateway is
/// ready if it can do what its entries promise; otherwise the command prints each
/// reason on a line. It is alive if its process answers.
///
/// The command asks the gateway's admin port. It reads a token from --token-file or
/// TIDEGATE_ADMIN_TOKEN, never from the command line.
///
/// Exit status: 0 yes, 1 no, 2 wrong usage, 3 no answer within five seconds.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Ask only whether the process answers
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    admin: AdminArguments,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    admin::exit_code(ask(arguments))
}

fn ask(arguments: &Arguments) -> Result<bool> {
    let path = if arguments.live {
        "/health/live"
    } else {
        "/health/ready"
    };
    let (well, told) = arguments.admin.client()?.health(path)?;
    let mut out = io::stdout().lock();
    if arguments.admin.json {
        writeln!(out, "{told:#}")?;
        return Ok(well);
    }
    writeln!(out, "{}", told["status"].as_str().unwrap_or("it answers"))?;
    for (what, list) in [("", "reasons"), ("warning: ", "warnings")] {
        for finding in told[list].as_array().into_iter().flatten() {
            let why = finding["why"].as_str().unwrap_or_default();
            writeln!(out, "{what}{why}")?;
        }
    }
    Ok(well)
}
