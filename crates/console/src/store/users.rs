//! Users, their sessions, and the tabs of their dev tools.

use rusqlite::{OptionalExtension as _, params};
use serde::Serialize;
use serde_json::Value;

use super::{Store, StoreError};
use crate::clock::now_ms;
use crate::secrets::{digest_of, token};

/// The user who is logged in.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct User {
    #[serde(skip)]
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) role: String,
}

impl Store {
    /// Whether there is no user yet.
    pub(crate) fn is_first_start(&self) -> Result<bool, StoreError> {
        Ok(!self
            .sql()
            .query_row("SELECT EXISTS (SELECT 1 FROM users)", [], |row| row.get(0))?)
    }

    /// Makes the first user; returns false if there is one already.
    pub(crate) fn make_first_user(&self, name: &str, password: &str) -> Result<bool, StoreError> {
        let made = self.sql().execute(
            "INSERT INTO users (name, role, password, made_ms)
             SELECT ?, 'admin', ?, ? WHERE NOT EXISTS (SELECT 1 FROM users)",
            params![name, password, now_ms()],
        )?;
        Ok(made == 1)
    }

    /// Returns a user, and the hash of the password.
    pub(crate) fn user(&self, name: &str) -> Result<Option<(User, String)>, StoreError> {
        let found = self.sql().query_row(
            "SELECT id, name, role, password FROM users WHERE name = ?",
            [name],
            |row| {
                let user = User {
                    id: row.get(0)?,
                    name: row.get(1)?,
                    role: row.get(2)?,
                };
                Ok((user, row.get(3)?))
            },
        );
        Ok(found.optional()?)
    }

    /// Begins a session. Returns the token for the cookie; only its digest is stored.
    pub(crate) fn begin_session(&self, user: i64) -> Result<String, StoreError> {
        let (token, now) = (token(), now_ms());
        let sql = self.sql();
        sql.execute(
            "DELETE FROM sessions WHERE made_ms < ? OR seen_ms < ?",
            params![now - SESSION_MS_MAX, now - IDLE_MS_MAX],
        )?;
        sql.execute(
            "INSERT INTO sessions (digest, user, made_ms, seen_ms) VALUES (?, ?, ?, ?)",
            params![digest_of(&token), user, now, now],
        )?;
        Ok(token)
    }

    /// Returns the user of a session. `used` says whether the session counts as used by this; looking at a
    /// page does not.
    pub(crate) fn session(&self, token: &str, used: bool) -> Result<Option<User>, StoreError> {
        let (digest, now) = (digest_of(token), now_ms());
        let sql = self.sql();
        let found = sql
            .query_row(
                "SELECT users.id, users.name, users.role, sessions.seen_ms FROM sessions
                 JOIN users ON users.id = sessions.user
                 WHERE digest = ? AND sessions.made_ms >= ? AND sessions.seen_ms >= ?",
                params![digest, now - SESSION_MS_MAX, now - IDLE_MS_MAX],
                |row| {
                    let user = User {
                        id: row.get(0)?,
                        name: row.get(1)?,
                        role: row.get(2)?,
                    };
                    Ok((user, row.get::<_, i64>(3)?))
                },
            )
            .optional()?;
        let Some((user, seen_ms)) = found else {
            return Ok(None);
        };
        if used && now - seen_ms > NOTED_EVERY_MS {
            sql.execute(
                "UPDATE sessions SET seen_ms = ? WHERE digest = ?",
                params![now, digest],
            )?;
        }
        Ok(Some(user))
    }

    /// Ends a session.
    pub(crate) fn end_session(&self, token: &str) -> Result<(), StoreError> {
        self.sql()
            .execute("DELETE FROM sessions WHERE digest = ?", [digest_of(token)])?;
        Ok(())
    }

    /// Returns the texts of a user's dev tools, as the page gave them.
    pub(crate) fn tabs(&self, user: i64) -> Result<Option<Value>, StoreError> {
        let found: Option<String> = self
            .sql()
            .query_row("SELECT tabs FROM tabs WHERE user = ?", [user], |row| row.get(0))
            .optional()?;
        Ok(found.map(|text| serde_json::from_str(&text)).transpose()?)
    }

    /// Stores the texts of a user's dev tools.
    pub(crate) fn set_tabs(&self, user: i64, tabs: &Value) -> Result<(), StoreError> {
        self.sql().execute(
            "INSERT INTO tabs (user, tabs) VALUES (?, ?) ON CONFLICT (user) DO UPDATE SET tabs = excluded.tabs",
            params![user, tabs.to_string()],
        )?;
        Ok(())
    }
}

/// The time after which a session ends.
pub(crate) const SESSION_MS_MAX: i64 = 12 * 60 * 60 * 1000;
/// The time after which an unused session ends.
const IDLE_MS_MAX: i64 = 30 * 60 * 1000;
/// The precision with which a session's last use is stored.
const NOTED_EVERY_MS: i64 = 60 * 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        assert!(store.make_first_user("ada", "hash").unwrap());
        (folder, store)
    }

    #[test]
    fn there_is_one_first_user() {
        let (_folder, store) = store();
        assert!(!store.is_first_start().unwrap());
        assert!(!store.make_first_user("eve", "hash").unwrap());
        assert!(store.user("eve").unwrap().is_none());
        assert_eq!(store.user("ADA").unwrap().unwrap().0.name, "ada");
    }

    #[test]
    fn a_session_ends_by_itself_when_idle_when_old_and_when_told() {
        let (_folder, store) = store();
        let token = store.begin_session(1).unwrap();
        let aged = |column: &str, by: i64| {
            let sql = format!("UPDATE sessions SET {column} = {column} - {by}");
            store.sql().execute(&sql, []).unwrap();
        };
        assert!(store.session(&token, true).unwrap().is_some());
        assert!(store.session("another", true).unwrap().is_none());
        aged("seen_ms", IDLE_MS_MAX - 10_000);
        assert!(
            store.session(&token, true).unwrap().is_some(),
            "and it counts as used by that"
        );
        aged("seen_ms", IDLE_MS_MAX - 10_000);
        assert!(
            store.session(&token, false).unwrap().is_some(),
            "and this does not"
        );
        aged("seen_ms", 20_000);
        assert!(store.session(&token, true).unwrap().is_none());
        let token = store.begin_session(1).unwrap();
        aged("made_ms", SESSION_MS_MAX + 1);
        assert!(store.session(&token, true).unwrap().is_none());
        let token = store.begin_session(1).unwrap();
        store.end_session(&token).unwrap();
        assert!(store.session(&token, true).unwrap().is_none());
    }
}
