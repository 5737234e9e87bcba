//! Users, their roles, and the tabs of their dev tools.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension as _, params};
use serde::Serialize;
use serde_json::Value;

use super::{Store, StoreError, is_reserved, taken};
use crate::clock::now_ms;
use crate::roles::{Role, Roles};
use crate::secrets::digest_of;

/// The user who is logged in.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct User {
    #[serde(skip)]
    pub(crate) id: i64,
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) roles: Roles,
    /// Whether the user logs in at the OpenID provider, which says which roles the user has.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) oidc: bool,
}

/// A user as admins see one.
#[derive(Debug, Serialize)]
pub(crate) struct Account {
    #[serde(flatten)]
    pub(crate) user: User,
    pub(crate) made_ms: i64,
    /// The last use of a session that is still stored, to the minute.
    pub(crate) seen_ms: Option<i64>,
}

impl Store {
    /// Whether there is no user yet. Users of an OpenID provider do not count: without the provider, nobody
    /// could log in.
    pub(crate) fn is_first_start(&self) -> Result<bool, StoreError> {
        let known = "SELECT EXISTS (SELECT 1 FROM users WHERE issuer IS NULL)";
        Ok(!self.sql().query_row(known, [], |row| row.get(0))?)
    }

    /// Makes the first user; returns false if there is one already.
    pub(crate) fn make_first_user(&self, name: &str, password: &str) -> Result<bool, StoreError> {
        let made = self.sql().execute(
            "INSERT INTO users (name, role, password, made_ms)
             SELECT ?, 'admin', ?, ? WHERE NOT EXISTS (SELECT 1 FROM users WHERE issuer IS NULL OR name = ?)",
            params![name, password, now_ms(), name],
        )?;
        Ok(made == 1)
    }

    /// Returns a user, and the hash of the password if the user has one.
    pub(crate) fn user(&self, name: &str) -> Result<Option<(User, Option<String>)>, StoreError> {
        let sql = self.sql();
        let found = sql
            .query_row(
                "SELECT id, name, role, password, issuer IS NOT NULL FROM users WHERE name = ?",
                [name],
                |row| {
                    Ok((
                        row.get(0)?,
                        row.get(1)?,
                        row.get(2)?,
                        row.get(3)?,
                        row.get::<_, bool>(4)?,
                    ))
                },
            )
            .optional()?;
        let Some((id, name, role, password, oidc)) = found else {
            return Ok(None);
        };
        let roles = roles(&sql, id, role)?;
        let password = Some(password).filter(|_| !oidc);
        Ok(Some((
            User {
                id,
                name,
                roles,
                oidc,
            },
            password,
        )))
    }

    /// Returns all users, sorted by name.
    pub(crate) fn users(&self) -> Result<Vec<Account>, StoreError> {
        let sql = self.sql();
        let mut statement = sql.prepare(
            "SELECT id, name, role, made_ms, (SELECT max(seen_ms) FROM sessions WHERE user = users.id),
             issuer IS NOT NULL FROM users ORDER BY name",
        )?;
        let rows = statement.query_map([], |row| {
            Ok((
                row.get(0)?,
                row.get(1)?,
                row.get(2)?,
                row.get(3)?,
                row.get(4)?,
                row.get(5)?,
            ))
        })?;
        rows.map(|row| {
            let (id, name, role, made_ms, seen_ms, oidc) = row?;
            let roles = roles(&sql, id, role)?;
            let user = User {
                id,
                name,
                roles,
                oidc,
            };
            Ok(Account {
                user,
                made_ms,
                seen_ms,
            })
        })
        .collect()
    }

    /// Adds a user with the hash of a password. Names that the audit log itself uses are taken.
    pub(crate) fn add_user(&self, name: &str, password: &str, roles: &Roles) -> Result<(), StoreError> {
        if is_reserved(name) {
            return Err(StoreError::Taken(name.to_owned()));
        }
        let mut sql = self.sql();
        let transaction = sql.transaction()?;
        let added = transaction.execute(
            "INSERT INTO users (name, role, password, made_ms) VALUES (?, ?, ?, ?)",
            params![name, roles.role, password, now_ms()],
        );
        taken(added, name)?;
        grant(&transaction, transaction.last_insert_rowid(), roles)?;
        Ok(transaction.commit()?)
    }

