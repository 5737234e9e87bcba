//! Alerts: which there are, which are silenced, and where messages about them are sent.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::extract::{Extension, State};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use settings::Secret;

use super::access::{ON_CLUSTER, ON_GATEWAY, demand};
use super::input::Body;
use super::registry::seen;
use super::{ApiState, Refusal, Shared};
use crate::alerts::{Rule, place_of, test};
use crate::board::Key;
use crate::clock::{iso, now_ms};
use crate::roles::Role;
use crate::store::{AlertRow, AuditedChange, Silence, StoreError, User, Webhook};

type Answer = Result<Json<Value>, Refusal>;

#[derive(Deserialize)]
pub(super) struct Silenced {
    rule: Rule,
    kind: String,
    id: String,
    /// For how long; 0 ends the silence.
    minutes: u32,
    #[serde(default)]
    reason: String,
}

/// A webhook as the form describes it. An absent field keeps its value; `null` removes it.
#[derive(Deserialize)]
pub(super) struct Draft {
    url: Option<Secret>,
    #[serde(default, deserialize_with = "given")]
    secret: Option<Option<Secret>>,
    #[serde(default, deserialize_with = "given")]
    ca_pem: Option<Option<String>>,
    verify: Option<bool>,
}

fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// Returns the alerts of all that the user may see.
pub(super) async fn show(State(api): State<Shared>, Extension(user): Extension<User>) -> Answer {
    let now = now_ms();
    let store = &api.polls.store;
    let names = names(&api, &user)?;
    let silences = store.silences(now)?;
    let silence_of = |rule: &str, kind: &str, id: &str| {
        silences
            .iter()
            .find(|one| (&*one.rule, &*one.kind, &*one.target) == (rule, kind, id))
    };
    let mut active: Vec<Value> = Vec::new();
    for (subject, state) in api.alerts.judge.lock().active() {
        let Some(name) = names.get(&subject.target) else {
            continue;
        };
        let (rule, kind, id) = (subject.rule, subject.target.kind(), subject.target.id());
        active.push(json!({
            "rule": rule, "severity": rule.severity(), "kind": kind, "id": id, "name": name,
            "part": subject.part, "words": state.words, "since_ms": state.since_ms, "fired_ms": state.fired_ms,
            "silence": silence_of(rule.word(), kind, id),
        }));
    }
    active.sort_by_key(|one| {
        (
            one["severity"] != "bad",
            std::cmp::Reverse(one["since_ms"].as_i64()),
        )
    });
    // Admins also see what has ended of clusters and gateways that are no longer registered.
    let registered = registered(&api)?;
    let may_see = |row: &AlertRow| {
        Key::of(&row.kind, &row.target).is_some_and(|key| {
            names.contains_key(&key) || user.roles.role >= Role::Admin && !registered.contains(&key)
        })
    };
    let mut ended = store.resolved_alerts()?;
    ended.retain(may_see);
    ended.truncate(ENDED_SHOWN);
    let rules = Rule::ALL.map(|rule| {
        json!({
            "rule": rule, "severity": rule.severity(), "meaning": rule.meaning(), "hold_s": rule.hold_ms() / 1000,
        })
    });
    Ok(Json(json!({
        "at_ms": now, "active": active, "ended": ended, "rules": rules,
        "has_webhook": store.webhook()?.is_some(),
    })))
}

/// The names of the clusters and gateways that the user may see.
fn names(api: &ApiState, user: &User) -> Result<BTreeMap<Key, String>, StoreError> {
    let (clusters, gateways) = seen(api, user)?;
    let clusters = clusters.into_iter().map(|one| (Key::Cluster(one.id), one.name));
    let gateways = gateways.into_iter().map(|one| (Key::Gateway(one.id), one.name));
    Ok(clusters.chain(gateways).collect())
}

