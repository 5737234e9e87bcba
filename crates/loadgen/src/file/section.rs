//! A map of the file whose keys are read one by one; a key that nobody reads is unknown.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use settings::problem::{Position, Problems, nearest};
use settings::yaml::{Key, Node, Value};

use super::text::Text;

/// A map, and the keys that have been read from it.
pub(crate) struct Section<'n, 'p> {
    entries: Vec<&'n (Key, Node)>,
    known: Vec<&'static str>,
    pub(crate) path: String,
    pub(crate) place: Position,
    pub(crate) problems: &'p mut Problems,
}

// === impl Section ===

impl<'n, 'p> Section<'n, 'p> {
    /// Returns `None`, and reports a problem, if the node is no map.
    pub(crate) fn of(node: &'n Node, path: &str, problems: &'p mut Problems) -> Option<Self> {
        let Value::Map(entries) = &node.value else {
            let message = format!("a map of keys is expected, not {}", node.describe());
            problems.error(node.place, path, message, None);
            return None;
        };
        for (at, (key, _)) in entries.iter().enumerate() {
            if let Some((first, _)) = entries[..at].iter().find(|(known, _)| known.name == key.name) {
                let help = format!(
                    "the first is at line {}, column {}",
                    first.place.line, first.place.column
                );
                problems.error(
                    key.place,
                    path,
                    format!("`{}` is written twice", key.name),
                    Some(help),
                );
            }
        }
        Some(Section {
            entries: entries.iter().collect(),
            known: Vec::new(),
            path: path.to_owned(),
            place: node.place,
            problems,
        })
    }

    /// Returns the value of a key, if there is one.
    pub(crate) fn get(&mut self, key: &'static str) -> Option<&'n Node> {
        self.known.push(key);
        let (_, node) = self.entries.iter().find(|(written, _)| written.name == key)?;
        (!node.is_null()).then_some(node)
    }

    /// Warns that a key has no effect here, and why.
    pub(crate) fn ignored(&mut self, key: &'static str, why: &str) {
        if let Some(node) = self.get(key) {
            let path = self.path_of(key);
            self.problems
                .warning(node.place, &path, format!("has no effect: {why}"));
        }
    }

    /// Returns a single value (a text, a number or a word) as text.
    pub(crate) fn text(&mut self, key: &'static str) -> Option<Text> {
        let node = self.get(key)?;
        let path = self.path_of(key);
        let text = Text::of(node, &path);
        if text.is_none() {
            let message = format!("a single value is expected, not {}", node.describe());
            self.problems.error(node.place, &path, message, None);
        }
        text
    }

    /// Returns a flag: `true` or `false`.
    pub(crate) fn flag(&mut self, key: &'static str) -> Option<bool> {
        let text = self.text(key)?;
        match text.text.as_str() {
            "true" | "True" | "TRUE" => Some(true),
            "false" | "False" | "FALSE" => Some(false),
            _ => {
                let message = format!("`{}` is neither `true` nor `false`", text.text.escape_debug());
                self.problems.error(text.place, &text.path, message, None);
                None
            }
        }
    }

    /// Returns a whole number between two bounds.
    pub(crate) fn number<T>(&mut self, key: &'static str, from: T, to: T) -> Option<T>
    where
        T: FromStr + PartialOrd + std::fmt::Display,
    {
        let text = self.text(key)?;
        number_in(&text, from, to, self.problems)
    }

    /// Returns the items of a list; none if the key is not there.
    pub(crate) fn list(&mut self, key: &'static str) -> Vec<&'n Node> {
        let Some(node) = self.get(key) else {
            return Vec::new();
        };
        let path = self.path_of(key);
        list_of(node, &path, self.problems)
    }

    /// Returns the path of a key of this map.
    pub(crate) fn path_of(&self, key: &str) -> String {
        match self.path.as_str() {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        }
    }

    /// Reports that a key has to be written.
    pub(crate) fn missing(&mut self, what: &str) {
        self.problems
            .error(self.place, &self.path, format!("{what} is missing"), None);
    }

    /// Reports every key that was not read.
    pub(crate) fn end(self) {
        for (key, _) in &self.entries {
            if self.known.contains(&key.name.as_str()) {
                continue;
            }
            let help = match nearest(&key.name, self.known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known here: {}", self.known.join(", ")),
            };
            let path = self.path_of(&key.name);
            self.problems.error(key.place, &path, "unknown key", Some(help));
        }
    }
}

/// Reads a whole number between two bounds.
pub(crate) fn number_in<T>(text: &Text, from: T, to: T, problems: &mut Problems) -> Option<T>
where
    T: FromStr + PartialOrd + std::fmt::Display,
{
    let message = match text.text.parse::<T>() {
        Ok(number) if number < from => format!("`{}` is less than {from}", text.text),
        Ok(number) if number > to => format!("`{}` is more than {to}", text.text),
        Ok(number) => return Some(number),
        Err(_) => format!("`{}` is not a whole number", text.text.escape_debug()),
    };
    problems.error(text.place, &text.path, message, None);
    None
}

/// Returns the items of a list.
pub(crate) fn list_of<'n>(node: &'n Node, path: &str, problems: &mut Problems) -> Vec<&'n Node> {
    match &node.value {
        Value::List(list) => list.iter().collect(),
        _ => {
            let message = format!("a list is expected, not {}", node.describe());
            let help = Some("begin each item with `- `".to_owned());
            problems.error(node.place, path, message, help);
            Vec::new()
        }
    }
}

/// Returns the path of a file that a load file names: a relative path is looked for in the working directory,
/// then in `folder`.
pub(crate) fn beside(path: &str, folder: &Path) -> PathBuf {
    let beside = folder.join(path);
    if Path::new(path).exists() || !beside.exists() {
        PathBuf::from(path)
    } else {
        beside
    }
}
