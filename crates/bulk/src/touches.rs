//! Counts of the documents that a plan brings to each shard, made while it is planned.

use crate::{Level, RouteTable};

/// The documents of a plan for one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touched {
    /// The number of the concrete index in the table ([`RouteTable::index_name`]).
    pub index: u32,
    /// The number of the shard.
    pub shard: u32,
    /// Number of operations.
    pub docs: u32,
    /// The length of their lines in the body.
    pub bytes: u64,
}

/// The counts of the present plan. Between two plans all counts are 0, so their places are kept: they serve
/// any table in which the index with this number has as many shards.
#[derive(Debug, Default)]
pub(crate) struct Touches {
    /// The index of the last operation, by its number.
    last: u32,
    /// Where the counts of that index begin; beyond all counts if nothing is counted.
    row: usize,
    counts: Vec<Count>,
    /// Where an index's counts begin, and how many there are, by the number of the index.
    rows: Vec<(u32, u32)>,
    /// Whether plans are to be counted, and whether this one is.
    wanted: bool,
    counting: bool,
    touched: Vec<Touched>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    docs: u32,
    bytes: u64,
}

const NONE: u32 = u32::MAX;
/// Places that are kept from one plan to the next.
const KEPT: usize = 1 << 16;

impl Touches {
    /// Sets whether the next plans are counted.
    pub(crate) fn want(&mut self, wanted: bool) {
        self.wanted = wanted;
    }

    /// Returns whether the present plan is counted.
    #[inline(always)]
    pub(crate) fn is_counting(&self) -> bool {
        self.counting
    }

    /// Prepares for the next plan. Lanes are counted when they are delivered, not when they are filled.
    pub(crate) fn clear(&mut self, level: Level, table: &RouteTable) {
        self.reset();
        if self.counts.len() > KEPT {
            self.counts.clear();
            self.rows.clear();
        }
        self.counting = self.wanted && !matches!(level, Level::Lane(_));
        (self.last, self.row) = (NONE, NOWHERE);
        let indices = table.indices() as usize;
        if self.counting && self.rows.len() < indices {
            self.rows.resize(indices, (0, 0));
        }
    }

    /// Counts an operation of `bytes` bytes for a shard of an index with `shards` shards.
    #[inline(never)]
    pub(crate) fn add(&mut self, (index, shards): (u32, u32), shard: u32, bytes: usize) {
        if index != self.last {
            self.turn_to(index, shards);
        }
        if let Some(count) = self.counts.get_mut(self.row + shard as usize) {
            if count.docs == 0 {
                self.touched.push(Touched {
                    index,
                    shard,
                    docs: 0,
                    bytes: 0,
                });
            }
            count.docs += 1;
            count.bytes += bytes as u64;
        }
    }

    #[inline(never)]
    fn turn_to(&mut self, index: u32, shards: u32) {
        self.last = index;
        // None of the table's indices has no row.
        let row = self.rows.get_mut(index as usize);
        self.row = match row {
            None => NOWHERE,
            Some((begin, width)) => {
                if *width != shards {
                    (*begin, *width) = (self.counts.len() as u32, shards);
                    self.counts
                        .resize(self.counts.len() + shards as usize, Count::default());
                }
                *begin as usize
            }
        };
    }

    /// Returns the counts, and sets them to 0.
    pub(crate) fn take(&mut self) -> Vec<Touched> {
        let mut touched = std::mem::take(&mut self.touched);
        for one in &mut touched {
            let place = self.rows[one.index as usize].0 + one.shard;
            let count = std::mem::take(&mut self.counts[place as usize]);
            (one.docs, one.bytes) = (count.docs, count.bytes);
        }
        touched
    }

    /// Takes back the memory of counts.
    pub(crate) fn recycle(&mut self, mut touched: Vec<Touched>) {
        touched.clear();
        self.touched = touched;
    }

    /// Forgets the counts of a plan that was given up.
    fn reset(&mut self) {
        let touched = self.take();
        self.recycle(touched);
    }
}

