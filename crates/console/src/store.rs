//! The embedded store: users, sessions, the registry, texts, and the audit log. It never contains a document
//! or an answer of a cluster.

mod alerts;
mod audit;
mod oidc;
mod registry;
mod sessions;
mod trials;
mod users;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rusqlite::Connection;

pub(crate) use alerts::{AlertRow, Message, Silence, Webhook};
pub(crate) use audit::{
    AuditFilter, AuditPosition, AuditedChange, BY_CONSOLE, BY_START, BY_UNKNOWN, OTHERS, is_reserved,
};
#[cfg(test)]
pub(crate) use registry::GatewayCluster;
pub(crate) use registry::{ClusterEntry, GatewayEntry};
pub(crate) use sessions::SESSION_MS_MAX;
pub(crate) use trials::TrialRow;
pub(crate) use users::User;

use crate::StartError;
use crate::secrets::{NotOpened, Vault};

/// The store. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Store {
    connection: Arc<Mutex<Connection>>,
    vault: Arc<Vault>,
}

/// Why something could not be stored or read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// SQLite reported an error.
    #[error("the store: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// A secret cannot be opened.
    #[error(transparent)]
    Secret(#[from] NotOpened),
    /// Stored JSON is not valid.
    #[error("the store holds something unexpected: {0}")]
    Json(#[from] serde_json::Error),
    /// Another row has this name.
    #[error("there is another one by the name `{0}`")]
    Taken(String),
    /// There is no such row.
    #[error("there is none with this id")]
    Missing,
    /// No user would be left who may change users.
    #[error("this is the last user with the role admin for everything")]
    LastAdmin,
}

impl Store {
    /// Opens the store in a folder, and brings its tables up to this version.
    pub(crate) fn open(folder: &Path) -> Result<Self, StartError> {
        let vault = Vault::open(&folder.join("console.key"))?;
        let file = folder.join("console.sqlite");
        let mut connection = Connection::open(&file)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        // Deleted data is overwritten: a removed password should be gone, even its sealed form.
        connection.pragma_update(None, "secure_delete", true)?;
        migrate(&mut connection)?;
        Ok(Self {
            connection: Arc::new(Mutex::new(connection)),
            vault: Arc::new(vault),
        })
    }

    /// Locks the connection. Each use is a statement or a transaction, so a panic in between leaves the store
    /// consistent.
    fn sql(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock()
    }
}

/// Turns the violation of a unique name into [`StoreError::Taken`].
fn taken(kept: Result<usize, rusqlite::Error>, name: &str) -> Result<(), StoreError> {
    match kept {
        Ok(_) => Ok(()),
        Err(rusqlite::Error::SqliteFailure(error, _))
            if error.code == rusqlite::ErrorCode::ConstraintViolation =>
        {
            Err(StoreError::Taken(name.to_owned()))
        }
        Err(error) => Err(error.into()),
    }
}

fn migrate(connection: &mut Connection) -> Result<(), StartError> {
    let version: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let known = MIGRATIONS.len() as u32;
    if version > known {
        return Err(StartError::NewerStore);
    }
    for (at, migration) in (1..=known).zip(MIGRATIONS).skip(version as usize) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(migration)?;
        transaction.pragma_update(None, "user_version", at)?;
        transaction.commit()?;
    }
    Ok(())
}

