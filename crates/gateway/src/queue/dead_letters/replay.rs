//! Puts dead letters back into the queue: through the same plan and the same record as a client's request,
//! but only for the group that had given them up.
//!
//! A consumer of the queue's log, [`REPLAYING`], makes a replay safe against a crash. It is made at the log's
//! end before the first letter is put back, and removed when the catalog knows of all letters. If it is there
//! when the queue is opened, the records after its place tell which letters are back in the queue, whatever
//! the catalog says ([`recount`]).

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bulk::{Ask, IdMint, NullId, Plan, RouteTable, Scratch, Verdict};
use config::REPLAYING;
use futures_util::FutureExt as _;
use log::{Log, ReadError, StartAt};

use super::catalog::Catalog;
use super::letter::Letter;
use super::{Cause, Committed, DeadLetters, LetterFilter, LettersError, Picked};
use crate::clock::now_ms;
use crate::error::NotQueued;
use crate::queue::journal::Journal;
use crate::queue::record::head_of;
use crate::queue::record::{Params, Replay};
use crate::queue::whereabouts::{NamesOfCore, Whereabouts};

/// The result of a replay.
#[derive(Debug, Default)]
pub(crate) struct Replayed {
    /// Letters that are in the queue again.
    pub(crate) replayed: u64,
    /// Letters that would not be queued, each with the reason; they stay.
    pub(crate) refused: BTreeMap<u64, String>,
    /// Why the rest was not tried, if so.
    pub(crate) stopped: Option<String>,
    /// Whether time was up: the next request gets on with the rest, in its order.
    pub(crate) more: bool,
    /// All letters that were meant have ids below this one. The next request has to say it too: the cluster
    /// may have refused some of them again by then, and these are new letters.
    pub(crate) before: u64,
}

/// The queue that letters go to, with everything that is needed to put them there.
pub(crate) struct ReplayTarget<'a> {
    pub(crate) log: &'a Journal,
    /// The routing table of the cluster that clients of the queue write to.
    pub(crate) table: &'a Arc<RouteTable>,
    /// Returns the newest table; `whereabouts` says where its names lead.
    pub(crate) newest: &'a dyn Fn() -> Arc<RouteTable>,
    pub(crate) whereabouts: Option<&'a Whereabouts>,
    /// The groups that deliver from the queue.
    pub(crate) groups: &'a [Arc<str>],
    /// The routing tables of other clusters that a queue in Kafka is delivered to, by their groups.
    pub(crate) others: &'a [(Arc<str>, Option<Arc<RouteTable>>)],
    /// How long the replay may take, or little longer. Letters are put back for a quarter of that at least,
    /// however long it takes to find them.
    pub(crate) within: Duration,
}

/// Letters that make one record.
struct Run<'a> {
    letters: Vec<&'a Letter>,
    body: Vec<u8>,
}

impl DeadLetters {
    /// Puts letters back into the queue. The letters of one group go in the order in which their documents
    /// were accepted.
    pub(crate) fn replay(
        &self,
        filter: &LetterFilter,
        committed: &Committed,
        way: &ReplayTarget<'_>,
        flush: impl FnOnce() -> Result<(), ReadError>,
    ) -> Result<Replayed, LettersError> {
        let began = Instant::now();
        let work = self.work.lock();
        if let Some(log) = way.log.on_disk() {
            self.end_replay_before(log)?;
        }
        let filter = self.bounded(filter);
        let mut picked = self.pick(&filter, committed)?;
        let mut done = Replayed {
            before: filter.before.unwrap_or_default(),
            ..Replayed::default()
        };
        if picked.is_empty() {
            return Ok(done);
        }
        picked.sort();
        flush()?;
        let left = way.within.saturating_sub(began.elapsed());
        let until = Instant::now() + left.max(way.within / 4);
        // In Kafka nothing tells after a crash which letters are back in the queue: letters may then be in
        // both places.
        let disk = way.log.on_disk();
        let unsure = disk.is_some_and(|log| log.consumers().iter().any(|name| name == REPLAYING));
        let place = match disk {
            Some(log) => Some(log.consumer(REPLAYING, StartAt::Newest)?),
            None => None,
        };
        for some in chunks(&picked) {
            if Instant::now() > until {
                done.more = true;
                break;
            }
            self.put_back(some, committed, way, &mut done)?;
            if done.stopped.is_some() {
                break;
            }
            if let Some(place) = place.as_ref().filter(|_| !unsure) {
                place.seek(StartAt::Newest)?;
            }
        }
        // After a failed sync only the disk knows what is in the log: the next start looks.
        if let Some(log) = disk.filter(|log| !unsure && log.status().poisoned.is_none()) {
            log.remove_consumer(REPLAYING)?;
        }
        // What the next request takes out need not be written again now.
        if !done.more {
            self.tidy(&work);
        }
        Ok(done)
    }

