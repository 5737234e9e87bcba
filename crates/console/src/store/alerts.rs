//! Alerts, silences, the webhook, and the messages that its receiver has not taken yet.

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde::Serialize;
use serde_json::{Value, json};
use settings::Secret;

use super::{Store, StoreError};

/// An alert as it is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct AlertRow {
    pub(crate) rule: String,
    pub(crate) kind: String,
    /// The id of the cluster or gateway.
    #[serde(rename = "id")]
    pub(crate) target: String,
    /// The target's name when the alert began.
    pub(crate) name: String,
    pub(crate) part: String,
    pub(crate) words: String,
    pub(crate) since_ms: i64,
    pub(crate) fired_ms: i64,
    pub(crate) resolved_ms: Option<i64>,
    /// Whether the webhook's receiver gets, or got, a message about the beginning.
    pub(crate) told: bool,
}

/// The silence of a rule for a target: the webhook's receiver is not told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Silence {
    pub(crate) rule: String,
    pub(crate) kind: String,
    #[serde(rename = "id")]
    pub(crate) target: String,
    pub(crate) until_ms: i64,
    pub(crate) user: String,
    pub(crate) reason: String,
}

/// Where messages are sent. The URL is a secret, too: it often has a key in its path.
#[derive(Debug, Clone)]
pub(crate) struct Webhook {
    pub(crate) url: Secret,
    /// Sent as a bearer token.
    pub(crate) secret: Option<Secret>,
    pub(crate) ca_pem: Option<String>,
    pub(crate) verify: bool,
}

/// A message that the receiver has not taken yet.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) id: i64,
    pub(crate) at_ms: i64,
    pub(crate) body: String,
}

impl Store {
    /// Returns the alerts that have not ended.
    pub(crate) fn active_alerts(&self) -> Result<Vec<AlertRow>, StoreError> {
        self.alerts("resolved_ms IS NULL ORDER BY id")
    }

    /// Returns the alerts that have ended, the last one first.
    pub(crate) fn resolved_alerts(&self) -> Result<Vec<AlertRow>, StoreError> {
        self.alerts("resolved_ms IS NOT NULL ORDER BY resolved_ms DESC, id DESC")
    }

