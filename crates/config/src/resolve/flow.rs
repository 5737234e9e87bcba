//! Flows: filters and their conditions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use settings::problem::nearest;

use super::Resolver;
use crate::file::*;
use crate::resolve::queue::queue_name;
use crate::router::compile_regex;
use crate::runtime::*;
use crate::when::{Field, Test, When};

/// The surroundings of a list of filters.
#[derive(Clone, Copy)]
struct FilterContext<'a> {
    /// The condition of the branch that contains the list.
    when: Option<&'a When>,
    /// Whether a `rewrite_to_bulk` came before.
    rewrites: bool,
    clusters: &'a [ElasticsearchFile],
}

// === impl Resolver ===

impl Resolver<'_> {
    pub(super) fn flows(
        &mut self,
        flows: &[FlowFile],
        clusters: &[ElasticsearchFile],
    ) -> BTreeMap<Arc<str>, Arc<Flow>> {
        self.names("flow", flows.iter().map(|flow| flow.name.as_str()));
        let mut resolved = BTreeMap::new();
        for (at, flow) in flows.iter().enumerate() {
            let path = format!("flow[{at}].filter");
            let mut filters = Vec::new();
            let around = FilterContext {
                when: None,
                rewrites: false,
                clusters,
            };
            self.filters(&path, &flow.filter, around, &mut filters);
            if flow.filter.is_empty() && self.places.is_some_and(|places| places.has(&path)) {
                self.error(&path, "is an empty list, so requests would get no answer");
            }
            let answered = filters.iter().any(|filter| {
                filter.when.is_none() && matches!(filter.action, FilterAction::Elasticsearch(_))
            });
            if !answered && !filters.is_empty() {
                let message = "no filter answers every request: end the flow with `elasticsearch` without `when`, or requests that no filter takes get 404";
                self.warning(&path, message);
            }
            let name: Arc<str> = flow.name.as_str().into();
            resolved.insert(name.clone(), Arc::new(Flow { name, filters }));
        }
        resolved
    }

    /// Collects filters. `if … then … else` is not a filter of its own: its filters get the condition, or its
    /// negation, in addition to their own. That has the same meaning, because conditions look at the head of
    /// the request, which no filter changes.
    ///
    /// `rewrite_to_bulk` is not a filter either, but an option of the filters after it.
    fn filters(
        &mut self,
        path: &str,
        filters: &[FilterFile],
        mut around: FilterContext<'_>,
        out: &mut Vec<Filter>,
    ) {
        for (at, filter) in filters.iter().enumerate() {
            let path = format!("{path}[{at}]");
            let rewrite = format!("{path}.rewrite_to_bulk");
            // The key may be written without a value.
            let is_rewrite =
                filter.rewrite_to_bulk.is_some() || self.places.is_some_and(|places| places.has(&rewrite));
            if !self.is_one_filter(&path, filter, is_rewrite) {
                continue;
            }
            if is_rewrite {
                around.rewrites = true;
                if !filters[at..].iter().any(splits) {
                    self.warning(
                        &rewrite,
                        "has no effect: no `bulk_reshuffle` follows in this list",
                    );
                }
            }
            if let Some(bulk) = &filter.bulk_reshuffle {
                let path = format!("{path}.bulk_reshuffle");
                let when = self.when(&path, &bulk.when);
                let mut bulk = self.bulk_reshuffle(&path, bulk, around.clusters);
                bulk.rewrite_to_bulk |= around.rewrites;
                if bulk.rewrite_to_bulk && bulk.queue.is_some() {
                    let message = "writes of single documents are rewritten with `mode: sync` only; here they go on as they are";
                    self.warning(&path, message);
                }
                let action = FilterAction::BulkReshuffle(bulk);
                out.push(Filter {
                    when: both(around.when, when),
                    action,
                });
            }
            if let Some(forward) = &filter.elasticsearch {
                let path = format!("{path}.elasticsearch");
                let when = self.when(&path, &forward.when);
                let action = FilterAction::Elasticsearch(self.forward(&path, forward, around.clusters));
                out.push(Filter {
                    when: both(around.when, when),
                    action,
                });
            }
            if let Some(condition) = &filter.r#if {
                self.branches(&path, filter, condition, around, out);
            }
        }
    }

    /// Returns whether an item of a list is exactly one filter. If it is not, an error is added.
    fn is_one_filter(&mut self, path: &str, filter: &FilterFile, is_rewrite: bool) -> bool {
        let chosen = usize::from(filter.bulk_reshuffle.is_some())
            + usize::from(filter.elasticsearch.is_some())
            + usize::from(is_rewrite)
            + usize::from(filter.r#if.is_some());
        if chosen == 1 {
            if filter.r#if.is_none() && (filter.then.is_some() || filter.r#else.is_some()) {
                self.error(path, "`then` and `else` need an `if`");
            }
            return true;
        }
        let message = match chosen {
            0 => {
                "needs a filter: `bulk_reshuffle`, `rewrite_to_bulk` or `elasticsearch`, with their keys below"
            }
            _ => "holds two filters: begin each with `- `",
        };
        // An unknown filter has already been reported.
        if chosen > 1 || !self.problems.has_errors_below(path) {
            self.error(path, message);
        }
        false
    }

    /// Collects the filters of both branches of an `if`, with its condition or the negation.
    fn branches(
        &mut self,
        path: &str,
        filter: &FilterFile,
        condition: &ConditionFile,
        around: FilterContext<'_>,
        out: &mut Vec<Filter>,
    ) {
        let when = self.condition(&format!("{path}.if"), condition);
        if filter.then.is_none() {
            self.error(path, "`if` needs a `then`");
        }
        let holds = both(around.when, Some(when.clone()));
        let fails = both(around.when, Some(When::Not(Box::new(when))));
        for (name, filters, when) in [("then", &filter.then, holds), ("else", &filter.r#else, fails)] {
            let filters = filters.as_deref().unwrap_or_default();
            let when = when.as_ref();
            self.filters(
                &format!("{path}.{name}"),
                filters,
                FilterContext { when, ..around },
                out,
            );
        }
    }

    fn cluster_name(&mut self, path: &str, name: &str, clusters: &[ElasticsearchFile]) -> Arc<str> {
        let known = clusters
            .iter()
            .map(|cluster| (cluster.name.as_str(), cluster.enabled));
        self.refers(&format!("{path}.elasticsearch"), name, "elasticsearch", known);
        name.into()
    }

    fn bulk_reshuffle(
        &mut self,
        path: &str,
        bulk: &BulkReshuffleFile,
        clusters: &[ElasticsearchFile],
    ) -> BulkReshuffle {
        let queue = match bulk.mode {
            Some(ModeFile::Sync) => None,
            Some(ModeFile::Async) | None => Some(queue_name(bulk)),
        };
        if bulk.direct_routing == DirectRouting::Routing {
            let makes_ids = match (&queue, bulk.fix_null_id) {
                (Some(_), _) => Some("in asynchronous mode ids are made before the answer"),
                (None, true) => Some("`fix_null_id: true` makes ids"),
                (None, false) => None,
            };
            if let Some(why) = makes_ids {
                let message =
                    format!("`routing` leaves ids to the server, and {why}; `mint-packed` goes with that");
                self.error(&format!("{path}.direct_routing"), message);
            }
        }
        BulkReshuffle {
            cluster: self.cluster_name(path, &bulk.elasticsearch, clusters),
            direct_routing: bulk.direct_routing,
            level: bulk.level,
            queue,
            fix_null_id: bulk.fix_null_id,
            combine: Combine {
                enabled: bulk.combine.enabled,
                flush_bytes: bulk.combine.flush_threshold_size.0,
                docs_max: bulk.combine.max_docs,
                requests_max: bulk.combine.max_wait_requests,
                interval: bulk.combine.interval.0,
                adaptive: bulk.combine.adaptive_concurrency,
            },
            rewrite_to_bulk: bulk.rewrite_to_bulk,
            compress_answers: bulk.compress_answers,
            sending: self.sending(
                path,
                Sending {
                    connections_per_node_max: bulk.max_connection_per_node as usize,
                    retry_count_max: bulk.max_retry_times,
                    retry_delay: Duration::from_millis(bulk.retry_delay_in_ms.into()),
                    connect_timeout: bulk.dial_timeout.0,
                    response_timeout: bulk.timeout.0,
                    write_timeout: bulk.write_timeout.0,
                    idle_timeout: bulk.max_idle_conn_duration.0,
                },
            ),
        }
    }

    fn forward(&mut self, path: &str, forward: &ForwardFile, clusters: &[ElasticsearchFile]) -> Forward {
        let mut weights = BTreeMap::new();
        for (at, weight) in forward.weights.iter().enumerate() {
            let path = format!("{path}.weights[{at}].host");
            if weight.host.is_empty() {
                continue;
            }
            if weight.host.contains('/') || !weight.host.contains(':') {
                self.error(&path, format!("`{}` is not `host:port`", weight.host));
            }
            if weights
                .insert(Arc::from(weight.host.as_str()), weight.weight)
                .is_some()
            {
                self.error(&path, format!("`{}` is written twice", weight.host));
            }
        }
        let filter = &forward.filter;
        for (list, roles) in [
            ("include", &filter.roles.include),
            ("exclude", &filter.roles.exclude),
        ] {
            for role in &roles.0 {
                if let Some(near) = nearest(role, ROLES.iter().copied()).filter(|near| near != role) {
                    let message = format!("`{role}` is not a known role; did you mean `{near}`?");
                    self.warning(&format!("{path}.filter.roles.{list}"), message);
                }
            }
        }
        let names = |names: &Names| names.0.iter().map(|name| Arc::from(name.as_str())).collect();
        let choice = |choice: &ChoiceFile| Choice {
            include: names(&choice.include),
            exclude: names(&choice.exclude),
        };
        let tags = |tags: &[BTreeMap<String, String>]| {
            tags.iter()
                .flatten()
                .map(|(name, value)| (name.as_str().into(), value.as_str().into()))
                .collect()
        };
        Forward {
            cluster: self.cluster_name(path, &forward.elasticsearch, clusters),
            balancer: forward.balancer,
            weights,
            nodes: NodeFilter {
                hosts: choice(&filter.hosts),
                roles: choice(&filter.roles),
                tags: Choice {
                    include: tags(&filter.tags.include),
                    exclude: tags(&filter.tags.exclude),
                },
            },
            frozen: !forward.refresh.enabled,
            response_bytes_max: forward.max_response_size.0,
            sending: self.sending(
                path,
                Sending {
                    connections_per_node_max: forward.max_connection_per_node as usize,
                    retry_count_max: forward.max_retry_times,
                    retry_delay: Duration::from_millis(forward.retry_delay_in_ms.into()),
                    connect_timeout: forward.dial_timeout.0,
                    response_timeout: forward.timeout.0,
                    write_timeout: forward.write_timeout.0,
                    idle_timeout: forward.max_idle_conn_duration.0,
                },
            ),
        }
    }

    fn sending(&mut self, path: &str, sending: Sending) -> Sending {
        for (key, time) in [
            ("timeout", sending.response_timeout),
            ("dial_timeout", sending.connect_timeout),
            ("write_timeout", sending.write_timeout),
            ("max_idle_conn_duration", sending.idle_timeout),
        ] {
            if time.is_zero() {
                self.error(
                    &format!("{path}.{key}"),
                    "must be more than 0: there is no \"for ever\"",
                );
            }
        }
        sending
    }

    fn when(&mut self, path: &str, condition: &Option<ConditionFile>) -> Option<When> {
        condition
            .as_ref()
            .map(|condition| self.condition(&format!("{path}.when"), condition))
    }

    fn condition(&mut self, path: &str, condition: &ConditionFile) -> When {
        let mut all = Vec::new();
        for (key, fields, test) in [
            (
                "contains",
                &condition.contains,
                Test::Contains as fn(Vec<String>) -> Test,
            ),
            ("prefix", &condition.prefix, Test::Prefix),
            ("suffix", &condition.suffix, Test::Suffix),
            ("in", &condition.r#in, Test::Equals),
        ] {
            for (name, texts) in fields.iter().flatten() {
                let field = self.field(&format!("{path}.{key}"), name);
                all.extend(field.map(|field| When::Field(field, test(texts.0.clone()))));
            }
        }
        for (name, text) in condition.equals.iter().flatten() {
            let field = self.field(&format!("{path}.equals"), name);
            all.extend(field.map(|field| When::Field(field, Test::Equals(vec![text.clone()]))));
        }
        for (name, texts) in condition.regexp.iter().flatten() {
            let path = format!("{path}.regexp");
            let mut compiled = Vec::new();
            for text in &texts.0 {
                match compile_regex(text) {
                    Ok(regex) => compiled.push(regex),
                    Err(why) => self.error(&format!("{path}.{name}"), why.to_string()),
                }
            }
            all.extend(
                self.field(&path, name)
                    .map(|field| When::Field(field, Test::Regexp(compiled))),
            );
        }
        for (name, range) in condition.range.iter().flatten() {
            all.extend(self.range(&format!("{path}.range"), name, range));
        }
        for (key, names) in [
            ("exists", &condition.exists),
            ("has_fields", &condition.has_fields),
        ] {
            for name in names.iter().flat_map(|names| &names.0) {
                all.extend(self.field(&format!("{path}.{key}"), name).map(When::Exists));
            }
        }
        if let Some(inner) = &condition.not {
            all.push(When::Not(Box::new(self.condition(&format!("{path}.not"), inner))));
        }
        for (at, inner) in condition.and.iter().flatten().enumerate() {
            all.push(self.condition(&format!("{path}.and[{at}]"), inner));
        }
        if let Some(any) = &condition.or {
            let any = any.iter().enumerate();
            let any = any
                .map(|(at, inner)| self.condition(&format!("{path}.or[{at}]"), inner))
                .collect();
            all.push(When::Any(any));
        }
        if all.is_empty() && !self.problems.has_errors() {
            self.error(path, "holds no condition");
        }
        if all.len() == 1 {
            all.remove(0)
        } else {
            When::All(all)
        }
    }

    /// Reads `{field: {gte: 1}}` or `{field.gte: 1}`.
    fn range(&mut self, path: &str, name: &str, range: &RangeOrNumber) -> Option<When> {
        let (name, range) = match range {
            RangeOrNumber::Range(range) => (name, range.clone()),
            RangeOrNumber::Number(bound) => {
                let (field, bound_name) = name.rsplit_once('.').unwrap_or((name, ""));
                let mut range = RangeFile::default();
                let slot = match bound_name {
                    "gte" => &mut range.gte,
                    "gt" => &mut range.gt,
                    "lte" => &mut range.lte,
                    "lt" => &mut range.lt,
                    _ => {
                        self.error(
                            &format!("{path}.{name}"),
                            "needs a bound: `gte`, `gt`, `lte` or `lt`",
                        );
                        return None;
                    }
                };
                *slot = Some(*bound);
                (field, range)
            }
        };
        let from = range
            .gte
            .unwrap_or(i64::MIN)
            .max(range.gt.map_or(i64::MIN, |gt| gt.saturating_add(1)));
        let to = range
            .lte
            .unwrap_or(i64::MAX)
            .min(range.lt.map_or(i64::MAX, |lt| lt.saturating_sub(1)));
        if from > to {
            self.error(&format!("{path}.{name}"), "no number is within these bounds");
        }
        self.field(path, name)
            .map(|field| When::Field(field, Test::Range(from, to)))
    }

    fn field(&mut self, path: &str, name: &str) -> Option<Field> {
        match Field::parse(name) {
            Ok(field) => Some(field),
            Err(why) => {
                self.error(&format!("{path}.{name}"), why.to_string());
                None
            }
        }
    }
}

/// Returns whether a filter, or one below it, splits bulks.
fn splits(filter: &FilterFile) -> bool {
    let below = [&filter.then, &filter.r#else];
    filter.bulk_reshuffle.is_some() || below.into_iter().flatten().flatten().any(splits)
}

/// The node roles of Elasticsearch and OpenSearch. Plugins may add others.
const ROLES: &[&str] = &[
    "master",
    "cluster_manager",
    "data",
    "data_content",
    "data_hot",
    "data_warm",
    "data_cold",
    "data_frozen",
    "ingest",
    "ml",
    "remote_cluster_client",
    "search",
    "transform",
    "voting_only",
    "warm",
];

fn both(outer: Option<&When>, inner: Option<When>) -> Option<When> {
    match (outer.cloned(), inner) {
        (Some(outer), Some(inner)) => Some(When::All(vec![outer, inner])),
        (outer, inner) => outer.or(inner),
    }
}
