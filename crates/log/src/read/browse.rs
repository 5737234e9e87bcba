//! Reading records of all lanes as they lie in the log, for people to look at.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::disk::File;
use crate::format::checksum;
use crate::format::folder::read_error;
use crate::format::head::Parsed;
use crate::format::scan::Scanned;
use crate::format::segment::Header;
use crate::read::extent::{records_end, scan_of};
use crate::read::groups;
use crate::shared::OpenLog;
use crate::{ReadError, Receipt};

/// Reads whole records in order; returned by [`crate::Log::browse`].
pub struct Browse {
    pub(crate) shared: Arc<OpenLog>,
    pub(crate) at: u64,
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

impl Browse {
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
    /// last record passed. This reads ahead, so it suits reading many records.
    ///
    /// # Errors
    /// If the disk cannot be read.
    pub fn each(&mut self, mut each: impl FnMut(Browsed) -> ControlFlow<()>) -> Result<(), ReadError> {
        while let Some(first) = self.segment() {
            let file = match self.shared.folder.open_segment(first) {
                Ok(file) => file,
                // The segment has just been deleted, since every consumer is past it.
                Err(_) if self.segment() != Some(first) => continue,
                Err(error) => return Err(error),
            };
            let end = records_end(&self.shared, &*file, first)?;
            let from = self
                .at
                .saturating_sub(first)
                .max(Header::bytes(self.shared.folder.lanes));
            let (mut failed, mut broken) = (None, false);
            let scanned = scan_of(&self.shared, &*file, first).run(from..end, |found| match found {
                Scanned::Record { at, parsed, .. } => match whole(&*file, at, &parsed) {
                    Ok(browsed) => {
                        self.at = browsed.receipt.position + browsed.receipt.bytes;
                        let flow = each(browsed);
                        broken = flow.is_break();
                        flow
                    }
                    Err(error) => {
                        failed = Some(error);
                        ControlFlow::Break(())
                    }
                },
                Scanned::Bad(_) => ControlFlow::Continue(()),
            });
            let read = scanned.and(failed.map_or(Ok(()), Err));
            read.map_err(|source| read_error("cannot read", &self.shared.folder.segment(first), source))?;
            if broken {
                return Ok(());
            }
            // This segment has no more records.
            let Some(next) = groups::next_segment(&self.shared, first) else {
                return Ok(());
            };
            self.at = next;
        }
        Ok(())
    }

    fn segment(&self) -> Option<u64> {
        let state = self.shared.state.lock();
        state.segment_at(self.at).filter(|_| self.at < state.end)
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
