//! The fake's own certificate.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;

/// A self-signed certificate for 127.0.0.1 and localhost.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) config: Arc<ServerConfig>,
    pub(super) certificate_pem: String,
    pub(super) key_pem: String,
}

/// Makes a certificate, ready to serve.
pub(super) fn own_certificate() -> Result<Identity, Box<dyn std::error::Error + Send + Sync>> {
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned(), "localhost".to_owned()])?;
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der())?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key)?;
    Ok(Identity {
        config: Arc::new(config),
        certificate_pem: own.cert.pem(),
        key_pem: own.signing_key.serialize_pem(),
    })
}
