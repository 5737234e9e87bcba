//! The outcome of a verification.

use serde::Serialize;

use crate::units::number;

/// The outcome of a verification.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Verified {
    /// Accepted documents, each counted once however often it was written.
    pub documents: u64,
    /// Accepted documents that are as they should be.
    pub proven: u64,
    /// Accepted documents that are not there.
    pub missing: u64,
    /// Documents with another value than the last one.
    pub different: u64,
    /// Documents that are there more than once.
    pub repeated: u64,
    /// Documents that were deleted last, but are still there.
    pub undead: u64,
    /// Documents written by several requests whose answers don't say which one was last, as a queue's don't:
    /// nothing is proven about them.
    pub unordered: u64,
    /// Answers that accepted something but could not be read: nothing is proven about it.
    pub unread: u64,
    /// Documents in requests that may or may not have been executed: nothing is proven about them.
    pub unknown: u64,
    /// The first documents that are not as they should be.
    pub examples: Vec<Flaw>,
}

/// A document that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Flaw {
    /// The document's index.
    pub index: String,
    /// The document's id.
    pub id: String,
    /// The flaw.
    pub what: &'static str,
}

// === impl Verified ===

impl Verified {
    /// Whether nothing is missing, different or repeated, and each answer said what it accepted.
    pub fn holds(&self) -> bool {
        self.proven + self.unordered == self.documents && self.unread == 0
    }

    /// Counts a flaw, and keeps the first ones as examples.
    pub(crate) fn add(&mut self, flaw: Flaw) {
        match flaw.what {
            MISSING => self.missing += 1,
            DIFFERENT => self.different += 1,
            REPEATED => self.repeated += 1,
            _ => self.undead += 1,
        }
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(flaw);
        }
    }
}

impl std::fmt::Display for Verified {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            out,
            "Verified: {} of {} accepted documents are there once, with their last value",
            number(self.proven),
            number(self.documents)
        )?;
        for (count, what) in [
            (self.missing, "missing"),
            (self.different, "with another value"),
            (self.repeated, "there more than once"),
            (self.undead, "deleted and there all the same"),
        ] {
            if count > 0 {
                writeln!(out, "  {} {what}", number(count))?;
            }
        }
        if self.unordered > 0 {
            writeln!(
                out,
                "  {} were written several times, and no answer says which value was the last: nothing is proven of them",
                number(self.unordered)
            )?;
        }
        if self.unread > 0 {
            writeln!(
                out,
                "  {} answers do not say what they accepted: nothing is proven of it",
                number(self.unread)
            )?;
        }
        if self.unknown > 0 {
            writeln!(
                out,
                "  {} more were sent in requests whose fate is unknown: nothing is proven of them",
                number(self.unknown)
            )?;
        }
        for Flaw { index, id, what } in &self.examples {
            writeln!(out, "  {what}: {index}/{id}")?;
        }
        Ok(())
    }
}

pub(crate) const MISSING: &str = "missing";
pub(crate) const DIFFERENT: &str = "another value";
pub(crate) const REPEATED: &str = "more than once";
pub(crate) const UNDEAD: &str = "deleted, and there";
const EXAMPLES_MAX: usize = 20;
