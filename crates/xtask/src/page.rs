//! The console's page in `web/`: its types, its tests, its size, and that the committed build is what its
//! sources give.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::steps::run;

/// Checks the page; `browser` also drives it in a real one.
///
/// # Errors
/// When Node is missing or too old, or a check fails.
pub(crate) fn check(browser: bool) -> Result<()> {
    node_is_new_enough()?;
    install()?;
    for script in ["check", "unit", "dist:check", "size", "specs:check"] {
        npm_run(script)?;
    }
    if browser {
        npm_run("browser")?;
    }
    Ok(())
}

fn folder() -> PathBuf {
    crate::root().join("web")
}

/// Vite's own demand.
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

/// Installs what the lock file names, once for each lock file.
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
    run(Command::new("npm")
        .args(["run", "--silent", "--prefix"])
        .arg(folder())
        .arg(script))
}
