//! The API in the process of a test: a store in a folder of its own, and requests as the page sends them.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, Response};
use axum::{Extension, Router};
use hyper_util::service::TowerToHyperService;

use super::{Peer, router};
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
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    store.make_first_user("root", "hash").unwrap();
    let options = options(folder.path(), oidc);
    wire::run_local(1 << 20, async |worker| {
        let api = Arc::new(crate::api(store.clone(), &options, None, worker).unwrap());
        test(store, router(&api).layer(Extension(Peer(options.listen)))).await
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
    let mut request = Request::builder()
        .method(method)
        .uri(format!("/api{path}"))
        .header("host", "localhost")
        .header("sec-fetch-site", "same-origin")
        .header("content-type", "application/json");
    if let Some(token) = token {
        request = request.header("cookie", format!("tidegate-console={token}"));
    }
    let service = TowerToHyperService::new(routes.clone());
    let request = request.body(body.into()).unwrap();
    hyper::service::Service::call(&service, request).await.unwrap()
}
