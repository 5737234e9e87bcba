//! Finds where a document is, as far as a queue can tell: its writes among the records, among parked
//! operations, and among the dead letters. Nothing is changed, nothing is indexed beforehand, and no writer
//! waits: the search reads the disk, for a bounded time.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::ControlFlow;
use std::time::Instant;

use bulk::{Op, RouteTable};
use log::{Browsed, LaneStatus, ReadError};
use memchr::{memchr, memmem};
use serde_json::Value;

use crate::queue::record::{Params, head_of};

/// The document that is looked for.
pub(crate) struct Sought<'t> {
    id: String,
    /// The name that was asked for, and the indices behind it.
    names: BTreeSet<String>,
    table: Option<&'t RouteTable>,
    /// Names that were met, and whether they stand for one of these indices.
    known: RefCell<HashMap<String, bool>>,
}

/// How far a consumer group is, lane by lane.
pub(crate) struct LaneCursors<'a> {
    pub(crate) group: &'a str,
    pub(crate) lanes: &'a [LaneStatus],
}

/// An operation on the document.
#[derive(Clone, Debug)]
pub(crate) struct TracedOperation {
    /// The operation's number among its lines, from 0.
    pub(crate) place: u32,
    pub(crate) op: Op,
    /// The index, as the action or its URL names it.
    pub(crate) index: String,
    pub(crate) routing: Option<String>,
}

/// A write that lies in the queue.
pub(crate) struct QueuedWrite {
    pub(crate) position: u64,
    pub(crate) time_ms: u64,
    pub(crate) lane: u32,
    pub(crate) found: TracedOperation,
    /// The one consumer group that delivers it, if it is a dead letter that was put back.
    pub(crate) replay_of: Option<String>,
    /// For each consumer group: the documents of the lane that go before this write. `None`: the write is
    /// delivered, or is not this group's, or the search did not begin where the group is.
    pub(crate) ahead: Vec<Option<u64>>,
}

/// The result of searching a queue's records.
#[derive(Default)]
pub(crate) struct SearchResult {
    /// The newest writes, oldest first.
    pub(crate) writes: VecDeque<QueuedWrite>,
    /// The number of all writes, including those that are left out above.
    pub(crate) count: u64,
    /// The bounds of the search.
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// When the first record that was searched was written, in ms since 1970.
    pub(crate) since_ms: Option<u64>,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    /// Parts of records that are damaged, or that this version cannot read.
    pub(crate) unreadable: u64,
    /// Where the search broke off, if time was over.
    pub(crate) next: Option<u64>,
}

// === impl Sought ===

impl<'t> Sought<'t> {
    /// Looks for a document of an index, alias or data stream, as `table` has them.
    pub(crate) fn new(index: &str, id: &str, table: Option<&'t RouteTable>) -> Self {
        let mut names = BTreeSet::from([index.to_owned()]);
        let members = table.and_then(|table| table.members_of(index));
        names.extend(members.into_iter().flatten().map(str::to_owned));
        Self {
            id: id.to_owned(),
            names,
            table,
            known: RefCell::default(),
        }
    }

    /// Returns the name that was asked for, and all that it may be written to.
    pub(crate) fn names(&self) -> &BTreeSet<String> {
        &self.names
    }

    fn is_index(&self, written: &str) -> bool {
        if self.names.contains(written) {
            return true;
        }
        if let Some(known) = self.known.borrow().get(written) {
            return *known;
        }
        let members = self.table.and_then(|table| table.members_of(written));
        let is = members.is_some_and(|members| members.iter().any(|index| self.names.contains(*index)));
        self.known.borrow_mut().insert(written.to_owned(), is);
        is
    }

    /// Whether the document can be in these lines; this alone rules out most lines.
    fn may_be_in(&self, lines: &[u8]) -> bool {
        // With an escape in it, an id can be written in many ways.
        memmem::find(lines, self.id.as_bytes()).is_some() || memchr(b'\\', lines).is_some()
    }

    /// Returns the operations on the document among these lines, sent to `target`; `None` if the lines cannot
    /// be read.
    pub(crate) fn in_lines(&self, lines: &[u8], target: &str) -> Option<Vec<TracedOperation>> {
        if !self.may_be_in(lines) {
            return Some(Vec::new());
        }
        let of_url = RefCell::new(None);
        let of_url = || -> String {
            let mut known = of_url.borrow_mut();
            let name = known.get_or_insert_with(|| {
                let head = head_of(target);
                head.and_then(|head| head.index.map(|index| index.to_string()))
                    .unwrap_or_default()
            });
            name.clone()
        };
        let (mut found, mut at, mut place) = (Vec::new(), 0, 0);
        while at < lines.len() {
            let rest = &lines[at..];
            let subject = bulk::subject(rest)?;
            let action = line_of(rest);
            at += action.len();
            if subject.op != Op::Delete {
                at += line_of(&lines[at.min(lines.len())..]).len();
            }
            if subject.id.as_deref() == Some(&*self.id) {
                let index = subject.index.map_or_else(&of_url, std::borrow::Cow::into_owned);
                if self.is_index(&index) {
                    found.push(TracedOperation {
                        place,
                        op: subject.op,
                        index,
                        routing: routing_of(action).or_else(|| {
                            let head = head_of(target)?;
                            head.routing.map(|routing| routing.to_string())
                        }),
                    });
                }
            }
            place += 1;
        }
        Some(found)
    }

