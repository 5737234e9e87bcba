//! Ids for a wanted shard.
//!
//! An id's last two characters are the last block of its hash. So everything before them is hashed once, and
//! then endings are tried: each costs the last block, the finish and one multiplication that shows whether
//! the shard is the wanted one. With as many shards as [`TRIED_SHARDS_MAX`] that takes as many tries on
//! average. With more shards no try is wasted: ids are made by the thousand, each is kept for the shard that
//! it leads to, and shards that take turns use them up evenly ([`MadeIds`]).

use crate::ids::{ALPHABET, ID_LENGTH, encode};
use crate::{Formula, IndexRoute, murmur};

/// The most shards for which endings are tried one after another.
const TRIED_SHARDS_MAX: u32 = 16;

/// The number of endings that an id can have.
pub(crate) const ENDINGS: u32 = 1 << 12;

/// The most ids kept in a stock, over all shards.
const STOCK_MAX: u32 = 1 << 17;

/// A stock's ids show the time at which the stock was begun; after this long a new one is begun.
const STOCK_AGE_MAX_MS: u64 = 60_000;

/// Bytes of an id as hashed: two for each character.
const HASHED_LENGTH: u32 = ID_LENGTH as u32 * 2;

/// Every pair of characters, scrambled for the hash.
static SCRAMBLED: [u32; ENDINGS as usize] = scrambled();

/// Returns whether ids for an index of `shards` shards are made in ascending order.
pub(crate) fn mints_in_order(shards: u32) -> bool {
    shards <= TRIED_SHARDS_MAX
}

/// Returns the most ids that a stock keeps for each shard.
pub(crate) fn stock_of_a_shard(shards: u32) -> u32 {
    (STOCK_MAX / shards.max(1)).max(1)
}

/// Checks whether a hash leads to one certain shard.
///
/// `hash mod n` of an unsigned number is the fraction of `hash / n`, which one multiplication by the
/// reciprocal gives in 64 bits (Lemire, Kaser, Kurz: Faster remainder by direct computation). A shard is a
/// range of remainders, so a range of fractions. The servers' hash is signed: shifted by 2^31 it is unsigned,
/// and the range shifts with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HashRange {
    reciprocal: u64,
    from: u64,
    width: u64,
}

/// Ids made ahead, by shard, for one kind of index.
#[derive(Debug)]
pub(crate) struct MadeIds {
    formula: Formula,
    shards: u32,
    /// The beginning of all ids.
    head: [u8; HEAD_LENGTH],
    hashed: u32,
    began_ms: u64,
    /// The next block of ids, each with all endings; [`ENDINGS`] after the last block.
    block: u32,
    /// The last four characters of the ids, as numbers, each shard's at its own place.
    kept: Box<[u32]>,
    counts: Box<[u32]>,
}

/// Characters of an id before the counter: the time and the mint's name.
pub(crate) const HEAD_LENGTH: usize = 16;

// === impl HashRange ===

impl HashRange {
    /// Makes a check for a shard of an index with at least two shards.
    pub(crate) fn new(route: &IndexRoute, shard: u32) -> Self {
        let (slots, of_a_shard) = match route.formula {
            Formula::Classic { routing_num_shards } => {
                (routing_num_shards, routing_num_shards / route.shards())
            }
            Formula::Modulo => (route.shards(), 1),
        };
        let shift = (1_u64 << 31) % u64::from(slots);
        let fraction = |slot: u64| {
            let slot = u128::from((slot + shift) % u64::from(slots));
            (slot << 64).div_ceil(u128::from(slots)) as u64
        };
        let first = u64::from(shard) * u64::from(of_a_shard);
        let from = fraction(first);
        Self {
            reciprocal: u64::MAX / u64::from(slots) + 1,
            from,
            width: fraction(first + u64::from(of_a_shard)).wrapping_sub(from),
        }
    }

    #[inline]
    pub(crate) fn holds(&self, hash: i32) -> bool {
        let shifted = u64::from(hash as u32 ^ 1 << 31);
        let fraction = self.reciprocal.wrapping_mul(shifted);
        fraction.wrapping_sub(self.from) < self.width
    }

    /// Returns the first ending that leads to the shard, for an id whose hash state before the ending is
    /// `hashed`.
    #[inline]
    pub(crate) fn ending(&self, hashed: u32) -> Option<u32> {
        let fits = |scrambled: &u32| self.holds(ended(hashed, *scrambled));
        SCRAMBLED.iter().position(fits).map(|ending| ending as u32)
    }
}

