//! What a reading back found.

use serde::Serialize;

use crate::units::number;

/// What a reading back found.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Verified {
    /// Documents that were accepted, each counted once however often it was written.
    pub documents: u64,
    /// Those of them that are as they should be.
    pub proven: u64,
    /// Accepted, and not there.
    pub missing: u64,
    /// There with another value than the last one.
    pub different: u64,
    /// There more than once.
    pub repeated: u64,
    /// Deleted last, and there all the same.
    pub undead: u64,
    /// Written by several requests, and no answer says by which last, as a queue's do not: nothing is proven
    /// of them.
    pub unordered: u64,
    /// Answers that accepted something and could not be read: nothing is proven of it.
    pub unread: u64,
    /// Documents in requests of which nobody knows whether they were executed: nothing is proven of them.
    pub unknown: u64,
    /// The first that are not as they should be.
    pub examples: Vec<Flaw>,
}

/// A document that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Flaw {
    /// Its index.
    pub index: String,
    /// Its id.
    pub id: String,
    /// What is wrong with it.
    pub what: &'static str,
}

// === impl Verified ===

impl Verified {
    /// Nothing is missing, different or repeated, and each answer said what it accepted.
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
