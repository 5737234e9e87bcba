//! Recovery: what opening a log finds and repairs. The rules are in this folder's documentation.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use crate::disk::File;
use crate::format::folder::{Folder, open_error};
use crate::format::index::{Index, Totals};
use crate::format::quarantine::Quarantine;
use crate::format::scan::{Scan, Scanned};
use crate::format::segment::{Footer, Header};
use crate::shared::cursor::Cursor;
use crate::write::watermark::Watermark;
use crate::{Event, Lost, OpenError, Options, ReadError, WhyLost};

/// A log after recovery.
pub(crate) struct Recovered {
    pub(crate) segments: BTreeMap<u64, u64>,
    pub(crate) active: Option<Active>,
    pub(crate) totals: Totals,
    /// The position at which the log continues.
    pub(crate) end: u64,
}

/// A segment to continue with.
pub(crate) struct Active {
    pub(crate) first: u64,
    pub(crate) file: Arc<dyn File>,
    pub(crate) index: Index,
}

/// The inputs of recovery.
pub(crate) struct Recovery<'a> {
    pub(crate) folder: &'a Folder,
    pub(crate) options: &'a Options,
    pub(crate) quarantine: &'a Quarantine,
    /// How far the log is known to be durable.
    pub(crate) mark: Watermark,
    /// How far the log must be there: records written since count too, as long as the system has not
    /// restarted.
    pub(crate) known: Watermark,
    /// Each consumer's cursors: their counts help where the log's own totals are damaged.
    pub(crate) consumers: Vec<Vec<Cursor>>,
}

// === impl Recovery ===

