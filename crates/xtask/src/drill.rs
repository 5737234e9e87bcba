//! `./dev drill`: checks that everything acknowledged is there, whatever goes wrong in between.
//!
//! Clients write to a gateway in asynchronous mode before two clusters, and enter into a ledger what they
//! were told. Meanwhile the gateway is killed, nodes are killed, paused and lost, shards move, answers get
//! lost, clusters are busy or away, the disk is full, bits flip. Then everything is mended, the queue drains,
//! and the checker compares the ledger with what both clusters and the dead letters hold. Everything that
//! happens follows from a seed, except for the moments at which threads and processes get to run.

mod accounts;
mod check;
mod damage;
mod gateway_under_test;
mod kafka;
mod ledger;
mod load;
mod names;
mod neighbours;
mod repeat;
mod run;
mod schedule;
mod ways;
mod world;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use parking_lot::Mutex;
use testkit::real::ClusterKind;

use crate::steps::{cargo, run as run_command};
use crate::terminal::{Look, paint, progress, say};
use damage::SmallDisk;
use run::DrillOutcome;
use schedule::Schedule;
use world::Cluster;

/// The real clusters that drills take: an OpenSearch, and the lightest Elasticsearch.
pub(crate) const CLUSTERS: [ClusterKind; 2] = [ClusterKind::OpenSearch, ClusterKind::Elasticsearch7];

/// Options: what to drill.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Options {
    /// Make one long run on real clusters: an OpenSearch and an Elasticsearch of three nodes each
    #[arg(long, group = "long")]
    real: bool,
    /// Make one long run of a queue in Kafka: three brokers, three gateways, two fake clusters
    #[arg(long, group = "long", conflicts_with_all = ["neighbours", "fake"])]
    kafka: bool,
    /// Make many short runs on fake clusters (the default)
    #[arg(long, conflicts_with = "real")]
    fake: bool,
    /// Run good clients beside hostile ones, in place of troubles of nodes and disks
    #[arg(long)]
    neighbours: bool,
    /// With --neighbours: run only this hostile behaviour
    #[arg(long, value_name = "NAME", requires = "neighbours")]
    only: Option<String>,
    /// Number of seeds, one run each [default: 100; 1 with --real or --kafka]
    #[arg(long, value_name = "SEEDS")]
    seeds: Option<u64>,
    /// First seed, from which all that happens follows [default: 1; by the clock with --real or --kafka]
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Duration of load and trouble in a run with --real or --kafka, in minutes
    #[arg(long, value_name = "MINUTES", default_value_t = 2.0, requires = "long")]
    minutes: f64,
    /// Number of runs on fake clusters at the same time
    #[arg(long, value_name = "RUNS", default_value_t = 3)]
    jobs: usize,
    /// Use the released binary, in place of the one with debug assertions
    #[arg(long)]
    release: bool,
    /// Print one JSON object per run on standard output, and nothing else
    #[arg(long)]
    json: bool,
    /// Print everything that happens, as runs on real clusters always do
    #[arg(long, short)]
    verbose: bool,
    /// Gateway to run, in place of building one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

impl Options {
    /// Returns options for seeds 1 to `seeds` on fake clusters, with a gateway that is built already.
    pub(crate) fn fake(seeds: u64, program: &Path) -> Self {
        Self {
            seeds: Some(seeds),
            jobs: 3,
            program: Some(program.to_owned()),
            ..Self::default()
        }
    }

    /// Changes the options to good clients beside hostile ones.
    pub(crate) fn beside_neighbours(self) -> Self {
        Self {
            neighbours: true,
            ..self
        }
    }

    /// Returns options for one run on each kind of real cluster.
    pub(crate) fn on_each_kind(self) -> Self {
        Self {
            seeds: Some(CLUSTERS.len() as u64),
            ..self
        }
    }

    /// Returns options for a run of a queue in Kafka, with a gateway that is built already.
    pub(crate) fn kafka(minutes: f64, program: &Path) -> Self {
        Self {
            kafka: true,
            minutes,
            program: Some(program.to_owned()),
            ..Self::default()
        }
    }

    fn plan(&self, program: PathBuf) -> neighbours::Plan {
        let first = self.seed.unwrap_or(1);
        let (seeds, jobs) = match self.real {
            true => (self.seeds.unwrap_or(1), 1),
            false => (self.seeds.unwrap_or(100), self.jobs.max(1)),
        };
        neighbours::Plan {
            real: self.real,
            seeds: first..first + seeds,
            jobs,
            minutes: self.minutes,
            only: self.only.clone(),
            verbose: self.verbose || self.real,
            program,
            folder: crate::root().join("target/drill"),
        }
    }

