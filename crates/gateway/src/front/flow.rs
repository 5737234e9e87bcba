//! The service of a listener on one core: the way of a request through router and flow.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use cluster::NodeChoice;
use config::router::Router;
use config::when::{self, When};
use config::{BulkReshuffle, Filter, FilterAction, Flow, Forward, Sending};
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Method, Request, Response, response};
use traces::OpenSpan;
use wire::guard::{Work, guarded};
use wire::{Incoming, Outgoing, Refusal, Refused, Service, SourceError, Worker};

use crate::admission::rights::{Rights, Senders};
use crate::error::{Fault, Rejection};
use crate::flow_counts::FlowCounts;
use crate::front::access_log;
use crate::front::access_log::{AccessLog, RequestFacts};
use crate::front::listening::Label;
use crate::front::traced;
use crate::intake::{ChosenFlows, Intake, Queueing, Taken, named_in_body, whole};
use crate::live::{GatewayState, Live, node_choice};
use crate::metrics::Counters;
use crate::nodes::{Body, Fallback, Outbound, Proxy};
use crate::own_copy::OwnCopy;
use crate::queue::Accept;
use crate::request_id::{RequestId, RequestIds};
use crate::reshuffle::{Directory, Lanes, Reshuffle};
use crate::split::Combiner;
use crate::switches::calls::Call;
use crate::switches::{ClusterSwitches, Switches};
use crate::{pretty, request_id};

/// The service of one entry on one core.
pub(crate) struct Front {
    shared: Arc<GatewayState>,
    label: Label,
    worker: Worker,
    cores: usize,
    request_ids: RequestIds,
    counters: Arc<Counters>,
    access_log: AccessLog,
    compiled: RefCell<Rc<Compiled>>,
}

/// One configuration as this listener sees it: the router of its entry, and the flows with this core's
/// clients.
struct Compiled {
    live: Arc<Live>,
    entry: Arc<str>,
    /// This core's copy, because requests may keep it.
    router: Option<Arc<Router>>,
    body_bytes_max: u64,
    flows: BTreeMap<Arc<str>, Rc<Vec<Stage>>>,
}

struct Stage {
    /// The counts of its flow on this core.
    counts: Arc<FlowCounts>,
    when: Option<When>,
    action: Action,
}

enum Action {
    Reshuffle(Box<Intake>),
    Forward(Box<Proxy>, ClusterSwitches),
}

impl Front {
    /// Creates the service for the listener of `entry`, an entry of `live`. `label` holds the current name of
    /// the entry.
    pub(crate) fn new(
        shared: Arc<GatewayState>,
        live: Arc<Live>,
        label: Label,
        entry: &str,
        worker: &Worker,
        cores: usize,
    ) -> Self {
        let counters = shared.metrics.core(worker.index());
        let compiled = Compiled::new(live, &shared, entry, worker, cores, &counters, None);
        Self {
            shared,
            label,
            worker: worker.clone(),
            cores,
            request_ids: RequestIds::new(fastrand::u32(..)),
            counters,
            access_log: AccessLog::default(),
            compiled: RefCell::new(Rc::new(compiled)),
        }
    }

