//! What the pages of a gateway ask: its queues, their past, and calls to its admin API, of which only those
//! in the list below are sent.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::response::Response;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::access::{EVERYTHING, ON_GATEWAY, demand};
use super::calls::Confirm;
use super::failed::LastFailure;
use super::input::{Body, Path, Query};
use super::{ApiState, Refusal, answers};
use crate::accounts::Sum;
use crate::clock::now_ms;
use crate::outbound::Ask;
use crate::rights::CallPath;
use crate::roles::Role;
use crate::serve::Seat;
use crate::store::{AuditedChange, GatewayEntry, StoreError, User};
use crate::target::Target;

/// A gateway's recent queues, and the requests that ask for them now: however many pages are open, a gateway
/// is asked once.
#[derive(Default)]
pub(crate) struct Asked(Mutex<HashMap<String, Slot>>);

type Slot = Arc<tokio::sync::Mutex<Kept>>;

#[derive(Default)]
struct Kept {
    told: Option<(Instant, Arc<Value>)>,
    failed: LastFailure,
}

#[derive(Deserialize)]
pub(super) struct Span {
    queue: String,
    minutes: Option<u32>,
}

#[derive(Deserialize)]
pub(super) struct Range {
    minutes: Option<u32>,
}

#[derive(Deserialize)]
pub(super) struct Call {
    method: String,
    /// Path and query of the admin API.
    path: String,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    confirm: Option<Confirm>,
}

/// Returns all queues; each consumer group has its sum.
pub(super) async fn queues(
    State(api): State<Arc<ApiState>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    let gateway = api.polls.store.gateway(&id)?.ok_or(StoreError::Missing)?;
    let slot = {
        let mut asked = api.asked.0.lock();
        asked.retain(|_, slot| {
            Arc::strong_count(slot) > 1 || slot.try_lock().is_ok_and(|kept| kept.fresh().is_some())
        });
        Arc::clone(asked.entry(id).or_default())
    };
    let came = Instant::now();
    let mut kept = slot.lock().await;
    if let Some(told) = kept.fresh() {
        return Ok(Json(Value::clone(&told)));
    }
    if let Some(why) = kept.failed.since(came) {
        return Err(Refusal::unreachable(why));
    }
    let target = Arc::new(target(&api, &gateway)?);
    let told = api.polls.outbound.get(&target, "/queue/stats", WITHIN).await;
    let queues = told.inspect_err(|error| kept.failed = LastFailure::of(error))?;
    let told = Arc::new(json!({"at_ms": now_ms(), "queues": with_sums(queues)}));
    kept.told = Some((Instant::now(), Arc::clone(&told)));
    Ok(Json(Value::clone(&told)))
}

/// Adds to each consumer group what its accounts are in sum.
fn with_sums(mut queues: Value) -> Value {
    for queue in queues
        .as_object_mut()
        .into_iter()
        .flat_map(serde_json::Map::values_mut)
    {
        let names: Vec<String> = queue["groups"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name.clone())
            .collect();
        for name in names {
            let sum = Sum::of(queue, &queue["groups"][&name]);
            let group = &mut queue["groups"][&name];
            group["accounted"] = json!(sum.as_ref().map(|sum| sum.accounted));
            group["states"] = json!(sum.as_ref().map(|sum| sum.states));
            group["adds_up"] = json!(sum.as_ref().map(Sum::adds_up));
        }
    }
    queues
}

impl Kept {
    fn fresh(&self) -> Option<Arc<Value>> {
        let (at, told) = self.told.as_ref()?;
        (at.elapsed() < KEPT).then(|| Arc::clone(told))
    }
}

/// Returns how far a queue's consumer groups were behind.
pub(super) async fn lag(
    State(api): State<Arc<ApiState>>,
    Path(id): Path<String>,
    Query(span): Query<Span>,
) -> Result<Json<Value>, Refusal> {
    api.polls.store.gateway(&id)?.ok_or(StoreError::Missing)?;
    let minutes = span.minutes.unwrap_or(15).clamp(1, MINUTES_MAX);
    Ok(Json(api.polls.board.lag(&id, &span.queue, minutes)))
}

