//! `_bulk`: every action is parsed, every document's shard computed, and every item answered.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use memchr::memchr;
use serde_json::{Value, json};

use super::behaviour::Behaviour;
use super::fault::Fault;
use super::http::{Head, Reply, decode};
use super::index::{Index, Write, WriteOutcome};
use super::ingest;
use super::item::{self, Shape};
use super::refusal;
use super::state::{ClusterContext, ClusterState};
use super::users;

/// The memory that a connection reuses from bulk to bulk.
#[derive(Default)]
pub(super) struct Scratch {
    items: Vec<u8>,
    /// The constant parts of a successful item of the index that was seen last.
    made_for: Option<(Arc<Index>, &'static str)>,
    middle: Vec<u8>,
    before_id: Vec<u8>,
}

/// An action line.
#[derive(Debug, Default)]
pub(super) struct Action<'a> {
    pub(super) operation: &'static str,
    pub(super) index: Option<Cow<'a, str>>,
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) routing: Option<Cow<'a, str>>,
    if_seq_no: Option<u64>,
    /// Whether the line has a `_type`.
    typed: bool,
    require_alias: Option<bool>,
    /// Whether the answer is to hold the document.
    wants_document: Option<bool>,
}

/// The URL's values for actions that have none.
pub(super) struct Defaults {
    pub(super) index: Option<String>,
    pub(super) routing: Option<String>,
    pub(super) require_alias: bool,
}

#[derive(Default)]
struct Tallied {
    docs: u64,
    misrouted: u64,
    errors: bool,
}

/// Parses, applies and answers a body.
pub(super) fn answer(
    shared: &ClusterContext,
    node: usize,
    head: &Head,
    body: &[u8],
    fault: Option<&Fault>,
    scratch: &mut Scratch,
    reply: &mut Reply,
) {
    match body.last() {
        Some(b'\n') => {}
        Some(_) => return reject(reply, "The bulk request must be terminated by a newline [\\n]"),
        None => return reject(reply, "request body is required"),
    }
    let defaults = Defaults::of(shared, head);
    if let Some((status, error)) = refusal::of_whole(shared, body, &defaults) {
        return reply.json(status, &error);
    }
    let Some(worker) = shared.pools[node].enter(|| shared.behaviour().workers) else {
        return refuse(reply);
    };
    let behaviour = shared.behaviour();
    let bloat = item::bloat(fault);
    let mut bulk = Bulk {
        head,
        body,
        behaviour: &behaviour,
        shared,
        node,
        state: shared.state(),
        fault,
        too_few_copies: too_few_copies(head),
        seen: None,
        counted: 0,
        tallied: Tallied::default(),
        unread: ingest::names_unread(shared, head, body, defaults.index.as_deref()),
        refused: None,
        shape: match bloat {
            Some(_) => Shape::All,
            None => Shape::of(head),
        },
        bloat,
        scratch,
    };
    if bulk.too_few_copies.is_some() {
        std::thread::sleep(timeout(head));
    }
    bulk.scratch.items.clear();
    bulk.refused = refused(shared, head, body, &defaults);
    if let Err(reason) = bulk.run(body, &defaults) {
        return reject(reply, &reason.to_string());
    }
    let Tallied {
        docs,
        misrouted,
        errors,
    } = bulk.tallied;
    let shape = bulk.shape;
    let tally = shared.tally(node);
    tally.bulks.fetch_add(1, Ordering::Relaxed);
    tally.docs.fetch_add(docs, Ordering::Relaxed);
    tally.misrouted.fetch_add(misrouted, Ordering::Relaxed);
    if let Some(Fault::ItemCount(by)) = fault {
        change_item_count(&mut scratch.items, *by);
    }
    shared.capacity.execute(&behaviour, worker, docs, body);
    write_answer(shared, docs, errors, &scratch.items, reply.body());
    shape.apply(reply.body());
}

/// Returns the places of operations that the request's user has no right to do, and the words for the user.
fn refused(
    shared: &ClusterContext,
    head: &Head,
    body: &[u8],
    defaults: &Defaults,
) -> Option<(HashSet<usize>, String)> {
    let user = users::of(shared, head)?;
    let operations = operations_of(body, defaults);
    let refused = users::refused(&user, &shared.state(), &operations);
    Some((refused, users::denial(&user).to_string()))
}

