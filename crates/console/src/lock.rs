//! One way to take a lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock as it is found. What locks protect here is changed in steps that each leave it sound, so a panic in
/// between does no harm.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
