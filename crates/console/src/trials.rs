//! Trials: the console runs `tidegate compare` as a process of its own, which writes the same documents to a
//! cluster directly and through a gateway.
//!
//! The process gets the account by its environment, and stops when its standard input ends: when the trial is
//! cancelled, when the console stops, and also when the console is killed. It removes its indices in each of
//! these cases.

mod process;
mod progress;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use settings::Secret;
use tokio::sync::{Notify, watch};
use wire::guard::{Work, spawn};

use crate::clock::now_ms;
use crate::store::{Store, TrialRow};
use process::{Ended, Process};
use progress::Progress;

/// The trial that is running, if one is: a console runs one at a time.
pub(crate) struct Trials {
    /// The program to run; none: there are no trials.
    program: Option<PathBuf>,
    /// The folder for the file with certificates.
    folder: PathBuf,
    running: watch::Sender<Option<Arc<RunningTrial>>>,
    /// The trial that failed last, and why. It is not stored, since a cluster's words may be part of it.
    failed: Mutex<Option<(i64, String)>>,
}

struct RunningTrial {
    row: TrialRow,
    progress: Arc<Mutex<Progress>>,
    cancel: Notify,
}

/// What is compared, and how to get there.
pub(crate) struct TrialPlan {
    /// The nodes of the cluster.
    pub(crate) direct: Vec<String>,
    /// The gateway's entry.
    pub(crate) gateway: String,
    pub(crate) account: Option<(String, Secret)>,
    pub(crate) ca_pem: Option<String>,
    pub(crate) insecure: bool,
    pub(crate) indices: String,
    pub(crate) load: TrialLoad,
}

/// The load of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TrialLoad {
    /// Documents in each run.
    documents: u64,
    /// Documents in each request.
    batch: u64,
    rounds: u64,
    clients: u64,
    shards: u64,
    replicas: u64,
    /// Whether documents have ids.
    ids: bool,
}

