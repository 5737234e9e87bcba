//! Ids for documents that arrive without one.

use crate::IndexRoute;
use crate::packed::{
    ENDINGS, HEAD_LENGTH, HashRange, MadeIds, hashed, mints_in_order, with_block, write_time,
};

/// Makes document ids: 20 ASCII characters, unique across gateways, in the order in which they are made.
///
/// An id has 8 characters of milliseconds, 8 characters (48 bits) that name the mint, and 4 characters of a
/// counter that restarts each millisecond. The alphabet is sorted and safe in URLs, so ids of one mint sort
/// in the order in which they were made, and ids of different mints by their millisecond. That keeps the term
/// dictionaries of the cluster compact, as the cluster's own time-based ids do. Two mints collide only if
/// they drew the same 48 random bits.
///
/// An id for a wanted shard ([`Self::mint_for`]) takes a whole block of the counter, of which the mint
/// chooses the last two characters. For indices of more than 16 shards such ids are made ahead: they carry a
/// mint name of their own, show a time up to a minute ago, and come in no particular order.
#[derive(Debug)]
pub struct IdMint {
    now_ms: u64,
    counter: u32,
    id: [u8; ID_LENGTH],
    /// The state of the hash after everything before the counter.
    hashed: u32,
    /// The shard that was wanted last, and the kind of its index.
    wanted: Option<(IndexKind, u32, HashRange)>,
    stocks: Vec<MadeIds>,
    /// The state from which names are drawn.
    names: u64,
}

type IndexKind = (crate::Formula, u32);

/// Length of a minted id, bytes (all ASCII).
pub const ID_LENGTH: usize = 20;

/// The place of the mint's name in an id.
pub(crate) const ID_MINT: std::ops::Range<usize> = 8..HEAD_LENGTH;

// === impl IdMint ===

impl IdMint {
    /// Makes a mint. `random` names it, by 48 of its bits; draw a new one for each mint (one mint per core).
    pub fn new(random: u64) -> Self {
        let mut mint = Self {
            now_ms: 0,
            counter: 0,
            id: [b'-'; ID_LENGTH],
            hashed: 0,
            wanted: None,
            stocks: Vec::new(),
            names: random,
        };
        encode(random, &mut mint.id[ID_MINT]);
        mint.write_time();
        mint
    }

    /// Sets the time, in milliseconds since 1970. A clock that goes backwards is not followed.
    pub fn tick(&mut self, now_ms: u64) {
        if now_ms > self.now_ms {
            self.now_ms = now_ms;
            self.counter = 0;
            self.write_time();
        }
    }

    /// Makes the next id.
    pub fn mint(&mut self) -> [u8; ID_LENGTH] {
        encode(u64::from(self.counter), &mut self.id[HEAD_LENGTH..]);
        let id = self.id;
        self.counter += 1;
        if self.counter == COUNTER_END {
            self.borrow();
        }
        id
    }

    /// Makes the next id that leads to this shard of an index that is not partitioned.
    pub fn mint_for(&mut self, index: &IndexRoute, shard: u32) -> [u8; ID_LENGTH] {
        match index.shards() {
            0 | 1 => self.mint(),
            shards if mints_in_order(shards) => self.try_endings(index, shard),
            _ => self.take_from_stock(index, shard),
        }
    }

    fn try_endings(&mut self, index: &IndexRoute, shard: u32) -> [u8; ID_LENGTH] {
        let kind = (index.formula, index.shards());
        let wanted = match self.wanted {
            Some((last, of, wanted)) if last == kind && of == shard => wanted,
            _ => {
                let wanted = HashRange::new(index, shard);
                self.wanted = Some((kind, shard, wanted));
                wanted
            }
        };
        loop {
            let block = self.counter.div_ceil(ENDINGS);
            if block == ENDINGS {
                self.borrow();
                continue;
            }
            let ending = wanted.ending(with_block(self.hashed, block));
            self.counter = (block + 1) * ENDINGS;
            if let Some(ending) = ending {
                encode(u64::from(block * ENDINGS + ending), &mut self.id[HEAD_LENGTH..]);
                let id = self.id;
                if self.counter == COUNTER_END {
                    self.borrow();
                }
                return id;
            }
        }
    }

    fn take_from_stock(&mut self, index: &IndexRoute, shard: u32) -> [u8; ID_LENGTH] {
        let at = match self.stocks.iter().position(|stock| stock.suits(index)) {
            Some(at) => at,
            None => {
                if self.stocks.len() == STOCKS_MAX {
                    self.stocks.remove(0);
                }
                let name = self.draw();
                self.stocks.push(MadeIds::new(index, name, self.now_ms));
                self.stocks.len() - 1
            }
        };
        self.stocks[at].take(index, shard, self.now_ms)
    }

