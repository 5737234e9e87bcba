//! The orderly end of a server: one signal per worker, which reaches all of its connections.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};

use tokio::time::Instant;

/// The result of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainReport {
    /// Connections that were open when the drain began.
    pub open: u64,
    /// Connections that had to be cut at the deadline.
    pub cut: u64,
}

/// The progress of the end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    #[default]
    Serving,
    /// Connections finish the requests in flight and begin nothing.
    Draining,
    /// Connections stop at once.
    Cut,
}

/// The signal. Waiting connections leave their waker once and are woken together.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    phase: Cell<Phase>,
    /// How long connections without a request are still read although it is time to end.
    hears_until: Cell<Option<Instant>>,
    wakers: RefCell<Vec<Option<Waker>>>,
    free: RefCell<Vec<usize>>,
}

/// A listener or connection that is told of the phase, until dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    signal: Rc<Signal>,
    at: usize,
}

// === impl Signal ===

impl Signal {
    pub(crate) fn phase(&self) -> Phase {
        self.phase.get()
    }

    pub(crate) fn hear_until(&self, until: Option<Instant>) {
        self.hears_until.set(until);
    }

    pub(crate) fn hears_until(&self) -> Option<Instant> {
        self.hears_until.get()
    }

    pub(crate) fn raise(&self, phase: Phase) {
        self.phase.set(self.phase.get().max(phase));
        let wakers: Vec<Waker> = self.wakers.borrow().iter().flatten().cloned().collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn register(self: &Rc<Self>) -> Registration {
        let at = self.free.borrow_mut().pop().unwrap_or_else(|| {
            let mut wakers = self.wakers.borrow_mut();
            wakers.push(None);
            wakers.len() - 1
        });
        Registration {
            signal: Rc::clone(self),
            at,
        }
    }
}

// === impl Registration ===

impl Registration {
    /// Returns the present phase; the task of `cx` is woken when it changes.
    pub(crate) fn phase(&self, cx: &mut Context<'_>) -> Phase {
        let mut wakers = self.signal.wakers.borrow_mut();
        match &mut wakers[self.at] {
            Some(waker) if waker.will_wake(cx.waker()) => {}
            slot => *slot = Some(cx.waker().clone()),
        }
        self.signal.phase.get()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.signal.wakers.borrow_mut()[self.at] = None;
        self.signal.free.borrow_mut().push(self.at);
    }
}
