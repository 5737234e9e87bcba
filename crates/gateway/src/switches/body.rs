//! Takes the gateway's settings out of a request's body. The others stay as they are.

use memchr::memmem;
use serde_json::{Map, Value, json};

use super::indices::matches;
use super::setting::{self, BadSwitch, INDEX_KEY};
use super::{Section, Setting, SwitchChange, strict};

/// A body that has been divided into the gateway's settings and the cluster's.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SplitBody {
    /// The gateway's settings, without the names of indices.
    pub(super) ours: GatewaySettings,
    /// The body that the cluster is sent.
    pub(super) theirs: Value,
}

/// The gateway's settings in a body.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum GatewaySettings {
    /// Settings of the cluster.
    Cluster(SwitchChange),
    /// A setting of the indices that the path names.
    Index(Option<bool>),
}

/// Divides the body of `PUT _cluster/settings`. Returns `None` if none of it belongs to the gateway, or if
/// the cluster would refuse it in any case.
pub(super) fn of_cluster(body: &[u8]) -> Result<Option<SplitBody>, BadSwitch> {
    let Some(Value::Object(mut theirs)) = read(body) else {
        return Ok(None);
    };
    let mut change = SwitchChange::default();
    for section in [Section::Persistent, Section::Transient] {
        let Some(Value::Object(settings)) = theirs.get_mut(section.name()) else {
            continue;
        };
        let mut found = Vec::new();
        take(settings, "", &mut found);
        if settings.is_empty() && !found.is_empty() {
            theirs.shift_remove(section.name());
        }
        let mut seen = [false; Setting::ALL.len()];
        for (key, value) in found {
            if is_wildcard(&key, &value) {
                let reset = Setting::ALL
                    .into_iter()
                    .filter(|known| matches(&key, known.key()));
                change.settings.extend(reset.map(|known| (section, known, None)));
                continue;
            }
            let Some(known) = Setting::of_key(&key) else {
                return Err(unknown(&key, "an index's is switched by PUT {index}/_settings"));
            };
            if std::mem::replace(&mut seen[known as usize], true) {
                return Err(twice(&key));
            }
            let value = match value {
                Value::Null => None,
                value => Some(known.checked(&value, &key)?),
            };
            change.settings.push((section, known, value));
        }
    }
    if change == SwitchChange::default() {
        return Ok(None);
    }
    // The cluster would refuse a request without any setting.
    if !theirs.values().any(holds_any) {
        theirs.insert(
            Section::Persistent.name().to_owned(),
            json!({NOTHING_OF_CLUSTER: null}),
        );
    }
    Ok(Some(SplitBody {
        ours: GatewaySettings::Cluster(change),
        theirs: Value::Object(theirs),
    }))
}

/// Divides the body of `PUT {index}/_settings`, as [`of_cluster`] does.
pub(super) fn of_index(body: &[u8]) -> Result<Option<SplitBody>, BadSwitch> {
    let Some(Value::Object(mut theirs)) = read(body) else {
        return Ok(None);
    };
    let mut found = Vec::new();
    // The servers accept the settings with or without this enclosing key.
    match theirs.get_mut("settings") {
        Some(Value::Object(settings)) => {
            take(settings, "", &mut found);
            if settings.is_empty() && !found.is_empty() {
                theirs.shift_remove("settings");
            }
        }
        _ => take(&mut theirs, "", &mut found),
    }
    let mut wanted = None;
    for (key, value) in found {
        if is_wildcard(&key, &value) {
            if matches(&key, INDEX_KEY) {
                wanted = wanted.or(Some(None));
            }
            continue;
        }
        if key != INDEX_KEY {
            return Err(unknown(&key, "a cluster's are switched by PUT _cluster/settings"));
        }
        let value = match value {
            Value::Null => None,
            value => Some(setting::checked_bool(&value, &key)?),
        };
        if wanted.replace(value).is_some() {
            return Err(twice(&key));
        }
    }
    let Some(wanted) = wanted else { return Ok(None) };
    if !theirs.values().any(holds_any) {
        let settings = match theirs.get_mut("settings") {
            Some(Value::Object(settings)) => settings,
            _ => &mut theirs,
        };
        settings.insert(NOTHING_OF_INDEX.to_owned(), Value::Null);
    }
    Ok(Some(SplitBody {
        ours: GatewaySettings::Index(wanted),
        theirs: Value::Object(theirs),
    }))
}

