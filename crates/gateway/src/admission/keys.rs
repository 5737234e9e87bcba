//! Repeated requests: a request with the `Idempotency-Key` of another is answered as that one was, and is
//! written only once.
//!
//! The key lies in the record of its request ([`Keyed`]), so there is no moment in which one is durable and
//! the other is not. Since records go once they are delivered, keys are also kept in a
//! small log of their own ([`kept`]), for as long as they count; keys that this log does not have yet when a
//! process ends are in the last records of the queue. Answers are not kept: the repeated request has the same
//! body, and the ids that were made for it follow from the name and the moment of the mint that made them,
//! which are kept with the key.

mod fingerprint;
mod kept;
mod occurrence;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bulk::IdMint;
use log::{AppendError, Options, ReadError, Receipt};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use tokio::sync::{oneshot, watch};

use crate::clock::steady_ms;
use crate::fingerprint::Fingerprint;
use fingerprint::NamedKey;
use kept::{KeyLog, KeysError};
pub(crate) use occurrence::{KeyedRequest, Occurrence, is_given};

/// The key of a record's request, with everything that is needed to repeat its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Keyed {
    /// The print of the key and of its sender.
    pub(crate) key: Fingerprint,
    /// The print of the sender; not in records of earlier versions.
    #[serde(default)]
    pub(crate) client: Fingerprint,
    /// The print of path, parameters and body.
    pub(crate) digest: Fingerprint,
    /// The name of the mint that made the request's ids.
    pub(crate) seed: u64,
    /// When the key was claimed, in ms since 1970: the mint's moment, too.
    pub(crate) ms: u64,
    /// How many ms the answer said it took.
    pub(crate) took: u64,
}

/// A request that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) keyed: Keyed,
    /// The place of the request's record.
    pub(crate) position: u64,
}

/// The keys of one queue.
pub(crate) struct Keys {
    window: Duration,
    keys_max: usize,
    known: Mutex<RememberedKeys>,
    kept: KeyLog,
    /// Keys that their own log would not take (for example because the disk was full): the log is asked again
    /// with each key that comes after them.
    unsaved: Mutex<Vec<UnsavedKey>>,
    /// The place in the queue's log up to which a kept record has reported all keys.
    told_up_to: AtomicU64,
}

/// A key that so far is only in its record, and in memory.
#[derive(Clone, Copy)]
struct UnsavedKey {
    accepted: Accepted,
    /// The end of the queue's log when the key was claimed, or an earlier end.
    begun: u64,
}

#[derive(Default)]
struct RememberedKeys {
    by_key: HashMap<Fingerprint, KeyState>,
    /// How many keys each client has.
    by_client: HashMap<Fingerprint, usize>,
    /// When each request was accepted, and the place of its record; roughly in that order: the oldest are
    /// forgotten first.
    order: VecDeque<(u64, Fingerprint, u64)>,
    /// How many claims began at an end of the queue's log and are not kept durably yet: their records lie
    /// behind that end.
    begun: BTreeMap<u64, usize>,
}

enum KeyState {
    /// A request with the key is under way; its sender is dropped when that is decided.
    UnderWay(Fingerprint, watch::Receiver<()>),
    Done(Accepted),
}

/// The result of claiming a key.
pub(crate) enum Claimed {
    /// Nobody had the key: execute the request, and settle the claim.
    First(Claim),
    /// This request was accepted under the key.
    Again(Accepted),
    /// The key was used for another request.
    Other,
    /// The same request is under way, and has been for longer than others wait for it.
    UnderWay,
    /// No more keys can be remembered until some are old enough to be forgotten.
    Full,
    /// No more keys of this client can be remembered: it has as many as are left for all others.
    Share,
}

