//! A record while it is put together, and the receipt for it.

use std::sync::Arc;

use crate::format::checksum::{PIECE_BYTES, Sum};
use crate::format::pool::Pool;
use crate::{AppendError, Codec};

/// The most bytes of parameters.
pub const PARAMS_MAX: usize = 32 << 10;
/// The most groups of a record.
pub const GROUPS_MAX: usize = 4096;
/// The most bytes of payload, as stored.
pub const PAYLOAD_MAX: usize = 1 << 30;

/// One client request on its way into the log, from [`crate::Log::record`]. The memory for its groups is
/// pooled.
pub struct Record {
    /// The fixed part, still empty, and the parameters.
    pub(crate) head: Vec<u8>,
    pub(crate) directory: Vec<DirectoryEntry>,
    pub(crate) payload: Vec<u8>,
    pub(crate) kind: u8,
    pub(crate) codec: Codec,
    lanes: u32,
    documents: u64,
    /// Whether the record is exempt from the quota.
    pub(crate) beyond_quota: bool,
    pool: Arc<Pool>,
    /// Takes the payload's memory back, if it was lent.
    lender: Option<Lender>,
}

/// A function that takes back the memory that it has lent.
type Lender = Box<dyn FnOnce(Vec<u8>) + Send>;

/// A group in a record's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryEntry {
    pub(crate) lane: u32,
    pub(crate) documents: u32,
    pub(crate) stored: u32,
    pub(crate) raw: u32,
    pub(crate) crc: u32,
}

/// Where a record was put in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The position of the record's first byte, as in `X-Tidegate-Ack: queued; position=…`.
    pub position: u64,
    /// Bytes that the record takes in the log.
    pub bytes: u64,
    /// Documents in the record.
    pub documents: u32,
}

/// A group that is being added.
struct NewGroup {
    lane: u32,
    documents: u32,
    /// Where it begins in the payload.
    start: usize,
    sum: Sum,
    /// Its bytes, if they are to be compressed.
    raw: Option<Vec<u8>>,
}

// === impl Record ===

impl Record {
    pub(crate) fn new(kind: u8, params: &[u8], lanes: u32, codec: Codec, pool: Arc<Pool>) -> Self {
        let mut head = Vec::with_capacity(HEAD_BYTES + params.len());
        head.resize(HEAD_BYTES, 0);
        head.extend_from_slice(params);
        Self {
            head,
            directory: Vec::new(),
            payload: Vec::new(),
            kind,
            codec,
            lanes,
            documents: 0,
            beyond_quota: false,
            pool,
            lender: None,
        }
    }