/// Why a trial does not begin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotBegun {
    /// A number is out of its bounds.
    #[error("{name}: {least} to {most}")]
    Bounds {
        name: &'static str,
        least: u64,
        most: u64,
    },
    /// Another trial is running.
    #[error("another trial is running: a console runs one at a time")]
    Busy,
    /// This build of the console cannot run a program.
    #[error("this console does not know the program that compares")]
    NoProgram,
    /// The process cannot be started.
    #[error("tidegate compare cannot be started: {0}")]
    Start(#[from] std::io::Error),
    /// The trial cannot be stored.
    #[error(transparent)]
    Store(#[from] crate::store::StoreError),
}

// === impl TrialLoad ===

impl TrialLoad {
    /// Checks that the load is one that a trial may have.
    pub(crate) fn check(&self) -> Result<(), NotBegun> {
        for (name, value, least, most) in [
            ("documents", self.documents, 1, 1_000_000),
            ("batch", self.batch, 1, 10_000),
            ("rounds", self.rounds, 1, 10),
            ("clients", self.clients, 1, 64),
            ("shards", self.shards, 1, 64),
            ("replicas", self.replicas, 0, 5),
        ] {
            if !(least..=most).contains(&value) {
                return Err(NotBegun::Bounds { name, least, most });
            }
        }
        Ok(())
    }

    /// The number of runs, each of which writes all documents one way.
    fn runs(&self) -> u64 {
        2 * self.rounds
    }
}

// === impl Trials ===

impl Trials {
    pub(crate) fn new(program: Option<PathBuf>, folder: PathBuf) -> Self {
        Self {
            program,
            folder,
            running: watch::Sender::new(None),
            failed: Mutex::new(None),
        }
    }

    /// Whether trials can be run at all.
    pub(crate) fn can_run(&self) -> bool {
        self.program.is_some()
    }

    /// Returns the id of the gateway whose trial is running.
    pub(crate) fn busy_with(&self) -> Option<String> {
        let running = self.running.borrow();
        running.as_ref().map(|running| running.row.gateway.clone())
    }

    /// Returns the progress of a gateway's trial, if one is running.
    pub(crate) fn progress(&self, gateway: &str) -> Option<Value> {
        let running = self.running.borrow();
        let running = running.as_ref().filter(|one| one.row.gateway == gateway)?;
        Some(json!(*running.progress.lock()))
    }

    /// Returns why a trial failed, if the console still knows.
    pub(crate) fn why_failed(&self, id: i64) -> Option<String> {
        let failed = self.failed.lock();
        let (_, why) = failed.as_ref().filter(|(of, _)| *of == id)?;
        Some(why.clone())
    }

    /// Begins a trial: stores it, and starts the process.
    pub(crate) fn begin(
        self: &Arc<Self>,
        store: &Store,
        row: &TrialRow,
        plan: &TrialPlan,
    ) -> Result<TrialRow, NotBegun> {
        let program = self.program.as_ref().ok_or(NotBegun::NoProgram)?;
        plan.load.check()?;
        if self.running.borrow().is_some() {
            return Err(NotBegun::Busy);
        }
        let row = store.begin_trial(row)?;
        let progress = Arc::new(Mutex::new(Progress::new(plan.load.runs())));
        let process = match Process::start(program, &self.folder, plan, &progress) {
            Ok(process) => process,
            Err(error) => {
                store.end_trial(row.id, "failed", None, now_ms())?;
                return Err(error.into());
            }
        };
        let running = Arc::new(RunningTrial {
            row: row.clone(),
            progress,
            cancel: Notify::new(),
        });
        self.running.send_replace(Some(Arc::clone(&running)));
        let (trials, store) = (Arc::clone(self), store.clone());
        spawn(Work::Watch, async move {
            // Told to everybody who waits, also after a panic.
            let _over = Over(&trials);
            let ended = process.until_it_ends(&running.cancel).await;
            trials.settle(&store, &running, &ended);
        });
        Ok(row)
    }

    /// Cancels the trial of a gateway. Returns whether there is one.
    pub(crate) fn cancel(&self, gateway: &str) -> bool {
        self.cancel_where(|trial| trial.gateway == gateway)
    }

    /// Cancels the trial that is running, if it is one of these. Returns whether it is.
    pub(crate) fn cancel_where(&self, is_meant: impl Fn(&TrialRow) -> bool) -> bool {
        let running = self.running.borrow();
        let Some(running) = running.as_ref().filter(|one| is_meant(&one.row)) else {
            return false;
        };
        running.progress.lock().state = "cancelled";
        running.cancel.notify_one();
        true
    }

    /// Ends the trial that is running, since the console stops, and waits for a while until its indices are
    /// removed.
    pub(crate) async fn stop(&self) {
        let mut changes = self.running.subscribe();
        if let Some(running) = &*changes.borrow_and_update() {
            running.progress.lock().state = "interrupted";
            running.cancel.notify_one();
        }
        let over = changes.wait_for(Option::is_none);
        if tokio::time::timeout(STOP_WITHIN, over).await.is_err() {
            tracing::warn!("a trial has not ended; its process goes on until its indices are removed");
        }
    }

    fn settle(&self, store: &Store, running: &RunningTrial, ended: &Ended) {
        let progress = running.progress.lock();
        let state = ended.state(progress.state);
        if let Some(why) = progress.why.clone().or_else(|| ended.why()) {
            *self.failed.lock() = Some((running.row.id, why));
        }
        if let Err(error) = store.end_trial(running.row.id, state, ended.figures.as_ref(), now_ms()) {
            tracing::error!(%error, "the outcome of a trial cannot be stored");
        }
    }
}

/// When this is dropped, no trial is running any more.
struct Over<'t>(&'t Trials);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.running.send_replace(None);
    }
}

/// How long a console that stops waits for the indices to be removed.
const STOP_WITHIN: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_has_bounds() {
        let load = TrialLoad {
            documents: 1000,
            batch: 100,
            rounds: 3,
            clients: 2,
            shards: 1,
            replicas: 0,
            ids: true,
        };
        assert!(load.check().is_ok());
        let wrong = TrialLoad { rounds: 11, ..load };
        assert_eq!(wrong.check().unwrap_err().to_string(), "rounds: 1 to 10");
        assert!(TrialLoad { documents: 0, ..load }.check().is_err());
        assert!(TrialLoad { clients: 65, ..load }.check().is_err());
    }
}
