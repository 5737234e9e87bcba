//! How much room there is for letters, and how much of it one index may have: no more than is left for all
//! others. So the letters of one index alone fill half of the store, and no index takes the last of it.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use log::{AppendError, Full, Options};

/// Why a letter was not put into the store.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotPut {
    /// There is no room for letters of its index.
    #[error("{0}")]
    NoRoom(String),
    /// The disk, or the store itself, does not take the letter now.
    #[error(transparent)]
    Append(AppendError),
}

/// The room of a store.
pub(super) struct LetterRoom {
    /// The most bytes of letters; a part of the store's quota is kept free for edits and for tidying up.
    bytes_max: AtomicU64,
    /// The bytes of that part.
    reserve: AtomicU64,
    /// Bytes of letters that are on their way to the disk.
    claimed: AtomicU64,
    /// Bytes that the letters of indices have taken since the last start, or since letters were last taken
    /// out. Clients make up names, so there is a fixed number of counters; indices that share a counter share
    /// its room.
    taken: Box<[AtomicU64]>,
    hash: RandomState,
}

/// Room for one letter, until it is on disk.
pub(super) struct RoomClaim<'r> {
    room: &'r LetterRoom,
    slot: usize,
    bytes: u64,
    /// Whether the letter takes more than the quota allows.
    pub(super) is_oversized: bool,
}

// === impl LetterRoom ===

impl LetterRoom {
    pub(super) fn new(options: &Options) -> Self {
        let room = Self {
            bytes_max: AtomicU64::default(),
            reserve: AtomicU64::default(),
            claimed: AtomicU64::default(),
            taken: (0..SLOTS).map(|_| AtomicU64::default()).collect(),
            hash: RandomState::new(),
        };
        room.adjust(options);
        room
    }

    pub(super) fn adjust(&self, options: &Options) {
        let reserve = options.segment_bytes;
        self.reserve.store(reserve, Ordering::Relaxed);
        let bytes_max = options.quota_bytes.saturating_sub(reserve);
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    pub(super) fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Ordering::Relaxed)
    }

    pub(super) fn reserve(&self) -> u64 {
        self.reserve.load(Ordering::Relaxed)
    }

    /// Claims room for a letter of this many bytes, in a store that has `used` bytes on disk.
    pub(super) fn claim(&self, index: &str, bytes: u64, used: u64) -> Result<RoomClaim<'_>, NotPut> {
        let (most, reserve) = (self.bytes_max(), self.reserve());
        let slot = self.slot(index);
        let taken = self.taken[slot].load(Ordering::Relaxed);
        let used = used + self.claimed.load(Ordering::Relaxed);
        // A letter that would not fit into the empty store would wait for ever: it is taken as long as there
        // is room for any.
        let is_oversized = 2 * bytes + RECORD_BYTES > most - most.min(reserve);
        let fits = match is_oversized {
            true => used < most,
            false => used + bytes <= most,
        };
        if !fits {
            return Err(NotPut::NoRoom(format!(
                "the dead letters are full: {used} bytes are used, and new ones are taken up to {most} \
                 (dead_letters_max_size, less {reserve} for edits)"
            )));
        }
        let left = most.saturating_sub(used + bytes);
        if taken > 0 && taken + bytes > left {
            return Err(NotPut::NoRoom(format!(
                "the dead letters of [{index}] have {taken} bytes, and {left} are left for those of all other indices: no \
                 index takes more than is left for the others (dead_letters_max_size)"
            )));
        }
        self.taken[slot].fetch_add(bytes, Ordering::Relaxed);
        self.claimed.fetch_add(bytes, Ordering::Relaxed);
        Ok(RoomClaim {
            room: self,
            slot,
            bytes,
            is_oversized,
        })
    }

    /// Whether there may be room for a letter of an index.
    pub(super) fn has_some(&self, index: &str, used: u64) -> bool {
        let left = self.bytes_max().saturating_sub(used);
        left > 0 && self.taken[self.slot(index)].load(Ordering::Relaxed) < left
    }

    /// Begins to count anew for all indices: letters were taken out, and nobody looks of which indices.
    pub(super) fn begin_anew(&self) {
        for taken in &self.taken {
            taken.store(0, Ordering::Relaxed);
        }
    }

    fn slot(&self, index: &str) -> usize {
        self.hash.hash_one(index) as usize % SLOTS
    }
}

// === impl RoomClaim ===

impl RoomClaim<'_> {
    /// Gives the room back: nothing of the letter is on disk.
    pub(super) fn give_back(self) {
        let taken = &self.room.taken[self.slot];
        let less = |taken: u64| Some(taken.saturating_sub(self.bytes));
        let _ = taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

impl Drop for RoomClaim<'_> {
    fn drop(&mut self) {
        self.room.claimed.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

// === impl NotPut ===

impl From<AppendError> for NotPut {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Full(full @ Full::Quota { .. }) => NotPut::NoRoom(format!(
                "the dead letters are full: {full} (dead_letters_max_size)"
            )),
            error => NotPut::Append(error),
        }
    }
}

const SLOTS: usize = 1024;
/// The most that a record takes besides its payload: its head, its parameters, and the segment's.
const RECORD_BYTES: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn room() -> LetterRoom {
        LetterRoom::new(&Options {
            segment_bytes: 1 << 20,
            quota_bytes: 11 << 20,
            ..Options::default()
        })
    }

    /// Returns how many letters of 1000 bytes the store takes from an index.
    fn fill(room: &LetterRoom, index: &str, used: &mut u64) -> u64 {
        let before = *used;
        while let Ok(claim) = room.claim(index, 1000, *used) {
            drop(claim);
            *used += 1000;
        }
        *used - before
    }

    #[test]
    fn an_index_takes_what_is_left_for_the_others_at_most_and_nobody_the_last() {
        let (room, mut used) = (room(), 0);
        let first = fill(&room, "a", &mut used);
        assert!(first <= 5 << 20 && first > (5 << 20) - 2000, "{first}");
        let second = fill(&room, "b", &mut used);
        assert!(second > (2 << 20) && second < 3 << 20, "{second}");
        assert!(room.has_some("c", used) && !room.has_some("a", used));
        assert!(fill(&room, "c", &mut used) > 1 << 20);
    }

    #[test]
    fn letters_on_their_way_count_and_what_failed_is_given_back() {
        let room = room();
        let used = (10 << 20) - 5000;
        let claim = room.claim("a", 2400, used).unwrap();
        assert!(room.claim("b", 2700, used).is_err());
        claim.give_back();
        drop(room.claim("a", 2400, used).unwrap());
        let Err(NotPut::NoRoom(why)) = room.claim("a", 2400, used + 2400) else {
            panic!("it has its share");
        };
        assert!(why.contains("have 2400 bytes, and 200 are left"), "{why}");
    }
}
