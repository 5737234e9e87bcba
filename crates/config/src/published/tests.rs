//! Checks that the published schema and the checker agree on thousands of files: the examples, each with one
//! thing changed.

use std::cell::RefCell;
use std::collections::HashMap;

use regex::Regex;
use serde_json::{Map, Value as Json, json};
use settings::problem::Problems;
use settings::yaml::{Key, Node, Scalar, Value};
use settings::{tree, yaml};

use super::super::{check, schema};
use super::publish;

/// Returns the problems with keys, types and bounds that `tidegate check` finds.
fn check(node: &Node) -> Vec<String> {
    let mut problems = Problems::new(None);
    let node = tree::nest(node.clone(), &mut problems);
    check::check(&node, schema::cached(), &mut problems);
    let problems = problems.into_sorted().into_iter();
    let errors = problems.filter(|problem| problem.severity == settings::Severity::Error);
    errors.map(|problem| problem.to_string()).collect()
}

/// Returns the value that an editor sees, by YAML's core schema.
fn as_json(node: &Node) -> Json {
    match &node.value {
        Value::List(list) => list.iter().map(as_json).collect(),
        Value::Map(entries) => {
            let entries = entries
                .iter()
                .map(|(key, value)| (key.name.clone(), as_json(value)));
            Json::Object(entries.collect::<Map<_, _>>())
        }
        Value::Scalar(scalar) if scalar.quoted => json!(scalar.text),
        Value::Scalar(scalar) => match scalar.text.as_str() {
            "" | "~" | "null" | "Null" | "NULL" => Json::Null,
            "true" | "True" | "TRUE" => json!(true),
            "false" | "False" | "FALSE" => json!(false),
            text => match (text.parse::<i64>(), text.parse::<f64>()) {
                (Ok(whole), _) => json!(whole),
                (_, Ok(number)) if number.is_finite() => json!(number),
                _ => json!(text),
            },
        },
    }
}

/// A validator for the parts of JSON Schema that the published schema uses.
struct Validator {
    root: Json,
}

impl Validator {
    fn takes(&self, schema: &Json, value: &Json) -> bool {
        let Json::Object(schema) = schema else {
            return *schema != json!(false);
        };
        schema
            .iter()
            .all(|(word, says)| self.word(schema, word, says, value))
    }

    fn word(&self, schema: &Map<String, Json>, word: &str, says: &Json, value: &Json) -> bool {
        let all = |of: &Json| of.as_array().unwrap().clone();
        match (word, value) {
            ("$ref", _) => self.takes(self.root.pointer(&says.as_str().unwrap()[1..]).unwrap(), value),
            ("anyOf", _) => all(says).iter().any(|one| self.takes(one, value)),
            ("oneOf", _) => all(says).iter().filter(|one| self.takes(one, value)).count() == 1,
            ("allOf", _) => all(says).iter().all(|one| self.takes(one, value)),
            ("not", _) => !self.takes(says, value),
            ("propertyNames", Json::Object(map)) => map.keys().all(|key| self.takes(says, &json!(key))),
            ("const", _) => says == value,
            ("enum", _) => all(says).contains(value),
            ("type", _) => match says {
                Json::String(one) => is(one, value),
                many => all(many).iter().any(|one| is(one.as_str().unwrap(), value)),
            },
            ("minimum", Json::Number(number)) => number.as_f64() >= says.as_f64(),
            ("maximum", Json::Number(number)) => number.as_f64() <= says.as_f64(),
            ("pattern", Json::String(text)) => is_match(says.as_str().unwrap(), text),
            ("items", Json::Array(list)) => list.iter().all(|item| self.takes(says, item)),
            ("required", Json::Object(map)) => all(says)
                .iter()
                .all(|key| map.contains_key(key.as_str().unwrap())),
            ("properties", Json::Object(map)) => says
                .as_object()
                .unwrap()
                .iter()
                .all(|(key, schema)| map.get(key).is_none_or(|value| self.takes(schema, value))),
            ("patternProperties", Json::Object(map)) => map
                .iter()
                .all(|(key, value)| matching(says, key).all(|schema| self.takes(schema, value))),
            ("additionalProperties", Json::Object(map)) => map.iter().all(|(key, value)| {
                let known = schema
                    .get("properties")
                    .is_some_and(|known| known.get(key).is_some());
                let patterns = schema.get("patternProperties").unwrap_or(&Json::Null);
                known || matching(patterns, key).next().is_some() || self.takes(says, value)
            }),
            _ => true,
        }
    }
}

fn matching<'a>(patterns: &'a Json, key: &'a str) -> impl Iterator<Item = &'a Json> {
    let patterns = patterns.as_object().into_iter().flatten();
    let fits = patterns.filter(|(pattern, _)| is_match(pattern, key));
    fits.map(|(_, schema)| schema)
}

fn is_match(pattern: &str, text: &str) -> bool {
    thread_local!(static KNOWN: RefCell<HashMap<String, Regex>> = RefCell::default());
    KNOWN.with_borrow_mut(|known| {
        let known = known.entry(pattern.to_owned());
        known
            .or_insert_with(|| Regex::new(pattern).unwrap())
            .is_match(text)
    })
}

