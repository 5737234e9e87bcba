//! Looks for operations that may have been executed already, and whose index has a name that may have led
//! elsewhere then. Before such an operation is sent again, it is looked for wherever it can have gone. If a
//! document is there as the operation was to leave it, the operation wrote it, or another one that says the
//! same; then the operation is done.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use bulk::{Ask, Op, Operation};
use cluster::{PickReason, Snapshot};
use config::Level;
use http::{Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use wire::Outgoing;

use crate::bulk_request::ask_of;
use crate::delivery::asking::{Question, SHORT_BYTES, SOURCE_BYTES_MAX, Source};
use crate::delivery::doubt::{Document, Doubt, Resent};
use crate::delivery::lane::Route;
use crate::delivery::outcome::{Again, Outcome};
use crate::delivery::parcel::{Parcel, Transmitted, Wording};
use crate::delivery::readdressed::readdressed;
use crate::delivery::server_error::{Error, NO_RIGHT};
use crate::delivery::sources::{doc_of, holds, paths, same};
use crate::delivery::unknown::UnknownOutcome;
use crate::delivery::work::Work;
use crate::nodes::Outbound;
use crate::queue::parked::Scope;

/// An operation to look for in an index.
struct Lookup<'a> {
    operation: usize,
    document: &'a Document,
    id: &'a str,
    index: String,
    /// Whether the operation would go there now.
    now: bool,
    /// Whether the operation must not be sent again before it is known if its document is here.
    must_know: bool,
    /// Whether the document that is there does not tell if the operation was executed, because a script or a
    /// pipeline may have changed it.
    untold: bool,
}

/// The results of looking for operations that are in doubt, by the operations' numbers.
#[derive(Default)]
struct LookupResults<'l> {
    /// Operations whose documents are as the operations leave them.
    done: HashSet<usize>,
    /// Operations whose documents are in an index that their names no longer lead to, in a version that may
    /// be theirs.
    stays: HashMap<usize, &'l Lookup<'l>>,
    /// Operations whose documents are in the index that their names lead to now, in a version that may be
    /// theirs.
    there_now: HashSet<usize>,
    /// Operations about which nobody could be asked, and why: their lane waits for its cluster.
    waiting: HashMap<usize, String>,
    /// Operations whose shard cannot be read now, and why: they are parked.
    unreadable: HashMap<usize, String>,
}

/// The state of an operation's document in one index.
enum DocumentState {
    /// The node is too busy to say.
    Busy(String),
    Nothing,
    /// Another version of the document.
    Other,
    Ours,
    /// The state cannot be determined now; the string says why.
    Unknown(String),
}

// === impl LookupResults ===

impl<'l> LookupResults<'l> {
    /// Takes in the finding about an operation in one of the indices that it can have gone to.
    fn take(&mut self, look: &'l Lookup<'l>, there: DocumentState, resent: &RefCell<Resent>) {
        match there {
            DocumentState::Ours => drop(self.done.insert(look.operation)),
            DocumentState::Other if look.untold && look.now => {
                self.there_now.insert(look.operation);
            }
            DocumentState::Other if look.untold => {
                self.stays.insert(look.operation, look);
            }
            DocumentState::Other if !look.now => resent.borrow_mut().insert(look.document),
            DocumentState::Busy(why) => drop(self.waiting.insert(look.operation, why)),
            DocumentState::Unknown(why) if look.must_know => {
                drop(self.unreadable.insert(look.operation, why))
            }
            // Sending the operation to the same index again has the same effect.
            DocumentState::Unknown(_) | DocumentState::Nothing | DocumentState::Other => {}
        }
    }

    /// Compares the findings in one index with those in the others, and with operations that were sent again
    /// before.
    fn compare(&mut self, work: &Work<'_>, documents: &[(usize, Document)], resent: &Resent) {
        for (operation, document) in documents {
            if work.doubt[*operation].restart && resent.has(document) {
                self.done.remove(operation);
            }
        }
        // The index that the name leads to now has the document: sending the operation there again has the
        // same effect.
        self.stays.retain(|operation, look| {
            let goes_on = self.done.contains(operation)
                || self.waiting.contains_key(operation)
                || self.unreadable.contains_key(operation);
            let is_resent = work.doubt[*operation].restart && resent.has(look.document);
            !goes_on && !is_resent && !self.there_now.contains(operation)
        });
        self.waiting.retain(|operation, _| !self.done.contains(operation));
        self.unreadable
            .retain(|operation, _| !self.done.contains(operation));
    }

