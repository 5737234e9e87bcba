//! Tracks entries on their way: an entry may be durable before memory knows of it, and until then nothing
//! else says that its segment is needed.

use parking_lot::Mutex;

/// The earliest places where the entries that are being put can be.
#[derive(Debug, Default)]
pub(super) struct Putting(Mutex<Vec<u64>>);

/// An entry that is being put, until memory knows of it or it is given up.
#[derive(Debug)]
pub(super) struct UnconfirmedEntry<'p> {
    putting: &'p Putting,
    from: u64,
}

// === impl Putting ===

impl Putting {
    /// Records that an entry is about to be put, at this place or behind it.
    pub(super) fn begin(&self, from: u64) -> UnconfirmedEntry<'_> {
        self.0.lock().push(from);
        UnconfirmedEntry { putting: self, from }
    }

    /// Returns the place before which none of the entries can be.
    pub(super) fn oldest(&self) -> u64 {
        self.0.lock().iter().copied().min().unwrap_or(u64::MAX)
    }
}

// === impl UnconfirmedEntry ===

impl Drop for UnconfirmedEntry<'_> {
    fn drop(&mut self) {
        let mut all = self.putting.0.lock();
        if let Some(at) = all.iter().position(|from| *from == self.from) {
            all.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};
    use std::time::{Duration, Instant};

    use log::Options;

    use super::super::{Parked, ParkedEntry};

    /// Waits for something that another thread does.
    fn until(mut holds: impl FnMut() -> bool) {
        let began = Instant::now();
        while !holds() {
            assert!(began.elapsed() < Duration::from_secs(30));
            std::thread::yield_now();
        }
    }

    #[test]
    fn an_entry_that_is_durable_and_not_yet_known_is_needed() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            lanes: 1,
            free_bytes_min: 0,
            quota_bytes: 1 << 20,
            segment_bytes: 64 << 10,
            ..Options::default()
        };
        let parked = Parked::new(folder.path().to_owned(), options, Arc::default(), None);
        let store = parked.open_store().unwrap();
        // This is the state after something else was recorded as gone.
        parked.state().last_resolved = u64::MAX;
        let begins = store.end();
        let mut copy = None;
        let mut put = pin!(parked.put(ParkedEntry::sample(), b"{}\n", false, &mut copy));
        let mut poll = || put.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let first = poll();
        assert!(first.is_pending(), "{first:?}");
        until(|| store.end() > begins);
        assert_eq!(parked.needed_from(&store), begins);
        until(|| match poll() {
            Poll::Ready(done) => done.is_ok(),
            Poll::Pending => false,
        });
        let known = parked.state().oldest();
        assert!(known < store.end(), "{known}");
        assert_eq!(parked.needed_from(&store), known);
        assert_eq!(parked.putting.oldest(), u64::MAX);
    }
}
