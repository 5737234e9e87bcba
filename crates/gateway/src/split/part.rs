//! The way of one part: the tries to have it executed, and their outcome.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bulk::{Ask, Destination, RawError, Repeat, Reply, Share};
use cluster::{Node, PickReason, Snapshot};
use http::{StatusCode, response};
use wire::{Fate, Outgoing, Pool, PooledBytes, SendError, SendErrorKind};

use crate::metrics::Counters;
use crate::nodes::lines::{Body, Lines, PlannedBody};
use crate::nodes::quote;
use crate::nodes::{Message, Outbound, Purpose, Tries, is_unexecuted};
use crate::split::combine::{Combined, Combiner, Company, Family, Lease, SlowWatch};
use crate::turns::Turns;

/// A request that is split: what its parts have in common.
#[derive(Clone, Copy)]
pub(crate) struct Split<'a> {
    pub(crate) load: &'a Arc<PlannedBody>,
    pub(crate) ask: &'a Ask<'a>,
    pub(crate) snapshot: &'a Arc<Snapshot>,
    pub(crate) message: Message<'a>,
    /// Whether the account is the gateway's own, which the client must not see.
    pub(crate) lent: bool,
    pub(crate) deadline: tokio::time::Instant,
}

/// The means by which parts leave this core.
#[derive(Clone, Copy)]
pub(crate) struct Sender<'a> {
    pub(crate) outbound: &'a Outbound,
    pub(crate) pool: &'a Pool,
    pub(crate) counters: &'a Counters,
    /// The combiner, and the family and company with which parts may travel, if they may.
    pub(crate) combine: Option<(&'a Combiner, (&'a Arc<Family>, &'a Company))>,
}

/// The outcome of a part.
pub(crate) enum PartAnswer {
    /// Status 200, with a body that should be a bulk answer.
    Items(Items),
    /// Another status: no node took anything of the part.
    Refused(response::Parts, PooledBytes),
    /// No byte of the part could be sent.
    Unsent(SendError),
    /// The part was sent, and no usable answer came; the string says why.
    Unknown(String),
}

/// A node's bulk answer.
pub(crate) struct Items {
    pub(crate) head: response::Parts,
    words: AnswerBody,
    /// Whether the answer comes from the node that holds the primaries.
    pub(crate) at_home: bool,
    /// Set if the answer belongs to a later try, and the fate of an earlier try is unknown.
    repeat: Option<Repeat>,
    /// Items whose words differ from those in the node's answer, by number.
    reworded: Vec<(u32, Vec<u8>)>,
}

/// The body of an answer.
pub(crate) struct AnswerBody {
    /// The body as it came, perhaps with the shares of other parts.
    pub(crate) all: PooledBytes,
    /// The share of this part, if the body is not its alone.
    pub(crate) share: Option<Box<Share>>,
}

/// How a try ended without an answer to its part.
enum Lost {
    /// No usable answer came.
    Unanswered(SendError),
    /// The part travelled with others; the string is the outcome of the whole.
    Together(String),
}

/// The items of a part that no node has answered item by item.
pub(crate) struct ItemError {
    status: u16,
    kind: String,
    reason: String,
    /// Whether a node refused the part, so that it is known not to have been executed.
    pub(crate) refused: bool,
}

/// `UnavailableShardsException`: the error with which a coordinating node ends its tries when the node of a
/// primary does not answer (`TransportReplicationAction`).
const UNAVAILABLE: &str = "unavailable_shards_exception";

/// The room for the bytes around the items of an answer.
const FRAME_BYTES: usize = 256;

// === impl Sender ===

