//! The rooms of a crate: the folders of its `src`, and the files beside them. ARCHITECTURE.md lists the rooms
//! of the large crates from top to bottom. Imports lead down that list, as they do between crates.
//!
//! A name that `lib.rs` re-exports at the crate's root counts as the room that it comes from.
//!
//! The list is numbered, below a heading `### Rooms of ` with the folder in backticks. Rooms in one item are
//! on one floor, and may refer to one another. An arrow that leads up is an exception, which the list names
//! with its reason.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The largest number of arrows that lead up, for each crate.
const EXCEPTIONS_MAX: usize = 5;

/// The largest number of rooms that refer to one another in a circle.
const KNOT_MAX: usize = 3;

/// The beginning of the heading of a crate's list.
const HEADING: &str = "### Rooms of `";

/// The rooms of one crate according to ARCHITECTURE.md.
#[derive(Debug, Default, PartialEq)]
struct Plan {
    /// The folder of the crate's sources.
    folder: String,
    /// The crate's rooms, from top to bottom.
    floors: Vec<Vec<String>>,
    /// Arrows that may lead up.
    exceptions: Vec<(String, String)>,
}

/// Arrows from one room to another, each with a file that has it.
pub(super) type Arrows = BTreeMap<(String, String), PathBuf>;

/// The figures of the rooms of one crate.
#[derive(Debug, PartialEq)]
struct Figures {
    rooms: usize,
    arrows: usize,
    upward: usize,
    /// Number of rooms in the largest circle; 1 if there is none.
    knot: usize,
}

// === impl Plan ===

impl Plan {
    /// Returns the floor of a room, counted from the top.
    fn floor(&self, room: &str) -> Option<usize> {
        self.floors
            .iter()
            .position(|floor| floor.iter().any(|name| name == room))
    }

    fn leads_up(&self, from: &str, to: &str) -> bool {
        matches!((self.floor(from), self.floor(to)), (Some(from), Some(to)) if to < from)
    }
}

/// Compares each crate that has a list in ARCHITECTURE.md with its sources. Returns a line of figures for
/// each crate.
pub(super) fn check(
    root: &Path,
    files: &[PathBuf],
    architecture: &str,
    wrong: &mut Vec<String>,
) -> Vec<String> {
    let mut lines = Vec::new();
    for plan in plans(architecture) {
        let sources: Vec<(PathBuf, String)> = files
            .iter()
            .filter(|file| file.extension().is_some_and(|extension| extension == "rs"))
            .filter_map(|file| {
                let within = file.strip_prefix(&plan.folder).ok()?.to_path_buf();
                Some((within, std::fs::read_to_string(root.join(file)).ok()?))
            })
            .collect();
        let figures = compare(&plan, &sources, wrong);
        lines.push(format!(
            "{}: {} rooms, {} arrows, {} of them upward, {} rooms in the largest knot",
            plan.folder, figures.rooms, figures.arrows, figures.upward, figures.knot
        ));
    }
    lines
}

/// Reads the lists of rooms in ARCHITECTURE.md.
fn plans(architecture: &str) -> Vec<Plan> {
    let mut plans: Vec<Plan> = Vec::new();
    let mut inside = false;
    // An item of a list goes on in lines that are indented.
    for line in architecture.replace("\n    ", " ").replace("\n  ", " ").lines() {
        if line.starts_with('#') {
            let heading = line.strip_prefix(HEADING);
            let folder = heading.and_then(|rest| rest.split('`').next());
            inside = folder.is_some();
            plans.extend(folder.map(|folder| Plan {
                folder: folder.to_owned(),
                ..Plan::default()
            }));
        }
        let Some(plan) = plans.last_mut().filter(|_| inside) else {
            continue;
        };
        let names = |text: &str| -> Vec<String> {
            let text = text.split(": ").next().unwrap_or_default();
            text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
        };
        if let Some((number, rest)) = line.split_once(". ")
            && number.parse::<u32>().is_ok()
        {
            plan.floors.push(names(rest));
        } else if let Some(rest) = line.strip_prefix("- ")
            && let [from, to] = &names(rest)[..]
            && rest.contains("` → `")
        {
            plan.exceptions.push((from.clone(), to.clone()));
        }
    }
    plans
}

