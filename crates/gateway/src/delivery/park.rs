//! Holds back and parks operations of a lane's batch.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bulk::Op;
use cluster::Snapshot;

use crate::clock::now_ms;
use crate::delivery::error_scope::concerns_requests;
use crate::delivery::lane::Lane;
use crate::delivery::outcome::Again;
use crate::delivery::pauses::ROOM_AGAIN;
use crate::delivery::server_error::Error;
use crate::delivery::work::Work;
use crate::queue::DELIVERED_TYPE;
use crate::queue::parked::{
    CATCHES_UP, FailureRow, Flight, Holder, HolderQuery, NotParked, OperationNames, ParkKey, Parked,
    ParkedEntry, RefusalReason, Scope, ShardOf, behind_other_lane,
};
use crate::queue::{LaneActivity, written};

/// Operations of a batch that are parked for one key.
struct ToPark {
    key: ParkKey,
    why: String,
    /// The operations' numbers: their names, all at once, would take more than their lines.
    operations: Vec<usize>,
    /// The cluster's error for each operation, if they are refused already.
    refused: Vec<RefusalReason>,
    /// The request with the operations, if it is under way.
    flight: Option<Arc<Flight>>,
}

/// Operations that must wait behind others, by key and with the reason.
type BehindKeys = BTreeMap<ParkKey, (String, Vec<usize>)>;

impl Lane {
    /// Parks the operations that must wait behind operations that are parked already, and leaves the rest.
    /// `None` if the gateway stops.
    pub(crate) async fn hold_back(&mut self, work: &mut Work<'_>, left: &mut Vec<usize>) -> Option<()> {
        let Some(parked) = self.parked().filter(|parked| parked.any()) else {
            return Some(());
        };
        let snapshot = self.topology().await?.1;
        let (by_key, free) = loop {
            let (by_key, free) = self.behind(&parked, work, left, &snapshot);
            let full = by_key
                .keys()
                .find(|key| parked.state().bytes_under_way(key) > BEHIND_BYTES_MAX);
            let Some(full) = full else {
                break (by_key, free);
            };
            let why = format!(
                "much waits for {} behind a request that is under way",
                full.shown()
            );
            self.route
                .group
                .set(self.number, LaneActivity::Delivering, Some(&why));
            let full = full.clone();
            while parked.state().bytes_under_way(&full) > BEHIND_BYTES_MAX {
                self.rest(LOOK_AGAIN).await?;
            }
        };
        *left = free;
        let to_park = by_key.into_iter().map(|(key, (why, operations))| ToPark {
            key,
            why,
            operations,
            refused: Vec::new(),
            flight: None,
        });
        let dead = self.put_all(&parked, work, to_park.collect(), &snapshot).await?;
        self.bury(work, dead).await
    }

    /// Returns the operations that must wait behind parked ones, by key and with the reason, and those that
    /// need not.
    fn behind(
        &self,
        parked: &Parked,
        work: &Work<'_>,
        operations: &[usize],
        snapshot: &Snapshot,
    ) -> (BehindKeys, Vec<usize>) {
        let mut by_key = BehindKeys::new();
        let fences = self.route.fences();
        let led = |name: &str, request| self.route.indices_led_to(name, request, None);
        let state = parked.state_by(snapshot, None, led);
        let mut free = operations.to_vec();
        free.retain(|operation| {
            let named = work.named(*operation, snapshot);
            let shard = || work.shard(*operation, snapshot);
            let query = HolderQuery {
                named: &named,
                shard: &shard,
                lane: self.number,
                position: work.batch.origin(*operation).position,
                target: &work.wording.target,
                fences: &fences,
            };
            let (key, why) = match state.holder(&query, None) {
                Some(Holder::Key(key)) => (key, String::new()),
                Some(Holder::OtherLane(key)) => {
                    let index = named.index().to_owned();
                    (ParkKey::Index { index }, behind_other_lane(&key))
                }
                None => return true,
            };
            let of_key = by_key.entry(key).or_insert_with(|| (why, Vec::new()));
            of_key.1.push(*operation);
            false
        });
        (by_key, free)
    }

