//! The heat map of a cluster: its gateways are asked while a page shows it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

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

type Slot = Arc<tokio::sync::Mutex<Samples>>;

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
        let mut samples = slot.lock().await;
        if let Err(why) = refresh(&api, &gateway, &mut samples).await {
            let may_see = user.roles.on_gateway(&gateway) >= Role::Viewer;
            let name = may_see.then_some(&gateway.name);
            problems.push(json!({"gateway": name, "why": why.to_string()}));
            continue;
        }
        for name in names {
            sums.add(&samples, name);
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
            Arc::strong_count(slot) > 1 || slot.try_lock().is_ok_and(|kept| kept.is_recent(now))
        });
        Arc::clone(slots.entry(gateway.to_owned()).or_default())
    }
}

async fn refresh(api: &ApiState, gateway: &GatewayEntry, samples: &mut Samples) -> Result<(), Failed> {
    if samples.is_fresh(Instant::now()) {
        return Ok(());
    }
    let target = Target::of_gateway(&api.polls.store, gateway)?;
    let told = api.polls.outbound.get(&Arc::new(target), "/heat", WITHIN).await?;
    let told: HeatReply = serde_json::from_value(told)?;
    samples.take(Instant::now(), told);
    Ok(())
}

const WITHIN: Duration = Duration::from_secs(5);