fn compare(plan: &Plan, sources: &[(PathBuf, String)], wrong: &mut Vec<String>) -> Figures {
    let folder = &plan.folder;
    let rooms: BTreeSet<String> = sources.iter().filter_map(|(file, _)| room(file)).collect();
    let arrows = arrows(sources, &rooms);
    for room in rooms.iter().filter(|room| plan.floor(room).is_none()) {
        wrong.push(format!("{folder}: ARCHITECTURE.md does not list the room {room}"));
    }
    for listed in plan
        .floors
        .iter()
        .flatten()
        .filter(|listed| !rooms.contains(*listed))
    {
        wrong.push(format!(
            "{folder}: ARCHITECTURE.md lists {listed}, which is not there"
        ));
    }
    let upward: Vec<_> = arrows
        .iter()
        .filter(|((from, to), _)| plan.leads_up(from, to))
        .collect();
    for ((from, to), file) in &upward {
        if !plan.exceptions.iter().any(|(a, b)| a == from && b == to) {
            let file = file.display();
            wrong.push(format!(
                "{folder}/{file}: {from} may not know {to}, which is above it (ARCHITECTURE.md)"
            ));
        }
    }
    for (from, to) in &plan.exceptions {
        let needed = upward.iter().any(|((a, b), _)| a == from && b == to);
        if !needed {
            wrong.push(format!(
                "{folder}: no arrow leads up from {from} to {to} any more: take the exception off the list"
            ));
        }
    }
    if plan.exceptions.len() > EXCEPTIONS_MAX {
        wrong.push(format!("{folder}: more than {EXCEPTIONS_MAX} arrows lead up"));
    }
    let knots = knots(&rooms, &arrows);
    for knot in knots.iter().filter(|knot| knot.len() > KNOT_MAX) {
        let knot = knot.join(", ");
        wrong.push(format!(
            "{folder}: these rooms know one another in a circle: {knot}"
        ));
    }
    Figures {
        rooms: rooms.len(),
        arrows: arrows.len(),
        upward: upward.len(),
        knot: knots.iter().map(Vec::len).max().unwrap_or(1),
    }
}

/// Returns the room of a file; none for `lib.rs` and `main.rs`.
fn room(file: &Path) -> Option<String> {
    let mut parts = file.components();
    let first = parts.next()?.as_os_str().to_str()?;
    match parts.next() {
        Some(_) => Some(first.to_owned()),
        None => first
            .strip_suffix(".rs")
            .filter(|name| !["lib", "main"].contains(name))
            .map(str::to_owned),
    }
}

/// Returns which rooms refer to which, outside their tests.
fn arrows(sources: &[(PathBuf, String)], rooms: &BTreeSet<String>) -> Arrows {
    let tests: BTreeSet<PathBuf> = sources
        .iter()
        .flat_map(|(file, text)| tests_apart(file, text))
        .collect();
    let shown: BTreeMap<String, String> = sources
        .iter()
        .filter(|(file, _)| file == Path::new("lib.rs"))
        .flat_map(|(_, text)| shown_at_root(&code(text)))
        .collect();
    let mut arrows = Arrows::new();
    for (file, text) in sources {
        let Some(from) = room(file).filter(|_| !tests.contains(file)) else {
            continue;
        };
        for to in named(&code(text), depth(file)) {
            let to = shown.get(&to).cloned().unwrap_or(to);
            if to != from && rooms.contains(&to) {
                arrows.entry((from.clone(), to)).or_insert_with(|| file.clone());
            }
        }
    }
    arrows
}

/// Returns the names that a crate re-exports at its root, with the rooms that they come from.
pub(super) fn shown_at_root(code: &str) -> Vec<(String, String)> {
    let uses = code.split(';').filter_map(|statement| {
        let statement = statement.trim();
        let path = statement.strip_prefix("pub use ");
        path.or_else(|| statement.strip_prefix("pub(crate) use "))
    });
    uses.filter_map(|path| path.split_once("::"))
        .flat_map(|(room, path)| {
            let names = path.rsplit("::").next().unwrap_or_default();
            let names = names.trim_matches(|char: char| "{}".contains(char) || char.is_whitespace());
            names
                .split(',')
                .map(|name| (name.trim().to_owned(), room.to_owned()))
                .collect::<Vec<_>>()
        })
        .filter(|(name, _)| !name.is_empty())
        .collect()
}

/// Returns the files that a file declares for its tests only.
pub(super) fn tests_apart(file: &Path, text: &str) -> Vec<PathBuf> {
    let folder = match file.file_stem().and_then(|stem| stem.to_str()) {
        Some("mod" | "lib" | "main") | None => file.parent().map(Path::to_path_buf).unwrap_or_default(),
        Some(_) => file.with_extension(""),
    };
    let mut lines = text.lines().peekable();
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        if line != "#[cfg(test)]" {
            continue;
        }
        while lines.next_if(|line| line.starts_with("#[")).is_some() {}
        let declared = lines.peek().and_then(|line| line.strip_prefix("mod "));
        if let Some(name) = declared.and_then(|rest| rest.strip_suffix(';')) {
            found.push(folder.join(format!("{name}.rs")));
        }
    }
    found
}

