//! Finds out whom a refusal of a whole request concerns. Servers, their security plugins and proxies before
//! them refuse a whole request for one index or one document in it, and in the same words for the gateway's
//! account or for the whole cluster. A lane waits only for the latter. So the node is sent other requests,
//! which change nothing. If it takes one of them, the operations of the refused request are sent again in
//! halves, down to those that are refused alone, and these wait apart from their lane. If the node takes
//! none of a few, the account or the cluster is to blame.
//!
//! The same is asked about requests that go unanswered again and again, or that a proxy answers in place of a
//! server: something on the way may cut connections for what it finds in a document.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bulk::{Op, RouteTable, Target};
use cluster::{Node, PickReason, Snapshot};
use http::{Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;
use wire::SendError;

use crate::delivery::doubt::Document;
use crate::delivery::error_scope::{concerned, names_index};
use crate::delivery::lane::Route;
use crate::delivery::outcome::{Again, Outcome, Outcomes, outcomes};
use crate::delivery::sent_as::{asked_as, sent_as};
use crate::delivery::server_error::Error;
use crate::delivery::work::Work;
use crate::nodes::lines::{Body, Lines};
use crate::nodes::{Message, Outbound, Purpose};
use crate::queue::parked::{FailureRow, Scope, Unexplained};

/// What a node does with a request that changes nothing.
enum Trial {
    /// The node takes it, whatever becomes of its operation.
    Taken,
    Refused,
    /// The node is busy or away; in words.
    Unanswered(String),
}

// === impl Route ===

impl Route {
    /// Returns the outcomes of a request as they are if a node that refused the request as a whole, or has
    /// not answered it again and again, takes others. `operations` are those of the request.
    pub(super) async fn sort_refusal(
        &self,
        outcomes: Outcomes,
        node: &Node,
        (work, operations): (&Work<'_>, &[usize]),
        (outbound, snapshot): (&Outbound, &Snapshot),
    ) -> Outcomes {
        let is_tried_often = || {
            let rows = operations.iter().map(|operation| work.failure_rows[*operation]);
            outcomes.unexplained().is_some_and(|kind| are_suspect(rows, kind))
        };
        let began = outcomes.refused_at();
        // Requests that went well before this one had failed say nothing about a node that may have gone.
        let began = began.or_else(|| is_tried_often().then(Instant::now));
        let Some(began) = began.filter(|_| self.group.parked().is_some()) else {
            return outcomes;
        };
        let taken = self.outlets.taken_names.latest();
        let names = other_names(&some_names(work, operations, snapshot), &taken, &snapshot.table);
        let shape = (place(work, snapshot), 0);
        match self.takes_another((node, began), names, shape, outbound).await {
            Trial::Taken => outcomes.whole(),
            Trial::Unanswered(why) if outcomes.refused_at().is_some() => outcomes.because(&format!(
                "it cannot be told whether one document is to blame, since other requests do not go through: {why}"
            )),
            Trial::Refused | Trial::Unanswered(_) => outcomes,
        }
    }

    /// Returns whether a node has taken a request that began since then; it is asked about these names for
    /// that, in requests of about this length.
    async fn takes_another(
        &self,
        (node, since): (&Node, Instant),
        names: Vec<String>,
        (place, bytes): (IndexPlace, usize),
        outbound: &Outbound,
    ) -> Trial {
        let gate = self.outlets.gate(node);
        for name in names {
            if gate.has_taken_since(since) {
                return Trial::Taken;
            }
            let (target, body) = harmless(Op::Delete, &name, place);
            let request = (target, lengthened(&body, bytes));
            let trial = self.try_out(node, request, outbound).await;
            if matches!(trial, Trial::Unanswered(_)) && !gate.has_taken_since(since) {
                return trial;
            }
        }
        match gate.has_taken_since(since) {
            true => Trial::Taken,
            false => Trial::Refused,
        }
    }

    /// Returns what the refusal of a whole request concerns that has only this operation, given that the node
    /// takes others. If the node says nothing of an index, it is asked whether it takes other operations for
    /// the same one, and with the same parameters; `None` if it does not answer.
    pub(super) async fn scope_of_refusal(
        &self,
        work: &Work<'_>,
        operation: usize,
        again: &Again,
        snapshot: &Snapshot,
    ) -> Option<Scope> {
        let error = again.error();
        if let Some(error) = error.filter(|error| names_index(error, again.index.as_deref())) {
            return Some(concerned(error).unwrap_or(Scope::Index));
        }
        // Otherwise a lane would send each operation of a batch by itself. A try of parked operations finds
        // out about one after another.
        if work.blamed.get() >= BLAMED_MAX {
            return Some(Scope::Index);
        }
        let outbound = self.outbound();
        let name = work.named(operation, snapshot).written;
        let op = match (work.operations[operation].op, snapshot.table.target(&name)) {
            (Op::Delete, _) | (_, None | Some(Target::DataStream { .. })) => Op::Delete,
            _ => Op::Index,
        };
        let place = place(work, snapshot);
        let node = outbound.pick(snapshot, PickReason::Documents, &[]);
        // The account may have the right for other operations alone: then the node refuses the item.
        match self.try_out(&node, harmless(op, &name, place), &outbound).await {
            Trial::Taken => {}
            Trial::Refused => return self.blame(Scope::Index, &node, &name, (work, snapshot)).await,
            Trial::Unanswered(_) => return None,
        }
        // If nobody says what is wrong, it may be the length: something on the way that fails for all but
        // short requests concerns everybody. If a request of a usual length goes through, the operation is
        // to blame, be it for its own length.
        if error.is_none() {
            let at = work.operations[operation];
            let (target, body) = harmless(op, &name, place);
            let long = (target, lengthened(&body, at.end - at.start));
            let Trial::Taken = self.try_out(&node, long, &outbound).await else {
                return None;
            };
        }
        if work.wording.has_parameters() {
            // Its path may have another index. A delete runs no pipeline, which might write elsewhere.
            let (_, body) = harmless(Op::Delete, &name, explicit_place(snapshot));
            let alike = (work.wording.asked().to_owned(), body);
            match self.try_out(&node, alike, &outbound).await {
                Trial::Taken => {}
                Trial::Refused => return self.blame(Scope::Request, &node, &name, (work, snapshot)).await,
                Trial::Unanswered(_) => return None,
            }
        }
        work.blamed.set(work.blamed.get() + 1);
        Some(Scope::Document)
    }

    /// Returns this scope if the node still takes requests for other names after it has refused one for this
    /// name: by now it may refuse everything, or another way may lead to it.
    async fn blame(
        &self,
        scope: Scope,
        node: &Node,
        name: &str,
        (work, snapshot): (&Work<'_>, &Snapshot),
    ) -> Option<Scope> {
        let taken = self.outlets.taken_names.latest();
        let names = other_names(&[name.to_owned()], &taken, &snapshot.table);
        let (since, shape) = (Instant::now(), (place(work, snapshot), 0));
        let outbound = self.outbound();
        let takes = self.takes_another((node, since), names, shape, &outbound);
        matches!(takes.await, Trial::Taken).then_some(scope)
    }

    /// Returns what becomes of an operation whose request, which has no other, a node refuses in its own
    /// words. The request may have been damaged on the way, or everything may be refused: the operation is to
    /// blame only if the node takes another request of a usual length, and is dead only if it was refused
    /// twice, and the node took others after each time. After the first time alone would not do: a node that
    /// refused everything until that moment takes others, too.
    pub(super) async fn refused_alone(
        &self,
        work: &Work<'_>,
        operation: usize,
        (error, doubt): (Arc<Error>, bool),
        snapshot: &Snapshot,
    ) -> Outcome {
        let at = work.operations[operation];
        let lines = &work.body[at.start..at.end];
        let outbound = self.outbound();
        let node = outbound.pick(snapshot, PickReason::Documents, &[]);
        let taken = self.outlets.taken_names.latest();
        let names = other_names(&some_names(work, &[operation], snapshot), &taken, &snapshot.table);
        let shape = (place(work, snapshot), lines.len());
        let takes = self.takes_another((&node, Instant::now()), names, shape, &outbound);
        let once = &self.outlets.refused_once;
        match takes.await {
            Trial::Taken if error.status != 400 => {
                let again = Again::refused(error).with_doubt(doubt);
                Outcome::Park(Scope::Document, Arc::new(again))
            }
            Trial::Taken if once.again(lines, &error) => Outcome::Refused(error),
            Trial::Taken => Outcome::Split { error, doubt },
            Trial::Refused | Trial::Unanswered(_) => {
                once.forget(lines, &error);
                let why = format!("{error}; no other request goes through either");
                Outcome::again(Again::in_doubt(why).with_doubt(doubt))
            }
        }
    }

    /// Records an index of operations that are all done.
    pub(super) fn note_taken(&self, work: &Work<'_>, operations: &[usize], snapshot: &Snapshot) {
        let name = operations
            .first()
            .map(|first| work.named(*first, snapshot).written);
        name.into_iter()
            .for_each(|name| self.outlets.taken_names.add(name));
    }

    /// Sends a node a request, its path and query and its body, with one operation, packed as documents are
    /// delivered.
    async fn try_out(&self, node: &Node, request: (String, String), outbound: &Outbound) -> Trial {
        let began = Instant::now();
        let (status, told) = match self.asked(node, request, outbound).await {
            Ok(answer) => answer,
            Err(why) => return Trial::Unanswered(why.to_string()),
        };
        match status {
            StatusCode::OK if told.are_answered() => {
                self.outlets.gate(node).took(began);
                Trial::Taken
            }
            status if status.is_server_error() => {
                Trial::Unanswered(format!("{} answered {status}", node.name))
            }
            status @ (StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT) => {
                Trial::Unanswered(format!("{} answered {status}", node.name))
            }
            _ => Trial::Refused,
        }
    }

    /// Sends such a request, and returns the status of the answer and the outcome of its operation.
    pub(super) async fn asked(
        &self,
        node: &Node,
        (target, body): (String, String),
        outbound: &Outbound,
    ) -> Result<(StatusCode, Outcomes), SendError> {
        let pool = self.worker.pool();
        let mut lines = pool.take(body.len());
        lines.extend_from_slice(body.as_bytes());
        let body = Body::new([Lines::Whole(lines.freeze())], pool);
        let (headers, body) = self.encoded(body, outbound).await;
        let message = Message {
            request_id: &self.request_id,
            purpose: Purpose::Ask,
            method: &Method::POST,
            target: &target,
            headers: &headers,
        };
        let began = Instant::now();
        let deadline = tokio::time::Instant::now() + ANSWER_WITHIN;
        let (head, body) = outbound.whole(node, message, body, deadline).await?;
        let told = outcomes(head.status, &head.headers, &body, 1, (&node.name, began));
        Ok((head.status, told))
    }
}

/// Where a request names its index.
#[derive(Clone, Copy)]
pub(super) enum IndexPlace {
    Path,
    Action,
}

/// Returns where a request that changes nothing is to name its index: where the batch's requests do. What is
/// between the gateway and the node may go by paths.
pub(super) fn place(work: &Work<'_>, snapshot: &Snapshot) -> IndexPlace {
    match work.head.index {
        Some(_) => IndexPlace::Path,
        None => explicit_place(snapshot),
    }
}

fn explicit_place(snapshot: &Snapshot) -> IndexPlace {
    match snapshot.table.dialect().allow_explicit_index {
        true => IndexPlace::Action,
        false => IndexPlace::Path,
    }
}

/// Returns path and query, and body, of a request with one operation that changes nothing, however it ends:
/// its document is in a state that no document can have.
fn harmless(op: Op, name: &str, place: IndexPlace) -> (String, String) {
    harmless_for(op, name, place, None)
}

/// Returns the same, with an operation for the shard of this document, if one is given.
pub(super) fn harmless_for(
    op: Op,
    name: &str,
    place: IndexPlace,
    document: Option<&Document>,
) -> (String, String) {
    let id = document.and_then(|document| document.id.clone());
    let mut action = json!({
        "_id": id.unwrap_or_else(|| format!("tidegate-{:016x}", fastrand::u64(..))),
        "if_seq_no": NO_SUCH_SEQ_NO,
        "if_primary_term": 1,
    });
    if let Some(routing) = document.and_then(|document| document.routing.as_deref()) {
        action["routing"] = json!(routing);
    }
    let path = match place {
        IndexPlace::Path => format!("/{}/_bulk", utf8_percent_encode(name, NON_ALPHANUMERIC)),
        IndexPlace::Action => {
            action["_index"] = json!(name);
            "/_bulk".to_owned()
        }
    };
    let mut body = format!("{}\n", json!({ op.as_str(): action }));
    if op != Op::Delete {
        body.push_str("{}\n");
    }
    (asked_as(&sent_as(&format!("{path}?pipeline=_none"))), body)
}

/// Makes the first line of a body longer by spaces, so that the body has this many bytes, but no more than is
/// usual.
fn lengthened(body: &str, bytes: usize) -> String {
    let (first, rest) = body.split_at(1);
    let more = bytes.min(USUAL_BYTES).saturating_sub(body.len());
    // Random ones, which do not go into nothing when they are packed.
    let spaces = std::iter::repeat_with(|| if fastrand::bool() { ' ' } else { '\t' });
    let mut long = first.to_owned();
    long.extend(spaces.take(more));
    long + rest
}

/// Whether one of the operations of a request is suspect that has failed in this way: one of them has often
/// failed so. Parked operations are joined by others that have not been tried, at any time.
fn are_suspect(mut rows: impl Iterator<Item = FailureRow>, kind: Unexplained) -> bool {
    rows.any(|row| row.has(kind, UNEXPLAINED_MAX))
}

/// Returns a few of the names that operations have for their indices.
fn some_names(work: &Work<'_>, operations: &[usize], snapshot: &Snapshot) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for operation in operations.iter().step_by(operations.len() / LOOKED_AT + 1) {
        let name = work.named(*operation, snapshot).written;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Returns names by which a node may take a request that it refuses for something in `refused`: one that no
/// index has, and some that have been taken, that are among several in the request, or that are there.
fn other_names(refused: &[String], taken: &[String], table: &RouteTable) -> Vec<String> {
    let mut names = vec![NO_INDEX.to_owned()];
    let is_alone = |name: &str| refused.len() == 1 && refused[0] == name;
    let others = taken.iter().rev().filter(|name| !is_alone(name));
    let others = others.chain(refused.iter().filter(|name| !is_alone(name)).take(OF_REQUEST));
    let there = table.known_names();
    let there = there.filter(|name| !name.starts_with('.') && !refused.iter().any(|known| known == name));
    for name in others.map(String::as_str).chain(there.take(THERE)) {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// The name of an index that nobody has.
const NO_INDEX: &str = "tidegate-asks-what-is-refused";
/// No shard ever has this many operations.
const NO_SUCH_SEQ_NO: u64 = 1_000_000_000_000_000;
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How often in a row an operation may fail without a word that explains it before one of its request is
/// suspected.
const UNEXPLAINED_MAX: u8 = 3;
/// The length of a usual document: a request that changes nothing is as long as the refused one, up to this.
const USUAL_BYTES: usize = 4 << 10;
/// The most operations of a batch that are looked at by themselves.
pub(super) const BLAMED_MAX: u32 = 8;
/// The number of operations whose names are looked at.
const LOOKED_AT: usize = 200;
/// The numbers of names of each kind that a node is asked about.
const OF_REQUEST: usize = 3;
const THERE: usize = 2;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bulk::{Dialect, Flavour, Formula, IndexRoute, NodeIx, Version};

    use super::*;

    fn strings(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_node_is_asked_about_a_few_names_whatever_it_refuses() {
        let mut table = RouteTable::builder(Dialect::new(Flavour::OpenSearch, Version::new(2, 19, 0)), 1);
        for name in ["a", ".system"] {
            table.index(Arc::new(IndexRoute::new(
                name,
                Formula::Modulo,
                [Some(NodeIx(0))],
            )));
        }
        let table = table.build();
        let asked = |refused: &[&str], taken: &[&str]| {
            let names = other_names(&strings(refused), &strings(taken), &table);
            assert_eq!(names[0], NO_INDEX);
            names[1..].to_vec()
        };
        assert_eq!(asked(&["b"], &["c", "b"]), ["c", "a"], "not the refused one");
        assert_eq!(
            asked(&["b", "c"], &["b"]),
            ["b", "c", "a"],
            "one of several may be taken"
        );
        assert_eq!(asked(&["a"], &[]), [""; 0]);
        assert_eq!(
            asked(&["1", "2", "3", "4"], &["5", "6"]),
            ["6", "5", "1", "2", "3", "a"]
        );
    }

    #[test]
    fn operations_that_have_joined_those_that_failed_often_hide_none_of_them() {
        let untold = Unexplained::Untold;
        let mut often = FailureRow::default();
        (0..UNEXPLAINED_MAX).for_each(|_| often.add(Some(untold)));
        let with = |rows: &[FailureRow]| are_suspect(rows.iter().copied(), untold);
        assert!(with(&[often]) && with(&[FailureRow::default(), often]));
        assert!(!with(&[]) && !with(&[FailureRow::default()]));
        assert!(!are_suspect([often].into_iter(), Unexplained::Told));
    }

    #[test]
    fn a_harmless_request_names_its_index_where_the_refused_one_did() {
        let (target, body) = harmless(Op::Delete, "a-1", IndexPlace::Action);
        assert!(
            target.starts_with("/_bulk?pipeline=_none&timeout=1s&filter_path="),
            "{target}"
        );
        assert!(
            body.contains("\"_index\":\"a-1\"") && body.contains("\"if_seq_no\":"),
            "{body}"
        );
        assert_eq!(body.lines().count(), 1);
        let (target, body) = harmless(Op::Index, "a%1", IndexPlace::Path);
        assert!(target.starts_with("/a%251/_bulk?"), "{target}");
        assert_eq!(lengthened(&body, 100_000).len(), USUAL_BYTES);
        let long = lengthened(&body, 3_000);
        assert_eq!(long.len(), 3_000);
        let without_spaces = |text: &str| text.replace([' ', '\t'], "");
        assert_eq!(without_spaces(&long), without_spaces(&body));
        let first: serde_json::Value = serde_json::from_str(long.lines().next().unwrap()).unwrap();
        assert_eq!(first["index"]["if_primary_term"], 1);
        assert_eq!(lengthened(&body, 10), body);
        assert!(!body.contains("_index") && body.ends_with("}\n{}\n"), "{body}");
    }
}
