//! `./dev fuzz`: the targets of `fuzz/`, each from its committed corpus, with the nightly compiler.

use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::steps::run;
use crate::terminal::say;

/// How long, and what.
#[derive(Args)]
pub(crate) struct Options {
    /// Seconds for each target
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Only this target
    target: Option<String>,
}

impl Options {
    /// As CI does it: long enough to run the corpora and see a gross mistake. The targets share the time, so that one more
    /// does not make CI longer.
    pub(crate) fn smoke() -> Self {
        let count = targets().map_or(1, |targets| targets.len().max(1));
        Self {
            seconds: (SMOKE_SECONDS / count as u32).max(1),
            target: None,
        }
    }
}

/// Fuzzes one target after the other.
///
/// # Errors
/// When one crashes; libFuzzer prints the input's path and how to replay it.
pub(crate) fn run_verb(options: &Options) -> Result<()> {
    let targets = targets()?;
    let chosen: Vec<&String> = targets
        .iter()
        .filter(|name| options.target.as_ref().is_none_or(|wanted| wanted == *name))
        .collect();
    if chosen.is_empty() {
        bail!("no such fuzz target; there are: {}", targets.join(", "));
    }
    for name in chosen {
        say(&format!("fuzzing {name} for {} s", options.seconds));
        let mut command = Command::new("cargo");
        // The toolchain is nightly's for this command only: `+nightly` must win over ours.
        command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
        command.args(["+nightly", "fuzz", "run", name, "--"]);
        command
            .arg(format!("-max_total_time={}", options.seconds))
            .args(["-rss_limit_mb=2048", "-print_final_stats=0"]);
        run(&mut command)?;
    }
    Ok(())
}

fn targets() -> Result<Vec<String>> {
    let folder = crate::root().join("fuzz/fuzz_targets");
    let entries = std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
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

/// For all targets together, the compiler's time aside.
const SMOKE_SECONDS: u32 = 42;
