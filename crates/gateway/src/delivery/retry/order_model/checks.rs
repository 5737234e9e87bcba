//! What has to hold in the model.

use std::collections::BTreeMap;

use super::{Made, Model, resolve};
use crate::queue::parked::ParkKey;

impl Model {
    /// Checks that two writes to one document were executed in their order, if they have the same name; and
    /// otherwise if both names led to one index from when the later one was accepted until it was executed,
    /// neither has come to the index because its name had moved unseen, and none has waited by itself.
    pub(super) fn check_order(&self, seed: u64) {
        let mut first: BTreeMap<(Made, usize), (usize, bool, usize)> = BTreeMap::new();
        for (at, (index, write, knowingly, known)) in self.executed.iter().enumerate() {
            first.entry((*index, *write)).or_insert((at, *knowingly, *known));
        }
        for ((index, later), (at, knowingly, known)) in &first {
            for ((other, earlier), (before, also, _)) in &first {
                let (one, two) = (&self.writes[*earlier], &self.writes[*later]);
                if earlier >= later || index != other || one.id != two.id || before < at {
                    continue;
                }
                let since = self.history.iter().rposition(|(from, _)| *from <= two.accepted);
                let mut all = self.history[since.unwrap_or_default()..*known].iter();
                let both_led = all.all(|(_, topology)| {
                    let led = resolve(topology, one.written);
                    led.is_some() && led == resolve(topology, two.written)
                });
                let is_ordered = both_led && *knowingly && *also && !one.alone && !two.alone;
                assert!(
                    one.written != two.written && !is_ordered,
                    "seed {seed}: {index:?} has executed {two:?} before {one:?}: {:?} {:?}",
                    self.executed,
                    self.history
                );
            }
        }
    }

    fn parked(&self) -> impl Iterator<Item = usize> {
        let entries = self.disk.values();
        entries.flat_map(|(_, writes, left)| left.iter().map(|op| writes[*op as usize]))
    }

    /// Checks that a write waits only if its index takes nothing, or for an earlier write that has its name,
    /// or whose name has led to its index.
    pub(super) fn check_waits(&self, seed: u64) {
        for (at, (entry, writes, left)) in &self.disk {
            // What waits by itself is tried from the first on here, as often as others ask for a try.
            let by_index = left
                .iter()
                .filter(|op| !self.state.holds(&ParkKey::Documents, *at, **op));
            for op in by_index {
                let write = &self.writes[writes[*op as usize]];
                let index = resolve(&self.known, write.written);
                let is_behind = |earlier: &usize| {
                    let (name, accepted) = (self.writes[*earlier].written, self.writes[*earlier].accepted);
                    let led = || self.led_since(name, accepted);
                    // Positions of different partitions say nothing about each other.
                    (self.partitions || accepted < write.accepted)
                        && (name == write.written || led().iter().any(|led| Some(led.as_str()) == index))
                };
                let is_kept = index.is_none_or(|index| self.blocked.contains(index));
                let is_kept = is_kept || self.parked().any(|earlier| is_behind(&earlier));
                let shown: Vec<_> = self.state.shown(9).into_iter().map(|key| key.0).collect();
                assert!(
                    is_kept,
                    "seed {seed}: {write:?} waits, parked for {:?}: {shown:?} {:?} {:?}",
                    entry.key, self.known, self.blocked
                );
            }
        }
    }
}
