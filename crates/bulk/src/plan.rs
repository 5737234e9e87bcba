//! Splitting a body into parts: one for each node, or finer.

use std::ops::Range;

use crate::action::Form;
use crate::direct::RoutingValues;
use crate::lanes::{bins, lane_of, lane_of_id, lane_seed};
use crate::names::Names;
use crate::runs::{Assigned, Runs};
use crate::touches::{Touched, Touches};
use crate::walk::{Doc, ShardChoice, Walk};
use crate::writes::{Writes, WritesSoFar, Written};
use crate::{Ask, ID_LENGTH, IdMint, Level, Minted, NodeIx, Pass, RouteTable, Why, together};

/// What to do with a body.
#[derive(Debug)]
pub enum Verdict {
    /// Send these parts and merge the replies.
    Plan(Plan),
    /// Send the untouched request to one node.
    Pass(Pass),
}

/// The parts of a body, and the order that their items have in the reply.
#[derive(Debug, Default)]
pub struct Plan {
    /// The parts, at least one, in the order of their first documents. At [`Level::Lane`] a lane may have
    /// several ([`Plan::by_lane`]).
    pub parts: Vec<Part>,
    /// The part of each document; empty when there is only one part.
    pub(crate) order: Vec<u16>,
    /// Minted ids and routing values, in the form in which they are spliced into action lines.
    pub(crate) arena: Vec<u8>,
    pub(crate) docs: u32,
    pub(crate) ingests: bool,
    pub(crate) typed: bool,
    minted: Option<Minted>,
    names: Vec<u32>,
    writes: Vec<Writes>,
    touched: Vec<Touched>,
}

/// The operations that go to one destination in one request.
#[derive(Debug, Default)]
pub struct Part {
    /// The destination that should get the part.
    pub destination: Destination,
    /// The shard, when the level is [`Level::Shard`].
    pub shard: Option<u32>,
    /// The concrete index, when the level is [`Level::Index`] or [`Level::Shard`].
    pub index: Option<Box<str>>,
    /// The lane, when the level is [`Level::Lane`]; else 0.
    pub lane: u32,
    /// Number of operations, at least 1: as many items must come back.
    pub docs: u32,
    /// Length of this part's body in bytes: its `Content-Length`.
    pub bytes: u64,
    pub(crate) pieces: Vec<Piece>,
}

/// The destination of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Destination {
    /// The node that holds the primaries.
    Node(NodeIx),
    /// Any node will do: nodes take turns.
    #[default]
    Any,
}

/// A range of the body or, where `start` has the bit [`ARENA`], of the arena. Never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// Lists of pieces that are kept for the next plans, and how long each may be: few long ones (8 MiB at most),
/// and short ones for plans with a part for each shard (2 MiB at most).
const PIECES_KEPT: usize = 64;
const PIECES_OF_ONE_KEPT: usize = 16 << 10;
const SHORT_PIECES_KEPT: usize = 1_024;
const PIECES_OF_SHORT_KEPT: usize = 256;
/// The bit of [`Piece::start`] that marks a piece of the arena; bodies are therefore under 2 GiB.
pub(crate) const ARENA: u32 = 1 << 31;

/// Memory that plans are made of, kept from one request to the next.
#[derive(Debug)]
pub struct Scratch {
    /// False only in oracle tests: every action line then takes the slow path.
    pub(crate) fast: bool,
    order: Vec<u16>,
    arena: Vec<u8>,
    parts: Vec<Part>,
    pub(crate) pieces: Vec<Vec<Piece>>,
    slots: Slots,
    values: RoutingValues,
    touches: Touches,
    names: Names,
}

/// Splits a body. This touches each byte of it once and allocates nothing per document.
pub fn plan(
    body: &[u8],
    ask: &Ask<'_>,
    table: &RouteTable,
    ids: &mut IdMint,
    scratch: &mut Scratch,
) -> Verdict {
    plan_observed(body, ask, table, ids, scratch, &mut ())
}

