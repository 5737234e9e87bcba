//! Reads the output of `cargo test`: how many tests passed, and what failed tests printed. If only few fail,
//! they are run once more.

use anyhow::{Result, anyhow};

use crate::steps::{Steps, cargo, run_watched};
use crate::terminal::say;

/// The sums of the closing lines of all test binaries, and what failed tests printed.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Tally {
    passed: u64,
    failed: u64,
    ignored: u64,
    /// Number of test binaries that have begun but not reported an end: if one crashes, nobody knows what
    /// failed.
    open: u64,
    failures: Failures,
    /// Failures of tests that passed afterwards, for each run of tests.
    unsteady: Vec<Failures>,
}

/// The output of failed tests, collected so that the end of a long log repeats it.
#[derive(Debug, Default, PartialEq)]
struct Failures {
    /// The tests' names, in the order in which they failed.
    names: Vec<String>,
    lines: Vec<String>,
    /// Number of lines of the test whose output is being read; `None` outside of such output.
    of_this_one: Option<usize>,
}

impl Tally {
    /// Runs the tests of some targets whose names contain `filter`, `threads` at once (none: one for each
    /// core). If few fail, they are run once more, one after the other with nothing beside them but what else
    /// runs: a machine with two cores that runs servers beside a thousand tests may be late for one of them.
    /// They are reported at the end.
    ///
    /// # Errors
    /// If more tests fail, or one fails again, or a test binary did not report its end.
    pub(crate) fn run(
        &mut self,
        targets: &[&str],
        filter: Option<&str>,
        threads: Option<usize>,
    ) -> Result<()> {
        let mut command = cargo(&["test", "--workspace", "--locked", "--no-fail-fast"]);
        command.args(targets).arg("--");
        command.args(filter);
        command.args(threads.map(|threads| format!("--test-threads={threads}")));
        let Err(error) = run_watched(&mut command, |line| self.add(line)) else {
            return Ok(());
        };
        let crashed = std::mem::take(&mut self.open) > 0;
        let failures = std::mem::take(&mut self.failures);
        let failed = failures.names.len();
        let told = |failures: &Failures| anyhow!("{error:#}\n{}", failures.lines.join("\n"));
        if crashed || failed == 0 || failed > UNSTEADY_MAX {
            return Err(told(&failures));
        }
        say(&format!(
            "\nOnce more by themselves: {}",
            failures.names.join(", ")
        ));
        let mut again = cargo(&["test", "--workspace", "--locked", "--no-fail-fast"]);
        again.args(targets).args(["--", "--test-threads=1", "--exact"]);
        again.args(&failures.names);
        let mut second = Tally::default();
        run_watched(&mut again, |line| second.add(line)).map_err(|_| told(&failures))?;
        if second.passed < failed as u64 {
            return Err(told(&failures));
        }
        self.failed -= failed as u64;
        self.passed += failed as u64;
        self.unsteady.push(failures);
        Ok(())
    }

    /// Adds the tests of runs beside each other.
    ///
    /// # Errors
    /// Those of the runs.
    pub(crate) fn add_all(&mut self, runs: [(Self, Result<()>); 2]) -> Result<()> {
        let mut errors = Vec::new();
        for (other, result) in runs {
            self.passed += other.passed;
            self.failed += other.failed;
            self.ignored += other.ignored;
            self.unsteady.extend(other.unsteady);
            errors.extend(result.err().map(|error| format!("{error:#}")));
        }
        match errors.is_empty() {
            true => Ok(()),
            false => Err(anyhow!(errors.join("\n"))),
        }
    }

    /// The number of tests that were run, whatever their results.
    pub(crate) fn ran(&self) -> u64 {
        self.passed + self.failed
    }

    /// Prints how many tests there were. Tests that failed and then passed are mentioned at the end of all
    /// steps.
    pub(crate) fn tell(self, steps: &mut Steps) {
        say(&format!(
            "\n{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.ignored
        ));
        for failures in self.unsteady {
            let (names, lines) = (failures.names.join(", "), failures.lines.join("\n"));
            steps.remark(format!("{names}: {UNSTEADY}\n{lines}"));
        }
    }

