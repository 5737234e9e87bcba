//! The meaning of every name of a cluster.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::{Dialect, Formula, IndexRoute, Level, Why};

/// The meaning of a name in an action line.
#[derive(Clone, Debug)]
pub enum Target {
    /// A concrete index, including the backing indices of data streams.
    Index(Arc<IndexRoute>),
    /// An alias with a write index.
    Alias {
        /// The index that writes go to.
        write: Arc<IndexRoute>,
        /// The alias's `index_routing` on that index (one value; an alias with several is opaque).
        index_routing: Option<Box<str>>,
    },
    /// A data stream: a `create` goes to the write index, and any other operation gets an item error.
    DataStream {
        /// The newest backing index.
        write: Arc<IndexRoute>,
    },
    /// A name whose documents cannot be predicted: a request that uses it passes whole.
    Opaque(Why),
}

/// The destination of every document of a cluster: made by the cluster crate whenever metadata or shards
/// change, immutable, shared by all cores.
#[derive(Debug)]
pub struct RouteTable {
    dialect: Dialect,
    nodes: u16,
    names: HashMap<Arc<str>, NameEntry>,
    /// The names, by their numbers.
    numbered: Vec<Arc<str>>,
    /// All indices behind each alias and data stream.
    members: HashMap<Box<str>, Box<[Box<str>]>>,
    harmless_pipelines: HashSet<Box<str>>,
    /// Pipelines that write the sender of a request into its documents.
    telling_pipelines: HashSet<Box<str>>,
    /// The entry for a name that the cluster does not have, where the name is supposed to be new.
    new_index: NameEntry,
    /// The concrete indices that names lead to, by their numbers.
    indices: Vec<Box<str>>,
}

/// Collects the parts of a [`RouteTable`].
#[derive(Debug)]
pub struct RouteTableBuilder {
    table: RouteTable,
    ordinals: HashMap<Box<str>, u32>,
}

#[derive(Debug)]
pub(crate) struct NameEntry {
    pub(crate) target: Target,
    /// A dense number of the name.
    pub(crate) number: u32,
    /// A dense number of the concrete index behind the name: an alias and its index share it.
    pub(crate) ordinal: u32,
    /// The same entry without the reason against splitting. It is there when the only reason is that the
    /// shards are not proven to be those that the server would choose, that the index is closed or not ready,
    /// or that documents of one request share their fate in a pipeline. Lanes need none of this: they only
    /// need the same number for the same document, whatever it is.
    pub(crate) unproven: Option<Box<NameEntry>>,
}

/// The number of an entry that is none of the table's names.
const NO_NUMBER: u32 = u32::MAX;

// === impl Target ===

impl Target {
    /// Returns the concrete index that a write to this name goes to.
    pub fn write(&self) -> Result<&Arc<IndexRoute>, Why> {
        match self {
            Target::Index(write) | Target::Alias { write, .. } | Target::DataStream { write } => Ok(write),
            Target::Opaque(why) => Err(*why),
        }
    }
}

// === impl NameEntry ===

impl NameEntry {
    fn opaque(why: Why, number: u32, unproven: Option<Box<NameEntry>>) -> Self {
        Self {
            target: Target::Opaque(why),
            number,
            ordinal: u32::MAX,
            unproven,
        }
    }
}

// === impl RouteTable ===

impl RouteTable {
    /// Begins the table of a cluster with `nodes` nodes.
    pub fn builder(dialect: Dialect, nodes: u16) -> RouteTableBuilder {
        RouteTableBuilder {
            table: RouteTable {
                dialect,
                nodes,
                names: HashMap::new(),
                numbered: Vec::new(),
                members: HashMap::new(),
                harmless_pipelines: HashSet::new(),
                telling_pipelines: HashSet::new(),
                new_index: NameEntry {
                    target: Target::Index(Arc::new(IndexRoute::new("", Formula::Modulo, [None]))),
                    number: NO_NUMBER,
                    ordinal: u32::MAX - 1,
                    unproven: None,
                },
                indices: Vec::new(),
            },
            ordinals: HashMap::new(),
        }
    }

    /// Returns how this cluster reads bodies.
    pub fn dialect(&self) -> &Dialect {
        &self.dialect
    }

    /// Returns the number of nodes that a [`crate::NodeIx`] can name.
    pub fn nodes(&self) -> u16 {
        self.nodes
    }

    /// Returns the number of concrete indices that names lead to.
    pub fn indices(&self) -> u32 {
        self.indices.len() as u32
    }

