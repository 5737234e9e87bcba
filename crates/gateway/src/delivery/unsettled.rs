//! Drops the parked operations and the dead letters of batches that were not committed: these batches are
//! delivered again.

use crate::queue::dead_letters::{DeadLetters, LettersError};
use crate::queue::parked::{Parked, ParkedError};
use crate::queue::{Group, Queue};

/// Why parked operations or dead letters could not be dropped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotDropped {
    #[error("what was parked of it stays: {0}")]
    Parked(#[from] ParkedError),
    #[error(transparent)]
    Letters(#[from] LettersError),
}

/// Drops the parked operations and the dead letters of batches that were not committed. To be called only
/// while nothing of the group is under way.
pub(crate) fn drop_unsettled(queue: &Queue, group: &str) -> Result<(), NotDropped> {
    let (letters, parked) = (&queue.dead_letters, queue.parked_of(group));
    if let Some(parked) = parked {
        parked.drop_unsettled()?;
        drop_letters(letters, group, &parked, |(number, op)| parked.holds(number, op))?;
    }
    Ok(letters.drop_unsettled(group, &queue.committed())?)
}

/// Drops the dead letters of operations that are still parked, as far as these are meant: the operations are
/// sent again, and die again. Nothing of these operations may be under way.
pub(crate) fn drop_letters(
    letters: &DeadLetters,
    group: &str,
    parked: &Parked,
    is_meant: impl Fn((u64, u32)) -> bool,
) -> Result<(), LettersError> {
    letters.drop_parked(group, &is_meant)?;
    // An operation whose letter is known to be there is not sent again.
    parked.unconfirmed_letters.forget(is_meant);
    Ok(())
}

/// A moment, as the ends of the dead letters and of the parked operations at that time.
#[derive(Clone, Copy, Default)]
pub(crate) struct StoreEnds {
    letters: u64,
    parked: u64,
}

impl StoreEnds {
    pub(crate) fn now(group: &Group) -> Self {
        Self {
            letters: group.queue.dead_letters.end(),
            parked: group.parked().map_or(0, |parked| parked.end()),
        }
    }
}

/// Drops one lane's parked operations and dead letters of batches that were not committed, since a moment.
/// Nothing of that lane may be under way; other lanes may be.
pub(crate) fn drop_unsettled_of_lane(group: &Group, lane: u32, since: StoreEnds) -> Result<(), NotDropped> {
    if let Some(parked) = group.parked() {
        parked.drop_unsettled_of(lane, since.parked)?;
    }
    let (letters, committed) = (&group.queue.dead_letters, group.queue.committed());
    Ok(letters.drop_unsettled_of_lane(&group.settings.group, lane, since.letters, &committed)?)
}
