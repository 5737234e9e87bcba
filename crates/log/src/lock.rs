//! Mutexes whose holders do not panic half-way.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks. A panic elsewhere leaves what is inside as sound as it was: what the writer may leave half changed
/// is not written from any more, since the log is poisoned then.
#[allow(clippy::disallowed_methods, reason = "this is what is to be used instead")]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