/// An observer that sees each operation while a plan is made.
pub(crate) trait OperationObserver {
    /// Takes the next operation and its id, if it has one, whether given or minted.
    fn take(&mut self, doc: &Doc<'_, '_>, id: Option<&[u8]>);
}

impl OperationObserver for () {
    #[inline]
    fn take(&mut self, _: &Doc<'_, '_>, _: Option<&[u8]>) {}
}

/// Like [`plan`], with `observer` observing each operation. What `observer` collected is of no use if the
/// body passes.
pub(crate) fn plan_observed(
    body: &[u8],
    ask: &Ask<'_>,
    table: &RouteTable,
    ids: &mut IdMint,
    scratch: &mut Scratch,
    observer: &mut impl OperationObserver,
) -> Verdict {
    let mut draft = Draft::new(body, ask, table, scratch);
    let filled = draft.begin_filling(ask).and_then(|mut filling| {
        draft.fill(&mut filling, ask, ids, observer, u32::MAX)?;
        if draft.ends_mixed(&mut filling, ask) {
            together::keep(&mut draft.plan, body, ask, table, draft.scratch)?;
        }
        Ok(())
    });
    draft.into_verdict(filled)
}

/// Like [`plan`], for bodies with many operations: between two stretches of operations it awaits `turn`, so
/// that other work on the thread can continue meanwhile. Nobody else may use `ids` until this ends.
pub async fn plan_in_turns(
    body: &[u8],
    ask: &Ask<'_>,
    table: &RouteTable,
    ids: &mut IdMint,
    scratch: &mut Scratch,
    turn: impl AsyncFnMut(),
) -> Verdict {
    plan_observed_in_turns(body, ask, table, ids, scratch, &mut (), turn).await
}

/// Like [`plan_in_turns`], with `observer` observing each operation.
pub(crate) async fn plan_observed_in_turns(
    body: &[u8],
    ask: &Ask<'_>,
    table: &RouteTable,
    ids: &mut IdMint,
    scratch: &mut Scratch,
    observer: &mut impl OperationObserver,
    mut turn: impl AsyncFnMut(),
) -> Verdict {
    let mut draft = Draft::new(body, ask, table, scratch);
    let mut filling = match draft.begin_filling(ask) {
        Ok(filling) => filling,
        Err(pass) => return draft.into_verdict(Err(pass)),
    };
    let filled = loop {
        let until = draft.plan.docs.saturating_add(STRETCH_DOCS);
        match draft.fill(&mut filling, ask, ids, observer, until) {
            Ok(true) => break Ok(()),
            Ok(false) => turn().await,
            Err(pass) => break Err(pass),
        }
    };
    let filled = match filled {
        Ok(()) if draft.ends_mixed(&mut filling, ask) => {
            together::keep_in_turns(&mut draft.plan, body, ask, table, draft.scratch, &mut turn).await
        }
        filled => filled,
    };
    draft.into_verdict(filled)
}

/// Operations between two turns: they take some tenths of a millisecond.
pub(crate) const STRETCH_DOCS: u32 = 4_096;

/// The progress of a draft through its body.
struct Filling<'b, 't> {
    walk: Walk<'b, 't>,
    runs: Runs<'t>,
    /// Documents whose shard the server chooses.
    free: u32,
}

/// A plan in the making.
struct Draft<'a, 's> {
    body: &'a [u8],
    level: Level,
    lanes_by_id: bool,
    /// At the level lane: the parts that a lane may have, a power of two.
    bins: usize,
    /// The URL's index, for lines that name none.
    default_index: Option<&'a str>,
    table: &'a RouteTable,
    scratch: &'s mut Scratch,
    plan: Plan,
}

