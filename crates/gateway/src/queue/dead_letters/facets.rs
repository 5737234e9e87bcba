//! Counts letters by properties that they have in common, so that an operator with a hundred thousand of them
//! sees that they are three faults.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use log::ReadError;
use serde::Serialize;

use super::{Committed, DeadLetters, Letter, LetterFilter};

/// The counts of letters, by each of the things that they can have in common.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Facets {
    /// How many letters there are.
    pub(crate) letters: u64,
    /// Reasons without the parts that differ from document to document.
    like: Facet,
    field: Facet,
    index: Facet,
    r#type: Facet,
    status: Facet,
    group: Facet,
    /// All letters that were counted have ids below this one. An action on what was counted says it too:
    /// letters come meanwhile.
    before: u64,
}

/// The counts of one such thing, by value.
///
/// If there are more than [`KEPT_MAX`] values, a first look finds the frequent ones, whenever they come
/// (Misra and Gries, "Finding repeated elements", 1982: of `n` letters, each value with more than `n /
/// KEPT_MAX` of them), and a second look counts these.
#[derive(Debug, Default)]
struct Facet {
    counts: BTreeMap<String, u64>,
    /// The letters of values beyond those that are kept apart.
    others: u64,
    look: Look,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Every value has its own count so far.
    #[default]
    Exact,
    /// The counts are lower than the truth: values had to be dropped.
    Candidates,
    /// Only candidates are counted, and each exactly.
    Second,
}

impl Serialize for Facet {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Value<'a> {
            value: &'a str,
            letters: u64,
        }
        #[derive(Serialize)]
        struct Shown<'a> {
            values: Vec<Value<'a>>,
            others: u64,
        }
        let mut values: Vec<_> = self
            .counts
            .iter()
            .filter(|(_, letters)| **letters > 0)
            .map(|(value, letters)| Value {
                value,
                letters: *letters,
            })
            .collect();
        values.sort_by_key(|one| std::cmp::Reverse(one.letters));
        let others = self.others + values.iter().skip(SHOWN_MAX).map(|one| one.letters).sum::<u64>();
        values.truncate(SHOWN_MAX);
        Shown { values, others }.serialize(serializer)
    }
}

impl Facet {
    fn count(&mut self, value: Option<&str>) {
        let Some(value) = value else { return };
        if let Some(count) = self.counts.get_mut(value) {
            *count += 1;
        } else if self.look == Look::Second {
            self.others += 1;
        } else if self.counts.len() < KEPT_MAX {
            self.counts.insert(value.to_owned(), 1);
        } else {
            // One letter of each value goes together with this one, so this walk is paid for by as many
            // letters.
            self.look = Look::Candidates;
            self.counts.retain(|_, count| {
                *count -= 1;
                *count > 0
            });
        }
    }

    /// Counts the known values anew from here on, and no others.
    fn look_again(&mut self) {
        self.look = Look::Second;
        self.others = 0;
        self.counts.values_mut().for_each(|count| *count = 0);
    }
}

impl Facets {
    fn count(&mut self, letter: &Letter) {
        let cause = &letter.cause;
        self.letters += 1;
        self.like.count(Some(&like(&cause.reason)));
        self.field.count(field(&cause.reason));
        self.index.count(letter.index().as_deref());
        self.r#type.count(Some(&cause.kind));
        self.status.count(Some(&cause.status.to_string()));
        self.group.count(Some(&cause.group));
    }

    fn all(&mut self) -> [&mut Facet; 6] {
        [
            &mut self.like,
            &mut self.field,
            &mut self.index,
            &mut self.r#type,
            &mut self.status,
            &mut self.group,
        ]
    }
}

impl DeadLetters {
    /// Counts the letters that are meant. Reads all of the store, and reads it again if one of the facets has
    /// very many values.
    pub(crate) fn facets(&self, filter: &LetterFilter, committed: &Committed) -> Result<Facets, ReadError> {
        let filter = &self.bounded(filter);
        let mut facets = Facets {
            before: filter.before.unwrap_or_default(),
            ..Facets::default()
        };
        self.count_into(&mut facets, filter, committed)?;
        if facets.all().iter().any(|facet| facet.look == Look::Candidates) {
            facets.letters = 0;
            facets.all().into_iter().for_each(Facet::look_again);
            self.count_into(&mut facets, filter, committed)?;
        }
        Ok(facets)
    }

    fn count_into(
        &self,
        facets: &mut Facets,
        filter: &LetterFilter,
        committed: &Committed,
    ) -> Result<(), ReadError> {
        self.visit_settled(0, committed, |letter| {
            if filter.takes(&letter) {
                facets.count(&letter);
            }
            ControlFlow::Continue(())
        })
    }
}

