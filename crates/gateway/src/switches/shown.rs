//! Shows the gateway's settings among those in a cluster's answer, in the shape that the client asked for.

use serde_json::{Map, Value};

use super::filter_path::FilterPath;
use super::setting::INDEX_KEY;
use super::{Section, Setting, Switched};

/// The shape of an answer, as requested by the parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shape {
    /// `flat_settings`: keys are written in full, not nested.
    pub(super) flat: bool,
    pub(super) pretty: bool,
    pub(super) filter_path: FilterPath,
}

/// Adds what has been switched to the answer of `GET _cluster/settings`.
pub(super) fn add_all(answer: &mut Map<String, Value>, switched: &Switched, shape: &Shape) {
    let given = |section| {
        let given = Setting::ALL
            .into_iter()
            .filter_map(move |setting| Some((setting, switched.given(section, setting)?)));
        given.collect::<Vec<_>>()
    };
    for section in [Section::Persistent, Section::Transient] {
        add_section(answer, section, &given(section), shape);
    }
}

/// Adds what has just been set to the answer of `PUT _cluster/settings`. Settings that were reset are not
/// shown there.
pub(super) fn add_set(
    answer: &mut Map<String, Value>,
    set: &[(Section, Setting, Option<Box<str>>)],
    shape: &Shape,
) {
    for section in [Section::Persistent, Section::Transient] {
        let of_section = set.iter().filter(|(of, ..)| *of == section);
        let given: Vec<_> = of_section
            .filter_map(|(_, setting, value)| Some((*setting, value.as_deref()?)))
            .collect();
        add_section(answer, section, &given, shape);
    }
}

/// Adds one section. The cluster has already filtered its own settings; each path selects independently, so
/// the gateway's settings can be filtered separately.
fn add_section(answer: &mut Map<String, Value>, section: Section, given: &[(Setting, &str)], shape: &Shape) {
    if given.is_empty() {
        return;
    }
    let mut settings = Map::new();
    for (setting, text) in given {
        insert(&mut settings, setting.key(), text, shape.flat);
    }
    let mut ours = Map::new();
    ours.insert(section.name().to_owned(), Value::Object(settings));
    merge(answer, shape.filter_path.apply(ours));
}

/// Adds the switches of indices to the answer of `GET {index}/_settings`, which has an entry for each index.
pub(super) fn add_to_indices(answer: &mut Map<String, Value>, switched: &Switched, shape: &Shape) {
    for (index, entry) in answer {
        let Some(on) = switched.indices.of(index) else {
            continue;
        };
        if let Some(settings) = entry.get_mut("settings").and_then(Value::as_object_mut) {
            let text = if on { "true" } else { "false" };
            insert(settings, INDEX_KEY, text, shape.flat);
        }
    }
}

/// Removes a setting from the answer of `GET {index}/_settings`, and the indices that have no other setting,
/// as the cluster does.
pub(super) fn leave_out(answer: &mut Map<String, Value>, key: &str) {
    answer.retain(|_, entry| {
        let Some(settings) = entry.get_mut("settings").and_then(Value::as_object_mut) else {
            return true;
        };
        remove(settings, key);
        !settings.is_empty()
    });
}

/// Returns the bytes of the answer.
pub(super) fn text(answer: Map<String, Value>, shape: &Shape) -> Vec<u8> {
    let answer = Value::Object(answer);
    match shape.pretty {
        true => crate::pretty::pretty(&answer).into_bytes(),
        false => answer.to_string().into_bytes(),
    }
}

fn insert(settings: &mut Map<String, Value>, key: &str, text: &str, flat: bool) {
    match key.split_once('.') {
        Some((first, rest)) if !flat => {
            let inner = settings.entry(first).or_insert_with(|| Value::Object(Map::new()));
            match inner {
                Value::Object(inner) => insert(inner, rest, text, flat),
                // The cluster has a setting of this name, and shows the settings below it with their full
                // names.
                _ => drop(settings.insert(key.to_owned(), text.into())),
            }
        }
        _ => drop(settings.insert(key.to_owned(), text.into())),
    }
}

