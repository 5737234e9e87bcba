//! Delivery runs one thread for each queue and target cluster ([`crate::delivery::deliveries`]), with one
//! task for each lane of the queue. The task reads the lane's next batch, sends it until every operation is
//! indexed, parked or a dead letter, commits, and goes on. A lane has one batch under way, and never two
//! operations on one document, so that no operation overtakes another.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bulk::{IdMint, RouteTable};
use futures_util::FutureExt as _;
use log::{Commit, Mark, Next, ReadError};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use wire::guard::{self, Work, fault};
use wire::{Buffer, Worker};

use crate::clock::now_ms;
use crate::delivery::handed_over::deliver_handed_over;
use crate::delivery::lane::{Lane, Route, stopped};
use crate::delivery::memory::{LaneMemory, with_notes};
use crate::delivery::outlet::Outlets;
use crate::delivery::parcel::own_id;
use crate::delivery::retry;
use crate::delivery::suspect::Suspect;
use crate::delivery::work::{Batch, NamesLedTo, Origin};
use crate::live::GatewayState;
use crate::queue::dead_letters::REPLAYED;
use crate::queue::{
    Consumer, Fences, Fronts, Group, LaneActivity, LaneReader, Recorded, Whereabouts, apart_from_span,
};

/// The result of reading a lane.
enum Read {
    Batch(Box<Batch>),
    /// Documents that can no longer be read; the log has already reported them.
    Lost(Mark),
    /// This many dead letters of another consumer group, put back for that group alone.
    NotOurs(Mark, u32),
    /// A group, accepted at this position, that must not be sent before the operations of this lane.
    Held(u64, u32),
}

/// Delivers until told to stop, and returns once no lane has anything under way.
pub(crate) async fn deliver(
    shared: Arc<GatewayState>,
    group: Arc<Group>,
    worker: Worker,
    stop: watch::Receiver<bool>,
) {
    fault("delivery", b"");
    let lanes = group.queue.log.lanes();
    let route = Rc::new(Route {
        counters: shared.metrics.core(0),
        outlets: Outlets::new(&group.settings, shared.delivery_memory.operations_max()),
        request_id: own_id(&group.settings.queue),
        outbound: RefCell::default(),
        ids: RefCell::new(IdMint::new(fastrand::u64(..))),
        scratch: RefCell::default(),
        busy: Cell::new(0),
        fronts: Fronts::new(lanes),
        resent: RefCell::default(),
        led_to: RefCell::default(),
        unwritten: RefCell::default(),
        flights: Default::default(),
        _parts: shared.delivery_memory.parts(lanes as usize + retry::TURNS_MAX),
        shared,
        group,
        worker,
    });
    if let Consumer::Kafka(group) = &route.group.consumer {
        return deliver_handed_over(&route, &**group, stop).await;
    }
    let ended = Rc::new(Cell::new(false));
    let over = Rc::clone(&ended);
    let (tended, stops) = (Rc::clone(&route), stop.clone());
    let tend = move || {
        let over = Rc::clone(&over);
        retry::tend(Rc::clone(&tended), stops.clone(), move || over.get())
    };
    let tending = guard::spawn(Work::Parked, guard::restarted(Work::Parked, tend));
    let mut running = JoinSet::new();
    for number in 0..lanes {
        match route.group.consumer.reader(number) {
            Ok(reader) => {
                let lane = Lane {
                    route: Rc::clone(&route),
                    number,
                    reader,
                    suspect: Suspect::default(),
                    stop: stop.clone(),
                };
                guard::spawn_in(&mut running, Work::Lane, lane.run());
            }
            Err(error) => route
                .group
                .set(number, LaneActivity::Paused, Some(&error.to_string())),
        }
    }
    // A lane ends when it is told to; a panic does not end it.
    while running.join_next().await.is_some() {}
    ended.set(true);
    let _ = tending.await;
    // Whoever delivers next must not send what a request under way may still execute.
    retry::settle_landed(&route).await;
}

// === impl Route ===

