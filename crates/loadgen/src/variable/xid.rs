//! Ids of 20 characters that sort by the second in which they were made: four bytes of time, three of this
//! machine, two of this process, and a counter of three bytes, in base 32 with the digits `0` to `v`. (The
//! layout is that of xid, which came from MongoDB's ObjectId.)

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;

/// Number of characters of an id.
pub(super) const XID_BYTES: usize = 20;

/// An id without its counter.
#[derive(Debug, Clone)]
pub(super) struct Xid {
    /// Seconds, machine, process: nine bytes.
    stem: [u8; 9],
    text: [u8; XID_BYTES],
}

/// Reserves `count` counters for ids of this process, and returns the first one.
pub(super) fn reserve(count: u64) -> u64 {
    static DRAWN: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(fastrand::u64(0..1 << 24)));
    DRAWN.fetch_add(count, Ordering::Relaxed)
}

// === impl Xid ===

impl Xid {
    /// Creates ids of this process, with no time set yet.
    pub(super) fn of_this_process() -> Xid {
        // A random number, where xid hashes the host's name: two machines with the same name are as usual as
        // two with the same number.
        static MACHINE: LazyLock<[u8; 3]> = LazyLock::new(|| {
            let [one, two, three, _] = fastrand::u32(..).to_be_bytes();
            [one, two, three]
        });
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let [one, two, three] = *MACHINE;
        let mut xid = Xid {
            stem: [0, 0, 0, 0, one, two, three, high, low],
            text: [0; XID_BYTES],
        };
        xid.at(Timestamp::UNIX_EPOCH);
        xid
    }

    /// Sets the time of the ids made from now on.
    pub(super) fn at(&mut self, now: Timestamp) {
        self.stem[..4].copy_from_slice(&(now.as_second() as u32).to_be_bytes());
        let mut bits = [0; 16];
        bits[..9].copy_from_slice(&self.stem);
        let bits = u128::from_be_bytes(bits);
        for (at, digit) in self.text.iter_mut().enumerate() {
            *digit = DIGITS[(bits >> (123 - 5 * at)) as usize & 31];
        }
    }

    /// Returns the id with this counter, of which only the low 24 bits are used.
    pub(super) fn text(&self, counter: u64) -> [u8; XID_BYTES] {
        let mut text = self.text;
        // The counter begins at bit 72, in the middle of the fifteenth digit; four bits at the end are
        // padding.
        let bits = (counter & 0xff_ffff) << 4;
        let first = usize::from(self.stem[8] & 3) << 3 | (bits >> 25) as usize;
        text[14] = DIGITS[first];
        for at in 15..XID_BYTES {
            text[at] = DIGITS[(bits >> (5 * (XID_BYTES - 1 - at))) as usize & 31];
        }
        text
    }
}

const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";

#[cfg(test)]
mod tests {
    use super::*;

    /// The slow and obvious way: twelve bytes, five bits at a time.
    fn encode(bytes: [u8; 12]) -> String {
        let bits: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect::<String>() + "0000";
        let digit = |five: &[u8]| {
            let five = std::str::from_utf8(five).unwrap();
            DIGITS[usize::from_str_radix(five, 2).unwrap()] as char
        };
        bits.as_bytes().chunks(5).map(digit).collect()
    }

    #[test]
    fn an_id_is_its_twelve_bytes_in_base_32() {
        let mut xid = Xid::of_this_process();
        for (second, counter) in [(0, 0), (1_700_000_000, 0xff_ffff), (4_000_000_000_i64, 0x12_3456)] {
            xid.at(Timestamp::from_second(second).unwrap());
            let mut bytes = [0; 12];
            bytes[..9].copy_from_slice(&xid.stem);
            bytes[9..].copy_from_slice(&(counter as u32).to_be_bytes()[1..]);
            let text = String::from_utf8(xid.text(counter).to_vec()).unwrap();
            assert_eq!(text, encode(bytes), "{second} {counter:x}");
        }
        // The example in the format's own description.
        let known = [
            0x4d, 0x88, 0xe1, 0x5b, 0x60, 0xf4, 0x86, 0xe4, 0x28, 0x41, 0x2d, 0xc9,
        ];
        assert_eq!(encode(known), "9m4e2mr0ui3e8a215n4g");
    }

    #[test]
    fn ids_sort_by_their_second() {
        let mut xid = Xid::of_this_process();
        xid.at(Timestamp::from_second(1_700_000_000).unwrap());
        let earlier = xid.text(0xff_ffff);
        xid.at(Timestamp::from_second(1_700_000_001).unwrap());
        assert!(earlier < xid.text(0));
    }
}