fn registered(api: &ApiState) -> Result<BTreeSet<Key>, StoreError> {
    let store = &api.polls.store;
    let clusters = store.clusters()?.into_iter().map(|one| Key::Cluster(one.id));
    let gateways = store.gateways()?.into_iter().map(|one| Key::Gateway(one.id));
    Ok(clusters.chain(gateways).collect())
}

/// Silences a rule for a cluster or a gateway, or ends its silence.
pub(super) async fn silence(
    State(api): State<Shared>,
    Extension(user): Extension<User>,
    Body(wanted): Body<Silenced>,
) -> Answer {
    let store = &api.polls.store;
    let name = match Key::of(&wanted.kind, &wanted.id) {
        Some(Key::Cluster(id)) => {
            let cluster = store.cluster(&id)?.ok_or_else(|| missing(&user, ON_CLUSTER))?;
            demand(Role::Operator, user.roles.on_cluster(&id), ON_CLUSTER)?;
            cluster.name
        }
        Some(Key::Gateway(id)) => {
            let gateway = store.gateway(&id)?.ok_or_else(|| missing(&user, ON_GATEWAY))?;
            demand(Role::Operator, user.roles.on_gateway(&gateway), ON_GATEWAY)?;
            gateway.name
        }
        None => return Err(Refusal::bad("kind: `cluster` or `gateway` is wanted")),
    };
    let reason = wanted.reason.trim();
    if wanted.minutes > MINUTES_MAX {
        return Err(Refusal::bad(format!("minutes: {MINUTES_MAX} at most")));
    }
    if wanted.minutes > 0 && (reason.is_empty() || reason.chars().count() > REASON_CHARS_MAX) {
        return Err(Refusal::bad(format!(
            "reason: 1 to {REASON_CHARS_MAX} characters are wanted"
        )));
    }
    let now = now_ms();
    let silence = Silence {
        rule: wanted.rule.word().to_owned(),
        kind: wanted.kind,
        target: wanted.id,
        until_ms: now + i64::from(wanted.minutes) * 60_000,
        user: user.name.clone(),
        reason: reason.to_owned(),
    };
    store.silence(&silence, now)?;
    let after = match wanted.minutes {
        0 => json!({"rule": wanted.rule}),
        _ => json!({"rule": wanted.rule, "until": iso(silence.until_ms)}),
    };
    store.note(&AuditedChange {
        user: &user.name,
        what: if wanted.minutes == 0 {
            "end silence"
        } else {
            "silence alert"
        },
        target: &name,
        after: Some(&after),
        reason: Some(reason).filter(|reason| !reason.is_empty()),
        ..AuditedChange::default()
    })?;
    Ok(Json(json!({})))
}

/// Refuses an id that does not exist. Those who may not see everything get the answer that they get for what
/// is hidden from them, which therefore does not reveal which ids exist.
fn missing(user: &User, on: &str) -> Refusal {
    match user.roles.role {
        Role::Admin => StoreError::Missing.into(),
        _ => Refusal::missing_role(Role::Operator, Role::None, on),
    }
}

/// Returns the webhook without its secrets, and how its delivery goes.
pub(super) async fn webhook(State(api): State<Shared>) -> Answer {
    let store = &api.polls.store;
    let webhook = store.webhook()?.as_ref().map(told);
    let delivery = api.alerts.delivery.lock().clone();
    let (failed_ms, failed) = delivery.failed.unzip();
    Ok(Json(json!({
        "webhook": webhook, "waiting": store.messages()?, "taken_ms": delivery.taken_ms, "failed_ms": failed_ms,
        "failed": failed, "failures": delivery.failures, "dropped": delivery.dropped,
    })))
}

fn told(webhook: &Webhook) -> Value {
    json!({
        "place": place_of(webhook.url.expose()).ok(), "has_secret": webhook.secret.is_some(),
        "ca_pem": webhook.ca_pem, "verify": webhook.verify,
    })
}

