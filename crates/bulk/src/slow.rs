//! The slow reader of action lines, which decides about the lines that [`crate::scan`] refused.
//!
//! The reader follows the servers' `BulkRequestParser` key by key, and takes a line only if every version of
//! the dialect reads it as this reader does; otherwise it returns the reason why the request must pass whole.

use std::borrow::Cow;

use memchr::memchr;
use serde::Deserializer as _;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::action::{Action, Form, IdGap, Op, TypeAt};
use crate::strict::Strict;
use crate::{Dialect, Flavour, Why};

/// An action line from the slow reader; owns the strings that had to be decoded.
#[derive(Debug)]
pub(crate) struct SlowAction<'a> {
    op: Op,
    index: Option<Cow<'a, str>>,
    id: Option<Cow<'a, str>>,
    routing: Option<Cow<'a, str>>,
    routing_null: bool,
    pipeline: Option<Cow<'a, str>>,
    typed: bool,
    type_at: Option<TypeAt>,
    require_alias: Option<bool>,
    require_data_stream: Option<bool>,
    id_gap: IdGap,
    compare_and_set: bool,
    versioned: bool,
}

/// Reads an action line, given without its newline. `None` means that the line is blank: servers skip it.
pub(crate) fn action<'a>(line: &'a [u8], dialect: &Dialect) -> Result<Option<SlowAction<'a>>, Why> {
    if line.iter().all(|b| matches!(b, b' ' | b'\t' | b'\r')) {
        return Ok(None);
    }
    let Members(outer) = members(line)?;
    let [(name, inner)] = outer.as_slice() else {
        return Err(Why::MalformedAction);
    };
    let mut op = Op::parse(name.as_bytes()).ok_or(Why::UnknownAction)?;
    let inner = inner.get();
    if !inner.starts_with('{') {
        return Err(Why::MalformedAction);
    }
    let Members(pairs) = members(inner.as_bytes())?;
    for (nth, (key, _)) in pairs.iter().enumerate() {
        if pairs[..nth].iter().any(|(earlier, _)| earlier == key) {
            return Err(Why::DuplicateKey);
        }
    }

    let form = if pairs.is_empty() { Form::Only } else { Form::First };
    let mut keys = Keys {
        id_gap: IdGap {
            at: offset_in(line, inner) + 1,
            cut: 0,
            form,
        },
        ..Keys::default()
    };
    for (key, raw) in &pairs {
        let raw = raw.get();
        if raw == "null" && key != "_type" && known(key, dialect) {
            // `XContentParser.Token.isValue` is false for null: the key counts as not given.
            if key == "_id" {
                keys.id_gap = IdGap {
                    at: offset_in(line, raw),
                    cut: 4,
                    form: Form::Value,
                };
            }
            keys.routing_null |= key == "routing";
            continue;
        }
        keys.read(op, key, raw, dialect)?;
    }

    if keys.creates(op)? {
        op = Op::Create;
    }
    let compare_and_set = keys.versioning.admit(op, keys.id.is_some(), keys.retries)?;
    keys.refuse_empty()?;
    Ok(Some(SlowAction {
        op,
        type_at: match keys.typed {
            true => type_at(line, offset_in(line, inner), &pairs),
            false => None,
        },
        index: keys.index,
        id: keys.id,
        routing: keys.routing,
        routing_null: keys.routing_null,
        pipeline: keys.pipeline,
        typed: keys.typed,
        require_alias: keys.require_alias,
        require_data_stream: keys.require_data_stream,
        id_gap: keys.id_gap,
        compare_and_set,
        versioned: compare_and_set || keys.versioning.version.is_some(),
    }))
}

/// The values of the keys of an action line.
#[derive(Default)]
struct Keys<'a> {
    index: Option<Cow<'a, str>>,
    id: Option<Cow<'a, str>>,
    routing: Option<Cow<'a, str>>,
    routing_null: bool,
    pipeline: Option<Cow<'a, str>>,
    typed: bool,
    op_type: Option<Cow<'a, str>>,
    retries: bool,
    require_alias: Option<bool>,
    require_data_stream: Option<bool>,
    versioning: Versioning<'a>,
    id_gap: IdGap,
}

