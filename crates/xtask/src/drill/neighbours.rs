//! `./dev drill --neighbours`: good clients beside hostile ones.
//!
//! Good clients write small bulks to a gateway, through a queue and straight to the cluster. They are
//! alternately alone and beside hostile clients, whose actions follow from the seed ([`hostile::TABLE`]).
//! Everything that the good clients were told is written must be in the cluster, none of them may be refused,
//! the queue must stay close behind, the gateway must stay small, and the waits of a good client may at most
//! double.

mod control;
mod good;
mod hostile;
mod operator;
mod setup;
mod verdict;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use fastrand::Rng;
use parking_lot::Mutex;

use crate::tally::{UNSTEADY, UNSTEADY_MAX};
use crate::terminal::{Look, paint, progress, say};
use control::Control;
use good::{ALONE, BESIDE, Good, Told, WARMING_UP};
use hostile::{Acts, Behaviour, BehaviourOrder, Scene};
use setup::{Fabric, Gateway};
use verdict::{Flaw, Observations, Wait, Waits};

/// The runs to make, and how.
pub(super) struct Plan {
    pub(super) real: bool,
    pub(super) seeds: std::ops::Range<u64>,
    pub(super) jobs: usize,
    /// Duration of a real run.
    pub(super) minutes: f64,
    /// The only behaviour to run; none: all of them.
    pub(super) only: Option<String>,
    pub(super) verbose: bool,
    pub(super) program: PathBuf,
    pub(super) folder: PathBuf,
}

/// The outcome of a run.
struct NeighboursOutcome {
    seed: u64,
    flaws: Vec<Flaw>,
    waits: Waits,
    requests: usize,
    documents: usize,
    acts: Acts,
    /// The gateway's peak memory.
    resident_bytes_max: u64,
}

/// Runs the plan.
///
/// # Errors
/// If something is not as it has to be, or nothing could be run.
pub(super) fn run(plan: &Plan) -> Result<()> {
    let behaviours = hostile::wanted(plan.only.as_deref())?;
    let (next, done) = (AtomicU64::new(plan.seeds.start), Mutex::new(Vec::new()));
    let begun = Instant::now();
    let work = || -> Result<()> {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= plan.seeds.end {
                return Ok(());
            }
            let outcome = one(plan, seed, &behaviours)?;
            let mut done = done.lock();
            report(plan, &outcome);
            done.push(outcome);
            if !plan.verbose {
                progress(&format!(
                    "{} of {} seeds",
                    done.len(),
                    plan.seeds.end - plan.seeds.start
                ));
            }
        }
    };
    std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..plan.jobs).map(|_| scope.spawn(work)).collect();
        let mut ends = jobs.into_iter().map(std::thread::ScopedJoinHandle::join);
        ends.try_for_each(|end| end.unwrap_or_else(|_| bail!("a run panicked")))
    })?;
    let mut done = done.into_inner();
    run_again(plan, &mut done, &behaviours)?;
    conclude(plan, &done, begun.elapsed())
}