/// Writes the answer to `docs` documents. Each of `items` begins with a comma; the first item's comma is left
/// out.
fn write_answer(shared: &ClusterContext, docs: u64, errors: bool, items: &[u8], out: &mut Vec<u8>) {
    let took = 1 + docs / 500;
    let opening = if shared.spec.flavour.errors_come_first() {
        write!(out, "{{\"errors\":{errors},\"took\":{took},\"items\":[")
    } else {
        write!(out, "{{\"took\":{took},\"errors\":{errors},\"items\":[")
    };
    opening.expect("a Vec takes every write");
    out.extend_from_slice(items.get(1..).unwrap_or_default());
    out.extend_from_slice(b"]}");
}

/// Returns the error of a request that waits for more copies of a shard than the single one that there is.
fn too_few_copies(head: &Head) -> Option<String> {
    let wanted = head.parameter("wait_for_active_shards")?;
    let copies = wanted.parse::<u32>().ok().filter(|copies| *copies > 1)?;
    Some(format!(
        "Not enough active copies to meet shard count of [{copies}] (have 1, needed {copies}). Timeout: [{}ms]",
        timeout(head).as_millis()
    ))
}

/// Returns how long a request waits for copies.
fn timeout(head: &Head) -> Duration {
    let text = head.parameter("timeout").unwrap_or_default();
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = text[..text.len() - unit.len()].parse().unwrap_or(1);
    match unit {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        _ => Duration::from_secs(60 * number),
    }
}

struct Bulk<'a> {
    head: &'a Head,
    /// The whole body.
    body: &'a [u8],
    behaviour: &'a Behaviour,
    shared: &'a ClusterContext,
    node: usize,
    state: Arc<ClusterState>,
    fault: Option<&'a Fault>,
    /// The reason why no shard takes a write: the request waits for more copies than there are.
    too_few_copies: Option<String>,
    /// The index that was seen last: bulks mostly name only one.
    seen: Option<Arc<Index>>,
    /// Documents for it that are only counted, and not yet added to its own count.
    counted: u64,
    tallied: Tallied,
    /// The names whose documents a pipeline refuses: all documents of a name, because of one that the
    /// pipeline cannot read.
    unread: HashSet<String>,
    /// The places of operations that the user has no right to do, and the words for the user.
    refused: Option<(HashSet<usize>, String)>,
    shape: Shape,
    /// What each item holds in addition to its usual contents.
    bloat: Option<String>,
    scratch: &'a mut Scratch,
}

/// No operation is shorter than `{"index":{}}` with its newline.
const OPERATION_BYTES_MIN: usize = 13;

/// The reason why a bulk is refused as a whole, in the servers' words.
#[derive(Debug, thiserror::Error)]
enum Rejected {
    #[error("Malformed action/metadata line [{0}]")]
    Malformed(u32),
    #[error("Action/metadata line [{0}] contains an unknown parameter [_type]")]
    Typed(u32),
    #[error("The bulk request must be terminated by a newline [\\n]")]
    NotTerminated,
    #[error("index is missing")]
    NoIndex,
}

// === impl Defaults ===

impl Defaults {
    fn of(shared: &ClusterContext, head: &Head) -> Self {
        let index = head
            .path
            .strip_suffix("/_bulk")
            .map(|index| match shared.spec.flavour.has_types() {
                true => index.strip_suffix("/_doc").unwrap_or(index),
                false => index,
            })
            .map(|index| decode(index.trim_start_matches('/'), false));
        Self {
            index: index.filter(|index| !index.is_empty()),
            routing: head.parameter("routing"),
            require_alias: head
                .parameter("require_alias")
                .is_some_and(|value| value != "false"),
        }
    }
}

// === impl Bulk ===

impl<'a> Bulk<'a> {
    fn run(&mut self, body: &[u8], defaults: &Defaults) -> Result<(), Rejected> {
        // Reserve enough numbers for as many operations as the body may hold, so that no other request gets
        // the same ones.
        let reserved = (body.len() / OPERATION_BYTES_MIN + 1) as u64;
        let mut seq_no = self.shared.seq_no.fetch_add(reserved, Ordering::Relaxed);
        let mut at = 0;
        let mut line_number = 0_u32;
        while let Some(end) = memchr(b'\n', &body[at..]).map(|found| at + found) {
            line_number += 1;
            let line = body[at..end].strip_suffix(b"\r").unwrap_or(&body[at..end]);
            at = end + 1;
            if line.is_empty() {
                continue;
            }
            let action = simple_action(line)
                .or_else(|| any_action(line))
                .ok_or(Rejected::Malformed(line_number))?;
            if action.typed && !self.shared.spec.flavour.has_types() {
                return Err(Rejected::Typed(line_number));
            }
            let mut source: &[u8] = &[];
            if action.operation != "delete" {
                line_number += 1;
                let Some(end) = memchr(b'\n', &body[at..]).map(|found| at + found) else {
                    return Err(Rejected::NotTerminated);
                };
                source = &body[at..end];
                at = end + 1;
            }
            self.apply(&action, defaults, source, seq_no)?;
            seq_no += 1;
        }
        self.add_counted();
        Ok(())
    }

