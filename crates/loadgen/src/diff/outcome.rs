//! What a comparison found.

use serde::Serialize;

use super::field::FieldDifference;
use crate::units::number;

/// What a comparison found.
#[derive(Debug, Clone, Serialize)]
pub struct Difference {
    /// One side.
    pub left: SideOutcome,
    /// The other.
    pub right: SideOutcome,
    /// Whether nothing differs.
    pub same: bool,
    /// Whether all of both was compared: not if only counts were, or the limit of differences was reached.
    pub complete: bool,
    /// Differing documents found.
    pub found: Found,
    /// Documents that differed when they were read and were alike when looked at again: somebody writes
    /// meanwhile.
    pub settled: u64,
    /// Ranges of ids that were compared, and those of them that differed.
    pub ranges: u64,
    /// See `ranges`.
    pub ranges_differing: u64,
    /// The documents, sorted by id.
    pub documents: Vec<DocumentDifference>,
}

/// A side of a comparison.
#[derive(Debug, Clone, Serialize)]
pub struct SideOutcome {
    /// Where it is, without the account.
    pub url: String,
    /// Its index.
    pub index: String,
    /// Documents that it counts.
    pub documents: u64,
    /// Those of them without a source: of these only ids and routings are compared.
    pub without_source: u64,
}

/// Differing documents by what is different.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Found {
    /// Documents that only the left side has.
    pub only_left: u64,
    /// Documents that only the right side has.
    pub only_right: u64,
    /// Documents that both have, with other contents.
    pub different: u64,
}

/// A document that is not the same on both sides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DocumentDifference {
    /// Its id.
    pub id: String,
    /// What is different.
    pub what: What,
    /// Where the contents differ first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<FieldDifference>,
}

/// What is different about a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Only the left side has it.
    OnlyLeft,
    /// Only the right side has it.
    OnlyRight,
    /// Both have it, with other contents.
    Different,
}

// === impl Found ===

impl Found {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.only_left + self.only_right + self.different
    }

    pub(super) fn add(&mut self, what: What) {
        match what {
            What::OnlyLeft => self.only_left += 1,
            What::OnlyRight => self.only_right += 1,
            What::Different => self.different += 1,
        }
    }
}

// === impl What ===

impl What {
    /// As tables have it.
    pub fn as_str(self) -> &'static str {
        match self {
            What::OnlyLeft => "only left",
            What::OnlyRight => "only right",
            What::Different => "different",
        }
    }
}

/// What is said above and below the documents.
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
