//! A lane's knowledge of records that the gateway failed on: which records are delivered one by one now,
//! which one is to blame, and how often the gateway has failed in a row. [`super::failing`] acts on it.

use wire::guard::Panicked;

/// A lane's knowledge of records that the gateway failed on.
#[derive(Debug, Default)]
pub(crate) struct Suspect {
    /// Positions of the first and the last record of the batch under way.
    under_way: Option<(u64, u64)>,
    /// Records up to this one are delivered one by one.
    through: Option<u64>,
    /// The record that was alone when the gateway failed, and how it failed.
    failing: Option<(u64, Panicked)>,
    /// The number of failures in a row.
    failures: u32,
    /// The position before which everything may have been executed.
    doubtful_before: u64,
}

// === impl Suspect ===

impl Suspect {
    /// Whether records are delivered one by one now.
    pub(crate) fn is_alone(&self) -> bool {
        self.through.is_some()
    }

    pub(crate) fn doubtful_before(&self) -> u64 {
        self.doubtful_before
    }

    /// Records that a batch of the records from `first` to `last` is under way. Returns how the gateway
    /// failed on the batch before, if it is not to be tried again.
    pub(super) fn begins(&mut self, (first, last): (u64, u64)) -> Option<Panicked> {
        self.under_way = Some((first, last));
        if self.through.is_some_and(|through| first > through) {
            self.through = None;
        }
        let (failing, panicked) = self.failing.as_ref()?;
        (*failing == first && first == last).then(|| panicked.clone())
    }

    /// Whether a batch has begun and has not ended.
    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Returns how often the gateway has failed in a row.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    pub(super) fn failed_again(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    /// Records that an operation has become a dead letter because the gateway failed on it by itself; returns
    /// the number of failures in a row.
    pub(super) fn buried(&mut self) -> u32 {
        self.failed_again();
        self.failures
    }

    /// Records that some operations of a record went well that the gateway fails on as a whole.
    pub(super) fn went_well(&mut self) {
        self.failures = 0;
    }

    /// Records that the batch under way is committed.
    pub(super) fn committed(&mut self) {
        let was_failing = self.failing.take().is_some();
        self.under_way = None;
        if !was_failing {
            self.failures = 0;
        }
    }

    pub(super) fn failed(&mut self, panicked: &Panicked) {
        self.failed_again();
        let Some((first, last)) = self.under_way.take() else {
            // Nothing was read yet: less is read next time.
            self.through = self.through.max(Some(0));
            return;
        };
        if first == last && self.through.is_some() {
            self.failing = Some((first, panicked.clone()));
        }
        self.through = self.through.max(Some(last));
        self.doubtful_before = self.doubtful_before.max(last + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_condemned_when_it_was_alone_and_pauses_grow_until_a_batch_goes_through() {
        let (mut suspect, panicked) = (Suspect::default(), Panicked::default());
        assert!(suspect.begins((10, 30)).is_none());
        suspect.failed(&panicked);
        assert!(suspect.is_alone());
        assert_eq!(suspect.doubtful_before(), 31);
        assert!(suspect.begins((10, 10)).is_none());
        suspect.committed();
        assert_eq!(suspect.failures, 0);
        assert!(suspect.begins((20, 20)).is_none());
        suspect.failed(&panicked);
        assert!(suspect.begins((20, 20)).is_some());
        suspect.committed();
        assert_eq!(suspect.failures, 1, "what dies of it is no success");
        assert!(suspect.begins((30, 30)).is_none());
        assert!(suspect.is_alone());
        suspect.committed();
        assert!(suspect.begins((40, 50)).is_none());
        assert!(!suspect.is_alone());
    }
}
