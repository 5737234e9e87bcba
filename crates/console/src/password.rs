//! Passwords: hashed with argon2id, at most two at once, of these at most one for strangers. For a user who
//! does not exist, the check takes just as long.

use std::sync::Arc;

use argon2::{Algorithm, Argon2, Params, Version};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use settings::Secret;
use subtle::ConstantTimeEq as _;
use tokio::sync::{Semaphore, oneshot};
use wire::guard::{Work, thread};

use crate::secrets::random;
use crate::throttle::Asker;

/// Hashes passwords on threads of their own.
#[derive(Clone)]
pub(crate) struct Passwords {
    at_once: Arc<Semaphore>,
    /// Strangers queue here first: as many of them as there are connections do not keep the others waiting.
    strangers: Arc<Semaphore>,
    /// The hash that a password is compared with if there is no such user.
    nobody: Arc<str>,
}

/// No hash could be computed: there was no memory, or no thread.
#[derive(Debug, thiserror::Error)]
#[error("no password can be checked at the moment")]
pub(crate) struct NotHashed;

impl Passwords {
    pub(crate) fn new() -> Self {
        let nobody = format!(
            "{}${}",
            STANDARD_NO_PAD.encode(random::<SALT_BYTES>()),
            STANDARD_NO_PAD.encode(random::<HASH_BYTES>())
        );
        Self {
            at_once: Arc::new(Semaphore::new(AT_ONCE)),
            strangers: Arc::new(Semaphore::new(AT_ONCE - 1)),
            nobody: nobody.into(),
        }
    }

    /// Returns the form in which a password is stored. Only for requests of users, not of strangers.
    pub(crate) async fn hash(&self, password: Secret) -> Result<String, NotHashed> {
        let salt = random::<SALT_BYTES>();
        let hash = self.digest(password, salt.to_vec(), Asker::Known).await?;
        Ok(format!(
            "{}${}",
            STANDARD_NO_PAD.encode(salt),
            STANDARD_NO_PAD.encode(hash)
        ))
    }

    /// Whether the password matches the stored hash. Without a hash the check takes just as long, and returns
    /// false.
    pub(crate) async fn matches(
        &self,
        password: Secret,
        stored: Option<&str>,
        asker: Asker,
    ) -> Result<bool, NotHashed> {
        let (salt, expected) = parts(stored.unwrap_or(&self.nobody)).ok_or(NotHashed)?;
        let hash = self.digest(password, salt, asker).await?;
        Ok(bool::from(hash.ct_eq(&expected)) && stored.is_some())
    }

    async fn digest(&self, password: Secret, salt: Vec<u8>, asker: Asker) -> Result<Vec<u8>, NotHashed> {
        let turn = match asker {
            Asker::Known => None,
            Asker::Stranger => Some(Arc::clone(&self.strangers).acquire_owned().await),
        };
        let turn = turn.transpose().map_err(|_| NotHashed)?;
        let permit = Arc::clone(&self.at_once)
            .acquire_owned()
            .await
            .map_err(|_| NotHashed)?;
        let (done, result) = oneshot::channel();
        thread("password", Work::Admin, move || {
            let _permits = (permit, turn);
            let mut hash = vec![0; HASH_BYTES];
            let hashed = Params::new(MEMORY_KIB, PASSES, 1, Some(HASH_BYTES)).and_then(|params| {
                Argon2::new(Algorithm::Argon2id, Version::V0x13, params).hash_password_into(
                    password.expose().as_bytes(),
                    &salt,
                    &mut hash,
                )
            });
            let _ = done.send(hashed.map(|()| hash));
        })
        .map_err(|_| NotHashed)?;
        result.await.map_err(|_| NotHashed)?.map_err(|_| NotHashed)
    }
}

fn parts(stored: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let (salt, hash) = stored.split_once('$')?;
    Some((
        STANDARD_NO_PAD.decode(salt).ok()?,
        STANDARD_NO_PAD.decode(hash).ok()?,
    ))
}

/// 19 MiB and two passes: OWASP's parameters for argon2id.
const MEMORY_KIB: u32 = 19 << 10;
const PASSES: u32 = 2;
/// The largest number of hashes under way: more would let strangers use up the machine's memory.
const AT_ONCE: usize = 2;
const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_password_matches_its_own_hash_and_nobody_has_none() {
        let passwords = Passwords::new();
        let stored = passwords.hash(Secret::new("correct horse")).await.unwrap();
        assert!(!stored.contains("correct"));
        assert!(
            passwords
                .matches(Secret::new("correct horse"), Some(&stored), Asker::Known)
                .await
                .unwrap()
        );
        assert!(
            !passwords
                .matches(Secret::new("correct horsf"), Some(&stored), Asker::Stranger)
                .await
                .unwrap()
        );
        assert!(
            !passwords
                .matches(Secret::new("correct horse"), None, Asker::Stranger)
                .await
                .unwrap()
        );
    }

    #[tokio::test]
    async fn strangers_wait_for_each_other_and_others_do_not_wait_for_them() {
        let passwords = Passwords::new();
        let check = |asker| Box::pin(passwords.matches(Secret::new("a guess"), None, asker));
        let running = passwords.strangers.try_acquire().unwrap();
        let mut strangers = [(); 20].map(|()| check(Asker::Stranger));
        for stranger in &mut strangers {
            assert!(stranger.now_or_never().is_none());
        }
        assert_eq!(passwords.at_once.available_permits(), AT_ONCE);
        assert!(!check(Asker::Known).await.unwrap());
        drop(running);
        let [first, ..] = &mut strangers;
        assert!(!first.await.unwrap());
    }
}
