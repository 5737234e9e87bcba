//! Repeated requests: one that has the `Idempotency-Key` of another is answered as that was, and written once.
//!
//! The key lies in the record of its request ([`Keyed`] in `accept::Params`), so there is no moment in which the one is
//! durable and the other is not. Since records go once they are delivered, keys are also kept in a small log of their own
//! ([`kept`]), for as long as they count; what that does not have yet at the end of a process is in the last records of the
//! queue. An answer is not kept: the repeated request has the same body, and the ids that were made for it follow from the
//! name and the moment of the mint that made them, which are kept with the key.

mod fingerprint;
mod kept;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bulk::IdMint;
use log::{AppendError, Log, Options, Receipt};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::config;
pub(crate) use fingerprint::{HEADER, Print, digest_of, key_of};
use kept::Kept;

/// What a record says of the key that its request had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Keyed {
    /// Of the key and of who sent it.
    pub(crate) key: Print,
    /// Of path, parameters and body.
    pub(crate) digest: Print,
    /// Names the mint that made its ids.
    pub(crate) seed: u64,
    /// When it was claimed, ms since 1970: the mint's moment too.
    pub(crate) ms: u64,
    /// What its answer said it took, ms.
    pub(crate) took: u64,
}

/// A request that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) keyed: Keyed,
    /// Where its record is.
    pub(crate) position: u64,
}

/// The keys of one queue.
pub(crate) struct Keys {
    window: Duration,
    keys_max: usize,
    known: Mutex<Known>,
    kept: Kept,
    /// The place in the queue's log up to which a kept record has told all keys.
    told_up_to: AtomicU64,
}

#[derive(Default)]
struct Known {
    by_key: HashMap<Print, State>,
    /// In the order in which they were accepted, more or less: the oldest are forgotten first.
    order: VecDeque<(u64, Print)>,
    /// How many claims began at an end of the queue's log and are not kept durably yet: what they write lies behind.
    begun: BTreeMap<u64, usize>,
}

enum State {
    /// Somebody does it now; the other end is dropped when it is decided.
    UnderWay(Print, watch::Receiver<()>),
    Done(Accepted),
}

/// What a key comes to.
pub(crate) enum Claimed {
    /// Nobody had it: do it, and settle.
    First(Claim),
    /// This was accepted under it.
    Again(Accepted),
    /// The key was used for another request.
    Other,
    /// The same request is under way, and has been for longer than one waits.
    UnderWay,
    /// No more keys can be remembered until some are old enough to be forgotten.
    Full,
}

/// The right to write what a key is for. Dropping it gives the key back.
pub(crate) struct Claim {
    keys: Arc<Keys>,
    keyed: Keyed,
    begun: u64,
    settled: bool,
    _told: watch::Sender<()>,
}

// === impl Keyed ===

impl Keyed {
    /// Makes the ids of the request's documents: always the same ones.
    pub(crate) fn mint(&self) -> IdMint {
        let mut mint = IdMint::new(self.seed);
        mint.tick(self.ms);
        mint
    }
}

// === impl Keys ===

impl Keys {
    /// Opens the keys of a queue, or makes them, and reads what the queue's log has of them beyond.
    pub(crate) fn open(
        folder: &Path,
        settings: &config::Idempotency,
        options: Options,
        queue: &Log,
    ) -> Result<Arc<Self>, String> {
        let end = queue.status().end;
        let (kept, found) = Kept::open(folder, settings, options)?;
        let mut keys = Self {
            window: settings.window,
            keys_max: settings.keys_max,
            known: Mutex::default(),
            kept,
            told_up_to: AtomicU64::new(end),
        };
        let known = keys.known.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Without `fsync: always` a power cut may have taken the end of the queue's log: what lay there was not written.
        let there = found
            .accepted
            .into_iter()
            .filter(|accepted| accepted.position < end);
        for accepted in there {
            known.put(accepted);
        }
        if let Some(from) = found.told_up_to {
            for accepted in kept::in_queue(queue, from).map_err(|error| error.to_string())? {
                if known.put(accepted) {
                    // Only the line that follows all of them says that none is missing.
                    keys.kept.put(Some(accepted), from, |_| ());
                }
            }
        }
        known.forget(now_ms().saturating_sub(millis(settings.window)));
        keys.kept.put(None, end, |_| ());
        Ok(Arc::new(keys))
    }

