//! Probing nodes that left the rotation, until they answer.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use wire::Origin;
use wire::guard::{self, Work, fault};

use crate::address::Address;
use crate::ask::Asker;
use crate::health::NodeOutcome;
use crate::inner::ClusterInner;
use crate::state::{StateVersion, VERSION};
use crate::topology::Backoff;

/// Probes nodes that are out of the rotation, with growing pauses, until they answer.
pub(crate) async fn probe(shared: Arc<ClusterInner>, asker: Asker) {
    let rules = shared.config.health.clone();
    let mut waiting: HashMap<Address, (Instant, Backoff)> = HashMap::new();
    while !shared.stopping.load(Relaxed) {
        fault("probe", b"");
        let now = Instant::now();
        let nodes = shared.snapshot.load_full().nodes.clone();
        let down: BTreeSet<_> = nodes
            .iter()
            .filter(|n| !n.health.is_up())
            .map(|n| n.address.clone())
            .collect();
        waiting.retain(|address, _| down.contains(address));
        for node in nodes.iter().filter(|node| !node.health.is_up()) {
            let (due, backoff) = waiting.entry(node.address.clone()).or_insert_with(|| {
                let mut backoff = Backoff::new(&rules);
                (now + backoff.next(&rules), backoff)
            });
            if *due > now {
                continue;
            }
            *due = now + backoff.next(&rules);
            let (shared, asker, node) = (shared.clone(), asker.clone(), node.clone());
            guard::spawn(Work::Watch, async move {
                let begun = Instant::now();
                if serves(&asker, &node.origin).await {
                    shared.report(&node, NodeOutcome::Answered, begun.elapsed());
                }
            });
        }
        let next = waiting
            .values()
            .map(|(due, _)| *due)
            .min()
            .unwrap_or(now + PROBE_LOOK)
            .min(now + PROBE_LOOK);
        let _ = timeout(
            next.saturating_duration_since(Instant::now()),
            shared.probe_wake.notified(),
        )
        .await;
    }
}

/// Returns whether a node answers, and follows an elected node: a node without one can do nothing. A node
/// that refuses to say (401, 403) does answer.
async fn serves(asker: &Asker, origin: &Origin) -> bool {
    match asker.get::<StateVersion>(origin, VERSION).await {
        Ok(state) => state.master_node.is_some(),
        Err(error) => error.is_refusal(),
    }
}

/// The interval in which the prober checks for failures of which nobody told it.
const PROBE_LOOK: Duration = Duration::from_millis(250);