/// Part numbers, by the properties that distinguish parts at a level. After each plan only the written slots
/// are reset, so the cost depends on the parts in use and not on the cluster's size.
#[derive(Debug)]
struct Slots {
    /// At the levels index and shard: where an index's row begins in `parts`, by ordinal.
    rows: Vec<u32>,
    rows_in_use: Vec<u32>,
    /// Part numbers, by node or by row and node or shard.
    parts: Vec<u16>,
    /// The part for documents that any node may take.
    any: u16,
    /// At the level lane: the names that were looked up lately, each at its own place.
    lately: [Option<RecentName>; LATELY],
    /// At the level lane: the indices written to, as far as they have been seen.
    writes: WritesSoFar,
}

/// A name and operation that was looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RecentName {
    of: Written,
    /// The hash of the concrete index's name.
    hash: u32,
}

/// The number of names and operations that are remembered, each at one place: a body that alternates between
/// several indices looks up each of them once.
const LATELY: usize = 64;

const NO_PART: u16 = u16::MAX;
const NO_ROW: u32 = u32::MAX;

// === impl Scratch ===

impl Default for Scratch {
    fn default() -> Self {
        Self {
            fast: true,
            order: Vec::new(),
            arena: Vec::new(),
            parts: Vec::new(),
            pieces: Vec::new(),
            slots: Slots::default(),
            values: RoutingValues::default(),
            touches: Touches::default(),
            names: Names::default(),
        }
    }
}

impl Scratch {
    /// Returns memory whose plans are made by the slow path alone: the oracle of the fast path.
    #[doc(hidden)]
    pub fn without_fast_path() -> Self {
        Self {
            fast: false,
            ..Self::default()
        }
    }

    /// Sets whether plans count their operations by shard; not at the level [`Level::Lane`].
    pub fn count_shards(&mut self, wanted: bool) {
        self.touches.want(wanted);
    }

    /// Takes back the memory of a finished plan.
    pub fn recycle(&mut self, plan: Plan) {
        let Plan {
            mut parts,
            mut order,
            mut arena,
            names,
            touched,
            ..
        } = plan;
        for part in parts.drain(..) {
            let mut pieces = part.pieces;
            // Many plans may come back that were there at once.
            let (lists, length) = (self.pieces.len(), pieces.capacity());
            let long = lists < PIECES_KEPT && length <= PIECES_OF_ONE_KEPT;
            if long || lists < SHORT_PIECES_KEPT && length <= PIECES_OF_SHORT_KEPT {
                pieces.clear();
                self.pieces.push(pieces);
            }
        }
        order.clear();
        arena.clear();
        (self.parts, self.order, self.arena) = (parts, order, arena);
        self.names.recycle(names);
        self.touches.recycle(touched);
    }
}

// === impl Plan ===

impl Plan {
    /// Returns the number of operations.
    pub fn docs(&self) -> u32 {
        self.docs
    }

    /// Returns whether some operation may go through an ingest pipeline.
    pub fn ingests(&self) -> bool {
        self.ingests
    }

    /// Returns whether some action line has a type, so that the answer carries a warning.
    pub fn typed(&self) -> bool {
        self.typed
    }

    /// Returns the ids that were minted, if any were. Of ids made for wanted shards, only the first and the
    /// last are known.
    pub fn minted(&self) -> Option<Minted> {
        self.minted
    }

    /// Returns the names that operations use for their indices, each once, by their numbers in the table
    /// ([`RouteTable::name_of`]).
    pub fn names(&self) -> &[u32] {
        &self.names
    }

    /// Returns which operations are done to which index, by the name as written; at the level [`Level::Lane`]
    /// only.
    pub fn writes(&self) -> &[Writes] {
        &self.writes
    }

    /// Returns how many operations go to which shard, as far as the shards are known, if they were counted
    /// ([`Scratch::count_shards`]).
    pub fn touched(&self) -> &[Touched] {
        &self.touched
    }

    /// Returns the part that holds the `doc`th operation.
    pub fn part_of(&self, doc: u32) -> usize {
        self.order.get(doc as usize).map_or(0, |part| usize::from(*part))
    }
}

