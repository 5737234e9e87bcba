//! The store gives back the disk that it no longer needs. Segments go from the oldest on, as far as no letter
//! is in them; where much of the store is gone but some letters hold it, these are written again at its end.

use std::ops::ControlFlow;
use std::sync::mpsc;
use std::time::Duration;

use log::{AppendError, StartAt};
use parking_lot::MutexGuard;

use super::letter::{Letter, REWRITTEN, Rewritten};
use super::{DeadLetters, LettersError, encoding};

impl DeadLetters {
    /// Lets go of what holds no letter. What fails is tried again after the next change: nothing but space
    /// depends on it.
    pub(super) fn tidy(&self, work: &MutexGuard<'_, ()>) {
        if let Err(error) = self.release().and_then(|()| self.gather(work)) {
            tracing::warn!(%error, "dead letters keep more of the disk than they need");
        }
    }

    /// Sets the place on before which segments go. Letters come in all the while: of those that are behind
    /// the end that was there first, nothing is known here, and they stay.
    fn release(&self) -> Result<(), LettersError> {
        let end = self.log.status().end;
        let mut oldest = None;
        self.visit(0, |letter| {
            oldest = Some(letter.at);
            ControlFlow::Break(())
        })?;
        let from = oldest.unwrap_or_else(|| {
            self.log.roll();
            end
        });
        self.kept.seek(StartAt::Position(from))?;
        Ok(())
    }

    /// Writes letters again that hold segments, if more than half of the store is gone, or a quarter of one
    /// that is full.
    fn gather(&self, _work: &MutexGuard<'_, ()>) -> Result<(), LettersError> {
        let (bytes, gone) = (self.log.status().bytes, self.catalog().gone.bytes());
        let is_tight = bytes > self.room.bytes_max() / 4 * 3;
        if gone < GONE_BYTES_MIN || gone * if is_tight { 4 } else { 2 } <= bytes {
            return Ok(());
        }
        // What is written now goes to a segment of its own.
        self.log.roll();
        let (end, mut from) = (self.log.status().end, 0);
        let at_once = BYTES_AT_ONCE.min(self.room.reserve() / 4);
        loop {
            let (mut letters, mut bytes) = (Vec::new(), 0);
            self.visit(from, |letter| {
                if letter.at >= end || letters.len() >= AT_ONCE || bytes >= at_once {
                    return ControlFlow::Break(());
                }
                bytes += letter.bytes;
                letters.push(letter);
                ControlFlow::Continue(())
            })?;
            let Some(last) = letters.last() else {
                return Ok(());
            };
            from = last.at + last.bytes;
            let mut tries = 0;
            while let Err(error) = self.rewrite(&letters) {
                // Room comes from segments that go by and by.
                let full = matches!(error, LettersError::Append(AppendError::Full(_)));
                tries += 1;
                if !full || tries > TRIES_MAX {
                    return Err(error);
                }
                letters.retain(|letter| self.catalog().holds(letter.id, letter.at));
                #[allow(
                    clippy::disallowed_methods,
                    reason = "replays and edits have threads of their own"
                )]
                std::thread::sleep(ROOM_AGAIN);
            }
            self.release()?;
        }
    }

    /// Puts letters in records of their own again, as they are given here.
    pub(super) fn rewrite(&self, letters: &[Letter]) -> Result<(), LettersError> {
        let (sender, receiver) = mpsc::channel();
        let mut handed = 0;
        for (number, letter) in letters.iter().enumerate() {
            // What is damaged cannot be written again; it stays where it is.
            let Some(lines) = &letter.lines else { continue };
            let mut cause = letter.cause.clone();
            cause.rewritten = Some(Rewritten {
                id: letter.id,
                died_ms: letter.died_ms,
                edited_ms: letter.edited_ms,
            });
            let record = encoding::record(&self.log, REWRITTEN, &cause, lines, letter.original.as_deref());
            let sender = sender.clone();
            self.log.append(record, move |result| {
                // Whoever waits is there until all have come.
                let _ = sender.send((number, result));
            });
            handed += 1;
        }
        // A writer that has failed drops what it was to tell.
        drop(sender);
        let (mut written, mut failed) = (Vec::new(), None);
        for _ in 0..handed {
            let Ok((number, result)) = receiver.recv() else {
                failed = Some(AppendError::Closed);
                break;
            };
            match result {
                Ok(receipt) => written.push((number, receipt)),
                Err(error) => failed = Some(error),
            }
        }
        self.change(|catalog| {
            for (number, receipt) in written {
                let letter = &letters[number];
                catalog.remove(letter.id, letter.at, letter.bytes);
                catalog.moved.insert(letter.id, receipt.position);
            }
        })?;
        failed.map_or(Ok(()), |error| Err(error.into()))
    }
}

/// As long as less is gone, it is not worth writing anything again.
const GONE_BYTES_MIN: u64 = 64 << 10;
/// Waits for room, and between them.
const TRIES_MAX: u32 = 5;
const ROOM_AGAIN: Duration = Duration::from_millis(150);
/// Letters that are written again together, at most.
const AT_ONCE: usize = 500;
const BYTES_AT_ONCE: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use log::Options;

    use super::super::letter::Cause;
    use super::super::wanted::{Committed, Wanted};
    use super::*;

    /// The store is found empty and is at its end a moment later: what comes between the two stays.
    #[test]
    fn letters_that_come_while_others_are_purged_stay() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            lanes: 1,
            free_bytes_min: 0,
            quota_bytes: 8 << 20,
            segment_bytes: 64 << 10,
            ..Options::default()
        };
        let letters = DeadLetters::open(folder.path(), options).unwrap();
        // As the group's lane is past them.
        let committed = Committed {
            lanes: [("c0".to_owned(), vec![1])].into(),
            ..Committed::default()
        };
        let puts = 400;
        let put_all = || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            for place in 0..puts {
                let cause = Cause {
                    group: "c0".to_owned(),
                    place,
                    ..Cause::default()
                };
                let put = letters.put(cause, "logs", b"{\"delete\":{\"_id\":\"1\"}}\n");
                runtime.block_on(put).unwrap();
                // So that the store is found empty between two of them, too.
                std::thread::sleep(Duration::from_micros(fastrand::u64(0..5_000)));
            }
        };
        let purge = || letters.purge(&Wanted::default(), &committed, || Ok(()));
        let mut purged = 0;
        std::thread::scope(|scope| {
            let putting = scope.spawn(put_all);
            while !putting.is_finished() {
                purged += purge().unwrap();
            }
        });
        purged += purge().unwrap();
        assert_eq!(purged, u64::from(puts));
        letters.close();
    }
}
