//! The store of parked operations on disk: a log of entries and of their fate.
//!
//! A record of kind [`PUT`] has a line of JSON, the [`ParkedEntry`], and then the lines of its operations. A
//! record of kind [`RESOLVED`] says which operations are gone, and how many of all became dead letters so
//! far, and how many the disk has lost: so the accounts follow from the last such record. A record of kind
//! [`SETTLED`] says that everything before it counts, wherever the group's cursors are.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use log::{
    AppendError, Browsed, Consumer, Disk, Found, Full, Log, Missing, OpenError, Options, RealDisk, StartAt,
};
use serde::{Deserialize, Serialize};

use super::error::Foreign;
use super::key::{OperationNames, ParkKey};
use super::{FailureRow, NotParked, ParkedError};

/// Operations that were parked together, and everything that is known of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ParkedEntry {
    pub(crate) key: ParkKey,
    /// The names of the operations' indices.
    pub(crate) names: Vec<String>,
    pub(crate) target: String,
    pub(crate) content_type: String,
    /// The first and the last of the ids that the gateway made for their requests.
    pub(crate) minted: Vec<(String, String)>,
    /// For names that are not indices themselves: the request, by its number in `origins`, the name, and the
    /// index that it led to when the request was accepted
    /// ([`Params::led_to`](crate::queue::record::Params::led_to)).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) led_to: Vec<(u32, String, String)>,
    /// The span that put a request into the queue, as a `traceparent`, by the request's number in `origins`.
    /// Earlier versions do not know it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) spans: Vec<(u32, String)>,
    pub(crate) lane: u32,
    /// The position of each request, and when it was accepted, in ms since 1970.
    pub(crate) origins: Vec<(u64, u64)>,
    /// For each operation: its request, by the request's number in `origins`, and its place in that request.
    pub(crate) ops: Vec<(u32, u32)>,
    /// For each operation: its document by both names, where the key holds documents.
    pub(crate) documents: Vec<[u64; 2]>,
    /// For each operation: its index as it is written and as it was known, by their numbers in `names`, and
    /// the number of its id, by which it is known when the name leads elsewhere. Earlier versions do not
    /// know it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) places: Vec<(u32, u32, u64)>,
    /// Why the operations wait.
    pub(crate) why: String,
    pub(crate) attempts: u32,
    pub(crate) refusals: u32,
    /// What the tries before this one have in common. It begins anew when the gateway does.
    #[serde(skip)]
    pub(crate) failure_row: FailureRow,
    /// Since when the operations are parked, in ms since 1970, by the time of day.
    pub(crate) parked_ms: u64,
    /// The numbers of the operations that are gone already.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) gone: Vec<u32>,
    /// For each operation that is refused already: the cluster's error.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) refused: Vec<RefusalReason>,
    /// The record that this one replaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) instead_of: Option<u64>,
    /// A random number, by which copies of the entry are known that a topic may have: where no answer comes,
    /// it is put once more. Earlier versions do not know it: 0.
    #[serde(default, skip_serializing_if = "is_none")]
    pub(crate) number: u64,
}

impl ParkedEntry {
    /// Adds an operation's document, and its names for its index.
    pub(crate) fn add_names(&mut self, named: &OperationNames) {
        let numbers = [&*named.written, named.index()].map(|name| self.number_of(name));
        self.documents.push(named.document);
        self.places.push((numbers[0], numbers[1], named.id));
    }

    /// Returns the number of a name, after adding it if it is new.
    fn number_of(&mut self, name: &str) -> u32 {
        let known = self.names.iter().position(|known| known == name);
        let number = known.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        number as u32
    }

    /// Returns the names of the indices of some operations; of all, if an earlier version has not written
    /// which operation has which.
    pub(super) fn names_of(&self, ops: Option<&[u32]>) -> Cow<'_, [String]> {
        let Some(ops) = ops.filter(|_| self.places.len() == self.ops.len()) else {
            return Cow::Borrowed(&self.names);
        };
        let places = ops.iter().filter_map(|op| self.places.get(*op as usize));
        let numbers: BTreeSet<u32> = places
            .flat_map(|(written, concrete, _)| [*written, *concrete])
            .collect();
        let names = numbers
            .iter()
            .filter_map(|number| self.names.get(*number as usize));
        Cow::Owned(names.cloned().collect())
    }
}

