//! The cluster and the gateway of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use testkit::client::Client;
use testkit::fake::{Behaviour, FakeCluster, Flavour, Spec, Unfit, User};
use testkit::real::RealCluster;

use super::good::Told;
use super::hostile::FORBIDDEN;
use super::verdict::Observations;
use crate::drill::gateway_under_test::{GatewayUnderTest, free_address};
use crate::drill::world::{scroll, token_of};
use crate::drill::{CLUSTERS, accounts};

/// A cluster, fake or real.
pub(super) enum Fabric {
    /// A fake cluster, and whether it has users with rights.
    Fake(FakeCluster, bool),
    /// A real cluster that lets everybody do everything.
    Real(RealCluster),
}

/// A gateway with an entry before a queue, and one straight to the cluster.
pub(super) struct Gateway {
    place: GatewayUnderTest,
    queued: SocketAddr,
    straight: SocketAddr,
    admin: SocketAddr,
}

// === impl Fabric ===

impl Fabric {
    /// Starts a fake cluster; the seed decides which server it imitates, and whether it has users.
    pub(super) fn fake(seed: u64) -> Result<Self> {
        let behaviour = Behaviour {
            unfit: Some(Unfit {
                holds: "\"n\":\"unfit".to_owned(),
                status: 400,
                error: r#"{"type":"mapper_parsing_exception","reason":"failed to parse field [n]"}"#
                    .to_owned(),
            }),
            ..Behaviour::default()
        };
        let spec = Spec {
            nodes: 2,
            behaviour,
            ..Spec::default()
        };
        let spec = spec.flavour(FLAVOURS[seed as usize % FLAVOURS.len()]);
        let all = GOOD.iter().chain(&HOSTILE);
        let mut spec = all.fold(spec, |spec, index| spec.index(index, 3));
        // Each kind of server comes with users and without.
        let secured = (seed / FLAVOURS.len() as u64).is_multiple_of(2);
        if secured {
            let (user, password) = GATEWAY_ACCOUNT;
            let writer = |name: &str| User::new(name, password).token(name);
            spec = spec
                .basic_auth(user, password)
                .user(writer("good").may("good*", &WRITES).may("control", &WRITES))
                .user(writer("hostile").token("renewed").may("hostile*", &WRITES))
                .user(writer("reader"));
        }
        let cluster = FakeCluster::start(spec.storing())?;
        cluster.require_routing(ROUTED);
        Ok(Fabric::Fake(cluster, secured))
    }

    /// Takes a real cluster that tests use as well, while nobody else uses it; the seed decides which.
    pub(super) fn real(seed: u64) -> Result<Self> {
        let kind = CLUSTERS[(seed as usize + 1) % CLUSTERS.len()];
        let cluster = RealCluster::alone(kind).context("a real cluster")?;
        let fabric = Fabric::Real(cluster);
        fabric.clear()?;
        let client = fabric.client()?;
        for index in GOOD.iter().chain(&HOSTILE) {
            let mut settings = json!({
                "settings": {"number_of_shards": 3, "number_of_replicas": 0},
                "mappings": {"properties": {"w": {"type": "long"}, "n": {"type": "long"}}},
            });
            if *index == ROUTED {
                settings["mappings"]["_routing"] = json!({"required": true});
            }
            client.put(&format!("/{index}"), &settings)?.ok()?;
        }
        if let Fabric::Real(cluster) = &fabric {
            cluster.wait_green()?;
        }
        Ok(fabric)
    }

    /// Whether the cluster has users with rights of their own. Each is known by a token, which is its name.
    pub(super) fn is_secured(&self) -> bool {
        matches!(self, Fabric::Fake(_, true))
    }

    pub(super) fn urls(&self) -> Vec<String> {
        match self {
            Fabric::Fake(cluster, _) => cluster.urls(),
            Fabric::Real(cluster) => cluster.urls(),
        }
    }

    pub(super) fn client(&self) -> Result<Client> {
        match self {
            Fabric::Fake(cluster, _) => {
                let (user, password) = GATEWAY_ACCOUNT;
                Ok(Client::new(&cluster.urls()[0])?.basic_auth(user, password))
            }
            Fabric::Real(cluster) => cluster.client(),
        }
    }

