//! Checks what templates render, byte for byte: `tests/golden/NAME.yml` has to be rendered as
//! `tests/golden/NAME.txt`. The random seed is the same each time, and the clock stands still.
//!
//! After an intended change, run `GOLDEN=write cargo test -p loadgen --test golden` and read the difference.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use loadgen::{Load, Sampler};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn rendered(name: &str) -> Result<String> {
    let folder = folder();
    let text = std::fs::read_to_string(folder.join(format!("{name}.yml")))?;
    let environment = |variable: &str| (variable == "FROM_OUTSIDE").then(|| "outside".to_owned());
    let load = Arc::new(Load::parse(&text, Some(name), &folder, &environment)?.load);
    let mut sampler = Sampler::new(&load, 20_261_121);
    // 2026-11-21 09:03:04.123456789 UTC.
    let now = SystemTime::UNIX_EPOCH + Duration::new(1_795_251_784, 123_456_789);
    let mut out = Vec::new();
    for round in 1..=2 {
        for (at, request) in load.request_names().enumerate() {
            out.extend_from_slice(format!("=== round {round}: {request}\n").as_bytes());
            sampler.body(at, now, &mut out);
        }
    }
    Ok(String::from_utf8(out)?)
}

fn check(name: &str) -> Result<()> {
    let found = rendered(name)?;
    let file = folder().join(format!("{name}.txt"));
    if std::env::var("GOLDEN").is_ok_and(|wanted| wanted == "write") {
        std::fs::write(&file, &found)?;
    }
    let wanted = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    for (at, (found, wanted)) in found.lines().zip(wanted.lines()).enumerate() {
        ensure!(
            found == wanted,
            "{name}, line {}:\n  found  {found}\n  wanted {wanted}",
            at + 1
        );
    }
    ensure!(found == wanted, "{name}: one is longer, or ends otherwise");
    Ok(())
}

#[test]
fn every_type_of_variable_becomes_what_it_became_before() -> Result<()> {
    check("types")
}

#[test]
fn runtime_variables_are_drawn_once_a_request_or_once_a_line() -> Result<()> {
    check("runtime")
}

#[test]
fn what_looks_like_a_template_and_is_none_stays() -> Result<()> {
    check("text")
}