    /// Whether groups are kept as they are given, and so take as many bytes as they have.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.codec == Codec::None
    }

    /// Has the groups made in this memory, which `take_back` gets once they are written, or given up: on the
    /// writer's thread, mostly. Without it the log has memory of its own, of which it keeps little.
    ///
    /// # Panics
    /// If a group was added before.
    pub fn lend(&mut self, memory: Vec<u8>, take_back: impl FnOnce(Vec<u8>) + Send + 'static) {
        assert!(
            self.directory.is_empty(),
            "memory is lent before the first group is made"
        );
        self.give_memory_back();
        self.payload = memory;
        self.lender = Some(Box::new(take_back));
    }

    fn give_memory_back(&mut self) {
        let memory = std::mem::take(&mut self.payload);
        match self.lender.take() {
            Some(take_back) => take_back(memory),
            None => self.pool.give(memory),
        }
    }

    /// Reserves room for groups of `bytes` bytes together, which is faster than growing group by group.
    pub fn reserve(&mut self, bytes: usize) {
        let room = match self.codec {
            Codec::None => bytes,
            // They compress better than that.
            Codec::Lz4 | Codec::Zstd => bytes / 2,
        };
        if self.payload.capacity() == 0 {
            self.payload = self.pool.take(room);
        }
    }

    /// Adds a group: `fill` appends its bytes, the action and source lines of `documents` operations.
    ///
    /// A lane may have several groups in a record; they are read in the order in which they were added. The
    /// group's checksum (and compression) is computed here, on the caller's core, while the bytes are in its
    /// cache.
    ///
    /// # Panics
    /// If there is no such lane, if there are no documents, or if `fill` appends nothing.
    pub fn group(&mut self, lane: u32, documents: u32, fill: impl FnOnce(&mut Vec<u8>)) {
        let mut group = self.begin_group(lane, documents);
        let mut fill = Some(fill);
        let mut more = |out: &mut Vec<u8>, _| {
            let before = out.len();
            if let Some(fill) = fill.take() {
                fill(out);
            }
            out.len() - before
        };
        while self.add_piece(&mut group, &mut more) {}
        self.end_group(group);
    }

    /// Like [`Record::group`], but `more` appends the group's bytes piece by piece: at most as many as it is
    /// told, if it can. It returns how many it appended; 0 at the end. The checksum is computed while the
    /// bytes are in the core's own cache. After each piece this awaits `turn`, so that other work on the
    /// thread can continue meanwhile; but a compressed group is compressed in one go.
    ///
    /// # Panics
    /// Like [`Record::group`].
    pub async fn group_in_turns(
        &mut self,
        lane: u32,
        documents: u32,
        mut more: impl FnMut(&mut Vec<u8>, usize) -> usize,
        turn: &mut impl AsyncFnMut(),
    ) {
        let mut group = self.begin_group(lane, documents);
        while self.add_piece(&mut group, &mut more) {
            turn().await;
        }
        self.end_group(group);
    }

    fn begin_group(&mut self, lane: u32, documents: u32) -> NewGroup {
        assert!(
            lane < self.lanes,
            "there is no lane {lane}, the log has {}",
            self.lanes
        );
        assert!(documents > 0, "a group has documents");
        self.reserve(0);
        NewGroup {
            lane,
            documents,
            start: self.payload.len(),
            sum: Sum::default(),
            raw: (self.codec != Codec::None).then(|| self.pool.take(0)),
        }
    }

    /// Adds a piece; returns whether there was one.
    fn add_piece(
        &mut self,
        group: &mut NewGroup,
        more: &mut impl FnMut(&mut Vec<u8>, usize) -> usize,
    ) -> bool {
        if let Some(raw) = &mut group.raw {
            return more(raw, PIECE_BYTES) > 0;
        }
        let before = self.payload.len();
        let is_more = more(&mut self.payload, PIECE_BYTES) > 0;
        group.sum.update(&self.payload[before..]);
        is_more
    }

    fn end_group(&mut self, group: NewGroup) {
        let NewGroup {
            lane,
            documents,
            start,
            mut sum,
            raw,
        } = group;
        let raw = match raw {
            None => self.payload.len() - start,
            Some(raw) => {
                self.codec.pack(&raw, &mut self.payload);
                sum.update(&self.payload[start..]);
                let bytes = raw.len();
                self.pool.give(raw);
                bytes
            }
        };
        assert!(raw > 0, "a group has bytes");
        let stored = &self.payload[start..];
        self.directory.push(DirectoryEntry {
            lane,
            documents,
            // A length that exceeds u32 exceeds PAYLOAD_MAX, so the record is refused before these numbers
            // are used.
            stored: u32::try_from(stored.len()).unwrap_or(u32::MAX),
            raw: u32::try_from(raw).unwrap_or(u32::MAX),
            crc: sum.finish(),
        });
        self.documents += u64::from(documents);
    }

    /// Lets the record exceed [`crate::Options::quota_bytes`]: for a record that is larger than the whole
    /// quota and would wait for room for ever. The caller must set a bound.
    pub fn beyond_quota(&mut self) {
        self.beyond_quota = true;
    }

    /// Returns the documents added so far.
    #[must_use]
    pub fn documents(&self) -> u64 {
        self.documents
    }

    /// Returns the bytes of the groups so far, as stored.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        self.payload.len()
    }

    /// Returns the bytes that the record takes in the log.
    pub(crate) fn bytes(&self) -> u64 {
        let head = self.head.len() + self.directory.len() * ENTRY_BYTES;
        ((head + self.payload.len()) as u64).next_multiple_of(ALIGN)
    }

    pub(crate) fn check(&self) -> Result<(), AppendError> {
        let bounds = [
            ("parameters", self.head.len() - HEAD_BYTES, PARAMS_MAX),
            ("directory", self.directory.len(), GROUPS_MAX),
            (
                "documents",
                usize::try_from(self.documents).unwrap_or(usize::MAX),
                u32::MAX as usize,
            ),
            ("payload", self.payload.len(), PAYLOAD_MAX),
        ];
        for (what, bytes, most) in bounds {
            if bytes > most {
                let (bytes, most) = (bytes as u64, most as u64);
                return Err(AppendError::TooLarge { what, bytes, most });
            }
        }
        let raw_max = self.directory.iter().map(|entry| entry.raw).max();
        match raw_max {
            None => Err(AppendError::Empty),
            Some(raw) if raw as usize > PAYLOAD_MAX => Err(AppendError::TooLarge {
                what: "one group",
                bytes: u64::from(raw),
                most: PAYLOAD_MAX as u64,
            }),
            Some(_) => Ok(()),
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.give_memory_back();
    }
}

/// Bytes of a record's fixed part.
pub(crate) const HEAD_BYTES: usize = 64;
/// Bytes of a group in the directory.
pub(crate) const ENTRY_BYTES: usize = 20;
/// Records start at multiples of this number.
pub(crate) const ALIGN: u64 = 8;

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::{Log, Options, RealDisk};

    #[test]
    fn a_group_that_is_made_in_turns_is_the_same_group() {
        let bytes: Vec<u8> = (0..PIECE_BYTES * 5 / 2).map(|n| (n / 7) as u8).collect();
        for codec in [Codec::None, Codec::Zstd] {
            let folder = tempfile::tempdir().unwrap();
            let options = Options {
                codec,
                ..Options::default()
            };
            let log = Log::open(folder.path(), options, RealDisk::default()).unwrap();
            let (mut at_once, mut sliced) = (log.record(0, b""), log.record(0, b""));
            at_once.group(0, 2, |out| out.extend_from_slice(&bytes));
            let (mut at, mut turns) = (0, 0);
            {
                let more = |out: &mut Vec<u8>, most: usize| {
                    let piece = &bytes[at..bytes.len().min(at + most)];
                    out.extend_from_slice(piece);
                    at += piece.len();
                    piece.len()
                };
                let mut turn = async || turns += 1;
                let made = pin!(sliced.group_in_turns(0, 2, more, &mut turn));
                assert!(matches!(
                    made.poll(&mut Context::from_waker(Waker::noop())),
                    Poll::Ready(())
                ));
            }
            assert_eq!(turns, 3);
            assert_eq!((&at_once.payload, at_once.documents), (&sliced.payload, 2));
            let sums = |record: &Record| record.directory.iter().map(|one| one.crc).collect::<Vec<_>>();
            assert_eq!(sums(&at_once), sums(&sliced));
        }
    }
}
