//! Operations on their way to a node: the lines of one request, taken from the memory into which they were
//! read.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::sync::Arc;

use bulk::{Gather, Plan};
use flate2::Compression;
use flate2::write::GzEncoder;
use wire::{Buffer, CHUNK_BYTES, Chunk, Outgoing, Pool, PooledBytes};

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
        while self.leave_done() {}
        let chunk = match self.stretch() {
            Some(stretch) => Chunk::Shared(stretch),
            None if self.lines.is_empty() => return None,
            None => Chunk::Buffer(self.copied()),
        };
        self.left -= chunk.len();
        Some(chunk)
    }

    /// Returns the stretch that comes next as it stands in its memory, if it is long, or all that is left.
    fn stretch(&mut self) -> Option<PooledBytes> {
        let long = STRETCH_BYTES_MIN.min(self.left);
        match self.lines.front()? {
            Lines::Part(load, part) => {
                let part = &load.plan.parts[*part];
                let stretch = self.gather.stretch(part, long)?;
                let end = stretch.end.min(stretch.start + CHUNK_BYTES);
                self.gather.skip(part, end - stretch.start);
                Some(load.body.slice(stretch.start..end))
            }
            Lines::Whole(body) => {
                let end = body.len().min(self.offset + CHUNK_BYTES);
                let stretch = (end - self.offset >= long).then(|| body.slice(self.offset..end))?;
                self.offset = end;
                Some(stretch)
            }
        }
    }

    /// Returns the next lines, up to a long stretch, copied together.
    fn copied(&mut self) -> Buffer {
        let mut chunk = self.pool.take(self.left.min(CHUNK_BYTES));
        while let Some(lines) = self.lines.front() {
            let room = CHUNK_BYTES - chunk.len();
            let copied = match lines {
                Lines::Part(load, part) => {
                    let (part, out) = (&load.plan.parts[*part], chunk.as_mut_vec());
                    let most = (room, STRETCH_BYTES_MIN);
                    self.gather.next_short(&load.plan, part, &load.body, out, most)
                }
                Lines::Whole(body) => {
                    let rest = &body[self.offset..];
                    let copied = if rest.len() < STRETCH_BYTES_MIN {
                        rest.len().min(room)
                    } else {
                        0
                    };
                    chunk.extend_from_slice(&rest[..copied]);
                    self.offset += copied;
                    copied
                }
            };
            if !self.leave_done() || copied == room {
                break;
            }
        }
        chunk
    }

    /// Lets go of the first lines if they are all sent, so that their memory can be freed. Returns whether it
    /// did.
    fn leave_done(&mut self) -> bool {
        let done = self.lines.front().is_some_and(|lines| match lines {
            Lines::Part(load, part) => self.gather.is_at_end(&load.plan.parts[*part]),
            Lines::Whole(body) => self.offset == body.len(),
        });
        if done {
            self.lines.pop_front();
            (self.gather, self.offset) = (Gather::default(), 0);
        }
        done
    }
}

/// A stretch of this length or more is sent from where it is: to copy it costs more than to send one chunk
/// more.
const STRETCH_BYTES_MIN: usize = 32 << 10;

/// The ratio at which bulks are typically compressed; few compress better.
const RATIO_TYPICAL: usize = 8;

#[cfg(test)]
mod tests {
    use bulk::{
        Ask, Dialect, Flavour, Formula, IdMint, IndexRoute, NodeIx, NullId, RouteTable, Scratch, Verdict,
        Version,
    };
    use wire::Budget;

    use super::*;

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

    #[test]
    fn the_long_stretches_of_a_part_are_sent_from_where_they_are_and_all_of_it_in_order() {
        let dialect = Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0));
        let mut table = RouteTable::builder(dialect, 2);
        for node in 0..2 {
            let (name, primary) = (format!("n{node}"), Some(NodeIx(node)));
            table.index(Arc::new(IndexRoute::new(&name, Formula::Modulo, [primary])));
        }
        let (table, pool) = (table.build(), Pool::new(Arc::new(Budget::new(64 << 20))));
        let ask = Ask {
            null_id: NullId::Mint,
            ..Ask::default()
        };
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..100 {
            let mut body = pool.take(4 << 20);
            for number in 0..random.usize(1..12) {
                // Some documents get their ids here, so that pieces of other memory stand in between.
                let id = ["", ",\"_id\":\"1\""][number % 2];
                let node = random.u32(..2);
                let source = "x".repeat(
                    random
                        .choice([9, 900, 20_000, 40_000, 600_000])
                        .unwrap_or_default(),
                );
                let lines = format!("{{\"index\":{{\"_index\":\"n{node}\"{id}}}}}\n{{\"s\":\"{source}\"}}\n");
                body.extend_from_slice(lines.as_bytes());
            }
            let body = body.freeze();
            let (mut ids, mut scratch) = (IdMint::new(7), Scratch::default());
            let Verdict::Plan(plan) = bulk::plan(&body, &ask, &table, &mut ids, &mut scratch) else {
                panic!("plain")
            };
            let load = Arc::new(PlannedBody { body, plan });
            let mut expected = Vec::new();
            for part in &load.plan.parts {
                let mut gather = Gather::default();
                while gather.next(&load.plan, part, &load.body, &mut expected, usize::MAX) > 0 {}
            }
            let parts = (0..load.plan.parts.len()).map(|part| Lines::part(&load, part));
            let (mut body, mut sent, mut shared) = (Body::new(parts, &pool), Vec::new(), 0);
            while let Some(chunk) = body.next() {
                assert!(!chunk.is_empty() && chunk.len() <= CHUNK_BYTES);
                shared += usize::from(matches!(chunk, Chunk::Shared(_)));
                sent.extend_from_slice(&chunk);
            }
            assert!(sent == expected && body.left == 0);
            let lines = expected.split(|byte| *byte == b'\n');
            let long = lines.filter(|line| line.len() >= STRETCH_BYTES_MIN).count();
            assert!(long == 0 || shared > 0, "{long} documents are long");
        }
    }
}