    /// Parks operations, each under the key that it waits for. Returns the operations that find no room,
    /// which are to become dead letters.
    pub(crate) async fn park(
        &mut self,
        work: &Work<'_>,
        failed: Vec<(usize, Scope, Arc<Again>)>,
        snapshot: &Snapshot,
    ) -> Option<Vec<(usize, Arc<Error>)>> {
        let Some(parked) = self.parked().filter(|_| !failed.is_empty()) else {
            return Some(Vec::new());
        };
        let mut by_key: BTreeMap<(ParkKey, usize), ToPark> = BTreeMap::new();
        for (operation, scope, again) in failed {
            let named = work.named(operation, snapshot);
            let shard = || work.shard(operation, snapshot);
            let key = self.key(&parked, work, (scope, &shard), &named, &again);
            let request = again
                .flight
                .as_ref()
                .map_or(0, |flight| Arc::as_ptr(flight).addr());
            let to_park = by_key.entry((key.clone(), request)).or_insert_with(|| ToPark {
                key,
                why: again.why(),
                operations: Vec::new(),
                refused: Vec::new(),
                flight: again.flight.clone(),
            });
            to_park.operations.push(operation);
        }
        let all: Vec<ToPark> = by_key.into_values().collect();
        for to_park in &all {
            let (queue, group) = (&*self.route.group.queue.name, &*self.route.group.settings.group);
            let (key, why) = (to_park.key.shown(), &to_park.why);
            wire::rationed!(
                tracing::warn,
                queue,
                group,
                key,
                why,
                "parked: these documents wait, and nothing else does"
            );
        }
        self.put_all(&parked, work, all, snapshot).await
    }

    /// Parks refused operations whose dead letters find no room, each with the reason. They are parked by
    /// index, so that only refused operations of that index wait.
    pub(crate) async fn park_letters(
        &mut self,
        work: &Work<'_>,
        refused: Vec<(usize, Arc<Error>, String)>,
    ) -> Option<()> {
        let parked = self.parked()?;
        let snapshot = self.topology().await?.1;
        let mut by_key: BTreeMap<ParkKey, Vec<ToPark>> = BTreeMap::new();
        for (operation, error, why) in refused {
            let named = work.named(operation, &snapshot);
            let key = parked.state().letters_key(named.index());
            let of_key = by_key.entry(key.clone()).or_default();
            if of_key
                .last()
                .is_none_or(|to_park| to_park.operations.len() >= LETTERS_AT_ONCE)
            {
                of_key.push(ToPark {
                    key,
                    why,
                    operations: Vec::new(),
                    refused: Vec::new(),
                    flight: None,
                });
            }
            if let Some(to_park) = of_key.last_mut() {
                to_park.operations.push(operation);
                to_park.refused.push(error.in_short());
            }
        }
        // There is always room for these, unless something is wrong with the disk.
        let all = by_key.into_values().flatten().collect();
        let left = self.put_all(&parked, work, all, &snapshot).await?;
        debug_assert!(left.is_empty(), "there is no bound for these");
        Some(())
    }

    fn key(
        &self,
        parked: &Parked,
        work: &Work<'_>,
        (scope, shard): (Scope, &dyn Fn() -> Option<ShardOf>),
        named: &OperationNames,
        again: &Again,
    ) -> ParkKey {
        let index = named.index().to_owned();
        let target = &work.wording.target;
        match scope {
            Scope::Document => ParkKey::Documents,
            Scope::Index => parked.state().index_line(named),
            scope if concerns_requests(scope, again.error(), target) => ParkKey::Request {
                index,
                target: target.clone(),
            },
            Scope::Request | Scope::Shard => ParkKey::Shards {
                index,
                lane: self.number,
                // Otherwise a lane has few shards of an index, and later writes know no more than the lane.
                shard: match self.route.group.queue.log.has_lanes_by_id() {
                    true => shard(),
                    false => None,
                },
            },
        }
    }

