//! Keeps processes on one core, so that the figures of several processes don't mix.

use rustix::thread::{CpuSet, sched_setaffinity};

/// Keeps the calling thread, and the threads that it starts from now on, on one core.
///
/// # Errors
/// If the machine has no such core, or the process may not use it.
pub fn to_core(core: usize) -> std::io::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}
