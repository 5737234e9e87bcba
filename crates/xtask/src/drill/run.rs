//! One run: load and trouble at the same time, then everything is mended and delivered, then the checker.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use fastrand::Rng;
use serde_json::Value;
use testkit::client::Client;

use super::accounts;
use super::check::{Flaw, FlawKind, Holding, Letter, Order, Tally, check};
use super::damage::{SmallDisk, flip_bits};
use super::gateway_under_test::GatewayUnderTest;
use super::ledger::Ledger;
use super::load::Load;
use super::schedule::{Act, Role, Schedule};
use super::world::{Cluster, token_of};

/// The outcome of a run.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct DrillOutcome {
    pub(crate) seed: u64,
    pub(crate) flaws: Vec<Flaw>,
    pub(crate) tally: Tally,
    /// Number of acts that happened.
    pub(crate) acts: usize,
    /// How often the accounts were checked.
    pub(crate) samples: u64,
    pub(crate) took_s: f64,
    /// The run's folder, which is kept if there are flaws.
    pub(crate) folder: Option<PathBuf>,
}

/// The state that all parts of a run share.
struct Run<'a> {
    seed: u64,
    schedule: &'a Schedule,
    clusters: &'a [Cluster],
    gateway: GatewayUnderTest,
    disk: Option<SmallDisk>,
    ledger: Ledger,
    /// Called with what happens.
    say: &'a (dyn Fn(&str) + Sync),
}

/// Runs a schedule. Any failure is a flaw.
pub(crate) fn run(
    seed: u64,
    schedule: &Schedule,
    clusters: &[Cluster],
    (folder, program): (&Path, &Path),
    say: &(dyn Fn(&str) + Sync),
) -> DrillOutcome {
    let begun = Instant::now();
    let mut outcome = DrillOutcome {
        seed,
        flaws: Vec::new(),
        tally: Tally::default(),
        acts: schedule.acts.len(),
        samples: 0,
        took_s: 0.0,
        folder: None,
    };
    let done = Run::make(seed, schedule, clusters, (folder, program), say).and_then(|run| {
        let done = run.all(&mut outcome);
        if done.is_err() || !outcome.flaws.is_empty() {
            run.gateway.keep("schedule.txt", &format!("{schedule:#?}\n"))?;
        }
        done
    });
    if let Err(error) = done {
        outcome
            .flaws
            .push(Flaw::new(FlawKind::Broken, format!("{error:#}")));
    }
    outcome.took_s = begun.elapsed().as_secs_f64();
    outcome
}

impl<'a> Run<'a> {
    fn make(
        seed: u64,
        schedule: &'a Schedule,
        clusters: &'a [Cluster],
        (folder, program): (&Path, &Path),
        say: &'a (dyn Fn(&str) + Sync),
    ) -> Result<Self> {
        let gateway = GatewayUnderTest::make(folder, program, &schedule.setup, clusters)?;
        let disk = schedule
            .setup
            .disk_mb
            .map(|megabytes| SmallDisk::mount(&gateway.disk(), megabytes));
        Ok(Self {
            seed,
            schedule,
            clusters,
            gateway,
            disk: disk.transpose()?,
            ledger: Ledger::default(),
            say,
        })
    }

    fn all(&self, outcome: &mut DrillOutcome) -> Result<()> {
        self.ledger.next_process();
        self.gateway.start()?;
        let (load_ends, accounts_end) = (AtomicBool::new(false), AtomicBool::new(false));
        let mut damaged = HashSet::new();
        let (samples, flaws) = std::thread::scope(|scope| {
            let watch = scope
                .spawn(|| accounts::watch(&accounts_end, &self.gateway, &self.ledger, self.clusters.len()));
            let writers: Vec<_> = (0..self.schedule.setup.writers)
                .map(|number| {
                    let rng = Rng::with_seed(self.seed.wrapping_mul(1_000).wrapping_add(number as u64));
                    let keyed = number < self.schedule.setup.keyed;
                    let load = Load {
                        target: &self.gateway,
                        stop: &load_ends,
                        ledger: &self.ledger,
                        setup: &self.schedule.setup,
                        index: &self.clusters[0].index,
                        rng,
                        // A repeated answer would describe names that lead elsewhere by then.
                        moving: !keyed,
                        begun: Instant::now(),
                    };
                    scope.spawn(move || match keyed {
                        true => load.write_keyed(),
                        false => load.write(),
                    })
                })
                .collect();
            let acted = self.act(&mut damaged);
            load_ends.store(true, Ordering::Relaxed);
            let wrote: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            let drained = acted.and_then(|()| {
                for one in wrote {
                    one.map_err(|_| anyhow::anyhow!("a writer panicked"))??;
                }
                self.drain()
            });
            accounts_end.store(true, Ordering::Relaxed);
            let watched = watch
                .join()
                .map_err(|_| anyhow::anyhow!("the watch of the accounts panicked"))?;
            drained.map(|()| watched)
        })?;
        outcome.samples = samples;
        outcome.flaws.extend(flaws);
        if samples == 0 {
            bail!("nobody could look at the accounts");
        }
        let (holdings, others) = (self.holdings()?, self.ledger.indices());
        self.gateway.stop()?;
        self.clusters
            .iter()
            .try_for_each(|cluster| cluster.clear(&others))?;
        let (flaws, tally) = check(&self.ledger.take(), &holdings, &damaged, Order::Positions);
        outcome.flaws.extend(flaws);
        outcome.tally = tally;
        Ok(())
    }