fn remove(settings: &mut Map<String, Value>, key: &str) {
    if settings.shift_remove(key).is_some() {
        return;
    }
    let Some((first, rest)) = key.split_once('.') else {
        return;
    };
    if let Some(Value::Object(inner)) = settings.get_mut(first) {
        remove(inner, rest);
        if inner.is_empty() {
            settings.shift_remove(first);
        }
    }
}

fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(into)), Value::Object(from)) => merge(into, from),
            (_, value) => drop(into.insert(key, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::switches::SwitchChange;
    use serde_json::json;

    fn switched() -> Switched {
        let change = SwitchChange {
            settings: vec![
                (Section::Persistent, Setting::Combine, Some("true".into())),
                (Section::Transient, Setting::Interval, Some("50".into())),
            ],
            indices: vec![("logs-*".into(), Some(true))],
        };
        Switched::default().with(&change).unwrap()
    }

    fn object(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(object) => object,
            other => panic!("{other}"),
        }
    }

    fn all(answer: Value, shape: &Shape) -> Value {
        let mut answer = object(answer);
        add_all(&mut answer, &switched(), shape);
        Value::Object(answer)
    }

    #[test]
    fn ours_stand_among_the_clusters_nested_or_flat_as_was_asked_for() {
        let answer = json!({"persistent": {"apack": {"x": "1"}}, "transient": {}});
        assert_eq!(
            all(answer, &Shape::default()),
            json!({
                "persistent": {"apack": {"x": "1", "fasterbulk": {"combine": {"enabled": "true"}}}},
                "transient": {"apack": {"fasterbulk": {"combine": {"interval": "50"}}}},
            })
        );
        let flat = Shape {
            flat: true,
            ..Shape::default()
        };
        assert_eq!(
            all(json!({"persistent": {"a.b": "1"}, "transient": {}}), &flat),
            json!({
                "persistent": {"a.b": "1", "apack.fasterbulk.combine.enabled": "true"},
                "transient": {"apack.fasterbulk.combine.interval": "50"},
            })
        );
    }

    #[test]
    fn a_filter_that_the_cluster_has_heeded_holds_for_ours_too() {
        let shape = |filter_path| Shape {
            filter_path: FilterPath::new(filter_path),
            ..Shape::default()
        };
        assert_eq!(
            all(json!({}), &shape("transient.apack")),
            json!({"transient": {"apack": {"fasterbulk": {"combine": {"interval": "50"}}}}})
        );
        assert_eq!(all(json!({}), &shape("defaults")), json!({}));
    }

    #[test]
    fn what_was_set_is_shown_and_what_was_reset_is_not() {
        let mut answer = object(json!({"acknowledged": true, "persistent": {}, "transient": {}}));
        let set = [
            (Section::Transient, Setting::DirectRouting, Some("true".into())),
            (Section::Persistent, Setting::Combine, None),
        ];
        add_set(&mut answer, &set, &Shape::default());
        assert_eq!(
            Value::Object(answer),
            json!({
                "acknowledged": true, "persistent": {},
                "transient": {"index": {"direct_routing": {"global": {"enable": "true"}}}},
            })
        );
    }

    #[test]
    fn indices_show_their_switch_and_a_setting_that_was_asked_for_too_is_left_out_again() {
        let mut answer = object(json!({
            "logs-1": {"settings": {"index": {"uuid": "u"}}},
            "other": {"settings": {"index": {"uuid": "v"}}},
        }));
        add_to_indices(&mut answer, &switched(), &Shape::default());
        assert_eq!(
            answer["logs-1"],
            json!({"settings": {"index": {"uuid": "u", "direct_routing": {"enable": "true"}}}})
        );
        assert_eq!(answer["other"], json!({"settings": {"index": {"uuid": "v"}}}));
        leave_out(&mut answer, "index.uuid");
        assert_eq!(
            Value::Object(answer),
            json!({"logs-1": {"settings": {"index": {"direct_routing": {"enable": "true"}}}}})
        );
    }
}
