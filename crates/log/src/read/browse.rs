//! Reading records of all lanes as they lie in the log, for people to look at.

use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use crate::disk::File;
use crate::format::checksum;
use crate::format::folder::read_error;
use crate::format::head::{Head, Parsed};
use crate::format::index::Totals;
use crate::format::scan::Scanned;
use crate::format::segment::Header;
use crate::read::extent::{records_end, scan_of};
use crate::read::{groups, totals};
use crate::shared::OpenLog;
use crate::{ReadError, Receipt};

/// Reads whole records in order; returned by [`crate::Log::browse`].
pub struct Browse {
    shared: Arc<OpenLog>,
    at: u64,
    /// The segment that was entered last.
    entered: Option<u64>,
    /// The end of the last record that was passed. What is missing begins there, wherever the log goes on.
    passed: u64,
    /// What is before the next record, as far as anything says that.
    known: Option<Before>,
    /// Where bytes begin that are no record, if they come before the next record.
    bad_from: Option<u64>,
}

/// How many records and documents are before a place.
#[derive(Clone, Copy)]
struct Before {
    records: u64,
    documents: u64,
}

/// What is found in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A record.
    Record(Browsed),
    /// Records that can no longer be read.
    Missing(Missing),
}

/// A stretch of the log whose records are not there any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The positions of the stretch: from the first byte that is no record to the next record.
    pub range: Range<u64>,
    /// How many records these were; none if that cannot be determined.
    pub records: Option<u64>,
    /// How many documents the records had; none if that cannot be determined.
    pub documents: Option<u64>,
}

/// A record as it lies in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Browsed {
    /// The record's position, length and number of documents.
    pub receipt: Receipt,
    /// When the record was written, in ms since 1970.
    pub time_ms: u64,
    /// The record's kind.
    pub kind: u8,
    /// The record's parameters.
    pub params: Vec<u8>,
    /// The record's groups, in order.
    pub groups: Vec<BrowsedGroup>,
}

/// A group of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrowsedGroup {
    /// The group's lane.
    pub lane: u32,
    /// The group's documents.
    pub documents: u32,
    /// The group's bytes; none if they are damaged.
    pub bytes: Option<Vec<u8>>,
}

// === impl Browse ===

impl Browse {
    pub(crate) fn new(shared: Arc<OpenLog>, at: u64) -> Self {
        Self {
            shared,
            at,
            entered: None,
            passed: at,
            known: None,
            bad_from: None,
        }
    }

    /// Reads the next record; none at the end. Records that cannot be read are left out;
    /// [`crate::Event::Lost`] reports them.
    ///
    /// # Errors
    /// If the disk cannot be read.
    pub fn read(&mut self) -> Result<Option<Browsed>, ReadError> {
        let mut record = None;
        self.each(|browsed| {
            record = Some(browsed);
            ControlFlow::Break(())
        })?;
        Ok(record)
    }

    /// Calls `each` with the records up to the end, until it breaks off; a later call continues after the
    /// last record passed. This reads ahead, so it suits reading many records. Records that cannot be read
    /// are left out.
    ///
    /// # Errors
    /// If the disk cannot be read.
    pub fn each(&mut self, mut each: impl FnMut(Browsed) -> ControlFlow<()>) -> Result<(), ReadError> {
        self.each_found(|found| match found {
            Found::Record(browsed) => each(browsed),
            Found::Missing(_) => ControlFlow::Continue(()),
        })
    }

    /// Does the same as [`Browse::each`], and says between the records what is missing there. What is missing
    /// before the first record is known only if that is the first of its segment.
    ///
    /// # Errors
    /// If the disk cannot be read.
    pub fn each_found(&mut self, mut each: impl FnMut(Found) -> ControlFlow<()>) -> Result<(), ReadError> {
        while let Some(first) = self.segment() {
            let file = match self.shared.folder.open_segment(first) {
                Ok(file) => file,
                // The segment has just been deleted, since every consumer is past it.
                Err(_) if self.segment() != Some(first) => continue,
                Err(error) => return Err(error),
            };
            self.enter(first, &*file)?;
            let grows = self.shared.state.lock().active == Some(first);
            let end = records_end(&self.shared, &*file, first)?;
            if self.records(first, &*file, end, &mut each)?.is_break() {
                return Ok(());
            }
            match groups::next_segment(&self.shared, first) {
                None => {
                    self.at_end(first, end, &mut each);
                    return Ok(());
                }
                // Records may have come to this segment before it was full.
                Some(_) if grows => {}
                // This segment has no more records.
                Some(next) => self.at = next,
            }
        }
        Ok(())
    }

