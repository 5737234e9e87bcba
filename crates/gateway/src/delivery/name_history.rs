//! Where names have led while a queue in Kafka was delivered.
//!
//! Before a write in doubt is sent again, it is looked for where its name may have led when it was sent.
//! A message says where its names led when it was accepted ([`Params::led_to`]); a name may have come to
//! lead elsewhere since, before an earlier owner of the lane sent the message. A gateway that was there
//! then has seen that, whichever lanes and messages it had. One that was not has it from the owners, which
//! write down where a name leads before they send anything through it ([`super::note_names`]). A queue on
//! disk keeps this at one place ([`crate::queue::whereabouts`]).
//!
//! [`Params::led_to`]: crate::queue::record::Params::led_to

use std::collections::HashMap;
use std::sync::Arc;

use bulk::RouteTable;

use crate::queue::parked::NameLed;

/// The names of aliases and data streams, each with the indices that it has led to, the newest last.
#[derive(Default)]
pub(crate) struct NameHistory {
    seen: Option<Arc<RouteTable>>,
    names: HashMap<String, Vec<Led>>,
}

/// An index that a name has led to.
struct Led {
    index: String,
    /// When the name was first seen to lead here, ms since 1970.
    since_ms: u64,
}

impl NameHistory {
    /// Follows all names in a topology; returns whether it is another one than the last.
    pub(crate) fn look(&mut self, table: &Arc<RouteTable>, now_ms: u64) -> bool {
        if self.seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, table)) {
            return false;
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
        true
    }

    /// Takes in where names led for former owners of lanes. Their clocks may be ahead of this gateway's.
    pub(crate) fn hear(&mut self, all: Vec<NameLed>, now_ms: u64) {
        for led in all {
            // The number of these names is bounded where they come from.
            let indices = self.names.entry(led.name).or_default();
            add(indices, &led.index, led.since_ms.min(now_ms));
        }
    }

    /// Returns the indices that a name has led to since it led to `index`, where it led when a message was
    /// accepted at this time, as far as they were seen. An index that it had left before cannot have what was
    /// accepted then; taking it for one that can would leave a write out that finds its like there.
    pub(crate) fn since(&self, name: &str, index: &str, accepted_ms: u64) -> Vec<String> {
        let indices = self.names.get(name).map_or(&[][..], Vec::as_slice);
        // The name was seen to lead elsewhere when it was first seen to lead to the next index.
        let left_ms = |at: usize| indices.get(at + 1).map(|next| next.since_ms);
        // A name that came back to an index has led elsewhere in between.
        let is_left = |at: usize| left_ms(at).is_some_and(|left| left <= accepted_ms);
        let led_there = |at: &usize| indices[*at].index == index;
        let all = 0..indices.len();
        let at = all.clone().find(|at| led_there(at) && !is_left(*at));
        let since = match at.or_else(|| all.clone().rfind(led_there)) {
            Some(at) if indices[at].since_ms <= accepted_ms.saturating_add(CLOCKS_MS) => {
                at + 1..indices.len()
            }
            // The name led there before it was followed, and may have led elsewhere before it came back.
            Some(_) => {
                let is_earlier = |led: &Led| led.since_ms.saturating_add(CLOCKS_MS) <= accepted_ms;
                indices.partition_point(is_earlier)..indices.len()
            }
            // The name led there before it was followed, or for so short a time that nobody saw it here.
            None => all,
        };
        let may_have = |at: &usize| left_ms(*at).is_none_or(|left| left + CLOCKS_MS > accepted_ms);
        since
            .filter(may_have)
            .map(|at| indices[at].index.clone())
            .collect()
    }
}

/// Returns the index that writes through a name go to.
pub(super) fn index_of<'t>(table: &'t RouteTable, name: &str) -> Option<&'t str> {
    table.laned(name)?.write().ok().map(|route| &*route.name)
}

/// Adds an index where its time has it. What several have seen stands here once, unless one of them saw it so
/// late that another had seen the name lead elsewhere already.
fn add(indices: &mut Vec<Led>, index: &str, since_ms: u64) {
    let at = indices.partition_point(|led| led.since_ms <= since_ms);
    if at > 0 && indices[at - 1].index == index {
        return;
    }
    if let Some(next) = indices.get_mut(at).filter(|next| next.index == index) {
        next.since_ms = since_ms;
        return;
    }
    let index = index.to_owned();
    indices.insert(at, Led { index, since_ms });
    if indices.len() > INDICES_MAX {
        indices.remove(0);
    }
}

/// The most names that are followed besides those that former owners have written down, and indices of each.
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
    }

    #[test]
    fn what_former_owners_have_written_down_stands_where_its_time_has_it() {
        let heard = |index: &str, since_ms| NameLed {
            name: "a".to_owned(),
            index: index.to_owned(),
            since_ms,
            sent_before: None,
        };
        let mut led_to = followed(&[("i4", 400_000)]);
        led_to.hear(vec![heard("i1", 100_000), heard("i2", 200_000)], 400_000);
        // Of another lane.
        led_to.hear(vec![heard("i2", 250_000), heard("i3", 300_000)], 400_000);
        led_to.hear(vec![heard("i1", 90_000), heard("i4", 350_000)], 400_000);
        assert_eq!(led_to.since("a", "i1", 95_000), ["i2", "i3", "i4"]);
        assert_eq!(led_to.since("a", "i2", 240_000), ["i3", "i4"]);
        assert!(led_to.since("a", "i4", 360_000).is_empty());
        // The clock of its owner is ahead.
        led_to.hear(vec![heard("i5", 900_000)], 450_000);
        assert_eq!(led_to.since("a", "i4", 440_000), ["i5"]);
        led_to.look(&table("i6"), 460_000);
        assert_eq!(led_to.since("a", "i5", 455_000), ["i6"]);
    }

    #[test]
    fn where_a_name_led_is_told_if_it_came_back_before_it_was_followed() {
        // Its owner sent something through the name while it led to `i2`, and nothing before.
        let mut led_to = followed(&[("i1", 200_000)]);
        let heard = NameLed {
            name: "a".to_owned(),
            index: "i2".to_owned(),
            since_ms: 100_000,
            sent_before: None,
        };
        led_to.hear(vec![heard], 200_000);
        assert_eq!(led_to.since("a", "i1", 50_000), ["i2", "i1"]);
        // The name had led to `i2` before this was accepted.
        assert_eq!(led_to.since("a", "i1", 150_000), ["i1"]);
        assert_eq!(led_to.since("a", "i1", 105_000), ["i2", "i1"], "clocks differ");
        assert!(
            led_to.since("a", "i1", 195_000).is_empty(),
            "it may have led there"
        );
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
