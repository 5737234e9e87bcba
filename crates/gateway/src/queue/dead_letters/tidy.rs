//! Gives back the disk space that the store no longer needs. Segments go from the oldest on, as far as no
//! letter is in them. Where much of the store is gone but some letters hold it, these are written again at
//! its end.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use log::{AppendError, StartAt};
use parking_lot::MutexGuard;

use super::letter::{Letter, REWRITTEN, Rewritten};
use super::{DeadLetters, LettersError, encoding};

impl DeadLetters {
    /// Lets go of segments that hold no letter. A failure is tried again after the next change: only space
    /// depends on it.
    pub(super) fn tidy(&self, work: &MutexGuard<'_, ()>) {
        if let Err(error) = self.release().and_then(|()| self.gather(work)) {
            tracing::warn!(%error, "dead letters keep more of the disk than they need");
        }
    }

    /// Returns whether the store is nearly full.
    pub(super) fn is_tight(&self) -> bool {
        self.log.status().bytes > self.room.bytes_max() / 4 * 3
    }

    /// Sets the place before which segments go. Letters come in all the while: nothing is known here of
    /// letters behind the end that was read first, so these stay.
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

    /// Writes letters again that hold segments, if more than half of the store is gone, or a quarter of a
    /// store that is nearly full.
    fn gather(&self, _work: &MutexGuard<'_, ()>) -> Result<(), LettersError> {
        let (bytes, gone) = (self.log.status().bytes, self.catalog().gone.bytes());
        if gone < GONE_BYTES_MIN || gone * if self.is_tight() { 4 } else { 2 } <= bytes {
            return Ok(());
        }
        // Letters that are written now go to a segment of their own.
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
            self.rewrite_as_room_comes(&mut letters)?;
            self.release()?;
        }
    }

    /// Writes letters as [`DeadLetters::rewrite`] does, as soon as there is room for them: it comes from
    /// segments that go one after another. Those that are not written stay in `letters`.
    pub(super) fn rewrite_as_room_comes(&self, letters: &mut Vec<Letter>) -> Result<(), LettersError> {
        let mut tries = 0;
        while let Err(error) = self.rewrite(letters) {
            letters.retain(|letter| self.catalog().holds(letter.id, letter.at));
            let full = matches!(error, LettersError::Append(AppendError::Full(_)));
            tries += 1;
            if !full || tries > TRIES_MAX {
                return Err(error);
            }
            self.release()?;
            #[allow(
                clippy::disallowed_methods,
                reason = "replays and edits have threads of their own"
            )]
            std::thread::sleep(ROOM_AGAIN);
        }
        letters.clear();
        Ok(())
    }

    /// Puts letters into records of their own again, as they are given here.
    pub(super) fn rewrite(&self, letters: &[Letter]) -> Result<(), LettersError> {
        let (sender, receiver) = mpsc::channel();
        let (mut handed, refused) = (0, Arc::new(AtomicBool::new(false)));
        for (number, letter) in letters.iter().enumerate() {
            // A smaller letter behind one that has no room stays, so that the first ones are written.
            if refused.load(Ordering::Relaxed) {
                break;
            }
            // A damaged letter cannot be written again; it stays where it is.
            let Some(lines) = &letter.lines else { continue };
            let mut cause = letter.cause.clone();
            cause.rewritten = Some(Rewritten {
                id: letter.id,
                died_ms: letter.died_ms,
                edited_ms: letter.edited_ms,
            });
            let record = encoding::record(&self.log, REWRITTEN, &cause, lines, letter.original.as_deref());
            let (sender, refused) = (sender.clone(), Arc::clone(&refused));
            self.log.append(record, move |result| {
                refused.fetch_or(result.is_err(), Ordering::Relaxed);
                // The receiver is there until all results have come.
                let _ = sender.send((number, result));
            });
            handed += 1;
        }
        // A writer that has failed drops its sender.
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

/// As long as fewer bytes are gone, it is not worth writing anything again.
const GONE_BYTES_MIN: u64 = 64 << 10;
/// How often to wait for room, and for how long each time.
const TRIES_MAX: u32 = 5;
const ROOM_AGAIN: Duration = Duration::from_millis(150);
/// The most letters that are written again together, and their bytes.
const AT_ONCE: usize = 500;
const BYTES_AT_ONCE: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use log::Options;

    use super::super::filter::{Committed, LetterFilter};
    use super::super::letter::Cause;
    use super::*;

    /// A letter may come between the moment when the store is found empty and the reading of its end: it
    /// stays.
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
        // The group's lane is past the letters.
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
                // The pause lets the store be found empty between two letters, too.
                std::thread::sleep(Duration::from_micros(fastrand::u64(0..5_000)));
            }
        };
        let purge = || letters.purge(&LetterFilter::default(), &committed, || Ok(()));
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
