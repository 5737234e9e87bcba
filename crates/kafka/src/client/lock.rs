//! The one way to lock a mutex of the standard library.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, whatever panicked while it held the lock: what a mutex protects here is changed in single steps, so
/// a panic leaves it as sound as it was.
#[allow(clippy::disallowed_methods, reason = "this is what is to be used instead")]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
