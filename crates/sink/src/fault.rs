//! Injected misbehaviour.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// When, where and how often a [`Fault`] happens.
#[derive(Debug, Clone)]
pub struct Injection {
    node: Option<usize>,
    on: On,
    skip: u32,
    times: u32,
    fault: Fault,
}

/// The requests that an [`Injection`] is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum On {
    /// Requests whose path ends with `_bulk`.
    Bulk,
    /// Requests whose path ends with `_bulk` and whose parameters hold this text.
    BulkWith(String),
    /// All requests.
    Any,
    /// Requests whose path (without parameters) begins with this. Note that `/logs/_search_shards`, with
    /// which a gateway checks its predictions, begins with `/logs/_search`.
    Path(String),
    /// Requests whose path (without parameters) is exactly this.
    Exactly(String),
}

/// The misbehaviour.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Reads the body, writes nothing, and gives this answer.
    Status {
        /// The HTTP status.
        status: u16,
        /// The JSON body.
        body: String,
    },
    /// Like `Status`, if the body holds this text; otherwise nothing goes wrong.
    StatusIfHolds {
        /// The text.
        text: String,
        /// The HTTP status.
        status: u16,
        /// The JSON body.
        body: String,
    },
    /// Like `Status`, if the body has more than this many bytes; otherwise nothing goes wrong.
    StatusIfLonger {
        /// The most bytes that are no fault.
        bytes: usize,
        /// The HTTP status.
        status: u16,
        /// The JSON body.
        body: String,
    },
    /// Like `Status`, if the body lacks this text; otherwise nothing goes wrong.
    StatusIfLacks {
        /// The text.
        text: String,
        /// The HTTP status.
        status: u16,
        /// The JSON body.
        body: String,
    },
    /// Like `CloseUnwritten`, if the body holds this text; otherwise nothing goes wrong.
    CloseIfHolds(String),
    /// Gives this answer to the head; the body stays unread and the connection is closed. Servers answer with
    /// 413 in this way.
    EarlyStatus {
        /// The HTTP status.
        status: u16,
        /// The JSON body.
        body: String,
    },
    /// Refuses items of a bulk: every `every`th one, counted from the first. The others are written.
    Items {
        /// The interval of refused items; 1 refuses all.
        every: usize,
        /// The status of the refused items.
        status: u16,
        /// The `error` of the refused items, a JSON object; `{id}` stands for the document's id.
        error: String,
    },
    /// Behaves normally, but this much later.
    Delay(Duration),
    /// Reads the body and never answers; nothing is written.
    HangUnwritten,
    /// Writes the documents and never answers.
    HangWritten,
    /// Closes when the head has arrived, without reading the body.
    CloseAtHead,
    /// Reads everything, writes nothing, and closes without an answer.
    CloseUnwritten,
    /// Writes the documents, and closes without an answer.
    CloseWritten,
    /// Writes the documents, and closes after this many bytes of the answer.
    CloseMidReply(usize),
    /// Writes the documents, and answers with this many items too few (negative) or too many.
    ItemCount(isize),
    /// Writes the documents, and answers 200 with this text instead.
    Garbage(String),
    /// Writes the documents, and gives this answer instead, as something on the way may.
    StatusWritten {
        /// The HTTP status.
        status: u16,
        /// The body.
        body: String,
    },
    /// Behaves normally, but each item of a bulk's answer that succeeded also holds a document of about this
    /// many bytes, whatever `filter_path` says. Only where documents are kept.
    Bloated(usize),
    /// Reads the body at this many bytes per second, then behaves normally.
    SlowRead(u64),
    /// Behaves normally, but sends the answer at this many bytes per second.
    SlowReply(u64),
}

/// The injections of a cluster.
#[derive(Debug, Default)]
pub(super) struct Injections {
    any: AtomicBool,
    struck: AtomicU64,
    list: Mutex<Vec<Injection>>,
}

// === impl Injection ===

