//! Counts of the documents that are sent to each shard, of those that nodes reject (429), and of how long
//! answers take: which shards and nodes are written to most, and where that is too much.
//!
//! Plans count while they are made ([`bulk::Plan::touched`]), but only while somebody asks: counting begins
//! with a question, and ends a minute after the last one. This adds one number for each shard that a request
//! touches. The time of an answer counts for each shard that its part is for, and documents are looked at one
//! by one only where some of them were rejected. Each core has counts of its own, which only the admin port
//! ever waits for. They are bounded: an index that finds no room, although those that were not written to
//! lately have been forgotten, is counted with the others.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bulk::{Destination, Part, RouteTable, Touched};
use cluster::Snapshot;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

/// One core's counts, by cluster.
#[derive(Debug, Default)]
pub(crate) struct Heat {
    wanted: AtomicBool,
    counted: Mutex<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    /// When somebody last asked, and since when everything is counted.
    asked: Option<(Instant, Instant)>,
    clusters: BTreeMap<Arc<str>, ClusterHeat>,
}

/// The counts of one cluster.
#[derive(Debug, Default)]
pub(crate) struct ClusterHeat {
    indices: HashMap<Box<str>, IndexHeat>,
    /// The number of shards of all these indices.
    shards: usize,
    /// The documents of indices that found no room.
    others: Sum,
}

#[derive(Debug)]
struct IndexHeat {
    /// By the number of the shard.
    shards: Vec<Sum>,
    written: Instant,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    docs: u64,
    bytes: u64,
    /// Documents that a node rejected (429).
    rejected: u64,
    /// Answers to parts with documents for the shard, and the time that they took, in microseconds.
    answers: u64,
    answer_us: u64,
}

// === impl Heat ===

impl Heat {
    /// Returns whether plans are to count their documents.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Relaxed)
    }

    /// Notes that somebody asks; returns since when everything is counted.
    pub(crate) fn ask(&self, now: Instant) -> Instant {
        let mut counted = self.counted.lock();
        let since = match counted.asked {
            Some((last, since)) if self.is_wanted() && now.duration_since(last) < ASKED_FOR => since,
            _ => {
                counted.clusters.clear();
                now
            }
        };
        counted.asked = Some((now, since));
        self.wanted.store(true, Relaxed);
        since
    }

    /// Counts the documents of a plan that is sent to a cluster. `table` is the table it was made with.
    pub(crate) fn add(&self, cluster: &Arc<str>, table: &RouteTable, touched: &[Touched]) {
        if touched.is_empty() {
            return;
        }
        let now = Instant::now();
        let mut counted = self.counted.lock();
        if counted
            .asked
            .is_none_or(|(last, _)| now.duration_since(last) >= ASKED_FOR)
        {
            self.wanted.store(false, Relaxed);
        }
        let clusters = &mut counted.clusters;
        let heat = match clusters.get_mut(cluster) {
            Some(heat) => heat,
            None => clusters.entry(Arc::clone(cluster)).or_default(),
        };
        for run in touched.chunk_by(|one, next| one.index == next.index) {
            heat.add(table.index_name(run[0].index), run, now);
        }
    }

    /// Counts the answer to a part of a plan for each shard that the part is for, as far as the table knows.
    pub(crate) fn answered(
        &self,
        cluster: &str,
        table: &RouteTable,
        touched: &[Touched],
        part: &Part,
        took: Duration,
    ) {
        let Destination::Node(node) = part.destination else {
            return;
        };
        let mut counted = self.counted.lock();
        let Some(heat) = counted.clusters.get_mut(cluster) else {
            return;
        };
        for run in touched.chunk_by(|one, next| one.index == next.index) {
            let name = table.index_name(run[0].index);
            let is_its = part.index.as_deref().is_none_or(|index| index == name);
            let route = table.laned(name).and_then(|target| target.write().ok());
            let (Some(route), Some(index), true) = (route, heat.indices.get_mut(name), is_its) else {
                continue;
            };
            for one in run {
                let is_its = part.shard.is_none_or(|shard| shard == one.shard);
                if is_its
                    && route.node(one.shard) == Some(node)
                    && let Some(sum) = index.shards.get_mut(one.shard as usize)
                {
                    sum.answers += 1;
                    let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
                    sum.answer_us = sum.answer_us.saturating_add(took_us);
                }
            }
        }
    }

    /// Counts documents that a node rejected, each with its index and, if it is known, its shard.
    pub(crate) fn rejected<'a>(
        &self,
        cluster: &str,
        documents: impl Iterator<Item = (&'a str, Option<u32>)>,
    ) {
        let mut counted = self.counted.lock();
        let Some(heat) = counted.clusters.get_mut(cluster) else {
            return;
        };
        for (index, shard) in documents {
            let sums = heat.indices.get_mut(index).zip(shard);
            let sum = sums.and_then(|(index, shard)| index.shards.get_mut(shard as usize));
            sum.unwrap_or(&mut heat.others).rejected += 1;
        }
    }

    /// Adds this core's counts of a cluster to those of others.
    pub(crate) fn add_to(&self, all: &mut ClusterHeat, cluster: &str) {
        let counted = self.counted.lock();
        let Some(heat) = counted.clusters.get(cluster) else {
            return;
        };
        for (name, index) in &heat.indices {
            let sums = all.index(name, index.written);
            sums.widen(index.shards.len());
            for (sum, more) in sums.shards.iter_mut().zip(&index.shards) {
                sum.add_all(more);
            }
        }
        all.others.add_all(&heat.others);
    }
}

