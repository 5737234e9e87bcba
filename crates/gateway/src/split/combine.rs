//! Parts of different clients' bulks, sent to a node as one request.
//!
//! A node pays for each bulk request once for each shard that it touches, its sync to the disk included,
//! however few documents come with it. So while a node is busy with a request, parts for it gather, and go
//! together when the answer is there: the wait adapts by itself to how busy it is. A node with cores to spare
//! is busy with several only, which is found by trying ([`crate::gather`]). A part that finds nobody under
//! way leaves at once, as it came, unless the last request to that node had brought several: their clients
//! are about to come back, so it waits for as many, for a fraction of what a request lasts.
//!
//! Only parts whose requests say the same ([`Family`]) travel together. Each gets its own items, and nobody
//! what a node says of the whole, since another may be to blame for it: each part is sent again by itself,
//! whatever the status. Where the whole may have been executed all the same (5xx, no answer, an answer that
//! cannot be read) that is done by the rules for parts whose fate is unknown ([`crate::split::part`]), as if
//! each had been lost alone.
//!
//! How many requests a node gets at once is found from its answers, by the same limiter as in delivery: while
//! it has as many as it has shown to take, what waits goes on gathering, so requests grow as the node falls
//! behind.
//!
//! What waits is shared by all cores, since clients are dealt to cores and would meet a fraction of each
//! other on their own. The core that finds a request due sends it, from where each part was read, and each
//! client's core reads its share of the answer where that was received. What is copied beyond what a part by
//! itself needs is the answer to a client whose only part it was.

mod batch;
mod family;

pub(crate) use family::{Families, Family};

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bulk::{Destination, Part, Plan};
use cluster::{Ended, Node, Permit};
use config::Combine;
use http::{StatusCode, response};
use memchr::memmem;
use tokio::sync::oneshot;
use wire::guard::{self, Work};
use wire::{Fate, Pool, SendError};

use crate::gather::{Asking, GROWTH_MAX, SlotAction, Target, Weight as _};
use crate::metrics::Counters;
use crate::nodes::{Message, Outbound};
use crate::split::part::{Split, Words};
use crate::switches::ClusterSwitches;
use batch::Member;

/// Gathers parts and sends them, one instance a filter and core.
#[derive(Clone)]
pub(crate) struct Combiner(Rc<Inner>);

struct Inner {
    configured: Combine,
    panel: ClusterSwitches,
    /// What is in force, or was last: what waits when it is switched off goes by that.
    settings: Cell<Combine>,
    /// Which filter this is: parts of different ones keep apart.
    filter: Vec<u8>,
    families: Arc<Families>,
    outbound: Rc<Outbound>,
    pool: Pool,
    counters: Arc<Counters>,
}

/// How a part is to be sent, or what it came to.
pub(crate) enum Combined {
    /// By itself. Until the lease is dropped, others for the same node wait.
    Alone(Option<Lease>),
    /// It went with others, and this is its own answer.
    Shared(Result<(response::Parts, Words), SendError>),
    /// It went with others, and this became of the whole, which leaves open what was executed.
    Doubted(String),
}

/// The same as one core tells another.
enum CombinedRemote {
    Alone(Option<Ticket>),
    Shared(Result<(response::Parts, Words), SendError>),
    Doubted(String),
}

/// The right to have a request under way to a target.
struct Ticket {
    family: Arc<Family>,
    target: Target,
    /// Parts that travel, and their operations' bytes.
    weight: (usize, u64),
    began: Instant,
    leave: Option<Permit>,
}

/// A ticket in use on this core, which sees to what waits when it is given back.
pub(crate) struct Lease {
    ticket: Option<Ticket>,
    /// The node's leave, where it does not come with a ticket.
    leave: Option<Permit>,
    combiner: Combiner,
}

/// Parts of more than this share of `flush_threshold_size` (a sixteenth) gather among themselves.
const LARGE_SHARE: u64 = 16;

