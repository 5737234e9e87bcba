//! Whom to trust, and what to show who asks for a certificate.
//!
//! What is made of the same texts is made once: a connection is reused only for the very same [`ClientTls`],
//! and to read the system's certificates takes a while.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{Context, SHA256};
use parking_lot::Mutex;
use settings::Secret;
use wire::{ClientTls, ClientTlsConfig, Roots, TlsError};

/// What a registered entry says about TLS.
pub(super) struct Trust<'a> {
    pub(super) ca_pem: Option<&'a str>,
    /// The certificate and its key, in one text.
    pub(super) client_pem: Option<&'a Secret>,
    pub(super) verify: bool,
}

/// What was made lately, by the digest of what it was made of.
#[derive(Default)]
struct Known(HashMap<Digest, (ClientTls, Instant)>);

type Digest = [u8; 32];

// === impl Trust ===

impl Trust<'_> {
    /// Returns the same as lately, if it was asked for lately.
    pub(super) fn tls(&self) -> Result<ClientTls, TlsError> {
        static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
        KNOWN
            .lock()
            .get_or_insert_default()
            .of(self.digest(), Instant::now(), || self.made())
    }

    fn made(&self) -> Result<ClientTls, TlsError> {
        let roots = match self.ca_pem {
            Some(pem) => Roots::Pem(pem.as_bytes().to_vec()),
            None => Roots::Native,
        };
        let pem = self.client_pem.map(|pem| pem.expose().as_bytes().to_vec());
        ClientTls::new(&ClientTlsConfig {
            roots,
            insecure: !self.verify,
            identity_pem: pem.map(|pem| (pem.clone(), pem)),
        })
    }

    /// A digest and not the texts, since there may be a private key among them.
    fn digest(&self) -> Digest {
        let mut context = Context::new(&SHA256);
        context.update(&[u8::from(self.verify)]);
        for text in [self.ca_pem, self.client_pem.map(Secret::expose)] {
            // The length keeps a text from being taken for another one and its neighbour.
            let length = text.map_or(u64::MAX, |text| text.len() as u64);
            context.update(&length.to_le_bytes());
            context.update(text.unwrap_or_default().as_bytes());
        }
        let mut digest = Digest::default();
        digest.copy_from_slice(context.finish().as_ref());
        digest
    }
}

// === impl Known ===

impl Known {
    fn of(
        &mut self,
        digest: Digest,
        now: Instant,
        make: impl FnOnce() -> Result<ClientTls, TlsError>,
    ) -> Result<ClientTls, TlsError> {
        let is_fresh = |made: &Instant| now.duration_since(*made) < KEPT;
        if let Some((tls, _)) = self.0.get(&digest).filter(|(_, made)| is_fresh(made)) {
            return Ok(tls.clone());
        }
        let tls = make()?;
        self.0.retain(|_, (_, made)| is_fresh(made));
        if self.0.len() >= KNOWN_MAX
            && let Some(oldest) = self.0.iter().min_by_key(|(_, (_, made))| *made)
        {
            let oldest = *oldest.0;
            self.0.remove(&oldest);
        }
        self.0.insert(digest, (tls.clone(), now));
        Ok(tls)
    }
}

/// After this time it is made anew, so that a change of the system's certificates is seen.
const KEPT: Duration = Duration::from_secs(10 * 60);
/// Users who test connections to new entries make new ones.
const KNOWN_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> Result<ClientTls, TlsError> {
        ClientTls::new(&ClientTlsConfig {
            insecure: true,
            ..ClientTlsConfig::default()
        })
    }

    #[test]
    fn each_text_counts_and_where_it_is() {
        let secret = Secret::new("b");
        let digest = |ca_pem, client_pem, verify| {
            Trust {
                ca_pem,
                client_pem,
                verify,
            }
            .digest()
        };
        let all = [
            digest(None, None, true),
            digest(None, None, false),
            digest(Some(""), None, true),
            digest(Some("b"), None, true),
            digest(None, Some(&secret), true),
            digest(Some("b"), Some(&secret), true),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one), "{at}");
        }
        assert_eq!(digest(Some("b"), Some(&secret), true), all[5]);
    }

    #[test]
    fn it_is_made_once_in_ten_minutes_and_the_oldest_leaves() {
        let (mut known, began) = (Known::default(), Instant::now());
        let mut count = 0;
        let mut ask = |known: &mut Known, digest: Digest, now| {
            known
                .of(digest, now, || {
                    count += 1;
                    made()
                })
                .unwrap();
            count
        };
        assert_eq!(ask(&mut known, [0; 32], began), 1);
        assert_eq!(ask(&mut known, [0; 32], began + KEPT / 2), 1);
        assert_eq!(ask(&mut known, [0; 32], began + KEPT), 2);
        let digest = |n: usize| {
            let mut digest = [1; 32];
            digest[..8].copy_from_slice(&n.to_le_bytes());
            digest
        };
        for n in 0..KNOWN_MAX {
            ask(
                &mut known,
                digest(n),
                began + KEPT + Duration::from_millis(n as u64),
            );
            assert!(known.0.len() <= KNOWN_MAX);
        }
        let now = began + KEPT + Duration::from_secs(60);
        let before = ask(&mut known, digest(KNOWN_MAX), now);
        assert_eq!(ask(&mut known, digest(1), now), before, "they are kept");
        assert_eq!(ask(&mut known, [0; 32], now), before + 1, "the oldest is not");
    }
}
