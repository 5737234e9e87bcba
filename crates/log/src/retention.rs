//! Deletes segments that are no longer wanted, oldest first, after making cursors durable.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use crate::format::folder::read_error;
use crate::read::totals::{self, Known};
use crate::shared::OpenLog;
use crate::shared::cursor::{Cursor, Cursors};
use crate::write::writer::Writer;
use crate::{AppendError, Event, Full, Lost, ReadError, WhyLost};

/// Runs one round: cursors first, then segments.
pub(crate) fn turn(shared: &OpenLog, writer: &Mutex<Writer>) {
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
        writer.lock().roll(shared);
    }
    let deleted = delete(shared);
    shared.measure_free();
    let folder = &shared.folder;
    let tidied = shared.spares.tidy(folder, spare_bytes_max(shared));
    let tidied = tidied.map_err(|error| read_error("cannot remove a spare file in", &folder.path, error));
    if let Err(error) = deleted.and(tidied) {
        shared.tell(&Event::RetentionStuck {
            why: error.to_string(),
        });
    }
}

/// Returns the bytes that spare files may take: never room that the log itself could want.
fn spare_bytes_max(shared: &OpenLog) -> u64 {
    let now = shared.adjustable();
    let (used, free) = (&shared.queue.used, &shared.queue.free);
    if free.load(Ordering::Relaxed) < now.free_bytes_min.saturating_mul(2) {
        return 0;
    }
    match now.quota_bytes {
        0 => now.spare_bytes,
        quota => now
            .spare_bytes
            .min(quota.saturating_sub(used.load(Ordering::Relaxed))),
    }
}

/// Returns whether the segment that is being written should end, because all of it was read and its room is
/// needed. Otherwise a log with a small quota would fill up with records that every consumer has read.
fn wants_roll(shared: &OpenLog, consumers: &[Arc<Cursors>]) -> bool {
    let room = shared
        .queue
        .admit(shared.adjustable().segment_bytes / 2, &shared.room());
    // Half a segment is more than may wait at once, so a lack of waiting room says nothing about the disk.
    let tight = !matches!(room, Ok(()) | Err(AppendError::Full(Full::Waiting { .. })));
    if !tight || consumers.is_empty() {
        return false;
    }
    let totals = shared.state.lock().totals.clone();
    consumers.iter().all(|cursors| {
        let behind = |(cursor, total): (&Cursor, &crate::format::index::LaneTotal)| {
            cursor.documents >= total.documents
        };
        cursors.durable().iter().zip(&totals.lanes).all(behind)
    })
}

fn delete(shared: &OpenLog) -> Result<(), ReadError> {
    loop {
        // No consumer is given a place in a segment while it is decided that nobody wants the segment.
        let _placing = shared.placing.lock();
        let consumers = shared.cursors();
        let (first, next, bytes) = {
            let state = shared.state.lock();
            let mut firsts = state.segments.keys();
            // The last one is never deleted: it says where the log continues.
            let (Some(&first), Some(&next)) = (firsts.next(), firsts.next()) else {
                return Ok(());
            };
            (first, next, state.bytes())
        };
        let known = totals::after(shared, first, next)?;
        let consumed = !consumers.is_empty() && consumers.iter().all(|cursors| is_past(cursors, &known));
        let age_ms = shared
            .ages
            .of(next, known.time_ms, shared.folder.disk.elapsed_ms());
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

/// Returns whether everything before a place is done, durably, and is not to be done once more.
fn is_past(cursors: &Cursors, known: &Known) -> bool {
    let is_past = |lanes: &[Cursor]| {
        lanes
            .iter()
            .zip(&known.totals.lanes)
            .all(|(cursor, total)| cursor.position >= known.position || cursor.documents >= total.documents)
    };
    is_past(&cursors.durable()) && is_past(&cursors.now())
}

fn remove(shared: &OpenLog, first: u64) -> Result<(), ReadError> {
    let (folder, spares) = (&shared.folder, &shared.spares);
    // The segment is hidden first: a reader that finds a file gone looks again.
    let bytes = shared.state.lock().segments.remove(&first).unwrap_or(0);
    let path = folder.segment(first);
    let most = spare_bytes_max(shared);
    let gone = spares
        .set_aside(folder, first, bytes, most)
        .and_then(|spare| match spare {
            true => Ok(true),
            false => folder.disk.remove(&path).map(|()| false),
        });
    let spare = match gone {
        Ok(spare) => spare,
        Err(error) => {
            shared.state.lock().segments.insert(first, bytes);
            return Err(read_error("cannot remove", &path, error));
        }
    };
    shared.measure(&shared.state.lock());
    let synced = folder.disk.sync_folder(&folder.path);
    synced.map_err(|error| read_error("cannot sync the removal of", &path, error))?;
    if spare {
        // Not earlier: a power cut could otherwise bring the segment back under its old name, with other
        // contents.
        spares.add(first, bytes, folder.disk.elapsed_ms());
    }
    Ok(())
}
