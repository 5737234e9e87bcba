//! `tidegate changes`: what changes at a running gateway, a line each, as it happens.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::Value;

use crate::admin::{self, Admin, AdminArguments, Terms, status_of};
use crate::output::{has_colours, plain, time, why};
use crate::{exit, interrupt};

/// Print what changes at a running gateway, as it happens
///
/// The command prints a line for each change: nodes that go down or come back,
/// clusters that do not answer, queues that accept nothing, consumer groups that
/// wait and why, parked documents, dead letters, switches, configurations, and
/// whether the gateway is ready. It goes on until it is stopped, and connects again
/// when the gateway was away. Before the first connection, that is an error.
///
/// The command asks the gateway's admin port. It reads a token from --token-file or
/// TIDEGATE_ADMIN_TOKEN, never from the command line.
///
/// Exit status: 0 there were changes, 1 there were none in the time of --seconds
/// (that some are not known any more, or that the gateway stops, is no change),
/// 2 wrong usage, 3 the gateway could not be asked, 130 stopped.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Begin after the change with this id, as --json shows it; 0 for all that are kept
    #[arg(long, value_name = "ID")]
    since: Option<u64>,
    /// Stop after this time, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
    #[command(flatten)]
    admin: AdminArguments,
}

/// Follows one gateway.
struct Following<'a> {
    admin: &'a Admin,
    next: Option<u64>,
    until: Option<Instant>,
    json: bool,
    colours: bool,
    /// Whether a change was printed, and not only that some were missed or that the gateway stops.
    any: bool,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    // Without this thread the signal ends the process at once, which is right, too.
    let _ = std::thread::Builder::new().name("signals".to_owned()).spawn(|| {
        if interrupt::wait().is_ok() {
            std::process::exit(exit::STOPPED.into());
        }
    });
    admin::exit_code(dispatch(arguments))
}

fn dispatch(arguments: &Arguments) -> Result<bool> {
    let within = arguments.seconds.map(Duration::from_secs);
    let mut following = Following {
        admin: &arguments.admin.client()?,
        next: arguments.since,
        until: within.map(|within| Instant::now() + within),
        json: arguments.admin.json,
        colours: has_colours(&io::stdout()),
        any: false,
    };
    // What cannot be asked now is a mistake; later, it is a gateway that is away.
    following.ask(0)?;
    let mut is_away = false;
    while following.left() > Duration::ZERO {
        let wait = following.left().as_secs().min(WAIT_S);
        match following.ask(wait) {
            Ok(()) if is_away => {
                writeln!(io::stderr(), "tidegate: the gateway answers again")?;
                is_away = false;
            }
            Ok(()) => {}
            Err(error) if !is_passing(&error) => return Err(error),
            Err(error) => {
                if !is_away {
                    let why = why(&error);
                    writeln!(
                        io::stderr(),
                        "tidegate: {why}; it is asked again until it answers"
                    )?;
                }
                is_away = true;
            }
        }
        if is_away || wait == 0 {
            std::thread::sleep(following.left().min(PAUSE));
        }
    }
    Ok(following.any)
}

/// Returns whether an error may pass by itself: there was no answer, or the gateway cannot give one now.
fn is_passing(error: &anyhow::Error) -> bool {
    let is_output = error.downcast_ref::<io::Error>().is_some();
    !is_output && status_of(error).is_none_or(|status| status >= 500 || status == 421)
}

impl Following<'_> {
    /// Returns the time that is left.
    fn left(&self) -> Duration {
        self.until.map_or(Duration::MAX, |until| {
            until.saturating_duration_since(Instant::now())
        })
    }

    /// Asks once, waiting `wait` seconds for a change, and prints what has changed.
    fn ask(&mut self, wait: u64) -> Result<()> {
        let mut query: Terms = vec![("wait_s", wait.to_string())];
        query.extend(self.next.map(|next| ("since", next.to_string())));
        let within = Duration::from_secs(wait) + ANSWER_WITHIN;
        let answer = match self.admin.get_within("/changes", &query, within) {
            Err(error) if status_of(&error) == Some(404) => {
                bail!("this gateway is of an older version, which does not tell its changes")
            }
            answer => answer?,
        };
        for change in answer["changes"].as_array().into_iter().flatten() {
            self.print(change)?;
        }
        self.next = answer["next"].as_u64().or(self.next);
        Ok(())
    }

    fn print(&mut self, change: &Value) -> io::Result<()> {
        self.any |= change["kind"] != "missed" && change["kind"] != "end";
        let mut out = io::stdout().lock();
        if self.json {
            writeln!(out, "{change}")?;
        } else {
            let of = |field: &str| change[field].as_str().unwrap_or_default();
            let at = time(change["at_ms"].as_u64().unwrap_or(0));
            let kind = plain(of("kind"));
            let kind = format!("{kind:KIND_WIDTH$}");
            let kind = match colour_of(of("level")).filter(|_| self.colours) {
                Some(colour) => format!("\x1b[{colour}m{kind}\x1b[0m"),
                None => kind,
            };
            writeln!(out, "{at}  {kind}  {}", plain(of("text")))?;
        }
        out.flush()
    }
}

fn colour_of(level: &str) -> Option<&'static str> {
    match level {
        "error" => Some("1;31"),
        "warning" => Some("33"),
        "good" => Some("32"),
        _ => None,
    }
}

/// How long an answer may wait for a change, in seconds.
const WAIT_S: u64 = 25;

/// How long an answer may take beside.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// The pause before a gateway that is away is asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// As wide as the longest kind.
const KIND_WIDTH: usize = 13;