/// Each migration is applied once, in order; released ones are never changed.
const MIGRATIONS: [&str; 7] = ["
CREATE TABLE users (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE COLLATE NOCASE, role TEXT NOT NULL, password TEXT NOT NULL,
    made_ms INTEGER NOT NULL
) STRICT;
CREATE TABLE sessions (
    digest BLOB PRIMARY KEY, user INTEGER NOT NULL REFERENCES users(id) ON DELETE CASCADE,
    made_ms INTEGER NOT NULL, seen_ms INTEGER NOT NULL
) STRICT;
CREATE TABLE gateways (
    id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, url TEXT NOT NULL, secret BLOB, ca_pem TEXT, verify INTEGER NOT NULL
) STRICT;
CREATE TABLE clusters (
    id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, endpoints TEXT NOT NULL, username TEXT, secret BLOB, ca_pem TEXT,
    verify INTEGER NOT NULL, colour TEXT, read_only INTEGER NOT NULL, protected INTEGER NOT NULL,
    from_gateway TEXT REFERENCES gateways(id) ON DELETE SET NULL
) STRICT;
CREATE TABLE gateway_clusters (
    gateway TEXT NOT NULL REFERENCES gateways(id) ON DELETE CASCADE, name TEXT NOT NULL,
    cluster TEXT REFERENCES clusters(id) ON DELETE SET NULL, PRIMARY KEY (gateway, name)
) STRICT;
CREATE TABLE tabs (
    user INTEGER PRIMARY KEY REFERENCES users(id) ON DELETE CASCADE, tabs TEXT NOT NULL
) STRICT;
CREATE TABLE audit (
    id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, user TEXT NOT NULL, what TEXT NOT NULL, target TEXT NOT NULL,
    before TEXT, after TEXT, reason TEXT
) STRICT;
CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
", "
CREATE TABLE grants (
    user INTEGER NOT NULL REFERENCES users(id) ON DELETE CASCADE,
    cluster TEXT NOT NULL REFERENCES clusters(id) ON DELETE CASCADE,
    role TEXT NOT NULL CHECK (role IN ('none', 'viewer', 'operator', 'admin')), PRIMARY KEY (user, cluster)
) STRICT;
CREATE INDEX audit_by_time ON audit (at_ms);
", "
CREATE TABLE alerts (
    id INTEGER PRIMARY KEY AUTOINCREMENT, rule TEXT NOT NULL, kind TEXT NOT NULL, target TEXT NOT NULL,
    name TEXT NOT NULL, part TEXT NOT NULL, words TEXT NOT NULL, since_ms INTEGER NOT NULL,
    fired_ms INTEGER NOT NULL, resolved_ms INTEGER, told INTEGER NOT NULL
) STRICT;
CREATE INDEX alerts_by_end ON alerts (resolved_ms);
CREATE TABLE silences (
    rule TEXT NOT NULL, kind TEXT NOT NULL, target TEXT NOT NULL, until_ms INTEGER NOT NULL, user TEXT NOT NULL,
    reason TEXT NOT NULL, PRIMARY KEY (rule, kind, target)
) STRICT;
CREATE TABLE webhook (
    id INTEGER PRIMARY KEY CHECK (id = 1), sealed BLOB NOT NULL, ca_pem TEXT, verify INTEGER NOT NULL
) STRICT;
CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
", "
CREATE TABLE links (
    gateway TEXT NOT NULL REFERENCES gateways(id) ON DELETE CASCADE, name TEXT NOT NULL,
    cluster TEXT REFERENCES clusters(id) ON DELETE SET NULL, UNIQUE (gateway, name, cluster)
) STRICT;
INSERT INTO links SELECT gateway, name, cluster FROM gateway_clusters;
DROP TABLE gateway_clusters;
", "
CREATE TABLE trials (
    id INTEGER PRIMARY KEY AUTOINCREMENT, gateway TEXT NOT NULL REFERENCES gateways(id) ON DELETE CASCADE,
    cluster TEXT NOT NULL REFERENCES clusters(id) ON DELETE CASCADE, user TEXT NOT NULL, indices TEXT NOT NULL,
    load TEXT NOT NULL, began_ms INTEGER NOT NULL, ended_ms INTEGER, state TEXT NOT NULL, figures TEXT
) STRICT;
CREATE INDEX trials_by_gateway ON trials (gateway, id);
", "
ALTER TABLE users ADD COLUMN issuer TEXT;
ALTER TABLE users ADD COLUMN subject TEXT;
CREATE UNIQUE INDEX users_by_subject ON users (issuer, subject) WHERE issuer IS NOT NULL;
ALTER TABLE sessions ADD COLUMN id_token BLOB;
CREATE TABLE oidc (
    id INTEGER PRIMARY KEY CHECK (id = 1), issuer TEXT NOT NULL, client TEXT NOT NULL, sealed BLOB NOT NULL
) STRICT;
", "
CREATE TABLE rules (id INTEGER PRIMARY KEY CHECK (id = 1), digest TEXT NOT NULL) STRICT;
ALTER TABLE sessions ADD COLUMN ends_ms INTEGER;
ALTER TABLE gateways ADD COLUMN client_pem BLOB;
"];

/// How long a statement waits for another process, for example `sqlite3`.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roles::Role;

    #[test]
    fn a_store_is_opened_again_and_one_of_a_newer_version_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        drop(Store::open(folder.path()).unwrap());
        let store = Store::open(folder.path()).unwrap();
        store.sql().pragma_update(None, "user_version", 99).unwrap();
        drop(store);
        assert!(matches!(Store::open(folder.path()), Err(StartError::NewerStore)));
    }

    #[test]
    fn a_store_of_the_first_version_is_brought_up_and_its_user_stays_admin() {
        let folder = tempfile::tempdir().unwrap();
        let old = Connection::open(folder.path().join("console.sqlite")).unwrap();
        old.execute_batch(MIGRATIONS[0]).unwrap();
        old.pragma_update(None, "user_version", 1).unwrap();
        old.execute_batch(
            "INSERT INTO users VALUES (7, 'ada', 'admin', 'hash', 1);
             INSERT INTO clusters VALUES ('a', 'prod', '[]', NULL, NULL, NULL, 1, NULL, 0, 0, NULL);
             INSERT INTO gateways VALUES ('g', 'gw', 'http://g:2900', NULL, NULL, 1);
             INSERT INTO gateway_clusters VALUES ('g', 'prod', 'a');
             INSERT INTO audit VALUES (1, 5, 'ada', 'log in', 'console', NULL, NULL, NULL);",
        )
        .unwrap();
        drop(old);
        let store = Store::open(folder.path()).unwrap();
        let (user, hash) = store.user("ada").unwrap().unwrap();
        assert_eq!(
            (user.id, user.roles.role, hash.as_deref()),
            (7, Role::Admin, Some("hash"))
        );
        assert_eq!(user.roles.on_cluster("a"), Role::Admin);
        let link = &store.gateway("g").unwrap().unwrap().clusters[0];
        assert_eq!((&*link.name, link.cluster_id.as_deref()), ("prod", Some("a")));
        assert_eq!(
            store.audit(&AuditFilter::default(), None, 10).unwrap().entries[0].what,
            "log in"
        );
        let version: u32 = store
            .sql()
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .unwrap();
        assert_eq!(version, 7);
    }

    #[test]
    fn a_role_that_is_none_gives_no_rights() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        store.make_first_user("ada", "hash").unwrap();
        let token = store.begin_session(1).unwrap();
        store.sql().execute("UPDATE users SET role = 'god'", []).unwrap();
        assert!(store.session(&token, true).is_err());
    }

    #[test]
    fn audit_entries_are_neither_changed_nor_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        store
            .note(&AuditedChange {
                user: "ada",
                what: "login",
                target: "console",
                ..AuditedChange::default()
            })
            .unwrap();
        assert!(store.sql().execute("UPDATE audit SET user = 'eve'", []).is_err());
        assert!(store.sql().execute("DELETE FROM audit", []).is_err());
        assert_eq!(
            store.audit(&AuditFilter::default(), None, 10).unwrap().entries[0].user,
            "ada"
        );
    }
}
