//! Delivers a record that the gateway fails on in halves: a half that goes well is delivered, and one that
//! does not is halved again, down to the operation that is to blame, which becomes a dead letter. Halves
//! follow one another, so operations keep their order.

use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use wire::PooledBytes;
use wire::guard::{Panicked, Work, guarded};

use super::memory::LaneMemory;
use crate::delivery::lane::Lane;
use crate::delivery::pauses::{ROOM_AGAIN, backoff};
use crate::delivery::unsettled::{StoreEnds, drop_unsettled_of_lane};
use crate::delivery::work::{Batch, Origin};
use crate::queue::DELIVERED_TYPE;
use crate::queue::LaneActivity;
use crate::queue::dead_letters::Cause;

/// A record that the gateway fails on.
struct FailingRecord<'b> {
    batch: &'b Batch,
    body: &'b PooledBytes,
    /// Where its operations are in the lines.
    operations: Vec<Range<usize>>,
}

// === impl FailingRecord ===

impl FailingRecord<'_> {
    /// Returns some of the record's operations, as a batch of their own.
    fn some(&self, wanted: Range<usize>) -> Option<(Batch, PooledBytes)> {
        let origin = self.batch.origins.first()?;
        let mut some = Batch {
            recorded: self.batch.recorded.clone(),
            raw_params: Vec::new(),
            minted: self.batch.minted.clone(),
            documents: wanted.len(),
            origins: Vec::new(),
            mark: self.batch.mark,
            // Its lines belong to the record's batch, and are held until that is settled.
            from: None,
            accepted_by: self.batch.accepted_by.clone(),
        };
        some.origins.push(Origin {
            first: 0,
            place: origin.place + wanted.start as u32,
            ..origin.clone()
        });
        let bytes = self.operations[wanted.start].start..self.operations[wanted.end - 1].end;
        Some((some, self.body.slice(bytes)))
    }
}

impl Lane {
    /// Delivers a record that the gateway has failed on when the record was alone; returns how many of its
    /// operations are dead. `None` if the gateway stops first.
    pub(super) async fn deliver_apart(
        &mut self,
        batch: &Batch,
        body: PooledBytes,
        held: LaneMemory,
        panicked: Panicked,
    ) -> Option<u64> {
        let failing = FailingRecord {
            batch,
            body: &body,
            operations: operations(&body, batch.documents),
        };
        let all = 0..failing.operations.len();
        let mut dead = 0;
        // The last range is next.
        let mut left = Vec::new();
        if is_cut_evenly(&body, &failing.operations) {
            dead += self.halve(&failing, all, &mut left, &panicked).await?;
        } else {
            for operation in all {
                dead += self.bury_one(&failing, operation, &panicked).await?;
            }
        }
        while let Some(next) = left.pop() {
            let since = StoreEnds::now(&self.route.group);
            let (some, lines) = failing.some(next.clone())?;
            let delivered = Box::pin(guarded(Work::Lane, self.deliver(&some, lines, None)));
            match delivered.await {
                Ok(died) => {
                    dead += died?;
                    self.suspect.went_well();
                }
                Err(panicked) => {
                    panicked.report(Work::Lane, "the record's operations are delivered in halves");
                    self.forget_since(since).await?;
                    dead += self.halve(&failing, next, &mut left, &panicked).await?;
                }
            }
        }
        drop(held);
        Some(dead)
    }

    /// Halves operations that the gateway has failed on together; makes a dead letter of one that is alone.
    /// Returns how many died.
    async fn halve(
        &mut self,
        failing: &FailingRecord<'_>,
        operations: Range<usize>,
        left: &mut Vec<Range<usize>>,
        panicked: &Panicked,
    ) -> Option<u64> {
        if operations.len() > 1 {
            let middle = operations.start + operations.len() / 2;
            left.push(middle..operations.end);
            left.push(operations.start..middle);
            self.rest(HALVES_AFTER).await?;
            return Some(0);
        }
        let mut dead = 0;
        for operation in operations {
            dead += self.bury_one(failing, operation, panicked).await?;
        }
        let group = Rc::clone(&self.route);
        let group = &group.group;
        let why = format!("the gateway failed on an operation, which is a bug of its own: {panicked}");
        group.set(self.number, LaneActivity::Retrying, Some(&why));
        let pause = backoff(group.settings.retry.delay, self.suspect.buried());
        self.rest(pause).await?;
        group.set(self.number, LaneActivity::Delivering, None);
        Some(dead)
    }

    /// Drops the dead letters and the parked entries of operations that are tried again.
    async fn forget_since(&mut self, since: StoreEnds) -> Option<()> {
        while let Err(why) = drop_unsettled_of_lane(&self.route.group, self.number, since) {
            self.route
                .group
                .set(self.number, LaneActivity::Paused, Some(&why.to_string()));
            self.rest(ROOM_AGAIN).await?;
        }
        Some(())
    }