pub(super) async fn set_webhook(
    State(api): State<Shared>,
    Extension(user): Extension<User>,
    Body(draft): Body<Draft>,
) -> Answer {
    let stored = api.polls.store.webhook()?;
    let webhook = draft.on(stored.clone())?;
    keep(&api, &user, stored.as_ref(), Some(&webhook))
}

pub(super) async fn remove_webhook(State(api): State<Shared>, Extension(user): Extension<User>) -> Answer {
    let stored = api.polls.store.webhook()?.ok_or(StoreError::Missing)?;
    keep(&api, &user, Some(&stored), None)
}

fn keep(api: &ApiState, user: &User, before: Option<&Webhook>, after: Option<&Webhook>) -> Answer {
    let store = &api.polls.store;
    let is_other = store.keep_webhook(after)?;
    let (before, told_now) = (before.map(told), after.map(told));
    store.note(&AuditedChange {
        user: &user.name,
        what: if after.is_some() {
            "set webhook"
        } else {
            "remove webhook"
        },
        target: "alerts",
        before: before.as_ref(),
        after: told_now.as_ref(),
        reason: None,
    })?;
    if is_other {
        api.alerts.judge.lock().untell();
    }
    // What has failed before says nothing about this one.
    *api.alerts.delivery.lock() = crate::alerts::Delivery::default();
    api.alerts.news.notify_one();
    Ok(Json(json!({})))
}

/// Sends a message to the webhook as the form describes it, with the stored values where the form has none.
pub(super) async fn test_webhook(
    State(api): State<Shared>,
    Extension(user): Extension<User>,
    Body(draft): Body<Draft>,
) -> Answer {
    let webhook = draft.on(api.polls.store.webhook()?)?;
    Ok(Json(test(&api.polls.outbound, &webhook, &user.name).await))
}

impl Draft {
    /// Returns the webhook that the form describes. With another URL, a stored secret is not sent along:
    /// it was meant for the place that it was given for.
    fn on(self, stored: Option<Webhook>) -> Result<Webhook, Refusal> {
        let is_moved = self.url.as_ref().is_some_and(|url| {
            let place = |url: &Secret| place_of(url.expose()).ok();
            stored
                .as_ref()
                .is_none_or(|stored| place(&stored.url) != place(url))
        });
        let missing = || Refusal::bad("url: it is wanted");
        let url = self.url.or_else(|| stored.as_ref().map(|one| one.url.clone()));
        let url = url.filter(|url| !url.expose().is_empty()).ok_or_else(missing)?;
        place_of(url.expose()).map_err(|error| Refusal::bad(error.to_string()))?;
        let (secret, ca_pem, verify) = stored.map_or((None, None, true), |stored| {
            (stored.secret.filter(|_| !is_moved), stored.ca_pem, stored.verify)
        });
        Ok(Webhook {
            url,
            secret: self
                .secret
                .unwrap_or(secret)
                .filter(|secret| !secret.expose().is_empty()),
            ca_pem: self.ca_pem.unwrap_or(ca_pem),
            verify: self.verify.unwrap_or(verify),
        })
    }
}

