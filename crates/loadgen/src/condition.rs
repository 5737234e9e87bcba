//! Assertions: conditions that an answer must meet.

use std::cell::OnceCell;
use std::time::Duration;

use http::{HeaderMap, HeaderName};
use regex::Regex;
use serde_json::Value;

use crate::slot::Slot;
use crate::template::Template;

/// An answer that is checked.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    pub(crate) headers: &'a HeaderMap,
    /// The unpacked body.
    pub(crate) body: &'a [u8],
    pub(crate) elapsed: Duration,
    json: OnceCell<Option<Value>>,
}

/// A field of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Field {
    /// `_ctx.response.status`
    Status,
    /// `_ctx.response.header.NAME`
    Header(HeaderName),
    /// `_ctx.response.body`
    Body,
    /// `_ctx.response.body_length`, in bytes.
    Length,
    /// `_ctx.response.body_json.PATH`
    Json(Vec<String>),
    /// `_ctx.elapsed`: milliseconds from the first byte sent to the last byte read.
    Elapsed,
}

/// A condition that an answer must meet.
#[derive(Debug)]
pub(crate) enum Condition {
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Not(Box<Condition>),
    Exists(String, Field),
    Test(String, Field, Test),
}

/// A test of a field's value.
#[derive(Debug)]
pub(crate) enum Test {
    Equals(Expected),
    /// The field equals one of these values.
    In(Vec<Expected>),
    /// The field's text contains this value, or the field is an array with such an element.
    Contains(Expected),
    Prefix(Expected),
    Suffix(Expected),
    Regexp(Regex),
    Range(Vec<(Bound, f64)>),
}

/// An expected value as the file writes it; it may use what earlier answers registered.
#[derive(Debug)]
pub(crate) struct Expected(pub(crate) Template);

/// A bound of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    Above,
    AtLeast,
    Below,
    AtMost,
}

/// Why a condition does not hold.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) why: String,
    /// The answer has no such field at all.
    pub(crate) absent: bool,
}

// === impl Answer ===

impl<'a> Answer<'a> {
    pub(crate) fn new(status: u16, headers: &'a HeaderMap, body: &'a [u8], elapsed: Duration) -> Self {
        Answer {
            status,
            headers,
            body,
            elapsed,
            json: OnceCell::new(),
        }
    }

    fn json(&self) -> Option<&Value> {
        self.json
            .get_or_init(|| serde_json::from_slice(self.body).ok())
            .as_ref()
    }
}

/// A name that is not the name of any field of an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FieldError {
    #[error(
        "`{0}` is not a field of an answer: there are _ctx.response.status, _ctx.response.header.NAME, \
         _ctx.response.body, _ctx.response.body_length, _ctx.response.body_json.PATH and _ctx.elapsed"
    )]
    Unknown(String),
    #[error("`{0}` is not a valid header name")]
    Header(String),
}

// === impl Field ===

impl Field {
    /// Parses the name of a field.
    ///
    /// # Errors
    /// If no field has this name.
    pub(crate) fn parse(name: &str) -> Result<Field, FieldError> {
        let known = || FieldError::Unknown(name.to_owned());
        if matches!(name, "_ctx.elapsed" | "_ctx.response.elapsed") {
            return Ok(Field::Elapsed);
        }
        let field = name.strip_prefix("_ctx.response.").ok_or_else(known)?;
        Ok(match field {
            "status" => Field::Status,
            "body" => Field::Body,
            "body_length" => Field::Length,
            "body_json" => Field::Json(Vec::new()),
            _ => match (field.strip_prefix("header."), field.strip_prefix("body_json.")) {
                (Some(header), _) => Field::Header(
                    HeaderName::try_from(header).map_err(|_| FieldError::Header(header.to_owned()))?,
                ),
                (_, Some(path)) => Field::Json(
                    path.replace('[', ".")
                        .replace(']', "")
                        .split('.')
                        .map(str::to_owned)
                        .collect(),
                ),
                (None, None) => return Err(known()),
            },
        })
    }

    /// Returns the field's value in an answer.
    pub(crate) fn read(&self, answer: &Answer<'_>) -> Option<Value> {
        match self {
            Field::Status => Some(answer.status.into()),
            Field::Header(name) => {
                let values = answer.headers.get_all(name).iter();
                let values: Vec<_> = values
                    .map(|value| String::from_utf8_lossy(value.as_bytes()))
                    .collect();
                (!values.is_empty()).then(|| Value::String(values.join(", ")))
            }
            Field::Body => Some(Value::String(String::from_utf8_lossy(answer.body).into_owned())),
            Field::Length => Some(answer.body.len().into()),
            Field::Elapsed => Some((answer.elapsed.as_secs_f64() * 1e3).into()),
            Field::Json(path) => find(answer.json()?, path).cloned(),
        }
    }
}