/// Nodes say `errors` among the first words of an answer.
const ERRORS_WITHIN: usize = 128;

// === impl Combiner ===

impl Combiner {
    /// `filter` tells the filters of a configuration apart.
    pub(crate) fn new(
        configured: Combine,
        panel: ClusterSwitches,
        filter: Vec<u8>,
        families: Arc<Families>,
        outbound: Rc<Outbound>,
        pool: Pool,
        counters: Arc<Counters>,
    ) -> Self {
        Self(Rc::new(Inner {
            configured,
            panel,
            settings: Cell::new(configured),
            filter,
            families,
            outbound,
            pool,
            counters,
        }))
    }

    /// Whether parts gather now. It can be switched at any time, so each request asks once.
    pub(crate) fn is_on(&self) -> bool {
        let settings = self.0.panel.now().combine(&self.0.configured);
        if let Some(settings) = settings {
            self.0.settings.set(settings);
        }
        settings.is_some()
    }

    /// Those whose parts may travel together with this request's. An ingest pipeline's time is told in the
    /// answer.
    pub(crate) fn family(&self, message: Message<'_>, plan: &Plan) -> Arc<Family> {
        // What has types is answered with a warning, which is for those who have them.
        let peculiar = [plan.ingests(), plan.typed()];
        self.0
            .families
            .of(&self.0.filter, message, peculiar, &self.0.configured)
    }

    /// The node for a part that any node may take: the one that such parts gather for, else the next in turn.
    pub(crate) fn any(&self, family: &Family, part: &Part, next: impl FnOnce() -> Arc<Node>) -> Arc<Node> {
        let gathering = family.slots().node(&self.target(None, part));
        gathering.filter(|node| node.health.is_up()).unwrap_or_else(next)
    }

    /// What a part gathers for. `node`: none if any may take it.
    fn target(&self, node: Option<&Arc<Node>>, part: &Part) -> Target {
        let large = part.bytes * LARGE_SHARE > self.0.settings.get().flush_bytes;
        Target::new(node, part.index.as_deref(), part.shard, large)
    }

    /// Waits until a part may be sent by itself, or has been sent with others.
    pub(crate) async fn join(
        &self,
        family: &Arc<Family>,
        node: &Arc<Node>,
        part: usize,
        split: Split<'_>,
    ) -> Combined {
        let ours = &split.load.plan.parts[part];
        let bytes = ours.bytes;
        let settings = self.0.settings.get();
        if bytes * 2 > settings.flush_bytes {
            return Combined::Alone(self.leave(node).await);
        }
        let target = self.target((ours.destination != Destination::Any).then_some(node), ours);
        if family.slots().alone(&target, node, Instant::now()) {
            let leave = settings
                .adaptive
                .then(|| node.health.limiter().try_acquire())
                .flatten();
            let ticket = Ticket::new(family, &target, (1, bytes), leave);
            return Combined::Alone(Some(self.lease(ticket)));
        }
        let (tell, told) = oneshot::channel();
        let member = Member::new(part, split, tell);
        family.slots().push(&target, node, member, Instant::now());
        self.consider(family, &target);
        match told.await {
            Ok(CombinedRemote::Alone(Some(ticket))) => Combined::Alone(Some(self.lease(ticket))),
            Ok(CombinedRemote::Shared(answer)) => Combined::Shared(answer),
            Ok(CombinedRemote::Doubted(why)) => Combined::Doubted(why),
            // The core that was to send it has come to its end.
            Ok(CombinedRemote::Alone(None)) | Err(_) => Combined::Alone(self.leave(node).await),
        }
    }

    /// Waits until a part that travels by itself may be sent to a node.
    pub(crate) async fn leave(&self, node: &Node) -> Option<Lease> {
        if !self.0.settings.get().adaptive {
            return None;
        }
        Some(Lease {
            ticket: None,
            leave: Some(node.health.limiter().acquire().await),
            combiner: self.clone(),
        })
    }

