//! The pace that a peer must keep. It is judged in windows: a fast beginning gives no right to trickle for
//! hours while others wait for the memory and the connection.

use std::time::Duration;

use tokio::time::Instant;

use crate::alarm::Alarm;

/// Watches one message on its way from or to a peer.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    waiting_since: Option<Instant>,
    /// Time spent waiting in this window, before the present wait.
    waited: Duration,
    bytes_at_window: u64,
    bytes_before: u64,
}

/// The slowest pace that is tolerated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slowest {
    /// The longest wait for a single byte, and the length of a window.
    pub(crate) patience: Duration,
    /// The least bytes per second in each window; 0 allows any rate.
    pub(crate) rate_min: u64,
}

// === impl Pace ===

impl Pace {
    /// Ends a wait: the peer is not to blame for the time spent from now on.
    pub(crate) fn resume(&mut self) {
        if let Some(since) = self.waiting_since.take() {
            self.waited += since.elapsed();
        }
    }

    /// Notes that we wait for the peer, which has moved `bytes` bytes so far; returns false when the peer has
    /// been too slow. Sets `alarm` to the moment when the peer will have been silent for too long.
    pub(crate) fn wait(&mut self, bytes: u64, slowest: Slowest, alarm: &mut Alarm) -> bool {
        let now = Instant::now();
        let since = *self.waiting_since.get_or_insert(now);
        if bytes != self.bytes_before || since == now {
            self.bytes_before = bytes;
            alarm.set(now + slowest.patience);
        }
        let waited = self.waited + (now - since);
        if waited <= slowest.patience {
            return true;
        }
        let moved = bytes.saturating_sub(self.bytes_at_window);
        (self.waiting_since, self.waited, self.bytes_at_window) = (Some(now), Duration::ZERO, bytes);
        moved as f64 >= slowest.rate_min as f64 * waited.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    const SLOWEST: Slowest = Slowest {
        patience: Duration::from_secs(10),
        rate_min: 100,
    };

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_good_beginning_does_not_excuse_a_trickle() {
        let (mut pace, mut alarm) = (Pace::default(), Alarm::default());
        let mut bytes = 1_000_000;
        let mut seconds = 0;
        while pace.wait(bytes, SLOWEST, &mut alarm) {
            advance(Duration::from_secs(1)).await;
            (bytes, seconds) = (bytes + 1, seconds + 1);
            assert!(seconds < 30, "still tolerated");
        }
        assert!(seconds > 20, "the first window brought enough");
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn time_that_is_not_the_peers_does_not_count() {
        let (mut pace, mut alarm) = (Pace::default(), Alarm::default());
        for _ in 0..100 {
            assert!(pace.wait(7, SLOWEST, &mut alarm));
            pace.resume();
            advance(Duration::from_secs(5)).await;
        }
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_steady_peer_is_tolerated_and_a_silent_one_rings_the_alarm() {
        let (mut pace, mut alarm) = (Pace::default(), Alarm::default());
        for second in 0..100 {
            assert!(pace.wait(second * 101, SLOWEST, &mut alarm));
            advance(Duration::from_secs(1)).await;
        }
        let due = alarm.due();
        assert!(pace.wait(99 * 101, SLOWEST, &mut alarm));
        assert_eq!(alarm.due(), due, "no byte came, so it is not put off");
    }
}