impl ParkedEntry {
    /// Returns the names of the indices of some operations that wait for a key; in the line of an index, also
    /// the indices that the names led to when the requests were accepted.
    pub(super) fn names_in(&self, key: &ParkKey, ops: Option<&[u32]>) -> Vec<String> {
        let mut names = self.names_of(ops).into_owned();
        let led_to = self.led_to.iter().filter(|(_, name, _)| names.contains(name));
        let led_to: Vec<String> = led_to.map(|(.., index)| index.clone()).collect();
        for index in led_to.into_iter().filter(|_| key.rank() == 0) {
            if !names.contains(&index) {
                names.push(index);
            }
        }
        names
    }

    /// Returns when the request of an operation was accepted, in ms since 1970.
    pub(super) fn accepted_ms(&self, op: u32) -> u64 {
        let request = self.ops.get(op as usize).map(|(request, _)| *request as usize);
        let request = request.and_then(|request| self.origins.get(request));
        request.map_or(0, |(_, accepted_ms)| *accepted_ms)
    }

    /// Returns the request of an operation, by its position, and the operation's place in it.
    pub(crate) fn order_of(&self, op: u32) -> (u64, u32) {
        let (origin, place) = self.ops.get(op as usize).copied().unwrap_or_default();
        let position = self
            .origins
            .get(origin as usize)
            .map_or(0, |(position, _)| *position);
        (position, place)
    }
}

#[cfg(test)]
impl ParkedEntry {
    /// Makes an entry of one operation of one request, in lane 0.
    pub(crate) fn sample() -> Self {
        Self {
            key: ParkKey::Documents,
            names: vec!["logs".to_owned()],
            target: "/_bulk".to_owned(),
            content_type: "application/x-ndjson".to_owned(),
            minted: Vec::new(),
            led_to: Vec::new(),
            spans: Vec::new(),
            lane: 0,
            origins: vec![(1, 1)],
            ops: vec![(0, 0)],
            documents: Vec::new(),
            places: Vec::new(),
            why: "why".to_owned(),
            attempts: 1,
            refusals: 0,
            failure_row: FailureRow::default(),
            parked_ms: 5,
            gone: Vec::new(),
            refused: Vec::new(),
            instead_of: None,
            number: 0,
        }
    }
}

/// Why an operation was refused.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RefusalReason {
    pub(crate) status: u16,
    pub(crate) kind: String,
    pub(crate) reason: String,
}

/// How much room an entry may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// As much as is left of the quota.
    Quota,
    /// No more, with the bytes that its key holds already, than is left for all other keys.
    Share(u64),
    /// All that the entry takes: an accepted operation has nowhere else to go.
    None,
}

/// A record that says which parked operations are gone.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Resolved {
    /// The operations that are gone, by their record; `None` means all of the record's.
    pub(crate) ops: Vec<(u64, Option<Vec<u32>>)>,
    /// How many operations became dead letters so far, in all.
    pub(crate) dead: u64,
    /// How many operations the disk has lost so far, in all. Earlier versions do not know it.
    #[serde(default, skip_serializing_if = "is_none")]
    pub(crate) lost: u64,
}

fn is_none(number: &u64) -> bool {
    *number == 0
}

/// An entry with its lines.
pub(crate) type WithLines = (Box<ParkedEntry>, Vec<u8>);

/// A record of the store.
pub(crate) enum StoreRecord {
    /// An entry, with its lines.
    Put(Box<ParkedEntry>, Vec<u8>),
    /// An entry of this many operations that the disk has damaged: nothing else is known of it.
    Damaged(u32),
    /// Records of which nothing is left but how many documents they counted: one for each operation of an
    /// entry, and one for each other record.
    Missing(Missing),
    Resolved(Resolved),
    Settled,
}

