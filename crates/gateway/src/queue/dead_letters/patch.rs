//! Makes one change in many letters: fields of their sources are set, removed, renamed or converted, and
//! everything else stays byte for byte.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bulk::RouteTable;
use parking_lot::MutexGuard;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::edit::{NoOperation, check};
use super::letter::{Letter, first_line};
use super::{Committed, DeadLetters, LetterFilter, LettersError};

/// The steps to be done to each source, in this order.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Patch {
    patch: Vec<Step>,
}

/// One step. A field is named as in a mapping, `a.b`; where the source has no such field, only `set` has an
/// effect.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Step {
    Set { field: String, value: Box<RawValue> },
    Remove { field: String },
    Rename { field: String, to: String },
    Convert { field: String, to: ValueType },
}

/// The kind that a value is converted to.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ValueType {
    Long,
    Double,
    Boolean,
    String,
}

/// The result of a patch.
#[derive(Debug, Default)]
pub(crate) struct Patched {
    pub(crate) patched: u64,
    /// Letters that the patch does not change.
    pub(crate) unchanged: u64,
    /// Letters that the patch does not fit, each with the reason.
    pub(crate) refused: BTreeMap<u64, String>,
    /// The first letters, each as it was and as the patch makes it.
    pub(crate) preview: Vec<(Letter, Letter)>,
    /// The first letter that was not looked at because time was up: the next request goes on from it.
    pub(crate) next: Option<u64>,
    /// All letters that were meant have ids below this one. The next request says it too, and so does the one
    /// that follows a dry run: letters come meanwhile.
    pub(crate) before: u64,
}

/// Why a patch does not fit a letter.
#[derive(Debug, thiserror::Error)]
enum Misfit {
    #[error("the disk has damaged its lines")]
    Damaged,
    #[error("a delete has no source")]
    Delete,
    #[error("its source is not UTF-8")]
    NotUtf8,
    #[error("its source is not a JSON object")]
    Source,
    #[error("{0} is not an object")]
    NotObject(String),
    #[error("{field}: {why}")]
    Value { field: String, why: Box<Misfit> },
    #[error("it is neither text, number nor boolean")]
    Nested,
    #[error("{0} is neither true nor false")]
    NotBoolean(String),
    #[error("{0} is not a whole number")]
    NotWhole(String),
    #[error("{0} is not a number")]
    NotNumber(String),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// The lines that the patch makes are not one operation.
    #[error(transparent)]
    Operation(#[from] NoOperation),
}

/// The conditions under which letters are patched.
pub(crate) struct PatchTerms<'a> {
    pub(crate) table: &'a RouteTable,
    pub(crate) now_ms: u64,
    /// Whether only the result is shown, and nothing is changed.
    pub(crate) dry_run: bool,
    /// Only letters with this id and greater ones are looked at.
    pub(crate) from: u64,
    /// How long the patch may take, or little longer.
    pub(crate) within: Duration,
}

impl Patch {
    /// Returns why a patch makes no sense, if it does not.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        if self.patch.is_empty() {
            return Some("`patch` has no step");
        }
        let names = self.patch.iter().flat_map(|step| match step {
            Step::Rename { field, to } => vec![field, to],
            Step::Set { field, .. } | Step::Remove { field } | Step::Convert { field, .. } => vec![field],
        });
        let broken = |name: &String| name.split('.').any(str::is_empty);
        names
            .into_iter()
            .any(broken)
            .then_some("a field is named as `a` or `a.b`")
    }

    /// Returns a source with all steps done; `None` if that changes nothing.
    fn apply(&self, source: &str) -> Result<Option<String>, Misfit> {
        let mut object: Object = serde_json::from_str(source).map_err(|_| Misfit::Source)?;
        let mut changed = false;
        for step in &self.patch {
            changed |= match step {
                Step::Set { field, value } => object.set(field, one_line(value))?,
                Step::Remove { field } => object.take(field)?.is_some(),
                Step::Rename { field, to } => match object.take(field)? {
                    Some(value) => object.set(to, value)?,
                    None => false,
                },
                Step::Convert { field, to } => match object.get(field)? {
                    Some(value) => match converted(value.get(), *to) {
                        Ok(Some(value)) => object.set(field, value)?,
                        Ok(None) => false,
                        Err(why) => return Err(why.of(field)),
                    },
                    None => false,
                },
            };
        }
        Ok(changed.then(|| object.to_json()))
    }
}

