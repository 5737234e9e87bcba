//! Finds a document, or all of one request, among the dead letters.

use std::ops::ControlFlow;
use std::time::Instant;

use log::ReadError;

use super::{Committed, DeadLetters, Letter};
use crate::queue::trace::Sought;

/// Letters that were found.
#[derive(Default)]
pub(crate) struct LettersFound {
    /// The newest letters, at most [`FOUND_MAX`].
    pub(crate) letters: std::collections::VecDeque<Letter>,
    /// The number of all letters that were found.
    pub(crate) count: u64,
    /// Whether time was over before everything was searched.
    pub(crate) is_partial: bool,
}

/// The subject of a search.
#[derive(Clone, Copy)]
pub(crate) enum LettersSought<'s> {
    Document(&'s Sought<'s>),
    /// The request at this position of the queue.
    Position(u64),
}

impl DeadLetters {
    /// Searches the letters that count. Reads the disk.
    pub(crate) fn find(
        &self,
        sought: LettersSought<'_>,
        committed: &Committed,
        until: Instant,
    ) -> Result<LettersFound, ReadError> {
        let mut found = LettersFound::default();
        self.visit_settled(0, committed, |letter| {
            if Instant::now() > until {
                found.is_partial = true;
                return ControlFlow::Break(());
            }
            if is_meant(sought, &letter) {
                found.count += 1;
                found.letters.push_back(letter);
                if found.letters.len() > FOUND_MAX {
                    found.letters.pop_front();
                }
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }
}

fn is_meant(sought: LettersSought<'_>, letter: &Letter) -> bool {
    match sought {
        LettersSought::Position(position) => letter.cause.position == position,
        LettersSought::Document(sought) => {
            // An edited letter may have become another document; its original is searched, too.
            let lines = letter.lines.iter().chain(&letter.original);
            let mut found = lines.filter_map(|lines| sought.in_lines(lines, &letter.cause.target));
            found.any(|found| !found.is_empty())
        }
    }
}

/// The most letters that are reported.
pub(crate) const FOUND_MAX: usize = 100;