impl Route {
    /// Returns how many bytes a lane reads for its next batch. Several lanes' parcels for a node go in one
    /// request, so the more lanes are busy, the less each needs at hand for requests to be as large as they
    /// may be: enough that each node can have one request under way and another one gathering. The less
    /// memory a batch takes, the more of it stays in the processor's caches.
    fn batch_bytes(&self) -> usize {
        let most = self.group.settings.batch_bytes_max;
        let nodes = self.outbound().cluster().snapshot().nodes.len();
        let share = most.saturating_mul(2 * nodes.max(1)) / self.busy.get().max(1);
        share.max(BATCH_BYTES_MIN).min(most)
    }

    /// Returns the lane that a group at this position, read after one of the batch, has to wait for, if any.
    fn awaited(&self, lane: u32, after: Option<u64>, position: u64) -> Option<u32> {
        let whereabouts = self.group.queue.whereabouts.as_ref()?;
        let fences = whereabouts.fences();
        self.fronts
            .awaited(&fences, &self.group.consumer, lane, (after, position))
    }

    /// Returns the queue's fences. A queue in Kafka has none: there a document's lane follows from its id.
    pub(crate) fn fences(&self) -> Fences {
        let whereabouts = self.group.queue.whereabouts.as_ref();
        whereabouts
            .map(|whereabouts| Arc::clone(&whereabouts.fences()))
            .unwrap_or_default()
    }

    /// Checks whether names lead elsewhere now.
    pub(crate) fn look(&self, table: &Arc<RouteTable>) {
        if let Some(whereabouts) = self.whereabouts() {
            let newest = || Arc::clone(&self.outbound().cluster().snapshot().table);
            whereabouts.look(table, newest, &self.group.queue.log);
        } else if self.group.queue.log.topic().is_some() {
            let is_new = self.led_to.borrow_mut().look(table, now_ms());
            if is_new {
                self.note_moves(table);
            }
        }
    }

    /// Returns the whereabouts of names in the cluster that this route delivers to. They are kept only for
    /// the cluster that clients see.
    pub(crate) fn whereabouts(&self) -> Option<&Whereabouts> {
        let (queue, settings) = (&self.group.queue, &self.group.settings);
        queue
            .whereabouts
            .as_deref()
            .filter(|_| queue.cluster == settings.cluster)
    }
}

/// Counts a lane as busy (it has documents to deliver) until this is dropped.
struct Busy(Rc<Route>);

impl Busy {
    fn new(route: &Rc<Route>) -> Self {
        route.busy.set(route.busy.get() + 1);
        Self(Rc::clone(route))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.set(self.0.busy.get() - 1);
    }
}

/// How a lane goes on after it has read.
enum Step {
    /// The records that were read are settled; this many of their documents have become dead letters.
    Commit(Commit, u64),
    /// Nothing was settled: the lane reads again.
    ReadAgain,
}

// === impl Lane ===

impl Lane {
    /// Delivers until told to stop. A panic leaves the lane as it is at that moment; the caller then goes
    /// back to the committed position.
    pub(crate) async fn work(&mut self) {
        while self.records().await.is_some() {
            let _busy = Busy::new(&self.route);
            // Yields, so that all lanes that have become busy by now are counted before one of them reads.
            tokio::task::yield_now().await;
            let Some(held) = self.memory().await else {
                return;
            };
            let (commit, dead) = match self.deliver_next(held).await {
                Some(Step::Commit(commit, dead)) => (commit, dead),
                Some(Step::ReadAgain) => continue,
                None => return,
            };
            if self.commit(commit).await.is_none() {
                return;
            }
            self.suspect.committed();
            let group = &self.route.group;
            // Dead letters are durable, so a batch that has some should not be delivered again after a crash,
            // perhaps with another outcome. A mark that is not written now is written soon.
            if dead > 0 && group.consumer.flush().is_ok() {
                let name = &*group.settings.group;
                group.queue.dead_letters.committed(name, dead);
            }
        }
    }

    /// Waits until there are records to deliver. `None`: the gateway stops, or everything is delivered and
    /// the pipeline is one that ends then.
    async fn records(&mut self) -> Option<()> {
        let group = &self.route.group;
        group.works_on(self.number, None);
        group.set(self.number, LaneActivity::Idle, None);
        self.route.fronts.set(self.number, None);
        let reader = &mut self.reader;
        let ready = async {
            if tokio::time::timeout(IDLE_AFTER, reader.ready()).await.is_err() {
                reader.rest();
                reader.ready().await;
            }
        };
        tokio::select! {
            biased;
            () = stopped(&mut self.stop) => None,
            () = ready => Some(()),
            () = tokio::time::sleep(group.settings.linger), if !group.settings.keep_running => {
                // No lane may wait for a lane that has ended.
                self.route.fronts.set(self.number, Some(u64::MAX));
                None
            }
        }
    }

