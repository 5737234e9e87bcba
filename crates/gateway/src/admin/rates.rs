//! Rates of queues, sampled every few seconds over the last minute.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::queue::Queues;

/// Samples of the last minute: what queues had accepted and what consumer groups had done.
#[derive(Debug, Default)]
pub(super) struct Rates {
    samples: Mutex<VecDeque<(Instant, BTreeMap<String, Sample>)>>,
}

/// The counts of a queue at one moment, in documents.
#[derive(Clone, Debug, Default)]
struct Sample {
    accepted: u64,
    indexed: BTreeMap<String, u64>,
    /// The documents that are done, by group and lane.
    done: BTreeMap<String, Vec<u64>>,
}

// === impl Rates ===

impl Rates {
    /// Takes a sample. To be called every [`EVERY`].
    pub(super) fn take(&self, queues: &Queues) {
        let accounts = queues.accounts().into_iter().map(|account| {
            let groups = account
                .groups
                .iter()
                .map(|group| (group.name.clone(), group.indexed));
            let done = account.groups.iter().map(|group| {
                let lanes = group.lanes.iter().map(|lane| lane.done);
                (group.name.clone(), lanes.collect())
            });
            let sample = Sample {
                accepted: account.status.documents,
                indexed: groups.collect(),
                done: done.collect(),
            };
            (account.queue.name.to_string(), sample)
        });
        let sample = (Instant::now(), accounts.collect());
        let mut samples = self.samples.lock();
        samples.push_back(sample);
        if samples.len() > SAMPLES {
            samples.pop_front();
        }
    }

    /// Returns how many documents a lane has finished per second, over the last minute or less. `done` is the
    /// present count.
    pub(super) fn of_lane(&self, queue: &str, group: &str, lane: u32, done: u64) -> Option<f64> {
        let samples = self.samples.lock();
        let (since, all) = samples.front()?;
        let before = all.get(queue)?.done.get(group)?.get(lane as usize)?;
        let seconds = since.elapsed().as_secs_f64().max(1e-3);
        Some(done.saturating_sub(*before) as f64 / seconds)
    }

    /// Adds the rates since the oldest sample to a queue as `/queue/stats` shows it.
    pub(super) fn add_to(&self, name: &str, queue: &mut Value) {
        let samples = self.samples.lock();
        let Some((since, Some(before))) = samples.front().map(|(since, all)| (since, all.get(name))) else {
            return;
        };
        let seconds = since.elapsed().as_secs_f64().max(1e-3);
        let per_s = |now: &Value, before: u64| {
            json!(now.as_u64().unwrap_or(0).saturating_sub(before) as f64 / seconds)
        };
        queue["accepted_per_s"] = per_s(&queue["accepted"], before.accepted);
        queue["rates_over_s"] = json!(seconds);
        for (group, indexed) in &before.indexed {
            let group = &mut queue["groups"][group];
            if group.is_object() {
                group["indexed_per_s"] = per_s(&group["indexed"], *indexed);
            }
        }
    }
}

/// The time between two samples.
pub(super) const EVERY: Duration = Duration::from_secs(5);
const SAMPLES: usize = 12;