/// Reads a body that may contain a setting of the gateway. Most bodies do not, and are not even parsed.
fn read(body: &[u8]) -> Option<Value> {
    let hints: [&[u8]; 4] = [b"fasterbulk", b"direct_routing", b"*", b"\\"];
    let may = hints.iter().any(|hint| memmem::find(body, hint).is_some());
    may.then(|| strict::parse(body)).flatten()
}

/// Moves the gateway's settings from an object to `found`, each with its whole key. A pattern that is set to
/// null resets all settings that match it, including the gateway's: it is found, and also stays for the
/// cluster.
fn take(object: &mut Map<String, Value>, prefix: &str, found: &mut Vec<(String, Value)>) {
    object.retain(|key, value| {
        let key = match prefix {
            "" => key.clone(),
            _ => format!("{prefix}.{key}"),
        };
        if let Value::Object(inner) = value {
            let was_empty = inner.is_empty();
            take(inner, &key, found);
            return was_empty || !inner.is_empty();
        }
        if is_wildcard(&key, value) {
            found.push((key, Value::Null));
            return true;
        }
        match whole(&key) {
            Some(key) => {
                found.push((key, value.take()));
                false
            }
            None => true,
        }
    });
}

/// Returns the whole key of a setting of the gateway. The key of an index setting may come without its
/// prefix.
fn whole(key: &str) -> Option<String> {
    let is = |family: &str| {
        let rest = key.strip_prefix(family);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    match key {
        _ if is("apack.fasterbulk") || is("index.direct_routing") => Some(key.to_owned()),
        _ if is("direct_routing") => Some(format!("index.{key}")),
        _ => None,
    }
}

/// Returns whether the value contains a setting, and not only empty objects.
fn holds_any(value: &Value) -> bool {
    match value {
        Value::Object(object) => object.values().any(holds_any),
        _ => true,
    }
}

fn is_wildcard(key: &str, value: &Value) -> bool {
    value.is_null() && key.ends_with('*')
}

fn unknown(key: &str, hint: &str) -> BadSwitch {
    let known: Vec<_> = Setting::ALL.iter().map(|known| known.key()).collect();
    BadSwitch(format!(
        "unknown setting [{key}]; the cluster's are {}, an index's is {INDEX_KEY}; {hint}",
        known.join(", ")
    ))
}

fn twice(key: &str) -> BadSwitch {
    BadSwitch(format!("[{key}] is there twice"))
}

/// Patterns that match no setting of the cluster. Setting them to null changes nothing, but the cluster still
/// checks whether the client may change settings.
const NOTHING_OF_CLUSTER: &str = "apack.fasterbulk.*";
const NOTHING_OF_INDEX: &str = "index.direct_routing.*";

#[cfg(test)]
mod tests {
    use super::*;
    use Section::{Persistent, Transient};

    fn of(body: &Value) -> Option<(SwitchChange, Value)> {
        let parted = of_cluster(body.to_string().as_bytes()).unwrap()?;
        match parted.ours {
            GatewaySettings::Cluster(change) => Some((change, parted.theirs)),
            GatewaySettings::Index(_) => panic!("of the cluster"),
        }
    }

    #[test]
    fn dotted_nested_and_mixed_keys_are_taken_and_the_others_stay_as_they_are() {
        let on = (Persistent, Setting::Combine, Some("true".into()));
        for ours in [
            json!({"apack.fasterbulk.combine.enabled": "true"}),
            json!({"apack": {"fasterbulk": {"combine": {"enabled": true}}}}),
            json!({"apack.fasterbulk": {"combine.enabled": true}}),
        ] {
            let body = json!({ "persistent": ours });
            let (change, theirs) = of(&body).unwrap();
            assert_eq!(change.settings, std::slice::from_ref(&on), "{body}");
            assert_eq!(theirs, json!({"persistent": {"apack.fasterbulk.*": null}}));
        }
        let empty =
            json!({"persistent": {}, "transient": {"apack.fasterbulk.combine.enabled": true, "a": {}}});
        let (_, theirs) = of(&empty).unwrap();
        assert_eq!(
            theirs,
            json!({"persistent": {"apack.fasterbulk.*": null}, "transient": {"a": {}}})
        );
        let (change, theirs) = of(&json!({
            "transient": {
                "apack.fasterbulk.combine.interval": "50",
                "apack": {"other": 1, "fasterbulk": {"combine": {"flush_threshold_size": "2mb"}}},
                "cluster": {"routing": {}}, "index.direct_routing.global.enable": null,
            },
            "persistent": {"apack.fasterbulk.combine.enabled": false},
        }))
        .unwrap();
        assert_eq!(
            change.settings,
            [
                (Persistent, Setting::Combine, Some("false".into())),
                (Transient, Setting::Interval, Some("50".into())),
                (Transient, Setting::FlushThresholdSize, Some("2mb".into())),
                (Transient, Setting::DirectRouting, None),
            ]
        );
        assert_eq!(
            theirs,
            json!({"transient": {"apack": {"other": 1}, "cluster": {"routing": {}}}})
        );
    }

    #[test]
    fn a_pattern_that_is_reset_resets_ours_and_reaches_the_cluster() {
        let body = json!({"transient": {"apack.*": null, "x": 1}, "persistent": {"indices.*": null}});
        let (change, theirs) = of(&body).unwrap();
        let reset: Vec<_> = change
            .settings
            .iter()
            .map(|(section, setting, _)| (*section, *setting))
            .collect();
        assert_eq!(
            reset,
            [
                (Transient, Setting::Combine),
                (Transient, Setting::FlushThresholdSize),
                (Transient, Setting::Interval)
            ]
        );
        assert_eq!(theirs, body);
    }

    #[test]
    fn what_is_not_ours_or_not_to_be_read_is_left_alone() {
        for body in [
            r#"{"persistent":{"cluster.routing.allocation.enable":"all"}}"#,
            r#"{"persistent":{"a.*":null}}"#,
            r#"{"persistent":{"apack.fasterbulkx":1}}"#,
            r#"{"apack.fasterbulk.combine.enabled":true}"#,
            r#"{"transient":{"apack.fasterbulk.combine.enabled":true,"apack.fasterbulk.combine.enabled":true}}"#,
            r#"{"transient":{"apack.fasterbulk.combine.enabled":true}"#,
            r#"["apack.fasterbulk.combine.enabled"]"#,
            "",
        ] {
            assert_eq!(of_cluster(body.as_bytes()), Ok(None), "{body}");
        }
    }

    #[test]
    fn a_setting_that_is_ours_by_name_and_unknown_or_cannot_be_is_refused() {
        for body in [
            r#"{"transient":{"apack.fasterbulk.combine.enabled":"maybe"}}"#,
            r#"{"transient":{"apack.fasterbulk.combine.max":"1"}}"#,
            r#"{"transient":{"apack.fasterbulk":true}}"#,
            r#"{"transient":{"index.direct_routing.enable":true}}"#,
            r#"{"transient":{"apack.fasterbulk.combine.flush_threshold_size":"-1b"}}"#,
            r#"{"transient":{"apack.fasterbulk.combine.enabled":[true]}}"#,
            r#"{"transient":{"apack.fasterbulk.combine.enabled":true,"apack":{"fasterbulk":{"combine":{"enabled":true}}}}}"#,
        ] {
            assert!(of_cluster(body.as_bytes()).is_err(), "{body}");
        }
    }

    #[test]
    fn an_indexs_switch_is_taken_from_every_form_that_the_servers_read() {
        for (body, wanted, theirs) in [
            (json!({"index.direct_routing.enable": "true"}), Some(true), None),
            (
                json!({"index": {"direct_routing": {"enable": false}}}),
                Some(false),
                None,
            ),
            (json!({"direct_routing.enable": true}), Some(true), None),
            (
                json!({"settings": {"index.direct_routing.enable": null}}),
                None,
                None,
            ),
            (
                json!({"settings": {"index": {"direct_routing.enable": true, "refresh_interval": "1s"}}}),
                Some(true),
                Some(json!({"settings": {"index": {"refresh_interval": "1s"}}})),
            ),
            (
                json!({"index.direct_*": null}),
                None,
                Some(json!({"index.direct_*": null})),
            ),
        ] {
            let parted = of_index(body.to_string().as_bytes()).unwrap().unwrap();
            assert_eq!(parted.ours, GatewaySettings::Index(wanted), "{body}");
            let theirs = theirs.unwrap_or_else(|| json!({"index.direct_routing.*": null}));
            assert_eq!(parted.theirs, theirs, "{body}");
        }
        assert_eq!(of_index(br#"{"index.refresh_interval":"1s"}"#), Ok(None));
        assert!(of_index(br#"{"index.direct_routing.global.enable":true}"#).is_err());
        assert!(of_index(br#"{"index.direct_routing.enable":"on"}"#).is_err());
    }
}
