//! The configuration loader on hostile text: it never panics, never refuses without a reason, and what it takes
//! can be shown and compared.

#![no_main]
#![allow(dead_code, unreachable_pub, unused_imports)]

// By its path, and without the rest of the crate: with coverage and a sanitizer that alone would be compiled for minutes.
#[path = "../../crates/gateway/src/config/mod.rs"]
mod config;
#[path = "../../crates/gateway/src"]
mod gateway {
    pub mod router;
    pub mod when;
}

use config::{Config, Severity, diff::diff, show};
use gateway::{router, when};
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
