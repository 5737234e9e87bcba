//! Parts of different clients' bulks, sent to a node as one request. One instance a core.
//!
//! A node pays for each bulk request once for each shard that it touches, its sync to the disk included, however few
//! documents come with it. So while a node is busy with a request, parts for it gather, and go together when the answer
//! is there: the wait costs nothing that a node at work would not cost anyway, and adapts by itself to how busy it is.
//! A part that finds nobody under way leaves at once, as it came, unless the last request to that node had brought
//! several: their clients are about to come back, so it waits for as many, for a fraction of what a request lasts.
//!
//! Only parts whose requests say the same ([`Family`]) travel together. Each gets its own items; what happens to the
//! whole (no answer, an answer that cannot be read, 429) happens to each, and a request that is refused for any other
//! reason is sent again part by part, since one of them may be to blame for all.

mod batch;
mod family;
mod slot;

pub(crate) use family::Family;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bulk::Part;
use cluster::Node;
use http::response;
use tokio::sync::oneshot;
use wire::{Buffer, Pool, SendError};

use crate::config::Combine;
use crate::metrics::Counters;
use crate::outbound::{Message, Outbound};
use crate::part::Split;
use batch::Member;
use slot::Target;

/// Gathers parts and sends them.
#[derive(Clone)]
pub(crate) struct Combiner(Rc<Inner>);

struct Inner {
    settings: Combine,
    outbound: Rc<Outbound>,
    pool: Pool,
    counters: Arc<Counters>,
    families: RefCell<Families>,
}

/// Those that some request belongs to, and some that none does any more.
#[derive(Default)]
struct Families {
    by_key: HashMap<Box<[u8]>, Rc<Family>>,
    /// Sizes at which the idle ones are cleared out.
    sweep_at: usize,
}

/// How a part is to be sent, or what it came to.
pub(crate) enum Way {
    /// By itself. Until the turn is dropped, others for the same node wait.
    Alone(Option<Turn>),
    /// It went with others, and this is its own answer.
    Shared(Result<(response::Parts, Buffer), SendError>),
}

/// The right to have a request under way to a target.
pub(crate) struct Turn {
    combiner: Combiner,
    family: Rc<Family>,
    target: Target,
    /// Parts that travel.
    parts: usize,
    began: Instant,
}

/// Requests under way to a target, of one family and core, beyond which parts gather.
const UNDER_WAY_MAX: u32 = 1;

/// The longest wait for clients that are about to come back, as a share of what requests last.
const LINGER_SHARE: u32 = 4;

// === impl Combiner ===

impl Combiner {
    pub(crate) fn new(
        settings: Combine,
        outbound: Rc<Outbound>,
        pool: Pool,
        counters: Arc<Counters>,
    ) -> Self {
        Self(Rc::new(Inner {
            settings,
            outbound,
            pool,
            counters,
            families: RefCell::default(),
        }))
    }

    /// Those whose parts may travel together with this request's.
    pub(crate) fn family(&self, message: Message<'_>, ingests: bool) -> Rc<Family> {
        let key = family::key(message, ingests);
        let mut families = self.0.families.borrow_mut();
        if let Some(known) = families.by_key.get(&*key) {
            return Rc::clone(known);
        }
        let family = Rc::new(Family::new(message));
        if families.by_key.len() >= families.sweep_at {
            families.by_key.retain(|_, family| !family.is_idle());
            families.sweep_at = (families.by_key.len() * 2).max(FAMILIES_KEPT);
        }
        families.by_key.insert(key.into(), Rc::clone(&family));
        family
    }

    /// The node for a part that any node may take: the one that such parts gather for, else the next in turn.
    pub(crate) fn any(&self, family: &Family, next: impl FnOnce() -> Arc<Node>) -> Arc<Node> {
        if let Some(node) = family.gathering() {
            return node;
        }
        let node = next();
        family.set_gathering(&node);
        node
    }

    /// Waits until a part may be sent by itself, or has been sent with others.
    pub(crate) async fn join(
        &self,
        family: &Rc<Family>,
        node: &Arc<Node>,
        part: usize,
        split: Split<'_>,
    ) -> Way {
        let Part {
            index, shard, bytes, ..
        } = &split.load.plan.parts[part];
        if bytes * 2 > self.0.settings.flush_bytes {
            return Way::Alone(None);
        }
        let target = Target::new(node, index.as_deref(), *shard);
        let (way, told) = oneshot::channel();
        family.wait(&target, node, Member::new(part, split, way));
        self.consider(family, &target);
        // The sender goes away unused only with this core's runtime.
        told.await.unwrap_or(Way::Alone(None))
    }

    /// Sends what waits for a target, or sees to it that somebody will.
    fn consider(&self, family: &Rc<Family>, target: &Target) {
        let settings = &self.0.settings;
        match family.next_step(target, settings) {
            slot::Step::Nothing => {}
            slot::Step::Send => self.flush(family, target),
            slot::Step::Wait { longest, round } => {
                let (combiner, family, target) = (self.clone(), Rc::clone(family), target.clone());
                tokio::task::spawn_local(async move {
                    tokio::time::sleep(longest).await;
                    if family.round(&target) == Some(round) {
                        combiner.flush(&family, &target);
                    }
                });
            }
        }
    }

    fn flush(&self, family: &Rc<Family>, target: &Target) {
        let Some((node, mut members)) = family.take(target) else {
            return;
        };
        let turn = Turn {
            combiner: self.clone(),
            family: Rc::clone(family),
            target: target.clone(),
            parts: members.len(),
            began: Instant::now(),
        };
        match members.len() {
            1 => members.remove(0).tell(Way::Alone(Some(turn))),
            _ => {
                let inner = Rc::clone(&self.0);
                tokio::task::spawn_local(async move { inner.send(node, turn, members).await });
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.family
            .returned(&self.target, self.parts, self.began.elapsed());
        self.combiner.consider(&self.family, &self.target);
    }
}

/// Families kept before the first search for idle ones.
const FAMILIES_KEPT: usize = 64;

/// A part of what requests last.
fn linger(lasts: Duration) -> Duration {
    lasts / LINGER_SHARE
}
