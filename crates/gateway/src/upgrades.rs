//! Requests at the admin port to replace this program with another one. The program that runs the gateway
//! receives these requests and starts the new program.

use parking_lot::Mutex;

use tokio::sync::{mpsc, oneshot};

/// The sender that tells the asking client whether the upgrade begins, or why it does not.
pub type UpgradeAsked = oneshot::Sender<Result<(), NoUpgrade>>;

/// Why there is no upgrade.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoUpgrade {
    /// Nothing receives upgrade requests.
    #[error("what runs this gateway does not upgrade it")]
    NobodyHears,
    /// Another upgrade is under way.
    #[error("another upgrade is under way")]
    UnderWay,
    /// The gateway stops.
    #[error("it was stopped meanwhile")]
    Stopped,
    /// The new program is not fit; the string is its own message.
    #[error("{0}")]
    NotFit(String),
}

/// The channel between the clients that ask for an upgrade and the program that carries it out.
#[derive(Debug)]
pub(crate) struct Upgrades {
    asks: mpsc::Sender<UpgradeAsked>,
    /// The receiver, until [`Upgrades::hear`] takes it.
    heard: Mutex<Option<mpsc::Receiver<UpgradeAsked>>>,
}

impl Default for Upgrades {
    fn default() -> Self {
        // One request at a time: a second one would concern a program that is being replaced.
        let (asks, heard) = mpsc::channel(1);
        Self {
            asks,
            heard: Mutex::new(Some(heard)),
        }
    }
}

impl Upgrades {
    /// Returns the receiver of upgrade requests, or `None` if it was taken before.
    pub(crate) fn hear(&self) -> Option<mpsc::Receiver<UpgradeAsked>> {
        self.heard.lock().take()
    }

    /// Asks for an upgrade, and waits for the outcome.
    ///
    /// # Errors
    /// Returns why there is no upgrade.
    pub(crate) async fn ask(&self) -> Result<(), NoUpgrade> {
        if self.heard.lock().is_some() {
            return Err(NoUpgrade::NobodyHears);
        }
        let (ask, told) = oneshot::channel();
        self.asks.try_send(ask).map_err(|_| NoUpgrade::UnderWay)?;
        told.await.unwrap_or(Err(NoUpgrade::Stopped))
    }
}