    /// Claims a key for a request. `end` is the end of the queue's log now, or an earlier one. Waits for a while if the
    /// same request is under way.
    pub(crate) async fn claim(self: &Arc<Self>, key: Print, digest: Print, end: u64) -> Claimed {
        let give_up = tokio::time::Instant::now() + WAIT_MAX;
        loop {
            let mut decided = match self.look(key, digest, end) {
                Ok(claimed) => return claimed,
                Err(under_way) => under_way,
            };
            // An error says what is waited for: whoever did it has decided.
            if tokio::time::timeout_at(give_up, decided.changed()).await.is_err() {
                return Claimed::UnderWay;
            }
        }
    }

    fn look(self: &Arc<Self>, key: Print, digest: Print, end: u64) -> Result<Claimed, watch::Receiver<()>> {
        let now = now_ms();
        let mut known = self.known();
        known.forget(now.saturating_sub(millis(self.window)));
        match known.by_key.get(&key) {
            Some(State::Done(accepted)) if accepted.keyed.digest == digest => {
                return Ok(Claimed::Again(*accepted));
            }
            Some(State::UnderWay(theirs, decided)) if *theirs == digest => return Err(decided.clone()),
            Some(_) => return Ok(Claimed::Other),
            None if known.by_key.len() >= self.keys_max => return Ok(Claimed::Full),
            None => {}
        }
        let (told, decided) = watch::channel(());
        known.by_key.insert(key, State::UnderWay(digest, decided));
        *known.begun.entry(end).or_default() += 1;
        Ok(Claimed::First(Claim {
            keys: Arc::clone(self),
            keyed: Keyed {
                key,
                digest,
                seed: fastrand::u64(..),
                ms: now,
                took: 0,
            },
            begun: end,
            settled: false,
            _told: told,
        }))
    }

    /// The queue's log has come to this end by a request without a key: notes it now and then, so that the next start has
    /// little to look through.
    pub(crate) fn passed(&self, end: u64) {
        let told = self.told_up_to.load(Ordering::Relaxed);
        if end.saturating_sub(told) < NOTED_EVERY_BYTES || !self.known().begun.is_empty() {
            return;
        }
        let mine = self
            .told_up_to
            .compare_exchange(told, end, Ordering::Relaxed, Ordering::Relaxed);
        if mine.is_ok() {
            self.kept.put(None, end, |_| ());
        }
    }

    /// How many are remembered.
    pub(crate) fn count(&self) -> usize {
        self.known().by_key.len()
    }

    /// Ends it: all are durable.
    pub(crate) fn close(&self) {
        self.kept.close();
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}

// === impl Known ===

impl Known {
    /// Remembers what was accepted; false if it is known.
    fn put(&mut self, accepted: Accepted) -> bool {
        let key = accepted.keyed.key;
        if let Some(State::Done(known)) = self.by_key.get(&key)
            && known.position >= accepted.position
        {
            return false;
        }
        self.by_key.insert(key, State::Done(accepted));
        self.order.push_back((accepted.keyed.ms, key));
        true
    }

    /// Forgets what was accepted before.
    fn forget(&mut self, before_ms: u64) {
        while let Some(&(ms, key)) = self.order.front()
            && ms < before_ms
        {
            self.order.pop_front();
            // The key may have been used anew since.
            if matches!(self.by_key.get(&key), Some(State::Done(accepted)) if accepted.keyed.ms == ms) {
                self.by_key.remove(&key);
            }
        }
    }

