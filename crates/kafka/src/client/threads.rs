//! The threads of this crate, and what a panic on one of them ends. The panic hook of the process has already
//! logged the place; here the consequence is logged. Nothing may unwind into the C code of the library, so
//! panics in its callbacks are caught here too.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, JoinHandle};

/// Starts a thread. Its function has to catch panics itself.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(run)
}

/// Runs a function. Returns `None` if it panics, and logs that with `comes_of_it`.
pub(crate) fn caught<T>(comes_of_it: &str, run: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(run))
        .inspect_err(|_| tracing::error!("the gateway has a bug: {comes_of_it}"))
        .ok()
}
