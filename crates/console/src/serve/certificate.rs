//! The console's certificate: loaded from its files, and loaded again when they change, so that a renewal
//! needs no restart, which would end open pages and trials.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::sleep;
use wire::{ServerTls, ServerTlsConfig, TlsError};

/// The files of a certificate.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// Certificate chain, leaf first, as PEM.
    pub certificate: PathBuf,
    /// The private key, as PEM.
    pub key: PathBuf,
}

/// The certificate of the console.
pub(crate) struct Certificate {
    files: TlsFiles,
    /// The contents that are in use: chain and key.
    loaded: (Vec<u8>, Vec<u8>),
    tls: ServerTls,
}

/// Why files cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    #[error("{}: {source}", file.display())]
    File { file: PathBuf, source: io::Error },
    #[error(transparent)]
    Tls(#[from] TlsError),
}

// === impl Certificate ===

impl Certificate {
    /// Reads the files.
    ///
    /// # Errors
    /// Returns what has to be corrected.
    pub(crate) fn load(files: &TlsFiles) -> Result<Self, CertificateError> {
        let loaded = read(files)?;
        let config = ServerTlsConfig {
            certificate_pem: loaded.0.clone(),
            key_pem: loaded.1.clone(),
            client_ca_pem: None,
        };
        Ok(Self {
            files: files.clone(),
            tls: ServerTls::new(&config)?,
            loaded,
        })
    }

    pub(crate) fn tls(&self) -> &ServerTls {
        &self.tls
    }

    /// Loads the files whenever their contents differ from what is in use. Never ends.
    pub(crate) async fn watch(mut self) {
        let mut complaint = String::new();
        loop {
            sleep(EVERY).await;
            let problem = match self.look() {
                Ok(is_new) => {
                    if is_new {
                        tracing::info!("certificate reloaded");
                    }
                    String::new()
                }
                Err(error) => error.to_string(),
            };
            // A problem that lasts is told once.
            if !problem.is_empty() && problem != complaint {
                tracing::error!(problem, "certificate not reloaded");
            }
            complaint = problem;
        }
    }

    /// Returns whether other files are in use now; after an error, it is those of before. Contents are
    /// compared, since whatever swaps the files may preserve their times.
    fn look(&mut self) -> Result<bool, CertificateError> {
        let now = read(&self.files)?;
        if now == self.loaded {
            return Ok(false);
        }
        self.tls.reload(&now.0, &now.1)?;
        self.loaded = now;
        Ok(true)
    }
}

fn read(files: &TlsFiles) -> Result<(Vec<u8>, Vec<u8>), CertificateError> {
    let read = |file: &PathBuf| {
        std::fs::read(file).map_err(|source| CertificateError::File {
            file: file.clone(),
            source,
        })
    };
    Ok((read(&files.certificate)?, read(&files.key)?))
}

/// The time between two looks at the files.
const EVERY: Duration = Duration::from_secs(2);
