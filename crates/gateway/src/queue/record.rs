//! The parameters of a record, and the form in which all records are delivered.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::LazyLock;

use bulk::{ID_LENGTH, Minted, Plan, RouteTable};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};
use log::{Log, ReadError};
use serde::{Deserialize, Serialize};
use traces::Context;

use crate::admission::keys::{Accepted, Keyed};
use crate::bulk_request::{self, BulkHead, RequestKind};
use crate::queue::journal::Journal;

/// A record's parameters: everything about its documents besides the documents. They never hold a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Params {
    /// Path and query of the client's request.
    pub(crate) target: String,
    /// [`DELIVERED_TYPE`], whatever the client called it: earlier versions want to read it.
    pub(crate) content_type: String,
    /// The first and the last id that were minted for the record: its documents with ids in between are known
    /// to be nobody else's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) minted: Option<(String, String)>,
    /// Set if the record has dead letters that were put back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) replay: Option<Replay>,
    /// Set if the client gave the request an `Idempotency-Key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) idempotency: Option<Keyed>,
    /// In a queue in Kafka: the names of the request that are not indices themselves, each with the index
    /// that it led to when the request was accepted. A gateway that takes a lane over looks there for what
    /// may have been written. A queue on disk keeps its names itself ([`super::whereabouts`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) led_to: Vec<(String, String)>,
    /// The same for the queue's other clusters, by consumer group, where names lead elsewhere than in the
    /// cluster that clients see.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) led_to_in: BTreeMap<String, Vec<(String, String)>>,
    /// The span that put the record into the queue, as a `traceparent`, if it is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trace: Option<String>,
}

/// A record's parameters, read once, with everything that delivery derives from them.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) params: Params,
    /// The head of the request; `None` if this version does not know how to send it.
    pub(crate) head: Option<BulkHead<'static>>,
    /// The ids that were minted for the record.
    pub(crate) minted: Option<Minted>,
}

/// The parameters of a record that puts dead letters back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Replay {
    /// The consumer group that had given the letters up. No other group delivers them, since each has done so
    /// already.
    pub(crate) group: String,
    /// The ids of the letters.
    pub(crate) letters: Vec<u64>,
}

// === impl Params ===

impl Params {
    /// Returns the parameters of a request that is planned, for a record in `journal`.
    pub(crate) fn of(target: &str, plan: &Plan, table: &RouteTable, journal: &Journal) -> Self {
        let led_to = match journal {
            Journal::Disk(_) => Vec::new(),
            Journal::Kafka(_) => led_to(names_of(plan, table), table),
        };
        Self {
            target: target.to_owned(),
            content_type: DELIVERED_TYPE.to_owned(),
            minted: plan.minted().map(written),
            replay: None,
            idempotency: None,
            led_to,
            led_to_in: BTreeMap::new(),
            trace: None,
        }
    }

    /// Adds where the names of a plan lead in another cluster, to which this consumer group delivers.
    pub(crate) fn add_cluster(
        &mut self,
        group: &str,
        other: Option<&RouteTable>,
        plan: &Plan,
        table: &RouteTable,
    ) {
        let pairs = other.map(|other| led_to(names_of(plan, table), other));
        // Where nothing is said of a cluster, the names lead there as in the one that clients see.
        let pairs = pairs.unwrap_or_default();
        if pairs != self.led_to {
            self.led_to_in.insert(group.to_owned(), pairs);
        }
    }

    /// Returns the span that put the record into the queue.
    pub(crate) fn accepted_by(&self) -> Option<Context> {
        Context::parse(self.trace.as_ref()?.as_bytes())
    }

    /// Reads a record's parameters; `None` if this version cannot.
    pub(crate) fn read(raw: &[u8]) -> Option<Self> {
        #[cfg(test)]
        PARAMS_READ.with(|read| read.set(read.get() + 1));
        let mut params: Self = serde_json::from_slice(raw).ok()?;
        // Earlier versions queued bulks whose paths have empty segments, which not all servers take.
        while let Some(at) = params
            .target
            .find("//")
            .filter(|at| !params.target[..*at].contains('?'))
        {
            params.target.remove(at);
        }
        Some(params)
    }
}

