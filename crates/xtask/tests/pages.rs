//! Checks that `./dev` accepts what the pages tell people to type after it.

#![allow(clippy::unwrap_used, reason = "a test that meets something unexpected ends")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the words after `./dev` in the blocks and in the text of the pages, with their places.
fn lines() -> Vec<(String, Vec<String>)> {
    let docs = std::fs::read_dir(root().join("docs")).unwrap();
    let docs = docs.map(|page| page.unwrap().path());
    let mut pages: Vec<PathBuf> = docs
        .filter(|page| page.extension().is_some_and(|end| end == "md"))
        .collect();
    for page in ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"] {
        pages.push(root().join(page));
    }
    let mut lines = Vec::new();
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        let blocks = text.lines().filter_map(|line| line.strip_prefix("    ./dev "));
        let spans = text
            .split('`')
            .skip(1)
            .step_by(2)
            .filter_map(|span| span.strip_prefix("./dev "));
        for line in blocks.chain(spans.filter(|span| !span.contains('\n'))) {
            // The explanation of a command comes after several spaces, or after a `#`.
            let line = line.split("  ").next().unwrap_or_default();
            let line = line.split(" #").next().unwrap_or_default();
            let words = line.split_whitespace().map(|word| word.trim_matches(['[', ']']));
            let words = words.map(|word| if word == "N" { "1" } else { word });
            lines.push((page.display().to_string(), words.map(str::to_owned).collect()));
        }
    }
    lines
}

fn xtask(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(words)
        .current_dir(root())
        .output()
        .unwrap()
}

#[test]
fn every_dev_line_of_the_pages_is_one_that_dev_takes() {
    let lines = lines();
    assert!(lines.len() > 40, "{} lines were found", lines.len());
    for (page, words) in lines {
        // With `--help` nothing is done, but everything before it is parsed as usual.
        let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
        words.push("--help");
        let output = xtask(&words);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{page}: ./dev {}: {told}",
            words.join(" ")
        );
    }
}

#[test]
fn the_lists_of_cases_that_the_pages_promise_are_printed() {
    for words in [
        &["help"][..],
        &["bench", "--list"],
        &["bench", "--async", "--list"],
        &["bench", "--guides", "--list"],
    ] {
        let output = xtask(words);
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && told.lines().count() > 3,
            "{words:?}: {told}"
        );
    }
}

/// The script installs what a verb needs before it calls the program. For a verb that it does not know, it
/// would install nothing.
#[test]
fn the_script_passes_every_verb_on_to_the_program() {
    let script = std::fs::read_to_string(root().join("dev")).unwrap();
    assert!(script.trim_end().ends_with("exec cargo xtask \"$@\""), "{script}");
    let help = String::from_utf8(xtask(&["help"]).stdout).unwrap();
    let verbs = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let verbs: Vec<&str> = verbs
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let cases = script
        .lines()
        .map(str::trim)
        .filter_map(|line| line.split_once(')').map(|(name, _)| name));
    let is_verb = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase());
    // What `ci` has the script do meanwhile is the script's own.
    let known = cases.filter(|name| is_verb(name) && *name != "tools");
    for name in known {
        assert!(
            verbs.contains(&name),
            "./dev prepares `{name}`, which there is not: {verbs:?}"
        );
    }
}