    /// Whether it is not known yet if an operation was executed.
    fn is_undecided(&self, operation: usize) -> bool {
        self.waiting.contains_key(&operation) || self.unreadable.contains_key(&operation)
    }

    /// Whether an operation must not be sent to where its name leads now.
    fn has(&self, operation: usize) -> bool {
        self.done.contains(&operation) || self.is_undecided(operation) || self.stays.contains_key(&operation)
    }
}

// === impl Route ===

impl Route {
    /// Looks for those operations of `left` that are in doubt. Takes out of `left` the operations that are
    /// done, that must wait, or that are sent elsewhere, and returns the outcomes of those that are not done.
    pub(crate) async fn look_back(
        &self,
        work: &mut Work<'_>,
        left: &mut Vec<usize>,
        outbound: &Outbound,
        snapshot: &Snapshot,
    ) -> Vec<(usize, Outcome)> {
        let in_doubt = |operation: &usize| {
            let doubt = work.doubt[*operation];
            doubt.is_any() && !doubt.looked
                // Deleting a document twice has the same effect as deleting it once.
                && work.operations[*operation].op != Op::Delete
        };
        let doubtful: Vec<usize> = left.iter().copied().filter(in_doubt).collect();
        if doubtful.is_empty() || !self.may_have_moved(work, &doubtful) {
            return Vec::new();
        }
        work.past.members.clear();
        let mut told = Vec::new();
        // The notes on each operation meanwhile take several times its lines, if these are short.
        for some in doubtful.chunks(LOOKED_AT_ONCE) {
            told.extend(Box::pin(self.look_for(work, some, left, outbound, snapshot)).await);
        }
        told
    }

    /// Looks for some of these operations.
    async fn look_for(
        &self,
        work: &mut Work<'_>,
        doubtful: &[usize],
        left: &mut Vec<usize>,
        outbound: &Outbound,
        snapshot: &Snapshot,
    ) -> Vec<(usize, Outcome)> {
        let documents = self.explained(work, doubtful, snapshot);
        let (looks, waiting) = self.looks(work, &documents, outbound, snapshot).await;
        let mut found = LookupResults {
            waiting,
            ..LookupResults::default()
        };
        let (mut rest, mut most) = (&looks[..], LOOKS_MAX);
        while !rest.is_empty() {
            let (some, later) = piece(rest, most, |look| bytes_of(work, look));
            match self.look_up(work, some, outbound, snapshot).await {
                // The documents that are there are larger than the operations: fewer are asked for from now
                // on.
                Ok(None) if some.len() > 1 => {
                    most = some.len() / 2;
                    continue;
                }
                Ok(there) => {
                    let there = there.unwrap_or_else(|| vec![DocumentState::Other]);
                    for (look, there) in some.iter().zip(there) {
                        found.take(look, there, &self.resent);
                    }
                }
                // The node answers, and would say so again: the lane need not wait for that.
                Err(why) if why.is_of_document() => {
                    for look in some {
                        found.take(look, DocumentState::Unknown(why.to_string()), &self.resent);
                    }
                }
                Err(why) => {
                    let waiting = some.iter().map(|look| (look.operation, why.to_string()));
                    found.waiting.extend(waiting);
                }
            }
            rest = later;
        }
        found.compare(work, &documents, &self.resent.borrow());
        left.retain(|operation| !found.has(*operation));
        // An operation that could have gone nowhere else may have somewhere to be looked for later, when its
        // name has moved.
        for look in &looks {
            work.doubt[look.operation].looked = !found.is_undecided(look.operation);
        }
        self.settle_found(work, found, outbound, snapshot).await
    }