    /// Returns the concrete index that has this number in [`crate::Plan::touched`].
    ///
    /// # Panics
    /// If the number is of another table.
    pub fn index_name(&self, number: u32) -> &str {
        &self.indices[number as usize]
    }

    /// Returns the number of names that have a number.
    pub(crate) fn names(&self) -> usize {
        self.numbered.len()
    }

    /// Iterates over all names, in no particular order.
    pub fn each_name(&self) -> impl Iterator<Item = &str> {
        self.numbered.iter().map(|name| &**name)
    }

    /// Returns the meaning of `name`; `None` for a name that the cluster does not have.
    pub fn target(&self, name: &str) -> Option<&Target> {
        self.names.get(name).map(|entry| &entry.target)
    }

    /// Returns where writes to `name` go when they are put into lanes; `None` for a name that the cluster
    /// does not have, or whose documents no lane can be determined for. This includes indices whose routing
    /// is not proven, as lanes do.
    pub fn laned(&self, name: &str) -> Option<&Target> {
        let entry = self.names.get(name)?;
        let entry = entry.unproven.as_deref().unwrap_or(entry);
        entry.target.write().is_ok().then_some(&entry.target)
    }

    /// Iterates over all names that the cluster has: of indices, aliases and data streams.
    pub fn known_names(&self) -> impl Iterator<Item = &str> {
        self.numbered.iter().map(|name| &**name)
    }

    /// Returns the indices behind a name, including those that are not written through it; `None` where they
    /// are unknown.
    pub fn members_of(&self, name: &str) -> Option<Vec<&str>> {
        if let Some(members) = self.members.get(name) {
            return Some(members.iter().map(|index| &**index).collect());
        }
        match self.laned(name)? {
            Target::Index(route) => Some(vec![&*route.name]),
            _ => None,
        }
    }

    /// Returns the name that has this number in [`crate::Plan::names`].
    ///
    /// # Panics
    /// If the number is of another table.
    pub fn name_of(&self, number: u32) -> &str {
        &self.numbered[number as usize]
    }

    /// Checks whether documents that a request sends through this pipeline may be split, or, with
    /// [`Level::Lane`], put into lanes; delivery ensures that no document of a lane fails because of another.
    ///
    /// # Errors
    /// The reason why they may not.
    pub fn admit_pipeline(&self, name: &str, level: Level) -> Result<(), Why> {
        let laned = matches!(level, Level::Lane(_));
        match name {
            // The servers' word for "no pipeline" (`IngestService.NOOP_PIPELINE_NAME`).
            "_none" => Ok(()),
            _ if !laned && !self.dialect.ingests_singly() => Err(Why::BatchedIngest),
            _ if self.harmless_pipelines.contains(name) => Ok(()),
            _ => Err(Why::UnknownPipeline),
        }
    }

    /// Returns the concrete index that a write to `name`, in UTF-8, goes to, whether its routing is proven or
    /// not; `None` if it is unknown.
    pub fn write_index(&self, name: &[u8]) -> Option<&str> {
        let entry = self.names.get(std::str::from_utf8(name).ok()?)?;
        let target = match &entry.unproven {
            Some(unproven) => &unproven.target,
            None => &entry.target,
        };
        target.write().ok().map(|route| &*route.name)
    }

    /// Returns whether a pipeline writes the sender of the request into documents.
    pub fn tells_caller(&self, pipeline: &str) -> bool {
        self.telling_pipelines.contains(pipeline)
    }

    /// Returns the entry for a name that the cluster does not have, where the name is supposed to be new.
    pub(crate) fn new_index(&self) -> &NameEntry {
        &self.new_index
    }

    /// Returns the entry of `name`, in UTF-8.
    pub(crate) fn entry(&self, name: &[u8]) -> Option<&NameEntry> {
        self.names.get(std::str::from_utf8(name).ok()?)
    }
}

// === impl RouteTableBuilder ===

impl RouteTableBuilder {
    /// Sets the meaning of a name. If a name is given twice, the last meaning counts.
    pub fn name(&mut self, name: &str, target: Target) -> &mut Self {
        let number = self.table.numbered.len() as u32;
        let entry = match target.write() {
            Ok(write) => match write.why_opaque() {
                Some(
                    why @ (Why::UnverifiedIndex
                    | Why::PredictionFailed
                    | Why::IndexClosed
                    | Why::IndexUnavailable
                    | Why::BatchedIngest),
                ) if write.numbered => {
                    let unproven = self.entry(target.clone(), number, &write.name);
                    NameEntry::opaque(why, number, Some(Box::new(unproven)))
                }
                Some(why) => NameEntry::opaque(why, number, None),
                None => self.entry(target.clone(), number, &write.name),
            },
            Err(why) => NameEntry::opaque(why, number, None),
        };
        let name: Arc<str> = name.into();
        self.table.numbered.push(Arc::clone(&name));
        self.table.names.insert(name, entry);
        self
    }

