//! `./dev bench --capacity`: measures whether delivery finds out how many requests a node takes at once, and
//! follows when that number changes.
//!
//! A fake node works on a certain number of bulks at once, for the same time each. It lets twice as many
//! wait, and refuses the rest with 429. The queue before the node has a backlog, and more lanes than the node
//! ever takes requests. The node's capacity changes again and again, up and down. After each change the
//! gateway has some seconds; then the bench measures how much of the node's capacity is used, how many
//! requests are at the node on average, and how many were refused since the change.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use testkit::client::Client;
use testkit::fake::{Behaviour, Counts, FakeCluster, Spec, Workers};

use crate::gateway::Gateway;

/// The numbers of requests that the node works on at once, one after the other.
const CAPACITIES: [usize; 7] = [8, 3, 12, 4, 24, 16, 6];
/// How long the node works on one request.
const WORKED_FOR: Duration = Duration::from_millis(60);
/// How long the gateway has after a change.
const SETTLE: Duration = Duration::from_secs(4);
const MEASURE: Duration = Duration::from_secs(6);
/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// How far the found capacity may be off.
const OFF_MAX: f64 = 0.2;
/// The share of requests that may be refused.
const REFUSED_MAX: f64 = 0.02;
const LANES: usize = 64;
const DOCS_A_REQUEST: usize = 10;

/// The outcome of one change.
struct ChangeResult {
    capacity: usize,
    /// Work done, as a share of the work that could have been done.
    used: f64,
    /// The average number of requests at the node, including those that waited there.
    there: f64,
    refused: f64,
    /// The time from the change until the work done was first close enough to the possible work.
    after: Option<Duration>,
}

/// Measures and prints the table.
pub(super) fn run() -> Result<()> {
    let spec = Spec {
        nodes: 1,
        behaviour: behaviour(CAPACITIES[0]),
        ..Spec::default()
    };
    let cluster = FakeCluster::start(spec.index("logs", LANES as u32))?;
    let data = std::env::temp_dir().join(format!("tidegate-capacity-{}", std::process::id()));
    let gateway = Gateway::with_file("capacity.yml", &|listen, admin| {
        format!(
            "path.data: {}
admin: {{binding: '{admin}'}}
entry: [{{name: e, router: r, network: {{binding: '{listen}'}}}}]
router: [{{name: r, default_flow: f}}]
flow:
  - name: f
    filter:
      - bulk_reshuffle: {{elasticsearch: c, mode: async, queue: {{name: q, lanes: {LANES}, min_free: 1mb, fsync: os}}}}
      - elasticsearch: {{elasticsearch: c}}
pipeline:
  - name: p
    retry_delay_in_ms: 50
    processor:
      - bulk_indexing: {{max_connection_per_node: {LANES}, max_worker_size: {LANES}, bulk.batch_size_in_docs: {DOCS_A_REQUEST}}}
elasticsearch: [{{name: c, endpoint: '{}'}}]
",
            data.display(),
            cluster.urls()[0]
        )
    })?;
    let measured = measure(&cluster, &gateway);
    drop(gateway);
    // The remains are small, and in the system's own temporary folder.
    let _ = std::fs::remove_dir_all(&data);
    let found = measured?;
    super::say(&table(&found));
    for one in &found {
        let limit = one.capacity as f64 * (1.0 + OFF_MAX) + 1.0;
        ensure!(
            one.used >= 1.0 - OFF_MAX && one.there <= limit,
            "{} at once was not found within 20 %",
            one.capacity
        );
        ensure!(
            one.refused <= REFUSED_MAX,
            "{:.1} % of the requests were refused",
            one.refused * 100.0
        );
    }
    Ok(())
}

fn measure(cluster: &FakeCluster, gateway: &Gateway) -> Result<Vec<ChangeResult>> {
    let client = Client::new(gateway.url())?;
    let lasts = (SETTLE + MEASURE).as_secs_f64() * 2.5;
    let requests: usize = CAPACITIES.iter().sum::<usize>() * (lasts / WORKED_FOR.as_secs_f64()) as usize;
    let docs_a_bulk = LANES * DOCS_A_REQUEST;
    for bulk in 0..requests * DOCS_A_REQUEST / docs_a_bulk {
        let line = |n: usize| {
            format!("{{\"index\":{{\"_index\":\"logs\",\"_id\":\"{bulk}-{n}\"}}}}\n{{\"n\":{n}}}\n")
        };
        let body: String = (0..docs_a_bulk).map(line).collect();
        client.post_ndjson("/_bulk", body.as_bytes())?.ok()?;
    }
    let mut found = Vec::new();
    for capacity in CAPACITIES {
        cluster.set_behaviour(behaviour(capacity));
        cluster.reset_counts();
        let changed = Instant::now();
        let mut after = None;
        let mut last = cluster.counts();
        while changed.elapsed() < SETTLE {
            thread::sleep(LOOK);
            let now = cluster.counts();
            let could = capacity as f64 * LOOK.as_secs_f64() * 1e3;
            if after.is_none() && (now.worked_ms - last.worked_ms) as f64 >= could * (1.0 - OFF_MAX) {
                after = Some(changed.elapsed());
            }
            last = now;
        }
        let turning = cluster.counts();
        cluster.reset_counts();
        let began = Instant::now();
        thread::sleep(MEASURE);
        let (counts, lasted) = (cluster.counts(), began.elapsed().as_secs_f64() * 1e3);
        found.push(ChangeResult {
            capacity,
            used: counts.worked_ms as f64 / (capacity as f64 * lasted),
            there: (counts.worked_ms + counts.waited_ms) as f64 / lasted,
            refused: refused(&turning, &counts),
            after,
        });
    }
    let left = Client::new(gateway.admin())?.get("/queue/stats")?.ok()?.json()?;
    let pending = left["q"]["groups"]["c"]["pending"].as_u64();
    ensure!(pending > Some(0), "there was not work all the while");
    Ok(found)
}

fn refused(turning: &Counts, counts: &Counts) -> f64 {
    let refused = turning.bulks_refused + counts.bulks_refused;
    refused as f64 / (turning.bulks + counts.bulks + refused).max(1) as f64
}

fn behaviour(at_once: usize) -> Behaviour {
    Behaviour {
        latency: WORKED_FOR,
        workers: Some(Workers {
            at_once,
            waiting_max: 2 * at_once,
        }),
        ..Behaviour::default()
    }
}

fn table(found: &[ChangeResult]) -> String {
    let mut table = String::from(
        "| the node works on at once | used of that | requests there, on average | refused since the change | four fifths used after |\n|---|---|---|---|---|\n",
    );
    for one in found {
        let after = one
            .after
            .map_or("-".to_owned(), |after| format!("{:.1} s", after.as_secs_f64()));
        table += &format!(
            "| {} | {:.0} % | {:.1} | {:.2} % | {after} |\n",
            one.capacity,
            one.used * 100.0,
            one.there,
            one.refused * 100.0,
        );
    }
    table
}
