//! A lane that only waits: for a cluster that is away, or for room for its dead letters. If another lane
//! meanwhile wants the memory that its batch takes, the lane lets go of the lines and of the operations'
//! places in them, and reads the lines again before it goes on. The few bytes of notes on each operation
//! stay.

use std::sync::Arc;
use std::time::Duration;

use log::{Next, ReadError};
use tokio::time::{Instant, sleep_until};
use wire::PooledBytes;

use super::memory::LaneMemory;
use super::thread::READ_AGAIN;
use crate::delivery::lane::{Lane, stopped};
use crate::delivery::work::{Batch, Work};
use crate::queue::LaneActivity;

/// Why a batch's lines cannot be read a second time.
#[derive(Debug, thiserror::Error)]
enum NotRead {
    #[error("nobody knows where it begins")]
    NoBeginning,
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the record at {0} is damaged")]
    Damaged(u64),
    #[error("it is not what it was")]
    Another,
}

impl Lane {
    /// Waits; `None` if the gateway stops meanwhile. `body` and `held` are the batch's lines and their
    /// memory; nobody else may hold the lines.
    pub(crate) async fn rest_lightly(
        &mut self,
        batch: &Batch,
        body: &mut PooledBytes,
        held: &mut Option<LaneMemory>,
        time: Duration,
    ) -> Option<()> {
        let ends = Instant::now() + time;
        if !self.is_wanted_before(ends, batch, held.as_ref()).await? {
            return Some(());
        }
        let taken = (body.len(), held.as_ref().map_or(0, LaneMemory::bytes));
        (*body, *held) = (self.route.worker.pool().take(0).freeze(), None);
        let (lines, memory) = self.come_back(ends, batch, taken).await?;
        (*body, *held) = (lines, Some(memory));
        Some(())
    }

    /// Waits like `rest_lightly`, for a batch that is cut into operations: it lets go of where they are, too.
    pub(crate) async fn rest_with(&mut self, work: &mut Work<'_>, time: Duration) -> Option<()> {
        let ends = Instant::now() + time;
        if !self
            .is_wanted_before(ends, work.batch, work.held.as_ref())
            .await?
        {
            return Some(());
        }
        let taken = (work.body.len(), work.held.as_ref().map_or(0, LaneMemory::bytes));
        work.let_go(&self.route);
        loop {
            let (lines, memory) = self.come_back(ends, work.batch, taken).await?;
            if work.take_again(&self.route, lines, memory) {
                return Some(());
            }
            let why = format!("what is under way cannot be read again: {}", NotRead::Another);
            self.route
                .group
                .set(self.number, LaneActivity::Paused, Some(&why));
            self.rest(READ_AGAIN).await?;
        }
    }

    /// Waits until `ends`, or until another lane wants the memory of a batch that can be read again; returns
    /// whether one does. `None` if the gateway stops meanwhile.
    async fn is_wanted_before(
        &mut self,
        ends: Instant,
        batch: &Batch,
        held: Option<&LaneMemory>,
    ) -> Option<bool> {
        self.route.group.rests_until(self.number, ends.into_std());
        let may_let_go = batch.from.is_some() && held.is_some_and(LaneMemory::is_common);
        let memory = Arc::clone(&self.route.shared.delivery_memory);
        tokio::select! {
            biased;
            () = stopped(&mut self.stop) => None,
            () = sleep_until(ends) => Some(false),
            () = memory.is_wanted(), if may_let_go => Some(true),
        }
    }

    /// Waits until `ends`, and then for memory; reads the lines once more: `length` bytes, which take `bytes`
    /// of memory.
    async fn come_back(
        &mut self,
        ends: Instant,
        batch: &Batch,
        (length, bytes): (usize, usize),
    ) -> Option<(PooledBytes, LaneMemory)> {
        let memory = Arc::clone(&self.route.shared.delivery_memory);
        tokio::select! {
            biased;
            () = stopped(&mut self.stop) => return None,
            () = sleep_until(ends) => {}
        }
        let held = tokio::select! {
            biased;
            () = stopped(&mut self.stop) => return None,
            held = memory.take(bytes, bytes) => held,
        };
        Some((self.read_again(batch, length).await?, held))
    }

    /// Reads a batch's lines once more; tries for as long as it takes. `None` if the gateway stops meanwhile.
    async fn read_again(&mut self, batch: &Batch, length: usize) -> Option<PooledBytes> {
        loop {
            let why = match self.lines_of(batch, length) {
                Ok(lines) => return Some(lines),
                Err(why) => why,
            };
            let why = format!("what is under way cannot be read again: {why}");
            self.route
                .group
                .set(self.number, LaneActivity::Paused, Some(&why));
            self.rest(READ_AGAIN).await?;
        }
    }

    fn lines_of(&mut self, batch: &Batch, length: usize) -> Result<PooledBytes, NotRead> {
        let from = batch.from.ok_or(NotRead::NoBeginning)?;
        let after = self.reader.mark();
        let mut lines = self.route.worker.pool().take(length);
        self.reader.rewind(from);
        let mut read = Ok(());
        for origin in &batch.origins {
            read = match self.reader.next(lines.as_mut_vec()) {
                Ok(Some(Next::Group(group))) if group.position == origin.position => continue,
                Err(error) => Err(error.into()),
                Ok(_) => Err(NotRead::Damaged(origin.position)),
            };
            break;
        }
        self.reader.rewind(after);
        match read {
            Ok(()) if lines.len() == length => Ok(lines.freeze()),
            Ok(()) => Err(NotRead::Another),
            Err(why) => Err(why),
        }
    }
}
