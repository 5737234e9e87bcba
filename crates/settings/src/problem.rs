//! Errors and warnings about a file: the place, the problem, and a correction.

use std::fmt;

use serde::Serialize;

/// A position in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Position {
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
}

/// Whether a problem keeps the file from being used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The file is not used.
    Error,
    /// The file is used.
    Warning,
}

/// One error or warning, and its place. Never holds a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The severity.
    pub severity: Severity,
    /// The file's name as given; none for a configuration without a file.
    pub file: Option<String>,
    /// The place; none for a configuration without a file.
    #[serde(flatten)]
    pub place: Option<Position>,
    /// The key, as in `entry[0].network.binding`; empty for the file as a whole.
    pub path: String,
    /// The problem, in one sentence.
    pub message: String,
    /// The correction, if one is known.
    pub help: Option<String>,
}

/// All problems of a configuration. `Display` shows one problem on each line, warnings included.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Rejected {
    /// The problems in the file's order; at least one is an error.
    pub problems: Vec<Problem>,
}

/// Collects problems while a file is checked.
#[derive(Debug, Default)]
pub struct Problems {
    file: Option<String>,
    list: Vec<Problem>,
}

// === impl Problem ===

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(out, "{file}:")?;
            if let Some(Position { line, column }) = self.place {
                write!(out, "{line}:{column}:")?;
            }
            out.write_str(" ")?;
        }
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(out, "{severity}: ")?;
        if !self.path.is_empty() {
            write!(out, "{}: ", self.path)?;
        }
        out.write_str(&self.message)?;
        match &self.help {
            Some(help) => write!(out, "; {help}"),
            None => Ok(()),
        }
    }
}

// === impl Rejected ===

impl fmt::Display for Rejected {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            if at > 0 {
                out.write_str("\n")?;
            }
            write!(out, "{problem}")?;
        }
        Ok(())
    }
}

// === impl Problems ===

impl Problems {
    /// Makes a collection for a file, given by its name in messages.
    pub fn new(file: Option<String>) -> Self {
        Self {
            file,
            list: Vec::new(),
        }
    }

    /// Adds a problem.
    pub fn add(
        &mut self,
        severity: Severity,
        place: Option<Position>,
        path: &str,
        message: impl Into<String>,
        help: Option<String>,
    ) {
        self.list.push(Problem {
            severity,
            file: self.file.clone(),
            place,
            path: path.to_owned(),
            message: message.into(),
            help,
        });
    }

    /// Adds an error, which keeps the file from being used.
    pub fn error(&mut self, place: Position, path: &str, message: impl Into<String>, help: Option<String>) {
        self.add(Severity::Error, Some(place), path, message, help);
    }

    /// Adds a warning.
    pub fn warning(&mut self, place: Position, path: &str, message: impl Into<String>) {
        self.add(Severity::Warning, Some(place), path, message, None);
    }

    /// Returns whether an error keeps the file from being used.
    pub fn has_errors(&self) -> bool {
        self.list
            .iter()
            .any(|problem| problem.severity == Severity::Error)
    }

    /// Returns whether there is an error below a key.
    pub fn has_errors_below(&self, path: &str) -> bool {
        let below = |problem: &Problem| {
            problem
                .path
                .strip_prefix(path)
                .is_some_and(|rest| rest.starts_with('.'))
        };
        self.list
            .iter()
            .any(|problem| problem.severity == Severity::Error && below(problem))
    }

    /// Returns all problems, in the file's order.
    pub fn into_sorted(mut self) -> Vec<Problem> {
        self.list.sort_by_key(|problem| problem.place);
        self.list.dedup();
        self.list
    }
}

/// Returns the name for a "did you mean …": the one of `known` nearest to `written`, if it is near enough for
/// `written` to be a slip.
pub fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let written = written.to_lowercase();
    known
        .into_iter()
        .map(|name| (distance(&written, &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= 1 + name.chars().count().max(written.chars().count()) / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Returns the Damerau-Levenshtein distance (optimal string alignment) in characters. Names are short; longer
/// ones count as far from all others.
fn distance(left: &str, right: &str) -> usize {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    if left.len().abs_diff(right.len()) > 16 || left.len() > 128 {
        return usize::MAX;
    }
    let width = right.len() + 1;
    let mut rows: Vec<usize> = (0..width).collect();
    for (i, a) in left.iter().enumerate() {
        rows.push(i + 1);
        for (j, b) in right.iter().enumerate() {
            let at = |row: usize, column: usize| rows[row * width + column];
            let mut best = (at(i, j) + usize::from(a != b))
                .min(at(i, j + 1) + 1)
                .min(rows[(i + 1) * width + j] + 1);
            if i > 0 && j > 0 && *a == right[j - 1] && left[i - 1] == *b {
                best = best.min(at(i - 1, j - 1) + 1);
            }
            rows.push(best);
        }
    }
    rows[left.len() * width + right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_a_slip_away_or_none() {
        let known = ["max_concurrency", "router", "network", "name"];
        assert_eq!(nearest("max_concurency", known), Some("max_concurrency"));
        assert_eq!(nearest("Router", known), Some("router"));
        assert_eq!(nearest("nmae", known), Some("name"));
        assert_eq!(nearest("elephant", known), None);
        assert_eq!(nearest("", known), None);
    }

    #[test]
    fn distance_counts_swaps_as_one() {
        assert_eq!(distance("ab", "ba"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("same", "same"), 0);
    }
}
