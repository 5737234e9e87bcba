//! The checker: compares what clients were told with what is in a cluster and among its dead letters, and
//! returns everything that is not as promised. It is pure, so that tests can plant what it has to find.
//!
//! The order of writes to one document is the order of their positions in the queue, which clients are told.
//! If a client got no answer, nobody knows the position. Then it is known only that a write that was answered
//! before another was sent comes before it, and that a dead gateway accepts nothing. A queue in Kafka has no
//! positions that could be compared, and may have any part of a request that got no 200. There a write comes
//! before another if it was acknowledged before the other was sent, and nothing else is known ([`Order`]).

use std::collections::{BTreeMap, HashMap, HashSet};

use super::ledger::{Request, Told, Write, WriteKind};
use super::load::{IN_MANY, MADE_AGAIN};

/// The documents of a cluster, and the dead letters for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holding {
    pub(crate) name: String,
    /// The documents; an id is in the list twice if the cluster has it twice.
    pub(crate) docs: Vec<Doc>,
    pub(crate) letters: Vec<Letter>,
    pub(crate) account: Account,
}

/// A document.
#[derive(Clone, Debug)]
pub(crate) struct Doc {
    pub(crate) index: String,
    pub(crate) id: String,
    pub(crate) token: u64,
}

/// A dead letter.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    /// The position of the letter's request in the queue.
    pub(crate) position: u64,
    pub(crate) id: String,
    /// The token of the document; none for a delete.
    pub(crate) token: Option<u64>,
    pub(crate) reason: String,
}

/// A consumer group's account at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) accepted: u64,
    pub(crate) indexed: u64,
    pub(crate) dead: u64,
    pub(crate) lost: u64,
    /// Documents that are pending or parked.
    pub(crate) waiting: u64,
    /// Documents that are replayed, purged, skipped or rewound, which nobody does in a drill.
    pub(crate) other: u64,
}

/// Something that is not as promised.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub(crate) struct Flaw {
    pub(crate) kind: FlawKind,
    pub(crate) what: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FlawKind {
    /// Accepted, but neither in the cluster nor dead.
    Missing,
    /// In two documents of the cluster, or dead twice, or both.
    Twice,
    /// Another version than the last one that was acknowledged.
    Stale,
    /// In the cluster, although nobody was told that it would be.
    Unexpected,
    /// Only a part of a request was accepted.
    Torn,
    /// Dead without a reason.
    DeadForNothing,
    /// Answered with 200, but not queued.
    NotQueued,
    /// A request that was sent again got another answer than before.
    AnsweredOtherwise,
    /// The numbers do not add up.
    Accounts,
    /// Something failed that has to work: a start, an answer, an end.
    Broken,
}

impl Flaw {
    pub(crate) fn new(kind: FlawKind, what: impl Into<String>) -> Self {
        Self {
            kind,
            what: what.into(),
        }
    }
}

/// The criterion for which of two acknowledged writes comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Their positions in the queue.
    Positions,
    /// Whether the one was acknowledged before the other was sent.
    Answers,
}

/// The numbers of a run without flaws.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub(crate) struct Tally {
    /// Requests whose clients were told 200.
    pub(crate) queued: u64,
    /// Requests that were refused with 429 or 503.
    pub(crate) refused: u64,
    /// Requests without an answer.
    pub(crate) unanswered: u64,
    /// Requests without an answer that had been accepted.
    pub(crate) unanswered_accepted: u64,
    /// Repeated answers, to requests that were sent again.
    pub(crate) repeated: u64,
    /// All accepted documents.
    pub(crate) documents: u64,
    /// Dead letters of all clusters.
    pub(crate) dead: u64,
    /// Documents that the damage cost, of all clusters.
    pub(crate) lost: u64,
}

/// Compares requests with holdings. `damaged` are the positions of records that were damaged on purpose.
pub(crate) fn check(
    requests: &[Request],
    holdings: &[Holding],
    damaged: &HashSet<u64>,
    order: Order,
) -> (Vec<Flaw>, Tally) {
    let mut flaws = Vec::new();
    let known = Known::of(requests, holdings);
    for request in requests.iter().filter(|request| request.told == Told::Passed) {
        let documents = request.writes.len();
        let what = format!("200 without the queue, for {documents} documents");
        flaws.push(Flaw::new(FlawKind::NotQueued, what));
    }
    flaws.extend(requests.iter().flat_map(answers_are_alike));
    for holding in holdings {
        let mut one = OfCluster {
            holding,
            requests,
            known: &known,
            damaged,
            order,
            flaws: &mut flaws,
        };
        let found = one.found();
        one.requests_are_whole(&found);
        one.versions_are_the_last(&found);
        one.accounts(&found);
    }
    let accepted = |request: &&Request| matches!(request.told, Told::Queued(_));
    let tally = Tally {
        queued: requests.iter().filter(accepted).count() as u64,
        refused: requests
            .iter()
            .filter(|request| matches!(request.told, Told::Refused(_)))
            .count() as u64,
        unanswered: requests
            .iter()
            .filter(|request| matches!(request.told, Told::Nothing | Told::Perhaps))
            .count() as u64,
        unanswered_accepted: known.accepted.len() as u64 - requests.iter().filter(accepted).count() as u64,
        repeated: requests
            .iter()
            .flat_map(|request| &request.said)
            .filter(|said| said.repeated)
            .count() as u64,
        documents: known.documents(requests),
        dead: holdings.iter().map(|holding| holding.account.dead).sum(),
        lost: holdings.iter().map(|holding| holding.account.lost).sum(),
    };
    (flaws, tally)
}

