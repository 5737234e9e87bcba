//! Keeps the state that outlives the process: `path.data/rights/known.json`, replaced as a whole and seldom,
//! and the key that identities are hashed with, in a file of its own. Neither file contains a secret, and
//! testing a guessed secret takes both.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use bulk::Ops;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use wire::guard::{self, Work};

use super::identity::{ClientIdentity, HashKey};
use super::memory::{KnownClient, Memory, OpenCluster, Remembered};
use super::{Clock, Rights};
use crate::fingerprint::Fingerprint;
use crate::replace::{create_private_folder, replace};

#[derive(Serialize, Deserialize)]
struct File {
    version: u32,
    clusters: BTreeMap<Arc<str>, OfCluster>,
}

/// The state of one cluster, as it is kept. Times are milliseconds since 1970.
#[derive(Default, Serialize, Deserialize)]
struct OfCluster {
    #[serde(skip_serializing_if = "Option::is_none")]
    open: Option<i64>,
    /// The UUID of the cluster that does not authenticate its clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    open_uuid: Option<Box<str>>,
    clients: Vec<Client>,
}

#[derive(Serialize, Deserialize)]
struct Client {
    /// The identity in hexadecimal digits.
    identity: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<Fingerprint>,
    at: i64,
    /// When each operation was last allowed, by written name and operation.
    may: BTreeMap<Box<str>, BTreeMap<String, i64>>,
}

/// The memories of clusters, by their names.
type Memories = BTreeMap<Arc<str>, Memory>;

/// Writes the rights, on a thread of its own.
#[derive(Debug)]
pub(super) struct Keeper {
    signal: SaveSignal,
    thread: Mutex<Option<JoinHandle<Option<()>>>>,
}

/// Tells the keeper that there is something new.
#[derive(Clone, Debug)]
#[allow(
    clippy::disallowed_types,
    reason = "only the keeper waits, on a thread of its own"
)]
pub(super) struct SaveSignal(Arc<(Mutex<Signalled>, parking_lot::Condvar)>);

#[derive(Debug, Default)]
struct Signalled {
    news: bool,
    closing: bool,
}

