//! The first and the next offset of each partition: what the brokers said last, and beyond that, what this
//! process has stored since. Without the latter, messages that are accepted already would count neither as
//! pending nor as done until the next look.

use parking_lot::Mutex;

#[derive(Debug)]
pub(crate) struct Ends(Mutex<Vec<PartitionEnds>>);

#[derive(Clone, Copy, Debug, Default)]
struct PartitionEnds {
    low: u64,
    high: u64,
    /// The offset after the last message that was stored since the latest look began.
    stored: u64,
}

// === impl Ends ===

impl Ends {
    pub(crate) fn new(partitions: u32) -> Self {
        Self(Mutex::new(vec![PartitionEnds::default(); partitions as usize]))
    }

    /// Returns the first and the next offset of each partition.
    pub(crate) fn all(&self) -> Vec<(u64, u64)> {
        let ends = self.0.lock();
        ends.iter()
            .map(|one| (one.low, one.high.max(one.stored)))
            .collect()
    }

    /// Notes that a message is stored.
    pub(crate) fn stored(&self, partition: u32, offset: u64) {
        if let Some(one) = self.0.lock().get_mut(partition as usize) {
            one.stored = one.stored.max(offset + 1);
        }
    }

    /// Notes that the brokers are asked now: their answer has what was stored before.
    pub(crate) fn begin_look(&self) {
        for one in self.0.lock().iter_mut() {
            one.high = one.high.max(one.stored);
            one.stored = 0;
        }
    }

    /// Notes what the brokers have said about one partition.
    pub(crate) fn found(&self, partition: u32, (low, high): (u64, u64)) {
        if let Some(one) = self.0.lock().get_mut(partition as usize) {
            (one.low, one.high) = (low, high);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_counts_at_once_and_an_older_answer_does_not_take_it_back() {
        let ends = Ends::new(2);
        ends.stored(1, 6);
        assert_eq!(ends.all(), [(0, 0), (0, 7)]);
        ends.begin_look();
        ends.stored(1, 7);
        ends.found(1, (2, 7));
        assert_eq!(ends.all()[1], (2, 8), "it was stored after the look began");
        // Somebody has made the topic anew.
        ends.begin_look();
        assert_eq!(ends.all()[1], (2, 8));
        ends.found(1, (0, 0));
        assert_eq!(ends.all()[1], (0, 0));
    }
}
