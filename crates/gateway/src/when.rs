//! `when`: the condition under which a filter runs, evaluated on a request's head.

use http::{HeaderMap, Method};

/// What conditions can look at. Everything is borrowed; nothing is computed unless a condition asks.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// `_ctx.request.method`.
    pub method: &'a Method,
    /// `_ctx.request.path`: without the query, as sent.
    pub path: &'a str,
    /// `_ctx.request.query_args.NAME` are taken from here; without the `?`.
    pub query: &'a str,
    /// `_ctx.request.header.NAME` and `_ctx.request.host`.
    pub headers: &'a HeaderMap,
    /// `_ctx.request.client_ip`.
    pub client: std::net::IpAddr,
    /// `_ctx.tls`: whether the client speaks TLS to us.
    pub tls: bool,
    /// `_ctx.request.body_length`: the body's declared length, if it has one.
    pub body_length: Option<u64>,
}

/// A condition, compiled.
#[derive(Clone, Debug, PartialEq)]
pub struct When {}

impl When {
    /// Whether the condition holds for `request`.
    pub fn holds(&self, _request: &Request<'_>) -> bool {
        true
    }
}
