//! Operations that a cluster would not take, each with the reason. They are in a log of their own until
//! somebody has them replayed or purged.
//!
//! The log holds the letters; the catalog beside it ([`catalog`]) records their fate. A letter is put into
//! the log before its batch is committed, and counts from the commit on: if its batch was cut off, the
//! operation is delivered again, and the letter is dropped when delivery starts
//! ([`DeadLetters::drop_unsettled`]). Letters that are replayed or purged are gone by the catalog; their
//! bytes go with their segment ([`tidy`]).

mod catalog;
mod edit;
mod encoding;
mod facets;
mod filter;
mod find;
mod letter;
mod patch;
mod replay;
mod room;
mod tidy;
mod tidy_on;

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use log::{AppendError, Consumer, Log, OpenError, Options, ReadError, RealDisk, StartAt};
use parking_lot::{Mutex, RwLockReadGuard};

use catalog::Catalog;
pub(crate) use catalog::Tally;
pub(crate) use edit::{Edit, Unfit};
pub(crate) use facets::like;
pub(crate) use filter::{Committed, LetterFilter};
pub(crate) use find::{LettersFound, LettersSought};
pub(crate) use letter::{Cause, Letter, ShownLetter};
pub(crate) use patch::{Patch, PatchTerms, Patched};
pub(crate) use replay::{REPLAYED, ReplayTarget, Replayed, recount};
use room::LetterRoom;
pub(crate) use room::NotPut;
pub(crate) use tidy_on::tidy_on;

/// The dead letters of one queue.
pub(crate) struct DeadLetters {
    log: Log,
    /// The consumer whose place keeps segments: those before it go.
    kept: Consumer,
    file: PathBuf,
    room: LetterRoom,
    catalog: Mutex<Arc<Catalog>>,
    /// Held while the catalog is changed.
    work: Mutex<()>,
    /// Letters of each group that are put here and not yet committed.
    under_way: Mutex<BTreeMap<String, u64>>,
    /// Locked exclusively while letters go back into the queue, so that nobody counts them both there and
    /// here.
    #[allow(
        clippy::disallowed_types,
        reason = "a replay alone writes, while it appends one record"
    )]
    counting: parking_lot::RwLock<()>,
    /// Whether somebody is about to end a replay that broke off.
    is_ending: AtomicBool,
    /// The place before which letters are still to be written again, so that segments go; 0 if none are.
    gathers_before: AtomicU64,
    /// Whether a thread gets on with that.
    is_tidying: AtomicBool,
}

/// A letter that was picked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Picked {
    group: Arc<str>,
    /// Position, lane and place in the queue.
    origin: (u64, u32, u32),
    id: u64,
    at: u64,
    bytes: u64,
}

