//! Compares the sources of documents as JSON texts, one level at a time: a source of many small values takes
//! many times its text once all of it is read.

use std::collections::HashMap;

use serde_json::Value;
use serde_json::value::RawValue;

/// One level of a JSON text.
enum Level<'a> {
    Object(HashMap<String, &'a RawValue>),
    Array(Vec<&'a RawValue>),
    Scalar(Value),
}

/// Whether two texts have the same value.
pub(super) fn same(one: &RawValue, other: &RawValue) -> bool {
    compare(one, other, false, 0)
}

/// Whether merging `part` into a source, as an update does, changes nothing.
pub(super) fn holds(source: &RawValue, part: &RawValue) -> bool {
    compare(source, part, true, 0)
}

/// Returns the `doc` of an update's source line; `None` if the update has a script or no `doc`.
pub(super) fn doc_of(line: &[u8]) -> Option<&RawValue> {
    let mut update: HashMap<String, &RawValue> = serde_json::from_slice(line).ok()?;
    match update.contains_key("script") {
        true => None,
        false => update.remove("doc"),
    }
}

/// Returns the paths of the fields that merging `part` would set, for a server that is asked for no others.
/// `None` if a name at the top would be read as a pattern, or if there are too many fields.
pub(super) fn paths(part: &RawValue) -> Option<Vec<String>> {
    let Some(Level::Object(fields)) = level(part) else {
        return None;
    };
    let mut paths = Vec::new();
    for (name, value) in &fields {
        if !is_plain(name) || paths.len() >= PATHS_MAX {
            return None;
        }
        let inner = inner_paths(name, value, 1);
        if inner.len() <= PATHS_MAX - paths.len() {
            paths.extend(inner);
        } else {
            paths.push(name.clone());
        }
    }
    (!paths.is_empty()).then_some(paths)
}

/// Returns the paths of the fields within a field, or its own path if they cannot be told apart by a path.
fn inner_paths(path: &str, value: &RawValue, depth: usize) -> Vec<String> {
    let whole = || vec![path.to_owned()];
    if depth >= PATH_DEPTH_MAX || !value.get().starts_with('{') {
        return whole();
    }
    match level(value) {
        Some(Level::Object(fields))
            if !fields.is_empty()
                && fields.len() <= PATHS_MAX
                && fields.keys().all(|name| is_plain(name)) =>
        {
            let inner = fields
                .iter()
                .flat_map(|(name, value)| inner_paths(&format!("{path}.{name}"), value, depth + 1));
            inner.collect()
        }
        _ => whole(),
    }
}

fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'@');
    // A name with dots is asked for by the same path as the fields that it is short for.
    let is_part = |part: &str| !part.is_empty() && part.bytes().all(plain);
    name.len() <= NAME_BYTES_MAX && name.split('.').all(is_part)
}

fn compare(source: &RawValue, wanted: &RawValue, part: bool, depth: usize) -> bool {
    if source.get() == wanted.get() {
        return true;
    }
    if depth >= DEPTH_MAX {
        return false;
    }
    let (Some(source), Some(wanted)) = (level(source), level(wanted)) else {
        return false;
    };
    match (source, wanted) {
        (Level::Object(source), Level::Object(wanted)) => {
            (part || source.len() == wanted.len())
                && wanted.iter().all(|(name, wanted)| {
                    let there = source.get(name);
                    there.is_some_and(|there| compare(there, wanted, part, depth + 1))
                })
        }
        // An update replaces a list as a whole.
        (Level::Array(source), Level::Array(wanted)) => {
            source.len() == wanted.len()
                && source
                    .iter()
                    .zip(wanted)
                    .all(|(source, wanted)| compare(source, wanted, false, depth + 1))
        }
        (Level::Scalar(source), Level::Scalar(wanted)) => source == wanted,
        _ => false,
    }
}

fn level(text: &RawValue) -> Option<Level<'_>> {
    let text = text.get();
    match text.as_bytes().first()? {
        b'{' => serde_json::from_str(text).ok().map(Level::Object),
        b'[' => serde_json::from_str(text).ok().map(Level::Array),
        _ => serde_json::from_str(text).ok().map(Level::Scalar),
    }
}