    /// Searches a log's records from a place on, until the log ends or time is over. `groups` are the
    /// consumer groups as they were at the beginning.
    pub(crate) fn in_records(
        &self,
        log: &log::Log,
        groups: &[LaneCursors<'_>],
        from: u64,
        until: Instant,
    ) -> Result<SearchResult, ReadError> {
        let status = log.status();
        let mut seen = SearchResult {
            from: from.max(status.start),
            to: from.max(status.start),
            ..SearchResult::default()
        };
        let mut ahead: Vec<Vec<u64>> = groups.iter().map(|group| vec![0; group.lanes.len()]).collect();
        let begins = seen.from;
        log.browse(seen.from).each(|record| {
            if record.receipt.position >= status.end {
                return ControlFlow::Break(());
            }
            if Instant::now() > until {
                seen.next = Some(record.receipt.position);
                return ControlFlow::Break(());
            }
            self.in_record(&record, groups, begins, &mut ahead, &mut seen);
            ControlFlow::Continue(())
        })?;
        Ok(seen)
    }

    fn in_record(
        &self,
        record: &Browsed,
        groups: &[LaneCursors<'_>],
        begins: u64,
        ahead: &mut [Vec<u64>],
        seen: &mut SearchResult,
    ) {
        let position = record.receipt.position;
        seen.to = position + record.receipt.bytes;
        seen.since_ms = seen.since_ms.or(Some(record.time_ms));
        seen.records += 1;
        seen.bytes += record.receipt.bytes;
        let params = Params::read(&record.params);
        let replay_of = params.as_ref().and_then(|params| params.replay.as_ref());
        let replay_of = replay_of.map(|replay| replay.group.as_str());
        for part in &record.groups {
            let lane = part.lane as usize;
            let is_pending = |group: &LaneCursors<'_>| {
                replay_of.is_none_or(|only| only == group.group)
                    && group
                        .lanes
                        .get(lane)
                        .is_some_and(|lane| position >= lane.position)
            };
            let lines = part.bytes.as_deref().zip(params.as_ref());
            match lines.and_then(|(lines, params)| self.in_lines(lines, &params.target)) {
                None => seen.unreadable += 1,
                Some(all) => {
                    for found in all {
                        let before = groups.iter().zip(ahead.iter()).map(|(group, ahead)| {
                            let counts = group.lanes.get(lane).is_some_and(|lane| begins <= lane.position);
                            (is_pending(group) && counts).then(|| ahead[lane] + u64::from(found.place))
                        });
                        let ahead = before.collect();
                        seen.add(QueuedWrite {
                            position,
                            time_ms: record.time_ms,
                            lane: part.lane,
                            found,
                            replay_of: replay_of.map(str::to_owned),
                            ahead,
                        });
                    }
                }
            }
            for (group, ahead) in groups.iter().zip(ahead.iter_mut()) {
                if is_pending(group) {
                    ahead[lane] += u64::from(part.documents);
                }
            }
        }
    }
}

// === impl SearchResult ===

impl SearchResult {
    fn add(&mut self, write: QueuedWrite) {
        self.count += 1;
        self.writes.push_back(write);
        if self.writes.len() > WRITES_MAX {
            self.writes.pop_front();
        }
    }
}

/// Returns the first line, with its newline.
fn line_of(lines: &[u8]) -> &[u8] {
    &lines[..memchr(b'\n', lines).map_or(lines.len(), |at| at + 1)]
}

/// Returns the routing that an action line names.
fn routing_of(action: &[u8]) -> Option<String> {
    let action: Value = serde_json::from_slice(action).ok()?;
    let meta = action.as_object()?.values().next()?;
    let routing = meta.get("routing").or_else(|| meta.get("_routing"))?;
    match routing {
        Value::Null => None,
        Value::String(routing) => Some(routing.clone()),
        routing => Some(routing.to_string()),
    }
}

/// The most writes that are reported.
const WRITES_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn found(id: &str, lines: &str) -> Vec<(u32, Op, String, Option<String>)> {
        let sought = Sought::new("logs", id, None);
        let found = sought
            .in_lines(lines.as_bytes(), "/logs/_bulk?routing=u%20v")
            .unwrap();
        let of = |one: TracedOperation| (one.place, one.op, one.index, one.routing);
        found.into_iter().map(of).collect()
    }

    #[test]
    fn a_document_is_found_however_its_id_is_written_and_not_in_sources() {
        let lines = "{\"index\":{\"_id\":\"a/b\"}}\n{\"delete\":{\"_id\":\"a/b\"}}\n\
                     {\"delete\":{\"_index\":\"logs\",\"_id\":\"a\\/b\",\"routing\":7}}\n\
                     {\"index\":{\"_index\":\"other\",\"_id\":\"a/b\"}}\n{\"n\":1}\n\
                     {\"update\":{\"_id\":\"\\u0061/b\"}}\n{\"doc\":{}}\n";
        let places: Vec<_> = found("a/b", lines)
            .into_iter()
            .map(|one| (one.0, one.1, one.3))
            .collect();
        let of_url = Some("u v".to_owned());
        assert_eq!(
            places,
            [
                (0, Op::Index, of_url.clone()),
                (1, Op::Delete, Some("7".to_owned())),
                (3, Op::Update, of_url),
            ]
        );
        assert!(found("a", lines).is_empty());
    }

    #[test]
    fn lines_that_cannot_be_read_are_not_taken_for_lines_without_it() {
        let sought = Sought::new("logs", "1", None);
        assert!(
            sought
                .in_lines(b"{\"index\":{\"_id\":\"1\"}\n{}\n", "/logs/_bulk")
                .is_none()
        );
    }
}
