//! Counters. Each core has its own set, which every request updates once; `/stats` and `/metrics` sum them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bulk::Why;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use wire::exposition::Exposition;
use wire::guard;

use crate::flow_counts::{FlowCounts, FlowSums};
use crate::heat::{ClusterHeat, Heat};
use crate::why::{HeadWhy, SingleWhy};

/// The prefix of the names of all metrics of the gateway.
pub(crate) const PREFIX: &str = "tidegate_";

/// A count that only grows, kept by one core.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Counts `more`.
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    /// The count so far.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Counts of one event by kind.
#[derive(Debug)]
pub(crate) struct Counts<const N: usize>([Count; N]);

impl<const N: usize> Default for Counts<N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Count::default()))
    }
}

impl<const N: usize> std::ops::Index<usize> for Counts<N> {
    type Output = Count;
    fn index(&self, kind: usize) -> &Count {
        &self.0[kind]
    }
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// The counters of one core, on cache lines of their own.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(crate) struct Counters {
            $($(#[doc = $doc])+ pub(crate) $name: Count,)+
            pub(crate) passed: Counts<{ Why::ALL.len() }>,
            pub(crate) passed_by_head: Counts<{ HeadWhy::ALL.len() }>,
            pub(crate) single_passed_by_plan: Counts<{ Why::ALL.len() }>,
            pub(crate) single_passed_because: Counts<{ SingleWhy::ALL.len() }>,
            pub(crate) responses: Counts<5>,
            /// Documents by the shard that they were sent to.
            pub(crate) heat: Heat,
            /// Counts by flow. Flows keep them through reloads.
            flows: Mutex<BTreeMap<Arc<str>, Arc<FlowCounts>>>,
            pub(crate) bulk_latency: Histogram,
            pub(crate) request_latency: Histogram,
        }

        /// Names and meanings of the plain counters, as `/stats` and `/metrics` show them.
        pub(crate) const PLAIN: &[(&str, &str, fn(&Counters) -> &Count)] = &[
            $((stringify!($name), concat!($($doc),+), |counters| &counters.$name),)+
        ];
    };
}

counters! {
    /// Requests that reached a flow.
    requests,
    /// Requests refused before they reached a flow: broken HTTP, limits, timeouts.
    refused,
    /// Bulk requests that were split (or sent whole to the one node that holds all of their shards).
    bulk_requests,
    /// Bulk requests that were passed through whole.
    bulk_passed,
    /// Bulk requests that were put into a queue.
    bulk_queued,
    /// Bulk requests that repeated one with the same `Idempotency-Key`: answered as that one, and not put
    /// into a queue again.
    bulk_repeated,
    /// Bulk requests that were refused because of their `Idempotency-Key`, for example because it names
    /// another request.
    bulk_key_refused,
    /// Documents (operations) of bulk requests that were put into a queue.
    docs_queued,
    /// Documents (operations) of split bulk requests, and of single writes that were sent as bulks.
    docs,
    /// Documents that the node of their primary took directly from the gateway.
    docs_direct,
    /// Documents with neither id nor routing to which the gateway gave a shard (`direct_routing`).
    docs_directed,
    /// Documents that another node took: they have neither id nor routing, their primary is not allocated, or
    /// its node could not be asked.
    docs_any,
    /// Documents whose part got no usable answer from any node: their items say 503.
    docs_unanswered,
    /// Documents in parts that a node refused as a whole.
    docs_refused,
    /// Parts sent, retries included.
    parts,
    /// Parts sent again to another node.
    parts_retried,
    /// Requests that carried parts of several bulk requests to a node.
    combined_requests,
    /// Parts that travelled in combined requests.
    combined_parts,
    /// Parts that were sent again by themselves, because a request that carried several was refused as a
    /// whole.
    combined_again,
    /// Single-document writes that were sent as bulks (`rewrite_to_bulk`).
    single_joined,
    /// Single-document writes that were sent once more unchanged, because their bulk was refused: nothing had
    /// been executed, and the cluster words its own refusal.
    single_again,
    /// Single-document writes that went on unchanged although `rewrite_to_bulk` is on.
    single_passed,
    /// Bytes of bulk bodies, decoded.
    bulk_bytes,
    /// Bulk requests of which some items failed.
    bulk_with_errors,
    /// Bulk answers of nodes that were not bulk answers, or had another number of items than was sent.
    replies_malformed,
    /// Exchanges with nodes.
    exchanges,
    /// Exchanges with nodes that failed (no answer, or none that could be read).
    exchanges_failed,
    /// Requests forwarded to a node unchanged (pass-through bulks included).
    forwarded,
    /// Forwarded requests that were tried on another node.
    forwarded_retried,
    /// Forwarded replies that were not passed on to their end: the node broke off, or the reply passed
    /// `max_response_size`.
    replies_broken,
    /// Clients that went away before their request had arrived, or before it was answered.
    clients_gone,
}

