//! Sessions: who is logged in, and until when.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::users::{User, roles};
use super::{Store, StoreError};
use crate::clock::now_ms;
use crate::secrets::{digest_of, token};
use settings::Secret;

impl Store {
    /// Begins a session as long as the user's password hash is this one: to check a password takes a while,
    /// in which an admin may have set another one. Returns the token for the cookie, of which only the digest
    /// is stored; none if the hash is another one, or the user is gone.
    pub(crate) fn begin_session_by(&self, user: i64, password: &str) -> Result<Option<String>, StoreError> {
        let (token, now) = (token(), now_ms());
        let sql = self.sql();
        forget_ended(&sql, now)?;
        let begun = sql.execute(
            "INSERT INTO sessions (digest, user, made_ms, seen_ms)
             SELECT ?, id, ?, ? FROM users WHERE id = ? AND password = ?",
            params![digest_of(&token), now, now, user, password],
        )?;
        Ok((begun == 1).then_some(token))
    }

    /// Begins a session of a user, whatever the password.
    #[cfg(test)]
    pub(crate) fn begin_session(&self, user: i64) -> Result<String, StoreError> {
        self.begin_session_with(user, None, None)
    }

    /// Has each session unused for so much longer.
    #[cfg(test)]
    pub(crate) fn idle_sessions(&self, by_ms: i64) {
        let longer = "UPDATE sessions SET seen_ms = seen_ms - ?";
        self.sql().execute(longer, [by_ms]).unwrap();
    }

    /// Begins a session that an OpenID provider has vouched for with this ID token, and that ends sooner than
    /// others if there is an `ms_max`.
    pub(crate) fn begin_session_with(
        &self,
        user: i64,
        id_token: Option<&Secret>,
        ms_max: Option<i64>,
    ) -> Result<String, StoreError> {
        let (token, now) = (token(), now_ms());
        let ends_ms = ms_max.map(|ms_max| now + ms_max);
        let sealed = id_token
            .map(|id_token| self.vault.seal(OWNER, id_token))
            .transpose()?;
        let sql = self.sql();
        forget_ended(&sql, now)?;
        sql.execute(
            "INSERT INTO sessions (digest, user, made_ms, seen_ms, id_token, ends_ms) VALUES (?, ?, ?, ?, ?, ?)",
            params![digest_of(&token), user, now, now, sealed, ends_ms],
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
                "SELECT users.id, users.name, users.role, sessions.seen_ms, users.issuer IS NOT NULL FROM sessions
                 JOIN users ON users.id = sessions.user
                 WHERE digest = ? AND sessions.made_ms >= ? AND sessions.seen_ms >= ?
                 AND (sessions.ends_ms IS NULL OR sessions.ends_ms >= ?)",
                params![digest, now - SESSION_MS_MAX, now - IDLE_MS_MAX, now],
                |row| {
                    let seen_ms = row.get::<_, i64>(3)?;
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?, seen_ms, row.get(4)?))
                },
            )
            .optional()?;
        let Some((id, name, role, seen_ms, oidc)) = found else {
            return Ok(None);
        };
        // Read with each request, so that a change of roles holds from the next one on.
        let roles = roles(&sql, id, role)?;
        if used && now - seen_ms > NOTED_EVERY_MS {
            sql.execute(
                "UPDATE sessions SET seen_ms = ? WHERE digest = ?",
                params![now, digest],
            )?;
        }
        Ok(Some(User {
            id,
            name,
            roles,
            oidc,
        }))
    }

    /// Ends a session. Returns the ID token that it began with.
    pub(crate) fn end_session(&self, token: &str) -> Result<Option<Secret>, StoreError> {
        let sql = self.sql();
        let ended: Option<Option<Vec<u8>>> = sql
            .query_row(
                "DELETE FROM sessions WHERE digest = ? RETURNING id_token",
                [digest_of(token)],
                |row| row.get(0),
            )
            .optional()?;
        // One that cannot be opened is no reason for the session to stay.
        Ok(ended
            .flatten()
            .and_then(|sealed| self.vault.unseal(OWNER, &sealed).ok()))
    }
}

fn forget_ended(sql: &Connection, now: i64) -> Result<(), StoreError> {
    sql.execute(
        "DELETE FROM sessions WHERE made_ms < ? OR seen_ms < ? OR ends_ms < ?",
        params![now - SESSION_MS_MAX, now - IDLE_MS_MAX, now],
    )?;
    Ok(())
}

/// The owner of sealed ID tokens.
const OWNER: &str = "session/id_token";
/// The time after which a session ends.
pub(crate) const SESSION_MS_MAX: i64 = 12 * 60 * 60 * 1000;
/// The time after which an unused session ends.
const IDLE_MS_MAX: i64 = 30 * 60 * 1000;
/// The precision with which a session's last use is stored.
const NOTED_EVERY_MS: i64 = 60 * 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_by_itself_when_idle_when_old_and_when_told() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        assert!(store.make_first_user("ada", "hash").unwrap());
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
