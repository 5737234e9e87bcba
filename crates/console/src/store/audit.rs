//! The audit log: who did what, when and why.

use std::fmt;

use rusqlite::{Row, params};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Store, StoreError};
use crate::clock::now_ms;

/// Who has done what the console does by itself.
pub(crate) const BY_CONSOLE: &str = "console";
/// Who has done what the command line asks for.
pub(crate) const BY_START: &str = "(start)";
/// Who has tried to log in by a name that is no account's.
pub(crate) const BY_UNKNOWN: &str = "(unknown)";
/// The addresses of refused logins that are not counted apart.
pub(crate) const OTHERS: &str = "(others)";

/// Returns whether the log itself uses a name, in any case. No user may have it: what is done by a user must
/// not look as if it were not.
pub(crate) fn is_reserved(name: &str) -> bool {
    let reserved = [BY_CONSOLE, BY_START, BY_UNKNOWN, OTHERS];
    reserved
        .iter()
        .any(|reserved| reserved.eq_ignore_ascii_case(name))
}

/// A change to note.
#[derive(Debug, Default)]
pub(crate) struct AuditedChange<'a> {
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
pub(crate) struct AuditEntry {
    pub(crate) id: i64,
    pub(crate) at_ms: i64,
    /// The same time in ISO 8601, UTC, for readers outside the page.
    pub(crate) at: String,
    pub(crate) user: String,
    pub(crate) what: String,
    pub(crate) target: String,
    pub(crate) before: Option<Value>,
    pub(crate) after: Option<Value>,
    pub(crate) reason: Option<String>,
}

/// A filter for entries. An absent field matches every entry.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct AuditFilter {
    /// The user's whole name.
    pub(crate) user: Option<String>,
    /// The whole name of what was acted on.
    pub(crate) target: Option<String>,
    /// Text in any part of the entry.
    pub(crate) q: Option<String>,
    /// The time from which entries match, inclusive.
    pub(crate) from_ms: Option<i64>,
    /// The time up to which entries match, exclusive.
    pub(crate) to_ms: Option<i64>,
}

/// A place in the log: after the entry of this time and id, in the order newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AuditPosition(i64, i64);

/// The result of a search.
#[derive(Debug)]
pub(crate) struct AuditPage {
    pub(crate) entries: Vec<AuditEntry>,
    /// Number of entries that were searched.
    pub(crate) searched: u32,
    /// The time of the last entry that was searched.
    pub(crate) back_to_ms: Option<i64>,
    /// The place from which to continue; `None` at the beginning of the log.
    pub(crate) next: Option<AuditPosition>,
}

impl Store {
    /// Adds an entry. There is no way to change one.
    pub(crate) fn note(&self, change: &AuditedChange<'_>) -> Result<(), StoreError> {
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

    /// Searches for entries, newest first, until `limit` are found or [`SEARCHED_MAX`] have been searched.
    pub(crate) fn audit(
        &self,
        filter: &AuditFilter,
        from: Option<AuditPosition>,
        limit: usize,
    ) -> Result<AuditPage, StoreError> {
        let sql = self.sql();
        let mut statement = sql.prepare(
            "SELECT id, at_ms, strftime('%Y-%m-%dT%H:%M:%fZ', at_ms / 1000.0, 'unixepoch'), user, what, target,
                 before, after, reason
             FROM audit WHERE (at_ms, id) < (?, ?) AND at_ms >= ? ORDER BY at_ms DESC, id DESC",
        )?;
        let AuditPosition(at_ms, id) =
            from.unwrap_or(AuditPosition(filter.to_ms.unwrap_or(i64::MAX), i64::MIN));
        let mut rows = statement.query(params![at_ms, id, filter.from_ms.unwrap_or(i64::MIN)])?;
        let mut found = AuditPage {
            entries: Vec::new(),
            searched: 0,
            back_to_ms: None,
            next: None,
        };
        let filter = filter.lowered();
        while let Some(row) = rows.next()? {
            let entry = Raw::of(row)?;
            let place = AuditPosition(entry.at_ms, entry.id);
            found.searched += 1;
            found.back_to_ms = Some(entry.at_ms);
            if filter.fits(&entry) {
                found.entries.push(entry.read());
            }
            if found.entries.len() >= limit || found.searched >= SEARCHED_MAX {
                found.next = Some(place);
                break;
            }
        }
        Ok(found)
    }
}

impl AuditPosition {
    /// Parses what `Display` writes.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (at_ms, id) = text.split_once('.')?;
        Some(Self(at_ms.parse().ok()?, id.parse().ok()?))
    }
}

impl fmt::Display for AuditPosition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.0, self.1)
    }
}

/// An entry as the store has it.
struct Raw {
    id: i64,
    at_ms: i64,
    at: String,
    user: String,
    what: String,
    target: String,
    before: Option<String>,
    after: Option<String>,
    reason: Option<String>,
}

impl Raw {
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            at_ms: row.get(1)?,
            at: row.get(2)?,
            user: row.get(3)?,
            what: row.get(4)?,
            target: row.get(5)?,
            before: row.get(6)?,
            after: row.get(7)?,
            reason: row.get(8)?,
        })
    }

    fn read(self) -> AuditEntry {
        let json = |text: Option<String>| text.and_then(|text| serde_json::from_str(&text).ok());
        AuditEntry {
            id: self.id,
            at_ms: self.at_ms,
            at: self.at,
            user: self.user,
            what: self.what,
            target: self.target,
            before: json(self.before),
            after: json(self.after),
            reason: self.reason,
        }
    }
}

