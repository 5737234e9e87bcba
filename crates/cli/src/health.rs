//! `tidegate health`: a running gateway is asked how it is, for health checks that can only run a command.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;

use crate::admin::{self, AdminArguments};

/// Ask a running gateway whether it is ready, or alive
///
/// For health checks of containers, and for scripts. Ready: it can do what its
/// entries promise; what keeps it from that is printed, a line a reason. Alive:
/// the process answers. The gateway is reached at its admin port; a token is
/// read from --token-file or TIDEGATE_ADMIN_TOKEN.
///
/// Exit status: 0 it is, 1 it is not, 2 wrong usage, 3 it does not answer within
/// five seconds.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Only whether the process answers
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