/// Latencies in buckets that double: the first ends at 250 µs.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [Count; HISTOGRAM_BUCKETS],
    sum_us: Count,
}

/// Finite buckets and one for the rest: 250 µs to 131 s.
pub(crate) const HISTOGRAM_BUCKETS: usize = 21;

impl Histogram {
    pub(crate) fn observe(&self, latency: Duration) {
        let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        // ceil(log2(us / 250)), in whole numbers.
        let bucket = us.div_ceil(250).next_power_of_two().trailing_zeros() as usize;
        self.buckets[bucket.min(HISTOGRAM_BUCKETS - 1)].add(1);
        self.sum_us.add(us);
    }
}

/// Returns the upper bound of a bucket, in seconds.
fn bucket_end_s(bucket: usize) -> f64 {
    0.000_25 * f64::from(1u32 << bucket)
}

impl Counters {
    /// Counts a bulk request that passes whole for a reason found in its body.
    pub(crate) fn pass(&self, why: Why) {
        self.bulk_passed.add(1);
        self.passed[why as usize].add(1);
    }

    /// Counts a bulk request that passes whole for a reason found in its head.
    pub(crate) fn pass_by_head(&self, why: HeadWhy) {
        self.bulk_passed.add(1);
        self.passed_by_head[why as usize].add(1);
    }

    /// Counts a single-document write that goes on as it came.
    pub(crate) fn pass_single(&self, why: SingleWhy) {
        self.single_passed.add(1);
        self.single_passed_because[why as usize].add(1);
    }

    /// Counts a single-document write that goes on as it came for a reason that its plan found.
    pub(crate) fn pass_single_by_plan(&self, why: Why) {
        self.single_passed.add(1);
        self.single_passed_by_plan[why as usize].add(1);
    }

    /// Returns the counts of a flow.
    pub(crate) fn flow(&self, name: &Arc<str>) -> Arc<FlowCounts> {
        let mut flows = self.flows.lock();
        Arc::clone(flows.entry(Arc::clone(name)).or_default())
    }

    /// Counts an answer by the first digit of its status.
    pub(crate) fn response(&self, status: http::StatusCode) {
        let class = usize::from(status.as_u16() / 100).clamp(1, 5) - 1;
        self.responses[class].add(1);
    }
}

/// The counters of all cores.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    cores: Arc<[Arc<Counters>]>,
}

impl Metrics {
    /// Creates counters for `cores` cores.
    pub(crate) fn new(cores: usize) -> Self {
        Self {
            cores: (0..cores).map(|_| Arc::default()).collect(),
        }
    }

    /// Returns the counters of one core.
    pub(crate) fn core(&self, core: usize) -> Arc<Counters> {
        Arc::clone(&self.cores[core % self.cores.len()])
    }

    /// Returns the sum of one counter over all cores.
    pub(crate) fn sum(&self, of: impl Fn(&Counters) -> &Count) -> u64 {
        self.cores.iter().map(|core| of(core).get()).sum()
    }