    /// Returns how many times longer things take than on fake clusters.
    pub(super) fn slowness(&self) -> u32 {
        match self {
            Fabric::Fake(..) => 1,
            Fabric::Real(_) => 5,
        }
    }

    /// Returns the pause between two requests of one client.
    pub(super) fn pause(&self) -> Duration {
        Duration::from_millis(5) * self.slowness()
    }

    /// Whether an index is there that every request for it has forbidden to create.
    pub(super) fn has_forbidden(&self) -> Result<bool> {
        let found = self.client()?.get(&format!("/{FORBIDDEN}/_search"))?;
        Ok(found.status != 404)
    }

    fn docs(&self, index: &str) -> Result<BTreeMap<String, u64>> {
        Ok(match self {
            Fabric::Fake(cluster, _) => {
                let token = |source: &str| token_of(&serde_json::from_str(source).unwrap_or_default());
                let docs = cluster.docs(index).into_iter();
                docs.map(|(id, doc)| (id, token(&doc.source))).collect()
            }
            Fabric::Real(cluster) => scroll(&cluster.client()?, index)?.into_iter().collect(),
        })
    }

    /// Removes what a run left in a real cluster.
    pub(super) fn clear(&self) -> Result<()> {
        if let Fabric::Real(cluster) = self {
            let client = cluster.client()?;
            for index in GOOD {
                client.delete(&format!("/{index}"))?;
            }
            let listed = client.get("/_cat/indices/hostile*?h=index&expand_wildcards=all")?;
            for index in listed.text().split_whitespace() {
                client.delete(&format!("/{index}"))?;
            }
        }
        Ok(())
    }
}

// === impl Gateway ===

impl Gateway {
    pub(super) fn start(folder: &Path, program: &Path, fabric: &Fabric) -> Result<Self> {
        let straight = free_address()?;
        let place = GatewayUnderTest::with(folder, program, |place| configuration(place, &straight, fabric))?;
        place.start()?;
        let gateway = Self {
            queued: place.listens_at().parse()?,
            straight: straight.parse()?,
            admin: place.admin_at().parse()?,
            place,
        };
        let until = Instant::now() + START_MAX;
        while gateway.state()? != "watching" && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        ensure!(
            gateway.state()? == "watching",
            "the gateway does not know the cluster"
        );
        Ok(gateway)
    }

    fn state(&self) -> Result<Value> {
        let mut all = self.place.admin_client()?.get("/elasticsearch")?.json()?;
        Ok(all["c"]["state"].take())
    }

    pub(super) fn url(&self, queued: bool) -> String {
        format!("http://{}", self.entry(queued))
    }

    pub(super) fn entry(&self, queued: bool) -> SocketAddr {
        if queued { self.queued } else { self.straight }
    }

    pub(super) fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Returns the gateway's peak memory.
    pub(super) fn resident_bytes_max(&self) -> u64 {
        self.place.resident_bytes_max().unwrap_or_default()
    }

    pub(super) fn has_crashed(&self) -> Option<String> {
        self.place.has_crashed()
    }

    pub(super) fn last_words(&self) -> String {
        self.place.last_words()
    }

