//! Remembers the cluster's answers, and when they came. The memory is bounded; times are those of
//! [`super::Clock`].

use std::collections::HashMap;
use std::time::Duration;

use bulk::{Op, Ops, Writes};

use super::identity::ClientIdentity;
use crate::fingerprint::Fingerprint;

/// The clients of one cluster.
#[derive(Debug, Default)]
pub(super) struct Memory {
    clients: HashMap<ClientIdentity, KnownClient>,
    /// The users whom the cluster has named for credentials, whatever else was shown with them, and when.
    accounts: HashMap<ClientIdentity, (Option<Fingerprint>, i64)>,
    /// The number of index names that clients have grants for, all together.
    names: usize,
    /// The cluster's last word, if it asks nobody who they are.
    pub(super) open: Option<OpenCluster>,
}

/// A cluster that asks nobody who they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OpenCluster {
    /// When the cluster said so.
    pub(super) at: i64,
    /// Which cluster said so: another may be at its address since.
    pub(super) uuid: Box<str>,
    /// Whether the cluster has been there all the time: security comes with a start of its nodes.
    pub(super) unbroken: bool,
}

/// A client that the cluster let in.
#[derive(Debug)]
pub(super) struct KnownClient {
    /// The user that the client is, as the cluster says.
    pub(super) user: Option<Fingerprint>,
    /// When the client was last let in.
    pub(super) at: i64,
    pub(super) grants: HashMap<Box<str>, [Remembered; Ops::ALL.len()]>,
}

/// The cluster's last word on an operation, and when it was said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Remembered {
    #[default]
    Nothing,
    Yes(i64),
    No(i64),
}

/// The verdict of the memory on everything that a request does.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Judged {
    /// The client may do all of it.
    Allowed,
    /// The client may not do some of it.
    Denied,
    /// These writes are to be asked about.
    Unknown(Vec<Writes>),
}

// === impl Memory ===

impl Memory {
    /// Returns the record that this cluster does not authenticate its clients, if the record is younger than
    /// `within`.
    pub(super) fn open(&self, uuid: &str, now: i64, within: Duration) -> Option<&OpenCluster> {
        let open = self.open.as_ref();
        open.filter(|open| *open.uuid == *uuid && is_within(open.at, now, within))
    }

    /// Records that no node could be reached: the cluster may come back as another.
    pub(super) fn broken(&mut self) {
        if let Some(open) = &mut self.open {
            open.unbroken = false;
        }
    }

    /// Returns a client that was let in so lately that nobody is asked about it.
    pub(super) fn fresh(&self, client: ClientIdentity, now: i64) -> Option<&KnownClient> {
        self.known(client).filter(|known| is_within(known.at, now, FRESH))
    }

    /// Returns a client that was let in lately enough for a time in which nobody can be asked.
    pub(super) fn while_away(&self, client: ClientIdentity, now: i64) -> Option<&KnownClient> {
        self.known(client)
            .filter(|known| is_within(known.at, now, WHILE_AWAY))
    }

    fn known(&self, client: ClientIdentity) -> Option<&KnownClient> {
        self.clients.get(&client)
    }

    /// Records that the cluster has let a client in.
    pub(super) fn let_in(&mut self, client: ClientIdentity, user: Option<Fingerprint>, now: i64) {
        if let Some(known) = self.clients.get_mut(&client) {
            (known.user, known.at) = (user, now);
            return;
        }
        if self.clients.len() >= CLIENTS_MAX {
            self.make_room();
        }
        let known = KnownClient {
            user,
            at: now,
            grants: HashMap::new(),
        };
        self.clients.insert(client, known);
    }

    /// Records the user whom the cluster has named for credentials.
    pub(super) fn names(&mut self, account: ClientIdentity, user: Option<Fingerprint>, now: i64) {
        if self.accounts.len() >= CLIENTS_MAX && !self.accounts.contains_key(&account) {
            self.accounts.retain(|_, (_, at)| is_within(*at, now, FRESH));
            if self.accounts.len() >= CLIENTS_MAX {
                return;
            }
        }
        self.accounts.insert(account, (user, now));
    }

    /// Returns the user whom the cluster has named last for credentials; the inner `None` means that it let
    /// them in and did not say.
    pub(super) fn named(&self, account: ClientIdentity, now: i64) -> Option<Option<Fingerprint>> {
        let (user, at) = self.accounts.get(&account)?;
        is_within(*at, now, WHILE_AWAY).then_some(*user)
    }

