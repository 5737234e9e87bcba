//! Takes a planned bulk into a queue. The client is answered once the bulk is there.

mod keyed;

use std::cell::RefCell;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Instant;

use bulk::{Ask, Plan, Scratch};
use cluster::{Cluster, Snapshot};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Response};
use tokio::sync::oneshot;
use traces::SpanKind;
use wire::{Buffer, Chunk, Outgoing, Pool, PooledBytes};

use crate::admission::form::AnswerHead;
use crate::admission::keys::{Claim, Keyed, Occurrence};
use crate::admission::plan_room::PlanTurn;
use crate::answer::json_response;
use crate::error::{Fault, NotQueued};
use crate::nodes::Outbound;
use crate::queue::journal::{NewRecord, Receipt};
use crate::queue::queues::Queue;
use crate::queue::record::Params;
use crate::queue::whereabouts::{NameNote, NamesOfCore};
use crate::request_id::RequestId;
use crate::turns::Turns;

/// Puts bulks into a queue; there is one instance per core.
pub(crate) struct Accept {
    pub(crate) queue: Arc<Queue>,
    /// The other clusters that a queue in Kafka is delivered to, each with its consumer group.
    others: Vec<(Arc<str>, Arc<Cluster>)>,
    /// Names of the queue's documents that this core need not ask about.
    known: RefCell<NamesOfCore>,
}

/// A request that is planned by lanes.
pub(crate) struct Queued<'a> {
    pub(crate) head: &'a Parts,
    pub(crate) target: &'a str,
    /// Let go of as soon as the record has its lines.
    pub(crate) body: PooledBytes,
    /// Where the record's memory is charged.
    pub(crate) pool: &'a Pool,
    /// Let go of then, too.
    pub(crate) plan: Plan,
    pub(crate) scratch: &'a RefCell<Scratch>,
    /// The right to have the plan.
    pub(crate) turn: PlanTurn,
    pub(crate) ask: &'a Ask<'a>,
    /// The items of the answer.
    pub(crate) items: Buffer,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) arrived: Instant,
}

impl Accept {
    pub(crate) fn new(queue: Arc<Queue>, others: Vec<(Arc<str>, Arc<Cluster>)>) -> Self {
        Self {
            queue,
            others,
            known: RefCell::default(),
        }
    }

    /// Appends a request that was admitted, and answers it; the answer says 200 only if the request is
    /// durable. `occurrence` is given if the request has a key.
    pub(crate) async fn take(
        &self,
        outbound: &Outbound,
        queued: Queued<'_>,
        occurrence: Option<Occurrence>,
    ) -> Result<Response<Outgoing>, Fault> {
        let request_id = RequestId::of(&queued.head.extensions);
        let claim = match occurrence {
            Some(Occurrence::Again(accepted)) => return Ok(self.again(queued, &accepted)),
            Some(Occurrence::First(claim)) => Some(claim),
            None => None,
        };
        self.finds_room(&queued)?;
        let millis = |since: Instant| u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let keyed = claim.as_ref();
        let keyed = keyed.map(|claim| keyed::kept(claim, millis(queued.arrived)));
        let (log, table, ask) = (&self.queue.log, &queued.snapshot.table, queued.ask);
        let (plan, body) = (&queued.plan, &queued.body);
        let mut append = request_id.begin("append", SpanKind::Producer);
        let params = Params {
            idempotency: keyed,
            trace: append.as_ref().map(|append| append.context().to_string()),
            ..self.params(&queued)
        };
        let mut charge = queued.pool.budget().hold(bytes_of(&queued.plan)).await;
        let lend = |bytes| Some(queued.pool.take_charged(bytes, &mut charge));
        let (mut turns, what) = (Turns::begin(), (ACCEPTED, &params));
        let entry = log.entry(what, plan, body, (ask, table), lend, async || turns.pass().await);
        let entry = entry.await;
        let noted = self.note(&queued, outbound);
        // The record has a copy, and a request that waits for the disk should not hold both.
        drop(queued.body);
        queued.scratch.borrow_mut().recycle(queued.plan);
        drop(queued.turn);
        charge.made(entry.as_ref().map_or(0, NewRecord::bytes));
        let appended = match entry {
            Ok(entry) => self.append(entry, claim.zip(keyed)).await,
            Err(error) => Err(error),
        };
        match appended {
            Err(error) => {
                let queue = &*self.queue.name;
                if let Some(append) = &mut append {
                    append.fail(error.to_string());
                }
                wire::rationed!(tracing::warn, %request_id, queue, %error, "a bulk was not accepted");
                Err(Fault::not_queued(&error))
            }
            Ok(receipt) => {
                if let (Some(noted), Some(whereabouts), Receipt::Disk(receipt)) =
                    (noted, &self.queue.whereabouts, &receipt)
                {
                    whereabouts.durable(noted, receipt.position).await;
                }
                let took = keyed.map_or_else(|| millis(queued.arrived), |keyed| keyed.took);
                let mut response = answer(queued.head, took, queued.items, &receipt);
                if keyed.is_some() {
                    let kept = HeaderValue::from_static("kept");
                    response.headers_mut().insert(&keyed::SAYS, kept);
                } else if let (Some(keys), Receipt::Disk(receipt)) = (&self.queue.keys, &receipt) {
                    keys.passed(receipt.position + receipt.bytes);
                }
                Ok(response)
            }
        }
    }

