//! The console's certificate: loaded from its files, and loaded again when they change, so that a renewal
//! needs no restart, which would end open pages and trials.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::sleep;
use wire::{ServerTls, ServerTlsConfig};

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

// === impl Certificate ===

impl Certificate {
    /// Reads the files.
    ///
    /// # Errors
    /// Returns what has to be corrected.
    pub(crate) fn load(files: &TlsFiles) -> Result<Self, String> {
        let loaded = read(files)?;
        let config = ServerTlsConfig {
            certificate_pem: loaded.0.clone(),
            key_pem: loaded.1.clone(),
            client_ca_pem: None,
        };
        Ok(Self {
            files: files.clone(),
            tls: ServerTls::new(&config).map_err(|error| error.to_string())?,
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
            match self.look() {
                Ok(true) => tracing::info!("certificate reloaded"),
                Ok(false) => {}
                // A problem that lasts is told once.
                Err(problem) if problem == complaint => continue,
                Err(problem) => {
                    tracing::error!(problem, "certificate not reloaded");
                    complaint = problem;
                    continue;
                }
            }
            complaint.clear();
        }
    }

    /// Returns whether other files are in use now; after an error, it is those of before. Contents are
    /// compared, since whatever swaps the files may preserve their times.
    fn look(&mut self) -> Result<bool, String> {
        let now = read(&self.files)?;
        if now == self.loaded {
            return Ok(false);
        }
        let reloaded = self.tls.reload(&now.0, &now.1);
        reloaded.map_err(|error| error.to_string())?;
        self.loaded = now;
        Ok(true)
    }
}

fn read(files: &TlsFiles) -> Result<(Vec<u8>, Vec<u8>), String> {
    let read = |file: &PathBuf| std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()));
    Ok((read(&files.certificate)?, read(&files.key)?))
}

/// The time between two looks at the files.
const EVERY: Duration = Duration::from_secs(2);
