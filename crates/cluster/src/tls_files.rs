//! The TLS files of a cluster: loading them, and telling whether they have changed since.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use wire::{ClientTls, ClientTlsConfig, Roots};

use crate::config::BadConfig;

/// TLS for connections to the nodes, by file names. The files are read when the cluster is started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The PEM file with the authorities to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Whether to trust any certificate. The code that sets it must warn the user.
    pub insecure: bool,
    /// The PEM file with our certificate chain, for nodes that require one.
    pub certificate: Option<PathBuf>,
    /// The PEM file with the key of `certificate`.
    pub key: Option<PathBuf>,
}

/// What was in the files when they were read. Two values are equal if the files had the same contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsContents {
    /// A number for all contents. They are compared instead of the files' times, since a deployment that
    /// swaps symbolic links may preserve the times.
    fingerprint: u64,
    /// When the first of the authorities expires, in seconds since 1970; none without a file of authorities.
    pub ca_expires: Option<i64>,
    /// When the first certificate of our chain expires, in seconds since 1970; none without a chain.
    pub certificate_expires: Option<i64>,
}

// === impl TlsFiles ===

impl TlsFiles {
    /// Loads the files.
    ///
    /// # Errors
    /// If a file cannot be read or holds no PEM of the right kind, or if there is a certificate without a
    /// key.
    pub fn load(&self) -> Result<ClientTls, BadConfig> {
        let identity_pem = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
            (None, None) => None,
            _ => return Err(BadConfig::HalfIdentity),
        };
        let roots = self.ca_file.clone().map_or(Roots::Native, Roots::File);
        Ok(ClientTls::new(&ClientTlsConfig {
            roots,
            insecure: self.insecure,
            identity_pem,
        })?)
    }

    /// Reads what is in the files now, whatever it is. To know what [`TlsFiles::load`] has loaded, call this
    /// before: if a file is replaced in between, it has changed since, and the next comparison says so.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn contents(&self) -> Result<TlsContents, BadConfig> {
        let read = |file: &Option<PathBuf>| file.as_deref().map(read).transpose();
        let (ca, certificate, key) = (read(&self.ca_file)?, read(&self.certificate)?, read(&self.key)?);
        let mut fingerprint = DefaultHasher::new();
        (&ca, &certificate, &key).hash(&mut fingerprint);
        let expires = |pem: Option<Vec<u8>>| wire::earliest_expiry(&pem?);
        Ok(TlsContents {
            fingerprint: fingerprint.finish(),
            ca_expires: expires(ca),
            certificate_expires: expires(certificate),
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, BadConfig> {
    std::fs::read(path).map_err(|source| BadConfig::File {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_differ_when_any_of_the_files_does_and_not_when_a_file_is_only_written_again() {
        let folder = std::env::temp_dir().join(format!("tidegate-tls-files-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let early = include_bytes!("../tests/fixtures/tls/ca-early.pem").as_slice();
        let late = include_bytes!("../tests/fixtures/tls/ca-late.pem").as_slice();
        let [ca, certificate, key] = ["ca", "certificate", "key"].map(|name| folder.join(name));
        let write = |path: &Path, contents: &[u8]| std::fs::write(path, contents).unwrap();
        write(&ca, early);
        write(&certificate, late);
        write(&key, b"a key");
        let files = TlsFiles {
            ca_file: Some(ca.clone()),
            certificate: Some(certificate.clone()),
            key: Some(key.clone()),
            ..TlsFiles::default()
        };
        let first = files.contents().unwrap();
        assert_eq!(first.ca_expires, Some(1_968_681_253));
        assert_eq!(first.certificate_expires, Some(2_832_681_253));
        write(&ca, early);
        assert_eq!(files.contents().unwrap(), first);
        for (path, before, after) in [
            (&ca, early, late),
            (&certificate, late, early),
            (&key, b"a key".as_slice(), b"another".as_slice()),
        ] {
            write(path, after);
            assert_ne!(files.contents().unwrap(), first, "{}", path.display());
            write(path, before);
        }
        assert_eq!(files.contents().unwrap(), first);
        std::fs::remove_file(&key).unwrap();
        let error = files.contents().unwrap_err().to_string();
        assert!(error.contains("key"), "{error}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
