//! The clients of one cluster: who they are, and who may make the writes of a request. All cores share this
//! knowledge.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bulk::Writes;
use cluster::Snapshot;
use http::HeaderMap;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Mutex as AsyncMutex;
use wire::{Outgoing, Principal};

use super::Clock;
use super::ask::{self, Caller, Failure, Permission};
use super::identity::{ClientIdentity, HashKey};
use super::kept::SaveSignal;
use super::memory::{FRESH, Judged, Memory, OpenCluster, WHILE_AWAY, is_within};
use super::senders::Pause;
use crate::answer::with_head;
use crate::error::{Fault, Rejection};
use crate::fingerprint::Fingerprint;
use crate::nodes::shows_identity;

/// The gateway's knowledge of the clients of one cluster, and the questions about them.
#[derive(Debug)]
pub(crate) struct ClusterRights {
    cluster: Arc<str>,
    key: HashKey,
    /// Distinguishes the cluster's users from those of the same names of other clusters.
    salt: u128,
    pub(super) clock: Clock,
    memory: Mutex<Memory>,
    /// Told when there is something new to be saved.
    signal: Option<SaveSignal>,
    /// Clients that are asked about now: all requests of a client wait for the question that one of them
    /// asks.
    asking: Mutex<HashMap<ClientIdentity, Arc<AsyncMutex<Last>>>>,
    /// Where the cluster says who somebody is, once that is known.
    path: Mutex<Option<&'static str>>,
    /// Until when nobody tries again, because no node could be reached.
    away_until: AtomicI64,
    /// Until when nobody is asked who the sender of an answered bulk is.
    pub(super) pause: Pause,
}

/// The failure of the last question about a client, if it failed.
#[derive(Debug, Default)]
struct Last(Option<(i64, Failure)>);

/// A client that was let in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Client {
    /// The cluster does not authenticate its clients.
    Anybody,
    /// A client that the cluster knows.
    Known(Authenticated),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Authenticated {
    identity: ClientIdentity,
    user: Option<Fingerprint>,
}

/// Why a request is not queued.
#[derive(Debug)]
pub(crate) enum Denied {
    /// The request is answered with this.
    Rejected(Rejection),
    /// The request wants writes that its client may not make: let the cluster say so.
    Pass,
}

// === impl Denied ===

impl From<Rejection> for Denied {
    fn from(rejection: Rejection) -> Self {
        Self::Rejected(rejection)
    }
}

// === impl Client ===

impl Client {
    /// Returns the user that the client is, as the cluster says.
    pub(crate) fn user(&self) -> Option<Fingerprint> {
        match self {
            Client::Known(known) => known.user,
            Client::Anybody => None,
        }
    }
}

// === impl Last ===

impl Last {
    /// Returns the failure and its time, if that was a moment ago.
    fn lately(&self, now: i64) -> Option<(i64, Failure)> {
        let lately = self
            .0
            .as_ref()
            .filter(|(at, _)| is_within(*at, now, ASKED_AGAIN_AFTER));
        lately.cloned()
    }
}

// === impl ClusterRights ===

impl ClusterRights {
    pub(super) fn new(cluster: Arc<str>, key: HashKey, clock: Clock, signal: Option<SaveSignal>) -> Self {
        Self::with(cluster, key, clock, signal, Memory::default())
    }