// === impl Draft ===

impl<'a, 's> Draft<'a, 's> {
    fn new(body: &'a [u8], ask: &'a Ask<'_>, table: &'a RouteTable, scratch: &'s mut Scratch) -> Self {
        let level = ask.level;
        let plan = Plan {
            parts: std::mem::take(&mut scratch.parts),
            order: std::mem::take(&mut scratch.order),
            arena: std::mem::take(&mut scratch.arena),
            docs: 0,
            ingests: false,
            typed: false,
            minted: None,
            names: Vec::new(),
            writes: Vec::new(),
            touched: Vec::new(),
        };
        let bins = if ask.nodes_apart {
            bins(level, body.len(), table)
        } else {
            1
        };
        scratch.slots.clear(level, table, bins);
        scratch.touches.clear(level, table);
        scratch.names.clear(table);
        Self {
            body,
            level,
            lanes_by_id: ask.lanes_by_id,
            bins,
            default_index: ask.default_index,
            table,
            scratch,
            plan,
        }
    }

    fn begin_filling<'b>(&self, ask: &'b Ask<'b>) -> Result<Filling<'b, 'a>, Pass>
    where
        'a: 'b,
    {
        Ok(Filling {
            walk: Walk::new(self.body, ask, self.table, self.scratch.fast)?,
            runs: Runs::default(),
            free: 0,
        })
    }

    /// Reads on until the plan has `until` operations; returns whether that was the end of the body.
    #[inline]
    fn fill(
        &mut self,
        Filling { walk, runs, free }: &mut Filling<'_, 'a>,
        ask: &Ask<'_>,
        ids: &mut IdMint,
        observer: &mut impl OperationObserver,
        until: u32,
    ) -> Result<bool, Pass> {
        while self.plan.docs < until {
            // The document is used in place: moving it would cost a twelfth of all this.
            let next = walk.next();
            let doc = match &next {
                Ok(Some(doc)) => doc,
                Ok(None) => return Ok(true),
                Err(pass) => return Err(*pass),
            };
            match doc.choice {
                ShardChoice::Shard(shard) => {
                    let part = self.part(doc, Some(shard), doc.id)?;
                    self.push(part, doc);
                    self.touch(doc, shard);
                    observer.take(doc, doc.id);
                }
                ShardChoice::Free => {
                    let part = self.part(doc, None, None)?;
                    self.push(part, doc);
                    observer.take(doc, doc.id);
                    *free += 1;
                }
                ShardChoice::Mint => {
                    let id = ids.mint();
                    let shard = doc.route.shard_of(&id, doc.routing);
                    self.push_minted(doc, id, shard)?;
                    observer.take(doc, Some(&id));
                }
                ShardChoice::Pack | ShardChoice::Route => {
                    let id = self.push_directed(runs, doc, ask, ids)?;
                    observer.take(doc, id.as_ref().map(|id| id.as_slice()));
                }
            }
        }
        Ok(false)
    }

    /// Takes over what filling has found once the whole body is read. Returns whether documents whose shard
    /// the server chooses are among others.
    fn ends_mixed(&mut self, filling: &mut Filling<'_, 'a>, ask: &Ask<'_>) -> bool {
        if let Some(directing) = ask.direct {
            filling.runs.end(directing);
        }
        self.plan.ingests = filling.walk.ingests();
        self.plan.typed = filling.walk.typed();
        filling.free > 0 && filling.free < self.plan.docs
    }

    fn into_verdict(mut self, filled: Result<(), Pass>) -> Verdict {
        let plan = self.finish();
        let (why, line) = (Why::Empty, None);
        match filled.and((plan.docs > 0).then_some(()).ok_or(Pass { why, line })) {
            Ok(()) => {
                plan.assert_whole(self.body);
                Verdict::Plan(plan)
            }
            Err(pass) => {
                self.scratch.recycle(plan);
                Verdict::Pass(pass)
            }
        }
    }