// === impl Keys ===

impl<'a> Keys<'a> {
    /// Reads one key with its value.
    fn read(&mut self, op: Op, key: &str, raw: &'a str, dialect: &Dialect) -> Result<(), Why> {
        match key {
            "_index" => self.index = Some(text(raw)?),
            "_id" => self.id = Some(text(raw)?),
            "routing" => self.routing = Some(text(raw)?),
            "pipeline" => self.pipeline = Some(text(raw)?),
            "_type" if raw == "\"_doc\"" => self.typed = true,
            "_type" => return Err(Why::TypedAction),
            "op_type" => self.op_type = Some(text(raw)?),
            "version" => self.versioning.version = Some(whole_number(raw)?),
            "version_type" => self.versioning.kind = Some(text(raw)?),
            "if_seq_no" => self.versioning.seq_no = Some(whole_number(raw)?),
            "if_primary_term" => self.versioning.primary_term = Some(whole_number(raw)?),
            // The servers read an `int`: a larger number fails the whole request.
            "retry_on_conflict" if whole_number(raw)? <= i32::MAX as u64 => self.retries = raw != "0",
            "retry_on_conflict" => return Err(Why::OddValue),
            "_source" if op == Op::Update => drop(boolean(raw)?),
            "require_alias" if known(key, dialect) => self.require_alias = Some(boolean(raw)?),
            "require_data_stream" if known(key, dialect) && writes(op) => {
                self.require_data_stream = Some(boolean(raw)?);
            }
            "list_executed_pipelines" if known(key, dialect) && writes(op) => drop(boolean(raw)?),
            "dynamic_templates" if known(key, dialect) && writes(op) => names_of_templates(raw)?,
            _ => return Err(Why::UnknownParameter),
        }
        Ok(())
    }

    /// Returns whether `op_type` makes an `index` a `create`.
    fn creates(&self, op: Op) -> Result<bool, Why> {
        match (op, self.op_type.as_deref()) {
            (_, None) | (Op::Index, Some("index")) | (Op::Create, Some("create")) => Ok(false),
            (Op::Index, Some("create")) => Ok(true),
            _ => Err(Why::OddValue),
        }
    }

    /// Refuses names that are given and empty.
    fn refuse_empty(&self) -> Result<(), Why> {
        for (value, why) in [
            (&self.index, Why::NoIndex),
            (&self.id, Why::EmptyId),
            (&self.routing, Why::EmptyRouting),
            (&self.pipeline, Why::EmptyPipeline),
        ] {
            if value.as_ref().is_some_and(|value| value.is_empty()) {
                return Err(why);
            }
        }
        Ok(())
    }
}

/// Returns the place where a part of a line begins.
fn offset_in(line: &[u8], part: &str) -> u32 {
    (part.as_ptr() as usize - line.as_ptr() as usize) as u32
}

/// Returns the place of the type among a line's pairs; `opens` is the place of the brace that begins their
/// object.
fn type_at(line: &[u8], opens: u32, pairs: &[(String, &RawValue)]) -> Option<TypeAt> {
    let nth = pairs.iter().position(|(key, _)| key == "_type")?;
    let end_of = |value: &RawValue| {
        let value = value.get();
        (value.as_ptr() as usize - line.as_ptr() as usize + value.len()) as u32
    };
    let end = end_of(pairs[nth].1);
    let (start, end) = match nth.checked_sub(1) {
        Some(before) => (end_of(pairs[before].1), end),
        None if pairs.len() == 1 => (opens + 1, end),
        // The next key's comma is the first thing that follows, apart from spaces.
        None => (opens + 1, end + memchr(b',', &line[end as usize..])? as u32 + 1),
    };
    Some(TypeAt {
        start,
        end,
        alone: pairs.len() == 1,
    })
}

// === impl SlowAction ===

