//! Finds where a document is, and what became of a request, according to each queue and each cluster. The
//! order matters: records are searched before parked operations, these before the dead letters, and the
//! clusters are asked last, so that a document that moves on in the meantime is met further on.

mod request;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Json, Response};
use cluster::Cluster;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use wire::guard::{self, Work};

use super::AdminState;
use super::dead_letters::blocking;
use super::refusal::Refusal;
use crate::nodes::{DocumentName, LookError, look};
use crate::own_thread::on_own_thread;
use crate::queue::dead_letters::{LettersFound, LettersSought};
use crate::queue::parked::{ParkedFound, ParkedSought};
use crate::queue::trace::{LaneCursors, QueuedWrite, SearchResult, Sought};
use crate::queue::{GroupAccount, Queue, waits_of};

/// The object of the search.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TraceQuery {
    index: Option<String>,
    id: Option<String>,
    routing: Option<String>,
    queue: Option<String>,
    position: Option<u64>,
    from: Option<u64>,
}

/// A document, as the request named it.
struct Named {
    index: String,
    id: String,
    routing: Option<String>,
}

/// What one queue knows about a document.
struct InQueue {
    queue: Arc<Queue>,
    accounts: Vec<GroupAccount>,
    /// `None` if the records of the queue are in Kafka.
    seen: Option<SearchResult>,
    letters: LettersFound,
    /// The parked operations by consumer group.
    parked: BTreeMap<String, ParkedFound>,
}

pub(super) async fn trace(
    State(admin): State<Arc<AdminState>>,
    query: Result<Query<TraceQuery>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(asked) = query.map_err(|error| Refusal::invalid(error.body_text()))?;
    let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
    match (filled(asked.index), filled(asked.id), asked.position) {
        (Some(index), Some(id), None) => {
            let named = Named {
                index,
                id,
                routing: asked.routing,
            };
            of_document(admin, named, asked.queue, asked.from).await
        }
        (None, None, Some(position)) => {
            let queue = admin.queue(asked.queue.as_deref())?;
            blocking(move || request::trace(&admin, &queue, position)).await
        }
        _ => Err(Refusal::invalid(
            "say which: `index` and `id` of a document, or `queue` and `position` of a request",
        )),
    }
}

async fn of_document(
    admin: Arc<AdminState>,
    named: Named,
    queue: Option<String>,
    from: Option<u64>,
) -> Result<Response, Refusal> {
    let began = Instant::now();
    let queues = match &queue {
        Some(name) => vec![admin.queue(Some(name))?],
        None => admin.shared.queues.load().all().cloned().collect(),
    };
    if from.is_some() && queues.len() != 1 {
        return Err(Refusal::invalid("`from` is a position of one `queue`: say which"));
    }
    let (searching, named) = (Arc::clone(&admin), Arc::new(named));
    let sought = Arc::clone(&named);
    let searched = on_own_thread(move || {
        let each = queues.iter().enumerate().map(|(number, queue)| {
            // Each queue has its share of the time that is left.
            let left = SEARCH.saturating_sub(began.elapsed()) / (queues.len() - number) as u32;
            in_queue(&searching, queue, &sought, from, left)
        });
        each.collect::<Result<Vec<_>, Refusal>>()
    });
    let searched = searched
        .await
        .map_err(|error| Refusal::unavailable(error.to_string()))??;
    let routings: BTreeSet<Option<String>> = searched
        .iter()
        .filter_map(|one| one.seen.as_ref())
        .flat_map(|seen| seen.writes.iter().map(|write| write.found.routing.clone()))
        .chain([named.routing.clone()])
        .collect();
    let clusters = ask_all(&admin, &named, &routings, queue.is_some().then_some(&searched)).await;
    let queues = searched.iter().map(|one| told(&admin, one, &clusters));
    Ok(Json(json!({
        "index": named.index,
        "id": named.id,
        "routing": named.routing,
        "queues": queues.collect::<Vec<_>>(),
        "clusters": clusters,
        "took_ms": began.elapsed().as_millis() as u64,
    }))
    .into_response())
}