    fn finish(&mut self) -> Plan {
        let mut plan = std::mem::take(&mut self.plan);
        plan.names = self.scratch.names.take();
        plan.writes = self.scratch.slots.writes.take();
        plan.touched = self.scratch.touches.take();
        if plan.parts.len() == 1 {
            plan.order.clear();
        }
        for part in &mut plan.parts {
            part.bytes = part
                .pieces
                .iter()
                .map(|piece| u64::from(piece.end - (piece.start & !ARENA)))
                .sum();
        }
        plan
    }

    /// Returns the number of the part that a document goes to, and makes the part if need be.
    #[inline(always)]
    fn part(&mut self, doc: &Doc<'_, '_>, shard: Option<u32>, id: Option<&[u8]>) -> Result<u16, Pass> {
        let nodes = self.table.nodes();
        let node = shard.and_then(|shard| doc.route.node(shard));
        let node = node.filter(|node| node.0 < nodes);
        self.scratch.names.note(doc.name);
        let slots = &mut self.scratch.slots;
        let lane = match (self.level, shard) {
            (Level::Lane(lanes), Some(shard)) => {
                let of_shard = slots.lane(doc, shard, lanes, self.default_index);
                match id.filter(|_| self.lanes_by_id) {
                    Some(id) => lane_of_id(id, lanes),
                    None => of_shard,
                }
            }
            _ => 0,
        };
        let slot = match (self.level, node, shard) {
            (Level::Lane(_), ..) => {
                let bin = node.map_or(0, |node| usize::from(node.0)) & (self.bins - 1);
                &mut slots.parts[lane as usize * self.bins + bin]
            }
            (Level::Cluster, ..) | (_, None, _) | (_, _, None) => &mut slots.any,
            (Level::Node, Some(node), _) => &mut slots.parts[usize::from(node.0)],
            (Level::Index, Some(node), _) => slots.in_row(doc.ordinal, u32::from(nodes), u32::from(node.0)),
            (Level::Shard, Some(_), Some(shard)) => slots.in_row(doc.ordinal, doc.route.shards(), shard),
        };
        if *slot != NO_PART {
            return Ok(*slot);
        }
        let number = self.plan.parts.len();
        if number >= usize::from(NO_PART) {
            let why = Why::TooManyParts;
            return Err(Pass { why, line: None });
        }
        *slot = number as u16;
        self.begin_part(doc, shard, node, lane);
        Ok(number as u16)
    }

    /// Adds a part for a document, which is not yet in it.
    #[cold]
    #[inline(never)]
    fn begin_part(&mut self, doc: &Doc<'_, '_>, shard: Option<u32>, node: Option<NodeIx>, lane: u32) {
        let known = match self.level {
            Level::Cluster | Level::Lane(_) => None,
            _ => node,
        };
        let named = known.is_some() && matches!(self.level, Level::Index | Level::Shard);
        self.plan.parts.push(Part {
            destination: known.map_or(Destination::Any, Destination::Node),
            shard: shard.filter(|_| known.is_some() && self.level == Level::Shard),
            index: named.then(|| doc.route.name.clone()),
            lane,
            docs: 0,
            bytes: 0,
            pieces: self.scratch.pieces.pop().unwrap_or_default(),
        });
    }

    #[inline(always)]
    fn push(&mut self, part: u16, doc: &Doc<'_, '_>) {
        self.begin(part).add(doc, doc.start, doc.end);
    }

    /// Counts a document for its shard.
    #[inline(always)]
    fn touch(&mut self, doc: &Doc<'_, '_>, shard: u32) {
        if self.scratch.touches.is_counting() {
            let of = (doc.ordinal, doc.route.shards());
            self.scratch.touches.add(of, shard, doc.end - doc.start);
        }
    }