    fn add(&mut self, line: &str) {
        self.failures.add(line);
        let is_begin = |line: &str| line.ends_with(" tests") || line.ends_with(" test");
        self.open += u64::from(line.strip_prefix("running ").is_some_and(is_begin));
        let Some((_, counts)) = line
            .trim()
            .strip_prefix("test result: ")
            .and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        self.open = self.open.saturating_sub(1);
        for count in counts.split("; ") {
            let mut words = count.split(' ');
            let (Some(Ok(number)), Some(what)) = (words.next().map(str::parse::<u64>), words.next()) else {
                continue;
            };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }
}

// === impl Failures ===

impl Failures {
    /// Reads a line. `---- NAME stdout ----` opens a failed test's output; the list of all failed tests ends
    /// it.
    fn add(&mut self, line: &str) {
        if let Some(name) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            self.names
                .push(name.trim_end_matches(" - should panic").to_owned());
        }
        if line.starts_with("---- ") && line.ends_with(" stdout ----") {
            self.of_this_one = Some(0);
        } else if line == "failures:" {
            self.of_this_one = None;
        }
        if let Some(lines) = &mut self.of_this_one {
            *lines += 1;
            if *lines <= LINES_OF_A_FAILURE {
                self.lines.push(line.to_owned());
            }
        }
    }
}

/// The number of lines of a failed test that are repeated; more can be looked up where it was printed.
const LINES_OF_A_FAILURE: usize = 40;

/// The remark about a test that failed and then passed when it was run once more.
pub(crate) const UNSTEADY: &str = "failed, and passed when run once more by itself. It is to be mended.";

/// If more tests than this fail in one run of tests, the machine is not to blame.
pub(crate) const UNSTEADY_MAX: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tally_adds_up_what_every_test_binary_says() {
        let mut tally = Tally::default();
        for line in [
            "running 3 tests",
            "test result: ok. 4 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.15s",
            "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 46.63s",
        ] {
            tally.add(line);
        }
        assert_eq!(
            tally,
            Tally {
                passed: 6,
                failed: 1,
                ignored: 1,
                ..Tally::default()
            }
        );
    }

    #[test]
    fn runs_beside_each_other_are_added_up_and_all_their_errors_are_told() {
        let ran = |passed, failed| Tally {
            passed,
            failed,
            ..Tally::default()
        };
        let mut all = ran(1, 0);
        assert!(all.add_all([(ran(2, 0), Ok(())), (ran(3, 0), Ok(()))]).is_ok());
        let failed = |why: &'static str| Err(anyhow!(why));
        let error = all.add_all([(ran(0, 1), failed("first")), (ran(1, 1), failed("second"))]);
        assert_eq!(error.unwrap_err().to_string(), "first\nsecond");
        assert_eq!(all, ran(7, 2));
    }

    #[test]
    fn a_binary_that_does_not_say_how_it_ended_has_crashed() {
        let mut tally = Tally::default();
        let mut open_after = |line| {
            tally.add(line);
            tally.open
        };
        let ended =
            "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s";
        let lines = [
            ("running 1 test", 1),
            (ended, 0),
            ("running 3 tests", 1),
            ("running 2 tests", 2),
            (ended, 1),
        ];
        for (line, open) in lines {
            assert_eq!(open_after(line), open, "{line}");
        }
    }

    #[test]
    fn what_a_failed_test_printed_is_kept_and_no_more() {
        let mut tally = Tally::default();
        let long = "a line\n".repeat(100);
        let printed = format!(
            "test a ... FAILED\n\nfailures:\n\n---- a stdout ----\nthread 'a' panicked\n\n---- b stdout ----\n{long}\
             failures:\n    a\n    b\n\ntest result: FAILED. 0 passed; 2 failed"
        );
        printed.lines().for_each(|line| tally.add(line));
        let told = &tally.failures.lines;
        assert_eq!(told[..3], ["---- a stdout ----", "thread 'a' panicked", ""]);
        assert_eq!(told.len(), 3 + LINES_OF_A_FAILURE);
        assert_eq!(told[3], "---- b stdout ----");
        assert_eq!(tally.failures.names, ["a"]);
    }
}