/// Finds the value at a path. A key may itself contain dots (`index.number_of_shards`): the shortest existing
/// key is taken.
fn find<'v>(value: &'v Value, path: &[String]) -> Option<&'v Value> {
    let Some((first, rest)) = path.split_first() else {
        return Some(value);
    };
    match value {
        Value::Array(items) => find(items.get(first.parse::<usize>().ok()?)?, rest),
        Value::Object(map) => {
            let mut key = first.clone();
            let mut rest = rest;
            loop {
                if let Some(found) = map.get(&key).and_then(|value| find(value, rest)) {
                    return Some(found);
                }
                let (next, after) = rest.split_first()?;
                key = format!("{key}.{next}");
                rest = after;
            }
        }
        _ => None,
    }
}

/// Returns a value as text: a string without its quotes, anything else as JSON.
pub(crate) fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

// === impl Condition ===

impl Condition {
    /// Checks whether the condition holds for an answer; `registered` has what earlier answers registered.
    ///
    /// # Errors
    /// The first thing that does not hold.
    pub(crate) fn check(&self, answer: &Answer<'_>, registered: &[Vec<u8>]) -> Result<(), Broken> {
        match self {
            Condition::All(all) => all
                .iter()
                .try_for_each(|condition| condition.check(answer, registered)),
            Condition::Any(any) => {
                let mut broken = None;
                for condition in any {
                    match condition.check(answer, registered) {
                        Ok(()) => return Ok(()),
                        Err(why) => broken = broken.or(Some(why)),
                    }
                }
                broken.map_or(Ok(()), Err)
            }
            Condition::Not(condition) => match condition.check(answer, registered) {
                Ok(()) => Err(Broken {
                    why: format!("{} holds, and it should not", condition.describe()),
                    absent: false,
                }),
                Err(_) => Ok(()),
            },
            Condition::Exists(name, field) => match field.read(answer) {
                Some(_) => Ok(()),
                None => Err(absent(name)),
            },
            Condition::Test(name, field, test) => {
                let value = field.read(answer).ok_or_else(|| absent(name))?;
                if test.passes(&value, registered) {
                    return Ok(());
                }
                let mut text = text_of(&value);
                if let Some((end, _)) = text.char_indices().nth(VALUE_CHARS_MAX) {
                    text.truncate(end);
                    text.push('…');
                }
                Err(Broken {
                    why: format!("{name} is `{text}`, {}", test.wanted(registered)),
                    absent: false,
                })
            }
        }
    }

    fn describe(&self) -> String {
        match self {
            Condition::All(_) => "a condition".to_owned(),
            Condition::Any(_) => "one of several conditions".to_owned(),
            Condition::Not(_) => "a negation".to_owned(),
            Condition::Exists(name, _) => format!("`{name} exists`"),
            Condition::Test(name, ..) => format!("the test of {name}"),
        }
    }
}

fn absent(name: &str) -> Broken {
    Broken {
        why: format!("there is no {name}"),
        absent: true,
    }
}

// === impl Test ===

impl Test {
    fn passes(&self, value: &Value, registered: &[Vec<u8>]) -> bool {
        match self {
            Test::Equals(expected) => expected.equals(value, registered),
            Test::In(list) => list.iter().any(|expected| expected.equals(value, registered)),
            Test::Contains(expected) => match value {
                Value::Array(items) => items.iter().any(|item| expected.equals(item, registered)),
                value => text_of(value).contains(&expected.text(registered)),
            },
            Test::Prefix(expected) => text_of(value).starts_with(&expected.text(registered)),
            Test::Suffix(expected) => text_of(value).ends_with(&expected.text(registered)),
            Test::Regexp(regex) => regex.is_match(&text_of(value)),
            Test::Range(bounds) => {
                let number = value.as_f64().or_else(|| text_of(value).parse().ok());
                number.is_some_and(|number| bounds.iter().all(|(bound, limit)| bound.holds(number, *limit)))
            }
        }
    }

    fn wanted(&self, registered: &[Vec<u8>]) -> String {
        match self {
            Test::Equals(expected) => format!("not `{}`", expected.text(registered)),
            Test::In(_) => "which is not in the list".to_owned(),
            Test::Contains(expected) => format!("without `{}`", expected.text(registered)),
            Test::Prefix(expected) => format!("and does not begin with `{}`", expected.text(registered)),
            Test::Suffix(expected) => format!("and does not end with `{}`", expected.text(registered)),
            Test::Regexp(regex) => format!("which `{regex}` does not match"),
            Test::Range(_) => "which is out of range".to_owned(),
        }
    }
}

// === impl Expected ===

impl Expected {
    fn text(&self, registered: &[Vec<u8>]) -> String {
        let mut out = Vec::new();
        self.0.render_with(&mut out, |slot, out| {
            if let Slot::Registered(at) = slot {
                out.extend_from_slice(registered.get(usize::from(at)).map_or(&[][..], Vec::as_slice));
            }
        });
        String::from_utf8_lossy(&out).into_owned()
    }