    /// Executes the acts, each at its moment, under load until the end.
    fn act(&self, damaged: &mut HashSet<u64>) -> Result<()> {
        let begun = Instant::now();
        let sleep_until = |ms: u64| {
            let until = Duration::from_millis(ms);
            std::thread::sleep(until.saturating_sub(begun.elapsed()));
        };
        let mut broken = BTreeSet::new();
        for (number, (at, act)) in self.schedule.acts.iter().enumerate() {
            sleep_until(*at);
            // Real nodes take their time. When the load is over, what is broken is mended, and nothing new
            // begins.
            let is_over = begun.elapsed().as_millis() > u128::from(self.schedule.load_ms) + OVERTIME_MS;
            let is_due = match act.role() {
                Role::Breaks(part) => !is_over && broken.insert(part),
                Role::Mends(part) => broken.remove(&part),
                Role::Happens(part) => !is_over && part.is_none_or(|part| broken.contains(&part)),
            };
            if !is_due {
                continue;
            }
            (self.say)(&format!("{:>7.1} s  {act:?}", begun.elapsed().as_secs_f64()));
            let mut rng = Rng::with_seed(self.seed.wrapping_mul(1_000).wrapping_add(500 + number as u64));
            self.act_one(act, &mut rng, damaged)
                .with_context(|| format!("{act:?}"))?;
        }
        sleep_until(self.schedule.load_ms);
        Ok(())
    }

    fn act_one(&self, act: &Act, rng: &mut Rng, damaged: &mut HashSet<u64>) -> Result<()> {
        let cluster = |number: &usize| &self.clusters[*number];
        match act {
            Act::KillGateway | Act::StopGateway => {
                if let Some(crash) = self.gateway.has_crashed() {
                    bail!(crash);
                }
                match act {
                    Act::KillGateway => self.gateway.kill()?,
                    _ => self.gateway.stop()?,
                }
                self.clusters.iter().for_each(Cluster::settle);
                self.ledger.next_process();
            }
            Act::StartGateway => self.gateway.start()?,
            Act::FlipBits(count) => {
                let (folder, told) = (self.gateway.queue(), self.ledger.positions());
                let flipped = flip_bits(&folder, &told, (*count, &*damaged), rng)?;
                damaged.extend(flipped);
            }
            Act::KillNodes(number, nodes) => cluster(number).kill(nodes)?,
            Act::LoseNode(number, node) => cluster(number).lose(*node)?,
            Act::StartNodes(number, nodes) => cluster(number).start(nodes)?,
            Act::PauseNode(number, node) => cluster(number).pause(*node)?,
            Act::ResumeNode(number, node) => cluster(number).resume(*node)?,
            Act::MoveShards(number) => cluster(number).move_shards(rng)?,
            Act::Busy(number) => cluster(number).busy(false)?,
            Act::BusyItems(number) => cluster(number).busy(true)?,
            Act::Calm(number) => cluster(number).calm()?,
            Act::CloseIndex(number) => cluster(number).close(true)?,
            Act::OpenIndex(number) => cluster(number).close(false)?,
            Act::LosePrimaries(number) => cluster(number).lose_primaries(true),
            Act::FindPrimaries(number) => cluster(number).lose_primaries(false),
            Act::LoseAnswers(number, times) => cluster(number).lose_answers(*times),
            Act::SwapAlias(number, shards) => cluster(number).move_alias(*shards, false)?,
            Act::RollOver(number, shards) => cluster(number).move_alias(*shards, true)?,
            Act::Split(number, shards) => cluster(number).split(*shards)?,
            Act::MakeAgain(number, shards) => cluster(number).make_again(*shards)?,
            Act::FillDisk | Act::FreeDisk => {
                let disk = self.disk.as_ref().context("a small disk")?;
                match act {
                    Act::FillDisk => disk.fill()?,
                    _ => disk.free()?,
                }
            }
        }
        Ok(())
    }

