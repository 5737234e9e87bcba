//! A listener's service on one core: a request's way through router and flow.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use cluster::NodeChoice;
use http::{HeaderMap, Method, Request, Response, response};
use wire::{Incoming, Outgoing, Refusal, Service, SourceError, Worker};

use crate::accept::Accept;
use crate::combine::Combiner;
use crate::config::{BulkReshuffle, Filter, FilterAction, Forward, Sending};
use crate::credentials::Fallback;
use crate::error::Fault;
use crate::live::{Live, Shared, node_choice};
use crate::metrics::Counters;
use crate::outbound::Outbound;
use crate::proxy::{Body, Proxy};
use crate::queue::Queues;
use crate::request_id::{self, RequestIds};
use crate::sync::{Reshuffle, Step};
use crate::when::{self, When};

/// One entry's service on one core.
pub(crate) struct Front {
    shared: Arc<Shared>,
    /// The entry's place in the configuration.
    entry: Arc<str>,
    worker: Worker,
    cores: usize,
    request_ids: RequestIds,
    counters: Arc<Counters>,
    compiled: RefCell<Rc<Compiled>>,
}

/// The flows of one configuration, with this core's clients.
struct Compiled {
    live: Arc<Live>,
    flows: BTreeMap<Arc<str>, Vec<Stage>>,
}

struct Stage {
    when: Option<When>,
    action: Action,
}

enum Action {
    Reshuffle(Box<Reshuffle>),
    Forward(Box<Proxy>),
}

impl Front {
    pub(crate) fn new(shared: Arc<Shared>, entry: Arc<str>, worker: &Worker, cores: usize) -> Self {
        let counters = shared.metrics.core(worker.index());
        let compiled = Compiled::new(shared.live.load_full(), &shared, &entry, worker, cores, &counters);
        Self {
            shared,
            entry,
            worker: worker.clone(),
            cores,
            request_ids: RequestIds::new(fastrand::u32(..)),
            counters,
            compiled: RefCell::new(Rc::new(compiled)),
        }
    }

    /// The flows of the newest configuration; compiled anew after a reload, by the first request that comes.
    fn compiled(&self) -> Rc<Compiled> {
        let live = self.shared.live.load();
        if !Arc::ptr_eq(&live, &self.compiled.borrow().live) {
            let (shared, entry, worker) = (&self.shared, &self.entry, &self.worker);
            let compiled = Compiled::new(
                Arc::clone(&live),
                shared,
                entry,
                worker,
                self.cores,
                &self.counters,
            );
            *self.compiled.borrow_mut() = Rc::new(compiled);
        }
        Rc::clone(&self.compiled.borrow())
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Outgoing> {
        let (mut head, incoming) = request.into_parts();
        if head.method == Method::CONNECT {
            return Fault::unsupported("CONNECT is not supported").response();
        }
        let compiled = self.compiled();
        let config = &compiled.live.config;
        let Some(router) = config
            .entries
            .iter()
            .find(|entry| entry.name == self.entry)
            .and_then(|entry| config.routers.get(&entry.router))
        else {
            return Fault::no_flow().response();
        };
        let stages: Vec<&Stage> = router
            .route(&head.method, head.uri.path())
            .iter()
            .filter_map(|name| compiled.flows.get(name))
            .flatten()
            .collect();
        let arrival = Arrival::of(&incoming);
        let mut body = Body::Streamed(incoming);
        for stage in stages {
            if !stage
                .when
                .as_ref()
                .is_none_or(|when| holds(when, &head, &arrival))
            {
                continue;
            }
            match (&stage.action, body) {
                (Action::Forward(proxy), whole) => {
                    return proxy.forward(head, whole, cluster::PickReason::Request).await;
                }
                (Action::Reshuffle(reshuffle), Body::Streamed(incoming)) => {
                    match reshuffle.take(head, incoming).await {
                        Step::Done(answer) => return answer,
                        Step::Next(next_head, next_body) => (head, body) = (next_head, next_body),
                    }
                }
                // An earlier filter of this flow has read it and passed it on.
                (Action::Reshuffle(_), held) => body = held,
            }
        }
        Fault::no_flow().response()
    }
}

impl Service for Front {
    async fn call(&self, mut request: Request<Incoming>) -> Response<Outgoing> {
        let began = Instant::now();
        self.counters.requests.add(1);
        let id = self.request_ids.of(request.headers());
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        request.extensions_mut().insert(id.clone());
        let mut response = self.answer(request).await;
        let took = began.elapsed();
        self.counters.response(response.status());
        self.counters.request_latency.observe(took);
        let slow = self.shared.live.load().config.logging.slow_request;
        let (status, took_ms) = (response.status().as_u16(), took.as_millis() as u64);
        if slow.is_some_and(|slow| took >= slow) {
            wire::rationed!(tracing::warn, request_id = %id, %method, path, status, took_ms, "slow request");
        } else {
            tracing::debug!(request_id = %id, %method, path, status, took_ms, "request");
        }
        response.headers_mut().insert(&request_id::HEADER, id.0);
        response
    }

