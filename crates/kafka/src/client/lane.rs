//! One partition, read message by message.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::group::Inner;
use crate::{Cursor, Head, HeadError, LaneReader, Message, ReadError, SENT_AHEAD_MAX};

/// Reads the fetched messages of a lane.
pub(crate) struct FetchedLane {
    group: Arc<Inner>,
    lane: u32,
    /// The offset of the next message.
    position: u64,
}

/// A fetched message.
pub(crate) struct Fetched {
    pub(crate) offset: u64,
    pub(crate) time_ms: u64,
    /// The number of messages before this one that Kafka has deleted.
    pub(crate) lost_before: u64,
    pub(crate) head: Result<Head, HeadError>,
    pub(crate) params: Vec<u8>,
    pub(crate) lines: Vec<u8>,
}

/// A lane of a group in this process.
#[derive(Default)]
pub(crate) struct Lane {
    /// Whether the lane belongs to this process.
    pub(crate) held: bool,
    /// What the readers of the lane have done.
    pub(crate) done: Cursor,
    /// What is committed, as far as it is known.
    pub(crate) committed: Cursor,
    /// The offset up to which a commit of this process succeeded, or may have; at first, what was committed
    /// when the lane came.
    pub(crate) claimed: u64,
    /// The offset from which on it is not known whether what is claimed is committed.
    pub(crate) doubted_from: Option<u64>,
    /// The number of parked documents, and of those that died, as of the next [`Lane::settle`].
    pub(crate) parked_when_done: Option<(u64, u64)>,
    /// Whether `done` has to be committed.
    pub(crate) dirty: bool,
    /// The end of the partition when the lane came. Messages before it may have been delivered by another
    /// process.
    pub(crate) end_when_taken: u64,
    /// The offset from which on the previous owner of the lane has sent nothing.
    pub(crate) sent_when_taken: u64,
    /// Whether nothing was committed of the lane that its partition has.
    pub(crate) began_anew: bool,
    /// Messages that are fetched and not done.
    pub(crate) fetched: VecDeque<Fetched>,
    pub(crate) bytes: usize,
    /// The offset of the next message to be fetched.
    pub(crate) next: u64,
    pub(crate) paused: bool,
    pub(crate) wakers: Vec<Waker>,
}

// === impl Lane ===

impl Lane {
    /// Begins the lane, which belongs to this process from now on.
    pub(crate) fn take(&mut self, cursor: Cursor, end: u64) {
        *self = Self {
            held: true,
            done: cursor,
            committed: cursor,
            claimed: cursor.offset,
            dirty: true,
            end_when_taken: end,
            sent_when_taken: end.min(cursor.offset.saturating_add(SENT_AHEAD_MAX)),
            next: cursor.offset,
            wakers: std::mem::take(&mut self.wakers),
            ..Self::default()
        };
    }

    /// Ends the lane, which belongs to another process now.
    pub(crate) fn let_go(&mut self) {
        *self = Self {
            done: self.committed,
            committed: self.committed,
            claimed: self.claimed,
            doubted_from: self.doubted_from,
            ..Self::default()
        };
    }

    /// Records that it is not known whether a commit was taken: `before` it so much was claimed, and it would
    /// have committed what is before `tried`.
    pub(crate) fn doubt(&mut self, before: u64, tried: u64) {
        if tried > before {
            self.doubted_from.get_or_insert(before);
        }
    }

    /// Decides what of the claim counts, as far as that was not known, once it is known how much is
    /// committed. Returns whether a commit was taken of which that was not known.
    pub(crate) fn decide(&mut self, committed: u64) -> bool {
        let Some(before) = self.doubted_from.take() else {
            return false;
        };
        self.claimed = committed.min(self.claimed).max(before);
        self.claimed > before
    }

    /// Adds a message that has come. Returns the tasks to wake.
    pub(crate) fn push(&mut self, mut fetched: Fetched) -> Vec<Waker> {
        if !self.held || fetched.offset < self.next {
            return Vec::new();
        }
        fetched.lost_before = fetched.offset - self.next;
        if self.next <= self.sent_when_taken {
            // The previous owner of the lane met the gap too, and counted from behind it.
            let sent = self.sent_when_taken.saturating_add(fetched.lost_before);
            self.sent_when_taken = sent.min(self.end_when_taken);
        }
        self.next = fetched.offset + 1;
        self.bytes += fetched.weight();
        self.fetched.push_back(fetched);
        std::mem::take(&mut self.wakers)
    }

