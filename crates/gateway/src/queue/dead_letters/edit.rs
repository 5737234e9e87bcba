//! Changes a letter before it is replayed: another action line, another source.

use bulk::RouteTable;
use config::Level;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::letter::{Letter, first_line};
use super::{Committed, DeadLetters, LettersError};
use crate::bulk_request::ask_of;
use crate::queue::record::head_of;

/// The new lines of a letter; a line that is not given stays as it is.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edit {
    action: Option<Box<RawValue>>,
    source: Option<Box<RawValue>>,
}

/// Why a letter was not edited.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unfit {
    #[error("there is no such dead letter")]
    NoLetter,
    #[error("the disk has damaged the letter's lines")]
    Damaged,
    #[error(transparent)]
    Invalid(#[from] NoOperation),
    #[error(transparent)]
    Failed(#[from] LettersError),
}

/// Why lines are not one operation that can be sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoOperation {
    #[error(transparent)]
    Action(serde_json::Error),
    #[error("a delete has no source")]
    DeleteWithSource,
    #[error("this action needs a source")]
    WithoutSource,
    #[error("this is not one operation: an action line and, but for a delete, a source")]
    NotOne,
    #[error("the source is not JSON: {0}")]
    NoJson(serde_json::Error),
    #[error("the source is not a JSON object")]
    NoObject,
}

impl DeadLetters {
    /// Gives a letter other lines; durable when this returns. The first lines are kept beside them.
    pub(crate) fn edit(
        &self,
        id: u64,
        edit: &Edit,
        committed: &Committed,
        table: &RouteTable,
        now_ms: u64,
    ) -> Result<Letter, Unfit> {
        let work = self.work.lock();
        let found = self.get(id, committed).map_err(LettersError::Read)?;
        let mut letter = found.ok_or(Unfit::NoLetter)?;
        let before = letter.lines.clone().ok_or(Unfit::Damaged)?;
        let lines = edited(&before, edit)?;
        check(&lines, &letter, table)?;
        letter.original.get_or_insert(before);
        letter.lines = Some(lines);
        letter.edited_ms = Some(now_ms);
        let written = self.rewrite(std::slice::from_ref(&letter));
        // Even if there is no room: this may make some.
        self.tidy(&work);
        written?;
        Ok(letter)
    }
}

/// Returns the lines with the edit's in place of the old ones.
fn edited(lines: &[u8], edit: &Edit) -> Result<Vec<u8>, NoOperation> {
    let action_before = first_line(lines);
    let source_before = lines
        .get(action_before.len() + 1..)
        .filter(|rest| !rest.is_empty())
        .map(first_line);
    let action = match &edit.action {
        Some(action) => one_line(action),
        None => action_before.to_vec(),
    };
    let is_delete = action.windows(8).any(|text| text == b"\"delete\"") && {
        let value: serde_json::Value = serde_json::from_slice(&action).map_err(NoOperation::Action)?;
        value.get("delete").is_some()
    };
    let mut out = action;
    out.push(b'\n');
    match (&edit.source, source_before, is_delete) {
        (Some(_), _, true) => return Err(NoOperation::DeleteWithSource),
        (_, _, true) => {}
        (Some(source), ..) => out.extend(one_line(source)),
        (None, Some(before), _) => out.extend_from_slice(before),
        (None, None, _) => return Err(NoOperation::WithoutSource),
    }
    if !is_delete {
        out.push(b'\n');
    }
    Ok(out)
}

/// Puts JSON as it was sent on one line: newlines stand only between its parts.
fn one_line(json: &RawValue) -> Vec<u8> {
    let newline = |byte: u8| matches!(byte, b'\n' | b'\r');
    let bytes = json.get().bytes();
    bytes
        .map(|byte| if newline(byte) { b' ' } else { byte })
        .collect()
}

/// Checks that these lines are one operation that delivery knows how to send, with a source that is a JSON
/// object.
pub(super) fn check(lines: &[u8], letter: &Letter, table: &RouteTable) -> Result<(), NoOperation> {
    let head = head_of(&letter.cause.target).ok_or(NoOperation::NotOne)?;
    let ask = ask_of(&head, Level::Node);
    let operations = bulk::operations(lines, &ask, table).ok_or(NoOperation::NotOne)?;
    if operations.len() != 1 || operations[0].end != lines.len() {
        return Err(NoOperation::NotOne);
    }
    let source = lines.get(first_line(lines).len() + 1..).unwrap_or_default();
    if !source.is_empty() {
        let object = source.first() == Some(&b'{') || source.trim_ascii_start().first() == Some(&b'{');
        serde_json::from_slice::<IgnoredAny>(source).map_err(NoOperation::NoJson)?;
        if !object {
            return Err(NoOperation::NoObject);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(text: &str) -> Edit {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn what_is_not_given_stays_byte_for_byte() {
        let lines = b"{\"index\":{\"_id\":\"1\"}}\n{\"n\":1.10}\n";
        let both = edited(lines, &Edit::default()).unwrap();
        assert_eq!(both, lines);
        let source = edited(lines, &edit("{\"source\": {\n  \"n\": 2.50\n}}")).unwrap();
        assert_eq!(source, b"{\"index\":{\"_id\":\"1\"}}\n{   \"n\": 2.50 }\n");
        let action = edited(lines, &edit(r#"{"action": {"create": {"_id": "2"}}}"#)).unwrap();
        assert_eq!(action, b"{\"create\": {\"_id\": \"2\"}}\n{\"n\":1.10}\n");
    }

    #[test]
    fn a_delete_has_no_source_and_all_else_has_one() {
        let index = b"{\"index\":{\"_id\":\"1\"}}\n{\"n\":1}\n";
        let delete = b"{\"delete\":{\"_id\":\"1\"}}\n";
        let to_delete = edited(index, &edit(r#"{"action": {"delete": {"_id": "1"}}}"#)).unwrap();
        assert_eq!(to_delete, b"{\"delete\": {\"_id\": \"1\"}}\n");
        assert!(edited(delete, &edit(r#"{"source": {}}"#)).is_err());
        assert!(edited(delete, &edit(r#"{"action": {"index": {"_id": "1"}}}"#)).is_err());
    }
}