/// Returns a gateway's traffic: rates and totals now, and rates over the last minutes.
pub(super) async fn traffic(
    State(api): State<Arc<ApiState>>,
    Path(id): Path<String>,
    Query(range): Query<Range>,
) -> Result<Json<Value>, Refusal> {
    let minutes = range.minutes.unwrap_or(15).clamp(1, MINUTES_MAX);
    Ok(Json(api.polls.board.traffic(&id, minutes)))
}

/// Sends a call to the admin API and returns the answer.
pub(super) async fn call(
    State(api): State<Arc<ApiState>>,
    Extension(user): Extension<User>,
    Path(id): Path<String>,
    seat: Option<Extension<Seat>>,
    Body(call): Body<Call>,
) -> Result<Response, Refusal> {
    let store = &api.polls.store;
    let gateway = store.gateway(&id)?.ok_or(StoreError::Missing)?;
    let path = CallPath::parse(&call.path).map_err(|error| Refusal::bad(format!("path: {error}")))?;
    let method = call.method.to_uppercase();
    let words: Vec<&str> = path.segments().collect();
    let known = CALLS
        .iter()
        .find(|known| known.method == method && known.fits(&words));
    let known = known.ok_or_else(|| Refusal::bad("path: the console makes no such call to a gateway"))?;
    if known.of_admins {
        demand(Role::Admin, user.roles.role, EVERYTHING)?;
    }
    let mut headers = HeaderMap::new();
    if known.changes(&call.path) {
        demand(Role::Operator, user.roles.on_gateway(&gateway), ON_GATEWAY)?;
        let is_asked = known.does != Does::Settle;
        admit(&api, &gateway, is_asked, call.confirm.as_ref())?;
        if let Ok(actor) = HeaderValue::from_bytes(user.name.as_bytes()) {
            headers.insert("x-actor", actor);
        }
        store.note(&AuditedChange {
            user: &user.name,
            what: &format!("{method} {}", call.path),
            target: &gateway.name,
            reason: call.confirm.as_ref().map(|confirm| confirm.reason.trim()),
            ..AuditedChange::default()
        })?;
    }
    if call.body.is_some() {
        headers.insert("content-type", HeaderValue::from_static("application/json"));
    }
    let method =
        Method::from_bytes(method.as_bytes()).map_err(|_| Refusal::bad("method: there is no such one"))?;
    let target_path = match known.path.contains(&"_revert") {
        // Nothing was asked, so a confirmed configuration is not replaced.
        true => format!(
            "{}{}only_unconfirmed=true",
            call.path,
            if call.path.contains('?') { '&' } else { '?' }
        ),
        false => call.path,
    };
    let ask = Ask {
        method,
        headers,
        body: call.body.unwrap_or_default().into_bytes(),
        bytes_max: BYTES_MAX,
        memory: Some(api.answers.clone()),
        ..Ask::get(&target_path, CALL_WITHIN)
    };
    let began = Instant::now();
    let answer = api
        .polls
        .outbound
        .send(&Arc::new(target(&api, &gateway)?), ask)
        .await?;
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    answers::told(answer, took_ms, json!({}), seat.map(|Extension(seat)| seat))
}

/// Checks whether a call that changes a gateway may be sent. Such a call affects the gateway's clusters: a
/// read-only cluster forbids it, and a protected one requires the gateway's name and a reason, if it is the
/// kind of call for which these are asked.
fn admit(
    api: &ApiState,
    gateway: &GatewayEntry,
    is_asked: bool,
    confirm: Option<&Confirm>,
) -> Result<(), Refusal> {
    let mut is_protected = false;
    for id in gateway
        .clusters
        .iter()
        .filter_map(|link| link.cluster_id.as_deref())
    {
        let Some(cluster) = api.polls.store.cluster(id)? else {
            continue;
        };
        if cluster.read_only {
            let reason = format!(
                "the gateway writes to {}, which is registered as read-only",
                cluster.name
            );
            return Err(Refusal::forbidden("read_only", reason));
        }
        is_protected |= cluster.protected;
    }
    if is_asked && is_protected && !confirm.is_some_and(|confirm| confirm.means(&gateway.name)) {
        return Err(Refusal::confirm(&gateway.name));
    }
    Ok(())
}

