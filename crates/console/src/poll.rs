//! Polls: one task for each cluster and gateway, so that none waits for another. Each task asks one question
//! at a time.

mod attention;
mod clusters;
mod gateways;
mod pace;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use wire::guard::{Work, restarted, spawn};

use crate::alerts::{Finding, Rule};
use crate::board::{Board, Key, Severity};
use crate::clock::now_ms;
use crate::outbound::{AskError, Outbound};
use crate::store::{ClusterEntry, GatewayEntry, Store};

pub(crate) use attention::Attention;
pub(crate) use clusters::flavour_of;
pub(crate) use gateways::adopt;

/// The state that polls share with the pages.
#[derive(Clone)]
pub(crate) struct Polls {
    pub(crate) store: Store,
    pub(crate) board: Arc<Board>,
    pub(crate) outbound: Outbound,
    /// Notified when the registry has changed.
    pub(crate) changed: Arc<Notify>,
    pub(crate) attention: Arc<Attention>,
}

#[derive(Clone, PartialEq)]
enum RegistryEntry {
    Cluster(ClusterEntry),
    Gateway(GatewayEntry),
}

impl Polls {
    /// Keeps a task running for each registered entry, until the future is dropped.
    pub(crate) async fn run(self) {
        let mut running: HashMap<Key, (RegistryEntry, JoinHandle<()>)> = HashMap::new();
        loop {
            match self.entries() {
                Ok(entries) => self.settle(&mut running, entries),
                Err(error) => tracing::error!(%error, "the registry cannot be read"),
            }
            self.changed.notified().await;
        }
    }

    fn entries(&self) -> Result<Vec<(Key, RegistryEntry)>, crate::store::StoreError> {
        let clusters = self.store.clusters()?.into_iter();
        let clusters = clusters.map(|entry| (Key::Cluster(entry.id.clone()), RegistryEntry::Cluster(entry)));
        // A gateway's clusters do not change how the gateway is asked.
        let gateways = self.store.gateways()?.into_iter().map(|entry| GatewayEntry {
            clusters: Vec::new(),
            ..entry
        });
        let gateways = gateways.map(|entry| (Key::Gateway(entry.id.clone()), RegistryEntry::Gateway(entry)));
        Ok(clusters.chain(gateways).collect())
    }

    fn settle(
        &self,
        running: &mut HashMap<Key, (RegistryEntry, JoinHandle<()>)>,
        entries: Vec<(Key, RegistryEntry)>,
    ) {
        let keys: Vec<Key> = entries.iter().map(|(key, _)| key.clone()).collect();
        self.board.only(&keys);
        running.retain(|key, (_, task)| {
            let stays = keys.contains(key);
            if !stays {
                task.abort();
            }
            stays
        });
        for (key, entry) in entries {
            if let Some((known, task)) = running.get(&key) {
                if *known == entry {
                    continue;
                }
                task.abort();
                self.board.forget(&key);
            }
            let (polls, polled) = (self.clone(), entry.clone());
            let task = spawn(Work::Watch, async move {
                restarted(Work::Watch, || polls.clone().poll(polled.clone())).await;
            });
            running.insert(key, (entry, task));
        }
    }

    async fn poll(self, entry: RegistryEntry) {
        match entry {
            RegistryEntry::Cluster(entry) => clusters::poll(&self, &entry).await,
            RegistryEntry::Gateway(entry) => gateways::poll(&self, &entry).await,
        }
    }

    fn cannot(&self, key: &Key, why: &dyn std::fmt::Display) {
        self.board
            .change(key, |one| one.failed = Some((Severity::Bad, why.to_string())));
        self.found(key, Rule::NoAnswer, vec![whole(why.to_string())]);
    }

    /// Notes how the main question of a poll went. The caller decides how long to wait.
    fn heard(&self, key: &Key, went: Result<(), &AskError>) {
        self.board.change(key, |one| match went {
            Ok(()) => {
                one.seen_ms = Some(now_ms());
                one.failed = None;
            }
            Err(error) => one.failed = Some((severity(error), error.to_string())),
        });
        // An alert that is active stays so, and none begins, as long as the console has not asked.
        if went.is_err_and(AskError::is_own_lack) {
            return;
        }
        let silent = went.err().map(|error| whole(error.to_string()));
        self.found(key, Rule::NoAnswer, silent.into_iter().collect());
    }

    /// Notes what meets a rule, according to the latest answer.
    fn found(&self, key: &Key, rule: Rule, found: Vec<Finding>) {
        self.board.change(key, |one| {
            one.findings.insert(rule, found);
        });
    }

    /// Notes how another question went.
    fn noted(&self, key: &Key, question: &'static str, notes: Vec<(Severity, String)>) {
        self.board.change(key, |one| {
            if notes.is_empty() {
                one.notes.remove(question);
            } else {
                one.notes.insert(question, notes);
            }
        });
    }
}

/// Returns the finding about a target as a whole.
fn whole(words: String) -> Finding {
    Finding {
        part: String::new(),
        words,
    }
}

fn severity(error: &AskError) -> Severity {
    match error {
        _ if error.is_own_lack() => Severity::Warn,
        AskError::Status { status, .. }
            if status.is_server_error() || matches!(status.as_u16(), 401 | 403) =>
        {
            Severity::Bad
        }
        AskError::Send(_) | AskError::NoRoom(_) | AskError::Stopping => Severity::Bad,
        // The target is there and has answered something.
        AskError::Status { .. } | AskError::NoJson { .. } | AskError::TooLong { .. } => Severity::Warn,
    }
}

/// Time limit for a question of a poll.
const QUESTION_WITHIN: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use wire::{Fate, SendError, SendErrorKind};

    use super::*;

    #[test]
    fn a_cluster_that_was_not_asked_is_not_said_to_be_silent() {
        let folder = tempfile::tempdir().unwrap();
        let polls = Polls {
            store: Store::open(folder.path()).unwrap(),
            board: Arc::new(Board::default()),
            outbound: Outbound::new().0,
            changed: Arc::new(Notify::new()),
            attention: Arc::new(Attention::new()),
        };
        let key = Key::Cluster("a".into());
        polls.board.only(std::slice::from_ref(&key));
        let heard = |kind| {
            let error = AskError::Send(SendError {
                kind,
                fate: Fate::NothingSent,
                reused: false,
                origin: "a:9200".into(),
            });
            polls.heard(&key, Err(&error));
            let mut found = (0, None);
            polls.board.change(&key, |one| {
                let silent = one.findings.get(&Rule::NoAnswer).map_or(0, Vec::len);
                found = (silent, one.failed.as_ref().map(|(state, _)| *state));
            });
            found
        };
        assert_eq!(heard(SendErrorKind::Busy), (0, Some(Severity::Warn)));
        assert_eq!(heard(SendErrorKind::Deadline), (1, Some(Severity::Bad)));
        assert_eq!(
            heard(SendErrorKind::Busy),
            (1, Some(Severity::Warn)),
            "nor to answer"
        );
    }
}