    /// Returns where to look for operations; and the operations for which that cannot be determined now, with
    /// the reason.
    async fn looks<'d>(
        &self,
        work: &mut Work<'_>,
        documents: &'d [(usize, Document)],
        outbound: &Outbound,
        snapshot: &Snapshot,
    ) -> (Vec<Lookup<'d>>, HashMap<usize, String>) {
        let (mut looks, mut waiting) = (Vec::new(), HashMap::new());
        for (operation, document) in documents {
            let Some(id) = document.id.as_deref() else {
                continue;
            };
            let untold = is_untold(work, *operation, document, snapshot);
            match self
                .indices_of(work, (*operation, untold), document, outbound, snapshot)
                .await
            {
                Ok(indices) => looks.extend(indices.into_iter().map(|(index, now)| Lookup {
                    operation: *operation,
                    document,
                    id,
                    index,
                    now,
                    must_know: !now || work.doubt[*operation].is_uncertain(),
                    untold,
                })),
                Err(why) => drop(waiting.insert(*operation, why.to_string())),
            }
        }
        (looks, waiting)
    }

    /// Decides about operations that were found, or must wait, and are not done. Operations whose document
    /// stays where it is are sent there.
    async fn settle_found(
        &self,
        work: &Work<'_>,
        found: LookupResults<'_>,
        outbound: &Outbound,
        snapshot: &Snapshot,
    ) -> Vec<(usize, Outcome)> {
        let again = found.waiting.into_iter();
        let mut told: Vec<_> = again
            .map(|(operation, why)| (operation, Outcome::again(Again::in_doubt(why))))
            .collect();
        // One shard that cannot be read is no reason for the lane to wait.
        told.extend(found.unreadable.into_iter().map(|(operation, why)| {
            let again = Arc::new(Again::in_doubt(why));
            (operation, Outcome::Park(Scope::Document, again))
        }));
        let mut by_index: BTreeMap<&str, Vec<&Lookup<'_>>> = BTreeMap::new();
        let mut stays: Vec<_> = found.stays.into_values().collect();
        // The operations are sent in the order in which they came.
        stays.sort_by_key(|look| look.operation);
        for look in stays {
            by_index.entry(&look.index).or_default().push(look);
        }
        for (index, looks) in by_index {
            self.group.stayed.add(looks.len() as u64);
            let (creates, others): (Vec<_>, Vec<_>) = looks
                .into_iter()
                .partition(|look| work.operations[look.operation].op == Op::Create);
            told.extend(
                creates
                    .into_iter()
                    .map(|look| (look.operation, there_already(look))),
            );
            for some in pieces(&others, |look| bytes_of(work, look)) {
                let sent = Box::pin(self.send_there(work, index, some, outbound, snapshot));
                told.extend(sent.await);
            }
        }
        told
    }

    /// Sends operations to the index that has their documents, wherever their names lead now: sent through
    /// the names, the documents would be in two indices. Returns the outcomes of those that are not done.
    async fn send_there(
        &self,
        work: &Work<'_>,
        index: &str,
        looks: &[&Lookup<'_>],
        outbound: &Outbound,
        snapshot: &Snapshot,
    ) -> Vec<(usize, Outcome)> {
        let index = utf8_percent_encode(index, NON_ALPHANUMERIC);
        let query = work.wording.target.split_once('?').map_or("", |(_, query)| query);
        let query = query.split('&').filter(|pair| !pair.starts_with("require_"));
        let target = format!("/{index}/_bulk?{}", query.collect::<Vec<_>>().join("&"));
        let wording = Rc::new(Wording::new(target.trim_end_matches('?').to_owned()));
        let mut body = self.worker.pool().take(0);
        let (mut sent, mut not_done) = (Vec::new(), Vec::new());
        for look in looks {
            let at = work.operations[look.operation];
            match readdressed(&work.body[at.start..at.end], look.document.routing.as_deref()) {
                Some(lines) => {
                    body.extend_from_slice(&lines);
                    sent.push(look.operation);
                }
                None => {
                    let why = "its action line cannot be read".to_owned();
                    let again = Arc::new(Again::in_doubt(why));
                    not_done.push((look.operation, Outcome::Park(Scope::Document, again)));
                }
            }
        }
        let parcel = Parcel::whole(body.freeze(), sent.len() as u32, &wording);
        let node = outbound.pick(snapshot, PickReason::Documents, &[]);
        for told in self.transmit(&node, vec![parcel], &Cell::new(None)).await {
            if let Transmitted::Outcomes(outcomes) = told {
                not_done.extend(sent.iter().copied().zip(outcomes));
            }
        }
        not_done.retain(|(_, outcome)| *outcome != Outcome::Done);
        not_done
    }

    /// Whether it is worth looking: as a rule nothing has moved since a restart.
    fn may_have_moved(&self, work: &Work<'_>, doubtful: &[usize]) -> bool {
        let lost = doubtful.iter().any(|operation| work.doubt[*operation].lost);
        let first = doubtful.iter().any(|operation| work.doubt[*operation].first);
        lost || first
            || match self.whereabouts() {
                Some(whereabouts) => whereabouts.fences().iter().any(|fence| !fence.moved.is_empty()),
                None => true,
            }
    }

    /// Reads the documents that the lines of some operations name, by today's topology; operations that
    /// cannot be read are left out.
    fn explained(
        &self,
        work: &Work<'_>,
        operations: &[usize],
        snapshot: &Snapshot,
    ) -> Vec<(usize, Document)> {
        // This asks which document it is, not where it is: the place may not be proven yet.
        let ask = Ask {
            level: bulk::Level::Lane(1),
            ..ask_of(work.head, Level::Node)
        };
        let explained = operations.iter().filter_map(|operation| {
            let at = work.operations[*operation];
            let lines = &work.body[at.start..at.end];
            let document = match bulk::explain(lines, &ask, &snapshot.table).next()? {
                Ok(explained) => Document {
                    name: explained.name,
                    index: Some(explained.index),
                    id: explained.id,
                    routing: explained.routing,
                },
                // The topology cannot explain the operation, for example because its index was made a moment
                // ago.
                Err(_) => Document::read(lines, work.head)?,
            };
            Some((*operation, document))
        });
        explained.collect()
    }

    /// Returns the indices that an operation can have gone to, and whether the operation would go there now.
    async fn indices_of(
        &self,
        work: &mut Work<'_>,
        (operation, untold): (usize, bool),
        document: &Document,
        outbound: &Outbound,
        snapshot: &Snapshot,
    ) -> Result<Vec<(String, bool)>, UnknownOutcome> {
        let name = &document.name;
        let mut indices: Vec<String> = Vec::new();
        let Doubt { restart, .. } = work.doubt[operation];
        let uncertain = work.doubt[operation].is_uncertain();
        if uncertain {
            let tables = work.past.sent_by.iter().map(|snapshot| &*snapshot.table);
            let targets = tables
                .chain([&*snapshot.table])
                .filter_map(|table| table.laned(name));
            indices.extend(targets.filter_map(|target| Some(target.write().ok()?.name.to_string())));
        }
        let origin = work.batch.origin(operation);
        let request = (origin.position, origin.time_ms);
        indices.extend(self.indices_led_to(name, request, origin.led_to(name)));
        // The cluster may have rolled over, more than once, before the gateway knew.
        let asks = uncertain || restart && (self.whereabouts().is_none() || document.index.is_none());
        if asks && document.index.as_ref() != Some(name) {
            indices.extend(self.members_of(work, name, outbound, snapshot).await?);
        }
        if untold && !indices.is_empty() {
            indices.extend(document.index.clone());
        }
        indices.sort();
        indices.dedup();
        // If an index has that name itself, the operation has always gone there.
        indices.retain(|index| index != name);
        let indices = indices.into_iter().map(|index| {
            let now = document.index.as_ref() == Some(&index);
            (index, now)
        });
        // Sending the operation again to the index where it goes now has the same effect.
        Ok(indices.filter(|(_, now)| uncertain || untold || !now).collect())
    }

    /// Returns the indices that a name is known to have led to since a request was accepted. The request is
    /// named by its position and its time; in Kafka, it says where its first names led then.
    pub(crate) fn indices_led_to(
        &self,
        name: &str,
        (position, accepted_ms): (u64, u64),
        accepted: Option<&str>,
    ) -> Vec<String> {
        let whereabouts = self.whereabouts();
        let mut indices = whereabouts.map_or_else(Vec::new, |known| known.led_to(name, position));
        // An index that the name had left by then cannot have the document.
        let known = self.led_to.borrow();
        match accepted {
            Some(index) => {
                indices.push(index.to_owned());
                indices.extend(known.since(name, index, accepted_ms));
            }
            None => indices.extend(known.since(name, "", accepted_ms)),
        }
        indices
    }

    /// Returns the indices behind an alias or a data stream.
    async fn members_of(
        &self,
        work: &mut Work<'_>,
        name: &str,
        outbound: &Outbound,
        snapshot: &Snapshot,
    ) -> Result<Vec<String>, UnknownOutcome> {
        if let Some(members) = work.past.members.get(name) {
            return Ok(members.clone());
        }
        let encoded = utf8_percent_encode(name, NON_ALPHANUMERIC);
        let target = format!("/_resolve/index/{encoded}");
        let question = Question {
            method: Method::GET,
            target: &target,
            least: MEMBERS_BYTES_MAX,
            more: 0,
        };
        let answer = self.ask(question, Outgoing::Empty, outbound, snapshot).await?;
        let status = answer.status;
        let answer: Value =
            serde_json::from_slice(answer.body.as_deref().unwrap_or_default()).unwrap_or_default();
        let members = match status.as_u16() {
            200 => {
                let lists = [("aliases", "indices"), ("data_streams", "backing_indices")];
                let lists = lists.iter().flat_map(|(kind, key)| {
                    let entries = answer[*kind].as_array().into_iter().flatten();
                    entries
                        .filter(|entry| entry["name"] == name)
                        .map(|entry| entry[*key].clone())
                });
                let texts = |list: Value| match list {
                    Value::Array(list) => list
                        .iter()
                        .filter_map(|one| one.as_str().map(str::to_owned))
                        .collect(),
                    Value::String(one) => vec![one],
                    _ => Vec::new(),
                };
                lists.flat_map(texts).collect()
            }
            // The cluster cannot say.
            400 | 403 | 404 | 405 => Vec::new(),
            _ => {
                let name = name.to_owned();
                return Err(UnknownOutcome::Name { name, status });
            }
        };
        work.past.members.insert(name.to_owned(), members);
        Ok(work.past.members[name].clone())
    }

    /// Returns the states of some operations' documents, in their order; `None` if the answer is longer than
    /// what is read. Then a document that was asked for alone is another version: what the operation writes
    /// would be shorter.
    async fn look_up(
        &self,
        work: &Work<'_>,
        looks: &[Lookup<'_>],
        outbound: &Outbound,
        snapshot: &Snapshot,
    ) -> Result<Option<Vec<DocumentState>>, UnknownOutcome> {
        let bytes = looks.iter().map(|look| bytes_of(work, look)).sum::<usize>();
        if let [look] = looks
            && bytes > SOURCE_BYTES_MAX
            && matches!(at(work, look).op, Op::Create | Op::Index)
            && !is_minted(work, look)
        {
            let there = self.look_at_source(work, look, outbound, snapshot).await?;
            return Ok(Some(vec![there]));
        }
        let docs: Vec<Value> = looks.iter().map(|look| wanted_of(work, look)).collect();
        let body = Outgoing::from(json!({"docs": docs}).to_string().into_bytes());
        // The answer for one document, if that is as the operation leaves it, is read in any case.
        let least = match looks.len() {
            1 => 2 * bytes + SHORT_BYTES,
            _ => SHORT_BYTES,
        };
        let question = Question {
            method: Method::POST,
            target: "/_mget",
            least,
            more: ANSWER_BYTES_MAX.saturating_sub(least),
        };
        let answer = self.ask(question, body, outbound, snapshot).await?;
        if answer.lacks_right() {
            let there = looks.iter().map(|look| judge_error(look, NO_RIGHT));
            return Ok(Some(there.collect()));
        }
        if answer.status != StatusCode::OK {
            return Err(UnknownOutcome::Documents(answer.status));
        }
        let Some(body) = &answer.body else {
            return Ok(None);
        };
        let found: MultiGetReply<'_> =
            serde_json::from_slice(body).map_err(|_| UnknownOutcome::Documents(answer.status))?;
        if found.docs.len() != looks.len() {
            return Err(UnknownOutcome::Documents(answer.status));
        }
        let there = looks.iter().zip(&found.docs);
        Ok(Some(
            there.map(|(look, found)| judge(work, look, found)).collect(),
        ))
    }

    /// Returns the state of the document of an operation that writes a large one.
    async fn look_at_source(
        &self,
        work: &Work<'_>,
        look: &Lookup<'_>,
        outbound: &Outbound,
        snapshot: &Snapshot,
    ) -> Result<DocumentState, UnknownOutcome> {
        let place = (&*look.index, look.id, look.document.routing.as_deref());
        let told = self.source_is(place, source_of(work, look.operation), outbound, snapshot);
        match told.await? {
            Source::Same => Ok(DocumentState::Ours),
            Source::Other => Ok(DocumentState::Other),
            Source::Error(StatusCode::NOT_FOUND, _) => Ok(DocumentState::Nothing),
            Source::Error(status, body) => {
                let refused: Refused<'_> =
                    serde_json::from_slice(&body).map_err(|_| UnknownOutcome::Documents(status))?;
                Ok(judge_error(look, &refused.error.kind))
            }
        }
    }
}

/// An answer to `_mget`.
#[derive(Deserialize)]
struct MultiGetReply<'a> {
    #[serde(borrow)]
    docs: Vec<MultiGetDocument<'a>>,
}

