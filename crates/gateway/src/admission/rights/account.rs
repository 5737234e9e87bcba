//! Finds out what the gateway's own account may do, for `tidegate check --online`: the watch's questions, and
//! writes that change nothing ([`super::probe`]), are asked with that account before a gateway runs with it.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bulk::{Flavour, Op, Ops, RouteTable, Target, Writes};
use bytes::Bytes;
use cluster::{Cluster, NEEDS, NodeChoice, Snapshot};
use config::Sending;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde_json::{Value, json};

use super::ask::{self, Caller, Failure, Question};
use crate::nodes::Outbound;
use crate::request_id::RequestId;

/// The gateway's use of a cluster, which the account has to allow.
#[derive(Clone, Debug, Default)]
pub struct AccountUse {
    /// Whether the account writes: it delivers queued documents, or serves clients that bring no account.
    pub writes: bool,
    /// Whether the account delivers from a queue, and so looks for documents whose fate is not known.
    pub delivers: bool,
    /// Names that are certainly written to. All names that the cluster has are asked about as well.
    pub names: BTreeSet<String>,
}

/// A right, and the cluster's verdict on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountRight {
    /// The gateway's use of the right, for example `index documents`.
    pub action: String,
    /// The name that this kind of cluster has for the right; of both kinds, if the kind is unknown.
    pub called: String,
    /// Whether the account has the right.
    pub verdict: RightVerdict,
    /// The consequence of running without the right.
    pub without: &'static str,
    /// Whether it is wrong to run without the right: nothing is known, or no document gets there.
    pub vital: bool,
}

/// Whether an account has a right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RightVerdict {
    /// The account has the right for all of this many names (0: it is not a right for names).
    Granted(usize),
    /// The account does not have the right at all.
    Denied,
    /// The account does not have the right for these of this many names.
    DeniedFor(Vec<String>, usize),
    /// Nobody could say; the string says why.
    Unknown(String),
}

/// The rights of an account at a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccountRights {
    /// The cluster does not authenticate its clients.
    Open,
    /// The cluster's word on each right.
    Asked(Vec<AccountRight>),
}

/// Asks a cluster what the account of its configuration may do. Nothing is changed there.
///
/// # Errors
///
/// If the system gives no runtime.
pub fn account_rights(watched: &Arc<Cluster>, used: &AccountUse) -> io::Result<AccountRights> {
    let watched = Arc::clone(watched);
    wire::run_local(MEMORY, |worker| async move {
        let pool = worker.pool().clone();
        let choice = NodeChoice::default();
        let outbound = Outbound::new(Arc::clone(&watched), choice, &sending(), 1, pool, Arc::default());
        let mut headers = HeaderMap::new();
        if let Some(account) = watched.config().credentials.authorization().ok().flatten() {
            headers.insert(AUTHORIZATION, account);
        }
        let caller = Caller {
            outbound: &outbound,
            snapshot: &watched.snapshot(),
            headers: &headers,
            request_id: &RequestId::new(HeaderValue::from_static("tidegate-check")),
        };
        of(caller, used).await
    })
}

async fn of(caller: Caller<'_>, used: &AccountUse) -> AccountRights {
    let asks = ask::secured(caller).await;
    if matches!(asks, Ok(None)) {
        return AccountRights::Open;
    }
    let mut rights = reading(caller).await;
    let table = &caller.snapshot.table;
    let names = names(table, used);
    let (there, missing): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| table.target(name).is_some());
    rights.extend(shards(caller, &there).await);
    if used.writes {
        rights.extend(writing(caller, &there).await);
        if !missing.is_empty() {
            rights.push(creating(caller, missing).await);
        }
    }
    if used.delivers {
        rights.extend(looking(caller, &there).await);
    }
    AccountRights::Asked(rights)
}

/// Returns the names that are asked about: those that are given, and the cluster's own except for those of
/// its systems.
fn names(table: &RouteTable, used: &AccountUse) -> BTreeSet<String> {
    let own = table
        .each_name()
        .filter(|name| !name.starts_with('.') && table.target(name).is_some_and(|t| t.write().is_ok()));
    let mut names: BTreeSet<String> = own.map(str::to_owned).collect();
    while names.len() > NAMES_MAX {
        names.pop_last();
    }
    names.extend(used.names.iter().cloned());
    names
}

