//! The API in the process of a test: a store in a folder of its own, and requests as the page sends them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use axum::http::{Request, Response};
use axum::{Extension, Router};
use hyper_util::service::TowerToHyperService;

use super::{Peer, Shared, router};
use crate::Options;
use crate::roles::Roles;
use crate::store::Store;
use settings::Secret;

/// Runs a test on an API whose store has the admin `root`.
pub(super) fn on_api<T>(test: impl AsyncFnOnce(Store, Router) -> T) -> T {
    on_api_with(None, test)
}

/// Runs a test in the same way, with logins at an OpenID provider.
pub(super) fn on_api_with<T>(oidc: Option<&str>, test: impl AsyncFnOnce(Store, Router) -> T) -> T {
    on_shared(oidc, async |api, routes| {
        test(api.polls.store.clone(), routes).await
    })
}

/// Runs a test in the same way, with all of the state.
pub(super) fn on_shared<T>(oidc: Option<&str>, test: impl AsyncFnOnce(Shared, Router) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    store.make_first_user("root", "hash").unwrap();
    let options = options(folder.path(), oidc);
    wire::run_local(1 << 20, async |worker| {
        let api = Arc::new(crate::api(store, &options, None, worker).unwrap());
        let routes = router(&api).layer(Extension(Peer(options.listen)));
        test(api, routes).await
    })
    .unwrap()
}

/// Returns the options of a console with these settings of `--oidc`.
pub(super) fn options(data: &Path, oidc: Option<&str>) -> Options {
    Options {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        data: data.to_owned(),
        base_path: String::new(),
        tls: None,
        hosts: Vec::new(),
        insecure_http: false,
        registry: None,
        oidc: oidc.map(Secret::new),
        program: None,
    }
}

/// Adds a user with these roles, and returns the token of a session.
pub(super) fn session_of(store: &Store, name: &str, roles: &Roles) -> String {
    store.add_user(name, "hash", roles).unwrap();
    let (user, _) = store.user(name).unwrap().unwrap();
    store.begin_session(user.id).unwrap()
}

/// Sends a request of the page, with a session's token.
pub(super) async fn send(
    routes: &Router,
    method: &str,
    path: &str,
    token: Option<&str>,
    body: impl Into<Body>,
) -> Response<Body> {
    send_with(routes, method, path, token, body, &[]).await
}

/// Sends a request in the same way, with more headers.
pub(super) async fn send_with(
    routes: &Router,
    method: &str,
    path: &str,
    token: Option<&str>,
    body: impl Into<Body>,
    headers: &[(&str, &str)],
) -> Response<Body> {
    let mut request = Request::builder()
        .method(method)
        .uri(format!("/api{path}"))
        .header("host", "localhost")
        .header("sec-fetch-site", "same-origin")
        .header("content-type", "application/json");
    if let Some(token) = token {
        request = request.header("cookie", format!("tidegate-console={token}"));
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let service = TowerToHyperService::new(routes.clone());
    let request = request.body(body.into()).unwrap();
    hyper::service::Service::call(&service, request).await.unwrap()
}

/// How often a server was asked something.
pub(super) struct Asked(Arc<AtomicUsize>);

impl Asked {
    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Starts a server that answers each request with 500, and counts those that begin in this way. Returns its
/// address.
pub(super) fn failing(counted: &'static str) -> (String, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let serve = move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 4096];
            let read = stream.read(&mut head).unwrap_or(0);
            if head[..read].starts_with(counted.as_bytes()) {
                count.fetch_add(1, Ordering::Relaxed);
            }
            // The client may be gone.
            let _ = stream.write_all(
                b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            );
        }
    };
    wire::guard::thread("failing", wire::guard::Work::Other, serve).unwrap();
    (url, Asked(asked))
}