/// Returns what a queue knows about a document. This reads the disk.
fn in_queue(
    admin: &AdminState,
    queue: &Arc<Queue>,
    named: &Named,
    from: Option<u64>,
    within: Duration,
) -> Result<InQueue, Refusal> {
    let began = Instant::now();
    let table = table_of(admin, &queue.cluster);
    let sought = Sought::new(&named.index, &named.id, table.as_deref());
    let accounts = queue.account().groups;
    let seen = match queue.log.on_disk() {
        None => None,
        Some(log) => Some(in_records(log, &sought, &accounts, from, began + within / 4 * 3)?),
    };
    let mut parked = BTreeMap::new();
    for (group, of_group) in queue.parked.all() {
        let found = of_group.find(ParkedSought::Document(&sought), began + within / 8 * 7);
        parked.insert(group, found.map_err(Refusal::failed)?);
    }
    let letters = &queue.dead_letters;
    let letters = letters.find(
        LettersSought::Document(&sought),
        &queue.committed(),
        began + within,
    );
    Ok(InQueue {
        queue: Arc::clone(queue),
        accounts,
        seen,
        letters: letters.map_err(Refusal::failed)?,
        parked,
    })
}

/// Searches the pending records first, starting from the group that is furthest behind. If time is left, the
/// records before them are searched too.
fn in_records(
    log: &log::Log,
    sought: &Sought<'_>,
    accounts: &[GroupAccount],
    from: Option<u64>,
    until: Instant,
) -> Result<SearchResult, Refusal> {
    let status = log.status();
    let cursors = accounts.iter().map(|group| LaneCursors {
        group: &group.name,
        lanes: &group.lanes,
    });
    let cursors: Vec<_> = cursors.collect();
    let lanes = accounts.iter().flat_map(|group| &group.lanes);
    let behind = lanes.map(|lane| lane.position).min().unwrap_or(status.start);
    let begin = from.unwrap_or(behind).max(status.start);
    let pending = sought
        .in_records(log, &cursors, begin, until)
        .map_err(Refusal::failed)?;
    if from.is_some() || pending.next.is_some() || begin <= status.start {
        return Ok(pending);
    }
    let mut all = sought
        .in_records(log, &cursors, status.start, until)
        .map_err(Refusal::failed)?;
    if all.next.is_some() {
        // The whole search did not finish, so the result for the pending records counts.
        all = pending;
    }
    Ok(all)
}

fn table_of(admin: &AdminState, cluster: &str) -> Option<Arc<bulk::RouteTable>> {
    let live = admin.shared.live.load();
    let snapshot = live.clusters.get(cluster)?.snapshot();
    snapshot.learnt().then(|| Arc::clone(&snapshot.table))
}

/// Asks all clusters at once what they have of a document. `only` restricts this to the clusters that these
/// queues are delivered to.
async fn ask_all(
    admin: &AdminState,
    named: &Named,
    routings: &BTreeSet<Option<String>>,
    only: Option<&Vec<InQueue>>,
) -> Map<String, Value> {
    let live = admin.shared.live.load_full();
    let queues = admin.shared.queues.load_full();
    let is_wanted = |name: &str| {
        only.is_none_or(|searched| {
            let mut groups = queues.groups().iter();
            groups.any(|group| {
                let is_of = |one: &InQueue| one.queue.name == group.queue.name;
                *group.settings.cluster == *name && searched.iter().any(is_of)
            })
        })
    };
    let asked = live.clusters.iter().filter(|(name, _)| is_wanted(name));
    let asked = asked.map(|(name, cluster)| {
        let names = names_at(cluster, named, routings);
        (name.to_string(), Arc::clone(cluster), names)
    });
    let asked: Vec<_> = asked.collect();
    match on_own_thread(move || ask_each(asked)).await {
        Ok(told) => told,
        Err(error) => Map::from_iter([("?".to_owned(), json!({"asked": false, "why": error.to_string()}))]),
    }
}

