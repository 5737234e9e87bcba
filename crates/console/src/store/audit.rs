//! The audit log: who did what, when and why.

use rusqlite::params;
use serde::Serialize;
use serde_json::Value;

use super::{Store, StoreError};
use crate::clock::now_ms;

/// A change to note.
#[derive(Debug, Default)]
pub(crate) struct Change<'a> {
    /// The user's name.
    pub(crate) user: &'a str,
    /// The action, in a word or two.
    pub(crate) what: &'a str,
    /// The target of the action.
    pub(crate) target: &'a str,
    /// The target before the change, without secrets.
    pub(crate) before: Option<&'a Value>,
    /// The target after the change.
    pub(crate) after: Option<&'a Value>,
    /// The reason, in the user's words.
    pub(crate) reason: Option<&'a str>,
}

/// An entry of the log.
#[derive(Debug, Serialize)]
pub(crate) struct Entry {
    pub(crate) at_ms: i64,
    pub(crate) user: String,
    pub(crate) what: String,
    pub(crate) target: String,
    pub(crate) before: Option<Value>,
    pub(crate) after: Option<Value>,
    pub(crate) reason: Option<String>,
}

impl Store {
    /// Adds an entry. There is no way to change one.
    pub(crate) fn note(&self, change: &Change<'_>) -> Result<(), StoreError> {
        let text = |value: Option<&Value>| value.map(Value::to_string);
        self.sql().execute(
            "INSERT INTO audit (at_ms, user, what, target, before, after, reason) VALUES (?, ?, ?, ?, ?, ?, ?)",
            params![
                now_ms(),
                change.user,
                change.what,
                change.target,
                text(change.before),
                text(change.after),
                change.reason
            ],
        )?;
        Ok(())
    }

    /// The latest entries, the newest first.
    pub(crate) fn audit(&self, limit: u32) -> Result<Vec<Entry>, StoreError> {
        let sql = self.sql();
        let mut statement = sql.prepare(
            "SELECT at_ms, user, what, target, before, after, reason FROM audit ORDER BY id DESC LIMIT ?",
        )?;
        let json = |text: Option<String>| text.and_then(|text| serde_json::from_str(&text).ok());
        let rows = statement.query_map([limit], |row| {
            Ok(Entry {
                at_ms: row.get(0)?,
                user: row.get(1)?,
                what: row.get(2)?,
                target: row.get(3)?,
                before: json(row.get(4)?),
                after: json(row.get(5)?),
                reason: row.get(6)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}
