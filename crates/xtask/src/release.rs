//! `./dev release`: builds the program that is published, which is small, and beside it a file with its debug
//! information.
//!
//! Cargo alone either strips a program or leaves the debug information in it. Its `split-debuginfo` leaves
//! line tables and addresses in the program on Linux, and stripping removes these from both files. So the
//! profile `symbols` leaves everything in, and `objcopy` (binutils, which come with gcc) separates it
//! afterwards.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::steps::{cargo, run};
use crate::terminal::{Look, paint, say};

/// Builds the program.
///
/// # Errors
/// If the program does not compile, or `objcopy` is missing.
pub(crate) fn run_verb() -> Result<()> {
    say(&paint(Look::Bold, "building tidegate (symbols) ..."));
    run(&mut cargo(&[
        "build",
        "--locked",
        "--quiet",
        "--package",
        "cli",
        "--profile",
        "symbols",
    ]))?;
    let built = crate::target().join("symbols/tidegate");
    let folder = crate::target().join("release-files");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for file in split(&built, &folder)? {
        let bytes = std::fs::metadata(&file)?.len();
        say(&format!("{:>7.1} MB  {}", bytes as f64 / 1e6, file.display()));
    }
    Ok(())
}

/// Makes `tidegate`, stripped, and `tidegate.debug`, which debuggers find by the name and checksum in the
/// first file.
fn split(built: &Path, folder: &Path) -> Result<[PathBuf; 2]> {
    let (program, debug) = (folder.join("tidegate"), folder.join("tidegate.debug"));
    let objcopy = |arguments: &[&str], from: &Path, to: &Path| {
        run(Command::new("objcopy").args(arguments).arg(from).arg(to))
    };
    objcopy(&["--only-keep-debug", "--compress-debug-sections"], built, &debug)?;
    let link = format!("--add-gnu-debuglink={}", debug.display());
    objcopy(&["--strip-all", &link], built, &program)?;
    Ok([program, debug])
}
