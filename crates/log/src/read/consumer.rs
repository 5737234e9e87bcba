//! A consumer group: a name, with a cursor in each lane.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::format::folder::read_error;
use crate::format::scan::Scanned;
use crate::format::segment::Header;
use crate::read::extent::{records_end, scan_of};
use crate::read::totals;
use crate::shared::OpenLog;
use crate::shared::cursor::{Cursor, Cursors};
use crate::shared::readable::Readable;
use crate::{Commit, ConsumerStatus, LaneReader, Mark, Moved, ReadError};

/// Where a new consumer begins; an existing one continues where it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartAt {
    /// At the oldest record that is still there.
    #[default]
    Oldest,
    /// At the next record to be appended.
    Newest,
    /// At the first record at or after this position.
    Position(u64),
    /// At the first record written at this time or later, in ms since 1970.
    Time(u64),
}

/// A consumer group, shared by all its readers. Cheap to clone.
#[derive(Clone)]
pub struct Consumer {
    pub(crate) shared: Arc<OpenLog>,
    pub(crate) cursors: Arc<Cursors>,
}

// === impl Consumer ===

impl Consumer {
    /// Returns the group's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.cursors.name
    }

    /// Returns a reader that starts at the lane's committed mark. Readers are independent: two readers of one
    /// lane read the same documents twice.
    ///
    /// # Errors
    /// If there is no such lane.
    pub fn reader(&self, lane: u32) -> Result<LaneReader, ReadError> {
        let mark = self.committed(lane)?;
        Ok(LaneReader::new(Arc::clone(&self.shared), mark))
    }

    /// Commits these marks: everything before them is done. After a crash either all of them are committed or
    /// none. The commit becomes durable within [`crate::Options::cursor_interval`], or earlier with
    /// [`Consumer::flush`]; this function never waits for the disk. Committing a mark again is no error.
    ///
    /// # Errors
    /// [`ReadError::Mark`] if a mark goes back or beyond the end, or has more dead and lost documents than
    /// there are; then no mark is committed.
    pub fn commit(&self, commits: &[Commit]) -> Result<(), ReadError> {
        let state = self.shared.state.lock();
        self.cursors.commit(commits, state.end, &state.totals.lanes)
    }

    /// Waits until the marks committed so far are durable.
    ///
    /// # Errors
    /// What the disk says.
    pub fn flush(&self) -> Result<(), ReadError> {
        let written = self.cursors.write(&self.shared.folder);
        written.map_err(|source| read_error("cannot write a cursor in", &self.shared.folder.path, source))
    }

    /// Returns the committed mark of a lane.
    ///
    /// # Errors
    /// If there is no such lane.
    pub fn committed(&self, lane: u32) -> Result<Mark, ReadError> {
        let now = self.cursors.now();
        let cursor = now.get(lane as usize).ok_or(ReadError::NoLane {
            lane,
            lanes: self.shared.folder.lanes,
        })?;
        Ok(cursor.mark(lane))
    }

    /// Sets all lanes to a place, forward or back, for an operator who knows why; the change is durable when
    /// this returns. Documents passed over count as skipped; documents that the group is set back over count
    /// as rewound and are pending again; dead and lost ones stay so. Existing readers keep their place: stop
    /// them first.
    ///
    /// # Errors
    /// What the disk says.
    pub fn seek(&self, to: StartAt) -> Result<Moved, ReadError> {
        // The place is not deleted before the group is there.
        let placing = self.shared.placing.lock();
        let moved = self.cursors.seek(&start(&self.shared, to)?);
        drop(placing);
        self.flush().map(|()| moved)
    }

    /// Returns when the oldest record that still has pending documents was written, in ms since 1970; none if
    /// everything is done. The time since then is the lag. This reads a little of the disk for each lane that
    /// is not at its end, so call it only now and then.
    ///
    /// # Errors
    /// What the disk says.
    pub fn oldest_pending_ms(&self) -> Result<Option<u64>, ReadError> {
        let status = self.status();
        let mut oldest: Option<u64> = None;
        for (lane, _) in (0..)
            .zip(&status.lanes)
            .filter(|(_, lane)| lane.done < lane.accepted)
        {
            let time = self.reader(lane)?.peek_time()?;
            oldest = [oldest, time].into_iter().flatten().min();
        }
        Ok(oldest)
    }

    /// Returns the numbers of the group and its lanes.
    #[must_use]
    pub fn status(&self) -> ConsumerStatus {
        status(&self.cursors, &self.shared.state.lock())
    }
}

