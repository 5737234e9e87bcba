//! Holds the findings against the rules once a second, whether anybody looks or not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use super::Alerts;
use super::judge::{AlertState, AlertVerdict, Subject};
use super::message::{Status, message};
use super::rules::Rule;
use crate::board::Key;
use crate::clock::now_ms;
use crate::poll::Polls;
use crate::store::{AlertRow, Silence, StoreError};

/// Watches until the future is dropped.
pub(crate) async fn watch(polls: Polls, alerts: Arc<Alerts>) {
    if let Err(error) = take_over(&polls, &alerts) {
        tracing::error!(%error, "the alerts of before the start cannot be read");
    }
    let mut seconds = interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        seconds.tick().await;
        if let Err(error) = look(&polls, &alerts, now_ms()) {
            tracing::error!(%error, "the alerts cannot be stored");
        }
    }
}

fn take_over(polls: &Polls, alerts: &Alerts) -> Result<(), StoreError> {
    let mut judge = alerts.judge.lock();
    for row in polls.store.active_alerts()? {
        let (Some(rule), Some(target)) = (Rule::parse(&row.rule), Key::of(&row.kind, &row.target)) else {
            continue;
        };
        let subject = Subject {
            rule,
            target,
            part: row.part,
        };
        judge.take_over(subject, row.since_ms, row.fired_ms, row.words, row.told);
    }
    Ok(())
}

fn look(polls: &Polls, alerts: &Alerts, now_ms: i64) -> Result<(), StoreError> {
    let names = names(polls)?;
    {
        let mut unstored = alerts.unstored.lock();
        // What the store did not take comes first, and nothing is told before it is stored.
        if unstored.is_empty() {
            let registered: BTreeSet<Key> = names.keys().cloned().collect();
            let findings = polls.board.findings();
            unstored.extend(alerts.judge.lock().judge(now_ms, &findings, &registered));
        }
        while let Some(verdict) = unstored.front() {
            match verdict {
                AlertVerdict::Fired(subject, state) => fired(polls, &names, subject, state)?,
                AlertVerdict::Resolved(subject, state) => resolved(polls, alerts, subject, state, now_ms)?,
            }
            unstored.pop_front();
        }
    }
    let silences = polls.store.silences(now_ms)?;
    tell(polls, alerts, &names, &silences, now_ms)?;
    show(polls, alerts, &names, &silences);
    Ok(())
}

fn names(polls: &Polls) -> Result<BTreeMap<Key, String>, StoreError> {
    let clusters = polls.store.clusters()?.into_iter();
    let clusters = clusters.map(|one| (Key::Cluster(one.id), one.name));
    let gateways = polls.store.gateways()?.into_iter();
    Ok(clusters
        .chain(gateways.map(|one| (Key::Gateway(one.id), one.name)))
        .collect())
}

fn row(subject: &Subject, state: &AlertState, name: &str) -> AlertRow {
    AlertRow {
        rule: subject.rule.word().to_owned(),
        kind: subject.target.kind().to_owned(),
        target: subject.target.id().to_owned(),
        name: name.to_owned(),
        part: subject.part.clone(),
        words: state.words.clone(),
        since_ms: state.since_ms,
        fired_ms: state.fired_ms.unwrap_or(state.since_ms),
        ..AlertRow::default()
    }
}

fn fired(
    polls: &Polls,
    names: &BTreeMap<Key, String>,
    subject: &Subject,
    state: &AlertState,
) -> Result<(), StoreError> {
    let name = names.get(&subject.target).map_or("", String::as_str);
    polls.store.fire_alert(&row(subject, state, name))?;
    tracing::warn!(
        rule = subject.rule.word(),
        name,
        words = state.words,
        "an alert begins"
    );
    Ok(())
}

/// Notes an alert's end. The receiver is told of it if it was told of the beginning, silenced or not: what it
/// has opened can be closed.
fn resolved(
    polls: &Polls,
    alerts: &Alerts,
    subject: &Subject,
    state: &AlertState,
    now_ms: i64,
) -> Result<(), StoreError> {
    let told = |id, name: &str| {
        let told = || message(Status::Resolved, id, subject, state, name, now_ms);
        state.told.then(told)
    };
    let ended = polls
        .store
        .resolve_alert(&row(subject, state, ""), now_ms, told)?;
    if let Some((name, dropped)) = ended {
        tracing::info!(rule = subject.rule.word(), name, "an alert ends");
        is_put(alerts, dropped);
    }
    Ok(())
}

