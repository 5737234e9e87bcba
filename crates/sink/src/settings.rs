//! Settings of the cluster and of its indices: kept, shown, and refused if servers do not know them.

use serde_json::{Map, Value, json};

use super::api::no_such_index;
use super::filter_path::matches;
use super::http::Head;
use super::state::{ClusterContext, ClusterState};
use super::users;

/// Settings by their full names.
pub(super) type Flat = Map<String, Value>;

/// The beginnings of names that count as settings of the cluster, or of an index.
const OF_CLUSTERS: [&str; 3] = ["cluster.", "indices.", "action."];
const OF_INDICES: [&str; 4] = [
    "index.refresh_interval",
    "index.number_of_replicas",
    "index.translog.",
    "index.mapping.",
];

/// Answers `GET _cluster/settings`.
pub(super) fn show_cluster(state: &ClusterState, head: &Head) -> (u16, Value) {
    let mut answer = json!({
        "persistent": shape(&state.persistent, head),
        "transient": shape(&state.transient, head),
    });
    if head.parameter("include_defaults").is_some() {
        answer["defaults"] = json!({});
    }
    (200, answer)
}

/// Answers `PUT _cluster/settings`.
pub(super) fn set_cluster(shared: &ClusterContext, head: &Head, body: &[u8]) -> (u16, Value) {
    let Ok(Value::Object(body)) = serde_json::from_slice(body) else {
        return refuse("not a JSON object");
    };
    let section = |name: &str| {
        let mut flat = Flat::new();
        if let Some(settings) = body.get(name) {
            flatten("", settings, &mut flat);
        }
        flat
    };
    let (persistent, transient) = (section("persistent"), section("transient"));
    if persistent.is_empty() && transient.is_empty() {
        return refuse("no settings to update");
    }
    for (key, value) in persistent.iter().chain(&transient) {
        if !is_known(key, value, &OF_CLUSTERS) {
            return refuse(&format!("setting [{key}], not recognized"));
        }
    }
    let answer = json!({
        "acknowledged": true,
        "persistent": shape(&set_only(&persistent), head),
        "transient": shape(&set_only(&transient), head),
    });
    shared.change(|state| {
        apply(&mut state.persistent, persistent);
        apply(&mut state.transient, transient);
    });
    (200, answer)
}

/// Answers `GET {index}/_settings/{name}`, with the settings that every index has in addition to those that
/// were set.
pub(super) fn show_indices(
    state: &ClusterState,
    indices: &str,
    name: Option<&str>,
    head: &Head,
    own: impl Fn(&str) -> Flat,
) -> (u16, Value) {
    let mut answer = Map::new();
    for index in state
        .indices
        .keys()
        .filter(|index| is_meant(state, indices, index))
    {
        let mut settings = own(index);
        settings.extend(state.index_settings.get(index).into_iter().flatten().map(copied));
        settings.retain(|key, _| {
            name.is_none_or(|names| names.split(',').any(|name| name == "_all" || matches(name, key)))
        });
        if !settings.is_empty() {
            answer.insert(index.clone(), json!({"settings": shape(&settings, head)}));
        }
    }
    match answer.is_empty() && name.is_none() && !indices.contains('*') {
        true => no_such_index(indices),
        false => (200, Value::Object(answer)),
    }
}

/// Answers `PUT {index}/_settings`.
pub(super) fn set_indices(
    shared: &ClusterContext,
    state: &ClusterState,
    indices: &str,
    head: &Head,
    body: &[u8],
) -> (u16, Value) {
    let meant: Vec<String> = match users::may_manage(shared, head, state, indices) {
        Err(error) => return error.answer(),
        Ok(Some(managed)) => managed,
        Ok(None) => {
            let indices = state
                .indices
                .keys()
                .filter(|index| is_meant(state, indices, index));
            indices.cloned().collect()
        }
    };
    if meant.is_empty() && !indices.contains('*') {
        return no_such_index(indices);
    }
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let mut flat = Flat::new();
    flatten("", body.get("settings").unwrap_or(&body), &mut flat);
    let prefixed = flat
        .into_iter()
        .map(|(key, value)| match key.starts_with("index.") {
            true => (key, value),
            false => (format!("index.{key}"), value),
        });
    let flat: Flat = prefixed.collect();
    if flat.is_empty() {
        return refuse("no settings to update");
    }
    for (key, value) in &flat {
        if !is_known(key, value, &OF_INDICES) {
            return refuse(&format!("unknown setting [{key}]"));
        }
    }
    shared.change(|state| {
        for index in meant {
            apply(state.index_settings.entry(index).or_default(), flat.clone());
        }
    });
    (200, json!({"acknowledged": true}))
}

fn is_meant(state: &ClusterState, expression: &str, index: &str) -> bool {
    let is_behind = |alias: &str| {
        let indices = state.aliases.get(alias);
        indices.is_some_and(|indices| indices.iter().any(|name| name == index))
    };
    expression
        .split(',')
        .any(|word| matches!(word, "_all" | "") || matches(word, index) || is_behind(word))
}

/// Returns whether a setting is known. Servers take a pattern that is set to null, whether any setting fits
/// it or not.
fn is_known(key: &str, value: &Value, families: &[&str]) -> bool {
    (value.is_null() && key.ends_with('*')) || families.iter().any(|family| key.starts_with(family))
}

fn flatten(prefix: &str, value: &Value, into: &mut Flat) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                match prefix {
                    "" => flatten(key, value, into),
                    _ => flatten(&format!("{prefix}.{key}"), value, into),
                }
            }
        }
        Value::Null | Value::String(_) => drop(into.insert(prefix.to_owned(), value.clone())),
        other => drop(into.insert(prefix.to_owned(), other.to_string().into())),
    }
}

fn apply(settings: &mut Flat, change: Flat) {
    for (key, value) in change {
        match value {
            Value::Null => settings.retain(|known, _| !matches(&key, known)),
            value => drop(settings.insert(key, value)),
        }
    }
}

fn set_only(change: &Flat) -> Flat {
    let set = change.iter().filter(|(_, value)| !value.is_null());
    set.map(copied).collect()
}

fn copied((key, value): (&String, &Value)) -> (String, Value) {
    (key.clone(), value.clone())
}

/// Returns the settings nested, unless `flat_settings` is asked for.
fn shape(flat: &Flat, head: &Head) -> Value {
    if head
        .parameter("flat_settings")
        .is_some_and(|value| value != "false")
    {
        return Value::Object(flat.clone());
    }
    let mut nested = Value::Object(Map::new());
    for (key, value) in flat {
        let mut place = &mut nested;
        for name in key.split('.') {
            place = &mut place[name];
        }
        *place = value.clone();
    }
    nested
}

fn refuse(reason: &str) -> (u16, Value) {
    let cause = json!({"type": "illegal_argument_exception", "reason": reason});
    (
        400,
        json!({"error": {"root_cause": [cause], "type": "illegal_argument_exception", "reason": reason}, "status": 400}),
    )
}