    /// Returns the counts of a flow, from all cores.
    pub(crate) fn flow(&self, name: &str) -> FlowSums {
        let mut sums = FlowSums::default();
        for core in self.cores.iter() {
            if let Some(flow) = core.flows.lock().get(name) {
                flow.add_to(&mut sums);
            }
        }
        sums
    }

    /// Has documents counted by shard for a while; returns since when all cores have done so.
    pub(crate) fn ask_for_heat(&self) -> Instant {
        let now = Instant::now();
        let since = self.cores.iter().map(|core| core.heat.ask(now));
        since.max().unwrap_or(now)
    }

    /// Returns the documents that all cores have sent to a cluster's shards.
    pub(crate) fn heat(&self, cluster: &str) -> ClusterHeat {
        let mut all = ClusterHeat::default();
        for core in self.cores.iter() {
            core.heat.add_to(&mut all, cluster);
        }
        all
    }

    /// Returns the number of bulk requests passed through, by reason.
    fn passed(&self) -> Vec<(&'static str, u64)> {
        let by_body = Why::ALL
            .iter()
            .map(|why| (why.as_str(), self.sum(|core| &core.passed[*why as usize])));
        let by_head = HeadWhy::ALL
            .iter()
            .map(|why| (why.as_str(), self.sum(|core| &core.passed_by_head[*why as usize])));
        by_body.chain(by_head).collect()
    }

    /// Returns the number of single-document writes that went on as they came, by reason.
    fn single_passed(&self) -> Vec<(&'static str, u64)> {
        let by_plan = Why::ALL.iter().map(|why| {
            let count = self.sum(|core| &core.single_passed_by_plan[*why as usize]);
            (why.as_str(), count)
        });
        let by_us = SingleWhy::ALL.iter().map(|why| {
            let count = self.sum(|core| &core.single_passed_because[*why as usize]);
            (why.as_str(), count)
        });
        by_plan.chain(by_us).collect()
    }

    /// Returns the counters as `/stats` shows them.
    pub(crate) fn to_json(&self) -> Value {
        let mut stats = Map::new();
        for (name, _, of) in PLAIN {
            stats.insert((*name).to_owned(), json!(self.sum(*of)));
        }
        for (name, passed) in [
            ("passed_because", self.passed()),
            ("single_passed_because", self.single_passed()),
        ] {
            let occurred = passed.into_iter().filter(|(_, count)| *count > 0);
            let occurred = occurred.map(|(why, count)| (why.to_owned(), json!(count)));
            stats.insert(name.to_owned(), Value::Object(occurred.collect()));
        }
        let panics: Map<_, _> = guard::panics()
            .filter(|(_, count)| *count > 0)
            .map(|(work, count)| (work.as_str().to_owned(), json!(count)))
            .collect();
        stats.insert("panics".to_owned(), Value::Object(panics));
        let docs = self.sum(|core| &core.docs);
        let direct = self.sum(|core| &core.docs_direct);
        let share = (docs > 0).then(|| direct as f64 / docs as f64);
        stats.insert("direct_share".to_owned(), json!(share));
        for (class, name) in RESPONSE_CLASSES.iter().enumerate() {
            stats.insert(
                format!("responses_{name}"),
                json!(self.sum(|core| &core.responses[class])),
            );
        }
        Value::Object(stats)
    }

