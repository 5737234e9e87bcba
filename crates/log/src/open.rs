//! Opens a log: looks at its files, repairs what the last process left, and sets up what the threads share.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::format::folder::{CURSOR, Folder, NEW, open_error};
use crate::format::index::Index;
use crate::format::pool::Pool;
use crate::format::quarantine::Quarantine;
use crate::format::segment;
use crate::recover::recovery::{Recovered, Recovery};
use crate::shared::adjustable::Adjustable;
use crate::shared::ages::Ages;
use crate::shared::cursor::Cursors;
use crate::shared::queue::Queue;
use crate::shared::readable::Readable;
use crate::shared::spares::{self, Spares};
use crate::shared::{Calls, OpenLog};
use crate::write::watermark::{Watermark, WatermarkFile};
use crate::write::writer::Writer;
use crate::write::written::WrittenFile;
use crate::{Event, Lock, OpenError, Options};

/// The contents of a log's folder, going by the names of its files.
struct Files {
    /// The segments: the position of each one's first byte, and the file's length.
    segments: BTreeMap<u64, u64>,
    spares: Spares,
    consumers: BTreeMap<String, Arc<Cursors>>,
}

/// Opens the log in a folder that is already locked.
pub(crate) fn open(folder: Folder, options: Options, lock: Lock) -> Result<(OpenLog, Writer), OpenError> {
    let failed = |doing| {
        let path = folder.path.clone();
        move |source| open_error(doing, &path, source)
    };
    let files = Files::read(&folder)?;
    let (mark, sequence) = Watermark::read(&folder).map_err(failed("cannot read MARK in"))?;
    let written = WrittenFile::read(&folder).map_err(failed("cannot read WRITTEN in"))?;
    let quarantine = Quarantine::default();
    let recovery = Recovery {
        folder: &folder,
        options: &options,
        quarantine: &quarantine,
        mark,
        known: mark.or_further(written),
        consumers: files.consumers.values().map(|cursors| cursors.now()).collect(),
    };
    let recovered = recovery.run(files.segments)?;
    bring_back(&files.consumers, &folder, &recovered, &options)?;
    let now = Watermark {
        synced: recovered.end,
        records: recovered.totals.records,
        documents: recovered.totals.documents,
    };
    let mark = WatermarkFile::open(&folder, &now, sequence).map_err(failed("cannot open MARK in"))?;
    let active = recovered.active.as_ref();
    let writer = Writer::new(
        active.map(|active| (active.first, Arc::clone(&active.file), active.index.entries)),
        recovered.end,
        recovered.totals.clone(),
        mark,
    );
    let shared = OpenLog {
        state: Mutex::new(state(recovered, folder.lanes)),
        pool: Arc::new(Pool::default()),
        queue: Queue::default(),
        consumers: Mutex::new(files.consumers),
        placing: Mutex::default(),
        quarantine,
        spares: files.spares,
        ages: Ages::new(&*folder.disk),
        rebuilt: Mutex::new(None),
        bell: Condvar::new(),
        keeper_bell: Condvar::new(),
        calls: Mutex::new(Calls::default()),
        lock: Mutex::new(Some(lock)),
        folder,
        adjustable: Mutex::new(Adjustable::of(&options)),
        options,
    };
    shared.measure(&shared.state.lock());
    shared.measure_free();
    Ok((shared, writer))
}

/// Moves cursors that are beyond the log's end back to it, and makes that durable.
fn bring_back(
    consumers: &BTreeMap<String, Arc<Cursors>>,
    folder: &Folder,
    recovered: &Recovered,
    options: &Options,
) -> Result<(), OpenError> {
    for (name, cursors) in consumers {
        let ahead = cursors.clamp(recovered.end, &recovered.totals.lanes);
        // This comes before any append, which would take the place of the documents that the cursors counted
        // too many.
        cursors
            .write(folder)
            .map_err(|source| open_error("cannot write a cursor in", &folder.path, source))?;
        if let Some(documents) = ahead {
            (options.on_event)(&Event::CursorsAhead {
                consumer: name.clone(),
                documents,
            });
        }
    }
    Ok(())
}

/// Builds what readers may see of a log that has just been recovered.
fn state(recovered: Recovered, lanes: u32) -> Readable {
    Readable {
        segments: recovered.segments,
        active: recovered.active.as_ref().map(|active| active.first),
        end: recovered.end,
        totals: recovered.totals,
        syncs: 0,
        wakers: vec![Vec::new(); lanes as usize],
        index: recovered
            .active
            .map_or_else(|| Index::new(lanes), |active| active.index),
    }
}

// === impl Files ===

impl Files {
    /// Lists a folder and reads its cursors; removes files that were never finished.
    fn read(folder: &Folder) -> Result<Self, OpenError> {
        let failed = |doing| {
            let path = folder.path.clone();
            move |source| open_error(doing, &path, source)
        };
        let mut files = Self {
            segments: BTreeMap::new(),
            spares: Spares::default(),
            consumers: BTreeMap::new(),
        };
        for file in folder.disk.list(&folder.path).map_err(failed("cannot list"))? {
            if let Some(first) = segment::first_of(&file.name) {
                files.segments.insert(first, file.bytes);
            } else if let Some(first) = spares::first_of(&file.name) {
                // The keeper decides whether there is room for the file.
                files.spares.add(first, file.bytes, folder.disk.elapsed_ms());
            } else if file.name.ends_with(NEW) {
                folder
                    .disk
                    .remove(&folder.path.join(&file.name))
                    .map_err(failed("cannot remove a leftover in"))?;
            } else if let Some(name) = file.name.strip_suffix(CURSOR) {
                let cursors = Cursors::read(name, folder).map_err(failed("cannot read a cursor in"))?;
                let cursors = cursors.ok_or_else(|| OpenError::Format {
                    file: folder.path.join(&file.name),
                    why: "both of its slots are damaged".to_owned(),
                })?;
                files.consumers.insert(name.to_owned(), Arc::new(cursors));
            }
        }
        Ok(files)
    }
}