    /// Reads the next records, and delivers them if they are a batch for this group's cluster. `None`: the
    /// gateway stops.
    async fn deliver_next(&mut self, held: LaneMemory) -> Option<Step> {
        let (from, room) = (self.reader.mark(), Room::of(&held, self.route.batch_bytes()));
        let mut body = self.room(room.lines);
        let room = room.within(&body);
        let route = Rc::clone(&self.route);
        let awaited = |after, position| route.awaited(self.number, after, position);
        // A record that is delivered alone leaves no room for a second one.
        let room = if self.suspect.is_alone() {
            Room::default()
        } else {
            room
        };
        let settings = &route.group.settings;
        let read = read(&mut self.reader, settings, room, &mut body, None, &awaited);
        let commit = match read {
            Ok(Some(Read::Batch(batch))) => return self.deliver_batch(batch, from, body, held).await,
            Ok(Some(Read::Held(position, lane))) => {
                // The lane that this one waits for may need the memory.
                drop((body, held));
                self.wait_for(position, lane).await?;
                return Some(Step::ReadAgain);
            }
            Ok(Some(Read::Lost(mark))) => mark.done(),
            Ok(Some(Read::NotOurs(mark, documents))) => mark.skipping(documents.into()),
            Ok(None) => return Some(Step::ReadAgain),
            Err(error) => {
                drop((body, held));
                route
                    .group
                    .set(self.number, LaneActivity::Paused, Some(&error.to_string()));
                self.rest(READ_AGAIN).await?;
                return Some(Step::ReadAgain);
            }
        };
        Some(Step::Commit(commit, 0))
    }

    /// Delivers a batch that was read from `from` on, together with the groups that may join it. `None`: the
    /// gateway stops.
    async fn deliver_batch(
        &mut self,
        batch: Box<Batch>,
        from: Mark,
        mut body: Buffer,
        mut held: LaneMemory,
    ) -> Option<Step> {
        let group = Arc::clone(&self.route.group);
        let position = batch.origins.first().map(|origin| origin.position);
        self.route.fronts.set(self.number, position);
        let mut batch = match self.suspect.is_alone() {
            true => batch,
            false => self.fill(batch, &held, &mut body).await?,
        };
        let failed_before = self.suspect.begins(batch.first_and_last());
        batch.from = Some(from);
        held.keep(with_notes(body.capacity(), batch.documents));
        group.works_on(self.number, batch.origins.first().map(|origin| origin.time_ms));
        group.set(self.number, LaneActivity::Delivering, None);
        let body = body.freeze();
        let dead = match failed_before {
            Some(panicked) => self.deliver_apart(&batch, body, held, panicked).await?,
            None => self.deliver(&batch, body, Some(held)).await?,
        };
        Some(Step::Commit(batch.settled(dead), dead))
    }

    /// Waits until another lane has delivered its operations before `position` that may lead to the same
    /// documents.
    async fn wait_for(&mut self, position: u64, mut lane: u32) -> Option<()> {
        let route = Rc::clone(&self.route);
        route.fronts.set(self.number, Some(position));
        loop {
            let why = format!(
                "a name leads to another index: this lane waits for the operations of lane {lane} on that name"
            );
            route.group.set(self.number, LaneActivity::Delivering, Some(&why));
            tokio::select! {
                biased;
                () = stopped(&mut self.stop) => return None,
                () = route.fronts.moved() => {}
            }
            match route.awaited(self.number, None, position) {
                Some(other) => lane = other,
                None => return Some(()),
            }
        }
    }