impl Misfit {
    /// Returns this misfit as one of a field.
    fn of(self, field: &str) -> Self {
        Self::Value {
            field: field.to_owned(),
            why: Box::new(self),
        }
    }
}

impl DeadLetters {
    /// Patches the letters that are meant, in the order of their ids, which patched letters keep; durable
    /// when this returns. The first lines of each are kept beside the new ones. At least one letter is looked
    /// at, so that requests that go on from each other come to an end. If the store has no room for some, the
    /// result says from which letter on to try again.
    ///
    /// # Errors
    /// If not even the first letters could be written, or the disk fails.
    pub(crate) fn patch(
        &self,
        patch: &Patch,
        filter: &LetterFilter,
        committed: &Committed,
        terms: &PatchTerms<'_>,
    ) -> Result<Patched, LettersError> {
        let work = self.work.lock();
        let filter = self.bounded(filter);
        let mut picked = self.pick_from(terms.from, &filter, committed)?;
        picked.sort_unstable_by_key(|one| one.id);
        let (began, mut done) = (Instant::now(), Patched::default());
        done.before = filter.before.unwrap_or_default();
        let mut changed = Vec::new();
        let (mut bytes, at_once) = (0, self.patched_at_once());
        let mut written = Ok(());
        // Letters that the patch leaves as they are, since something was written.
        let mut unchanged = Vec::new();
        for (number, one) in picked.iter().enumerate() {
            if number > 0 && began.elapsed() > terms.within {
                done.next = Some(one.id);
                break;
            }
            let Some(before) = self.get(one.id, committed)? else {
                continue;
            };
            match after(&before, patch, terms) {
                Ok(None) => unchanged.push(before.id),
                Err(why) => drop(done.refused.insert(before.id, why.to_string())),
                Ok(Some(after)) => {
                    done.patched += 1;
                    if done.preview.len() < PREVIEW_MAX {
                        done.preview.push((before, after.clone()));
                    }
                    if !terms.dry_run {
                        bytes += one.bytes;
                        changed.push(after);
                    }
                }
            }
            if changed.len() >= LETTERS_MAX || bytes >= at_once {
                written = self.write_patched(&mut changed, &work);
                if written.is_err() {
                    break;
                }
                bytes = 0;
                done.unchanged += std::mem::take(&mut unchanged).len() as u64;
            }
        }
        let written = written.and_then(|()| self.write_patched(&mut changed, &work));
        if let Err(error) = written {
            let left = changed.first().map(|letter| letter.id);
            let Some(left) = left.filter(|left| picked.first().is_some_and(|first| first.id < *left)) else {
                return Err(error);
            };
            done.leave(left, changed.len());
            unchanged.retain(|id| *id < left);
        }
        done.unchanged += unchanged.len() as u64;
        if !terms.dry_run {
            self.tidy(&work);
        }
        Ok(done)
    }

    /// Returns how many bytes of letters are written together: room comes from letters that were written
    /// before.
    fn patched_at_once(&self) -> u64 {
        BYTES_MAX.min(self.room.reserve() / 4)
    }

    /// Writes patched letters, and makes room of what they leave behind once there is little. Those that
    /// could not be written stay in `changed`.
    fn write_patched(
        &self,
        changed: &mut Vec<Letter>,
        work: &MutexGuard<'_, ()>,
    ) -> Result<(), LettersError> {
        if changed.is_empty() {
            return Ok(());
        }
        let written = self.rewrite_as_room_comes(changed);
        // It reads up to a segment, and syncs.
        if written.is_err() || self.is_tight() {
            self.tidy(work);
        }
        written
    }
}

