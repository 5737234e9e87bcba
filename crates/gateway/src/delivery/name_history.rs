//! Where names have led while this process has delivered a queue in Kafka.
//!
//! Before a write in doubt is sent again, it is looked for where its name may have led when it was sent.
//! A message says where its names led when it was accepted ([`Params::led_to`]); a name may have come to
//! lead elsewhere since, before an earlier owner of the lane sent the message. A gateway that was there
//! then has seen that, whichever lanes and messages it had. A queue on disk keeps more
//! ([`crate::queue::whereabouts`]).
//!
//! [`Params::led_to`]: crate::queue::record::Params::led_to

use std::collections::HashMap;
use std::sync::Arc;

use bulk::RouteTable;

/// The names of aliases and data streams, each with the indices that it has led to, the newest last.
#[derive(Default)]
pub(crate) struct NameHistory {
    seen: Option<Arc<RouteTable>>,
    names: HashMap<String, Vec<Led>>,
}

/// An index that a name has led to.
struct Led {
    index: String,
    /// When the name was seen to lead elsewhere, ms since 1970; `None` while it leads here.
    left_ms: Option<u64>,
}

impl NameHistory {
    /// Follows all names in a topology, if it is another one than the last.
    pub(crate) fn look(&mut self, table: &Arc<RouteTable>, now_ms: u64) {
        if self.seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, table)) {
            return;
        }
        self.seen = Some(Arc::clone(table));
        for name in table.known_names() {
            let Some(index) = index_of(table, name).filter(|index| *index != name) else {
                continue;
            };
            if let Some(indices) = self.names.get_mut(name) {
                add(indices, index, now_ms);
            } else if self.names.len() < NAMES_MAX {
                let mut indices = Vec::new();
                add(&mut indices, index, now_ms);
                self.names.insert(name.to_owned(), indices);
            }
        }
    }

    /// Returns the indices that a name has led to since it led to `index`, where it led when a message was
    /// accepted at this time, as far as they were seen. An index that it had left before cannot have what was
    /// accepted then; taking it for one that can would leave a write out that finds its like there.
    pub(crate) fn since(&self, name: &str, index: &str, accepted_ms: u64) -> Vec<String> {
        let indices = self.names.get(name).map_or(&[][..], Vec::as_slice);
        // A name that came back to an index has led elsewhere in between. When parked writes were accepted is
        // not known.
        let is_left = |led: &Led| {
            led.left_ms
                .is_some_and(|left| left <= accepted_ms || accepted_ms == 0)
        };
        let led_there = |led: &Led| led.index == index;
        let at = indices.iter().position(|led| led_there(led) && !is_left(led));
        let since = match at.or_else(|| indices.iter().rposition(led_there)) {
            Some(at) => &indices[at + 1..],
            // The name led there before it was followed, or for so short a time that nobody saw it here.
            None => indices,
        };
        let may_have = |led: &&Led| led.left_ms.is_none_or(|left| left + CLOCKS_MS > accepted_ms);
        since
            .iter()
            .filter(may_have)
            .map(|led| led.index.clone())
            .collect()
    }
}

fn index_of<'t>(table: &'t RouteTable, name: &str) -> Option<&'t str> {
    table.laned(name)?.write().ok().map(|route| &*route.name)
}

fn add(indices: &mut Vec<Led>, index: &str, now_ms: u64) {
    if indices.last().is_some_and(|last| last.index == index) {
        return;
    }
    if let Some(last) = indices.last_mut() {
        last.left_ms = Some(now_ms);
    }
    indices.push(Led {
        index: index.to_owned(),
        left_ms: None,
    });
    if indices.len() > INDICES_MAX {
        indices.remove(0);
    }
}

/// The most names that are followed, and indices of each.
const NAMES_MAX: usize = 4096;
const INDICES_MAX: usize = 16;
/// How much later than the cluster a gateway may see that a name leads elsewhere, and how far the clocks of
/// gateways may differ.
const CLOCKS_MS: u64 = 10_000;

#[cfg(test)]
mod tests {
    use bulk::{Dialect, Flavour, Formula, IndexRoute, NodeIx, Target, Version};

    use super::*;

    /// Makes a table in which the alias `a` leads to an index.
    fn table(index: &str) -> Arc<RouteTable> {
        let dialect = Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0));
        let mut builder = RouteTable::builder(dialect, 1);
        let write = Arc::new(IndexRoute::new(index, Formula::Modulo, vec![Some(NodeIx(0))]));
        builder.index(Arc::clone(&write));
        let alias = Target::Alias {
            write,
            index_routing: None,
        };
        builder.name("a", alias);
        Arc::new(builder.build())
    }

    /// Follows the alias through these indices, which it came to at these times.
    fn followed(indices: &[(&str, u64)]) -> NameHistory {
        let mut led_to = NameHistory::default();
        for (index, now_ms) in indices {
            led_to.look(&table(index), *now_ms);
        }
        led_to
    }

    #[test]
    fn the_indices_that_a_name_has_led_to_since_are_told() {
        let led_to = followed(&[("i1", 0), ("i2", 100), ("i3", 200), ("i3", 300), ("i4", 400)]);
        assert_eq!(led_to.since("a", "i1", 50), ["i2", "i3", "i4"]);
        assert_eq!(led_to.since("a", "i3", 250), ["i4"]);
        assert!(led_to.since("a", "i4", 500).is_empty(), "it leads there still");
        assert!(led_to.since("b", "i1", 50).is_empty());
    }

    #[test]
    fn what_a_name_led_to_before_it_was_followed_is_not_missed() {
        let led_to = followed(&[("i2", 100_000), ("i3", 200_000), ("i4", 300_000)]);
        assert_eq!(led_to.since("a", "i1", 90_000), ["i2", "i3", "i4"]);
        // Nobody here saw the name lead to `i9`, but by then it had left `i2`.
        assert_eq!(led_to.since("a", "i9", 220_000), ["i3", "i4"]);
    }

    #[test]
    fn what_a_name_had_left_before_is_not_told_when_it_comes_back() {
        let led_to = followed(&[("i1", 0), ("i2", 100), ("i1", 200)]);
        assert!(led_to.since("a", "i1", 250).is_empty());
        assert_eq!(led_to.since("a", "i2", 150), ["i1"]);
    }

    #[test]
    fn where_a_name_led_before_it_came_back_is_told_of_what_was_accepted_before() {
        let led_to = followed(&[("i1", 0), ("i2", 100_000), ("i1", 200_000)]);
        assert_eq!(led_to.since("a", "i1", 50_000), ["i2", "i1"]);
        assert!(led_to.since("a", "i1", 250_000).is_empty());
        assert!(led_to.since("a", "i1", 0).is_empty(), "the time is not known");
    }

    #[test]
    fn of_a_name_that_moves_again_and_again_the_latest_indices_are_known() {
        let mut led_to = NameHistory::default();
        for number in 0..=INDICES_MAX {
            led_to.look(&table(&format!("i{number}")), 0);
        }
        assert_eq!(led_to.since("a", "i1", 0).len(), INDICES_MAX - 1);
    }
}
