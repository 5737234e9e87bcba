//! Tests with damaged files.

use config::*;
use proptest::prelude::*;

use crate::{fixture, parse};

/// Generates a good file that is damaged: bytes are inserted, removed or doubled.
fn mangled() -> impl Strategy<Value = String> {
    let names = [
        "guide.yml",
        "old-words.yml",
        "slips.yml",
        "references.yml",
        "open-door.yml",
    ];
    let scraps = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ":",
        "- ",
        "\n",
        " ",
        "&a ",
        "*a",
        "<<: ",
        "null",
        "~",
        "'",
        "\"",
        "$[[env.X]]",
        "$[[",
        "-1",
        "99999999999999999999",
        "0",
        "é",
        ".",
        "..",
        "a.b.c: 1\n",
        "_ctx.",
        "!!str ",
        "%",
        "#",
        "|",
        ">",
        "\t",
        "true",
    ]);
    (
        prop::sample::select(names.to_vec()),
        prop::collection::vec((any::<prop::sample::Index>(), scraps, 0usize..40), 1..6),
    )
        .prop_map(|(name, edits)| {
            let mut text: Vec<char> = fixture(name).chars().collect();
            for (at, scrap, cut) in edits {
                let at = at.index(text.len() + 1);
                let end = (at + cut).min(text.len());
                text.splice(at..end, scrap.chars());
            }
            text.into_iter().collect()
        })
}

proptest! {
    #[test]
    fn no_file_however_mangled_panics_or_is_refused_without_a_place(text in mangled()) {
        let lines = text.lines().count() as u32 + 1;
        match parse(&text) {
            Ok(loaded) => {
                prop_assert!(!loaded.config.entries.is_empty());
                prop_assert!(loaded.warnings.iter().all(|problem| problem.severity == Severity::Warning));
                // A loaded file can be shown.
                prop_assert!(show(&loaded.file).contains("entry:"));
            }
            Err(rejected) => {
                prop_assert!(rejected.problems.iter().any(|problem| problem.severity == Severity::Error));
                for problem in &rejected.problems {
                    let place = problem.place.unwrap();
                    prop_assert!(place.line >= 1 && place.line <= lines && place.column >= 1, "{}", problem);
                }
            }
        }
    }
}