    /// Records that the cluster has turned a client away.
    pub(super) fn turned_away(&mut self, client: ClientIdentity) {
        if let Some(known) = self.clients.remove(&client) {
            self.names -= known.grants.len();
        }
    }

    /// Judges all these writes by the answers that are remembered.
    pub(super) fn judge(&self, client: ClientIdentity, writes: &[Writes], now: i64) -> Judged {
        let mut unknown = Vec::new();
        let known = self.known(client);
        for one in writes {
            let said = known.and_then(|known| known.grants.get(&one.name));
            let mut ask = Ops::default();
            for op in one.ops.iter() {
                match said.map(|said| said[op as usize]) {
                    Some(Remembered::Yes(at)) if is_within(at, now, FRESH) => {}
                    Some(Remembered::No(at)) if is_within(at, now, FRESH_NO) => return Judged::Denied,
                    _ => ask.insert(op),
                }
            }
            if ask != Ops::default() {
                let name = one.name.clone();
                unknown.push(Writes { name, ops: ask });
            }
        }
        match unknown.is_empty() {
            true => Judged::Allowed,
            false => Judged::Unknown(unknown),
        }
    }

    /// Whether all of this was allowed lately enough for a time in which nobody can be asked.
    pub(super) fn allowed_while_away(&self, client: ClientIdentity, writes: &[Writes], now: i64) -> bool {
        let Some(known) = self.while_away(client, now) else {
            return false;
        };
        writes.iter().all(|one| {
            let said = known.grants.get(&one.name);
            let yes = |op: Op| matches!(said.map(|said| said[op as usize]), Some(Remembered::Yes(at)) if is_within(at, now, WHILE_AWAY));
            one.ops.iter().all(yes)
        })
    }

    /// Records the cluster's answer about an operation of a client that it has let in.
    pub(super) fn note(&mut self, client: ClientIdentity, name: &str, op: Op, may: bool, now: i64) {
        if self.names >= NAMES_MAX {
            self.make_room();
        }
        let Some(known) = self.clients.get_mut(&client) else {
            return;
        };
        if known.grants.len() >= NAMES_OF_CLIENT_MAX && !known.grants.contains_key(name) {
            // A client that writes to more indices than that is asked about again and again.
            self.names -= known.grants.len();
            known.grants.clear();
        }
        let names = &mut self.names;
        let said = known.grants.entry(name.into()).or_insert_with(|| {
            *names += 1;
            Default::default()
        });
        said[op as usize] = if may {
            Remembered::Yes(now)
        } else {
            Remembered::No(now)
        };
    }

    /// Puts back the memory of an earlier process.
    pub(super) fn restore(&mut self, client: ClientIdentity, known: KnownClient) {
        if self.clients.len() < CLIENTS_MAX && self.names + known.grants.len() <= NAMES_MAX {
            self.names += known.grants.len();
            self.clients.insert(client, known);
        }
    }

    /// Returns the clients that would still count in a time in which nobody can be asked.
    pub(super) fn lasting(&self, now: i64) -> impl Iterator<Item = (ClientIdentity, &KnownClient)> {
        let lasting = move |known: &KnownClient| is_within(known.at, now, WHILE_AWAY);
        let clients = self.clients.iter().filter(move |(_, known)| lasting(known));
        clients.map(|(client, known)| (*client, known))
    }

    /// Forgets clients: those who are one user many times, or else the quarter that was let in first. A user
    /// can be a new client with each request, and does not have the others forgotten by that.
    fn make_room(&mut self) {
        let before = self.clients.len();
        self.forget_repeated();
        if self.clients.len() > before / 4 * 3 {
            self.forget_oldest();
        }
        self.names = self.clients.values().map(|known| known.grants.len()).sum();
    }

    /// Forgets all but the newest [`CLIENTS_OF_USER_MAX`] clients of each user.
    fn forget_repeated(&mut self) {
        let mut of_users: HashMap<Fingerprint, Vec<i64>> = HashMap::new();
        for known in self.clients.values() {
            if let Some(user) = known.user {
                of_users.entry(user).or_default().push(known.at);
            }
        }
        of_users.retain(|_, times| times.len() > CLIENTS_OF_USER_MAX);
        for times in of_users.values_mut() {
            times.sort_unstable();
        }
        self.clients.retain(|_, known| {
            let times = known.user.and_then(|user| of_users.get(&user));
            times.is_none_or(|times| known.at > times[times.len() - 1 - CLIENTS_OF_USER_MAX])
        });
    }