impl Sender<'_> {
    /// Sends one part until a node answers it, or until no further try is allowed.
    pub(crate) async fn deliver(self, part: usize, split: Split<'_>) -> PartAnswer {
        let cluster = self.outbound.cluster();
        let mut tries = Tries::new(self.outbound, split.snapshot);
        // Why the fate of a try is unknown, and how its repetition has to be read.
        let (mut doubt, mut repeat): (Option<Doubt>, _) = (None, None);
        loop {
            let (node, at_home) = self.destination(part, split, &tries);
            let lost = match self.try_once(&node, part, split, tries.is_first()).await {
                Ok((head, words)) if head.status == StatusCode::OK => {
                    let words = self.unquoted(&head, words, part, split);
                    let reworded = self.reword(&words, &node, part, split).await;
                    return PartAnswer::Items(Items {
                        head,
                        words,
                        at_home,
                        repeat,
                        reworded,
                    });
                }
                Ok((head, words)) => {
                    let words = self.unquoted(&head, words, part, split);
                    return refused(head, words.all, doubt, split.lent.then_some(self.pool));
                }
                Err(lost) => lost,
            };
            cluster.hint();
            let together = matches!(lost, Lost::Together(_));
            if let Some(why) = lost.doubt() {
                doubt.get_or_insert(Doubt { why, together });
            }
            if doubt.is_some() {
                let (load, now) = (split.load, cluster.snapshot());
                let table = &split.snapshot.table;
                repeat = Repeat::of(&load.plan, part, &load.body, split.ask, table, &now.table);
            }
            let may_try_again = doubt.is_none() || repeat.is_some();
            // An answer about a request that carried others as well does not count as a try of this part.
            let left = tries.may_retry(doubt.is_none()) || (together && tries.is_first());
            let in_time = tokio::time::Instant::now() < split.deadline;
            if !left || !may_try_again || !in_time || lost.is_our_limit() {
                return match (doubt, lost) {
                    (None, Lost::Unanswered(error)) => PartAnswer::Unsent(error),
                    (Some(doubt), _) => PartAnswer::Unknown(doubt.why),
                    (None, Lost::Together(why)) => PartAnswer::Unknown(why),
                };
            }
            tries.retry((!together).then_some(node)).await;
            self.counters.parts_retried.add(1);
        }
    }

    /// Returns the node to send a part to, and whether this node holds the primaries.
    fn destination(&self, part: usize, split: Split<'_>, tries: &Tries<'_>) -> (Arc<Node>, bool) {
        let destination = split.load.plan.parts[part].destination;
        let home = match destination {
            Destination::Node(node) if tries.none_failed() => split.snapshot.node(node),
            _ => None,
        };
        match home {
            // A node that is down cannot take its documents; any other node forwards them to the new primary.
            Some(node) if node.health.is_up() => (Arc::clone(node), true),
            _ => {
                let next = || tries.pick(PickReason::Documents);
                let picked = match (self.combine, destination) {
                    (Some((combiner, (family, company))), Destination::Any) if tries.none_failed() => {
                        combiner.any((family, company), &split.load.plan.parts[part], next)
                    }
                    _ => next(),
                };
                (picked, false)
            }
        }
    }

    /// Sends a part. The first try may travel with the parts of others.
    async fn try_once(
        &self,
        node: &Arc<Node>,
        part: usize,
        split: Split<'_>,
        first: bool,
    ) -> Result<(response::Parts, AnswerBody), Lost> {
        self.counters.parts.add(1);
        let mut lease = match self.combine {
            Some((combiner, with)) if first => match combiner.join(with, node, part, split).await {
                Combined::Shared(answer) => return answer.map_err(Lost::Unanswered),
                Combined::Doubted(why) => return Err(Lost::Together(why)),
                Combined::Alone(lease) => lease,
            },
            Some((combiner, _)) => {
                let lease = combiner.wait_to_send(node, split).await;
                lease.map_err(Lost::Unanswered)?
            }
            None => None,
        };
        if let Some(lease) = &mut lease {
            lease.sent();
        }
        let body = Body::new([Lines::part(split.load, part)], self.pool).outgoing();
        let message = Message {
            purpose: Purpose::Part(split.load.plan.parts[part].docs),
            ..split.message
        };
        let exchange = pin!(self.outbound.whole(node, message, body, split.deadline));
        let watch = lease.as_ref().and_then(Lease::slow_watch);
        let answer = SlowWatch::over(watch, exchange).await;
        if let Some(lease) = &mut lease {
            let bytes = split.load.plan.parts[part].bytes;
            lease.ended(answer.as_ref().map(|(head, body)| (head.status, &**body)), bytes);
        }
        let answer = answer.map(|(head, body)| (head, AnswerBody::whole(body.freeze())));
        answer.map_err(Lost::Unanswered)
    }
}

/// Why it is not known whether a try was executed.
struct Doubt {
    why: String,
    /// Whether the reason concerns a request that carried others as well.
    together: bool,
}

/// Handles a part that a node refused. If an earlier try may have been executed, this does not count as a
/// refusal of the part, with one exception: when the doubt comes from a try with others, and this answer
/// leaves open what was executed just as that one did, the answer is passed on.
fn refused(
    head: response::Parts,
    body: PooledBytes,
    doubt: Option<Doubt>,
    lent: Option<&Pool>,
) -> PartAnswer {
    match doubt {
        Some(doubt) if !doubt.together || is_unexecuted(head.status, &body) => {
            let why = doubt.why;
            PartAnswer::Unknown(format!("{why}; a second try was refused with {}", head.status))
        }
        _ => match lent {
            Some(pool) => PartAnswer::Refused(head, quote::without(body, pool)),
            None => PartAnswer::Refused(head, body),
        },
    }
}

