//! `filter_path` as the servers implement it (`FilterPath`): the parts of an answer that a client wants.
//! Levels are separated by dots, `*` is any text within a name, `**` is any number of levels, and a leading
//! `-` excludes.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::indices::matches;
use crate::pretty::Piece;

/// The filter that a request's `filter_path` asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FilterPath {
    with: Vec<Vec<String>>,
    without: Vec<Vec<String>>,
}

// === impl FilterPath ===

impl FilterPath {
    pub(crate) fn new(text: &str) -> Self {
        let mut filter = Self::default();
        for path in text.split(',').map(str::trim).filter(|path| !path.is_empty()) {
            match path.strip_prefix('-') {
                Some(path) => filter.without.push(levels(path)),
                None => filter.with.push(levels(path)),
            }
        }
        filter
    }

    /// Returns the filter, unless it has so many levels that applying it to an answer would take long.
    pub(crate) fn within_bounds(text: &str) -> Option<Self> {
        let filter = Self::new(text);
        let levels: usize = filter.with.iter().chain(&filter.without).map(Vec::len).sum();
        (levels <= LEVELS_MAX).then_some(filter)
    }

    /// Returns what is left of an object that is given as text, or `None` if nothing is left. The text is
    /// opened piece by piece, since as a value it would take many times its length.
    pub(crate) fn apply_text(&self, object: Box<RawValue>) -> Option<Box<RawValue>> {
        let mut object = object;
        for (paths, mode) in [(&self.with, Mode::Keep), (&self.without, Mode::LeaveOut)] {
            if paths.is_empty() {
                continue;
            }
            let paths: Vec<_> = paths.iter().map(Vec::as_slice).collect();
            let mut left = String::new();
            if !filter_text(&object, &paths, mode, &mut left) {
                return None;
            }
            object = RawValue::from_string(left).ok()?;
        }
        Some(object)
    }

    /// Returns what is left of an object.
    pub(crate) fn apply(&self, object: Map<String, Value>) -> Map<String, Value> {
        let mut value = Value::Object(object);
        if !self.with.is_empty() {
            let paths: Vec<_> = self.with.iter().map(Vec::as_slice).collect();
            value = keep(value, &paths).unwrap_or_default();
        }
        if !self.without.is_empty() {
            let paths: Vec<_> = self.without.iter().map(Vec::as_slice).collect();
            value = leave_out(value, &paths).unwrap_or_default();
        }
        match value {
            Value::Object(object) => object,
            _ => Map::new(),
        }
    }
}

type Path<'a> = &'a [String];

/// The most levels of all paths in a filter for an answer from the queue. People write a handful.
const LEVELS_MAX: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Keep,
    LeaveOut,
}

/// Writes what is left of a piece of text. Returns whether anything is left.
fn filter_text(text: &RawValue, paths: &[Path<'_>], mode: Mode, out: &mut String) -> bool {
    let begin = out.len();
    let mut left = false;
    match Piece::of(text) {
        Piece::Object(entries) => {
            out.push('{');
            for (key, value) in entries {
                let (ends, rest) = below(paths, &key);
                let before = out.len();
                out.push_str(if left { "," } else { "" });
                out.push_str(&Value::from(key).to_string());
                out.push(':');
                let stays = match (mode, ends) {
                    (Mode::Keep, true) => {
                        out.push_str(value.get());
                        true
                    }
                    (Mode::LeaveOut, true) => false,
                    (_, false) => filter_text(value, &rest, mode, out),
                };
                match stays {
                    true => left = true,
                    false => out.truncate(before),
                }
            }
            out.push('}');
        }
        Piece::Array(items) => {
            out.push('[');
            for item in items {
                let before = out.len();
                out.push_str(if left { "," } else { "" });
                match filter_text(item, paths, mode, out) {
                    true => left = true,
                    false => out.truncate(before),
                }
            }
            out.push(']');
        }
        Piece::Plain(plain) => {
            left = mode == Mode::LeaveOut;
            out.push_str(plain);
        }
    }
    if !left {
        out.truncate(begin);
    }
    left
}

/// Returns the names of a path's levels. A dot after a backslash is part of a name.
fn levels(path: &str) -> Vec<String> {
    let mut levels = vec![String::new()];
    let mut letters = path.chars().peekable();
    while let Some(letter) = letters.next() {
        let level = match letter {
            '.' => {
                levels.push(String::new());
                continue;
            }
            '\\' if letters.peek() == Some(&'.') => letters.next(),
            _ => Some(letter),
        };
        levels.last_mut().into_iter().for_each(|last| last.extend(level));
    }
    // Several in a row also mean any number of levels, and would multiply the paths to follow.
    levels.dedup_by(|next, before| next == "**" && before == "**");
    levels
}

/// Returns what is left of `paths` below a key, and whether one of the paths ends at the key.
fn below<'a>(paths: &[Path<'a>], key: &str) -> (bool, Vec<Path<'a>>) {
    let mut rest = Vec::new();
    let mut ends = false;
    for path in paths {
        step(path, key, &mut ends, &mut rest);
    }
    // A path that is reached in two ways is kept once, so there are never more paths than levels.
    rest.sort_unstable_by_key(|path| (path.as_ptr(), path.len()));
    rest.dedup_by_key(|path| (path.as_ptr(), path.len()));
    (ends, rest)
}