impl SlowAction<'_> {
    pub(crate) fn action(&self) -> Action<'_> {
        fn bytes<'s>(text: &'s Option<Cow<'_, str>>) -> Option<&'s [u8]> {
            text.as_ref().map(|text| text.as_bytes())
        }
        Action {
            op: self.op,
            index: bytes(&self.index),
            id: bytes(&self.id),
            routing: bytes(&self.routing),
            routing_null: self.routing_null,
            pipeline: bytes(&self.pipeline),
            typed: self.typed,
            type_at: self.type_at,
            require_alias: self.require_alias,
            require_data_stream: self.require_data_stream,
            id_gap: self.id_gap,
            compare_and_set: self.compare_and_set,
            versioned: self.versioned,
        }
    }
}

/// Returns whether the dialect's version knows a key (`BulkRequestParser`'s parse fields).
fn known(key: &str, dialect: &Dialect) -> bool {
    match key {
        "_index" | "_id" | "routing" | "pipeline" | "op_type" | "version" | "version_type" | "if_seq_no"
        | "if_primary_term" | "retry_on_conflict" | "_source" => true,
        "require_alias" => dialect.flavour == Flavour::OpenSearch || dialect.elasticsearch_from(7, 10),
        "dynamic_templates" => dialect.elasticsearch_from(7, 13),
        // Seen in 8.19 and 9.5. It does not matter which earlier 8.x introduced them: those requests pass.
        "require_data_stream" | "list_executed_pipelines" => dialect.elasticsearch_from(8, 19),
        _ => false,
    }
}

fn writes(op: Op) -> bool {
    matches!(op, Op::Index | Op::Create)
}

/// Returns a value as `XContentParser.text` gives it: strings decoded; whole numbers and booleans as they are
/// written.
fn text(raw: &str) -> Result<Cow<'_, str>, Why> {
    match raw.as_bytes()[0] {
        b'"' => {
            let inner = &raw[1..raw.len() - 1];
            if !inner.contains('\\') {
                return Ok(Cow::Borrowed(inner));
            }
            serde_json::from_str::<String>(raw)
                .map(Cow::Owned)
                .map_err(|_| Why::MalformedAction)
        }
        b't' | b'f' => Ok(Cow::Borrowed(raw)),
        b'-' | b'0'..=b'9' => {
            let digits = raw.strip_prefix('-').unwrap_or(raw);
            let whole = digits.len() <= 18 && digits.bytes().all(|b| b.is_ascii_digit());
            if whole {
                Ok(Cow::Borrowed(raw))
            } else {
                Err(Why::OddValue)
            }
        }
        _ => Err(Why::OddValue),
    }
}

/// Reads a number from 0 to 10^18 - 1, written plainly.
fn whole_number(raw: &str) -> Result<u64, Why> {
    if raw.len() <= 18 && raw.bytes().all(|b| b.is_ascii_digit()) {
        raw.parse().map_err(|_| Why::OddValue)
    } else {
        Err(Why::OddValue)
    }
}

fn boolean(raw: &str) -> Result<bool, Why> {
    match raw {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(Why::OddValue),
    }
}

/// Checks an object of strings.
fn names_of_templates(raw: &str) -> Result<(), Why> {
    let read = |strict: &mut Strict<'_>| {
        strict.peek()?;
        strict.object(|strict, _| strict.string().map(drop))?;
        strict.end()
    };
    Strict::new(raw.as_bytes())
        .and_then(|mut strict| read(&mut strict))
        .ok_or(Why::OddValue)
}

#[derive(Default)]
struct Versioning<'a> {
    version: Option<u64>,
    kind: Option<Cow<'a, str>>,
    seq_no: Option<u64>,
    primary_term: Option<u64>,
}

