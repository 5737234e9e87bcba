//! Where a document is for one consumer group, in a word.

use serde_json::Value;

use super::{InQueue, is_pending};
use crate::queue::GroupAccount;

/// The fate of the newest write that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// In its lane.
    Pending,
    /// Set aside, and tried again.
    Parked,
    /// Among the dead letters.
    Dead,
    /// The cluster says that it has the document.
    Indexed,
    /// The cluster says that it has not, and the newest write that lies in the queue took it away.
    Deleted,
    /// The cluster says that it has not, though a write was delivered.
    Absent,
    /// The cluster says that it has not, and no write was met.
    NotSeen,
    /// The cluster could not be asked, and the queue does not know.
    Unknown,
}

impl Verdict {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Verdict::Pending => "pending",
            Verdict::Parked => "parked",
            Verdict::Dead => "dead",
            Verdict::Indexed => "indexed",
            Verdict::Deleted => "deleted",
            Verdict::Absent => "absent",
            Verdict::NotSeen => "not_seen",
            Verdict::Unknown => "unknown",
        }
    }
}

/// The verdict for a group; `answer` is what its cluster said.
pub(super) fn of(one: &InQueue, account: &GroupAccount, answer: Option<&Value>) -> Verdict {
    let writes = || {
        let all = one.seen.iter().flat_map(|seen| &seen.writes);
        all.filter(|write| write.replay_of.as_deref().is_none_or(|only| only == account.name))
    };
    if writes().any(|write| is_pending(write, account)) {
        return Verdict::Pending;
    }
    // Later writes to a document go behind its parked ones.
    let parked = one.parked.get(&account.name);
    if parked.is_some_and(|found| !found.operations.is_empty()) {
        return Verdict::Parked;
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
        return Verdict::Dead;
    }
    match answer {
        Some(answer) if answer["found"] == true => Verdict::Indexed,
        Some(answer) if answer["asked"] == true => match writes().next_back() {
            Some(write) if write.found.op == bulk::Op::Delete => Verdict::Deleted,
            Some(_) => Verdict::Absent,
            None => Verdict::NotSeen,
        },
        _ => Verdict::Unknown,
    }
}