    /// Compares numbers as numbers, and everything else as text.
    fn equals(&self, value: &Value, registered: &[Vec<u8>]) -> bool {
        let text = self.text(registered);
        match (value, text.parse::<f64>()) {
            (Value::Number(number), Ok(expected)) => {
                number.as_f64() == Some(expected) || number.to_string() == text
            }
            _ => text_of(value) == text,
        }
    }
}

// === impl Bound ===

impl Bound {
    pub(crate) fn parse(name: &str) -> Option<Bound> {
        Some(match name {
            "gt" => Bound::Above,
            "gte" => Bound::AtLeast,
            "lt" => Bound::Below,
            "lte" => Bound::AtMost,
            _ => return None,
        })
    }

    fn holds(self, number: f64, limit: f64) -> bool {
        match self {
            Bound::Above => number > limit,
            Bound::AtLeast => number >= limit,
            Bound::Below => number < limit,
            Bound::AtMost => number <= limit,
        }
    }
}

const VALUE_CHARS_MAX: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(body: &'static str) -> Answer<'static> {
        static EMPTY: std::sync::LazyLock<HeaderMap> = std::sync::LazyLock::new(HeaderMap::new);
        Answer::new(200, &EMPTY, body.as_bytes(), Duration::from_millis(12))
    }

    fn read(field: &str, body: &'static str) -> Option<String> {
        Field::parse(field)
            .unwrap()
            .read(&answer(body))
            .map(|value| text_of(&value))
    }

    #[test]
    fn fields_of_an_answer_are_read() {
        let body = r#"{"a":{"b.c":[1,{"d":"x"}]},"a.b":{"e":true},"n":null}"#;
        assert_eq!(read("_ctx.response.status", body).as_deref(), Some("200"));
        assert_eq!(read("_ctx.elapsed", body).as_deref(), Some("12.0"));
        assert_eq!(read("_ctx.response.body_length", body).as_deref(), Some("53"));
        assert_eq!(
            read("_ctx.response.body_json.a.b.c.1.d", body).as_deref(),
            Some("x")
        );
        assert_eq!(
            read("_ctx.response.body_json.a.b.c[0]", body).as_deref(),
            Some("1")
        );
        assert_eq!(
            read("_ctx.response.body_json.a.b.e", body).as_deref(),
            Some("true")
        );
        assert_eq!(read("_ctx.response.body_json.n", body).as_deref(), Some("null"));
        assert_eq!(read("_ctx.response.body_json.z", body), None);
        assert_eq!(read("_ctx.response.body_json.a", "no json"), None);
        assert!(Field::parse("_ctx.request.body").is_err());
    }

    fn expected(text: &str) -> Expected {
        Expected(Template::compile(text, &mut |_| Ok(Some(Slot::Registered(0)))).unwrap())
    }

    #[test]
    fn tests_compare_numbers_as_numbers_and_the_rest_as_text() {
        let passes = |test: &Test, value: Value| test.passes(&value, &[b"7".to_vec()]);
        assert!(passes(&Test::Equals(expected("1.0")), 1.into()));
        assert!(passes(&Test::Equals(expected("true")), true.into()));
        assert!(passes(&Test::Equals(expected("$[[seven]]")), 7.into()));
        assert!(!passes(&Test::Equals(expected("1.0")), "1".into()));
        assert!(passes(&Test::In(vec![expected("a"), expected("b")]), "b".into()));
        assert!(passes(&Test::Contains(expected("b")), "abc".into()));
        assert!(passes(&Test::Contains(expected("2")), vec![1, 2].into()));
        let range = Test::Range(vec![(Bound::AtLeast, 1.0), (Bound::Below, 2.0)]);
        assert!(passes(&range, 1.into()) && passes(&range, "1.5".into()) && !passes(&range, 2.into()));
        assert!(!passes(&range, "x".into()));
    }

    #[test]
    fn what_is_broken_is_said() {
        let status = |text: &str| {
            let field = Field::parse("_ctx.response.status").unwrap();
            Condition::Test("_ctx.response.status".into(), field, Test::Equals(expected(text)))
        };
        let broken = status("201").check(&answer(""), &[]).unwrap_err();
        assert_eq!(broken.why, "_ctx.response.status is `200`, not `201`");
        let any = Condition::Any(vec![status("201"), status("200")]);
        assert_eq!(any.check(&answer(""), &[]), Ok(()));
        assert!(Condition::Not(Box::new(any)).check(&answer(""), &[]).is_err());
        let field = Field::parse("_ctx.response.header.x").unwrap();
        assert!(
            Condition::Exists("x".into(), field)
                .check(&answer(""), &[])
                .unwrap_err()
                .absent
        );
    }
}