pub(crate) struct Store {
    folder: PathBuf,
    log: Log,
    /// The consumer whose place keeps segments: those before it go.
    kept: Consumer,
    /// The most bytes of entries; the rest of the quota is for resolving them.
    bytes_max: AtomicU64,
}

impl Store {
    /// Whether anything was ever parked in a folder.
    pub(crate) fn is_there(folder: &Path) -> Result<bool, ParkedError> {
        Log::has_segments(folder, &RealDisk::default()).map_err(|source| ParkedError::Folder {
            folder: folder.to_owned(),
            source,
        })
    }

    pub(crate) fn open(folder: &Path, options: Options) -> Result<Self, ParkedError> {
        Self::open_on(folder, options, RealDisk::default())
    }

    fn open_on(folder: &Path, options: Options, disk: impl Disk) -> Result<Self, ParkedError> {
        let bytes_max = bytes_max(&options);
        let log = Log::open(folder, options, disk)?;
        let kept = log.consumer(KEPT, StartAt::Oldest)?;
        Ok(Self {
            folder: folder.to_owned(),
            log,
            kept,
            bytes_max: AtomicU64::new(bytes_max),
        })
    }

    pub(crate) fn adjust(&self, options: &Options) -> Result<(), OpenError> {
        self.log.adjust(options)?;
        self.bytes_max.store(bytes_max(options), Ordering::Relaxed);
        Ok(())
    }

    /// Visits all records from the oldest on, and what is missing between them.
    pub(crate) fn each(&self, mut each: impl FnMut(u64, u64, StoreRecord)) -> Result<(), ParkedError> {
        self.each_until(0, |at, bytes, record| {
            each(at, bytes, record);
            ControlFlow::Continue(())
        })
    }

    /// Visits the records from a place on, and what is missing between them, until `each` breaks off.
    pub(crate) fn each_until(
        &self,
        from: u64,
        mut each: impl FnMut(u64, u64, StoreRecord) -> ControlFlow<()>,
    ) -> Result<(), ParkedError> {
        let start = self.log.status().start.max(from);
        let mut refused = None;
        self.log.browse(start).each_found(|found| {
            let (at, bytes, record) = match found {
                Found::Missing(missing) => {
                    let (at, bytes) = (missing.range.start, missing.range.end - missing.range.start);
                    (at, bytes, Ok(Some(StoreRecord::Missing(missing))))
                }
                Found::Record(record) => (record.receipt.position, record.receipt.bytes, parse(record)),
            };
            match record {
                Ok(record) => record.map_or(ControlFlow::Continue(()), |record| each(at, bytes, record)),
                Err(why) => {
                    refused = Some(self.refused(at, why));
                    ControlFlow::Break(())
                }
            }
        })?;
        refused.map_or(Ok(()), Err)
    }

    fn refused(&self, at: u64, why: Foreign) -> ParkedError {
        let folder = self.folder.clone();
        ParkedError::ForeignRecord { at, folder, why }
    }

    /// Puts operations into the store, durable when this returns; returns where they are, and how many bytes
    /// they take.
    pub(crate) async fn put(
        &self,
        entry: &ParkedEntry,
        lines: &[u8],
        bound: Bound,
    ) -> Result<(u64, u64), NotParked> {
        let used = self.log.status().bytes;
        let quota = self.bytes_max.load(Ordering::Relaxed);
        let mut record = self.record_of(entry, lines);
        let bytes = record.payload_bytes() as u64;
        let left = quota.saturating_sub(used + bytes);
        let fits = used + bytes <= quota;
        match bound {
            Bound::Quota | Bound::Share(_) if !fits => {
                let why = format!("{used} bytes are used, and {quota} may be (parked_max_size)");
                return Err(NotParked::Full(why));
            }
            Bound::Share(held) if held > 0 && held + bytes > left => {
                return Err(NotParked::Full(format!(
                    "{held} bytes wait for this already, and {left} are left for all else (parked_max_size)"
                )));
            }
            _ => {}
        }
        if bound == Bound::None {
            record.beyond_quota();
        }
        let receipt = self.log.append_async(record).await.map_err(|error| match error {
            AppendError::Full(full @ Full::Quota { .. }) => NotParked::Full(full.to_string()),
            error => NotParked::Disk(error.into()),
        })?;
        Ok((receipt.position, receipt.bytes))
    }

