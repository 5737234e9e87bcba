//! The outcome of a comparison of two indices.

use serde::Serialize;

use super::field::FieldDifference;
use crate::units::number;

/// The outcome of a comparison of two indices.
#[derive(Debug, Clone, Serialize)]
pub struct Difference {
    /// The left side.
    pub left: SideOutcome,
    /// The right side.
    pub right: SideOutcome,
    /// Whether nothing differs.
    pub same: bool,
    /// Whether all of both sides was compared: false if only counts were, or if the limit of differences was
    /// reached.
    pub complete: bool,
    /// Numbers of differing documents found.
    pub found: DifferenceCounts,
    /// Documents that differed when they were read, but were alike when looked at again: somebody was writing
    /// meanwhile.
    pub settled: u64,
    /// Number of ranges of ids that were compared.
    pub ranges: u64,
    /// Number of those ranges that differed.
    pub ranges_differing: u64,
    /// The differing documents, sorted by id.
    pub documents: Vec<DocumentDifference>,
}

/// A side of a comparison.
#[derive(Debug, Clone, Serialize)]
pub struct SideOutcome {
    /// URL of the side, without the account.
    pub url: String,
    /// The side's index.
    pub index: String,
    /// Number of documents that the side counts.
    pub documents: u64,
    /// Documents without a source, of which only ids and routings are compared.
    pub without_source: u64,
}

/// Numbers of differing documents, by what differs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DifferenceCounts {
    /// Documents that only the left side has.
    pub only_left: u64,
    /// Documents that only the right side has.
    pub only_right: u64,
    /// Documents that both sides have, with different contents.
    pub different: u64,
}

/// A document that is not the same on both sides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DocumentDifference {
    /// The document's id.
    pub id: String,
    /// The kind of the difference.
    pub what: DifferenceKind,
    /// The first difference in the contents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<FieldDifference>,
}

/// The kind of difference between the two sides of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceKind {
    /// Only the left side has it.
    OnlyLeft,
    /// Only the right side has it.
    OnlyRight,
    /// Both sides have the document, with different contents.
    Different,
}

// === impl DifferenceCounts ===

impl DifferenceCounts {
    /// The number of all differing documents.
    pub fn total(&self) -> u64 {
        self.only_left + self.only_right + self.different
    }

    pub(super) fn add(&mut self, what: DifferenceKind) {
        match what {
            DifferenceKind::OnlyLeft => self.only_left += 1,
            DifferenceKind::OnlyRight => self.only_right += 1,
            DifferenceKind::Different => self.different += 1,
        }
    }
}

// === impl DifferenceKind ===

impl DifferenceKind {
    /// The name in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            DifferenceKind::OnlyLeft => "only left",
            DifferenceKind::OnlyRight => "only right",
            DifferenceKind::Different => "different",
        }
    }
}

/// Formats the text above and below the list of documents.
impl std::fmt::Display for Difference {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (name, side) in [("left", &self.left), ("right", &self.right)] {
            let documents = number(side.documents);
            writeln!(
                out,
                "{name:<5}  {}/{}: {documents} documents",
                side.url, side.index
            )?;
            if side.without_source > 0 {
                let without = number(side.without_source);
                writeln!(
                    out,
                    "       {without} of them have no source: only their ids and routings were compared"
                )?;
            }
        }
        if self.settled > 0 {
            let settled = number(self.settled);
            writeln!(
                out,
                "{settled} documents differed at first and no longer did: somebody is writing"
            )?;
        }
        let found = &self.found;
        match (self.same, self.complete) {
            (true, true) => writeln!(out, "The same"),
            (true, false) => writeln!(out, "The same numbers; contents were not compared"),
            (false, _) if self.ranges == 0 => writeln!(out, "Different numbers"),
            (false, complete) => writeln!(
                out,
                "Different: {} only left, {} only right, {} with other contents{}",
                number(found.only_left),
                number(found.only_right),
                number(found.different),
                if complete {
                    ""
                } else {
                    ", and perhaps more: --limit 0 finds all"
                }
            ),
        }
    }
}
