//! Ids for documents that came without one.

/// Makes document ids: 20 ASCII characters, unique across gateways, in the order of their making.
///
/// An id is 8 characters of milliseconds, 4 of a counter that starts anew each millisecond, and 8 (48 bits) that
/// name the mint. The alphabet is sorted and safe in URLs, so ids of one mint sort as they were made, and ids of
/// different mints by their millisecond: that keeps the term dictionaries of the cluster compact, as its own
/// time-based ids do. Two mints collide only if they drew the same 48 random bits.
#[derive(Debug)]
pub struct IdMint {
    now_ms: u64,
    counter: u32,
    id: [u8; ID_LENGTH],
}

/// Length of a minted id, bytes (all ASCII).
pub const ID_LENGTH: usize = 20;

// === impl IdMint ===

impl IdMint {
    /// A mint. `random` names it: 48 bits are used; draw them anew for each mint (one a core).
    pub fn new(random: u64) -> Self {
        let mut mint = Self {
            now_ms: 0,
            counter: 0,
            id: [b'-'; ID_LENGTH],
        };
        encode(random, &mut mint.id[12..]);
        mint.write_time();
        mint
    }

    /// Tells the time, milliseconds since 1970. A clock that goes backwards is not followed.
    pub fn tick(&mut self, now_ms: u64) {
        if now_ms > self.now_ms {
            self.now_ms = now_ms;
            self.counter = 0;
            self.write_time();
        }
    }

    /// The next id.
    pub fn mint(&mut self) -> [u8; ID_LENGTH] {
        encode(u64::from(self.counter), &mut self.id[8..12]);
        let id = self.id;
        self.counter += 1;
        if self.counter == COUNTER_END {
            // More than 16 million in a millisecond: borrow from the next one.
            self.now_ms += 1;
            self.counter = 0;
            self.write_time();
        }
        id
    }

    fn write_time(&mut self) {
        // The offset makes the first character a digit: an id never begins with '-' or '_'.
        encode(self.now_ms + (1 << 42), &mut self.id[..8]);
    }
}

/// Writes the low bits of `value`, six a character, the highest first.
fn encode(mut value: u64, out: &mut [u8]) {
    for place in out.iter_mut().rev() {
        *place = ALPHABET[(value & 63) as usize];
        value >>= 6;
    }
}

const COUNTER_END: u32 = 1 << 24;

/// In the order of the bytes, so that encoded numbers sort as the numbers do.
const ALPHABET: &[u8; 64] = b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";

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
}