/// Checks that a request that was sent many times with one key was accepted once, and that all answers to it
/// agree.
fn answers_are_alike(request: &Request) -> Vec<Flaw> {
    let mut flaws = Vec::new();
    let Some((first, others)) = request.said.split_first() else {
        return flaws;
    };
    for other in others {
        if !other.repeated {
            let what = format!(
                "accepted at {} and, sent again, anew at {}",
                first.position, other.position
            );
            flaws.push(Flaw::new(FlawKind::Twice, what));
        } else if (other.position, &other.body) != (first.position, &first.body) {
            let what = format!(
                "what was accepted at {} was answered as {}: {:.300}; and before: {:.300}",
                first.position, other.position, other.body, first.body
            );
            flaws.push(Flaw::new(FlawKind::AnsweredOtherwise, what));
        }
    }
    flaws
}

/// The name of a write: the number of its request, and its own number in the request.
type Name = (usize, usize);

/// The knowledge that follows from all clusters together.
struct Known {
    by_token: HashMap<u64, Name>,
    by_position: HashMap<u64, usize>,
    /// Requests that are in the queue: those whose clients were told so, and those of which any trace was
    /// found anywhere.
    accepted: HashSet<usize>,
}

/// The places where each write was found in one cluster.
#[derive(Default)]
struct FoundWrites {
    docs: HashMap<Name, u32>,
    letters: HashMap<Name, u32>,
    /// The tokens of each id; there are several if its name has led to several indices.
    now: BTreeMap<String, Vec<u64>>,
}

impl Known {
    fn of(requests: &[Request], holdings: &[Holding]) -> Self {
        let mut known = Self {
            by_token: HashMap::new(),
            by_position: HashMap::new(),
            accepted: HashSet::new(),
        };
        for (number, request) in requests.iter().enumerate() {
            for (place, write) in request.writes.iter().enumerate() {
                known.by_token.insert(write.token, (number, place));
            }
            if let Told::Queued(position) = request.told {
                known.by_position.insert(position, number);
                known.accepted.insert(number);
            }
        }
        for holding in holdings {
            let tokens = holding.docs.iter().map(|doc| doc.token);
            let dead = holding.letters.iter().filter_map(|letter| letter.token);
            for token in tokens.chain(dead) {
                if let Some((number, _)) = known.by_token.get(&token)
                    && requests[*number].told == Told::Nothing
                {
                    known.accepted.insert(*number);
                }
            }
        }
        known
    }

    fn documents(&self, requests: &[Request]) -> u64 {
        self.accepted
            .iter()
            .map(|number| requests[*number].writes.len() as u64)
            .sum()
    }
}

struct OfCluster<'a> {
    holding: &'a Holding,
    requests: &'a [Request],
    known: &'a Known,
    damaged: &'a HashSet<u64>,
    order: Order,
    flaws: &'a mut Vec<Flaw>,
}

impl<'a> OfCluster<'a> {
    fn flaw(&mut self, kind: FlawKind, what: String) {
        let name = &self.holding.name;
        self.flaws.push(Flaw::new(kind, format!("{name}: {what}")));
    }