    fn alerts(&self, wanted: &str) -> Result<Vec<AlertRow>, StoreError> {
        let sql = self.sql();
        let mut statement = sql.prepare(&format!(
            "SELECT rule, kind, target, name, part, words, since_ms, fired_ms, resolved_ms, told FROM alerts WHERE {wanted}"
        ))?;
        let rows = statement.query_map([], alert_of)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Stores an alert that begins.
    pub(crate) fn fire_alert(&self, row: &AlertRow) -> Result<(), StoreError> {
        self.sql().execute(
            "INSERT INTO alerts (rule, kind, target, name, part, words, since_ms, fired_ms, told)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)",
            params![
                row.rule,
                row.kind,
                row.target,
                row.name,
                row.part,
                row.words,
                row.since_ms,
                row.fired_ms
            ],
        )?;
        Ok(())
    }

    /// Notes that the beginning of an alert is told, and adds the message, which gets the alert's number.
    /// Returns how many old messages were given up for it; none if the alert is not active.
    pub(crate) fn tell_alert(
        &self,
        row: &AlertRow,
        at_ms: i64,
        message: impl FnOnce(i64) -> Value,
    ) -> Result<Option<u64>, StoreError> {
        let mut sql = self.sql();
        let transaction = sql.transaction()?;
        let told = transaction.query_row(
            &format!("UPDATE alerts SET told = 1 WHERE {ACTIVE} RETURNING id"),
            params![row.rule, row.kind, row.target, row.part],
            |found| found.get(0),
        );
        let Some(id) = told.optional()? else {
            return Ok(None);
        };
        let dropped = put_message(&transaction, at_ms, &message(id))?;
        transaction.commit()?;
        Ok(Some(dropped))
    }

    /// Notes the end of an alert, and forgets the oldest of those that have ended. `message` gets the
    /// alert's number and the target's name; the message is added, if there is one. Returns the target's
    /// name, and how many old messages were given up; none if the alert is not active.
    pub(crate) fn resolve_alert(
        &self,
        row: &AlertRow,
        now_ms: i64,
        message: impl FnOnce(i64, &str) -> Option<Value>,
    ) -> Result<Option<(String, u64)>, StoreError> {
        let mut sql = self.sql();
        let transaction = sql.transaction()?;
        let ended = transaction.query_row(
            &format!("UPDATE alerts SET resolved_ms = ?5, words = ?6 WHERE {ACTIVE} RETURNING id, name"),
            params![row.rule, row.kind, row.target, row.part, now_ms, row.words],
            |found| Ok((found.get(0)?, found.get(1)?)),
        );
        let ended: Option<(i64, String)> = ended.optional()?;
        let Some((id, name)) = ended else { return Ok(None) };
        transaction.execute(
            "DELETE FROM alerts WHERE resolved_ms IS NOT NULL AND id NOT IN
                 (SELECT id FROM alerts WHERE resolved_ms IS NOT NULL ORDER BY resolved_ms DESC, id DESC LIMIT ?)",
            [ENDED_MAX],
        )?;
        let dropped = match message(id, &name) {
            Some(message) => put_message(&transaction, now_ms, &message)?,
            None => 0,
        };
        transaction.commit()?;
        Ok(Some((name, dropped)))
    }

    /// Returns the silences that are not over, and forgets the others.
    pub(crate) fn silences(&self, now_ms: i64) -> Result<Vec<Silence>, StoreError> {
        let sql = self.sql();
        let mut statement = sql.prepare(
            "SELECT rule, kind, target, until_ms, user, reason FROM silences WHERE until_ms > ? ORDER BY until_ms",
        )?;
        let rows = statement.query_map([now_ms], |row| {
            Ok(Silence {
                rule: row.get(0)?,
                kind: row.get(1)?,
                target: row.get(2)?,
                until_ms: row.get(3)?,
                user: row.get(4)?,
                reason: row.get(5)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Silences a rule for a target, or ends its silence if `until_ms` has passed.
    pub(crate) fn silence(&self, silence: &Silence, now_ms: i64) -> Result<(), StoreError> {
        let mut sql = self.sql();
        let transaction = sql.transaction()?;
        transaction.execute(
            "INSERT OR REPLACE INTO silences (rule, kind, target, until_ms, user, reason) VALUES (?, ?, ?, ?, ?, ?)",
            params![
                silence.rule,
                silence.kind,
                silence.target,
                silence.until_ms,
                silence.user,
                silence.reason
            ],
        )?;
        transaction.execute("DELETE FROM silences WHERE until_ms <= ?", [now_ms])?;
        Ok(transaction.commit()?)
    }

    /// Returns the webhook.
    pub(crate) fn webhook(&self) -> Result<Option<Webhook>, StoreError> {
        let found = self
            .sql()
            .query_row("SELECT sealed, ca_pem, verify FROM webhook", [], |row| {
                Ok((row.get::<_, Vec<u8>>(0)?, row.get(1)?, row.get(2)?))
            });
        let Some((sealed, ca_pem, verify)) = found.optional()? else {
            return Ok(None);
        };
        let opened = self.vault.unseal(OWNER, &sealed)?;
        let opened: Value = serde_json::from_str(opened.expose())?;
        let text = |name: &str| opened[name].as_str().map(Secret::new);
        Ok(Some(Webhook {
            url: text("url").unwrap_or_default(),
            secret: text("secret"),
            ca_pem,
            verify,
        }))
    }

    /// Stores the webhook, or removes it. With another URL or none, the messages that wait for the former
    /// receiver go, and the active alerts count as not told, so that another receiver learns of them. Returns
    /// whether they do.
    pub(crate) fn keep_webhook(&self, webhook: Option<&Webhook>) -> Result<bool, StoreError> {
        let stored = self.webhook()?;
        let stays = webhook
            .zip(stored.as_ref())
            .is_some_and(|(webhook, stored)| webhook.url.expose() == stored.url.expose());
        let sealed = |webhook: &Webhook| {
            let told = json!({
                "url": webhook.url.expose(), "secret": webhook.secret.as_ref().map(Secret::expose),
            });
            self.vault.seal(OWNER, &Secret::new(told.to_string()))
        };
        let sealed = webhook.map(sealed).transpose()?;
        let mut sql = self.sql();
        let transaction = sql.transaction()?;
        match webhook {
            Some(webhook) => {
                transaction.execute(
                    "INSERT OR REPLACE INTO webhook (id, sealed, ca_pem, verify) VALUES (1, ?, ?, ?)",
                    params![sealed, webhook.ca_pem, webhook.verify],
                )?;
            }
            None => {
                transaction.execute("DELETE FROM webhook", [])?;
            }
        }
        if !stays {
            transaction.execute("DELETE FROM outbox", [])?;
            transaction.execute("UPDATE alerts SET told = 0 WHERE resolved_ms IS NULL", [])?;
        }
        transaction.commit()?;
        Ok(!stays)
    }

    /// Returns the oldest message, and where it is to be sent.
    pub(crate) fn first_message(&self) -> Result<Option<(Message, Webhook)>, StoreError> {
        let first = self.sql().query_row(
            "SELECT id, at_ms, body FROM outbox ORDER BY id LIMIT 1",
            [],
            |row| {
                Ok(Message {
                    id: row.get(0)?,
                    at_ms: row.get(1)?,
                    body: row.get(2)?,
                })
            },
        );
        let Some(message) = first.optional()? else {
            return Ok(None);
        };
        Ok(self.webhook()?.map(|webhook| (message, webhook)))
    }

    /// Removes a message that was taken or given up.
    pub(crate) fn forget_message(&self, id: i64) -> Result<(), StoreError> {
        self.sql().execute("DELETE FROM outbox WHERE id = ?", [id])?;
        Ok(())
    }

    /// Returns the number of messages that wait.
    pub(crate) fn messages(&self) -> Result<u32, StoreError> {
        let count = self
            .sql()
            .query_row("SELECT COUNT(*) FROM outbox", [], |row| row.get(0))?;
        Ok(count)
    }
}

/// Adds a message. Returns how many of the oldest were given up for it.
fn put_message(sql: &Connection, at_ms: i64, body: &Value) -> Result<u64, StoreError> {
    sql.execute(
        "INSERT INTO outbox (at_ms, body) VALUES (?, ?)",
        params![at_ms, body.to_string()],
    )?;
    let dropped = sql.execute(
        "DELETE FROM outbox WHERE id IN (SELECT id FROM outbox ORDER BY id DESC LIMIT -1 OFFSET ?)",
        [WAITING_MAX],
    )?;
    Ok(dropped as u64)
}

fn alert_of(row: &Row<'_>) -> rusqlite::Result<AlertRow> {
    Ok(AlertRow {
        rule: row.get(0)?,
        kind: row.get(1)?,
        target: row.get(2)?,
        name: row.get(3)?,
        part: row.get(4)?,
        words: row.get(5)?,
        since_ms: row.get(6)?,
        fired_ms: row.get(7)?,
        resolved_ms: row.get(8)?,
        told: row.get(9)?,
    })
}

const ACTIVE: &str = "rule = ?1 AND kind = ?2 AND target = ?3 AND part = ?4 AND resolved_ms IS NULL";
/// The owner of the sealed webhook.
const OWNER: &str = "webhook/1";
/// The number of ended alerts that are kept.
const ENDED_MAX: u32 = 500;
/// The largest number of messages that wait.
pub(crate) const WAITING_MAX: u32 = 1_000;

#[cfg(test)]
impl Store {
    /// Has each insertion into a table fail from now on, as on a full disk, or no longer.
    pub(crate) fn takes_nothing(&self, table: &str, is_full: bool) {
        let change = match is_full {
            true => {
                format!("CREATE TRIGGER full BEFORE INSERT ON {table} BEGIN SELECT RAISE(FAIL, 'full'); END")
            }
            false => "DROP TRIGGER full".to_owned(),
        };
        self.sql().execute_batch(&change).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        (folder, store)
    }

    #[test]
    fn a_webhook_is_sealed_and_its_removal_takes_the_messages_along() {
        let (folder, store) = store();
        let webhook = Webhook {
            url: Secret::new("https://hooks.example/hunter2"),
            secret: Some(Secret::new("hunter2-hunter2")),
            ca_pem: None,
            verify: true,
        };
        store.keep_webhook(Some(&webhook)).unwrap();
        let kept = store.webhook().unwrap().unwrap();
        assert_eq!(kept.url.expose(), "https://hooks.example/hunter2");
        assert_eq!(kept.secret.unwrap().expose(), "hunter2-hunter2");
        for file in std::fs::read_dir(folder.path()).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            assert!(!bytes.windows(7).any(|window| window == b"hunter2"));
        }
        put_message(&store.sql(), 1, &json!({})).unwrap();
        assert!(store.first_message().unwrap().is_some());
        store.keep_webhook(None).unwrap();
        assert_eq!(
            (store.messages().unwrap(), store.webhook().unwrap().is_none()),
            (0, true)
        );
    }

    #[test]
    fn the_outbox_is_in_order_and_bounded() {
        let (_folder, store) = store();
        let webhook = Webhook {
            url: Secret::new("http://a/"),
            secret: None,
            ca_pem: None,
            verify: true,
        };
        store.keep_webhook(Some(&webhook)).unwrap();
        let mut dropped = 0;
        for n in 0..WAITING_MAX + 5 {
            dropped += put_message(&store.sql(), 0, &json!(n)).unwrap();
        }
        assert_eq!((dropped, store.messages().unwrap()), (5, WAITING_MAX));
        let (first, _) = store.first_message().unwrap().unwrap();
        assert_eq!(first.body, "5");
        store.forget_message(first.id).unwrap();
        assert_eq!(store.first_message().unwrap().unwrap().0.body, "6");
    }

    #[test]
    fn an_alert_begins_and_ends_and_the_oldest_ended_ones_are_forgotten() {
        let (_folder, store) = store();
        let row = |n: u32| AlertRow {
            rule: "dead_letters".into(),
            kind: "gateway".into(),
            target: "g".into(),
            name: "gw".into(),
            part: n.to_string(),
            ..AlertRow::default()
        };
        for n in 0..ENDED_MAX + 3 {
            store.fire_alert(&row(n)).unwrap();
            if n == 0 {
                assert_eq!(store.tell_alert(&row(0), 0, |id| json!(id)).unwrap(), Some(0));
                assert!(store.active_alerts().unwrap()[0].told);
            }
            let ended = store.resolve_alert(&row(n), i64::from(n), |_, name| (n == 0).then(|| json!(name)));
            assert_eq!(ended.unwrap(), Some(("gw".to_owned(), 0)));
        }
        assert_eq!(store.messages().unwrap(), 2);
        assert_eq!(store.resolve_alert(&row(0), 9, |_, _| None).unwrap(), None);
        let ended = store.resolved_alerts().unwrap();
        assert_eq!((ended.len(), &*ended[0].part), (ENDED_MAX as usize, "502"));
        assert_eq!(store.active_alerts().unwrap(), []);
    }

    #[test]
    fn a_silence_ends_by_itself_or_when_it_is_told_to() {
        let (_folder, store) = store();
        let silence = |until_ms| Silence {
            rule: "dead_letters".into(),
            kind: "gateway".into(),
            target: "g".into(),
            until_ms,
            user: "ada".into(),
            reason: "known".into(),
        };
        store.silence(&silence(100), 0).unwrap();
        assert_eq!(store.silences(99).unwrap(), [silence(100)]);
        assert_eq!(store.silences(100).unwrap(), []);
        store.silence(&silence(0), 50).unwrap();
        assert_eq!(store.silences(50).unwrap(), []);
    }
}
