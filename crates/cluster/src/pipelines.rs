//! The ingest pipelines that may run on a split bulk: those that cannot move a document to another shard.
//!
//! A pipeline that changes `_index`, `_id` or `_routing` makes our prediction meaningless, so a bulk that
//! uses such a pipeline passes through whole. The decision is conservative: a processor is harmless only when
//! its type is known here *and* none of the fields that it is configured to write can be one of the three.
//! `script`, `reroute`, `date_index_name`, plugins' processors, and field names that are computed from the
//! document all count as harmful.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// Returns the names of the harmless pipelines among `definitions`, the body of `GET /_ingest/pipeline`.
pub(crate) fn harmless_pipelines(definitions: &Map<String, Value>) -> BTreeSet<String> {
    let mut known = Judged {
        definitions,
        verdicts: BTreeMap::new(),
    };
    definitions
        .keys()
        .filter(|name| known.pipeline(name))
        .cloned()
        .collect()
}

/// Returns the names of the pipelines that write the sender of a request into documents, or that run such a
/// pipeline: in a request from a queue, the sender would be another.
pub(crate) fn telling_pipelines(definitions: &Map<String, Value>) -> BTreeSet<String> {
    let mut telling: BTreeSet<String> = definitions
        .iter()
        .filter(|(_, definition)| holds(definition, &|key, _| key == "set_security_user"))
        .map(|(name, _)| name.clone())
        .collect();
    loop {
        // A name that is computed from the document may be any name.
        let runs_one = |key: &str, told: &Value| {
            let name = told.get("name").and_then(Value::as_str).unwrap_or_default();
            key == "pipeline" && (telling.contains(name) || name.contains("{{") && !telling.is_empty())
        };
        let more: Vec<String> = definitions
            .iter()
            .filter(|(name, definition)| !telling.contains(*name) && holds(definition, &runs_one))
            .map(|(name, _)| name.clone())
            .collect();
        if more.is_empty() {
            return telling;
        }
        telling.extend(more);
    }
}

/// Returns whether some member, however deep (in a `foreach`, or in the handlers of a failure), is wanted.
fn holds(value: &Value, wanted: &dyn Fn(&str, &Value) -> bool) -> bool {
    match value {
        Value::Object(members) => members
            .iter()
            .any(|(key, value)| wanted(key, value) || holds(value, wanted)),
        Value::Array(values) => values.iter().any(|value| holds(value, wanted)),
        _ => false,
    }
}

struct Judged<'a> {
    definitions: &'a Map<String, Value>,
    /// The verdict on each pipeline: `false` from the moment that it is looked at, so that a cycle is harmful
    /// and not endless.
    verdicts: BTreeMap<&'a str, bool>,
}

impl<'a> Judged<'a> {
    fn pipeline(&mut self, name: &str) -> bool {
        let Some((name, definition)) = self.definitions.get_key_value(name) else {
            return false;
        };
        if let Some(verdict) = self.verdicts.get(name.as_str()) {
            return *verdict;
        }
        self.verdicts.insert(name, false);
        let verdict = self.processors(definition.get("processors"))
            && definition
                .get("on_failure")
                .is_none_or(|list| self.processors(Some(list)));
        self.verdicts.insert(name, verdict);
        verdict
    }

    fn processors(&mut self, list: Option<&'a Value>) -> bool {
        let Some(Value::Array(list)) = list else {
            return false;
        };
        list.iter().all(|entry| match entry.as_object() {
            Some(entry) => entry.iter().all(|(kind, told)| self.processor(kind, told)),
            None => false,
        })
    }

