//! Checks whether a queue's accounts add up: each accepted document is indexed, dead, parked, pending or
//! given up, and nothing else. The gateway reports all numbers as of one instant, so a sum that is ever wrong
//! is really wrong.

use serde_json::Value;

use crate::alerts::Finding;

/// The states of a document, by the gateway's names.
const STATES: [&str; 8] = [
    "indexed", "dead", "parked", "pending", "replayed", "purged", "skipped", "lost",
];

/// A consumer group's sum.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sum {
    /// Documents that were accepted, plus those that the group has gone back over.
    pub(crate) accounted: u64,
    /// Documents in all states together.
    pub(crate) states: u64,
}

impl Sum {
    /// Returns the sum of a queue's consumer group; none if the gateway does not report all numbers, or
    /// cannot: no gateway knows all numbers of a queue in Kafka at one instant.
    pub(crate) fn of(queue: &Value, group: &Value) -> Option<Self> {
        if queue["topic"].is_string() {
            return None;
        }
        let states = STATES.iter().map(|state| group[*state].as_u64());
        Some(Self {
            accounted: queue["accepted"]
                .as_u64()?
                .checked_add(group["rewound"].as_u64()?)?,
            states: states.sum::<Option<u64>>()?,
        })
    }

    pub(crate) fn adds_up(&self) -> bool {
        self.accounted == self.states
    }
}

/// Returns in words what does not add up, for all queues that a gateway reports.
pub(crate) fn faults(queues: &Value) -> Vec<Finding> {
    let mut faults = Vec::new();
    for (name, queue) in queues.as_object().into_iter().flatten() {
        for (group, told) in queue["groups"].as_object().into_iter().flatten() {
            if let Some(sum) = Sum::of(queue, told).filter(|sum| !sum.adds_up()) {
                faults.push(Finding {
                    part: format!("{name}/{group}"),
                    words: format!(
                        "queue {name}, group {group}: the accounts do not add up: {} documents were accepted, {} are accounted for",
                        sum.accounted, sum.states
                    ),
                });
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_states_are_what_was_accepted_or_it_is_said() {
        let mut queues = json!({"q": {"accepted": 10, "groups": {"c": {
            "indexed": 4, "dead": 1, "parked": 1, "pending": 3, "replayed": 1, "purged": 1, "skipped": 0, "lost": 0,
            "rewound": 1,
        }}}});
        assert_eq!(faults(&queues), []);
        queues["q"]["groups"]["c"]["indexed"] = json!(5);
        assert_eq!(faults(&queues).len(), 1);
        assert!(
            faults(&queues)[0]
                .words
                .contains("11 documents were accepted, 12 are accounted for")
        );
        queues["q"]["topic"] = json!("t");
        assert!(faults(&queues).is_empty(), "no gateway knows all of a topic");
        queues["q"] = json!({"accepted": 10, "groups": {"c": {"indexed": 4}}});
        assert!(faults(&queues).is_empty(), "what is not told is not judged");
    }
}
