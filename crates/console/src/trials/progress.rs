//! The progress of a trial, from the lines that `tidegate compare` prints while it runs.

use serde::Serialize;

/// How far a trial is.
#[derive(Debug, Serialize)]
pub(crate) struct Progress {
    /// Runs that are over.
    done: u64,
    runs: u64,
    /// What it said last.
    said: String,
    /// `running`, or how the end was asked for: `cancelled` or `interrupted`.
    pub(super) state: &'static str,
    /// Why nothing could be compared.
    #[serde(skip)]
    pub(super) why: Option<String>,
}

impl Progress {
    pub(super) fn new(runs: u64) -> Self {
        Self {
            done: 0,
            runs,
            said: String::new(),
            state: "running",
            why: None,
        }
    }

    /// Takes a line.
    pub(super) fn take(&mut self, line: &str) {
        let line: String = line.chars().take(LINE_MAX).collect();
        if line.starts_with("round ") {
            self.done += 1;
        }
        match line.strip_prefix("tidegate: ") {
            Some(why) => self.why = Some(why.to_owned()),
            None => self.said = line,
        }
    }
}

const LINE_MAX: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_are_over_are_counted_and_the_reason_of_a_failure_is_kept() {
        let mut progress = Progress::new(4);
        progress.take("warming up both ways");
        assert_eq!((progress.done, &*progress.said), (0, "warming up both ways"));
        progress.take("round 1, new     direct   acknowledged in 0.10 s");
        progress.take("tidegate: connection refused");
        assert_eq!(
            (progress.done, progress.why.as_deref()),
            (1, Some("connection refused"))
        );
        assert!(progress.said.starts_with("round 1"));
    }
}
