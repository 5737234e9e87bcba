//! Somebody asks at the admin port for another program in this one's place. Programs are the business of
//! whoever runs the gateway, who hears of it here.

use parking_lot::Mutex;

use tokio::sync::{mpsc, oneshot};

/// Somebody who waits for what becomes of an upgrade: that it begins, or why not.
pub type UpgradeAsked = oneshot::Sender<Result<(), NoUpgrade>>;

/// Why there is no upgrade.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoUpgrade {
    /// Nobody hears those who ask.
    #[error("what runs this gateway does not upgrade it")]
    NobodyHears,
    /// One at a time.
    #[error("another upgrade is under way")]
    UnderWay,
    /// The gateway ends.
    #[error("it was stopped meanwhile")]
    Stopped,
    /// The new program is not fit; what it says itself.
    #[error("{0}")]
    NotFit(String),
}

/// Those who ask, and who hears them.
#[derive(Debug)]
pub(crate) struct Upgrades {
    asks: mpsc::Sender<UpgradeAsked>,
    /// Until somebody hears.
    heard: Mutex<Option<mpsc::Receiver<UpgradeAsked>>>,
}

impl Default for Upgrades {
    fn default() -> Self {
        // One at a time: another one would find another program.
        let (asks, heard) = mpsc::channel(1);
        Self {
            asks,
            heard: Mutex::new(Some(heard)),
        }
    }
}

impl Upgrades {
    /// What is asked from now on; none, if somebody hears already.
    pub(crate) fn hear(&self) -> Option<mpsc::Receiver<UpgradeAsked>> {
        self.heard.lock().take()
    }

    /// Asks, and waits for what becomes of it.
    ///
    /// # Errors
    /// Why there is no upgrade.
    pub(crate) async fn ask(&self) -> Result<(), NoUpgrade> {
        if self.heard.lock().is_some() {
            return Err(NoUpgrade::NobodyHears);
        }
        let (ask, told) = oneshot::channel();
        self.asks.try_send(ask).map_err(|_| NoUpgrade::UnderWay)?;
        told.await.unwrap_or(Err(NoUpgrade::Stopped))
    }
}
