//! Writes to memory that several cores use, counted in builds for tests.
//!
//! What a request does is meant to stay on its core. Each place that writes state which other cores read or
//! write for their requests says so by [`touches`], with a name for the state. A test sends requests and
//! looks at what the cores have touched. Builds without debug assertions contain none of this.

/// Notes that this thread is about to write `state`, which cores share.
#[cfg(not(any(debug_assertions, feature = "planted")))]
#[inline(always)]
pub fn touches(_state: &'static str) {}

#[cfg(any(debug_assertions, feature = "planted"))]
pub use counted::{by_cores, by_this_thread, is_core, touches};

#[cfg(any(debug_assertions, feature = "planted"))]
mod counted {
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeMap;

    use parking_lot::Mutex;

    type Counts = BTreeMap<&'static str, u64>;

    static OF_CORES: Mutex<Counts> = Mutex::new(Counts::new());

    thread_local! {
        static IS_CORE: Cell<bool> = const { Cell::new(false) };
        static OWN: RefCell<Counts> = const { RefCell::new(Counts::new()) };
    }

    /// Notes that this thread is about to write `state`, which cores share.
    pub fn touches(state: &'static str) {
        // A thread that is ending has no counts any more.
        let _ = OWN.try_with(|own| *own.borrow_mut().entry(state).or_default() += 1);
        if IS_CORE.get() {
            *OF_CORES.lock().entry(state).or_default() += 1;
        }
    }

    /// Notes that this thread serves requests.
    pub fn is_core() {
        IS_CORE.set(true);
    }

    /// Returns how often this thread has touched what cores share.
    pub fn by_this_thread() -> Counts {
        OWN.with_borrow(Counts::clone)
    }

    /// Returns how often all cores of this process have touched what they share.
    pub fn by_cores() -> Counts {
        OF_CORES.lock().clone()
    }
}
