//! Where names have led while this process has delivered a queue in Kafka.
//!
//! Before a write in doubt is sent again, it is looked for where its name may have led when it was sent. A
//! message says where its names led when it was accepted ([`Params::led_to`]); a name may have come to lead
//! elsewhere since, before an earlier owner of the lane sent the message. A gateway that was there then has
//! seen that, whichever lanes it had. A queue on disk keeps more ([`crate::queue::whereabouts`]).
//!
//! [`Params::led_to`]: crate::queue::record::Params::led_to

use std::collections::HashMap;
use std::sync::Arc;

use bulk::RouteTable;

/// The names of aliases and data streams that documents were sent through, each with the indices that it has
/// led to, the newest last.
#[derive(Default)]
pub(crate) struct LedTo {
    seen: Option<Arc<RouteTable>>,
    names: HashMap<String, Vec<String>>,
}

impl LedTo {
    /// Follows the names in a topology, if it is another one than the last.
    pub(crate) fn look(&mut self, table: &Arc<RouteTable>) {
        if self.seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, table)) {
            return;
        }
        self.seen = Some(Arc::clone(table));
        for (name, indices) in &mut self.names {
            if let Some(index) = index_of(table, name) {
                add(indices, index);
            }
        }
    }

    /// Follows the names of a request from now on.
    pub(crate) fn learn(&mut self, led_to: &[(String, String)], table: &RouteTable) {
        for (name, index) in led_to {
            if self.names.contains_key(name) || self.names.len() >= NAMES_MAX {
                continue;
            }
            let mut indices = vec![index.clone()];
            if let Some(index) = index_of(table, name) {
                add(&mut indices, index);
            }
            self.names.insert(name.clone(), indices);
        }
    }

    /// Returns the indices that a name has led to since it led to `index`, as far as they were seen. An index
    /// that it had left before cannot have what was accepted then; taking it for one that can would leave a
    /// write out that finds its like there.
    pub(crate) fn since(&self, name: &str, index: &str) -> &[String] {
        let indices = self.names.get(name).map_or(&[][..], Vec::as_slice);
        let at = indices.iter().rposition(|known| known == index);
        at.map_or(&[], |at| &indices[at + 1..])
    }
}

fn index_of<'t>(table: &'t RouteTable, name: &str) -> Option<&'t str> {
    table.laned(name)?.write().ok().map(|route| &*route.name)
}

fn add(indices: &mut Vec<String>, index: &str) {
    if indices.last().is_none_or(|last| last != index) {
        indices.push(index.to_owned());
        if indices.len() > INDICES_MAX {
            indices.remove(0);
        }
    }
}

/// The most names that are followed, and indices of each.
const NAMES_MAX: usize = 4096;
const INDICES_MAX: usize = 16;

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

    fn pairs(index: &str) -> [(String, String); 1] {
        [("a".to_owned(), index.to_owned())]
    }

    #[test]
    fn the_indices_that_a_known_name_has_led_to_since_are_told() {
        let mut led_to = LedTo::default();
        led_to.look(&table("i0"));
        assert!(led_to.since("a", "i0").is_empty(), "nobody has used the name");
        led_to.learn(&pairs("i1"), &table("i2"));
        for index in ["i3", "i3", "i4"] {
            led_to.look(&table(index));
        }
        led_to.learn(&pairs("i1"), &table("i4"));
        assert_eq!(led_to.since("a", "i1"), ["i2", "i3", "i4"]);
        assert_eq!(led_to.since("a", "i3"), ["i4"]);
        assert!(led_to.since("a", "i4").is_empty(), "it leads there still");
        assert!(led_to.since("a", "i9").is_empty() && led_to.since("b", "i1").is_empty());
    }

    #[test]
    fn what_a_name_had_left_before_is_not_told_when_it_comes_back() {
        let mut led_to = LedTo::default();
        led_to.learn(&pairs("i1"), &table("i1"));
        for index in ["i2", "i1"] {
            led_to.look(&table(index));
        }
        assert!(led_to.since("a", "i1").is_empty());
        assert_eq!(led_to.since("a", "i2"), ["i1"]);
    }

    #[test]
    fn of_a_name_that_moves_again_and_again_the_latest_indices_are_known() {
        let mut led_to = LedTo::default();
        led_to.learn(&pairs("i0"), &table("i0"));
        for number in 1..=INDICES_MAX {
            led_to.look(&table(&format!("i{number}")));
        }
        assert!(led_to.since("a", "i0").is_empty());
        assert_eq!(led_to.since("a", "i1").len(), INDICES_MAX - 1);
    }
}
