//! Writes that asynchronous mode cannot queue (a malformed bulk, an update by query). Such a write waits
//! until what is queued before it has been delivered to the cluster that its client sees, so that it
//! overtakes nothing, and then goes there as it came. If the queue has a second cluster, which would miss the
//! write, the write is refused, unless `queue.passing_second_cluster` accepts that.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use bulk::RouteTable;
use cluster::Snapshot;
use http::Uri;
use http::request::Parts;
use tokio::time::Instant;
use wire::Presence;

use crate::error::Fault;
use crate::intake::document_write::writes_documents;
use crate::intake::filter::{Intake, Passing, Queueing};
use crate::intake::touched::TouchedLanes;
use crate::nodes::Body;
use crate::queue::{Group, Journal, Queue, Queues};
use crate::why::HeadWhy;

/// What a request waits for.
struct Awaited {
    /// The lanes to wait for; `None` means all.
    lanes: Option<HashSet<u32>>,
    /// The indices, and the names that lead to them, whose parked operations the request waits for. `None`
    /// means every parked operation of these lanes.
    names: Option<HashSet<String>>,
}

impl Passing {
    /// Returns what the request waits for, according to where names lead now. `is_parked` says whether
    /// anything is parked.
    async fn awaited(
        &self,
        (uri, body): (&Uri, &Body),
        table: &RouteTable,
        queue: &Queue,
        is_parked: bool,
    ) -> Awaited {
        let touched = match body {
            // Where the lanes are known, names are of use only beside what is parked.
            Body::Held(body) if self.lanes.is_none() || is_parked => {
                TouchedLanes::by(uri, body, table, queue).await
            }
            _ => None,
        };
        if let Some(lanes) = &self.lanes {
            let mut lanes = lanes.iter().copied().collect();
            if let Some(whereabouts) = &queue.whereabouts {
                whereabouts.add_earlier(&mut lanes);
            }
            return Awaited {
                lanes: Some(lanes),
                names: touched.and_then(|touched| touched.names),
            };
        }
        match touched {
            Some(TouchedLanes { lanes, names }) => Awaited {
                lanes: Some(lanes),
                names,
            },
            None => Awaited {
                lanes: None,
                names: None,
            },
        }
    }
}

// === impl Awaited ===

impl Awaited {
    fn has(&self, lane: u32) -> bool {
        self.lanes.as_ref().is_none_or(|lanes| lanes.contains(&lane))
    }
}

impl Intake {
    /// Lets a request go on, together with its body: at once if it is no write or if nothing is queued here,
    /// otherwise when it is its turn. After an error nothing of it has been executed.
    pub(crate) async fn admit(
        &self,
        queues: &ArcSwap<Queues>,
        (head, body): (&Parts, Body),
        passing: &Passing,
        presence: &Presence,
    ) -> Result<Body, Fault> {
        let Some(Queueing { accept, .. }) = &self.queueing else {
            return Ok(body);
        };
        let queue = &accept.queue;
        let takes_types = |snapshot: &Snapshot| snapshot.table.dialect().takes_types();
        let types = self.outbound.cluster().look(takes_types);
        if !writes_documents(&head.method, head.uri.path(), types) {
            return Ok(body);
        }
        // The queues are shared by all cores, so they are loaded only here, where they are needed.
        let queues = queues.load_full();
        let groups = queues.groups();
        let settings = queue.passing();
        let others = second_clusters(queue, groups);
        if settings.refused_with_second_cluster && !others.is_empty() {
            if passing.why == HeadWhy::Rights.as_str() {
                return Err(Fault::not_allowed(&queue.name, &others));
            }
            return Err(Fault::would_be_missing(&queue.name, &others, passing.why));
        }
        let Some(within) = settings.waits else {
            return Ok(body);
        };
        // Only once the body has been read can the departure of a client be noticed.
        let body = match body {
            Body::Streamed(incoming) => {
                let limit = usize::try_from(self.body_bytes_max).unwrap_or(usize::MAX);
                let collected = incoming.collect_with_original(limit).await;
                Body::Held(collected.map_err(|error| self.unread(&error))?.original.freeze())
            }
            held => held,
        };
        let newest = || {
            let cluster = self.outbound.cluster();
            cluster.look(|snapshot| Arc::clone(&snapshot.table))
        };
        let table = newest();
        if let Some(whereabouts) = &queue.whereabouts {
            // The lanes of documents may have changed since anybody asked.
            whereabouts.look(&table, newest, &queue.log);
        }
        let is_parked = ours(queue, groups).any(|group| group.parked().is_some_and(|parked| parked.any()));
        let awaited = passing.awaited((&head.uri, &body), &table, queue, is_parked);
        let awaited = awaited.await;
        tokio::select! {
            biased;
            // A client that has gone may have sent something else meanwhile, and this request must not follow
            // that.
            () = presence.gone() => Err(Fault::gone()),
            in_time = caught_up(queue, groups, &awaited, within) => match in_time {
                true => Ok(body),
                false => Err(Fault::would_overtake(&queue.name)),
            },
        }
    }
}

