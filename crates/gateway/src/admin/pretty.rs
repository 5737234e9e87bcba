//! `?pretty` at the admin port: every endpoint accepts it, as the clusters' APIs do.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderValue, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::refusal::Refusal;
use crate::pretty;

/// Removes the parameter from the request, since endpoints refuse unknown parameters, and lays out the
/// answer.
pub(super) async fn lay_out(mut request: Request, next: Next) -> Response {
    if !pretty::is_asked(request.uri().query()) {
        return next.run(request).await;
    }
    if let Some(uri) = without(request.uri()) {
        *request.uri_mut() = uri;
    }
    let (mut head, body) = next.run(request).await.into_parts();
    let json = |value: &HeaderValue| value.as_bytes().starts_with(b"application/json");
    if !head.headers.get(CONTENT_TYPE).is_some_and(json) {
        return Response::from_parts(head, body);
    }
    head.headers.remove(CONTENT_LENGTH);
    // Answers are made completely in memory.
    let body = match to_bytes(body, usize::MAX).await {
        Ok(body) => body,
        Err(error) => return Refusal::failed(error).into_response(),
    };
    let body = match serde_json::from_slice(&body) {
        Ok(value) => Body::from(pretty::pretty(&value)),
        Err(_) => Body::from(body),
    };
    Response::from_parts(head, body)
}

fn without(uri: &Uri) -> Option<Uri> {
    let pairs = uri.query()?.split('&');
    let rest: Vec<&str> = pairs.filter(|pair| !pretty::is_asked(Some(pair))).collect();
    let target = match rest.is_empty() {
        true => uri.path().to_owned(),
        false => format!("{}?{}", uri.path(), rest.join("&")),
    };
    target.parse().ok()
}
