//! Counts by flow, on one core: what went through its filters, and what became of it.
//!
//! Requests count for the first flow that had a filter for them. Documents, and bulks and single writes that
//! went on whole, count for the flow whose `bulk_reshuffle` has taken them.

use std::collections::BTreeMap;

use bulk::Why;
use serde_json::{Map, Value, json};

use crate::metrics::{Count, Counts};
use crate::why::{HeadWhy, SingleWhy};

/// The counts of a flow on one core.
#[derive(Debug, Default)]
pub(crate) struct FlowCounts {
    pub(crate) requests: Count,
    /// Documents of split bulks, and of single writes that were sent as bulks.
    pub(crate) docs: Count,
    pub(crate) docs_queued: Count,
    passed: Counts<{ Why::ALL.len() }>,
    passed_by_head: Counts<{ HeadWhy::ALL.len() }>,
    single_passed_by_plan: Counts<{ Why::ALL.len() }>,
    single_passed_because: Counts<{ SingleWhy::ALL.len() }>,
}

/// The counts of a flow on all cores.
#[derive(Debug, Default)]
pub(crate) struct FlowSums {
    pub(crate) requests: u64,
    pub(crate) docs: u64,
    pub(crate) docs_queued: u64,
    /// Bulks that went on whole, by reason; only reasons that have occurred.
    passed: BTreeMap<&'static str, u64>,
    /// The same of single writes.
    single_passed: BTreeMap<&'static str, u64>,
}

// === impl FlowCounts ===

impl FlowCounts {
    pub(crate) fn pass(&self, why: Why) {
        self.passed[why as usize].add(1);
    }

    pub(crate) fn pass_by_head(&self, why: HeadWhy) {
        self.passed_by_head[why as usize].add(1);
    }

    pub(crate) fn pass_single(&self, why: SingleWhy) {
        self.single_passed_because[why as usize].add(1);
    }

    pub(crate) fn pass_single_by_plan(&self, why: Why) {
        self.single_passed_by_plan[why as usize].add(1);
    }

    pub(crate) fn add_to(&self, sums: &mut FlowSums) {
        sums.requests += self.requests.get();
        sums.docs += self.docs.get();
        sums.docs_queued += self.docs_queued.get();
        for why in Why::ALL {
            add(&mut sums.passed, why.as_str(), &self.passed[why as usize]);
            add(
                &mut sums.single_passed,
                why.as_str(),
                &self.single_passed_by_plan[why as usize],
            );
        }
        for why in HeadWhy::ALL {
            add(&mut sums.passed, why.as_str(), &self.passed_by_head[why as usize]);
        }
        for why in SingleWhy::ALL {
            let count = &self.single_passed_because[why as usize];
            add(&mut sums.single_passed, why.as_str(), count);
        }
    }
}

fn add(sums: &mut BTreeMap<&'static str, u64>, why: &'static str, count: &Count) {
    match count.get() {
        0 => {}
        count => *sums.entry(why).or_default() += count,
    }
}

// === impl FlowSums ===

impl FlowSums {
    pub(crate) fn bulk_passed(&self) -> u64 {
        self.passed.values().sum()
    }

    pub(crate) fn single_passed(&self) -> u64 {
        self.single_passed.values().sum()
    }

    /// Returns the counts as `/stats` shows them.
    pub(crate) fn to_json(&self) -> Value {
        let by_reason = |passed: &BTreeMap<&'static str, u64>| -> Map<String, Value> {
            let reasons = passed.iter();
            reasons
                .map(|(why, count)| ((*why).to_owned(), json!(count)))
                .collect()
        };
        json!({
            "requests": self.requests,
            "docs": self.docs,
            "docs_queued": self.docs_queued,
            "bulk_passed": self.bulk_passed(),
            "single_passed": self.single_passed(),
            "passed_because": by_reason(&self.passed),
            "single_passed_because": by_reason(&self.single_passed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_summed_over_cores_and_those_that_never_occurred_are_left_out() {
        let cores = [FlowCounts::default(), FlowCounts::default()];
        cores[0].docs.add(7);
        cores[1].docs.add(3);
        cores[0].pass(Why::UnknownIndex);
        cores[1].pass(Why::UnknownIndex);
        cores[1].pass_by_head(HeadWhy::Level);
        cores[0].pass_single(SingleWhy::Level);
        let mut sums = FlowSums::default();
        cores.iter().for_each(|core| core.add_to(&mut sums));
        let told = sums.to_json();
        assert_eq!(told["docs"], 10);
        assert_eq!(told["bulk_passed"], 3);
        assert_eq!(
            told["passed_because"],
            json!({"unknown_index": 2, "level_cluster": 1})
        );
        assert_eq!(told["single_passed_because"], json!({"level_cluster": 1}));
    }
}