// === impl Recorded ===

impl Recorded {
    /// Returns where the names of the request led when it was accepted, in the cluster that this consumer
    /// group delivers to, if the record says so.
    pub(crate) fn led_to(&self, group: &str) -> Option<Rc<[(String, String)]>> {
        let elsewhere = self.params.led_to_in.get(group);
        let pairs = elsewhere.unwrap_or(&self.params.led_to);
        (!pairs.is_empty()).then(|| pairs.as_slice().into())
    }

    /// Reads a record's parameters; `None` if this version cannot.
    pub(crate) fn read(raw: &[u8]) -> Option<Self> {
        Params::read(raw).map(Self::of)
    }

    pub(crate) fn of(params: Params) -> Self {
        Self {
            head: head_of(&params.target).map(BulkHead::into_owned),
            minted: params.minted.as_ref().and_then(minted),
            params,
        }
    }
}

/// Returns parameters as they are written, up to the span that put the record into the queue, and that span
/// if there is one. It is written last, so parameters that are equal but for it are equal up to there.
pub(crate) fn apart_from_span(raw: &[u8]) -> (&[u8], Option<Context>) {
    let length = SPAN_BEFORE.len() + SPAN_LENGTH + SPAN_BEHIND.len();
    let (before, end) = raw.split_at(raw.len().saturating_sub(length));
    let span = end
        .strip_prefix(SPAN_BEFORE)
        .and_then(|span| span.strip_suffix(SPAN_BEHIND));
    match span.and_then(Context::parse) {
        Some(span) => (before, Some(span)),
        None => (raw.strip_suffix(b"}").unwrap_or(raw), None),
    }
}

/// What stands in parameters before a span, and behind it. A quotation mark within a text has a backslash
/// before it, so no text reads like this.
const SPAN_BEFORE: &[u8] = br#","trace":""#;
const SPAN_BEHIND: &[u8] = br#""}"#;
/// The length of a span as a `traceparent`.
const SPAN_LENGTH: usize = 55;

/// Returns the names that a plan made with this table uses.
fn names_of<'t>(plan: &'t Plan, table: &'t RouteTable) -> impl Iterator<Item = &'t str> {
    plan.names().iter().map(|number| table.name_of(*number))
}

/// Returns those names that are not indices themselves, each with the index that it leads to.
fn led_to<'t>(names: impl Iterator<Item = &'t str>, table: &RouteTable) -> Vec<(String, String)> {
    let pairs = names.filter_map(|name| {
        let index = &table.laned(name)?.write().ok()?.name;
        (**index != *name).then(|| (name.to_owned(), index.to_string()))
    });
    pairs.take(LED_TO_MAX).collect()
}

/// Returns minted ids as parameters have them.
pub(crate) fn written(minted: Minted) -> (String, String) {
    let id = |id: &[u8]| String::from_utf8_lossy(id).into_owned();
    (id(&minted.first), id(&minted.last))
}

/// Returns the head of a recorded request, from its path and query; `None` if the request is not one that can
/// be delivered.
pub(crate) fn head_of(target: &str) -> Option<BulkHead<'_>> {
    match bulk_request::classify_recorded(&Method::POST, target, &DELIVERED_HEADERS) {
        RequestKind::Bulk(head) => Some(head),
        RequestKind::Other | RequestKind::Pass(_) => None,
    }
}

/// Returns the keys of the records of a queue's log from a place on.
pub(crate) fn keys_from(queue: &Log, from: u64) -> Result<Vec<Accepted>, ReadError> {
    let mut accepted = Vec::new();
    queue.browse(from).each(|record| {
        let params = Params::read(&record.params);
        let keyed = params.and_then(|params| params.idempotency);
        accepted.extend(keyed.map(|keyed| Accepted {
            keyed,
            position: record.receipt.position,
        }));
        ControlFlow::Continue(())
    })?;
    Ok(accepted)
}

