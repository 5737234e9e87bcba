//! Checks the accounts while everything happens: accepted + rewound = indexed + dead + parked + replayed +
//! purged + skipped + lost + pending, for each consumer group, at any time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::check::{Account, Flaw, FlawKind};
use super::gateway_under_test::GatewayUnderTest;
use super::ledger::Ledger;

/// The states that must add up.
const STATES: [&str; 8] = [
    "indexed", "dead", "parked", "replayed", "purged", "skipped", "lost", "pending",
];
/// The states of documents that are still to be delivered: by the lanes, and apart from them.
const WAITING: [&str; 2] = ["pending", "parked"];

/// Returns what is wrong with a sample. `told` is the number of documents whose clients had already been told
/// that they are accepted.
pub(crate) fn flaws(queue: &Value, told: u64, groups: usize) -> Vec<Flaw> {
    let mut flaws = Vec::new();
    let mut wrong = |what: String| flaws.push(Flaw::new(FlawKind::Accounts, what));
    let number = |value: &Value, name: &str| value[name].as_u64();
    let Some(accepted) = number(queue, "accepted") else {
        wrong(format!("no accounts in {queue:.300}"));
        return flaws;
    };
    if accepted < told {
        wrong(format!(
            "{accepted} accepted, though clients had been told so of {told}"
        ));
    }
    let all = queue["groups"].as_object().into_iter().flatten();
    let mut count = 0;
    for (name, group) in all {
        count += 1;
        let states: Option<u64> = STATES.iter().map(|state| number(group, state)).sum();
        let sides = (number(group, "rewound").map(|rewound| accepted + rewound), states);
        if sides.0.is_none() || sides.0 != sides.1 {
            wrong(format!(
                "{name}: {:?} to account for, {:?} accounted for: {queue:.1000}",
                sides.0, sides.1
            ));
        }
    }
    if count != groups {
        wrong(format!("{count} consumer groups, not {groups}"));
    }
    flaws
}

/// Checks the accounts all the time until it is told to stop. Returns how often it could, and what was wrong.
pub(crate) fn watch(
    stop: &AtomicBool,
    place: &GatewayUnderTest,
    ledger: &Ledger,
    groups: usize,
) -> (u64, Vec<Flaw>) {
    let (mut samples, mut found) = (0, Vec::new());
    let Ok(admin) = place.admin_client() else {
        return (0, found);
    };
    while !stop.load(Ordering::Relaxed) && found.len() < FLAWS_MAX {
        let told = ledger.queued_documents();
        // While the gateway is down there is nobody to ask.
        if let Ok(queue) = place.stats(&admin) {
            samples += 1;
            found.extend(flaws(&queue, told, groups));
        }
        std::thread::sleep(BETWEEN_SAMPLES);
    }
    (samples, found)
}

/// Returns how many documents of a consumer group are still to be delivered, in its lanes or parked.
pub(crate) fn waiting(group: &Value) -> Option<u64> {
    WAITING.iter().map(|state| group[state].as_u64()).sum()
}

/// Returns the account of a consumer group, in the form that the checker needs.
pub(crate) fn account(queue: &Value, group: &str) -> Result<Account> {
    let one = &queue["groups"][group];
    let number = |value: &Value, name: &str| {
        let number = value[name].as_u64();
        number.with_context(|| format!("no {name} in the account of {group}: {queue:.500}"))
    };
    let waiting =
        waiting(one).with_context(|| format!("the account of {group} is not whole: {queue:.500}"))?;
    let other = ["replayed", "purged", "skipped", "rewound"].map(|state| number(one, state));
    Ok(Account {
        accepted: number(queue, "accepted")?,
        indexed: number(one, "indexed")?,
        dead: number(one, "dead")?,
        lost: number(one, "lost")?,
        waiting,
        other: other.into_iter().sum::<Result<u64>>()?,
    })
}

const BETWEEN_SAMPLES: Duration = Duration::from_millis(15);
/// The largest number of flaws that are kept: one that is found once is found again and again.
const FLAWS_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample() -> Value {
        let group = json!({
            "indexed": 5, "dead": 1, "parked": 3, "replayed": 0, "purged": 0, "skipped": 0, "lost": 2, "pending": 1,
            "rewound": 0,
        });
        json!({"accepted": 12, "groups": {"c0": group, "c1": group}})
    }

    #[test]
    fn a_sample_is_right_only_if_every_group_adds_up() {
        assert_eq!(flaws(&sample(), 12, 2), []);
        for state in STATES {
            let mut wrong = sample();
            wrong["groups"]["c1"][state] =
                json!(wrong["groups"]["c1"][state].as_u64().map(|number| number + 1));
            assert_eq!(flaws(&wrong, 12, 2).len(), 1, "{state}");
        }
        assert_eq!(flaws(&sample(), 13, 2).len(), 1, "fewer than clients were told");
        assert_eq!(flaws(&sample(), 12, 3).len(), 1, "a group is not there");
        assert_eq!(flaws(&json!({}), 0, 2).len(), 1, "no accounts");
    }

    #[test]
    fn an_account_is_read_whole_or_not_at_all() {
        let account = account(&sample(), "c0").expect("it is there");
        assert_eq!(
            (account.accepted, account.indexed, account.lost, account.waiting),
            (12, 5, 2, 4)
        );
        assert!(super::account(&sample(), "c2").is_err());
    }
}
