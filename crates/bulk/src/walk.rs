//! A walk through a body, operation by operation, with the shard of each: the common part of planning,
//! explaining and making failed items.

use std::ops::Range;

use memchr::memchr;

use crate::action::{Action, IdGap, Op, TypeAt};
use crate::models::Models;
use crate::packed::mints_in_order;
use crate::route::ShardFinder;
use crate::slow::SlowAction;
use crate::table::NameEntry;
use crate::{
    Ask, Direct, IndexRoute, Level, NullId, Pass, RouteTable, Target, Why, murmur, scan, slow, update,
};

/// One operation and its destination.
pub(crate) struct Doc<'s, 't> {
    pub(crate) op: Op,
    /// The index that the line names.
    pub(crate) index: Option<&'s [u8]>,
    pub(crate) id: Option<&'s [u8]>,
    /// The place where an id can be written into the line.
    pub(crate) id_gap: IdGap,
    /// The place of the type, if it is to be left out.
    pub(crate) type_at: Option<TypeAt>,
    /// Whether a version or a sequence number is given.
    pub(crate) versioned: bool,
    /// The start of the operation's lines in the body; `end` is after its last newline.
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) route: &'t IndexRoute,
    /// A dense number of the concrete index.
    pub(crate) ordinal: u32,
    /// A dense number of the name that the operation uses for the index.
    pub(crate) name: u32,
    /// The effective routing, with the URL and the alias considered.
    pub(crate) routing: Option<&'s [u8]>,
    pub(crate) choice: ShardChoice,
}

/// The knowledge about an operation's shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShardChoice {
    /// The shard is known.
    Shard(u32),
    /// The server will choose the shard: there is no id, and no routing that decides alone.
    Free,
    /// An id is to be minted, and the shard follows from it.
    Mint,
    /// A shard is to be chosen, and an id that leads to it is to be minted.
    Pack,
    /// A shard is to be chosen, and a routing value that leads to it is to be added.
    Route,
}

impl ShardChoice {
    /// Returns whether an id is made here.
    pub(crate) fn mints(self) -> bool {
        matches!(self, ShardChoice::Mint | ShardChoice::Pack)
    }
}

/// A walk through one body.
pub(crate) struct Walk<'b, 't> {
    body: &'b [u8],
    at: usize,
    fast: bool,
    slow: Option<SlowAction<'b>>,
    models: Models<'b, 't>,
    resolver: Resolver<'b, 't>,
}

/// The meaning of the name in an action line.
#[derive(Clone, Copy)]
pub(crate) struct ResolvedName<'t> {
    entry: &'t NameEntry,
    route: &'t IndexRoute,
    shards: ShardFinder,
    /// The aim of the index's documents that have neither id nor routing, or why a request with such a
    /// document passes.
    neither: Result<ShardChoice, Why>,
}

/// An action line that was read and resolved.
struct Line<'l, 's, 't> {
    /// The line's start in the body; `end` is after its newline.
    start: usize,
    end: usize,
    /// What the line says. It may be a model's, whose id, and therefore place of a type, is another.
    action: &'l Action<'s>,
    id: Option<&'s [u8]>,
    type_at: Option<TypeAt>,
    found: &'l ResolvedName<'t>,
}

/// Resolves names, and remembers the last one.
struct Resolver<'b, 't> {
    ask: &'b Ask<'b>,
    table: &'t RouteTable,
    /// The index name that was looked up last.
    name: Vec<u8>,
    last: Option<ResolvedName<'t>>,
    /// The pipeline that was last found harmless; empty if none.
    pipeline: Vec<u8>,
    /// Whether some operation so far may go through an ingest pipeline.
    ingests: bool,
    /// Whether some action line so far has a type.
    typed: bool,
}

/// Bodies are addressed with 31 bits.
const BODY_BYTES_END: usize = 1 << 31;

// === impl Walk ===

