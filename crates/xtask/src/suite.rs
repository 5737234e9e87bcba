//! `./dev test`: every test of the workspace; those on real clusters come last.
//!
//! The drill follows, on fake clusters and then on real ones. Test targets named `real_*` need real clusters.
//! All kinds are started one after the other once the other tests have run, held for all that needs them, and
//! stopped after it, however it ends.

use std::num::NonZero;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use serde_json::Value;
use testkit::real::{ClusterKind, RealCluster};

use crate::drill;
use crate::idle::{self, Building};
use crate::page;
use crate::portable;
use crate::steps::{Steps, cargo, run};
use crate::tally::{Tally, UNSTEADY};
use crate::terminal::{Look, paint, say};

/// Options: which tests to run.
#[derive(Args, Default)]
pub(crate) struct Options {
    /// Leave out the tests on real clusters
    #[arg(long)]
    quick: bool,
    /// Run only the tests whose name contains this
    filter: Option<String>,
}

/// Runs the tests and prints how many passed.
///
/// # Errors
/// If a test failed, or none was run.
pub(crate) fn run_all(options: &Options, steps: &mut Steps) -> Result<()> {
    let (mut tally, filter) = (Tally::default(), options.filter.as_deref());
    let portable = (options.filter.is_none() && !options.quick).then(start_portable_program);
    if options.filter.is_none() {
        ahead_of_tests(options, steps);
    }
    let targets = Targets::read()?;
    let built = steps.step("build the tests", || {
        run(&mut cargo(&["test", "--workspace", "--locked", "--no-run"]))
    });
    // Cargo puts the gateway there for the tests that start it. Built on its own it would be compiled anew,
    // with half of its dependencies, since tests need more of their features.
    let gateway = crate::root().join("target/debug/tidegate");
    if built {
        steps.step("tests", || {
            let mut args = vec!["--lib", "--bins"];
            args.extend(targets.plain.iter().flat_map(|name| ["--test", name]));
            let cores = thread::available_parallelism().map_or(1, NonZero::get);
            let tests = tally.run(&args, filter, Some(TESTS_PER_CORE * cores));
            tests.and(tally.run(&["--doc"], filter, None))
        });
        if options.filter.is_none() {
            let drilled = |seeds| drill::Options::fake(seeds, &gateway);
            steps.step("drill", || drill::run_verb(&drilled(DRILL_SEEDS)));
            steps.step("neighbours drill", || {
                drill::run_verb(&drilled(NEIGHBOURS_SEEDS).beside_neighbours())
            });
        }
        // Even clusters that do nothing take a quarter of a core, so they come late.
        let clusters = (!options.quick).then(|| thread::spawn(start_clusters));
        if portable.is_some() {
            steps.step("chart", chart);
            steps.step("a real collector and OpenID provider", collector_and_provider);
            if std::env::var_os("TIDEGATE_TEST_RSYSLOG").is_some() {
                steps.step("a shipper", shipper);
            }
        }
        if let Some(clusters) = clusters {
            steps.step("tests on real clusters", || {
                let started = clusters.join();
                started.map_err(|_| anyhow!("starting the clusters panicked"))??;
                tally.add_all(real_tests(&targets.real, filter)?)
            });
            if options.filter.is_none() {
                RealCluster::release_all_but(&drill::CLUSTERS);
                real_drills(&gateway, steps);
            }
            RealCluster::release_all();
        }
        // It comes last, because all steps before it leave time for its build.
        if let Some(portable) = portable {
            steps.step("a release for other machines", || portable_program(portable?));
        }
    }
    if tally.ran() == 0 {
        bail!("no test was run");
    }
    tally.tell(steps);
    Ok(())
}

/// Runs the checks that need no test of the workspace.
fn ahead_of_tests(options: &Options, steps: &mut Steps) {
    let mut unsteady = None;
    steps.step("console's page", || {
        page::check(!options.quick).map(|tests| unsteady = tests)
    });
    if let Some(tests) = unsteady {
        steps.remark(format!("{tests}: {UNSTEADY}"));
    }
    if !options.quick {
        steps.step("alerts", alerts);
    }
}

