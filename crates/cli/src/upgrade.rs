//! `tidegate upgrade`: replaces the program of a running gateway with the one that is installed now.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::Value;

use crate::admin::{self, Admin, AdminArguments};

/// Replace the program of a running gateway by the one that is installed now
///
/// No request fails. The gateway first tries the new program on its
/// configuration; if the program does not accept that, nothing changes. Then the
/// gateway accepts no more requests, answers those under way, and releases its
/// queues. The new program continues in the same process with the same sockets,
/// where clients wait meanwhile. If the new program cannot start, the previous one
/// returns. `systemctl reload` (SIGHUP) does the same once a new program is
/// installed.
///
/// Exit status: 0 the new program runs, 1 it can't be used, and the previous one
/// goes on, 2 wrong usage, 3 the gateway could not be asked, or did not come back.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Time limit for the new program to start, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    wait: u64,
    #[command(flatten)]
    admin: AdminArguments,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    admin::exit_code(upgrade(arguments))
}

fn upgrade(arguments: &Arguments) -> Result<bool> {
    let gateway = arguments.admin.client()?;
    let (_, before) = gateway.health(LIVE)?;
    gateway
        .post("/upgrade", &Vec::new())
        .map_err(|error| match admin::status_of(&error) {
            // The gateway's answer is no.
            Some(409) => admin::refuse(404, error.to_string()),
            _ => error,
        })?;
    let deadline = Instant::now() + Duration::from_secs(arguments.wait);
    let now = loop {
        thread::sleep(AGAIN);
        match another(&gateway, &before) {
            Some(now) => break now,
            None if Instant::now() > deadline => {
                bail!(
                    "no other program has answered within {} s; the gateway's log says why",
                    arguments.wait
                )
            }
            None => {}
        }
    };
    let mut out = io::stdout().lock();
    if arguments.admin.json {
        writeln!(out, "{now:#}")?;
    }
    if now["put_back"] == true {
        let reason = "the new program could not start, and the previous one was put back; its log says why";
        return Err(admin::refuse(404, reason.to_owned()));
    }
    if !arguments.admin.json {
        let text = |of: &Value| of["version"].as_str().unwrap_or("an unknown version").to_owned();
        writeln!(out, "{} runs in the place of {}", text(&now), text(&before))?;
    }
    Ok(true)
}

/// Returns what the program says about itself, once it is another one than before.
fn another(gateway: &Admin, before: &Value) -> Option<Value> {
    let (_, now) = gateway.health(LIVE).ok()?;
    (now["started_ms"] != before["started_ms"]).then_some(now)
}

const LIVE: &str = "/health/live";

/// The pause between two looks.
const AGAIN: Duration = Duration::from_millis(50);
