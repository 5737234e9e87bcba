//! The running totals between two segments, also where the header that has them is damaged.

use std::ops::ControlFlow;

use crate::ReadError;
use crate::disk::File;
use crate::format::folder::read_error;
use crate::format::index::Totals;
use crate::format::scan::Scanned;
use crate::format::segment::{Footer, Header};
use crate::read::extent::scan_of;
use crate::read::groups;
use crate::shared::OpenLog;

/// How much the log had by a place.
pub(crate) struct Known {
    pub(crate) position: u64,
    pub(crate) totals: Totals,
    /// When a segment was begun there or later, in ms since 1970.
    pub(crate) time_ms: u64,
}

/// Returns the totals at the end of a segment that is followed by `next`; if nothing has them any more, the
/// first ones behind it that are known.
pub(crate) fn after(shared: &OpenLog, first: u64, next: u64) -> Result<Known, ReadError> {
    let header = header_from(shared, next)?;
    if let Some(header) = header.as_ref().filter(|header| header.first == next) {
        return Ok(Known::of(header));
    }
    // Nothing says when the next segment was begun. A later one was begun later: so a segment looks younger
    // than it is, and is not deleted too early.
    let time_ms = header.as_ref().map_or(u64::MAX, |header| header.time_ms);
    let file = shared.folder.open_segment(first)?;
    if let Some(footer) = footer(shared, &*file, first)? {
        return Ok(Known {
            position: next,
            totals: footer.totals,
            time_ms,
        });
    }
    Ok(header.as_ref().map_or_else(
        || {
            let state = shared.state.lock();
            Known {
                position: state.end,
                totals: state.totals.clone(),
                time_ms,
            }
        },
        Known::of,
    ))
}

/// Returns the totals at the beginning of a segment: by its header, or else by the footer of the segment that
/// ends there, or else by its own end without its records. In the last case, its damaged records count as if
/// they were before it. None if nothing is left to tell.
pub(crate) fn before(shared: &OpenLog, file: &dyn File, first: u64) -> Result<Option<Totals>, ReadError> {
    if let Some(header) = shared.folder.header(file, first)? {
        return Ok(Some(header.totals));
    }
    if first == 0 {
        return Ok(Some(Totals::new(shared.folder.lanes)));
    }
    let earlier = {
        let state = shared.state.lock();
        let earlier = state.segments.range(..first).next_back();
        // The totals at the end of another segment lack those of a missing one in between.
        earlier
            .filter(|(earlier, bytes)| **earlier + **bytes == first)
            .map(|(earlier, _)| *earlier)
    };
    if let Some(earlier) = earlier {
        let file = shared.folder.open_segment(earlier)?;
        if let Some(footer) = footer(shared, &*file, earlier)? {
            return Ok(Some(footer.totals));
        }
    }
    let Some((end, mut totals)) = end_of(shared, file, first)? else {
        return Ok(None);
    };
    let within = Header::bytes(shared.folder.lanes)..end;
    let scanned = scan_of(shared, file, first).run(within, |found| {
        if let Scanned::Record { parsed, .. } = found {
            totals.subtract(&parsed);
        }
        ControlFlow::Continue(())
    });
    scanned.map_err(|source| read_error("cannot read", &shared.folder.segment(first), source))?;
    Ok(Some(totals))
}

/// Returns where a segment's records end, in bytes from the file's start, and the totals there.
fn end_of(shared: &OpenLog, file: &dyn File, first: u64) -> Result<Option<(u64, Totals)>, ReadError> {
    {
        let state = shared.state.lock();
        if state.active == Some(first) {
            return Ok(Some((state.end - first, state.totals.clone())));
        }
    }
    if let Some(footer) = footer(shared, file, first)? {
        return Ok(Some((footer.at, footer.totals)));
    }
    let bytes = file
        .bytes()
        .map_err(|source| read_error("cannot read", &shared.folder.segment(first), source))?;
    let next = groups::next_segment(shared, first).filter(|next| *next == first + bytes);
    let Some(next) = next else { return Ok(None) };
    let header = shared.folder.header(&*shared.folder.open_segment(next)?, next)?;
    Ok(header.map(|header| (bytes, header.totals)))
}

/// Returns the first header that checks, of this segment or of later ones.
fn header_from(shared: &OpenLog, first: u64) -> Result<Option<Header>, ReadError> {
    let mut segment = Some(first);
    while let Some(first) = segment {
        let file = shared.folder.open_segment(first)?;
        if let Some(header) = shared.folder.header(&*file, first)? {
            return Ok(Some(header));
        }
        segment = groups::next_segment(shared, first);
    }
    Ok(None)
}

fn footer(shared: &OpenLog, file: &dyn File, first: u64) -> Result<Option<Footer>, ReadError> {
    let footer = Footer::read(file, first, shared.folder.lanes, shared.folder.key);
    footer.map_err(|source| read_error("cannot read", &shared.folder.segment(first), source))
}

// === impl Known ===

impl Known {
    fn of(header: &Header) -> Self {
        Self {
            position: header.first,
            totals: header.totals.clone(),
            time_ms: header.time_ms,
        }
    }
}
