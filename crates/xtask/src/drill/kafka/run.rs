//! One run: load and trouble at the same time, then everything is mended and delivered, then the checker.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use fastrand::Rng;
use parking_lot::Mutex;
use serde_json::Value;
use testkit::broker::Broker;
use testkit::client::Client;

use super::target::Gateways;
use super::troubles::{TroubleRun, of_brokers, of_clusters, of_gateways, of_names};
use crate::drill::check::{Account, Flaw, FlawKind, Holding, Order, Tally, check};
use crate::drill::gateway_under_test::GatewayUnderTest;
use crate::drill::ledger::Ledger;
use crate::drill::load::Load;
use crate::drill::run::{DrillOutcome, letters};
use crate::drill::schedule::{Schedule, Setup};
use crate::drill::world::Cluster;

/// The outcome of a run, and its numbers.
#[derive(serde::Serialize)]
pub(super) struct Report {
    pub(super) outcome: DrillOutcome,
    /// Documents in the topic at the end, acknowledged or not.
    pub(super) in_topic: u64,
    /// How often lanes were assigned to a gateway.
    pub(super) assignments: usize,
    /// Commits of lanes that were refused, although the brokers have them.
    pub(super) refused_and_taken: usize,
    pub(super) happened: BTreeMap<&'static str, u64>,
}

/// A gateway of a run, and whether clients write to it now.
pub(super) struct Gateway {
    pub(super) place: GatewayUnderTest,
    pub(super) up: AtomicBool,
}

/// The state that all parts of a run share.
struct Run<'a> {
    seed: u64,
    setup: Setup,
    broker: Broker,
    clusters: Vec<Cluster>,
    /// The gateways; the last one comes and goes.
    gateways: Vec<Gateway>,
    ledger: Ledger,
    happened: Mutex<BTreeMap<&'static str, u64>>,
    say: &'a (dyn Fn(&str) + Sync),
}

/// Runs a seed. Any failure is a flaw.
pub(super) fn run(
    seed: u64,
    minutes: f64,
    (folder, program): (&Path, &Path),
    say: &(dyn Fn(&str) + Sync),
) -> Report {
    let begun = Instant::now();
    let mut report = Report {
        outcome: DrillOutcome {
            seed,
            flaws: Vec::new(),
            tally: Tally::default(),
            acts: 0,
            samples: 0,
            took_s: 0.0,
            folder: None,
        },
        in_topic: 0,
        assignments: 0,
        refused_and_taken: 0,
        happened: BTreeMap::new(),
    };
    let done = Run::make(seed, (folder, program), say).and_then(|run| {
        let done = run.all(Duration::from_secs_f64(minutes * 60.0), &mut report);
        report.happened = std::mem::take(&mut *run.happened.lock());
        done
    });
    if let Err(error) = done {
        let flaw = Flaw::new(FlawKind::Broken, format!("{error:#}"));
        report.outcome.flaws.push(flaw);
    }
    report.outcome.acts = report.happened.values().sum::<u64>() as usize;
    report.outcome.took_s = begun.elapsed().as_secs_f64();
    report
}

// === impl Gateway ===

impl Gateway {
    pub(super) fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    /// Starts the gateway, which needs a broker for that. While there is none, the gateway ends, and is
    /// started again.
    pub(super) fn start(&self) -> Result<()> {
        self.place.start()?;
        self.up.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn kill(&self) -> Result<()> {
        self.up.store(false, Ordering::Relaxed);
        self.check()?;
        self.place.kill()
    }

    pub(super) fn stop(&self) -> Result<()> {
        self.up.store(false, Ordering::Relaxed);
        self.check()?;
        self.place.stop()
    }

    fn check(&self) -> Result<()> {
        match self.place.has_crashed() {
            Some(crash) => bail!(crash),
            None => Ok(()),
        }
    }
}

impl<'a> Run<'a> {
    fn make(seed: u64, (folder, program): (&Path, &Path), say: &'a (dyn Fn(&str) + Sync)) -> Result<Self> {
        let setup = Setup {
            quota_kb: None,
            disk_mb: None,
            keyed: 0,
            writers: 4,
            shared_ids: 40,
            docs_max: 40,
            index_ms: 5_000,
            pause_ms: 25,
            lanes: LANES,
            ..Schedule::fake(seed, false).setup
        };
        let broker = Broker::cluster(3)?;
        let clusters = Cluster::fakes(&setup)?;
        let gateways = (0..3).map(|number| {
            let place = GatewayUnderTest::with(&folder.join(number.to_string()), program, |place| {
                configuration(place, &setup, broker.address(), &clusters)
            })?;
            let up = AtomicBool::new(false);
            Ok(Gateway { place, up })
        });
        let gateways = gateways.collect::<Result<_>>()?;
        Ok(Self {
            seed,
            setup,
            broker,
            clusters,
            gateways,
            ledger: Ledger::default(),
            happened: Mutex::default(),
            say,
        })
    }

