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

    /// Follows the names of a batch from now on.
    pub(crate) fn learn(&mut self, led_to: &[(String, String)], table: &RouteTable) {
        for (name, index) in led_to {
            if !self.names.contains_key(name) && self.names.len() >= NAMES_MAX {
                continue;
            }
            let indices = self.names.entry(name.clone()).or_default();
            add(indices, index);
            if let Some(index) = index_of(table, name) {
                add(indices, index);
            }
        }
    }

    /// Returns the indices that a name has led to, as far as they were seen.
    pub(crate) fn of(&self, name: &str) -> &[String] {
        self.names.get(name).map_or(&[], Vec::as_slice)
    }
}

fn index_of<'t>(table: &'t RouteTable, name: &str) -> Option<&'t str> {
    table.laned(name)?.write().ok().map(|route| &*route.name)
}

fn add(indices: &mut Vec<String>, index: &str) {
    if !indices.iter().any(|known| known == index) {
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
    fn every_index_that_a_known_name_leads_to_is_remembered_once() {
        let mut led_to = LedTo::default();
        led_to.look(&table("i0"));
        assert!(led_to.of("a").is_empty(), "nobody has used the name");
        led_to.learn(&pairs("i1"), &table("i2"));
        for index in ["i3", "i3", "i2", "i4"] {
            led_to.look(&table(index));
        }
        assert_eq!(led_to.of("a"), ["i1", "i2", "i3", "i4"]);
        assert!(led_to.of("b").is_empty());
    }

    #[test]
    fn of_a_name_that_moves_again_and_again_the_latest_indices_are_known() {
        let mut led_to = LedTo::default();
        led_to.learn(&pairs("i0"), &table("i0"));
        for number in 1..=INDICES_MAX {
            led_to.look(&table(&format!("i{number}")));
        }
        assert_eq!(led_to.of("a").len(), INDICES_MAX);
        assert_eq!(
            (&*led_to.of("a")[0], &*led_to.of("a")[INDICES_MAX - 1]),
            ("i1", "i16")
        );
    }
}
