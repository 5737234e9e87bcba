//! The troubles of brokers, gateways and clusters, and the names that come to lead elsewhere. Each of the
//! four has one trouble after another, all at the same time. A trouble is over when its function returns;
//! then everything but the names is as it was before.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use parking_lot::Mutex;
use testkit::broker::Broker;

use super::run::{Gateway, LANES, TOPIC};
use crate::drill::world::Cluster;

/// The troubles of a run under way.
pub(super) struct TroubleRun<'r> {
    pub(super) begun: Instant,
    pub(super) over: &'r AtomicBool,
    pub(super) happened: &'r Mutex<BTreeMap<&'static str, u64>>,
    pub(super) say: &'r (dyn Fn(&str) + Sync),
}

impl TroubleRun<'_> {
    /// Runs one of these troubles after the other, in an order that differs each round, until the run is
    /// over.
    fn go_on<T: Copy>(
        &self,
        rng: &mut Rng,
        troubles: &[(&'static str, T)],
        act: impl Fn(T, &mut Rng) -> Result<()>,
    ) -> Result<()> {
        let mut round = Vec::new();
        loop {
            sleep(Duration::from_millis(rng.u64(200..1_500)));
            if self.over.load(Ordering::Relaxed) {
                return Ok(());
            }
            if round.is_empty() {
                round = troubles.to_vec();
                rng.shuffle(&mut round);
            }
            let Some((name, trouble)) = round.pop() else {
                continue;
            };
            (self.say)(&format!("{:>7.1} s  {name}", self.begun.elapsed().as_secs_f64()));
            *self.happened.lock().entry(name).or_default() += 1;
            act(trouble, rng).context(name)?;
        }
    }
}

fn between(rng: &mut Rng, from_ms: u64, to_ms: u64) {
    sleep(Duration::from_millis(rng.u64(from_ms..=to_ms)));
}

// === brokers

#[derive(Clone, Copy)]
enum OfBrokers {
    Kill,
    KillLeader,
    Pause,
    KillTwo,
    KillAll,
}

/// Runs the troubles of brokers. A broker that has returned leads nothing for some minutes, so one of the
/// troubles asks for the leader of a partition, and kills that.
pub(super) fn of_brokers(run: &TroubleRun<'_>, broker: &Broker, mut rng: Rng) -> Result<()> {
    let troubles = [
        ("broker killed", OfBrokers::Kill),
        ("partition's leader killed", OfBrokers::KillLeader),
        ("broker paused", OfBrokers::Pause),
        ("two brokers killed", OfBrokers::KillTwo),
        ("all brokers killed", OfBrokers::KillAll),
    ];
    run.go_on(&mut rng, &troubles, |trouble, rng| {
        let mut numbers = vec![1, 2, 3];
        rng.shuffle(&mut numbers);
        let killed = match trouble {
            OfBrokers::Pause => {
                broker.pause_one(numbers[0])?;
                between(rng, 1_000, 8_000);
                return broker.resume_one(numbers[0]);
            }
            OfBrokers::Kill => 1,
            OfBrokers::KillLeader => {
                let leader = leader(broker, rng.i32(0..LANES as i32))?;
                numbers.retain(|number| *number != leader);
                numbers.insert(0, leader);
                1
            }
            OfBrokers::KillTwo => 2,
            OfBrokers::KillAll => 3,
        };
        broker.kill_some(&numbers[..killed])?;
        between(rng, 500, 4_000);
        broker.start_some(&numbers[..killed])?;
        // The broker has to catch up before the next one goes. Besides, gateways should also have troubles
        // while the brokers are well.
        between(rng, 4_000, 10_000);
        Ok(())
    })
}

/// Returns the broker that leads a partition, as soon as one does.
fn leader(broker: &Broker, partition: i32) -> Result<usize> {
    let asked = Instant::now();
    loop {
        if let Some(leader) = broker.leader_of(TOPIC, partition) {
            return Ok(leader);
        }
        ensure!(
            asked.elapsed() < LEADERLESS_MAX,
            "partition {partition} has no leader"
        );
        sleep(Duration::from_millis(100));
    }
}

/// The longest time for which brokers that are all there may not have found a leader.
const LEADERLESS_MAX: Duration = Duration::from_secs(60);

// === gateways

#[derive(Clone, Copy)]
enum OfGateways {
    Kill,
    Stop,
    Freeze,
    Add,
    Storm,
}

/// Runs the troubles of gateways: two are there always, except for moments, and the third comes and goes.
pub(super) fn of_gateways(run: &TroubleRun<'_>, gateways: &[Gateway], mut rng: Rng) -> Result<()> {
    let troubles = [
        ("gateway killed", OfGateways::Kill),
        ("gateway killed", OfGateways::Kill),
        ("gateway stopped", OfGateways::Stop),
        ("gateway frozen", OfGateways::Freeze),
        ("gateway added and removed", OfGateways::Add),
        ("rebalance storm", OfGateways::Storm),
    ];
    let (third, always) = gateways.split_last().context("there are gateways")?;
    run.go_on(&mut rng, &troubles, |trouble, rng| {
        let one = rng.choice(always).context("there are two")?;
        match trouble {
            OfGateways::Kill => {
                one.kill()?;
                between(rng, 100, 4_000);
                one.start()
            }
            OfGateways::Stop => {
                one.stop()?;
                between(rng, 100, 2_000);
                one.start()
            }
            OfGateways::Freeze => {
                one.up.store(false, Ordering::Relaxed);
                one.place.pause()?;
                // In most cases longer than its session lasts.
                between(rng, 2_000, 8_000);
                one.place.resume()?;
                one.up.store(true, Ordering::Relaxed);
                Ok(())
            }
            OfGateways::Add => {
                third.start()?;
                between(rng, 3_000, 8_000);
                third.stop()
            }
            OfGateways::Storm => {
                for _ in 0..3 {
                    third.start()?;
                    between(rng, 300, 1_500);
                    match rng.bool() {
                        true => third.kill()?,
                        false => third.stop()?,
                    }
                }
                Ok(())
            }
        }
    })
}

// === clusters

#[derive(Clone, Copy)]
enum OfClusters {
    Busy,
    BusyItems,
    Close,
    LoseAnswers,
    KillNode,
    Down,
}

/// Runs the troubles of the clusters; those that concern one index park its documents meanwhile.
pub(super) fn of_clusters(run: &TroubleRun<'_>, clusters: &[Cluster], mut rng: Rng) -> Result<()> {
    let troubles = [
        ("cluster busy", OfClusters::Busy),
        ("items refused", OfClusters::BusyItems),
        ("index closed", OfClusters::Close),
        ("index closed", OfClusters::Close),
        ("answers lost", OfClusters::LoseAnswers),
        ("node killed", OfClusters::KillNode),
        ("cluster away", OfClusters::Down),
    ];
    run.go_on(&mut rng, &troubles, |trouble, rng| {
        let cluster = rng.choice(clusters).context("there are two")?;
        let all: Vec<usize> = (0..cluster.urls().len()).collect();
        match trouble {
            OfClusters::Busy | OfClusters::BusyItems => {
                cluster.busy(matches!(trouble, OfClusters::BusyItems))?;
                between(rng, 300, 2_000);
                cluster.calm()
            }
            OfClusters::Close => {
                cluster.close(true)?;
                between(rng, 500, 5_000);
                cluster.close(false)
            }
            OfClusters::LoseAnswers => {
                cluster.lose_answers(rng.u32(1..=8));
                Ok(())
            }
            OfClusters::KillNode | OfClusters::Down => {
                let killed = match trouble {
                    OfClusters::Down => all,
                    _ => vec![rng.usize(..all.len())],
                };
                cluster.kill(&killed)?;
                between(rng, 300, 2_000);
                cluster.start(&killed)
            }
        }
    })
}

// === names

#[derive(Clone, Copy)]
enum OfNames {
    Roll,
    Swap,
    MakeAgain,
}

/// Changes where the names lead that clients write through, each time for a while. The alias is swapped in
/// long runs only: each time the other moves have to wait.
pub(super) fn of_names(
    run: &TroubleRun<'_>,
    clusters: &[Cluster],
    mut rng: Rng,
    is_long: bool,
) -> Result<()> {
    let second = match is_long {
        true => ("alias swapped", OfNames::Swap),
        false => ("alias rolled over", OfNames::Roll),
    };
    let troubles = [
        ("alias rolled over", OfNames::Roll),
        second,
        ("index made again", OfNames::MakeAgain),
    ];
    run.go_on(&mut rng, &troubles, |trouble, rng| {
        let cluster = rng.choice(clusters).context("there are two")?;
        let shards = rng.u32(1..=6);
        match trouble {
            OfNames::Roll => cluster.move_alias(shards, true)?,
            // A gateway that is killed before it has seen a swap cannot have written it down, so the alias
            // does not move again at once.
            OfNames::Swap => {
                between(rng, 6_000, 8_000);
                clusters[0].move_alias(shards, false)?;
                between(rng, 4_000, 6_000);
            }
            OfNames::MakeAgain => cluster.make_again(shards)?,
        }
        between(rng, 500, 2_500);
        Ok(())
    })
}