    fn broke_off(&self, given: &response::Parts, why: &SourceError) -> Response<Outgoing> {
        let mut response = Fault::broke_off(why).response();
        self.counters.response(response.status());
        if let Some(id) = given.headers.get(&request_id::HEADER) {
            response.headers_mut().insert(&request_id::HEADER, id.clone());
        }
        response
    }

    fn refuse(&self, refusal: Refusal) -> Response<Outgoing> {
        self.counters.refused.add(1);
        let id = self.request_ids.of(&HeaderMap::new());
        tracing::debug!(request_id = %id, %refusal, "request refused");
        let mut response = Fault::refused(refusal).response();
        self.counters.response(response.status());
        response.headers_mut().insert(&request_id::HEADER, id.0);
        response
    }
}

/// What conditions ask besides the head. Noted before the first filter: one that has read the body leaves no trace of
/// whom it came from, and a condition must mean the same at every filter of a flow.
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
    fn new(
        live: Arc<Live>,
        shared: &Shared,
        entry: &str,
        worker: &Worker,
        cores: usize,
        counters: &Arc<Counters>,
    ) -> Self {
        let core = Core {
            live: &live,
            queues: &shared.queues,
            entry,
            worker,
            cores,
            counters,
        };
        let flows = live.config.flows.iter().map(|(name, flow)| {
            let filters = flow.filters.iter().enumerate();
            let stages = filters.map(|(at, filter)| Stage {
                when: filter.when.clone(),
                action: match &filter.action {
                    FilterAction::BulkReshuffle(settings) => {
                        let choice = choice_after(&flow.filters[at..], &settings.cluster);
                        Action::Reshuffle(Box::new(core.reshuffle(settings, choice)))
                    }
                    FilterAction::Elasticsearch(settings) => Action::Forward(Box::new(core.proxy(settings))),
                },
            });
            (Arc::clone(name), stages.collect())
        });
        let flows = flows.collect();
        Self { live, flows }
    }
}

/// The nodes for parts of bulks that have no destination of their own: those that would have got the bulk, had it been
/// forwarded by the same flow.
fn choice_after(filters: &[Filter], cluster: &str) -> NodeChoice {
    let mut choices = filters.iter().filter_map(|filter| match &filter.action {
        FilterAction::Elasticsearch(forward) if &*forward.cluster == cluster => Some(node_choice(forward)),
        _ => None,
    });
    choices.next().unwrap_or_default()
}

/// What filters are made of on one core.
struct Core<'a> {
    live: &'a Live,
    queues: &'a Queues,
    /// The entry that the requests come in at.
    entry: &'a str,
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

    fn reshuffle(&self, settings: &BulkReshuffle, choice: NodeChoice) -> Reshuffle {
        let (outbound, fallback) = self.outbound(&settings.cluster, choice, &settings.sending);
        let outbound = Rc::new(outbound);
        let combine = settings.combine.as_ref().filter(|_| settings.queue.is_none());
        let combiner = combine.map(|combine| {
            let pool = self.worker.pool().clone();
            Combiner::new(
                combine.clone(),
                Rc::clone(&outbound),
                pool,
                Arc::clone(self.counters),
            )
        });
        let mut entries = self.live.config.entries.iter();
        Reshuffle {
            outbound,
            combiner,
            fallback,
            settings: settings.clone(),
            accept: settings.queue.as_ref().map(|name| {
                let queue = self.queues.get(name);
                Accept::new(Arc::clone(
                    queue.expect("a configuration with other queues is not put in force"),
                ))
            }),
            body_bytes_max: entries
                .find(|entry| &*entry.name == self.entry)
                .map_or(u64::MAX, |entry| entry.limits.body_bytes_max),
            pool: self.worker.pool().clone(),
            ids: RefCell::new(bulk::IdMint::new(fastrand::u64(..))),
            scratch: RefCell::default(),
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
