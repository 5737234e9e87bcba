//! An index, divided into ranges of its ids' digests: each range has the number of its documents and the sum
//! of their digests.

/// The memory that a range takes, in bytes.
pub(super) const RANGE_BYTES: u64 = 24;

/// Ranges of equal width; their number is a power of two.
#[derive(Clone, Debug)]
pub(super) struct Ranges {
    bits: u32,
    counts: Vec<u64>,
    /// Sums of digests. A sum doesn't depend on the order in which documents come, and unlike with exclusive
    /// or, two equal digests don't cancel each other.
    sums: Vec<u128>,
}

/// A range that differs between the sides, and how many documents both sides have in it together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Differing {
    pub(super) range: u32,
    pub(super) documents: u64,
}

/// Returns how many bits of ids' digests make ranges of a few hundred documents, within a memory bound for
/// two sides.
pub(super) fn bits_for(documents: u64, bytes_max: u64) -> u32 {
    let wanted = (documents / RANGE_DOCUMENTS).max(1).ilog2();
    let most = (bytes_max / (2 * RANGE_BYTES)).max(1).ilog2();
    wanted.min(most).min(BITS_MAX)
}

/// Returns the range of an id.
pub(super) fn range_of(id: u128, bits: u32) -> u32 {
    // Shifting by all 128 bits would overflow; the range is then 0.
    id.checked_shr(128 - bits).unwrap_or(0) as u32
}

// === impl Ranges ===

impl Ranges {
    pub(super) fn new(bits: u32) -> Self {
        Self {
            bits,
            counts: vec![0; 1 << bits],
            sums: vec![0; 1 << bits],
        }
    }

    /// Counts a document, with the digests of its id and of the whole document.
    pub(super) fn add(&mut self, id: u128, document: u128) {
        let range = range_of(id, self.bits) as usize;
        self.counts[range] += 1;
        self.sums[range] = self.sums[range].wrapping_add(document);
    }

    pub(super) fn documents(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the ranges that differ.
    pub(super) fn differing(&self, other: &Self) -> Vec<Differing> {
        let here = self.counts.iter().zip(&self.sums);
        let there = other.counts.iter().zip(&other.sums);
        let pairs = (0..).zip(here.zip(there));
        pairs
            .filter(|(_, (here, there))| here != there)
            .map(|(range, ((here, _), (there, _)))| Differing {
                range,
                documents: here + there,
            })
            .collect()
    }
}

/// The number of documents that a range should have: enough to keep digests few, and few enough to read a
/// range again quickly.
const RANGE_DOCUMENTS: u64 = 256;
/// 16 million ranges.
const BITS_MAX: u32 = 24;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::canonical::Digester;
    use super::*;

    proptest! {
        #[test]
        fn ranges_differ_just_where_their_documents_do(
            left in prop::collection::vec((0_u8..20, 0_u8..3), 0..30),
            right in prop::collection::vec((0_u8..20, 0_u8..3), 0..30),
            bits in 0_u32..4,
        ) {
            let digester = Digester::new();
            let id = |id: u8| digester.id(&id.to_string());
            let document = |(of, value): (u8, u8)| {
                digester.document(id(of), None, Some(&value.to_string())).unwrap()
            };
            let ranges = |documents: &[(u8, u8)]| {
                let mut ranges = Ranges::new(bits);
                for one in documents {
                    ranges.add(id(one.0), document(*one));
                }
                ranges
            };
            // The slow and obvious way: a sorted list for each range.
            let lists = |documents: &[(u8, u8)]| {
                let mut lists: BTreeMap<u32, Vec<(u8, u8)>> = BTreeMap::new();
                for one in documents {
                    lists.entry(range_of(id(one.0), bits)).or_default().push(*one);
                }
                lists.values_mut().for_each(|list| list.sort_unstable());
                lists
            };
            let (here, there) = (lists(&left), lists(&right));
            let empty = Vec::new();
            let wanted: Vec<Differing> = (0..1 << bits)
                .filter_map(|range| {
                    let of = |lists: &BTreeMap<u32, Vec<(u8, u8)>>| lists.get(&range).unwrap_or(&empty).clone();
                    let (here, there) = (of(&here), of(&there));
                    let documents = (here.len() + there.len()) as u64;
                    (here != there).then_some(Differing { range, documents })
                })
                .collect();
            prop_assert_eq!(ranges(&left).differing(&ranges(&right)), wanted);
        }
    }

    #[test]
    fn ranges_are_of_a_few_hundred_documents_within_the_memory() {
        assert_eq!(bits_for(0, 1 << 30), 0);
        assert_eq!(bits_for(256 * 1024, 1 << 30), 10);
        assert_eq!(bits_for(u64::MAX, 48 << 20), 20);
        assert_eq!(bits_for(u64::MAX, u64::MAX), BITS_MAX);
        assert_eq!(
            (range_of(u128::MAX, 0), range_of(u128::MAX, 24)),
            (0, (1 << 24) - 1)
        );
    }
}
