//! The questions to a gateway, to its admin API only: its counters every second, its clusters every five
//! seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster::Address;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::pace::{Pace, spread};
use super::{Polls, QUESTION_WITHIN};
use crate::accounts;
use crate::alerts::{Finding, Rule};
use crate::board::{GATEWAY_SERIES, Key, Severity, Watched};
use crate::clock::{next_second, now_ms};
use crate::secrets::row_id;
use crate::store::{AuditedChange, BY_CONSOLE, ClusterEntry, GatewayEntry, Store, StoreError};
use crate::target::Target;

/// A gateway's counters at a point in time.
#[derive(Debug)]
struct Mark {
    at: Instant,
    at_ms: i64,
    docs: u64,
    requests: u64,
    errors: u64,
    delivered: BTreeMap<String, u64>,
    /// Those of [`GATEWAY_SERIES`].
    shown: [u64; GATEWAY_SERIES.len()],
}

/// Polls a gateway until the future is dropped.
pub(super) async fn poll(polls: &Polls, entry: &GatewayEntry) {
    let key = Key::Gateway(entry.id.clone());
    let target = match Target::of_gateway(&polls.store, entry) {
        Ok(target) => Arc::new(target),
        Err(error) => return polls.cannot(&key, &error),
    };
    // A little before the overview goes out to pages, so that what happens at a gateway is soon on a page.
    let beat = next_second() + spread(&entry.id, BEFORE_OVERVIEW);
    let mut counters = Pace::new(Duration::from_secs(1)).on(beat);
    let mut clusters = Pace::new(Duration::from_secs(5));
    let mut last = None;
    loop {
        let gaze = polls.attention.gaze(&entry.id);
        counters.attend(gaze);
        clusters.attend(gaze);
        let began = Instant::now();
        if !counters.is_due(began) {
            polls.attention.rest(counters.due()).await;
            continue;
        }
        if !counters.is_failing() && clusters.is_due(began) {
            let told = polls
                .outbound
                .poll(&target, "/elasticsearch", QUESTION_WITHIN)
                .await;
            match &told {
                Ok(told) => {
                    clusters.answered(began);
                    bring_along(polls, entry, told);
                    polls
                        .board
                        .change(&key, |one| one.traffic.take_clusters(now_ms(), told));
                    polls.noted(&key, "clusters", notes_of(told));
                }
                Err(error) => {
                    clusters.failed();
                    polls.noted(&key, "clusters", vec![(Severity::Warn, error.to_string())]);
                }
            }
        }
        let began = Instant::now();
        let told = polls.outbound.poll(&target, "/stats", QUESTION_WITHIN).await;
        polls.heard(&key, told.as_ref().map(|_| ()));
        match told {
            Ok(told) => {
                counters.answered(began);
                last = Some(take(polls, &key, entry, &told, last.take()));
            }
            Err(_) => {
                counters.failed();
                last = None;
                polls.board.change(&key, |one| one.traffic.interrupt());
            }
        }
    }
}

/// The part of each second in which gateways are asked; the rest of the time until the overview goes out
/// ([`crate::OVERVIEW_AT`]) is for their answers.
const BEFORE_OVERVIEW: Duration = Duration::from_millis(200);

