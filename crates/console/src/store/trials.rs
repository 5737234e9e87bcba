//! Trials: what was compared, when and by whom, and the figures of the outcome.

use rusqlite::{Row, params};
use serde::Serialize;
use serde_json::Value;

use super::{Store, StoreError};

/// A trial as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct TrialRow {
    pub(crate) id: i64,
    /// The id of the gateway.
    pub(crate) gateway: String,
    /// The id of the cluster.
    pub(crate) cluster: String,
    pub(crate) user: String,
    /// What the names of its indices begin with.
    pub(crate) indices: String,
    pub(crate) load: Value,
    pub(crate) began_ms: i64,
    pub(crate) ended_ms: Option<i64>,
    /// `running`, or how it ended: `compared`, `flawed`, `failed`, `cancelled` or `interrupted`.
    pub(crate) state: String,
    /// The figures of the outcome; none if nothing could be compared.
    pub(crate) figures: Option<Value>,
}

impl Store {
    /// Stores a trial that begins, before anything is done at the cluster. Older trials of the gateway are
    /// forgotten.
    pub(crate) fn begin_trial(&self, row: &TrialRow) -> Result<TrialRow, StoreError> {
        let mut sql = self.sql();
        let transaction = sql.transaction()?;
        transaction.execute(
            "INSERT INTO trials (gateway, cluster, user, indices, load, began_ms, state)
             VALUES (?, ?, ?, ?, ?, ?, 'running')",
            params![
                row.gateway,
                row.cluster,
                row.user,
                row.indices,
                row.load.to_string(),
                row.began_ms
            ],
        )?;
        let id = transaction.last_insert_rowid();
        transaction.execute(
            "DELETE FROM trials WHERE gateway = ?1 AND id NOT IN
                 (SELECT id FROM trials WHERE gateway = ?1 ORDER BY id DESC LIMIT ?2)",
            params![row.gateway, KEPT_MAX],
        )?;
        transaction.commit()?;
        Ok(TrialRow {
            id,
            state: "running".to_owned(),
            ..row.clone()
        })
    }

    /// Stores how a trial ended. It may have been forgotten meanwhile, with its gateway or its cluster.
    pub(crate) fn end_trial(
        &self,
        id: i64,
        state: &str,
        figures: Option<&Value>,
        at_ms: i64,
    ) -> Result<(), StoreError> {
        self.sql().execute(
            "UPDATE trials SET state = ?, figures = ?, ended_ms = ? WHERE id = ?",
            params![state, figures.map(Value::to_string), at_ms, id],
        )?;
        Ok(())
    }

    /// Notes that trials were interrupted which an earlier process began and did not end. Returns them.
    pub(crate) fn interrupt_trials(&self, at_ms: i64) -> Result<Vec<TrialRow>, StoreError> {
        let sql = self.sql();
        let mut statement = sql.prepare(&format!("{SELECT} WHERE ended_ms IS NULL"))?;
        let found: Vec<TrialRow> = statement
            .query_map([], trial_of)?
            .map(|row| row?)
            .collect::<Result<_, _>>()?;
        sql.execute(
            "UPDATE trials SET state = 'interrupted', ended_ms = ? WHERE ended_ms IS NULL",
            [at_ms],
        )?;
        Ok(found)
    }

    /// Returns a gateway's trials, the newest first.
    pub(crate) fn trials(&self, gateway: &str) -> Result<Vec<TrialRow>, StoreError> {
        let sql = self.sql();
        let mut statement = sql.prepare(&format!("{SELECT} WHERE gateway = ? ORDER BY id DESC"))?;
        let rows = statement.query_map([gateway], trial_of)?;
        rows.map(|row| row?).collect()
    }
}

fn trial_of(row: &Row<'_>) -> rusqlite::Result<Result<TrialRow, StoreError>> {
    let (load, figures): (String, Option<String>) = (row.get(5)?, row.get(9)?);
    let entry = TrialRow {
        id: row.get(0)?,
        gateway: row.get(1)?,
        cluster: row.get(2)?,
        user: row.get(3)?,
        indices: row.get(4)?,
        load: Value::Null,
        began_ms: row.get(6)?,
        ended_ms: row.get(7)?,
        state: row.get(8)?,
        figures: None,
    };
    let parsed = || {
        Ok(TrialRow {
            load: serde_json::from_str(&load)?,
            figures: figures.as_deref().map(serde_json::from_str).transpose()?,
            ..entry
        })
    };
    Ok(parsed())
}

const SELECT: &str =
    "SELECT id, gateway, cluster, user, indices, load, began_ms, ended_ms, state, figures FROM trials";
/// The number of trials that are kept for each gateway.
const KEPT_MAX: u32 = 20;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::{ClusterEntry, GatewayEntry};

    #[test]
    fn trials_are_kept_with_their_figures_and_those_that_were_not_ended_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let gateway = GatewayEntry {
            id: "g".into(),
            name: "g".into(),
            ..GatewayEntry::default()
        };
        store.keep_gateway(&gateway, None, None).unwrap();
        let cluster = ClusterEntry {
            id: "c".into(),
            name: "c".into(),
            ..ClusterEntry::default()
        };
        store.keep_cluster(&cluster, None).unwrap();
        let trial = |began_ms| TrialRow {
            id: 0,
            gateway: "g".into(),
            cluster: "c".into(),
            user: "ada".into(),
            indices: "tidegate-trial-1".into(),
            load: json!({"documents": 5}),
            began_ms,
            ended_ms: None,
            state: String::new(),
            figures: None,
        };
        for n in 0..30 {
            let begun = store.begin_trial(&trial(n)).unwrap();
            assert_eq!(store.trials("g").unwrap()[0], begun);
            store
                .end_trial(begun.id, "compared", Some(&json!({"n": n})), n + 1)
                .unwrap();
        }
        let kept = store.trials("g").unwrap();
        assert_eq!((kept.len(), &kept[0].figures), (20, &Some(json!({"n": 29}))));
        assert_eq!(store.interrupt_trials(99).unwrap(), []);
        let begun = store.begin_trial(&trial(50)).unwrap();
        assert_eq!(store.interrupt_trials(99).unwrap(), [begun]);
        let last = &store.trials("g").unwrap()[0];
        assert_eq!((&*last.state, last.ended_ms), ("interrupted", Some(99)));
        store.forget_cluster("c").unwrap();
        assert_eq!(store.trials("g").unwrap(), []);
    }
}