/// Runs one or two seeds once more, by themselves, whose only flaws are waits: several runs share few cores,
/// a real cluster of several nodes has no more of them, and a machine that stands still for seconds makes one
/// in some thousand runs look bad. The second run counts. Somebody who asks for one seed of a fake cluster is
/// told what that run found.
fn run_again(plan: &Plan, done: &mut [NeighboursOutcome], behaviours: &[&'static Behaviour]) -> Result<()> {
    let mut flawed: Vec<&mut NeighboursOutcome> =
        done.iter_mut().filter(|one| !one.flaws.is_empty()).collect();
    let of_time = flawed.iter().flat_map(|one| &one.flaws).all(|flaw| flaw.of_time);
    let is_one = plan.seeds.end - plan.seeds.start == 1 && !plan.real;
    if is_one || !of_time || flawed.len() > UNSTEADY_MAX {
        return Ok(());
    }
    for outcome in &mut flawed {
        let again = one(plan, outcome.seed, behaviours)?;
        report(plan, &again);
        let (seed, first) = (outcome.seed, &outcome.flaws[0].what);
        if again.flaws.is_empty() {
            progress("");
            say(&paint(Look::Bad, &format!("seed {seed} ({first}) {UNSTEADY}")));
        }
        **outcome = again;
    }
    Ok(())
}

fn one(plan: &Plan, seed: u64, behaviours: &[&'static Behaviour]) -> Result<NeighboursOutcome> {
    let folder = plan.folder.join(format!("neighbours-{seed}"));
    let _ = std::fs::remove_dir_all(&folder);
    let fabric = if plan.real {
        Fabric::real(seed)?
    } else {
        Fabric::fake(seed)?
    };
    let gateway = Gateway::start(&folder, &plan.program, &fabric)?;
    let times = if plan.real {
        let rounds = (plan.minutes * 60.0 / (REAL_QUIET + REAL_HOSTILE).as_secs_f64()).ceil();
        (REAL_QUIET, REAL_HOSTILE, (rounds as u32).max(1))
    } else {
        // Some runs are long enough for problems that only show over time.
        let long = seed.is_multiple_of(LONG_ONE_IN);
        match long {
            true => (FAKE_QUIET, FAKE_HOSTILE_LONG, 1),
            false => (FAKE_QUIET, FAKE_HOSTILE, FAKE_ROUNDS),
        }
    };
    let outcome = neighbours(seed, &fabric, &gateway, behaviours, times);
    fabric.clear()?;
    let outcome = outcome.with_context(|| format!("seed {seed}: {}", gateway.last_words()))?;
    if outcome.flaws.is_empty() {
        let _ = std::fs::remove_dir_all(&folder);
    }
    Ok(outcome)
}

/// Runs quiet and hostile phases in turn under load, and then looks for the good clients' documents.
fn neighbours(
    seed: u64,
    fabric: &Fabric,
    gateway: &Gateway,
    behaviours: &[&'static Behaviour],
    (quiet, hostile, rounds): (Duration, Duration, u32),
) -> Result<NeighboursOutcome> {
    let (stop, phase) = (AtomicBool::new(false), AtomicU8::new(WARMING_UP));
    let can_act = |one: &&'static Behaviour| fabric.is_secured() || !one.needs_users;
    let turns = BehaviourOrder::of(behaviours.iter().copied().filter(can_act), seed);
    let queue = || gateway.queue();
    let control_at = fabric.urls()[0].trim_start_matches("http://").parse()?;
    let (told, mut seen, control) = std::thread::scope(|scope| {
        let good: Vec<_> = (0..GOOD_CLIENTS)
            .map(|number| {
                let client = Good {
                    address: gateway.entry(number % 2 == 0),
                    told: Told::of(if number % 2 == 0 { "good" } else { "good-sync" }),
                    reads: (number % 2 == 0).then(|| gateway.url(false)),
                    queue: &queue,
                    has_account: fabric.is_secured(),
                    token: (number as u64 + 1) << 32,
                    stop: &stop,
                    phase: &phase,
                    pause: fabric.pause(),
                    rng: Rng::with_seed(seed * 100 + number as u64),
                };
                scope.spawn(move || client.write())
            })
            .collect();
        let control = scope.spawn(|| Control::run(control_at, fabric, &stop, &phase));
        let fields = scope.spawn(|| Control::run_fields(control_at, fabric, &stop, &phase));
        let watch = scope.spawn(|| gateway.watch(&stop));
        let mut leaks = Vec::new();
        std::thread::sleep(WARM_UP * fabric.slowness());
        for round in 0..rounds {
            phase.store(ALONE, Ordering::SeqCst);
            std::thread::sleep(quiet);
            phase.store(BESIDE, Ordering::SeqCst);
            let until = Instant::now() + hostile;
            leaks.extend(hostile_phase((seed, round), (fabric, gateway), &turns, until));
        }
        stop.store(true, Ordering::SeqCst);
        let told: Vec<Told> = good
            .into_iter()
            .map(|one| {
                one.join()
                    .unwrap_or_else(|_| Told::broken("a good client panicked"))
            })
            .collect();
        let mut seen = watch
            .join()
            .unwrap_or_else(|_| Observations::broken("the watch panicked"));
        seen.leaks = leaks;
        let fields = fields.join().unwrap_or_default();
        let control = control.join().unwrap_or_default().with_fields_of(fields);
        (told, seen, control)
    });
    seen.missing = gateway.wait_for(fabric, &told)?;
    seen.has_forbidden = fabric.has_forbidden()?;
    seen.resident_bytes_max = gateway.resident_bytes_max();
    let mut flaws = verdict::flaws(&told, &seen, &control);
    if let Some(crash) = gateway.has_crashed() {
        flaws.push(Flaw::new(crash));
    }
    Ok(NeighboursOutcome {
        resident_bytes_max: seen.resident_bytes_max,
        ..outcome(seed, &told, &control, flaws, turns.into_acts())
    })
}

fn outcome(seed: u64, told: &[Told], control: &Control, flaws: Vec<Flaw>, acts: Acts) -> NeighboursOutcome {
    let waits: Vec<Wait> = told.iter().flat_map(|one| &one.waits).copied().collect();
    let waits = Waits::of(&waits, control).with_lags(told, control);
    NeighboursOutcome {
        seed,
        flaws,
        requests: waits.count(),
        waits,
        documents: told.iter().map(|one| one.written.len()).sum(),
        acts,
        resident_bytes_max: 0,
    }
}

/// Runs the hostile clients until the given time. Returns what they were told about other clients' documents.
fn hostile_phase(
    (seed, round): (u64, u32),
    (fabric, gateway): (&Fabric, &Gateway),
    turns: &BehaviourOrder,
    until: Instant,
) -> Vec<String> {
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..HOSTILE_CLIENTS)
            .map(|number| {
                let rng = Rng::with_seed(seed * 10_000 + u64::from(round * HOSTILE_CLIENTS + number));
                let scene = Scene {
                    gateway,
                    fabric,
                    from: 2 + number as u8,
                    until,
                    rng,
                    leaks: Vec::new(),
                };
                scope.spawn(move || scene.play(turns))
            })
            .collect();
        let leaks = clients.into_iter().map(|client| client.join());
        leaks
            .flat_map(|leaks| leaks.unwrap_or_else(|_| vec!["a hostile client panicked".to_owned()]))
            .collect()
    })
}

