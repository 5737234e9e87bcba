//! The memory for long answers to users' calls: all of them together may take only so much, however many
//! clusters answer at once and however slowly browsers take what they have asked for.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// The memory; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct AnswerMemory(Arc<Semaphore>);

/// The memory of one answer, which is free again once this is dropped.
#[derive(Debug)]
pub(crate) struct AnswerRoom {
    memory: AnswerMemory,
    held: Option<OwnedSemaphorePermit>,
    /// The length of an answer for which there is room.
    bytes: usize,
}

/// Others take all of the memory.
#[derive(Debug, thiserror::Error)]
#[error(
    "the answer came, but others have long answers, and there is no memory for this one: try again later"
)]
pub(crate) struct NoRoom;

// === impl AnswerMemory ===

impl Default for AnswerMemory {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(BYTES_MAX)))
    }
}

impl AnswerMemory {
    /// Returns the room of a short answer, which needs none of the memory.
    pub(super) fn room(&self) -> AnswerRoom {
        AnswerRoom {
            memory: self.clone(),
            held: None,
            bytes: SHORT_BYTES_MAX,
        }
    }

    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.0.available_permits()
    }
}

// === impl AnswerRoom ===

impl AnswerRoom {
    /// Returns the length of an answer for which there is room.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Waits until there is memory for an answer of this length.
    pub(super) async fn grow(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let held = self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = u32::try_from(bytes.saturating_sub(held)).map_err(|_| NoRoom)?;
        let taken = timeout(ROOM_WITHIN, Arc::clone(&self.memory.0).acquire_many_owned(more));
        let taken = taken.await.map_err(|_| NoRoom)?.map_err(|_| NoRoom)?;
        match &mut self.held {
            Some(held) => held.merge(taken),
            None => self.held = Some(taken),
        }
        self.bytes = self.bytes.max(bytes);
        Ok(())
    }

    /// Whether the answer takes some of the memory.
    pub(crate) fn is_shared(&self) -> bool {
        self.held.is_some()
    }
}

/// The largest number of bytes of all long answers together.
pub(crate) const BYTES_MAX: usize = 256 << 20;
/// Answers up to this length need no memory of those that are shared.
pub(crate) const SHORT_BYTES_MAX: usize = 64 << 10;
const ROOM_WITHIN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_share_memory_and_one_without_room_is_given_up_after_a_while() {
        let memory = AnswerMemory::default();
        let mut one = memory.room();
        assert!(one.bytes() == SHORT_BYTES_MAX && !one.is_shared());
        for bytes in [100 << 10, 200 << 10] {
            one.grow(bytes).await.unwrap();
            assert_eq!((one.bytes(), memory.free()), (bytes, BYTES_MAX - bytes));
        }
        let (mut other, began) = (memory.room(), Instant::now());
        assert!(other.grow(BYTES_MAX - (100 << 10)).await.is_err());
        assert_eq!(began.elapsed(), ROOM_WITHIN);
        drop(one);
        other.grow(BYTES_MAX).await.unwrap();
        drop(other);
        assert_eq!(memory.free(), BYTES_MAX);
    }
}