    /// Makes a dead letter of an operation that the gateway fails on, looking at its lines as little as
    /// possible. Returns how many died, which is one. `None` if the gateway stops first.
    async fn bury_one(
        &mut self,
        failing: &FailingRecord<'_>,
        operation: usize,
        panicked: &Panicked,
    ) -> Option<u64> {
        let route = Rc::clone(&self.route);
        let (group, batch) = (&route.group, failing.batch);
        let origin = batch.origins.first()?;
        let lines = &failing.body[failing.operations[operation].clone()];
        let place = origin.place + operation as u32;
        let (queue, name, lane) = (&*group.queue.name, &*group.settings.group, self.number);
        let position = origin.position;
        wire::rationed!(
            tracing::error,
            queue,
            group = name,
            lane,
            position,
            place,
            "the gateway failed on an operation by itself: it becomes a dead letter"
        );
        loop {
            let cause = Cause {
                group: group.settings.group.to_string(),
                cluster: group.settings.cluster.to_string(),
                status: 500,
                kind: "gateway_failure".to_owned(),
                reason: format!(
                    "the gateway failed on this operation, and again when it was alone, which is a bug of its own: \
                     {panicked}; it may have been executed"
                ),
                attempts: 2,
                accepted_ms: origin.time_ms,
                position,
                lane,
                place,
                target: batch.target().to_owned(),
                content_type: DELIVERED_TYPE.to_owned(),
                ..Cause::default()
            };
            let Err(error) = group.queue.dead_letters.put(cause, "", lines).await else {
                return Some(1);
            };
            let why = format!("dead letters cannot be written: {error}");
            group.set(lane, LaneActivity::Paused, Some(&why));
            self.rest(ROOM_AGAIN).await?;
        }
    }
}

/// Cuts lines into this many operations, without looking into documents. If the lines do not come out even,
/// the last operation has the rest; there are always as many operations as there are to account for.
fn operations(body: &[u8], documents: usize) -> Vec<Range<usize>> {
    let (mut operations, mut start) = (Vec::with_capacity(documents), 0);
    while operations.len() + 1 < documents {
        let end = start + operation(&body[start..]);
        operations.push(start..end);
        start = end;
    }
    if documents > 0 {
        operations.push(start..body.len());
    }
    operations
}

/// Whether each range is one operation, as far as its lines tell.
fn is_cut_evenly(body: &[u8], operations: &[Range<usize>]) -> bool {
    operations
        .iter()
        .all(|at| !at.is_empty() && operation(&body[at.clone()]) == at.len())
}

/// Returns the length of the first operation.
fn operation(body: &[u8]) -> usize {
    let action = line(body);
    match is_delete(&body[..action]) {
        true => action,
        false => action + line(&body[action..]),
    }
}

/// Returns the length of the first line, with its end.
fn line(bytes: &[u8]) -> usize {
    memchr::memchr(b'\n', bytes).map_or(bytes.len(), |end| end + 1)
}

/// Whether an action line has no source after it.
fn is_delete(line: &[u8]) -> bool {
    let mut words = line.split(|byte| *byte == b'"');
    let opens = words.next().is_some_and(|start| start.trim_ascii() == b"{");
    opens && words.next() == Some(b"delete")
}

/// The pause before operations that the gateway failed on together are tried in halves. How often that
/// happens is bounded by the dead letters that result, each of which has a longer pause.
const HALVES_AFTER: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_into_operations_and_always_into_as_many_as_there_are() {
        let body =
            b"{\"index\":{}}\n{\"a\":1}\n{ \"delete\":{\"_id\":\"1\"}}\n{\"create\":{}}\n{\"delete\":{}}\n";
        let pieces = |documents| -> Vec<String> {
            let pieces = operations(body, documents);
            pieces
                .iter()
                .map(|at| String::from_utf8_lossy(&body[at.clone()]).into_owned())
                .collect()
        };
        let three = [
            "{\"index\":{}}\n{\"a\":1}\n",
            "{ \"delete\":{\"_id\":\"1\"}}\n",
            "{\"create\":{}}\n{\"delete\":{}}\n",
        ];
        assert_eq!(pieces(3), three);
        for documents in 0..9 {
            let pieces = pieces(documents);
            assert_eq!(pieces.len(), documents);
            assert_eq!(pieces.concat().len(), if documents > 0 { body.len() } else { 0 });
        }
        for documents in 0..9 {
            let even = is_cut_evenly(body, &operations(body, documents));
            assert_eq!(even, documents == 3 || documents == 0, "{documents}");
        }
    }
}