fn is(kind: &str, value: &Json) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other} is no type"),
    }
}

/// The values that replace each value.
const VALUES: &[&str] = &[
    "8000",
    "-1",
    "1.5",
    "true",
    "yes",
    "word",
    "'8000'",
    "'true'",
    "~",
    "[a]",
    "[]",
    "[~]",
    "{}",
    "{a: 1}",
    "{a.b: c}",
    "5s",
    "1m30s",
    "64kb",
    "1 GB",
    "'-1'",
    "''",
    "sync",
    "{name: x}",
    "[{name: x}]",
];

/// The keys that are added to each section.
const KEYS: &[&str] = &[
    "nonsense: 1",
    "nonsense.x: 1",
    "name.x: 1",
    "name: x",
    "x_y: 1",
    "-: 1",
    "tls.enabled: true",
    "tls.nonsense: 1",
    "network.binding: x",
    "network.reuse_port: 7",
    "path.data: 7",
    "path.nonsense: 7",
    "disk_queue.x.y: 1",
    "env.A: 7",
    "env.A.B: 7",
    "when.contains.a: b",
    "queue.lanes: x",
    "bulk_reshuffle.queue.lanes: 4",
    "bulk_reshuffle.nonsense: 4",
    "discovery.refresh.interval: 1s",
    "discovery.refresh.interval: 1",
    "entry: ~",
    "admin: ~",
    "worker: ~",
    "logging.access.sample: 0",
    "tls: 1",
    "network: {}",
];

fn parse(text: &str) -> Node {
    let mut problems = Problems::new(None);
    yaml::parse(text, &mut problems).unwrap_or_else(|| panic!("{text}"))
}

/// Calls `see` with `root` and one thing in it changed, for each thing and change.
fn change_each(root: &Node, see: &mut dyn FnMut(&Node)) {
    let mut paths = Vec::new();
    walk(root, &mut Vec::new(), &mut paths);
    let values: Vec<Node> = VALUES.iter().map(|text| parse(text)).collect();
    for path in &paths {
        for value in &values {
            let mut changed = root.clone();
            *at(&mut changed, path) = value.clone();
            see(&changed);
        }
        if !matches!(at(&mut root.clone(), path).value, Value::Map(_)) {
            continue;
        }
        for key in KEYS {
            let Value::Map(new) = parse(key).value else {
                panic!("{key}")
            };
            let mut changed = root.clone();
            let Value::Map(entries) = &mut at(&mut changed, path).value else {
                continue;
            };
            let first = |key: &Key| key.name.split('.').next().unwrap_or_default().to_owned();
            // A key that is written twice, or nested and dotted at once, is found by the reader of the tree.
            if entries.iter().all(|(old, _)| first(old) != first(&new[0].0)) {
                entries.extend(new);
                see(&changed);
            }
        }
        let keys = match &at(&mut root.clone(), path).value {
            Value::Map(entries) => entries.len(),
            _ => 0,
        };
        for key in 0..keys {
            let mut changed = root.clone();
            if let Value::Map(entries) = &mut at(&mut changed, path).value {
                entries.remove(key);
            }
            see(&changed);
        }
    }
}

fn walk(node: &Node, path: &mut Vec<usize>, out: &mut Vec<Vec<usize>>) {
    out.push(path.clone());
    let below: Vec<&Node> = match &node.value {
        Value::Map(entries) => entries.iter().map(|(_, value)| value).collect(),
        Value::List(list) => list.iter().collect(),
        Value::Scalar(_) => return,
    };
    for (place, below) in below.into_iter().enumerate() {
        path.push(place);
        walk(below, path, out);
        path.pop();
    }
}

fn at<'a>(node: &'a mut Node, path: &[usize]) -> &'a mut Node {
    let Some((first, rest)) = path.split_first() else {
        return node;
    };
    match &mut node.value {
        Value::Map(entries) => at(&mut entries[*first].1, rest),
        Value::List(list) => at(&mut list[*first], rest),
        Value::Scalar(Scalar { text, .. }) => panic!("nothing is below {text}"),
    }
}

#[test]
fn the_schema_and_the_check_say_the_same_of_every_file() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let validator = Validator {
        root: publish(schema::cached()),
    };
    let (mut taken, mut refused, mut wrong) = (0, 0, Vec::new());
    let mut compare = |node: &Node| {
        let value = as_json(node);
        let (errors, takes) = (check(node), validator.takes(&validator.root, &value));
        if errors.is_empty() != takes {
            wrong.push(format!("the schema says {takes}, the check {errors:?}: {value}"));
        }
        *if takes { &mut taken } else { &mut refused } += 1;
    };
    for file in [
        "../../examples/sync-by-node.yml",
        "../../examples/role-filter.yml",
        "../../examples/async.yml",
        "tests/config/guide.yml",
    ] {
        let node = parse(&std::fs::read_to_string(root.join(file)).unwrap());
        compare(&node);
        change_each(&node, &mut compare);
    }
    assert!(
        wrong.is_empty(),
        "{} of them:\n{}",
        wrong.len(),
        wrong.iter().take(12).cloned().collect::<Vec<_>>().join("\n")
    );
    assert!(taken > 1_000 && refused > 1_000, "{taken} and {refused}");
}
