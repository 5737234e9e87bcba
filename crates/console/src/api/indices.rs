//! The list of a cluster's indices: the cluster is asked while a page shows it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::failed::LastFailure;
use super::input::{Path, Query};
use super::{ApiState, Refusal, Shared};
use crate::clock::now_ms;
use crate::indices::{Index, Listed, PATH, ROWS, Wanted, read};
use crate::outbound::AskError;
use crate::store::StoreError;
use crate::target::Target;

/// The recent lists by cluster: however many pages are open, a cluster is asked twice a minute, and never a
/// second time before it has answered. Pages that waited for an answer that did not come share the failure.
#[derive(Default)]
pub(crate) struct IndexLists(Mutex<HashMap<String, Slot>>);

type Slot = Arc<tokio::sync::Mutex<Kept>>;

#[derive(Default)]
struct Kept {
    listed: Listed,
    failed: LastFailure,
}

/// Returns a page of the indices. If the cluster does not answer, the last list is shown with the reason.
pub(super) async fn list(
    State(api): State<Shared>,
    Path(id): Path<String>,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Value>, Refusal> {
    let store = &api.polls.store;
    let cluster = store.cluster(&id)?.ok_or(StoreError::Missing)?;
    let slot = api.indices.slot(&id);
    let came = Instant::now();
    let mut kept = slot.lock().await;
    if !kept.listed.is_fresh(Instant::now()) && kept.failed.since(came).is_none() {
        let target = Target::of_cluster(store, &cluster).map_err(|error| Refusal::bad(error.to_string()))?;
        match ask(&api, &Arc::new(target)).await {
            Ok(indices) => {
                let at = Some((Instant::now(), now_ms()));
                *kept = Kept {
                    listed: Listed { at, indices },
                    failed: LastFailure::default(),
                };
            }
            Err(error) => kept.failed = LastFailure::of(&error),
        }
    }
    let problem = kept.failed.why();
    let listed = &kept.listed;
    if let (Some(why), None) = (problem, listed.at) {
        return Err(Refusal::unreachable(why));
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
            Arc::strong_count(slot) > 1 || slot.try_lock().is_ok_and(|kept| kept.listed.is_recent(now))
        });
        Arc::clone(slots.entry(cluster.to_owned()).or_default())
    }
}

const WITHIN: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use crate::api::testing::{failing, on_api, send, session_of};
    use crate::roles::{Role, Roles};
    use crate::store::ClusterEntry;

    #[test]
    fn pages_that_wait_for_a_cluster_share_its_failure() {
        let (url, asked) = failing("GET /_cat/indices");
        on_api(async |store, routes| {
            let entry = ClusterEntry {
                id: "a".into(),
                name: "a".into(),
                endpoints: vec![url],
                ..ClusterEntry::default()
            };
            store.keep_cluster(&entry, None).unwrap();
            let roles = Roles {
                role: Role::Viewer,
                clusters: [].into(),
            };
            let token = session_of(&store, "ada", &roles);
            let page = || send(&routes, "GET", "/clusters/a/indices", Some(&token), "");
            let (one, two, three) = tokio::join!(page(), page(), page());
            for answer in [one, two, three] {
                assert_eq!(answer.status(), 502);
            }
            assert_eq!(asked.count(), 1, "asked once for three pages");
            assert_eq!(page().await.status(), 502);
            assert_eq!(asked.count(), 2, "and again for a page that comes later");
        });
    }
}