// === impl MadeIds ===

impl MadeIds {
    /// Begins a stock. No other mint or stock may have the same `name`.
    pub(crate) fn new(route: &IndexRoute, name: u64, now_ms: u64) -> Self {
        let shards = route.shards();
        let mut stock = Self {
            formula: route.formula,
            shards,
            head: [b'-'; HEAD_LENGTH],
            hashed: 0,
            began_ms: 0,
            block: 0,
            kept: vec![0; (shards * stock_of_a_shard(shards)) as usize].into(),
            counts: vec![0; shards as usize].into(),
        };
        encode(name, &mut stock.head[8..]);
        stock.begin(now_ms);
        stock
    }

    /// Returns whether the stock suits indices of this kind.
    pub(crate) fn suits(&self, route: &IndexRoute) -> bool {
        self.formula == route.formula && self.shards == route.shards()
    }

    /// Takes an id that leads to `shard`.
    pub(crate) fn take(&mut self, route: &IndexRoute, shard: u32, now_ms: u64) -> [u8; ID_LENGTH] {
        if now_ms >= self.began_ms + STOCK_AGE_MAX_MS {
            self.begin(now_ms);
        }
        let shard = shard as usize;
        while self.counts[shard] == 0 {
            self.fill(route);
        }
        self.counts[shard] -= 1;
        let place = shard * stock_of_a_shard(self.shards) as usize + self.counts[shard] as usize;
        let mut id = [0; ID_LENGTH];
        id[..HEAD_LENGTH].copy_from_slice(&self.head);
        encode(u64::from(self.kept[place]), &mut id[HEAD_LENGTH..]);
        id
    }

    /// Drops the ids that are kept, and continues with another time.
    fn begin(&mut self, now_ms: u64) {
        self.began_ms = now_ms.max(self.began_ms + 1);
        write_time(self.began_ms, &mut self.head);
        self.hashed = hashed(&self.head);
        self.block = 0;
        self.counts.fill(0);
    }

    /// Makes the ids of one block. Ids for which there is no room are dropped.
    fn fill(&mut self, route: &IndexRoute) {
        if self.block == ENDINGS {
            self.begin(self.began_ms);
        }
        let room = stock_of_a_shard(self.shards);
        let hashed = with_block(self.hashed, self.block);
        for (ending, scrambled) in (0..).zip(&SCRAMBLED) {
            let shard = route.shard_of_hash(ended(hashed, *scrambled)) as usize;
            let count = &mut self.counts[shard];
            if *count < room {
                self.kept[shard * room as usize + *count as usize] = self.block * ENDINGS + ending;
                *count += 1;
            }
        }
        self.block += 1;
    }
}

/// Writes the first eight characters of an id made at this time.
pub(crate) fn write_time(now_ms: u64, id: &mut [u8]) {
    // The offset makes the first character a digit: an id never begins with '-' or '_'.
    encode(now_ms + (1 << 42), &mut id[..8]);
}

/// Returns the state of the hash after these characters, of which there must be an even number.
pub(crate) fn hashed(characters: &[u8]) -> u32 {
    let (pairs, _) = characters.as_chunks::<2>();
    let block = |pair: &[u8; 2]| u32::from(pair[0]) | u32::from(pair[1]) << 16;
    pairs
        .iter()
        .fold(0, |state, pair| murmur::mix(state, block(pair)))
}

/// Returns the state after the characters of `block`, the first half of a counter.
pub(crate) fn with_block(hashed: u32, block: u32) -> u32 {
    murmur::absorb(hashed, SCRAMBLED[block as usize])
}

/// Returns the hash of an id with this state before its ending.
#[inline]
fn ended(hashed: u32, scrambled: u32) -> i32 {
    murmur::finish(murmur::absorb(hashed, scrambled), HASHED_LENGTH)
}

const fn scrambled() -> [u32; ENDINGS as usize] {
    let mut all = [0; ENDINGS as usize];
    let mut at = 0;
    while at < all.len() {
        let (first, second) = (ALPHABET[at >> 6] as u32, ALPHABET[at & 63] as u32);
        all[at] = murmur::scramble(first | second << 16);
        at += 1;
    }
    all
}