/// Returns a file's text without comments, and without the tests at its end.
pub(super) fn code(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    for line in text.lines() {
        if line.starts_with("mod tests {") {
            break;
        }
        code.push_str(line.split("//").next().unwrap_or_default());
        code.push('\n');
    }
    code
}

/// Returns how many modules a file is below the crate's root.
fn depth(file: &Path) -> usize {
    let parts = file.components().count();
    match file.file_stem().is_some_and(|stem| stem == "mod") {
        true => parts - 1,
        false => parts,
    }
}

/// Returns the names of the crate's root that the code refers to: as `crate::name`, in a group
/// `crate::{name, …}`, or with as many `super::` as lead there.
fn named(code: &str, depth: usize) -> BTreeSet<String> {
    named_below(code, &["crate::", &"super::".repeat(depth)])
}

/// Returns the names that the code refers to below any of these paths.
pub(super) fn named_below(code: &str, paths: &[&str]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for root in paths.iter().filter(|path| !path.is_empty()) {
        for (at, _) in code.match_indices(root) {
            let before = code[..at].chars().next_back();
            if !before.is_some_and(|before| before.is_alphanumeric() || "_:".contains(before)) {
                names.extend(firsts(&code[at + root.len()..]));
            }
        }
    }
    names
}

/// Returns the first name of a path, or those of a group of paths.
pub(super) fn firsts(path: &str) -> Vec<String> {
    let name = |text: &str| -> String {
        let name = text.trim_start().chars();
        name.take_while(|char| char.is_alphanumeric() || *char == '_')
            .collect()
    };
    let Some(group) = path.strip_prefix('{') else {
        return vec![name(path)];
    };
    let (mut open, mut start, mut found) = (1, 0, Vec::new());
    for (at, char) in group.char_indices() {
        match char {
            '{' => open += 1,
            '}' => open -= 1,
            _ => {}
        }
        if open == 0 || open == 1 && char == ',' {
            found.push(name(&group[start..at]));
            start = at + 1;
        }
        if open == 0 {
            break;
        }
    }
    found
}

/// Returns groups of at least two rooms that can be reached from one another.
pub(super) fn knots(rooms: &BTreeSet<String>, arrows: &Arrows) -> Vec<Vec<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = rooms
        .iter()
        .map(|room| (room.as_str(), reachable(room, arrows)))
        .collect();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut knots = Vec::new();
    for (room, out) in &reached {
        let back = |other: &&&str| reached.get(**other).is_some_and(|back| back.contains(room));
        let knot: Vec<String> = out.iter().filter(back).map(|name| (*name).to_owned()).collect();
        if knot.len() > 1 && seen.insert(room) {
            seen.extend(out.iter().filter(back));
            knots.push(knot);
        }
    }
    knots
}

