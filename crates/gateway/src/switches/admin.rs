//! Switching by the operator: `GET /switches` and `PUT /switches/{cluster}` of the admin port.

use std::fmt::Write as _;
use std::sync::Arc;

use config::{BulkReshuffle, Combine, Config, DirectRouting, FilterAction, show_bytes, show_time};
use serde_json::{Map, Value, json};

use super::setting::{BadSwitch, checked_bool};
use super::{
    ClusterSwitches, NotSwitched, Section, Setting, SwitchChange, Switches, in_force, indices, strict,
};
use crate::request_id::RequestId;

/// Why nothing was switched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error("there is no cluster {0}")]
    NoCluster(String),
    #[error(transparent)]
    NotSwitched(#[from] NotSwitched),
}

impl From<BadSwitch> for Refused {
    fn from(bad: BadSwitch) -> Self {
        NotSwitched::from(bad).into()
    }
}

/// Returns the switches of every cluster of a configuration, and what is in force at its filters.
pub(crate) fn list(config: &Config, switches: &Arc<Switches>) -> Value {
    let clusters = config.clusters.keys();
    let clusters: Map<_, _> = clusters
        .map(|cluster| (cluster.to_string(), of_cluster(config, &switches.of(cluster))))
        .collect();
    json!({"kept_in": switches.file().display().to_string(), "clusters": clusters})
}

/// Applies the switches in a body, for all clients of a cluster. This waits for the disk. Returns what
/// [`list`] then shows for the cluster.
///
/// # Errors
/// Nothing has changed after an error.
pub(crate) fn set(
    config: &Config,
    switches: &Arc<Switches>,
    cluster: &str,
    body: &[u8],
    request_id: &RequestId,
) -> Result<Value, Refused> {
    let known = config.clusters.get_key_value(cluster);
    let (cluster, _) = known.ok_or_else(|| Refused::NoCluster(cluster.to_owned()))?;
    let change = read(body)?;
    let of_one = switches.of(cluster);
    of_one.change(&change)?;
    tracing::info!(%request_id, cluster = &**cluster, by = "admin", change = %change.to_text(), "switched");
    Ok(of_cluster(config, &of_one))
}

/// What is in force at a cluster, in numbers.
pub(crate) struct Gauges {
    pub(crate) switches: usize,
    pub(crate) combining: usize,
    pub(crate) directing: usize,
}

/// Returns the gauges of each cluster of a configuration.
pub(crate) fn gauges(config: &Config, switches: &Arc<Switches>) -> Vec<(Arc<str>, Gauges)> {
    let clusters = config.clusters.keys().map(|cluster| {
        let of_one = switches.of(cluster);
        let now = of_one.now();
        let combining = filters(config, cluster)
            .filter(|(_, filter)| filter.queue.is_none() && now.combine(&filter.combine).is_some());
        let directing = filters(config, cluster).filter(|(_, filter)| {
            let directed = in_force(now.directs_others(), filter.direct_routing);
            directed != DirectRouting::Off
        });
        let gauges = Gauges {
            switches: now.count(),
            combining: combining.count(),
            directing: directing.count(),
        };
        (Arc::clone(cluster), gauges)
    });
    clusters.collect()
}

fn of_cluster(config: &Config, switches: &ClusterSwitches) -> Value {
    let now = switches.now();
    let mut switched = Map::new();
    for setting in Setting::ALL {
        let first = now.first(setting);
        let value = first.map(|(text, section)| json!({"value": text, "section": section.name()}));
        switched.insert(setting.name().to_owned(), value.unwrap_or_default());
    }
    let indices = now.indices.iter();
    let indices: Vec<_> = indices
        .map(|(index, on)| json!({"index": index, "enabled": on}))
        .collect();
    let filters = filters(config, &switches.cluster).map(|(flow, filter)| {
        let combine = match &filter.queue {
            Some(_) => None,
            None => Some(now.combine(&filter.combine).unwrap_or(Combine {
                enabled: false,
                ..filter.combine
            })),
        };
        json!({"flow": flow, "mode": if filter.queue.is_some() { "async" } else { "sync" },
            "combine": combine.map(|combine| json!({
                "enabled": combine.enabled,
                "flush_threshold_size": show_bytes(combine.flush_bytes),
                "interval": show_time(combine.interval),
            })),
            "direct_routing": in_force(now.directs_others(), filter.direct_routing),
        })
    });
    let filters: Vec<_> = filters.collect();
    json!({"switches": switched, "indices": indices, "filters": filters})
}