impl Recovery<'_> {
    /// Looks at the last segment, and at the names and lengths of the others.
    pub(crate) fn run(&self, mut segments: BTreeMap<u64, u64>) -> Result<Recovered, OpenError> {
        // A process that was killed may have left names that are not yet on disk.
        let synced = self.folder.disk.sync_folder(&self.folder.path);
        synced.map_err(|source| open_error("cannot sync", &self.folder.path, source))?;
        self.report_gaps(&segments);
        let mut removed = None;
        let mut recovered = loop {
            let Some((&first, _)) = segments.last_key_value() else {
                break self.nothing(removed.unwrap_or(0));
            };
            let file = self.cold(first)?;
            let header = self.folder.header(&*file, first).map_err(as_open)?;
            if header.is_none() && !self.has_records(&*file, first)? {
                // The segment was being made: its header is durable before its first record is written.
                self.remove(first)?;
                segments.remove(&first);
                removed = Some(first);
                continue;
            }
            break self.last(segments, first, header, file)?;
        };
        self.report_missing_end(&mut recovered);
        self.attribute(&mut recovered);
        Ok(recovered)
    }

    /// Opens the segment's file so that it reads as the disk has it, not as the page cache would have it.
    fn cold(&self, first: u64) -> Result<Arc<dyn File>, OpenError> {
        let path = self.folder.segment(first);
        let file = self.folder.disk.open_to_write(&path);
        let file = file.map_err(|source| open_error("cannot open", &path, source))?;
        file.sync()
            .map_err(|source| open_error("cannot sync", &path, source))?;
        file.drop_cached(0..u64::MAX);
        Ok(Arc::from(file))
    }

    /// Recovers a log without segments: a new one, or one whose segments are all gone.
    fn nothing(&self, end: u64) -> Recovered {
        let mut totals = Totals::new(self.folder.lanes);
        for cursors in &self.consumers {
            for (total, cursor) in totals.lanes.iter_mut().zip(cursors) {
                if cursor.documents > total.documents {
                    *total = cursor.total();
                }
            }
        }
        totals.documents = totals.lanes.iter().map(|lane| lane.documents).sum();
        Recovered {
            segments: BTreeMap::new(),
            active: None,
            totals,
            end,
        }
    }

    fn last(
        &self,
        mut segments: BTreeMap<u64, u64>,
        first: u64,
        header: Option<Header>,
        file: Arc<dyn File>,
    ) -> Result<Recovered, OpenError> {
        let failed = |source| open_error("cannot read", &self.folder.segment(first), source);
        let bytes = file.bytes().map_err(failed)?;
        segments.insert(first, bytes);
        let footer = Footer::read(&*file, first, self.folder.lanes, self.folder.key).map_err(failed)?;
        if let Some(footer) = footer {
            return Ok(Recovered {
                segments,
                active: None,
                totals: footer.totals,
                end: first + bytes,
            });
        }
        let records_at = Header::bytes(self.folder.lanes);
        let stale = header.as_ref().is_some_and(|header| header.stale > 0);
        let end = self.cut(first, &file, records_at..bytes, stale)?;
        let before = match header {
            Some(header) => Some(header.totals),
            None => self.totals_before(&segments, first)?,
        };
        // Without a header's totals, the records say how many documents came before them, and consumers say
        // of which lanes.
        let before = before.unwrap_or_else(|| Totals::new(self.folder.lanes));
        let (index, totals) = self.read(first, &file, records_at..end, before)?;
        // A damaged end may have any length; records start at multiples of 8.
        let bytes = end.next_multiple_of(crate::format::record::ALIGN);
        segments.insert(first, bytes);
        Ok(Recovered {
            segments,
            active: Some(Active { first, file, index }),
            totals,
            end: first + bytes,
        })
    }

    /// Cuts off a write that a crash left half done, and the bytes that a `stale` file holds of its former
    /// use; returns where the file ends then.
    fn cut(
        &self,
        first: u64,
        file: &Arc<dyn File>,
        within: Range<u64>,
        stale: bool,
    ) -> Result<u64, OpenError> {
        let path = self.folder.segment(first);
        let (mut durable, mut suspects) = (self.known.synced, Vec::new());
        let scan = self.scan(&**file, first, self.mark.synced);
        let scanned = scan.run(within.clone(), |found| {
            match found {
                Scanned::Record { at, parsed, whole } => {
                    durable = durable.max(parsed.head.synced);
                    if !whole {
                        suspects.push(at);
                    }
                }
                Scanned::Bad(range) => suspects.push(range.start),
            }
            ControlFlow::Continue(())
        });
        scanned.map_err(|source| open_error("cannot read", &path, source))?;
        let Some(end) = suspects.into_iter().find(|at| first + at >= durable) else {
            return Ok(within.end);
        };
        let torn = if stale {
            scan.begun_at(end, within.end)
        } else {
            Ok(Some(end..within.end))
        };
        let torn = torn.map_err(|source| open_error("cannot read", &path, source))?;
        let cut = file.set_len(end).and_then(|()| file.sync());
        cut.map_err(|source| open_error("cannot cut the torn end off", &path, source))?;
        if let Some(torn) = torn {
            let range = first + torn.start..first + torn.end;
            self.tell(&Event::TornTail { range });
        }
        Ok(end)
    }

    /// Reads a segment's index, and the totals after it.
    fn read(
        &self,
        first: u64,
        file: &Arc<dyn File>,
        within: Range<u64>,
        mut totals: Totals,
    ) -> Result<(Index, Totals), OpenError> {
        let mut index = Index::new(self.folder.lanes);
        let mut bad: Option<Range<u64>> = None;
        let scanned = self.scan(&**file, first, u64::MAX).run(within, |found| {
            match found {
                Scanned::Record { at, parsed, .. } => {
                    let lost = totals.add_record(&parsed);
                    if let Some(range) = bad.take() {
                        self.lost(first, &**file, range, Some(lost));
                    }
                    index.add(at as u32, &parsed);
                }
                Scanned::Bad(range) => bad = Some(range),
            }
            ControlFlow::Continue(())
        });
        scanned.map_err(|source| open_error("cannot read", &self.folder.segment(first), source))?;
        if let Some(range) = bad {
            self.lost(first, &**file, range, None);
        }
        Ok((index, totals))
    }

    /// Returns the totals for a segment whose header is damaged: the totals at the end of the segment before
    /// it, by its index or else by its records; none if nothing is left to tell.
    fn totals_before(&self, segments: &BTreeMap<u64, u64>, first: u64) -> Result<Option<Totals>, OpenError> {
        if first == 0 {
            return Ok(Some(Totals::new(self.folder.lanes)));
        }
        let Some((&before, _)) = segments.range(..first).next_back() else {
            return Ok(None);
        };
        let failed = |source| open_error("cannot read", &self.folder.segment(before), source);
        let file = self.folder.open_segment(before).map_err(as_open)?;
        let footer = Footer::read(&*file, before, self.folder.lanes, self.folder.key).map_err(failed)?;
        if let Some(footer) = footer {
            return Ok(Some(footer.totals));
        }
        let begun = match self.folder.header(&*file, before).map_err(as_open)? {
            Some(header) => Some(header.totals),
            None => self.totals_before(segments, before)?,
        };
        let Some(mut totals) = begun else { return Ok(None) };
        let within = Header::bytes(self.folder.lanes)..file.bytes().map_err(failed)?;
        let scanned = self.scan(&*file, before, u64::MAX).run(within, |found| {
            if let Scanned::Record { parsed, .. } = found {
                totals.add_record(&parsed);
            }
            ControlFlow::Continue(())
        });
        scanned.map_err(failed)?;
        Ok(Some(totals))
    }

    /// Attributes lost documents to the lanes that are known to have had them: the documents that a consumer
    /// has counted, plus those that come after its cursor in the last segment, may be more than the lane has
    /// now.
    fn attribute(&self, recovered: &mut Recovered) {
        let mut lost = recovered.totals.lost();
        for cursors in &self.consumers {
            for (number, (total, cursor)) in recovered.totals.lanes.iter_mut().zip(cursors).enumerate() {
                let ahead = |active: &Active| {
                    let entries = active.index.lanes[number].iter().rev();
                    let ahead =
                        entries.take_while(|entry| active.first + u64::from(entry.group) >= cursor.position);
                    ahead.map(|entry| u64::from(entry.documents)).sum()
                };
                let counted = cursor.documents + recovered.active.as_ref().map_or(0, ahead);
                let known = counted.saturating_sub(total.documents).min(lost);
                if known > 0 {
                    lost -= known;
                    total.documents += known;
                    total.bytes = total.bytes.max(cursor.bytes);
                }
            }
        }
    }

    fn has_records(&self, file: &dyn File, first: u64) -> Result<bool, OpenError> {
        let failed = |source| open_error("cannot read", &self.folder.segment(first), source);
        let mut some = false;
        let within = Header::bytes(self.folder.lanes)..file.bytes().map_err(failed)?;
        let scanned = self.scan(file, first, u64::MAX).run(within, |found| match found {
            Scanned::Record { .. } => {
                some = true;
                ControlFlow::Break(())
            }
            Scanned::Bad(_) => ControlFlow::Continue(()),
        });
        scanned.map_err(failed)?;
        Ok(some)
    }

    fn remove(&self, first: u64) -> Result<(), OpenError> {
        let path = self.folder.segment(first);
        let removed = self.folder.disk.remove(&path);
        let removed = removed.and_then(|()| self.folder.disk.sync_folder(&self.folder.path));
        removed.map_err(|source| open_error("cannot remove", &path, source))
    }

    /// Reports segments that do not begin where the one before ends.
    fn report_gaps(&self, segments: &BTreeMap<u64, u64>) {
        let mut end = None;
        for (&first, &bytes) in segments {
            if let Some(end) = end.filter(|end| *end < first) {
                self.missing(end..first, None);
            }
            end = Some(first + bytes);
        }
    }

    /// Reports a missing end of the log, which only the mark reveals.
    fn report_missing_end(&self, recovered: &mut Recovered) {
        let lost = self.known.documents.saturating_sub(recovered.totals.documents);
        if self.known.synced > recovered.end {
            self.missing(recovered.end..self.known.synced, Some(lost));
            // Positions that clients were told are not used again.
            recovered.end = self.known.synced.next_multiple_of(crate::format::record::ALIGN);
            recovered.active = None;
        }
        recovered.totals.documents += lost;
        recovered.totals.records = recovered.totals.records.max(self.known.records);
    }

    fn missing(&self, range: Range<u64>, documents: Option<u64>) {
        self.tell(&Event::Lost(Lost {
            range,
            lane: None,
            documents,
            why: WhyLost::Missing,
            quarantined: None,
        }));
    }

    fn lost(&self, first: u64, file: &dyn File, range: Range<u64>, documents: Option<u64>) {
        let range = first + range.start..first + range.end;
        let most = self.options.quarantine_bytes_max;
        let quarantined = self.quarantine.keep(self.folder, file, first, &range, most);
        self.tell(&Event::Lost(Lost {
            range,
            lane: None,
            documents,
            why: WhyLost::Damaged,
            quarantined,
        }));
    }

    fn scan<'a>(&'a self, file: &'a dyn File, first: u64, verify_beyond: u64) -> Scan<'a> {
        Scan {
            file,
            first,
            lanes: self.folder.lanes,
            key: self.folder.key,
            verify_beyond,
        }
    }

    fn tell(&self, event: &Event) {
        (self.options.on_event)(event);
    }
}

/// Converts reading errors into opening errors.
pub(crate) fn as_open(error: ReadError) -> OpenError {
    match error {
        ReadError::Io { doing, path, source } => OpenError::Io { doing, path, source },
        other => OpenError::Options(other.to_string()),
    }
}
