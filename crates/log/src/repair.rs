//! Repairs what can be repaired without losing anything more.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::disk::Disk;
use crate::format::folder::{CURSOR, Folder, LOCK, LOG, QUARANTINE, open_error};
use crate::format::index::Index;
use crate::format::scan::Scanned;
use crate::format::segment::{Footer, Header};
use crate::read::extent::scan_of;
use crate::recover::recovery::as_open;
use crate::shared::OpenLog;
use crate::shared::cursor::Cursors;
use crate::{Drive, Event, Log, OpenError, Options};

/// What a repair did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// What opening the log found and repaired: a torn end cut off, damage copied to `quarantine/`.
    pub events: Vec<Event>,
    /// Segments whose index was rebuilt.
    pub indexes: Vec<u64>,
    /// Consumer groups whose cursors could not be read: the files are in `quarantine/`, and the groups start
    /// over.
    pub cursors: Vec<String>,
}

/// Cuts a torn end off, copies damage to `quarantine/`, rebuilds damaged indexes, and sets aside cursors that
/// cannot be read. Damaged records stay where they are: readers are told that their positions are lost. No
/// gateway may be running on the log.
///
/// # Errors
/// [`OpenError::Locked`] while a gateway is running; an error if there is no log, or if the disk fails.
pub fn repair(path: impl AsRef<Path>, disk: impl Disk + Clone) -> Result<Repaired, OpenError> {
    let path = path.as_ref();
    let none = || open_error("cannot read", &path.join(LOG), io::ErrorKind::NotFound.into());
    let folder = Folder::existing(path, Arc::new(disk.clone()))?.ok_or_else(none)?;
    let held = disk.lock(&path.join(LOCK)).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => OpenError::Locked(path.to_owned()),
        _ => open_error("cannot lock", path, error),
    })?;
    let mut repaired = Repaired::default();
    set_cursors_aside(&folder, &mut repaired)
        .map_err(|source| open_error("cannot set cursors aside in", path, source))?;
    drop(held);

    let events = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&events);
    let options = Options {
        drive: Drive::ByHand,
        on_event: Arc::new(move |event| told.lock().push(event.clone())),
        ..Options::default()
    };
    let log = Log::open(path, options, disk)?;
    write_indexes(log.shared(), &mut repaired)?;
    log.close();
    repaired.events = std::mem::take(&mut events.lock());
    Ok(repaired)
}

fn set_cursors_aside(folder: &Folder, repaired: &mut Repaired) -> io::Result<()> {
    for file in folder.disk.list(&folder.path)? {
        let Some(name) = file.name.strip_suffix(CURSOR) else {
            continue;
        };
        if Cursors::read(name, folder)?.is_none() {
            let aside = folder.path.join(QUARANTINE);
            folder.disk.create_folder(&aside)?;
            folder
                .disk
                .rename(&folder.path.join(&file.name), &aside.join(&file.name))?;
            folder.disk.sync_folder(&aside)?;
            folder.disk.sync_folder(&folder.path)?;
            repaired.cursors.push(name.to_owned());
        }
    }
    Ok(())
}

/// Rebuilds the index of each full segment whose index is missing or does not check, if all its records are
/// there: then the index fits.
fn write_indexes(shared: &OpenLog, repaired: &mut Repaired) -> Result<(), OpenError> {
    let firsts: Vec<u64> = shared.state.lock().segments.keys().copied().collect();
    for pair in firsts.windows(2) {
        let (first, next) = (pair[0], pair[1]);
        let path = shared.folder.segment(first);
        let failed = |source| open_error("cannot write the index of", &path, source);
        let file = shared.folder.disk.open_to_write(&path).map_err(failed)?;
        let (lanes, key) = (shared.folder.lanes, shared.folder.key);
        let footer = Footer::read(&*file, first, lanes, key).map_err(failed)?;
        let checks = |lane| {
            footer.as_ref().map_or(Ok(false), |footer| {
                Ok(footer.groups(&*file, lane, key)?.is_some())
            })
        };
        let all: io::Result<Vec<bool>> = (0..lanes).map(checks).collect();
        if all.map_err(failed)?.into_iter().all(|checks| checks) {
            continue;
        }
        let Some(header) = shared.folder.header(&*file, first).map_err(as_open)? else {
            continue;
        };
        let (mut index, mut totals, mut end) = (Index::new(lanes), header.totals, Header::bytes(lanes));
        let within = end..file.bytes().map_err(failed)?;
        let scanned = scan_of(shared, &*file, first).run(within, |found| {
            if let Scanned::Record { at, parsed, .. } = found {
                totals.add_record(&parsed);
                index.add(at as u32, &parsed);
                end = at + parsed.head.record_bytes();
            }
            std::ops::ControlFlow::Continue(())
        });
        scanned.map_err(failed)?;
        let encoded = Footer::encode(first, &index, &totals, key);
        if first + end + encoded.len() as u64 == next {
            let written = file
                .write_at(&mut [IoSlice::new(&encoded)], end)
                .and_then(|()| file.sync());
            written.map_err(failed)?;
            repaired.indexes.push(first);
        }
    }
    Ok(())
}