    fn processor(&mut self, kind: &str, told: &'a Value) -> bool {
        let Some(told) = told.as_object() else {
            return false;
        };
        if !told
            .get("on_failure")
            .is_none_or(|list| self.processors(Some(list)))
        {
            return false;
        }
        match kind {
            // These write nothing, or the one field that they name; `value` may be anything, since it is only
            // a value.
            "drop" | "fail" | "terminate" => true,
            "set" | "append" => told.get("field").is_some_and(is_plain_field),
            // This runs another pipeline, which must be one that we can see.
            "pipeline" => match told.get("name").and_then(Value::as_str) {
                Some(name) if !name.contains("{{") => self.pipeline(name),
                _ => false,
            },
            "foreach" => {
                told.get("field").is_some_and(is_plain_field)
                    && told
                        .get("processor")
                        .and_then(Value::as_object)
                        .is_some_and(|inner| {
                            !inner.is_empty() && inner.iter().all(|(kind, told)| self.processor(kind, told))
                        })
            }
            // The names of the fields that these write may come from the document.
            "json" => told.get("add_to_root").is_none_or(|v| *v == Value::Bool(false)) && names_nothing(told),
            "kv" => told.get("target_field").is_some_and(|v| v.is_string()) && names_nothing(told),
            "dissect" => {
                let pattern = told.get("pattern").and_then(Value::as_str);
                pattern.is_some_and(|p| !p.contains("%{*") && !p.contains("%{&")) && names_nothing(told)
            }
            _ => WRITE_WHAT_THEY_NAME.contains(&kind) && names_nothing(told),
        }
    }
}

/// Returns whether no string in the processor's settings is, or computes, the name of a metadata field.
fn names_nothing(told: &Map<String, Value>) -> bool {
    told.iter().all(|(key, value)| {
        matches!(key.as_str(), "if" | "description" | "tag" | "on_failure")
            || (is_plain_text(key) && is_plain_field(value))
    })
}