    /// Replaces a user's roles. Fails if no admin would be left.
    pub(crate) fn set_roles(&self, user: i64, roles: &Roles) -> Result<(), StoreError> {
        let mut sql = self.sql();
        let transaction = sql.transaction()?;
        transaction.execute(
            "UPDATE users SET role = ? WHERE id = ?",
            params![roles.role, user],
        )?;
        transaction.execute("DELETE FROM grants WHERE user = ?", [user])?;
        grant(&transaction, user, roles)?;
        an_admin_stays(&transaction)?;
        Ok(transaction.commit()?)
    }

    /// Replaces a user's password hash, and ends all of the user's sessions.
    pub(crate) fn set_password(&self, user: i64, password: &str) -> Result<(), StoreError> {
        let mut sql = self.sql();
        let transaction = sql.transaction()?;
        transaction.execute(
            "UPDATE users SET password = ? WHERE id = ?",
            params![password, user],
        )?;
        transaction.execute("DELETE FROM sessions WHERE user = ?", [user])?;
        Ok(transaction.commit()?)
    }

    /// Replaces a user's password hash as long as it is `former`, and ends all of the user's sessions except
    /// the one of this token. Returns whether it was: to check a password takes a while, in which an admin
    /// may have set another one, and that one stays.
    pub(crate) fn change_password(
        &self,
        user: i64,
        former: &str,
        password: &str,
        kept: &str,
    ) -> Result<bool, StoreError> {
        let mut sql = self.sql();
        let transaction = sql.transaction()?;
        let changed = transaction.execute(
            "UPDATE users SET password = ? WHERE id = ? AND password = ?",
            params![password, user, former],
        )?;
        if changed == 0 {
            return Ok(false);
        }
        transaction.execute(
            "DELETE FROM sessions WHERE user = ? AND digest <> ?",
            params![user, digest_of(kept)],
        )?;
        transaction.commit()?;
        Ok(true)
    }

