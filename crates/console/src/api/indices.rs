//! The list of a cluster's indices: the cluster is asked while a page shows it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Query, State};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{ApiState, Refusal, Shared};
use crate::clock::now_ms;
use crate::indices::{Index, Listed, PATH, ROWS, Wanted, read};
use crate::outbound::AskError;
use crate::store::StoreError;
use crate::target::Target;

/// The recent lists by cluster: however many pages are open, a cluster is asked twice a minute, and never a
/// second time before it has answered.
#[derive(Default)]
pub(crate) struct IndexLists(Mutex<HashMap<String, Slot>>);

type Slot = Arc<tokio::sync::Mutex<Listed>>;

/// Returns a page of the indices. If the cluster does not answer, the last list is shown with the reason.
pub(super) async fn list(
    State(api): State<Shared>,
    Path(id): Path<String>,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Value>, Refusal> {
    let store = &api.polls.store;
    let cluster = store.cluster(&id)?.ok_or(StoreError::Missing)?;
    let slot = api.indices.slot(&id);
    let mut listed = slot.lock().await;
    let mut problem = None;
    if !listed.is_fresh(Instant::now()) {
        let target = Target::of_cluster(store, &cluster).map_err(|error| Refusal::bad(error.to_string()))?;
        match ask(&api, &Arc::new(target)).await {
            Ok(indices) => {
                *listed = Listed {
                    at: Some((Instant::now(), now_ms())),
                    indices,
                }
            }
            Err(error) if listed.at.is_none() => return Err(error.into()),
            Err(error) => problem = Some(error.to_string()),
        }
    }
    let mut told = json!(listed.page(&wanted));
    told["at_ms"] = json!(listed.at.map(|(_, ms)| ms));
    told["page_rows"] = json!(ROWS);
    told["problem"] = json!(problem);
    Ok(Json(told))
}

async fn ask(api: &ApiState, target: &Arc<Target>) -> Result<Vec<Index>, AskError> {
    let told = api.polls.outbound.get(target, PATH, WITHIN).await?;
    read(&told).ok_or_else(|| AskError::NoJson {
        path: "/_cat/indices".to_owned(),
        why: "it is no list".to_owned(),
    })
}

impl IndexLists {
    /// Forgets a cluster's list, since its indices may have changed.
    pub(crate) fn forget(&self, id: &str) {
        self.0.lock().remove(id);
    }

    fn slot(&self, cluster: &str) -> Slot {
        let mut slots = self.0.lock();
        let now = Instant::now();
        slots.retain(|_, slot| {
            Arc::strong_count(slot) > 1 || slot.try_lock().is_ok_and(|kept| kept.is_recent(now))
        });
        Arc::clone(slots.entry(cluster.to_owned()).or_default())
    }
}

const WITHIN: Duration = Duration::from_secs(20);
