//! `tidegate config apply` and `revert`: a running gateway gets another configuration, and keeps it if it is
//! well with it.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use config::{Position, Problem, Severity};
use serde_json::{Value, json};

use crate::admin::{self, Admin, AdminArguments, Terms};
use crate::output::plain;

/// Put a file in force in a running gateway, and keep it if all is well
///
/// The gateway checks the file, writes it in the place of its own file, keeps
/// the former one beside it (FILE.former), and reloads. The command then watches
/// the gateway, and confirms the configuration if the gateway is ready at the
/// end. If the gateway is not ready for some time, or nobody confirms (because
/// this command was stopped, or no longer reaches the gateway), the gateway puts
/// the former file back by itself, even if it was killed meanwhile.
///
/// Secrets may be masked, as in the text of GET /config/_file: a masked secret
/// stays as it is. A file whose changes need a restart is refused. If the
/// gateway runs with the same text already, nothing is done.
///
/// Exit status: 0 confirmed, or unchanged, 1 the file can't be used, or it was
/// taken back, 2 wrong usage, or not possible now, 3 the gateway could not be
/// asked.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Apply {
    /// Configuration file (YAML)
    file: PathBuf,
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Time to watch the gateway before the confirmation, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3000))]
    watch: u64,
    #[command(flatten)]
    admin: AdminArguments,
}

/// Go back to the configuration before the last one that was applied
///
/// What is not confirmed yet is taken back at once. What was confirmed is
/// replaced by the file before it, as with `config apply`.
///
/// Exit status: 0 done, 1 it was taken back, 2 wrong usage, or there is nothing
/// to go back to, 3 the gateway could not be asked.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Revert {
    /// Time to watch the gateway before the confirmation, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3000))]
    watch: u64,
    #[command(flatten)]
    admin: AdminArguments,
}

pub(super) fn apply(arguments: &Apply) -> Result<bool> {
    let gateway = arguments.admin.client()?;
    let name = arguments.file.display().to_string();
    let text = std::fs::read_to_string(&arguments.file).with_context(|| name.clone())?;
    let before = gateway.get("/config/_file", &Terms::new())?;
    let diff = gateway.post_text("/config/_diff", &Terms::new(), &text)?;
    let mut out = io::stdout().lock();
    if arguments.admin.json && (arguments.dry_run || diff["valid"] != true) {
        writeln!(out, "{diff:#}")?;
        return Ok(diff["valid"] == true);
    }
    for problem in diff["problems"].as_array().into_iter().flatten() {
        writeln!(io::stderr(), "{}", plain(&problem_of(problem, &name).to_string()))?;
    }
    if diff["valid"] != true {
        bail!(admin::refuse(404, format!("{name} can't be used")));
    }
    if is_settled(&before) && diff["unchanged"] == true {
        tell(&json!({"state": "unchanged"}), &arguments.admin, &mut out)?;
        return Ok(true);
    }
    if !arguments.admin.json {
        writeln!(out, "{}", plain(diff["words"].as_str().unwrap_or_default()))?;
    }
    if arguments.dry_run {
        return Ok(true);
    }
    let version = before["version"].as_str().unwrap_or_default().to_owned();
    let query = vec![("version", version), ("within_s", within(arguments.watch))];
    gateway.post_text("/config/_apply", &query, &text)?;
    watch(&gateway, arguments.watch, &arguments.admin, &mut out)
}

/// Whether the gateway's file is what is in force, and nothing waits for its confirmation.
fn is_settled(file: &Value) -> bool {
    file["in_force"] == true && file["applied"]["state"] != "unconfirmed"
}

pub(super) fn revert(arguments: &Revert) -> Result<bool> {
    let gateway = arguments.admin.client()?;
    let query = vec![("within_s", within(arguments.watch))];
    let told = gateway.post("/config/_revert", &query)?;
    let mut out = io::stdout().lock();
    if told["state"] == "reverted" {
        return tell(&told, &arguments.admin, &mut out).map(|()| true);
    }
    if !arguments.admin.json {
        writeln!(out, "{}", plain(told["changes"].as_str().unwrap_or_default()))?;
    }
    watch(&gateway, arguments.watch, &arguments.admin, &mut out)
}

/// Watches what was applied, and confirms it at the end. Returns whether it is kept.
fn watch(
    gateway: &Admin,
    seconds: u64,
    arguments: &AdminArguments,
    out: &mut impl io::Write,
) -> Result<bool> {
    writeln!(
        io::stderr(),
        "in force; it is watched for {seconds} s, then confirmed"
    )?;
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        thread::sleep(AGAIN.min(end.saturating_duration_since(Instant::now())));
        // A gateway that does not answer takes it back by itself.
        if let Ok(told) = gateway.get("/config/_applied", &Terms::new())
            && told["state"] != "unconfirmed"
        {
            tell(&told, arguments, out)?;
            return Ok(told["state"] == "confirmed");
        }
    }
    let told = gateway.post("/config/_confirm", &Terms::new());
    let told = told.context("it is not confirmed, so the gateway takes it back")?;
    tell(&told, arguments, out)?;
    Ok(true)
}

fn tell(told: &Value, arguments: &AdminArguments, out: &mut impl io::Write) -> Result<()> {
    if arguments.json {
        writeln!(out, "{told:#}")?;
        return Ok(());
    }
    let state = told["state"].as_str().unwrap_or("unknown");
    match told["why"].as_str() {
        Some(why) => writeln!(out, "{state}: {}", plain(why))?,
        None => writeln!(out, "{state}")?,
    }
    Ok(())
}

/// Returns a problem as the gateway told it, with the name of the file that was sent.
fn problem_of(told: &Value, name: &str) -> Problem {
    let number = |key: &str| told[key].as_u64().and_then(|number| u32::try_from(number).ok());
    let text = |key: &str| told[key].as_str().unwrap_or_default().to_owned();
    Problem {
        severity: match told["severity"].as_str() {
            Some("warning") => Severity::Warning,
            _ => Severity::Error,
        },
        file: Some(name.to_owned()),
        place: number("line")
            .zip(number("column"))
            .map(|(line, column)| Position { line, column }),
        path: text("path"),
        message: text("message"),
        help: told["help"].as_str().map(str::to_owned),
    }
}

/// Returns the time that the gateway waits for the confirmation, which takes a moment after the watch.
fn within(watch: u64) -> String {
    (watch + CONFIRM_S).to_string()
}

const CONFIRM_S: u64 = 15;
const AGAIN: Duration = Duration::from_millis(250);