    /// Adds the count once for each bulk and index, since all threads share it.
    fn add_counted(&mut self) {
        let counted = std::mem::take(&mut self.counted);
        if let Some(index) = self.seen.as_ref().filter(|_| counted > 0) {
            index.counted.fetch_add(counted, Ordering::Relaxed);
        }
    }

    fn apply(
        &mut self,
        action: &Action<'_>,
        defaults: &Defaults,
        source: &[u8],
        seq_no: u64,
    ) -> Result<(), Rejected> {
        let name = action
            .index
            .as_deref()
            .or(defaults.index.as_deref())
            .ok_or(Rejected::NoIndex)?;
        self.tallied.docs += 1;
        if let Some((refused, error)) = &self.refused
            && !self.state.index(name).is_some_and(|index| index.closed)
            && refused.contains(&(self.tallied.docs as usize - 1))
        {
            let (name, error) = (name.to_owned(), error.clone());
            self.fail(action, &name, action.id.as_deref(), 403, &error);
            return Ok(());
        }
        let require_alias = action.require_alias.unwrap_or(defaults.require_alias);
        if require_alias && action.operation != "delete" && !self.state.aliases.contains_key(name) {
            let reason = format!(
                "no such index [{name}] and [require_alias] request flag is [true] and [{name}] is not an alias"
            );
            let error = json!({"type": "index_not_found_exception", "reason": reason, "index": name});
            self.fail(action, name, action.id.as_deref(), 404, &error.to_string());
            return Ok(());
        }
        if self.seen.as_ref().is_none_or(|index| index.name != name) {
            self.add_counted();
            self.seen = self.find(name, action.operation != "delete");
        }
        // The index is taken out and put back: a copy of the pointer for each document would cost two atomic
        // additions.
        match self.seen.take() {
            Some(index) => {
                self.apply_to(&index, action, defaults, source, seq_no);
                self.seen = Some(index);
            }
            None => {
                let not_found = || {
                    let reason = format!("no such index [{name}]");
                    (
                        404,
                        json!({"type": "index_not_found_exception", "reason": reason, "index": name}),
                    )
                };
                let (status, error) = refusal::of_name(&self.state, name).unwrap_or_else(not_found);
                self.fail(action, name, action.id.as_deref(), status, &error.to_string());
            }
        }
        Ok(())
    }