    pub(super) fn with(
        cluster: Arc<str>,
        key: HashKey,
        clock: Clock,
        signal: Option<SaveSignal>,
        memory: Memory,
    ) -> Self {
        Self {
            cluster,
            key,
            salt: fastrand::u128(..),
            clock,
            memory: Mutex::new(memory),
            signal,
            asking: Mutex::default(),
            path: Mutex::default(),
            away_until: AtomicI64::new(i64::MIN),
            pause: Pause::default(),
        }
    }

    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        wire::shared::touches("rights of clients");
        self.memory.lock()
    }

    /// Returns the identity of a client that shows these headers.
    pub(super) fn identity(&self, headers: &HeaderMap, snapshot: &Snapshot) -> ClientIdentity {
        let uuid = snapshot.cluster_uuid.as_deref().unwrap_or_default();
        self.key.identity(uuid, headers)
    }

    /// Returns what is known of who shows these headers, and whether that is all that can be known: the user
    /// whom the cluster has named for them not long ago, or else for the credentials among them. Nobody is
    /// asked, and nothing is allowed by it.
    pub(crate) fn sender(&self, headers: &HeaderMap, snapshot: &Snapshot) -> (Principal, bool) {
        let uuid = snapshot.cluster_uuid.as_deref().unwrap_or_default();
        let now = self.clock.now();
        if !shows_identity(headers) {
            wire::shared::touches("rights of clients");
            let is_asked = self.path.lock().is_some();
            return (
                if is_asked {
                    Principal::Unproven
                } else {
                    Principal::Anybody
                },
                true,
            );
        }
        let mut accounts = self.key.accounts(uuid, headers);
        let identity = self.key.identity(uuid, headers);
        let memory = self.memory();
        if memory.open(uuid, now, FRESH).is_some() {
            return (Principal::Anybody, true);
        }
        let known = memory.while_away(identity, now).map(|known| known.user);
        if let Some(Some(user)) = known {
            return (self.user(user), true);
        }
        let named = accounts.find_map(|account| Some((account, memory.named(account, now)?)));
        let principal = match named {
            Some((_, Some(user))) => self.user(user),
            // The cluster lets these credentials in, and does not say whose they are.
            Some((account, None)) => Principal::User(account.0 ^ self.salt),
            None if known.is_some() => Principal::User(identity.0 ^ self.salt),
            None if memory.open(uuid, now, WHILE_AWAY).is_some() => Principal::Anybody,
            None => Principal::Unproven,
        };
        (principal, known.is_some())
    }

    fn user(&self, user: Fingerprint) -> Principal {
        Principal::User(u128::from_be_bytes(user.to_bytes()) ^ self.salt)
    }

    /// Finds out who a client is, and whether the cluster accepts its credentials.
    pub(crate) async fn authenticate(&self, caller: Caller<'_>) -> Result<Client, Rejection> {
        let uuid = caller.snapshot.cluster_uuid.as_deref().unwrap_or_default();
        let identity = self.key.identity(uuid, caller.headers);
        if let Some(client) = self.remembered(identity, uuid) {
            return Ok(client);
        }
        let lock = self.lock_of(identity);
        let mut last = lock.lock().await;
        if let Some(client) = self.remembered(identity, uuid) {
            return Ok(client);
        }
        let (at, told) = match last.lately(self.clock.now()) {
            Some((at, failure)) => (at, Err(failure)),
            None => {
                let told = Box::pin(self.ask_who(caller)).await;
                (self.clock.now(), told)
            }
        };
        let now = self.clock.now();
        let client = match told {
            Ok(None) => {
                self.memory().open = Some(OpenCluster {
                    at: now,
                    uuid: uuid.into(),
                    unbroken: true,
                });
                Ok(Client::Anybody)
            }
            Ok(Some(user)) => {
                let mut memory = self.memory();
                memory.let_in(identity, user, now);
                let accounts: Vec<_> = self.key.accounts(uuid, caller.headers).collect();
                if let [account] = accounts[..] {
                    memory.names(account, user, now);
                }
                drop(memory);
                Ok(Client::Known(Authenticated { identity, user }))
            }
            Err(failure) => {
                let client = self.without_answer((identity, uuid), &failure, now);
                *last = Last(Some((at, failure)));
                client
            }
        };
        drop(last);
        self.release(identity, lock);
        self.save_soon();
        client
    }

    fn remembered(&self, identity: ClientIdentity, uuid: &str) -> Option<Client> {
        let (memory, now) = (self.memory(), self.clock.now());
        if memory.open(uuid, now, FRESH).is_some() {
            return Some(Client::Anybody);
        }
        let known = memory.fresh(identity, now)?;
        let user = known.user;
        Some(Client::Known(Authenticated { identity, user }))
    }

    /// Returns the user that a client is; the outer `None` means that the cluster asks nobody.
    async fn ask_who(&self, caller: Caller<'_>) -> Result<Option<Option<Fingerprint>>, Failure> {
        self.unless_away()?;
        let known = *self.path.lock();
        let path = match known {
            Some(path) => path,
            None => match ask::secured(caller)
                .await
                .inspect_err(|failure| self.note(failure))?
            {
                None => return Ok(None),
                Some(path) => {
                    self.memory().open = None;
                    *self.path.lock() = Some(path);
                    path
                }
            },
        };
        let user = ask::user(caller, path).await;
        user.inspect_err(|failure| self.note(failure)).map(Some)
    }

    /// Decides about a client that nobody could be asked about.
    fn without_answer(
        &self,
        (identity, uuid): (ClientIdentity, &str),
        failure: &Failure,
        now: i64,
    ) -> Result<Client, Rejection> {
        let mut memory = self.memory();
        match failure {
            Failure::TurnedAway(answer) => {
                memory.turned_away(identity);
                let (head, body) = &**answer;
                Err(with_head(head.clone(), &[], Outgoing::from(body.to_vec())).into())
            }
            Failure::Away(_) | Failure::HungUp(_) if memory.open(uuid, now, WHILE_AWAY).is_some() => {
                Ok(Client::Anybody)
            }
            // A cluster does not begin to ask while it has no time to answer, but may when it was restarted:
            // its answer to an earlier process, or from before a time in which it was away, does not count.
            Failure::Unanswered(_)
                if memory
                    .open(uuid, now, WHILE_AWAY)
                    .is_some_and(|open| open.unbroken) =>
            {
                Ok(Client::Anybody)
            }
            // A cluster that is away must not stop the queue: clients that it let in not long ago may go on.
            Failure::Away(_) if let Some(known) = memory.while_away(identity, now) => {
                let user = known.user;
                Ok(Client::Known(Authenticated { identity, user }))
            }
            Failure::Away(why) | Failure::HungUp(why) | Failure::Unanswered(why) => {
                Err(Fault::unchecked(why).into())
            }
        }
    }

    /// Finds out whether the cluster would let the client of a request make all of these writes, which are
    /// delivered with the gateway's account.
    pub(crate) async fn permit(&self, caller: Caller<'_>, writes: &[Writes]) -> Result<(), Denied> {
        let client = self.authenticate(caller).await?;
        self.authorize(client, writes, caller).await
    }

    /// Finds out whether a client may do all of this.
    async fn authorize(&self, client: Client, writes: &[Writes], caller: Caller<'_>) -> Result<(), Denied> {
        let Client::Known(Authenticated { identity, .. }) = client else {
            return Ok(());
        };
        // Nobody has looked at the request's writes.
        if writes.is_empty() {
            return Err(Denied::Pass);
        }
        if let Some(decided) = self.decided(identity, writes) {
            return decided;
        }
        let lock = self.lock_of(identity);
        let mut last = lock.lock().await;
        let decided = match self.judge(identity, writes) {
            Judged::Allowed => Ok(()),
            Judged::Denied => Err(Denied::Pass),
            Judged::Unknown(wanted) => {
                let (at, told) = match last.lately(self.clock.now()) {
                    Some((at, failure)) => (at, Err(failure)),
                    None => {
                        let told = Box::pin(self.ask_rights(caller, &wanted)).await;
                        (self.clock.now(), told)
                    }
                };
                let decided = self.conclude(identity, &wanted, &told);
                last.0 = told.err().map(|failure| (at, failure));
                decided
            }
        };
        drop(last);
        self.release(identity, lock);
        decided
    }

    fn judge(&self, identity: ClientIdentity, writes: &[Writes]) -> Judged {
        self.memory().judge(identity, writes, self.clock.now())
    }

    fn decided(&self, identity: ClientIdentity, writes: &[Writes]) -> Option<Result<(), Denied>> {
        match self.judge(identity, writes) {
            Judged::Allowed => Some(Ok(())),
            Judged::Denied => Some(Err(Denied::Pass)),
            Judged::Unknown(_) => None,
        }
    }

    async fn ask_rights(&self, caller: Caller<'_>, wanted: &[Writes]) -> Result<Vec<Permission>, Failure> {
        self.unless_away()?;
        let told = ask::rights(caller, wanted).await;
        told.inspect_err(|failure| self.note(failure))
    }

    fn conclude(
        &self,
        identity: ClientIdentity,
        wanted: &[Writes],
        told: &Result<Vec<Permission>, Failure>,
    ) -> Result<(), Denied> {
        let now = self.clock.now();
        match told {
            Ok(found) => {
                let mut memory = self.memory();
                for (name, op, may) in found {
                    memory.note(identity, name, *op, *may, now);
                }
                drop(memory);
                self.save_soon();
                let may = |one: &Writes| {
                    one.ops.iter().all(|op| {
                        let said = found.iter().find(|(name, of, _)| *name == one.name && *of == op);
                        said.is_some_and(|(.., may)| *may)
                    })
                };
                if wanted.iter().all(may) {
                    Ok(())
                } else {
                    Err(Denied::Pass)
                }
            }
            Err(Failure::TurnedAway(answer)) => {
                self.memory().turned_away(identity);
                self.save_soon();
                let (head, body) = &**answer;
                let answer = with_head(head.clone(), &[], Outgoing::from(body.to_vec()));
                Err(Denied::Rejected(answer.into()))
            }
            Err(Failure::Away(_)) if self.memory().allowed_while_away(identity, wanted, now) => Ok(()),
            Err(Failure::Away(why) | Failure::HungUp(why) | Failure::Unanswered(why)) => {
                Err(Denied::Rejected(Fault::unchecked(why).into()))
            }
        }
    }

    /// Returns the lock that lets one request at a time ask about a client.
    fn lock_of(&self, identity: ClientIdentity) -> Arc<AsyncMutex<Last>> {
        let mut asking = self.asking.lock();
        Arc::clone(asking.entry(identity).or_default())
    }

    /// Gives the lock back; the client is no longer asked about if this was the last one.
    fn release(&self, identity: ClientIdentity, lock: Arc<AsyncMutex<Last>>) {
        let mut asking = self.asking.lock();
        drop(lock);
        if asking
            .get(&identity)
            .is_some_and(|lock| Arc::strong_count(lock) == 1)
        {
            asking.remove(&identity);
        }
    }

    fn unless_away(&self) -> Result<(), Failure> {
        match self.clock.now() < self.away_until.load(Ordering::Relaxed) {
            true => Err(Failure::Away("no node could be reached a moment ago".to_owned())),
            false => Ok(()),
        }
    }

    fn note(&self, failure: &Failure) {
        if let Failure::Away(_) | Failure::HungUp(_) = failure {
            self.memory().broken();
        }
        if let Failure::Away(_) = failure {
            let until = self.clock.now() + i64::try_from(ASKED_AGAIN_AFTER.as_millis()).unwrap_or(0);
            self.away_until.store(until, Ordering::Relaxed);
        }
    }

    fn save_soon(&self) {
        if let Some(signal) = &self.signal {
            signal.save_soon();
        }
    }

    pub(super) fn cluster(&self) -> &Arc<str> {
        &self.cluster
    }
}

/// The least time before a question that nobody answered is asked again.
const ASKED_AGAIN_AFTER: std::time::Duration = std::time::Duration::from_millis(500);
