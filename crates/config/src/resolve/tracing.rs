//! Traces: the collector, its headers and its TLS.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::Resolver;
use super::cluster::url;
use crate::file::{OtlpFile, TracingFile};
use crate::runtime::{Endpoint, Tracing, TracingProtocol};

impl Resolver<'_> {
    /// Returns how requests are traced, if they are.
    pub(super) fn tracing(&mut self, file: &TracingFile) -> Option<Tracing> {
        let headers = self.otlp_headers(&file.otlp);
        if !file.enabled {
            return None;
        }
        let (collector, path) = self.collector(&file.otlp)?;
        if file.otlp.timeout.0.is_zero() {
            self.error("tracing.otlp.timeout", "must be more than 0");
        }
        let tls = &file.otlp.tls;
        let tls = self.tls(
            "tracing.otlp.tls",
            tls.insecure_skip_verify,
            &tls.ca_file,
            (&tls.cert_file, &tls.key_file),
            "the collector",
        );
        if !collector.tls && !headers.is_empty() {
            let message = "travel in plain text: write `https://` in `endpoint`";
            self.warning("tracing.otlp.headers", message);
        }
        Some(Tracing {
            sample: file.sample.0,
            follow_clients: file.follow_clients,
            collector,
            path: path.into(),
            protocol: file.otlp.protocol,
            compression: file.otlp.compression,
            headers,
            timeout: file.otlp.timeout.0,
            tls,
            service_name: file.service_name.clone(),
            attributes: file.attributes.clone(),
        })
    }

    /// Returns the collector, and the path of its requests.
    fn collector(&mut self, otlp: &OtlpFile) -> Option<(Endpoint, String)> {
        const KEY: &str = "tracing.otlp.endpoint";
        let Some(written) = otlp.endpoint.as_deref().filter(|written| !written.is_empty()) else {
            self.error(KEY, "is missing: traces have nowhere to go");
            return None;
        };
        let grpc = otlp.protocol == TracingProtocol::Grpc;
        let port = if grpc { GRPC_PORT } else { HTTP_PORT };
        let (endpoint, prefix, account) = match url(written, port) {
            Ok(read) => read,
            Err(why) => {
                self.error(KEY, why.to_string());
                return None;
            }
        };
        let prefix = prefix.trim_end_matches('/');
        if account.is_some() {
            self.error(KEY, "holds an account: write an `authorization` in `headers`");
        }
        if grpc && !prefix.is_empty() {
            self.error(KEY, "has a path after the host, which gRPC has not");
        }
        let path = match prefix.ends_with(PATH) {
            true => prefix.to_owned(),
            false => format!("{prefix}{PATH}"),
        };
        Some((endpoint, path))
    }

    fn otlp_headers(&mut self, otlp: &OtlpFile) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in &otlp.headers {
            let path = format!("tracing.otlp.headers.{name}");
            let (Ok(name), Ok(mut value)) =
                (HeaderName::try_from(name), HeaderValue::from_str(value.expose()))
            else {
                self.error(&path, "holds characters that a header cannot carry");
                continue;
            };
            if OURS.contains(&name.as_str()) {
                self.error(&path, "is a header that the gateway sets itself");
            }
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        headers
    }
}

/// The path that OTLP's specification gives traces.
const PATH: &str = "/v1/traces";
/// The ports that OTLP's specification gives collectors.
const HTTP_PORT: u16 = 4318;
const GRPC_PORT: u16 = 4317;
/// Headers that follow from the protocol.
const OURS: [&str; 8] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "grpc-encoding",
    "host",
    "te",
    "transfer-encoding",
];