/// Why something cannot be done with letters now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LettersError {
    /// The store cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The catalog cannot be written: nothing has changed.
    #[error("the catalog of the dead letters cannot be written: {0}")]
    Catalog(#[from] io::Error),
    /// The store takes no further record.
    #[error("the dead letter cannot be written: {0}")]
    Append(#[from] AppendError),
}

/// Why a store of dead letters cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotOpened {
    #[error(transparent)]
    Log(#[from] OpenError),
    #[error(transparent)]
    Consumer(#[from] ReadError),
    #[error("{}: {source}", .file.display())]
    Catalog { file: PathBuf, source: io::Error },
}

/// Some letters, and the place to go on from.
pub(crate) struct Page {
    pub(crate) letters: Vec<Letter>,
    pub(crate) next: Option<u64>,
}

// === impl DeadLetters ===

impl DeadLetters {
    /// Opens the store in a folder, or makes it.
    pub(crate) fn open(folder: &Path, options: Options) -> Result<Self, NotOpened> {
        let room = LetterRoom::new(&options);
        let log = Log::open(folder, options, RealDisk::default())?;
        let kept = log.consumer(KEPT, StartAt::Oldest)?;
        let file = folder.join(CATALOG_FILE);
        let catalog = Catalog::load(&file).map_err(|source| NotOpened::Catalog {
            file: file.clone(),
            source,
        })?;
        Ok(Self {
            log,
            kept,
            file,
            room,
            catalog: Mutex::new(Arc::new(catalog)),
            work: Mutex::default(),
            under_way: Mutex::default(),
            counting: Default::default(),
            is_ending: AtomicBool::default(),
            gathers_before: AtomicU64::default(),
            is_tidying: AtomicBool::default(),
        })
    }

    /// Takes over the settings of how much there may be.
    pub(crate) fn adjust(&self, options: Options) -> Result<(), OpenError> {
        self.log.adjust(&options)?;
        self.room.adjust(&options);
        Ok(())
    }

    /// Puts an operation (its lines), which names `index`, into the store; durable when this returns. The
    /// letter counts once its batch is committed ([`DeadLetters::committed`]). This may fail for lack of
    /// room, or because something is wrong with the disk; never because of the contents of the operation or
    /// its cause.
    pub(crate) async fn put(&self, mut cause: Cause, index: &str, operation: &[u8]) -> Result<(), NotPut> {
        cause.cut();
        let mut record = encoding::record(&self.log, letter::FIRST, &cause, operation, None);
        let bytes = record.payload_bytes() as u64;
        let claim = self.room.claim(index, bytes, self.log.status().bytes)?;
        if claim.is_oversized {
            record.beyond_quota();
        }
        *self.under_way.lock().entry(cause.group.clone()).or_default() += 1;
        let group = cause.group.clone();
        let put = self.log.append_async(record).await.map(drop);
        if put.is_err() {
            self.leave(&group, 1);
            claim.give_back();
        }
        Ok(put?)
    }

    /// Whether there may be room for a letter of an index.
    pub(crate) fn has_room(&self, index: &str) -> bool {
        self.room.has_some(index, self.log.status().bytes)
    }

    /// Records that this many letters of a group count now, durably. Now and then this also notes the place
    /// up to which all letters count, so that the next start has little to look through.
    pub(crate) fn committed(&self, group: &str, letters: u64) {
        let end = self.log.status().end;
        if self.leave(group, letters) > 0 {
            return;
        }
        let settled = self
            .catalog()
            .tallies
            .get(group)
            .map_or(0, |tally| tally.settled_before);
        if end.saturating_sub(settled) > UNSETTLED_BYTES_MAX
            && let Some(_work) = self.work.try_lock()
            && let Err(error) = self.change(|catalog| catalog.tally(group).settled_before = end)
        {
            tracing::warn!(%error, "the catalog of the dead letters cannot be written");
        }
    }

    fn leave(&self, group: &str, letters: u64) -> u64 {
        let mut under_way = self.under_way.lock();
        let left = under_way.entry(group.to_owned()).or_default();
        *left = left.saturating_sub(letters);
        *left
    }

    /// Drops a group's letters whose batch was not committed: the batch is delivered again, and operations
    /// that die then are put here anew. To be called only while nothing of the group is under way. A letter
    /// of a parked operation of which nobody knows yet whether it has ended stays, and counts as under way.
    /// With `for_good`, the others count from now on; without, it is looked at them once more.
    pub(crate) fn drop_unsettled(
        &self,
        group: &str,
        committed: &Committed,
        for_good: bool,
    ) -> Result<(), LettersError> {
        let _work = self.work.lock();
        let settled_before = self
            .catalog()
            .tallies
            .get(group)
            .map_or(0, |tally| tally.settled_before);
        let (end, mut dropped, mut unconfirmed) = (self.log.status().end, Vec::new(), 0);
        self.visit(settled_before, |letter| {
            if letter.cause.group == group && !committed.is_past(&letter, settled_before) {
                dropped.push((letter.id, letter.at, letter.bytes));
            } else if letter.cause.group == group && committed.is_unconfirmed(&letter) {
                unconfirmed += 1;
            }
            ControlFlow::Continue(())
        })?;
        self.under_way.lock().insert(group.to_owned(), unconfirmed);
        if !dropped.is_empty()
            || unconfirmed == 0 && for_good && end.saturating_sub(settled_before) > UNSETTLED_BYTES_MAX / 4
        {
            self.change(|catalog| {
                for (id, at, bytes) in dropped {
                    catalog.remove(id, at, bytes);
                }
                // Nobody looks for unconfirmed letters before that place.
                if unconfirmed == 0 && for_good {
                    catalog.tally(group).settled_before = end;
                }
            })?;
        }
        Ok(())
    }

    /// Drops the same letters of one lane, of which no batch is under way while other lanes' may be, and
    /// parked operations; only letters from a place on.
    pub(crate) fn drop_unsettled_of_lane(
        &self,
        group: &str,
        lane: u32,
        since: u64,
        committed: &Committed,
    ) -> Result<(), LettersError> {
        let _work = self.work.lock();
        let settled_before = self
            .catalog()
            .tallies
            .get(group)
            .map_or(0, |tally| tally.settled_before);
        let mut dropped = Vec::new();
        self.visit(settled_before.max(since), |letter| {
            let is_ours = letter.cause.group == group && letter.cause.lane == lane;
            if is_ours && !committed.is_past(&letter, settled_before) {
                dropped.push((letter.id, letter.at, letter.bytes));
            }
            ControlFlow::Continue(())
        })?;
        let letters = dropped.len() as u64;
        if letters > 0 {
            self.change(|catalog| {
                for (id, at, bytes) in dropped {
                    catalog.remove(id, at, bytes);
                }
            })?;
            self.leave(group, letters);
        }
        Ok(())
    }

    /// Drops a group's letters whose operations are still parked, because a crash came in between. To be
    /// called only while nothing of the group is under way.
    pub(crate) fn drop_parked(
        &self,
        group: &str,
        is_parked: impl Fn((u64, u32)) -> bool,
    ) -> Result<(), LettersError> {
        let _work = self.work.lock();
        let tally = self.catalog().tallies.get(group).copied();
        let mut dropped = Vec::new();
        self.visit(tally.map_or(0, |tally| tally.settled_before), |letter| {
            if letter.cause.group == group && letter.cause.parked.is_some_and(&is_parked) {
                dropped.push((letter.id, letter.at, letter.bytes));
            }
            ControlFlow::Continue(())
        })?;
        if !dropped.is_empty() {
            self.change(|catalog| {
                for (id, at, bytes) in dropped {
                    catalog.remove(id, at, bytes);
                }
            })?;
        }
        Ok(())
    }

    /// Makes all of a group's letters count, wherever its cursors are set from now on. To be called only
    /// while nothing of the group is under way, and after [`DeadLetters::drop_unsettled`].
    pub(crate) fn settle(&self, group: &str) -> Result<(), LettersError> {
        let _work = self.work.lock();
        let end = self.log.status().end;
        Ok(self.change(|catalog| catalog.tally(group).settled_before = end)?)
    }

    /// Forgets the tally of a group that is gone.
    pub(crate) fn forget(&self, group: &str) -> Result<(), LettersError> {
        let _work = self.work.lock();
        Ok(self.change(|catalog| {
            catalog.tallies.remove(group);
        })?)
    }

    /// Returns the tallies of letters, by group. While the guard is held, no letter goes back into the queue.
    pub(crate) fn tallies(&self) -> (RwLockReadGuard<'_, ()>, BTreeMap<String, Tally>) {
        let guard = self.counting.read();
        let tallies = self.catalog().tallies.clone();
        (guard, tallies)
    }

    /// Returns the place of the next letter.
    pub(crate) fn end(&self) -> u64 {
        self.log.status().end
    }

    /// Returns the bytes of the store on disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.log.status().bytes
    }

    pub(crate) fn close(&self) {
        self.log.close();
    }

    /// Returns at most `limit` letters from a place on, and the place to go on from, if there are more. Reads
    /// the disk.
    pub(crate) fn list(
        &self,
        filter: &LetterFilter,
        committed: &Committed,
        from: u64,
        limit: usize,
    ) -> Result<Page, ReadError> {
        let mut bytes = 0;
        let mut page = Page {
            letters: Vec::new(),
            next: None,
        };
        self.visit_settled(from, committed, |letter| {
            if !filter.takes(&letter) {
                return ControlFlow::Continue(());
            }
            if page.letters.len() >= limit || bytes > PAGE_BYTES_MAX {
                page.next = Some(letter.at);
                return ControlFlow::Break(());
            }
            bytes += letter.bytes;
            page.letters.push(letter);
            ControlFlow::Continue(())
        })?;
        Ok(page)
    }

    /// Returns the letter of this id.
    pub(crate) fn get(&self, id: u64, committed: &Committed) -> Result<Option<Letter>, ReadError> {
        let catalog = self.catalog();
        let at = *catalog.moved.get(&id).unwrap_or(&id);
        let record = self.log.browse(at).read()?;
        let letter = record
            .filter(|record| record.receipt.position == at)
            .and_then(Letter::of);
        let settled = |letter: &Letter| committed.has(letter, settled_before(&catalog, letter));
        Ok(letter.filter(|letter| letter.id == id && catalog.holds(id, at) && settled(letter)))
    }

    /// Throws letters away; returns how many. `flush` makes the groups' commits durable, since a letter whose
    /// document came to be delivered again would be counted twice.
    pub(crate) fn purge(
        &self,
        filter: &LetterFilter,
        committed: &Committed,
        flush: impl FnOnce() -> Result<(), ReadError>,
    ) -> Result<u64, LettersError> {
        let work = self.work.lock();
        let picked = self.pick(filter, committed)?;
        if picked.is_empty() {
            return Ok(0);
        }
        flush()?;
        self.change(|catalog| {
            for one in &picked {
                catalog.remove(one.id, one.at, one.bytes);
                catalog.tally(&one.group).purged += 1;
            }
        })?;
        self.room.begin_anew();
        self.tidy(&work);
        Ok(picked.len() as u64)
    }

    /// Returns how many letters are meant, and the id that all of theirs are below: letters that come from
    /// now on have greater ones.
    pub(crate) fn count(
        &self,
        filter: &LetterFilter,
        committed: &Committed,
    ) -> Result<(u64, u64), ReadError> {
        let filter = self.bounded(filter);
        let picked = self.pick(&filter, committed)?;
        Ok((picked.len() as u64, filter.before.unwrap_or_default()))
    }

    /// Returns the filter with a bound: only letters that are in the store now.
    fn bounded(&self, filter: &LetterFilter) -> LetterFilter {
        let end = self.log.status().end;
        LetterFilter {
            before: Some(filter.before.map_or(end, |before| before.min(end))),
            ..filter.clone()
        }
    }

    /// Returns the letters that are meant, in the order of the store.
    fn pick(&self, filter: &LetterFilter, committed: &Committed) -> Result<Vec<Picked>, ReadError> {
        self.pick_from(0, filter, committed)
    }

    /// Returns those of the letters that are meant whose ids are not below `from`.
    fn pick_from(
        &self,
        from: u64,
        filter: &LetterFilter,
        committed: &Committed,
    ) -> Result<Vec<Picked>, ReadError> {
        let mut picked = Vec::new();
        let mut groups: BTreeMap<String, Arc<str>> = BTreeMap::new();
        let mut take = |letter: &Letter| {
            let cause = &letter.cause;
            let group = groups
                .entry(cause.group.clone())
                .or_insert_with(|| cause.group.as_str().into());
            picked.push(Picked {
                group: Arc::clone(group),
                origin: (cause.position, cause.lane, cause.place),
                id: letter.id,
                at: letter.at,
                bytes: letter.bytes,
            });
        };
        match &filter.ids {
            Some(ids) => {
                for id in ids.range(from..) {
                    let letter = self.get(*id, committed)?;
                    letter
                        .iter()
                        .filter(|letter| filter.takes(letter))
                        .for_each(&mut take);
                }
            }
            // A letter is never at a place before its id: it is only ever written again at the store's end.
            None => self.visit_settled(from, committed, |letter| {
                if letter.id >= from && filter.takes(&letter) {
                    take(&letter);
                }
                ControlFlow::Continue(())
            })?,
        }
        Ok(picked)
    }

    /// Visits the letters that count, from a place on.
    fn visit_settled(
        &self,
        from: u64,
        committed: &Committed,
        mut each: impl FnMut(Letter) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        let catalog = self.catalog();
        self.visit(from, |letter| {
            match committed.has(&letter, settled_before(&catalog, &letter)) {
                true => each(letter),
                false => ControlFlow::Continue(()),
            }
        })
    }

    /// Visits all letters that the store holds by its catalog, from a place on.
    fn visit(&self, from: u64, mut each: impl FnMut(Letter) -> ControlFlow<()>) -> Result<(), ReadError> {
        let catalog = self.catalog();
        let mut from = Some(from.max(self.log.status().start));
        while let Some(at) = from.take() {
            self.log
                .browse(catalog.gone.end_of(at).unwrap_or(at))
                .each(|record| {
                    let at = record.receipt.position;
                    if let Some(end) = catalog.gone.end_of(at) {
                        // Letters that are gone together are passed over together.
                        if end > at + record.receipt.bytes {
                            from = Some(end);
                            return ControlFlow::Break(());
                        }
                        return ControlFlow::Continue(());
                    }
                    match Letter::of(record) {
                        Some(letter) if catalog.holds(letter.id, at) => each(letter),
                        _ => ControlFlow::Continue(()),
                    }
                })?;
        }
        Ok(())
    }

    fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.lock())
    }

    /// Changes the catalog, durably or not at all. The caller holds `work`.
    fn change(&self, change: impl FnOnce(&mut Catalog)) -> io::Result<()> {
        let mut catalog = Catalog::clone(&self.catalog());
        change(&mut catalog);
        catalog.gone.drop_before(self.log.status().start);
        catalog.save(&self.file)?;
        *self.catalog.lock() = Arc::new(catalog);
        Ok(())
    }

    /// Changes the catalog in memory even if it cannot be saved: for changes that have happened already.
    fn change_anyway(&self, change: impl FnOnce(&mut Catalog)) -> io::Result<()> {
        let mut catalog = Catalog::clone(&self.catalog());
        change(&mut catalog);
        let saved = catalog.save(&self.file);
        *self.catalog.lock() = Arc::new(catalog);
        self.room.begin_anew();
        saved
    }
}

fn settled_before(catalog: &Catalog, letter: &Letter) -> u64 {
    let tally = catalog.tallies.get(&letter.cause.group);
    tally.map_or(0, |tally| tally.settled_before)
}

/// The only consumer of the store: its place is that of the oldest letter.
const KEPT: &str = "kept";
/// The name of the catalog's file, beside the store's segments.
const CATALOG_FILE: &str = "BOOKS";
/// Bytes of letters that are listed at once; one letter more may be listed.
const PAGE_BYTES_MAX: u64 = 16 << 20;
/// The most bytes that a start looks through, or little more.
const UNSETTLED_BYTES_MAX: u64 = 4 << 20;
