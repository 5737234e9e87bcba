//! Inspection of a log's folder: its contents and its damage, without changing anything.

use std::io;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;

use crate::OpenError;
use crate::disk::{Disk, File, Listed};
use crate::format::folder::{CURSOR, Folder, LOG, QUARANTINE, open_error};
use crate::format::scan::{Scan, Scanned};
use crate::format::segment::{self, Footer, Header};
use crate::read::browse::{Browsed, whole};
use crate::recover::recovery::as_open;
use crate::shared::cursor;
use crate::shared::spares;
use crate::write::watermark::Watermark;
use crate::write::written::WrittenFile;

/// The contents of a log's folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The lanes of the log.
    pub lanes: u32,
    /// The position up to which the log is known to be durable.
    pub synced: u64,
    /// The segments, oldest first.
    pub segments: Vec<SegmentReport>,
    /// Positions that no file holds any more.
    pub gaps: Vec<Range<u64>>,
    /// The end of the log, if it is an interrupted write (or one that is going on, if a gateway is running).
    /// It holds nothing acknowledged, and is cut off when the log is opened.
    pub torn: Option<Range<u64>>,
    /// Consumer groups.
    pub cursors: Vec<CursorReport>,
    /// Files of used-up segments, kept for reuse.
    pub spares: Vec<Listed>,
    /// Copies of damage that was found earlier.
    pub quarantined: Vec<Listed>,
}

/// One segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentReport {
    /// Position of its first byte.
    pub first: u64,
    /// The segment's length; for a file that is being written again, the length up to where its records end.
    pub bytes: u64,
    /// When the segment was begun, in ms since 1970; 0 if its header is damaged.
    pub made_ms: u64,
    /// Whether its header checks.
    pub header: bool,
    /// Whether its index checks; none for the last segment, which has no index yet.
    pub index: Option<bool>,
    /// Records that can be read, at least in part.
    pub records: u64,
    /// Documents that can be read.
    pub documents: u64,
    /// Stretches that cannot be read.
    pub damaged: Vec<Damage>,
}

/// A stretch that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The positions of the stretch.
    pub range: Range<u64>,
    /// Documents in it, where that is known.
    pub documents: Option<u64>,
}

/// The cursors of one consumer group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CursorReport {
    /// The group's name.
    pub name: String,
    /// Whether one of its slots checks; if not, the numbers are 0 and the log cannot be opened.
    pub readable: bool,
    /// The least and the greatest position of its lanes.
    pub positions: (u64, u64),
    /// Documents done, in all lanes.
    pub done: u64,
    /// Done documents that are dead.
    pub dead: u64,
    /// Done documents that were lost.
    pub lost: u64,
}

// === impl Report ===

impl Report {
    /// Returns whether everything that was acknowledged and not deleted can be read.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.gaps.is_empty()
            && self.segments.iter().all(SegmentReport::is_sound)
            && self.cursors.iter().all(|cursor| cursor.readable)
    }
}

// === impl SegmentReport ===

impl SegmentReport {
    /// Returns whether all of the segment can be read.
    fn is_sound(&self) -> bool {
        self.header && self.index != Some(false) && self.damaged.is_empty()
    }
}

/// Reads every byte of a log, and changes nothing. A gateway may be running meanwhile.
///
/// # Errors
/// If there is no log, or the disk cannot be read.
pub fn check(path: impl AsRef<Path>, disk: impl Disk) -> Result<Report, OpenError> {
    let look = Look::new(path.as_ref(), Arc::new(disk))?;
    let folder = &look.folder;
    let known = &look.known;
    let mut report = Report {
        lanes: folder.lanes,
        synced: look.mark.synced,
        spares: look.spares.clone(),
        quarantined: folder
            .disk
            .list(&folder.path.join(QUARANTINE))
            .unwrap_or_default(),
        ..Report::default()
    };
    report.quarantined.sort_by(|a, b| a.name.cmp(&b.name));
    let mut last_is_gone = false;
    for (number, &(first, _)) in look.segments.iter().enumerate() {
        let next = look.segments.get(number + 1).map(|(next, _)| *next);
        let segment = look.segment(first, next, known, &mut report.torn);
        if !matches!(&segment, Ok(segment) if segment.is_sound()) && look.is_gone(first) {
            // The segment was used up since, and its file perhaps written again while it was being read.
            last_is_gone = true;
            continue;
        }
        last_is_gone = false;
        let segment = segment?;
        if let Some(next) = next.filter(|next| first + segment.bytes < *next) {
            report.gaps.push(first + segment.bytes..next);
        }
        report.segments.push(segment);
    }
    let end = report.segments.last().map_or(0, |last| last.first + last.bytes);
    if known.synced > end && !last_is_gone {
        report.gaps.push(end..known.synced);
    }
    for name in &look.cursors {
        report.cursors.push(look.cursor(name)?);
    }
    Ok(report)
}

