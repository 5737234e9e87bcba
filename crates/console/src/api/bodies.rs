//! The memory for the bodies of requests. Whoever is not logged in may send little, and all others together
//! may send only so much at once.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::Body as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::Refusal;

/// The memory for long bodies; clones share it.
#[derive(Clone)]
pub(crate) struct BodyMemory(Arc<Semaphore>);

impl Default for BodyMemory {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(BYTES_MAX)))
    }
}

impl BodyMemory {
    /// Waits until there is memory for a body of this length. Short ones need none.
    async fn take(&self, bytes: usize) -> Result<Option<OwnedSemaphorePermit>, Refusal> {
        if bytes <= SHORT_BYTES_MAX {
            return Ok(None);
        }
        let bytes = u32::try_from(bytes.min(BYTES_MAX)).unwrap_or(u32::MAX);
        let taken = timeout(ROOM_WITHIN, Arc::clone(&self.0).acquire_many_owned(bytes)).await;
        match taken {
            Ok(Ok(room)) => Ok(Some(room)),
            Ok(Err(_)) | Err(_) => Err(Refusal::no_memory(
                "others are sending long bodies, and there is no memory for this one: try again",
            )),
        }
    }
}

/// Serves a request once there is memory for its body. It keeps the memory until the answer, since handlers
/// pass bodies on. The second part of the state is the longest body that the endpoint takes.
pub(super) async fn with_room(
    State((memory, most)): State<(BodyMemory, usize)>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    // Without a length the body may be as long as the endpoint takes it.
    let told = request.body().size_hint().upper();
    let bytes = told.map_or(most, |bytes| usize::try_from(bytes).unwrap_or(most));
    let _room = memory.take(bytes.min(most)).await?;
    Ok(next.run(request).await)
}

/// The largest body of requests that need no session: a name and a password.
pub(super) const STRANGERS_BYTES_MAX: usize = 8 << 10;
/// The largest number of bytes of all long bodies together.
const BYTES_MAX: usize = 128 << 20;
/// Bodies up to this length need no memory of those that are shared.
const SHORT_BYTES_MAX: usize = 64 << 10;
const ROOM_WITHIN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::middleware::from_fn_with_state;
    use axum::{Extension, Router};
    use hyper_util::service::TowerToHyperService;
    use serde_json::{Value, json};
    use tokio::sync::Notify;
    use tokio::time::Instant;

    use super::super::testing::{on_api, send};
    use super::*;
    use crate::api::BODY_BYTES_MAX;

    const MOST: usize = 60 << 20;

    async fn answered(routes: &Router, body: Body) -> Response {
        let service = TowerToHyperService::new(routes.clone());
        hyper::service::Service::call(&service, Request::new(body))
            .await
            .unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn long_bodies_share_memory_until_they_are_answered_and_short_ones_need_none() {
        let (memory, done) = (BodyMemory::default(), Arc::new(Notify::new()));
        let answer = async |Extension(done): Extension<Arc<Notify>>, request: Request| {
            if request.body().size_hint().exact() != Some(SHORT_BYTES_MAX as u64) {
                done.notified().await;
            }
        };
        let routes = Router::new()
            .fallback(answer)
            .layer(Extension(Arc::clone(&done)))
            .layer(from_fn_with_state((memory.clone(), MOST), with_room));
        let endless = || Body::from_stream(futures_util::stream::pending::<Result<Vec<u8>, axum::Error>>());
        let long = || Body::from(vec![0; 9 << 20]);
        let test = async {
            let began = Instant::now();
            let refused = answered(&routes, long()).await;
            assert_eq!((refused.status().as_u16(), began.elapsed()), (503, ROOM_WITHIN));
            let told: Value =
                serde_json::from_slice(&to_bytes(refused.into_body(), 1_000).await.unwrap()).unwrap();
            assert_eq!(
                (&told["status"], &told["error"]["type"]),
                (&json!(503), &json!("no_memory"))
            );
            assert_eq!(
                answered(&routes, Body::from(vec![0; SHORT_BYTES_MAX]))
                    .await
                    .status(),
                200
            );
            done.notify_one();
            done.notify_one();
        };
        let others = async { tokio::join!(answered(&routes, endless()), answered(&routes, endless())) };
        tokio::join!(biased; others, test);
        assert_eq!(memory.0.available_permits(), BYTES_MAX);
    }

    #[test]
    fn a_stranger_may_send_little_and_a_user_more() {
        on_api(async |store, routes| {
            let login = |bytes: usize| format!(r#"{{"name": "ada", "password": "{}"}}"#, "x".repeat(bytes));
            for path in ["/login", "/setup"] {
                let answer = send(&routes, "POST", path, None, login(STRANGERS_BYTES_MAX)).await;
                assert_eq!(answer.status(), 413, "{path}");
                assert_eq!(answer.headers()["content-type"], "application/json");
            }
            let answer = send(&routes, "POST", "/login", None, login(STRANGERS_BYTES_MAX / 2)).await;
            assert_eq!(answer.status(), 401);
            let token = store.begin_session(1).unwrap();
            let tabs = |bytes: usize| json!({"tabs": [], "active": "x".repeat(bytes)}).to_string();
            for (bytes, status) in [(BODY_BYTES_MAX / 2, 200), (BODY_BYTES_MAX, 413)] {
                let answer = send(&routes, "PUT", "/tabs", Some(&token), tabs(bytes)).await;
                assert_eq!(answer.status(), status);
            }
        });
    }
}