    fn leave(&mut self, begun: u64) {
        if let Some(count) = self.begun.get_mut(&begun) {
            *count -= 1;
            if *count == 0 {
                self.begun.remove(&begun);
            }
        }
    }
}

// === impl Claim ===

impl Claim {
    /// What the record of the request is to say.
    pub(crate) fn keyed(&self) -> Keyed {
        self.keyed
    }

    /// The request was appended, or not. Called where the log says so, whether anybody waits for the answer or not.
    pub(crate) fn settle(mut self, keyed: Keyed, result: &Result<Receipt, AppendError>) {
        let Ok(receipt) = result else { return };
        let accepted = Accepted {
            keyed,
            position: receipt.position,
        };
        let told_up_to = {
            let mut known = self.keys.known();
            known.put(accepted);
            known.begun.keys().next().copied().unwrap_or(self.begun)
        };
        self.settled = true;
        let (keys, begun) = (Arc::clone(&self.keys), self.begun);
        self.keys.told_up_to.fetch_max(told_up_to, Ordering::Relaxed);
        self.keys.kept.put(Some(accepted), told_up_to, move |kept| {
            // If it is not kept, the next start looks for it in the queue.
            if kept {
                keys.known().leave(begun);
            }
        });
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        let mut known = self.keys.known();
        known.by_key.remove(&self.keyed.key);
        known.leave(self.begun);
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, millis)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Segments of a queue with keys stay so much longer than they are needed: a key is durable by itself long before.
pub(crate) const SEGMENTS_STAY: Duration = Duration::from_secs(10);
/// So long a repeated request waits for the first one.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// A start looks through so much of the queue's log at most, but for what was under way.
const NOTED_EVERY_BYTES: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use log::RealDisk;

    use super::fingerprint::print_of;
    use super::*;
    use crate::accept::Params;

    fn settings() -> config::Idempotency {
        config::Idempotency {
            window: Duration::from_secs(60),
            keys_max: 3,
        }
    }

    struct Place {
        folder: tempfile::TempDir,
    }

    impl Place {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            Self { folder }
        }

        fn queue(&self) -> Log {
            let options = Options {
                lanes: 2,
                free_bytes_min: 0,
                ..Options::default()
            };
            Log::open(self.folder.path().join("queue"), options, RealDisk::default()).unwrap()
        }

        fn keys(&self, queue: &Log) -> Arc<Keys> {
            let options = Options {
                free_bytes_min: 0,
                ..Options::default()
            };
            Keys::open(&self.folder.path().join("keys"), &settings(), options, queue).unwrap()
        }
    }

    fn print(text: &str) -> Print {
        print_of(&[text.as_bytes()])
    }

    fn first(claimed: Claimed) -> Claim {
        match claimed {
            Claimed::First(claim) => claim,
            _ => panic!("nobody had it"),
        }
    }

