//! Connections of browsers: in plain text or with TLS, each with a seat and with time limits.

mod certificate;
mod patience;
mod seats;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout_at};
use wire::guard::{Work, spawn};
use wire::{Accepted, ServerTls};

use crate::api::Peer;
pub(crate) use certificate::Certificate;
pub use certificate::TlsFiles;
use patience::{HEAD_WITHIN, Patient};
pub(crate) use seats::Seat;
use seats::{Seats, UnderWay};

/// Accepts connections for ever.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<ServerTls>,
    routes: Router,
    base_path: Arc<str>,
) {
    let seats = Seats::new(CONNECTIONS_MAX);
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                let Some(hold) = seats.take(address.ip()) else {
                    wire::rationed!(tracing::warn, %address, "all serve users: one is turned away");
                    continue;
                };
                let (tls, base_path) = (tls.clone(), Arc::clone(&base_path));
                let routes = routes.clone().layer(axum::Extension(Peer(address)));
                spawn(Work::Admin, async move {
                    let ended = tokio::select! {
                        // No request is begun once the seat is somebody else's.
                        biased;
                        () = hold.seat().lost() => Err(io::Error::other("its seat was needed")),
                        ended = connection(stream, tls, routes, &base_path, hold.seat()) => ended,
                    };
                    if let Err(error) = ended {
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
    seat: &Seat,
) -> io::Result<()> {
    let first_by = Instant::now() + HEAD_WITHIN;
    let mut accepted = Accepted::new(stream, tls.as_ref());
    let late = |_| io::Error::other("no TLS handshake in time");
    timeout_at(first_by, accepted.establish()).await.map_err(late)??;
    let is_in_clear = accepted.is_in_clear();
    let patient = Patient::new(accepted, seat.clone(), first_by, TAKEN_WITHIN);
    match is_in_clear {
        true => exchange(patient, in_clear(), &"".into(), seat).await,
        false => exchange(patient, routes, base_path, seat).await,
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
    stream: Patient<S>,
    routes: Router,
    base_path: &Arc<str>,
    seat: &Seat,
) -> io::Result<()> {
    let (base_path, seat) = (Arc::clone(base_path), seat.clone());
    let routes = TowerToHyperService::new(routes);
    let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
        let (routes, base_path) = (routes.clone(), Arc::clone(&base_path));
        let under_way = seat.ask();
        request.extensions_mut().insert(seat.clone());
        async move {
            let answer = match below(&base_path, request) {
                Ok(request) => hyper::service::Service::call(&routes, request).await?,
                Err(elsewhere) => *elsewhere,
            };
            Ok::<_, std::convert::Infallible>(answer.map(|body| Answer { body, under_way }))
        }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(NEXT_WITHIN)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .await
        .map_err(io::Error::other)
}

/// The body of an answer. Its request is under way until it has gone out.
struct Answer {
    body: Body,
    #[expect(dead_code, reason = "it is dropped with the body")]
    under_way: UnderWay,
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
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
/// Time limit for a connection between two requests.
const NEXT_WITHIN: Duration = Duration::from_secs(60);
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Time limit for a client to take anything of an answer.
const TAKEN_WITHIN: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::task::{JoinHandle, LocalSet};

    use super::*;

    /// A connection that has just been accepted.
    fn accepted() -> (DuplexStream, JoinHandle<io::Result<()>>) {
        let (console, browser) = duplex(4096);
        let hold = Seats::new(1).take([127, 0, 0, 1].into());
        let seat = hold.unwrap().seat().clone();
        let patient = Patient::new(console, seat.clone(), Instant::now() + HEAD_WITHIN, TAKEN_WITHIN);
        let routes = Router::new().fallback(async || "here");
        let served = async move { exchange(patient, routes, &"".into(), &seat).await };
        (browser, tokio::task::spawn_local(served))
    }

    async fn ask(browser: &mut DuplexStream) {
        browser
            .write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n")
            .await
            .unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"here") {
            assert!(browser.read_buf(&mut answer).await.unwrap() > 0);
        }
    }

    /// Sends a byte a second for some seconds, and returns after how many the console ends the connection.
    async fn ended_after(mut browser: DuplexStream, served: JoinHandle<io::Result<()>>, seconds: u8) -> u64 {
        let began = Instant::now();
        let trickle = async {
            for _ in 0..seconds {
                let _ = browser.write_all(b"G").await;
                sleep(Duration::from_secs(1)).await;
            }
            let _ = browser.read_to_end(&mut Vec::new()).await;
        };
        let end = async {
            let _ = served.await.unwrap();
            began.elapsed().as_secs()
        };
        tokio::join!(end, trickle).0
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_has_ten_seconds_and_a_connection_between_requests_a_minute() {
        let tasks = LocalSet::new();
        let all = async {
            for sends_s in [0, 20] {
                let (browser, served) = accepted();
                assert_eq!(ended_after(browser, served, sends_s).await, 10, "the first head");
            }
            for (sends_s, ends_s) in [(0, 60), (20, 10)] {
                let (mut browser, served) = accepted();
                sleep(Duration::from_secs(9)).await;
                ask(&mut browser).await;
                for _ in 0..3 {
                    sleep(Duration::from_secs(50)).await;
                    ask(&mut browser).await;
                }
                assert_eq!(
                    ended_after(browser, served, sends_s).await,
                    ends_s,
                    "a later head"
                );
            }
        };
        tasks.run_until(all).await;
    }
}
