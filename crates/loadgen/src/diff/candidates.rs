//! Candidates: documents in differing ranges that the two sides have not yet shown alike.

use std::collections::{BTreeMap, HashMap};

use super::canonical::Digester;
use super::ranges::{Differing, range_of};
use super::side::Hit;

/// Documents of some ranges that only one side has shown so far, or that both sides have shown with different
/// contents.
pub(super) struct Candidates {
    bits: u32,
    /// The ranges that are read, each with what the first pass found out about it.
    ranges: BTreeMap<u32, Differing>,
    by_id: HashMap<u128, Candidate>,
    bytes: u64,
    bytes_max: u64,
    /// Ranges for which there was no memory: they are read again later.
    shed: Vec<Differing>,
}

/// The difference between what the left and the right side have shown of an id.
struct Candidate {
    id: Box<str>,
    count: i64,
    sum: u128,
}

/// A single range needs more memory than is allowed.
#[derive(Debug)]
pub(super) struct NoRoom;

// === impl Candidates ===

impl Candidates {
    pub(super) fn new(bits: u32, ranges: &[Differing], bytes_max: u64) -> Self {
        Self {
            bits,
            ranges: ranges.iter().map(|range| (range.range, *range)).collect(),
            by_id: HashMap::new(),
            bytes: 0,
            bytes_max,
            shed: Vec::new(),
        }
    }

    /// Takes documents that a side has shown, with the digests of their ids. Returns none if a source is no
    /// JSON.
    pub(super) fn see(
        &mut self,
        digester: &Digester,
        left: bool,
        hits: &[Hit<'_>],
        ids: &[u128],
    ) -> Option<Result<(), NoRoom>> {
        for (hit, &id) in hits.iter().zip(ids) {
            if !self.ranges.contains_key(&range_of(id, self.bits)) {
                continue;
            }
            let digest = digester.document(id, hit.routing.as_deref(), hit.source())?;
            self.count(id, &hit.id, left, digest);
            if self.bytes > self.bytes_max
                && let Err(no_room) = self.shed()
            {
                return Some(Err(no_room));
            }
        }
        Some(Ok(()))
    }

    /// Returns the ids that the two sides have not shown alike, sorted, and the ranges for which there was no
    /// memory.
    pub(super) fn take(self) -> (Vec<String>, Vec<Differing>) {
        let mut ids: Vec<String> = self.by_id.into_values().map(|one| one.id.into()).collect();
        ids.sort_unstable();
        (ids, self.shed)
    }

    fn count(&mut self, id: u128, text: &str, left: bool, digest: u128) {
        let candidate = self.by_id.entry(id).or_insert_with(|| {
            self.bytes += bytes_of(text);
            Candidate {
                id: text.into(),
                count: 0,
                sum: 0,
            }
        });
        if left {
            candidate.count -= 1;
            candidate.sum = candidate.sum.wrapping_sub(digest);
        } else {
            candidate.count += 1;
            candidate.sum = candidate.sum.wrapping_add(digest);
        }
        if (candidate.count, candidate.sum) == (0, 0) {
            self.bytes -= bytes_of(text);
            self.by_id.remove(&id);
        }
    }

    /// Leaves the upper half of the ranges for later.
    fn shed(&mut self) -> Result<(), NoRoom> {
        let kept = self.ranges.len() / 2;
        let Some(from) = self.ranges.keys().nth(kept.max(1)).copied() else {
            return Err(NoRoom);
        };
        self.shed.extend(self.ranges.split_off(&from).into_values());
        let (bits, mut bytes) = (self.bits, 0);
        self.by_id.retain(|id, candidate| {
            let stays = range_of(*id, bits) < from;
            bytes += if stays { bytes_of(&candidate.id) } else { 0 };
            stays
        });
        // The table keeps the memory of removed candidates, and uses it again.
        self.bytes = bytes;
        Ok(())
    }
}

/// The memory that a candidate takes, in bytes: its entry in a table that is half full at worst, and its id.
pub(super) fn bytes_of(id: &str) -> u64 {
    ENTRY_BYTES + id.len() as u64
}

/// The memory that a candidate takes without its id.
pub(super) const ENTRY_BYTES: u64 = 2 * (16 + 16 + 8 + 16 + 8) + 16;

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use serde_json::value::RawValue;

    use super::*;

    fn see(candidates: &mut Candidates, digester: &Digester, left: bool, documents: &[(&str, &str)]) -> bool {
        let raw: Vec<Box<RawValue>> = documents
            .iter()
            .map(|(_, source)| RawValue::from_string((*source).to_owned()).unwrap())
            .collect();
        let hits: Vec<Hit<'_>> = documents
            .iter()
            .zip(&raw)
            .map(|((id, _), source)| Hit {
                id: Cow::Borrowed(id),
                routing: None,
                source: Some(&**source),
            })
            .collect();
        let ids: Vec<u128> = hits.iter().map(|hit| digester.id(&hit.id)).collect();
        candidates.see(digester, left, &hits, &ids).unwrap().is_ok()
    }

    fn all(bits: u32) -> Vec<Differing> {
        (0..1 << bits)
            .map(|range| Differing { range, documents: 1 })
            .collect()
    }

    #[test]
    fn what_both_sides_show_alike_goes_whatever_comes_first() {
        let digester = Digester::new();
        let mut candidates = Candidates::new(4, &all(4), 1 << 20);
        let left = [
            ("a", "{}"),
            ("b", "{}"),
            ("c", "{\"n\":1}"),
            ("twice", "1"),
            ("twice", "2"),
        ];
        assert!(see(&mut candidates, &digester, true, &left));
        let right = [
            ("d", "{}"),
            ("c", "{\"n\":2}"),
            ("twice", "2"),
            ("b", " {} "),
            ("twice", "1"),
        ];
        assert!(see(&mut candidates, &digester, false, &right));
        assert_eq!(candidates.bytes, 3 * bytes_of("a"));
        assert_eq!(
            candidates.take(),
            (["a", "c", "d"].map(str::to_owned).to_vec(), Vec::new())
        );
    }

    #[test]
    fn ranges_that_find_no_room_are_left_for_later_and_no_document_is_forgotten() {
        let digester = Digester::new();
        let ids: Vec<String> = (0..200).map(|n| format!("id-{n}")).collect();
        let documents: Vec<(&str, &str)> = ids.iter().map(|id| (id.as_str(), "{}")).collect();
        let mut wanted = all(6);
        let mut found = Vec::new();
        let mut rounds = 0;
        while !wanted.is_empty() {
            let mut candidates = Candidates::new(6, &wanted, 50 * bytes_of("id-100"));
            assert!(see(&mut candidates, &digester, true, &documents));
            let (ids, shed) = candidates.take();
            assert!(shed.len() < wanted.len());
            found.extend(ids);
            wanted = shed;
            rounds += 1;
        }
        found.sort_unstable();
        let mut ids = ids.clone();
        ids.sort_unstable();
        assert_eq!(found, ids);
        assert!(rounds > 3, "{rounds}");
        let mut one = Candidates::new(0, &all(0), 50 * bytes_of("id-100"));
        assert!(
            !see(&mut one, &digester, true, &documents),
            "one range can't be halved"
        );
    }
}
