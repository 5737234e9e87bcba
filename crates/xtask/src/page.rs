//! Checks the console's page in `web/`: its types, its tests, its size, and that the committed build matches
//! its sources.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::gateway::Build;
use crate::steps::{run, run_watched};
use crate::tally::UNSTEADY_MAX;
use crate::terminal::say;

/// Checks the page; `browser` also runs it in a real browser. The result names the browser tests that failed
/// and then passed when they were run once more, as [`crate::tally`] does with all tests.
///
/// # Errors
/// If Node is missing or too old, or a check fails.
pub(crate) fn check(browser: bool) -> Result<Option<String>> {
    node_is_new_enough()?;
    install()?;
    for script in ["check", "unit", "dist:check", "size", "specs:check"] {
        npm_run(script)?;
    }
    if browser { drive() } else { Ok(None) }
}

/// Runs the tests in a real browser.
fn drive() -> Result<Option<String>> {
    let mut failed = Vec::new();
    let Err(error) = run_watched(&mut npm("browser"), |line| {
        // "test at FILE:LINE:COLUMN" comes before each failure that is reported.
        failed.extend(line.strip_prefix("test at ").map(str::to_owned));
    }) else {
        return Ok(None);
    };
    if failed.is_empty() || failed.len() > UNSTEADY_MAX {
        return Err(error);
    }
    let mut files: Vec<&str> = failed.iter().filter_map(|at| at.split(':').next()).collect();
    files.dedup();
    say(&format!("\nOnce more: {}", files.join(", ")));
    run(npm("browser:files").arg("--").args(files)).map_err(|_| error)?;
    Ok(Some(failed.join(", ")))
}

/// Options of `./dev console-scale`.
#[derive(clap::Args)]
pub(crate) struct ScaleOptions {
    /// Number of clusters
    #[arg(long, default_value_t = 100)]
    clusters: u16,
    /// Number of gateways, each with a queue for two of the clusters
    #[arg(long, default_value_t = 50)]
    gateways: u16,
    /// Seconds for which each live page is watched
    #[arg(long, default_value_t = 60)]
    live: u32,
    /// Minutes of a soak that walks through the pages and measures their heap
    #[arg(long, default_value_t = 0)]
    minutes: u32,
}

/// Measures the console before many clusters and gateways.
///
/// # Errors
/// If Node is missing or too old, the program does not compile, or a bar is missed.
pub(crate) fn scale(options: &ScaleOptions) -> Result<()> {
    node_is_new_enough()?;
    install()?;
    Build::Release.make()?;
    let mut tool = Command::new("node");
    tool.arg(folder().join("tools/scale.mjs"))
        .arg(Build::Release.program());
    for (name, value) in [
        ("--clusters", options.clusters.into()),
        ("--gateways", options.gateways.into()),
        ("--live", options.live),
        ("--minutes", options.minutes),
    ] {
        tool.args([name, &value.to_string()]);
    }
    run(&mut tool)
}

fn folder() -> PathBuf {
    crate::root().join("web")
}

/// The oldest version of Node that Vite accepts.
const NODE: (u32, u32) = (20, 19);

fn node_is_new_enough() -> Result<()> {
    let out = Command::new("node")
        .arg("--version")
        .output()
        .context("Node is missing: the console's page cannot be checked")?;
    let said = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    let mut numbers = said.trim_start_matches('v').split('.').map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= NODE => Ok(()),
        _ => bail!("Node {}.{} or newer is wanted, here is {said}", NODE.0, NODE.1),
    }
}

/// Installs what the lock file names, once for each version of the lock file.
fn install() -> Result<()> {
    let lock = std::fs::read(folder().join("package-lock.json")).context("web/package-lock.json")?;
    let stamp = folder().join("node_modules/.installed-lock.json");
    if std::fs::read(&stamp).is_ok_and(|installed| installed == lock) {
        return Ok(());
    }
    run(Command::new("npm")
        .args(["ci", "--silent", "--prefix"])
        .arg(folder()))?;
    std::fs::write(stamp, lock).context("web/node_modules")
}

fn npm_run(script: &str) -> Result<()> {
    run(&mut npm(script))
}

fn npm(script: &str) -> Command {
    let mut command = Command::new("npm");
    command
        .args(["run", "--silent", "--prefix"])
        .arg(folder())
        .arg(script);
    command
}