    fn lease(&self, ticket: Ticket) -> Lease {
        Lease {
            ticket: Some(ticket),
            leave: None,
            combiner: self.clone(),
        }
    }

    /// Sends what waits for a target, or sees to it that somebody will.
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

    /// Sends what waits for a target, as soon as its node may be sent one more. If nothing of theirs is under
    /// way, small parts need no leave: otherwise one huge bulk would hold up everybody.
    fn flush(&self, family: &Arc<Family>, target: &Target) {
        if !self.0.settings.get().adaptive {
            return self.send(family, target, None);
        }
        let Some(node) = family.slots().node(target) else {
            return;
        };
        let limiter = node.health.limiter();
        if let Some(leave) = limiter.try_acquire() {
            return self.send(family, target, Some(leave));
        }
        let asking = family.slots().ask(target);
        match asking {
            Asking::Needless => return self.send(family, target, None),
            Asking::Done => return,
            Asking::New => {}
        }
        let limiter = Arc::clone(limiter);
        let (combiner, family, target) = (self.clone(), Arc::clone(family), target.clone());
        guard::spawn(Work::Combined, async move {
            let asks = Asks(&combiner, &family, &target);
            let leave = limiter.acquire().await;
            drop(asks);
            combiner.send(&family, &target, Some(leave));
        });
    }

    fn send(&self, family: &Arc<Family>, target: &Target, leave: Option<Permit>) {
        let bytes_max = self.0.settings.get().flush_bytes.saturating_mul(GROWTH_MAX);
        let taken = family.slots().take(target, (bytes_max, u64::MAX), Instant::now());
        let Some((node, mut members)) = taken else {
            return;
        };
        let bytes = members.iter().map(Member::bytes).sum();
        let ticket = Ticket::new(family, target, (members.len(), bytes), leave);
        if members.len() == 1 {
            members.remove(0).tell(CombinedRemote::Alone(Some(ticket)));
        } else {
            guard::spawn(Work::Combined, batch::send(node, self.lease(ticket), members));
        }
        // More than one request takes may have waited.
        self.consider(family, target);
    }
}

// === impl Lease ===

impl Lease {
    /// The request is sent now.
    pub(crate) fn sent(&mut self) {
        if let Some(leave) = self.slip() {
            leave.sent();
        }
    }

    /// Says what became of the request with `bytes` of operations, as far as it tells what the node can take.
    pub(crate) fn ended(&mut self, answer: Result<(StatusCode, &[u8]), &SendError>, bytes: u64) {
        let ended = match answer {
            Ok((status, body)) => ended(status, body, bytes),
            Err(error) => (error.fate == Fate::Unknown).then_some(Ended::Lost),
        };
        if let Some(ended) = ended
            && let Some(leave) = self.slip().take()
        {
            leave.end(ended);
        }
    }

    fn slip(&mut self) -> &mut Option<Permit> {
        match &mut self.ticket {
            Some(ticket) => &mut ticket.leave,
            None => &mut self.leave,
        }
    }
}

/// What a node's answer says about how much it can take.
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
        // An index whose disk is full says 429 as well, whatever its node has to do.
        && memmem::find(body, br#""type":"cluster_block_exception""#).is_none();
    Some(match refused {
        true => Ended::Refused,
        false => Ended::Worked { bytes },
    })
}

// === impl Ticket ===

impl Ticket {
    /// `weight`: the parts that travel, and their bytes.
    fn new(family: &Arc<Family>, target: &Target, weight: (usize, u64), leave: Option<Permit>) -> Self {
        Self {
            family: Arc::clone(family),
            target: target.clone(),
            weight,
            began: Instant::now(),
            leave,
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.family
            .returned(&self.target, self.weight, self.began.elapsed());
    }
}

/// Somebody waits for a node's leave to send what waits for a target, until this is dropped.
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
