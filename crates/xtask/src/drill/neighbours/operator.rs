//! The operators of hostile clients: they change conditions of their own indices in the cluster.

use anyhow::Result;
use serde_json::{Value, json};

use super::setup::Fabric;

impl Fabric {
    /// Blocks writes to an index, or allows them again.
    pub(super) fn block(&self, index: &str, blocked: bool) -> Result<()> {
        match self {
            Fabric::Fake(cluster, _) => {
                let reason = format!("index [{index}] blocked by: [FORBIDDEN/8/index write (api)];");
                let error = json!({"type": "cluster_block_exception", "reason": reason}).to_string();
                cluster.refuse_writes(index, blocked.then_some((403, error.as_str())));
            }
            Fabric::Real(cluster) => {
                let setting = json!({"index.blocks.write": blocked});
                cluster.client()?.put(&format!("/{index}/_settings"), &setting)?;
            }
        }
        Ok(())
    }

    pub(super) fn close(&self, index: &str, close: bool) -> Result<()> {
        match (self, close) {
            (Fabric::Fake(cluster, _), true) => cluster.close_index(index),
            (Fabric::Fake(cluster, _), false) => cluster.open_index(index),
            (Fabric::Real(cluster), close) => {
                let action = if close { "_close" } else { "_open" };
                cluster
                    .client()?
                    .post(&format!("/{index}/{action}"), &Value::Null)?;
            }
        }
        Ok(())
    }

    /// Makes an alias lead to these of two indices. The first of them takes the writes, or none does.
    pub(super) fn lead(&self, alias: &str, pair: [&str; 2], indices: &[&str], writes: bool) -> Result<()> {
        match self {
            Fabric::Fake(cluster, _) if writes => cluster.alias(alias, indices),
            Fabric::Fake(cluster, _) => cluster.alias_without_write_index(alias, indices),
            Fabric::Real(cluster) => {
                let remove = pair
                    .iter()
                    .filter(|index| !indices.contains(*index))
                    .map(|index| json!({"remove": {"index": index, "alias": alias, "must_exist": false}}));
                let add = indices.iter().enumerate().map(|(number, index)| {
                    let leads = writes && number == 0;
                    json!({"add": {"index": index, "alias": alias, "is_write_index": leads}})
                });
                let actions: Vec<Value> = remove.chain(add).collect();
                cluster
                    .client()?
                    .post("/_aliases", &json!({ "actions": actions }))?;
            }
        }
        Ok(())
    }
}
