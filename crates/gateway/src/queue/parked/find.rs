//! Finds a document, or all of one request, among the parked operations.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Instant;

use serde_json::{Value, json};

use super::store::{ParkedEntry, StoreRecord};
use super::{Parked, ParkedError};
use crate::queue::trace::Sought;

/// Parked operations that were found.
#[derive(Default)]
pub(crate) struct ParkedFound {
    /// The operations, each with the position of its request in the queue.
    pub(crate) operations: Vec<(u64, Value)>,
    /// Whether time was over before everything was searched.
    pub(crate) is_partial: bool,
}

/// Operations of a record (`None` means all of them), and what they wait for.
type Waiting = (Option<Vec<u32>>, Value);

/// The subject of a search.
#[derive(Clone, Copy)]
pub(crate) enum ParkedSought<'s> {
    Document(&'s Sought<'s>),
    /// The request at this position of the queue.
    Position(u64),
}

impl Parked {
    /// Searches the parked operations. Reads the disk.
    pub(crate) fn find(&self, sought: ParkedSought<'_>, until: Instant) -> Result<ParkedFound, ParkedError> {
        let mut found = ParkedFound::default();
        let Some(store) = self.opened().filter(|_| self.any()) else {
            return Ok(found);
        };
        // The operations of each record that are still there, and what they wait for.
        let mut pieces: BTreeMap<u64, Vec<Waiting>> = BTreeMap::new();
        for (piece, shown) in self.state().pieces_shown() {
            let of_record = pieces.entry(piece.at).or_default();
            of_record.push((piece.ops.clone(), shown));
        }
        let Some(first) = pieces.keys().next().copied() else {
            return Ok(found);
        };
        store.each_until(first, |at, _, record| {
            if Instant::now() > until {
                found.is_partial = true;
                return ControlFlow::Break(());
            }
            if let (Some(pieces), StoreRecord::Put(entry, lines)) = (pieces.remove(&at), record) {
                for op in operations(sought, &entry, &lines) {
                    let is_of = |ops: &Option<Vec<u32>>| ops.as_ref().is_none_or(|ops| ops.contains(&op));
                    let piece = pieces.iter().find(|(ops, _)| is_of(ops));
                    found
                        .operations
                        .extend(piece.map(|(_, shown)| told(&entry, op, shown)));
                }
            }
            match pieces.is_empty() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        Ok(found)
    }
}

/// Returns the operations of an entry that are meant, including those that are gone.
fn operations(sought: ParkedSought<'_>, entry: &ParkedEntry, lines: &[u8]) -> Vec<u32> {
    match sought {
        ParkedSought::Document(sought) => {
            let found = sought.in_lines(lines, &entry.target).unwrap_or_default();
            found.into_iter().map(|found| found.place).collect()
        }
        ParkedSought::Position(position) => {
            let ops = 0..entry.ops.len() as u32;
            ops.filter(|op| origin(entry, *op).0 == position).collect()
        }
    }
}

/// Returns the position of the request that an operation came with, and the operation's place in it.
fn origin(entry: &ParkedEntry, op: u32) -> (u64, u32) {
    let (origin, place) = entry.ops.get(op as usize).copied().unwrap_or_default();
    let position = entry.origins.get(origin as usize);
    (position.map_or(0, |(position, _)| *position), place)
}

fn told(entry: &ParkedEntry, op: u32, shown: &Value) -> (u64, Value) {
    let (position, place) = origin(entry, op);
    let mut shown = shown.clone();
    shown["position"] = json!(position);
    shown["lane"] = json!(entry.lane);
    shown["place"] = json!(place);
    (position, shown)
}