    /// Returns options for a run on real clusters, with a gateway that is built already.
    pub(crate) fn real(minutes: f64, program: &Path) -> Self {
        Self {
            real: true,
            minutes,
            jobs: 1,
            program: Some(program.to_owned()),
            ..Self::default()
        }
    }
}

/// Runs the drill.
///
/// # Errors
/// If any run has a flaw, or none could be started.
pub(crate) fn run_verb(options: &Options) -> Result<()> {
    let program = build(options)?;
    if options.neighbours {
        return neighbours::run(&options.plan(program));
    }
    if options.kafka {
        let first = options.seed.unwrap_or_else(by_clock);
        let seeds = first..first + options.seeds.unwrap_or(1);
        return kafka::run(options, seeds, &program);
    }
    let disk = SmallDisk::is_possible();
    if !disk {
        tell(
            options,
            &paint(
                Look::Bad,
                "no full disks: that takes root, who may mount small ones",
            ),
        );
    }
    let folder = crate::root().join("target/drill");
    let (seeds, jobs) = match options.real {
        true => (options.seeds.unwrap_or(1), 1),
        false => (options.seeds.unwrap_or(100), options.jobs.max(1)),
    };
    let first = options
        .seed
        .unwrap_or_else(|| if options.real { by_clock() } else { 1 });
    let drill = Drill {
        options,
        folder,
        program,
        disk,
        next: AtomicU64::new(first),
        end: first + seeds,
        seeds,
        done: Mutex::default(),
        begun: Instant::now(),
    };
    std::thread::scope(|scope| {
        let work: Vec<_> = (0..jobs).map(|_| scope.spawn(|| drill.work())).collect();
        let mut ends = work.into_iter().map(std::thread::ScopedJoinHandle::join);
        ends.try_for_each(|end| end.unwrap_or_else(|_| bail!("a run panicked")))
    })?;
    drill.conclude()
}

/// Returns a seed that no run had before.
fn by_clock() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(1, |since| since.as_secs())
}

/// Builds the gateway, unless it is built already, and returns its path.
fn build(options: &Options) -> Result<PathBuf> {
    if let Some(program) = &options.program {
        return Ok(program.clone());
    }
    let mut arguments = vec!["build", "--locked", "--quiet", "--package", "cli"];
    let mut folder = "debug";
    if options.release {
        arguments.push("--release");
        folder = "release";
    }
    tell(
        options,
        &paint(Look::Bold, &format!("building tidegate ({folder}) ...")),
    );
    run_command(&mut cargo(&arguments))?;
    Ok(crate::root().join("target").join(folder).join("tidegate"))
}

struct Drill<'a> {
    options: &'a Options,
    folder: PathBuf,
    program: PathBuf,
    disk: bool,
    /// The next seed; the seeds from here to `end` are still to be run.
    next: AtomicU64,
    end: u64,
    seeds: u64,
    done: Mutex<Vec<DrillOutcome>>,
    begun: Instant,
}