impl AuditFilter {
    /// Returns the filter in lower case, without empty words.
    fn lowered(&self) -> Self {
        let lowered = |word: &Option<String>| {
            word.as_deref()
                .map(str::to_lowercase)
                .filter(|word| !word.is_empty())
        };
        Self {
            user: lowered(&self.user),
            target: lowered(&self.target),
            q: lowered(&self.q),
            ..*self
        }
    }

    fn fits(&self, entry: &Raw) -> bool {
        let is = |filter: &Option<String>, text: &str| {
            filter.as_ref().is_none_or(|word| text.to_lowercase() == *word)
        };
        let has = |word: &str| {
            let texts = [&entry.user, &entry.what, &entry.target];
            let more = [&entry.reason, &entry.before, &entry.after];
            let mut all = texts.into_iter().chain(more.into_iter().flatten());
            all.any(|text| text.to_lowercase().contains(word))
        };
        is(&self.user, &entry.user) && is(&self.target, &entry.target) && self.q.as_deref().is_none_or(has)
    }
}

/// Maximum number of entries of one search. The console serves nobody else meanwhile: some tens of
/// milliseconds.
const SEARCHED_MAX: u32 = 5_000;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn store(entries: i64) -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        {
            let mut sql = store.sql();
            let transaction = sql.transaction().unwrap();
            for n in 0..entries {
                // Three of each millisecond: ids have to tell them apart.
                let (user, what) = if n % 10 == 0 {
                    ("Ada", "PUT /logs")
                } else {
                    ("eve", "log in")
                };
                let after = (n == 7).then(|| json!({"colour": "Türkis"}).to_string());
                transaction
                    .execute(
                        "INSERT INTO audit (at_ms, user, what, target, after) VALUES (?, ?, ?, 'console', ?)",
                        params![n / 3, user, what, after],
                    )
                    .unwrap();
            }
            transaction.commit().unwrap();
        }
        (folder, store)
    }

    /// All that fits, asked for in pieces; and how many were searched for it.
    fn all(store: &Store, filter: &AuditFilter, limit: usize) -> (Vec<i64>, u32) {
        let (mut ids, mut searched, mut from) = (Vec::new(), 0, None);
        loop {
            let found = store.audit(filter, from, limit).unwrap();
            assert!(found.entries.len() <= limit && found.searched <= SEARCHED_MAX);
            ids.extend(found.entries.iter().map(|entry| entry.id));
            searched += found.searched;
            from = found.next;
            if from.is_none() {
                return (ids, searched);
            }
            assert_eq!(AuditPosition::parse(&from.unwrap().to_string()), from);
        }
    }

    #[test]
    fn each_entry_is_found_once_the_newest_first_however_it_is_asked_for() {
        let (_folder, store) = store(100);
        let newest_first: Vec<i64> = (1..=100).rev().collect();
        for limit in [1, 7, 100, 1000] {
            assert_eq!(
                all(&store, &AuditFilter::default(), limit),
                (newest_first.clone(), 100)
            );
        }
        let page = store.audit(&AuditFilter::default(), None, 3).unwrap();
        assert_eq!((page.searched, page.back_to_ms), (3, Some(32)));
        assert_eq!(page.entries[0].at, "1970-01-01T00:00:00.033Z");
    }

    #[test]
    fn filters_are_by_user_target_text_and_time() {
        let (_folder, store) = store(100);
        let ids = |filter: AuditFilter| all(&store, &filter, 4).0;
        let word = |word: &str| Some(word.to_owned());
        let adas: Vec<i64> = (0..10).rev().map(|n| n * 10 + 1).collect();
        assert_eq!(
            ids(AuditFilter {
                user: word("ADA"),
                ..AuditFilter::default()
            }),
            adas
        );
        assert_eq!(
            ids(AuditFilter {
                user: word("ad"),
                ..AuditFilter::default()
            }),
            [0; 0]
        );
        assert_eq!(
            ids(AuditFilter {
                q: word("put /lo"),
                ..AuditFilter::default()
            }),
            adas
        );
        assert_eq!(
            ids(AuditFilter {
                q: word("TÜRKIS"),
                ..AuditFilter::default()
            }),
            [8],
            "what it is now is searched, too"
        );
        assert_eq!(
            ids(AuditFilter {
                q: word(""),
                ..AuditFilter::default()
            })
            .len(),
            100
        );
        assert_eq!(
            ids(AuditFilter {
                target: word("prod"),
                ..AuditFilter::default()
            }),
            [0; 0]
        );
        let time = AuditFilter {
            from_ms: Some(1),
            to_ms: Some(3),
            ..AuditFilter::default()
        };
        assert_eq!(ids(time), [9, 8, 7, 6, 5, 4]);
    }

    #[test]
    fn one_search_is_bounded_and_says_how_far_it_came() {
        let entries = i64::from(SEARCHED_MAX) + 100;
        let (_folder, store) = store(entries);
        let filter = AuditFilter {
            q: Some("türkis".to_owned()),
            ..AuditFilter::default()
        };
        let found = store.audit(&filter, None, 10).unwrap();
        assert_eq!((found.entries.len(), found.searched), (0, SEARCHED_MAX));
        let found = store.audit(&filter, found.next, 10).unwrap();
        assert_eq!((found.entries.len(), found.searched, found.next), (1, 100, None));
    }
}
