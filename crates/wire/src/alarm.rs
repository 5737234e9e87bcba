//! One timer per connection, re-armed lazily: moving a deadline later (as every exchange does) costs a store,
//! not a trip through the timer wheel.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// A deadline that may be moved cheaply.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    due: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

// === impl Alarm ===

impl Alarm {
    /// Makes the alarm ring at `due`, whatever was set before.
    pub(crate) fn set(&mut self, due: Instant) {
        self.due = Some(due);
    }

    pub(crate) fn set_after(&mut self, wait: Duration) {
        self.set(Instant::now() + wait);
    }

    pub(crate) fn clear(&mut self) {
        self.due = None;
    }

    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Ready once the deadline has passed; pending for ever without a deadline.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(due) = self.due else { return Poll::Pending };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if sleep.deadline() > due {
            sleep.as_mut().reset(due);
        }
        while sleep.as_mut().poll(cx).is_ready() {
            if sleep.deadline() >= due {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(due); // rang for an earlier deadline that has been moved since
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn rings_at_the_last_deadline_set_be_it_later_or_earlier() {
        let start = Instant::now();
        let mut alarm = Alarm::default();
        alarm.set(start + Duration::from_secs(1));
        assert!(poll_fn(|cx| Poll::Ready(alarm.poll(cx).is_pending())).await);
        alarm.set(start + Duration::from_secs(5));
        poll_fn(|cx| alarm.poll(cx)).await;
        assert_eq!(start.elapsed().as_secs(), 5);
        alarm.set(start + Duration::from_secs(60));
        assert!(poll_fn(|cx| Poll::Ready(alarm.poll(cx).is_pending())).await);
        alarm.set(start + Duration::from_secs(8));
        poll_fn(|cx| alarm.poll(cx)).await;
        assert_eq!(start.elapsed().as_secs(), 8);
    }
}