#[derive(Deserialize)]
struct MultiGetDocument<'a> {
    #[serde(default)]
    found: bool,
    #[serde(borrow, rename = "_source")]
    source: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Refused<'a> {
    #[serde(borrow)]
    error: ErrorKind<'a>,
}

#[derive(Deserialize)]
struct ErrorKind<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Cow<'a, str>,
}

/// Returns the entry of an `_mget` that asks for an operation's document, and for as much of its source as
/// tells whether the operation was executed.
fn wanted_of(work: &Work<'_>, look: &Lookup<'_>) -> Value {
    let mut doc = json!({"_index": look.index, "_id": look.id});
    if let Some(routing) = &look.document.routing {
        doc["routing"] = json!(routing);
    }
    if at(work, look).op == Op::Update {
        match doc_of(source_of(work, look.operation)).map(paths) {
            // A script may have left anything.
            None => doc["_source"] = json!(false),
            Some(Some(paths)) => doc["_source"] = json!(paths),
            Some(None) => {}
        }
    } else if is_minted(work, look) {
        // That it is there says enough.
        doc["_source"] = json!(false);
    }
    doc
}

/// Whether the document that an operation leaves may differ from its lines: after an update by a script, or
/// through a pipeline.
fn is_untold(work: &Work<'_>, operation: usize, document: &Document, snapshot: &Snapshot) -> bool {
    let at = work.operations[operation];
    let lines = &work.body[at.start..at.end];
    let has = |text: &str| memchr::memmem::find(lines, text.as_bytes()).is_some();
    let target = snapshot.table.laned(&document.name);
    let index = target.and_then(|target| target.write().ok());
    index.is_some_and(|index| index.ingests)
        || work.wording.target.contains("pipeline=")
        || has("pipeline")
        || at.op == Op::Update && (has("script") || has("\\u"))
}