    /// Returns the flows of the newest configuration. After a reload the first request compiles them anew. A
    /// listener whose entry was removed finishes with the last configuration that had the entry.
    fn compiled(&self) -> Rc<Compiled> {
        let live = self.shared.live.load();
        if !Arc::ptr_eq(&live, &self.compiled.borrow().live) {
            let entry = Arc::clone(&self.label.lock());
            if live.config.entries.iter().any(|known| known.name == entry) {
                let (shared, worker) = (&self.shared, &self.worker);
                let compiled = Compiled::new(
                    Arc::clone(&live),
                    shared,
                    &entry,
                    worker,
                    self.cores,
                    &self.counters,
                    Some(&self.compiled.borrow()),
                );
                *self.compiled.borrow_mut() = Rc::new(compiled);
            }
        }
        Rc::clone(&self.compiled.borrow())
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        compiled: &Compiled,
    ) -> Result<Response<Outgoing>, Rejection> {
        let (mut head, incoming) = request.into_parts();
        if head.method == Method::CONNECT {
            return Err(Fault::unsupported("CONNECT is not supported").into());
        }
        let Some(router) = &compiled.router else {
            return Err(Fault::no_flow().into());
        };
        let flows = router.decide(&head.method, head.uri.path(), head.uri.query());
        let flows = flows.map_err(Fault::undecided)?;
        if router.binds_indices() {
            head.extensions.insert(ChosenFlows::to(router, flows));
        }
        let stages: Vec<&Stage> = flows
            .iter()
            .filter_map(|name| compiled.flows.get(name))
            .flat_map(|stages| stages.iter())
            .collect();
        let arrival = Arrival::of(&incoming);
        let presence = incoming.presence();
        let mut body = Body::Streamed(incoming);
        let mut is_counted = false;
        for stage in stages {
            if !stage
                .when
                .as_ref()
                .is_none_or(|when| holds(when, &head, &arrival))
            {
                continue;
            }
            if !std::mem::replace(&mut is_counted, true) {
                stage.counts.requests.add(1);
            }
            match (&stage.action, body) {
                (Action::Forward(proxy, switches), whole) => {
                    let whole = named_in_body::admit(proxy, &head, whole).await?;
                    let answer = match Call::of(&head.method, head.uri.path()) {
                        None => proxy.forward(head, whole, cluster::PickReason::Request).await,
                        Some(call) => call.answer(proxy, switches, head, whole).await,
                    };
                    return Ok(answer?);
                }
                (Action::Reshuffle(intake), Body::Streamed(incoming)) => {
                    match intake.take(head, incoming).await? {
                        Taken::Done(answer) => return Ok(answer),
                        Taken::Next(next_head, next_body, passing) => {
                            let (next, queues) = ((&next_head, next_body), &self.shared.queues);
                            body = intake.admit(queues, next, &passing, &presence).await?;
                            head = next_head;
                        }
                    }
                }
                // An earlier filter of this flow has read the body and passed it on.
                (Action::Reshuffle(_), held) => body = held,
            }
        }
        Err(Fault::no_flow().into())
    }
}

impl Service for Front {
    async fn call(&self, mut request: Request<Incoming>) -> Response<Outgoing> {
        self.counters.requests.add(1);
        let compiled = self.compiled();
        let id = self.request_ids.of(request.headers());
        let mut span = traced::begin(&compiled.live, &compiled.entry, &request, &id);
        let id = id.traced(span.as_ref().map(OpenSpan::trace));
        let noted = RequestFacts::of(&request, id.clone());
        let pretty = pretty::is_asked(request.uri().query());
        request.extensions_mut().insert(id.clone());
        let answered = guarded(Work::Request, self.answer(request, &compiled)).await;
        let answered = answered.unwrap_or_else(|panicked| {
            panicked.report(Work::Request, "its client gets 500, other requests go on");
            Err(Fault::panicked().into())
        });
        let mut response = answered.unwrap_or_else(Rejection::response);
        // A fault in the extensions shows that the gateway itself has answered.
        if pretty && response.extensions().get::<Fault>().is_some() {
            response = laid_out(response);
        }
        self.counters.response(response.status());
        self.counters.request_latency.observe(noted.took());
        if let Some(span) = &mut span {
            traced::answered(span, &response);
        }
        self.access_log.answered(
            &noted,
            &compiled.entry,
            &response,
            &self.shared.live.load().config.logging,
        );
        response
            .headers_mut()
            .insert(&request_id::HEADER, id.into_header());
        response
    }

    fn broke_off(&self, given: &response::Parts, why: &SourceError) -> Response<Outgoing> {
        let mut response = Fault::broke_off(why).response();
        self.counters.response(response.status());
        if let Some(id) = given.headers.get(&request_id::HEADER) {
            access_log::broke_off(&RequestId::new(id.clone()), &response);
            response.headers_mut().insert(&request_id::HEADER, id.clone());
        }
        response
    }

    fn refuse(&self, refusal: Refusal, refused: Refused<'_>) -> Response<Outgoing> {
        self.counters.refused.add(1);
        let none = HeaderMap::new();
        let id = self.request_ids.of(refused.headers.unwrap_or(&none));
        let mut response = Fault::refused(refusal).response();
        self.counters.response(response.status());
        let entry = Arc::clone(&self.compiled.borrow().entry);
        self.access_log.refused(
            &id,
            &entry,
            refused.peer,
            &response,
            &self.shared.live.load().config.logging,
        );
        response
            .headers_mut()
            .insert(&request_id::HEADER, id.into_header());
        response
    }
}

