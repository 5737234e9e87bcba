//! Fingerprints of texts: a part of the SHA-256, so that nobody can make two texts with the same fingerprint.

use aws_lc_rs::digest::{Context, SHA256};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The first 128 bits of a SHA-256.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint(u128);

/// Returns the print of several texts, each hashed with its length before it.
pub(crate) fn fingerprint_of(parts: &[&[u8]]) -> Fingerprint {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part);
    }
    let digest = context.finish();
    let first = digest.as_ref().iter().take(16);
    Fingerprint(first.fold(0, |print, byte| (print << 8) | u128::from(*byte)))
}

// === impl Fingerprint ===

impl Fingerprint {
    /// Returns the bytes of the print, the most significant first.
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:032x}", self.0))
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let print = u128::from_str_radix(&text, 16);
        print.map(Fingerprint).map_err(serde::de::Error::custom)
    }
}
