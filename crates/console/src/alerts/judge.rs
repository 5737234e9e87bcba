//! Decides which alerts begin and end. Time and findings are arguments.

use std::collections::{BTreeMap, BTreeSet};

use super::rules::{Finding, GONE_MS, Rule};
use crate::board::Key;

/// The subject of an alert.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Subject {
    pub(crate) rule: Rule,
    pub(crate) target: Key,
    pub(crate) part: String,
}

/// The state of a finding, or of the alert that it has become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AlertState {
    /// When the finding began.
    pub(crate) since_ms: i64,
    /// When it became an alert.
    pub(crate) fired_ms: Option<i64>,
    /// When it was gone; until the alert ends it may come back.
    gone_ms: Option<i64>,
    pub(crate) words: String,
    /// Whether the beginning is, or was, in the outbox.
    pub(crate) told: bool,
}

/// All present findings.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    states: BTreeMap<Subject, AlertState>,
}

/// A change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AlertVerdict {
    Fired(Subject, AlertState),
    Resolved(Subject, AlertState),
}

/// The findings by rule and target. A rule that a target has no entry for is not known there yet.
pub(crate) type Findings = BTreeMap<(Rule, Key), Vec<Finding>>;

impl Judge {
    /// Takes an alert over that was active when the console stopped.
    pub(crate) fn take_over(
        &mut self,
        subject: Subject,
        since_ms: i64,
        fired_ms: i64,
        words: String,
        told: bool,
    ) {
        let state = AlertState {
            since_ms,
            fired_ms: Some(fired_ms),
            gone_ms: None,
            words,
            told,
        };
        self.states.insert(subject, state);
    }

    /// Holds the findings of this moment against the rules.
    pub(crate) fn judge(
        &mut self,
        now_ms: i64,
        findings: &Findings,
        registered: &BTreeSet<Key>,
    ) -> Vec<AlertVerdict> {
        let mut verdicts = Vec::new();
        for ((rule, target), found) in findings {
            for finding in found.iter().take(PARTS_MAX) {
                let subject = Subject {
                    rule: *rule,
                    target: target.clone(),
                    part: finding.part.clone(),
                };
                if self.states.len() >= STATES_MAX && !self.states.contains_key(&subject) {
                    continue;
                }
                let state = self.states.entry(subject.clone()).or_insert(AlertState {
                    since_ms: now_ms,
                    fired_ms: None,
                    gone_ms: None,
                    words: String::new(),
                    told: false,
                });
                state.gone_ms = None;
                state.words.clone_from(&finding.words);
                if state.fired_ms.is_none() && now_ms - state.since_ms >= rule.hold_ms() {
                    state.fired_ms = Some(now_ms);
                    verdicts.push(AlertVerdict::Fired(subject, state.clone()));
                }
            }
        }
        self.states.retain(|subject, state| {
            let stays = stays(subject, state, now_ms, findings, registered);
            if !stays && state.fired_ms.is_some() {
                verdicts.push(AlertVerdict::Resolved(subject.clone(), state.clone()));
            }
            stays
        });
        verdicts
    }

    /// Returns the alerts that have begun and not ended.
    pub(crate) fn active(&self) -> impl Iterator<Item = (&Subject, &AlertState)> {
        self.states.iter().filter(|(_, state)| state.fired_ms.is_some())
    }

    /// Notes that nobody was told of any alert: there is no receiver any more.
    pub(crate) fn untell(&mut self) {
        for state in self.states.values_mut() {
            state.told = false;
        }
    }

    /// Notes that the beginning of an alert is in the outbox.
    pub(crate) fn tell(&mut self, subject: &Subject) {
        if let Some(state) = self.states.get_mut(subject) {
            state.told = true;
        }
    }
}

fn stays(
    subject: &Subject,
    state: &mut AlertState,
    now_ms: i64,
    findings: &Findings,
    registered: &BTreeSet<Key>,
) -> bool {
    if !registered.contains(&subject.target) {
        return false;
    }
    let Some(found) = findings.get(&(subject.rule, subject.target.clone())) else {
        return true;
    };
    if found.iter().any(|finding| finding.part == subject.part) {
        return true;
    }
    let gone_ms = *state.gone_ms.get_or_insert(now_ms);
    state.fired_ms.is_some() && now_ms - gone_ms < GONE_MS
}