    /// Ends a replay that broke off because the disk took nothing: as long as its consumer is there, the
    /// queue keeps all segments from its place on. The catalog in memory knows what was put back, and says it
    /// on disk now. The caller holds `work`.
    fn end_replay_before(&self, log: &Log) -> Result<(), LettersError> {
        let is_open = log.consumers().iter().any(|name| name == REPLAYING);
        // After a failed sync only the disk knows what is in the log: the next start looks.
        if is_open && log.status().poisoned.is_none() {
            self.change(|_| ())?;
            log.remove_consumer(REPLAYING)?;
        }
        Ok(())
    }

    /// Does the same for whoever is not about to replay.
    pub(crate) fn end_broken_replay(&self, log: &Log) -> Result<(), LettersError> {
        let _work = self.work.lock();
        self.end_replay_before(log)
    }

    /// Returns whether nobody has begun to end a replay; the caller is to do so then.
    pub(crate) fn begins_ending(&self) -> bool {
        !self.is_ending.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn ends_ending(&self) {
        self.is_ending.store(false, Ordering::Relaxed);
    }

    fn put_back(
        &self,
        picked: &[Picked],
        committed: &Committed,
        way: &ReplayTarget<'_>,
        done: &mut Replayed,
    ) -> Result<(), LettersError> {
        let mut letters = Vec::with_capacity(picked.len());
        for one in picked {
            match self.get(one.id, committed)? {
                Some(letter) if letter.lines.is_none() => {
                    let why = "the disk has damaged its lines".to_owned();
                    done.refused.insert(letter.id, why);
                }
                letter => letters.extend(letter),
            }
        }
        let mut rest = letters.as_slice();
        while let Some(first) = rest.first() {
            let alike = rest.iter().take_while(|letter| {
                let (ours, theirs) = (&first.cause, &letter.cause);
                (&ours.group, &ours.target) == (&theirs.group, &theirs.target)
            });
            let (run, more) = rest.split_at(alike.count());
            rest = more;
            if let Err(error) = self.put_back_fitting(run, way, done)? {
                done.stopped = Some(error.to_string());
                return Ok(());
            }
        }
        Ok(())
    }

    /// Puts letters back as [`DeadLetters::put_back_run`] does, in as many records as it takes: a long path
    /// and many ids may be more than one record has room for. A letter that is too much by itself is refused,
    /// and stands in the way of no other.
    fn put_back_fitting(
        &self,
        letters: &[Letter],
        way: &ReplayTarget<'_>,
        done: &mut Replayed,
    ) -> Result<Result<(), NotQueued>, LettersError> {
        match self.put_back_run(letters, way, done)? {
            Err(error) if error.is_too_large() => match letters {
                [letter] => {
                    done.refused.insert(letter.id, error.to_string());
                    Ok(Ok(()))
                }
                _ => {
                    let (first, second) = letters.split_at(letters.len() / 2);
                    match self.put_back_fitting(first, way, done)? {
                        Ok(()) => self.put_back_fitting(second, way, done),
                        stopped => Ok(stopped),
                    }
                }
            },
            other => Ok(other),
        }
    }

    /// Puts letters with the same group and target back, as one record.
    fn put_back_run(
        &self,
        letters: &[Letter],
        way: &ReplayTarget<'_>,
        done: &mut Replayed,
    ) -> Result<Result<(), NotQueued>, LettersError> {
        let cause = &letters[0].cause;
        let all: Vec<&Letter> = letters.iter().collect();
        if !way.groups.iter().any(|group| **group == *cause.group) {
            let group = &cause.group;
            done.refuse(
                &all,
                &format!("the consumer group {group} delivers from this queue no more"),
            );
            return Ok(Ok(()));
        }
        let Some(head) = head_of(&cause.target) else {
            done.refuse(&all, "its request is not one that is queued");
            return Ok(Ok(()));
        };
        let ask = Ask {
            default_index: head.index.as_deref(),
            url_routing: head.routing.as_deref(),
            url_pipeline: head.pipeline.as_deref(),
            level: bulk::Level::Lane(way.log.lanes()),
            lanes_by_id: way.log.has_lanes_by_id(),
            null_id: NullId::Always,
            ..Ask::default()
        };
        let Some((run, plan)) = planned(all, &ask, way.table, done) else {
            return Ok(Ok(()));
        };
        let params = way.params(cause, &run, &plan);
        let mut known = NamesOfCore::default();
        // Held until the letters are in the log.
        let noted = way
            .whereabouts
            .map(|whereabouts| whereabouts.note(way.table, way.newest, plan.names(), &mut known, way.log));
        let (what, body) = ((REPLAYED, &params), &run.body);
        let entry = way
            .log
            .entry(what, &plan, body, (&ask, way.table), |_| None, async || {});
        let entry = match entry.now_or_never().expect("nobody else gets a turn") {
            Ok(entry) => entry,
            Err(error) => return Ok(Err(error)),
        };
        // From here on the letters are in the queue; until the catalog says so, nobody may count them.
        let _alone = self.counting.write();
        if let Err(error) = way.log.append_blocking(entry) {
            return Ok(Err(error));
        }
        if let (Some(whereabouts), Some(noted)) = (way.whereabouts, &noted) {
            whereabouts.wait_for_fences(noted);
        }
        done.replayed += run.letters.len() as u64;
        let gone: Vec<_> = run
            .letters
            .iter()
            .map(|letter| (letter.id, letter.at, letter.bytes))
            .collect();
        // The letters are in the queue whether or not that can be written down; the next start finds it out
        // again.
        self.change_anyway(|catalog| took_back(catalog, &cause.group, &gone))?;
        Ok(Ok(()))
    }

    fn took_back_ids(&self, group: &str, ids: &[u64]) -> Result<(), LettersError> {
        let (catalog, mut gone) = (self.catalog(), Vec::new());
        for id in ids {
            let at = *catalog.moved.get(id).unwrap_or(id);
            let record = self.log.browse(at).read()?;
            let letter = record.and_then(Letter::of);
            if let Some(letter) = letter.filter(|letter| letter.id == *id && catalog.holds(*id, at)) {
                gone.push((*id, at, letter.bytes));
            }
        }
        if !gone.is_empty() {
            self.change(|catalog| took_back(catalog, group, &gone))?;
        }
        Ok(())
    }
}

/// Plans letters as one request. Letters that would not be queued are refused; `None` if these are all.
fn planned<'l>(
    all: Vec<&'l Letter>,
    ask: &Ask<'_>,
    table: &RouteTable,
    done: &mut Replayed,
) -> Option<(Run<'l>, Plan)> {
    let (mut ids, mut scratch) = (IdMint::new(fastrand::u64(..)), Scratch::default());
    ids.tick(now_ms());
    let mut plan = |body: &[u8]| bulk::plan(body, ask, table, &mut ids, &mut scratch);
    let mut run = Run::of(all);
    let mut verdict = plan(&run.body);
    if let Verdict::Pass(_) = verdict {
        // Some letters would not be queued: each is planned by itself.
        let mut fit = Vec::new();
        for letter in run.letters {
            match plan(letter.lines.as_deref().unwrap_or_default()) {
                Verdict::Plan(_) => fit.push(letter),
                Verdict::Pass(pass) => {
                    done.refuse(&[letter], &format!("it would not be queued: {}", pass.why));
                }
            }
        }
        run = Run::of(fit);
        verdict = plan(&run.body);
    }
    match verdict {
        Verdict::Plan(plan) if plan.docs() as usize == run.letters.len() => Some((run, plan)),
        _ if run.letters.is_empty() => None,
        _ => {
            done.refuse(&run.letters, "it would not be queued together with others");
            None
        }
    }
}