    fn write(&self, (number, place): Name) -> &'a Write {
        &self.requests[number].writes[place]
    }

    /// Describes a write and its request for people.
    fn shown(&self, name: Name) -> String {
        let (write, request) = (self.write(name), &self.requests[name.0]);
        let told = match request.told {
            Told::Queued(position) => format!("queued at {position}"),
            Told::Refused(status) => format!("refused with {status}"),
            Told::Passed => "passed".to_owned(),
            Told::Nothing => format!("sent to process {}, not answered", request.processes.0),
            Told::Perhaps => "not acknowledged".to_owned(),
        };
        let id = write.id.as_deref().unwrap_or("(to be made)");
        format!("{:?} {} of {id} ({told})", write.kind, write.token)
    }

    /// Says for people which indices hold the documents.
    fn where_is(&self, wanted: impl Fn(&Doc) -> bool) -> String {
        let found = self.holding.docs.iter().filter(|doc| wanted(doc));
        let found = found.map(|doc| format!("{} of {} ({})", doc.id, doc.index, doc.token));
        format!(": {}", found.collect::<Vec<_>>().join(", "))
    }

    /// Whether it is unknown which operations of a request were accepted.
    fn is_uncertain(&self, number: usize) -> bool {
        self.is_damaged(number) || self.requests[number].told == Told::Perhaps
    }

    fn is_damaged(&self, number: usize) -> bool {
        matches!(self.requests[number].told, Told::Queued(position) if self.damaged.contains(&position))
    }

    /// Finds each write that is there, and reports what should not be there.
    fn found(&mut self) -> FoundWrites {
        let mut found = FoundWrites::default();
        for Doc { id, token, .. } in &self.holding.docs {
            let Some(&name) = self.known.by_token.get(token) else {
                self.flaw(
                    FlawKind::Unexpected,
                    format!("document {id} with {token}, which nobody sent"),
                );
                continue;
            };
            let in_many = id.starts_with(IN_MANY);
            let tokens = found.now.entry(id.clone()).or_default();
            tokens.push(*token);
            if tokens.len() > 1 && !in_many {
                let what = format!("the id {id} is there twice{}", self.where_is(|doc| doc.id == *id));
                self.flaw(FlawKind::Twice, what);
            }
            let seen = found.docs.entry(name).or_default();
            *seen += 1;
            // A write to a shared document is sent again to the index that the name leads to now, after an
            // older one.
            if *seen == 2 && !in_many {
                let places = self.where_is(|doc| doc.token == *token);
                let what = format!("{} is in two documents{places}", self.shown(name));
                self.flaw(FlawKind::Twice, what);
            }
            let write = self.write(name);
            if matches!(self.requests[name.0].told, Told::Refused(_)) || write.unfit {
                let what = format!("{} is there", self.shown(name));
                self.flaw(FlawKind::Unexpected, what);
            } else if write.id.as_ref().is_some_and(|wanted| wanted != id) {
                let what = format!("{} is in document {id}", self.shown(name));
                self.flaw(FlawKind::Unexpected, what);
            }
        }
        for letter in &self.holding.letters {
            let name = match letter.token {
                Some(token) => self.known.by_token.get(&token).copied(),
                None => self.known.by_position.get(&letter.position).and_then(|&number| {
                    let of_id = |write: &Write| {
                        write.kind == WriteKind::Delete && write.id.as_ref() == Some(&letter.id)
                    };
                    Some((number, self.requests[number].writes.iter().position(of_id)?))
                }),
            };
            let Some(name) = name else {
                self.flaw(
                    FlawKind::Unexpected,
                    format!("a dead letter for {}, which nobody sent", letter.id),
                );
                continue;
            };
            let seen = found.letters.entry(name).or_default();
            *seen += 1;
            if *seen == 2 {
                let what = format!("{} is dead twice", self.shown(name));
                self.flaw(FlawKind::Twice, what);
            }
            if matches!(self.requests[name.0].told, Told::Refused(_)) {
                let what = format!("{} is dead", self.shown(name));
                self.flaw(FlawKind::Unexpected, what);
            } else if !self.write(name).unfit || letter.reason.is_empty() {
                let what = format!("{} is dead: {:?}", self.shown(name), letter.reason);
                self.flaw(FlawKind::DeadForNothing, what);
            }
        }
        found
    }

    /// Checks that every lasting operation of each accepted request is there. (`found` has already checked
    /// that no other requests are.)
    fn requests_are_whole(&mut self, found: &FoundWrites) {
        for number in 0..self.requests.len() {
            if !self.known.accepted.contains(&number) || self.is_damaged(number) {
                continue;
            }
            for place in 0..self.requests[number].writes.len() {
                let name = (number, place);
                let write = self.write(name);
                let is_there = match write.unfit {
                    true => found.letters.contains_key(&name),
                    false if write.only => found.docs.contains_key(&name),
                    false => continue,
                };
                if !is_there {
                    let kind = match self.requests[number].told {
                        Told::Nothing => FlawKind::Torn,
                        _ => FlawKind::Missing,
                    };
                    let what = format!("{} is neither indexed nor dead", self.shown(name));
                    self.flaw(kind, what);
                }
            }
        }
    }

    /// Checks that the shared documents have the value of the last write to them.
    fn versions_are_the_last(&mut self, found: &FoundWrites) {
        let mut by_id: BTreeMap<&str, Vec<Name>> = BTreeMap::new();
        let requests = self.requests;
        for (number, request) in requests.iter().enumerate() {
            if !self.known.accepted.contains(&number) && request.told != Told::Perhaps {
                continue;
            }
            for (place, write) in request.writes.iter().enumerate() {
                if let (false, false, Some(id)) = (write.only, write.unfit, &write.id) {
                    by_id.entry(id).or_default().push((number, place));
                }
            }
        }
        for (id, writes) in by_id {
            let last: Vec<Name> = writes
                .iter()
                .copied()
                .filter(|one| self.may_be_last(*one, &writes))
                .collect();
            let certain = writes.iter().any(|one| !self.is_uncertain(one.0));
            let mut allowed: Vec<Option<u64>> = last
                .iter()
                .map(|&one| Some(self.write(one).token).filter(|_| self.write(one).kind != WriteKind::Delete))
                .collect();
            if !certain {
                allowed.push(None);
            }
            // A document that is deleted with its index is gone.
            if id.starts_with(MADE_AGAIN) {
                allowed.push(None);
            }
            let tokens = found.now.get(id).map_or(&[][..], Vec::as_slice);
            let is_there = tokens.iter().any(|token| allowed.contains(&Some(*token)));
            // The index that the name led to before may still hold an earlier version, whatever the index
            // that the name leads to now holds.
            let deleted = allowed.contains(&None) && (tokens.is_empty() || id.starts_with(IN_MANY));
            if is_there || deleted {
                continue;
            }
            let found = tokens.first().copied();
            let wanted: Vec<String> = last.iter().map(|one| self.shown(*one)).collect();
            let there = match found.and_then(|token| self.known.by_token.get(&token)) {
                Some(name) => self.shown(*name),
                None => "nothing".to_owned(),
            };
            let kind = match found {
                Some(_) => FlawKind::Stale,
                None => FlawKind::Missing,
            };
            let what = format!("{id} is {there}, and should be {}", wanted.join(" or "));
            self.flaw(kind, what);
        }
    }

    /// Whether no write that is certainly there certainly comes later.
    fn may_be_last(&self, one: Name, all: &[Name]) -> bool {
        let later = |other: &&Name| !self.is_uncertain(other.0) && self.is_before(one, **other);
        !all.iter().any(|other| later(&other))
    }

    /// Whether the one write certainly comes before the other.
    fn is_before(&self, one: Name, other: Name) -> bool {
        let (first, second) = (&self.requests[one.0], &self.requests[other.0]);
        if one.0 == other.0 {
            return one.1 < other.1;
        }
        match (&first.told, &second.told) {
            // A `Perhaps` write may enter the queue at any later time.
            (Told::Perhaps, _) => false,
            (Told::Queued(first), Told::Queued(second)) if self.order == Order::Positions => first < second,
            (Told::Queued(_), _) if first.ended < second.sent => true,
            _ => first.processes.1 < second.processes.0,
        }
    }

    fn accounts(&mut self, found: &FoundWrites) {
        let Holding { account, letters, .. } = self.holding;
        let Account {
            accepted,
            indexed,
            dead,
            lost,
            waiting,
            other,
        } = *account;
        let sent = self.known.documents(self.requests);
        let adds_up = match self.order {
            Order::Positions => accepted == sent,
            // Parts of unacknowledged requests are there too.
            Order::Answers => accepted >= sent,
        };
        if !adds_up {
            let what = format!("{accepted} documents are accounted for, {sent} were accepted");
            self.flaw(FlawKind::Accounts, what);
        }
        if (waiting, other) != (0, 0) || accepted != indexed + dead + lost {
            self.flaw(FlawKind::Accounts, format!("{account:?} does not add up"));
        }
        if dead != letters.len() as u64 {
            let what = format!("{dead} dead letters are counted, {} are listed", letters.len());
            self.flaw(FlawKind::Accounts, what);
        }
        let damaged = (0..self.requests.len()).filter(|number| self.is_damaged(*number));
        let (mut most, mut least) = (0, 0);
        for number in damaged {
            let writes = &self.requests[number].writes;
            most += writes.len() as u64;
            let is_gone = |place: &usize| {
                let (name, write) = ((number, *place), &writes[*place]);
                let found = found.docs.contains_key(&name) || found.letters.contains_key(&name);
                (write.only || write.unfit) && !found
            };
            least += (0..writes.len()).filter(is_gone).count() as u64;
        }
        if !(least..=most).contains(&lost) {
            let what = format!(
                "{lost} documents are counted as lost; the damage cost {least} at least and {most} at most"
            );
            self.flaw(FlawKind::Accounts, what);
        }
    }
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