/// Returns the minted ids, from the first and the last of them as records have them.
pub(crate) fn minted((first, last): &(String, String)) -> Option<Minted> {
    let id = |id: &str| <[u8; ID_LENGTH]>::try_from(id.as_bytes()).ok();
    Some(Minted {
        first: id(first)?,
        last: id(last)?,
    })
}

/// Returns the headers of every bulk that is delivered, whatever its client called it: all servers take this
/// type, and with it no `Accept` is needed. Clients may add to the type (`compatible-with=8`), but that
/// changes only how lines are read that are not queued, and how answers look that nobody passes on.
pub(crate) fn delivered_headers() -> HeaderMap {
    DELIVERED_HEADERS.clone()
}

static DELIVERED_HEADERS: LazyLock<HeaderMap> =
    LazyLock::new(|| HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(DELIVERED_TYPE))]));

/// The content type of every bulk that is delivered. Records and dead letters say it too, for earlier
/// versions that read them.
pub(crate) const DELIVERED_TYPE: &str = "application/x-ndjson";

/// The most names of a request whose indices a message says: each part of a bulk has its own copy of them.
pub(crate) const LED_TO_MAX: usize = 32;

#[cfg(test)]
thread_local! {
    /// How many parameters this thread has read.
    pub(crate) static PARAMS_READ: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use log::{Options, RealDisk};

    use super::*;

    #[test]
    fn a_record_is_read_with_all_that_follows_from_it() {
        let (first, last) = ("a".repeat(ID_LENGTH), "b".repeat(ID_LENGTH));
        let raw = format!(
            r#"{{"target":"/logs/_bulk?routing=a%20b&timeout=1m","content_type":"x","minted":["{first}","{last}"]}}"#
        );
        let recorded = Recorded::read(raw.as_bytes()).unwrap();
        let head = recorded.head.unwrap();
        assert_eq!(
            (head.index.as_deref(), head.routing.as_deref()),
            (Some("logs"), Some("a b"))
        );
        assert!(recorded.minted.is_some_and(|minted| minted.has(first.as_bytes())));
    }

    #[test]
    fn where_names_led_in_a_cluster_that_was_not_known_is_not_where_they_led_in_the_first() {
        let raw =
            br#"{"target":"/_bulk","content_type":"x","led_to":[["a","i1"]],"led_to_in":{"d":[],"e":[["a","j1"]]}}"#;
        let recorded = Recorded::read(raw).unwrap();
        let led_to = |group| recorded.led_to(group).map(|pairs| pairs[0].1.clone());
        assert_eq!(led_to("c").as_deref(), Some("i1"));
        assert_eq!((led_to("d"), led_to("e").as_deref()), (None, Some("j1")));
        let index = |name: &str| {
            let one = bulk::IndexRoute::new(name, bulk::Formula::Modulo, vec![Some(bulk::NodeIx(0))]);
            std::sync::Arc::new(one)
        };
        let dialect = bulk::Dialect::new(bulk::Flavour::OpenSearch, bulk::Version::new(3, 8, 0));
        let mut builder = RouteTable::builder(dialect, 1);
        builder.index(index("i1"));
        let alias = bulk::Target::Alias {
            write: index("i1"),
            index_routing: None,
        };
        builder.name("a", alias);
        let table = builder.build();
        let (mut ids, mut scratch) = (bulk::IdMint::new(1), bulk::Scratch::default());
        let body = b"{\"index\":{\"_index\":\"a\",\"_id\":\"1\"}}\n{}\n";
        let ask = bulk::Ask {
            level: bulk::Level::Lane(4),
            ..bulk::Ask::default()
        };
        let bulk::Verdict::Plan(plan) = bulk::plan(body, &ask, &table, &mut ids, &mut scratch) else {
            panic!("it is planned");
        };
        let mut params = Params {
            led_to: recorded.params.led_to.clone(),
            ..recorded.params.clone()
        };
        params.add_cluster("f", None, &plan, &table);
        params.add_cluster("g", Some(&table), &plan, &table);
        assert_eq!(params.led_to_in.get("f"), Some(&Vec::new()));
        assert_eq!(params.led_to_in.get("g"), None, "as in the first");
    }

    #[test]
    fn a_path_with_empty_segments_as_earlier_versions_queued_it_is_delivered_without_them() {
        for (queued, delivered) in [
            ("//logs///_bulk/?routing=a//b", "/logs/_bulk/?routing=a//b"),
            ("//_bulk", "/_bulk"),
        ] {
            let raw = format!(r#"{{"target":"{queued}","content_type":"x"}}"#);
            let recorded = Recorded::read(raw.as_bytes()).unwrap();
            assert_eq!(recorded.params.target, delivered);
            assert!(recorded.head.is_some());
        }
    }

    #[test]
    fn a_record_that_is_no_bulk_has_no_head_and_one_that_is_no_json_is_none() {
        let raw =
            br#"{"target":"/logs/_bulk?of_a_later_version=1","content_type":"x","minted":["short","ids"]}"#;
        let recorded = Recorded::read(raw).unwrap();
        assert!(recorded.head.is_none() && recorded.minted.is_none());
        assert!(Recorded::read(b"{").is_none());
    }

    #[test]
    fn the_keys_of_a_queue_are_those_of_its_records_from_a_place_on() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            lanes: 1,
            free_bytes_min: 0,
            ..Options::default()
        };
        let queue = Log::open(folder.path(), options, RealDisk::default()).unwrap();
        let keyed = |seed: u64| {
            let print = "e3b0c44298fc1c149afbf4c8996fb924";
            format!(r#","idempotency":{{"key":"{print}","digest":"{print}","seed":{seed},"ms":1,"took":2}}"#)
        };
        let append = |key: &str| {
            let params = format!(r#"{{"target":"/_bulk","content_type":"application/x-ndjson"{key}}}"#);
            let mut record = queue.record(0, params.as_bytes());
            record.group(0, 1, |out| out.extend_from_slice(b"{\"index\":{}}\n{}\n"));
            queue.append_blocking(record).unwrap().position
        };
        let first = append(&keyed(7));
        append("");
        let last = append(&keyed(8));
        let found = |from| -> Vec<(u64, u64)> {
            let accepted = keys_from(&queue, from).unwrap().into_iter();
            accepted.map(|one| (one.position, one.keyed.seed)).collect()
        };
        assert_eq!(found(first), [(first, 7), (last, 8)]);
        assert_eq!(found(last), [(last, 8)]);
    }

    #[test]
    fn only_the_records_of_traced_requests_say_so_and_earlier_versions_need_not_know() {
        let untraced = r#"{"target":"/_bulk","content_type":"application/x-ndjson"}"#;
        let params = Params::read(untraced.as_bytes()).unwrap();
        assert_eq!(params.accepted_by(), None);
        assert_eq!(
            serde_json::to_string(&params).unwrap(),
            untraced,
            "as earlier versions write it"
        );
        let span = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let traced = Params {
            trace: Some(span.to_owned()),
            ..params
        };
        let raw = serde_json::to_vec(&traced).unwrap();
        let accepted_by = Params::read(&raw).unwrap().accepted_by().unwrap();
        assert_eq!(accepted_by.to_string(), span);
        assert_eq!(
            apart_from_span(&raw),
            (&untraced.as_bytes()[..untraced.len() - 1], Some(accepted_by))
        );
        assert_eq!(
            apart_from_span(untraced.as_bytes()),
            (&untraced.as_bytes()[..untraced.len() - 1], None)
        );
        let text = serde_json::to_vec(&Params {
            target: format!(r#"/_bulk?pipeline=,"trace":"{span}"#),
            ..Params::read(br#"{"target":"","content_type":""}"#).unwrap()
        });
        assert_eq!(apart_from_span(&text.unwrap()).1, None, "it is part of a text");

        /// What earlier versions read.
        #[derive(Deserialize)]
        struct Earlier {
            target: String,
        }
        let earlier: Earlier = serde_json::from_slice(&raw).unwrap();
        assert_eq!(earlier.target, "/_bulk");
        let broken = Params {
            trace: Some("of a later version".to_owned()),
            ..traced
        };
        assert_eq!(broken.accepted_by(), None);
    }
}
