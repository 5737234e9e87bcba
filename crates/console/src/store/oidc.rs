//! What logins at an OpenID provider need: its users, and the client's secret.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rusqlite::{Connection, OptionalExtension as _, params};
use settings::Secret;

use super::users::{User, grant, roles};
use super::{Store, StoreError, is_reserved, taken};
use crate::clock::now_ms;
use crate::oidc::Person;
use crate::roles::{Role, Roles};
use crate::secrets::NotOpened;

impl Store {
    /// Seals a text that a browser keeps.
    pub(crate) fn seal(&self, owner: &str, text: &Secret) -> Result<String, StoreError> {
        Ok(URL_SAFE_NO_PAD.encode(self.vault.seal(owner, text)?))
    }

    /// Opens what [`Store::seal`] has sealed.
    pub(crate) fn unseal(&self, owner: &str, sealed: &str) -> Result<Secret, StoreError> {
        let sealed = URL_SAFE_NO_PAD.decode(sealed).map_err(|_| NotOpened)?;
        Ok(self.vault.unseal(owner, &sealed)?)
    }

    /// Stores a client's secret, in the place of any other.
    pub(crate) fn keep_client_secret(
        &self,
        issuer: &str,
        client: &str,
        secret: &Secret,
    ) -> Result<(), StoreError> {
        let sealed = self.vault.seal(&owner(issuer, client), secret)?;
        self.sql().execute(
            "INSERT OR REPLACE INTO oidc (id, issuer, client, sealed) VALUES (1, ?, ?, ?)",
            params![issuer, client, sealed],
        )?;
        Ok(())
    }

    /// Returns the stored secret of this client of this provider.
    pub(crate) fn client_secret(&self, issuer: &str, client: &str) -> Result<Option<Secret>, StoreError> {
        let found: Option<Vec<u8>> = self
            .sql()
            .query_row(
                "SELECT sealed FROM oidc WHERE issuer = ? AND client = ?",
                [issuer, client],
                |row| row.get(0),
            )
            .optional()?;
        let opened = found.map(|sealed| self.vault.unseal(&owner(issuer, client), &sealed));
        Ok(opened.transpose()?)
    }

    /// Makes or changes the user whom the provider vouches for. Returns the user, and the former name and
    /// roles. Users are known by the provider's identifier: a user of the console's with the same name is
    /// somebody else, who keeps the name.
    pub(crate) fn take_in(&self, person: &Person) -> Result<(User, Option<Former>), StoreError> {
        let mut sql = self.sql();
        let transaction = sql.transaction()?;
        let found = known(&transaction, &person.issuer, &person.subject)?;
        let name = free_name(&transaction, &person.name, found.as_ref().map(|(id, _)| *id))?;
        let (id, former) = match found {
            Some((id, former)) => {
                let changed = transaction.execute(
                    "UPDATE users SET name = ?, role = ? WHERE id = ?",
                    params![name, person.roles.role, id],
                );
                taken(changed, &name)?;
                transaction.execute("DELETE FROM grants WHERE user = ?", [id])?;
                (id, Some(former))
            }
            None => {
                let added = transaction.execute(
                    "INSERT INTO users (name, role, password, made_ms, issuer, subject) VALUES (?, ?, '', ?, ?, ?)",
                    params![name, person.roles.role, now_ms(), person.issuer, person.subject],
                );
                taken(added, &name)?;
                (transaction.last_insert_rowid(), None)
            }
        };
        grant(&transaction, id, &person.roles)?;
        transaction.commit()?;
        let user = User {
            id,
            name,
            roles: person.roles.clone(),
            oidc: true,
        };
        Ok((user, former))
    }

    /// Takes roles and sessions from the user to whom the provider gives no role any more. Returns the name
    /// and the former roles, if the user is known.
    pub(crate) fn shut_out(&self, issuer: &str, subject: &str) -> Result<Option<Former>, StoreError> {
        let mut sql = self.sql();
        let transaction = sql.transaction()?;
        let Some((id, former)) = known(&transaction, issuer, subject)? else {
            return Ok(None);
        };
        transaction.execute("UPDATE users SET role = ? WHERE id = ?", params![Role::None, id])?;
        transaction.execute("DELETE FROM grants WHERE user = ?", [id])?;
        transaction.execute("DELETE FROM sessions WHERE user = ?", [id])?;
        transaction.commit()?;
        Ok(Some(former))
    }

    /// Ends the sessions of the provider's users if other rules than these gave their roles: roles are read
    /// from the claims at a login, and never again. Keeps the digest of the rules for the next start.
    pub(crate) fn end_sessions_of_other_rules(&self, digest: &str) -> Result<(), StoreError> {
        let mut sql = self.sql();
        let transaction = sql.transaction()?;
        let known = "SELECT EXISTS (SELECT 1 FROM rules WHERE digest = ?)";
        if !transaction.query_row(known, [digest], |row| row.get::<_, bool>(0))? {
            transaction.execute(
                "DELETE FROM sessions WHERE user IN (SELECT id FROM users WHERE issuer IS NOT NULL)",
                [],
            )?;
            transaction.execute(
                "INSERT OR REPLACE INTO rules (id, digest) VALUES (1, ?)",
                [digest],
            )?;
        }
        Ok(transaction.commit()?)
    }

    /// Ends the sessions of users who could not log in now: those of other providers, and the console's own
    /// unless there are `passwords`.
    pub(crate) fn end_foreign_sessions(
        &self,
        issuer: Option<&str>,
        passwords: bool,
    ) -> Result<(), StoreError> {
        self.sql().execute(
            "DELETE FROM sessions WHERE user IN
             (SELECT id FROM users WHERE CASE WHEN issuer IS NULL THEN NOT ? ELSE issuer IS NOT ? END)",
            params![passwords, issuer],
        )?;
        Ok(())
    }
}