    /// Waits for memory for the next batch: enough for the next group in any case, and as much more of a full
    /// batch as there is room for. `None`: the gateway stops.
    async fn memory(&mut self) -> Option<LaneMemory> {
        let memory = Arc::clone(&self.route.shared.delivery_memory);
        // A group that cannot be peeked at is read all the same, and the read says why.
        let next = self.reader.peek().ok().flatten().unwrap_or_default();
        let (mut bytes, mut documents) = (self.route.batch_bytes(), self.route.group.settings.batch_docs_max);
        // A lane that waits for more records needs the room for them.
        if self.route.group.settings.linger.is_zero()
            && let Some(waiting) = self.reader.waiting()
        {
            (bytes, documents) = (bytes.min(waiting.0), documents.min(waiting.1));
        }
        let least = with_notes(next.0, next.1);
        let most = with_notes(bytes, documents).max(least);
        let mut taken = std::pin::pin!(memory.take(least, most));
        if let Some(held) = taken.as_mut().now_or_never() {
            return Some(held);
        }
        let group = &self.route.group;
        group.set(self.number, LaneActivity::Delivering, Some(WAITS_FOR_MEMORY));
        tokio::select! {
            biased;
            () = stopped(&mut self.stop) => None,
            held = taken => Some(held),
        }
    }

    /// Takes a buffer for the next batch. The buffer is made large enough for all the records to come, since
    /// growing it costs a copy and leaves memory behind that nobody takes again. If more follows than a batch
    /// takes, an idle buffer will do that is somewhat smaller: how much a lane reads depends on how many
    /// lanes are busy, and new memory at each change costs more than batches that are not quite as large.
    fn room(&self, bytes_max: usize) -> Buffer {
        let pool = self.route.worker.pool();
        match self.reader.waiting() {
            Some((bytes, _)) if bytes < bytes_max => pool.take(bytes),
            _ => pool.take_about(bytes_max),
        }
    }

    /// Waits for more records, as long as the pipeline says, if the batch would not fill a request. `None`:
    /// the gateway stops, and the batch is read again after the next start.
    async fn fill(
        &mut self,
        mut batch: Box<Batch>,
        held: &LaneMemory,
        body: &mut Buffer,
    ) -> Option<Box<Batch>> {
        let group = Arc::clone(&self.route.group);
        let until = Instant::now() + group.settings.linger;
        if !group.settings.linger.is_zero() {
            let since = batch.origins.first().map(|origin| origin.time_ms);
            group.works_on(self.number, since);
        }
        let docs_max = group.settings.batch_docs_max;
        let room = Room::of(held, self.route.batch_bytes());
        let memory = Arc::clone(&self.route.shared.delivery_memory);
        while room.has_some(body.len(), batch.documents)
            && batch.documents < docs_max
            && Instant::now() < until
        {
            let ready = self.reader.ready();
            tokio::select! {
                biased;
                () = stopped(&mut self.stop) => return None,
                () = ready => {}
                () = tokio::time::sleep_until(until) => break,
                () = memory.is_wanted(), if held.is_common() => break,
            }
            let known = batch.documents;
            let route = Rc::clone(&self.route);
            let awaited = |after, position| route.awaited(self.number, after, position);
            match read(
                &mut self.reader,
                &group.settings,
                room,
                body,
                Some(batch),
                &awaited,
            ) {
                Ok(Some(Read::Batch(more))) => batch = more,
                _ => unreachable!("what was read stays a batch"),
            }
            // The next group does not go along with this batch.
            if batch.documents == known {
                break;
            }
        }
        Some(batch)
    }

    /// Commits a batch that is done; if that fails, the group was moved, and the lane goes on from there.
    async fn commit(&mut self, commit: Commit) -> Option<()> {
        assert_read(commit.mark(), self.number, self.reader.mark());
        let consumer = &self.route.group.consumer;
        let committed = match self.route.group.parked() {
            Some(parked) => parked.commit(self.number, || consumer.commit(&[commit])),
            None => consumer.commit(&[commit]),
        };
        let Err(error) = committed else {
            self.route.flights.committed(self.number);
            return Some(());
        };
        let group = &self.route.group;
        group.set(self.number, LaneActivity::Paused, Some(&error.to_string()));
        self.rest(READ_AGAIN).await?;
        if let Ok(reader) = self.route.group.consumer.reader(self.number) {
            self.reader = reader;
        }
        Some(())
    }
}

