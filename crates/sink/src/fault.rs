//! Misbehaviour on cue.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// When, where and how often a [`Fault`] happens.
#[derive(Debug, Clone)]
pub struct Cue {
    node: Option<usize>,
    on: On,
    skip: u32,
    times: u32,
    fault: Fault,
}

/// The requests that a [`Cue`] is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum On {
    /// Those whose path ends with `_bulk`.
    Bulk,
    /// All.
    Any,
    /// Those whose path (without parameters) begins with this. `/logs/_search` is the beginning of
    /// `/logs/_search_shards`, by which a gateway has its predictions checked.
    Path(String),
    /// Those whose path (without parameters) is this.
    Exactly(String),
}

/// What goes wrong.
#[derive(Debug, Clone)]
pub enum Fault {
    /// The body is read, nothing is written, and this is the answer.
    Status {
        /// The HTTP status.
        status: u16,
        /// The JSON body.
        body: String,
    },
    /// The same, if the body holds this text; else nothing goes wrong.
    StatusIfHolds {
        /// The text.
        text: String,
        /// The HTTP status.
        status: u16,
        /// The JSON body.
        body: String,
    },
    /// The same, if the body lacks this text.
    StatusIfLacks {
        /// The text.
        text: String,
        /// The HTTP status.
        status: u16,
        /// The JSON body.
        body: String,
    },
    /// This is the answer to the head; the body stays unread and the connection is closed. 413 comes like
    /// this.
    EarlyStatus {
        /// The HTTP status.
        status: u16,
        /// The JSON body.
        body: String,
    },
    /// Items of a bulk are refused: every `every`th one, counted from the first. The others are written.
    Items {
        /// 1 refuses all.
        every: usize,
        /// The status of the refused items.
        status: u16,
        /// Their `error`, a JSON object; `{id}` stands for the document's id.
        error: String,
    },
    /// Does what it should, this much later.
    Delay(Duration),
    /// Reads the body and never answers; nothing is written.
    HangUnwritten,
    /// Writes the documents and never answers.
    HangWritten,
    /// Closes when the head has come, without reading the body.
    CloseAtHead,
    /// Reads all, writes nothing, closes without an answer.
    CloseUnwritten,
    /// Writes the documents, closes without an answer.
    CloseWritten,
    /// Writes the documents, closes after this many bytes of the answer.
    CloseMidReply(usize),
    /// Writes the documents, answers with so many items too few (negative) or too many.
    ItemCount(isize),
    /// Writes the documents, answers 200 with this instead.
    Garbage(String),
    /// Does what it should; each item of a bulk's answer that succeeded holds a document of about so many
    /// bytes besides, whatever `filter_path` says. Where documents are kept only.
    Bloated(usize),
    /// Reads the body at this many bytes a second, then does what it should.
    SlowRead(u64),
    /// Does what it should, sending the answer at this many bytes a second.
    SlowReply(u64),
}

/// The cues of a cluster.
#[derive(Debug, Default)]
pub(super) struct Cues {
    any: AtomicBool,
    struck: AtomicU64,
    list: Mutex<Vec<Cue>>,
}

// === impl Cue ===

impl Cue {
    /// The next bulk request, on any node, once.
    pub fn bulk(fault: Fault) -> Cue {
        Cue::new(On::Bulk, fault)
    }

    /// The next request of this kind, on any node, once.
    pub fn new(on: On, fault: Fault) -> Cue {
        Cue {
            node: None,
            on,
            skip: 0,
            times: 1,
            fault,
        }
    }

    /// Only on this node.
    #[must_use]
    pub fn on_node(mut self, node: usize) -> Cue {
        self.node = Some(node);
        self
    }

    /// So many times.
    #[must_use]
    pub fn times(mut self, times: u32) -> Cue {
        self.times = times;
        self
    }

    /// Until [`super::FakeCluster::behave`].
    #[must_use]
    pub fn always(self) -> Cue {
        self.times(u32::MAX)
    }

    /// After so many requests that it is for have been served well.
    #[must_use]
    pub fn after(mut self, requests: u32) -> Cue {
        self.skip = requests;
        self
    }

    fn is_for(&self, node: usize, path: &str) -> bool {
        let path_fits = match &self.on {
            On::Any => true,
            On::Bulk => path.ends_with("/_bulk"),
            On::Path(prefix) => path.starts_with(prefix.as_str()),
            On::Exactly(whole) => path == whole,
        };
        path_fits && self.node.is_none_or(|only| only == node)
    }
}

// === impl Cues ===

impl Cues {
    pub(super) fn add(&self, cue: Cue) {
        self.list.lock().push(cue);
        self.any.store(true, Ordering::Release);
    }

    pub(super) fn clear(&self) {
        self.list.lock().clear();
        self.any.store(false, Ordering::Release);
    }

    /// How many requests got a fault so far.
    pub(super) fn struck(&self) -> u64 {
        self.struck.load(Ordering::Acquire)
    }

    /// The fault of this request, if it is one's turn. The list is not looked at while it is empty.
    pub(super) fn take(&self, node: usize, path: &str) -> Option<Fault> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let mut list = self.list.lock();
        for at in 0..list.len() {
            let cue = &mut list[at];
            if !cue.is_for(node, path) {
                continue;
            }
            if cue.skip > 0 {
                cue.skip -= 1;
                continue;
            }
            let fault = cue.fault.clone();
            if cue.times != u32::MAX {
                cue.times -= 1;
            }
            if cue.times == 0 {
                list.remove(at);
            }
            self.struck.fetch_add(1, Ordering::Release);
            return Some(fault);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cue_waits_for_its_turn_and_ends() {
        let cues = Cues::default();
        cues.add(Cue::bulk(Fault::HangUnwritten).on_node(1).after(1).times(2));
        let turns: Vec<bool> = (0..4).map(|_| cues.take(1, "/logs/_bulk").is_some()).collect();
        assert_eq!(turns, [false, true, true, false]);
        assert_eq!(cues.struck(), 2);
        assert!(cues.take(0, "/_bulk").is_none());
    }

    #[test]
    fn a_cue_for_a_path_leaves_bulks_alone() {
        let cues = Cues::default();
        cues.add(Cue::new(On::Path("/_cluster".into()), Fault::CloseAtHead).always());
        assert!(cues.take(0, "/_bulk").is_none());
        assert!((0..9).all(|_| cues.take(2, "/_cluster/state").is_some()));
        cues.clear();
        cues.add(Cue::new(On::Exactly("/logs/_search".into()), Fault::CloseAtHead));
        assert!(cues.take(0, "/logs/_search_shards").is_none());
        assert!(cues.take(0, "/logs/_search").is_some());
    }
}