/// The deepest level that is compared. No server stores deeper documents by default.
const DEPTH_MAX: usize = 128;
/// The most fields that a server is asked for, the most levels of a path, and the longest name in one.
const PATHS_MAX: usize = 64;
const PATH_DEPTH_MAX: usize = 8;
const NAME_BYTES_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn raw(value: &Value) -> Box<RawValue> {
        RawValue::from_string(value.to_string()).unwrap()
    }

    /// The plain way to say what an update changes.
    fn holds_as_values(source: &Value, part: &Value) -> bool {
        match (source, part) {
            (Value::Object(source), Value::Object(part)) => part
                .iter()
                .all(|(key, part)| source.get(key).is_some_and(|there| holds_as_values(there, part))),
            (source, part) => source == part,
        }
    }

    #[test]
    fn an_update_is_done_where_merging_it_would_change_nothing() {
        let source = json!({"a": 1, "b": {"c": [1, {"x": 2}], "d": null}, "e": []});
        for (part, expected) in [
            (json!({"a": 1}), true),
            (json!({"b": {"c": [1, {"x": 2}]}}), true),
            (json!({"b": {"d": null}}), true),
            (json!({}), true),
            (json!({"a": 2}), false),
            (json!({"b": {"c": [1]}}), false),
            (json!({"b": {"c": [1, {}]}}), false),
            (json!({"b": {"e": null}}), false),
            (json!({"b": 1}), false),
            (json!({"e": {}}), false),
        ] {
            assert_eq!(holds(&raw(&source), &raw(&part)), expected, "{part}");
            assert_eq!(holds_as_values(&source, &part), expected, "{part}");
        }
    }

    #[test]
    fn texts_are_the_same_if_their_values_are() {
        let text = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        for (one, other, expected) in [
            (r#"{"a":1,"b":[1,2]}"#, r#"{ "b" : [1, 2], "a" : 1 }"#, true),
            (r#"{"a":"\u00e9"}"#, r#"{"a":"é"}"#, true),
            (r#"{"\u0061":1e2}"#, r#"{"a":100.0}"#, true),
            (r#"{"a":1}"#, r#"{"a":1,"b":2}"#, false),
            (r#"{"a":1,"b":2}"#, r#"{"a":1}"#, false),
            (r#"{"a":[1,2]}"#, r#"{"a":[2,1]}"#, false),
            (r#"{"a":1}"#, r#"{"a":"1"}"#, false),
        ] {
            assert_eq!(same(&text(one), &text(other)), expected, "{one} {other}");
            let values = [one, other].map(|text| serde_json::from_str::<Value>(text).unwrap());
            assert_eq!(values[0] == values[1], expected, "{one} {other}");
        }
        let deep = |end: &str| text(&format!("{}{end}{}", "[".repeat(100_000), "]".repeat(100_000)));
        assert!(!same(&deep("1"), &deep("2")), "and the stack holds");
    }

    #[test]
    fn a_server_is_asked_for_no_more_fields_than_an_update_sets() {
        let paths = |part: Value| {
            let mut paths = paths(&raw(&part))?;
            paths.sort();
            Some(paths)
        };
        let list = |paths: &[&str]| Some(paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>());
        assert_eq!(
            paths(json!({"v": 1, "@t": {"x": 1, "y": {"z": [{"q": 1}]}}})),
            list(&["@t.x", "@t.y.z", "v"])
        );
        assert_eq!(paths(json!({"o": {}, "p": {"a.b": 1}})), list(&["o", "p.a.b"]));
        assert_eq!(paths(json!({"p": {"a*": 1}, "a.b": 1})), list(&["a.b", "p"]));
        assert_eq!(paths(json!({"a..b": 1})), None);
        assert_eq!(paths(json!({"a*": 1})), None);
        assert_eq!(paths(json!({})), None);
        let many: serde_json::Map<_, _> = (0..65).map(|n| (format!("f{n}"), json!(1))).collect();
        assert_eq!(paths(Value::Object(many.clone())), None);
        assert_eq!(paths(json!({"m": many, "n": 1})), list(&["m", "n"]));
    }

    #[test]
    fn an_update_with_a_script_has_no_document() {
        assert_eq!(
            doc_of(br#"{"doc":{"a":1},"upsert":{}}"#).unwrap().get(),
            r#"{"a":1}"#
        );
        assert!(doc_of(br#"{"doc":{"a":1},"script":"x"}"#).is_none());
        assert!(doc_of(br#"{"upsert":{}}"#).is_none() && doc_of(b"").is_none());
    }
}