    /// Puts a copy of an entry that is durable elsewhere into the store, however much room the copy takes.
    pub(crate) fn put_copy(&self, entry: &ParkedEntry, lines: &[u8]) -> Result<(u64, u64), AppendError> {
        let mut record = self.record_of(entry, lines);
        record.beyond_quota();
        let receipt = self.log.append_blocking(record)?;
        Ok((receipt.position, receipt.bytes))
    }

    fn record_of(&self, entry: &ParkedEntry, lines: &[u8]) -> log::Record {
        let head = serde_json::to_vec(entry).unwrap_or_default();
        let mut record = self.log.record(PUT, b"");
        record.group(0, entry.ops.len() as u32, |out| {
            out.extend_from_slice(&head);
            out.push(b'\n');
            out.extend_from_slice(lines);
        });
        record
    }

    pub(crate) async fn resolve(&self, resolved: &Resolved) -> Result<u64, AppendError> {
        let record = self.resolution(resolved);
        Ok(self.log.append_async(record).await?.position)
    }

    pub(crate) fn resolve_blocking(&self, resolved: &Resolved) -> Result<u64, AppendError> {
        let record = self.resolution(resolved);
        Ok(self.log.append_blocking(record)?.position)
    }

    fn resolution(&self, resolved: &Resolved) -> log::Record {
        let text = serde_json::to_vec(resolved).unwrap_or_default();
        let mut record = self.log.record(RESOLVED, b"");
        record.group(0, 1, |out| out.extend_from_slice(&text));
        // It is what makes room, also where refused operations have taken more than there may be.
        record.beyond_quota();
        record
    }

    /// Makes all that is there count from now on.
    pub(crate) fn settle(&self) -> Result<(), AppendError> {
        let mut record = self.log.record(SETTLED, b"");
        record.group(0, 1, |out| out.push(b'\n'));
        record.beyond_quota();
        self.log.append_blocking(record).map(drop)
    }

    /// Returns the entry at a place, with its lines.
    pub(crate) fn read(&self, at: u64) -> Result<Option<WithLines>, ParkedError> {
        let record = self.log.browse(at).read()?;
        let record = record.filter(|record| record.receipt.position == at);
        let record = record.map_or(Ok(None), parse);
        Ok(match record.map_err(|why| self.refused(at, why))? {
            Some(StoreRecord::Put(entry, lines)) => Some((entry, lines)),
            _ => None,
        })
    }

    /// Lets go of the records before a place.
    pub(crate) fn keep_from(&self, at: u64) {
        // Only space depends on this: a failure is made good with the next change.
        if let Err(error) = self.kept.seek(StartAt::Position(at)) {
            tracing::warn!(%error, "parked operations keep more of the disk than they need");
        }
    }

    /// Returns the bytes on disk, and how many there may be.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.log.status().bytes, self.bytes_max.load(Ordering::Relaxed))
    }

    /// Returns an error once a write or sync has failed: what the disk has is unknown then.
    pub(crate) fn is_sound(&self) -> Result<(), AppendError> {
        self.log
            .status()
            .poisoned
            .map_or(Ok(()), |why| Err(AppendError::Poisoned(why)))
    }

    /// Returns the place of the next record.
    pub(crate) fn end(&self) -> u64 {
        self.log.status().end
    }

    pub(crate) fn close(&self) {
        self.log.close();
    }
}

fn bytes_max(options: &Options) -> u64 {
    options.quota_bytes.saturating_sub(options.segment_bytes)
}

