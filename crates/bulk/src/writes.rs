//! The indices that a body writes to, and how: the basis for the rights that the writer needs.

use std::collections::HashMap;

use crate::action::Op;
use crate::walk::Doc;

/// The operations of a body on one index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writes {
    /// The index, alias or data stream as it is written, not what it stands for.
    pub name: Box<str>,
    /// The kinds of operations.
    pub ops: Ops,
}

/// A set of kinds of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ops(u8);

/// A name, by its number in the route table, and an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    name: u32,
    op: Op,
}

/// The writes of a body in the making.
#[derive(Debug, Default)]
pub(crate) struct WritesSoFar {
    list: Vec<Writes>,
    /// The number of each name in the list.
    numbers: Vec<u32>,
    /// The place of a number in the list, once the list is too long to be searched.
    places: HashMap<u32, usize>,
}

// === impl Ops ===

impl Ops {
    /// All kinds, in the order of [`Ops::iter`].
    pub const ALL: [Op; 4] = [Op::Index, Op::Create, Op::Update, Op::Delete];

    /// Adds a kind.
    pub fn insert(&mut self, op: Op) {
        self.0 |= 1 << op as u8;
    }

    /// Returns whether the set contains a kind.
    pub fn contains(self, op: Op) -> bool {
        self.0 & (1 << op as u8) != 0
    }

    /// Iterates over the kinds in the set.
    pub fn iter(self) -> impl Iterator<Item = Op> {
        Self::ALL.into_iter().filter(move |op| self.contains(*op))
    }
}

impl FromIterator<Op> for Ops {
    fn from_iter<T: IntoIterator<Item = Op>>(ops: T) -> Self {
        let mut all = Self::default();
        ops.into_iter().for_each(|op| all.insert(op));
        all
    }
}

// === impl Written ===

impl Written {
    #[inline]
    pub(crate) fn of(doc: &Doc<'_, '_>) -> Self {
        Self {
            name: doc.name,
            op: doc.op,
        }
    }

    /// Returns the place of this value among `places` places, a power of two.
    #[inline]
    pub(crate) fn place(self, places: usize) -> usize {
        (self.name as usize * Ops::ALL.len() + self.op as usize) % places
    }
}

// === impl WritesSoFar ===

impl WritesSoFar {
    /// Notes an operation; noting one twice changes nothing.
    #[inline(never)]
    pub(crate) fn note(&mut self, of: Written, doc: &Doc<'_, '_>, default_index: Option<&str>) {
        if let Some(place) = self.place(of.name) {
            self.list[place].ops.insert(of.op);
            return;
        }
        let name = match (doc.index, default_index) {
            (Some(name), _) => String::from_utf8_lossy(name).into(),
            (None, name) => name.unwrap_or_default().into(),
        };
        if self.numbers.len() == LOOKED_THROUGH_MAX {
            self.places = self.numbers.iter().copied().zip(0..).collect();
        }
        if self.numbers.len() >= LOOKED_THROUGH_MAX {
            self.places.insert(of.name, self.numbers.len());
        }
        self.numbers.push(of.name);
        self.list.push(Writes {
            name,
            ops: Ops::from_iter([of.op]),
        });
    }

    fn place(&self, name: u32) -> Option<usize> {
        if self.numbers.len() > LOOKED_THROUGH_MAX {
            return self.places.get(&name).copied();
        }
        self.numbers.iter().position(|known| *known == name)
    }

    pub(crate) fn take(&mut self) -> Vec<Writes> {
        std::mem::take(&mut self.list)
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.numbers.clear();
        self.places.clear();
    }
}

/// The most names that are compared one by one.
const LOOKED_THROUGH_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::sync::Arc;

    use crate::{
        Ask, Dialect, Flavour, Formula, IdMint, IndexRoute, Level, NodeIx, NullId, Op, Ops, RouteTable,
        Scratch, Verdict, Version, plan,
    };

    fn table(indices: usize) -> RouteTable {
        let mut table = RouteTable::builder(Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0)), 1);
        for n in 0..indices {
            let route = IndexRoute::new(&format!("i{n}"), Formula::Modulo, [Some(NodeIx(0))]);
            table.index(Arc::new(route));
        }
        table.build()
    }

    fn writes(body: &str, default_index: Option<&str>, indices: usize) -> Vec<(String, Vec<Op>)> {
        let table = table(indices);
        let ask = Ask {
            level: Level::Lane(4),
            null_id: NullId::Always,
            default_index,
            ..Ask::default()
        };
        let mut scratch = Scratch::default();
        // The second time with used memory.
        let mut found = Vec::new();
        for _ in 0..2 {
            let verdict = plan(body.as_bytes(), &ask, &table, &mut IdMint::new(7), &mut scratch);
            let Verdict::Plan(plan) = verdict else {
                panic!("{verdict:?}")
            };
            let of = |writes: &super::Writes| (writes.name.to_string(), writes.ops.iter().collect());
            found = plan.writes().iter().map(of).collect();
            scratch.recycle(plan);
        }
        found
    }

    #[test]
    fn each_name_is_told_once_with_all_that_is_done_to_it() {
        let body = "{\"index\":{\"_index\":\"i0\",\"_id\":\"1\"}}\n{}\n{\"index\":{\"_index\":\"i0\",\"_id\":\"2\"}}\n{}\n\
            {\"delete\":{\"_index\":\"i1\",\"_id\":\"1\"}}\n{\"create\":{\"_id\":\"3\"}}\n{}\n\
            {\"update\":{\"_index\":\"\\u0069\\u0030\",\"_id\":\"3\"}}\n{\"doc\":{}}\n{\"index\":{}}\n{}\n";
        let expected = [
            ("i0".to_owned(), vec![Op::Index, Op::Update]),
            ("i1".to_owned(), vec![Op::Delete]),
            ("i2".to_owned(), vec![Op::Index, Op::Create]),
        ];
        assert_eq!(writes(body, Some("i2"), 3), expected);
    }

    #[test]
    fn many_names_by_turns_are_each_told_once() {
        for names in [15, 16, 17, 18, 100] {
            let mut body = String::new();
            for turn in 0..3 {
                for n in 0..names {
                    writeln!(
                        body,
                        "{{\"index\":{{\"_index\":\"i{n}\",\"_id\":\"{turn}\"}}}}\n{{}}"
                    )
                    .unwrap();
                }
                writeln!(body, "{{\"delete\":{{\"_index\":\"i{turn}\",\"_id\":\"x\"}}}}").unwrap();
            }
            let found = writes(&body, None, names);
            assert_eq!(found.len(), names);
            for (n, (name, ops)) in found.iter().enumerate() {
                let expected = if n < 3 {
                    vec![Op::Index, Op::Delete]
                } else {
                    vec![Op::Index]
                };
                assert_eq!((name, ops), (&format!("i{n}"), &expected));
            }
        }
    }

    #[test]
    fn a_set_has_what_was_put_in() {
        let ops: Ops = [Op::Delete, Op::Create].into_iter().collect();
        assert_eq!(ops.iter().collect::<Vec<_>>(), [Op::Create, Op::Delete]);
        assert!(!ops.contains(Op::Index));
    }
}
