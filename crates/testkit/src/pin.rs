//! Processes kept on one core, so that figures of several don't mix.

use rustix::thread::{CpuSet, sched_setaffinity};

/// Keeps the calling thread, and those it starts from now on, on one core.
///
/// # Errors
/// When the machine has no such core, or it isn't allowed.
pub fn to_core(core: usize) -> std::io::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}
