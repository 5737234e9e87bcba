//! Asks the cluster about a client.

use std::sync::Arc;
use std::time::Duration;

use bulk::{Flavour, Op, Writes};
use bytes::Bytes;
use cluster::{Node, PickReason, Snapshot};
use futures_util::future::join_all;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, StatusCode, response};
use serde_json::{Value, json};
use wire::{Chunk, Outgoing, SendError, SendErrorKind};

use super::closed::may_write_when_open;
use super::identity::shown;
use super::probe::probes;
use crate::admission::is_a_servers_error;
use crate::fingerprint::{Fingerprint, fingerprint_of};
use crate::nodes::{Message, Outbound, Purpose};
use crate::request_id::RequestId;

/// A request whose client is asked about.
#[derive(Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub(crate) outbound: &'a Outbound,
    pub(crate) snapshot: &'a Snapshot,
    /// The request's headers, with the account that it gets if it brings none.
    pub(crate) headers: &'a HeaderMap,
    pub(crate) request_id: &'a RequestId,
}

/// Why a question got no answer.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// The cluster turns the client away, in these words.
    TurnedAway(Box<(response::Parts, Bytes)>),
    /// No node could be reached.
    Away(String),
    /// All nodes that could be reached hung up. They may be on their way down, and come back otherwise, but
    /// somebody is there.
    HungUp(String),
    /// Nodes answer, but not this.
    Unanswered(String),
}

/// Why nobody could say whether a client may do something, in the words of the last one that was asked.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NoVerdict(String);

/// A name as it is written, an operation, and whether the client may do that operation there.
pub(super) type Permission = (Box<str>, Op, bool);

/// A question to a node.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) method: &'a Method,
    pub(super) target: &'a str,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: &'a Bytes,
}

/// A function that reads an answer; `None` if it does not answer the question.
pub(super) type Read<'r, T> = &'r dyn Fn(&response::Parts, &Bytes) -> Option<T>;

/// The result of asking one node.
enum Tried<T> {
    Answer(T),
    /// The node is there, and did not answer the question.
    Reached(String),
    HungUp(String),
    Unreachable(String),
}

