//! The rules of a pipeline for operations that a node refuses individually, where these rules differ from the
//! gateway's defaults.

use std::time::Duration;

/// How delivery retries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The wait before the first retry. Each further wait is doubled.
    pub delay: Duration,
    /// The same wait after a node was overloaded (429).
    pub busy_delay: Duration,
    /// The most retries of an operation that nodes refuse individually. `None`: the gateway's default.
    pub times_max: Option<u32>,
    /// Which refusals are retried.
    pub rules: RetryRules,
}

/// Which refusals of single operations are retried, and which become dead letters at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryRules {
    /// Whether 429 is retried.
    pub busy: bool,
    /// Whether any other 4xx is retried.
    pub client_errors: bool,
    /// Whether all other failures are retried.
    pub others: bool,
    /// Refusals that are retried, whatever the three rules above say.
    pub permitted: Matching,
    /// Refusals that are never retried, whatever the other rules say.
    pub denied: Matching,
}

/// The refusals that match: by one of the statuses or one of the keywords.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matching {
    /// The statuses of items.
    pub statuses: Vec<u16>,
    /// Texts within an error's type or reason.
    pub keywords: Vec<String>,
}

// === impl RetryRules ===

impl Default for RetryRules {
    fn default() -> Self {
        Self {
            busy: true,
            client_errors: false,
            others: true,
            permitted: Matching::default(),
            denied: Matching::default(),
        }
    }
}

impl RetryRules {
    /// Returns whether a refusal is retried. `None`: the gateway's default applies.
    pub fn of(&self, status: u16, kind: &str, reason: &str) -> Option<bool> {
        if self.denied.means(status, kind, reason) {
            return Some(false);
        }
        if self.permitted.means(status, kind, reason) {
            return Some(true);
        }
        match status {
            429 => (!self.busy).then_some(false),
            400..=499 => self.client_errors.then_some(true),
            _ => (!self.others).then_some(false),
        }
    }
}

// === impl Matching ===

impl Matching {
    fn means(&self, status: u16, kind: &str, reason: &str) -> bool {
        let said = |word: &String| kind.contains(word.as_str()) || reason.contains(word.as_str());
        self.statuses.contains(&status) || self.keywords.iter().any(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_decide_only_what_they_speak_of_and_denied_comes_first() {
        let silent = RetryRules::default();
        for status in [400, 403, 404, 409, 429, 500, 503] {
            assert_eq!(silent.of(status, "t", "r"), None, "{status}");
        }
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let rules = RetryRules {
            busy: false,
            client_errors: true,
            others: false,
            permitted: Matching {
                statuses: vec![503],
                keywords: words(&["for a while"]),
            },
            denied: Matching {
                statuses: vec![404],
                keywords: words(&["mapper_parsing"]),
            },
        };
        assert_eq!(rules.of(429, "rejected", ""), Some(false));
        assert_eq!(rules.of(429, "rejected", "busy for a while"), Some(true));
        assert_eq!(rules.of(400, "t", ""), Some(true));
        assert_eq!(
            rules.of(400, "mapper_parsing_exception", "for a while"),
            Some(false)
        );
        assert_eq!(rules.of(404, "t", ""), Some(false));
        assert_eq!(rules.of(500, "t", ""), Some(false));
        assert_eq!(rules.of(503, "t", ""), Some(true));
    }
}
