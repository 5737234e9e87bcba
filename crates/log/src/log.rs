//! The handle through which users work with a log.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;

use crate::format::folder::{Folder, LOCK, open_error, read_error};
use crate::format::segment;
use crate::open::open;
use crate::read::consumer::{self, Consumer, StartAt};
use crate::retention;
use crate::shared::OpenLog;
use crate::shared::adjustable::Adjustable;
use crate::shared::cursor::Cursors;
use crate::shared::queue::Job;
use crate::shared::readable::Readable;
use crate::threads;
use crate::write::append::Append;
use crate::write::writer::Writer;
use crate::{
    AppendError, Browse, ConsumerStatus, Disk, Drive, Event, OpenError, Options, ReadError, Receipt, Record,
    Status,
};

/// An open log. A handle is cheap to clone and can be used from any number of threads; dropping the last one
/// closes the log. Consumers and readers of a closed log can still read.
#[derive(Clone)]
pub struct Log {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<OpenLog>,
    writer: Arc<Mutex<Writer>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

// === impl Log ===

impl Log {
    /// Returns whether anything was ever appended to a log in this folder and may still be there. Creates and
    /// locks nothing. A process that is killed while it makes a log leaves a folder for which this returns
    /// false; on a full disk such a log cannot be opened.
    ///
    /// # Errors
    /// Fails if the folder cannot be listed. A missing folder is no error.
    pub fn has_segments(folder: impl AsRef<Path>, disk: &impl Disk) -> io::Result<bool> {
        match disk.list(folder.as_ref()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            listed => Ok(listed?.iter().any(|file| segment::first_of(&file.name).is_some())),
        }
    }

    /// Opens the log in a folder, or creates it. Reads only the last segment, whatever the backlog.
    ///
    /// # Errors
    /// [`OpenError::Locked`] while another process has the log open; otherwise an error that names the fault.
    /// A damaged log still opens: [`Event`]s report what was found.
    pub fn open(folder: impl AsRef<Path>, options: Options, disk: impl Disk) -> Result<Self, OpenError> {
        options.check()?;
        let (path, disk): (_, Arc<dyn Disk>) = (folder.as_ref(), Arc::new(disk));
        disk.create_folder(path)
            .map_err(|source| open_error("cannot make", path, source))?;
        let lock = disk.lock(&path.join(LOCK)).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => OpenError::Locked(path.to_owned()),
            _ => open_error("cannot lock", &path.join(LOCK), error),
        })?;
        let drive = options.drive;
        let (shared, writer) = open(Folder::open(path, options.lanes, disk)?, options, lock)?;
        let (shared, writer) = (Arc::new(shared), Arc::new(Mutex::new(writer)));
        let threads = match drive {
            Drive::ByHand => Vec::new(),
            Drive::Threads => threads::start(&shared, &writer)
                .map_err(|source| open_error("cannot start threads for", path, source))?,
        };
        Ok(Self {
            handle: Arc::new(Handle {
                shared,
                writer,
                threads: Mutex::new(threads),
            }),
        })
    }

    /// Applies these settings of `options` to the open log: when appends count as done, how records are
    /// compressed, how large segments get, quota, free space, retention and spare files. The other options
    /// are ignored. The settings hold for records that are appended from now on (`codec` for records that are
    /// begun from now on). If `fsync` changes, everything appended before is synced first.
    ///
    /// # Errors
    /// [`OpenError::Options`], as when a log is opened; nothing has changed in that case.
    pub fn adjust(&self, options: &Options) -> Result<(), OpenError> {
        options.check()?;
        let shared = self.shared();
        let now = Adjustable::of(options);
        let before = std::mem::replace(&mut *shared.adjustable.lock(), now);
        if before.fsync != now.fsync {
            self.handle.writer.lock().sync_all(shared);
            // The writer then recomputes when the next sync is due.
            shared.ring();
        }
        Ok(())
    }

    /// Returns the number of lanes.
    #[must_use]
    pub fn lanes(&self) -> u32 {
        self.shared().folder.lanes
    }

    /// Returns an empty record to fill. `params` come back with each of its groups; they are stored on disk
    /// in the clear.
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

    /// Hands a record to the writer and returns at once. `done` is called once: within this call if there is
    /// no room, otherwise on the writer's thread when the record is durable. `done` must be quick, since
    /// other clients wait behind it.
    ///
    /// Records that one thread hands over are written in the order of its calls.
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

    /// Like [`Log::append`], but returns a future that can be awaited on any runtime.
    pub fn append_async(&self, record: Record) -> Append {
        let (append, settle) = Append::new();
        self.append(record, |result| settle.settle(result));
        append
    }

    /// Like [`Log::append`], but blocks until the record is durable.
    ///
    /// # Errors
    /// The error that [`Log::append`] would pass to `done`.
    pub fn append_blocking(&self, record: Record) -> Result<Receipt, AppendError> {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        self.append(record, move |result| {
            // This function holds the receiver until the result arrives.
            let _ = sender.send(result);
        });
        if self.shared().options.drive == Drive::ByHand {
            self.write_turn();
        }
        receiver.recv().unwrap_or(Err(AppendError::Closed))
    }

    /// Checks whether a record of this length would be taken now, so that a request can be refused before its
    /// body is read.
    ///
    /// # Errors
    /// The reason why the record would be refused.
    pub fn admit(&self, bytes: u64) -> Result<(), AppendError> {
        self.shared().queue.admit(bytes, &self.shared().room())
    }

    /// Returns the consumer group of this name. If there is none, creates it and makes its cursors durable.
    ///
    /// # Errors
    /// If the name is not valid, or the disk fails.
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
        if let Some(cursors) = shared.consumers.lock().get(name) {
            return Ok(consumer(cursors));
        }
        // What the group begins with is not deleted before the group is known.
        let _placing = shared.placing.lock();
        let mut start = consumer::start(shared, start)?;
        for cursor in &mut start {
            // The documents before its start were not skipped by this consumer's doing.
            cursor.skipped = cursor.documents;
        }
        let mut consumers = shared.consumers.lock();
        if let Some(cursors) = consumers.get(name) {
            return Ok(consumer(cursors));
        }
        let made = Cursors::create(name, start, &shared.folder);
        let made =
            made.map_err(|source| read_error("cannot write a cursor in", &shared.folder.path, source))?;
        let cursors = consumers.entry(name.to_owned()).or_insert(Arc::new(made));
        Ok(consumer(cursors))
    }

    /// Returns the names of all consumer groups.
    #[must_use]
    pub fn consumers(&self) -> Vec<String> {
        self.shared().consumers.lock().keys().cloned().collect()
    }

    /// Makes what all consumer groups have committed so far durable.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn flush_consumers(&self) -> Result<(), ReadError> {
        let folder = &self.shared().folder;
        for cursors in self.shared().cursors() {
            let written = cursors.write(folder);
            written.map_err(|source| read_error("cannot write a cursor in", &folder.path, source))?;
        }
        Ok(())
    }

    /// Removes a consumer group and its cursors, so that nothing is kept for it any more. Does nothing if
    /// there is no such group.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn remove_consumer(&self, name: &str) -> Result<(), ReadError> {
        let shared = self.shared();
        let Some(cursors) = shared.consumers.lock().get(name).cloned() else {
            return Ok(());
        };
        let removed = cursors.remove(&shared.folder);
        removed.map_err(|source| read_error("cannot remove a cursor in", &shared.folder.path, source))?;
        shared.consumers.lock().remove(name);
        Ok(())
    }

    /// Returns an iterator-like [`Browse`] over whole records, beginning with the first that starts at or
    /// after `from`.
    #[must_use]
    pub fn browse(&self, from: u64) -> Browse {
        Browse::new(Arc::clone(self.shared()), from)
    }

    /// Returns the numbers of the log.
    #[must_use]
    pub fn status(&self) -> Status {
        status(self.shared(), &self.shared().state.lock())
    }

    /// Returns the numbers of the log and of all its consumers at one instant, so that a document accepted in
    /// one is neither missing nor counted twice in the others.
    #[must_use]
    pub fn accounts(&self) -> (Status, Vec<ConsumerStatus>) {
        let shared = self.shared();
        let state = shared.state.lock();
        let consumers = shared.cursors();
        let consumers = consumers
            .iter()
            .map(|cursors| consumer::status(cursors, &state))
            .collect();
        (status(shared, &state), consumers)
    }

    /// Ends the segment that is being written, if it holds anything, so that it can be deleted as soon as all
    /// consumers are past it. Without this call the last segment stays, since it says where the log
    /// continues.
    pub fn roll(&self) {
        self.handle.writer.lock().roll(self.shared());
    }

    /// Writes the records already handed over, refuses new ones, makes everything durable, ends the threads
    /// and unlocks the folder.
    pub fn close(&self) {
        self.handle.close();
    }

    /// With [`crate::Drive::ByHand`]: writes and syncs the records that have gathered, as the writer's thread
    /// would, and returns their number.
    pub fn write_turn(&self) -> usize {
        self.handle.writer.lock().turn(self.shared())
    }

    /// With [`crate::Drive::ByHand`]: makes cursors durable and deletes segments that may go, as the keeper's
    /// thread would.
    pub fn keep_turn(&self) {
        self.handle.writer.lock().sync_if_due(self.shared());
        retention::turn(self.shared(), &self.handle.writer);
    }

    pub(crate) fn shared(&self) -> &Arc<OpenLog> {
        &self.handle.shared
    }
}