    /// Returns a part after adding one document to its count.
    #[inline(always)]
    fn begin(&mut self, part: u16) -> &mut Part {
        self.plan.order.push(part);
        self.plan.docs += 1;
        let part = &mut self.plan.parts[usize::from(part)];
        part.docs += 1;
        part
    }

    /// Adds a document that goes to the shard whose turn it is, and returns the id that it gets, if any. This
    /// is a function of its own because it would slow down the other documents.
    #[cold]
    fn push_directed(
        &mut self,
        runs: &mut Runs<'a>,
        doc: &Doc<'_, 'a>,
        ask: &Ask<'_>,
        ids: &mut IdMint,
    ) -> Result<Option<[u8; ID_LENGTH]>, Pass> {
        let assigned = ask.direct.and_then(|directing| runs.next(doc, directing));
        match (assigned, doc.choice) {
            (Some(assigned), ShardChoice::Route) => self.push_routed(runs, doc, assigned).map(|()| None),
            (Some(assigned), _) => {
                let id = ids.mint_for(doc.route, assigned.shard);
                self.push_minted(doc, id, assigned.shard).map(|()| Some(id))
            }
            (None, ShardChoice::Route) => {
                let part = self.part(doc, None, None)?;
                self.push(part, doc);
                Ok(None)
            }
            (None, _) => {
                let id = ids.mint();
                let shard = doc.route.shard_of(&id, None);
                self.push_minted(doc, id, shard).map(|()| Some(id))
            }
        }
    }

    /// Adds a document that gets its id here.
    fn push_minted(&mut self, doc: &Doc<'_, '_>, id: [u8; ID_LENGTH], shard: u32) -> Result<(), Pass> {
        let first = self.plan.minted.map_or(id, |minted| minted.first);
        self.plan.minted = Some(Minted { first, last: id });
        let gap = doc.id_gap;
        let arena = &mut self.plan.arena;
        let from = arena.len();
        match gap.form {
            Form::Only | Form::First => arena.extend_from_slice(b"\"_id\":"),
            Form::Value => {}
        }
        arena.push(b'"');
        arena.extend_from_slice(&id);
        arena.push(b'"');
        if gap.form == Form::First {
            arena.push(b',');
        }
        let entry = Piece {
            start: from as u32 | ARENA,
            end: arena.len() as u32,
        };
        self.splice(doc, (shard, Some(&id)), entry, gap.at, gap.cut)
    }

    /// Adds a document that gets its routing here.
    fn push_routed(
        &mut self,
        runs: &mut Runs<'_>,
        doc: &Doc<'_, '_>,
        assigned: Assigned,
    ) -> Result<(), Pass> {
        let gap = doc.id_gap;
        let values = &mut self.scratch.values;
        let value = || values.of(doc.route, assigned.shard);
        let entry = runs.entry(assigned, gap.form, value, &mut self.plan.arena);
        // The entry goes after a null id, which stays.
        self.splice(doc, (assigned.shard, None), entry, gap.at + gap.cut, 0)
    }

    /// Adds a document with a piece of the arena in its action line, inserted at `at` in place of `cut`
    /// bytes.
    fn splice(
        &mut self,
        doc: &Doc<'_, '_>,
        (shard, id): (u32, Option<&[u8]>),
        entry: Piece,
        at: u32,
        cut: u32,
    ) -> Result<(), Pass> {
        if entry.end >= ARENA {
            let why = Why::TooLarge;
            return Err(Pass { why, line: None });
        }
        let part = self.part(doc, Some(shard), id)?;
        self.touch(doc, shard);
        let at = doc.start + at as usize;
        let part = self.begin(part);
        part.add(doc, doc.start, at);
        part.pieces.push(entry);
        part.add(doc, at + cut as usize, doc.end);
        Ok(())
    }
}

// === impl Part ===