    /// Returns the status and error of an operation that is not executed. `name` is the index as the
    /// operation names it.
    fn refusal<'i>(
        &self,
        index: &'i Index,
        action: &Action<'_>,
        name: Option<&str>,
        routing: Option<&str>,
        source: &[u8],
    ) -> Option<(u16, Cow<'i, str>)>
    where
        'a: 'i,
    {
        if let Some((status, error)) = &index.refusing {
            return Some((*status, error.into()));
        }
        if let Some(error) = &self.too_few_copies {
            let shard = routing.or(action.id.as_deref()).map_or(0, |key| index.shard(key));
            let reason = format!("[{}][{shard}] {error}", index.name);
            let error = json!({"type": "unavailable_shards_exception", "reason": reason});
            return Some((503, error.to_string().into()));
        }
        let nth = self.tallied.docs - 1;
        if let Some(Fault::Items { every, status, error }) = self.fault
            && nth.is_multiple_of(*every as u64)
        {
            return Some((*status, error_of(error, action.id.as_deref())));
        }
        if matches!(action.operation, "index" | "create")
            && name.is_some_and(|name| self.unread.contains(name))
        {
            return Some((400, ingest::unread().to_string().into()));
        }
        let behaviour = self.behaviour;
        // Each kind begins one document earlier than the one before, so that a rare kind isn't hidden by a
        // frequent one.
        let mut due = (nth..).zip(&behaviour.failing);
        if let Some((_, refusal)) = due.find(|(nth, refusal)| nth.is_multiple_of(u64::from(refusal.every))) {
            return Some((refusal.status, refusal.error.as_str().into()));
        }
        if let Some(unfit) = &behaviour.unfit
            && memchr::memmem::find(source, unfit.holds.as_bytes()).is_some()
        {
            return Some((unfit.status, unfit.error.as_str().into()));
        }
        let error = refusal::of_document(self.shared, index, action, routing)
            .or_else(|| refusal::of_source(self.shared, self.head, self.body, source))?;
        Some((400, error.to_string().into()))
    }

    fn apply_to(
        &mut self,
        index: &Arc<Index>,
        action: &Action<'_>,
        defaults: &Defaults,
        source: &[u8],
        seq_no: u64,
    ) {
        let routing = action.routing.as_deref().or(defaults.routing.as_deref());
        if let Some(key) = routing.or(action.id.as_deref()) {
            let home = index.primaries[index.shard(key) as usize];
            self.tallied.misrouted += u64::from(home != Some(self.node));
        }
        let name = action.index.as_deref().or(defaults.index.as_deref());
        if let Some((status, error)) = self.refusal(index, action, name, routing, source) {
            return self.fail(action, &index.name, action.id.as_deref(), status, &error);
        }
        let minted;
        let id = match action.id.as_deref() {
            Some(id) => id,
            None => {
                minted = minted_id(seq_no);
                &minted
            }
        };
        let Some(store) = &index.store else {
            self.succeed_counted(action.operation, index, id, seq_no);
            self.counted += 1;
            return;
        };
        let stamped = ingest::stamped(self.head, action.operation, source);
        let write = Write {
            operation: action.operation,
            id,
            routing,
            if_seq_no: action.if_seq_no,
            source: stamped.as_deref().unwrap_or(source),
        };
        let outcome = store.lock().apply(&write, &index.name);
        match outcome {
            WriteOutcome::Done {
                status,
                result,
                version,
                seq_no,
            } => {
                let asks = || item::wants_document(self.head, action.wants_document, source);
                let document = match &self.bloat {
                    Some(bloat) => bloat.clone(),
                    None if action.operation == "update" && asks() => item::document(index, id),
                    None => String::new(),
                };
                let at = (version, seq_no);
                self.succeed(action.operation, index, id, (status, result), at, &document);
            }
            WriteOutcome::Failed { status, error } => {
                self.fail(action, &index.name, Some(id), status, &error.to_string())
            }
        }
    }

    /// Returns the index that takes writes to this name; creates it if it is missing and may be created.
    fn find(&mut self, name: &str, may_create: bool) -> Option<Arc<Index>> {
        if refusal::of_name(&self.state, name).is_some() {
            return None;
        }
        if let Some(index) = self.state.index(name) {
            return Some(Arc::clone(index));
        }
        // A body that is refused as a whole creates nothing.
        if !self.shared.spec.auto_create || !may_create || !is_well_formed(self.body) {
            return None;
        }
        self.shared.change(|state| {
            if state.index(name).is_none() {
                state.create(name, 1);
            }
        });
        self.state = self.shared.state();
        self.state.index(name).cloned()
    }

    /// Writes the item of a document that is only counted. This path has to be fast: it makes three copies
    /// and writes a number.
    fn succeed_counted(&mut self, operation: &'static str, index: &Arc<Index>, id: &str, seq_no: u64) {
        let (status, result) = match operation {
            "update" => (200, "updated"),
            "delete" => (200, "deleted"),
            _ => (201, "created"),
        };
        if self.shape == Shape::Bare {
            return item::bare(&mut self.scratch.items, operation, status, None);
        }
        let scratch = &mut *self.scratch;
        let fits = scratch
            .made_for
            .as_ref()
            .is_some_and(|(made, with)| Arc::ptr_eq(made, index) && *with == operation);
        if !fits {
            scratch.made_for = Some((Arc::clone(index), operation));
            scratch.before_id.clear();
            scratch.middle.clear();
            let typed = if self.shared.spec.flavour.has_types() {
                "\"_type\":\"_doc\","
            } else {
                ""
            };
            write!(
                scratch.before_id,
                ",{{\"{operation}\":{{\"_index\":{},{typed}\"_id\":\"",
                json!(index.name)
            )
            .expect(VEC);
            write!(
                scratch.middle,
                "\",\"_version\":1,\"result\":\"{result}\",\"_shards\":{{\"total\":1,\"successful\":1,\"failed\":0}},\"_seq_no\":"
            )
            .expect(VEC);
        }
        let items = &mut scratch.items;
        items.extend_from_slice(&scratch.before_id);
        write_escaped(items, id);
        items.extend_from_slice(&scratch.middle);
        write_number(items, seq_no);
        items.extend_from_slice(if status == 201 {
            b",\"_primary_term\":1,\"status\":201}}"
        } else {
            b",\"_primary_term\":1,\"status\":200}}"
        });
    }

    /// Writes the item of a successful operation. `document` is the `get` of the item, if it has one.
    fn succeed(
        &mut self,
        operation: &str,
        index: &Index,
        id: &str,
        done: (u16, &str),
        at: (u64, u64),
        document: &str,
    ) {
        if self.shape == Shape::Bare {
            return item::bare(&mut self.scratch.items, operation, done.0, None);
        }
        let typed = if self.shared.spec.flavour.has_types() {
            "\"_type\":\"_doc\","
        } else {
            ""
        };
        let ((status, result), (version, seq_no)) = (done, at);
        write!(
            self.scratch.items,
            ",{{\"{operation}\":{{\"_index\":{},{typed}\"_id\":{},\"_version\":{version},\"result\":\"{result}\",\
             \"_shards\":{{\"total\":1,\"successful\":1,\"failed\":0}},\"_seq_no\":{seq_no},\"_primary_term\":1,{document}\"status\":{status}}}}}",
            json!(index.name),
            json!(id),
        )
        .expect(VEC);
    }

    fn fail(&mut self, action: &Action<'_>, index: &str, id: Option<&str>, status: u16, error: &str) {
        self.tallied.errors = true;
        if self.shape == Shape::Bare {
            return item::bare(&mut self.scratch.items, action.operation, status, Some(error));
        }
        let typed = if self.shared.spec.flavour.has_types() {
            "\"_type\":\"_doc\","
        } else {
            ""
        };
        write!(
            self.scratch.items,
            ",{{\"{}\":{{\"_index\":{},{typed}\"_id\":{},\"status\":{status},\"error\":{error}}}}}",
            action.operation,
            json!(index),
            json!(id),
        )
        .expect(VEC);
    }
}