/// Reads a record; `None` if it is damaged and says nothing of operations. What checks and cannot be read was
/// written by a newer version: passed over, accepted operations would be gone without a trace.
fn parse(record: Browsed) -> Result<Option<StoreRecord>, Foreign> {
    let Some(group) = record.groups.into_iter().next() else {
        return Err(Foreign::NoLines);
    };
    Ok(match (record.kind, group.bytes) {
        (PUT, None) => Some(StoreRecord::Damaged(group.documents)),
        (PUT, Some(mut lines)) => {
            let head = lines
                .iter()
                .position(|byte| *byte == b'\n')
                .ok_or(Foreign::NoLines)?;
            let entry = serde_json::from_slice(&lines[..head])?;
            lines.drain(..=head); // in place: the lines may be as large as a body
            Some(StoreRecord::Put(entry, lines))
        }
        (RESOLVED, None) => {
            let at = record.receipt.position;
            tracing::warn!(
                at,
                "the disk has damaged the record that parked operations are done: they are tried once more"
            );
            None
        }
        (RESOLVED, Some(bytes)) => Some(StoreRecord::Resolved(serde_json::from_slice(&bytes)?)),
        (SETTLED, _) => Some(StoreRecord::Settled),
        (kind, _) => return Err(Foreign::Kind(kind)),
    })
}

const PUT: u8 = 0;
const RESOLVED: u8 = 1;
const SETTLED: u8 = 2;
/// The consumer whose place keeps segments.
const KEPT: &str = "kept";

#[cfg(test)]
impl Store {
    /// Opens a store on a disk on which no name of a file becomes durable: its first write poisons it.
    pub(super) fn open_on_failing_disk(folder: &Path) -> Self {
        let options = Options {
            quota_bytes: 1 << 30,
            free_bytes_min: 0,
            ..Options::default()
        };
        Self::open_on(folder, options, tests::NoNames(RealDisk::default())).expect("a store")
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use log::{File, Listed, Lock};

    use super::*;

    /// A disk that syncs no folder that has a segment.
    #[derive(Clone)]
    pub(super) struct NoNames(pub(super) RealDisk);

    impl Disk for NoNames {
        fn create_folder(&self, path: &Path) -> io::Result<()> {
            self.0.create_folder(path)
        }
        fn list(&self, folder: &Path) -> io::Result<Vec<Listed>> {
            self.0.list(folder)
        }
        fn open(&self, path: &Path) -> io::Result<Box<dyn File>> {
            self.0.open(path)
        }
        fn open_to_write(&self, path: &Path) -> io::Result<Box<dyn File>> {
            self.0.open_to_write(path)
        }
        fn create(&self, path: &Path) -> io::Result<Box<dyn File>> {
            self.0.create(path)
        }
        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            self.0.rename(from, to)
        }
        fn remove(&self, path: &Path) -> io::Result<()> {
            self.0.remove(path)
        }
        fn sync_folder(&self, folder: &Path) -> io::Result<()> {
            match Log::has_segments(folder, &self.0)? {
                true => Err(io::Error::other("the disk is gone")),
                false => self.0.sync_folder(folder),
            }
        }
        fn free_bytes(&self, folder: &Path) -> io::Result<u64> {
            self.0.free_bytes(folder)
        }
        fn lock(&self, path: &Path) -> io::Result<Lock> {
            self.0.lock(path)
        }
        fn now_ms(&self) -> u64 {
            self.0.now_ms()
        }
        fn elapsed_ms(&self) -> u64 {
            self.0.elapsed_ms()
        }
    }

    /// Refused operations may take more than there may be; what makes room again is always written.
    #[test]
    fn an_end_is_written_also_where_more_is_parked_than_may_be() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            segment_bytes: 8 << 10,
            quota_bytes: 16 << 10,
            free_bytes_min: 0,
            ..Options::default()
        };
        let store = Store::open(folder.path(), options).unwrap();
        let (entry, lines) = (ParkedEntry::sample(), vec![b'x'; 4 << 10]);
        let mut last = 0;
        while store.bytes().0 < 64 << 10 {
            last = store.put_copy(&entry, &lines).unwrap().0;
        }
        for _ in 0..3 {
            let resolved = Resolved {
                ops: vec![(last, None)],
                dead: 1,
                ..Resolved::default()
            };
            store.resolve_blocking(&resolved).unwrap();
            store.settle().unwrap();
        }
    }
}