// === impl ClusterHeat ===

impl ClusterHeat {
    fn add(&mut self, name: &str, run: &[Touched], now: Instant) {
        let width = run.iter().map(|one| one.shard as usize + 1).max().unwrap_or(0);
        let missing = |heat: &Self| {
            let has = heat.indices.get(name).map_or(0, |index| index.shards.len());
            width.saturating_sub(has)
        };
        let more = missing(self);
        if more > 0 && !self.has_room(more, now) {
            for one in run {
                self.others.add(one.docs.into(), one.bytes);
            }
            return;
        }
        // The index itself may have been forgotten.
        self.shards += missing(self);
        let index = self.index(name, now);
        index.written = now;
        index.widen(width);
        for one in run {
            index.shards[one.shard as usize].add(one.docs.into(), one.bytes);
        }
    }

    /// Whether there is room for more shards. If not, indices that were not written to lately are forgotten.
    fn has_room(&mut self, more: usize, now: Instant) -> bool {
        if self.shards + more <= SHARDS_MAX {
            return true;
        }
        self.indices
            .retain(|_, index| now.duration_since(index.written) < FORGOTTEN_AFTER);
        self.shards = self.indices.values().map(|index| index.shards.len()).sum();
        self.shards + more <= SHARDS_MAX
    }

    fn index(&mut self, name: &str, written: Instant) -> &mut IndexHeat {
        if !self.indices.contains_key(name) {
            let shards = Vec::new();
            self.indices.insert(name.into(), IndexHeat { shards, written });
        }
        self.indices.get_mut(name).expect("it is there now")
    }

    /// Returns the counts, and the node that each shard's primary is on at present. The indices with most
    /// documents come first, as far as there is room.
    pub(crate) fn to_json(&self, snapshot: &Snapshot) -> Value {
        let mut indices: Vec<(&str, &IndexHeat)> = self
            .indices
            .iter()
            .map(|(name, index)| (&**name, index))
            .collect();
        let docs = |index: &IndexHeat| index.shards.iter().map(|sum| sum.docs).sum::<u64>();
        indices.sort_by_cached_key(|(name, index)| (std::cmp::Reverse(docs(index)), *name));
        let (mut told, mut others, mut shards) = (Map::new(), self.others, 0);
        for (name, index) in indices {
            shards += index.shards.len();
            if shards > SHARDS_MAX {
                index.shards.iter().for_each(|sum| others.add_all(sum));
            } else {
                told.insert(name.to_owned(), index.to_json(name, snapshot));
            }
        }
        let nodes: Vec<Value> = snapshot
            .nodes
            .iter()
            .map(|node| json!({"id": node.id, "name": node.name, "up": node.health.is_up()}))
            .collect();
        json!({
            "nodes": nodes, "indices": told, "others": {"docs": others.docs, "bytes": others.bytes, "rejected": others.rejected},
        })
    }
}

