//! A number for a document: always the same for one document, and very rarely, by chance, the same for
//! another.

use std::hash::{BuildHasher as _, RandomState};

/// Makes numbers of documents. Each fingerprint has its own random keys, so that a client cannot search for
/// documents that share a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fingerprint {
    key: u64,
    other: u64,
}

// === impl Fingerprint ===

impl Default for Fingerprint {
    fn default() -> Self {
        let random = RandomState::new();
        Self {
            key: random.hash_one(0),
            // The factor is odd, so that multiplying by it loses nothing.
            other: random.hash_one(1) | 1,
        }
    }
}

impl Fingerprint {
    /// Returns the number of a document in the index with this ordinal.
    #[inline]
    pub(crate) fn of(self, ordinal: u32, id: Option<&[u8]>, routing: Option<&[u8]>) -> u64 {
        let state = self.fold(self.key ^ u64::from(ordinal));
        let state = self.absorb(state, id);
        match routing {
            None => state,
            routing => self.absorb(!state, routing),
        }
    }

    /// Returns the state after a text, whose length counts, or after no text.
    #[inline]
    fn absorb(self, state: u64, text: Option<&[u8]>) -> u64 {
        let Some(text) = text else {
            return self.fold(!state);
        };
        let mut state = state;
        let (words, rest) = text.as_chunks::<8>();
        for word in words {
            state = self.fold(state ^ u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        // The length goes where no byte of the text can be, so that zeros at the text's end differ from
        // padding.
        last[7] = text.len() as u8;
        self.fold(state ^ u64::from_le_bytes(last))
    }

    /// Mixes all bits of the state with all others.
    #[inline]
    fn fold(self, state: u64) -> u64 {
        let product = u128::from(state ^ self.key) * u128::from(self.other);
        (product as u64) ^ (product >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn documents_that_differ_in_anything_have_numbers_of_their_own() {
        let fingerprint = Fingerprint::default();
        let ids: Vec<_> = (0..20_000).map(|number: u32| format!("{number:x}")).collect();
        let mut seen = HashSet::new();
        for id in &ids {
            let id = id.as_bytes();
            assert!(seen.insert(fingerprint.of(0, Some(id), None)));
            assert!(seen.insert(fingerprint.of(1, Some(id), None)));
            assert!(seen.insert(fingerprint.of(0, Some(id), Some(b"r"))));
            assert!(seen.insert(fingerprint.of(0, Some(b"r"), Some(id))));
            assert!(seen.insert(fingerprint.of(0, None, Some(id))));
            let (zeros, other) = ([id, b"\0"].concat(), [id, b"\0\0"].concat());
            assert!(seen.insert(fingerprint.of(0, Some(&zeros), None)));
            assert!(seen.insert(fingerprint.of(0, Some(&other), None)));
        }
        assert!(seen.insert(fingerprint.of(0, None, None)));
        assert_eq!(
            fingerprint.of(7, Some(b"same"), Some(b"r")),
            fingerprint.of(7, Some(b"same"), Some(b"r"))
        );
    }
}
