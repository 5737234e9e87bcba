//! The TLS of an entry or of the admin port: loaded from its files, and loaded again when they change.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::{Certificate, EntryTls, Loaded, Problem};
use wire::{ServerTls, ServerTlsConfig, TlsError};

use crate::live::watch_config;
use crate::start_error::{StartError, TlsOwner};

/// The TLS of a listener, and the contents of its files that are in use.
#[derive(Debug)]
pub(crate) struct TlsIdentity {
    settings: EntryTls,
    tls: ServerTls,
    loaded: ServerTlsConfig,
    /// The problem that the last check of the files found.
    complaint: String,
}

/// The result of checking the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CertificateChange {
    /// The files contain what is already in use.
    Same,
    /// The certificate changed. New handshakes use it from now on.
    Certificate,
    /// The authorities changed, so [`TlsIdentity::tls`] returns a new value now.
    Authorities,
}

// === impl TlsIdentity ===

impl TlsIdentity {
    /// Reads the files that the settings of `owner` name, or makes a certificate if they name none.
    ///
    /// # Errors
    /// Returns what the operator has to correct.
    pub(crate) fn load(owner: &TlsOwner, settings: &EntryTls) -> Result<Self, StartError> {
        let made = match &settings.certificate {
            Certificate::Files { .. } => (Vec::new(), Vec::new()),
            Certificate::SelfSigned => self_signed(owner)?,
        };
        let loaded = read(settings, made).map_err(|(path, source)| StartError::File {
            owner: owner.clone(),
            path,
            source,
        })?;
        let tls = ServerTls::new(&loaded).map_err(|source| StartError::Tls {
            owner: owner.clone(),
            files: files_of(settings, &source),
            source,
        })?;
        Ok(Self {
            settings: settings.clone(),
            tls,
            loaded,
            complaint: String::new(),
        })
    }

    pub(crate) fn tls(&self) -> &ServerTls {
        &self.tls
    }

    /// Returns the certificate chain that is in use, as PEM.
    pub(crate) fn certificate_pem(&self) -> &[u8] {
        &self.loaded.certificate_pem
    }

    /// Returns whether changed files are used without being asked for.
    pub(crate) fn hot_reload(&self) -> bool {
        self.settings.hot_reload
    }

    /// Loads the files if they differ from what is in use. After an error the present certificate stays in
    /// use. Contents are compared, not times, since a deployment that swaps symbolic links may preserve the
    /// times.
    pub(crate) fn look(&mut self) -> Result<CertificateChange, CertificateError> {
        let made = (self.loaded.certificate_pem.clone(), self.loaded.key_pem.clone());
        let now =
            read(&self.settings, made).map_err(|(path, source)| CertificateError::File { path, source })?;
        let authorities = now.client_ca_pem != self.loaded.client_ca_pem;
        let certificate =
            now.certificate_pem != self.loaded.certificate_pem || now.key_pem != self.loaded.key_pem;
        let look = match (authorities, certificate) {
            (false, false) => CertificateChange::Same,
            (false, true) => {
                self.tls.reload(&now.certificate_pem, &now.key_pem)?;
                CertificateChange::Certificate
            }
            (true, _) => {
                self.tls = ServerTls::new(&now)?;
                CertificateChange::Authorities
            }
        };
        self.loaded = now;
        self.complaint.clear();
        Ok(look)
    }

    /// Returns whether this problem differs from the last one. The files are checked every second, and a
    /// lasting problem should not be logged each time.
    pub(crate) fn is_news(&mut self, complaint: String) -> bool {
        let news = self.complaint != complaint;
        self.complaint = complaint;
        news
    }
}

/// Why changed files are not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    #[error("{path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Returns the problems with a configuration's TLS files. The files are read when the configuration is put in
/// force, and by `tidegate check`.
pub fn tls_problems(loaded: &Loaded) -> Vec<Problem> {
    let config = &loaded.config;
    let entries = config
        .entries
        .iter()
        .map(|entry| (TlsOwner::Entry(Arc::clone(&entry.name)), &entry.tls));
    let listeners = entries.chain([(TlsOwner::Admin, &config.admin.tls)]);
    let listeners = listeners.filter_map(|(owner, tls)| {
        let tls = tls.as_ref()?;
        let has_files = tls.certificate != Certificate::SelfSigned || tls.client_ca_file.is_some();
        has_files.then(|| TlsIdentity::load(&owner, tls).err())?
    });
    let clusters = config.clusters.iter().filter_map(|(name, settings)| {
        let tls = &settings.tls;
        let has_files = tls.ca_file.is_some() || tls.client_certificate.is_some();
        let source = has_files.then(|| watch_config(settings).tls.load().err())??;
        Some(StartError::Cluster {
            cluster: Arc::clone(name),
            source,
        })
    });
    let problems = listeners.chain(clusters);
    problems.map(|problem| problem.problem(loaded)).collect()
}

/// Returns the files of a listener that an error is about.
fn files_of(settings: &EntryTls, error: &TlsError) -> String {
    let shown = |path: &Path| format!("`{}`", path.display());
    let client_ca = || settings.client_ca_file.as_deref().map(shown);
    let files = match (&settings.certificate, error) {
        (_, TlsError::ClientCa(_) | TlsError::NoCertificate("client CA")) => client_ca(),
        (
            _,
            TlsError::Pem {
                what: "client CA", ..
            },
        ) => client_ca(),
        (Certificate::SelfSigned, _) => None,
        (
            Certificate::Files { key_file, .. },
            TlsError::Pem {
                what: "private key", ..
            },
        ) => Some(shown(key_file)),
        (Certificate::Files { cert_file, .. }, TlsError::Pem { .. } | TlsError::NoCertificate(_)) => {
            Some(shown(cert_file))
        }
        (Certificate::Files { cert_file, key_file }, _) => {
            Some(format!("{} and {}", shown(cert_file), shown(key_file)))
        }
    };
    files.unwrap_or_else(|| "TLS".to_owned())
}

/// Returns the contents of the files. `made` replaces those of a certificate that was made here.
fn read(settings: &EntryTls, made: (Vec<u8>, Vec<u8>)) -> Result<ServerTlsConfig, (PathBuf, io::Error)> {
    let read = |path: &Path| std::fs::read(path).map_err(|source| (path.to_owned(), source));
    let (certificate_pem, key_pem) = match &settings.certificate {
        Certificate::Files { cert_file, key_file } => (read(cert_file)?, read(key_file)?),
        Certificate::SelfSigned => made,
    };
    let client_ca_pem = settings.client_ca_file.as_deref().map(read).transpose()?;
    Ok(ServerTlsConfig {
        certificate_pem,
        key_pem,
        client_ca_pem,
    })
}

fn self_signed(owner: &TlsOwner) -> Result<(Vec<u8>, Vec<u8>), StartError> {
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).map_err(|error| StartError::SelfSigned {
        owner: owner.clone(),
        reason: error.to_string(),
    })?;
    Ok((
        made.cert.pem().into_bytes(),
        made.signing_key.serialize_pem().into_bytes(),
    ))
}
