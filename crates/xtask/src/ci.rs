//! `./dev ci`: the checks that guard main, exactly as `.ci/run` runs them.

use anyhow::{Result, bail};
use clap::Args;

use crate::steps::{Steps, cargo, run};
use crate::{docs, fuzz, suite, tidy};

/// The verb has no options: CI always does the same.
#[derive(Args)]
pub(crate) struct Options {}

/// Runs every check, even after one has failed.
///
/// # Errors
/// If any check failed.
pub(crate) fn run_verb(_: &Options) -> Result<()> {
    let mut steps = Steps::new();
    steps.step("format", || run(&mut cargo(&["fmt", "--all", "--check"])));
    steps.step("scripts", || {
        run(std::process::Command::new("shellcheck").args(["dev", ".ci/run", ".cargo/link-cc"]))
    });
    steps.step("tidy", tidy::run);
    // Advisories need a database from a site that CI may not reach; CONTRIBUTING.md says how to check them.
    steps.step("supply chain", || {
        run(&mut cargo(&[
            "deny",
            "--locked",
            "check",
            "--hide-inclusion-graph",
            "bans",
            "licenses",
            "sources",
        ]))
    });
    steps.step("lints", || {
        run(&mut cargo(&[
            "clippy",
            "--locked",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ]))
    });
    steps.step("documentation", || {
        run(cargo(&["doc", "--workspace", "--no-deps", "--locked"]).env("RUSTDOCFLAGS", "-D warnings"))
    });
    steps.step("user guide", docs::run_verb);
    let mut building = None;
    let counted = suite::run_all(&suite::Options::default(), &mut steps, || {
        building = Some(fuzz::start_building());
    });
    steps.step("build the fuzz targets", || {
        building.map_or(Ok(()), |building| building?.finish())
    });
    steps.step("fuzz", || fuzz::run_verb(&fuzz::Options::smoke()));
    steps.step("instruction counts", instruction_counts);
    steps.finish().and(counted)
}

/// Runs the benches that count instructions under valgrind; the count is the same on any machine.
fn instruction_counts() -> Result<()> {
    let metadata = suite::metadata(&["--no-deps"])?;
    let packages: Vec<&str> = metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|package| {
            let mut targets = package["targets"].as_array().into_iter().flatten();
            targets.any(|target| target["kind"][0] == "bench" && target["name"] == "instructions")
        })
        .filter_map(|package| package["name"].as_str())
        .collect();
    if packages.is_empty() {
        bail!("no crate has a bench named `instructions`");
    }
    for package in packages {
        run(&mut cargo(&[
            "bench",
            "--locked",
            "--package",
            package,
            "--bench",
            "instructions",
        ]))?;
    }
    Ok(())
}
