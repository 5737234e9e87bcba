//! A blocking HTTP/1.1 client that shares no code with Tidegate, so that it can judge Tidegate.
//!
//! It has one connection at a time, which is kept alive, and reads whole bodies. It sends a request byte for
//! byte as it is given, even a broken one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};
use serde_json::Value;

/// The address to send requests to, and the account.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// `127.0.0.1:9200`.
    pub(crate) address: String,
    pub(crate) tls: bool,
    /// User and password of basic authentication.
    pub(crate) basic_auth: Option<(String, String)>,
}

impl Origin {
    /// Reads `http://host:port` or `https://host:port`.
    pub(crate) fn of_url(url: &str, basic_auth: Option<(String, String)>) -> Result<Self> {
        let (scheme, rest) = url
            .split_once("://")
            .with_context(|| format!("{url} has no scheme"))?;
        let address = rest.trim_end_matches('/').to_owned();
        Ok(Self {
            address,
            tls: scheme == "https",
            basic_auth,
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://{}", if self.tls { "https" } else { "http" }, self.address)
    }
}

/// A request, exactly as it is sent (except for `Host`, `Content-Length` and `Authorization`).
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn new(method: &str, target: &str) -> Self {
        Self {
            method: method.to_owned(),
            target: target.to_owned(),
            ..Self::default()
        }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        let mut with_type = self.header("Content-Type", "application/json");
        with_type.body = body.to_string().into_bytes();
        with_type
    }

    pub(crate) fn ndjson(self, body: Vec<u8>) -> Self {
        let mut with_type = self.header("Content-Type", "application/x-ndjson");
        with_type.body = body;
        with_type
    }
}

/// A whole answer, with a gzip body already unpacked.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// Returns the values of a header, joined with a comma; `None` if it is absent.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let values: Vec<&str> = self
            .headers
            .iter()
            .filter(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v.as_str())
            .collect();
        if values.is_empty() {
            None
        } else {
            Some(values.join(", "))
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn value(&self) -> Result<Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("not JSON: {}", self.text()))
    }
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(s) => s.read(buf),
            Self::Tls(s) => s.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(s) => s.write(buf),
            Self::Tls(s) => s.write(buf),
        }
    }
    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Plain(s) => s.flush(),
            Self::Tls(s) => s.flush(),
        }
    }
}

/// A client of one origin.
pub(crate) struct Http {
    pub(crate) origin: Origin,
    patience: Duration,
    connection: Option<BufReader<Stream>>,
}

impl Http {
    pub(crate) fn to(origin: &Origin) -> Self {
        Self {
            origin: origin.clone(),
            patience: Duration::from_secs(60),
            connection: None,
        }
    }

    pub(crate) fn with_patience(origin: &Origin, patience: Duration) -> Self {
        Self {
            origin: origin.clone(),
            patience,
            connection: None,
        }
    }

    /// Sends a request and reads the whole answer. If the server has closed a kept-alive connection
    /// meanwhile, it is replaced once.
    pub(crate) fn send(&mut self, request: &Request) -> Result<Answer> {
        let reused = self.connection.is_some();
        match self.attempt(request) {
            Err(error) if reused && closed_before_answering(&error) => self.attempt(request),
            other => other,
        }
    }

    /// Sends like `send`, and requires a 2xx answer with a JSON body (or none).
    pub(crate) fn must(&mut self, request: &Request) -> Result<Value> {
        let answer = self.send(request)?;
        let (method, target) = (&request.method, &request.target);
        ensure!(
            answer.status < 300,
            "{method} {target}: {} {}",
            answer.status,
            answer.text()
        );
        if answer.body.is_empty() {
            Ok(Value::Null)
        } else {
            answer.value()
        }
    }

    pub(crate) fn get(&mut self, target: &str) -> Result<Value> {
        self.must(&Request::new("GET", target))
    }

    pub(crate) fn put(&mut self, target: &str, body: &Value) -> Result<Value> {
        self.must(&Request::new("PUT", target).json(body))
    }

    pub(crate) fn post(&mut self, target: &str, body: &Value) -> Result<Value> {
        self.must(&Request::new("POST", target).json(body))
    }

