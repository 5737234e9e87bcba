//! `./dev fuzz`: runs the targets of `fuzz/`, each from its committed corpus, with the nightly compiler.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::steps::run;
use crate::terminal::say;

/// Options: how long to fuzz, and which target.
#[derive(Args)]
pub(crate) struct Options {
    /// Time for each target, in seconds
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Write inputs that reach something new into the committed corpora, not into target/fuzz-corpus
    #[arg(long)]
    keep: bool,
    /// Print nothing but crashes
    #[arg(long)]
    quiet: bool,
    /// Fuzz only this target
    target: Option<String>,
}

impl Options {
    /// Options for CI: long enough to run the corpora and notice a gross mistake. The targets share the time,
    /// so another target does not make CI longer.
    pub(crate) fn smoke() -> Self {
        let count = targets().map_or(1, |targets| targets.len().max(1));
        Self {
            seconds: (SMOKE_SECONDS / count as u32).max(1),
            keep: false,
            quiet: true,
            target: None,
        }
    }
}

/// Fuzzes one target after the other.
///
/// # Errors
/// If a target crashes; libFuzzer prints the path of the input and how to replay it.
pub(crate) fn run_verb(options: &Options) -> Result<()> {
    let targets = targets()?;
    let chosen: Vec<&String> = targets
        .iter()
        .filter(|name| options.target.as_ref().is_none_or(|wanted| wanted == *name))
        .collect();
    if chosen.is_empty() {
        bail!("no such fuzz target; there are: {}", targets.join(", "));
    }
    if options.target.is_none() {
        run(cargo_fuzz(Command::new("cargo")).arg("build"))?;
    }
    for name in chosen {
        say(&format!("fuzzing {name} for {} s", options.seconds));
        let corpus = crate::root().join("fuzz/corpus").join(name);
        let mut corpora = vec![corpus];
        if !options.keep {
            corpora.insert(0, scratch(name)?);
        }
        // libFuzzer reads all these folders, and writes into the first.
        let mut command = cargo_fuzz(Command::new("cargo"));
        command.args(["run", name]).args(corpora).arg("--");
        command
            .arg(format!("-max_total_time={}", options.seconds))
            .args(["-rss_limit_mb=2048", "-print_final_stats=0"]);
        if options.quiet {
            command.arg("-verbosity=0");
        }
        run(&mut command)?;
    }
    Ok(())
}

/// Turns `cargo` into `cargo +nightly fuzz`. Nightly is used for this command only, so it must override the
/// toolchain that started this program.
fn cargo_fuzz(mut cargo: Command) -> Command {
    cargo.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
    cargo.args(["+nightly", "fuzz"]);
    cargo
}

/// Returns an empty folder for new inputs.
fn scratch(name: &str) -> Result<PathBuf> {
    let folder = crate::root().join("target/fuzz-corpus").join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

fn targets() -> Result<Vec<String>> {
    let folder = crate::root().join("fuzz/fuzz_targets");
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs")
            && let Some(name) = path.file_stem().and_then(|stem| stem.to_str())
        {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// The time for all targets together, without compiling.
const SMOKE_SECONDS: u32 = 42;