    /// Draws another name, as random as the mint's own (SplitMix64).
    fn draw(&mut self) -> u64 {
        self.names = self.names.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.names;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Continues in the next millisecond when the counter is used up.
    fn borrow(&mut self) {
        self.now_ms += 1;
        self.counter = 0;
        self.write_time();
    }

    fn write_time(&mut self) {
        write_time(self.now_ms, &mut self.id);
        self.hashed = hashed(&self.id[..HEAD_LENGTH]);
    }
}

/// Writes the low bits of `value`, six to a character, the highest first.
pub(crate) fn encode(mut value: u64, out: &mut [u8]) {
    for place in out.iter_mut().rev() {
        *place = ALPHABET[(value & 63) as usize];
        value >>= 6;
    }
}

const COUNTER_END: u32 = ENDINGS * ENDINGS;

/// The most kinds of large indices for which ids are made ahead: half a megabyte each.
const STOCKS_MAX: usize = 4;

/// The characters in the order of their bytes, so that encoded numbers sort as the numbers do.
pub(crate) const ALPHABET: &[u8; 64] = b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_as_they_were_made_even_when_the_clock_goes_back() {
        let mut mint = IdMint::new(7);
        let mut ids = Vec::new();
        for now_ms in [
            1_790_000_000_000,
            1_790_000_000_001,
            1_790_000_000_000,
            1_790_000_000_002,
        ] {
            mint.tick(now_ms);
            ids.extend((0..5000).map(|_| mint.mint()));
        }
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(ids, sorted);
    }

    #[test]
    fn ids_of_two_mints_differ_at_the_same_moment() {
        let (mut a, mut b) = (IdMint::new(1), IdMint::new(2));
        a.tick(1_790_000_000_000);
        b.tick(1_790_000_000_000);
        assert_ne!(a.mint(), b.mint());
    }

    #[test]
    fn an_id_needs_no_escape_and_begins_with_a_digit_or_letter() {
        let mut mint = IdMint::new(u64::MAX);
        mint.tick(1_790_000_000_000);
        for id in (0..100_000).map(|_| mint.mint()) {
            assert!(id[0].is_ascii_alphanumeric());
            assert!(
                id.iter()
                    .all(|b| b.is_ascii_alphanumeric() || *b == b'-' || *b == b'_')
            );
        }
    }

    #[test]
    fn a_full_counter_borrows_from_the_next_millisecond() {
        let mut mint = IdMint::new(1);
        mint.tick(1_790_000_000_000);
        mint.counter = COUNTER_END - 1;
        let last = mint.mint();
        let next = mint.mint();
        assert!(last < next);
        mint.tick(1_790_000_000_001);
        assert!(next < mint.mint());
    }

    fn index(formula: crate::Formula, shards: u32) -> IndexRoute {
        IndexRoute::new("i", formula, vec![None; shards as usize])
    }

    #[test]
    fn ids_for_wanted_shards_lead_there_and_are_nobody_elses_and_sort_among_the_others() {
        let mut mint = IdMint::new(77);
        mint.tick(1_790_000_000_000);
        let (classic, modulo) = (
            crate::Formula::Classic {
                routing_num_shards: 960,
            },
            crate::Formula::Modulo,
        );
        let indices = [
            index(classic, 6),
            index(modulo, 5),
            index(classic, 16),
            index(modulo, 1),
        ];
        let mut ids = Vec::new();
        for n in 0..40_000_u32 {
            let index = &indices[n as usize % indices.len()];
            let shard = n / 7 % index.shards();
            let id = if n % 11 == 0 {
                mint.mint()
            } else {
                mint.mint_for(index, shard)
            };
            let text = std::str::from_utf8(&id).unwrap();
            assert!(n % 11 == 0 || index.shard(text, None) == shard, "{text}");
            ids.push(id);
        }
        assert!(
            ids.is_sorted_by(|one, next| one < next),
            "and so none is there twice"
        );
    }

    #[test]
    fn ids_that_are_made_ahead_lead_to_their_shards_and_are_nobody_elses() {
        for (formula, shards) in [
            (crate::Formula::Modulo, 17),
            (
                crate::Formula::Classic {
                    routing_num_shards: 900,
                },
                300,
            ),
            (
                crate::Formula::Classic {
                    routing_num_shards: 1024,
                },
                1024,
            ),
        ] {
            let index = index(formula, shards);
            let mut mint = IdMint::new(5);
            let mut ids = std::collections::HashSet::new();
            for n in 0..30_000_u32 {
                // The stock is refilled on the way.
                mint.tick(1_790_000_000_000 + u64::from(n) * 5);
                let shard = n / 50 % shards;
                let id = mint.mint_for(&index, shard);
                let text = std::str::from_utf8(&id).unwrap();
                assert_eq!(index.shard(text, None), shard, "{text}");
                assert!(ids.insert(id), "{text} is there twice");
                assert!(ids.insert(mint.mint()));
            }
        }
    }

    #[test]
    fn the_quick_test_for_a_shard_agrees_with_the_formula_at_every_edge() {
        for (formula, shards) in [
            (crate::Formula::Modulo, 2),
            (crate::Formula::Modulo, 7),
            (crate::Formula::Modulo, 1000),
            (
                crate::Formula::Classic {
                    routing_num_shards: 640,
                },
                5,
            ),
            (
                crate::Formula::Classic {
                    routing_num_shards: i32::MAX as u32,
                },
                7,
            ),
            (
                crate::Formula::Classic {
                    routing_num_shards: 3,
                },
                3,
            ),
        ] {
            let index = index(formula, shards);
            for shard in [0, 1, shards / 2, shards - 1] {
                let wanted = HashRange::new(&index, shard);
                let mut hash = i32::MIN;
                loop {
                    for near in [hash, hash.saturating_add(1), hash.wrapping_neg(), !hash] {
                        assert_eq!(
                            wanted.holds(near),
                            index.shard_of_hash(near) == shard,
                            "{formula:?}, {shards} shards, shard {shard}: {near}"
                        );
                    }
                    match hash.checked_add(99_991) {
                        Some(next) => hash = next,
                        None => break,
                    }
                }
            }
        }
    }
}
