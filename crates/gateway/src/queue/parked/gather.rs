//! Writes entries again at the store's end if they hold a segment of which most is gone, so that an entry
//! that waits for a day does not keep the room of all that came and went meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use super::state::{ParkedState, Standing};
use super::store::{Bound, ParkedEntry};
use super::{Parked, ParkedError};

impl Parked {
    /// Whether the store is so full that entries are to be written again when nothing is tried.
    pub(crate) fn is_half_full(&self) -> bool {
        self.opened().is_some_and(|store| {
            let (used, most) = store.bytes();
            used >= most / 2
        })
    }

    /// Writes the oldest entries again, if the store is half full and most of it is gone. To be called only
    /// while no key is tried.
    pub(crate) async fn gather(&self) -> Result<(), ParkedError> {
        let Some(store) = self.opened() else {
            return Ok(());
        };
        let (used, most) = store.bytes();
        let to_write = self.state().to_gather(used, most);
        let mut moved = BTreeMap::new();
        for (at, left) in to_write {
            let Some((entry, lines)) = store.read(at)? else {
                continue;
            };
            let gone = (0..entry.ops.len() as u32).filter(|op| !left.contains(op));
            let entry = ParkedEntry {
                gone: gone.collect(),
                instead_of: Some(at),
                ..*entry
            };
            // A write that fails is tried again later; the entries that were written until then count.
            match store.put(&entry, &lines, Bound::Quota).await {
                Ok((to, _)) => drop(moved.insert(at, to)),
                Err(error) => {
                    tracing::warn!(%error, "parked operations keep more of the disk than they need");
                    break;
                }
            }
        }
        if !moved.is_empty() {
            {
                let mut state = self.state();
                state.moved(&moved);
                if let Some(topic) = &self.topic {
                    topic.moved(&moved);
                }
            }
            store.keep_from(self.needed_from(&store));
        }
        Ok(())
    }
}

impl ParkedState {
    /// Returns the bytes of the records that hold some of what is parked.
    pub(super) fn live_bytes(&self) -> u64 {
        let records: BTreeMap<u64, u64> = self.pieces().map(|piece| (piece.at, piece.bytes)).collect();
        records.values().sum()
    }

    /// Returns the oldest records, each with its operations that are left, if it pays to write them again.
    fn to_gather(&self, used: u64, most: u64) -> Vec<(u64, BTreeSet<u32>)> {
        if used < most / 2 {
            return Vec::new();
        }
        if self.shares().saturating_mul(2) > used || self.live_bytes().saturating_mul(2) > used {
            return Vec::new();
        }
        let mut records: BTreeMap<u64, (u64, bool, BTreeSet<u32>)> = BTreeMap::new();
        for piece in self.pieces() {
            let (bytes, ready, left) = records.entry(piece.at).or_default();
            *bytes = piece.bytes;
            *ready = piece.standing == Standing::Ready;
            match &piece.ops {
                Some(ops) => left.extend(ops),
                None => left.extend(0..piece.docs),
            }
        }
        let mut bytes_left = AT_ONCE_BYTES;
        let records = records.into_iter().take_while(|(_, (bytes, ready, _))| {
            let fits = bytes_left > 0;
            bytes_left = bytes_left.saturating_sub(*bytes);
            fits && *ready
        });
        records.map(|(at, (_, _, left))| (at, left)).collect()
    }
}

/// The bytes that are written again at once.
const AT_ONCE_BYTES: u64 = 8 << 20;