/// Returns the outcome of a `create` whose document is in an index that its name once led to.
fn there_already(look: &Lookup<'_>) -> Outcome {
    Outcome::Refused(Arc::new(Error {
        status: 409,
        kind: "version_conflict_engine_exception".to_owned(),
        reason: format!(
            "[{}]: it is in [{}], where this may have been executed before its name led elsewhere, and a \
             pipeline may have changed it",
            look.id, look.index
        ),
    }))
}

/// Reads an entry of the answer as the state of an operation's document.
fn judge(work: &Work<'_>, look: &Lookup<'_>, found: &MultiGetDocument<'_>) -> DocumentState {
    if let Some(error) = found.error {
        let error: Option<ErrorKind<'_>> = serde_json::from_str(error.get()).ok();
        return judge_error(look, &error.map(|error| error.kind).unwrap_or_default());
    }
    if !found.found {
        return DocumentState::Nothing;
    }
    let line = source_of(work, look.operation);
    let is = |compare: fn(&RawValue, &RawValue) -> bool, wanted: Option<&RawValue>| {
        found
            .source
            .zip(wanted)
            .is_some_and(|(source, wanted)| compare(source, wanted))
    };
    let ours = match at(work, look).op {
        Op::Create if is_minted(work, look) => true,
        Op::Create | Op::Index => is(same, serde_json::from_slice(line).ok()),
        Op::Update => is(holds, doc_of(line)),
        Op::Delete => false,
    };
    if ours {
        DocumentState::Ours
    } else {
        DocumentState::Other
    }
}