// === impl Handle ===

impl Handle {
    fn close(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        let here = thread::current().id();
        if threads.iter().any(|thread| thread.thread().id() == here) {
            // A completion called this: the writer cannot wait for itself.
            let (shared, writer) = (Arc::clone(&self.shared), Arc::clone(&self.writer));
            let ended = threads::spawn("log-close", move || close(&shared, &writer, threads));
            if let Err(error) = ended {
                // The threads end by themselves once they are told to; the last of them releases the folder's
                // lock.
                self.shared.queue.refuse(AppendError::Closed);
                threads::tell_to_stop(&self.shared);
                let why = format!("no thread to close the log with: {error}");
                self.shared.tell(&Event::RetentionStuck { why });
            }
        } else {
            close(&self.shared, &self.writer, threads);
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}

fn close(shared: &OpenLog, writer: &Mutex<Writer>, threads: Vec<JoinHandle<()>>) {
    shared.queue.refuse(AppendError::Closed);
    threads::stop(shared, threads);
    let Some(folder_lock) = shared.lock.lock().take() else {
        return;
    };
    let mut writer = writer.lock();
    while !shared.queue.is_empty() {
        writer.turn(shared);
    }
    writer.close(shared);
    drop(writer);
    for cursors in shared.cursors() {
        // Reported as the keeper would report it: commits that are not durable are delivered again.
        if let Err(error) = cursors.write(&shared.folder) {
            let (consumer, why) = (cursors.name.clone(), error.to_string());
            shared.tell(&Event::CursorsStuck { consumer, why });
        }
    }
    drop(folder_lock);
}

fn status(shared: &OpenLog, state: &Readable) -> Status {
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
        quota_bytes: shared.room().quota_bytes,
        free_bytes: shared.queue.free_bytes(),
        waiting_bytes: shared.queue.waiting_bytes(),
        records: state.totals.records,
        documents: state.totals.documents,
        lost: state.totals.lost(),
        syncs: state.syncs,
        poisoned,
    }
}