    /// Waits until nothing is pending and nothing is parked.
    fn drain(&self) -> Result<()> {
        (self.say)("         load and trouble are over; waiting until all is delivered");
        let admin = self.gateway.admin_client()?;
        let (mut last, mut moved) = (None, Instant::now());
        loop {
            if let Some(crash) = self.gateway.has_crashed() {
                bail!(crash);
            }
            let queue = self.gateway.stats(&admin)?;
            let groups = queue["groups"].as_object().into_iter().flatten();
            // Parked documents are delivered apart from the lanes, and count as well.
            let left: Vec<Option<u64>> = groups.map(|(_, group)| accounts::waiting(group)).collect();
            if left.len() == self.clusters.len() && left.iter().all(|left| *left == Some(0)) {
                return Ok(());
            }
            if last.as_ref() != Some(&left) {
                (last, moved) = (Some(left), Instant::now());
            }
            if moved.elapsed() > STILL_MAX {
                self.gateway.keep("accounts.json", &format!("{queue:#}\n"))?;
                bail!(
                    "nothing was delivered any more for {STILL_MAX:?}: {}",
                    waiting(&queue)
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn holdings(&self) -> Result<Vec<Holding>> {
        let admin = self.gateway.admin_client()?;
        let (queue, others) = (self.gateway.stats(&admin)?, self.ledger.indices());
        let one = |(number, cluster): (usize, &Cluster)| {
            let name = format!("c{number}");
            let letters = letters(&admin, &name)?;
            Ok(Holding {
                docs: cluster.documents(&others).with_context(|| name.clone())?,
                account: accounts::account(&queue, &name)?,
                letters,
                name,
            })
        };
        self.clusters.iter().enumerate().map(one).collect()
    }
}

/// Returns the gateway's dead letters of a consumer group.
pub(super) fn letters(admin: &Client, group: &str) -> Result<Vec<Letter>> {
    let mut letters = Vec::new();
    let mut from = Value::from(0);
    while !from.is_null() {
        let path = format!("/dead_letters?queue=q&group={group}&limit=1000&from={from}");
        let mut page = admin.get(&path)?.ok()?.json()?;
        let listed = page["dead_letters"].as_array().context("dead letters")?;
        letters.extend(listed.iter().map(letter));
        from = page["next"].take();
    }
    Ok(letters)
}

fn letter(shown: &Value) -> Letter {
    let action = shown["action"]
        .as_object()
        .and_then(|action| action.values().next());
    let source = &shown["source"];
    let token = match token_of(source) {
        0 => token_of(&source["doc"]),
        token => token,
    };
    Letter {
        position: shown["origin"]["position"].as_u64().unwrap_or_default(),
        id: action
            .and_then(|action| action["_id"].as_str())
            .unwrap_or_default()
            .to_owned(),
        token: (token != 0).then_some(token),
        reason: shown["reason"].as_str().unwrap_or_default().to_owned(),
    }
}

/// Says which lanes wait, and for what.
fn waiting(queue: &Value) -> String {
    let groups = queue["groups"].as_object().into_iter().flatten();
    let lanes = groups.flat_map(|(name, group)| {
        let lanes = group["lanes"].as_array().into_iter().flatten().enumerate();
        lanes
            .filter(|(_, lane)| lane["doing"] != "idle")
            .map(move |(number, lane)| {
                format!("{name} lane {number} {} because {}", lane["doing"], lane["why"])
            })
    });
    lanes.collect::<Vec<_>>().join("; ")
}

/// How much later than the load's end a trouble may begin that was due before it.
const OVERTIME_MS: u128 = 500;
/// A delivery that does not advance for this time has stopped: waits between tries are 30 s at most.
const STILL_MAX: Duration = Duration::from_secs(75);
