//! A blocking HTTP client for tests and dev tasks: one origin, optional basic authentication and a CA to
//! trust.
//!
//! Statuses are answers, not errors; only a request that got no whole answer is an `Err`.
//!
//! ```no_run
//! let node = testkit::client::Client::new("http://127.0.0.1:9200")?;
//! let count = node.get("/_count")?.ok()?.json()?["count"].clone();
//! # anyhow::Ok(())
//! ```

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use serde_json::Value;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// The longest answer that is read, in bytes: a search for every id of a test's index fits.
const ANSWER_BYTES_MAX: u64 = 1 << 30;

/// Talks to one origin, keeping its connections alive between requests; cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    origin: String,
    authorization: Option<String>,
    agent: ureq::Agent,
}

impl Client {
    /// Creates a client of `origin` (`http://host:port`), with a limit of 60 s per request.
    ///
    /// # Errors
    /// If the origin does not begin with `http://` or `https://`.
    pub fn new(origin: &str) -> Result<Self> {
        Self::build(origin, None, Duration::from_secs(60))
    }

    /// Creates a client that trusts only the certificates of the PEM file `ca`.
    ///
    /// # Errors
    /// As [`Client::new`], or if `ca` is not a readable PEM certificate.
    pub fn trusting(origin: &str, ca: &Path) -> Result<Self> {
        Self::build(origin, Some(ca), Duration::from_secs(60))
    }

    /// Creates a client of `origin` that trusts `ca`, with its own time limit for each request.
    ///
    /// # Errors
    /// As [`Client::trusting`].
    pub fn build(origin: &str, ca: Option<&Path>, timeout: Duration) -> Result<Self> {
        if !origin.starts_with("http://") && !origin.starts_with("https://") {
            bail!("{origin} is not the origin of an HTTP server");
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = TlsConfig::builder().unversioned_rustls_crypto_provider(provider);
        if let Some(ca) = ca {
            let pem = std::fs::read(ca).with_context(|| format!("cannot read {}", ca.display()))?;
            let certificate = Certificate::from_pem(&pem)
                .with_context(|| format!("{} holds no certificate", ca.display()))?;
            tls = tls.root_certs(RootCerts::new_with_certs(&[certificate]));
        }
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .allow_non_standard_methods(true) // GET with a body is usual for these servers
            .timeout_global(Some(timeout))
            .tls_config(tls.build())
            .build()
            .new_agent();
        Ok(Self {
            origin: origin.trim_end_matches('/').to_owned(),
            authorization: None,
            agent,
        })
    }

    /// Sends `Authorization: Basic` with every request that does not bring its own.
    #[must_use]
    pub fn basic_auth(mut self, user: &str, password: &str) -> Self {
        let token = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
        self.authorization = Some(format!("Basic {token}"));
        self
    }

    /// Returns a client with the same account and trust for another server.
    #[must_use]
    pub fn at(&self, origin: &str) -> Self {
        Self {
            origin: origin.trim_end_matches('/').to_owned(),
            ..self.clone()
        }
    }

    /// `http://host:port`, without a slash at the end.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Sends GET `path` (which begins with `/` and may have a query).
    ///
    /// # Errors
    /// If no whole answer came.
    pub fn get(&self, path: &str) -> Result<Answer> {
        self.send("GET", path, &[], &[])
    }

    /// Sends DELETE `path`.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn delete(&self, path: &str) -> Result<Answer> {
        self.send("DELETE", path, &[], &[])
    }

    /// Sends PUT with a JSON body.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn put(&self, path: &str, body: &Value) -> Result<Answer> {
        self.send("PUT", path, JSON, body.to_string().as_bytes())
    }

    /// Sends POST with a JSON body; `Value::Null` means no body.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn post(&self, path: &str, body: &Value) -> Result<Answer> {
        match body {
            Value::Null => self.send("POST", path, &[], &[]),
            body => self.send("POST", path, JSON, body.to_string().as_bytes()),
        }
    }

    /// Sends POST with newline-delimited JSON, as `_bulk` and `_msearch` take it.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn post_ndjson(&self, path: &str, body: &[u8]) -> Result<Answer> {
        self.send("POST", path, NDJSON, body)
    }

    /// Sends any request, with the headers as given. An empty body is no body.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<Answer> {
        let mut request = http::Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.origin));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let own = headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        if let (Some(token), false) = (&self.authorization, own) {
            request = request.header("authorization", token);
        }
        let what = || format!("{method} {}{path}", self.origin);
        let sent = if body.is_empty() {
            self.agent.run(request.body(()).with_context(what)?)
        } else {
            self.agent.run(request.body(body).with_context(what)?)
        };
        let (parts, mut body) = sent.with_context(what)?.into_parts();
        let body = body
            .with_config()
            .limit(ANSWER_BYTES_MAX)
            .read_to_vec()
            .with_context(what)?;
        Ok(Answer {
            what: what(),
            status: parts.status.as_u16(),
            headers: parts.headers,
            body,
        })
    }
}

/// A server's whole answer.
#[derive(Clone, Debug)]
pub struct Answer {
    what: String,
    /// The status code.
    pub status: u16,
    /// The headers, names in lower case.
    pub headers: http::HeaderMap,
    /// The body as it came.
    pub body: Vec<u8>,
}

impl Answer {
    /// The answer if its status is 2xx.
    ///
    /// # Errors
    /// Any other status, with the request and the beginning of the body.
    pub fn ok(self) -> Result<Self> {
        if (200..300).contains(&self.status) {
            return Ok(self);
        }
        let text = self.text();
        let end = text.char_indices().nth(1000).map_or(text.len(), |(at, _)| at);
        bail!("{}: status {}: {}", self.what, self.status, &text[..end]);
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// When it is not JSON.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body).with_context(|| {
            format!(
                "{}: status {}, not JSON: {:.200}",
                self.what,
                self.status,
                self.text()
            )
        })
    }

    /// The body as text; bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// One header's value, if it is there and readable.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];
const NDJSON: &[(&str, &str)] = &[("content-type", "application/x-ndjson")];

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    /// Starts a server for one connection, which answers `reply` and returns what it was sent.
    fn one_answer(reply: &'static str) -> (String, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut seen = vec![0; 4096];
            let length = socket.read(&mut seen).unwrap();
            socket.write_all(reply.as_bytes()).unwrap();
            String::from_utf8_lossy(&seen[..length]).into_owned()
        });
        (origin, server)
    }

    #[test]
    fn a_refusal_is_an_answer_with_its_body() {
        let (origin, server) = one_answer("HTTP/1.1 409 Conflict\r\ncontent-length: 8\r\n\r\n{\"a\": 1}");
        let answer = Client::new(&origin)
            .unwrap()
            .basic_auth("admin", "admin")
            .get("/x?y=1")
            .unwrap();
        assert_eq!(
            (answer.status, answer.json().unwrap()["a"].as_u64()),
            (409, Some(1))
        );
        assert!(answer.ok().unwrap_err().to_string().contains("409"));
        let seen = server.join().unwrap().to_lowercase();
        assert!(
            seen.starts_with("get /x?y=1 http/1.1") && seen.contains("authorization: basic ywrtaw46ywrtaw4=")
        );
    }

    #[test]
    fn half_an_answer_is_an_error() {
        let (origin, server) = one_answer("HTTP/1.1 200 OK\r\ncontent-length: 80\r\n\r\n{\"a\": 1}");
        assert!(Client::new(&origin).unwrap().get("/").is_err());
        server.join().unwrap();
    }
}