/// Lays out an answer of the gateway's own, as `?pretty` asks.
fn laid_out(response: Response<Outgoing>) -> Response<Outgoing> {
    let (mut head, body) = response.into_parts();
    let body = whole(body);
    let body = match serde_json::from_slice(&body) {
        Ok(value) => pretty::pretty(&value).into_bytes(),
        Err(_) => body,
    };
    head.headers.remove(CONTENT_LENGTH);
    Response::from_parts(head, Outgoing::from(body))
}

/// What conditions need besides the head. It is recorded before the first filter: once a filter has read the
/// body, its origin is lost, and a condition must mean the same at every filter of a flow.
struct Arrival {
    client: IpAddr,
    tls: bool,
    body_length: Option<u64>,
}

impl Arrival {
    fn of(incoming: &Incoming) -> Self {
        let peer = incoming.peer();
        Self {
            client: peer.address.ip(),
            tls: peer.tls,
            body_length: incoming.length(),
        }
    }
}

fn holds(when: &When, head: &http::request::Parts, arrival: &Arrival) -> bool {
    when.holds(&when::Request {
        method: &head.method,
        path: head.uri.path(),
        query: head.uri.query().unwrap_or_default(),
        headers: &head.headers,
        client: arrival.client,
        tls: arrival.tls,
        body_length: arrival.body_length,
    })
}

// === impl Compiled ===

impl Compiled {
    /// Compiles a configuration. Flows from `before` that would be the same are kept, together with their
    /// connections to nodes.
    fn new(
        live: Arc<Live>,
        shared: &GatewayState,
        entry: &str,
        worker: &Worker,
        cores: usize,
        counters: &Arc<Counters>,
        before: Option<&Compiled>,
    ) -> Self {
        let mut entries = live.config.entries.iter();
        let settings = entries.find(|known| &*known.name == entry);
        let router = settings.and_then(|known| live.config.routers.get(&known.router));
        let router = router.map(|router| Arc::new(Router::clone(router)));
        let body_bytes_max = settings.map_or(u64::MAX, |known| known.limits.body_bytes_max);
        let core = Core {
            live: &live,
            switches: &shared.switches,
            directory: &shared.directory,
            rights: &shared.rights,
            body_bytes_max,
            worker,
            cores,
            counters,
        };
        let before = before.filter(|before| before.body_bytes_max == body_bytes_max);
        let flows = live.config.flows.iter().map(|(name, flow)| {
            if let Some(stages) = before.and_then(|before| before.kept(name, flow, &live)) {
                return (Arc::clone(name), stages);
            }
            let filters = flow.filters.iter().enumerate();
            let counts = counters.flow(name);
            let stages = filters.map(|(at, filter)| Stage {
                counts: Arc::clone(&counts),
                when: filter.when.clone(),
                action: match &filter.action {
                    FilterAction::BulkReshuffle(settings) => {
                        let choice = choice_after(&flow.filters[at..], &settings.cluster);
                        let filter = format!("{name} {at}").into_bytes();
                        let flow = Arc::clone(&counts);
                        Action::Reshuffle(Box::new(core.intake(settings, choice, filter, flow)))
                    }
                    FilterAction::Elasticsearch(settings) => Action::Forward(
                        Box::new(core.proxy(settings)),
                        core.switches.of(&settings.cluster),
                    ),
                },
            });
            (Arc::clone(name), Rc::new(stages.collect()))
        });
        let flows = flows.collect();
        Self {
            entry: Arc::from(entry),
            router,
            body_bytes_max,
            flows,
            live,
        }
    }

    /// Returns the stages of a flow, if they would be the same under `live`.
    fn kept(&self, name: &str, flow: &Flow, live: &Live) -> Option<Rc<Vec<Stage>>> {
        let same_cluster = |name: &Arc<str>| match (self.live.clusters.get(name), live.clusters.get(name)) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            _ => false,
        };
        let same_queue = |name: &Arc<str>| match (self.live.queues.get(name), live.queues.get(name)) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            _ => false,
        };
        let same_others = |name: &Arc<str>| {
            let (before, now) = (self.live.other_clusters(name), live.other_clusters(name));
            let mut pairs = before.iter().zip(&now);
            before.len() == now.len()
                && pairs.all(|(one, other)| one.0 == other.0 && Arc::ptr_eq(&one.1, &other.1))
        };
        let same = self
            .live
            .config
            .flows
            .get(name)
            .is_some_and(|before| **before == *flow)
            && flow.filters.iter().all(|filter| match &filter.action {
                FilterAction::BulkReshuffle(settings) => {
                    let same = |queue| same_queue(queue) && same_others(queue);
                    same_cluster(&settings.cluster) && settings.queue.as_ref().is_none_or(same)
                }
                FilterAction::Elasticsearch(settings) => same_cluster(&settings.cluster),
            });
        self.flows.get(name).filter(|_| same).cloned()
    }
}