/// Returns the key and the memories, as earlier processes left them; a new key and nothing in a new folder.
pub(super) fn open(folder: &Path) -> io::Result<(HashKey, Memories)> {
    create_private_folder(folder)?;
    let at = folder.join(KEY_FILE);
    let found = match fs::read(&at) {
        Ok(bytes) => <[u8; HashKey::BYTES]>::try_from(bytes).ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let Some(bytes) = found else {
        let key = HashKey::new();
        replace(&at, key.bytes())?;
        return Ok((key, Memories::new()));
    };
    let file = match fs::read(folder.join(KNOWN_FILE)) {
        Ok(text) => serde_json::from_slice::<File>(&text).ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let file = file.filter(|file| file.version == VERSION);
    let clusters = file.map(|file| file.clusters).unwrap_or_default();
    let since = now_ms();
    let memories = clusters
        .into_iter()
        .map(|(cluster, kept)| (cluster, kept.memory(since)));
    Ok((HashKey::of(bytes), memories.collect()))
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

fn write(folder: &Path, rights: &Rights, clock: Clock) -> io::Result<()> {
    // Times are stored as wall-clock time: `shift` converts them, also those before the clock's start.
    let shift = now_ms() - clock.now();
    let all: Vec<_> = rights.clusters().values().cloned().collect();
    let clusters = all.iter().map(|rights| {
        let of = OfCluster::of(&rights.memory(), clock.now(), shift);
        (Arc::clone(rights.cluster()), of)
    });
    let file = File {
        version: VERSION,
        clusters: clusters.collect(),
    };
    replace(&folder.join(KNOWN_FILE), &serde_json::to_vec(&file)?)
}

// === impl OfCluster ===

impl OfCluster {
    fn of(memory: &Memory, now: i64, shift: i64) -> Self {
        let clients = memory.lasting(now).map(|(identity, known)| {
            let may = known.grants.iter().filter_map(|(name, said)| {
                let yes = Ops::ALL.into_iter().filter_map(|op| match said[op as usize] {
                    Remembered::Yes(at) => Some((op.as_str().to_owned(), at + shift)),
                    _ => None,
                });
                let yes: BTreeMap<String, i64> = yes.collect();
                (!yes.is_empty()).then(|| (name.clone(), yes))
            });
            Client {
                identity: format!("{:032x}", identity.0),
                user: known.user,
                at: known.at + shift,
                may: may.collect(),
            }
        });
        Self {
            open: memory.open.as_ref().map(|open| open.at + shift),
            open_uuid: memory.open.as_ref().map(|open| open.uuid.clone()),
            clients: clients.collect(),
        }
    }

    /// Returns the memory, with times as they are at the beginning of a process, which begins at `since`. An
    /// entry from a later time, by a clock that was set back, says nothing.
    fn memory(self, since: i64) -> Memory {
        let mut memory = Memory::default();
        let before = |at: i64| Some(at - since).filter(|at| *at <= 0);
        let open = self.open.and_then(before).zip(self.open_uuid);
        memory.open = open.map(|(at, uuid)| OpenCluster {
            at: at.min(-STALE_MS),
            uuid,
            unbroken: false,
        });
        for client in self.clients {
            let identity = u128::from_str_radix(&client.identity, 16)
                .ok()
                .map(ClientIdentity);
            let (Some(identity), Some(at)) = (identity, before(client.at)) else {
                continue;
            };
            let grants = client.may.into_iter().map(|(name, yes)| {
                let said = Ops::ALL.map(|op| match yes.get(op.as_str()).copied().and_then(before) {
                    Some(at) => Remembered::Yes(at.min(-STALE_MS)),
                    None => Remembered::Nothing,
                });
                (name, said)
            });
            let known = KnownClient {
                user: client.user,
                at: at.min(-STALE_MS),
                grants: grants.collect(),
            };
            memory.restore(identity, known);
        }
        memory
    }
}

// === impl Keeper ===

impl Keeper {
    pub(super) fn start(folder: &Path, rights: Weak<Rights>, clock: Clock) -> io::Result<Self> {
        let signal = SaveSignal(Arc::default());
        let (signalled, folder) = (signal.clone(), folder.to_owned());
        let thread = guard::restarted_thread("rights", Work::Housekeeping, move || {
            keep(&signalled, &folder, &rights, clock);
            true
        })?;
        Ok(Self {
            signal,
            thread: Mutex::new(Some(thread)),
        })
    }

    pub(super) fn signal(&self) -> SaveSignal {
        self.signal.clone()
    }

    /// Writes the last changes, and ends the thread.
    pub(super) fn close(&self) {
        self.signal.change(|signalled| signalled.closing = true);
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

fn keep(signal: &SaveSignal, folder: &Path, rights: &Weak<Rights>, clock: Clock) {
    loop {
        let closing = signal.wait();
        let Some(rights) = rights.upgrade() else { return };
        if let Err(error) = write(folder, &rights, clock) {
            let folder = folder.display();
            wire::rationed!(tracing::warn, %folder, %error, "the remembered rights to write could not be saved");
        }
        drop(rights);
        if closing || signal.pause() {
            return;
        }
    }
}

// === impl SaveSignal ===

impl SaveSignal {
    pub(super) fn save_soon(&self) {
        self.change(|signalled| signalled.news = true);
    }

    fn change(&self, change: impl FnOnce(&mut Signalled)) {
        let (signalled, told) = &*self.0;
        change(&mut signalled.lock());
        told.notify_all();
    }

    /// Waits for something new; returns whether the keeper is closing.
    fn wait(&self) -> bool {
        let (signalled, told) = &*self.0;
        let mut signalled = signalled.lock();
        told.wait_while(&mut signalled, |signalled| !signalled.news && !signalled.closing);
        signalled.news = false;
        signalled.closing
    }

    /// Waits before the next write; returns whether the keeper is to end, with nothing new meanwhile.
    fn pause(&self) -> bool {
        let (signalled, told) = &*self.0;
        let mut signalled = signalled.lock();
        told.wait_while_for(&mut signalled, |signalled| !signalled.closing, BETWEEN_WRITES);
        signalled.closing && !signalled.news
    }
}

const KEY_FILE: &str = "key";
const KNOWN_FILE: &str = "known.json";
const VERSION: u32 = 1;
const BETWEEN_WRITES: Duration = Duration::from_secs(5);
/// An answer to an earlier process counts as at least this old, so that the question is asked again at once.
const STALE_MS: i64 = super::memory::FRESH.as_millis() as i64;

#[cfg(test)]
mod tests {
    use bulk::{Op, Writes};

    use super::*;

    #[test]
    fn what_is_kept_counts_for_the_time_in_which_nobody_can_be_asked_and_no_other() {
        let mut memory = Memory::default();
        let client = ClientIdentity(7);
        memory.let_in(client, None, 1000);
        memory.note(client, "logs", Op::Index, true, 1000);
        memory.note(client, "logs", Op::Delete, false, 1000);
        let kept = OfCluster::of(&memory, 2000, 500_000);
        let text = serde_json::to_string(&kept).unwrap();
        let back = |since: i64| serde_json::from_str::<OfCluster>(&text).unwrap().memory(since);
        let index = [Writes {
            name: "logs".into(),
            ops: [Op::Index].into_iter().collect(),
        }];
        let delete = [Writes {
            name: "logs".into(),
            ops: [Op::Delete].into_iter().collect(),
        }];
        let memory = back(502_000);
        assert!(memory.fresh(client, 0).is_none(), "it is asked again at once");
        assert!(memory.allowed_while_away(client, &index, 0));
        assert!(!memory.allowed_while_away(client, &delete, 0));
        assert!(!back(501_000 + 3_600_000).allowed_while_away(client, &index, 0));
        assert!(
            !back(400_000).allowed_while_away(client, &index, 0),
            "by a clock that was set back"
        );
    }

    #[test]
    fn the_key_stays_and_is_the_gateways_own() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("rights");
        let (key, memories) = open(&folder).unwrap();
        assert!(memories.is_empty());
        assert_eq!(open(&folder).unwrap().0.bytes(), key.bytes());
        let mode = fs::metadata(folder.join(KEY_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(folder.join(KEY_FILE), "short").unwrap();
        assert_ne!(open(&folder).unwrap().0.bytes(), key.bytes());
    }
}