const ENDED_SHOWN: usize = 100;
/// A week.
const MINUTES_MAX: u32 = 7 * 24 * 60;
const REASON_CHARS_MAX: usize = 500;

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;

    use super::super::testing::{on_api, send, session_of};
    use super::*;
    use crate::roles::Roles;
    use crate::store::{ClusterEntry, GatewayEntry, Store};

    fn keep_cluster(store: &Store, id: &str) {
        let cluster = ClusterEntry {
            id: id.into(),
            name: id.into(),
            ..ClusterEntry::default()
        };
        store.keep_cluster(&cluster, None).unwrap();
    }

    #[test]
    fn another_receiver_learns_of_the_active_alerts_and_the_same_one_is_not_told_again() {
        on_api(async |store, routes| {
            let roles = Roles {
                role: Role::Admin,
                clusters: [].into(),
            };
            let token = session_of(&store, "ada", &roles);
            let row = AlertRow {
                rule: "cluster_red".into(),
                kind: "cluster".into(),
                target: "a".into(),
                ..AlertRow::default()
            };
            store.fire_alert(&row).unwrap();
            let is_told = || (store.active_alerts().unwrap()[0].told, store.messages().unwrap());
            for (draft, expected) in [
                (r#"{"url": "http://127.0.0.1:9/one"}"#, (false, 0)),
                (r#"{"url": "http://127.0.0.1:9/one", "verify": false}"#, (true, 1)),
                (r#"{"secret": "s"}"#, (true, 1)),
                (r#"{"url": "http://127.0.0.1:9/two"}"#, (false, 0)),
            ] {
                let answer = send(&routes, "PUT", "/alerts/webhook", Some(&token), draft).await;
                assert!(answer.status().is_success(), "{draft}");
                assert_eq!(is_told(), expected, "{draft}");
                if !expected.0 {
                    store.tell_alert(&row, 1, |id| json!(id)).unwrap();
                }
            }
        });
    }

    #[test]
    fn a_silence_does_not_reveal_which_ids_exist() {
        on_api(async |store, routes| {
            for id in ["a", "b"] {
                keep_cluster(&store, id);
            }
            let gateway = GatewayEntry {
                id: "g".into(),
                name: "g".into(),
                ..GatewayEntry::default()
            };
            store.keep_gateway(&gateway, None, None).unwrap();
            store.link("g", "b", "b").unwrap();
            for (general, on_a, on_b) in [
                (Role::None, Role::Operator, Role::None),
                (Role::Operator, Role::Operator, Role::None),
                (Role::Viewer, Role::Viewer, Role::None),
            ] {
                let roles = Roles {
                    role: general,
                    clusters: [("a".to_owned(), on_a), ("b".to_owned(), on_b)].into(),
                };
                let name = format!("general {general}");
                let token = session_of(&store, &name, &roles);
                let mut told = Vec::new();
                for (kind, id) in [
                    ("cluster", "b"),
                    ("cluster", "x"),
                    ("gateway", "g"),
                    ("gateway", "x"),
                ] {
                    let body = json!({
                        "rule": "no_answer", "kind": kind, "id": id, "minutes": 1, "reason": "known",
                    });
                    let body = body.to_string();
                    let answer = send(&routes, "POST", "/alerts/_silence", Some(&token), body).await;
                    let status = answer.status();
                    let text = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
                    told.push((status, String::from_utf8(text.to_vec()).unwrap()));
                }
                assert_eq!(told[0].0, 403, "{name}: {told:?}");
                assert_eq!((&told[0], &told[2]), (&told[1], &told[3]), "{name}");
            }
        });
    }

    #[test]
    fn what_has_ended_is_shown_to_those_who_see_its_cluster_and_to_admins_once_that_is_gone() {
        on_api(async |store, routes| {
            let row = |target: &str| AlertRow {
                rule: "cluster_red".into(),
                kind: "cluster".into(),
                target: target.into(),
                ..AlertRow::default()
            };
            for id in ["a", "b", "removed"] {
                store.fire_alert(&row(id)).unwrap();
                store.resolve_alert(&row(id), 1, |_, _| None).unwrap();
            }
            for id in ["a", "b"] {
                keep_cluster(&store, id);
            }
            for (role, expected) in [(Role::Admin, vec!["removed", "b"]), (Role::Viewer, vec!["b"])] {
                let roles = Roles {
                    role,
                    clusters: [("a".to_owned(), Role::None)].into(),
                };
                let name = format!("{role}");
                let token = session_of(&store, &name, &roles);
                let answer = send(&routes, "GET", "/alerts", Some(&token), "").await;
                let told = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
                let told: Value = serde_json::from_slice(&told).unwrap();
                let ended: Vec<_> = told["ended"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|one| &one["id"])
                    .collect();
                assert_eq!(ended, expected, "{name}");
            }
        });
    }
}