/// Asserts that the mark of a commit is of this lane, and that its reader has got so far.
///
/// # Panics
///
/// If not: operations would count as done that nobody has looked at.
fn assert_read(mark: Mark, lane: u32, read: Mark) {
    let is_its_own = (mark.lane, read.lane) == (lane, lane);
    assert!(is_its_own, "a lane reads and commits its own groups");
    assert!(
        mark.position <= read.position && mark.documents <= read.documents,
        "a lane commits no more than it has read: {mark:?} of {read:?}"
    );
}

/// The room that a batch may fill.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    /// Bytes of lines; `all` includes the notes of their operations.
    lines: usize,
    all: usize,
}

// === impl Room ===

impl Room {
    /// Returns the room that held memory has for a batch of at most `batch_bytes` bytes of lines.
    fn of(held: &LaneMemory, batch_bytes: usize) -> Self {
        Self {
            lines: batch_bytes.min(held.bytes()),
            all: held.bytes(),
        }
    }

    /// Returns the room that is left for lines that are read at once into `body`, which must not grow.
    fn within(self, body: &Buffer) -> Self {
        Self {
            lines: self.lines.min(body.capacity()),
            ..self
        }
    }

    /// Whether this many bytes and operations leave any room.
    fn has_some(self, bytes: usize, operations: usize) -> bool {
        bytes < self.lines && with_notes(bytes, operations) < self.all
    }

    /// Whether there is room for this many bytes and operations.
    fn has(self, bytes: usize, operations: usize) -> bool {
        bytes <= self.lines && with_notes(bytes, operations) <= self.all
    }
}

/// Returns where the names of a record led in the cluster that is delivered to. If it is the same, the
/// parameters of the record are those of the batch.
fn led_to(
    batch: Option<&Batch>,
    same: bool,
    recorded: Option<&Recorded>,
    settings: &config::Delivery,
) -> Option<NamesLedTo> {
    match batch.filter(|_| same) {
        Some(batch) => batch.origins.first()?.led_to.clone(),
        None => recorded?.led_to(&settings.group),
    }
}

/// Reads the lane's next groups into `body`: requests with the same parameters, as many as there is room for
/// (a first group that is larger is read all the same). With `known`, reads the groups that come after that
/// batch and may go along with it.
fn read(
    reader: &mut LaneReader,
    settings: &config::Delivery,
    room: Room,
    body: &mut Buffer,
    known: Option<Box<Batch>>,
    awaited: &dyn Fn(Option<u64>, u64) -> Option<u32>,
) -> Result<Option<Read>, ReadError> {
    let mut batch = known.map(|batch| *batch);
    loop {
        if !make_room(reader, settings, room, body, batch.as_ref()) {
            break;
        }
        let (before, start) = (reader.mark(), body.len());
        let group = match reader.next(body.as_mut_vec()) {
            Err(_) if batch.is_some() => break,
            Err(error) => return Err(error),
            Ok(None) => break,
            Ok(Some(Next::Lost { mark, .. })) if batch.is_none() => return Ok(Some(Read::Lost(mark))),
            Ok(Some(Next::Lost { .. })) => {
                reader.rewind(before);
                break;
            }
            Ok(Some(Next::Group(group))) => group,
        };
        // Most requests have the same parameters as the request before them, and need not be read again.
        let (params, span) = apart_from_span(&group.params);
        let same = batch.as_ref().is_some_and(|batch| batch.raw_params == params);
        let recorded = (!same).then(|| Recorded::read(&group.params)).flatten();
        let ours = same || is_for(settings, group.kind, recorded.as_ref());
        let origin = Origin {
            first: batch.as_ref().map_or(0, |batch| batch.documents),
            place: 0,
            position: group.position,
            time_ms: group.time_ms,
            led_to: led_to(batch.as_ref(), same, recorded.as_ref(), settings),
        };
        let documents = group.documents;
        match &mut batch {
            None if !ours => return Ok(Some(Read::NotOurs(group.mark, documents))),
            None => {
                if let Some(lane) = awaited(None, group.position) {
                    body.truncate(start);
                    reader.rewind(before);
                    return Ok(Some(Read::Held(group.position, lane)));
                }
                batch = Some(Batch::new(recorded, group.params, origin, group.mark));
            }
            Some(batch)
                if ours
                    && reader.goes_along(batch.first_and_last().0, group.position)
                    && awaited(Some(batch.first_and_last().1), group.position).is_none()
                    && (same || batch.may_take(recorded.as_ref())) =>
            {
                batch.take((recorded.as_ref(), span), origin, group.mark);
            }
            Some(_) => {
                body.truncate(start);
                reader.rewind(before);
                break;
            }
        }
        if let Some(batch) = &mut batch {
            batch.documents += documents as usize;
        }
    }
    Ok(batch.map(|batch| Read::Batch(Box::new(batch))))
}

