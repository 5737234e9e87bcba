//! TLS for server and client: rustls on aws-lc-rs.

mod doubt;
mod expiry;
pub(crate) mod words;

pub use doubt::why_refused;
pub use expiry::{earliest_expiry, earliest_expiry_of_file};

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// The server side of TLS: certificate chain, key, and the CA of client certificates, if they are required.
/// All PEM.
#[derive(Debug, Clone, Default)]
pub struct ServerTlsConfig {
    /// Certificate chain, leaf first.
    pub certificate_pem: Vec<u8>,
    /// Private key (PKCS#8, PKCS#1 or SEC1).
    pub key_pem: Vec<u8>,
    /// CA certificates: if set, clients must present a certificate that one of them issued.
    pub client_ca_pem: Option<Vec<u8>>,
}

/// TLS of a listener. Clones share the certificate, so that [`ServerTls::reload`] reaches new handshakes
/// everywhere.
#[derive(Clone)]
pub struct ServerTls {
    pub(crate) config: Arc<ServerConfig>,
    certificate: Arc<Current>,
}

/// The certificates that a client trusts.
#[derive(Debug, Clone, Default)]
pub enum Roots {
    /// The system's certificate store.
    #[default]
    Native,
    /// Only these certificates (PEM).
    Pem(Vec<u8>),
    /// Only the certificates in this file (PEM).
    File(PathBuf),
}

/// The client side of TLS.
#[derive(Debug, Clone, Default)]
pub struct ClientTlsConfig {
    /// The certificates to trust.
    pub roots: Roots,
    /// Whether to accept any certificate for any name. For test clusters only.
    pub insecure: bool,
    /// Our own certificate chain and key (PEM), for nodes that require one.
    pub identity_pem: Option<(Vec<u8>, Vec<u8>)>,
}

/// TLS for connections to nodes; clones share sessions for resumption. Cheap to clone.
#[derive(Clone)]
pub struct ClientTls {
    pub(crate) config: Arc<ClientConfig>,
}

/// The reason why TLS could not be set up. It is always a fault of the configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A PEM text could not be read.
    #[error("{what}: {why}")]
    Pem {
        /// The text concerned.
        what: &'static str,
        /// The fault, without anything of the text: there may be a private key in it.
        why: &'static str,
    },
    /// There is no certificate in a PEM text.
    #[error(
        "{0}: no certificate found; the file is to have a part that begins with `-----BEGIN CERTIFICATE-----`"
    )]
    NoCertificate(&'static str),
    /// Key and certificate don't match, or rustls refuses them.
    #[error("{}", words::of(.0))]
    Rustls(#[from] rustls::Error),
    /// The client CA is unusable.
    #[error("client CA: {0}")]
    ClientCa(#[from] rustls::server::VerifierBuilderError),
    /// The contents of a file cannot be used.
    #[error("{path}: {source}")]
    InFile {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: Box<TlsError>,
    },
    /// A file could not be read.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

#[derive(Debug)]
struct Current(ArcSwap<CertifiedKey>);

// === impl ServerTls ===

impl ServerTls {
    /// Checks and loads certificate, key and CA.
    pub fn new(config: &ServerTlsConfig) -> Result<Self, TlsError> {
        let certificate = Arc::new(Current(ArcSwap::new(Arc::new(certified(
            &config.certificate_pem,
            &config.key_pem,
        )?))));
        let builder =
            ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
        let builder = match &config.client_ca_pem {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let roots = Arc::new(roots_from_pem("client CA", pem)?);
                builder.with_client_cert_verifier(
                    WebPkiClientVerifier::builder_with_provider(roots, provider()).build()?,
                )
            }
        };
        let mut config = builder.with_cert_resolver(certificate.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new()?;
        Ok(ServerTls {
            config: Arc::new(config),
            certificate,
        })
    }

    /// Replaces certificate and key for handshakes from now on; on error the old ones stay.
    pub fn reload(&self, certificate_pem: &[u8], key_pem: &[u8]) -> Result<(), TlsError> {
        self.certificate
            .0
            .store(Arc::new(certified(certificate_pem, key_pem)?));
        Ok(())
    }
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerTls").finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

// === impl Roots ===

impl Roots {
    /// Returns the certificates (DER), for clients that have a TLS of their own.
    ///
    /// # Errors
    /// When a file cannot be read, or has no certificate.
    pub fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        match self {
            Roots::Native => Ok(native_certificates()),
            Roots::Pem(pem) => chain("CA", pem),
            Roots::File(path) => {
                let pem = std::fs::read(path).map_err(|source| TlsError::File {
                    path: path.clone(),
                    source,
                })?;
                chain("CA", &pem).map_err(|source| TlsError::InFile {
                    path: path.clone(),
                    source: Box::new(source),
                })
            }
        }
    }

    fn store(&self) -> Result<RootCertStore, TlsError> {
        let certificates = self.certificates()?;
        match self {
            Roots::Native => {
                let mut roots = RootCertStore::empty();
                roots.add_parsable_certificates(certificates);
                Ok(roots)
            }
            Roots::Pem(_) => store_of(certificates),
            Roots::File(path) => store_of(certificates).map_err(|source| TlsError::InFile {
                path: path.clone(),
                source: Box::new(source),
            }),
        }
    }
}

// === impl ClientTls ===

impl ClientTls {
    /// Checks and loads roots and identity.
    pub fn new(config: &ClientTlsConfig) -> Result<Self, TlsError> {
        let builder =
            ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
        let builder = if config.insecure {
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AcceptAny(provider())))
        } else {
            builder.with_root_certificates(config.roots.store()?)
        };
        let mut tls = match &config.identity_pem {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                builder.with_client_auth_cert(chain("client certificate", certificate)?, private_key(key)?)?
            }
        };
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(ClientTls {
            config: Arc::new(tls),
        })
    }

    /// Returns the same for servers that are to speak HTTP/2.
    #[must_use]
    pub fn for_http2(&self) -> Self {
        let mut tls = ClientConfig::clone(&self.config);
        tls.alpn_protocols = vec![b"h2".to_vec()];
        ClientTls {
            config: Arc::new(tls),
        }
    }
}

impl std::fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientTls").finish_non_exhaustive()
    }
}

/// Verifies nothing but the signature of the handshake itself.
#[derive(Debug)]
struct AcceptAny(Arc<rustls::crypto::CryptoProvider>);

impl rustls::client::danger::ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn certified(certificate_pem: &[u8], key_pem: &[u8]) -> Result<CertifiedKey, TlsError> {
    Ok(CertifiedKey::from_der(
        chain("certificate", certificate_pem)?,
        private_key(key_pem)?,
        &provider(),
    )?)
}

fn chain(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| TlsError::Pem {
            what,
            why: words::of_pem(&error),
        })?;
    if chain.is_empty() {
        Err(TlsError::NoCertificate(what))
    } else {
        Ok(chain)
    }
}

fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| TlsError::Pem {
        what: "private key",
        why: words::of_pem(&error),
    })
}

fn roots_from_pem(what: &'static str, pem: &[u8]) -> Result<RootCertStore, TlsError> {
    store_of(chain(what, pem)?)
}

fn store_of(certificates: Vec<CertificateDer<'static>>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate)?;
    }
    Ok(roots)
}

fn native_certificates() -> Vec<CertificateDer<'static>> {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "system certificate store");
    }
    found.certs
}

/// Returns in words why a TLS connection failed, if that is what `error` says.
pub fn handshake_failure(error: &io::Error) -> Option<String> {
    let is_of_tls = error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>());
    is_of_tls.then(|| words::of_handshake(error))
}
