//! Long answers are read in turn, so one that trickles would keep all others waiting.

use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use wire::{Chunk, ReplyBody, SendError};

use crate::delivery::memory::Memory;

/// How fast a long answer comes, from the moment that it has its memory.
pub(super) struct Pace<'m> {
    memory: &'m Memory,
    windows: Interval,
    /// The bytes that came in this window.
    bytes: usize,
}

// === impl Pace ===

impl<'m> Pace<'m> {
    pub(super) fn begin(memory: &'m Memory) -> Self {
        let mut windows = interval_at(Instant::now() + WINDOW, WINDOW);
        windows.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            memory,
            windows,
            bytes: 0,
        }
    }

    /// Returns the next bytes of the answer, as [`ReplyBody::chunk`] does. The answer is given up if it comes
    /// too slowly while others wait for its memory.
    pub(super) async fn chunk(&mut self, reply: &mut ReplyBody) -> Result<Option<Chunk>, SendError> {
        let came = {
            let mut piece = pin!(reply.chunk());
            loop {
                tokio::select! {
                    biased;
                    came = &mut piece => break Some(came?),
                    _ = self.windows.tick() => {
                        if self.is_too_slow() {
                            break None;
                        }
                    }
                }
            }
        };
        match came {
            Some(piece) => {
                self.bytes += piece.as_deref().map_or(0, <[u8]>::len);
                Ok(piece)
            }
            None => Err(reply.give_up()),
        }
    }

    /// Whether the answer has to make room, at the end of a window; the next window begins.
    fn is_too_slow(&mut self) -> bool {
        std::mem::take(&mut self.bytes) < WINDOW_BYTES && self.memory.is_answer_wanted()
    }
}

/// The time that an answer is measured for, and the bytes that have to come in it if others wait.
const WINDOW: Duration = Duration::from_secs(4);
const WINDOW_BYTES: usize = 1 << 20;
