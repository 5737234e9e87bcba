//! Gives back the disk space that the store no longer needs. Segments go from the oldest on, as far as no
//! letter is in them. Where much of the store is gone but some letters hold it, these are written again at
//! its end.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use log::{AppendError, StartAt};
use parking_lot::MutexGuard;

use super::letter::{Letter, REWRITTEN, Rewritten};
use super::{DeadLetters, LettersError, encoding};

impl DeadLetters {
    /// Lets go of segments that hold no letter, and begins to write others again: somebody waits for an
    /// answer, so the rest is left to [`DeadLetters::tidy_on`]. A failure is tried again after the next
    /// change: only space depends on it.
    pub(super) fn tidy(&self, work: &MutexGuard<'_, ()>) {
        self.tidy_within(work, TIDY_MAX);
    }

    fn tidy_within(&self, work: &MutexGuard<'_, ()>, within: Duration) {
        if let Err(error) = self.release().and_then(|()| self.gather(work, within)) {
            tracing::warn!(%error, "dead letters keep more of the disk than they need");
        }
    }

    /// Gets on with what there was no time for, for a while. Returns whether there is still more to do.
    pub(super) fn tidy_on(&self) -> bool {
        if self.is_tidy() {
            return false;
        }
        let work = self.work.lock();
        self.tidy_within(&work, TIDY_MAX);
        !self.is_tidy()
    }

    /// Whether there was time for all that was to be written again.
    pub(super) fn is_tidy(&self) -> bool {
        self.gathers_before.load(Ordering::Relaxed) == 0
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
    /// store that is nearly full. Where time is up, `gathers_before` says how far to go on.
    fn gather(&self, _work: &MutexGuard<'_, ()>, within: Duration) -> Result<(), LettersError> {
        let began = Instant::now();
        let (bytes, gone) = (self.log.status().bytes, self.catalog().gone.bytes());
        let end = match self.gathers_before.swap(0, Ordering::Relaxed) {
            0 if gone < GONE_BYTES_MIN || gone * if self.is_tight() { 4 } else { 2 } <= bytes => {
                return Ok(());
            }
            0 => {
                // Letters that are written now go to a segment of their own.
                self.log.roll();
                self.log.status().end
            }
            end => end,
        };
        let (mut from, mut released) = (0, self.log.status().start);
        let at_once = BYTES_AT_ONCE.min(self.room.reserve() / 4);
        loop {
            if began.elapsed() >= within {
                self.gathers_before.store(end, Ordering::Relaxed);
                return self.release();
            }
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
                return self.release();
            };
            from = last.at + last.bytes;
            self.rewrite_as_room_comes(&mut letters)?;
            // It reads on from the oldest segment, and only whole segments go.
            if from - released >= self.room.reserve() {
                released = from;
                self.release()?;
            }
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
/// How long to write letters again before somebody else gets a turn, or an answer; or little longer.
const TIDY_MAX: Duration = Duration::from_secs(5);
/// How often to wait for room, and for how long each time.
const TRIES_MAX: u32 = 5;
const ROOM_AGAIN: Duration = Duration::from_millis(150);
/// The most letters that are written again together, and their bytes.
const AT_ONCE: usize = 4000;
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

    #[test]
    fn what_there_was_no_time_to_write_again_is_written_later() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            lanes: 1,
            free_bytes_min: 0,
            quota_bytes: 8 << 20,
            segment_bytes: 64 << 10,
            ..Options::default()
        };
        let letters = DeadLetters::open(folder.path(), options).unwrap();
        let committed = Committed {
            lanes: [("c0".to_owned(), vec![1])].into(),
            ..Committed::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let lines = [&b"{\"delete\":{\"_id\":\""[..], &[b'1'; 10 << 10], b"\"}}\n"].concat();
        for place in 0..100 {
            let cause = Cause {
                group: "c0".to_owned(),
                kind: if place % 10 == 0 { "stays" } else { "goes" }.to_owned(),
                place,
                ..Cause::default()
            };
            runtime.block_on(letters.put(cause, "logs", &lines)).unwrap();
        }
        let of_kind = |kind: &str| LetterFilter {
            kind: Some(kind.to_owned()),
            ..LetterFilter::default()
        };
        let gone = letters.pick(&of_kind("goes"), &committed).unwrap();
        letters
            .change(|catalog| {
                let gone = gone.iter();
                gone.for_each(|one| catalog.remove(one.id, one.at, one.bytes));
            })
            .unwrap();
        let before = letters.bytes();
        letters.tidy_within(&letters.work.lock(), Duration::ZERO);
        assert!(!letters.is_tidy());
        while letters.tidy_on() {}
        let began = std::time::Instant::now();
        while letters.bytes() > before / 3 {
            assert!(began.elapsed() < Duration::from_secs(30), "{}", letters.bytes());
            std::thread::yield_now();
        }
        assert!(letters.is_tidy());
        assert_eq!(letters.count(&of_kind("stays"), &committed).unwrap().0, 10);
        letters.close();
    }
}
