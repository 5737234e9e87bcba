//! How much may be parked.

use std::fmt::{Display, Formatter, Result};

/// The most entries in memory, of about 200 bytes each.
pub(super) const PIECES_MAX: usize = 200_000;
/// The most documents that are known one by one, and the most operations on them: many may be on one
/// document.
pub(super) const DOCUMENTS_MAX: usize = 200_000;
pub(super) const OPERATIONS_MAX: usize = 1_000_000;

/// What there is no more room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParkedBound {
    Entries,
    /// Documents that wait by themselves.
    Documents,
    /// Operations on such documents.
    Operations,
}

// === impl ParkedBound ===

impl Display for ParkedBound {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        let (most, what) = match self {
            ParkedBound::Entries => (PIECES_MAX, "entries"),
            ParkedBound::Documents => (DOCUMENTS_MAX, "documents that wait by themselves"),
            ParkedBound::Operations => (OPERATIONS_MAX, "operations on documents that wait by themselves"),
        };
        write!(out, "no more than {most} {what} may be there")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_says_what_there_is_no_room_for() {
        for (bound, words) in [
            (ParkedBound::Entries, "no more than 200000 entries"),
            (
                ParkedBound::Documents,
                "no more than 200000 documents that wait by themselves",
            ),
            (
                ParkedBound::Operations,
                "no more than 1000000 operations on documents that wait by themselves",
            ),
        ] {
            assert!(bound.to_string().starts_with(words), "{bound}");
        }
    }
}
