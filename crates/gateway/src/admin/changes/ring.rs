//! The newest changes, limited in number and bytes, and what has to be said to somebody who missed some.

use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::json;

use super::change::{Change, Level};

/// The newest changes.
#[derive(Debug)]
pub(super) struct Ring {
    /// The id below those of this process.
    base: u64,
    /// The last id that was given away.
    last: u64,
    /// All changes after this id are there.
    complete_after: u64,
    /// The last id at the time when nobody followed any more.
    unwatched_at: u64,
    changes: VecDeque<Kept>,
    bytes: usize,
}

/// A change in the ring.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) id: u64,
    pub(super) line: Bytes,
}

// === impl Ring ===

impl Ring {
    pub(super) fn new(base: u64) -> Self {
        Self {
            base,
            last: base,
            complete_after: base,
            unwatched_at: base,
            changes: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Returns the id of the newest change.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Adds a change; the oldest ones make room.
    pub(super) fn push(&mut self, change: &Change, at_ms: u64) {
        self.last += 1;
        let line = Bytes::from(change.to_line(self.last, at_ms));
        self.bytes += line.len();
        self.changes.push_back(Kept { id: self.last, line });
        while self.bytes > BYTES_MAX || self.changes.len() > CHANGES_MAX {
            let Some(oldest) = self.changes.pop_front() else {
                return;
            };
            self.bytes -= oldest.line.len();
            self.complete_after = oldest.id;
        }
    }

    /// Forgets everything: from now on nobody looks for changes. An id is left out, so that also those who
    /// have seen the newest change are told that they missed some.
    pub(super) fn forget(&mut self) {
        self.changes.clear();
        self.bytes = 0;
        self.last += 1;
        (self.complete_after, self.unwatched_at) = (self.last, self.last);
    }

    /// Returns the changes after an id, of at most `bytes` bytes together but at least one if there is one;
    /// and first, if others were missed, a change that says so.
    pub(super) fn after(&self, id: u64, bytes: usize, at_ms: u64) -> Vec<Kept> {
        let mut found = Vec::new();
        let mut from = id;
        if let Some(why) = self.why_missed(id) {
            from = self.complete_after;
            found.push(self.missed(id, why, at_ms));
        }
        let begin = self.changes.partition_point(|change| change.id <= from);
        let mut left = bytes;
        for change in self.changes.range(begin..) {
            if change.line.len() > left && !found.is_empty() {
                break;
            }
            left = left.saturating_sub(change.line.len());
            found.push(change.clone());
        }
        found
    }

    fn why_missed(&self, id: u64) -> Option<(&'static str, &'static str)> {
        if id > self.last {
            return Some(("unknown", "this gateway has not given away the id yet"));
        }
        if id >= self.complete_after {
            return None;
        }
        Some(match id {
            id if id < self.base => ("restarted", "the gateway was started anew"),
            id if id < self.unwatched_at => ("unwatched", "nobody looked for any meanwhile"),
            _ => ("overrun", "there were more than are kept"),
        })
    }

    fn missed(&self, since: u64, (reason, why): (&'static str, &'static str), at_ms: u64) -> Kept {
        let text = format!("changes after {since} were missed: {why}; ask for the present state");
        let details = json!({"since": since, "reason": reason});
        let id = self.complete_after;
        let line = Change::new("missed", Level::Warning, text, details).to_line(id, at_ms);
        Kept {
            id,
            line: line.into(),
        }
    }
}

const CHANGES_MAX: usize = 4_096;
const BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn change(text: &str) -> Change {
        Change::new("node", Level::Info, text.to_owned(), json!({}))
    }

    fn read(kept: &[Kept]) -> Vec<(u64, String)> {
        let read = |kept: &Kept| -> (u64, String) {
            let line: Value = serde_json::from_slice(&kept.line).unwrap();
            assert_eq!(line["id"], kept.id);
            let what = if line["kind"] == "missed" {
                "reason"
            } else {
                "text"
            };
            (kept.id, line[what].as_str().unwrap().to_owned())
        };
        kept.iter().map(read).collect()
    }

    fn all(ring: &Ring, since: u64) -> Vec<(u64, String)> {
        read(&ring.after(since, usize::MAX, 1))
    }

    #[test]
    fn who_comes_back_gets_what_it_has_not_seen_and_is_told_if_some_of_it_is_gone() {
        let mut ring = Ring::new(100);
        for text in ["a", "b", "c"] {
            ring.push(&change(text), 1);
        }
        let of = |id: u64, text: &str| (id, text.to_owned());
        assert_eq!(all(&ring, 100), [of(101, "a"), of(102, "b"), of(103, "c")]);
        assert_eq!(all(&ring, 102), [of(103, "c")]);
        assert_eq!(all(&ring, 103), []);
        // Ids of an earlier process, and of none.
        assert_eq!(all(&ring, 7)[0], of(100, "restarted"));
        assert_eq!(all(&ring, 7).len(), 4);
        assert_eq!(all(&ring, 104)[0], of(100, "unknown"));
        // One at a time.
        assert_eq!(read(&ring.after(101, 1, 1)), [of(102, "b")]);
        ring.forget();
        ring.push(&change("d"), 1);
        for since in [100, 103] {
            assert_eq!(all(&ring, since), [of(104, "unwatched"), of(105, "d")], "{since}");
        }
        assert_eq!(all(&ring, 104), [of(105, "d")]);
    }

    #[test]
    fn the_ring_is_limited_and_says_what_it_has_given_up() {
        let mut ring = Ring::new(0);
        for _ in 0..=CHANGES_MAX {
            ring.push(&change("x"), 1);
        }
        assert_eq!(all(&ring, 0)[0], (1, "overrun".to_owned()));
        assert_eq!(all(&ring, 1).len(), CHANGES_MAX);
        assert_eq!(all(&ring, 1)[0], (2, "x".to_owned()));
        for _ in 0..BYTES_MAX / 1_000 {
            ring.push(&change(&"y".repeat(1_000)), 1);
        }
        let kept: usize = ring.changes.iter().map(|kept| kept.line.len()).sum();
        assert!(
            kept == ring.bytes && kept <= BYTES_MAX && kept > BYTES_MAX - 3_000,
            "{kept}"
        );
        assert_eq!(all(&ring, ring.complete_after).len(), ring.changes.len());
    }
}