/// Puts a gateway's counters on the board.
fn take(polls: &Polls, key: &Key, entry: &GatewayEntry, told: &Value, last: Option<Mark>) -> Mark {
    let counters = &told["gateway"];
    let count = |name: &str| counters[name].as_u64().unwrap_or(0);
    let mut delivered = delivered(told);
    let links = polls
        .store
        .gateway(&entry.id)
        .ok()
        .flatten()
        .map(|entry| entry.clusters);
    if let Some([first, others @ ..]) = links.as_deref()
        && others.iter().all(|link| link.name == first.name)
    {
        // Documents that are split at once are counted for the gateway as a whole. They can be assigned to a
        // cluster only if the gateway has just one.
        *delivered.entry(first.name.clone()).or_default() += count("docs");
    }
    let mark = Mark {
        at: Instant::now(),
        at_ms: now_ms(),
        docs: count("docs") + count("docs_queued"),
        requests: count("requests"),
        errors: count("responses_5xx") + count("refused"),
        delivered,
        shown: GATEWAY_SERIES.map(|(_, counter)| count(counter)),
    };
    let seconds = last
        .as_ref()
        .map(|last| mark.at.duration_since(last.at).as_secs_f64());
    let rate = |now: u64, before: Option<u64>| Some(now.checked_sub(before?)? as f64 / seconds?);
    let (queues, notes) = queues(told);
    polls.noted(key, "queues", notes);
    for (rule, found) in findings(&told["queues"]) {
        polls.found(key, rule, found);
    }
    let since_ms = last.as_ref().map(|last| last.at_ms);
    polls.board.change(key, |one| {
        if let Some(since_ms) = since_ms {
            keep_lag(one, told, since_ms, mark.at_ms);
        }
        one.facts.version = told["version"].as_str().map(str::to_owned);
        one.facts.right = told["right"].as_str().map(str::to_owned);
        one.facts.flavour = Some("tidegate".to_owned());
        one.facts.docs_per_s = rate(mark.docs, last.as_ref().map(|last| last.docs));
        one.facts.requests_per_s = rate(mark.requests, last.as_ref().map(|last| last.requests));
        one.facts.errors_per_s = rate(mark.errors, last.as_ref().map(|last| last.errors));
        one.facts.queues = queues;
        one.traffic.take(mark.at, mark.at_ms, told);
        let Some(last) = &last else { return };
        if let Some(rate) = one.facts.docs_per_s {
            let series = one.series.entry("docs_per_s").or_default();
            series.put(last.at_ms, mark.at_ms, rate);
        }
        let shown = mark.shown.iter().zip(last.shown);
        for ((name, _), (now, before)) in GATEWAY_SERIES.iter().zip(shown) {
            if let Some(rate) = rate(*now, Some(before)) {
                let series = one.series.entry(name).or_default();
                series.put(last.at_ms, mark.at_ms, rate);
            }
        }
        let rates = mark
            .delivered
            .iter()
            .map(|(name, now)| (name, rate(*now, last.delivered.get(name).copied())));
        keep_shares(one, rates, last.at_ms, mark.at_ms);
    });
    mark
}

/// Records the documents a second that a gateway delivers to each of its clusters, and forgets the clusters
/// that it does not have any more.
fn keep_shares<'a>(
    one: &mut Watched,
    rates: impl Iterator<Item = (&'a String, Option<f64>)>,
    since_ms: i64,
    at_ms: i64,
) {
    let mut gone: BTreeSet<String> = one.delivered.keys().cloned().collect();
    for (name, rate) in rates {
        gone.remove(name);
        if one.delivered.len() >= CLUSTERS_MAX && !one.delivered.contains_key(name) {
            continue;
        }
        if let Some(rate) = rate {
            let series = one.delivered.entry(name.clone()).or_default();
            series.put(since_ms, at_ms, rate);
        }
    }
    one.delivered.retain(|name, _| !gone.contains(name));
}

/// Records how far each consumer group is behind, in seconds and in documents.
fn keep_lag(one: &mut Watched, told: &Value, since_ms: i64, at_ms: i64) {
    let mut gone: BTreeSet<(String, String)> = one.groups.keys().cloned().collect();
    for (queue, values) in told["queues"].as_object().into_iter().flatten() {
        for (group, values) in values["groups"].as_object().into_iter().flatten() {
            let name = (queue.clone(), group.clone());
            gone.remove(&name);
            if one.groups.len() >= GROUPS_MAX && !one.groups.contains_key(&name) {
                continue;
            }
            let kept = one.groups.entry(name).or_default();
            // A group without pending documents has no lag; the lag of a group that no pipeline delivers for
            // is unknown.
            let idle = (values["pending"] == 0).then_some(0.0);
            if let Some(lag) = values["lag_s"].as_f64().or(idle) {
                kept.lag_s.put(since_ms, at_ms, lag);
            }
            if let Some(pending) = values["pending"].as_f64() {
                kept.pending.put(since_ms, at_ms, pending);
            }
        }
    }
    one.groups.retain(|name, _| !gone.contains(name));
}

/// Returns the number of documents that queues have delivered, by cluster.
fn delivered(told: &Value) -> BTreeMap<String, u64> {
    let mut delivered = BTreeMap::new();
    for group in groups(told) {
        if let Some(name) = group["cluster"].as_str() {
            let all: &mut u64 = delivered.entry(name.to_owned()).or_default();
            *all = all.saturating_add(group["indexed"].as_u64().unwrap_or(0));
        }
    }
    delivered
}

