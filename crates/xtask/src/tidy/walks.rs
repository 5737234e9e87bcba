//! The walks of a request that ARCHITECTURE.md describes with types: each type that it names must exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The sections whose tables and lists name types.
const SECTIONS: [&str; 2] = ["## The two walks", "## Words"];

/// Compares the types that ARCHITECTURE.md names in its walks with those that the sources define.
pub(super) fn check(root: &Path, files: &[PathBuf], architecture: &str, wrong: &mut Vec<String>) {
    let sources = files
        .iter()
        .filter(|file| file.extension().is_some_and(|end| end == "rs"));
    let texts = sources.filter_map(|file| std::fs::read_to_string(root.join(file)).ok());
    let defined: BTreeSet<String> = texts.flat_map(|text| defined(&text)).collect();
    for (line, name) in named(architecture) {
        if !defined.contains(&name) && !OF_OTHERS.contains(&name.as_str()) {
            wrong.push(format!("ARCHITECTURE.md:{line}: no source defines `{name}`"));
        }
    }
}

/// Returns the types, and variants of types, that a source defines.
fn defined(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines() {
        let line = line.trim_start();
        let words: Vec<&str> = line
            .split(|char: char| !char.is_alphanumeric() && char != '_')
            .filter(|word| !word.is_empty())
            .collect();
        let keyword = |word: &&str| ["struct", "enum", "type", "trait"].contains(word);
        if let Some(at) = words.iter().position(keyword) {
            found.extend(words.get(at + 1).map(|name| (*name).to_owned()));
        } else if let Some(first) = words.first().filter(|_| line.starts_with(char::is_uppercase)) {
            found.push((*first).to_owned());
        }
    }
    found
}

/// Returns the types that are named in backticks, with their lines: the segments of a path that begin like a
/// type.
fn named(architecture: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut inside = false;
    for (number, line) in architecture.lines().enumerate() {
        if line.starts_with("## ") {
            inside = SECTIONS.contains(&line);
        }
        for code in line.split('`').skip(1).step_by(2).filter(|_| inside) {
            let words = code.split(|char: char| !char.is_alphanumeric() && char != '_');
            let types = words.filter(|word| word.len() > 1 && is_type(word));
            found.extend(types.map(|name| (number + 1, name.to_owned())));
        }
    }
    found
}

/// Whether a word is a type: `HeadWhy` is one, `PUT` and `ARCHITECTURE` are not.
fn is_type(word: &str) -> bool {
    word.starts_with(char::is_uppercase) && word.contains(char::is_lowercase)
}

/// Types of foreign crates.
const OF_OTHERS: [&str; 1] = ["Request"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_read_from_the_walks_only() {
        let text = "## Other\n`Gone`\n## The two walks\n| `a/b.rs`, `Lane::work` | `http::Request<Incoming>` → `PUT` |\n## Tests\n`Gone`\n";
        let names: Vec<_> = named(text).into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["Lane", "Request", "Incoming"]);
    }

    #[test]
    fn a_source_defines_types_and_their_cases() {
        let text = "pub(crate) struct Plan {\n    parts: Vec<Part>,\n}\nenum Verdict {\n    Pass(Pass),\n}\ntype Reached = u8;\n";
        assert_eq!(defined(text), ["Plan", "Verdict", "Pass", "Reached"]);
    }
}