// === impl Lost ===

impl Lost {
    /// Returns why it is unknown whether the part was executed, if it is.
    fn doubt(&self) -> Option<String> {
        match self {
            Lost::Unanswered(error) => (error.fate == Fate::Unknown).then(|| error.to_string()),
            Lost::Together(why) => Some(why.clone()),
        }
    }

    /// Returns whether the answer was larger than it may be here: another try would have the same.
    fn is_our_limit(&self) -> bool {
        let Lost::Unanswered(error) = self else {
            return false;
        };
        matches!(
            error.kind,
            SendErrorKind::OverBudget(_) | SendErrorKind::TooLarge { .. }
        )
    }
}

// === impl PartAnswer ===

impl PartAnswer {
    pub(crate) fn items(&self) -> Option<&Items> {
        match self {
            PartAnswer::Items(items) => Some(items),
            _ => None,
        }
    }
}

// === impl Items ===

impl Items {
    /// Returns whether the client may get the answer byte for byte, if this is its only part.
    pub(crate) fn is_final(&self) -> bool {
        self.repeat.is_none() && self.reworded.is_empty()
    }

    /// Returns whether the answer belongs to a later try, although the first may have been executed too.
    pub(crate) fn is_repeated(&self) -> bool {
        self.repeat.is_some()
    }

    /// Returns the answer for a client whose only part this was. `took`: how long the request took.
    pub(crate) fn into_answer(self, took: Duration, pool: &Pool) -> (response::Parts, Outgoing) {
        let Some(share) = self.words.share else {
            return (self.head, self.words.all.into());
        };
        // Copied, since a client that reads slowly must not keep the answers of others in memory.
        let mut own = pool.take(share.bytes() + FRAME_BYTES);
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        share.write(&self.words.all, took_ms, own.as_mut_vec());
        (self.head, own.into())
    }

    /// Returns the items, with their number checked. Those that answer a second try are corrected.
    pub(crate) async fn read(&self, docs: u32, turns: &mut Turns) -> Result<Reply<'_>, bulk::MergeError> {
        let turn = async || turns.pass().await;
        let mut reply = match &self.words.share {
            None => Reply::split_in_turns(&self.words.all, docs, turn).await?,
            Some(share) => share.reply(&self.words.all),
        };
        for (item, words) in &self.reworded {
            reply.replace(*item, words.clone());
        }
        if let Some(repeat) = &self.repeat {
            repeat.settle(&mut reply);
        }
        Ok(reply)
    }
}

// === impl AnswerBody ===

impl AnswerBody {
    pub(crate) fn whole(all: PooledBytes) -> Self {
        Self { all, share: None }
    }
}

// === impl ItemError ===

impl ItemError {
    /// Gives the node's own error to each item.
    pub(crate) fn refused(status: StatusCode, body: &[u8]) -> Self {
        let body: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        let word = |key: &str| body["error"][key].as_str().map(str::to_owned);
        Self {
            status: status.as_u16(),
            kind: word("type").unwrap_or_else(|| "status_exception".to_owned()),
            reason: word("reason")
                .unwrap_or_else(|| format!("the node answered {status} to this part of the request")),
            refused: true,
        }
    }

    pub(crate) fn unsent(error: &SendError) -> Self {
        Self::unavailable(format!(
            "gateway: no node could be asked, so this operation was not executed: {error}"
        ))
    }

    pub(crate) fn unknown_fate(why: &str) -> Self {
        Self::unavailable(format!(
            "gateway: the node that was asked gave no usable answer, so this operation may or may not have been executed: {why}"
        ))
    }

    /// Returns whether a node has rejected the part because it has too much to do.
    pub(crate) fn is_rejection(&self) -> bool {
        self.refused && self.status == StatusCode::TOO_MANY_REQUESTS.as_u16()
    }

    /// Returns the reason in words.
    pub(crate) fn reason(&self) -> &str {
        &self.reason
    }

    fn unavailable(reason: String) -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE.as_u16(),
            kind: UNAVAILABLE.to_owned(),
            reason,
            refused: false,
        }
    }

    /// Returns the items of a part that failed with this error.
    pub(crate) fn items(&self, part: usize, split: Split<'_>) -> Reply<'static> {
        let error = RawError {
            status: self.status,
            kind: &self.kind,
            reason: &self.reason,
        };
        let (load, table) = (split.load, &split.snapshot.table);
        Reply::failed(&load.plan, part, &load.body, split.ask, table, error)
    }
}