    fn entry(&mut self, target: Target, number: u32, index: &str) -> NameEntry {
        let next = self.table.indices();
        let ordinal = *self.ordinals.entry(index.into()).or_insert(next);
        if ordinal == next {
            self.table.indices.push(index.into());
        }
        NameEntry {
            target,
            number,
            ordinal,
            unproven: None,
        }
    }

    /// Adds a concrete index under its own name.
    pub fn index(&mut self, route: Arc<IndexRoute>) -> &mut Self {
        let name = route.name.clone();
        self.name(&name, Target::Index(route))
    }

    /// Sets the indices behind an alias or a data stream.
    pub fn members(&mut self, name: &str, indices: &[Box<str>]) -> &mut Self {
        self.table.members.insert(name.into(), indices.into());
        self
    }

    /// Adds a pipeline that is known to leave `_index`, `_id` and `_routing` alone; requests that name any
    /// other pipeline pass.
    pub fn harmless_pipeline(&mut self, name: &str) -> &mut Self {
        self.table.harmless_pipelines.insert(name.into());
        self
    }

    /// Adds a pipeline that writes the sender of the request into documents.
    pub fn telling_pipeline(&mut self, name: &str) -> &mut Self {
        self.table.telling_pipelines.insert(name.into());
        self
    }

    /// Returns the finished table.
    pub fn build(self) -> RouteTable {
        self.table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Flavour, Version};

    #[test]
    fn lanes_are_told_of_indices_that_are_not_ready_if_their_shards_are_known() {
        let dialect = Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0));
        let verdict = |opaque, numbered, level| {
            let mut table = RouteTable::builder(dialect, 1);
            let route = IndexRoute::new("logs", crate::Formula::Modulo, [None, None]);
            table.index(Arc::new(IndexRoute {
                opaque: Some(opaque),
                numbered,
                ..route
            }));
            let ask = crate::Ask {
                level,
                ..crate::Ask::default()
            };
            let body = b"{\"delete\":{\"_index\":\"logs\",\"_id\":\"1\"}}\n";
            let (mut ids, mut scratch) = (crate::IdMint::new(1), crate::Scratch::default());
            match crate::plan(body, &ask, &table.build(), &mut ids, &mut scratch) {
                crate::Verdict::Plan(_) => None,
                crate::Verdict::Pass(pass) => Some(pass.why),
            }
        };
        for why in [
            Why::IndexClosed,
            Why::IndexUnavailable,
            Why::UnverifiedIndex,
            Why::BatchedIngest,
        ] {
            assert_eq!(verdict(why, true, crate::Level::Lane(4)), None);
            assert_eq!(verdict(why, false, crate::Level::Lane(4)), Some(why));
            assert_eq!(verdict(why, true, crate::Level::Node), Some(why));
        }
        let moving = verdict(Why::MovingPipeline, true, crate::Level::Lane(4));
        assert_eq!(moving, Some(Why::MovingPipeline));
    }

    #[test]
    fn a_pipeline_is_admitted_where_it_moves_nothing_and_shares_no_fate() {
        let table = |flavour, major| {
            let mut builder = RouteTable::builder(Dialect::new(flavour, Version::new(major, 19, 4)), 1);
            builder.harmless_pipeline("known");
            builder.build()
        };
        let singly = table(Flavour::Elasticsearch, 9);
        let together = table(Flavour::OpenSearch, 2);
        for (table, level, expected) in [
            (&singly, Level::Node, Ok(())),
            (&singly, Level::Lane(4), Ok(())),
            (&together, Level::Node, Err(Why::BatchedIngest)),
            (&together, Level::Lane(4), Ok(())),
        ] {
            assert_eq!(table.admit_pipeline("known", level), expected);
            assert_eq!(table.admit_pipeline("_none", level), Ok(()));
        }
        for table in [&singly, &together] {
            assert_eq!(
                table.admit_pipeline("other", Level::Lane(4)),
                Err(Why::UnknownPipeline)
            );
        }
    }
}