/// Returns the state of a document that a cluster gives an error for.
fn judge_error(look: &Lookup<'_>, kind: &str) -> DocumentState {
    match kind {
        // Such a write is refused for the same reason.
        "index_not_found_exception" | "routing_missing_exception" => DocumentState::Nothing,
        // It would wait for as long as that lasts. Rather twice than not at all.
        "index_closed_exception" | NO_RIGHT => {
            let (index, id) = (&look.index, look.id);
            wire::rationed!(
                tracing::warn,
                index,
                id,
                kind,
                "a document that may have been written cannot be looked for; it is sent again"
            );
            DocumentState::Nothing
        }
        "circuit_breaking_exception" | "es_rejected_execution_exception" | "rejected_execution_exception" => {
            DocumentState::Busy(format!("{kind} when asked for a document in {}", look.index))
        }
        _ => DocumentState::Unknown(format!("{kind} when asked for a document in {}", look.index)),
    }
}

/// Whether an operation creates a document whose id the gateway has made, so that nobody else's has it.
fn is_minted(work: &Work<'_>, look: &Lookup<'_>) -> bool {
    let mut minted = work.batch.minted.iter();
    work.operations[look.operation].op == Op::Create && minted.any(|minted| minted.has(look.id.as_bytes()))
}

/// Cuts a list into pieces that are sent at once, each with a bounded number of operations and bytes.
fn pieces<T>(mut all: &[T], bytes: impl Fn(&T) -> usize) -> Vec<&[T]> {
    let mut pieces = Vec::new();
    while !all.is_empty() {
        let (some, rest) = piece(all, LOOKS_MAX, &bytes);
        pieces.push(some);
        all = rest;
    }
    pieces
}