    /// Records that everything before an offset is done.
    ///
    /// # Panics
    /// If less is done than before, or more than was fetched. Readers start where the lane is done and see
    /// only what was fetched, and none of them outlives the lane, so no message can cause that.
    pub(crate) fn settle(&mut self, offset: u64, dead: u64, skipped: u64) {
        assert!(
            offset >= self.done.offset,
            "what is done of a lane moves forward: to {offset} from {}",
            self.done.offset
        );
        assert!(
            offset <= self.next,
            "no more of a lane is done than was fetched: {offset} of {}",
            self.next
        );
        while let Some(first) = self.fetched.front().filter(|first| first.offset < offset) {
            if let Ok(head) = &first.head {
                self.done.documents += u64::from(head.documents);
            }
            self.done.bytes += first.lines.len() as u64;
            self.done.lost_messages += first.lost_before;
            self.bytes -= first.weight();
            self.fetched.pop_front();
        }
        self.done.offset = offset;
        self.done.dead += dead;
        self.done.skipped += skipped;
        if let Some((parked, dead)) = self.parked_when_done.take() {
            (self.done.parked, self.done.parked_dead) = (parked, dead);
        }
        self.dirty = true;
    }

    /// Returns the offset before which messages may be sent: [`SENT_AHEAD_MAX`] beyond the committed offset.
    /// If Kafka has deleted the next messages, and everything done is committed, the limit counts from the
    /// first message that is there: otherwise nothing behind the gap would ever be committed.
    pub(crate) fn may_send_before(&self) -> u64 {
        let first = self
            .fetched
            .front()
            .filter(|_| self.done.offset == self.committed.offset);
        let from = first.map_or(0, |first| first.offset).max(self.committed.offset);
        from.saturating_add(SENT_AHEAD_MAX)
    }

    /// Returns the documents and bytes that are fetched and not done.
    pub(crate) fn in_hand(&self) -> (u64, u64) {
        let documents = self.fetched.iter().filter_map(|one| one.head.as_ref().ok());
        let bytes = self.fetched.iter().map(|one| one.lines.len() as u64);
        (documents.map(|head| u64::from(head.documents)).sum(), bytes.sum())
    }

    fn at(&self, position: u64) -> Option<&Fetched> {
        let at = self.fetched.partition_point(|one| one.offset < position);
        self.fetched.get(at)
    }
}

// === impl Fetched ===

impl Fetched {
    fn weight(&self) -> usize {
        self.lines.len() + self.params.len() + size_of::<Self>()
    }
}

// === impl FetchedLane ===

impl FetchedLane {
    pub(crate) fn new(group: Arc<Inner>, lane: u32, position: u64) -> Self {
        Self {
            group,
            lane,
            position,
        }
    }
}

impl LaneReader for FetchedLane {
    fn lane(&self) -> u32 {
        self.lane
    }

    fn position(&self) -> u64 {
        self.position
    }

    fn rewind(&mut self, position: u64) {
        self.position = position;
    }

    fn ready(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(Ready {
            group: Arc::clone(&self.group),
            lane: self.lane,
            position: self.position,
        })
    }

    fn peek(&self) -> Option<(usize, u32)> {
        let lane = self.group.lane(self.lane);
        let next = lane.at(self.position)?;
        let documents = next.head.as_ref().map_or(0, |head| head.documents);
        Some((next.lines.len(), documents))
    }

    fn next(&mut self, out: &mut Vec<u8>) -> Result<Option<Message>, ReadError> {
        let lanes = self.group.topic.lanes;
        let lane = self.group.lane(self.lane);
        let Some(next) = lane.at(self.position) else {
            return Ok(None);
        };
        let foreign = |why: String| ReadError::Foreign {
            topic: self.group.topic.options.topic.clone(),
            lane: self.lane,
            offset: next.offset,
            why,
        };
        let head = match &next.head {
            Err(why) => return Err(foreign(why.to_string())),
            Ok(head) if head.lanes != lanes => {
                let why = format!(
                    "it was written for {} partitions, and there are {lanes}",
                    head.lanes
                );
                return Err(foreign(why));
            }
            Ok(head) => *head,
        };
        self.group.topic.notice(&head);
        out.extend_from_slice(&next.lines);
        let message = Message {
            offset: next.offset,
            time_ms: next.time_ms,
            head,
            params: next.params.clone(),
        };
        drop(lane);
        self.position = message.offset + 1;
        Ok(Some(message))
    }
}

struct Ready {
    group: Arc<Inner>,
    lane: u32,
    position: u64,
}