/// The right to write the request that a key is for. Dropping the claim gives the key back.
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
    /// Opens the keys of a queue, or makes them, and adds those that only the queue's log has. `end` is the
    /// end of that log; `in_queue` reads the keys of its records from a place on.
    pub(crate) fn open(
        folder: &Path,
        settings: &config::Idempotency,
        options: Options,
        end: u64,
        in_queue: impl FnOnce(u64) -> Result<Vec<Accepted>, ReadError>,
    ) -> Result<Arc<Self>, KeysError> {
        let (kept, found) = KeyLog::open(folder, settings, options, end)?;
        let mut known = RememberedKeys::default();
        // Without `fsync: always`, a power cut may have taken the end of the queue's log: requests that lay
        // there were not written.
        let there = found
            .accepted
            .into_iter()
            .filter(|accepted| accepted.position < end);
        // A key from after now is from before the clock was set back: its window begins now, and not later.
        let now = steady_ms();
        for accepted in there {
            known.put_at(accepted, accepted.keyed.ms.min(now));
        }
        let from = found.told_up_to;
        let mut only_in_queue = Vec::new();
        for accepted in in_queue(from)? {
            if known.put_at(accepted, accepted.keyed.ms.min(now)) {
                // Until they are kept, no line may say that none is missing.
                *known.begun.entry(from).or_default() += 1;
                only_in_queue.push(UnsavedKey {
                    accepted,
                    begun: from,
                });
            }
        }
        known.forget(now.saturating_sub(millis(settings.window)));
        let told_up_to = if only_in_queue.is_empty() { end } else { from };
        let keys = Arc::new(Self {
            window: settings.window,
            keys_max: settings.keys_max,
            known: Mutex::new(known),
            kept,
            unsaved: Mutex::default(),
            told_up_to: AtomicU64::new(told_up_to),
        });
        if only_in_queue.is_empty() {
            keys.kept.put(None, end, |_| ());
        }
        for one in only_in_queue {
            keys.keep(one, from, None);
        }
        Ok(keys)
    }

    /// Claims a key for a request. `end` is the end of the queue's log now, or an earlier end. Waits for a
    /// while if the same request is under way.
    pub(crate) async fn claim(self: &Arc<Self>, named: NamedKey, digest: Fingerprint, end: u64) -> Claimed {
        let give_up = tokio::time::Instant::now() + WAIT_MAX;
        loop {
            let mut decided = match self.look(named, digest, end) {
                Ok(claimed) => return claimed,
                Err(under_way) => under_way,
            };
            // An error means that the wait is over: the other request is decided.
            if tokio::time::timeout_at(give_up, decided.changed()).await.is_err() {
                return Claimed::UnderWay;
            }
        }
    }

    fn look(
        self: &Arc<Self>,
        NamedKey { key, client }: NamedKey,
        digest: Fingerprint,
        end: u64,
    ) -> Result<Claimed, watch::Receiver<()>> {
        let now = steady_ms();
        let mut known = self.known();
        known.forget(now.saturating_sub(millis(self.window)));
        match known.by_key.get(&key) {
            Some(KeyState::Done(accepted)) if accepted.keyed.digest == digest => {
                return Ok(Claimed::Again(*accepted));
            }
            Some(KeyState::UnderWay(theirs, decided)) if *theirs == digest => return Err(decided.clone()),
            Some(_) => return Ok(Claimed::Other),
            None => match self.keys_max.saturating_sub(known.by_key.len()) {
                0 => return Ok(Claimed::Full),
                // So there is always room for a client that comes later, however many keys others have.
                free if known.of_client(client) > free => return Ok(Claimed::Share),
                _ => {}
            },
        }
        let (told, decided) = watch::channel(());
        known.by_key.insert(key, KeyState::UnderWay(digest, decided));
        *known.by_client.entry(client).or_default() += 1;
        *known.begun.entry(end).or_default() += 1;
        Ok(Claimed::First(Claim {
            keys: Arc::clone(self),
            keyed: Keyed {
                key,
                client,
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

    /// Notes now and then that the queue's log has come to this end by a request without a key, so that the
    /// next start has little to look through.
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

    /// Keeps a key durably by itself; `decided` is dropped when that has succeeded or failed.
    fn keep(self: &Arc<Self>, one: UnsavedKey, told_up_to: u64, decided: Option<oneshot::Sender<()>>) {
        let keys = Arc::clone(self);
        self.kept.put(Some(one.accepted), told_up_to, move |kept| {
            let _decided = decided;
            if kept {
                keys.known().leave(one.begun);
            } else {
                // A start that comes first looks for the key in the queue.
                keys.unsaved().push(one);
            }
        });
    }

    /// Returns some of the keys that are to be kept once more; keys that no longer count are let go.
    fn some_unkept(&self) -> Vec<UnsavedKey> {
        let mut unsaved = self.unsaved();
        let some = unsaved.len().min(KEPT_AGAIN_TOGETHER);
        let mut some: Vec<UnsavedKey> = unsaved.drain(..some).collect();
        drop(unsaved);
        let before_ms = steady_ms().saturating_sub(millis(self.window));
        some.retain(|one| {
            let counts = one.accepted.keyed.ms >= before_ms;
            if !counts {
                self.known().leave(one.begun);
            }
            counts
        });
        some
    }

    fn unsaved(&self) -> MutexGuard<'_, Vec<UnsavedKey>> {
        self.unsaved.lock()
    }

    /// Returns how many keys are remembered.
    pub(crate) fn count(&self) -> usize {
        self.known().by_key.len()
    }

    /// Closes the keys: all are durable then, in their own log or, if that has no room, in the queue's.
    pub(crate) fn close(self: &Arc<Self>) {
        let unsaved = std::mem::take(&mut *self.unsaved());
        let told_up_to = self.known().begun.keys().next().copied();
        for one in unsaved {
            self.keep(one, told_up_to.unwrap_or(one.begun), None);
        }
        self.kept.close();
    }

    fn known(&self) -> MutexGuard<'_, RememberedKeys> {
        self.known.lock()
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}

// === impl RememberedKeys ===

impl RememberedKeys {
    /// Remembers an accepted request; `false` if it is known.
    fn put(&mut self, accepted: Accepted) -> bool {
        self.put_at(accepted, accepted.keyed.ms)
    }

    /// Remembers an accepted request, with when it was accepted; `false` if it is known.
    fn put_at(&mut self, accepted: Accepted, ms: u64) -> bool {
        let key = accepted.keyed.key;
        if let Some(KeyState::Done(known)) = self.by_key.get(&key)
            && known.position >= accepted.position
        {
            return false;
        }
        if self.by_key.insert(key, KeyState::Done(accepted)).is_none() {
            *self.by_client.entry(accepted.keyed.client).or_default() += 1;
        }
        self.order.push_back((ms, key, accepted.position));
        true
    }

    /// Forgets requests that were accepted before this time.
    fn forget(&mut self, before_ms: u64) {
        while let Some(&(ms, key, position)) = self.order.front()
            && ms < before_ms
        {
            self.order.pop_front();
            // The key may have been used anew since.
            if let Some(KeyState::Done(accepted)) = self.by_key.get(&key)
                && accepted.position == position
            {
                let client = accepted.keyed.client;
                self.remove(key, client);
            }
        }
    }

    /// Returns how many keys a client has.
    fn of_client(&self, client: Fingerprint) -> usize {
        self.by_client.get(&client).copied().unwrap_or_default()
    }

    fn remove(&mut self, key: Fingerprint, client: Fingerprint) {
        if self.by_key.remove(&key).is_none() {
            return;
        }
        if let Some(count) = self.by_client.get_mut(&client) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.by_client.remove(&client);
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
    /// Returns the entry for the record of the request.
    pub(crate) fn keyed(&self) -> Keyed {
        self.keyed
    }

    /// Records whether the request was appended. Called where the log reports it, whether or not anybody
    /// waits for the answer. `decided` is dropped once the key lies in its own log, too, or cannot: a request
    /// that is answered before has its key in one place only, where a damaged byte is enough to lose it.
    pub(crate) fn settle(
        mut self,
        keyed: Keyed,
        result: &Result<Receipt, AppendError>,
        decided: oneshot::Sender<()>,
    ) {
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
        self.keys.told_up_to.fetch_max(told_up_to, Ordering::Relaxed);
        let mine = UnsavedKey {
            accepted,
            begun: self.begun,
        };
        for one in self.keys.some_unkept() {
            self.keys.keep(one, told_up_to, None);
        }
        self.keys.keep(mine, told_up_to, Some(decided));
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        let mut known = self.keys.known();
        known.remove(self.keyed.key, self.keyed.client);
        known.leave(self.begun);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// How much longer segments of a queue with keys stay than they are needed: a key is durable by itself long
/// before.
pub(crate) const SEGMENTS_STAY: Duration = Duration::from_secs(10);
/// How long a repeated request waits for the first one.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// The most keys that are asked to be kept again with each request, while their log takes nothing.
const KEPT_AGAIN_TOGETHER: usize = 64;
/// The most bytes of the queue's log that a start looks through, except for requests that were under way.
const NOTED_EVERY_BYTES: u64 = 64 << 20;

#[cfg(test)]
mod tests;
