//! The section `variables`: where values come from.

use std::collections::HashMap;
use std::path::Path;

use settings::problem::{Problems, nearest};
use settings::yaml::{Node, Value};

use super::Text;
use super::section::Section;
use crate::variable::{Kind, Moment, Sequence, Variable, Words};

/// Most values of one variable, bytes in all.
const VALUES_BYTES_MAX: usize = 1 << 30;

/// All variables, in the file's order.
pub(super) fn read_all(nodes: &[&Node], folder: &Path, problems: &mut Problems) -> Vec<Variable> {
    let mut variables: Vec<Variable> = Vec::new();
    for (at, node) in nodes.iter().enumerate() {
        let path = format!("variables[{at}]");
        let Some(variable) = read(node, &path, folder, problems) else {
            continue;
        };
        if variables.iter().any(|known| known.name == variable.name) {
            let message = format!("there is a variable `{}` already", variable.name);
            problems.error(node.place, &path, message, None);
        }
        variables.push(variable);
    }
    variables
}

fn read(node: &Node, path: &str, folder: &Path, problems: &mut Problems) -> Option<Variable> {
    let mut section = Section::of(node, path, problems)?;
    let name = section.text("name");
    let kind = section.text("type");
    let (Some(name), Some(kind)) = (name.as_ref(), kind) else {
        section.missing(if name.is_none() { "`name`" } else { "`type`" });
        return None;
    };
    if name.text.starts_with("env.") || name.text.contains("]]") {
        let message = format!("`{}` is no name for a variable", name.text);
        section.problems.error(name.place, &name.path, message, None);
    }
    let kind = kind_of(&kind, &mut section, folder);
    section.end();
    Some(Variable {
        name: name.text.clone(),
        kind: kind?,
    })
}

fn kind_of(kind: &Text, section: &mut Section<'_, '_>, folder: &Path) -> Option<Kind> {
    match kind.text.as_str() {
        "file" | "list" => words(kind, section, folder).map(Kind::Words),
        "sequence" => Some(Kind::Sequence(sequence(section, u64::from(u32::MAX)))),
        "sequence64" => Some(Kind::Sequence(sequence(section, u64::MAX))),
        "range" => {
            let from = section.number("from", i64::MIN, i64::MAX).unwrap_or(0);
            let to = section.number("to", i64::MIN, i64::MAX);
            let Some(to) = to else {
                section.missing("`to`");
                return None;
            };
            if to < from {
                let message = format!("the range is empty: it goes from {from} to {to}");
                section
                    .problems
                    .error(section.place, &section.path, message, None);
                return None;
            }
            Some(Kind::Range { from, to })
        }
        "uuid" => Some(Kind::Uuid),
        other => match Moment::of_type(other) {
            Some(moment) => Some(Kind::Moment(moment)),
            None => {
                let known = TYPES.iter().copied();
                let help = match nearest(other, known) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("there are {}", TYPES.join(", ")),
                };
                let message = format!("`{other}` is no type of variables");
                section
                    .problems
                    .error(kind.place, &kind.path, message, Some(help));
                None
            }
        },
    }
}

/// `from` and `to` are both drawn.
fn sequence(section: &mut Section<'_, '_>, to_max: u64) -> Sequence {
    let from = section.number("from", 0, to_max).unwrap_or(1);
    let to = section.number("to", 0, to_max).unwrap_or(to_max);
    if to < from {
        let message = format!("the sequence is empty: it goes from {from} to {to}");
        section
            .problems
            .error(section.place, &section.path, message, None);
    }
    Sequence::new(from, to.max(from))
}

/// The lines of a file, and the items of `data`.
fn words(kind: &Text, section: &mut Section<'_, '_>, folder: &Path) -> Option<Words> {
    let replacements = replacements(section);
    let mut words = Words::default();
    let data_path = section.path_of("data");
    for item in section.list("data") {
        match Text::of(item, &data_path) {
            Some(text) => words.add(replaced(&text.text, &replacements).as_bytes()),
            None => words.add(b""),
        }
    }
    if kind.text == "file"
        && let Some(path) = section.text("path")
    {
        match read_lines(&path.text, folder) {
            Ok(text) => {
                for line in text.lines().filter(|line| !line.is_empty()) {
                    words.add(replaced(line, &replacements).as_bytes());
                }
            }
            Err(error) => {
                let message = format!("`{}` can't be read: {error}", path.text);
                section.problems.error(path.place, &path.path, message, None);
                return None;
            }
        }
    }
    if words.is_empty() {
        let message = "there is not one value in it";
        let help = "write a list `data`, or for type `file` a `path` to lines of text";
        section
            .problems
            .error(kind.place, &section.path, message, Some(help.to_owned()));
        return None;
    }
    Some(words)
}

fn read_lines(path: &str, folder: &Path) -> std::io::Result<String> {
    let here = Path::new(path);
    let beside = folder.join(path);
    let path = if here.exists() || !beside.exists() {
        here
    } else {
        &beside
    };
    if std::fs::metadata(path)?.len() > VALUES_BYTES_MAX as u64 {
        return Err(std::io::Error::other(format!(
            "it is larger than {VALUES_BYTES_MAX} bytes"
        )));
    }
    std::fs::read_to_string(path)
}

/// `replace`: each occurrence of a key becomes its value, in one pass.
fn replacements(section: &mut Section<'_, '_>) -> Vec<(String, String)> {
    let Some(node) = section.get("replace") else {
        return Vec::new();
    };
    let path = section.path_of("replace");
    let Value::Map(entries) = &node.value else {
        let message = format!("a map is expected, not {}", node.describe());
        section.problems.error(node.place, &path, message, None);
        return Vec::new();
    };
    let mut pairs: HashMap<String, String> = HashMap::new();
    for (key, value) in entries {
        if key.name.is_empty() {
            let message = "an empty text can't be replaced";
            section.problems.error(key.place, &path, message, None);
            continue;
        }
        let to = Text::of(value, &path).map_or(String::new(), |text| text.text);
        pairs.insert(key.name.clone(), to);
    }
    let mut pairs: Vec<_> = pairs.into_iter().collect();
    // Of two that fit, the longer one wins.
    pairs.sort_by(|one, two| two.0.len().cmp(&one.0.len()).then(one.0.cmp(&two.0)));
    pairs
}

fn replaced(text: &str, replacements: &[(String, String)]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        match replacements.iter().find(|(from, _)| rest.starts_with(from)) {
            Some((from, to)) => {
                out.push_str(to);
                rest = &rest[from.len()..];
            }
            None => {
                out.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    out
}

/// All types, for messages.
const TYPES: [&str; 13] = [
    "file",
    "list",
    "sequence",
    "sequence64",
    "range",
    "uuid",
    "now_local",
    "now_utc",
    "now_utc_lite",
    "now_unix",
    "now_unix_in_ms",
    "now_unix_in_micro",
    "now_unix_in_nano",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacing_goes_once_over_the_text_and_prefers_the_longer() {
        let pairs = [
            ("ab".to_owned(), "X".to_owned()),
            ("\"".to_owned(), "\\\"".to_owned()),
            ("a".to_owned(), "b".to_owned()),
        ];
        assert_eq!(replaced("abaé\"", &pairs), "Xbé\\\"");
    }
}