/// Makes room for the next group. Returns whether the group is to be read: not if the batch is full without
/// it.
fn make_room(
    reader: &mut LaneReader,
    settings: &config::Delivery,
    room: Room,
    body: &mut Buffer,
    batch: Option<&Batch>,
) -> bool {
    let length = body.len();
    let fits = |known: &Batch, (bytes, documents): (usize, usize)| {
        known.documents < settings.batch_docs_max && room.has(length + bytes, known.documents + documents)
    };
    match reader.peek() {
        // The first group may be larger than a batch; its memory counts like any other.
        Ok(Some(next)) if batch.is_none_or(|known| fits(known, next)) => {
            body.reserve(next.0);
            true
        }
        // A group that cannot be read now is an error if it is the first. Otherwise the groups before it are
        // delivered all the same.
        _ => batch.is_none(),
    }
}

/// Whether a consumer group delivers these documents: it delivers all that clients sent, and its own dead
/// letters.
fn is_for(settings: &config::Delivery, kind: u8, recorded: Option<&Recorded>) -> bool {
    let replay = recorded.and_then(|recorded| recorded.params.replay.as_ref());
    kind != REPLAYED || replay.is_none_or(|replay| replay.group == *settings.group)
}

/// The least size of a lane's batch, however much memory other lanes hold: every batch has a cost, however
/// small it is.
const BATCH_BYTES_MIN: usize = 1 << 20;