    fn attempt(&mut self, request: &Request) -> Result<Answer> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => BufReader::new(connect(&self.origin, self.patience)?),
        };
        let mut head = format!(
            "{} {} HTTP/1.1\r\nHost: {}\r\n",
            request.method, request.target, self.origin.address
        );
        for (name, value) in &request.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some((user, password)) = &self.origin.basic_auth {
            let secret = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
            head.push_str(&format!("Authorization: Basic {secret}\r\n"));
        }
        if !request.body.is_empty() || matches!(request.method.as_str(), "POST" | "PUT") {
            head.push_str(&format!("Content-Length: {}\r\n", request.body.len()));
        }
        head.push_str("\r\n");
        let stream = connection.get_mut();
        stream.write_all(head.as_bytes())?;
        stream.write_all(&request.body)?;
        stream.flush()?;

        let (answer, keep) = read_answer(&mut connection, request.method == "HEAD")?;
        if keep {
            self.connection = Some(connection);
        }
        Ok(answer)
    }
}

fn closed_before_answering(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.is::<ClosedEarly>() || cause.is::<std::io::Error>())
}

#[derive(Debug, thiserror::Error)]
#[error("the connection was closed before an answer began")]
struct ClosedEarly;

fn connect(origin: &Origin, patience: Duration) -> Result<Stream> {
    let socket =
        TcpStream::connect(&origin.address).with_context(|| format!("connecting to {}", origin.address))?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(patience))?;
    socket.set_write_timeout(Some(patience))?;
    if !origin.tls {
        return Ok(Stream::Plain(socket));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(TrustAnyone(provider)))
        .with_no_client_auth();
    let host = origin
        .address
        .split(':')
        .next()
        .context("an address has a host")?;
    let session = ClientConnection::new(Arc::new(config), ServerName::try_from(host.to_owned())?)?;
    Ok(Stream::Tls(Box::new(StreamOwned::new(session, socket))))
}

fn read_answer(from: &mut BufReader<Stream>, no_body: bool) -> Result<(Answer, bool)> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Err(ClosedEarly.into());
    }
    let status: u16 = line
        .split(' ')
        .nth(1)
        .context("a status line has a status")?
        .trim()
        .parse()?;
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        ensure!(from.read_line(&mut line)? > 0, "closed within the headers");
        let line = line.trim_end_matches(['\r', '\n']);
        if line.is_empty() {
            break;
        }
        let (name, value) = line
            .split_once(':')
            .with_context(|| format!("not a header: {line}"))?;
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    if status == 100 {
        return read_answer(from, no_body);
    }
    let mut answer = Answer {
        status,
        headers,
        body: Vec::new(),
    };
    let closing = answer
        .header("Connection")
        .is_some_and(|v| v.eq_ignore_ascii_case("close"));
    if no_body || status == 204 || status == 304 {
        return Ok((answer, !closing));
    }
    if answer.header("Transfer-Encoding").is_some() {
        read_chunks(from, &mut answer.body)?;
    } else if let Some(length) = answer.header("Content-Length") {
        answer.body.resize(length.parse()?, 0);
        from.read_exact(&mut answer.body)?;
    } else {
        from.read_to_end(&mut answer.body)?;
        return Ok((unpacked(answer)?, false));
    }
    Ok((unpacked(answer)?, !closing))
}

fn read_chunks(from: &mut BufReader<Stream>, body: &mut Vec<u8>) -> Result<()> {
    loop {
        let mut line = String::new();
        ensure!(from.read_line(&mut line)? > 0, "closed between two chunks");
        let size = usize::from_str_radix(line.trim().split(';').next().unwrap_or(""), 16)?;
        let start = body.len();
        body.resize(start + size, 0);
        from.read_exact(&mut body[start..])?;
        let mut end = String::new();
        from.read_line(&mut end)?;
        if end != "\r\n" {
            bail!("a chunk ends with {end:?}");
        }
        if size == 0 {
            return Ok(());
        }
    }
}

fn unpacked(mut answer: Answer) -> Result<Answer> {
    if answer
        .header("Content-Encoding")
        .is_some_and(|v| v.eq_ignore_ascii_case("gzip"))
    {
        let mut whole = Vec::new();
        flate2::read::GzDecoder::new(answer.body.as_slice())
            .read_to_end(&mut whole)
            .with_context(|| format!("said to be gzip: {}", answer.text()))?;
        answer.body = whole;
    }
    Ok(answer)
}

/// These tests check what is written, not by whom: the clusters' certificates are made on the spot.
#[derive(Debug)]
struct TrustAnyone(Arc<rustls::crypto::CryptoProvider>);

impl ServerCertVerifier for TrustAnyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
