//! The places of a lane's groups: in memory for the active segment, in the footer for other segments, rebuilt
//! where a footer is damaged.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use crate::disk::File;
use crate::format::folder::read_error;
use crate::format::index::{GroupEntry, Index, LaneTotal};
use crate::format::scan::Scanned;
use crate::format::segment::{Footer, Header};
use crate::read::extent::scan_of;
use crate::shared::OpenLog;
use crate::{Event, Lost, ReadError, WhyLost};

/// A lane's groups in a segment.
pub(crate) struct LaneGroups {
    pub(crate) entries: Vec<GroupEntry>,
    /// Whether more may come.
    pub(crate) live: bool,
}

/// Returns the segment that holds a position, or else the next one.
pub(crate) fn segment_at(shared: &OpenLog, position: u64) -> Option<u64> {
    shared.state.lock().segment_at(position)
}

/// Returns the segment after this one.
pub(crate) fn next_segment(shared: &OpenLog, first: u64) -> Option<u64> {
    shared
        .state
        .lock()
        .segments
        .range(first + 1..)
        .next()
        .map(|(next, _)| *next)
}

/// Returns whether a segment is there, as far as the log knows.
pub(crate) fn is_there(shared: &OpenLog, first: u64) -> bool {
    shared.state.lock().segments.contains_key(&first)
}

/// Returns the entries of a lane of the active segment after the first `known` ones; none if the segment is
/// no longer active.
pub(crate) fn more(shared: &OpenLog, first: u64, lane: u32, known: usize) -> Option<Vec<GroupEntry>> {
    let state = shared.state.lock();
    let active = state.active == Some(first);
    active.then(|| {
        state.index.lanes[lane as usize]
            .get(known..)
            .unwrap_or_default()
            .to_vec()
    })
}

/// Returns the log's end and the lane's total there, for a reader that has come to the end of the log. `view`
/// is the reader's segment, with the number of entries that it knows. None if there is more to read, or if
/// there never was a segment.
pub(crate) fn total_at_end(
    shared: &OpenLog,
    view: Option<(u64, usize)>,
    lane: u32,
) -> Option<(u64, LaneTotal)> {
    let state = shared.state.lock();
    let at_end = match view {
        Some((first, known)) => {
            let last = state
                .segments
                .last_key_value()
                .is_some_and(|(last, _)| *last <= first);
            last && (state.active != Some(first) || state.index.lanes[lane as usize].len() == known)
        }
        None => state.segments.is_empty(),
    };
    at_end.then(|| (state.end, state.totals.lanes[lane as usize]))
}

/// Returns all groups of a lane in a segment.
pub(crate) fn of(
    shared: &OpenLog,
    file: &Arc<dyn File>,
    first: u64,
    lane: u32,
) -> Result<LaneGroups, ReadError> {
    if let Some(entries) = more(shared, first, lane, 0) {
        return Ok(LaneGroups { entries, live: true });
    }
    let failed = |source| read_error("cannot read", &shared.folder.segment(first), source);
    let footer = Footer::read(&**file, first, shared.folder.lanes, shared.folder.key).map_err(failed)?;
    if let Some(footer) = &footer
        && let Some(entries) = footer.groups(&**file, lane, shared.folder.key).map_err(failed)?
    {
        return Ok(LaneGroups { entries, live: false });
    }
    let index = rebuilt(shared, file, first, footer.as_ref())?;
    Ok(LaneGroups {
        entries: index.lanes[lane as usize].clone(),
        live: false,
    })
}

/// Rebuilds the index of a segment whose index does not check from its records; `footer` is there if the rest
/// of it checks.
fn rebuilt(
    shared: &OpenLog,
    file: &Arc<dyn File>,
    first: u64,
    footer: Option<&Footer>,
) -> Result<Arc<Index>, ReadError> {
    let mut last = shared.rebuilt.lock();
    if let Some((of, index)) = last.as_ref()
        && *of == first
    {
        return Ok(Arc::clone(index));
    }
    let failed = |source| read_error("cannot read", &shared.folder.segment(first), source);
    let (mut index, mut records, mut bad) = (Index::new(shared.folder.lanes), 0, Vec::new());
    let end = footer.map_or_else(|| file.bytes(), |footer| Ok(footer.at));
    let within = Header::bytes(shared.folder.lanes)..end.map_err(failed)?;
    let scanned = scan_of(shared, &**file, first).run(within, |found| {
        match found {
            Scanned::Record { at, parsed, .. } => {
                index.add(at as u32, &parsed);
                records += 1;
            }
            Scanned::Bad(range) => bad.push(range),
        }
        ControlFlow::Continue(())
    });
    scanned.map_err(failed)?;
    if is_complete(shared, file, first, records, footer)? {
        shared.tell(&Event::IndexRebuilt { segment: first });
    } else {
        bad.into_iter()
            .for_each(|range| damaged(shared, &**file, first, &range));
    }
    let index = Arc::new(index);
    *last = Some((first, Arc::clone(&index)));
    Ok(index)
}

/// Returns whether these are all the records that a segment had, going by the running totals: then only its
/// index is damaged.
fn is_complete(
    shared: &OpenLog,
    file: &Arc<dyn File>,
    first: u64,
    records: u64,
    footer: Option<&Footer>,
) -> Result<bool, ReadError> {
    let folder = &shared.folder;
    let after = match (footer, next_segment(shared, first)) {
        (Some(footer), _) => Some(footer.totals.records),
        (None, Some(next)) => {
            let header = folder.header(&*folder.open_segment(next)?, next)?;
            header.map(|header| header.totals.records)
        }
        (None, None) => None,
    };
    let before = folder.header(&**file, first)?;
    Ok(before
        .zip(after)
        .is_some_and(|(before, after)| before.totals.records + records == after))
}

/// Reports damage. The documents in it are counted lane by lane at the next running total.
fn damaged(shared: &OpenLog, file: &dyn File, first: u64, range: &Range<u64>) {
    let range = first + range.start..first + range.end;
    let most = shared.options.quarantine_bytes_max;
    let quarantined = shared.quarantine.keep(&shared.folder, file, first, &range, most);
    shared.tell(&Event::Lost(Lost {
        range,
        lane: None,
        documents: None,
        why: WhyLost::Damaged,
        quarantined,
    }));
}
