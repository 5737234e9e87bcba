//! Sends parts of different clients' bulks to a node as one request.
//!
//! A bulk request costs a node a fixed amount of work for each shard that the request touches, including a
//! sync to disk, however few documents it brings. Therefore, while a node is busy with a request, further
//! parts for that node gather, and are sent together when the answer arrives. The wait adapts by itself to
//! the load of the node. A node with idle cores is busy only with several requests at once; how many is found
//! by trying ([`crate::gather`]). A part that finds no request under way leaves at once, as it came, unless
//! the last request to that node carried several parts. The clients of those parts are about to send again,
//! so the part waits for as many, for a fraction of the time that a request takes.
//!
//! Only parts of requests that say the same ([`Family`]) travel together, and only with parts for the same
//! indices, unless all of them are known to be prompt ([`Company`]). Each client gets its own items, and
//! no client gets an answer about the whole, since another client may be to blame for it: each part is then
//! sent again by itself, whatever the status. If the whole may have been executed all the same (5xx, no
//! answer, an answer that cannot be read), the rules for parts whose fate is unknown apply
//! ([`crate::split::part`]), as if each part had been lost alone.
//!
//! Each client waits until its own deadline. A part that is still waiting then is withdrawn, and was not
//! executed; the request that carries a part goes on until the last of its clients gives up. No request
//! grows beyond what the nodes accept.
//!
//! The number of requests that a node gets at once is found from its answers, by the limiter that delivery
//! uses too. While a node has as many requests as it has shown to take, the waiting parts go on gathering, so
//! requests grow as the node falls behind.
//!
//! All cores share the waiting parts: clients are distributed over the cores, so on one core a part would
//! meet only a fraction of the others. The core that finds a request due sends it, from the memory that each
//! part was read into, and each client's core reads its share of the answer where the answer was received.
//! The only extra copy is that of the answer to a client with a single part.

mod batch;
mod company;
mod family;

pub(crate) use company::Company;
pub(crate) use family::{Families, Family};

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bulk::{Destination, Part, Plan, RouteTable};
use cluster::{Ended, Node, Permit};
use config::Combine;
use http::{StatusCode, response};
use memchr::memmem;
use tokio::sync::oneshot;
use tokio::time::timeout_at;
use traces::SpanKind;
use wire::guard::{self, Work};
use wire::{Fate, Pool, SendError, SendErrorKind};

use crate::gather::{GROWTH_MAX, LeaveRequest, SlotAction, Target, Weight as _};
use crate::metrics::Counters;
use crate::nodes::{Message, Outbound};
use crate::split::part::{AnswerBody, Split};
use crate::switches::ClusterSwitches;
use batch::Member;
pub(crate) use batch::SlowWatch;
use company::NameHash;

/// Gathers parts and sends them. Each filter has one instance per core.
#[derive(Clone)]
pub(crate) struct Combiner(Rc<Inner>);

struct Inner {
    configured: Combine,
    switches: ClusterSwitches,
    /// The settings in force, or the last ones: parts that wait when combining is switched off still follow
    /// them.
    settings: Cell<Combine>,
    /// The identity of the filter: parts of different filters are kept apart.
    filter: Vec<u8>,
    families: Arc<Families>,
    outbound: Rc<Outbound>,
    pool: Pool,
    counters: Arc<Counters>,
}

/// How a part is to be sent, or the outcome if it was sent with others.
pub(crate) enum Combined {
    /// The part travels by itself. Until the lease is dropped, other parts for the same node wait.
    Alone(Option<Lease>),
    /// The part travelled with others, and this is its own answer.
    Shared(Result<(response::Parts, AnswerBody), SendError>),
    /// The part travelled with others; the string is the outcome of the whole, which leaves open what was
    /// executed.
    Doubted(String),
}

/// [`Combined`] in the form that one core sends to another.
enum CombinedRemote {
    Alone(Option<Ticket>),
    Shared(Result<(response::Parts, AnswerBody), SendError>),
    Doubted(String),
}

/// The right to have a request under way to a target.
struct Ticket {
    family: Arc<Family>,
    target: Target,
    /// The indices of each bulk that names several.
    several: Vec<Arc<[NameHash]>>,
    /// The number of parts that travel, and the bytes of their operations.
    weight: (usize, u64),
    began: Instant,
    permit: Option<Permit>,
}