/// Runs the tests on real clusters: those that mostly wait beside all others. Returns what each of the two
/// runs has found.
fn real_tests(targets: &[String], filter: Option<&str>) -> Result<[(Tally, Result<()>); 2]> {
    let (beside, others): (Vec<&String>, Vec<&String>) = targets
        .iter()
        .partition(|name| BESIDE_OTHERS.contains(&name.as_str()));
    if beside.len() != BESIDE_OTHERS.len() || others.is_empty() {
        bail!("the tests on real clusters are not all there");
    }
    let run = |targets: Vec<&String>| {
        let args: Vec<&str> = targets.iter().flat_map(|name| ["--test", name]).collect();
        let mut tally = Tally::default();
        let result = tally.run(&args, filter, None);
        (tally, result)
    };
    thread::scope(|scope| {
        let beside = scope.spawn(|| run(beside));
        let others = run(others);
        let beside = beside.join().map_err(|_| anyhow!("running tests panicked"))?;
        Ok([others, beside])
    })
}

/// Runs the drills that need real servers.
fn real_drills(gateway: &Path, steps: &mut Steps) {
    steps.step("drill on real clusters", || {
        drill::run_verb(&drill::Options::real(DRILL_MINUTES, gateway))
    });
    steps.step("drill of a queue in Kafka", || {
        drill::run_verb(&drill::Options::kafka(KAFKA_MINUTES, gateway))
    });
    steps.step("neighbours drill on real clusters", || {
        drill::run_verb(
            &drill::Options::real(NEIGHBOURS_MINUTES, gateway)
                .beside_neighbours()
                .on_each_kind(),
        )
    });
}

/// Prometheus' own tool reads the rules of `ops/`, and checks that each alert fires when it should.
fn alerts() -> Result<()> {
    let folder = crate::root().join("ops/prometheus");
    for (what, file) in [("check", "tidegate.rules.yml"), ("test", "tidegate.test.yml")] {
        run(Command::new("promtool")
            .args([what, "rules"])
            .arg(folder.join(file)))?;
    }
    Ok(())
}

/// Checks the Helm chart against the schemas of Kubernetes, with helm's own engine, which Go builds.
fn chart() -> Result<()> {
    run(&mut test_target("chart", "--ignored"))
}

/// Sends traces to the receiver of the OpenTelemetry collector, and logs in at an OpenID provider. Go builds
/// both.
fn collector_and_provider() -> Result<()> {
    run(test_target("black_box", "real_collector::").args(["real_provider::", "--ignored"]))
}

/// Lets rsyslog and syslog-ng, which `./dev` fetches, ship lines through gateways.
fn shipper() -> Result<()> {
    run(test_target("black_box", "shippers::").arg("--ignored"))
}

/// Builds a program for machines with an older glibc, as packages contain it, with the profile `release`, but
/// without librdkafka and the console, and with panics that can be planted. Tests then check what one bad
/// record, request or answer does to all others in a release, what the program says of the console, and that
/// the packed program installs and runs.
fn portable_program(building: Building) -> Result<()> {
    // Clippy checks the program with all of its features alone.
    building.finish_without_warnings()?;
    let program = portable::built(PORTABLE_PROFILE)?;
    portable::check_stripped(&program)?;
    run(test_target("black_box", "panics::").env(TEST_PROGRAM, &program))?;
    let mut without_console = test_target("black_box", "console::absent::");
    run(without_console.arg("--ignored").env(TEST_PROGRAM, &program))?;
    installs(&program)
}

fn start_portable_program() -> Result<Building> {
    let mut cargo = portable::building(idle::command("cargo"), PORTABLE_PROFILE, "planted")?;
    // What is checked does not depend on how well crates are optimised, alone and together.
    cargo
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    Building::start(cargo, "portable-build.log")
}

const PORTABLE_PROFILE: &str = "release";

/// Checks that the packed program installs and runs on machines that have nothing else.
fn installs(program: &Path) -> Result<()> {
    run(test_target("packages", "--ignored").env(TEST_PROGRAM, program))
}