fn groups(told: &Value) -> impl Iterator<Item = &Value> {
    let queues = told["queues"].as_object().into_iter().flatten();
    queues.flat_map(|(_, queue)| {
        queue["groups"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(_, group)| group)
    })
}

/// Returns the sums over all queues, and everything about them that is not as it should be.
fn queues(told: &Value) -> (Option<Value>, Vec<(Severity, String)>) {
    let Some(queues) = told["queues"].as_object().filter(|queues| !queues.is_empty()) else {
        return (None, Vec::new());
    };
    let faults = accounts::faults(&told["queues"]);
    let faults = faults.into_iter();
    let mut notes: Vec<_> = faults.map(|fault| (Severity::Bad, fault.words)).collect();
    let mut dead: u64 = 0;
    for (name, queue) in queues {
        dead = dead.saturating_add(queue["dead_letters"].as_u64().unwrap_or(0));
        if let Some(why) = queue["poisoned"].as_str() {
            notes.push((Severity::Bad, format!("queue {name} takes nothing more: {why}")));
        }
    }
    if dead > 0 {
        notes.push((Severity::Warn, format!("{dead} dead letters")));
    }
    let sum = |name: &str| {
        let counts = groups(told).filter_map(|group| group[name].as_u64());
        counts.fold(0, u64::saturating_add)
    };
    let told = json!({"pending": sum("pending"), "dead": dead, "parked": sum("parked")});
    (Some(told), notes)
}

/// Returns what meets a rule about queues. A gateway without queues has none of it.
fn findings(queues: &Value) -> [(Rule, Vec<Finding>); 4] {
    let (mut refuses, mut behind, mut dead) = (Vec::new(), Vec::new(), Vec::new());
    for (name, queue) in queues.as_object().into_iter().flatten() {
        let part = |words: String| Finding {
            part: name.clone(),
            words,
        };
        let why = ["poisoned", "refuses"]
            .iter()
            .find_map(|why| queue[*why].as_str());
        refuses.extend(why.map(|why| part(format!("queue {name} accepts nothing: {why}"))));
        let letters = queue["dead_letters"].as_u64().filter(|letters| *letters > 0);
        dead.extend(letters.map(|letters| part(format!("queue {name} has {letters} dead letters"))));
        for (group, told) in queue["groups"].as_object().into_iter().flatten() {
            if let Some(lag) = told["lag_s"].as_f64().filter(|lag| *lag >= BEHIND_S) {
                let minutes = lag / 60.0;
                behind.push(Finding {
                    part: format!("{name}/{group}"),
                    words: format!("queue {name}, group {group}: {minutes:.0} minutes behind"),
                });
            }
        }
    }
    [
        (Rule::QueueRefuses, refuses),
        (Rule::AccountsWrong, accounts::faults(queues)),
        (Rule::GroupBehind, behind),
        (Rule::DeadLetters, dead),
    ]
}

fn notes_of(told: &Value) -> Vec<(Severity, String)> {
    let clusters = told.as_object().into_iter().flatten();
    let away = clusters.filter(|(_, cluster)| cluster["state"] != "watching");
    away.map(|(name, cluster)| {
        let state = cluster["state"].as_str().unwrap_or("unknown");
        (Severity::Warn, format!("its cluster {name}: {state}"))
    })
    .collect()
}

fn bring_along(polls: &Polls, entry: &GatewayEntry, told: &Value) {
    match adopt(&polls.store, &entry.id, told) {
        Ok(true) => polls.changed.notify_one(),
        Ok(false) => {}
        Err(error) => tracing::warn!(gateway = entry.name, %error, "its clusters cannot be registered"),
    }
}