impl Patched {
    /// Takes back what was counted of letters from this one on, of which so many could not be written.
    fn leave(&mut self, from: u64, unwritten: usize) {
        self.patched -= unwritten as u64;
        self.preview.retain(|(before, _)| before.id < from);
        self.refused.retain(|id, _| *id < from);
        self.next = Some(from);
    }
}

/// Returns the letter with its source patched; `None` if nothing changes.
fn after(letter: &Letter, patch: &Patch, terms: &PatchTerms<'_>) -> Result<Option<Letter>, Misfit> {
    let before = letter.lines.as_ref().ok_or(Misfit::Damaged)?;
    let action = first_line(before);
    let source = before
        .get(action.len() + 1..)
        .map(first_line)
        .filter(|source| !source.is_empty());
    let source = std::str::from_utf8(source.ok_or(Misfit::Delete)?).map_err(|_| Misfit::NotUtf8)?;
    let Some(source) = patch.apply(source)? else {
        return Ok(None);
    };
    let lines = [action, b"\n", source.as_bytes(), b"\n"].concat();
    check(&lines, letter, terms.table)?;
    Ok(Some(Letter {
        original: letter.original.clone().or_else(|| Some(before.clone())),
        lines: Some(lines),
        edited_ms: Some(terms.now_ms),
        ..letter.clone()
    }))
}

/// Puts JSON on one line: newlines stand only between its parts.
fn one_line(json: &RawValue) -> Box<RawValue> {
    let text = json.get().replace(['\n', '\r'], " ");
    RawValue::from_string(text).unwrap_or_else(|_| json.to_owned())
}

/// Converts a value to another kind; `None` if it is of that kind already.
fn converted(text: &str, to: ValueType) -> Result<Option<Box<RawValue>>, Misfit> {
    let value: Value = serde_json::from_str(text)?;
    let words = match &value {
        Value::String(words) => words.trim().to_owned(),
        Value::Number(_) | Value::Bool(_) => text.trim().to_owned(),
        _ => return Err(Misfit::Nested),
    };
    let raw = |json: String| Ok(Some(RawValue::from_string(json)?));
    match (to, &value) {
        (ValueType::String, Value::String(_)) | (ValueType::Boolean, Value::Bool(_)) => Ok(None),
        (ValueType::Double, Value::Number(_)) => Ok(None),
        (ValueType::Long, Value::Number(number)) if number.is_i64() => Ok(None),
        (ValueType::String, _) => Ok(Some(to_raw_value(&words)?)),
        (ValueType::Boolean, _) => match words.as_str() {
            "true" | "false" => raw(words),
            _ => Err(Misfit::NotBoolean(brief(text))),
        },
        (ValueType::Long, _) => match words.parse::<i64>() {
            Ok(number) => raw(number.to_string()),
            Err(_) => Err(Misfit::NotWhole(brief(text))),
        },
        (ValueType::Double, _) => match words.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Some(to_raw_value(&number)?)),
            _ => Err(Misfit::NotNumber(brief(text))),
        },
    }
}

fn brief(text: &str) -> String {
    text.chars().take(60).collect()
}

/// A JSON object whose values stay as they were written, in their order.
struct Object(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Object;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Object(fields))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

