//! Operations on their way to a node: the lines of one request, taken from the memory into which they were
//! read.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::sync::Arc;

use bulk::{Gather, Plan};
use flate2::Compression;
use flate2::write::GzEncoder;
use wire::{CHUNK_BYTES, Chunk, Outgoing, Pool, PooledBytes};

/// A body and its plan. While the parts are sent, on whatever core, they share it.
pub(crate) struct PlannedBody {
    pub(crate) body: PooledBytes,
    pub(crate) plan: Plan,
}

/// Operations from one origin.
#[derive(Clone)]
pub(crate) enum Lines {
    /// A part of a body that was planned.
    Part(Arc<PlannedBody>, usize),
    /// A whole body, or one contiguous piece of it.
    Whole(PooledBytes),
}

/// Lines one after another, chunk by chunk. A piece that fills a chunk is sent from where it is; the rest is
/// copied together.
pub(crate) struct Body {
    lines: VecDeque<Lines>,
    /// The progress within the first of the lines.
    gather: Gather,
    offset: usize,
    left: usize,
    pool: Pool,
}

// === impl Lines ===

impl Lines {
    pub(crate) fn part(load: &Arc<PlannedBody>, part: usize) -> Self {
        match load.plan.parts[part].stretch() {
            Some(stretch) => Lines::Whole(load.body.slice(stretch)),
            None => Lines::Part(Arc::clone(load), part),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Lines::Part(load, part) => usize::try_from(load.plan.parts[*part].bytes).unwrap_or(usize::MAX),
            Lines::Whole(body) => body.len(),
        }
    }
}

// === impl Body ===

impl Body {
    pub(crate) fn new(lines: impl IntoIterator<Item = Lines>, pool: &Pool) -> Self {
        let lines: VecDeque<_> = lines.into_iter().collect();
        Self {
            left: lines.iter().map(Lines::bytes).sum(),
            lines,
            gather: Gather::default(),
            offset: 0,
            pool: pool.clone(),
        }
    }

    /// Returns a body that is sent as fast as the connection takes it.
    pub(crate) fn outgoing(mut self) -> Outgoing {
        Outgoing::gather(self.left as u64, move || self.next())
    }

    /// Returns the whole body, compressed. Other tasks get a turn in between.
    pub(crate) async fn compressed(mut self) -> Vec<u8> {
        let packed = Vec::with_capacity(self.left / RATIO_TYPICAL);
        let mut encoder = GzEncoder::new(packed, Compression::fast());
        while let Some(chunk) = self.next() {
            let written: io::Result<()> = encoder.write_all(&chunk);
            written.expect("writing to a Vec cannot fail");
            tokio::task::yield_now().await;
        }
        encoder.finish().expect("writing to a Vec cannot fail")
    }

    /// Returns the next chunk, or `None` at the end.
    fn next(&mut self) -> Option<Chunk> {
        if let Some(Lines::Whole(body)) = self.lines.front()
            && body.len() - self.offset >= CHUNK_BYTES.min(self.left)
        {
            let end = body.len().min(self.offset + CHUNK_BYTES);
            let chunk = body.slice(self.offset..end);
            (self.offset, self.left) = (end, self.left - chunk.len());
            return (!chunk.is_empty()).then_some(Chunk::Shared(chunk));
        }
        let mut chunk = self.pool.take(self.left.min(CHUNK_BYTES));
        while chunk.len() < CHUNK_BYTES
            && let Some(lines) = self.lines.front()
        {
            let room = CHUNK_BYTES - chunk.len();
            let copied = match lines {
                Lines::Part(load, part) => {
                    let part = &load.plan.parts[*part];
                    self.gather
                        .next(&load.plan, part, &load.body, chunk.as_mut_vec(), room)
                }
                Lines::Whole(body) => {
                    let rest = &body[self.offset..];
                    let copied = rest.len().min(room);
                    chunk.extend_from_slice(&rest[..copied]);
                    self.offset += copied;
                    copied
                }
            };
            if copied < room {
                // All of these lines are copied, so their memory can be freed.
                self.lines.pop_front();
                (self.gather, self.offset) = (Gather::default(), 0);
            }
        }
        self.left -= chunk.len();
        (!chunk.is_empty()).then(|| chunk.into())
    }
}

/// The ratio at which bulks are typically compressed; few compress better.
const RATIO_TYPICAL: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Budget;

    #[test]
    fn lines_of_any_lengths_go_one_after_another_and_large_ones_uncopied() {
        let pool = Pool::new(Arc::new(Budget::new(64 << 20)));
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let lengths = [
                0,
                1,
                500,
                CHUNK_BYTES - 1,
                CHUNK_BYTES,
                CHUNK_BYTES + 1,
                3 * CHUNK_BYTES + 5,
            ];
            let (mut lines, mut expected) = (Vec::new(), Vec::new());
            for _ in 0..random.usize(..6) {
                let mut bytes = pool.take(0);
                let fill = random.u8(..);
                let length = random.choice(lengths).unwrap_or_default();
                bytes
                    .as_mut_vec()
                    .extend((0..length).map(|at| fill.wrapping_add(at as u8)));
                expected.extend_from_slice(&bytes);
                lines.push(Lines::Whole(bytes.freeze()));
            }
            let (mut body, mut sent) = (Body::new(lines.clone(), &pool), Vec::new());
            while let Some(chunk) = body.next() {
                assert!(!chunk.is_empty() && chunk.len() <= CHUNK_BYTES);
                assert_eq!(
                    body.left,
                    expected.len() - sent.len() - chunk.len(),
                    "it knows what is left"
                );
                if lines.len() == 1 && expected.len() >= CHUNK_BYTES {
                    assert!(matches!(chunk, Chunk::Shared(_)));
                }
                sent.extend_from_slice(&chunk);
            }
            assert!(sent == expected);
        }
    }
}