impl Versioning<'_> {
    /// Accepts the combinations that `IndexRequest.validate`, `DeleteRequest.validate` and
    /// `UpdateRequest.validate` certainly accept; returns true when the write is conditional on a sequence
    /// number.
    fn admit(&self, op: Op, has_id: bool, retries: bool) -> Result<bool, Why> {
        let conditional = self.seq_no.is_some();
        match (self.version, self.kind.as_deref(), self.seq_no, self.primary_term) {
            (None, None | Some("internal"), None, None) => Ok(false),
            (Some(_), Some("external" | "external_gte"), None, None)
                if has_id && matches!(op, Op::Index | Op::Delete) =>
            {
                Ok(false)
            }
            (None, None | Some("internal"), Some(_), Some(1..))
                if has_id && op != Op::Create && !(op == Op::Update && retries) =>
            {
                Ok(conditional)
            }
            _ => Err(Why::Versioning),
        }
    }
}

/// The members of a JSON object that is the whole of a text, in order.
pub(crate) struct Members<'a>(pub(crate) Vec<(String, &'a RawValue)>);

pub(crate) fn members(text: &[u8]) -> Result<Members<'_>, Why> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let members = json
        .deserialize_map(MembersVisitor)
        .map_err(|_| Why::MalformedAction)?;
    json.end().map_err(|_| Why::MalformedAction)?;
    Ok(members)
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Version;

    const OPENSEARCH: Dialect = Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0));
    const ELASTICSEARCH_7: Dialect = Dialect::new(Flavour::Elasticsearch, Version::new(7, 9, 0));
    const ELASTICSEARCH_9: Dialect = Dialect::new(Flavour::Elasticsearch, Version::new(9, 5, 3));

    fn why(line: &str, dialect: &Dialect) -> Option<Why> {
        action(line.as_bytes(), dialect).err()
    }

    fn id(line: &str) -> Option<String> {
        let read = action(line.as_bytes(), &OPENSEARCH)
            .expect("accepted")
            .expect("not blank");
        read.action()
            .id
            .map(|id| String::from_utf8_lossy(id).into_owned())
    }

    #[test]
    fn ids_are_read_as_the_servers_read_them() {
        assert_eq!(
            id(r#"{"index":{"_id":"a\u00e9\ud83d\ude00\n"}}"#),
            Some("aé😀\n".to_owned())
        );
        assert_eq!(id(r#"{"index":{"\u005fid":"x"}}"#), Some("x".to_owned()));
        assert_eq!(id(r#"{"index":{"_id":-17}}"#), Some("-17".to_owned()));
        assert_eq!(id(r#"{"index":{"_id":true}}"#), Some("true".to_owned()));
        assert_eq!(id(r#"{"index":{"_id":null}} "#), None);
    }

    #[test]
    fn blank_lines_are_skipped() {
        for line in ["", "\r", "  \t"] {
            assert!(action(line.as_bytes(), &OPENSEARCH).expect("accepted").is_none());
        }
    }

    #[test]
    fn op_type_turns_index_into_create() {
        let line = br#"{"index":{"op_type":"create"}}"#;
        let read = action(line, &OPENSEARCH).expect("accepted").expect("not blank");
        assert_eq!(read.action().op, Op::Create);
        assert_eq!(
            why(r#"{"create":{"op_type":"index"}}"#, &OPENSEARCH),
            Some(Why::OddValue)
        );
    }

    #[test]
    fn what_a_server_rejects_or_may_reject_passes() {
        for (line, expected) in [
            (r#"{"index":{"_id":"a"}"#, Why::MalformedAction),
            (r#"{"index":{"_id":"a"}} {}"#, Why::MalformedAction),
            (r#"{"index":{"_id":"a"},"x":1}"#, Why::MalformedAction),
            (r#"{"index":null}"#, Why::MalformedAction),
            (r#"{"index":{"_id":"\ud800"}}"#, Why::MalformedAction),
            (r#"{}"#, Why::MalformedAction),
            (r#"[]"#, Why::MalformedAction),
            (r#"{"get":{}}"#, Why::UnknownAction),
            (r#"{"index":{"_parent":"a"}}"#, Why::UnknownParameter),
            (r#"{"index":{"_routing":"a"}}"#, Why::UnknownParameter),
            (r#"{"index":{"_version":1}}"#, Why::UnknownParameter),
            (
                r#"{"update":{"_id":"1","_retry_on_conflict":1}}"#,
                Why::UnknownParameter,
            ),
            (r#"{"index":{"unknown":null}}"#, Why::UnknownParameter),
            (r#"{"index":{"dynamic_templates":{}}}"#, Why::UnknownParameter),
            (r#"{"index":{"_id":{}}}"#, Why::OddValue),
            (r#"{"index":{"_id":[1]}}"#, Why::OddValue),
            (r#"{"index":{"_id":1.0}}"#, Why::OddValue),
            (r#"{"index":{"require_alias":"true"}}"#, Why::OddValue),
            (
                r#"{"update":{"_id":"a","retry_on_conflict":2147483648}}"#,
                Why::OddValue,
            ),
            (
                r#"{"index":{"_id":"a","retry_on_conflict":99999999999}}"#,
                Why::OddValue,
            ),
            (r#"{"index":{"_id":"a","_id":"a"}}"#, Why::DuplicateKey),
            (r#"{"index":{"_type":"other"}}"#, Why::TypedAction),
            (r#"{"index":{"_type":null}}"#, Why::TypedAction),
            (r#"{"index":{"_id":""}}"#, Why::EmptyId),
            (r#"{"index":{"routing":""}}"#, Why::EmptyRouting),
            (
                r#"{"index":{"version":1,"version_type":"external"}}"#,
                Why::Versioning,
            ),
            (r#"{"index":{"_id":"a","version":1}}"#, Why::Versioning),
            (r#"{"index":{"_id":"a","if_seq_no":1}}"#, Why::Versioning),
            (
                r#"{"index":{"_id":"a","if_seq_no":1,"if_primary_term":0}}"#,
                Why::Versioning,
            ),
            (
                r#"{"create":{"_id":"a","version":1,"version_type":"external"}}"#,
                Why::Versioning,
            ),
            (
                r#"{"update":{"_id":"a","version":1,"version_type":"external"}}"#,
                Why::Versioning,
            ),
        ] {
            assert_eq!(why(line, &OPENSEARCH), Some(expected), "{line}");
        }
        assert!(action(b"{\"index\":{\"_id\":\"\xff\"}}", &OPENSEARCH).is_err());
    }

    #[test]
    fn keys_are_known_from_the_version_that_brought_them() {
        for (line, old, new) in [
            (
                r#"{"index":{"require_alias":true}}"#,
                Some(Why::UnknownParameter),
                None,
            ),
            (
                r#"{"index":{"dynamic_templates":{"a":"b"}}}"#,
                Some(Why::UnknownParameter),
                None,
            ),
            (
                r#"{"create":{"require_data_stream":true}}"#,
                Some(Why::UnknownParameter),
                None,
            ),
            (
                r#"{"index":{"list_executed_pipelines":null}}"#,
                Some(Why::UnknownParameter),
                None,
            ),
            (
                r#"{"index":{"_id":"a","if_seq_no":1,"if_primary_term":1}}"#,
                None,
                None,
            ),
            (
                r#"{"delete":{"_id":"a","version":0,"version_type":"external_gte"}}"#,
                None,
                None,
            ),
            (
                r#"{"update":{"_id":"a","retry_on_conflict":3,"_source":true}}"#,
                None,
                None,
            ),
            (
                r#"{"update":{"_id":"a","retry_on_conflict":2147483647}}"#,
                None,
                None,
            ),
        ] {
            assert_eq!(why(line, &ELASTICSEARCH_7), old, "{line}");
            assert_eq!(why(line, &ELASTICSEARCH_9), new, "{line}");
        }
    }

    #[test]
    fn the_place_for_an_id_is_found() {
        for (line, at, cut, form) in [
            (r#"{"index":{}}"#, 10, 0, Form::Only),
            (r#" {"index": {"_index":"é"}}"#, 12, 0, Form::First),
            (r#"{"index":{"_index":"é","_id": null}}"#, 31, 4, Form::Value),
        ] {
            let read = action(line.as_bytes(), &OPENSEARCH)
                .expect("accepted")
                .expect("not blank");
            assert_eq!(read.action().id_gap, IdGap { at, cut, form }, "{line}");
        }
    }
}