    fn block<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(future)
    }

    fn claim(keys: &Arc<Keys>, queue: &Log, key: &str, digest: &str) -> Claimed {
        block(keys.claim(print(key), print(digest), queue.status().end))
    }

    /// Appends the record of a keyed request.
    fn append(queue: &Log, keyed: Keyed) -> Receipt {
        let params = Params {
            target: "/_bulk".to_owned(),
            content_type: "application/x-ndjson".to_owned(),
            minted: None,
            replay: None,
            idempotency: Some(keyed),
        };
        let mut record = queue.record(0, &serde_json::to_vec(&params).unwrap());
        record.group(1, 1, |out| out.extend_from_slice(b"{\"index\":{}}\n{}\n"));
        queue.append_blocking(record).unwrap()
    }

    fn write(keys: &Arc<Keys>, queue: &Log, key: &str) -> Accepted {
        let claim = first(claim(keys, queue, key, key));
        let keyed = claim.keyed();
        let receipt = append(queue, keyed);
        claim.settle(keyed, &Ok(receipt));
        Accepted {
            keyed,
            position: receipt.position,
        }
    }

    fn again(claimed: Claimed) -> Option<Accepted> {
        match claimed {
            Claimed::Again(accepted) => Some(accepted),
            _ => None,
        }
    }

    #[test]
    fn a_key_is_for_one_request_and_is_given_back_if_that_was_not_written() {
        let place = Place::new();
        let queue = place.queue();
        let keys = place.keys(&queue);
        drop(first(claim(&keys, &queue, "k", "body")));
        let one = first(claim(&keys, &queue, "k", "body"));
        assert!(matches!(claim(&keys, &queue, "k", "other body"), Claimed::Other));
        let keyed = one.keyed();
        one.settle(keyed, &Err(AppendError::Closed));
        let accepted = write(&keys, &queue, "k");
        assert_eq!(again(claim(&keys, &queue, "k", "k")), Some(accepted));
        assert!(matches!(claim(&keys, &queue, "k", "other body"), Claimed::Other));
        assert_eq!(
            accepted.keyed.mint().mint(),
            accepted.keyed.mint().mint(),
            "the same ids"
        );
        write(&keys, &queue, "l");
        write(&keys, &queue, "m");
        assert!(matches!(claim(&keys, &queue, "n", "n"), Claimed::Full));
    }

    #[test]
    fn a_repeat_waits_for_what_is_under_way() {
        let place = Place::new();
        let queue = place.queue();
        let keys = place.keys(&queue);
        let one = first(claim(&keys, &queue, "k", "k"));
        let (waiting, other_queue) = (Arc::clone(&keys), queue.clone());
        let waits = std::thread::spawn(move || again(claim(&waiting, &other_queue, "k", "k")));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waits.is_finished());
        let keyed = one.keyed();
        let receipt = append(&queue, keyed);
        one.settle(keyed, &Ok(receipt));
        assert_eq!(
            waits.join().unwrap().map(|accepted| accepted.position),
            Some(receipt.position)
        );
    }

    #[test]
    fn keys_outlive_the_process_wherever_it_ends() {
        let place = Place::new();
        let queue = place.queue();
        let keys = place.keys(&queue);
        let kept = write(&keys, &queue, "kept");
        // Its record is durable, and the process ends before anything else is.
        let cut = first(claim(&keys, &queue, "cut", "cut"));
        let keyed = cut.keyed();
        let position = append(&queue, keyed).position;
        let unwritten = first(claim(&keys, &queue, "unwritten", "unwritten"));
        keys.close();
        std::mem::forget((cut, unwritten));
        for _ in 0..2 {
            let keys = place.keys(&queue);
            assert_eq!(again(claim(&keys, &queue, "kept", "kept")), Some(kept));
            assert_eq!(
                again(claim(&keys, &queue, "cut", "cut")),
                Some(Accepted { keyed, position })
            );
            drop(first(claim(&keys, &queue, "unwritten", "unwritten")));
            assert_eq!(keys.count(), 2);
            keys.close();
        }
    }

    #[test]
    fn keys_are_forgotten_after_their_time_and_used_anew() {
        let mut known = Known::default();
        let accepted = |key: &str, ms, position| Accepted {
            keyed: Keyed {
                key: print(key),
                digest: print(key),
                seed: 1,
                ms,
                took: 0,
            },
            position,
        };
        assert!(known.put(accepted("a", 10, 1)) && known.put(accepted("b", 20, 2)));
        assert!(!known.put(accepted("a", 10, 1)), "known");
        known.forget(20);
        assert_eq!(known.by_key.len(), 1);
        assert!(known.put(accepted("a", 30, 3)));
        known.forget(30);
        assert_eq!((known.by_key.len(), known.order.len()), (1, 1));
        assert!(known.by_key.contains_key(&print("a")));
    }

    #[test]
    fn what_the_queue_has_lost_was_not_accepted() {
        let place = Place::new();
        let queue = place.queue();
        let keys = place.keys(&queue);
        write(&keys, &queue, "k");
        keys.close();
        queue.close();
        drop((keys, queue));
        std::fs::remove_dir_all(place.folder.path().join("queue")).unwrap();
        let queue = place.queue();
        let keys = place.keys(&queue);
        drop(first(claim(&keys, &queue, "k", "k")));
    }
}
