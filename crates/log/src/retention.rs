//! Deletes segments that are no longer wanted, oldest first, and makes cursors durable before.

use std::sync::Arc;

use crate::cursor::Cursors;
use crate::lock::lock;
use crate::segment::Header;
use crate::shared::Shared;
use crate::{AppendError, Event, Full, Lost, ReadError, WhyLost};

/// One round: cursors, then segments.
pub(crate) fn turn(shared: &Shared) {
    let consumers = shared.cursors();
    for cursors in &consumers {
        if let Err(error) = cursors.write(&shared.folder) {
            shared.tell(&Event::CursorsStuck {
                consumer: cursors.name.clone(),
                why: error.to_string(),
            });
        }
    }
    if wants_roll(shared, &consumers) {
        lock(&shared.writer).roll(shared);
    }
    match delete(shared, &consumers) {
        Ok(()) => {}
        Err(error) => shared.tell(&Event::RetentionStuck {
            why: error.to_string(),
        }),
    }
    shared.measure_free();
}

/// Whether the segment that is being written should end, since all of it was read and its room is needed. Without this
/// a log whose quota is small would fill up with what everybody has read.
fn wants_roll(shared: &Shared, consumers: &[Arc<Cursors>]) -> bool {
    let room = shared
        .queue
        .admit(shared.adjustable().segment_bytes / 2, &shared.room());
    // That much is more than may wait at once, so records on their way say nothing of the disk.
    let tight = !matches!(room, Ok(()) | Err(AppendError::Full(Full::Waiting { .. })));
    if !tight || consumers.is_empty() {
        return false;
    }
    let totals = lock(&shared.state).totals.clone();
    consumers.iter().all(|cursors| {
        let behind = |(cursor, total): (&crate::cursor::Cursor, &crate::index::LaneTotal)| {
            cursor.documents >= total.documents
        };
        cursors.durable().iter().zip(&totals.lanes).all(behind)
    })
}

fn delete(shared: &Shared, consumers: &[Arc<Cursors>]) -> Result<(), ReadError> {
    loop {
        let (first, next, bytes) = {
            let state = lock(&shared.state);
            let mut firsts = state.segments.keys();
            // The last one is never deleted: it says where the log goes on.
            let (Some(&first), Some(&next)) = (firsts.next(), firsts.next()) else {
                return Ok(());
            };
            (first, next, state.bytes())
        };
        let file = shared.folder.open_segment(next)?;
        // Without the running totals nobody can tell what a segment held: it stays, and whoever reads it hears of it.
        let Some(header) = shared.folder.header(&*file, next)? else {
            return Ok(());
        };
        let consumed =
            !consumers.is_empty() && consumers.iter().all(|cursors| is_past(cursors, next, &header));
        let age_ms = shared.folder.disk.now_ms().saturating_sub(header.time_ms);
        let retention = shared.adjustable().retention;
        let goes = if consumed {
            u128::from(age_ms) >= retention.keep_for.as_millis() && bytes > retention.keep_bytes
        } else {
            retention.discard.is_some_and(|discard| {
                u128::from(age_ms) > discard.older_than.as_millis() || bytes > discard.beyond_bytes
            })
        };
        if !goes {
            return Ok(());
        }
        remove(shared, first)?;
        if !consumed {
            shared.tell(&Event::Lost(Lost {
                range: first..next,
                lane: None,
                documents: None,
                why: WhyLost::Discarded,
                quarantined: None,
            }));
        }
    }
}

/// Whether everything before the segment with this header is done, durably.
fn is_past(cursors: &Cursors, first: u64, header: &Header) -> bool {
    let lanes = cursors.durable();
    lanes
        .iter()
        .zip(&header.totals.lanes)
        .all(|(cursor, total)| cursor.position >= first || cursor.documents >= total.documents)
}

fn remove(shared: &Shared, first: u64) -> Result<(), ReadError> {
    // Out of sight first: a reader that comes upon a file that is gone looks again.
    let bytes = lock(&shared.state).segments.remove(&first);
    let path = shared.folder.segment(first);
    let removed = shared.folder.disk.remove(&path);
    if let Err(error) = removed {
        if let Some(bytes) = bytes {
            lock(&shared.state).segments.insert(first, bytes);
        }
        return Err(crate::folder::read_error("cannot remove", &path, error));
    }
    shared.measure(&lock(&shared.state));
    let synced = shared.folder.disk.sync_folder(&shared.folder.path);
    synced.map_err(|error| crate::folder::read_error("cannot sync the removal of", &path, error))
}