/// Returns the numbers of a consumer. The caller has locked the state, so that nothing is accepted meanwhile.
pub(crate) fn status(cursors: &Cursors, state: &Readable) -> ConsumerStatus {
    let now = cursors.now();
    let lanes: Vec<_> = now
        .iter()
        .zip(&state.totals.lanes)
        .map(|(cursor, total)| cursor.status(*total))
        .collect();
    let sum = |of: fn(&crate::LaneStatus) -> u64| lanes.iter().map(of).sum::<u64>();
    let (dead, lost) = (sum(|lane| lane.dead), sum(|lane| lane.lost));
    let (skipped, rewound) = (sum(|lane| lane.skipped), sum(|lane| lane.rewound));
    ConsumerStatus {
        name: cursors.name.clone(),
        indexed: sum(|lane| lane.done) + rewound - dead - lost - skipped,
        dead,
        lost,
        skipped,
        rewound,
        pending: sum(|lane| lane.accepted - lane.done),
        pending_bytes: sum(|lane| lane.pending_bytes),
        lanes,
    }
}

/// Returns the cursors of a consumer that starts at this place.
pub(crate) fn start(shared: &OpenLog, at: StartAt) -> Result<Vec<Cursor>, ReadError> {
    let by_time = match at {
        StartAt::Time(time_ms) => first_at(shared, time_ms)?,
        _ => 0,
    };
    let (end, totals, position, first) = {
        let state = shared.state.lock();
        let position = match at {
            StartAt::Oldest => state.start(),
            StartAt::Newest => state.end,
            StartAt::Position(position) => position.clamp(state.start(), state.end),
            StartAt::Time(_) => by_time,
        };
        (
            state.end,
            state.totals.clone(),
            position,
            state.segment_at(position),
        )
    };
    let at_end = |totals: &crate::format::index::Totals, position| {
        let cursor = |total: &crate::format::index::LaneTotal| Cursor {
            position,
            documents: total.documents,
            bytes: total.bytes,
            ..Cursor::default()
        };
        totals.lanes.iter().map(cursor).collect::<Vec<_>>()
    };
    let Some(first) = first.filter(|_| position < end) else {
        return Ok(at_end(&totals, end));
    };
    let file = shared.folder.open_segment(first)?;
    let broken = || {
        let why = "its header is damaged, and nothing else says what is before it";
        let why = std::io::Error::new(std::io::ErrorKind::InvalidData, why);
        read_error("cannot start with", &shared.folder.segment(first), why)
    };
    let mut totals = totals::before(shared, &*file, first)?.ok_or_else(broken)?;
    if position <= first {
        return Ok(at_end(&totals, first));
    }
    // Count the records before the start in its segment.
    let scan = scan_of(shared, &*file, first);
    let records_end = records_end(shared, &*file, first)?;
    // If none is found, the next record is beyond this segment's records.
    let mut start = position.max(first + records_end);
    let scanned = scan.run(Header::bytes(shared.folder.lanes)..records_end, |found| {
        if let Scanned::Record { parsed, .. } = found {
            if parsed.head.position >= position {
                start = parsed.head.position;
                return ControlFlow::Break(());
            }
            totals.add(
                parsed
                    .directory
                    .iter()
                    .map(|group| (group.lane, group.documents, group.raw)),
            );
        }
        ControlFlow::Continue(())
    });
    scanned.map_err(|source| read_error("cannot read", &shared.folder.segment(first), source))?;
    Ok(at_end(&totals, start))
}

/// Returns the position of the first record written at this time or later; the end, if there is none.
fn first_at(shared: &OpenLog, time_ms: u64) -> Result<u64, ReadError> {
    let (firsts, end) = {
        let state = shared.state.lock();
        (state.segments.keys().copied().collect::<Vec<_>>(), state.end)
    };
    // Find the last segment that was begun before that time: the record is in it, or is the first of the next
    // segment.
    let mut begun = firsts.first().copied().unwrap_or(end);
    for &first in &firsts {
        let file = shared.folder.open_segment(first)?;
        match shared.folder.header(&*file, first)? {
            Some(header) if header.time_ms >= time_ms => break,
            _ => begun = first,
        }
    }
    let mut position = end;
    for first in firsts.into_iter().filter(|first| *first >= begun) {
        let file = shared.folder.open_segment(first)?;
        let records_end = records_end(shared, &*file, first)?;
        let within = Header::bytes(shared.folder.lanes)..records_end;
        let scanned = scan_of(shared, &*file, first).run(within, |found| match found {
            Scanned::Record { parsed, .. } if parsed.head.time_ms >= time_ms => {
                position = parsed.head.position;
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        });
        scanned.map_err(|source| read_error("cannot read", &shared.folder.segment(first), source))?;
        if position < end {
            break;
        }
    }
    Ok(position)
}
