//! TLS of commands to an admin port: whom they trust, and what they show of themselves.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};
use wire::{ClientTls, ClientTlsConfig, Roots};

/// Certificates, for a URL with https://.
#[derive(clap::Args)]
pub(super) struct TrustArguments {
    /// PEM file of the authorities to trust, in place of the system's, or of the admin port's own certificate
    #[arg(
        long,
        global = true,
        help_heading = "Gateway",
        value_name = "FILE",
        env = "TIDEGATE_ADMIN_CA"
    )]
    ca: Option<PathBuf>,
    /// PEM file of a client certificate, if the admin port asks for one
    #[arg(long, global = true, help_heading = "Gateway", value_name = "FILE")]
    client_cert: Option<PathBuf>,
    /// PEM file of the key of --client-cert
    #[arg(long, global = true, help_heading = "Gateway", value_name = "FILE")]
    client_key: Option<PathBuf>,
    /// Accept any certificate: whoever is on the network path can pose as the gateway and read the token
    #[arg(long, global = true, help_heading = "Gateway")]
    insecure: bool,
}

// === impl TrustArguments ===

impl TrustArguments {
    /// Returns the TLS for requests to `url`.
    pub(super) fn tls(&self, url: &str) -> Result<TlsConfig> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = TlsConfig::builder().unversioned_rustls_crypto_provider(provider);
        // Schemes are the same in capitals (RFC 3986, section 3.1), also to ureq.
        let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
        if !scheme.eq_ignore_ascii_case("https") {
            return Ok(tls.build());
        }
        let identity_pem = match (&self.client_cert, &self.client_key) {
            (Some(cert), Some(key)) => Some((read("--client-cert", cert)?, read("--client-key", key)?)),
            (None, None) => None,
            _ => bail!("--client-cert and --client-key go together"),
        };
        let roots = match &self.ca {
            _ if self.insecure => Roots::Pem(Vec::new()), // nothing is looked up there
            Some(file) => Roots::File(file.clone()),
            None => Roots::Native,
        };
        let asked = ClientTlsConfig {
            roots,
            insecure: self.insecure,
            identity_pem,
        };
        ClientTls::new(&asked)?; // ureq does not say what is wrong with a certificate
        let tls = tls.client_cert(
            asked
                .identity_pem
                .as_ref()
                .and_then(|(cert, key)| identity(cert, key)),
        );
        if self.insecure {
            return Ok(tls.disable_verification(true).build());
        }
        let trusted = asked.roots.certificates()?;
        let trusted: Vec<_> = trusted
            .iter()
            .map(|certificate| Certificate::from_der(certificate).to_owned())
            .collect();
        Ok(tls.root_certs(RootCerts::new_with_certs(&trusted)).build())
    }
}

/// Returns in words why TLS failed, with the option that may help.
pub(super) fn failure(error: &io::Error) -> Option<String> {
    let told = wire::handshake_failure(error)?;
    Some(match told.contains("as the CA to trust") {
        true => format!("{told} (--ca FILE, or TIDEGATE_ADMIN_CA)"),
        false => told,
    })
}

fn read(option: &str, file: &Path) -> Result<Vec<u8>> {
    std::fs::read(file).with_context(|| format!("{option}: {}", file.display()))
}

fn identity(cert_pem: &[u8], key_pem: &[u8]) -> Option<ClientCert> {
    let chain = parse_pem(cert_pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    let key = PrivateKey::from_pem(key_pem).ok()?;
    Some(ClientCert::new_with_certs(&chain.collect::<Vec<_>>(), key))
}