impl Object {
    fn at(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|(field, _)| field == name)
    }

    /// Returns the object that a field holds, and the rest of the field's name; `None` if there is no such
    /// object.
    fn inner(&self, name: &str) -> Option<(usize, Object, String)> {
        name.match_indices('.').find_map(|(dot, _)| {
            let at = self.at(&name[..dot])?;
            let inner = serde_json::from_str(self.0[at].1.get()).ok()?;
            Some((at, inner, name[dot + 1..].to_owned()))
        })
    }

    fn get(&self, name: &str) -> Result<Option<Box<RawValue>>, Misfit> {
        if let Some(at) = self.at(name) {
            return Ok(Some(self.0[at].1.clone()));
        }
        self.inner(name)
            .map_or(Ok(None), |(_, inner, rest)| inner.get(&rest))
    }

    /// Takes a field away; returns its value.
    fn take(&mut self, name: &str) -> Result<Option<Box<RawValue>>, Misfit> {
        if let Some(at) = self.at(name) {
            return Ok(Some(self.0.remove(at).1));
        }
        let Some((at, mut inner, rest)) = self.inner(name) else {
            return Ok(None);
        };
        let taken = inner.take(&rest)?;
        if taken.is_some() {
            self.0[at].1 = inner.to_raw()?;
        }
        Ok(taken)
    }

    /// Gives a field a value; returns whether that changes anything.
    fn set(&mut self, name: &str, value: Box<RawValue>) -> Result<bool, Misfit> {
        if let Some(at) = self.at(name) {
            let changed = self.0[at].1.get() != value.get();
            self.0[at].1 = value;
            return Ok(changed);
        }
        if let Some((at, mut inner, rest)) = self.inner(name) {
            let changed = inner.set(&rest, value)?;
            self.0[at].1 = inner.to_raw()?;
            return Ok(changed);
        }
        // A name of which the source has no part is nested, as mappings read it.
        match name.split_once('.') {
            Some((first, _)) if self.at(first).is_some() => Err(Misfit::NotObject(first.to_owned())),
            Some((first, rest)) => {
                let mut inner = Object(Vec::new());
                inner.set(rest, value)?;
                self.0.push((first.to_owned(), inner.to_raw()?));
                Ok(true)
            }
            None => {
                self.0.push((name.to_owned(), value));
                Ok(true)
            }
        }
    }

    fn to_json(&self) -> String {
        let fields = self
            .0
            .iter()
            .map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), value.get()));
        format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
    }

    fn to_raw(&self) -> Result<Box<RawValue>, Misfit> {
        Ok(RawValue::from_string(self.to_json())?)
    }
}