/// Calls `each` with every whole record from a position on, and changes nothing. A gateway may be running
/// meanwhile.
///
/// # Errors
/// If there is no log, or the disk cannot be read.
pub fn dump(
    path: impl AsRef<Path>,
    disk: impl Disk,
    from: u64,
    mut each: impl FnMut(Browsed) -> ControlFlow<()>,
) -> Result<(), OpenError> {
    let look = Look::new(path.as_ref(), Arc::new(disk))?;
    for &(first, bytes) in look.segments.iter().filter(|(first, bytes)| first + bytes > from) {
        let file = match look.folder.open_segment(first) {
            Err(_) if look.is_gone(first) => continue,
            file => file.map_err(as_open)?,
        };
        let within = from.saturating_sub(first).max(Header::bytes(look.folder.lanes))..bytes;
        let mut flow = Ok(ControlFlow::Continue(()));
        let scanned = look.scan(&*file, first, u64::MAX).run(within, |found| {
            if let Scanned::Record { at, parsed, .. } = found {
                flow = whole(&*file, at, &parsed).map(&mut each);
            }
            match flow {
                Ok(flow) => flow,
                Err(_) => ControlFlow::Break(()),
            }
        });
        let flow = scanned
            .and(flow)
            .map_err(|source| open_error("cannot read", &look.folder.segment(first), source))?;
        if flow.is_break() {
            break;
        }
    }
    Ok(())
}

/// A folder that is inspected and not changed.
struct Look {
    folder: Folder,
    /// The mark, read before the names: a segment that is begun meanwhile must not look like one that is
    /// missing.
    mark: Watermark,
    /// The position up to which the log must be there.
    known: Watermark,
    segments: Vec<(u64, u64)>,
    spares: Vec<Listed>,
    cursors: Vec<String>,
}

// === impl Look ===

impl Look {
    fn new(path: &Path, disk: Arc<dyn Disk>) -> Result<Self, OpenError> {
        let folder = Folder::existing(path, disk)?;
        let none = || open_error("cannot read", &path.join(LOG), io::ErrorKind::NotFound.into());
        let folder = folder.ok_or_else(none)?;
        let (mark, _) =
            Watermark::read(&folder).map_err(|source| open_error("cannot read MARK in", path, source))?;
        let written = WrittenFile::read(&folder)
            .map_err(|source| open_error("cannot read WRITTEN in", path, source))?;
        let files = folder
            .disk
            .list(path)
            .map_err(|source| open_error("cannot list", path, source))?;
        let of_segment = |file: &Listed| Some((segment::first_of(&file.name)?, file.bytes));
        let mut segments: Vec<_> = files.iter().filter_map(of_segment).collect();
        segments.sort_unstable();
        let spare = |file: &&Listed| spares::first_of(&file.name).is_some();
        let mut spares: Vec<_> = files.iter().filter(spare).cloned().collect();
        spares.sort_by(|a, b| a.name.cmp(&b.name));
        let names = files.iter().filter_map(|file| file.name.strip_suffix(CURSOR));
        let mut cursors: Vec<_> = names.map(str::to_owned).collect();
        cursors.sort_unstable();
        Ok(Self {
            folder,
            mark,
            known: mark.or_further(written),
            segments,
            spares,
            cursors,
        })
    }