    /// Takes over what a segment says of the documents before it, if nothing else can be known of them.
    fn enter(&mut self, first: u64, file: &dyn File) -> Result<(), ReadError> {
        if self.entered.replace(first) == Some(first) {
            return Ok(());
        }
        // What was before the oldest segment was deleted, perhaps while this was on its way: it is not
        // missing.
        if self.shared.state.lock().start() == first {
            (self.known, self.bad_from) = (None, None);
            self.passed = self.at.max(first);
        }
        if self.known.is_none() && self.bad_from.is_none() && self.at <= first {
            let totals = totals::before(&self.shared, file, first)?;
            self.known = totals.as_ref().map(Before::of);
            self.passed = self.at.max(first);
        }
        Ok(())
    }

    /// Passes the records of a segment from the place on, up to `end`.
    fn records(
        &mut self,
        first: u64,
        file: &dyn File,
        end: u64,
        each: &mut impl FnMut(Found) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, ReadError> {
        let shared = Arc::clone(&self.shared);
        let from = self
            .at
            .saturating_sub(first)
            .max(Header::bytes(shared.folder.lanes));
        let (mut failed, mut flow) = (None, ControlFlow::Continue(()));
        let scanned = scan_of(&shared, file, first).run(from..end, |found| {
            match found {
                Scanned::Record { at, parsed, .. } => match whole(file, at, &parsed) {
                    Ok(browsed) => flow = self.pass(browsed, &parsed.head, each),
                    Err(error) => {
                        failed = Some(error);
                        return ControlFlow::Break(());
                    }
                },
                Scanned::Bad(range) => drop(self.bad_from.get_or_insert(first + range.start)),
            }
            flow
        });
        let read = scanned.and(failed.map_or(Ok(()), Err));
        read.map_err(|source| read_error("cannot read", &shared.folder.segment(first), source))?;
        Ok(flow)
    }

    /// Passes a record, and what is missing before it.
    fn pass(
        &mut self,
        browsed: Browsed,
        head: &Head,
        each: &mut impl FnMut(Found) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let before = Before {
            records: head.number,
            documents: head.documents_before,
        };
        if let Some(missing) = self.missing(before, head.position) {
            each(Found::Missing(missing))?;
        }
        self.at = browsed.receipt.position + browsed.receipt.bytes;
        self.passed = self.at;
        self.known = Some(Before {
            records: before.records + 1,
            documents: before.documents + u64::from(head.documents),
        });
        each(Found::Record(browsed))
    }

    /// Says what is missing at the end of the log, if its last segment was read up to its end.
    fn at_end(&mut self, last: u64, end: u64, each: &mut impl FnMut(Found) -> ControlFlow<()>) {
        let (log_end, before) = {
            let state = self.shared.state.lock();
            let more = match state.active {
                Some(active) => active != last || state.end != last + end,
                None => state.segments.keys().next_back() != Some(&last),
            };
            if more {
                return;
            }
            (state.end, Before::of(&state.totals))
        };
        if let Some(missing) = self.missing(before, log_end) {
            // Whether or not it breaks off, this is the end.
            let _ = each(Found::Missing(missing));
        }
    }

    /// Takes over what is before a place; returns what of it is missing.
    fn missing(&mut self, before: Before, place: u64) -> Option<Missing> {
        let known = self.known.replace(before);
        let bad_from = self.bad_from.take();
        let documents = known.map(|known| before.documents.saturating_sub(known.documents));
        let is_missing = match documents {
            Some(documents) => documents > 0,
            None => bad_from.is_some(),
        };
        is_missing.then(|| Missing {
            range: bad_from.unwrap_or(self.passed).min(place)..place,
            records: known.map(|known| before.records.saturating_sub(known.records)),
            documents,
        })
    }

    fn segment(&self) -> Option<u64> {
        let state = self.shared.state.lock();
        state.segment_at(self.at).filter(|_| self.at < state.end)
    }
}

// === impl Before ===

impl Before {
    fn of(totals: &Totals) -> Self {
        Self {
            records: totals.records,
            documents: totals.documents,
        }
    }
}

/// Reads a record that starts at a place of a file, with its groups.
pub(crate) fn whole(file: &dyn File, at: u64, parsed: &Parsed<'_>) -> io::Result<Browsed> {
    let head = &parsed.head;
    let mut browsed = Browsed {
        receipt: Receipt {
            position: head.position,
            bytes: head.record_bytes(),
            documents: head.documents,
        },
        time_ms: head.time_ms,
        kind: head.kind,
        params: parsed.params.to_vec(),
        groups: Vec::with_capacity(parsed.directory.len()),
    };
    for (range, entry) in parsed.groups() {
        let mut stored = vec![0; entry.stored as usize];
        let read = file.read_at(&mut stored, at + range.start as u64)?;
        let right = read == stored.len() && checksum::of(&stored) == entry.crc;
        let unpacked = right.then(|| head.codec.unpacked(stored, entry.raw as usize).ok());
        browsed.groups.push(BrowsedGroup {
            lane: entry.lane,
            documents: entry.documents,
            bytes: unpacked.flatten(),
        });
    }
    Ok(browsed)
}
