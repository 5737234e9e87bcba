//! The section `runner`: how the requests are run.

use std::path::{Path, PathBuf};

use settings::problem::Problems;
use settings::yaml::Node;

use super::account::{BasicAuth, basic_auth};
use super::section::{Section, beside, number_in};
use super::text::Text;

/// How the requests are run.
#[derive(Debug, Clone, Default)]
pub struct Runner {
    /// Number of rounds over all requests, by all users together; none: until a time or another limit ends
    /// the run.
    pub total_rounds: Option<u64>,
    /// Leave out the warm-up.
    pub no_warm: bool,
    /// Statuses at which the warm-up goes on without asking, besides those below 400.
    pub valid_status_codes_during_warmup: Vec<u16>,
    /// Exit with 1 if an answer was invalid.
    pub assert_invalid: bool,
    /// Exit with 3 if a request got no answer.
    pub assert_error: bool,
    /// Let a user go on with its round after an answer that fails its assertions.
    pub continue_on_assert_invalid: bool,
    /// Skip an assertion on a field that the answer does not have.
    pub skip_invalid_assert: bool,
    /// Let each user forget, at the beginning of a round, what earlier answers registered.
    pub reset_context: bool,
    /// Log every request and its answer.
    pub log_requests: bool,
    /// Log requests that were answered with one of these; 0 stands for no answer.
    pub log_status_codes: Vec<u16>,
    /// Do not check servers' certificates.
    pub insecure: bool,
    /// Certificate authorities (PEM) against which servers' certificates are checked; none: the system's.
    pub ca: Option<PathBuf>,
    /// The prefix of a `url` that begins with `/`.
    pub(crate) default_endpoint: Option<Text>,
    /// The account of requests without `basic_auth`.
    pub(crate) default_basic_auth: Option<BasicAuth>,
}

// === impl Runner ===

impl Runner {
    /// Reads the section; returns the defaults if there is none.
    pub(super) fn read(node: Option<&Node>, folder: &Path, problems: &mut Problems) -> Runner {
        let Some(mut section) = node.and_then(|node| Section::of(node, "runner", problems)) else {
            return Runner::default();
        };
        let runner = Runner {
            total_rounds: section.number("total_rounds", 1, u64::MAX),
            no_warm: section.flag("no_warm").unwrap_or(false),
            valid_status_codes_during_warmup: statuses(&mut section, "valid_status_codes_during_warmup"),
            assert_invalid: section.flag("assert_invalid").unwrap_or(false),
            assert_error: section.flag("assert_error").unwrap_or(false),
            continue_on_assert_invalid: section.flag("continue_on_assert_invalid").unwrap_or(false),
            skip_invalid_assert: section.flag("skip_invalid_assert").unwrap_or(false),
            reset_context: section.flag("reset_context").unwrap_or(false),
            log_requests: section.flag("log_requests").unwrap_or(false),
            log_status_codes: statuses(&mut section, "log_status_codes"),
            insecure: section.flag("insecure").unwrap_or(false),
            ca: ca(&mut section, folder),
            default_endpoint: section.text("default_endpoint"),
            default_basic_auth: basic_auth(&mut section, "default_basic_auth"),
        };
        section.ignored("benchmark_only", "files are always run as loads");
        for key in ["metric_sample_size", "no_stats", "no_size_stats"] {
            section.ignored(key, "every request is in the figures");
        }
        section.ignored(
            "disable_header_names_normalizing",
            "names of headers are compared regardless of case",
        );
        if let (true, Some(ca)) = (runner.insecure, section.text("ca")) {
            let message = "is of no use with `insecure: true`: remove one of them";
            section.problems.error(ca.place, &ca.path, message, None);
        }
        section.end();
        runner
    }
}

fn ca(section: &mut Section<'_, '_>, folder: &Path) -> Option<PathBuf> {
    Some(beside(&section.text("ca")?.text, folder))
}

fn statuses(section: &mut Section<'_, '_>, key: &'static str) -> Vec<u16> {
    let path = section.path_of(key);
    let items = section.list(key);
    let texts = items.into_iter().filter_map(|item| Text::of(item, &path));
    texts
        .filter_map(|text| number_in(&text, 0, 999, section.problems))
        .collect()
}