/// Puts messages about alerts into the outbox: those that begin, and those whose silence is over.
fn tell(
    polls: &Polls,
    alerts: &Alerts,
    names: &BTreeMap<Key, String>,
    silences: &[Silence],
    now_ms: i64,
) -> Result<(), StoreError> {
    let untold: Vec<(Subject, AlertState)> = {
        let judge = alerts.judge.lock();
        let untold = judge
            .active()
            .filter(|(subject, state)| !state.told && silence_of(silences, subject).is_none());
        untold
            .map(|(subject, state)| (subject.clone(), state.clone()))
            .collect()
    };
    if untold.is_empty() || polls.store.webhook()?.is_none() {
        return Ok(());
    }
    for (subject, state) in untold {
        let name = names.get(&subject.target).map_or("", String::as_str);
        let told = |id| message(Status::Firing, id, &subject, &state, name, now_ms);
        if let Some(dropped) = polls
            .store
            .tell_alert(&row(&subject, &state, name), now_ms, told)?
        {
            is_put(alerts, dropped);
        }
        alerts.judge.lock().tell(&subject);
    }
    Ok(())
}

/// Notes that a message is in the outbox, for which some of the oldest were given up.
fn is_put(alerts: &Alerts, dropped: u64) {
    if dropped > 0 {
        tracing::warn!(
            dropped,
            "the webhook's receiver takes nothing: old messages were given up"
        );
        alerts.delivery.lock().dropped += dropped;
    }
    alerts.news.notify_one();
}

/// Returns the silence of an alert.
pub(super) fn silence_of<'a>(silences: &'a [Silence], subject: &Subject) -> Option<&'a Silence> {
    let (kind, id) = (subject.target.kind(), subject.target.id());
    silences
        .iter()
        .find(|one| one.rule == subject.rule.word() && one.kind == kind && one.target == id)
}

/// Puts the active alerts on the board, for the overview.
fn show(polls: &Polls, alerts: &Alerts, names: &BTreeMap<Key, String>, silences: &[Silence]) {
    let mut shown: BTreeMap<&Key, Vec<Value>> = BTreeMap::new();
    let judge = alerts.judge.lock();
    for (subject, state) in judge.active() {
        let told = json!({
            "rule": subject.rule, "severity": subject.rule.severity(), "part": subject.part,
            "words": state.words, "since_ms": state.since_ms,
            "silenced": silence_of(silences, subject).is_some(),
        });
        shown.entry(&subject.target).or_default().push(told);
    }
    for key in names.keys() {
        let told = shown.remove(key).unwrap_or_default();
        polls.board.change(key, |one| one.alerts = told);
    }
}

#[cfg(test)]
mod tests {
    use settings::Secret;
    use tokio::sync::Notify;

    use super::super::Finding;
    use super::*;
    use crate::board::Board;
    use crate::outbound::Outbound;
    use crate::poll::Attention;
    use crate::store::{GatewayEntry, Store, Webhook};

    #[test]
    fn what_the_store_does_not_take_is_stored_and_told_once_it_does() {
        let folder = tempfile::tempdir().unwrap();
        let polls = Polls {
            store: Store::open(folder.path()).unwrap(),
            board: Arc::new(Board::default()),
            outbound: Outbound::new().0,
            changed: Arc::new(Notify::new()),
            attention: Arc::new(Attention::new()),
        };
        let (store, alerts) = (&polls.store, Alerts::default());
        let gateway = GatewayEntry {
            id: "g".into(),
            name: "edge".into(),
            ..GatewayEntry::default()
        };
        store.keep_gateway(&gateway, None, None).unwrap();
        let webhook = Webhook {
            url: Secret::new("http://a/"),
            secret: None,
            ca_pem: None,
            verify: true,
        };
        store.keep_webhook(Some(&webhook)).unwrap();
        let key = Key::Gateway("g".into());
        polls.board.only(std::slice::from_ref(&key));
        let finds = |parts: &[&str]| {
            let found = parts.iter().map(|part| Finding {
                part: (*part).to_owned(),
                words: "bad".to_owned(),
            });
            let found: Vec<_> = found.collect();
            polls
                .board
                .change(&key, |one| drop(one.findings.insert(Rule::DeadLetters, found)));
        };
        let counts = || (store.active_alerts().unwrap().len(), store.messages().unwrap());

        finds(&["p", "q"]);
        store.takes_nothing("alerts", true);
        assert!(look(&polls, &alerts, 0).is_err() && look(&polls, &alerts, 1_000).is_err());
        store.takes_nothing("alerts", false);
        store.takes_nothing("outbox", true);
        assert!(look(&polls, &alerts, 2_000).is_err());
        assert_eq!(counts(), (2, 0));
        assert!(store.active_alerts().unwrap().iter().all(|row| !row.told));
        store.takes_nothing("outbox", false);
        look(&polls, &alerts, 3_000).unwrap();
        assert_eq!(counts(), (2, 2));

        finds(&[]);
        look(&polls, &alerts, 4_000).unwrap();
        store.takes_nothing("outbox", true);
        assert!(look(&polls, &alerts, 40_000).is_err());
        assert_eq!(counts(), (2, 2), "no end without its message");
        store.takes_nothing("outbox", false);
        look(&polls, &alerts, 41_000).unwrap();
        assert_eq!(counts(), (0, 4));
    }
}
