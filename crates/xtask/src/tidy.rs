//! `./dev tidy`: the house rules that no other tool knows. Each rule is a function over what it checks.

mod clocks;
mod columns;
mod errors;
mod knots;
mod lengths;
mod rooms;
mod starts;
mod walks;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::suite::metadata;
use crate::terminal::say;

/// A longer file contains more than one idea.
const FILE_LINES_MAX: usize = 800;
/// The width of comments; rustfmt wraps code.
const COLUMNS_MAX: usize = 110;

/// Marks of unfinished or forgotten code. They are split, so that this file does not find itself.
const LEFT_OVERS: [&str; 6] = [
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("dbg", "!("),
    concat!("FIX", "ME"),
    concat!("TO", "DO:"),
    concat!("XX", "X:"),
];

/// Folders of one person's machine: a text that names them works nowhere else.
const HOMES: [&str; 4] = [
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
    concat!("/wo", "rk/"),
    concat!("/work", "space/"),
];

/// File names that say nothing about their contents.
const EMPTY_NAMES: [&str; 10] = [
    "common", "data", "handler", "handlers", "helper", "helpers", "info", "manager", "util", "utils",
];

/// Checks every rule, and prints everything that is wrong.
///
/// # Errors
/// If anything is wrong.
pub(crate) fn run() -> Result<()> {
    let root = crate::root();
    let mut wrong = Vec::new();
    let files = tracked(&root)?;
    let mut lengths = lengths::Lengths::default();
    let mut text_errors = errors::TextErrors::default();
    for file in &files {
        check_name(file, &mut wrong);
        // A file that is not text has no lines to check.
        if let Ok(text) = std::fs::read_to_string(root.join(file)) {
            check_text(file, &text, &mut wrong);
            starts::check(file, &text, &mut wrong);
            clocks::check(file, &text, &mut wrong);
            columns::check(file, &text, &mut wrong);
            lengths.look(file, &text);
            text_errors.look(file, &text);
            check_links(&root, file, &text, &mut wrong);
        }
    }
    lengths.check(&root, &mut wrong)?;
    text_errors.check(&root, &mut wrong)?;
    let metadata = metadata(&["--no-deps"])?;
    let architecture = std::fs::read_to_string(root.join("ARCHITECTURE.md"))?;
    check_arrows(&arrows(&architecture), &metadata, &mut wrong);
    let figures = rooms::check(&root, &files, &architecture, &mut wrong);
    knots::check(&root, &files, &mut wrong)?;
    walks::check(&root, &files, &architecture, &mut wrong);
    check_manifests(&root, &metadata, &mut wrong)?;
    for line in figures.iter().chain(&wrong) {
        say(line);
    }
    if wrong.is_empty() {
        say(&format!("{} files are tidy", files.len()));
        Ok(())
    } else {
        bail!("{} things are untidy", wrong.len())
    }
}

/// Lists all files of the project: those in git's index, and new ones that are not ignored.
fn tracked(root: &Path) -> Result<Vec<PathBuf>> {
    let out = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("cannot run git")?;
    let names = String::from_utf8(out.stdout)?;
    let files: Vec<PathBuf> = names
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(PathBuf::from)
        .collect();
    if files.is_empty() {
        bail!("git lists no files");
    }
    Ok(files
        .into_iter()
        .filter(|file| root.join(file).is_file())
        .collect())
}

fn check_name(file: &Path, wrong: &mut Vec<String>) {
    let stem = file
        .file_stem()
        .and_then(|stem| stem.to_str())
        .unwrap_or_default();
    if is_code(file) && EMPTY_NAMES.contains(&stem) {
        wrong.push(format!(
            "{}: the name says nothing about what is inside",
            file.display()
        ));
    }
}

fn check_text(file: &Path, text: &str, wrong: &mut Vec<String>) {
    if is_code(file) && text.lines().count() > FILE_LINES_MAX {
        wrong.push(format!("{}: longer than {FILE_LINES_MAX} lines", file.display()));
    }
    if !is_code(file) && !is_prose(file) {
        return;
    }
    let mut in_block = false;
    // Each line of these files is a cell of the reference page.
    let wraps = is_code(file) && !file.starts_with("crates/config/src/file");
    for (number, line) in text.lines().enumerate() {
        let mut complain = |what: String| wrong.push(format!("{}:{}: {what}", file.display(), number + 1));
        if wraps && is_long_comment(line, &mut in_block) {
            complain(format!("a comment of more than {COLUMNS_MAX} columns"));
        }
        if is_code(file) {
            LEFT_OVERS
                .iter()
                .filter(|word| line.contains(**word))
                .for_each(|word| complain(format!("`{word}`")));
        }
        for home in HOMES.iter().filter(|home| mentions_folder(line, home)) {
            complain(format!("`{home}` is a folder of one machine"));
        }
    }
}