    /// Puts parked operations on disk. Returns the operations that find no room, with the reason.
    async fn put_all(
        &mut self,
        parked: &Arc<Parked>,
        work: &Work<'_>,
        all: Vec<ToPark>,
        snapshot: &Snapshot,
    ) -> Option<Vec<(usize, Arc<Error>)>> {
        let mut dead = Vec::new();
        // An entry is in memory several times until it is on disk, and again whenever it is tried.
        let most = parked
            .record_bytes_max()
            .map_or(PIECE_BYTES, |most| most.min(PIECE_BYTES));
        let pieces = all
            .into_iter()
            .flat_map(|to_park| to_park.in_pieces(work, most, snapshot));
        for to_park in pieces {
            let (entry, lines, doubt) = self.entry(work, &to_park, snapshot);
            let (mut copy, since) = (None, Instant::now());
            loop {
                let charge = self.route.large_copy(lines.len()).await;
                let put = parked.put(entry.clone(), &lines, doubt, &mut copy).await;
                drop(charge);
                match put {
                    Ok(()) => {
                        if let (Some(flight), Some((at, _))) = (&to_park.flight, copy) {
                            parked.are_under_way(self.number, at, flight);
                        }
                        break;
                    }
                    // Nobody gives up what may be done in a moment, or follows what may be.
                    Err(NotParked::Full(why)) if to_park.may_wait(parked, since) => {
                        if to_park
                            .operations
                            .iter()
                            .all(|one| to_park.has_done(self.number, work, *one))
                        {
                            break;
                        }
                        let group = &self.route.group;
                        group.set(self.number, LaneActivity::Delivering, Some(&why));
                        self.rest(LOOK_AGAIN).await?;
                    }
                    Err(full @ NotParked::Full(_)) => {
                        let error = Arc::new(Error {
                            status: 503,
                            kind: "parked_store_full".to_owned(),
                            reason: format!("{full}; it waited for {}: {}", to_park.key.shown(), to_park.why),
                        });
                        // What the request has executed meanwhile is done.
                        let operations = to_park.operations.iter();
                        let operations = operations.filter(|one| !to_park.has_done(self.number, work, **one));
                        dead.extend(operations.map(|operation| (*operation, Arc::clone(&error))));
                        break;
                    }
                    Err(NotParked::Disk(why)) => {
                        let why = format!("operations cannot be parked: {why}");
                        self.route
                            .group
                            .set(self.number, LaneActivity::Paused, Some(&why));
                        self.rest(ROOM_AGAIN).await?;
                    }
                }
            }
        }
        Some(dead)
    }

    fn entry<'w>(
        &self,
        work: &'w Work<'_>,
        to_park: &ToPark,
        snapshot: &Snapshot,
    ) -> (ParkedEntry, Cow<'w, [u8]>, bool) {
        let batch = work.batch;
        let mut entry = ParkedEntry {
            key: to_park.key.clone(),
            names: Vec::new(),
            target: batch.target().to_owned(),
            content_type: DELIVERED_TYPE.to_owned(),
            minted: self.minted(work, to_park),
            led_to: Vec::new(),
            spans: Vec::new(),
            lane: self.number,
            origins: Vec::new(),
            ops: Vec::with_capacity(to_park.operations.len()),
            documents: Vec::new(),
            places: Vec::new(),
            why: to_park.why.clone(),
            attempts: 0,
            refusals: 0,
            failure_row: FailureRow::default(),
            parked_ms: now_ms(),
            gone: Vec::new(),
            refused: to_park.refused.clone(),
            instead_of: None,
            number: fastrand::u64(1..),
        };
        let mut doubt = false;
        for operation in &to_park.operations {
            let named = work.named(*operation, snapshot);
            let origin = batch.origin(*operation);
            let request = (origin.position, origin.time_ms);
            if entry.origins.last() != Some(&request) {
                let span = batch.span_of((self.number, origin.position));
                let number = entry.origins.len() as u32;
                entry.spans.extend(span.map(|span| (number, span.to_string())));
                entry.origins.push(request);
            }
            let place = origin.place_of(*operation);
            entry.ops.push((entry.origins.len() as u32 - 1, place));
            entry.add_names(&named);
            if let Some(index) = origin.led_to(&named.written) {
                let pair = (
                    entry.origins.len() as u32 - 1,
                    named.written.clone(),
                    index.to_owned(),
                );
                if !entry.led_to.contains(&pair) {
                    entry.led_to.push(pair);
                }
            }
            entry.attempts = entry.attempts.max(work.attempts[*operation]);
            entry.refusals = entry.refusals.max(work.refusals[*operation]);
            let row = work.failure_rows[*operation];
            entry.failure_row = match entry.ops.len() {
                1 => row,
                _ => entry.failure_row.common(row),
            };
            doubt |= work.doubt[*operation].is_any();
        }
        (entry, work.text(&to_park.operations), doubt)
    }

    /// Returns the ids made by the gateway that operations to be parked may have: only a `create` asks for
    /// them.
    fn minted(&self, work: &Work<'_>, to_park: &ToPark) -> Vec<(String, String)> {
        let operations = to_park
            .operations
            .iter()
            .map(|operation| work.operations[*operation]);
        let creates: Vec<_> = operations.filter(|at| at.op == Op::Create).collect();
        let ids = creates.iter().filter_map(|at| {
            let subject = bulk::subject(&work.body[at.start..at.end])?;
            subject.id.map(|id| id.into_owned())
        });
        let ids: Vec<String> = ids.collect();
        let minted = work.batch.minted.iter();
        let minted = minted.filter(|minted| ids.iter().any(|id| minted.has(id.as_bytes())));
        minted.copied().map(written).collect()
    }

    pub(super) fn parked(&self) -> Option<Arc<Parked>> {
        self.route.group.parked().cloned()
    }
}

