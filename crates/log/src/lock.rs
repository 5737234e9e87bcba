//! Mutexes whose holders do not panic half-way.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks. A panic elsewhere (a caller's completion, say) leaves what is inside as sound as it was.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