impl Drill<'_> {
    /// Runs one seed after another.
    fn work(&self) -> Result<()> {
        loop {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if seed >= self.end {
                return Ok(());
            }
            let outcome = self.one(seed)?;
            self.report(outcome);
        }
    }

    fn one(&self, seed: u64) -> Result<DrillOutcome> {
        let options = self.options;
        let folder = self
            .folder
            .join(format!("{}-{seed}", if options.real { "real" } else { "fake" }));
        clear(&folder)?;
        let (schedule, clusters) = if options.real {
            let schedule = Schedule::real(seed, options.minutes, [3, 3], self.disk);
            tell(
                options,
                &paint(
                    Look::Bold,
                    "starting the clusters (fetched with Maven the first time) ...",
                ),
            );
            let clusters = Cluster::reals(&schedule.setup)?;
            (schedule, clusters)
        } else {
            let schedule = Schedule::fake(seed, self.disk);
            let clusters = Cluster::fakes(&schedule.setup)?;
            (schedule, clusters)
        };
        let verbose = (options.real || options.verbose) && !options.json;
        if verbose {
            let shown: Vec<String> = clusters.iter().map(Cluster::shown).collect();
            say(&format!(
                "seed {seed}: {}; {:?}",
                shown.join(" and "),
                schedule.setup
            ));
        }
        let tell = |text: &str| {
            if verbose {
                say(&paint(Look::Dim, text));
            }
        };
        let mut outcome = run::run(seed, &schedule, &clusters, (&folder, &self.program), &tell);
        match outcome.flaws.is_empty() {
            true => clear(&folder)?,
            false => outcome.folder = Some(folder),
        }
        Ok(outcome)
    }

    fn report(&self, outcome: DrillOutcome) {
        let mut done = self.done.lock();
        if self.options.json {
            say(&serde_json::to_string(&outcome).unwrap_or_default());
        } else if !outcome.flaws.is_empty() {
            progress("");
            say(&paint(
                Look::Bad,
                &format!("seed {}: {} flaws", outcome.seed, outcome.flaws.len()),
            ));
            for flaw in outcome.flaws.iter().take(FLAWS_SHOWN) {
                say(&format!("  {:?}: {}", flaw.kind, flaw.what));
            }
            if let Some(folder) = &outcome.folder {
                say(&format!("  kept: {}", folder.display()));
            }
            let real = if self.options.real {
                format!("--real --minutes {} ", self.options.minutes)
            } else {
                String::new()
            };
            say(&format!(
                "  again: ./dev drill {real}--seed {} --seeds 1",
                outcome.seed
            ));
        } else if self.options.verbose || self.options.real {
            let tally = &outcome.tally;
            say(&format!(
                "seed {}: {} in {:.1} s: {} documents of {} requests, {} refused, {} without an answer ({} accepted), {} answered again, {} dead, {} lost, accounts seen {} times",
                outcome.seed,
                paint(Look::Good, "no flaw"),
                outcome.took_s,
                tally.documents,
                tally.queued,
                tally.refused,
                tally.unanswered,
                tally.unanswered_accepted,
                tally.repeated,
                tally.dead,
                tally.lost,
                outcome.samples,
            ));
        } else {
            let flawed = done.iter().filter(|one| !one.flaws.is_empty()).count();
            progress(&format!(
                "{} of {} seeds, {flawed} with flaws, {:.0} s",
                done.len() + 1,
                self.seeds,
                self.begun.elapsed().as_secs_f64()
            ));
        }
        done.push(outcome);
    }

    /// Prints the sum of all runs.
    fn conclude(self) -> Result<()> {
        let done = self.done.into_inner();
        let flawed: Vec<u64> = done
            .iter()
            .filter(|one| !one.flaws.is_empty())
            .map(|one| one.seed)
            .collect();
        if done.is_empty() {
            bail!("no seed was run");
        }
        let sum = |of: fn(&DrillOutcome) -> u64| done.iter().map(of).sum::<u64>();
        tell(
            self.options,
            &format!(
                "{} runs in {:.0} s: {} things went wrong on purpose; {} documents of {} requests were accepted, {} requests refused, {} got no \
                 answer ({} of them accepted); {} answers were given again to requests that were sent again; {} operations are dead letters, {} documents were lost to flipped bits; the accounts added up {} times",
                done.len(),
                self.begun.elapsed().as_secs_f64(),
                sum(|one| one.acts as u64),
                sum(|one| one.tally.documents),
                sum(|one| one.tally.queued),
                sum(|one| one.tally.refused),
                sum(|one| one.tally.unanswered),
                sum(|one| one.tally.unanswered_accepted),
                sum(|one| one.tally.repeated),
                sum(|one| one.tally.dead),
                sum(|one| one.tally.lost),
                sum(|one| one.samples),
            ),
        );
        if !flawed.is_empty() {
            let seeds: Vec<String> = flawed.iter().map(u64::to_string).collect();
            let told = done.iter().flat_map(|one| {
                let flaws = one.flaws.iter().take(FLAWS_SHOWN);
                flaws.map(|flaw| format!("\nseed {}: {:?}: {}", one.seed, flaw.kind, flaw.what))
            });
            bail!(
                "{} of {} runs have flaws: seeds {}{}",
                flawed.len(),
                done.len(),
                seeds.join(", "),
                told.take(FLAWS_TOLD_AGAIN).collect::<String>()
            );
        }
        if sum(|one| one.tally.queued) == 0 || sum(|one| one.acts as u64) == 0 {
            bail!("nothing was queued, or nothing went wrong: that shows nothing");
        }
        tell(
            self.options,
            &paint(
                Look::Good,
                "every acknowledged document is in both clusters once, as it was last written, or dead with a reason, or counted as lost to damage",
            ),
        );
        Ok(())
    }
}

/// Prints a line for people.
fn tell(options: &Options, text: &str) {
    if !options.json {
        progress("");
        say(text);
    }
}

/// Removes a run's folder, and the small disk that an interrupted run may have left in it.
fn clear(folder: &Path) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    SmallDisk::unmount(&folder.join("disk"));
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        match std::fs::remove_dir_all(folder) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            // Unmounting a small disk takes a moment.
            Err(error) if Instant::now() > until => {
                return Err(error).with_context(|| format!("cannot clear {}", folder.display()));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// The number of flaws that are repeated at the end of all runs.
const FLAWS_TOLD_AGAIN: usize = 40;
const FLAWS_SHOWN: usize = 8;
