//! The names that a plan's operations use for their indices.

use crate::RouteTable;

/// The names of the plan in the making, each once, by their numbers in the table.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// The name of the last operation.
    last: Option<u32>,
    list: Vec<u32>,
    /// A bit for each name of the table, by number, that says whether it is in the list.
    named: Vec<u64>,
}

impl Names {
    /// Prepares for the next plan.
    pub(crate) fn clear(&mut self, table: &RouteTable) {
        self.last = None;
        // Never more bits than the table has names, whatever numbers entries have.
        self.named.resize(table.names().div_ceil(64), 0);
    }

    /// Adds a name, unless it is there already.
    #[inline(always)]
    pub(crate) fn note(&mut self, name: u32) {
        if self.last != Some(name) {
            self.add(name);
        }
    }

    #[inline(never)]
    fn add(&mut self, name: u32) {
        self.last = Some(name);
        // A name that is supposed to be new is none of the table's names.
        let (at, bit) = (name as usize / 64, 1 << (name % 64));
        if let Some(named) = self.named.get_mut(at)
            && *named & bit == 0
        {
            *named |= bit;
            self.list.push(name);
        }
    }

    /// Returns the names, and forgets them.
    pub(crate) fn take(&mut self) -> Vec<u32> {
        for name in &self.list {
            self.named[*name as usize / 64] = 0;
        }
        std::mem::take(&mut self.list)
    }

    /// Takes back the memory of names.
    pub(crate) fn recycle(&mut self, mut names: Vec<u32>) {
        names.clear();
        self.list = names;
    }
}
