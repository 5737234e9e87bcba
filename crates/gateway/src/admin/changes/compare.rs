//! Two states of the gateway, and what has changed from one to the other, in words and in fields.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::WatchState;
use serde_json::{Value, json};

use super::change::{Change, Level};
use super::state::{ClusterState, Configuration, Delivery, GroupState, QueueState, State};
use crate::applied::{Applied, AppliedState};
use crate::queue::Phase;
use crate::switches::Switched;

/// Returns what has changed from one state to the next.
pub(super) fn changes(before: &State, now: &State) -> Vec<Change> {
    let mut found = Vec::new();
    found.extend(of_configuration(
        before.configuration.as_ref(),
        now.configuration.as_ref(),
    ));
    found.extend(of_applied(before.applied.as_ref(), now.applied.as_ref()));
    each(&before.switches, &now.switches, |name, before, now| {
        found.extend(of_switches(name, before, now));
    });
    each(&before.clusters, &now.clusters, |name, before, now| {
        of_cluster(name, before, now, &mut found);
    });
    each(&before.queues, &now.queues, |name, before, now| {
        found.extend(of_queue(name, before, now));
    });
    each(&before.groups, &now.groups, |(queue, group), before, now| {
        of_group((queue, group), before, now, &mut found);
    });
    if before.readiness.about != now.readiness.about {
        found.push(readiness(now));
    }
    found
}

/// Formats a number with its noun.
fn counted(count: impl std::fmt::Display, one: &str, many: &str) -> String {
    let count = count.to_string();
    let noun = if count == "1" { one } else { many };
    format!("{count} {noun}")
}

/// Calls `look` for everything that is on one side or on both.
fn each<'a, K: Ord, V>(
    before: &'a BTreeMap<K, V>,
    now: &'a BTreeMap<K, V>,
    mut look: impl FnMut(&'a K, Option<&'a V>, Option<&'a V>),
) {
    for (name, was) in before {
        look(name, Some(was), now.get(name));
    }
    for (name, is) in now.iter().filter(|(name, _)| !before.contains_key(name)) {
        look(name, None, Some(is));
    }
}

fn readiness(now: &State) -> Change {
    let reasons = &now.readiness.reasons;
    let ready = reasons.is_empty();
    let (level, text) = match ready {
        true => (Level::Good, "the gateway is ready".to_owned()),
        false => (
            Level::Error,
            format!("the gateway is not ready: {}", reasons.join("; ")),
        ),
    };
    Change::new(
        "readiness",
        level,
        text,
        json!({"ready": ready, "reasons": reasons}),
    )
}

fn of_configuration(before: Option<&Configuration>, now: Option<&Configuration>) -> Option<Change> {
    let (before, now) = (before?, now?);
    let (was, is) = (before.reloads, now.reloads);
    if (was.succeeded, was.failed) == (is.succeeded, is.failed) {
        return None;
    }
    let (level, text) = match (is.in_force, is.waiting) {
        (false, _) => (
            Level::Error,
            "the configuration file cannot be used; the configuration of before stays in force".to_owned(),
        ),
        (true, 0) => (Level::Info, "the configuration file was put in force".to_owned()),
        (true, keys) => (
            Level::Warning,
            format!(
                "the configuration file was put in force, but a restart is needed for {}",
                counted(keys, "key", "keys")
            ),
        ),
    };
    let details = json!({"in_force": is.in_force, "waiting": is.waiting, "version": now.version});
    Some(Change::new("configuration", level, text, details))
}

fn of_applied(before: Option<&Applied>, now: Option<&Applied>) -> Option<Change> {
    let now = now?;
    if before.is_some_and(|before| (before.at_ms, before.state) == (now.at_ms, now.state)) {
        return None;
    }
    let (actor, within) = (&now.actor, now.within_s);
    let why = now.why.as_deref().unwrap_or("no reason is known");
    let (level, text) = match now.state {
        AppliedState::Unconfirmed => (
            Level::Warning,
            format!(
                "{actor} applied a configuration, which is taken back unless it is confirmed within {within} s"
            ),
        ),
        AppliedState::Confirmed => (
            Level::Good,
            format!("the configuration that {actor} applied is confirmed"),
        ),
        AppliedState::Reverted => (
            Level::Warning,
            format!("the configuration that {actor} applied was taken back: {why}"),
        ),
        AppliedState::Overtaken => (
            Level::Warning,
            format!("the configuration that {actor} applied was replaced in the file: {why}"),
        ),
    };
    let details = json!({
        "state": now.state, "actor": now.actor, "changes": now.changes, "why": now.why,
        "applied_at_ms": now.at_ms,
    });
    Some(Change::new("applied", level, text, details))
}