fn reachable<'a>(from: &'a str, arrows: &'a Arrows) -> BTreeSet<&'a str> {
    let (mut reached, mut ahead) = (BTreeSet::new(), vec![from]);
    while let Some(room) = ahead.pop() {
        for (_, to) in arrows.keys().filter(|(from, _)| from == room) {
            if reached.insert(to.as_str()) {
                ahead.push(to);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "# A\n\n### Rooms of `crates/a/src`, from the top\n\n1. `top`: begins with `what` it is\n2. `left`, `right`: x\n\
        3. `ground`: y\n\n- `ground` → `left`: a reason\n- something `else`\n\n## B\n\n1. `other`: not a room\n";

    /// Returns what is wrong with files of these texts, and the figures.
    fn checked(list: &str, files: &[(&str, &str)]) -> (Vec<String>, Figures) {
        let files: Vec<(PathBuf, String)> = files
            .iter()
            .map(|(file, text)| (PathBuf::from(file), (*text).to_owned()))
            .collect();
        let mut wrong = Vec::new();
        let figures = compare(&plans(list)[0], &files, &mut wrong);
        (wrong, figures)
    }

    #[test]
    fn the_list_is_read_with_its_floors_and_exceptions() {
        let plans = plans(LIST);
        assert_eq!(plans.len(), 1);
        assert_eq!(plans[0].folder, "crates/a/src");
        assert_eq!(
            plans[0].floors,
            [vec!["top"], vec!["left", "right"], vec!["ground"]]
        );
        assert_eq!(plans[0].exceptions, [("ground".to_owned(), "left".to_owned())]);
    }

    #[test]
    fn arrows_lead_down_but_for_the_exceptions() {
        let (wrong, figures) = checked(
            LIST,
            &[
                ("lib.rs", "mod top;"),
                (
                    "top/mod.rs",
                    "use crate::{left::Left, right};\nuse super::ground;",
                ),
                ("left.rs", "use crate::ground::{a, b};"),
                ("right/mod.rs", "mod deep;"),
                ("right/deep.rs", "fn f() { super::super::left::g() }"),
                ("ground.rs", "use crate::left::Left;"),
            ],
        );
        assert_eq!(wrong, [""; 0]);
        let (rooms, arrows, upward, knot) = (4, 6, 1, 2);
        assert_eq!(
            figures,
            Figures {
                rooms,
                arrows,
                upward,
                knot
            }
        );
    }

    #[test]
    fn an_arrow_that_leads_up_is_found_with_its_file() {
        let files = [
            ("top.rs", ""),
            ("left.rs", ""),
            ("right/a.rs", "fn f(x: crate::top::X) {}"),
            ("ground.rs", "use crate::left;"),
        ];
        let (wrong, _) = checked(LIST, &files);
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        assert!(
            wrong[0].starts_with("crates/a/src/right/a.rs: right may not know top"),
            "{wrong:?}"
        );
    }

    #[test]
    fn a_name_shown_at_the_root_counts_as_its_room() {
        let files = [
            (
                "lib.rs",
                "mod top;\npub use left::A;\npub use top::deep::{\n    B,\n    C,\n};\n",
            ),
            ("top.rs", ""),
            ("left.rs", ""),
            ("right/a.rs", "use crate::{A, C};"),
            ("ground.rs", "use crate::left;"),
        ];
        let (wrong, figures) = checked(LIST, &files);
        assert_eq!((wrong.len(), figures.arrows), (1, 3), "{wrong:?}");
        assert!(wrong[0].contains("right may not know top"), "{wrong:?}");
    }

    #[test]
    fn an_exception_that_nothing_needs_has_to_go() {
        let files = [
            ("top.rs", ""),
            ("left.rs", ""),
            ("right.rs", ""),
            ("ground.rs", ""),
        ];
        let (wrong, _) = checked(LIST, &files);
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        assert!(wrong[0].contains("take the exception off the list"), "{wrong:?}");
    }

    #[test]
    fn rooms_and_list_are_the_same() {
        let list = "### Rooms of `crates/a/src`\n1. `gone`: x\n2. `kept`: y\n";
        let (wrong, _) = checked(list, &[("kept.rs", ""), ("new/mod.rs", "")]);
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(wrong[0].contains("does not list the room new"), "{wrong:?}");
        assert!(wrong[1].contains("lists gone"), "{wrong:?}");
    }

    #[test]
    fn a_knot_of_four_is_found_even_on_one_floor() {
        let list = "### Rooms of `crates/a/src`\n1. `a`, `b`, `c`, `d`: x\n";
        let three = [
            ("a.rs", "use crate::b;"),
            ("b.rs", "use crate::c;"),
            ("c.rs", "use crate::a;"),
            ("d.rs", ""),
        ];
        let (wrong, figures) = checked(list, &three);
        assert_eq!((wrong.len(), figures.knot), (0, 3));
        let four = [
            three[0],
            three[1],
            ("c.rs", "use crate::d;"),
            ("d.rs", "use crate::a;"),
        ];
        let (wrong, figures) = checked(list, &four);
        assert_eq!((wrong.len(), figures.knot), (1, 4));
        assert!(wrong[0].ends_with("a, b, c, d"), "{wrong:?}");
    }

    #[test]
    fn comments_and_tests_have_no_arrows() {
        let list = "### Rooms of `crates/a/src`\n1. `a`: x\n2. `b`, `c`: y\n";
        let tests = "/// [`crate::a`]\nfn f() {}\n#[cfg(test)]\nmod simulated;\n#[cfg(test)]\nmod tests {\n    use crate::a;\n}\n";
        let files = [
            ("a.rs", ""),
            ("b.rs", tests),
            ("b/simulated.rs", "use crate::a;"),
            ("c.rs", "use mycrate::a;"),
        ];
        let (wrong, figures) = checked(list, &files);
        assert_eq!((wrong.len(), figures.arrows), (0, 0));
    }
}