/// Returns the choice of nodes for parts of bulks that have no destination of their own: the nodes that would
/// have received the bulk if the same flow had forwarded it.
fn choice_after(filters: &[Filter], cluster: &str) -> NodeChoice {
    let mut choices = filters.iter().filter_map(|filter| match &filter.action {
        FilterAction::Elasticsearch(forward) if &*forward.cluster == cluster => Some(node_choice(forward)),
        _ => None,
    });
    choices.next().unwrap_or_default()
}

/// What the filters on one core are made of.
struct Core<'a> {
    live: &'a Live,
    switches: &'a Arc<Switches>,
    directory: &'a Directory,
    rights: &'a Arc<Rights>,
    /// The limit of the entry that the requests arrive at.
    body_bytes_max: u64,
    worker: &'a Worker,
    cores: usize,
    counters: &'a Arc<Counters>,
}

impl Core<'_> {
    fn outbound(&self, cluster: &str, choice: NodeChoice, sending: &Sending) -> (Outbound, Fallback) {
        let anonymous = self.live.config.clusters[cluster].anonymous;
        let cluster = Arc::clone(&self.live.clusters[cluster]);
        let fallback = Fallback::new(&cluster, anonymous);
        let pool = self.worker.pool().clone();
        let outbound = Outbound::new(
            cluster,
            choice,
            sending,
            self.cores,
            pool,
            Arc::clone(self.counters),
        );
        (outbound, fallback)
    }

    /// Creates a filter. `filter` distinguishes it from the other filters.
    fn intake(
        &self,
        settings: &BulkReshuffle,
        choice: NodeChoice,
        filter: Vec<u8>,
        flow: Arc<FlowCounts>,
    ) -> Intake {
        let (outbound, fallback) = self.outbound(&settings.cluster, choice, &settings.sending);
        let outbound = Rc::new(outbound);
        let combiner = settings.queue.is_none().then(|| {
            let pool = self.worker.pool().clone();
            Combiner::new(
                settings.combine,
                self.switches.of(&settings.cluster),
                filter,
                Arc::clone(&self.live.families),
                Rc::clone(&outbound),
                pool,
                Arc::clone(self.counters),
            )
        });
        let queueing = settings.queue.as_ref().map(|name| Queueing {
            accept: Accept::new(
                Arc::clone(&self.live.queues[name]),
                self.live.other_clusters(name),
            ),
            rights: self.rights.of(&settings.cluster),
        });
        let reshuffle = Reshuffle {
            outbound: Rc::clone(&outbound),
            combiner,
            fallback: fallback.clone(),
            settings: settings.clone(),
            lanes: queueing.as_ref().map(|queueing| Lanes {
                count: queueing.accept.queue.log.lanes(),
                by_id: queueing.accept.queue.log.has_lanes_by_id(),
                nodes_apart: queueing.accept.queue.log.on_disk().is_some(),
            }),
            round_robins: self.directory.of(&settings.cluster),
            switches: self.switches.of(&settings.cluster),
            switched: OwnCopy::default(),
            pool: self.worker.pool().clone(),
            ids: RefCell::new(bulk::IdMint::new(fastrand::u64(..))),
            scratch: RefCell::default(),
            flow,
            counters: Arc::clone(self.counters),
        };
        Intake {
            reshuffle,
            queueing,
            senders: Senders::new(Arc::clone(self.rights), Arc::clone(&settings.cluster)),
            outbound,
            fallback,
            body_bytes_max: self.body_bytes_max,
            counters: Arc::clone(self.counters),
        }
    }

    fn proxy(&self, settings: &Forward) -> Proxy {
        let (outbound, fallback) = self.outbound(&settings.cluster, node_choice(settings), &settings.sending);
        Proxy {
            outbound,
            fallback,
            response_bytes_max: settings.response_bytes_max,
            counters: Arc::clone(self.counters),
        }
    }
}