/// Returns whether every action line of a body is valid.
fn is_well_formed(body: &[u8]) -> bool {
    let mut lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    while let Some(line) = lines.next() {
        let Some(action) = any_action(line) else {
            return false;
        };
        if action.operation != "delete" && lines.next().is_none() {
            return false;
        }
    }
    true
}

/// Makes an id as servers do: 20 characters, never the same twice.
pub(super) fn minted_id(seq_no: u64) -> String {
    format!("fakeid{seq_no:014x}")
}

const VEC: &str = "a Vec takes every write";

// === Action lines ===

/// Returns operation, index and routing key of each operation, for checks that need all of them before the
/// first is executed.
fn operations_of(body: &[u8], defaults: &Defaults) -> Vec<(&'static str, String, Option<String>)> {
    let mut lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let mut all = Vec::new();
    while let Some(action) = lines.next().and_then(any_action) {
        if action.operation != "delete" {
            lines.next();
        }
        let index = action
            .index
            .map(Cow::into_owned)
            .or_else(|| defaults.index.clone());
        let key = action
            .routing
            .map(Cow::into_owned)
            .or_else(|| defaults.routing.clone());
        let key = key.or_else(|| action.id.map(Cow::into_owned));
        all.push((action.operation, index.unwrap_or_default(), key));
    }
    all
}

/// Parses lines as clients write them: an operation with `_index`, `_id` and `routing` as plain strings,
/// without spaces.
fn simple_action(line: &[u8]) -> Option<Action<'_>> {
    let (operation, mut rest) = ["index", "create", "update", "delete"]
        .iter()
        .find_map(|&operation| {
            let rest = line
                .strip_prefix(b"{\"")?
                .strip_prefix(operation.as_bytes())?
                .strip_prefix(b"\":{")?;
            Some((operation, rest))
        })?;
    let mut action = Action {
        operation,
        ..Action::default()
    };
    while let Some(keyed) = rest.strip_prefix(b"\"") {
        let (slot, value) = if let Some(value) = keyed.strip_prefix(b"_index\":\"") {
            (&mut action.index, value)
        } else if let Some(value) = keyed.strip_prefix(b"_id\":\"") {
            (&mut action.id, value)
        } else {
            (&mut action.routing, keyed.strip_prefix(b"routing\":\"")?)
        };
        let end = memchr(b'"', value)?;
        if !value[..end].iter().all(|&byte| byte >= b' ' && byte != b'\\') {
            return None;
        }
        *slot = Some(Cow::Borrowed(std::str::from_utf8(&value[..end]).ok()?));
        rest = &value[end + 1..];
        rest = rest.strip_prefix(b",").unwrap_or(rest);
    }
    (rest == b"}}").then_some(action)
}