    /// Looks at the gateway until it is told to stop, as health checks do: with a new connection each time.
    pub(super) fn watch(&self, stop: &AtomicBool) -> Observations {
        let mut seen = Observations::default();
        while !stop.load(Ordering::SeqCst) {
            let began = Instant::now();
            match self.look(&mut seen) {
                Ok(()) => seen.looks.push((began, began.elapsed())),
                Err(error) => seen.looks_failed.push(format!("{error:#}")),
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
        seen
    }

    /// Returns what the gateway says of its queue.
    pub(super) fn queue(&self) -> String {
        let stats = self
            .place
            .admin_client()
            .and_then(|admin| self.place.stats(&admin));
        stats.map_or_else(|why| format!("{why:#}"), |stats| stats.to_string())
    }

    fn look(&self, seen: &mut Observations) -> Result<()> {
        self.place.admin_client()?.get("/metrics")?.ok()?;
        let queue = self.place.stats(&self.place.admin_client()?)?;
        let flaws = accounts::flaws(&queue, 0, 1);
        seen.accounts.extend(flaws.into_iter().map(|flaw| flaw.what));
        Ok(())
    }

    /// Waits until the cluster has all documents that good clients were told are written. Returns those that
    /// are missing after a while.
    pub(super) fn wait_for(&self, fabric: &Fabric, told: &[Told]) -> Result<Vec<String>> {
        let until = Instant::now() + DELIVERED_WITHIN;
        loop {
            let indices: BTreeSet<&str> = told
                .iter()
                .map(|one| one.index)
                .filter(|index| !index.is_empty())
                .collect();
            let mut missing = Vec::new();
            for index in indices {
                let docs = fabric.docs(index)?;
                let of_index = told.iter().filter(|one| one.index == index);
                for (id, token) in of_index.flat_map(|one| &one.written) {
                    if docs.get(id) != Some(token) {
                        missing.push(format!("{index}/{id}"));
                    }
                }
            }
            if missing.is_empty() || Instant::now() > until {
                return Ok(missing);
            }
            std::thread::sleep(Duration::from_millis(20) * fabric.slowness());
        }
    }
}

fn configuration(place: &GatewayUnderTest, straight: &str, fabric: &Fabric) -> String {
    let (user, password) = GATEWAY_ACCOUNT;
    let account = match fabric.is_secured() {
        true => format!(", basic_auth: {{username: {user}, password: {password}}}"),
        false => String::new(),
    };
    format!(
        "path.data: '{}'
worker: {{drain_timeout: 2s}}
admin: {{binding: '{}'}}
entry:
  - {{name: queued, router: queued, network: {{binding: '{}'}}, max_concurrency: {CONNECTIONS_MAX}}}
  - {{name: straight, router: straight, network: {{binding: '{straight}'}}, max_concurrency: {CONNECTIONS_MAX}}}
router: [{{name: queued, default_flow: queued}}, {{name: straight, default_flow: straight}}]
flow:
  - name: queued
    filter:
      - bulk_reshuffle: {{elasticsearch: c, mode: async, queue: {{name: q, lanes: 8, fsync: os, min_free: 1mb}}, \
         idempotency: {{enabled: true}}}}
      - elasticsearch: {{elasticsearch: c}}
  - name: straight
    filter:
      - bulk_reshuffle: {{elasticsearch: c, mode: sync, combine: {{enabled: true}}}}
      - elasticsearch: {{elasticsearch: c}}
pipeline: [{{name: p, retry_delay_in_ms: 50, processor: [{{bulk_indexing: {{elasticsearch: c}}}}]}}]
elasticsearch: [{{name: c, endpoints: ['{}']{account}}}]
",
        place.disk().join("data").display(),
        place.admin_at(),
        place.listens_at(),
        fabric.urls().join("', '"),
    )
}

const GOOD: [&str; 3] = ["good", "good-sync", "control"];
const ROUTED: &str = "hostile-routed";
/// The indices that exist from the start.
const HOSTILE: [&str; 10] = [
    "hostile",
    "hostile-blocked",
    "hostile-closed",
    ROUTED,
    "hostile-a",
    "hostile-b",
    "hostile-c",
    "hostile-d",
    "hostile-e",
    "hostile-f",
];
/// The account that may do everything, where there are users.
const GATEWAY_ACCOUNT: (&str, &str) = ("gateway", "tide");
const WRITES: [&str; 5] = ["index", "create", "update", "delete", "manage"];
const FLAVOURS: [Flavour; 3] = [
    Flavour::OpenSearch3,
    Flavour::Elasticsearch7,
    Flavour::Elasticsearch9,
];
/// Few connections, so that hostile clients can reach the limit.
const CONNECTIONS_MAX: u32 = 120;
const START_MAX: Duration = Duration::from_secs(20);
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
const DELIVERED_WITHIN: Duration = Duration::from_secs(20);