/// Asks the questions of the watch.
async fn reading(caller: Caller<'_>) -> Vec<AccountRight> {
    let mut rights = Vec::new();
    for need in NEEDS {
        let Some(verdict) = get(caller, need.target).await else {
            continue;
        };
        rights.push(AccountRight {
            action: format!("ask {}", need.tells),
            called: called(caller.snapshot, need.elasticsearch, need.opensearch),
            verdict,
            without: need.without.unwrap_or(
                "the gateway knows nothing of the cluster: bulks pass whole, and nothing is delivered",
            ),
            vital: need.without.is_none(),
        });
    }
    rights
}

/// Returns the answer to a GET as an answer to whether the GET is allowed; `None` if there is nothing of the
/// kind.
async fn get(caller: Caller<'_>, target: &str) -> Option<RightVerdict> {
    let question = Question {
        method: &Method::GET,
        target,
        headers: caller.headers,
        body: &Bytes::new(),
    };
    match ask::ask(caller, question, &|head, _| Some(head.status)).await {
        Ok(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => Some(RightVerdict::Denied),
        Ok(StatusCode::BAD_REQUEST | StatusCode::METHOD_NOT_ALLOWED) => None,
        // The account was allowed to ask, and there is nothing.
        Ok(StatusCode::NOT_FOUND) => Some(RightVerdict::Granted(0)),
        Ok(status) if status.is_success() => Some(RightVerdict::Granted(0)),
        Ok(status) => Some(RightVerdict::Unknown(format!("the answer is {status}"))),
        Err(failure) => Some(RightVerdict::Unknown(words(failure))),
    }
}

/// Asks for an index's shards: the index's predictions are checked against the cluster's own answer before
/// its bulks are split.
async fn shards(caller: Caller<'_>, names: &[String]) -> Option<AccountRight> {
    let mut denied = Vec::new();
    let asked = names.len().min(SHARDS_NAMES_MAX);
    for name in &names[..asked] {
        let name_in_path = percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC);
        match get(
            caller,
            &format!("/{name_in_path}/_search_shards?filter_path=shards.shard"),
        )
        .await
        {
            Some(RightVerdict::Denied) => denied.push(name.clone()),
            Some(unknown @ RightVerdict::Unknown(_)) => return Some(shards_right(caller.snapshot, unknown)),
            _ => {}
        }
    }
    (asked > 0).then(|| shards_right(caller.snapshot, verdict(denied, asked)))
}

fn shards_right(snapshot: &Snapshot, verdict: RightVerdict) -> AccountRight {
    AccountRight {
        action: "ask which shards a search goes to".to_owned(),
        called: called(
            snapshot,
            "`view_index_metadata`",
            "`indices:admin/shards/search_shards` and `indices:data/read/search`",
        ),
        verdict,
        without: "predictions cannot be checked, and bulks for these pass whole",
        vital: false,
    }
}

/// Asks for writes, by operations that change nothing.
async fn writing(caller: Caller<'_>, names: &[String]) -> Vec<AccountRight> {
    let table = &caller.snapshot.table;
    let wanted = names.iter().map(|name| {
        // A data stream takes nothing but `create`.
        let stream = matches!(table.target(name), Some(Target::DataStream { .. }));
        let ops: Ops = Ops::ALL
            .into_iter()
            .filter(|op| !stream || *op == Op::Create)
            .collect();
        Writes {
            name: name.as_str().into(),
            ops,
        }
    });
    let wanted: Vec<Writes> = wanted.collect();
    let found = ask::rights(caller, &wanted).await.map_err(words);
    let kinds = [
        (
            Op::Index,
            "index documents",
            "`index`",
            "`indices:data/write/index` and `indices:admin/mapping/put`",
        ),
        (
            Op::Create,
            "create documents",
            "`create_doc`",
            "`indices:data/write/index` and `indices:admin/mapping/put`",
        ),
        (
            Op::Update,
            "update documents",
            "`index`",
            "`indices:data/write/update`",
        ),
        (
            Op::Delete,
            "delete documents",
            "`delete`",
            "`indices:data/write/delete`",
        ),
    ];
    let asked = |op: Op| wanted.iter().filter(|one| one.ops.contains(op)).count();
    let kinds = kinds.into_iter().filter(|(op, ..)| asked(*op) > 0);
    kinds
        .map(|(op, action, elasticsearch, opensearch)| AccountRight {
            action: action.to_owned(),
            called: called(caller.snapshot, elasticsearch, opensearch),
            verdict: match &found {
                Err(why) => RightVerdict::Unknown(why.clone()),
                Ok(found) => {
                    let denied = found.iter().filter(|(_, of, may)| *of == op && !may);
                    verdict(denied.map(|(name, ..)| name.to_string()).collect(), asked(op))
                }
            },
            without: "what is written there with this account is refused, and what is queued is not delivered",
            vital: matches!(op, Op::Index | Op::Create),
        })
        .collect()
}

