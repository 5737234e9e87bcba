//! The heat map of a cluster: its gateways are asked while a page shows it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::failed::LastFailure;
use super::input::Path;
use super::{ApiState, Refusal, Shared};
use crate::clock::now_ms;
use crate::heat::{HeatReply, Samples, Sums};
use crate::outbound::AskError;
use crate::roles::Role;
use crate::store::{GatewayEntry, User};
use crate::target::{BadTarget, Target};

/// The recent answers of gateways, and the requests that ask for them now: however many pages are open, a
/// gateway is asked once a second.
#[derive(Default)]
pub(crate) struct Heats(Mutex<HashMap<String, Slot>>);

/// Why a gateway's counts are not known.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Target(#[from] BadTarget),
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error("/heat is answered with something unexpected: {0}")]
    Unexpected(#[from] serde_json::Error),
}

type Slot = Arc<tokio::sync::Mutex<Kept>>;

#[derive(Default)]
struct Kept {
    samples: Samples,
    failed: LastFailure,
}

/// Returns which shards the registered gateways write to, by rate. A gateway that does not answer is named
/// with the reason, if the user may see it.
pub(super) async fn show(
    State(api): State<Shared>,
    Extension(user): Extension<User>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    let (mut sums, mut problems, mut asked) = (Sums::default(), Vec::new(), 0);
    for gateway in api.polls.store.gateways()? {
        let links = gateway
            .clusters
            .iter()
            .filter(|link| link.cluster_id.as_ref() == Some(&id));
        let names: Vec<&str> = links.map(|link| &*link.name).collect();
        if names.is_empty() {
            continue;
        }
        asked += 1;
        let slot = api.heats.slot(&gateway.id);
        let came = Instant::now();
        let mut kept = slot.lock().await;
        if !kept.samples.is_fresh(Instant::now()) && kept.failed.since(came).is_none() {
            let asked = refresh(&api, &gateway, &mut kept.samples).await;
            kept.failed = asked.map_or_else(|why| LastFailure::of(&why), |()| LastFailure::default());
        }
        if let Some(why) = kept.failed.since(came) {
            let may_see = user.roles.on_gateway(&gateway) >= Role::Viewer;
            let name = may_see.then_some(&gateway.name);
            problems.push(json!({"gateway": name, "why": why}));
            continue;
        }
        for name in names {
            sums.add(&kept.samples, name);
        }
    }
    let mut told = sums.told();
    told["at_ms"] = json!(now_ms());
    told["gateways"] = json!(asked);
    told["problems"] = json!(problems);
    Ok(Json(told))
}

impl Heats {
    fn slot(&self, gateway: &str) -> Slot {
        let mut slots = self.0.lock();
        let now = Instant::now();
        slots.retain(|_, slot| {
            Arc::strong_count(slot) > 1 || slot.try_lock().is_ok_and(|kept| kept.samples.is_recent(now))
        });
        Arc::clone(slots.entry(gateway.to_owned()).or_default())
    }
}

async fn refresh(api: &ApiState, gateway: &GatewayEntry, samples: &mut Samples) -> Result<(), Failed> {
    let target = Target::of_gateway(&api.polls.store, gateway)?;
    let told = api.polls.outbound.get(&Arc::new(target), "/heat", WITHIN).await?;
    let told: HeatReply = serde_json::from_value(told)?;
    samples.take(Instant::now(), told);
    Ok(())
}

const WITHIN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing::{failing, on_api, send};
    use crate::store::ClusterEntry;

    #[test]
    fn pages_that_wait_for_a_gateway_share_its_failure() {
        let (url, asked) = failing("GET /heat");
        on_api(async |store, routes| {
            let cluster = ClusterEntry {
                id: "a".into(),
                name: "a".into(),
                ..ClusterEntry::default()
            };
            store.keep_cluster(&cluster, None).unwrap();
            let entry = GatewayEntry {
                id: "g".into(),
                name: "edge".into(),
                url,
                ..GatewayEntry::default()
            };
            store.keep_gateway(&entry, None, None).unwrap();
            store.link("g", "main", "a").unwrap();
            let token = store.begin_session(1).unwrap();
            let page = async || {
                let answer = send(&routes, "GET", "/clusters/a/heat", Some(&token), "").await;
                let body = axum::body::to_bytes(answer.into_body(), 10_000).await.unwrap();
                let told: Value = serde_json::from_slice(&body).unwrap();
                assert_eq!(told["problems"][0]["gateway"], "edge", "{told}");
            };
            tokio::join!(page(), page(), page());
            assert_eq!(asked.count(), 1, "asked once for three pages");
            page().await;
            assert_eq!(asked.count(), 2, "and again for a page that comes later");
        });
    }
}
