//! Configurations that are put in force through the admin port. The program that runs the gateway receives
//! these requests, writes the file, reloads it, and takes it back unless somebody confirms it in time.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::time::{Duration, Instant};

use config::{Problem, Secret};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};

/// A request about the configuration.
#[derive(Debug)]
pub struct ConfigAsked {
    /// Who asks, as the client says; for the log and the status.
    pub actor: String,
    /// The request.
    pub ask: ConfigAsk,
    /// Tells the client whether it was done, or why not.
    pub told: oneshot::Sender<Result<(), NotApplied>>,
}

/// What is asked for.
#[derive(Debug)]
pub enum ConfigAsk {
    /// Put a text in force until it is confirmed or the time is over.
    Apply {
        /// The whole file, with its secrets.
        text: Secret,
        /// The version that has to be in force.
        version: String,
        /// Time to confirm it.
        within: Duration,
    },
    /// Keep what was applied.
    Confirm,
    /// Go back to the former text, which becomes an applied one if the present one is confirmed.
    Revert {
        /// Time to confirm it, if a confirmation is needed.
        within: Duration,
        /// Whether only what is not confirmed is to be taken back.
        only_unconfirmed: bool,
    },
}

/// Why a request about the configuration is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotApplied {
    /// Nothing receives such requests.
    #[error("what runs this gateway applies no configurations")]
    NobodyHears,
    /// Another request is under way.
    #[error("another request about the configuration is under way")]
    UnderWay,
    /// The gateway stops.
    #[error("the gateway was stopped meanwhile")]
    Stopped,
    /// The text has problems.
    #[error("the configuration can't be used")]
    Problems(Vec<Problem>),
    /// Not possible in the present state.
    #[error("{0}")]
    Refused(String),
}

/// What was applied last, and what became of it.
#[derive(Clone, Debug, Serialize)]
pub struct Applied {
    /// Who applied it.
    pub actor: String,
    /// What became of it.
    pub state: AppliedState,
    /// What it changes, in words.
    pub changes: String,
    /// Why it is not in force any more, or why it still is, although it is taken back.
    pub why: Option<String>,
    /// When it was applied, in milliseconds since 1970.
    pub at_ms: u64,
    /// Seconds in which it has to be confirmed.
    pub within_s: u64,
    /// Seconds without readiness in a row after which it is taken back.
    pub patience_s: u64,
    /// When it ends without a confirmation.
    #[serde(skip)]
    pub deadline: Instant,
    /// Whether the gateway was ready before.
    pub was_ready: bool,
    /// Why the gateway is not ready now.
    pub not_ready: Vec<String>,
}

/// What became of an applied configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AppliedState {
    /// It is in force, and is taken back unless it is confirmed.
    Unconfirmed,
    /// It is kept.
    Confirmed,
    /// The former one is in force again.
    Reverted,
    /// Somebody wrote another text into the file.
    Overtaken,
}

/// The channel between clients that ask and the program that does it, and what was applied last.
#[derive(Debug)]
pub(crate) struct Configs {
    asks: mpsc::Sender<ConfigAsked>,
    /// The receiver, until [`Configs::hear`] takes it.
    heard: Mutex<Option<mpsc::Receiver<ConfigAsked>>>,
    last: Mutex<Option<Applied>>,
    /// Makes versions of fingerprints, from which the text and its secrets cannot be guessed.
    key: RandomState,
}

impl Default for Configs {
    fn default() -> Self {
        // One request at a time: each changes what the next one would be about.
        let (asks, heard) = mpsc::channel(1);
        Self {
            asks,
            heard: Mutex::new(Some(heard)),
            last: Mutex::default(),
            key: RandomState::new(),
        }
    }
}

impl Configs {
    /// Returns the receiver of requests, or `None` if it was taken before.
    pub(crate) fn hear(&self) -> Option<mpsc::Receiver<ConfigAsked>> {
        self.heard.lock().take()
    }

    /// Asks, and waits for the outcome.
    ///
    /// # Errors
    /// Returns why it was not done.
    pub(crate) async fn ask(&self, actor: String, ask: ConfigAsk) -> Result<(), NotApplied> {
        if self.heard.lock().is_some() {
            return Err(NotApplied::NobodyHears);
        }
        let (told, hears) = oneshot::channel();
        let asked = ConfigAsked { actor, ask, told };
        self.asks.try_send(asked).map_err(|_| NotApplied::UnderWay)?;
        hears.await.unwrap_or(Err(NotApplied::Stopped))
    }

    /// Returns the version of a text with this fingerprint. Versions of another process are other ones.
    pub(crate) fn version(&self, fingerprint: u64) -> String {
        format!("{:016x}", self.key.hash_one(fingerprint))
    }

    pub(crate) fn last(&self) -> Option<Applied> {
        self.last.lock().clone()
    }

    pub(crate) fn set_last(&self, applied: Applied) {
        *self.last.lock() = Some(applied);
    }
}