/// Asks for names that the cluster does not have yet. A probe would make them, so only privileges can tell.
async fn creating(caller: Caller<'_>, names: Vec<String>) -> AccountRight {
    let patterns: Vec<Box<str>> = names.iter().map(|name| name.as_str().into()).collect();
    let list = names.join(", ");
    AccountRight {
        action: format!("create {list}, which the cluster does not have yet, by the first write"),
        called: called(
            caller.snapshot,
            "`auto_configure` or `create_index`",
            "`indices:admin/create`",
        ),
        verdict: match ask::covers(caller, &patterns, "create_index").await {
            Ok(Some(true)) => RightVerdict::Granted(names.len()),
            Ok(Some(false)) => RightVerdict::DeniedFor(names.clone(), names.len()),
            Ok(None) => RightVerdict::Unknown("this cluster cannot be asked without making them".to_owned()),
            Err(why) => RightVerdict::Unknown(why.to_string()),
        },
        without: "nothing can be written there until somebody makes them",
        vital: false,
    }
}

/// Asks for reading documents: delivery looks for documents whose write may have been executed.
async fn looking(caller: Caller<'_>, names: &[String]) -> Option<AccountRight> {
    let table = &caller.snapshot.table;
    let concrete = |name: &String| match table.target(name).map(Target::write) {
        Some(Ok(write)) => write.name.to_string(),
        _ => name.clone(),
    };
    let indices: Vec<String> = names
        .iter()
        .map(concrete)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    if indices.is_empty() {
        return None;
    }
    let documents = indices
        .iter()
        .map(|index| json!({"_index": index, "_id": "tidegate-check"}));
    let body = Bytes::from(json!({"docs": documents.collect::<Vec<_>>()}).to_string());
    let mut headers = caller.headers.clone();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let question = Question {
        method: &Method::POST,
        target: "/_mget?_source=false",
        headers: &headers,
        body: &body,
    };
    let told = ask::ask(caller, question, &|head, body| Some((head.status, body.clone()))).await;
    let verdict = match told {
        Ok((StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _)) => RightVerdict::Denied,
        Ok((StatusCode::OK, body)) => {
            let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
            let found = answer["docs"].as_array().map(Vec::as_slice).unwrap_or_default();
            let denied = indices
                .iter()
                .zip(found)
                .filter(|(_, found)| found["error"]["type"] == "security_exception");
            verdict(denied.map(|(index, _)| index.clone()).collect(), indices.len())
        }
        Ok((status, _)) => RightVerdict::Unknown(format!("the answer is {status}")),
        Err(failure) => RightVerdict::Unknown(words(failure)),
    };
    Some(AccountRight {
        action: "look documents up".to_owned(),
        called: called(caller.snapshot, "`read`", "`indices:data/read/mget*`"),
        verdict,
        without: "a write whose answer was lost is sent again without a look whether it is there",
        vital: false,
    })
}

fn verdict(denied: Vec<String>, asked: usize) -> RightVerdict {
    match denied.len() {
        0 => RightVerdict::Granted(asked),
        _ => RightVerdict::DeniedFor(denied, asked),
    }
}

fn called(snapshot: &Snapshot, elasticsearch: &str, opensearch: &str) -> String {
    match snapshot.flavour {
        Some(Flavour::Elasticsearch) => elasticsearch.to_owned(),
        Some(Flavour::OpenSearch) => opensearch.to_owned(),
        None => format!("{opensearch} in OpenSearch, {elasticsearch} in Elasticsearch"),
    }
}

fn words(failure: Failure) -> String {
    match failure {
        Failure::TurnedAway(answer) => format!("the account is turned away with {}", answer.0.status),
        Failure::Away(why) | Failure::HungUp(why) | Failure::Unanswered(why) => why,
    }
}

/// The settings of these requests: a few questions at a time, with patience, since only the person who asked
/// waits for them.
fn sending() -> Sending {
    Sending {
        connections_per_node_max: 4,
        retry_count_max: 0,
        retry_delay: Duration::ZERO,
        connect_timeout: Duration::from_secs(3),
        response_timeout: Duration::from_secs(30),
        write_timeout: Duration::from_secs(10),
        idle_timeout: Duration::from_secs(10),
    }
}

/// The bytes for answers.
const MEMORY: usize = 64 << 20;
/// The most names that are asked about.
const NAMES_MAX: usize = 500;
/// The most names whose shards are asked for, with a request each.
const SHARDS_NAMES_MAX: usize = 20;
