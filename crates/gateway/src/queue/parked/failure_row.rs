//! Failures that pass by themselves, as a rule, and of which nobody says that something in the request is to
//! blame. Only a row of them makes an operation suspect.

/// How a request fails in such a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unexplained {
    /// There is no answer, or it is in words that are no server's.
    Untold,
    /// A server says what it lacks, which is nothing of the request.
    Told,
}

/// How often in a row an operation has failed in one of these ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FailureRow {
    kind: Option<Unexplained>,
    times: u8,
}

// === impl FailureRow ===

impl FailureRow {
    /// Takes in how one more try failed; `None`: otherwise than in these ways. Another kind begins anew.
    pub(crate) fn add(&mut self, kind: Option<Unexplained>) {
        let before = if self.kind == kind { self.times } else { 0 };
        *self = Self {
            kind,
            times: before.saturating_add(u8::from(kind.is_some())),
        };
    }

    /// Whether there are this many failures of a kind.
    pub(crate) fn has(self, kind: Unexplained, times: u8) -> bool {
        self.kind == Some(kind) && self.times >= times
    }

    /// Returns the row of operations after a try that left `tried`, if they are among those that were
    /// attempted.
    pub(crate) fn after(self, tried: Option<Self>, attempted: bool) -> Self {
        match tried {
            Some(row) if attempted => row,
            _ => self,
        }
    }

    /// Returns what holds for two operations: the shorter row, if both are of one kind.
    pub(crate) fn common(self, other: Self) -> Self {
        match self.kind == other.kind {
            true if other.times < self.times => other,
            true => self,
            false => Self::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failures_of_one_kind_in_a_row_count() {
        let (untold, told) = (Some(Unexplained::Untold), Some(Unexplained::Told));
        let row = |kinds: &[Option<Unexplained>]| {
            let mut row = FailureRow::default();
            kinds.iter().for_each(|kind| row.add(*kind));
            row
        };
        assert!(row(&[untold, untold, untold]).has(Unexplained::Untold, 3));
        assert!(row(&[told, told, told]).has(Unexplained::Told, 3));
        for other in [told, None] {
            let row = row(&[untold, untold, other, untold]);
            assert!(
                row.has(Unexplained::Untold, 1) && !row.has(Unexplained::Untold, 2),
                "{other:?}"
            );
        }
        let longest = row(&[untold; 300]);
        assert!(longest.has(Unexplained::Untold, u8::MAX));
        let (two, three) = (row(&[untold; 2]), row(&[untold; 3]));
        assert_eq!((two.common(three), three.common(two)), (two, two));
        assert_eq!(two.common(row(&[told; 2])), FailureRow::default());
    }
}
