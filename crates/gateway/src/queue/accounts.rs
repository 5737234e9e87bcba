//! The accounts of queues: the accepted documents, and their fate for each consumer group.

mod metrics;

use std::collections::BTreeMap;
use std::sync::Arc;

use config::REPLAYING;
use log::{LaneStatus, Status};
use serde_json::{Value, json};

use crate::queue::queues::{LaneActivity, Queue, Queues};
use crate::queue::standstill;

/// A queue at one instant.
pub(crate) struct Account<'a> {
    pub(crate) queue: &'a Arc<Queue>,
    pub(crate) status: Status,
    pub(crate) groups: Vec<GroupAccount>,
}

/// A consumer group at the same instant, in documents: the states add up to the accepted documents plus
/// `rewound`.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupAccount {
    pub(crate) name: String,
    pub(crate) indexed: u64,
    /// Documents that are among the dead letters now.
    pub(crate) dead: u64,
    /// Documents that wait apart from their lanes.
    pub(crate) parked: u64,
    /// Dead letters that were put back into the queue, where each was accepted once more.
    pub(crate) replayed: u64,
    /// Dead letters that were thrown away.
    pub(crate) purged: u64,
    /// Documents that were passed over because somebody said so.
    pub(crate) skipped: u64,
    pub(crate) lost: u64,
    pub(crate) pending: u64,
    /// Documents that the group went back over because somebody said so: each is accounted for once more.
    pub(crate) rewound: u64,
    pub(crate) pending_bytes: u64,
    pub(crate) lanes: Vec<LaneStatus>,
}

// === impl Account ===

impl Account<'_> {
    /// Returns the dead letters of all groups.
    pub(crate) fn dead_letters(&self) -> u64 {
        self.groups.iter().map(|group| group.dead).sum()
    }
}

// === impl GroupAccount ===

impl GroupAccount {
    /// Returns the numbers of documents, by state.
    pub(crate) fn states(&self) -> [(&'static str, u64); 8] {
        [
            ("indexed", self.indexed),
            ("dead", self.dead),
            ("parked", self.parked),
            ("replayed", self.replayed),
            ("purged", self.purged),
            ("skipped", self.skipped),
            ("lost", self.lost),
            ("pending", self.pending),
        ]
    }
}

// === impl Queue ===

impl Queue {
    /// Returns the account of the queue: for each consumer group, accepted + rewound is the sum of its
    /// states, at one instant.
    pub(crate) fn account(self: &Arc<Self>) -> Account<'_> {
        let (guard, tallies) = self.dead_letters.tallies();
        let parked = self.parked.all();
        // Held while the cursors are read: parked operations count from the moment of their lane's commit.
        let states: Vec<_> = parked
            .iter()
            .map(|(name, parked)| (name, parked.state()))
            .collect();
        let (status, consumers) = self.log.accounts_with_parked();
        let parked: BTreeMap<&str, (u64, u64, u64)> = states
            .iter()
            .map(|(name, state)| (name.as_str(), (state.counted, state.dead, state.lost)))
            .collect();
        drop(guard);
        let groups = consumers
            .into_iter()
            .filter(|(one, _)| one.name != REPLAYING)
            .map(|(one, shared)| {
                let tally = tallies.get(&one.name).copied().unwrap_or_default();
                let here = || parked.get(one.name.as_str()).copied().unwrap_or_default();
                // In Kafka the cursors include parked documents: other gateways have some.
                let (shared, (parked, died, lost)) = match shared {
                    Some(parked) => (parked, (0, 0, 0)),
                    None => (0, here()),
                };
                GroupAccount {
                    // The cursors are past the parked operations, and past those that died or got lost there.
                    indexed: one.indexed.saturating_sub(parked + died + lost),
                    dead: (one.dead + died).saturating_sub(tally.replayed + tally.purged),
                    parked: parked + shared,
                    replayed: tally.replayed,
                    purged: tally.purged,
                    skipped: one.skipped,
                    lost: one.lost + status.lost + lost,
                    pending: one.pending,
                    rewound: one.rewound,
                    pending_bytes: one.pending_bytes,
                    lanes: one.lanes,
                    name: one.name,
                }
            });
        Account {
            queue: self,
            groups: groups.collect(),
            status,
        }
    }
}

// === impl Queues ===

impl Queues {
    /// Returns the accounts of all queues.
    pub(crate) fn accounts(&self) -> Vec<Account<'_>> {
        self.all().map(Queue::account).collect()
    }

    /// Returns the accounts as `/stats` shows them; with `lanes`, as `/queue/stats` does.
    pub(crate) fn to_json(&self, lanes: bool) -> Value {
        let queues = self.accounts().into_iter().map(|account| {
            let Account {
                queue,
                status,
                groups,
            } = &account;
            let groups = groups.iter().map(|one| {
                let states = one.states();
                let mut value: Value = states
                    .map(|(state, documents)| (state, json!(documents)))
                    .into_iter()
                    .collect();
                value["rewound"] = json!(one.rewound);
                value["pending_bytes"] = json!(one.pending_bytes);
                if let Some(parked) = queue.parked_of(&one.name) {
                    let state = parked.state();
                    value["parked_keys"] = json!(state.key_count());
                    if lanes {
                        let shown = state.shown(PARKED_SHOWN).into_iter().map(|key| key.0);
                        value["parked_for"] = shown.collect();
                    }
                }
                let group = self.group(&queue.name, &one.name);
                value["waits"] = standstill::of_group(&queue.name, one, group.map(|group| &**group));
                if let Some(group) = group {
                    value["cluster"] = json!(group.settings.cluster);
                    value["pipeline"] = json!(group.settings.pipeline);
                    value["state"] = json!(group.phase().as_str());
                    value["requests"] = json!(group.requests.get());
                    value["parts"] = json!(group.parts.get());
                    value["docs_retried"] = json!(group.retried.get());
                    value["lag_s"] = json!(group.lag().map(|lag| lag.as_secs_f64()));
                    value["paused_lanes"] = json!(group.count(LaneActivity::Paused));
                    value["retrying_lanes"] = json!(group.count(LaneActivity::Retrying));
                    if let Some(sharing) = group.consumer.sharing() {
                        value["pending_messages"] = json!(sharing.pending_messages);
                        value["lost_messages"] = json!(sharing.lost_messages);
                        value["lanes_held"] = json!(sharing.lanes_held);
                    }
                    if lanes {
                        value["lanes"] = group.lanes_to_json(&one.lanes);
                    }
                }
                (one.name.clone(), value)
            });
            let mut value = json!({
                "accepted": status.documents,
                "records": status.records,
                "bytes": status.bytes,
                "spare_bytes": status.spare_bytes,
                "waiting_bytes": status.waiting_bytes,
                "segments": status.segments,
                "syncs": status.syncs,
                "start": status.start,
                "end": status.end,
                "poisoned": status.poisoned,
                "refuses": standstill::of_queue(queue),
                "dead_letters": account.dead_letters(),
                "dead_letters_bytes": queue.dead_letters.bytes(),
                "idempotency_keys": queue.keys.as_ref().map(|keys| keys.count()),
                "groups": groups.collect::<serde_json::Map<_, _>>(),
            });
            if let Some(topic) = queue.log.topic() {
                value["topic"] = json!(topic);
            }
            (queue.name.to_string(), value)
        });
        Value::Object(queues.collect())
    }
}

/// The most keys of parked operations that are shown beside the accounts.
const PARKED_SHOWN: usize = 10;