/// Returns the filters that split bulks for a cluster, with the names of their flows.
fn filters<'a>(config: &'a Config, cluster: &'a str) -> impl Iterator<Item = (&'a str, &'a BulkReshuffle)> {
    config.flows.iter().flat_map(move |(flow, settings)| {
        settings
            .filters
            .iter()
            .filter_map(move |filter| match &filter.action {
                FilterAction::BulkReshuffle(bulk) if &*bulk.cluster == cluster => Some((&**flow, bulk)),
                _ => None,
            })
    })
}

/// Reads a change: names and values, with null for the configuration's value. The operator's value replaces
/// both sections, so that a transient value does not hide it.
fn read(body: &[u8]) -> Result<SwitchChange, BadSwitch> {
    let bad = |why: &str| BadSwitch(why.to_owned());
    let Some(Value::Object(wanted)) = strict::parse(body) else {
        return Err(bad("a JSON object of switches and values is expected"));
    };
    if wanted.is_empty() {
        return Err(bad("there is nothing to switch"));
    }
    let mut change = SwitchChange::default();
    for (name, value) in wanted {
        if name == INDICES {
            let Value::Array(items) = value else {
                return Err(bad(
                    "direct_routing.indices is a list of {\"index\", \"enabled\"}",
                ));
            };
            for item in &items {
                read_index(item, &mut change)?;
            }
            continue;
        }
        let setting = Setting::of_name(&name).ok_or_else(|| unknown(&name))?;
        let value = match value {
            Value::Null => None,
            value => Some(setting.checked(&value, &name)?),
        };
        change.settings.push((Section::Transient, setting, None));
        change.settings.push((Section::Persistent, setting, value));
    }
    Ok(change)
}

fn read_index(item: &Value, change: &mut SwitchChange) -> Result<(), BadSwitch> {
    let object = item.as_object();
    let index = object.and_then(|object| object.get("index")?.as_str());
    let enabled = object.and_then(|object| object.get("enabled"));
    let (Some(index), Some(enabled), Some(2)) = (index, enabled, object.map(Map::len)) else {
        return Err(BadSwitch(format!(
            "{INDICES}: {item} is no {{\"index\": NAMES, \"enabled\": true, false or null}}"
        )));
    };
    let on = match enabled {
        Value::Null => None,
        value => Some(checked_bool(value, INDICES)?),
    };
    let patterns = indices::patterns(index)?.into_iter();
    change.indices.extend(patterns.map(|pattern| (pattern, on)));
    Ok(())
}

fn unknown(name: &str) -> BadSwitch {
    let mut known = String::new();
    for setting in Setting::ALL {
        // Writing to a String cannot fail.
        let _ = write!(known, "{}, ", setting.name());
    }
    BadSwitch(format!("there is no switch [{name}]; there are {known}{INDICES}"))
}

const INDICES: &str = "direct_routing.indices";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_operator_says_holds_over_both_sections() {
        let change = read(br#"{"combine.enabled": true, "combine.interval": null}"#).unwrap();
        assert_eq!(
            change.settings,
            [
                (Section::Transient, Setting::Combine, None),
                (Section::Persistent, Setting::Combine, Some("true".into())),
                (Section::Transient, Setting::Interval, None),
                (Section::Persistent, Setting::Interval, None),
            ]
        );
        let change = read(
            br#"{"direct_routing.indices": [{"index": "a,b*", "enabled": true}, {"index": "c", "enabled": null}]}"#,
        );
        assert_eq!(
            change.unwrap().indices,
            [
                ("a".into(), Some(true)),
                ("b*".into(), Some(true)),
                ("c".into(), None)
            ]
        );
    }

    #[test]
    fn anything_else_is_refused_with_what_there_is() {
        for (body, reason) in [
            ("", "JSON object"),
            ("[]", "JSON object"),
            ("{}", "nothing to switch"),
            (r#"{"combine": true}"#, "there are combine.enabled"),
            (
                r#"{"combine.enabled": true, "combine.enabled": true}"#,
                "JSON object",
            ),
            (r#"{"combine.enabled": "maybe"}"#, "maybe"),
            (r#"{"direct_routing.indices": {"a": true}}"#, "list"),
            (r#"{"direct_routing.indices": [{"index": "a"}]}"#, "enabled"),
            (
                r#"{"direct_routing.indices": [{"index": "a", "enabled": true, "x": 1}]}"#,
                "enabled",
            ),
            (
                r#"{"direct_routing.indices": [{"index": "-a", "enabled": true}]}"#,
                "[-a]",
            ),
        ] {
            let error = read(body.as_bytes()).unwrap_err().0;
            assert!(error.contains(reason), "{body}: {error}");
        }
    }
}