/// Runs what the tests on each commit leave to whoever packs a program: checks that it installs, and that its
/// own library speaks TLS to Kafka brokers, and refuses those that it should.
///
/// # Errors
/// If a test fails.
pub(crate) fn try_packed(program: &Path) -> Result<()> {
    installs(program)?;
    run(test_target("black_box", "brokers::").env(TEST_PROGRAM, program))?;
    run(test_target("real_kafka", "secured::").env(TEST_PROGRAM, program))
}

/// Returns the command for one test target, with an argument for it.
fn test_target(name: &str, argument: &str) -> Command {
    let arguments = ["test", "--workspace", "--locked", "--test", name, "--", argument];
    cargo(&arguments)
}

/// The variable that names the program for tests to start in place of the one that cargo has built for them.
const TEST_PROGRAM: &str = "TIDEGATE_TEST_PROGRAM";

/// Runs the verb.
///
/// # Errors
/// As [`run_all`].
pub(crate) fn run_verb(options: &Options) -> Result<()> {
    let mut steps = Steps::new();
    let counted = run_all(options, &mut steps);
    steps.finish().and(counted)
}

/// Starts the clusters one after the other: on two cores this is faster than all at once, and none reaches
/// its time limit.
fn start_clusters() -> Result<()> {
    for kind in ClusterKind::ALL {
        let begun = Instant::now();
        RealCluster::hold(kind).with_context(|| format!("the cluster {}", kind.name()))?;
        let took = begun.elapsed().as_secs_f64();
        say(&paint(
            Look::Dim,
            &format!("   cluster {} is up ({took:.0} s)", kind.name()),
        ));
    }
    Ok(())
}

/// Tests that start gateways before fake clusters wait more than they compute: on two cores, those of the
/// black box took 305 s with four at once, and half of both cores was idle. With eight they took 208 s, but
/// bounds of memory and time are for a machine that has room.
const TESTS_PER_CORE: usize = 2;
/// Those of queues in Kafka wait for brokers and for gateways that come and go; those of users' rights take
/// three minutes, in which servers compare passwords, one after the other.
const BESIDE_OTHERS: [&str; 2] = ["real_kafka", "real_rights"];
/// Number of seeds of the drill on fake clusters: about a minute on two cores.
const DRILL_SEEDS: u64 = 110;
/// And of the neighbours drill there: about two minutes.
const NEIGHBOURS_SEEDS: u64 = 200;
/// Duration of load and trouble in the drill on real clusters.
const DRILL_MINUTES: f64 = 1.25;
/// Duration of load and trouble in the drill of a queue in Kafka: a minute or somewhat more, with the start
/// and the rest.
const KAFKA_MINUTES: f64 = 0.5;

/// Duration of load in the neighbours drill on each kind of real cluster; the tests have these clusters, too.
const NEIGHBOURS_MINUTES: f64 = 0.5;

/// The workspace's integration test targets.
struct Targets {
    plain: Vec<String>,
    real: Vec<String>,
}

impl Targets {
    fn read() -> Result<Self> {
        let metadata = metadata(&["--no-deps"])?;
        let mut targets: Vec<String> = metadata["packages"]
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(|package| package["targets"].as_array().into_iter().flatten())
            .filter(|target| target["kind"][0] == "test")
            .filter_map(|target| Some(target["name"].as_str()?.to_owned()))
            .collect();
        targets.sort();
        targets.dedup();
        let (real, plain) = targets.into_iter().partition(|name| name.starts_with("real_"));
        Ok(Self { plain, real })
    }
}

/// Returns what cargo knows about the workspace's own crates.
///
/// # Errors
/// If `cargo metadata` fails.
pub(crate) fn metadata(more: &[&str]) -> Result<Value> {
    let mut command: Command = cargo(&["metadata", "--format-version", "1", "--locked"]);
    let out = command
        .args(more)
        .current_dir(crate::root())
        .output()
        .context("cannot run cargo")?;
    if !out.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&out.stderr));
    }
    serde_json::from_slice(&out.stdout).context("cargo metadata is not JSON")
}