fn step<'a>(path: Path<'a>, key: &str, ends: &mut bool, rest: &mut Vec<Path<'a>>) {
    let Some((first, tail)) = path.split_first() else {
        return;
    };
    if first == "**" {
        rest.push(path);
        if tail.is_empty() {
            *ends = true;
        }
        step(tail, key, ends, rest);
    } else if matches(first, key) {
        match tail.is_empty() {
            true => *ends = true,
            false => rest.push(tail),
        }
    }
}

fn keep(value: Value, paths: &[Path<'_>]) -> Option<Value> {
    match value {
        Value::Object(object) => {
            let kept = object.into_iter().filter_map(|(key, value)| {
                let (ends, rest) = below(paths, &key);
                let value = if ends { Some(value) } else { keep(value, &rest) };
                Some((key, value?))
            });
            let kept: Map<_, _> = kept.collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        Value::Array(items) => {
            let kept: Vec<_> = items.into_iter().filter_map(|item| keep(item, paths)).collect();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        _ => None,
    }
}

fn leave_out(value: Value, paths: &[Path<'_>]) -> Option<Value> {
    let object = match value {
        Value::Object(object) => object,
        Value::Array(items) => {
            let kept: Vec<_> = items
                .into_iter()
                .filter_map(|item| leave_out(item, paths))
                .collect();
            return (!kept.is_empty()).then_some(Value::Array(kept));
        }
        plain => return Some(plain),
    };
    let kept = object.into_iter().filter_map(|(key, value)| {
        let (ends, rest) = below(paths, &key);
        let value = if ends { None } else { leave_out(value, &rest) };
        Some((key, value?))
    });
    let kept: Map<_, _> = kept.collect();
    (!kept.is_empty()).then_some(Value::Object(kept))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn filtered(value: Value, filter_path: &str) -> Value {
        let Value::Object(object) = value else {
            panic!("an object")
        };
        Value::Object(FilterPath::new(filter_path).apply(object))
    }

    #[test]
    fn paths_choose_and_leave_out_at_any_depth() {
        let value = json!({
            "persistent": {"a": {"b": "1", "c": "2"}, "x.y": "3"},
            "transient": {"a": {"b": "4"}},
            "list": [{"c": "5"}, {"d": "6"}],
        });
        for (path, left) in [
            ("persistent", json!({"persistent": value["persistent"]})),
            (
                "*.a.b",
                json!({"persistent": {"a": {"b": "1"}}, "transient": {"a": {"b": "4"}}}),
            ),
            ("p*.*.c", json!({"persistent": {"a": {"c": "2"}}})),
            (
                "**.b",
                json!({"persistent": {"a": {"b": "1"}}, "transient": {"a": {"b": "4"}}}),
            ),
            ("**", value.clone()),
            ("persistent.x.y", json!({})),
            ("persistent.x\\.y", json!({"persistent": {"x.y": "3"}})),
            ("-persistent,-list", json!({"transient": value["transient"]})),
            ("persistent,-*.a", json!({"persistent": {"x.y": "3"}})),
            ("acknowledged", json!({})),
            ("list.c", json!({"list": [{"c": "5"}]})),
            ("-list.c,-persistent,-transient", json!({"list": [{"d": "6"}]})),
            ("", value.clone()),
        ] {
            assert_eq!(filtered(value.clone(), path), left, "{path}");
            let text = RawValue::from_string(value.to_string()).unwrap();
            let text = FilterPath::new(path).apply_text(text);
            let text = text.map_or_else(|| "{}".to_owned(), |text| text.get().to_owned());
            assert_eq!(text, left.to_string(), "{path}");
        }
    }

    #[test]
    fn what_an_answer_costs_does_not_grow_with_the_stars_of_a_path() {
        let mut value = json!(1);
        for _ in 0..12 {
            value = json!({"a": value});
        }
        let stars = format!("{}x", "**.".repeat(5_000));
        assert_eq!(filtered(value.clone(), &stars), json!({}));
        let stars = format!("{}x", "**.*.".repeat(500));
        assert_eq!(filtered(value.clone(), &stars), json!({}));
        assert_eq!(FilterPath::within_bounds(&stars), None);
        assert!(FilterPath::within_bounds("items.*.error,took,errors,-**._shards").is_some());
    }
}
