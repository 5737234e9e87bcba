//! Where a document is for one consumer group, in one word.

use serde_json::Value;

use super::{InQueue, is_pending};
use crate::queue::GroupAccount;

/// The fate of the newest known write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TraceVerdict {
    /// The write is pending in its lane.
    Pending,
    /// The write is parked, and tried again.
    Parked,
    /// The write is among the dead letters.
    Dead,
    /// The cluster has the document.
    Indexed,
    /// The cluster does not have the document, and the newest write in the queue deleted it.
    Deleted,
    /// The cluster does not have the document, although a write was delivered.
    Absent,
    /// The cluster does not have the document, and no write was found.
    NotSeen,
    /// The cluster could not be asked, and the queue does not know.
    Unknown,
}

impl TraceVerdict {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            TraceVerdict::Pending => "pending",
            TraceVerdict::Parked => "parked",
            TraceVerdict::Dead => "dead",
            TraceVerdict::Indexed => "indexed",
            TraceVerdict::Deleted => "deleted",
            TraceVerdict::Absent => "absent",
            TraceVerdict::NotSeen => "not_seen",
            TraceVerdict::Unknown => "unknown",
        }
    }
}

/// Returns the verdict for a group. `answer` is the answer of its cluster.
pub(super) fn of(one: &InQueue, account: &GroupAccount, answer: Option<&Value>) -> TraceVerdict {
    let writes = || {
        let all = one.seen.iter().flat_map(|seen| &seen.writes);
        all.filter(|write| write.replay_of.as_deref().is_none_or(|only| only == account.name))
    };
    if writes().any(|write| is_pending(write, account)) {
        return TraceVerdict::Pending;
    }
    // Later writes to a document wait behind its parked ones.
    let parked = one.parked.get(&account.name);
    if parked.is_some_and(|found| !found.operations.is_empty()) {
        return TraceVerdict::Parked;
    }
    let newest = writes()
        .map(|write| (write.position, write.lane, write.found.place))
        .max();
    let letters = one.letters.letters.iter();
    let dead = letters
        .filter(|letter| letter.cause.group == account.name)
        .map(|letter| (letter.cause.position, letter.cause.lane, letter.cause.place))
        .max();
    if dead.is_some() && dead >= newest {
        return TraceVerdict::Dead;
    }
    match answer {
        Some(answer) if answer["found"] == true => TraceVerdict::Indexed,
        Some(answer) if answer["asked"] == true => match writes().next_back() {
            Some(write) if write.found.op == bulk::Op::Delete => TraceVerdict::Deleted,
            Some(_) => TraceVerdict::Absent,
            None => TraceVerdict::NotSeen,
        },
        _ => TraceVerdict::Unknown,
    }
}
