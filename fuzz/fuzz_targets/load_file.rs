//! The reader of load files on hostile text: it never panics, and never refuses without a reason and a place.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use loadgen::Load;

fuzz_target!(|text: &str| {
    // A file of values may be anything on this machine, the fuzzer's own included.
    if text.contains("path") {
        return;
    }
    let environment = |name: &str| (name == "X").then(|| "x".to_owned());
    match Load::parse(text, Some("fuzz.yml"), Path::new(""), &environment) {
        Ok(loaded) => assert!(loaded.load.request_names().next().is_some()),
        Err(rejected) => {
            let error = |problem: &settings::Problem| problem.severity == settings::Severity::Error;
            assert!(rejected.problems.iter().any(|problem| error(problem) && problem.place.is_some()));
        }
    }
});
