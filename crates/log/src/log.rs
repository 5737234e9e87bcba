//! The log as its users hold it.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};

use crate::adjust::Adjustable;
use crate::format::folder::{CURSOR, Folder, LOCK, NEW, open_error, read_error};
use crate::format::index::Index;
use crate::format::pool::Pool;
use crate::format::quarantine::Quarantine;
use crate::format::segment;
use crate::lock::lock;
use crate::read::consumer::{self, Consumer, StartAt};
use crate::read::cursor::Cursors;
use crate::recover::recovery::Recovery;
use crate::retain::ages::Ages;
use crate::retain::retention;
use crate::retain::spares::{self, Spares};
use crate::shared::{Calls, Shared};
use crate::state::State;
use crate::threads;
use crate::write::append::Append;
use crate::write::queue::{Job, Queue};
use crate::write::watermark::{Watermark, WatermarkFile};
use crate::write::writer::Writer;
use crate::{
    AppendError, Browse, ConsumerStatus, Disk, Drive, Event, LANES_MAX, OpenError, Options, ReadError,
    Receipt, Record, Status,
};

/// An open log. Cheap to clone, for as many threads as there are; the last one dropped closes it. Consumers and readers
/// of a closed log still read.
#[derive(Clone)]
pub struct Log {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

// === impl Log ===

impl Log {
    /// Opens the log in a folder, or makes it. Reads the last segment, and no other, whatever the backlog.
    ///
    /// # Errors
    /// [`OpenError::Locked`] while another process has it; what is wrong with it otherwise. A log that was damaged opens:
    /// [`crate::Event`]s tell what was found.
    pub fn open(folder: impl AsRef<Path>, options: Options, disk: impl Disk) -> Result<Self, OpenError> {
        check(&options)?;
        let (path, disk): (_, Arc<dyn Disk>) = (folder.as_ref(), Arc::new(disk));
        disk.create_folder(path)
            .map_err(|source| open_error("cannot make", path, source))?;
        let lock = disk.lock(&path.join(LOCK)).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => OpenError::Locked(path.to_owned()),
            _ => open_error("cannot lock", &path.join(LOCK), error),
        })?;
        let drive = options.drive;
        let shared = Arc::new(open(Folder::open(path, options.lanes, disk)?, options, lock)?);
        let threads = match drive {
            Drive::ByHand => Vec::new(),
            Drive::Threads => threads::start(&shared)
                .map_err(|source| open_error("cannot start threads for", path, source))?,
        };
        Ok(Self {
            handle: Arc::new(Handle {
                shared,
                threads: Mutex::new(threads),
            }),
        })
    }

    /// How many lanes it has.
    #[must_use]
    pub fn lanes(&self) -> u32 {
        self.shared().folder.lanes
    }

    /// A record to fill. `params` come back with each of its groups; they are on disk in clear.
    #[must_use]
    pub fn record(&self, kind: u8, params: &[u8]) -> Record {
        let shared = self.shared();
        Record::new(
            kind,
            params,
            shared.folder.lanes,
            shared.adjustable().codec,
            Arc::clone(&shared.pool),
        )
    }

    /// Hands a record to the writer and returns at once. `done` is called once: from here if there is no room, or else on
    /// the writer's thread, when the record is durable. It must be quick: other clients wait behind it.
    ///
    /// Records of one thread are written in the order of the calls.
    pub fn append(&self, record: Record, done: impl FnOnce(Result<Receipt, AppendError>) + Send + 'static) {
        let shared = self.shared();
        if let Err(error) = record.check() {
            return done(Err(error));
        }
        let job = Job {
            bytes: record.bytes(),
            record,
            done: Box::new(done),
        };
        match shared.queue.push(job, &shared.room()) {
            Ok(()) => shared.ring(),
            Err(refused) => {
                let (job, error) = *refused;
                (job.done)(Err(error));
            }
        }
    }

    /// As [`Log::append`], to be awaited on any runtime.
    pub fn append_async(&self, record: Record) -> Append {
        let (append, settle) = Append::new();
        self.append(record, |result| settle.settle(result));
        append
    }

    /// As [`Log::append`], and waits.
    ///
    /// # Errors
    /// As told to `done`.
    pub fn append_blocking(&self, record: Record) -> Result<Receipt, AppendError> {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        self.append(record, move |result| {
            // Whoever waited is there until this comes.
            let _ = sender.send(result);
        });
        if self.shared().options.drive == Drive::ByHand {
            self.write_turn();
        }
        receiver.recv().unwrap_or(Err(AppendError::Closed))
    }

    /// Whether a record of this length would be refused now, to answer before a body is read.
    ///
    /// # Errors
    /// Why it would be.
    pub fn admit(&self, bytes: u64) -> Result<(), AppendError> {
        self.shared().queue.admit(bytes, &self.shared().room())
    }

    /// The consumer group of this name; made, with its cursors durable, if there is none.
    ///
    /// # Errors
    /// If the name is none, or the disk fails.
    pub fn consumer(&self, name: &str, start: StartAt) -> Result<Consumer, ReadError> {
        let shared = self.shared();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if !(1..=64).contains(&name.len()) || !name.bytes().all(plain) {
            return Err(ReadError::Name(name.to_owned()));
        }
        let consumer = |cursors: &Arc<Cursors>| Consumer {
            shared: Arc::clone(shared),
            cursors: Arc::clone(cursors),
        };
        if let Some(cursors) = lock(&shared.consumers).get(name) {
            return Ok(consumer(cursors));
        }
        let mut start = consumer::start(shared, start)?;
        for cursor in &mut start {
            // What was there before is not its own doing.
            cursor.skipped = cursor.documents;
        }
        let mut consumers = lock(&shared.consumers);
        if let Some(cursors) = consumers.get(name) {
            return Ok(consumer(cursors));
        }
        let made = Cursors::create(name, start, &shared.folder);
        let made =
            made.map_err(|source| read_error("cannot write a cursor in", &shared.folder.path, source))?;
        let cursors = consumers.entry(name.to_owned()).or_insert(Arc::new(made));
        Ok(consumer(cursors))
    }

    /// The names of all consumer groups.
    #[must_use]
    pub fn consumers(&self) -> Vec<String> {
        lock(&self.shared().consumers).keys().cloned().collect()
    }

    /// Forgets a consumer group and its cursors: nothing is kept for it any more. Nothing happens if there is none.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn remove_consumer(&self, name: &str) -> Result<(), ReadError> {
        let shared = self.shared();
        let Some(cursors) = lock(&shared.consumers).remove(name) else {
            return Ok(());
        };
        let removed = cursors.remove(&shared.folder);
        removed.map_err(|source| read_error("cannot remove a cursor in", &shared.folder.path, source))
    }

    /// Records from the first that starts at or after a position, whole.
    #[must_use]
    pub fn browse(&self, from: u64) -> Browse {
        Browse {
            shared: Arc::clone(self.shared()),
            at: from,
        }
    }

    /// The log in numbers.
    #[must_use]
    pub fn status(&self) -> Status {
        status(self.shared(), &lock(&self.shared().state))
    }

    /// The numbers of the log and of all its consumers at one instant: what is accepted in one is neither missing nor
    /// doubled in the others.
    #[must_use]
    pub fn accounts(&self) -> (Status, Vec<ConsumerStatus>) {
        let shared = self.shared();
        let state = lock(&shared.state);
        let consumers = shared.cursors();
        let consumers = consumers
            .iter()
            .map(|cursors| consumer::status(cursors, &state))
            .collect();
        (status(shared, &state), consumers)
    }

    /// Ends the segment that is being written, if it holds anything, so that it can go as soon as all consumers are past
    /// it. Without this the last segment stays, since it says where the log goes on.
    pub fn roll(&self) {
        lock(&self.shared().writer).roll(self.shared());
    }

    /// Writes what was handed over, refuses more, makes everything durable, ends the threads and unlocks the folder.
    pub fn close(&self) {
        self.handle.close();
    }

    /// [`crate::Drive::ByHand`]: writes and syncs what has gathered, as the writer's thread would; returns how many
    /// records.
    pub fn write_turn(&self) -> usize {
        lock(&self.shared().writer).turn(self.shared())
    }

    /// [`crate::Drive::ByHand`]: makes cursors durable and deletes what may go, as the keeper's thread would.
    pub fn keep_turn(&self) {
        lock(&self.shared().writer).sync_if_due(self.shared());
        retention::turn(self.shared());
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }
}