// === impl ToPark ===

impl ToPark {
    /// Whether the operations, for which there has been no room since then, are waited with: a request is or
    /// was under way with them, or with others of their key.
    fn may_wait(&self, parked: &Parked, since: Instant) -> bool {
        let flight = self.flight.as_ref();
        let is_under_way = flight.is_some_and(|flight| flight.is_under_way());
        let has_flown = flight.is_some() && since.elapsed() < CATCHES_UP;
        is_under_way || has_flown || parked.state().has_flown(&self.key)
    }

    /// Whether that request has executed an operation of the lane.
    fn has_done(&self, lane: u32, work: &Work<'_>, operation: usize) -> bool {
        let (position, place) = work.batch.order_of(operation);
        let flight = self.flight.as_ref();
        flight.is_some_and(|flight| flight.has_done((lane, position, place)))
    }

    /// Cuts the operations into pieces, each of which fits into a message of this many bytes.
    fn in_pieces(self, work: &Work<'_>, bytes_max: usize, snapshot: &Snapshot) -> Vec<Self> {
        let (key, why) = (self.key, cut(&self.why, WHY_BYTES_MAX));
        let head = HEAD_BYTES + work.batch.target().len() + 2 * why.len();
        let (mut pieces, mut bytes) = (Vec::<Self>::new(), 0);
        let mut refused = self.refused.into_iter();
        for operation in self.operations {
            let at = work.operations[operation];
            let refused = refused.next();
            // The most that JSON makes of these texts.
            let said = refused
                .as_ref()
                .map_or(0, |one| 6 * (one.kind.len() + one.reason.len()));
            let named = work.named(operation, snapshot);
            let names: usize = named.names().map(|name| name.len() + 8).sum();
            let origin = work.batch.origin(operation);
            let led_to = origin.led_to(&named.written);
            let led_to = led_to.map_or(0, |index| named.written.len() + index.len() + 24);
            let span = work
                .batch
                .span_of((work.batch.mark.lane, origin.position))
                .map_or(0, |_| SPAN_BYTES);
            let more = (at.end - at.start) + OPERATION_BYTES + said + names + led_to + span;
            if pieces.is_empty() || bytes + more > bytes_max {
                bytes = head;
                pieces.push(Self {
                    key: key.clone(),
                    why: why.clone(),
                    operations: Vec::new(),
                    refused: Vec::new(),
                    flight: self.flight.clone(),
                });
            }
            bytes += more;
            if let Some(piece) = pieces.last_mut() {
                piece.operations.push(operation);
                piece.refused.extend(refused);
            }
        }
        pieces
    }
}

// === impl Error ===

impl Error {
    /// Returns the error as it is kept with a parked operation. The error is cut short: many operations share
    /// a record, and a node may word an error as long as it likes.
    pub(super) fn in_short(&self) -> RefusalReason {
        RefusalReason {
            status: self.status,
            kind: cut(&self.kind, REFUSED_KIND_BYTES_MAX),
            reason: cut(&self.reason, REFUSED_REASON_BYTES_MAX),
        }
    }
}

impl From<RefusalReason> for Error {
    fn from(refused: RefusalReason) -> Self {
        Self {
            status: refused.status,
            kind: refused.kind,
            reason: refused.reason,
        }
    }
}

fn cut(text: &str, most: usize) -> String {
    text[..text.floor_char_boundary(most)].to_owned()
}

/// The time until a lane looks again at a request that is under way.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// The most bytes that go behind a request under way; a lane with more waits for its end.
pub(crate) const BEHIND_BYTES_MAX: u64 = 8 << 20;
/// The most bytes of an entry with its lines, unless one operation alone has more.
const PIECE_BYTES: usize = 1 << 20;
/// The most bytes of an entry without its operations, its reason and its target; and the most bytes for each
/// operation: its request, its place, its document, and an id that was made for it.
const HEAD_BYTES: usize = 8 << 10;
const OPERATION_BYTES: usize = 304;
/// The most bytes of a span and its request's number.
const SPAN_BYTES: usize = 80;
const WHY_BYTES_MAX: usize = 2 << 10;
/// The most refused operations that are parked together.
const LETTERS_AT_ONCE: usize = 1000;
const REFUSED_KIND_BYTES_MAX: usize = 128;
const REFUSED_REASON_BYTES_MAX: usize = 1 << 10;
