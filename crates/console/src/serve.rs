//! Connections of browsers: accepted up to a limit, in plain text or with TLS, each with time limits.

mod certificate;
mod patience;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use wire::guard::{Work, spawn};
use wire::{Accepted, ServerTls};

use crate::api::Peer;
pub(crate) use certificate::Certificate;
pub use certificate::TlsFiles;
use patience::Patient;

/// Accepts connections for ever.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<ServerTls>,
    routes: Router,
    base_path: Arc<str>,
) {
    let seats = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(seat) = Arc::clone(&seats).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, address)) => {
                let (tls, base_path) = (tls.clone(), Arc::clone(&base_path));
                let routes = routes.clone().layer(axum::Extension(Peer(address)));
                spawn(Work::Admin, async move {
                    if let Err(error) = connection(stream, tls, routes, &base_path, seat).await {
                        tracing::debug!(%address, %error, "a connection ends");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be accepted");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(
    stream: TcpStream,
    tls: Option<ServerTls>,
    routes: Router,
    base_path: &Arc<str>,
    seat: OwnedSemaphorePermit,
) -> io::Result<()> {
    let mut accepted = Accepted::new(stream, tls.as_ref());
    let late = |_| io::Error::other("no TLS handshake in time");
    timeout(HANDSHAKE_WITHIN, accepted.establish())
        .await
        .map_err(late)??;
    match accepted.is_in_clear() {
        true => exchange(accepted, in_clear(), &"".into(), seat).await,
        false => exchange(accepted, routes, base_path, seat).await,
    }
}

/// Answers requests in clear text where TLS is expected. They reach nothing else.
fn in_clear() -> Router {
    let refusal = wire::Refusal::PlainHttp;
    Router::new().fallback(async move || {
        let close = [(http::header::CONNECTION, "close")];
        (refusal.status(), close, format!("{}\n", refusal.reason()))
    })
}

async fn exchange<S: AsyncRead + AsyncWrite + Unpin + 'static>(
    stream: S,
    routes: Router,
    base_path: &Arc<str>,
    _seat: OwnedSemaphorePermit,
) -> io::Result<()> {
    let base_path = Arc::clone(base_path);
    let routes = TowerToHyperService::new(routes);
    let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        let (routes, base_path) = (routes.clone(), Arc::clone(&base_path));
        async move {
            match below(&base_path, request) {
                Ok(request) => hyper::service::Service::call(&routes, request).await,
                Err(elsewhere) => Ok(*elsewhere),
            }
        }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(Patient::new(stream, TAKEN_WITHIN)), service)
        .await
        .map_err(io::Error::other)
}

/// Returns the request without the base path, or the answer to a request with another path.
fn below(
    base_path: &str,
    mut request: hyper::Request<Incoming>,
) -> Result<hyper::Request<Body>, Box<hyper::Response<Body>>> {
    if !base_path.is_empty() {
        let path_and_query = request.uri().path_and_query().map_or("/", |whole| whole.as_str());
        let Some(rest) = path_and_query.strip_prefix(base_path) else {
            return Err(elsewhere(http::StatusCode::NOT_FOUND, None));
        };
        if rest.is_empty() || rest.starts_with('?') {
            return Err(elsewhere(
                http::StatusCode::PERMANENT_REDIRECT,
                Some(format!("{base_path}/")),
            ));
        }
        let uri = rest.starts_with('/').then(|| rest.parse().ok()).flatten();
        let Some(uri) = uri else {
            return Err(elsewhere(http::StatusCode::NOT_FOUND, None));
        };
        *request.uri_mut() = uri;
    }
    Ok(request.map(Body::new))
}

fn elsewhere(status: http::StatusCode, location: Option<String>) -> Box<hyper::Response<Body>> {
    let mut response = hyper::Response::new(Body::empty());
    *response.status_mut() = status;
    if let Some(location) = location.and_then(|location| http::HeaderValue::from_str(&location).ok()) {
        response.headers_mut().insert(http::header::LOCATION, location);
    }
    Box::new(response)
}

/// The largest number of connections; a browser has up to six.
const CONNECTIONS_MAX: usize = 512;
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// Time limit for a request's head, and between requests.
const HEAD_WITHIN: Duration = Duration::from_secs(60);
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Time limit for a client to take anything of an answer.
const TAKEN_WITHIN: Duration = Duration::from_secs(60);