/// Returns the clusters that a queue is delivered to besides the one that its clients see.
fn second_clusters<'g>(queue: &Queue, groups: &'g [Arc<Group>]) -> Vec<&'g str> {
    let of_queue = groups.iter().filter(|group| group.queue.name == queue.name);
    let mut others: Vec<&str> = of_queue
        .map(|group| &*group.settings.cluster)
        .filter(|cluster| *cluster != &*queue.cluster)
        .collect();
    others.sort_unstable();
    others.dedup();
    others
}

/// Waits until what is in a queue now has been delivered to the cluster that the queue's clients see. Returns
/// whether that was so within the given time.
async fn caught_up(queue: &Queue, groups: &[Arc<Group>], awaited: &Awaited, within: Duration) -> bool {
    let until = Instant::now() + within;
    let mut goals = None;
    let mut step = Duration::from_millis(1);
    let behind = Behind::begin(&queue.behind);
    let looks = queue.log.looks();
    loop {
        // What other gateways have put into a topic is visible only after a look that began later than this
        // wait. A look that was already under way may not have seen it.
        let is_known = queue
            .log
            .looks()
            .zip(looks)
            .is_none_or(|(now, then)| now >= then + 2);
        if is_known {
            let goals = goals.get_or_insert_with(|| accepted(queue, groups));
            let done = done(queue, groups);
            let lanes = goals.iter().zip(&done).flat_map(|(goals, done)| {
                goals
                    .iter()
                    .zip(done)
                    .enumerate()
                    .filter(|(lane, _)| awaited.has(*lane as u32))
            });
            let delivered = lanes.map(|(_, pair)| pair).all(|(goal, done)| done >= goal);
            if delivered && !is_parked(queue, groups, awaited) {
                return true;
            }
        }
        if Instant::now() >= until {
            return false;
        }
        tokio::time::sleep(step).await;
        step = (step * 2).min(behind.step_max());
    }
}

/// Returns the groups that deliver a queue to the cluster that its clients see.
fn ours<'g>(queue: &'g Queue, groups: &'g [Arc<Group>]) -> impl Iterator<Item = &'g Arc<Group>> {
    let of_queue = groups.iter().filter(|group| group.queue.name == queue.name);
    of_queue.filter(|group| group.settings.cluster == queue.cluster)
}

/// Returns, for each of these groups and lane by lane, the position to reach until everything that is there
/// now has been delivered.
fn accepted(queue: &Queue, groups: &[Arc<Group>]) -> Vec<Vec<u64>> {
    ours(queue, groups)
        .map(|group| {
            let lanes = group.consumer.status().lanes;
            match &queue.log {
                Journal::Disk(_) => lanes.iter().map(|lane| lane.accepted).collect(),
                Journal::Kafka(_) => lanes
                    .iter()
                    .zip(group.consumer.messages_pending())
                    .map(|(lane, messages)| lane.position + messages)
                    .collect(),
            }
        })
        .collect()
}

/// Returns whether operations are parked that the request must not overtake: their lanes have gone on without
/// them.
fn is_parked(queue: &Queue, groups: &[Arc<Group>], awaited: &Awaited) -> bool {
    ours(queue, groups).any(|group| {
        let Some(parked) = group.parked() else {
            return is_parked_elsewhere(group, |_| 0, awaited);
        };
        let state = parked.state();
        is_parked_elsewhere(group, |lane| state.of_lane(lane).0, awaited)
            || match &awaited.names {
                Some(names) => state.has_name(|name| names.contains(name)),
                None => state.has_lane(|lane| awaited.has(lane)),
            }
    })
}

/// Returns whether a lane in Kafka has more parked operations than this gateway knows of. Another gateway
/// then owns the lane, or owned it until recently.
fn is_parked_elsewhere(group: &Group, known: impl Fn(u32) -> u64, awaited: &Awaited) -> bool {
    let parked = group.consumer.parked_by_lane().into_iter();
    let mut lanes = (0..).zip(parked).filter(|(lane, _)| awaited.has(*lane));
    lanes.any(|(lane, parked)| parked > known(lane))
}

/// Returns, for each of these groups and lane by lane, the position up to which everything is delivered.
fn done(queue: &Queue, groups: &[Arc<Group>]) -> Vec<Vec<u64>> {
    ours(queue, groups)
        .map(|group| {
            let lanes = group.consumer.status().lanes;
            let of_lane = |lane: &log::LaneStatus| match &queue.log {
                Journal::Disk(_) => lane.done,
                Journal::Kafka(_) => lane.position,
            };
            lanes.iter().map(of_lane).collect()
        })
        .collect()
}

/// A request that waits behind a queue.
struct Behind<'q>(&'q AtomicUsize);

impl<'q> Behind<'q> {
    fn begin(waiting: &'q AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }

    /// Returns the longest time between two checks: thousands that wait check less often.
    fn step_max(&self) -> Duration {
        let waiting = u32::try_from(self.0.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        STEP_MAX
            .saturating_mul(1 + waiting / CHECK_OFTEN)
            .min(STEP_OF_MANY_MAX)
    }
}

impl Drop for Behind<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The longest time between two checks, for few requests and for many.
const STEP_MAX: Duration = Duration::from_millis(20);
const STEP_OF_MANY_MAX: Duration = Duration::from_secs(1);
/// So many requests may check often.
const CHECK_OFTEN: u32 = 64;
