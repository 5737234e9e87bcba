//! The configuration loader on hostile text: it never panics, never refuses without a reason, and what it
//! takes can be shown and compared.

#![no_main]

use config::{Config, Severity, diff::diff, show};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let environment = |name: &str| (name == "X").then(|| "x".to_owned());
    match Config::parse(text, Some("fuzz.yml"), &environment) {
        Ok(loaded) => {
            assert!(!loaded.config.entries.is_empty());
            assert!(!show(&loaded.file).is_empty());
            assert!(diff(&loaded.config, &loaded.config).is_empty());
        }
        Err(rejected) => {
            assert!(rejected.problems.iter().any(|problem| problem.severity == Severity::Error));
        }
    }
});
