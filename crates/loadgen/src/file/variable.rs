//! The section `variables`: the sources of values.

use std::io::Read as _;
use std::path::Path;

use settings::problem::{Problems, nearest};
use settings::yaml::{Key, Node, Value};

use super::section::{Section, beside};
use super::text::Text;
use crate::variable::{Array, Layout, Moment, Replacements, Sequence, Variable, VariableKind, Words};

/// The largest size of all values of one variable, in bytes.
const VALUES_BYTES_MAX: u64 = 1 << 30;
/// The largest number of values of an array.
const ARRAY_SIZE_MAX: u32 = 1_000_000;

/// Reads all variables. Variables that refer to others come last.
pub(super) fn read_all(nodes: &[&Node], folder: &Path, problems: &mut Problems) -> Vec<Variable> {
    let mut variables: Vec<Variable> = Vec::new();
    let numbered = nodes.iter().enumerate();
    let (mut referring, others): (Vec<_>, Vec<_>) = numbered.partition(|(_, node)| refers(node));
    // Arrays come after variables with `by`, since an array may draw from one of those.
    referring.sort_by_key(|(_, node)| is_array(node));
    for (at, node) in others.into_iter().chain(referring) {
        let path = format!("variables[{at}]");
        let Some(variable) = read(node, &path, folder, &variables, problems) else {
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

fn refers(node: &Node) -> bool {
    let by = |entries: &[(Key, Node)]| entries.iter().any(|(key, _)| key.name == "by");
    is_array(node) || matches!(&node.value, Value::Map(entries) if by(entries))
}

fn is_array(node: &Node) -> bool {
    let Value::Map(entries) = &node.value else {
        return false;
    };
    entries.iter().any(|(key, value)| {
        key.name == "type" && Text::of(value, "").is_some_and(|kind| kind.text == "random_array")
    })
}

fn read(
    node: &Node,
    path: &str,
    folder: &Path,
    before: &[Variable],
    problems: &mut Problems,
) -> Option<Variable> {
    let mut section = Section::of(node, path, problems)?;
    let name = section.text("name");
    let kind = section.text("type");
    let (Some(name), Some(kind)) = (name.as_ref(), kind) else {
        section.missing(if name.is_none() { "`name`" } else { "`type`" });
        return None;
    };
    if before.len() == usize::from(u16::MAX) {
        section
            .problems
            .error(node.place, path, "too many variables", None);
        return None;
    }
    if name.text.starts_with("env.") || name.text.contains("]]") {
        let message = format!("`{}` is not a valid name of a variable", name.text);
        section.problems.error(name.place, &name.path, message, None);
    }
    let kind = kind_of(&kind, &mut section, folder, before);
    section.end();
    Some(Variable {
        name: name.text.clone(),
        kind: kind?,
    })
}

fn kind_of(
    kind: &Text,
    section: &mut Section<'_, '_>,
    folder: &Path,
    before: &[Variable],
) -> Option<VariableKind> {
    match kind.text.as_str() {
        "file" | "list" => {
            let words = words(kind, section, folder);
            match section.text("by") {
                None => words.map(VariableKind::Words),
                Some(by) => Some(VariableKind::Tied {
                    to: sequence_named(&by, before, section.problems)?,
                    words: words?,
                }),
            }
        }
        "sequence" => Some(VariableKind::Sequence(sequence(section, u64::from(u32::MAX)))),
        "sequence64" => Some(VariableKind::Sequence(sequence(section, u64::MAX))),
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
            Some(VariableKind::Range { from, to })
        }
        "uuid" => Some(VariableKind::Uuid),
        "random_array" => array(section, before).map(VariableKind::Array),
        "int_array_bitmap" => {
            let from = section.number("from", 0, u32::MAX).unwrap_or(0);
            let to = section.number("to", 0, u32::MAX).unwrap_or(u32::MAX);
            let size = section.number("size", 0, ARRAY_SIZE_MAX).unwrap_or(1);
            if to < from {
                let message = format!("the range is empty: it goes from {from} to {to}");
                section
                    .problems
                    .error(section.place, &section.path, message, None);
            }
            Some(VariableKind::Bitmap {
                from,
                to: to.max(from),
                size,
            })
        }
        "now_with_format" => {
            let format = section.text("format");
            if format.is_none() {
                section.missing("`format`");
            }
            let layout = Layout::new(&format?.text);
            Some(VariableKind::Moment(Moment::Formatted(layout)))
        }
        other => {
            let moment = Moment::of_type(other);
            if moment.is_none() {
                no_type(kind, section.problems);
            }
            moment.map(VariableKind::Moment)
        }
    }
}

fn no_type(kind: &Text, problems: &mut Problems) {
    let help = match nearest(&kind.text, TYPES.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are {}", TYPES.join(", ")),
    };
    let message = format!("`{}` is not a type of variable", kind.text);
    problems.error(kind.place, &kind.path, message, Some(help));
}

/// Returns the sequence that `by` names.
fn sequence_named(by: &Text, variables: &[Variable], problems: &mut Problems) -> Option<u16> {
    let is_sequence = |variable: &Variable| matches!(variable.kind, VariableKind::Sequence(_));
    let at = variables
        .iter()
        .position(|variable| variable.name == by.text && is_sequence(variable));
    if at.is_none() {
        let sequences = variables.iter().filter(|variable| is_sequence(variable));
        let near = nearest(&by.text, sequences.map(|variable| variable.name.as_str()));
        let help = near.map(|near| format!("did you mean `{near}`?"));
        let message = format!("there is no sequence `{}`", by.text);
        problems.error(by.place, &by.path, message, help);
    }
    at.and_then(|at| u16::try_from(at).ok())
}

/// Reads a sequence; `from` and `to` are both drawn.
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

/// Reads the lines of a file, and the items of `data`.
fn words(kind: &Text, section: &mut Section<'_, '_>, folder: &Path) -> Option<Words> {
    let replacements = replacements(section);
    let mut words = Words::default();
    let data_path = section.path_of("data");
    for item in section.list("data") {
        match Text::of(item, &data_path) {
            Some(text) => words.add(replacements.apply(&text.text).as_bytes()),
            None => words.add(b""),
        }
    }
    if kind.text == "file"
        && let Some(path) = section.text("path")
    {
        match read_lines(&path.text, folder) {
            Ok(text) => {
                for line in text.lines().filter(|line| !line.is_empty()) {
                    words.add(replacements.apply(line).as_bytes());
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
    let mut text = String::new();
    let mut file = std::fs::File::open(beside(path, folder))?.take(VALUES_BYTES_MAX + 1);
    if file.read_to_string(&mut text)? as u64 > VALUES_BYTES_MAX {
        return Err(std::io::Error::other(format!(
            "it is larger than {VALUES_BYTES_MAX} bytes"
        )));
    }
    Ok(text)
}

/// Reads `replace`: each occurrence of a key becomes its value.
fn replacements(section: &mut Section<'_, '_>) -> Replacements {
    let Some(node) = section.get("replace") else {
        return Replacements::default();
    };
    let path = section.path_of("replace");
    let Value::Map(entries) = &node.value else {
        let message = format!("a map is expected, not {}", node.describe());
        section.problems.error(node.place, &path, message, None);
        return Replacements::default();
    };
    let mut pairs = Vec::new();
    for (key, value) in entries {
        if key.name.is_empty() {
            let message = "an empty text can't be replaced";
            section.problems.error(key.place, &path, message, None);
            continue;
        }
        let to = Text::of(value, &path).map_or(String::new(), |text| text.text);
        pairs.push((key.name.clone(), to));
    }
    Replacements::new(pairs)
}

/// Reads an array of several values of `variable_key`.
fn array(section: &mut Section<'_, '_>, before: &[Variable]) -> Option<Array> {
    let of = section.text("variable_key");
    let kind = section.text("variable_type");
    let size = section.number("size", 0, ARRAY_SIZE_MAX).unwrap_or(1);
    let quote = section.text("string_bracket");
    let array = Array {
        of: 0,
        size,
        quote: match kind.as_ref().map(|kind| kind.text.as_str()) {
            None | Some("number") => String::new(),
            Some("string") => quote.map_or("\"".to_owned(), |quote| quote.text),
            Some(other) => {
                let message = format!("`{other}` is neither `number` nor `string`");
                let path = section.path_of("variable_type");
                section.problems.error(section.place, &path, message, None);
                return None;
            }
        },
        brackets: section.flag("square_bracket").unwrap_or(true),
        replacements: replacements(section),
    };
    let Some(of) = of else {
        section.missing("`variable_key`");
        return None;
    };
    let Some(at) = before.iter().position(|variable| variable.name == of.text) else {
        let near = nearest(&of.text, before.iter().map(|variable| variable.name.as_str()));
        let help = near.map(|near| format!("did you mean `{near}`?"));
        let message = format!("there is no variable `{}`", of.text);
        section.problems.error(of.place, &of.path, message, help);
        return None;
    };
    if matches!(before[at].kind, VariableKind::Array(_)) {
        let message = format!("`{}` is an array itself", of.text);
        section.problems.error(of.place, &of.path, message, None);
        return None;
    }
    Some(Array {
        of: at as u16,
        ..array
    })
}

/// The names of all types, for messages.
const TYPES: [&str; 16] = [
    "file",
    "list",
    "sequence",
    "sequence64",
    "range",
    "random_array",
    "int_array_bitmap",
    "uuid",
    "now_with_format",
    "now_local",
    "now_utc",
    "now_utc_lite",
    "now_unix",
    "now_unix_in_ms",
    "now_unix_in_micro",
    "now_unix_in_nano",
];