/// Whether a line is a comment that is too long to be read beside another file. Blocks of code, tables and
/// addresses, which cannot be wrapped, do not count.
fn is_long_comment(line: &str, in_block: &mut bool) -> bool {
    let text = line.trim_start();
    let Some(text) = text.strip_prefix("//") else {
        *in_block = false;
        return false;
    };
    let text = text.trim_start_matches(['/', '!']);
    if text.trim_start().starts_with("```") {
        *in_block = !*in_block;
    }
    let as_it_is = *in_block || text.trim_start().starts_with('|') || text.contains("://");
    !as_it_is && line.chars().count() > COLUMNS_MAX
}

/// Whether the line names a path that begins with this folder, as opposed to one that contains it.
fn mentions_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        !line[..at].ends_with(|before: char| before.is_alphanumeric() || "._-}~".contains(before))
    })
}

fn check_links(root: &Path, file: &Path, text: &str, wrong: &mut Vec<String>) {
    if file.extension().is_none_or(|extension| extension != "md") {
        return;
    }
    let folder = file.parent().unwrap_or(Path::new(""));
    for target in links(text) {
        let path = target.split('#').next().unwrap_or_default();
        if !path.is_empty() && !root.join(folder).join(path).exists() {
            wrong.push(format!("{}: the link to {target} leads nowhere", file.display()));
        }
    }
}

/// Returns the targets of Markdown links that are not addresses.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target)
        .filter(|target| {
            !target.contains("://")
                && !target.starts_with('#')
                && !target.starts_with("mailto:")
                && !target.contains(' ')
        })
}

/// Returns the crates that each crate may depend on, from the table in ARCHITECTURE.md.
fn arrows(architecture: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut arrows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in architecture.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, name, knows, ..] = cells[..] else { continue };
        let Some(name) = name.strip_prefix('`').and_then(|name| name.strip_suffix('`')) else {
            continue;
        };
        let known = if knows == "all of the above" {
            arrows.keys().cloned().collect()
        } else {
            knows.split('`').skip(1).step_by(2).map(str::to_owned).collect()
        };
        arrows.insert(name.to_owned(), known);
    }
    arrows
}

fn check_arrows(arrows: &BTreeMap<String, BTreeSet<String>>, metadata: &Value, wrong: &mut Vec<String>) {
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(allowed) = arrows.get(name) else {
            wrong.push(format!("{name} is not in ARCHITECTURE.md's table of crates"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let other = dependency["name"].as_str().unwrap_or_default();
            // Tests may use the testkit and the crate's own neighbours; only published code has arrows.
            if dependency["kind"] != "dev" && arrows.contains_key(other) && !allowed.contains(other) {
                wrong.push(format!("{name} may not know {other} (ARCHITECTURE.md)"));
            }
            let sans_io = name == "bulk" && dependency["kind"] != "dev";
            if sans_io && ["tokio", "hyper", "mio", "socket2", "rustix"].contains(&other) {
                wrong.push(format!("bulk does no I/O, and so has no use for {other}"));
            }
        }
    }
}

/// Checks that lints and versions are chosen in the workspace and nowhere else, and that every declared
/// dependency is used.
fn check_manifests(root: &Path, metadata: &Value, wrong: &mut Vec<String>) -> Result<()> {
    let mut used = BTreeSet::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let path = package["manifest_path"]
            .as_str()
            .context("a package has a manifest")?;
        let manifest = std::fs::read_to_string(path)?;
        if !manifest.contains("[lints]\nworkspace = true") {
            wrong.push(format!("{name} does not take the workspace's lints"));
        }
        for (crate_name, value) in declared(&manifest, "dependencies]") {
            if !value.contains("workspace = true") && !crate_name.ends_with(".workspace") {
                wrong.push(format!("{name} chooses its own version of {crate_name}"));
            }
            used.insert(crate_name.trim_end_matches(".workspace").to_owned());
        }
    }
    let workspace = std::fs::read_to_string(root.join("Cargo.toml"))?;
    for (crate_name, _) in declared(&workspace, "[workspace.dependencies]") {
        if !used.contains(&crate_name) {
            wrong.push(format!(
                "{crate_name} is declared in the workspace, but no crate uses it"
            ));
        }
    }
    Ok(())
}