    fn forget_oldest(&mut self) {
        let mut times: Vec<i64> = self.clients.values().map(|known| known.at).collect();
        times.sort_unstable();
        let Some(until) = times.get(times.len() / 4).copied() else {
            return;
        };
        self.clients.retain(|_, known| known.at > until);
    }
}

pub(super) fn is_within(at: i64, now: i64, time: Duration) -> bool {
    u128::try_from(now.saturating_sub(at)).is_ok_and(|since| since < time.as_millis())
}

/// How long nobody is asked about the same again.
pub(super) const FRESH: Duration = Duration::from_secs(30);
/// How long nobody is asked again about a denied operation: a client that has been given a right wants to use
/// it.
const FRESH_NO: Duration = Duration::from_secs(5);
/// How long an answer counts while no node can be reached.
pub(super) const WHILE_AWAY: Duration = Duration::from_secs(3600);
const CLIENTS_MAX: usize = 10_000;
/// The most clients that are one user when others have to be forgotten.
const CLIENTS_OF_USER_MAX: usize = 16;
const NAMES_MAX: usize = 100_000;
const NAMES_OF_CLIENT_MAX: usize = 5_000;

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1000;

    fn writes(name: &str, ops: &[Op]) -> Writes {
        Writes {
            name: name.into(),
            ops: ops.iter().copied().collect(),
        }
    }

    #[test]
    fn what_was_said_counts_for_a_while_and_longer_while_nobody_can_be_asked() {
        let mut memory = Memory::default();
        let (client, other) = (ClientIdentity(1), ClientIdentity(2));
        let wanted = [writes("a", &[Op::Index, Op::Delete]), writes("b", &[Op::Update])];
        assert_eq!(memory.judge(client, &wanted, 0), Judged::Unknown(wanted.to_vec()));
        memory.let_in(client, None, 0);
        memory.note(client, "a", Op::Index, true, 0);
        memory.note(client, "b", Op::Update, true, 0);
        let rest = vec![writes("a", &[Op::Delete])];
        assert_eq!(memory.judge(client, &wanted, S), Judged::Unknown(rest.clone()));
        assert!(!memory.allowed_while_away(client, &rest, S));
        memory.note(client, "a", Op::Delete, true, 0);
        assert_eq!(memory.judge(client, &wanted, 29 * S), Judged::Allowed);
        assert_eq!(
            memory.judge(client, &wanted, 30 * S),
            Judged::Unknown(wanted.to_vec())
        );
        assert!(memory.fresh(client, 29 * S).is_some() && memory.fresh(client, 30 * S).is_none());
        assert!(memory.allowed_while_away(client, &wanted, 3599 * S));
        assert!(!memory.allowed_while_away(client, &wanted, 3600 * S));
        assert!(!memory.allowed_while_away(other, &wanted, S));
        memory.note(client, "a", Op::Delete, false, 31 * S);
        assert_eq!(memory.judge(client, &rest, 32 * S), Judged::Denied);
        assert_eq!(memory.judge(client, &rest, 36 * S), Judged::Unknown(rest.clone()));
        assert!(!memory.allowed_while_away(client, &rest, 32 * S));
        memory.turned_away(client);
        assert!(memory.while_away(client, 32 * S).is_none());
        assert_eq!(memory.names, 0);
    }

    #[test]
    fn there_is_an_end_to_what_is_remembered() {
        let mut memory = Memory::default();
        for n in 0..CLIENTS_MAX + 10 {
            memory.let_in(ClientIdentity(n as u128), None, n as i64);
        }
        assert!(memory.clients.len() <= CLIENTS_MAX);
        assert!(
            memory.known(ClientIdentity(0)).is_none()
                && memory.known(ClientIdentity(CLIENTS_MAX as u128)).is_some()
        );
        let last = ClientIdentity(CLIENTS_MAX as u128);
        for n in 0..NAMES_OF_CLIENT_MAX + 1 {
            memory.note(last, &n.to_string(), Op::Index, true, 0);
        }
        assert_eq!((memory.names, memory.clients[&last].grants.len()), (1, 1));
    }

    #[test]
    fn a_time_that_is_yet_to_come_does_not_count() {
        assert!(!is_within(5, 4, FRESH));
        assert!(is_within(-5, 4, FRESH));
    }
}