/// The largest number of parts of one target that a rule is held against.
const PARTS_MAX: usize = 100;
/// The largest number of findings that are followed.
const STATES_MAX: usize = 5_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::Gateway("g".into())
    }

    fn findings(rule: Rule, parts: &[&str]) -> Findings {
        let found = parts.iter().map(|part| Finding {
            part: (*part).to_owned(),
            words: format!("{part} is bad"),
        });
        [((rule, key()), found.collect())].into()
    }

    fn told(verdicts: &[AlertVerdict]) -> Vec<(&'static str, &str)> {
        let told = verdicts.iter().map(|verdict| match verdict {
            AlertVerdict::Fired(subject, _) => ("fired", &*subject.part),
            AlertVerdict::Resolved(subject, _) => ("resolved", &*subject.part),
        });
        told.collect()
    }

    #[test]
    fn an_alert_begins_after_the_rules_patience_and_ends_when_the_finding_stays_away() {
        let (mut judge, here) = (Judge::default(), BTreeSet::from([key()]));
        let bad = findings(Rule::NoAnswer, &[""]);
        let good = findings(Rule::NoAnswer, &[]);
        let mut at = |now_ms, findings: &Findings| {
            let verdicts = judge.judge(now_ms, findings, &here);
            told(&verdicts).iter().map(|(what, _)| *what).collect::<Vec<_>>()
        };
        assert_eq!(at(0, &bad), [""; 0]);
        assert_eq!(at(29_000, &bad), [""; 0]);
        assert_eq!(at(29_500, &good), [""; 0], "it was gone too soon");
        assert_eq!(at(30_000, &bad), [""; 0], "and its patience begins anew");
        assert_eq!(at(60_000, &bad), ["fired"]);
        assert_eq!(at(61_000, &bad), [""; 0], "once");
        assert_eq!(at(62_000, &good), [""; 0]);
        assert_eq!(at(91_000, &good), [""; 0]);
        assert_eq!(at(91_500, &bad), [""; 0], "it is the same alert");
        assert_eq!(at(92_000, &good), [""; 0]);
        assert_eq!(at(122_000, &good), ["resolved"]);
    }

    #[test]
    fn what_is_not_known_keeps_its_alert_and_what_is_not_registered_loses_it() {
        let (mut judge, here) = (Judge::default(), BTreeSet::from([key()]));
        let both = findings(Rule::DeadLetters, &["a", "b"]);
        assert_eq!(
            told(&judge.judge(0, &both, &here)),
            [("fired", "a"), ("fired", "b")]
        );
        assert_eq!(judge.judge(1_000_000, &Findings::new(), &here), []);
        let one = findings(Rule::DeadLetters, &["b"]);
        assert_eq!(judge.judge(1_000_000, &one, &here), []);
        assert_eq!(told(&judge.judge(1_030_000, &one, &here)), [("resolved", "a")]);
        let verdicts = judge.judge(1_030_000, &Findings::new(), &BTreeSet::new());
        assert_eq!(told(&verdicts), [("resolved", "b")]);
        assert_eq!(judge.active().count(), 0);
    }

    #[test]
    fn an_alert_of_before_the_restart_does_not_begin_again_and_ends() {
        let (mut judge, here) = (Judge::default(), BTreeSet::from([key()]));
        let subject = Subject {
            rule: Rule::DeadLetters,
            target: key(),
            part: "a".into(),
        };
        judge.take_over(subject, 5, 5, "old words".into(), true);
        let verdicts = judge.judge(100, &findings(Rule::DeadLetters, &["a"]), &here);
        assert_eq!(verdicts, []);
        let (_, state) = judge.active().next().unwrap();
        assert_eq!((state.since_ms, &*state.words, state.told), (5, "a is bad", true));
        let good = findings(Rule::DeadLetters, &[]);
        assert_eq!(judge.judge(200, &good, &here), []);
        assert_eq!(
            told(&judge.judge(200 + GONE_MS, &good, &here)),
            [("resolved", "a")]
        );
    }

    #[test]
    fn very_many_findings_are_bounded() {
        let mut judge = Judge::default();
        let parts: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        for n in 0..100 {
            let key = Key::Gateway(n.to_string());
            let found = findings(Rule::DeadLetters, &parts).into_values().next().unwrap();
            let findings = [((Rule::DeadLetters, key.clone()), found)].into();
            let all = (0..100).map(|n| Key::Gateway(n.to_string())).collect();
            let fired = judge.judge(0, &findings, &all).len();
            assert!(fired <= PARTS_MAX, "{fired}");
        }
        assert_eq!(judge.active().count(), STATES_MAX);
    }
}