/// A ticket in use on this core. When it is given back, the parts that wait are considered for sending.
pub(crate) struct Lease {
    ticket: Option<Ticket>,
    /// The node's permit, where there is no ticket to hold it.
    permit: Option<Permit>,
    combiner: Combiner,
}

/// Parts larger than this share (a sixteenth) of `flush_threshold_size` gather only with each other.
const LARGE_SHARE: u64 = 16;

/// Nodes put `errors` among the first words of an answer.
const ERRORS_WITHIN: usize = 128;

// === impl Combiner ===

impl Combiner {
    /// Creates a combiner. `filter` identifies one filter of a configuration.
    pub(crate) fn new(
        configured: Combine,
        switches: ClusterSwitches,
        filter: Vec<u8>,
        families: Arc<Families>,
        outbound: Rc<Outbound>,
        pool: Pool,
        counters: Arc<Counters>,
    ) -> Self {
        Self(Rc::new(Inner {
            configured,
            switches,
            settings: Cell::new(configured),
            filter,
            families,
            outbound,
            pool,
            counters,
        }))
    }

    /// Returns whether parts gather now. This can be switched at any time, so each request asks once.
    pub(crate) fn is_on(&self) -> bool {
        let settings = self.0.switches.now().combine(&self.0.configured);
        if let Some(settings) = settings {
            self.0.settings.set(settings);
        }
        settings.is_some()
    }

    /// Returns the family of requests whose parts may travel together with this request's parts. Requests
    /// that run an ingest pipeline are kept apart, since their answers contain its time.
    pub(crate) fn family(&self, message: Message<'_>, plan: &Plan) -> Arc<Family> {
        // The answer to a request with types contains a warning, which is only for clients that use types.
        let peculiar = [plan.ingests(), plan.typed()];
        self.0
            .families
            .of(&self.0.filter, message, peculiar, &self.0.configured)
    }

    /// Returns the company of a bulk's parts.
    pub(crate) fn company(&self, plan: &Plan, table: &RouteTable) -> Company {
        let names = plan.names().iter().map(|number| table.name_of(*number));
        let (filter, now) = (&self.0.filter, Instant::now());
        self.0.families.companies.of(filter, names, now)
    }

    /// Returns the node for a part that any node may take: the one that such parts gather for, otherwise the
    /// next node in turn.
    pub(crate) fn any(
        &self,
        (family, company): (&Family, &Company),
        part: &Part,
        next: impl FnOnce() -> Arc<Node>,
    ) -> Arc<Node> {
        let gathering = family.slots().node(&self.target(None, part, company));
        gathering.filter(|node| node.health.is_up()).unwrap_or_else(next)
    }

    /// Returns the target that a part gathers for. `node` is `None` if any node may take the part.
    fn target(&self, node: Option<&Arc<Node>>, part: &Part, company: &Company) -> Target {
        let large = part.bytes * LARGE_SHARE > self.0.settings.get().flush_bytes;
        Target::new(node, part.index.as_deref(), part.shard, large, company.key)
    }

    /// Waits until a part may be sent by itself, or has been sent with others.
    pub(crate) async fn join(
        &self,
        (family, company): (&Arc<Family>, &Company),
        node: &Arc<Node>,
        part: usize,
        split: Split<'_>,
    ) -> Combined {
        let ours = &split.load.plan.parts[part];
        let bytes = ours.bytes;
        let settings = self.0.settings.get();
        if bytes * 2 > settings.flush_bytes {
            return self.leave(node, split).await;
        }
        let home = (ours.destination != Destination::Any).then_some(node);
        let target = self.target(home, ours, company);
        if family.slots().alone(&target, node, Instant::now()) {
            let permit = settings
                .adaptive
                .then(|| node.health.limiter().try_acquire())
                .flatten();
            let several = company.several.iter().cloned().collect();
            let ticket = Ticket::new(family, &target, (1, bytes), (permit, several));
            return Combined::Alone(Some(self.lease(ticket)));
        }
        let (tell, mut told) = oneshot::channel();
        let member = Member::new(part, split, company.several.clone(), tell);
        family.slots().push(&target, node, member, Instant::now());
        self.consider(family, &target);
        let told = match timeout_at(split.deadline, &mut told).await {
            Ok(told) => told.ok(),
            Err(_)
                if family
                    .slots()
                    .withdraw(&target, |member| member.is(split.load, part)) =>
            {
                return Combined::Shared(Err(late(node, Fate::NothingSent)));
            }
            Err(_) => {
                told.close();
                match told.try_recv() {
                    Ok(told) => Some(told),
                    Err(_) => return Combined::Shared(Err(late(node, Fate::Unknown))),
                }
            }
        };
        match told {
            Some(CombinedRemote::Alone(Some(ticket))) => Combined::Alone(Some(self.lease(ticket))),
            Some(CombinedRemote::Shared(answer)) => Combined::Shared(answer),
            Some(CombinedRemote::Doubted(why)) => Combined::Doubted(why),
            // If nothing was told, the core that was to send the part has stopped.
            Some(CombinedRemote::Alone(None)) | None => self.leave(node, split).await,
        }
    }