/// Finishes a replay that a crash cut off: letters that are in the queue's log are no longer among the dead
/// letters.
pub(crate) fn recount(log: &Log, letters: &DeadLetters) -> Result<(), LettersError> {
    if !log.consumers().iter().any(|name| name == REPLAYING) {
        return Ok(());
    }
    let place = log.consumer(REPLAYING, StartAt::Newest)?;
    let from = place.status().lanes.iter().map(|lane| lane.position).min();
    let mut replays = Vec::new();
    log.browse(from.unwrap_or_default()).each(|record| {
        let params = (record.kind == REPLAYED)
            .then(|| Params::read(&record.params))
            .flatten();
        replays.extend(params.and_then(|params| params.replay));
        ControlFlow::Continue(())
    })?;
    let work = letters.work.lock();
    for Replay { group, letters: ids } in replays {
        letters.took_back_ids(&group, &ids)?;
    }
    log.remove_consumer(REPLAYING)?;
    letters.tidy(&work);
    Ok(())
}

fn took_back(catalog: &mut Catalog, group: &str, gone: &[(u64, u64, u64)]) {
    for (id, at, bytes) in gone {
        catalog.remove(*id, *at, *bytes);
    }
    catalog.tally(group).replayed += gone.len() as u64;
}

/// Cuts letters into chunks that go into a record together, bounded in number and bytes.
fn chunks(picked: &[Picked]) -> impl Iterator<Item = &[Picked]> {
    let mut rest = picked;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let count = rest.iter().take(LETTERS_MAX).take_while(|one| {
            bytes += one.bytes;
            bytes <= BYTES_MAX
        });
        let (some, more) = rest.split_at(count.count().max(1).min(rest.len()));
        rest = more;
        (!some.is_empty()).then_some(some)
    })
}