impl Future for Ready {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut lane = self.group.lane(self.lane);
        if lane.at(self.position).is_some() {
            return Poll::Ready(());
        }
        let waker = context.waker();
        if !lane.wakers.iter().any(|known| known.will_wake(waker)) {
            lane.wakers.push(waker.clone());
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetched(offset: u64, documents: u32) -> Fetched {
        Fetched {
            offset,
            time_ms: 0,
            lost_before: 0,
            head: Ok(Head {
                kind: 0,
                documents,
                lanes: 1,
                by_id: false,
            }),
            params: Vec::new(),
            lines: vec![b'x'; 10],
        }
    }

    #[test]
    fn what_is_done_is_counted_by_what_the_messages_say_and_a_gap_as_messages_that_were_lost() {
        let mut lane = Lane::default();
        lane.push(fetched(3, 9));
        assert!(lane.fetched.is_empty(), "not ours");
        let from = Cursor {
            offset: 5,
            documents: 100,
            ..Cursor::default()
        };
        lane.take(from, 9);
        for (offset, documents) in [(5, 2), (6, 3), (6, 3), (9, 4)] {
            lane.push(fetched(offset, documents));
        }
        assert_eq!((lane.fetched.len(), lane.in_hand()), (3, (9, 30)));
        lane.settle(7, 1, 0);
        let done = Cursor {
            offset: 7,
            documents: 105,
            bytes: 20,
            dead: 1,
            ..Cursor::default()
        };
        assert_eq!(lane.done, done);
        lane.parked_when_done = Some((3, 1));
        assert_eq!(lane.done.parked, 0, "what is parked lies before no offset yet");
        lane.settle(10, 0, 4);
        assert_eq!((lane.done.parked, lane.done.parked_dead), (3, 1));
        assert_eq!(
            (lane.done.documents, lane.done.lost_messages, lane.done.skipped),
            (109, 2, 4)
        );
        assert_eq!((lane.bytes, lane.committed), (0, from), "done is not committed");
        lane.let_go();
        assert_eq!(lane.done, from);
    }

    #[test]
    fn what_a_commit_claims_that_may_not_have_been_taken_is_decided_by_what_is_committed() {
        let claimed = |committed| {
            let mut lane = Lane {
                claimed: 20,
                ..Lane::default()
            };
            lane.doubt(10, 10);
            assert_eq!(lane.doubted_from, None, "nothing of it is new");
            lane.doubt(10, 15);
            lane.doubt(15, 20);
            lane.let_go();
            assert_eq!((lane.claimed, lane.doubted_from), (20, Some(10)));
            let was_taken = lane.decide(committed);
            assert_eq!(lane.doubted_from, None);
            (lane.claimed, was_taken)
        };
        assert_eq!(claimed(10), (10, false));
        assert_eq!(claimed(15), (15, true));
        assert_eq!(claimed(20), (20, true));
        assert_eq!(claimed(99), (20, true), "its next owner has gone on");
        assert_eq!(claimed(0), (10, false), "somebody has set it back");
    }

    fn taken_with_two() -> Lane {
        let mut lane = Lane::default();
        let from = Cursor {
            offset: 5,
            ..Cursor::default()
        };
        lane.take(from, 9);
        for offset in [5, 6] {
            lane.push(fetched(offset, 1));
        }
        lane
    }

    #[test]
    #[should_panic(expected = "what is done of a lane moves forward: to 6 from 7")]
    fn nothing_that_is_done_is_undone() {
        let mut lane = taken_with_two();
        lane.settle(7, 0, 0);
        lane.settle(7, 0, 0);
        lane.settle(6, 0, 0);
    }

    #[test]
    #[should_panic(expected = "no more of a lane is done than was fetched: 8 of 7")]
    fn nothing_is_done_that_was_not_fetched() {
        taken_with_two().settle(8, 0, 0);
    }

    #[test]
    fn messages_that_are_gone_count_for_nothing_of_what_is_sent_beyond_a_commit() {
        let at = |offset| Cursor {
            offset,
            ..Cursor::default()
        };
        let far = 10 * SENT_AHEAD_MAX;
        let mut lane = Lane::default();
        lane.take(at(0), 2 * far);
        assert_eq!(lane.may_send_before(), SENT_AHEAD_MAX, "nothing has come yet");
        for offset in [0, 1, far, far + 1] {
            lane.push(fetched(offset, 1));
        }
        assert_eq!(lane.may_send_before(), SENT_AHEAD_MAX, "what is first lies there");
        lane.settle(2, 0, 0);
        assert_eq!(lane.may_send_before(), SENT_AHEAD_MAX, "that is not committed");
        lane.committed = lane.done;
        assert_eq!(lane.may_send_before(), far + SENT_AHEAD_MAX, "behind the gap");
        lane.settle(far + 1, 0, 0);
        assert_eq!(
            lane.may_send_before(),
            2 + SENT_AHEAD_MAX,
            "the first behind it is sent"
        );

        // The next owner of the lane finds the same gap, whether the last commit was before or behind it.
        for from in [0, 2] {
            let mut next = Lane::default();
            next.take(at(from), 2 * far);
            for offset in (from..2).chain([far, far + 1]) {
                next.push(fetched(offset, 1));
            }
            assert!(
                next.sent_when_taken >= far + SENT_AHEAD_MAX - 2,
                "{}",
                next.sent_when_taken
            );
        }
        let mut short = Lane::default();
        short.take(at(0), far + 2);
        short.push(fetched(far, 1));
        assert_eq!(short.sent_when_taken, far + 2, "there was no more to send");
    }
}