fn target(api: &ApiState, gateway: &GatewayEntry) -> Result<Target, Refusal> {
    Target::of_gateway(&api.polls.store, gateway).map_err(|error| Refusal::bad(error.to_string()))
}

/// A call that may be sent; `*` is any one segment.
struct AllowedCall {
    method: &'static str,
    path: &'static [&'static str],
    does: Does,
    /// Whether it takes the role admin for everything: whoever sets a gateway's configuration decides where
    /// the gateway sends its accounts.
    of_admins: bool,
}

/// The effect of a call on a gateway.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    Read,
    Write,
    /// The call keeps or takes back what a call with a confirmation did, and there is little time for it.
    Settle,
    /// The call writes, unless `dry_run=true` makes it only count. Other calls do not know that parameter,
    /// and some ignore it.
    WriteOrCount,
}

impl AllowedCall {
    fn fits(&self, words: &[&str]) -> bool {
        let alike = |(known, word): (&&str, &&str)| *known == "*" || known == word;
        self.path.len() == words.len() && self.path.iter().zip(words).all(alike)
    }

    /// Whether the call changes anything when it is sent to this path and query.
    fn changes(&self, target: &str) -> bool {
        let only_counts = || {
            let query = target.split_once('?').map_or("", |(_, query)| query);
            query.split('&').any(|one| one == "dry_run=true")
        };
        match self.does {
            Does::Read => false,
            Does::Write | Does::Settle => true,
            Does::WriteOrCount => !only_counts(),
        }
    }
}

const fn reads(path: &'static [&'static str]) -> AllowedCall {
    AllowedCall {
        method: "GET",
        path,
        does: Does::Read,
        of_admins: false,
    }
}

const fn writes(method: &'static str, path: &'static [&'static str]) -> AllowedCall {
    AllowedCall {
        method,
        path,
        does: Does::Write,
        of_admins: false,
    }
}

const fn writes_or_counts(path: &'static [&'static str]) -> AllowedCall {
    AllowedCall {
        method: "POST",
        path,
        does: Does::WriteOrCount,
        of_admins: false,
    }
}

/// A call about a gateway's configuration.
const fn config(method: &'static str, path: &'static [&'static str], does: Does) -> AllowedCall {
    AllowedCall {
        method,
        path,
        does,
        of_admins: true,
    }
}

const CALLS: [AllowedCall; 18] = [
    reads(&["queue", "*", "records"]),
    reads(&["queue", "*", "parked"]),
    reads(&["trace"]),
    reads(&["dead_letters"]),
    reads(&["dead_letters", "_facets"]),
    reads(&["dead_letters", "*"]),
    writes("PUT", &["dead_letters", "*"]),
    writes_or_counts(&["dead_letters", "_patch"]),
    writes_or_counts(&["dead_letters", "_replay"]),
    writes_or_counts(&["dead_letters", "_purge"]),
    writes("POST", &["pipeline", "*", "*"]),
    config("GET", &["config", "_file"], Does::Read),
    config("GET", &["config", "_applied"], Does::Read),
    config("POST", &["config", "_check"], Does::Read),
    config("POST", &["config", "_diff"], Does::Read),
    config("POST", &["config", "_apply"], Does::Write),
    config("POST", &["config", "_confirm"], Does::Settle),
    config("POST", &["config", "_revert"], Does::Settle),
];

/// How long the last answer about queues is used again.
const KEPT: Duration = Duration::from_millis(900);
const WITHIN: Duration = Duration::from_secs(5);
/// A replay takes its time.
const CALL_WITHIN: Duration = Duration::from_secs(60);
const BYTES_MAX: usize = 20 << 20;
const MINUTES_MAX: u32 = 24 * 60;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing::{failing, on_api, send};

    #[test]
    fn pages_that_wait_for_a_gateway_share_its_failure() {
        let (url, asked) = failing("GET /queue/stats");
        on_api(async |store, routes| {
            let entry = GatewayEntry {
                id: "g".into(),
                name: "edge".into(),
                url,
                ..GatewayEntry::default()
            };
            store.keep_gateway(&entry, None, None).unwrap();
            let token = store.begin_session(1).unwrap();
            let page = || send(&routes, "GET", "/gateways/g/queues", Some(&token), "");
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
