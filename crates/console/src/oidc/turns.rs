//! The turns of browsers that have come back from the provider with a code.
//!
//! Strangers can bring codes of any kind, and the provider is asked about each. Codes cannot be guessed, so
//! there is nothing to slow down; but strangers must not keep the console and the provider busy. They wait
//! for turns and are never shut out: behind a proxy, all browsers have one address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::peer::peer_of;

/// The turns of all.
pub(super) struct Turns {
    all: Arc<Semaphore>,
    of_peers: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
}

/// A turn, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _of_peer: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

// === impl Turns ===

impl Default for Turns {
    fn default() -> Self {
        Self {
            all: Arc::new(Semaphore::new(AT_ONCE)),
            of_peers: Mutex::default(),
        }
    }
}

impl Turns {
    /// Waits for a turn of a browser at this address. `None` if there is none in time.
    pub(super) async fn take(&self, address: IpAddr) -> Option<Turn> {
        let of_peer = self.of_peer(peer_of(address));
        let both = async {
            // In this order, or those of one peer who wait would keep the others waiting.
            let of_peer = of_peer.acquire_owned().await.ok()?;
            let of_all = Arc::clone(&self.all).acquire_owned().await.ok()?;
            Some(Turn {
                _of_peer: of_peer,
                _of_all: of_all,
            })
        };
        timeout(WITHIN, both).await.ok()?
    }

    fn of_peer(&self, peer: IpAddr) -> Arc<Semaphore> {
        let mut of_peers = self.of_peers.lock();
        // Whoever has a turn, or waits for one, has a clone.
        of_peers.retain(|_, turns| Arc::strong_count(turns) > 1);
        let turns = of_peers.entry(peer);
        Arc::clone(turns.or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE_OF_PEER))))
    }
}

/// The largest number of turns at once. The provider is asked over half as many connections.
const AT_ONCE: usize = 16;
const AT_ONCE_OF_PEER: usize = 8;
const WITHIN: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stranger_with_all_turns_of_an_address_keeps_nobody_waiting_elsewhere() {
        let (turns, began) = (Turns::default(), Instant::now());
        let [stranger, other] = [1, 2].map(|host| IpAddr::from([10, 0, 0, host]));
        let mut taken = Vec::new();
        for _ in 0..AT_ONCE_OF_PEER {
            taken.push(turns.take(stranger).await.unwrap());
        }
        assert!(turns.take(other).await.is_some());
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert!(turns.take(stranger).await.is_none());
        assert_eq!(began.elapsed(), WITHIN);
        // At the same address, the next one comes once a turn has ended.
        let ends = async {
            sleep(Duration::from_secs(1)).await;
            taken.pop();
        };
        let (next, ()) = tokio::join!(turns.take(stranger), ends);
        assert!(next.is_some() && began.elapsed() < 2 * WITHIN);
        drop((next, taken));
        drop(turns.take(other).await);
        assert_eq!(
            turns.of_peers.lock().len(),
            1,
            "addresses without turns are forgotten"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn there_is_a_bound_for_all_addresses() {
        let turns = Turns::default();
        let mut taken = Vec::new();
        for host in 0..2 * AT_ONCE {
            taken.extend(turns.take(IpAddr::from([10, 0, 0, host as u8])).await);
        }
        assert_eq!(taken.len(), AT_ONCE);
    }
}