fn is_plain_field(value: &Value) -> bool {
    match value {
        Value::String(text) => is_plain_text(text),
        Value::Array(list) => list.iter().all(is_plain_field),
        Value::Object(map) => map
            .iter()
            .all(|(key, value)| is_plain_text(key) && is_plain_field(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}

/// Returns whether the text holds no template and none of the three metadata fields as a word (`user_id` is
/// none, `%{DATA:_id}` is one).
fn is_plain_text(text: &str) -> bool {
    let word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    !text.contains("{{")
        && ["_index", "_id", "_routing"].iter().all(|name| {
            text.match_indices(name).all(|(at, _)| {
                word(text[..at].chars().next_back()) || word(text[at + name.len()..].chars().next())
            })
        })
}

/// Processors of both engines that write only fields that their settings (or fixed defaults such as `geoip`)
/// name.
const WRITE_WHAT_THEY_NAME: [&str; 33] = [
    "attachment",
    "bytes",
    "circle",
    "community_id",
    "convert",
    "copy",
    "csv",
    "date",
    "dot_expander",
    "enrich",
    "fingerprint",
    "geoip",
    "grok",
    "gsub",
    "html_strip",
    "ip2geo",
    "ip_location",
    "join",
    "lowercase",
    "network_direction",
    "redact",
    "registered_domain",
    "remove",
    "rename",
    "set_security_user",
    "sort",
    "split",
    "text_embedding",
    "trim",
    "uppercase",
    "uri_parts",
    "urldecode",
    "user_agent",
];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn harmless(processor: Value) -> bool {
        let definitions = json!({
            "tested": {"processors": [processor]},
            "calm": {"processors": [{"trim": {"field": "message"}}]},
            "wild": {"processors": [{"script": {"source": "ctx._index = 'x'"}}]},
            "loop": {"processors": [{"pipeline": {"name": "loop"}}]},
        });
        harmless_pipelines(definitions.as_object().unwrap()).contains("tested")
    }

    #[test]
    fn processors_that_write_ordinary_fields_are_harmless() {
        for processor in [
            json!({"set": {"field": "event.ingested", "value": "{{_ingest.timestamp}}"}}),
            json!({"set": {"field": "copy_of_id", "value": "{{_id}}"}}),
            json!({"append": {"field": "tags", "value": ["a"]}}),
            json!({"grok": {"field": "message", "patterns": ["%{IP:client_ip} %{WORD:user_id}"]}}),
            json!({"dissect": {"field": "message", "pattern": "%{a} %{b}"}}),
            json!({"json": {"field": "message", "target_field": "m"}}),
            json!({"kv": {"field": "message", "field_split": " ", "value_split": "=", "target_field": "kv"}}),
            json!({"rename": {"field": "a", "target_field": "b", "if": "ctx._id != null", "ignore_missing": true}}),
            json!({"remove": {"field": ["a", "b"]}}),
            json!({"drop": {"if": "ctx.level == 'debug'"}}),
            json!({"pipeline": {"name": "calm"}}),
            json!({"foreach": {"field": "list", "processor": {"uppercase": {"field": "_ingest._value"}}}}),
            json!({"date": {"field": "t", "formats": ["ISO8601"], "on_failure": [{"set": {"field": "bad", "value": 1}}]}}),
        ] {
            assert!(harmless(processor.clone()), "{processor}");
        }
    }

    #[test]
    fn processors_that_can_move_a_document_are_not() {
        for processor in [
            json!({"set": {"field": "_index", "value": "x"}}),
            json!({"set": {"field": "_routing", "value": "x"}}),
            json!({"set": {"field": "{{name}}", "value": "x"}}),
            json!({"rename": {"field": "key", "target_field": "_id"}}),
            json!({"remove": {"field": "_id"}}),
            json!({"remove": {"field": ["a", "_routing"]}}),
            json!({"script": {"source": "ctx.a = 1"}}),
            json!({"reroute": {}}),
            json!({"date_index_name": {"field": "t", "date_rounding": "M"}}),
            json!({"grok": {"field": "message", "patterns": ["%{DATA:_index} .*"]}}),
            json!({"dissect": {"field": "message", "pattern": "%{_id} %{b}"}}),
            json!({"dissect": {"field": "message", "pattern": "%{*k} %{&k}"}}),
            json!({"json": {"field": "message", "add_to_root": true}}),
            json!({"kv": {"field": "message", "field_split": " ", "value_split": "="}}),
            json!({"csv": {"field": "message", "target_fields": ["a", "_id"]}}),
            json!({"pipeline": {"name": "wild"}}),
            json!({"pipeline": {"name": "absent"}}),
            json!({"pipeline": {"name": "{{which}}"}}),
            json!({"pipeline": {"name": "loop"}}),
            json!({"foreach": {"field": "list", "processor": {"set": {"field": "_id", "value": 1}}}}),
            json!({"trim": {"field": "a", "on_failure": [{"script": {"id": "s"}}]}}),
            json!({"a_plugins_own": {"field": "a"}}),
            json!("nonsense"),
        ] {
            assert!(!harmless(processor.clone()), "{processor}");
        }
    }

    #[test]
    fn a_pipeline_that_writes_the_caller_is_known_however_it_comes_to_it() {
        let teller = json!({"set_security_user": {"field": "user"}});
        let runs = |name: &str| json!({"processors": [{"pipeline": {"name": name}}]});
        let definitions = json!({
            "plain": {"processors": [{"trim": {"field": "a"}}]},
            "tells": {"processors": [{"trim": {"field": "a"}}, teller]},
            "in_turn": {"processors": [{"foreach": {"field": "l", "processor": teller}}]},
            "on_failure": {"processors": [{"trim": {"field": "a", "on_failure": [teller]}}]},
            "runs": runs("tells"),
            "runs_that": runs("runs"),
            "runs_any": runs("{{which}}"),
            "runs_plain": runs("plain"),
            "loop": runs("loop"),
        });
        let telling = telling_pipelines(definitions.as_object().unwrap());
        let expected = ["in_turn", "on_failure", "runs", "runs_any", "runs_that", "tells"];
        assert_eq!(telling.into_iter().collect::<Vec<_>>(), expected);
        let calm = json!({"plain": definitions["plain"], "runs_any": runs("{{which}}")});
        assert!(telling_pipelines(calm.as_object().unwrap()).is_empty());
    }

    #[test]
    fn a_pipeline_is_judged_with_its_failure_path() {
        let definitions = json!({"p": {
            "processors": [{"trim": {"field": "a"}}],
            "on_failure": [{"set": {"field": "_index", "value": "failed"}}],
        }});
        assert!(harmless_pipelines(definitions.as_object().unwrap()).is_empty());
    }
}
