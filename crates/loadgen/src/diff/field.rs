//! Finds the first difference between two documents.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;

use super::canonical::Digester;

/// The first field that differs, in the order of keys, and its value on both sides; none: the field is not
/// there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldDifference {
    /// The field's path, as in `user.names[2]`; empty for the whole document.
    pub path: String,
    /// The beginning of the field's value on the left side.
    pub left: Option<String>,
    /// The beginning of the field's value on the right side.
    pub right: Option<String>,
}

/// Returns the first difference; none if both documents have the same value.
pub(super) fn first(digester: &Digester, left: &str, right: &str) -> Option<FieldDifference> {
    let same = |left: &str, right: &str| digester.value(left) == digester.value(right);
    if same(left, right) {
        return None;
    }
    let (mut left, mut right) = (left, right);
    let mut path = String::new();
    let differs = |left: Option<&str>, right: Option<&str>| match (left, right) {
        (Some(left), Some(right)) => !same(left, right),
        _ => true,
    };
    loop {
        let below = match (parts(left), parts(right)) {
            (Some(here), Some(there)) if here.is_array == there.is_array => {
                let keys = here.parts.keys().chain(there.parts.keys());
                let first = keys
                    .filter(|key| differs(here.text(key), there.text(key)))
                    .min()
                    .cloned();
                first.map(|key| {
                    let found = (here.parts.get(&key).copied(), there.parts.get(&key).copied());
                    (key, found)
                })
            }
            _ => None,
        };
        let Some((key, (here, there))) = below else {
            return Some(FieldDifference {
                path,
                left: Some(beginning(left)),
                right: Some(beginning(right)),
            });
        };
        match &key {
            Key::Name(name) if path.is_empty() => path.clone_from(name),
            Key::Name(name) => path = format!("{path}.{name}"),
            Key::Item(at) => path = format!("{path}[{at}]"),
        }
        match (here.map(RawValue::get), there.map(RawValue::get)) {
            (Some(here), Some(there)) => (left, right) = (here, there),
            (here, there) => {
                return Some(FieldDifference {
                    path,
                    left: here.map(beginning),
                    right: there.map(beginning),
                });
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Name(String),
    Item(usize),
}

/// Members of an object, or items of an array.
struct Parts<'t> {
    is_array: bool,
    parts: BTreeMap<Key, &'t RawValue>,
}

impl<'t> Parts<'t> {
    fn text(&self, key: &Key) -> Option<&'t str> {
        self.parts.get(key).copied().map(RawValue::get)
    }
}

fn parts(text: &str) -> Option<Parts<'_>> {
    if text.trim_start().starts_with('[') {
        let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
        let places = items.into_iter().enumerate();
        return Some(Parts {
            is_array: true,
            parts: places.map(|(at, item)| (Key::Item(at), item)).collect(),
        });
    }
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
    let named = members.into_iter().map(|(name, value)| (Key::Name(name), value));
    Some(Parts {
        is_array: false,
        parts: named.collect(),
    })
}

/// Cuts a text to what fits on a line.
pub(super) fn beginning(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

const SHOWN_CHARS: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    fn found(left: &str, right: &str) -> Option<(String, Option<String>, Option<String>)> {
        let found = first(&Digester::new(), left, right)?;
        Some((found.path, found.left, found.right))
    }

    #[test]
    fn the_first_field_that_differs_is_named_with_both_values() {
        let said = |path: &str, left: &str, right: &str| {
            let value = |text: &str| (text != "-").then(|| text.to_owned());
            Some((path.to_owned(), value(left), value(right)))
        };
        assert_eq!(found(r#"{"a":1.0,"b":[1]}"#, r#"{"b": [1],"a":1}"#), None);
        assert_eq!(
            found(
                r#"{"z":1,"a":{"x":[1,{"y":2}]}}"#,
                r#"{"z":2,"a":{"x":[1,{"y":3}]}}"#
            ),
            said("a.x[1].y", "2", "3")
        );
        assert_eq!(found(r#"{"a":1}"#, r#"{"a":1,"b":null}"#), said("b", "-", "null"));
        assert_eq!(found(r#"{"a":[1,2]}"#, r#"{"a":[1]}"#), said("a[1]", "2", "-"));
        assert_eq!(
            found(r#"{"a":[1]}"#, r#"{"a":{"b":1}}"#),
            said("a", "[1]", r#"{"b":1}"#)
        );
        assert_eq!(found("{}", "1"), said("", "{}", "1"));
        let long = format!("\"{}\"", "é".repeat(100));
        let shown = found(&long, "1").unwrap().1.unwrap();
        assert_eq!(shown.chars().count(), 61);
    }
}