impl<'b, 't> Walk<'b, 't> {
    /// Begins a walk; refuses bodies that can be refused at a glance. `fast` is false only in oracle tests.
    pub(crate) fn new(
        body: &'b [u8],
        ask: &'b Ask<'b>,
        table: &'t RouteTable,
        fast: bool,
    ) -> Result<Self, Pass> {
        let refuse = |why, line| Err(Pass { why, line });
        if body.len() >= BODY_BYTES_END {
            return refuse(Why::TooLarge, None);
        }
        if body.last().is_some_and(|last| *last != b'\n') {
            return refuse(Why::NotTerminated, Some(line_of(body, body.len())));
        }
        if ask.url_routing.is_some_and(str::is_empty) {
            return refuse(Why::EmptyRouting, None);
        }
        if let (Some(name), Level::Lane(_)) = (ask.url_pipeline, ask.level)
            && table.tells_caller(name)
        {
            return refuse(Why::CallersPipeline, None);
        }
        match ask
            .url_pipeline
            .map(|name| (name, table.admit_pipeline(name, ask.level)))
        {
            Some(("", _)) => return refuse(Why::EmptyPipeline, None),
            Some((_, Err(why))) => return refuse(why, None),
            _ => {}
        }
        let resolver = Resolver {
            ask,
            table,
            name: Vec::new(),
            last: None,
            pipeline: Vec::new(),
            ingests: ask.url_pipeline.is_some(),
            typed: false,
        };
        Ok(Self {
            body,
            at: 0,
            fast,
            slow: None,
            models: Models::default(),
            resolver,
        })
    }

    /// Returns the next operation; `None` at the end of the body.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<Doc<'_, 't>>, Pass> {
        let (body, start) = (self.body, self.at);
        if let Some((id, length)) = self.models.read(&body[start..]) {
            let model = self.models.last();
            let line = Line {
                start,
                end: start + length,
                action: model.action(),
                id,
                type_at: model.type_at(id),
                found: model.found(),
            };
            return line.doc(&self.resolver, body, &mut self.at);
        }
        self.next_unlike()
    }

    /// Returns the next operation, whose line matches no model.
    #[inline(never)]
    fn next_unlike(&mut self) -> Result<Option<Doc<'_, 't>>, Pass> {
        let fast = if self.fast {
            scan::action(self.body, self.at)
        } else {
            None
        };
        if let Some((mut action, after)) = fast {
            action.settle_type(self.resolver.ask.without_types);
            let (body, start) = (self.body, self.at);
            let resolved = self.resolver.resolve(&action);
            let found = resolved.map_err(|why| pass_at(body, start, why))?;
            self.models.learn(&body[start..after], action, found);
            let line = Line::of(start..after, &action, &found);
            return line.doc(&self.resolver, body, &mut self.at);
        }
        let Some((start, after)) = self.read_slowly()? else {
            return Ok(None);
        };
        let slow = self.slow.as_ref().expect("read_slowly has just left an action");
        let mut action = slow.action();
        action.settle_type(self.resolver.ask.without_types);
        let resolved = self.resolver.resolve(&action);
        let found = resolved.map_err(|why| pass_at(self.body, start, why))?;
        let line = Line::of(start..after, &action, &found);
        line.doc(&self.resolver, self.body, &mut self.at)
    }

    /// Returns whether some operation so far may go through an ingest pipeline.
    pub(crate) fn ingests(&self) -> bool {
        self.resolver.ingests
    }

    /// Returns whether some action line so far has a type.
    pub(crate) fn typed(&self) -> bool {
        self.resolver.typed
    }

    /// Reads the next action that is not a blank line into `self.slow`; returns its start, and the place
    /// after its newline.
    #[cold]
    #[inline(never)]
    fn read_slowly(&mut self) -> Result<Option<(usize, usize)>, Pass> {
        let body = self.body;
        loop {
            let start = self.at;
            let Some(length) = memchr(b'\n', &body[start..]) else {
                return Ok(None);
            };
            let line = &body[start..start + length];
            self.at += length + 1;
            let dialect = self.resolver.table.dialect();
            if let Some(action) = slow::action(line, dialect).map_err(|why| pass_at(body, start, why))? {
                self.slow = Some(action);
                return Ok(Some((start, self.at)));
            }
        }
    }
}

// === impl Line ===

impl<'s, 't: 's> Line<'_, 's, 't> {
    fn of<'l>(range: Range<usize>, action: &'l Action<'s>, found: &'l ResolvedName<'t>) -> Line<'l, 's, 't> {
        Line {
            start: range.start,
            end: range.end,
            action,
            id: action.id,
            type_at: action.type_at,
            found,
        }
    }

    /// Returns the operation, and moves `at` behind it. The operation is made in the place of the result, and
    /// not moved there.
    #[inline(always)]
    fn doc<'b: 's>(
        &self,
        resolver: &Resolver<'b, 't>,
        body: &'b [u8],
        at: &mut usize,
    ) -> Result<Option<Doc<'s, 't>>, Pass> {
        let (action, found) = (self.action, self.found);
        let routing = resolver.routing(action, found.entry);
        let choice = match resolver.choice(self, routing) {
            Ok(choice) => choice,
            Err(why) => return Err(pass_at(body, self.start, why)),
        };
        let end = match source_end(body, self.end, action) {
            Ok(end) => end,
            Err(why) => return Err(pass_at(body, self.end, why)),
        };
        *at = end;
        Ok(Some(Doc {
            op: action.op,
            index: action.index,
            id: self.id,
            id_gap: action.id_gap,
            type_at: self.type_at,
            versioned: action.versioned,
            start: self.start,
            end,
            route: found.route,
            ordinal: found.entry.ordinal,
            name: found.entry.number,
            routing,
            choice,
        }))
    }
}