/// Parses any other line.
pub(super) fn any_action(line: &[u8]) -> Option<Action<'_>> {
    let value: Value = serde_json::from_slice(line).ok()?;
    let (name, metadata) = value
        .as_object()
        .filter(|object| object.len() == 1)?
        .iter()
        .next()?;
    let operation = ["index", "create", "update", "delete"]
        .into_iter()
        .find(|operation| operation == name)?;
    let text = |key: &str| match &metadata[key] {
        Value::Null => None,
        Value::String(text) => Some(Cow::Owned(text.clone())),
        other => Some(Cow::Owned(other.to_string())),
    };
    let if_seq_no = metadata["if_seq_no"].as_u64();
    Some(Action {
        operation,
        index: text("_index"),
        id: text("_id"),
        routing: text("routing"),
        if_seq_no,
        typed: metadata.get("_type").is_some(),
        require_alias: metadata["require_alias"].as_bool(),
        wants_document: match &metadata["_source"] {
            Value::Null => None,
            asked => Some(*asked != false),
        },
    })
}

// === Bytes ===

fn write_escaped(out: &mut Vec<u8>, text: &str) {
    if text
        .bytes()
        .all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\')
    {
        out.extend_from_slice(text.as_bytes());
    } else {
        let quoted = json!(text).to_string();
        out.extend_from_slice(&quoted.as_bytes()[1..quoted.len() - 1]);
    }
}

fn write_number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Removes items from the end, or repeats the last one.
fn change_item_count(items: &mut Vec<u8>, by: isize) {
    const BETWEEN: &[u8] = b"}},{\"";
    for _ in 0..by.unsigned_abs() {
        let last = memchr::memmem::rfind(items, BETWEEN).map_or(0, |found| found + 2);
        if by < 0 {
            items.truncate(last);
        } else {
            items.extend_from_within(last..);
        }
    }
}

/// Answers like a node whose pool for writes is full.
fn refuse(reply: &mut Reply) {
    let (kind, reason) = (
        "es_rejected_execution_exception",
        "rejected execution: the queue is full",
    );
    let cause = json!({"type": kind, "reason": reason});
    let error = json!({"root_cause": [cause], "type": kind, "reason": reason});
    reply.json(429, &json!({"error": error, "status": 429}));
}

fn reject(reply: &mut Reply, reason: &str) {
    let cause = json!({"type": "illegal_argument_exception", "reason": reason});
    let error = json!({"root_cause": [cause], "type": "illegal_argument_exception", "reason": reason});
    reply.json(400, &json!({"error": error, "status": 400}));
}

/// Returns an error in the words of a test, with the document's id in place of [`ID`].
fn error_of<'e>(error: &'e str, id: Option<&str>) -> Cow<'e, str> {
    match error.contains(ID) {
        true => error.replace(ID, id.unwrap_or_default()).into(),
        false => error.into(),
    }
}

/// The placeholder for the document's id in an error.
const ID: &str = "{id}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quick_reading_of_an_action_is_the_slow_one() {
        for line in [
            &br#"{"index":{"_index":"logs","_id":"1","routing":"a b"}}"#[..],
            br#"{"create":{}}"#,
            br#"{"delete":{"_id":"x"}}"#,
            br#"{"update":{"_id":"\u00e9","_index":"l"}}"#,
            br#"{"index":{"_id":7}}"#,
        ] {
            let slow = any_action(line).unwrap();
            if let Some(quick) = simple_action(line) {
                assert_eq!(format!("{quick:?}"), format!("{slow:?}"));
            }
        }
        assert!(simple_action(br#"{"index":{"_id":7}}"#).is_none());
        assert!(any_action(br#"{"upsert":{}}"#).is_none());
    }

    #[test]
    fn items_are_taken_off_and_added_at_the_end() {
        let mut items = br#",{"index":{"a":{}}},{"index":{"b":{}}}"#.to_vec();
        change_item_count(&mut items, 1);
        assert_eq!(
            items,
            br#",{"index":{"a":{}}},{"index":{"b":{}}},{"index":{"b":{}}}"#
        );
        change_item_count(&mut items, -2);
        assert_eq!(items, br#",{"index":{"a":{}}}"#);
        change_item_count(&mut items, -1);
        assert!(items.is_empty());
    }
}
