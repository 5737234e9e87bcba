//! One node's reply to the parts of several clients, cut into each client's own.
//!
//! Parts that are sent as one request, one after another, are answered by one reply whose items stand in that order. A
//! client's share of it is a run of those items in a frame of its own: the keys of the node's reply in their order,
//! `errors` true only if one of its own items failed, and a `took` of its own.

use crate::Reply;
use crate::items::HeadKey;
use crate::merge::write_frame;

impl Reply<'_> {
    /// Appends to `out` the reply that a client gets whose operations are `docs` ones from `first` on. `took_ms` is what
    /// it is told.
    ///
    /// Panics if there are no such items.
    pub fn share(&self, first: u32, docs: u32, took_ms: u64, out: &mut Vec<u8>) {
        let errors = self.errors() && (first..first + docs).any(|item| self.facts(item).failed);
        let ingest_took_ms = self.ingest_took_ms().unwrap_or_default();
        let keys: &[HeadKey] = &self.head.keys;
        let (head, tail) = write_frame(keys, errors, took_ms, ingest_took_ms);
        out.extend_from_slice(&head);
        if self.compact {
            // The items and the commas between them.
            let last = (first + docs - 1) as usize;
            let (start, end) = (self.bounds[first as usize].0, self.bounds[last].1);
            out.extend_from_slice(&self.bytes[start as usize..end as usize]);
        } else {
            for item in first..first + docs {
                if item > first {
                    out.push(b',');
                }
                out.extend_from_slice(self.item(item));
            }
        }
        out.extend_from_slice(&tail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(reply: &str, docs: u32, first: u32, own: u32) -> String {
        let reply = Reply::split(reply.as_bytes(), docs).unwrap();
        let mut out = Vec::new();
        reply.share(first, own, 7, &mut out);
        // What is cut out is a reply again.
        Reply::split(&out, own).unwrap();
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