fn of_switches(
    cluster: &Arc<str>,
    before: Option<&Arc<Switched>>,
    now: Option<&Arc<Switched>>,
) -> Option<Change> {
    // A cluster that comes or goes takes its switches along.
    let (before, now) = (before?, now?);
    if Arc::ptr_eq(before, now) || before == now {
        return None;
    }
    let switched = now.to_text();
    let text = match switched.is_empty() {
        true => format!("nothing is switched for the cluster {cluster} any more"),
        false => format!("the switches of the cluster {cluster} are now {switched}"),
    };
    let details = json!({"cluster": cluster, "switches": switched});
    Some(Change::new("switches", Level::Info, text, details))
}

// === clusters ===

fn of_cluster(
    name: &Arc<str>,
    before: Option<&ClusterState>,
    now: Option<&ClusterState>,
    found: &mut Vec<Change>,
) {
    let (before, now) = match (before, now) {
        (Some(before), Some(now)) => (before, now),
        (_, now) => {
            let what = if now.is_some() { "added" } else { "removed" };
            let text = format!("the cluster {name} was {what} by the configuration");
            let details = json!({"cluster": name, "state": now.map(|now| now.watch), "what": what});
            return found.push(Change::new("cluster", Level::Info, text, details));
        }
    };
    if before.uuid.is_some() && now.uuid.is_some() && before.uuid != now.uuid {
        let text = format!("another cluster answers at the addresses of {name}");
        let details = json!({"cluster": name, "state": now.watch, "what": "rebuilt", "uuid": now.uuid});
        found.push(Change::new("cluster", Level::Warning, text, details));
    }
    if before.watch != now.watch {
        found.push(watch(name, now));
    }
    nodes(name, before, now, found);
    let of = |one: &ClusterState| (one.primaries, one.indices_split, one.primaries_missing);
    if of(before) != of(now) || !before.nodes.keys().eq(now.nodes.keys()) {
        found.push(topology(name, now));
    }
}

fn watch(name: &str, now: &ClusterState) -> Change {
    let told = now
        .why
        .as_deref()
        .map(|why| format!(": {why}"))
        .unwrap_or_default();
    let (level, text) = match now.watch {
        WatchState::Watching => (
            Level::Good,
            format!("the topology of the cluster {name} is known"),
        ),
        WatchState::Off => (
            Level::Info,
            format!("the topology of the cluster {name} is not watched"),
        ),
        WatchState::Starting => (
            Level::Warning,
            format!("the cluster {name} has not been read yet{told}"),
        ),
        WatchState::Unauthorized => (
            Level::Error,
            format!("the cluster {name} refuses the gateway's account{told}"),
        ),
        WatchState::Unreachable => (Level::Error, format!("the cluster {name} does not answer{told}")),
    };
    let details = json!({"cluster": name, "state": now.watch, "what": "state", "why": now.why});
    Change::new("cluster", level, text, details)
}

fn nodes(cluster: &Arc<str>, before: &ClusterState, now: &ClusterState, found: &mut Vec<Change>) {
    each(&before.nodes, &now.nodes, |(node, address), before, now| {
        let (level, what, verb) = match (before, now) {
            (Some(true), Some(false)) => (Level::Error, "down", "is down"),
            (Some(false), Some(true)) => (Level::Good, "up", "is up again"),
            (None, Some(_)) => (Level::Info, "joined", "has joined"),
            (Some(_), None) => (Level::Warning, "left", "has left"),
            _ => return,
        };
        let text = format!("the node {node} of the cluster {cluster} {verb}");
        let up = now.copied().unwrap_or(false);
        let details = json!({"cluster": cluster, "node": node, "address": address, "what": what, "up": up});
        found.push(Change::new("node", level, text, details));
    });
}