impl Injection {
    /// Makes an injection for the next bulk request, on any node, once.
    pub fn bulk(fault: Fault) -> Injection {
        Injection::new(On::Bulk, fault)
    }

    /// Makes an injection for the next request of this kind, on any node, once.
    pub fn new(on: On, fault: Fault) -> Injection {
        Injection {
            node: None,
            on,
            skip: 0,
            times: 1,
            fault,
        }
    }

    /// Limits the injection to this node.
    #[must_use]
    pub fn on_node(mut self, node: usize) -> Injection {
        self.node = Some(node);
        self
    }

    /// Makes the injection strike `times` times.
    #[must_use]
    pub fn times(mut self, times: u32) -> Injection {
        self.times = times;
        self
    }

    /// Makes the injection strike until [`super::FakeCluster::behave`].
    #[must_use]
    pub fn always(self) -> Injection {
        self.times(u32::MAX)
    }

    /// Makes the injection strike only after `requests` matching requests have been served normally.
    #[must_use]
    pub fn after(mut self, requests: u32) -> Injection {
        self.skip = requests;
        self
    }

    fn is_for(&self, node: usize, path: &str, query: &str) -> bool {
        let path_fits = match &self.on {
            On::Any => true,
            On::Bulk => path.ends_with("/_bulk"),
            On::BulkWith(text) => path.ends_with("/_bulk") && query.contains(text.as_str()),
            On::Path(prefix) => path.starts_with(prefix.as_str()),
            On::Exactly(whole) => path == whole,
        };
        path_fits && self.node.is_none_or(|only| only == node)
    }
}

// === impl Injections ===

impl Injections {
    pub(super) fn add(&self, injection: Injection) {
        self.list.lock().push(injection);
        self.any.store(true, Ordering::Release);
    }

    pub(super) fn clear(&self) {
        self.list.lock().clear();
        self.any.store(false, Ordering::Release);
    }

    /// Returns how many requests got a fault so far.
    pub(super) fn struck(&self) -> u64 {
        self.struck.load(Ordering::Acquire)
    }

    /// Returns the fault of this request, if an injection strikes it. An empty list is not looked at.
    pub(super) fn take(&self, node: usize, path: &str, query: &str) -> Option<Fault> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let mut list = self.list.lock();
        for at in 0..list.len() {
            let injection = &mut list[at];
            if !injection.is_for(node, path, query) {
                continue;
            }
            if injection.skip > 0 {
                injection.skip -= 1;
                continue;
            }
            let fault = injection.fault.clone();
            if injection.times != u32::MAX {
                injection.times -= 1;
            }
            if injection.times == 0 {
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
        let injections = Injections::default();
        injections.add(Injection::bulk(Fault::HangUnwritten).on_node(1).after(1).times(2));
        let turns: Vec<bool> = (0..4)
            .map(|_| injections.take(1, "/logs/_bulk", "").is_some())
            .collect();
        assert_eq!(turns, [false, true, true, false]);
        assert_eq!(injections.struck(), 2);
        assert!(injections.take(0, "/_bulk", "").is_none());
    }

    #[test]
    fn a_cue_for_a_path_leaves_bulks_alone() {
        let injections = Injections::default();
        injections.add(Injection::new(On::Path("/_cluster".into()), Fault::CloseAtHead).always());
        assert!(injections.take(0, "/_bulk", "").is_none());
        assert!((0..9).all(|_| injections.take(2, "/_cluster/state", "").is_some()));
        injections.clear();
        injections.add(Injection::new(
            On::Exactly("/logs/_search".into()),
            Fault::CloseAtHead,
        ));
        assert!(injections.take(0, "/logs/_search_shards", "").is_none());
        assert!(injections.take(0, "/logs/_search", "").is_some());
        injections.clear();
        let with = On::BulkWith("pipeline=p".into());
        injections.add(Injection::new(with, Fault::CloseAtHead));
        assert!(injections.take(0, "/_bulk", "timeout=3s").is_none());
        assert!(injections.take(0, "/_bulk", "a=b&pipeline=p").is_some());
    }
}
