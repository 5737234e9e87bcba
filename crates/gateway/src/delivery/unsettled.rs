//! Drops the parked operations and the dead letters of batches that were not committed: these batches are
//! delivered again. Decides about the dead letters of parked operations of which it is not known whether
//! they have ended.

use std::collections::BTreeSet;

use crate::queue::dead_letters::{DeadLetters, LettersError};
use crate::queue::parked::{Ends, LetterFate, Parked, ParkedError};
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
    Ok(letters.drop_unsettled(group, &queue.committed(), true)?)
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

/// Decides about the letters of parked operations that this gateway gave up before it lost their lanes, as
/// far as the topic says how the operations ended. Blocks on the brokers.
pub(crate) fn decide_letters(letters: &DeadLetters, group: &str, parked: &Parked) -> Result<(), NotDropped> {
    // No lane comes meanwhile.
    let _one = parked.taking_over.lock();
    let asked = parked.letters_in_doubt();
    if asked.is_empty() {
        return Ok(());
    }
    let ends = parked.ends_of(&asked)?;
    Ok(settle_letters(letters, group, parked, &ends)?)
}

/// Drops the letters of operations that end elsewhere, and has the others count, as far as the ends of the
/// operations are known.
pub(crate) fn settle_letters(
    letters: &DeadLetters,
    group: &str,
    parked: &Parked,
    ends: &Ends,
) -> Result<(), LettersError> {
    let unconfirmed = &parked.unconfirmed_letters;
    let (mut dropped, mut counting) = (BTreeSet::new(), Vec::new());
    for (operation, end) in ends {
        // Others may have been decided meanwhile.
        if !unconfirmed.has(*operation) {
            continue;
        }
        match end.fate_of_letter(unconfirmed.owner_of(*operation)) {
            LetterFate::Open => continue,
            LetterFate::Counts => counting.push(*operation),
            LetterFate::Dropped => drop(dropped.insert(*operation)),
        }
    }
    let end = |decided: Vec<(u64, u32)>| {
        let number = unconfirmed.end(decided);
        if number > 0 {
            letters.committed(group, number);
        }
    };
    // These need no change of the catalog, which may fail.
    end(counting);
    if !dropped.is_empty() {
        letters.drop_parked(group, |operation| dropped.contains(&operation))?;
    }
    end(dropped.into_iter().collect());
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

#[cfg(test)]
mod tests;