/// The most letters that are shown as they would be.
const PREVIEW_MAX: usize = 20;
/// The most letters that are written together, and their bytes.
const LETTERS_MAX: usize = 500;
const BYTES_MAX: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use bulk::{Dialect, Flavour, Version};

    use super::super::Cause;
    use super::*;

    fn patched(steps: &str, source: &str) -> Result<Option<String>, Misfit> {
        let patch: Patch = serde_json::from_str(&format!("{{\"patch\": [{steps}]}}")).unwrap();
        assert_eq!(patch.fault(), None);
        patch.apply(source)
    }

    /// After the steps have been done once, doing them again would give other sources.
    #[test]
    fn a_patch_in_parts_goes_on_behind_the_letters_that_are_done() {
        let folder = tempfile::tempdir().unwrap();
        let options = log::Options {
            lanes: 1,
            free_bytes_min: 0,
            quota_bytes: 8 << 20,
            segment_bytes: 64 << 10,
            ..log::Options::default()
        };
        let letters = DeadLetters::open(folder.path(), options).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for place in 0..5 {
            let cause = Cause {
                group: "c0".to_owned(),
                target: "/_bulk".to_owned(),
                place,
                ..Cause::default()
            };
            let lines = format!("{{\"index\":{{\"_index\":\"logs\"}}}}\n{{\"price\":1{place}}}\n");
            runtime
                .block_on(letters.put(cause, "logs", lines.as_bytes()))
                .unwrap();
        }
        // The group's lane is past the letters.
        let committed = Committed {
            lanes: [("c0".to_owned(), vec![1])].into(),
            ..Committed::default()
        };
        let steps = r#"{"patch": [{"rename": {"field": "price", "to": "old"}},
            {"set": {"field": "price", "value": 0}}]}"#;
        let patch: Patch = serde_json::from_str(steps).unwrap();
        let table = RouteTable::builder(Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0)), 1).build();
        let (mut parts, mut patched, mut from) = (0, 0, Some(0));
        while let Some(id) = from {
            assert!(parts < 5, "it goes back to letters that are done");
            let terms = PatchTerms {
                table: &table,
                now_ms: 1,
                dry_run: false,
                from: id,
                within: Duration::ZERO,
            };
            let done = letters
                .patch(&patch, &LetterFilter::default(), &committed, &terms)
                .unwrap();
            assert_eq!((done.unchanged, done.refused), (0, BTreeMap::new()));
            (parts, patched, from) = (parts + 1, patched + done.patched, done.next);
        }
        assert_eq!((parts, patched), (5, 5));
        let page = letters.list(&LetterFilter::default(), &committed, 0, 10).unwrap();
        let sources = page.letters.iter().map(|letter| {
            let lines = String::from_utf8(letter.lines.clone().unwrap()).unwrap();
            lines.lines().nth(1).unwrap().to_owned()
        });
        let want = (0..5).map(|place| format!("{{\"old\":1{place},\"price\":0}}"));
        assert_eq!(sources.collect::<Vec<_>>(), want.collect::<Vec<_>>());
        letters.close();
    }

    /// What is patched is written again beside the letters as they were, twice as large, and the room of
    /// these comes back bit by bit.
    #[test]
    fn letters_are_patched_as_room_comes_and_none_is_lost_where_none_comes() {
        let folder = tempfile::tempdir().unwrap();
        let options = log::Options {
            lanes: 1,
            free_bytes_min: 0,
            quota_bytes: 1 << 20,
            segment_bytes: 128 << 10,
            cursor_interval: Duration::from_millis(20),
            ..log::Options::default()
        };
        let letters = DeadLetters::open(folder.path(), options).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let filler = "x".repeat(4000);
        let put = |index: &str, most: u32| {
            let of = |place| {
                let cause = Cause {
                    group: "c0".to_owned(),
                    target: "/_bulk".to_owned(),
                    place,
                    ..Cause::default()
                };
                let lines = format!("{{\"index\":{{\"_index\":\"{index}\"}}}}\n{{\"n\":\"{filler}\"}}\n");
                runtime.block_on(letters.put(cause, index, lines.as_bytes()))
            };
            (0..most).take_while(|place| of(*place).is_ok()).count() as u64
        };
        let committed = Committed {
            lanes: [("c0".to_owned(), vec![1])].into(),
            ..Committed::default()
        };
        let table = RouteTable::builder(Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0)), 1).build();
        let patched = |field: &str| {
            let patch = format!("{{\"patch\": [{{\"set\": {{\"field\": \"{field}\", \"value\": 1}}}}]}}");
            let patch: Patch = serde_json::from_str(&patch).unwrap();
            let (mut from, mut patched) = (0, 0);
            loop {
                let terms = PatchTerms {
                    table: &table,
                    now_ms: 1,
                    dry_run: false,
                    from,
                    within: Duration::from_secs(60),
                };
                match letters.patch(&patch, &LetterFilter::default(), &committed, &terms) {
                    Err(_) => return (patched, false),
                    Ok(done) => {
                        assert_eq!((done.unchanged, done.refused), (0, BTreeMap::new()));
                        patched += done.patched;
                        let Some(next) = done.next else {
                            return (patched, true);
                        };
                        assert!(next > from);
                        from = next;
                    }
                }
            }
        };
        // With as much again beside it at once, it would not fit.
        let (all, count) = (LetterFilter::default(), || {
            letters.count(&LetterFilter::default(), &committed).unwrap().0
        });
        assert_eq!((put("logs", 85), patched("a")), (85, (85, true)));
        assert_eq!(letters.purge(&all, &committed, || Ok(())).unwrap(), 85);
        // The keeper deletes what was purged.
        while letters.bytes() > 64 << 10 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let put: u64 = (0..50).map(|index| put(&format!("more-{index}"), 200)).sum();
        assert!(put > 150, "{put}");
        let (done, whole) = patched("b");
        assert!(
            !whole && done < put,
            "{done} of {put}: twice as large, they do not fit"
        );
        assert_eq!(count(), put, "each is there once");
        letters.close();
    }

    #[test]
    fn what_no_step_names_stays_byte_for_byte() {
        let source = r#"{"big": 12345678901234567890123, "n":"12", "f": 1.10, "a": {"b" : [1,  2]}}"#;
        assert_eq!(
            patched(r#"{"convert": {"field": "n", "to": "long"}}"#, source)
                .unwrap()
                .unwrap(),
            r#"{"big":12345678901234567890123,"n":12,"f":1.10,"a":{"b" : [1,  2]}}"#
        );
        assert_eq!(patched(r#"{"remove": {"field": "x.y"}}"#, source).unwrap(), None);
    }

    #[test]
    fn fields_are_named_as_mappings_name_them() {
        let source = r#"{"a":{"b":1,"c":{"d":2}},"x.y":3}"#;
        let one = |step: &str| patched(step, source).unwrap().unwrap_or_default();
        assert_eq!(
            one(r#"{"set": {"field": "a.c.d", "value": 5}}"#),
            r#"{"a":{"b":1,"c":{"d":5}},"x.y":3}"#
        );
        assert_eq!(
            one(r#"{"set": {"field": "x.y", "value": null}}"#),
            r#"{"a":{"b":1,"c":{"d":2}},"x.y":null}"#
        );
        assert_eq!(
            one(r#"{"set": {"field": "p.q", "value": {}}}"#),
            r#"{"a":{"b":1,"c":{"d":2}},"x.y":3,"p":{"q":{}}}"#
        );
        assert_eq!(one(r#"{"remove": {"field": "a.c"}}"#), r#"{"a":{"b":1},"x.y":3}"#);
        assert_eq!(
            one(r#"{"rename": {"field": "a.b", "to": "e"}}"#),
            r#"{"a":{"c":{"d":2}},"x.y":3,"e":1}"#
        );
        assert_eq!(
            one(r#"{"set": {"field": "x.y", "value": 3}}"#),
            "",
            "nothing changes"
        );
        assert!(
            patched(r#"{"set": {"field": "a.b.c", "value": 1}}"#, source)
                .unwrap_err()
                .to_string()
                .contains("not an object")
        );
    }

    #[test]
    fn values_are_converted_only_where_nothing_is_lost() {
        let to = |kind: &str, value: &str| {
            patched(
                &format!(r#"{{"convert": {{"field": "n", "to": "{kind}"}}}}"#),
                &format!("{{\"n\":{value}}}"),
            )
        };
        for (kind, value, made) in [
            ("long", "\" 12\"", "12"),
            ("double", "\"1.5\"", "1.5"),
            ("boolean", "\"true\"", "true"),
            ("string", "1.10", "\"1.10\""),
        ] {
            assert_eq!(to(kind, value).unwrap().unwrap(), format!("{{\"n\":{made}}}"));
        }
        for (kind, value) in [
            ("long", "\"1.5\""),
            ("long", "\"x\""),
            ("long", "1.5"),
            ("boolean", "1"),
            ("long", "null"),
            ("double", "\"NaN\""),
        ] {
            assert!(to(kind, value).is_err(), "{kind} {value}");
        }
        let long = format!("\"{}\"", "x".repeat(5_000));
        for kind in ["long", "double", "boolean"] {
            let why = to(kind, &long).unwrap_err().to_string();
            assert!(why.starts_with("n: \"xxx") && why.len() < 100, "{why}");
        }
        assert_eq!(to("long", "5").unwrap(), None);
        let empty: Patch = serde_json::from_str("{\"patch\": []}").unwrap();
        assert!(empty.fault().is_some());
    }
}