// === impl IndexHeat ===

impl IndexHeat {
    fn widen(&mut self, width: usize) {
        if self.shards.len() < width {
            self.shards.resize(width, Sum::default());
        }
    }

    fn to_json(&self, name: &str, snapshot: &Snapshot) -> Value {
        let route = snapshot.table.laned(name).and_then(|target| target.write().ok());
        let node = |shard: usize| {
            let node = route?.node(shard as u32)?;
            snapshot.node(node).is_some().then_some(node.0)
        };
        let list = |of: fn(&Sum) -> u64| -> Vec<u64> { self.shards.iter().map(of).collect() };
        let nodes: Vec<Option<u16>> = (0..self.shards.len()).map(node).collect();
        json!({
            "docs": list(|sum| sum.docs), "bytes": list(|sum| sum.bytes), "nodes": nodes,
            "rejected": list(|sum| sum.rejected), "answers": list(|sum| sum.answers),
            "answer_us": list(|sum| sum.answer_us),
        })
    }
}

// === impl Sum ===

impl Sum {
    fn add(&mut self, docs: u64, bytes: u64) {
        self.docs += docs;
        self.bytes += bytes;
    }

    fn add_all(&mut self, more: &Sum) {
        self.add(more.docs, more.bytes);
        self.rejected += more.rejected;
        self.answers += more.answers;
        self.answer_us = self.answer_us.saturating_add(more.answer_us);
    }
}

/// The largest number of a cluster's shards that a core counts, and that are told.
const SHARDS_MAX: usize = 5_000;
/// How long documents are counted after a question.
const ASKED_FOR: Duration = Duration::from_secs(60);
/// An index that was not written to for this long makes room for others.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(10 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    fn touched(shard: u32, docs: u32) -> Touched {
        Touched {
            index: 0,
            shard,
            docs,
            bytes: u64::from(docs) * 10,
        }
    }

    #[test]
    fn counting_begins_with_a_question_ends_a_minute_after_the_last_and_begins_anew() {
        let (heat, began) = (Heat::default(), Instant::now());
        assert!(!heat.is_wanted());
        let at = |s: u64| began + Duration::from_secs(s);
        assert_eq!(heat.ask(at(0)), at(0));
        assert!(heat.is_wanted());
        assert_eq!(heat.ask(at(50)), at(0));
        assert_eq!(heat.ask(at(109)), at(0));
        heat.counted
            .lock()
            .clusters
            .insert("c".into(), ClusterHeat::default());
        assert_eq!(heat.ask(at(169)), at(169));
        assert!(heat.counted.lock().clusters.is_empty(), "there would be a gap");
    }

    #[test]
    fn counts_are_bounded_and_old_indices_make_room() {
        let (mut heat, began) = (ClusterHeat::default(), Instant::now());
        for n in 0..SHARDS_MAX + 10 {
            heat.add(&format!("i{n}"), &[touched(0, 1)], began);
        }
        assert_eq!((heat.shards, heat.indices.len()), (SHARDS_MAX, SHARDS_MAX));
        assert_eq!((heat.others.docs, heat.others.bytes), (10, 100));
        heat.add("i0", &[touched(0, 5)], began);
        assert_eq!(heat.indices["i0"].shards[0].docs, 6, "those that are there go on");
        let later = began + FORGOTTEN_AFTER;
        heat.add("new", &[touched(2, 1), touched(0, 3)], later);
        assert_eq!((heat.shards, heat.indices.len()), (3, 1));
        let docs: Vec<u64> = heat.indices["new"].shards.iter().map(|sum| sum.docs).collect();
        assert_eq!(docs, [3, 0, 1]);
    }
}