    /// Waits until a part may leave by itself, or until it is too late for that.
    async fn leave(&self, node: &Node, split: Split<'_>) -> Combined {
        match self.wait_to_send(node, split).await {
            Ok(lease) => Combined::Alone(lease),
            Err(error) => Combined::Shared(Err(error)),
        }
    }

    /// Waits until a part that travels by itself may be sent to a node. Fails if the node gives no leave
    /// before the part's deadline; this says nothing about the node, which others keep busy.
    pub(crate) async fn wait_to_send(
        &self,
        node: &Node,
        split: Split<'_>,
    ) -> Result<Option<Lease>, SendError> {
        if !self.0.settings.get().adaptive {
            return Ok(None);
        }
        let _wait = split.message.request_id.begin("wait", SpanKind::Internal);
        let permit = timeout_at(split.deadline, node.health.limiter().acquire()).await;
        Ok(Some(Lease {
            ticket: None,
            permit: Some(permit.map_err(|_| late(node, Fate::NothingSent))?),
            combiner: self.clone(),
        }))
    }

    fn lease(&self, ticket: Ticket) -> Lease {
        Lease {
            ticket: Some(ticket),
            permit: None,
            combiner: self.clone(),
        }
    }

    /// Sends the parts that wait for a target, or makes sure that they will be sent.
    fn consider(&self, family: &Arc<Family>, target: &Target) {
        let (settings, now) = (self.0.settings.get(), Instant::now());
        let step = family.slots().next_step(target, &settings, now);
        match step {
            SlotAction::Nothing => {}
            SlotAction::Send => self.flush(family, target),
            SlotAction::Wait { longest, round } => {
                let (combiner, family, target) = (self.clone(), Arc::clone(family), target.clone());
                guard::spawn(Work::Combined, async move {
                    tokio::time::sleep(longest).await;
                    let present = family.slots().round(&target);
                    if present == Some(round) {
                        combiner.flush(&family, &target);
                    }
                });
            }
        }
    }

    /// Sends the parts that wait for a target as soon as its node may take one more request. If no request of
    /// the target is under way, small parts need no permit; otherwise one huge bulk would hold up everybody.
    fn flush(&self, family: &Arc<Family>, target: &Target) {
        if !self.0.settings.get().adaptive {
            return self.send(family, target, None);
        }
        let Some(node) = family.slots().node(target) else {
            return;
        };
        let limiter = node.health.limiter();
        if let Some(permit) = limiter.try_acquire() {
            return self.send(family, target, Some(permit));
        }
        let asking = family.slots().ask(target);
        match asking {
            LeaveRequest::Needless => return self.send(family, target, None),
            LeaveRequest::Done => return,
            LeaveRequest::New => {}
        }
        let limiter = Arc::clone(limiter);
        let (combiner, family, target) = (self.clone(), Arc::clone(family), target.clone());
        guard::spawn(Work::Combined, async move {
            let asks = Asks(&combiner, &family, &target);
            let permit = limiter.acquire().await;
            drop(asks);
            combiner.send(&family, &target, Some(permit));
        });
    }

