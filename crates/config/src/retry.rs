//! What becomes of an operation that a node refuses by itself, where a pipeline says other than the gateway
//! does.

use std::time::Duration;

/// How delivery tries again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Wait before the first retry; doubled for each further one.
    pub delay: Duration,
    /// The same after a node had too much to do (429).
    pub busy_delay: Duration,
    /// How often an operation is sent again that nodes refuse by itself; none: as the gateway does by
    /// default.
    pub times_max: Option<u32>,
    /// Which refusals are tried again.
    pub rules: RetryRules,
}

/// Which refusals of single operations are tried again, and which are dead letters at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryRules {
    /// 429.
    pub busy: bool,
    /// Any other 4xx.
    pub client_errors: bool,
    /// What is neither.
    pub others: bool,
    /// Tried again, whatever the three above say.
    pub permitted: Matching,
    /// Never tried again, whatever else is said.
    pub denied: Matching,
}

/// What a refusal has to say to be meant: one of the numbers or one of the words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matching {
    /// Statuses of items.
    pub statuses: Vec<u16>,
    /// Text within an error's type or reason.
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
    /// Whether a refusal is tried again; none: the gateway knows best.
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
