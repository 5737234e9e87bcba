//! Cutting one node's reply to the parts of several clients into each client's own reply.
//!
//! Parts that are sent together in one request are answered by one reply whose items stand in the order of
//! the parts. A client's share of the reply is a run of those items in a frame of its own: the keys of the
//! node's reply in their order, `errors`, which is true only if one of the client's own items failed, and a
//! `took` of its own.

use std::collections::BTreeMap;

use crate::Reply;
use crate::items::Head;
use crate::merge::write_frame;

/// A client's share of a reply: the places of its items in the reply. The methods that need the reply's bytes
/// take them as a parameter.
#[derive(Clone, Debug)]
pub struct Share {
    /// The start and end of each item.
    bounds: Vec<(u32, u32)>,
    head: Head,
    compact: bool,
}

// === impl Reply ===

impl Reply<'_> {
    /// Returns the share of the client whose operations are `docs` operations from `first` on. Items that
    /// replaced others are not included.
    ///
    /// Panics if there are no such items.
    pub fn share(&self, first: u32, docs: u32) -> Share {
        let items = first..first + docs;
        let mut head = self.head.clone();
        head.errors = self.errors() && items.clone().any(|item| self.facts(item).failed);
        Share {
            bounds: self.bounds[items.start as usize..items.end as usize].to_vec(),
            head,
            compact: self.compact,
        }
    }
}

// === impl Share ===

impl Share {
    /// Returns whether one of the share's own items failed.
    pub fn errors(&self) -> bool {
        self.head.errors
    }

    /// Returns the share as a reply. `bytes` is the node's whole reply.
    pub fn reply<'r>(&self, bytes: &'r [u8]) -> Reply<'r> {
        Reply {
            bytes: bytes.into(),
            bounds: self.bounds.clone(),
            replaced: BTreeMap::new(),
            head: self.head.clone(),
            compact: self.compact,
        }
    }

    /// Returns the bytes of the written share, without the frame.
    pub fn bytes(&self) -> usize {
        self.bounds
            .iter()
            .map(|(start, end)| (end - start) as usize + 1)
            .sum()
    }

    /// Appends the reply that the client gets to `out`. `bytes` is the node's whole reply; `took_ms` is the
    /// `took` that the client is told.
    pub fn write(&self, bytes: &[u8], took_ms: u64, out: &mut Vec<u8>) {
        let ingest_took_ms = self.head.ingest_took_ms.unwrap_or_default();
        let (head, tail) = write_frame(&self.head.keys, self.head.errors, took_ms, ingest_took_ms);
        out.extend_from_slice(&head);
        match (self.bounds.first(), self.bounds.last()) {
            // Copy the items with the commas between them.
            (Some((start, _)), Some((_, end))) if self.compact => {
                out.extend_from_slice(&bytes[*start as usize..*end as usize]);
            }
            _ => {
                for (item, (start, end)) in self.bounds.iter().enumerate() {
                    if item > 0 {
                        out.push(b',');
                    }
                    out.extend_from_slice(&bytes[*start as usize..*end as usize]);
                }
            }
        }
        out.extend_from_slice(&tail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(reply: &str, docs: u32, first: u32, own: u32) -> String {
        let bytes = reply.as_bytes();
        let share = Reply::split(bytes, docs).unwrap().share(first, own);
        let mut out = Vec::new();
        share.write(bytes, 7, &mut out);
        // The share that is cut out is a reply again, and the same as the share read in place.
        let (written, read) = (Reply::split(&out, own).unwrap(), share.reply(bytes));
        assert_eq!((written.errors(), written.items()), (read.errors(), read.items()));
        assert_eq!(written.ingest_took_ms(), read.ingest_took_ms());
        for item in 0..own {
            assert_eq!(written.item(item), read.item(item));
        }
        assert!(out.len() >= share.bytes());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_client_gets_its_own_items_and_errors_in_the_nodes_own_frame() {
        let fine = "{\"index\":{\"_id\":\"a\",\"status\":201}}";
        let bad = "{\"index\":{\"_id\":\"b\",\"status\":400,\"error\":{\"type\":\"t\"}}}";
        let gone = "{\"delete\":{\"_id\":\"c\",\"status\":404}}";
        for comma in [",", ", "] {
            let items = [fine, bad, gone].join(comma);
            let reply = format!("{{\"errors\":true,\"took\":30,\"items\":[{items}]}}");
            assert_eq!(
                share(&reply, 3, 0, 1),
                format!("{{\"errors\":false,\"took\":7,\"items\":[{fine}]}}")
            );
            assert_eq!(
                share(&reply, 3, 1, 2),
                format!("{{\"errors\":true,\"took\":7,\"items\":[{bad},{gone}]}}")
            );
            assert_eq!(
                share(&reply, 3, 2, 1),
                format!("{{\"errors\":false,\"took\":7,\"items\":[{gone}]}}")
            );
        }
        let reply = format!("{{\"took\":3,\"ingest_took\":2,\"errors\":false,\"items\":[{fine},{gone}]}}");
        assert_eq!(
            share(&reply, 2, 1, 1),
            format!("{{\"took\":7,\"ingest_took\":2,\"errors\":false,\"items\":[{gone}]}}")
        );
    }
}