/// Returns the end of the operation whose action line ends at `at`.
#[inline]
fn source_end(body: &[u8], at: usize, action: &Action<'_>) -> Result<usize, Why> {
    if action.op == Op::Delete {
        return Ok(at);
    }
    // The servers silently drop an action without a source.
    let length = memchr(b'\n', &body[at..]).ok_or(Why::NoSource)?;
    let source = &body[at..at + length];
    match source {
        [] | [b'\r'] => return Err(Why::EmptySource),
        _ if action.op == Op::Update && !update::acceptable(source, action.compare_and_set) => {
            return Err(Why::UpdateBody);
        }
        _ => {}
    }
    Ok(at + length + 1)
}

#[cold]
fn pass_at(body: &[u8], at: usize, why: Why) -> Pass {
    Pass {
        why,
        line: Some(line_of(body, at)),
    }
}

/// Returns the number of the line that contains `at`, from 1.
fn line_of(body: &[u8], at: usize) -> u32 {
    memchr::memchr_iter(b'\n', &body[..at]).count() as u32 + 1
}

// === impl Resolver ===

impl<'b, 't> Resolver<'b, 't> {
    /// Returns the meaning of an action's index name, unless the action is refused.
    fn resolve(&mut self, action: &Action<'_>) -> Result<ResolvedName<'t>, Why> {
        if action.typed {
            self.check_type()?;
        }
        action.admit(self.table.dialect().allow_explicit_index)?;
        if action.pipeline.is_some_and(|pipeline| pipeline != self.pipeline) {
            self.check_pipeline(action)?;
        }
        self.check_required(action)?;
        let found = self.index(action)?;
        if action.op != Op::Create && matches!(found.entry.target, Target::DataStream { .. }) {
            return Err(Why::StreamNotCreate);
        }
        Ok(found)
    }

    /// Checks `require_alias` and `require_data_stream` against the table: a queued operation is answered
    /// before the cluster checks whether its name is an alias or a data stream.
    #[inline]
    fn check_required(&self, action: &Action<'_>) -> Result<(), Why> {
        let alias = action.require_alias.unwrap_or(self.ask.require_alias);
        let stream = action.require_data_stream.unwrap_or(self.ask.require_data_stream);
        let asked = (alias || stream) && matches!(self.ask.level, Level::Lane(_));
        match asked && action.op != Op::Delete {
            true => self.check_kind(action, alias, stream),
            false => Ok(()),
        }
    }

    #[cold]
    fn check_kind(&self, action: &Action<'_>, alias: bool, stream: bool) -> Result<(), Why> {
        let default = self.ask.default_index.map(str::as_bytes);
        let entry = self.table.entry(action.index.or(default).ok_or(Why::NoIndex)?);
        let entry = entry.map(|entry| entry.unproven.as_deref().unwrap_or(entry));
        match entry.map(|entry| &entry.target) {
            Some(Target::Alias { .. }) if !stream => Ok(()),
            Some(Target::DataStream { .. }) if !alias => Ok(()),
            _ => Err(Why::RequiredTarget),
        }
    }

    /// Returns the effective routing.
    #[inline(always)]
    fn routing<'s>(&self, action: &Action<'s>, entry: &'t NameEntry) -> Option<&'s [u8]>
    where
        'b: 's,
        't: 's,
    {
        let routing = action.routing.or(self.ask.url_routing.map(str::as_bytes));
        match &entry.target {
            // A conflicting routing is answered with an item error (`Metadata.resolveWriteIndexRouting`), so
            // following it is as good as any choice.
            Target::Alias {
                index_routing: Some(of_alias),
                ..
            } => routing.or(Some(of_alias.as_bytes())),
            _ => routing,
        }
    }

    #[inline(always)]
    fn choice(&self, line: &Line<'_, '_, '_>, routing: Option<&[u8]>) -> Result<ShardChoice, Why> {
        let (action, route, neither) = (line.action, line.found.route, line.found.neither);
        let shards = &line.found.shards;
        Ok(match (line.id, routing) {
            (Some(id), None) => ShardChoice::Shard(shards.shard_of_hash(murmur::hash_utf8(id))),
            (Some(id), Some(routing)) => ShardChoice::Shard(route.shard_of(id, Some(routing))),
            (None, Some(_)) if self.ask.null_id == NullId::Always => ShardChoice::Mint,
            (None, Some(routing)) if route.partition_size == 1 => {
                ShardChoice::Shard(shards.shard_of_hash(murmur::hash_utf8(routing)))
            }
            // The line takes no second routing.
            (None, None) if action.routing_null && neither == Ok(ShardChoice::Route) => self.without_id(),
            (None, None) => return neither,
            (None, Some(_)) => self.without_id(),
        })
    }

    fn without_id(&self) -> ShardChoice {
        match self.ask.null_id {
            NullId::Keep => ShardChoice::Free,
            NullId::Mint | NullId::Always => ShardChoice::Mint,
        }
    }

    /// Returns the aim of an index's documents that have neither id nor routing.
    #[cold]
    fn neither(&self, entry: &NameEntry, route: &IndexRoute) -> Result<ShardChoice, Why> {
        // It is the cluster that must complain of a missing routing that the mapping requires, and where it
        // rejects the whole request, none of the request may be executed.
        let refused = route.routing_required
            && self.ask.null_id != NullId::Mint
            && self.table.dialect().fails_whole_without_routing();
        if refused {
            return Err(Why::RoutingRequired);
        }
        let eligible = route.partition_size == 1 && !route.routing_required;
        let direct = match self.ask.direct {
            Some(directing) if eligible => directing.directs(&route.name),
            _ => Direct::Off,
        };
        let stream = matches!(entry.target, Target::DataStream { .. });
        Ok(match (direct, self.ask.null_id) {
            // There is nothing to choose. Beside the documents with ids, these documents keep their place in
            // the shard's order.
            (_, NullId::Keep) if route.shards() == 1 => ShardChoice::Shard(0),
            (Direct::Off, _) => self.without_id(),
            (_, _) if route.shards() == 1 => ShardChoice::Mint,
            // The ids of a request that is put into a log are recorded by the first and the last.
            (Direct::Mint, NullId::Always) if !mints_in_order(route.shards()) => ShardChoice::Mint,
            (Direct::Mint, _) => ShardChoice::Pack,
            // Data streams refuse a routing.
            (Direct::Route, NullId::Keep) if !stream => ShardChoice::Route,
            // If every document gets an id, a routing is of no use.
            (Direct::Route, _) => self.without_id(),
        })
    }

    #[inline]
    fn index(&mut self, action: &Action<'_>) -> Result<ResolvedName<'t>, Why> {
        let name = match (action.index, self.ask.default_index) {
            (Some(name), _) => name,
            (None, Some(name)) => name.as_bytes(),
            (None, None) => return Err(Why::NoIndex),
        };
        match self.last {
            Some(last) if *name == *self.name => Ok(last),
            _ => self.look_up(name),
        }
    }

    #[inline(never)]
    fn look_up(&mut self, name: &[u8]) -> Result<ResolvedName<'t>, Why> {
        if name.first() == Some(&b'<') {
            return Err(Why::DateMath);
        }
        let entry = match self.table.entry(name) {
            None if self.ask.suppose_new => self.table.new_index(),
            entry => entry.ok_or(Why::UnknownIndex)?,
        };
        let entry = match (&entry.unproven, self.ask.level) {
            (Some(unproven), Level::Lane(_)) => unproven,
            _ => entry,
        };
        let route = &**entry.target.write()?;
        if route.tells_caller && matches!(self.ask.level, Level::Lane(_)) {
            return Err(Why::CallersPipeline);
        }
        self.ingests |= route.ingests;
        let neither = self.neither(entry, route);
        let found = ResolvedName {
            entry,
            route,
            shards: route.shard_finder(),
            neither,
        };
        self.last = Some(found);
        self.name.clear();
        self.name.extend_from_slice(name);
        Ok(found)
    }

    #[cold]
    fn check_type(&mut self) -> Result<(), Why> {
        self.typed = true;
        match self.table.dialect().takes_types() {
            true => Ok(()),
            false => Err(Why::TypedAction),
        }
    }

    #[cold]
    fn check_pipeline(&mut self, action: &Action<'_>) -> Result<(), Why> {
        let Some(pipeline) = action.pipeline else {
            return Ok(());
        };
        let name = std::str::from_utf8(pipeline).map_err(|_| Why::UnknownPipeline)?;
        if matches!(self.ask.level, Level::Lane(_)) && self.table.tells_caller(name) {
            return Err(Why::CallersPipeline);
        }
        self.table.admit_pipeline(name, self.ask.level)?;
        self.ingests = true;
        self.pipeline.clear();
        self.pipeline.extend_from_slice(pipeline);
        Ok(())
    }
}
