//! The length of functions: each should fit on a screen.
//!
//! `tidy/long_functions.txt` lists the functions that are longer. The list may only shrink: an entry that is
//! no longer needed is an error too.

use std::collections::BTreeMap;
use std::path::Path;

/// The number of lines that fit on a screen.
const FUNCTION_LINES_MAX: usize = 70;

const LONG_FUNCTIONS: &str = "crates/xtask/tidy/long_functions.txt";

/// Functions that are too long, by their names in the list, with their places.
#[derive(Debug, Default)]
pub(super) struct Lengths {
    functions: BTreeMap<String, Vec<String>>,
}

impl Lengths {
    /// Checks one file.
    pub(super) fn look(&mut self, file: &Path, text: &str) {
        if file.extension().is_none_or(|extension| extension != "rs") {
            return;
        }
        let path = file.to_string_lossy();
        for (line, name, lines) in long_functions(&path, text) {
            let place = format!("{path}:{line}: {name} has {lines} lines, {FUNCTION_LINES_MAX} are allowed");
            let owner = path.split('/').nth(1).unwrap_or_default();
            self.functions
                .entry(format!("{owner} {name}"))
                .or_default()
                .push(place);
        }
    }

    /// Compares the findings with the list of exceptions.
    pub(super) fn check(&self, root: &Path, wrong: &mut Vec<String>) -> anyhow::Result<()> {
        let text = std::fs::read_to_string(root.join(LONG_FUNCTIONS))?;
        compare(LONG_FUNCTIONS, &text, &self.functions, wrong);
        Ok(())
    }
}

/// Compares findings with a list that has one line per exception: a name, followed by a count if there is
/// more than one.
pub(super) fn compare(
    list: &str,
    text: &str,
    found: &BTreeMap<String, Vec<String>>,
    wrong: &mut Vec<String>,
) {
    let mut allowed = BTreeMap::new();
    for line in text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let (name, count) = match line.rsplit_once(" x") {
            Some((name, count)) => (name, count.parse().unwrap_or(0)),
            None => (line, 1),
        };
        allowed.insert(name, count);
    }
    for (name, places) in found {
        let most: usize = allowed.get(name.as_str()).copied().unwrap_or(0);
        if places.len() > most {
            wrong.extend(places.iter().cloned());
        }
    }
    for (name, count) in allowed {
        let there = found.get(name).map_or(0, Vec::len);
        if there < count {
            wrong.push(format!(
                "{list}: `{name}` has {there} of {count} exceptions left: take them out"
            ));
        }
    }
}

/// Finds functions that are too long, outside tests. Returns for each the line on which it begins, its name,
/// and its number of lines.
fn long_functions<'t>(path: &str, text: &'t str) -> Vec<(usize, &'t str, usize)> {
    if path.contains("/tests/") || path.contains("/benches/") || path.ends_with("tests.rs") {
        return Vec::new();
    }
    let lines: Vec<&str> = text
        .lines()
        .take_while(|line| !line.starts_with("mod tests"))
        .collect();
    let mut long = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        // rustfmt puts the closing brace of a function below its first letter.
        let indent = &line[..line.len() - line.trim_start().len()];
        let close = |line: &&str| {
            line.strip_prefix(indent)
                .is_some_and(|rest| rest.starts_with('}'))
        };
        let Some(length) = lines[at..].iter().position(close) else {
            continue;
        };
        if length + 1 > FUNCTION_LINES_MAX && !line.trim_end().ends_with(';') {
            long.push((at + 1, name, length + 1));
        }
    }
    long
}

/// Returns the name of the function that begins on this line.
fn function_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    if rest.starts_with("pub") {
        rest = rest.split_once(' ')?.1;
        // `pub(in path) fn` and similar.
        rest = rest
            .strip_prefix("in ")
            .map_or(rest, |inside| inside.split_once(") ").map_or("", |it| it.1));
    }
    for word in ["const ", "async ", "unsafe "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let name = rest.strip_prefix("fn ")?;
    name.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(lines: usize) -> String {
        format!(
            "    pub(crate) async fn long() {{\n{}    }}\n",
            "        step();\n".repeat(lines - 2)
        )
    }

    #[test]
    fn a_function_longer_than_a_screen_is_found_by_crate_and_name() {
        let fits = function(FUNCTION_LINES_MAX);
        assert!(long_functions("crates/a/src/b.rs", &fits).is_empty());
        let long = function(FUNCTION_LINES_MAX + 1);
        assert_eq!(long_functions("crates/a/src/b.rs", &long), [(1, "long", 71)]);
        assert!(long_functions("crates/a/tests/b.rs", &long).is_empty());
        let in_tests = format!("#[cfg(test)]\nmod tests {{\n{long}}}\n");
        assert!(long_functions("crates/a/src/b.rs", &in_tests).is_empty());
    }

    #[test]
    fn a_list_of_exceptions_only_shrinks() {
        let judge = |list: &str| {
            let found = BTreeMap::from([("a f".to_owned(), vec!["one".to_owned(), "two".to_owned()])]);
            let mut wrong = Vec::new();
            compare("list", list, &found, &mut wrong);
            wrong.len()
        };
        assert_eq!(judge("# why\na f x2\n"), 0);
        assert_eq!(judge(""), 2);
        assert_eq!(judge("a f\n"), 2);
        assert_eq!(judge("a f x3\n"), 1);
        assert_eq!(judge("a f x2\nb g\n"), 1);
    }
}
