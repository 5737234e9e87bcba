//! Errors have types, so that a caller can distinguish the cases, and their texts stand in one place. A
//! response is no error either: errors become HTTP in one place.
//!
//! `tidy/text_errors.txt` lists the files that still have functions whose error is a text. The list may only
//! shrink.

use std::collections::BTreeMap;
use std::path::Path;

use super::lengths::compare;

const TEXT_ERRORS: &str = "crates/xtask/tidy/text_errors.txt";

/// The functions whose error is a text, by file.
#[derive(Debug, Default)]
pub(super) struct TextErrors(BTreeMap<String, Vec<String>>);

impl TextErrors {
    /// Checks one file.
    pub(super) fn look(&mut self, file: &Path, text: &str) {
        let path = file.to_string_lossy();
        if !path.ends_with(".rs") || !path.starts_with("crates/") {
            return;
        }
        for (at, line) in text.lines().enumerate() {
            if has_text_for_error(line) {
                let place = format!(
                    "{path}:{}: an error that is a text or a response: give it a type",
                    at + 1
                );
                self.0.entry(path.to_string()).or_default().push(place);
            }
        }
    }

    /// Compares the findings with the list of exceptions.
    pub(super) fn check(&self, root: &Path, wrong: &mut Vec<String>) -> anyhow::Result<()> {
        let list = std::fs::read_to_string(root.join(TEXT_ERRORS))?;
        compare(TEXT_ERRORS, &list, &self.0, wrong);
        Ok(())
    }
}

/// Whether the second type of a `Result`, which begins here, is a text, a response, or a tuple that begins
/// with one.
fn is_untyped(error: &str) -> bool {
    let first = error.strip_prefix('(').unwrap_or(error);
    let owned = first
        .strip_prefix('&')
        .map_or(first, |borrowed| match borrowed.starts_with('\'') {
            true => borrowed.split_once(' ').map_or(borrowed, |(_, named)| named),
            false => borrowed,
        });
    ["String>", "String,", "str>", "str,", "Response>", "Response<"]
        .iter()
        .any(|text| owned.starts_with(text))
}

/// Whether a line names a `Result` whose second type is a text or a response.
fn has_text_for_error(line: &str) -> bool {
    if line.trim_start().starts_with("//") {
        return false;
    }
    // What is in quotes is what the tests of this check look at.
    let code = line.split('"').next().unwrap_or_default();
    code.match_indices("Result<").any(|(at, name)| {
        let rest = &code[at + name.len()..];
        let mut open = 0;
        let comma = rest.bytes().enumerate().find_map(|(at, byte)| {
            match byte {
                b'<' | b'(' | b'[' => open += 1,
                b'>' | b')' | b']' if open == 0 => return Some(None),
                b'>' | b')' | b']' => open -= 1,
                b',' if open == 0 => return Some(Some(at)),
                _ => {}
            }
            None
        });
        comma
            .flatten()
            .map(|comma| rest[comma + 1..].trim_start())
            .is_some_and(is_untyped)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_no_error_and_may_be_a_value() {
        assert!(has_text_for_error("fn f() -> Result<(), String> {"));
        assert!(has_text_for_error("    ) -> Result<Vec<(A, B)>, String>;"));
        assert!(!has_text_for_error(
            "fn f() -> Result<BTreeMap<(A, B), String>> {"
        ));
        assert!(has_text_for_error("fn f() -> Result<u16, &'static str> {"));
        assert!(has_text_for_error(
            "fn f<'s>(s: &'s str) -> Result<u16, &'s str> {"
        ));
        assert!(has_text_for_error("fn f() -> Result<(), (String, u16)> {"));
        assert!(has_text_for_error("fn f() -> Result<Head, Response<Outgoing>> {"));
        assert!(has_text_for_error(
            "fn f() -> Result<(), (String, &'static str)> {"
        ));
        assert!(!has_text_for_error("fn f() -> Result<String, Error> {"));
        assert!(!has_text_for_error(
            "fn f() -> Result<(&'static str, String), Error> {"
        ));
        assert!(!has_text_for_error("// a `Result<(), String>`"));
    }

    #[test]
    fn files_of_the_list_may_have_no_more_than_it_says() {
        let mut errors = TextErrors::default();
        let text = "fn f() -> Result<(), String> {}\nmod tests {\nfn g() -> Result<(), String> {}\n";
        errors.look(Path::new("crates/a/src/b.rs"), text);
        errors.look(Path::new("crates/a/tests/b.rs"), text);
        assert_eq!(errors.0.len(), 2);
        assert_eq!(errors.0["crates/a/src/b.rs"].len(), 2, "tests count too");
    }
}