    /// Appends an entry; one with a key is there once the key lies in its own log, too.
    async fn append(&self, entry: NewRecord, keyed: Option<(Claim, Keyed)>) -> Result<Receipt, NotQueued> {
        let _inside = self.queue.entrance.enter().ok_or(NotQueued::Leaving)?;
        let log = &self.queue.log;
        let Some((claim, keyed)) = keyed else {
            return log.append(entry).await;
        };
        let (decided, is_kept) = oneshot::channel();
        let settle = move |result: &_| claim.settle(keyed, result, decided);
        let appended = log.append_and(entry, settle).await;
        // Nothing is sent: the other end is dropped.
        let _ = is_kept.await;
        appended
    }

    /// Returns the parameters of the record that the request becomes.
    fn params(&self, queued: &Queued<'_>) -> Params {
        let (plan, table) = (&queued.plan, &queued.snapshot.table);
        let mut params = Params::of(queued.target, plan, table, &self.queue.log);
        for (group, cluster) in &self.others {
            let learnt = |snapshot: &Snapshot| snapshot.learnt().then(|| Arc::clone(&snapshot.table));
            params.add_cluster(group, cluster.look(learnt).as_deref(), plan, table);
        }
        params
    }

    /// Refuses a request for an index whose refused documents fill the room that there is for them: its
    /// documents could be refused too, and would then have nowhere to go.
    fn finds_room(&self, queued: &Queued<'_>) -> Result<(), Fault> {
        let table = &queued.snapshot.table;
        let names = queued.plan.names().iter().map(|name| table.name_of(*name));
        match self.queue.parked.overfull(names) {
            Some((index, bytes)) => Err(Fault::letters_full(index, bytes)),
            None => Ok(()),
        }
    }

    /// Announces the names of the documents that are about to be put into the log.
    fn note(&self, queued: &Queued<'_>, outbound: &Outbound) -> Option<NameNote> {
        let whereabouts = self.queue.whereabouts.as_ref()?;
        let newest = || outbound.cluster().look(|snapshot| Arc::clone(&snapshot.table));
        let (table, names) = (&queued.snapshot.table, queued.plan.names());
        let known = &mut self.known.borrow_mut();
        Some(whereabouts.note(table, newest, names, known, &self.queue.log))
    }
}

/// Returns the bytes of a plan's parts together.
fn bytes_of(plan: &Plan) -> usize {
    let bytes = plan.parts.iter().map(|part| part.bytes).sum::<u64>();
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Returns the answer to a client whose request is durable, which says where the request is.
fn answer(request: &Parts, took_ms: u64, items: Buffer, place: &impl Display) -> Response<Outgoing> {
    let head = format!("{{\"took\":{took_ms},\"errors\":false,\"items\":[");
    let chunks = [Chunk::from(head), Chunk::from(items), Chunk::from("]}")];
    let mut response = json_response(chunks.into_iter().collect());
    AnswerHead::put_on(response.headers_mut(), request);
    let ack = format!("queued; {place}");
    if let Ok(ack) = HeaderValue::from_str(&ack) {
        response.headers_mut().insert(&ACK, ack);
    }
    response
}

/// The kind of a record that a client's request became.
const ACCEPTED: u8 = 0;

/// The header that explains a 200: the request is durable, and not yet executed.
static ACK: HeaderName = HeaderName::from_static("x-tidegate-ack");