/// Beyond all counts, whatever the shard is.
const NOWHERE: usize = usize::MAX / 2;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::{
        Ask, Dialect, Flavour, Formula, IdMint, IndexRoute, NodeIx, NullId, Scratch, Target, Verdict,
        Version, plan,
    };

    fn table() -> RouteTable {
        let dialect = Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0));
        let mut table = RouteTable::builder(dialect, 2);
        let route = |name: &str, shards: u16| {
            let nodes: Vec<_> = (0..shards).map(|shard| Some(NodeIx(shard % 2))).collect();
            Arc::new(IndexRoute::new(name, Formula::Modulo, nodes))
        };
        let logs = route("logs", 3);
        table.name(
            "alias",
            Target::Alias {
                write: Arc::clone(&logs),
                index_routing: None,
            },
        );
        table.index(logs).index(route("small", 1));
        table.build()
    }

    /// The counts of a plan by index and shard.
    fn counts(body: &str, level: Level, scratch: &mut Scratch) -> BTreeMap<(String, u32), (u32, u64)> {
        let (table, mut ids) = (table(), IdMint::new(1));
        scratch.count_shards(true);
        let ask = Ask {
            level,
            null_id: NullId::Mint,
            ..Ask::default()
        };
        let Verdict::Plan(plan) = plan(body.as_bytes(), &ask, &table, &mut ids, scratch) else {
            panic!("it passes");
        };
        let counts = plan.touched().iter().map(|one| {
            let name = table.index_name(one.index).to_owned();
            ((name, one.shard), (one.docs, one.bytes))
        });
        let counts = counts.collect();
        scratch.recycle(plan);
        counts
    }

    #[test]
    fn each_shard_has_its_documents_and_bytes_at_each_level() {
        let line = |name: &str, id: u32| {
            format!("{{\"index\":{{\"_index\":\"{name}\",\"_id\":\"{id}\"}}}}\n{{\"n\":{id}}}\n")
        };
        let body: String = (0..100)
            .map(|id| line(["logs", "alias", "small"][id as usize % 3], id))
            .collect();
        let route = IndexRoute::new("logs", Formula::Modulo, [None, None, None]);
        let mut expected: BTreeMap<(String, u32), (u32, u64)> = BTreeMap::new();
        for id in 0..100_u32 {
            let (name, shard) = match id % 3 {
                2 => ("small", 0),
                _ => ("logs", route.shard_of(id.to_string().as_bytes(), None)),
            };
            let count = expected.entry((name.to_owned(), shard)).or_default();
            count.0 += 1;
            count.1 += line(["logs", "alias", "small"][id as usize % 3], id).len() as u64;
        }
        let mut scratch = Scratch::default();
        for level in [Level::Node, Level::Index, Level::Shard, Level::Cluster] {
            assert_eq!(counts(&body, level, &mut scratch), expected, "{level:?}");
        }
        assert!(counts(&body, Level::Lane(4), &mut scratch).is_empty());
        let mut ids = IdMint::new(1);
        let mut uncounted = Scratch::default();
        let verdict = plan(
            body.as_bytes(),
            &Ask::default(),
            &table(),
            &mut ids,
            &mut uncounted,
        );
        assert!(matches!(verdict, Verdict::Plan(plan) if plan.touched().is_empty()));
        // Nothing of one plan is left for the next.
        assert_eq!(
            counts(&line("small", 1), Level::Node, &mut scratch),
            [(("small".to_owned(), 0), (1, line("small", 1).len() as u64))].into()
        );
    }

    #[test]
    fn documents_whose_id_is_minted_are_counted_where_they_go() {
        let body = "{\"index\":{\"_index\":\"logs\"}}\n{}\n".repeat(300);
        let counts = counts(&body, Level::Node, &mut Scratch::default());
        assert_eq!(counts.len(), 3);
        assert_eq!(counts.values().map(|(docs, _)| docs).sum::<u32>(), 300);
        assert_eq!(
            counts.values().map(|(_, bytes)| bytes).sum::<u64>(),
            body.len() as u64
        );
    }
}