// === impl ReplayTarget ===

impl ReplayTarget<'_> {
    /// Returns the parameters of the record that letters become.
    fn params(&self, cause: &Cause, run: &Run<'_>, plan: &Plan) -> Params {
        let mut params = Params {
            replay: Some(Replay {
                group: cause.group.clone(),
                letters: run.letters.iter().map(|letter| letter.id).collect(),
            }),
            ..Params::of(&cause.target, plan, self.table, self.log)
        };
        let of_group = self.others.iter().find(|(group, _)| **group == *cause.group);
        if let Some((group, other)) = of_group {
            params.add_cluster(group, other.as_deref(), plan, self.table);
        }
        params
    }
}

// === impl Replayed ===

impl Replayed {
    fn refuse(&mut self, letters: &[&Letter], why: &str) {
        let refused = letters.iter().map(|letter| (letter.id, why.to_owned()));
        self.refused.extend(refused);
    }
}

// === impl Run ===

impl<'a> Run<'a> {
    fn of(letters: Vec<&'a Letter>) -> Self {
        let body = letters
            .iter()
            .flat_map(|letter| letter.lines.as_deref().unwrap_or_default());
        Self {
            body: body.copied().collect(),
            letters,
        }
    }
}

/// The kind of a queue's record that puts dead letters back.
pub(crate) const REPLAYED: u8 = 1;
/// The most letters of a record, and their bytes. The letters' ids stand in the record's parameters, which
/// are bounded.
const LETTERS_MAX: usize = 500;
const BYTES_MAX: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use log::{Options, RealDisk};

    use super::*;

    fn options() -> Options {
        Options {
            lanes: 1,
            free_bytes_min: 0,
            quota_bytes: 1 << 20,
            segment_bytes: 64 << 10,
            ..Options::default()
        }
    }

    /// Opens a queue's log and its dead letters.
    fn open(folder: &Path) -> (Log, DeadLetters) {
        let log = Log::open(folder.join("queue"), options(), RealDisk::default()).unwrap();
        let letters = DeadLetters::open(&folder.join("letters"), options()).unwrap();
        (log, letters)
    }

    #[test]
    fn letters_that_a_crash_left_in_both_places_are_found_in_the_queue() {
        let folder = tempfile::tempdir().unwrap();
        let (log, letters) = open(folder.path());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for place in 0..3 {
            let cause = Cause {
                group: "c0".to_owned(),
                place,
                ..Cause::default()
            };
            let put = letters.put(cause, "logs", b"{\"delete\":{\"_id\":\"1\"}}\n");
            runtime.block_on(put).unwrap();
        }
        // The group's lane is past the letters.
        let committed = Committed {
            lanes: [("c0".to_owned(), vec![1])].into(),
            ..Committed::default()
        };
        let all = letters
            .list(&LetterFilter::default(), &committed, 0, 10)
            .unwrap()
            .letters;
        assert_eq!(all.len(), 3);
        // This is a replay, up to the moment before the catalog knows of it.
        log.consumer(REPLAYING, StartAt::Newest).unwrap();
        let params = Params {
            target: "/_bulk".to_owned(),
            content_type: "application/json".to_owned(),
            minted: None,
            replay: Some(Replay {
                group: "c0".to_owned(),
                letters: vec![all[0].id, all[2].id],
            }),
            idempotency: None,
            led_to: Vec::new(),
            led_to_in: BTreeMap::new(),
            trace: None,
        };
        let mut record = log.record(REPLAYED, &serde_json::to_vec(&params).unwrap());
        record.group(0, 2, |out| out.extend_from_slice(b"{}\n"));
        log.append_blocking(record).unwrap();
        log.close();
        letters.close();
        for _ in 0..2 {
            let (log, letters) = open(folder.path());
            recount(&log, &letters).unwrap();
            let left = letters
                .list(&LetterFilter::default(), &committed, 0, 10)
                .unwrap()
                .letters;
            assert_eq!(
                left.iter().map(|letter| letter.id).collect::<Vec<_>>(),
                [all[1].id]
            );
            let (_guard, tallies) = letters.tallies();
            assert_eq!(tallies["c0"].replayed, 2, "once, however often it is looked at");
            assert!(log.consumers().is_empty());
            log.close();
            letters.close();
        }
    }

    /// Puts the deletion of a document into the store; returns what makes the letter count.
    fn put_deletion(letters: &DeadLetters, index: &str) -> Committed {
        let cause = Cause {
            group: "c0".to_owned(),
            target: "/_bulk".to_owned(),
            content_type: "application/json".to_owned(),
            ..Cause::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let lines = format!("{{\"delete\":{{\"_index\":\"{index}\",\"_id\":\"1\"}}}}\n");
        runtime
            .block_on(letters.put(cause, index, lines.as_bytes()))
            .unwrap();
        Committed {
            lanes: [("c0".to_owned(), vec![1])].into(),
            ..Committed::default()
        }
    }

    /// Makes a table that has the index `logs`.
    fn table() -> Arc<RouteTable> {
        let dialect = bulk::Dialect::new(bulk::Flavour::OpenSearch, bulk::Version::new(3, 8, 0));
        let mut table = RouteTable::builder(dialect, 1);
        let primaries = vec![Some(bulk::NodeIx(0))];
        table.index(Arc::new(bulk::IndexRoute::new(
            "logs",
            bulk::Formula::Modulo,
            primaries,
        )));
        Arc::new(table.build())
    }

    #[test]
    fn a_replay_that_the_disk_broke_off_is_ended_by_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let (log, letters) = open(folder.path());
        let log = Journal::Disk(log);
        let committed = put_deletion(&letters, "logs");
        let table = table();
        let newest = || Arc::clone(&table);
        let groups = ["c0".into()];
        let way = ReplayTarget {
            log: &log,
            table: &table,
            newest: &newest,
            whereabouts: None,
            groups: &groups,
            others: &[],
            within: Duration::from_secs(60),
        };
        let replay = || letters.replay(&LetterFilter::default(), &committed, &way, || Ok(()));
        let on_disk = || log.on_disk().unwrap().consumers();
        // The catalog cannot be written where something else is in its way.
        let in_its_way = folder.path().join("letters/BOOKS.new");
        std::fs::create_dir(&in_its_way).unwrap();
        replay().unwrap_err();
        assert_eq!(
            (on_disk(), log.status().documents),
            (vec![REPLAYING.to_owned()], 1)
        );
        // As long as the catalog on disk does not know of the letter, its place in the queue is kept.
        replay().unwrap_err();
        assert_eq!(on_disk(), [REPLAYING]);
        std::fs::remove_dir(&in_its_way).unwrap();
        let done = replay().unwrap();
        assert!(done.replayed == 0 && done.refused.is_empty(), "{done:?}");
        assert!(on_disk().is_empty() && log.status().documents == 1);
        letters.close();
        let letters = DeadLetters::open(&folder.path().join("letters"), options()).unwrap();
        assert_eq!(letters.count(&LetterFilter::default(), &committed).unwrap().0, 0);
        let (_guard, tallies) = letters.tallies();
        assert_eq!(tallies["c0"].replayed, 1);
    }

    #[test]
    fn a_replay_whose_time_is_up_says_so_and_leaves_the_rest_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let (log, letters) = open(folder.path());
        let log = Journal::Disk(log);
        let committed = put_deletion(&letters, "gone");
        let table = table();
        let groups = ["c0".into()];
        let mut way = ReplayTarget {
            log: &log,
            table: &table,
            newest: &|| unreachable!("nothing is put back"),
            whereabouts: None,
            groups: &groups,
            others: &[],
            within: Duration::ZERO,
        };
        let replay = |way: &ReplayTarget<'_>| {
            letters
                .replay(&LetterFilter::default(), &committed, way, || Ok(()))
                .unwrap()
        };
        let done = replay(&way);
        assert!(
            done.more && done.replayed == 0 && done.refused.is_empty(),
            "{done:?}"
        );
        way.within = Duration::from_secs(60);
        let done = replay(&way);
        assert!(
            !done.more && done.replayed == 0 && done.refused.len() == 1,
            "its index is gone: {done:?}"
        );
        assert!(log.consumers().is_empty() && log.status().documents == 0);
        assert_eq!(letters.count(&LetterFilter::default(), &committed).unwrap().0, 1);
    }

    #[test]
    fn a_replay_that_is_repeated_touches_no_letter_that_came_after_it_began() {
        let folder = tempfile::tempdir().unwrap();
        let (log, letters) = open(folder.path());
        let log = Journal::Disk(log);
        let committed = put_deletion(&letters, "gone");
        let table = table();
        let groups = ["c0".into()];
        let way = ReplayTarget {
            log: &log,
            table: &table,
            newest: &|| unreachable!("nothing is put back"),
            whereabouts: None,
            groups: &groups,
            others: &[],
            within: Duration::from_secs(60),
        };
        let replay = |before| {
            let filter = LetterFilter {
                before,
                ..LetterFilter::default()
            };
            letters.replay(&filter, &committed, &way, || Ok(())).unwrap()
        };
        let first = replay(None);
        assert_eq!((first.before, first.refused.len()), (letters.end(), 1));
        put_deletion(&letters, "gone");
        let repeated = replay(Some(first.before));
        assert_eq!(repeated.before, first.before);
        assert!(
            repeated.refused.keys().eq(first.refused.keys()),
            "{repeated:?}, and not the new one"
        );
        assert_eq!(replay(None).refused.len(), 2);
    }

    #[test]
    fn chunks_are_bounded_and_leave_nothing_out() {
        let one = |at: u64| Picked {
            group: "g".into(),
            origin: (at, 0, 0),
            id: at,
            at,
            bytes: 1 << 20,
        };
        let picked: Vec<_> = (0..11).map(one).collect();
        let counts: Vec<_> = chunks(&picked).map(<[Picked]>::len).collect();
        assert_eq!(counts, [4, 4, 3]);
        let large = [Picked {
            bytes: BYTES_MAX * 2,
            ..one(1)
        }];
        assert_eq!(chunks(&large).count(), 1);
    }
}
