//! Why a server is not trusted, for clients that have a TLS of their own: theirs says only that it is not.
//! The server is called once more, by rustls, which knows the reason.

use std::io;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, OtherError,
    SignatureScheme,
};

use super::{AcceptAny, ClientTlsConfig, chain, expiry, private_key, provider, words};

/// Shakes hands with the server at `host:port`, and returns in words for people why that fails; none if it
/// does not fail, or if the server cannot be reached within `patience`. Blocks.
pub fn why_refused(address: &str, tls: &ClientTlsConfig, patience: Duration) -> Option<String> {
    let (host, _) = address.rsplit_once(':')?;
    let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).ok()?;
    let until = Instant::now() + patience;
    let mut socket = address.to_socket_addrs().ok()?.find_map(|address| {
        let left = until.checked_duration_since(Instant::now())?;
        TcpStream::connect_timeout(&address, left).ok()
    })?;
    let mut connection = match config(tls) {
        Ok(config) => ClientConnection::new(Arc::new(config), name).ok()?,
        Err(error) => return Some(words::of(&error)),
    };
    while connection.is_handshaking() {
        let left = until.checked_duration_since(Instant::now())?;
        let left = left.max(Duration::from_millis(1)); // zero would be no limit
        socket.set_read_timeout(Some(left)).ok()?;
        socket.set_write_timeout(Some(left)).ok()?;
        if let Err(error) = connection.complete_io(&mut socket) {
            let is_late = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
            return (!is_late).then(|| words::of_handshake(&error));
        }
    }
    None
}

fn config(tls: &ClientTlsConfig) -> Result<ClientConfig, Error> {
    let unusable = |error: super::TlsError| Error::General(error.to_string());
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let verifier: Arc<dyn ServerCertVerifier> = match tls.insecure {
        true => Arc::new(AcceptAny(provider())),
        false => {
            let roots = Arc::new(tls.roots.store().map_err(unusable)?);
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider()).build();
            Arc::new(Strict(
                verifier.map_err(|error| Error::General(error.to_string()))?,
            ))
        }
    };
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    match &tls.identity_pem {
        None => Ok(builder.with_no_client_auth()),
        Some((certificate, key)) => builder.with_client_auth_cert(
            chain("client certificate", certificate).map_err(unusable)?,
            private_key(key).map_err(unusable)?,
        ),
    }
}

/// Verifies as rustls does, and tells of a key that is too short, which rustls takes for a signature that is
/// wrong.
#[derive(Debug)]
struct Strict(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for Strict {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.0.verify_server_cert(leaf, chain, name, ocsp, now)?;
        match expiry::rsa_bits(leaf) {
            Some(bits) if bits < RSA_BITS_MIN => {
                let short = OtherError(Arc::new(words::ShortKey(bits)));
                Err(Error::InvalidCertificate(CertificateError::Other(short)))
            }
            _ => Ok(verified),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, leaf, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, leaf, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// What AWS-LC verifies at all, and OpenSSL by default.
const RSA_BITS_MIN: usize = 2048;