/// Registers the clusters that a gateway reports, each of them once: clusters that are registered with an
/// address of it are linked, all of them, and one that somebody removes later does not come back by itself.
/// Returns whether anything changed. A few are registered at a time, and the others by the next answers, up
/// to a bound.
pub(crate) fn adopt(store: &Store, gateway: &str, told: &Value) -> Result<bool, StoreError> {
    let Some(entry) = store.gateway(gateway)? else {
        return Ok(false);
    };
    // Each is a write, and reads of people wait for these.
    let mut made = 0;
    let mut registered = store.clusters()?;
    let reported = told.as_object().into_iter().flatten();
    for (name, cluster) in reported.take(REPORTED_MAX) {
        if made >= LINKED_AT_ONCE {
            break;
        }
        let nodes = cluster["nodes"].as_array().into_iter().flatten();
        let addresses: Vec<&str> = nodes.filter_map(|node| node["address"].as_str()).collect();
        let places: BTreeSet<Address> = addresses.iter().copied().filter_map(place).collect();
        if places.is_empty() {
            // The gateway has not seen the cluster yet; the next poll asks again.
            continue;
        }
        let is_here = |endpoint: &String| place(endpoint).is_some_and(|place| places.contains(&place));
        let alike = registered
            .iter()
            .filter(|known| known.endpoints.iter().any(is_here));
        let mut ids: Vec<String> = alike.map(|known| known.id.clone()).collect();
        let links = || entry.clusters.iter().filter(|link| link.name == *name);
        if ids.is_empty() && links().next().is_none() {
            if entry.clusters.len() + made >= ADOPTED_MAX {
                continue;
            }
            let endpoints = addresses.into_iter().filter(|address| place(address).is_some());
            let endpoints = endpoints.take(ENDPOINTS_MAX).map(str::to_owned).collect();
            ids.push(register(store, &entry, name, endpoints, &registered)?);
            registered = store.clusters()?;
        }
        for id in ids {
            let is_linked = links().any(|link| link.cluster_id.as_ref() == Some(&id));
            if !is_linked && entry.clusters.len() + made < LINKS_MAX {
                store.link(gateway, name, &id)?;
                made += 1;
            }
        }
    }
    Ok(made > 0)
}

/// Returns the address that a text stands for; people write the same one in several ways.
fn place(endpoint: &str) -> Option<Address> {
    let mut place = Address::from_endpoint(endpoint).ok()?;
    place.host.make_ascii_lowercase();
    Some(place)
}

fn register(
    store: &Store,
    gateway: &GatewayEntry,
    name: &str,
    endpoints: Vec<String>,
    registered: &[ClusterEntry],
) -> Result<String, StoreError> {
    let free = |name: &String| !registered.iter().any(|known| known.name == *name);
    let numbered = (2..).map(|number| format!("{name} ({number})"));
    let candidates = [name.to_owned(), format!("{name} ({})", gateway.name)];
    let name = candidates
        .into_iter()
        .chain(numbered)
        .find(free)
        .unwrap_or_default();
    let entry = ClusterEntry {
        id: row_id(),
        name,
        endpoints,
        verify: true,
        from_gateway: Some(gateway.id.clone()),
        ..ClusterEntry::default()
    };
    store.keep_cluster(&entry, None)?;
    store.note(&AuditedChange {
        user: BY_CONSOLE,
        what: "register cluster",
        target: &entry.name,
        after: Some(&json!(entry)),
        reason: Some("a registered gateway tells of it"),
        ..AuditedChange::default()
    })?;
    Ok(entry.id)
}