    /// Returns whether a segment was deleted since its name was read.
    fn is_gone(&self, first: u64) -> bool {
        let opened = self.folder.disk.open(&self.folder.segment(first));
        opened.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    fn segment(
        &self,
        first: u64,
        next: Option<u64>,
        known: &Watermark,
        torn: &mut Option<Range<u64>>,
    ) -> Result<SegmentReport, OpenError> {
        let folder = &self.folder;
        let failed = |source| open_error("cannot read", &folder.segment(first), source);
        let file = folder.open_segment(first).map_err(as_open)?;
        let header = folder.header(&*file, first).map_err(as_open)?;
        let bytes = file.bytes().map_err(failed)?;
        let footer = Footer::read(&*file, first, folder.lanes, folder.key).map_err(failed)?;
        let mut report = SegmentReport {
            first,
            bytes,
            made_ms: header.as_ref().map_or(0, |header| header.time_ms),
            header: header.is_some(),
            ..SegmentReport::default()
        };
        let end = footer.as_ref().map_or(bytes, |footer| footer.at);
        let (mut durable, mut bad) = (known.synced, Vec::new());
        let within = Header::bytes(folder.lanes).min(end)..end;
        let scanned = self.scan(&*file, first, 0).run(within, |found| {
            match found {
                Scanned::Record { at, parsed, whole } => {
                    durable = durable.max(parsed.head.synced);
                    report.records += 1;
                    if whole {
                        report.documents += u64::from(parsed.head.documents);
                    } else {
                        bad.push((parsed.head.range(), Some(u64::from(parsed.head.documents)), at));
                    }
                }
                Scanned::Bad(range) => bad.push((first + range.start..first + range.end, None, range.start)),
            }
            ControlFlow::Continue(())
        });
        scanned.map_err(failed)?;
        report.index = match (&footer, next) {
            (Some(footer), _) => Some(self.index_checks(&*file, footer).map_err(failed)?),
            (None, Some(next)) => {
                // All records are there, so bad bytes at the end are only the index.
                if self.is_complete(header.as_ref(), report.records, next)? {
                    bad.retain(|(range, documents, _)| documents.is_some() || range.end < first + bytes);
                }
                Some(false)
            }
            (None, None) => {
                if let Some(cut) = bad.iter().position(|(range, ..)| range.start >= durable) {
                    let stale = header.is_some_and(|header| header.stale > 0);
                    let tail = self
                        .tail(&*file, &mut report, bad[cut].2, stale)
                        .map_err(failed)?;
                    *torn = tail;
                    bad.truncate(cut);
                }
                None
            }
        };
        report.damaged = bad
            .into_iter()
            .map(|(range, documents, _)| Damage { range, documents })
            .collect();
        Ok(report)
    }

    /// Returns whether a segment with this header and `records` records has all the records that were written
    /// before the `next` segment.
    fn is_complete(&self, header: Option<&Header>, records: u64, next: u64) -> Result<bool, OpenError> {
        let after = self
            .folder
            .open_segment(next)
            .and_then(|file| self.folder.header(&*file, next))
            .map_err(as_open)?;
        Ok(header
            .zip(after.as_ref())
            .is_some_and(|(header, after)| header.totals.records + records == after.totals.records))
    }

    /// Returns the positions that are torn at the end of the last segment, from `start` within the file on.
    /// Bytes that a `stale` file holds of its former use are not torn, and are no part of the log.
    fn tail(
        &self,
        file: &dyn File,
        report: &mut SegmentReport,
        start: u64,
        stale: bool,
    ) -> io::Result<Option<Range<u64>>> {
        let (first, bytes) = (report.first, report.bytes);
        let begun = if stale {
            report.bytes = start;
            self.scan(file, first, 0).begun_at(start, bytes)?
        } else {
            Some(start..bytes)
        };
        Ok(begun.map(|begun| first + begun.start..first + begun.end))
    }

    fn index_checks(&self, file: &dyn File, footer: &Footer) -> io::Result<bool> {
        for lane in 0..self.folder.lanes {
            if footer.groups(file, lane, self.folder.key)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn cursor(&self, name: &str) -> Result<CursorReport, OpenError> {
        let path = self.folder.path.join(format!("{name}{CURSOR}"));
        let file = self.folder.disk.open(&path);
        let found = file.and_then(|file| cursor::newest(&*file, &self.folder));
        let mut report = CursorReport {
            name: name.to_owned(),
            ..CursorReport::default()
        };
        if let Some(found) = found.map_err(|source| open_error("cannot read", &path, source))? {
            let lanes = found.lanes;
            let positions = || lanes.iter().map(|lane| lane.position);
            report.readable = true;
            report.positions = (positions().min().unwrap_or(0), positions().max().unwrap_or(0));
            report.done = lanes.iter().map(|lane| lane.documents).sum();
            report.dead = lanes.iter().map(|lane| lane.dead).sum();
            report.lost = lanes.iter().map(|lane| lane.lost).sum();
        }
        Ok(report)
    }

    fn scan<'a>(&self, file: &'a dyn File, first: u64, verify_beyond: u64) -> Scan<'a> {
        Scan {
            file,
            first,
            lanes: self.folder.lanes,
            key: self.folder.key,
            verify_beyond,
        }
    }
}