/// Cuts the next piece off a list: at most `most` operations of a bounded number of bytes, and one in any
/// case.
fn piece<T>(all: &[T], most: usize, bytes: impl Fn(&T) -> usize) -> (&[T], &[T]) {
    let mut sum = 0;
    let fits = |one: &&T| {
        sum += bytes(one);
        sum <= LOOK_BYTES_MAX
    };
    let count = all.iter().take(most).take_while(fits).count();
    all.split_at(count.max(1))
}

fn at(work: &Work<'_>, look: &Lookup<'_>) -> Operation {
    work.operations[look.operation]
}

/// Returns the line that comes after an operation's action line.
fn source_of<'w>(work: &'w Work<'_>, operation: usize) -> &'w [u8] {
    let at = work.operations[operation];
    let mut lines = work.body[at.start..at.end].splitn(2, |byte| *byte == b'\n');
    lines.nth(1).unwrap_or_default()
}

/// Returns the bytes of an operation.
fn bytes_of(work: &Work<'_>, look: &Lookup<'_>) -> usize {
    let at = work.operations[look.operation];
    at.end - at.start
}

/// The number of operations that are looked for together.
const LOOKED_AT_ONCE: usize = 2000;
/// The most documents that are asked for at once, and the most bytes of the operations that wrote them: the
/// answer has their sources.
const LOOKS_MAX: usize = 250;
const LOOK_BYTES_MAX: usize = SOURCE_BYTES_MAX;
/// The most bytes of an answer that are read, if it is for small operations; of one that lists indices, too.
const ANSWER_BYTES_MAX: usize = 4 << 20;
const MEMBERS_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_documents_are_looked_for_few_at_a_time_and_none_is_left_out() {
        let cut = |all: &[usize]| -> Vec<usize> {
            let pieces = pieces(all, |bytes| *bytes);
            assert_eq!(pieces.concat(), all);
            pieces.iter().map(|piece| piece.len()).collect()
        };
        assert_eq!(cut(&[]), [0; 0]);
        assert_eq!(cut(&[300; 600]), [250, 250, 100]);
        assert_eq!(cut(&[400 << 10; 5]), [2, 2, 1]);
        assert_eq!(cut(&[1, 9 << 20, 9 << 20, 1]), [1, 1, 1, 1]);
    }
}