    /// Removes a user with roles, sessions and tabs. Fails if no admin of the console's own would be left.
    pub(crate) fn remove_user(&self, user: i64) -> Result<(), StoreError> {
        let mut sql = self.sql();
        let transaction = sql.transaction()?;
        let removed: Option<bool> = transaction
            .query_row(
                "DELETE FROM users WHERE id = ? RETURNING issuer IS NULL",
                [user],
                |row| row.get(0),
            )
            .optional()?;
        if removed == Some(true) {
            an_admin_stays(&transaction)?;
        }
        Ok(transaction.commit()?)
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

/// Reads a user's roles, given the general one.
pub(super) fn roles(sql: &Connection, user: i64, role: Role) -> Result<Roles, StoreError> {
    let mut statement = sql.prepare("SELECT cluster, role FROM grants WHERE user = ?")?;
    let rows = statement.query_map([user], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let clusters = rows.collect::<Result<BTreeMap<String, Role>, _>>()?;
    Ok(Roles { role, clusters })
}

pub(super) fn grant(sql: &Connection, user: i64, roles: &Roles) -> Result<(), StoreError> {
    for (cluster, role) in &roles.clusters {
        sql.execute(
            "INSERT INTO grants (user, cluster, role) VALUES (?, ?, ?)",
            params![user, cluster, role],
        )?;
    }
    Ok(())
}

/// Checks that an admin is left who needs no OpenID provider to log in.
fn an_admin_stays(sql: &Connection) -> Result<(), StoreError> {
    let stays: bool = sql.query_row(
        "SELECT EXISTS (SELECT 1 FROM users WHERE role = ? AND issuer IS NULL)",
        [Role::Admin],
        |row| row.get(0),
    )?;
    stays.then_some(()).ok_or(StoreError::LastAdmin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ClusterEntry;

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

    fn roles_of(store: &Store, name: &str) -> Roles {
        store.user(name).unwrap().unwrap().0.roles
    }

    #[test]
    fn roles_are_changed_as_a_whole_and_go_with_their_cluster() {
        let (_folder, store) = store();
        for id in ["a", "b"] {
            let cluster = ClusterEntry {
                id: id.into(),
                name: id.into(),
                ..ClusterEntry::default()
            };
            store.keep_cluster(&cluster, None).unwrap();
        }
        let roles = |role, clusters: &[(&str, Role)]| Roles {
            role,
            clusters: clusters
                .iter()
                .map(|(id, role)| ((*id).to_owned(), *role))
                .collect(),
        };
        let first = roles(Role::None, &[("a", Role::Operator), ("b", Role::Viewer)]);
        store.add_user("eve", "hash", &first).unwrap();
        assert_eq!(roles_of(&store, "eve"), first);
        for name in ["Eve", "console", "Console", "(START)", "(unknown)"] {
            let taken = store.add_user(name, "hash", &first);
            assert!(matches!(taken, Err(StoreError::Taken(_))), "{name}");
        }
        let unknown = store.add_user("bob", "hash", &roles(Role::None, &[("x", Role::Viewer)]));
        assert!(
            unknown.is_err() && store.user("bob").unwrap().is_none(),
            "all of it or nothing"
        );
        let id = store.user("eve").unwrap().unwrap().0.id;
        let second = roles(Role::Viewer, &[("b", Role::Admin)]);
        store.set_roles(id, &second).unwrap();
        assert_eq!(roles_of(&store, "eve"), second);
        store.forget_cluster("b").unwrap();
        assert_eq!(roles_of(&store, "eve"), roles(Role::Viewer, &[]));
        let names: Vec<_> = store
            .users()
            .unwrap()
            .into_iter()
            .map(|one| one.user.name)
            .collect();
        assert_eq!(names, ["ada", "eve"]);
    }

    #[test]
    fn the_last_admin_stays_one() {
        let (_folder, store) = store();
        let viewer = Roles {
            role: Role::Viewer,
            clusters: BTreeMap::new(),
        };
        assert!(matches!(store.set_roles(1, &viewer), Err(StoreError::LastAdmin)));
        assert!(matches!(store.remove_user(1), Err(StoreError::LastAdmin)));
        assert_eq!(roles_of(&store, "ada").role, Role::Admin);
        let admin = Roles {
            role: Role::Admin,
            clusters: BTreeMap::new(),
        };
        store.add_user("eve", "hash", &admin).unwrap();
        store.set_roles(1, &viewer).unwrap();
        store.remove_user(1).unwrap();
        assert!(store.user("ada").unwrap().is_none());
    }

    #[test]
    fn another_password_ends_the_sessions_that_are_not_kept() {
        let (_folder, store) = store();
        let [mine, other] = [(); 2].map(|()| store.begin_session(1).unwrap());
        assert!(store.change_password(1, "hash", "new", &mine).unwrap());
        assert!(store.session(&mine, true).unwrap().is_some());
        assert!(store.session(&other, true).unwrap().is_none());
        assert_eq!(store.user("ada").unwrap().unwrap().1.as_deref(), Some("new"));
        store.set_password(1, "newer").unwrap();
        assert!(store.session(&mine, true).unwrap().is_none());
    }

    #[test]
    fn what_an_admin_sets_while_a_password_is_checked_stays() {
        let (_folder, store) = store();
        let mine = store.begin_session(1).unwrap();
        // The check of a password takes until here; an admin has set another one meanwhile.
        store.set_password(1, "of the admin").unwrap();
        assert!(!store.change_password(1, "hash", "new", &mine).unwrap());
        assert!(store.begin_session_by(1, "hash").unwrap().is_none());
        assert_eq!(
            store.user("ada").unwrap().unwrap().1.as_deref(),
            Some("of the admin")
        );
        assert!(store.session(&mine, true).unwrap().is_none());
        let token = store.begin_session_by(1, "of the admin").unwrap().unwrap();
        assert!(store.session(&token, true).unwrap().is_some());
        assert!(
            store.begin_session_by(2, "of the admin").unwrap().is_none(),
            "nobody"
        );
    }
}
