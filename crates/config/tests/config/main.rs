//! Tests of whole configuration files: those of the published guide, messages about everything that can be
//! wrong, and whether the examples and the reference page are true.
//!
//! Golden files: `tests/config/NAME.yml` and `NAME.txt`, with every problem and warning. `UPDATE=1 cargo test
//! -p config --test config` rewrites them (and `docs/configuration.md`); read the difference before you
//! commit it.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod effects;
mod files;
mod flows;
mod mangled;
mod quick_start;
mod reference;

use std::path::{Path, PathBuf};

use config::{Config, Loaded, Rejected};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/config")
        .join(name);
    std::fs::read_to_string(path).unwrap()
}

fn parse(text: &str) -> Result<Loaded, Rejected> {
    Config::parse(text, Some("gateway.yml"), &|_| None)
}

/// Compares with a file in the repository, or writes the file.
fn expect_file(path: &Path, actual: &str) {
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, actual).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(
        expected,
        actual,
        "{} is out of date: UPDATE=1 writes it anew",
        path.display()
    );
}