// === impl Handle ===

impl Handle {
    fn close(&self) {
        let threads = std::mem::take(&mut *lock(&self.threads));
        let here = thread::current().id();
        if threads.iter().any(|thread| thread.thread().id() == here) {
            // Called by a completion: the writer cannot wait for itself.
            let shared = Arc::clone(&self.shared);
            if let Err(error) = threads::spawn("log-close", move || close(&shared, threads)) {
                // The threads end by themselves once they are told; the folder's lock goes with the last of them.
                self.shared.queue.refuse(AppendError::Closed);
                threads::tell_to_stop(&self.shared);
                let why = format!("no thread to close the log with: {error}");
                self.shared.tell(&Event::RetentionStuck { why });
            }
        } else {
            close(&self.shared, threads);
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}

fn close(shared: &Shared, threads: Vec<JoinHandle<()>>) {
    shared.queue.refuse(AppendError::Closed);
    threads::stop(shared, threads);
    let Some(folder_lock) = lock(&shared.lock).take() else {
        return;
    };
    let mut writer = lock(&shared.writer);
    while !shared.queue.is_empty() {
        writer.turn(shared);
    }
    writer.close(shared);
    drop(writer);
    for cursors in shared.cursors() {
        // Said as it would have been by the keeper: what is not durable is delivered again.
        if let Err(error) = cursors.write(&shared.folder) {
            let (consumer, why) = (cursors.name.clone(), error.to_string());
            shared.tell(&Event::CursorsStuck { consumer, why });
        }
    }
    drop(folder_lock);
}

pub(crate) fn check(options: &Options) -> Result<(), OpenError> {
    let wrong = |what: String| Err(OpenError::Options(what));
    if !(1..=LANES_MAX).contains(&options.lanes) {
        return wrong(format!("a log has 1 to {LANES_MAX} lanes, not {}", options.lanes));
    }
    let (least, most) = (4 << 10, 2 << 30);
    if !(least..=most).contains(&options.segment_bytes) {
        return wrong(format!(
            "a segment has {least} to {most} bytes, not {}",
            options.segment_bytes
        ));
    }
    let least = options.segment_bytes.saturating_mul(2);
    if options.quota_bytes != 0 && options.quota_bytes < least {
        return wrong(format!(
            "the quota is at least two segments, {least} bytes, not {}",
            options.quota_bytes
        ));
    }
    Ok(())
}

fn open(folder: Folder, options: Options, lock: crate::Lock) -> Result<Shared, OpenError> {
    let failed = |doing| {
        let path = folder.path.clone();
        move |source| open_error(doing, &path, source)
    };
    let (mut segments, spares) = (BTreeMap::new(), Spares::default());
    let mut consumers = BTreeMap::new();
    for file in folder.disk.list(&folder.path).map_err(failed("cannot list"))? {
        if let Some(first) = segment::first_of(&file.name) {
            segments.insert(first, file.bytes);
        } else if let Some(first) = spares::first_of(&file.name) {
            // Whether there is room for it the keeper knows.
            spares.add(first, file.bytes, folder.disk.elapsed_ms());
        } else if file.name.ends_with(NEW) {
            folder
                .disk
                .remove(&folder.path.join(&file.name))
                .map_err(failed("cannot remove a leftover in"))?;
        } else if let Some(name) = file.name.strip_suffix(CURSOR) {
            let cursors = Cursors::read(name, &folder).map_err(failed("cannot read a cursor in"))?;
            let cursors = cursors.ok_or_else(|| OpenError::Format {
                file: folder.path.join(&file.name),
                why: "both of its slots are damaged".to_owned(),
            })?;
            consumers.insert(name.to_owned(), Arc::new(cursors));
        }
    }
    let (mark, sequence) = Watermark::read(&folder).map_err(failed("cannot read MARK in"))?;
    let quarantine = Quarantine::default();
    let recovery = Recovery {
        folder: &folder,
        options: &options,
        quarantine: &quarantine,
        mark,
        consumers: consumers.values().map(|cursors| cursors.now()).collect(),
    };
    let recovered = recovery.run(segments)?;
    for (name, cursors) in &consumers {
        let ahead = cursors.clamp(recovered.end, &recovered.totals.lanes);
        // Before anything is appended: it would take the place of what they are ahead by.
        cursors
            .write(&folder)
            .map_err(failed("cannot write a cursor in"))?;
        if let Some(documents) = ahead {
            (options.on_event)(&Event::CursorsAhead {
                consumer: name.clone(),
                documents,
            });
        }
    }
    let now = Watermark {
        synced: recovered.end,
        records: recovered.totals.records,
        documents: recovered.totals.documents,
    };
    let mark = WatermarkFile::open(&folder, &now, sequence).map_err(failed("cannot open MARK in"))?;
    let active = recovered.active.as_ref();
    let writer = Writer::new(
        active.map(|active| (active.first, Arc::clone(&active.file), active.index.places)),
        recovered.end,
        recovered.totals.clone(),
        mark,
    );
    let shared = Shared {
        state: Mutex::new(State {
            segments: recovered.segments,
            active: active.map(|active| active.first),
            end: recovered.end,
            totals: recovered.totals,
            syncs: 0,
            wakers: vec![Vec::new(); folder.lanes as usize],
            index: recovered
                .active
                .map_or_else(|| Index::new(folder.lanes), |active| active.index),
        }),
        writer: Mutex::new(writer),
        pool: Arc::new(Pool::default()),
        queue: Queue::default(),
        consumers: Mutex::new(consumers),
        quarantine,
        spares,
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
    shared.measure(&crate::lock::lock(&shared.state));
    shared.measure_free();
    Ok(shared)
}

fn status(shared: &Shared, state: &State) -> Status {
    let poisoned = match shared.queue.refusal() {
        Some(AppendError::Poisoned(why)) => Some(why),
        _ => None,
    };
    Status {
        start: state.start(),
        end: state.end,
        segments: state.segments.len() as u64,
        bytes: state.bytes(),
        spare_bytes: shared.spares.bytes(),
        waiting_bytes: shared.queue.waiting_bytes(),
        records: state.totals.records,
        documents: state.totals.documents,
        lost: state.totals.lost(),
        syncs: state.syncs,
        poisoned,
    }
}