fn topology(name: &Arc<str>, now: &ClusterState) -> Change {
    let ClusterState {
        state_version,
        indices_split,
        primaries_missing,
        ..
    } = now;
    let version = state_version.map_or_else(|| "?".to_owned(), |version| version.to_string());
    let mut text = format!(
        "the topology of the cluster {name} is now that of its state {version}: {}, {} whose bulks are \
         split",
        counted(now.nodes.len(), "node", "nodes"),
        counted(indices_split, "index", "indices")
    );
    let level = match primaries_missing {
        0 => Level::Info,
        missing => {
            text += &format!(", {} without a node", counted(missing, "primary", "primaries"));
            Level::Warning
        }
    };
    let details = json!({
        "cluster": name, "generation": now.generation, "state_version": state_version,
        "nodes": now.nodes.len(), "indices_split": indices_split, "primaries_missing": primaries_missing,
    });
    Change::new("topology", level, text, details)
}

// === queues ===

fn of_queue(name: &Arc<str>, before: Option<&QueueState>, now: Option<&QueueState>) -> Option<Change> {
    let word = |state: &QueueState| state.refuses.as_ref().map(|(word, _)| *word);
    let (level, what, text) = match (before, now) {
        (None, Some(_)) => (Level::Info, "added", format!("there is a queue {name} now")),
        (Some(_), None) => (
            Level::Info,
            "removed",
            format!("the configuration has no queue {name} any more"),
        ),
        (Some(before), Some(now)) if word(before) != word(now) => match &now.refuses {
            None => (Level::Good, "accepts", format!("the queue {name} accepts again")),
            Some((_, why)) => (
                Level::Error,
                "refuses",
                format!("the queue {name} accepts nothing: {why}"),
            ),
        },
        _ => return None,
    };
    let refuses = now.and_then(|now| now.refuses.as_ref());
    let details = json!({
        "queue": name, "what": what, "accepts": now.is_some() && refuses.is_none(),
        "reason": refuses.map(|(word, _)| word), "why": refuses.map(|(_, why)| why),
    });
    Some(Change::new("queue", level, text, details))
}

fn of_group(
    of: (&Arc<str>, &String),
    before: Option<&GroupState>,
    now: Option<&GroupState>,
    found: &mut Vec<Change>,
) {
    let (queue, group) = of;
    found.extend(delivery(of, before, now));
    // What a group that has gone still had has not become well by that.
    let Some(is) = now else { return };
    let none = GroupState::default();
    let was = before.unwrap_or(&none);
    if was.dead != is.dead {
        let (documents, more) = (is.dead, is.dead > was.dead);
        let level = if more { Level::Warning } else { Level::Good };
        let text = format!(
            "the queue {queue} has {} of {group}, {} {} than before",
            counted(documents, "dead letter", "dead letters"),
            was.dead.abs_diff(is.dead),
            if more { "more" } else { "fewer" }
        );
        let details = json!({"queue": queue, "group": group, "documents": documents, "before": was.dead});
        found.push(Change::new("dead_letters", level, text, details));
    }
    if keys_of(was) != keys_of(is) || was.parked != is.parked {
        found.push(parked(of, was, is));
    }
    if reasons_of(was) != reasons_of(is) {
        found.push(waits(of, is));
    }
}