/// A lane that has had nothing to do for this long lets go of its memory.
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// Why a lane waits if its next batch finds no room in memory.
const WAITS_FOR_MEMORY: &str = "the lane waits for memory that other lanes hold (worker.delivery_memory)";
/// The wait before a log that could not be read is read again.
pub(crate) const READ_AGAIN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use std::fs;

    use log::{Log, Options, RealDisk, StartAt};
    use wire::{Budget, Pool};

    use super::*;
    use crate::queue::PARAMS_READ;
    use config::Config;

    fn settings() -> config::Delivery {
        let text = "
entry: [{name: e, router: r, network.binding: '127.0.0.1:8000'}]
router: [{name: r, default_flow: f}]
flow: [{name: f, filter: [{bulk_reshuffle: {elasticsearch: c, mode: async}}, {elasticsearch: {elasticsearch: c}}]}]
pipeline: [{name: p, processor: [{bulk_indexing: {}}]}]
elasticsearch: [{name: c, endpoint: 'http://127.0.0.1:1'}]";
        Config::parse(text, None, &|_| None).unwrap().config.deliveries[0].clone()
    }

    fn documents(read: Result<Option<Read>, ReadError>) -> Option<usize> {
        match read {
            Ok(Some(Read::Batch(batch))) => Some(batch.documents),
            Ok(_) => panic!("something else"),
            Err(_) => None,
        }
    }

    #[test]
    fn what_is_read_at_once_fits_into_what_there_is_room_for() {
        let pool = Pool::new(Arc::new(Budget::new(64 << 20)));
        drop(pool.take(3 << 20));
        let body = pool.take_about(4 << 20);
        let room = Room {
            lines: 4 << 20,
            all: usize::MAX,
        };
        let room = room.within(&body);
        assert_eq!(body.capacity(), 3 << 20, "it lay idle");
        assert!(room.has(3 << 20, 1000) && !room.has((3 << 20) + 1, 1));
        assert!(room.has_some((3 << 20) - 1, 1) && !room.has_some(3 << 20, 1));
    }

    #[test]
    fn what_was_read_before_the_disk_failed_is_delivered_and_nothing_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            lanes: 1,
            segment_bytes: 4 << 10,
            ..Options::default()
        };
        let log = Log::open(folder.path(), options, RealDisk::default()).unwrap();
        for documents in [1, 2, 4, 8] {
            let mut record = log.record(0, b"{}");
            record.group(0, documents, |out| out.resize(3_000, b' '));
            log.append_blocking(record).unwrap();
        }
        let reader = log.consumer("g", StartAt::Oldest).unwrap().reader(0).unwrap();
        let mut reader = LaneReader::Disk(reader);
        let mut segments: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|file| file.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "segment"))
            .collect();
        segments.sort();
        assert_eq!(segments.len(), 4, "{segments:?}");
        let aside = folder.path().join("aside");
        fs::rename(&segments[1], &aside).unwrap();
        fs::create_dir(&segments[1]).unwrap();
        let (settings, pool) = (settings(), Pool::new(Arc::new(Budget::new(64 << 20))));
        let mut read = || {
            documents(read(
                &mut reader,
                &settings,
                Room {
                    lines: settings.batch_bytes_max,
                    all: usize::MAX,
                },
                &mut pool.take(0),
                None,
                &|_, _| None,
            ))
        };
        assert_eq!(read(), Some(1));
        assert_eq!(read(), None);
        fs::remove_dir(&segments[1]).unwrap();
        fs::rename(&aside, &segments[1]).unwrap();
        assert_eq!(read(), Some(14));
    }

    #[test]
    fn a_batch_has_the_spans_of_its_traced_records_and_reads_equal_parameters_once() {
        let span = |number: usize| format!("00-{:032x}-{:016x}-01", 7, number);
        let traced = |number| {
            format!(
                r#"{{"target":"/_bulk","content_type":"x","trace":"{}"}}"#,
                span(number)
            )
        };
        let plain = r#"{"target":"/_bulk","content_type":"x"}"#.to_owned();
        for order in [
            [traced(1), plain.clone(), plain.clone(), traced(2), plain.clone()],
            [plain.clone(), traced(1), plain.clone(), plain, traced(2)],
        ] {
            let folder = tempfile::tempdir().unwrap();
            let options = Options {
                lanes: 1,
                ..Options::default()
            };
            let log = Log::open(folder.path(), options, RealDisk::default()).unwrap();
            for params in &order {
                let mut record = log.record(0, params.as_bytes());
                record.group(0, 1, |out| out.resize(100, b' '));
                log.append_blocking(record).unwrap();
            }
            let reader = log.consumer("g", StartAt::Oldest).unwrap().reader(0).unwrap();
            let (settings, pool) = (settings(), Pool::new(Arc::new(Budget::new(64 << 20))));
            let room = Room {
                lines: settings.batch_bytes_max,
                all: usize::MAX,
            };
            let (mut reader, mut body) = (LaneReader::Disk(reader), pool.take(0));
            let before = PARAMS_READ.get();
            let read = read(&mut reader, &settings, room, &mut body, None, &|_, _| None);
            let Ok(Some(Read::Batch(batch))) = read else {
                panic!("a batch")
            };
            assert_eq!(batch.documents, 5);
            assert_eq!(PARAMS_READ.get() - before, 1);
            let spans = batch.accepted_by.iter();
            let spans: Vec<_> = spans.map(|(_, span)| span.to_string()).collect();
            assert_eq!(spans, [span(1), span(2)]);
            let first = batch
                .origins
                .iter()
                .find(|origin| origin.position == batch.accepted_by[0].0.1);
            let at = order.iter().position(|params| *params == traced(1)).unwrap();
            assert_eq!(first.unwrap().first, at);
        }
    }

    fn mark(lane: u32, position: u64, documents: u64) -> Mark {
        Mark {
            lane,
            position,
            documents,
            ..Mark::default()
        }
    }

    #[test]
    fn a_lane_commits_what_it_has_read_or_less() {
        assert_read(mark(3, 80, 5), 3, mark(3, 80, 5));
        assert_read(mark(3, 80, 5), 3, mark(3, 4096, 5));
    }

    #[test]
    #[should_panic(expected = "a lane commits no more than it has read")]
    fn a_lane_commits_nothing_that_it_has_not_read() {
        assert_read(mark(3, 80, 6), 3, mark(3, 80, 5));
    }

    #[test]
    #[should_panic(expected = "a lane reads and commits its own groups")]
    fn a_lane_commits_for_no_other_lane() {
        assert_read(mark(2, 80, 5), 3, mark(3, 80, 5));
    }
}