/// Asks each cluster on a thread of its own, so that one that does not answer keeps no other waiting.
fn ask_each(asked: Vec<(String, Arc<Cluster>, Vec<DocumentName>)>) -> Map<String, Value> {
    let (tell, answers) = mpsc::channel();
    let mut told = Map::new();
    for (name, cluster, names) in asked {
        // The answer for a question that breaks off.
        let silent = json!({"asked": false, "why": "the question broke off"});
        told.insert(name.clone(), silent);
        let (tell, of) = (tell.clone(), name.clone());
        let spawned = guard::thread("trace", Work::Other, move || {
            let _ = tell.send((of, ask(&cluster, &names)));
        });
        if let Err(error) = spawned {
            told.insert(name, json!({"asked": false, "why": error.to_string()}));
        }
    }
    drop(tell);
    told.extend(answers);
    told
}

/// Returns the documents of a cluster that are meant: one for each index behind the name and each routing.
fn names_at(cluster: &Cluster, named: &Named, routings: &BTreeSet<Option<String>>) -> Vec<DocumentName> {
    let snapshot = cluster.snapshot();
    let sought = Sought::new(&named.index, &named.id, Some(&snapshot.table));
    let behind = sought.names().iter();
    let is_alias = sought.names().len() > 1;
    let indices = behind.filter(|name| !is_alias || **name != named.index);
    let names = indices.flat_map(|index| {
        routings.iter().map(|routing| DocumentName {
            index: index.clone(),
            id: named.id.clone(),
            routing: routing.clone(),
        })
    });
    names.take(NAMES_MAX).collect()
}

/// Asks a cluster, and returns the part of its answer that concerns the document.
fn ask(cluster: &Arc<Cluster>, names: &[DocumentName]) -> Value {
    let answers = match look(cluster, names) {
        Ok(answers) => answers,
        Err(error) => return not_asked(&error),
    };
    if let Some(found) = answers.iter().find(|answer| answer["found"] == true) {
        return json!({
            "asked": true,
            "found": true,
            "index": found["_index"],
            "version": found["_version"],
            "seq_no": found["_seq_no"],
            "primary_term": found["_primary_term"],
            "routing": found["_routing"],
        });
    }
    let error = |answer: &Value| (!answer["error"].is_null()).then(|| answer["error"].clone());
    let missing = |error: &Value| error["type"] == "index_not_found_exception";
    // A document that cannot be read is not known to be missing.
    match answers.iter().filter_map(error).find(|error| !missing(error)) {
        Some(error) => {
            let word = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
            json!({"asked": false, "why": format!("{}: {}", word("type"), word("reason"))})
        }
        None => {
            let indices: BTreeSet<&str> = names.iter().map(|name| name.index.as_str()).collect();
            let no_index = !answers.is_empty() && answers.iter().all(|answer| !answer["error"].is_null());
            json!({"asked": true, "found": false, "indices": indices, "no_index": no_index})
        }
    }
}

fn not_asked(error: &LookError) -> Value {
    json!({"asked": false, "why": error.to_string()})
}

/// Returns a queue's part of the answer.
fn told(admin: &AdminState, one: &InQueue, clusters: &Map<String, Value>) -> Value {
    let queues = admin.shared.queues.load_full();
    let groups = one.accounts.iter().enumerate().map(|(number, account)| {
        let group = queues.group(&one.queue.name, &account.name);
        let cluster = group.map(|group| &*group.settings.cluster);
        let writes = one.seen.iter().flat_map(|seen| &seen.writes);
        let pending: Vec<Value> = writes
            .filter(|write| is_pending(write, account))
            .map(|write| pending(admin, one, number, write))
            .collect();
        let answer = cluster.and_then(|name| clusters.get(name));
        json!({
            "group": account.name,
            "cluster": cluster,
            "pipeline": group.map(|group| &group.settings.pipeline),
            "state": verdict::of(one, account, answer).as_str(),
            "pending": pending,
            "parked": one.parked.get(&account.name).map(|found| {
                found.operations.iter().map(|(_, told)| told).collect::<Vec<_>>()
            }),
            "dead": letters(one, &account.name),
        })
    });
    json!({
        "queue": one.queue.name,
        "searched": one.seen.as_ref().map(|seen| searched(one, seen)),
        "not_searched": one.queue.log.topic().map(|topic| {
            format!("its records are in the Kafka topic {topic}, which is not looked through")
        }),
        "parked_searched": one.parked.values().all(|found| !found.is_partial),
        "dead_letters_searched": !one.letters.is_partial,
        "writes": one.seen.iter().flat_map(|seen| &seen.writes).map(write).collect::<Vec<_>>(),
        "write_count": one.seen.as_ref().map(|seen| seen.count),
        "groups": groups.collect::<Vec<_>>(),
    })
}

