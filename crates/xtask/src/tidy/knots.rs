//! Knots of files: files of a wing of the gateway that refer to one another in a circle. A file and the
//! folder of its own modules count as one.
//!
//! `tidy/file_knots.txt` lists the knots that are larger than they should be. The list may only shrink: a
//! knot that is not in the list exactly, whether larger or smaller, is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::rooms::{Arrows, code, knots, named_below, shown_at_root, tests_apart};

/// The largest allowed number of files that refer to one another in a circle.
const KNOT_MAX: usize = 3;

/// The folder of the wings.
const FOLDER: &str = "crates/gateway/src";

const FILE_KNOTS: &str = "crates/xtask/tidy/file_knots.txt";

/// Compares the knots in each wing with the list.
pub(super) fn check(root: &Path, files: &[PathBuf], wrong: &mut Vec<String>) -> anyhow::Result<()> {
    let mut wings: BTreeMap<String, Vec<(PathBuf, String)>> = BTreeMap::new();
    for file in files
        .iter()
        .filter(|file| file.extension().is_some_and(|end| end == "rs"))
    {
        let within = file.strip_prefix(FOLDER).ok().and_then(Path::to_str);
        if let Some((wing, rest)) = within.and_then(|within| within.split_once('/')) {
            let text = std::fs::read_to_string(root.join(file))?;
            wings
                .entry(wing.to_owned())
                .or_default()
                .push((rest.into(), text));
        }
    }
    let found: BTreeSet<String> = wings
        .iter()
        .flat_map(|(wing, sources)| large(wing, sources))
        .collect();
    let list = std::fs::read_to_string(root.join(FILE_KNOTS))?;
    compare(&list, &found, wrong);
    Ok(())
}

fn compare(list: &str, found: &BTreeSet<String>, wrong: &mut Vec<String>) {
    let lines = list
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let allowed: BTreeSet<String> = lines.map(str::to_owned).collect();
    for knot in found.difference(&allowed) {
        wrong.push(format!(
            "{FOLDER}: these files know one another in a circle: {knot}"
        ));
    }
    for knot in allowed.difference(found) {
        wrong.push(format!("{FILE_KNOTS}: no knot is like this any more: {knot}"));
    }
}

/// Returns the knots of a wing that are too large, each as a line of the list: the wing, and the files by
/// name.
fn large(wing: &str, sources: &[(PathBuf, String)]) -> Vec<String> {
    let (names, arrows) = arrows(wing, sources);
    let knots = knots(&names, &arrows).into_iter();
    knots
        .filter(|knot| knot.len() > KNOT_MAX)
        .map(|knot| format!("{wing}: {}", knot.join(" ")))
        .collect()
}

fn arrows(wing: &str, sources: &[(PathBuf, String)]) -> (BTreeSet<String>, Arrows) {
    let names: BTreeSet<String> = sources.iter().filter_map(|(file, _)| name(file)).collect();
    let tests: BTreeSet<PathBuf> = sources
        .iter()
        .flat_map(|(file, text)| tests_apart(file, text))
        .collect();
    let shown: BTreeMap<String, String> = sources
        .iter()
        .filter(|(file, _)| file == Path::new("mod.rs"))
        .flat_map(|(_, text)| shown_at_root(&code(text)))
        .collect();
    let mut arrows = Arrows::new();
    for (file, text) in sources.iter().filter(|(file, _)| !tests.contains(file)) {
        let Some(from) = name(file) else { continue };
        let is_door = file.file_stem().is_some_and(|stem| stem == "mod");
        let up = "super::".repeat(file.components().count() - usize::from(is_door));
        for to in named_below(&code(text), &[&format!("crate::{wing}::"), &up]) {
            let to = shown.get(&to).cloned().unwrap_or(to);
            if to != from && names.contains(&to) {
                arrows.entry((from.clone(), to)).or_insert_with(|| file.clone());
            }
        }
    }
    (names, arrows)
}

/// Returns the name under which a file of a wing counts; none for the wing's `mod.rs`.
fn name(file: &Path) -> Option<String> {
    let first = file.components().next()?.as_os_str().to_str()?;
    let name = first.strip_suffix(".rs").unwrap_or(first);
    (name != "mod").then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let sources = files
            .iter()
            .map(|(file, text)| (PathBuf::from(file), (*text).to_owned()));
        large("w", &sources.collect::<Vec<_>>())
    }

    #[test]
    fn four_files_in_a_circle_are_a_knot_and_three_are_none() {
        let files = [
            ("mod.rs", "mod a;\npub(crate) use c::{\n    C,\n};"),
            ("a.rs", "use crate::w::b::B;"),
            ("b.rs", "use crate::w::C;"),
            ("c/deep.rs", "fn f() { super::super::d::g() }"),
            ("d.rs", "use super::a::{A, x};"),
        ];
        assert_eq!(found(&files), ["w: a b c d"]);
        assert_eq!(found(&files[..4]), [""; 0]);
    }

    #[test]
    fn a_file_and_its_own_modules_count_as_one() {
        let files = [
            ("a.rs", "use crate::w::a::b::B;"),
            ("a/b.rs", "use crate::w::a::c::C;"),
            ("a/c.rs", "use crate::w::a::d::D;"),
            ("a/d.rs", "use crate::w::a::A;"),
        ];
        assert_eq!(found(&files), [""; 0]);
    }

    #[test]
    fn the_list_may_only_shrink() {
        let now = BTreeSet::from(["w: a b c d".to_owned()]);
        let wrong = |list: &str| {
            let mut wrong = Vec::new();
            compare(list, &now, &mut wrong);
            wrong
        };
        assert_eq!(wrong("# why\nw: a b c d\n"), [""; 0]);
        assert_eq!(wrong("").len(), 1);
        assert_eq!(wrong("w: a b c d e\n").len(), 2);
    }
}