/// How far behind a consumer group is alerted about.
const BEHIND_S: f64 = 300.0;
/// The number of a cluster's addresses that are kept.
const ENDPOINTS_MAX: usize = 5;
/// The number of a gateway's clusters whose share is kept.
const CLUSTERS_MAX: usize = 100;
/// The number of links of a gateway up to which it brings clusters along.
const ADOPTED_MAX: usize = 100;
/// The number of links of a gateway: several registered clusters may have the same addresses.
const LINKS_MAX: usize = 200;
/// After this many new links, the rest of an answer is left to the next one.
const LINKED_AT_ONCE: usize = 5;
/// The number of clusters that are looked at in an answer.
const REPORTED_MAX: usize = 1_000;
/// The number of a gateway's consumer groups whose lag is kept.
const GROUPS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roles::{Role, Roles};

    #[test]
    fn shares_of_clusters_are_bounded_and_go_with_their_cluster() {
        let mut one = Watched::default();
        let names: Vec<String> = (0..CLUSTERS_MAX + 50).map(|n| format!("c{n:03}")).collect();
        let mut told = |names: &[String]| {
            let rates = names.iter().map(|name| (name, Some(1.0)));
            keep_shares(&mut one, rates, 1_000, 2_000);
            one.delivered.len()
        };
        assert_eq!(told(&names), CLUSTERS_MAX);
        assert_eq!(told(&names[..3]), 3);
        assert_eq!(told(&names[2..4]), 2, "what is gone makes room");
    }

    #[test]
    fn what_meets_a_rule_about_queues_is_found_by_queue_and_group() {
        let told = json!({
            "good": {"accepted": 3, "dead_letters": 0, "poisoned": null, "refuses": null,
                "groups": {"c": {"lag_s": 299.9}, "idle": {"lag_s": null}}},
            "bad": {"accepted": 3, "dead_letters": 7, "poisoned": null, "refuses": "the disk is full",
                "groups": {"c": {"lag_s": 600, "indexed": 2, "dead": 0, "parked": 0, "pending": 0, "replayed": 0,
                    "purged": 0, "skipped": 0, "lost": 0, "rewound": 0}}},
        });
        let found: Vec<String> = findings(&told)
            .into_iter()
            .flat_map(|(rule, found)| {
                found
                    .into_iter()
                    .map(move |one| format!("{} {}: {}", rule.word(), one.part, one.words))
            })
            .collect();
        assert_eq!(
            found,
            [
                "queue_refuses bad: queue bad accepts nothing: the disk is full",
                "accounts_wrong bad/c: queue bad, group c: the accounts do not add up: 3 documents were accepted, 2 are \
                 accounted for",
                "group_behind bad/c: queue bad, group c: 10 minutes behind",
                "dead_letters bad: queue bad has 7 dead letters",
            ]
        );
        assert!(findings(&Value::Null).iter().all(|(_, found)| found.is_empty()));
    }

    /// Makes a store with one gateway, `g`.
    fn with_gateway() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let gateway = GatewayEntry {
            id: "g".into(),
            name: "gw".into(),
            ..GatewayEntry::default()
        };
        store.keep_gateway(&gateway, None, None).unwrap();
        (folder, store)
    }

    #[test]
    fn a_gateways_clusters_are_registered_once_and_removed_ones_stay_away() {
        let (_folder, store) = with_gateway();
        let mine = ClusterEntry {
            id: "x".into(),
            name: "other".into(),
            endpoints: vec!["http://10.0.0.1:9200".into()],
            ..ClusterEntry::default()
        };
        store.keep_cluster(&mine, None).unwrap();
        let told = json!({
            "prod": {"nodes": [{"address": "http://10.0.0.1:9200"}, {"address": "http://10.0.0.2:9200"}]},
            "other": {"nodes": [{"address": "https://es:9200"}]},
            "away": {"nodes": []},
        });
        assert!(adopt(&store, "g", &told).unwrap());
        assert!(!adopt(&store, "g", &told).unwrap());
        let links = store.gateway("g").unwrap().unwrap().clusters;
        assert_eq!(links.len(), 2);
        assert_eq!(
            links[1].cluster_id.as_deref(),
            Some("x"),
            "the same address is the same cluster"
        );
        let names: Vec<String> = store
            .clusters()
            .unwrap()
            .into_iter()
            .map(|cluster| cluster.name)
            .collect();
        assert_eq!(names, ["other", "other (gw)"]);
        let brought = links[0].cluster_id.clone().unwrap();
        store.forget_cluster(&brought).unwrap();
        assert!(!adopt(&store, "g", &told).unwrap());
        assert_eq!(store.clusters().unwrap().len(), 1);
        assert_eq!(store.gateway("g").unwrap().unwrap().clusters[0].cluster_id, None);
        // Somebody registers it again by hand.
        let again = ClusterEntry {
            id: "y".into(),
            name: "again".into(),
            endpoints: vec!["https://es:9200".into()],
            ..ClusterEntry::default()
        };
        store.keep_cluster(&again, None).unwrap();
        assert!(adopt(&store, "g", &told).unwrap());
        let links = store.gateway("g").unwrap().unwrap().clusters;
        assert_eq!((links.len(), links[0].cluster_id.as_deref()), (2, Some("y")));
    }

    #[test]
    fn a_gateway_brings_few_clusters_at_a_time_and_no_more_than_the_bound() {
        let (_folder, store) = with_gateway();
        let told = |from: usize| {
            let clusters = (from..from + 2 * ADOPTED_MAX).map(|n| {
                let node = json!({"address": format!("http://10.0.{}.{}:9200", n / 250, n % 250)});
                (format!("c{n}"), json!({"nodes": [node]}))
            });
            Value::Object(clusters.collect())
        };
        assert!(adopt(&store, "g", &told(0)).unwrap());
        assert_eq!(store.clusters().unwrap().len(), LINKED_AT_ONCE);
        while adopt(&store, "g", &told(0)).unwrap() {}
        assert_eq!(store.clusters().unwrap().len(), ADOPTED_MAX);
        assert!(
            !adopt(&store, "g", &told(2 * ADOPTED_MAX)).unwrap(),
            "nor by other names"
        );
        // The same cluster by many names.
        let names = (0..2 * LINKS_MAX).map(|n| {
            (
                format!("n{n}"),
                json!({"nodes": [{"address": "http://10.0.0.1:9200"}]}),
            )
        });
        let told = Value::Object(names.collect());
        while adopt(&store, "g", &told).unwrap() {}
        assert_eq!(store.gateway("g").unwrap().unwrap().clusters.len(), LINKS_MAX);
    }

    #[test]
    fn counters_that_are_too_large_to_be_added_are_as_large_as_can_be() {
        let group = |cluster: &str| json!({"cluster": cluster, "indexed": u64::MAX, "pending": u64::MAX, "parked": 1});
        let queue = json!({"dead_letters": u64::MAX, "groups": {"a": group("c"), "b": group("c")}});
        let told = json!({"queues": {"x": queue, "y": queue}});
        assert_eq!(delivered(&told)["c"], u64::MAX);
        let (sums, _) = queues(&told);
        assert_eq!(
            sums.unwrap(),
            json!({"pending": u64::MAX, "dead": u64::MAX, "parked": 4})
        );
    }

    #[test]
    fn a_cluster_is_known_by_any_of_its_nodes_however_its_address_is_written() {
        let (_folder, store) = with_gateway();
        let nodes: Vec<Value> = (1..=9)
            .map(|node| json!({"address": format!("http://es{node}:9200")}))
            .collect();
        let written = ["http://es1:9200/", "HTTP://ES2:9200", "es3", "http://es9:9200"];
        for (number, endpoint) in written.iter().enumerate() {
            let cluster = ClusterEntry {
                id: number.to_string(),
                name: number.to_string(),
                endpoints: vec![(*endpoint).to_owned()],
                ..ClusterEntry::default()
            };
            store.keep_cluster(&cluster, None).unwrap();
        }
        adopt(&store, "g", &json!({"prod": {"nodes": nodes}})).unwrap();
        let links = store.gateway("g").unwrap().unwrap().clusters;
        let ids: BTreeSet<_> = links.into_iter().filter_map(|link| link.cluster_id).collect();
        assert!(ids.iter().eq(["0", "1", "2", "3"]), "{ids:?}");
        assert_eq!(
            store.clusters().unwrap().len(),
            written.len(),
            "none is registered twice"
        );
    }

    #[test]
    fn a_gateway_is_linked_to_all_clusters_with_an_address_of_its_own() {
        let (_folder, store) = with_gateway();
        let told = json!({"prod": {"nodes": [{"address": "http://10.0.0.1:9200"}]}});
        let entry = |id: &str| ClusterEntry {
            id: id.into(),
            name: id.into(),
            endpoints: vec!["http://10.0.0.1:9200".into()],
            ..ClusterEntry::default()
        };
        store.keep_cluster(&entry("for-all"), None).unwrap();
        adopt(&store, "g", &told).unwrap();
        // The same cluster with another account, registered later and first by name.
        store.keep_cluster(&entry("admins"), None).unwrap();
        assert!(adopt(&store, "g", &told).unwrap());
        assert!(!adopt(&store, "g", &told).unwrap());
        let gateway = || store.gateway("g").unwrap().unwrap();
        let ids = || -> Vec<Option<String>> {
            let links = gateway().clusters;
            links.into_iter().map(|link| link.cluster_id).collect()
        };
        assert_eq!(ids(), [Some("for-all".to_owned()), Some("admins".to_owned())]);
        let roles = Roles {
            role: Role::Operator,
            clusters: [("admins".to_owned(), Role::None)].into(),
        };
        assert_eq!(
            roles.on_gateway(&gateway()),
            Role::None,
            "it shows documents of both"
        );
        store.forget_cluster("admins").unwrap();
        assert_eq!(ids(), [Some("for-all".to_owned())]);
        store.forget_cluster("for-all").unwrap();
        assert_eq!(ids(), [None], "it is remembered that there was one");
        let hidden = roles.on_gateway(&gateway());
        assert_eq!(hidden, Role::None, "a removed cluster is not for everybody");
    }
}