impl Part {
    /// Returns the range of the body that the part occupies, if it is contiguous.
    pub fn stretch(&self) -> Option<Range<usize>> {
        match self.pieces[..] {
            [piece] if piece.start & ARENA == 0 => Some(piece.start as usize..piece.end as usize),
            _ => None,
        }
    }

    /// Appends the part of a document's lines in a range of the body, except for a type that is to be left
    /// out.
    #[inline(always)]
    fn add(&mut self, doc: &Doc<'_, '_>, start: usize, end: usize) {
        match doc.type_at {
            None => self.push(start as u32, end as u32),
            // Only numbers are passed on: the address of a document would force it into memory in all cases.
            Some(place) => {
                let at = doc.start as u32;
                self.add_around(start as u32..end as u32, at + place.start..at + place.end);
            }
        }
    }

    #[inline(never)]
    fn add_around(&mut self, range: Range<u32>, left_out: Range<u32>) {
        if left_out.start < range.start || left_out.end > range.end {
            return self.push(range.start, range.end);
        }
        for (start, end) in [(range.start, left_out.start), (left_out.end, range.end)] {
            if start < end {
                self.push(start, end);
            }
        }
    }

    /// Appends a range of the body; neighbouring ranges become one piece. Whether a document follows the one
    /// before it depends on two hashes, so a branch on that would be mispredicted for every third document.
    #[inline]
    pub(crate) fn push(&mut self, start: u32, end: u32) {
        let Some(last) = self.pieces.last().copied() else {
            return self.pieces.push(Piece { start, end });
        };
        let follows = (last.end == start) & (last.start & ARENA == 0);
        let start = start ^ ((start ^ last.start) & u32::from(follows).wrapping_neg());
        self.pieces.truncate(self.pieces.len() - usize::from(follows));
        self.pieces.push(Piece { start, end });
    }
}

// === impl Slots ===

impl Default for Slots {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            rows_in_use: Vec::new(),
            parts: Vec::new(),
            any: NO_PART,
            lately: [None; LATELY],
            writes: WritesSoFar::default(),
        }
    }
}

impl Slots {
    fn clear(&mut self, level: Level, table: &RouteTable, bins: usize) {
        self.any = NO_PART;
        for row in self.rows_in_use.drain(..) {
            self.rows[row as usize] = NO_ROW;
        }
        self.parts.clear();
        match level {
            Level::Cluster => {}
            Level::Node => self.parts.resize(usize::from(table.nodes()), NO_PART),
            Level::Lane(lanes) => {
                self.lately = [None; LATELY];
                self.writes.clear();
                self.parts.resize(lanes.max(1) as usize * bins, NO_PART);
            }
            Level::Index | Level::Shard => {
                let indices = table.indices() as usize;
                if self.rows.len() < indices {
                    self.rows.resize(indices, NO_ROW);
                }
            }
        }
    }

    /// Returns the lane of a shard. Documents that wait in a log were put there by this formula: it must not
    /// change.
    #[inline]
    fn lane(&mut self, doc: &Doc<'_, '_>, shard: u32, lanes: u32, default_index: Option<&str>) -> u32 {
        let of = Written::of(doc);
        let hash = match &mut self.lately[of.place(LATELY)] {
            Some(seen) if seen.of == of => seen.hash,
            seen => {
                self.writes.note(of, doc, default_index);
                let hash = lane_seed(&doc.route.name);
                *seen = Some(RecentName { of, hash });
                hash
            }
        };
        lane_of(hash, shard, lanes)
    }

    /// Returns the slot at `column` of an index's row, which has `width` columns.
    #[inline]
    fn in_row(&mut self, ordinal: u32, width: u32, column: u32) -> &mut u16 {
        let row = &mut self.rows[ordinal as usize];
        if *row == NO_ROW {
            *row = self.parts.len() as u32;
            self.rows_in_use.push(ordinal);
            self.parts.resize(self.parts.len() + width as usize, NO_PART);
        }
        &mut self.parts[(*row + column) as usize]
    }
}