/// Returns the `name = value` pairs of the sections with this end of the heading.
fn declared(manifest: &str, heading_end: &str) -> Vec<(String, String)> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line.ends_with(heading_end);
        } else if inside
            && !line.starts_with('#')
            && let Some((name, value)) = line.split_once('=')
        {
            found.push((name.trim().to_owned(), value.trim().to_owned()));
            // In `name.workspace = true` the key says it.
        }
    }
    found
}

fn is_code(file: &Path) -> bool {
    matches!(
        file.extension().and_then(|e| e.to_str()),
        Some("rs" | "py" | "sh" | "go" | "js" | "mjs" | "ts" | "java")
    )
}

fn is_prose(file: &Path) -> bool {
    matches!(
        file.extension().and_then(|e| e.to_str()),
        Some("md" | "toml" | "yml" | "yaml" | "json")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_wrapped_but_for_what_cannot_be() {
        let long = "word ".repeat(30);
        let text = format!(
            "// {long}\nlet x = 1; // {long}\n//! ```\n//! {long}\n//! ```\n/// {long}\n/// | {long}\n"
        );
        let mut in_block = false;
        let found: Vec<usize> = text
            .lines()
            .enumerate()
            .filter(|(_, line)| is_long_comment(line, &mut in_block))
            .map(|(number, _)| number)
            .collect();
        assert_eq!(found, [0, 5]);
    }

    #[test]
    fn arrows_are_read_from_the_table() {
        let table = "| crate | knows | is |\n|---|---|---|\n| `a` | – | leaf |\n| `b` | `a` | x |\n| `c` | all of the above | y |\n";
        let arrows = arrows(table);
        assert_eq!(arrows["a"], BTreeSet::new());
        assert_eq!(arrows["b"], BTreeSet::from(["a".to_owned()]));
        assert_eq!(arrows["c"], BTreeSet::from(["a".to_owned(), "b".to_owned()]));
    }

    #[test]
    fn an_arrow_against_the_table_is_found() {
        let arrows = BTreeMap::from([
            ("a".to_owned(), BTreeSet::new()),
            ("b".to_owned(), BTreeSet::new()),
        ]);
        let metadata = serde_json::json!({"packages": [
            {"name": "a", "dependencies": [{"name": "b", "kind": null}]},
            {"name": "b", "dependencies": [{"name": "a", "kind": "dev"}]},
        ]});
        let mut wrong = Vec::new();
        check_arrows(&arrows, &metadata, &mut wrong);
        assert_eq!(wrong, ["a may not know b (ARCHITECTURE.md)"]);
    }

    #[test]
    fn left_overs_and_folders_of_one_machine_are_found_with_their_line() {
        let mut wrong = Vec::new();
        let text = format!(
            "fn a() {{}}\nfn b() {{ {}) }}\nlet p = \"{}me\";\nlet q = \"a{}b\";\n",
            LEFT_OVERS[0], HOMES[0], HOMES[2]
        );
        check_text(Path::new("a.rs"), &text, &mut wrong);
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(wrong[0].starts_with("a.rs:2") && wrong[1].starts_with("a.rs:3"));
    }

    #[test]
    fn only_links_to_files_are_followed() {
        let text = "[a](docs/a.md#x) [b](https://example.org) [c](#here) f(x)](y.md)";
        assert_eq!(links(text).collect::<Vec<_>>(), ["docs/a.md#x", "y.md"]);
    }

    #[test]
    fn a_dependency_is_declared_in_either_form() {
        let found = declared(
            "[package]\nname = \"x\"\n[dev-dependencies]\na.workspace = true\nb = { workspace = true }\n",
            "dependencies]",
        );
        assert_eq!(found[0].0, "a.workspace");
        assert_eq!(found[1], ("b".to_owned(), "{ workspace = true }".to_owned()));
    }
}
