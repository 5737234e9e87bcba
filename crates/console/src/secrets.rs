//! Secrets of the registry: sealed with AES-256-GCM and a key that is kept in a file of its own.
//!
//! The store can be copied, backed up and looked at with `sqlite3` without revealing a password. Anyone who
//! also has the key file has all of them.

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use aws_lc_rs::{digest, rand};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use settings::Secret;

use crate::StartError;

/// Seals and opens secrets.
pub(crate) struct Vault {
    key: RandomizedNonceKey,
}

/// A sealed secret that cannot be opened: another key, another owner, or damage.
#[derive(Debug, thiserror::Error)]
#[error("a stored secret cannot be opened with this key file")]
pub(crate) struct NotOpened;

impl Vault {
    /// Opens the vault with the key in `file`, which is created if it does not exist.
    pub(crate) fn open(file: &Path) -> Result<Self, StartError> {
        let failed = |why: String| StartError::Key {
            file: file.to_owned(),
            why,
        };
        let bytes = match std::fs::File::open(file) {
            Ok(mut found) => {
                let mode = found
                    .metadata()
                    .map_err(|e| failed(e.to_string()))?
                    .permissions()
                    .mode();
                if mode & 0o077 != 0 {
                    return Err(failed("others may read it; its mode has to be 0600".to_owned()));
                }
                let mut bytes = Vec::new();
                found.read_to_end(&mut bytes).map_err(|e| failed(e.to_string()))?;
                bytes
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let bytes = random::<KEY_BYTES>();
                let mut made = OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(file)
                    .map_err(|e| failed(e.to_string()))?;
                made.write_all(&bytes)
                    .and_then(|()| made.sync_all())
                    .map_err(|e| failed(e.to_string()))?;
                bytes.to_vec()
            }
            Err(error) => return Err(failed(error.to_string())),
        };
        let key = RandomizedNonceKey::new(&AES_256_GCM, &bytes)
            .map_err(|_| failed(format!("it does not hold {KEY_BYTES} bytes")))?;
        Ok(Self { key })
    }

    /// Seals a secret for its owner. It opens for no other owner, so rows cannot be swapped.
    pub(crate) fn seal(&self, owner: &str, secret: &Secret) -> Result<Vec<u8>, NotOpened> {
        let mut text = secret.expose().as_bytes().to_vec();
        let nonce = self
            .key
            .seal_in_place_append_tag(Aad::from(owner.as_bytes()), &mut text)
            .map_err(|_| NotOpened)?;
        let mut sealed = nonce.as_ref().to_vec();
        sealed.append(&mut text);
        Ok(sealed)
    }

    /// Opens a secret that was sealed for `owner`.
    pub(crate) fn unseal(&self, owner: &str, sealed: &[u8]) -> Result<Secret, NotOpened> {
        let (nonce, text) = sealed.split_at_checked(NONCE_BYTES).ok_or(NotOpened)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| NotOpened)?;
        let mut text = text.to_vec();
        let opened = self
            .key
            .open_in_place(nonce, Aad::from(owner.as_bytes()), &mut text)
            .map_err(|_| NotOpened)?;
        let opened = std::str::from_utf8(opened).map_err(|_| NotOpened)?;
        Ok(Secret::new(opened))
    }
}

/// Returns bytes that nobody can guess.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // Fails only where the system has no randomness; no part of a console may run there.
    assert!(rand::fill(&mut bytes).is_ok(), "the system gives no random bytes");
    bytes
}

/// Returns a text of 256 bits that nobody can guess.
pub(crate) fn token() -> String {
    URL_SAFE_NO_PAD.encode(random::<32>())
}

/// Returns a short name for a row, of 72 bits.
pub(crate) fn row_id() -> String {
    URL_SAFE_NO_PAD.encode(random::<9>())
}

/// Returns the digest of a token as a text.
pub(crate) fn encoded_digest_of(token: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest_of(token))
}

/// Returns the form in which a token is stored.
pub(crate) fn digest_of(token: &str) -> Vec<u8> {
    digest::digest(&digest::SHA256, token.as_bytes())
        .as_ref()
        .to_vec()
}

const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_opens_for_its_owner_with_its_key_and_for_nobody_else() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("console.key");
        let vault = Vault::open(&file).unwrap();
        let sealed = vault.seal("cluster/a", &Secret::new("hunter2")).unwrap();
        assert!(!sealed.windows(7).any(|window| window == b"hunter2"));
        assert_eq!(vault.unseal("cluster/a", &sealed).unwrap().expose(), "hunter2");
        assert!(vault.unseal("cluster/b", &sealed).is_err());
        assert_eq!(
            Vault::open(&file)
                .unwrap()
                .unseal("cluster/a", &sealed)
                .unwrap()
                .expose(),
            "hunter2"
        );
        let other = Vault::open(&folder.path().join("other.key")).unwrap();
        assert!(other.unseal("cluster/a", &sealed).is_err());
        let mut damaged = sealed;
        damaged[15] ^= 1;
        assert!(vault.unseal("cluster/a", &damaged).is_err());
    }

    #[test]
    fn a_key_file_that_others_may_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("console.key");
        drop(Vault::open(&file).unwrap());
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Vault::open(&file).is_err());
    }
}