fn delivery(
    (queue, group): (&Arc<str>, &String),
    before: Option<&GroupState>,
    now: Option<&GroupState>,
) -> Option<Change> {
    let was = before.and_then(|before| before.delivery.as_ref());
    let is = now.and_then(|now| now.delivery.as_ref());
    if was == is && before.is_some() == now.is_some() {
        return None;
    }
    let state = is.map_or("none", |is| is.phase.as_str());
    let (level, text) = match (is, now) {
        (None, None) => (
            Level::Info,
            format!("the queue {queue} has no consumer group {group} any more"),
        ),
        (None, Some(_)) => (
            Level::Warning,
            format!("no pipeline delivers from the queue {queue} for {group} any more"),
        ),
        (Some(Delivery { pipeline, phase, .. }), _) => (
            if *phase == Phase::Running {
                Level::Good
            } else {
                Level::Warning
            },
            match phase {
                Phase::Running => {
                    format!("the pipeline {pipeline} delivers from the queue {queue} for {group}")
                }
                Phase::Stopping => format!(
                    "the pipeline {pipeline} finishes its batches of the queue {queue} for {group} before it stops or begins anew"
                ),
                Phase::Stopped => {
                    format!("the pipeline {pipeline} delivers nothing from the queue {queue} for {group}")
                }
            },
        ),
    };
    let details = json!({
        "queue": queue, "group": group, "state": state,
        "pipeline": is.map(|is| &is.pipeline), "cluster": is.map(|is| &is.cluster),
    });
    Some(Change::new("group", level, text, details))
}

fn keys_of(state: &GroupState) -> (usize, Vec<&Value>) {
    (
        state.key_count,
        state.keys.iter().map(|key| &key["key"]).collect(),
    )
}

fn parked((queue, group): (&Arc<str>, &String), was: &GroupState, is: &GroupState) -> Change {
    let (documents, keys) = (is.parked, is.key_count);
    let (level, text) = match is.keys.first() {
        None if documents == 0 => (
            Level::Good,
            format!("no document of the queue {queue} for {group} is parked any more"),
        ),
        first => {
            let told = first.map(|key| {
                let of = |field: &str| key[field].as_str().unwrap_or_default().to_owned();
                format!(": {} ({})", of("key"), of("why"))
            });
            let told = told.unwrap_or_default();
            (
                Level::Warning,
                format!(
                    "the queue {queue} has {} parked for {group}, for {}{told}",
                    counted(documents, "document", "documents"),
                    counted(keys, "key", "keys")
                ),
            )
        }
    };
    let listed = is.keys.iter().map(|key| {
        json!({
            "key": key["key"], "why": key["why"], "documents": key["documents"], "since_ms": key["since_ms"],
        })
    });
    let details = json!({
        "queue": queue, "group": group, "documents": documents, "before": was.parked,
        "key_count": keys, "keys": listed.collect::<Vec<_>>(),
    });
    Change::new("parked", level, text, details)
}

/// Returns what makes one list of reasons another one. How long they last does not, nor which node answered a
/// try in which words, nor how much a slow node is sent: both may be otherwise a second later.
fn reasons_of(state: &GroupState) -> Vec<[&Value; 3]> {
    let waits = state.waits.iter();
    let mut reasons: Vec<_> = waits
        .map(|wait| {
            let varies = wait["reason"] == "retrying" || wait["reason"] == "slow_node";
            let why = if varies { &Value::Null } else { &wait["why"] };
            [&wait["reason"], &wait["node"], why]
        })
        .collect();
    reasons.sort_by_key(|of| of.map(|value| value.as_str().unwrap_or_default()));
    reasons.dedup();
    reasons
}

fn waits((queue, group): (&Arc<str>, &String), is: &GroupState) -> Change {
    let listed = is.waits.iter().map(|wait| {
        json!({
            "reason": wait["reason"], "why": wait["why"], "node": wait["node"], "lanes": wait["lanes"],
        })
    });
    let listed: Vec<Value> = listed.collect();
    let paused = is.waits.iter().any(|wait| wait["reason"] == "paused");
    let (level, text) = match is.waits.first() {
        None => (
            Level::Good,
            format!("nothing holds back documents of the queue {queue} for {group} any more"),
        ),
        Some(first) => {
            let of = |field: &str| first[field].as_str().unwrap_or_default();
            let level = if paused { Level::Error } else { Level::Warning };
            let text = format!(
                "documents of the queue {queue} for {group} wait ({}): {}",
                of("reason"),
                of("why")
            );
            (level, text)
        }
    };
    let details = json!({"queue": queue, "group": group, "paused": paused, "waits": listed});
    Change::new("waits", level, text, details)
}

#[cfg(test)]
#[path = "compare/tests.rs"]
mod tests;