    fn all(&self, load: Duration, report: &mut Report) -> Result<()> {
        self.ledger.next_process();
        for gateway in &self.gateways[..2] {
            gateway.start()?;
        }
        (self.say)("         the load begins");
        self.trouble(load)?;
        (self.say)("         load and trouble are over; waiting until all is delivered");
        for gateway in &self.gateways {
            if !gateway.is_up() {
                gateway.start()?;
            }
        }
        let admin = self.gateways[0].place.admin_client()?;
        let stats = self.drain(&admin)?;
        report.in_topic = in_topic(&admin)?;
        let holdings = self.holdings(&stats, report.in_topic)?;
        for gateway in &self.gateways {
            report.assignments += gateway.place.logged("lanes came from Kafka");
            report.refused_and_taken += gateway.place.logged("refused a commit that they have");
            gateway.stop()?;
        }
        let (flaws, tally) = check(&self.ledger.take(), &holdings, &HashSet::new(), Order::Answers);
        report.outcome.flaws.extend(flaws);
        report.outcome.tally = tally;
        Ok(())
    }

    /// Runs load and troubles until the time is over and everything is mended.
    fn trouble(&self, load: Duration) -> Result<()> {
        let (over, load_ends) = (AtomicBool::new(false), AtomicBool::new(false));
        let run = TroubleRun {
            begun: Instant::now(),
            over: &over,
            happened: &self.happened,
            say: self.say,
        };
        let rng = |number: u64| Rng::with_seed(self.seed.wrapping_mul(1_000).wrapping_add(number));
        let gateways = Gateways(&self.gateways);
        let is_long = load > SWAPS_FROM;
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..self.setup.writers as u64)
                .map(|number| {
                    let load = Load {
                        target: &gateways,
                        stop: &load_ends,
                        ledger: &self.ledger,
                        setup: &self.setup,
                        index: &self.clusters[0].index,
                        rng: rng(number),
                        moving: true,
                        begun: Instant::now(),
                    };
                    scope.spawn(move || load.write())
                })
                .collect();
            scope.spawn(|| {
                std::thread::sleep(load);
                over.store(true, Ordering::Relaxed);
            });
            let brokers = scope.spawn(|| of_brokers(&run, &self.broker, rng(500)));
            let clusters = scope.spawn(|| of_clusters(&run, &self.clusters, rng(501)));
            let names = scope.spawn(|| of_names(&run, &self.clusters, rng(503), is_long));
            // The gateways are started by this thread, since a gateway ends with the thread that started it.
            let gateways = of_gateways(&run, &self.gateways, rng(502));
            let joined =
                [brokers, clusters, names].map(|one| one.join().map_err(|_| anyhow!("a trouble panicked")));
            load_ends.store(true, Ordering::Relaxed);
            let wrote: Vec<_> = writers.into_iter().map(|one| one.join()).collect();
            gateways?;
            for one in joined {
                one??;
            }
            for one in wrote {
                one.map_err(|_| anyhow!("a writer panicked"))??;
            }
            Ok(())
        })
    }

    /// Waits until nothing is to be delivered and nothing is parked, and returns the accounts.
    fn drain(&self, admin: &Client) -> Result<Value> {
        let (mut last, mut moved) = (None, Instant::now());
        let mut nothing_since = None;
        loop {
            self.gateways.iter().try_for_each(Gateway::check)?;
            let stats = self.gateways[0].place.stats(admin)?;
            let left = (0..self.clusters.len()).map(|number| left(&stats["groups"][format!("c{number}")]));
            let left: Vec<u64> = left.collect::<Result<_>>()?;
            match left.iter().all(|left| *left == 0) {
                // The figures of other gateways are as old as the last look.
                true if nothing_since.get_or_insert_with(Instant::now).elapsed() > LOOKS => return Ok(stats),
                true => {}
                false => nothing_since = None,
            }
            if last.as_ref() != Some(&left) {
                (last, moved) = (Some(left), Instant::now());
            }
            if moved.elapsed() > STILL_MAX {
                self.gateways[0]
                    .place
                    .keep("accounts.json", &format!("{stats:#}\n"))?;
                bail!("nothing was delivered any more for {STILL_MAX:?}: {last:?}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn holdings(&self, stats: &Value, accepted: u64) -> Result<Vec<Holding>> {
        let others = self.ledger.indices();
        let one = |(number, cluster): (usize, &Cluster)| {
            let name = format!("c{number}");
            let mut seen = HashSet::new();
            let mut all = Vec::new();
            for gateway in &self.gateways {
                let found = letters(&gateway.place.admin_client()?, &name)?;
                // A letter may be there twice if a gateway wrote it and was gone before it committed.
                let is_new = |token: Option<u64>| token.is_none_or(|token| seen.insert(token));
                let mut is_new = is_new;
                all.extend(found.into_iter().filter(|letter| is_new(letter.token)));
            }
            Ok(Holding {
                docs: cluster.documents(&others).with_context(|| name.clone())?,
                account: account(&stats["groups"][&name], accepted)?,
                letters: all,
                name,
            })
        };
        self.clusters.iter().enumerate().map(one).collect()
    }
}

fn number(group: &Value, name: &str) -> Result<u64> {
    let number = group[name].as_u64();
    number.with_context(|| format!("no {name} in the account {group:.500}"))
}

fn left(group: &Value) -> Result<u64> {
    let states = ["pending_messages", "pending", "parked"];
    states.iter().map(|state| number(group, state)).sum()
}

/// Returns the account of a consumer group. The number of accepted documents is the number in the topic: each
/// gateway knows only what it has told its own clients since its last start.
fn account(group: &Value, accepted: u64) -> Result<Account> {
    let other = ["replayed", "purged", "skipped"].map(|state| number(group, state));
    Ok(Account {
        accepted,
        indexed: number(group, "indexed")?,
        dead: number(group, "dead")?,
        lost: number(group, "lost_messages")?,
        waiting: left(group)?,
        other: other.into_iter().sum::<Result<u64>>()?,
    })
}

/// Counts the documents in the topic, as its messages say.
fn in_topic(admin: &Client) -> Result<u64> {
    let mut documents = 0;
    for lane in 0..LANES {
        let mut from = Value::from(0);
        while !from.is_null() {
            let path = format!("/queue/q/records?lane={lane}&from={from}&limit=1000");
            let mut page = admin.get(&path)?.ok()?.json()?;
            let records = page["records"].as_array().context("records")?;
            documents += records
                .iter()
                .map(|record| number(record, "documents"))
                .sum::<Result<u64>>()?;
            from = page["next"].take();
        }
    }
    Ok(documents)
}

fn configuration(place: &GatewayUnderTest, setup: &Setup, brokers: &str, clusters: &[Cluster]) -> String {
    let mut text = format!(
        "path.data: '{}'
worker: {{drain_timeout: 2s}}
admin: {{binding: '{}'}}
entry: [{{name: e, router: r, network: {{binding: '{}'}}}}]
router: [{{name: r, default_flow: f}}]
flow:
  - name: f
    filter:
      - bulk_reshuffle:
          elasticsearch: c0
          mode: async
          queue: {{name: q, type: kafka, brokers: ['{}'], topic: {TOPIC}, partitions: {LANES}, replication_factor: 3, \
         ack_timeout: 3s, session_timeout: 3s}}
      - elasticsearch: {{elasticsearch: c0}}
pipeline:
",
        place.disk().join("data").display(),
        place.admin_at(),
        place.listens_at(),
        brokers.replace(',', "', '"),
    );
    for number in 0..clusters.len() {
        text.push_str(&format!(
            "  - {{name: p{number}, retry_delay_in_ms: 20, processor: [{{bulk_indexing: {{elasticsearch: c{number}, \
             bulk: {{batch_size_in_docs: {}}}}}}}]}}\n",
            setup.batch_docs
        ));
    }
    text.push_str("elasticsearch:\n");
    for (number, cluster) in clusters.iter().enumerate() {
        let urls = cluster.urls().join("', '");
        text.push_str(&format!(
            "  - {{name: c{number}, endpoints: ['{urls}'], discovery: {{refresh: {{interval: 100ms}}}}}}\n"
        ));
    }
    text
}

/// Number of partitions of the topic.
pub(super) const LANES: u32 = 8;
pub(super) const TOPIC: &str = "drill";
/// In runs that are longer than this the alias is swapped, too.
const SWAPS_FROM: Duration = Duration::from_secs(30);
/// The greatest age of what a gateway reports about other gateways' lanes.
const LOOKS: Duration = Duration::from_secs(5);
/// A delivery that does not advance for this time has stopped.
const STILL_MAX: Duration = Duration::from_secs(75);