/// The name and the roles that a user had.
pub(crate) type Former = (String, Roles);

/// Returns the user by the provider's identifier.
fn known(sql: &Connection, issuer: &str, subject: &str) -> Result<Option<(i64, Former)>, StoreError> {
    let found: Option<(i64, String, Role)> = sql
        .query_row(
            "SELECT id, name, role FROM users WHERE issuer = ? AND subject = ?",
            [issuer, subject],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .optional()?;
    let Some((id, name, role)) = found else {
        return Ok(None);
    };
    Ok(Some((id, (name, roles(sql, id, role)?))))
}

/// Returns the name, or a distinct one if another user has it, or the audit log itself uses it.
fn free_name(sql: &Connection, name: &str, own: Option<i64>) -> Result<String, StoreError> {
    let mut tried = name.to_owned();
    for number in 2.. {
        let has = "SELECT EXISTS (SELECT 1 FROM users WHERE name = ? AND id IS NOT ?)";
        let is_taken = sql.query_row(has, params![tried, own], |row| row.get::<_, bool>(0))?;
        if !is_taken && !is_reserved(&tried) {
            break;
        }
        tried = format!("{name} ({number})");
    }
    Ok(tried)
}

fn owner(issuer: &str, client: &str) -> String {
    format!("oidc/{issuer}/{client}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn person(subject: &str, name: &str, role: Role) -> Person {
        Person {
            issuer: "https://login.example".to_owned(),
            subject: subject.to_owned(),
            name: name.to_owned(),
            roles: Roles {
                role,
                clusters: BTreeMap::new(),
            },
        }
    }

    #[test]
    fn a_user_of_the_provider_is_known_by_the_subject_and_never_becomes_one_of_the_consoles() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        store.make_first_user("ada", "hash").unwrap();
        let (other, former) = store.take_in(&person("1", "Ada", Role::Viewer)).unwrap();
        assert_eq!((&*other.name, former, other.oidc), ("Ada (2)", None, true));
        assert_eq!(store.user("ada").unwrap().unwrap().1.as_deref(), Some("hash"));
        assert_eq!(store.user("Ada (2)").unwrap().unwrap().1, None);
        let (again, former) = store.take_in(&person("1", "Ada", Role::Admin)).unwrap();
        assert_eq!(
            (again.id, &*again.name, former.unwrap().1.role),
            (other.id, "Ada (2)", Role::Viewer)
        );
        let (renamed, _) = store.take_in(&person("1", "Ada L", Role::Admin)).unwrap();
        assert_eq!((renamed.id, &*renamed.name), (other.id, "Ada L"));
        let (third, _) = store.take_in(&person("2", "ada", Role::Viewer)).unwrap();
        assert_eq!(&*third.name, "ada (2)");
        for (name, given) in [
            ("Console", "Console (2)"),
            ("(start)", "(start) (2)"),
            ("consoles", "consoles"),
        ] {
            let (user, _) = store.take_in(&person("3", name, Role::Viewer)).unwrap();
            assert_eq!(&*user.name, given);
        }
        // Admins of the provider's do not make the last one of the console's dispensable.
        assert!(matches!(store.remove_user(1), Err(StoreError::LastAdmin)));
        store.remove_user(renamed.id).unwrap();
    }

    #[test]
    fn users_of_the_provider_can_be_removed_where_the_console_has_none_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let (user, _) = store.take_in(&person("1", "ada", Role::Admin)).unwrap();
        let token = store.begin_session(user.id).unwrap();
        store.remove_user(user.id).unwrap();
        assert!(store.session(&token, true).unwrap().is_none());
    }

    #[test]
    fn a_provider_can_take_the_role_admin_away_and_its_users_are_no_first_users() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        store.take_in(&person("1", "ada", Role::Admin)).unwrap();
        store.take_in(&person("1", "ada", Role::Viewer)).unwrap();
        assert!(store.is_first_start().unwrap());
        assert!(
            !store.make_first_user("ada", "hash").unwrap(),
            "the name is another's"
        );
        assert!(store.make_first_user("root", "hash").unwrap());
        assert!(!store.is_first_start().unwrap());
    }

    #[test]
    fn secrets_of_clients_and_tokens_of_sessions_are_sealed() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let secret = Secret::new("hunter2");
        store.keep_client_secret("https://a", "c", &secret).unwrap();
        let kept = store.client_secret("https://a", "c").unwrap().unwrap();
        assert_eq!(kept.expose(), "hunter2");
        assert!(store.client_secret("https://a", "d").unwrap().is_none());
        let (user, _) = store.take_in(&person("1", "ada", Role::Viewer)).unwrap();
        let token = store.begin_session_with(user.id, Some(&secret), None).unwrap();
        for column in ["SELECT sealed FROM oidc", "SELECT id_token FROM sessions"] {
            let sealed: Vec<u8> = store.sql().query_row(column, [], |row| row.get(0)).unwrap();
            assert!(!sealed.windows(7).any(|part| part == b"hunter2"));
        }
        assert!(store.session(&token, true).unwrap().unwrap().oidc);
        assert_eq!(store.end_session(&token).unwrap().unwrap().expose(), "hunter2");
        assert!(store.end_session(&token).unwrap().is_none());
        assert!(store.session(&token, true).unwrap().is_none());
    }
}