/// Returns whether a group has yet to deliver the write.
fn is_pending(write: &QueuedWrite, account: &GroupAccount) -> bool {
    let lane = account.lanes.get(write.lane as usize);
    let is_ours = write.replay_of.as_deref().is_none_or(|only| only == account.name);
    is_ours && lane.is_some_and(|lane| write.position >= lane.position)
}

fn pending(admin: &AdminState, one: &InQueue, number: usize, write: &QueuedWrite) -> Value {
    let account = &one.accounts[number];
    let ahead = write.ahead[number];
    let done = account.lanes.get(write.lane as usize).map_or(0, |lane| lane.done);
    let rate = admin
        .rates
        .of_lane(&one.queue.name, &account.name, write.lane, done);
    let eta = ahead.zip(rate.filter(|rate| *rate > 0.0));
    json!({
        "position": write.position,
        "time_ms": write.time_ms,
        "lane": write.lane,
        "place": write.found.place,
        "documents_ahead": ahead,
        "lane_docs_per_s": rate,
        "estimated_s": eta.map(|(ahead, rate)| ahead as f64 / rate),
        "held_by": held_by(admin, one, account, write.lane),
    })
}

/// Returns what the documents of a lane wait for.
fn held_by(admin: &AdminState, one: &InQueue, account: &GroupAccount, lane: u32) -> Vec<Value> {
    let queues = admin.shared.queues.load();
    let group = queues.group(&one.queue.name, &account.name);
    let waits = waits_of(&one.queue.name, account, group.map(|group| &**group));
    let all = waits.as_array().cloned().unwrap_or_default();
    let concerns = |wait: &Value| match wait["lanes"].as_array() {
        Some(lanes) => lanes.contains(&json!(lane)),
        None => wait["reason"] != "parked",
    };
    all.into_iter().filter(concerns).collect()
}

fn letters(one: &InQueue, group: &str) -> Vec<Value> {
    let of_group = one
        .letters
        .letters
        .iter()
        .filter(|letter| letter.cause.group == group);
    let told = of_group.map(|letter| {
        json!({
            "id": letter.id,
            "died_ms": letter.died_ms,
            "edited_ms": letter.edited_ms,
            "status": letter.cause.status,
            "type": letter.cause.kind,
            "reason": letter.cause.reason,
            "position": letter.cause.position,
            "lane": letter.cause.lane,
            "place": letter.cause.place,
        })
    });
    told.collect()
}

fn write(write: &QueuedWrite) -> Value {
    json!({
        "position": write.position,
        "time_ms": write.time_ms,
        "lane": write.lane,
        "place": write.found.place,
        "action": write.found.op.as_str(),
        "index": write.found.index,
        "routing": write.found.routing,
        "replay_of": write.replay_of,
    })
}

/// Returns how far the search went, and how much there is.
fn searched(one: &InQueue, seen: &SearchResult) -> Value {
    let status = one.queue.log.on_disk().map(log::Log::status);
    json!({
        "from": seen.from,
        "to": seen.to,
        "since_ms": seen.since_ms,
        "records": seen.records,
        "bytes": seen.bytes,
        "unreadable": seen.unreadable,
        "start": status.as_ref().map(|status| status.start),
        "end": status.as_ref().map(|status| status.end),
        "complete": seen.next.is_none() && seen.unreadable == 0,
        "next": seen.next,
    })
}

/// The time for searching records, parked operations and dead letters.
const SEARCH: Duration = Duration::from_millis(800);
/// The most documents that one cluster is asked for.
const NAMES_MAX: usize = 1000;
