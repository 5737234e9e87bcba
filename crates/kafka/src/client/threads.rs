//! The threads of this crate, and what a panic on one of them ends. The process's hook for panics has told
//! where it was; here it is said what comes of it. Nothing may unwind into the library's C, so what it calls
//! is caught here too.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, JoinHandle};

/// Starts a thread, which catches its panics itself.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(run)
}

/// Runs it; none if it panics, which is said with what `comes_of_it`.
pub(crate) fn caught<T>(comes_of_it: &str, run: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(run))
        .inspect_err(|_| tracing::error!("the gateway has a bug: {comes_of_it}"))
        .ok()
}
