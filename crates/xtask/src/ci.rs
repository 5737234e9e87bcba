//! `./dev ci`: the checks that guard main, exactly as `.ci/run` runs them.

use anyhow::{Result, bail};
use clap::Args;

use crate::idle::{self, Building};
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
    let tools = tools();
    steps.step("format", || run(&mut cargo(&["fmt", "--all", "--check"])));
    steps.step("scripts", || {
        run(std::process::Command::new("shellcheck").args(["dev", ".ci/run", ".cargo/link-cc"]))
    });
    steps.step("tidy", tidy::run);
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
    let counted = suite::run_all(&suite::Options::default(), &mut steps);
    let has_tools = steps.step("build tools and fuzz targets", || tools?.finish());
    if has_tools {
        // Advisories need a database from a site that CI may not reach; CONTRIBUTING.md says how to check
        // them.
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
        steps.step("user guide", docs::run_verb);
        steps.step("fuzz", || fuzz::run_verb(&fuzz::Options::smoke()));
    }
    steps.step("instruction counts", instruction_counts);
    steps.finish().and(counted)
}

/// Starts to build cargo's subcommands that the last steps need, and with one of them the fuzz targets.
fn tools() -> Result<Building> {
    let mut command = idle::command("./dev");
    command.arg("tools");
    // Nightly is used for some of it alone, so it must override the toolchain that started this program.
    command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
    Building::start(command, "tools-build.log")
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
