//! Memory that one plan leaves behind for the next.

use std::cell::RefCell;

use bulk::Scratch;

/// Plans with the memory that earlier plans left behind. The memory is taken out while the plan runs: after a
/// panic it may be half changed, so it is dropped and created anew.
pub(crate) fn with_scratch<T>(kept: &RefCell<Scratch>, plan: impl FnOnce(&mut Scratch) -> T) -> T {
    let mut scratch = kept.take();
    let planned = plan(&mut scratch);
    kept.replace(scratch);
    planned
}