/// Returns where a cluster says who somebody is; `None` if it does not ask anybody. The cluster is asked as a
/// stranger, so that no client's headers make the answer.
pub(super) async fn secured(caller: Caller<'_>) -> Result<Option<&'static str>, Failure> {
    let paths: &[&'static str] = match caller.snapshot.table.dialect().flavour {
        Flavour::Elasticsearch => &["/_security/_authenticate", "/_opendistro/_security/authinfo"],
        Flavour::OpenSearch => &["/_plugins/_security/authinfo", "/_opendistro/_security/authinfo"],
    };
    let nobody = HeaderMap::new();
    for path in paths {
        let question = Question {
            method: &Method::GET,
            target: path,
            headers: &nobody,
            body: &Bytes::new(),
        };
        let has_api = ask(caller, question, &|head, body| match head.status {
            _ if security_is_off(body) => Some(false),
            // The cluster has begun to ask, and is not ready to.
            _ if security_is_waking(body) => Some(true),
            // A proxy on the way has pages of its own for what it cannot reach: only a server's word counts.
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
                is_a_servers_error(&head.headers, body).then_some(false)
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Some(true),
            status => status.is_success().then_some(true),
        });
        if has_api.await? {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Whether Elasticsearch says that its security is there and not switched on, or beyond its licence
/// (`SecurityBaseRestHandler`).
fn security_is_off(body: &[u8]) -> bool {
    let says = |text: &str| memchr::memmem::find(body, text.as_bytes()).is_some();
    says("Security must be explicitly enabled") || says("current license is non-compliant for [security]")
}

/// Whether OpenSearch says that its security is there, and has not read yet who may do what
/// (`BackendRegistry`). The question was a stranger's, so no client has put these words there.
fn security_is_waking(body: &[u8]) -> bool {
    memchr::memmem::find(body, b"Security not initialized").is_some()
}

/// Returns the user that a client is, as the cluster says; `None` if the cluster lets the client in and does
/// not say.
pub(super) async fn user(caller: Caller<'_>, path: &str) -> Result<Option<Fingerprint>, Failure> {
    let headers = shown(caller.headers);
    let question = Question {
        method: &Method::GET,
        target: path,
        headers: &headers,
        body: &Bytes::new(),
    };
    let told = ask(caller, question, &|head, body| match head.status {
        // This is the cluster's own answer to the question who the client is.
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Some(Err(turned_away(head, body))),
        // Something before the cluster asks for credentials, and the cluster does not.
        StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
            is_a_servers_error(&head.headers, body).then_some(Ok(None))
        }
        status => status.is_success().then(|| Ok(named(body))),
    });
    told.await?
}

pub(super) fn turned_away(head: &response::Parts, body: &Bytes) -> Failure {
    Failure::TurnedAway(Box::new((head.clone(), body.clone())))
}

/// Returns the print of a user. One user is one client, whatever headers the client shows: passwords change,
/// and tokens are renewed. Several API keys of one user are several clients.
fn named(body: &[u8]) -> Option<Fingerprint> {
    let answer: Value = serde_json::from_slice(body).ok()?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = answer["username"].as_str().or(answer["user_name"].as_str())?;
    let realm = text(&answer["authentication_realm"]["name"]);
    let key = text(&answer["api_key"]["id"]);
    Some(fingerprint_of(&[
        b"user",
        name.as_bytes(),
        realm.as_bytes(),
        key.as_bytes(),
    ]))
}

/// Finds out whether a client may do each of these writes.
pub(super) async fn rights(caller: Caller<'_>, wanted: &[Writes]) -> Result<Vec<Permission>, Failure> {
    let names = |op: Op| -> Vec<Box<str>> {
        let having = wanted.iter().filter(|one| one.ops.contains(op));
        having.map(|one| one.name.clone()).collect()
    };
    let mut found = Vec::new();
    let (mut index, mut create, mut delete) = (names(Op::Index), names(Op::Create), names(Op::Delete));
    if caller.snapshot.table.dialect().flavour == Flavour::Elasticsearch {
        let asked = [(Op::Index, &index), (Op::Create, &create), (Op::Delete, &delete)];
        if let Some(privileges) = privileges(caller, asked).await? {
            found = privileges;
            (index, create, delete) = (Vec::new(), Vec::new(), Vec::new());
        }
    }
    let asked = [
        (Op::Index, index),
        (Op::Create, create),
        (Op::Update, names(Op::Update)),
        (Op::Delete, delete),
    ];
    let probed = asked.iter().map(|(op, names)| probed(caller, *op, names));
    for probed in join_all(probed).await {
        found.extend(probed?);
    }
    Ok(found)
}

/// The privileges that are asked for: actions, except for `create`, which no action stands for.
const PRIVILEGES: [(Op, &str); 3] = [
    (Op::Index, "indices:data/write/index:op_type/index"),
    (Op::Create, "create_doc"),
    (Op::Delete, "indices:data/write/delete"),
];

/// Returns Elasticsearch's answer about the names as they are written; `None` where it has no such API.
/// Updates are not asked about in this way: they are forbidden if fields are kept from a user, and that is
/// not a privilege.
async fn privileges(
    caller: Caller<'_>,
    asked: [(Op, &Vec<Box<str>>); 3],
) -> Result<Option<Vec<Permission>>, Failure> {
    let groups = asked
        .iter()
        .zip(PRIVILEGES)
        .filter(|((_, names), _)| !names.is_empty());
    let groups: Vec<Value> = groups
        .map(|((_, names), (_, privilege))| {
            json!({"names": names, "privileges": [privilege], "allow_restricted_indices": true})
        })
        .collect();
    if groups.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let Some(said) = has_privileges(caller, groups).await? else {
        return Ok(None);
    };
    let mut found = Vec::new();
    for ((op, names), (_, privilege)) in asked.into_iter().zip(PRIVILEGES) {
        for name in names {
            found.push((name.clone(), op, said["index"][&**name][privilege] == true));
        }
    }
    Ok(Some(found))
}

/// Returns Elasticsearch's answer to which privileges a client has; `None` where there is no such API.
async fn has_privileges(caller: Caller<'_>, groups: Vec<Value>) -> Result<Option<Value>, Failure> {
    let mut headers = shown(caller.headers);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let body = Bytes::from(json!({ "index": groups }).to_string());
    let question = Question {
        method: &Method::POST,
        target: "/_security/user/_has_privileges",
        headers: &headers,
        body: &body,
    };
    let told = ask(caller, question, &|head, body| match head.status {
        StatusCode::OK => Some(Ok(serde_json::from_slice(body).ok())),
        StatusCode::UNAUTHORIZED => Some(Err(turned_away(head, body))),
        status if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS => Some(Ok(None)),
        _ => None,
    });
    told.await?
}

/// Whether a client has an Elasticsearch privilege for all indices that a pattern covers, including those to
/// come; `None` where nobody narrows patterns to the indices that a client may see, so that an answer of 200
/// was for all of a pattern.
pub(crate) async fn covers(
    caller: Caller<'_>,
    patterns: &[Box<str>],
    privilege: &str,
) -> Result<Option<bool>, NoVerdict> {
    if caller.snapshot.table.dialect().flavour != Flavour::Elasticsearch {
        return Ok(None);
    }
    let groups = vec![json!({"names": patterns, "privileges": [privilege]})];
    match has_privileges(caller, groups).await {
        Ok(said) => Ok(said.map(|said| said["has_all_requested"] == true)),
        // The cluster says so to the request itself.
        Err(Failure::TurnedAway(_)) => Ok(None),
        Err(Failure::Away(why) | Failure::HungUp(why) | Failure::Unanswered(why)) => Err(NoVerdict(why)),
    }
}

async fn probed(caller: Caller<'_>, op: Op, names: &[Box<str>]) -> Result<Vec<Permission>, Failure> {
    let mut headers = shown(caller.headers);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    let mut found = Vec::new();
    for probe in probes(op, names, &caller.snapshot.table) {
        let body = Bytes::from(probe.body.clone());
        let question = Question {
            method: &Method::POST,
            target: &probe.target,
            headers: &headers,
            body: &body,
        };
        let read = |head: &response::Parts, body: &Bytes| match head.status {
            StatusCode::OK => probe.read(body).map(Ok),
            StatusCode::UNAUTHORIZED => Some(Err(turned_away(head, body))),
            // The whole probe is refused: let the cluster say so to the client itself.
            status if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS => {
                Some(Ok(vec![Some(false); probe.names.len()]))
            }
            _ => None,
        };
        let said = ask(caller, question, &read).await??;
        let mut closed = Vec::new();
        for (name, may) in probe.names.into_iter().zip(said) {
            match may {
                Some(may) => found.push((name, op, may)),
                None => closed.push(name),
            }
        }
        if !closed.is_empty() {
            let said = may_write_when_open(caller, op, &closed).await?;
            found.extend(closed.into_iter().zip(said).map(|(name, may)| (name, op, may)));
        }
    }
    Ok(found)
}

/// Asks a node, and others while none answers the question: a cluster is away only if none of its nodes can
/// be reached.
pub(super) async fn ask<T>(
    caller: Caller<'_>,
    question: Question<'_>,
    read: Read<'_, T>,
) -> Result<T, Failure> {
    let Caller {
        outbound, snapshot, ..
    } = caller;
    let mut tried: Vec<Arc<Node>> = Vec::new();
    let (mut unreachable, mut hung_up) = (String::new(), None);
    while tried.len() < snapshot.nodes.len().min(TRIED_IN_TURN_MAX) {
        let node = outbound.pick(snapshot, PickReason::Request, &tried);
        let one = try_node(caller, question, &node, read).await;
        tried.push(node);
        match one {
            Tried::Answer(answer) => return Ok(answer),
            Tried::Reached(why) if tried.len() >= snapshot.nodes.len().min(TRIED_IN_TURN_MAX) => {
                return Err(Failure::Unanswered(why));
            }
            Tried::Reached(_) => {}
            Tried::Unreachable(why) => {
                unreachable = why;
                break;
            }
            Tried::HungUp(why) => {
                hung_up = Some(why);
                break;
            }
        }
    }
    let is_new = |node: &&Arc<Node>| !tried.iter().any(|known| known.is(node));
    let others: Vec<_> = snapshot.nodes.iter().filter(is_new).collect();
    let (mut at, mut reached) = (0, None);
    while at < others.len() {
        // A few nodes at first, since one answer is enough; soon all of them, since it may be that none
        // answers.
        let together = &others[at..others.len().min(at + at.max(2))];
        at += together.len();
        let answers = together.iter().map(|node| try_node(caller, question, node, read));
        for one in join_all(answers).await {
            match one {
                Tried::Answer(answer) => return Ok(answer),
                Tried::Reached(why) => reached = Some(why),
                Tried::HungUp(why) => hung_up = Some(why),
                Tried::Unreachable(_) => {}
            }
        }
    }
    Err(match (reached, hung_up) {
        (Some(why), _) => Failure::Unanswered(why),
        (None, Some(why)) => Failure::HungUp(why),
        (None, None) => Failure::Away(unreachable),
    })
}

async fn try_node<T>(caller: Caller<'_>, question: Question<'_>, node: &Node, read: Read<'_, T>) -> Tried<T> {
    let message = Message {
        request_id: caller.request_id,
        purpose: Purpose::Ask,
        method: question.method,
        target: question.target,
        headers: question.headers,
    };
    let body = || match question.body.is_empty() {
        true => Outgoing::Empty,
        false => Outgoing::Full(Chunk::Bytes(question.body.clone())),
    };
    let deadline = tokio::time::Instant::now() + ANSWER_TIMEOUT;
    let mut stale = 0;
    loop {
        let error = match exchanged(caller, node, message, body(), deadline).await {
            Ok((head, body)) => {
                return match read(&head, &body) {
                    Some(answer) => Tried::Answer(answer),
                    None => Tried::Reached(format!("{} answered {}", node.name, head.status)),
                };
            }
            Err(error) => error,
        };
        if is_unreachable(&error) {
            return Tried::Unreachable(error.to_string());
        }
        let why = format!("{}: {error}", node.name);
        if !matches!(error.kind, SendErrorKind::Closed | SendErrorKind::Io(_)) {
            return Tried::Reached(why);
        }
        // The node may have gone since the connection was used last: a new one tells.
        if !error.reused || stale == STALE_MAX {
            return Tried::HungUp(why);
        }
        stale += 1;
    }
}

/// Sends a question, and returns its whole answer.
async fn exchanged(
    caller: Caller<'_>,
    node: &Node,
    message: Message<'_>,
    body: Outgoing,
    deadline: tokio::time::Instant,
) -> Result<(response::Parts, Bytes), SendError> {
    let reply = caller.outbound.exchange(node, message, body, deadline).await?;
    let (head, body) = reply.into_parts();
    let body = body.collect(ANSWER_BYTES_MAX).await?;
    Ok((head, Bytes::copy_from_slice(&body)))
}

/// Whether no connection to a node can be made. A node that hangs up, takes long, or has no time, is there
/// all the same.
fn is_unreachable(error: &SendError) -> bool {
    matches!(
        error.kind,
        SendErrorKind::Connect(_) | SendErrorKind::ConnectTimeout | SendErrorKind::Tls(_)
    )
}

/// How many nodes are asked in turn that answer, but not the question.
const TRIED_IN_TURN_MAX: usize = 3;
/// How many kept connections to a node may turn out to be closed before it counts as one that hangs up.
const STALE_MAX: u32 = 8;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);
const ANSWER_BYTES_MAX: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_the_same_whatever_it_shows_and_keys_of_one_user_are_several_clients() {
        let of = |answer: Value| named(answer.to_string().as_bytes());
        let realm = json!({"name": "default_file"});
        let user = json!({"username": "u", "authentication_realm": realm, "roles": ["a"]});
        let mut later = user.clone();
        later["roles"] = json!(["b"]);
        assert_eq!(of(user.clone()), of(later));
        let mut key = user.clone();
        key["api_key"] = json!({"id": "k1"});
        let mut elsewhere = user.clone();
        elsewhere["authentication_realm"]["name"] = json!("ldap");
        let of_opensearch = of(json!({"user_name": "u", "backend_roles": []}));
        let all = [of(user), of(key), of(elsewhere), of_opensearch];
        for (at, one) in all.iter().enumerate() {
            assert!(one.is_some() && !all[..at].contains(one));
        }
        assert_eq!(of(json!({})), None);
    }

    #[test]
    fn security_that_is_not_switched_on_is_told_by_its_words() {
        for (body, off) in [
            (
                r#"{"error":{"reason":"Security must be explicitly enabled when using a [basic] license."}}"#,
                true,
            ),
            (
                r#"{"error":{"reason":"current license is non-compliant for [security]"}}"#,
                true,
            ),
            (
                r#"{"error":{"reason":"missing authentication credentials"}}"#,
                false,
            ),
        ] {
            assert_eq!(security_is_off(body.as_bytes()), off, "{body}");
        }
    }
}