    fn send(&self, family: &Arc<Family>, target: &Target, permit: Option<Permit>) {
        let bytes_max = self.0.settings.get().flush_bytes.saturating_mul(GROWTH_MAX);
        let theirs = self
            .0
            .outbound
            .cluster()
            .look(|snapshot| snapshot.max_content_length_bytes);
        let bytes_max = bytes_max.min(theirs.unwrap_or(u64::MAX));
        let taken = family.slots().take(target, (bytes_max, u64::MAX), Instant::now());
        let Some((node, mut members)) = taken else {
            return;
        };
        let bytes = members.iter().map(Member::bytes).sum();
        let several = members.iter().filter_map(Member::several).collect();
        let ticket = Ticket::new(family, target, (members.len(), bytes), (permit, several));
        if members.len() == 1 {
            members.remove(0).tell(CombinedRemote::Alone(Some(ticket)));
        } else {
            guard::spawn(Work::Combined, batch::send(node, self.lease(ticket), members));
        }
        // More parts than one request takes may have waited.
        self.consider(family, target);
    }
}

/// Returns the error of a part whose deadline has passed while it waited for others, or travelled with them.
fn late(node: &Node, fate: Fate) -> SendError {
    SendError {
        kind: SendErrorKind::Deadline,
        fate,
        reused: false,
        origin: node.address.authority().into(),
    }
}

// === impl Lease ===

impl Lease {
    /// Returns what notices that the request is slow, if its bulks name several indices.
    pub(crate) fn slow_watch(&self) -> Option<SlowWatch> {
        let ticket = self.ticket.as_ref().filter(|ticket| !ticket.several.is_empty())?;
        Some(SlowWatch {
            family: Arc::clone(&ticket.family),
            names: ticket.several.clone(),
            slow_after: ticket.family.slow_after(&ticket.target),
        })
    }

    /// Records that the request is sent now.
    pub(crate) fn sent(&mut self) {
        if let Some(permit) = self.permit() {
            permit.sent();
        }
    }

    /// Records the outcome of the request with `bytes` of operations, if it shows how much the node can take.
    pub(crate) fn ended(&mut self, answer: Result<(StatusCode, &[u8]), &SendError>, bytes: u64) {
        let ended = match answer {
            Ok((status, body)) => ended(status, body, bytes),
            // It has answered, and there was no memory for that.
            Err(error)
                if matches!(
                    error.kind,
                    SendErrorKind::OverBudget(_) | SendErrorKind::TooLarge { .. }
                ) =>
            {
                None
            }
            Err(error) => (error.fate == Fate::Unknown).then_some(Ended::Lost),
        };
        if let Some(ended) = ended
            && let Some(permit) = self.permit().take()
        {
            permit.end(ended);
        }
    }

    fn permit(&mut self) -> &mut Option<Permit> {
        match &mut self.ticket {
            Some(ticket) => &mut ticket.permit,
            None => &mut self.permit,
        }
    }
}

/// Returns what a node's answer shows about how much the node can take.
fn ended(status: StatusCode, body: &[u8], bytes: u64) -> Option<Ended> {
    if status == StatusCode::TOO_MANY_REQUESTS {
        return Some(Ended::Refused);
    }
    if status != StatusCode::OK {
        return None;
    }
    let fine = memmem::find(&body[..body.len().min(ERRORS_WITHIN)], br#""errors":false"#).is_some();
    let refused = !fine
        && memmem::find(body, br#""status":429"#).is_some()
        // An index whose disk is full also answers 429, regardless of the load of its node.
        && memmem::find(body, br#""type":"cluster_block_exception""#).is_none();
    Some(match refused {
        true => Ended::Refused,
        false => Ended::Worked { bytes },
    })
}

// === impl Ticket ===

impl Ticket {
    /// Creates a ticket. `weight`: the number of parts that travel, and their bytes.
    fn new(
        family: &Arc<Family>,
        target: &Target,
        weight: (usize, u64),
        (permit, several): (Option<Permit>, Vec<Arc<[NameHash]>>),
    ) -> Self {
        Self {
            family: Arc::clone(family),
            target: target.clone(),
            several,
            weight,
            began: Instant::now(),
            permit,
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let lasted = self.began.elapsed();
        self.family.returned(&self.target, self.weight, lasted);
    }
}

/// Marks that a task waits for a permit to send what waits for a target. Dropping the mark removes it.
struct Asks<'a>(&'a Combiner, &'a Arc<Family>, &'a Target);

impl Drop for Asks<'_> {
    fn drop(&mut self) {
        let Self(combiner, family, target) = self;
        family.slots().got_leave(target);
        if std::thread::panicking() {
            combiner.consider(family, target);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        let (family, target) = (Arc::clone(&ticket.family), ticket.target.clone());
        drop(ticket);
        self.combiner.consider(&family, &target);
    }
}