fn report(plan: &Plan, outcome: &NeighboursOutcome) {
    for flaw in outcome.flaws.iter().take(FLAWS_SHOWN) {
        progress("");
        let text = format!("seed {}: {}", outcome.seed, flaw.what);
        say(&paint(Look::Bad, &text));
    }
    if plan.verbose {
        say(&format!(
            "seed {}: {} hostile acts, {} requests of good clients, {}",
            outcome.seed,
            outcome.acts.values().sum::<u64>(),
            outcome.requests,
            outcome.waits.shown()
        ));
    }
}

fn conclude(plan: &Plan, done: &[NeighboursOutcome], took: Duration) -> Result<()> {
    let waits = done
        .iter()
        .fold(Waits::default(), |waits, one| waits.and(&one.waits));
    let sum = |of: fn(&NeighboursOutcome) -> u64| done.iter().map(of).sum::<u64>();
    let resident = done.iter().map(|one| one.resident_bytes_max).max();
    progress("");
    say(&format!(
        "{} runs in {:.0} s: {} documents of good clients in {} requests, beside {} hostile acts; {}; the gateway held {} MiB \
         at most",
        done.len(),
        took.as_secs_f64(),
        sum(|one| one.documents as u64),
        sum(|one| one.requests as u64),
        sum(|one| one.acts.values().sum()),
        waits.shown(),
        resident.unwrap_or_default() >> 20,
    ));
    let flawed: Vec<String> = done
        .iter()
        .filter_map(|one| Some(format!("{}: {}", one.seed, one.flaws.first()?.what)))
        .collect();
    let mut acts = Acts::new();
    for (name, count) in done.iter().flat_map(|one| &one.acts) {
        *acts.entry(*name).or_default() += count;
    }
    let mut behaviours = hostile::wanted(plan.only.as_deref())?;
    behaviours.retain(|one| !plan.real || !one.needs_users);
    hostile::check_acts(&behaviours, &acts)?;
    if !flawed.is_empty() {
        bail!(
            "{} of {} runs have flaws: seed {}",
            flawed.len(),
            done.len(),
            flawed.join("; seed ")
        );
    }
    // Real clusters differ in speed, and their runs are long: each run is judged by itself.
    let flaw = match plan.real {
        true => done.iter().find_map(|one| one.waits.flaw(REAL_WAIT_FREE)),
        false => waits.flaw(FAKE_WAIT_FREE),
    };
    if let Some(flaw) = flaw {
        bail!(flaw);
    }
    say(&paint(Look::Good, "good clients did not notice their neighbours"));
    Ok(())
}

const GOOD_CLIENTS: usize = 4;
const HOSTILE_CLIENTS: u32 = 3;
const WARM_UP: Duration = Duration::from_millis(150);
const FAKE_QUIET: Duration = Duration::from_millis(150);
const FAKE_HOSTILE: Duration = Duration::from_millis(200);
const FAKE_ROUNDS: u32 = 2;
const FAKE_HOSTILE_LONG: Duration = Duration::from_millis(2_000);
const LONG_ONE_IN: u64 = 20;
const REAL_QUIET: Duration = Duration::from_secs(5);
const REAL_HOSTILE: Duration = Duration::from_secs(7);
/// The wait below which a good client's wait is no flaw, without the machine's own stalls and whatever the
/// wait was alone. Several runs share two cores with all their clients and clusters, a scheduler lets a
/// thread wait for tens of milliseconds there, and the gateway is not optimised.
const FAKE_WAIT_FREE: Duration = Duration::from_millis(40);
const REAL_WAIT_FREE: Duration = Duration::from_millis(100);
const FLAWS_SHOWN: usize = 8;