/// Returns a reason without the parts that differ from document to document: quoted text, numbers, and the id
/// that the reasons of conflicts begin with.
pub(crate) fn like(reason: &str) -> String {
    let mut out = String::with_capacity(reason.len().min(LIKE_BYTES_MAX) + 4);
    let mut rest = reason;
    if let Some((_, after)) = reason.strip_prefix('[').and_then(|rest| rest.split_once("]: ")) {
        out.push_str("[…]: ");
        rest = after;
    }
    let mut chars = rest.chars().peekable();
    while let Some(char) = chars.next() {
        if out.len() > LIKE_BYTES_MAX {
            out.push('…');
            break;
        }
        match char {
            '\'' | '"'
                if out
                    .chars()
                    .next_back()
                    .is_none_or(|before| !before.is_alphanumeric()) =>
            {
                let closed = chars.by_ref().any(|inner| inner == char);
                out.extend([char, '…']);
                if closed {
                    out.push(char);
                }
            }
            '0'..='9' => {
                while chars.next_if(char::is_ascii_digit).is_some() {}
                out.push('#');
            }
            other => out.push(other),
        }
    }
    out
}

/// Returns the field that a reason is about, as servers word it.
pub(super) fn field(reason: &str) -> Option<&str> {
    let named = FIELDS.iter().find_map(|before| {
        let (_, after) = reason.split_once(before)?;
        Some(after.split_once(']')?.0)
    });
    named.filter(|name| !name.is_empty() && name.len() <= FIELD_BYTES_MAX)
}

/// The text before a field's name. The first that is found names the field that the document has.
const FIELDS: [&str; 5] = [
    "object mapping for [",
    "dynamic introduction of [",
    "parse field [",
    "mapper [",
    "field [",
];
const LIKE_BYTES_MAX: usize = 300;
const FIELD_BYTES_MAX: usize = 512;
/// The most values that are counted apart, and the most that are shown.
const KEPT_MAX: usize = 10_000;
const SHOWN_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frequent_value_that_comes_late_is_counted_exactly() {
        let letters = || {
            let rare = (0..3 * KEPT_MAX).map(|n| format!("rare {n}"));
            rare.chain((0..50).map(|_| "frequent".to_owned()))
        };
        let mut facet = Facet::default();
        letters().for_each(|value| facet.count(Some(&value)));
        assert_eq!(facet.look, Look::Candidates);
        facet.look_again();
        letters().for_each(|value| facet.count(Some(&value)));
        let shown = serde_json::to_value(&facet).unwrap();
        assert_eq!(
            shown["values"][0],
            serde_json::json!({"value": "frequent", "letters": 50})
        );
        let told = shown["values"].as_array().unwrap();
        let told: u64 = told.iter().filter_map(|one| one["letters"].as_u64()).sum();
        assert_eq!(told + shown["others"].as_u64().unwrap(), 3 * KEPT_MAX as u64 + 50);
    }

    #[test]
    fn few_values_are_counted_in_one_look() {
        let mut facet = Facet::default();
        (0..KEPT_MAX).for_each(|n| facet.count(Some(&n.to_string())));
        facet.count(Some("0"));
        facet.count(None);
        assert_eq!(facet.look, Look::Exact);
        assert_eq!(facet.counts["0"], 2);
    }

    #[test]
    fn reasons_that_differ_by_their_documents_are_alike() {
        let parse = |id: &str, value: &str| {
            format!(
                "failed to parse field [n] of type [long] in document with id '{id}'. Preview of field's value: '{value}'"
            )
        };
        assert_eq!(like(&parse("a", "x 1")), like(&parse("b-7", "12")));
        assert_eq!(
            like(&parse("a", "x")),
            "failed to parse field [n] of type [long] in document with id '…'. Preview of field's value: '…'"
        );
        assert_eq!(
            like("[x7]: version conflict, current version [12] is higher"),
            "[…]: version conflict, current version [#] is higher"
        );
        assert_eq!(like("never 'closed"), "never '…");
        for reason in [
            &*parse("a", "x 1"),
            "[x7]: version [12]",
            "[a] [b]: 5'x' 7\"y",
            "'1' 's don't",
            &"x'9".repeat(400),
        ] {
            assert_eq!(
                like(&like(reason)),
                like(reason),
                "a pattern is like itself: {reason}"
            );
        }
        assert!(like(&"x".repeat(10_000)).len() < 400);
    }

    #[test]
    fn a_reasons_field_is_the_documents() {
        for (reason, name) in [
            ("failed to parse field [a.b] of type [long]", Some("a.b")),
            (
                "object mapping for [user] tried to parse field [null] as object",
                Some("user"),
            ),
            (
                "mapping set to strict, dynamic introduction of [foo] within [_doc] is not allowed",
                Some("foo"),
            ),
            (
                "mapper [n] cannot be changed from type [long] to [text]",
                Some("n"),
            ),
            ("failed to parse", None),
            ("parse field [never closed", None),
        ] {
            assert_eq!(field(reason), name, "{reason}");
        }
    }
}