    /// Writes the counters in the text format of Prometheus.
    pub(crate) fn write_prometheus(&self, page: &mut String) {
        let mut out = Exposition::new(page);
        for (name, help, of) in PLAIN {
            let name = format!("tidegate_{name}_total");
            out.metric(&name, "counter", help.trim(), [(String::new(), self.sum(*of))]);
        }
        for (name, help, passed) in [
            (
                "tidegate_bulk_passed_because_total",
                "Bulk requests passed through whole, by reason.",
                self.passed(),
            ),
            (
                "tidegate_single_passed_because_total",
                "Single-document writes that went on as they came, by reason.",
                self.single_passed(),
            ),
        ] {
            let samples = passed.into_iter();
            let samples = samples.map(|(why, count)| (format!("why=\"{why}\""), count));
            out.metric(name, "counter", help, samples);
        }
        let panics = guard::panics();
        out.metric(
            "tidegate_panics_total",
            "counter",
            "Panics, which are bugs of the gateway: the work in which one occurred ended, and nothing else.",
            panics.map(|(work, count)| (format!("work=\"{}\"", work.as_str()), count)),
        );
        let classes = RESPONSE_CLASSES.iter().enumerate();
        out.metric(
            "tidegate_responses_total",
            "counter",
            "Answers by class of status.",
            classes.map(|(class, name)| {
                let count = self.sum(|core| &core.responses[class]);
                (format!("class=\"{name}\""), count)
            }),
        );
        self.write_histogram(
            &mut out,
            "tidegate_bulk_duration_seconds",
            "From a split bulk request's arrival to its answer.",
            |core| &core.bulk_latency,
        );
        self.write_histogram(
            &mut out,
            "tidegate_request_duration_seconds",
            "From a request's head to its answer's head.",
            |core| &core.request_latency,
        );
    }

    fn write_histogram(
        &self,
        out: &mut Exposition<'_>,
        name: &str,
        help: &str,
        of: impl Fn(&Counters) -> &Histogram,
    ) {
        out.metric::<u64>(name, "histogram", help, []);
        let mut total = 0;
        for bucket in 0..HISTOGRAM_BUCKETS {
            total += self.sum(|core| &of(core).buckets[bucket]);
            let end = match bucket == HISTOGRAM_BUCKETS - 1 {
                true => "+Inf".to_owned(),
                false => bucket_end_s(bucket).to_string(),
            };
            out.sample(&format!("{name}_bucket"), &format!("le=\"{end}\""), total);
        }
        let sum_s = self.sum(|core| &of(core).sum_us) as f64 / 1e6;
        out.sample(&format!("{name}_sum"), "", sum_s);
        out.sample(&format!("{name}_count"), "", total);
    }
}

const RESPONSE_CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_fall_into_the_bucket_that_holds_them() {
        for (us, bucket) in [
            (0, 0),
            (250, 0),
            (251, 1),
            (500, 1),
            (501, 2),
            (131_072_000, 19),
            (u64::MAX / 4, 20),
        ] {
            let histogram = Histogram::default();
            histogram.observe(Duration::from_micros(us));
            let found = histogram.buckets.iter().position(|b| b.get() == 1);
            assert_eq!(found, Some(bucket), "{us} µs");
        }
    }

    #[test]
    fn cores_are_summed_and_reasons_are_distinct() {
        let metrics = Metrics::new(2);
        metrics.core(0).docs.add(2);
        metrics.core(1).docs.add(3);
        metrics.core(1).docs_direct.add(4);
        metrics.core(1).pass(Why::UnknownIndex);
        let stats = metrics.to_json();
        assert_eq!(stats["docs"], 5);
        assert_eq!(stats["direct_share"], 0.8);
        assert_eq!(stats["passed_because"], json!({"unknown_index": 1}));
        let mut labels: Vec<_> = metrics.passed().into_iter().map(|(why, _)| why).collect();
        labels.sort_unstable();
        let all = labels.len();
        labels.dedup();
        assert_eq!(labels.len(), all);
    }

    #[test]
    fn prometheus_text_has_a_type_for_each_family_and_cumulative_buckets() {
        let metrics = Metrics::new(1);
        metrics.core(0).bulk_latency.observe(Duration::from_millis(1));
        let mut text = String::new();
        metrics.write_prometheus(&mut text);
        assert!(text.contains("tidegate_bulk_duration_seconds_bucket{le=\"0.001\"} 1\n"));
        assert!(text.contains("tidegate_bulk_duration_seconds_bucket{le=\"+Inf\"} 1\n"));
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split(['{', ' ']).next().unwrap();
            let family = name
                .trim_end_matches("_bucket")
                .trim_end_matches("_sum")
                .trim_end_matches("_count");
            assert!(text.contains(&format!("# TYPE {family} ")), "{name}");
        }
    }
}
