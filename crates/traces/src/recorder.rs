//! The decision which requests are traced, and the queue of their spans.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::HeaderMap;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::context::Context;
use crate::span::{OpenSpan, Span, SpanKind};

/// Records spans, and has them exported. Cores share one; it lives as long as somebody has it or one of its
/// spans, and its thread ends after that.
#[derive(Debug)]
pub struct Recorder {
    queue: mpsc::Sender<Span>,
    counts: Arc<Counts>,
    /// Traces whose [`Context::lot`] is below are sampled.
    below: u64,
    follow_clients: bool,
    close: watch::Sender<Option<Instant>>,
    /// Its sender is dropped when the thread has ended.
    ended: watch::Receiver<()>,
}

/// The fate of all spans since the start of the program.
#[derive(Debug, Default)]
pub struct Counts {
    exported: AtomicU64,
    /// The queue was full.
    overflowed: AtomicU64,
    /// The collector did not take them.
    failed: AtomicU64,
}

/// The ends of a recorder that its thread has.
pub(crate) struct Outlet {
    pub(crate) queue: mpsc::Receiver<Span>,
    /// When the thread has to end, if it has been told to.
    pub(crate) close: watch::Receiver<Option<Instant>>,
    /// Dropped when the thread ends.
    pub(crate) _ended: watch::Sender<()>,
}

/// The most spans that wait to be exported, about 2 MB.
pub(crate) const QUEUE_SPANS_MAX: usize = 4096;

/// The range of [`Context::lot`].
const LOTS: f64 = (1u64 << 63) as f64;

// === impl Recorder ===

impl Recorder {
    /// Makes a recorder that samples this share of requests, and the ends for its thread. A client's own
    /// decision counts if `follow_clients`.
    pub(crate) fn new(sample: f64, follow_clients: bool, counts: Arc<Counts>) -> (Self, Outlet) {
        let (queue, queued) = mpsc::channel(QUEUE_SPANS_MAX);
        let (close, closed) = watch::channel(None);
        let (ending, ended) = watch::channel(());
        let recorder = Self {
            queue,
            counts,
            below: (sample.clamp(0.0, 1.0) * LOTS) as u64,
            follow_clients,
            close,
            ended,
        };
        let outlet = Outlet {
            queue: queued,
            close: closed,
            _ended: ending,
        };
        (recorder, outlet)
    }

    /// Decides whether a request with these headers is traced, and begins its span if it is. A client's trace
    /// goes on.
    pub fn accept(self: &Arc<Self>, headers: &HeaderMap, name: impl FnOnce() -> String) -> Option<OpenSpan> {
        let client = Context::of(headers);
        let context = client.map_or_else(Context::new, Context::another);
        let sampled = match client {
            Some(client) if self.follow_clients => client.sampled,
            _ => context.lot() < self.below,
        };
        if !sampled {
            return None;
        }
        let mut open = OpenSpan::new(self, context, Cow::Owned(name()), SpanKind::Server);
        if let Some(client) = client {
            open.part_of(client);
        }
        Some(open)
    }

    /// Begins the first span of a trace that is recorded in any case.
    pub fn begin(self: &Arc<Self>, name: &'static str, kind: SpanKind) -> OpenSpan {
        OpenSpan::new(self, Context::new(), name.into(), kind)
    }

    pub(crate) fn record(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.counts.overflowed.fetch_add(1, Relaxed);
        }
    }

    /// Exports what is queued, for this long at most, and ends the thread.
    pub async fn close(&self, within: Duration) {
        let until = Instant::now() + within;
        self.close.send_replace(Some(until));
        let mut ended = self.ended.clone();
        // Nothing is ever sent: the channel closes when the thread ends.
        let _ = tokio::time::timeout_at(until + GRACE, ended.changed()).await;
    }
}

/// The time that a thread gets to end after its deadline.
const GRACE: Duration = Duration::from_millis(200);

// === impl Counts ===

impl Counts {
    /// Returns how many spans the collector has taken.
    pub fn exported(&self) -> u64 {
        self.exported.load(Relaxed)
    }

    /// Returns how many spans were dropped because the queue was full.
    pub fn overflowed(&self) -> u64 {
        self.overflowed.load(Relaxed)
    }

    /// Returns how many spans were given up because the collector did not take them.
    pub fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    pub(crate) fn settle(&self, spans: u64, refused: u64) {
        let refused = refused.min(spans);
        self.exported.fetch_add(spans - refused, Relaxed);
        self.failed.fetch_add(refused, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::TRACEPARENT;

    fn recorder(sample: f64, follow: bool) -> (Arc<Recorder>, Outlet, Arc<Counts>) {
        let counts = Arc::new(Counts::default());
        let (recorder, outlet) = Recorder::new(sample, follow, Arc::clone(&counts));
        (Arc::new(recorder), outlet, counts)
    }

    fn with(traceparent: &str) -> HeaderMap {
        HeaderMap::from_iter([(TRACEPARENT.clone(), traceparent.parse().unwrap())])
    }

    const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const UNSAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

    #[test]
    fn the_share_that_is_asked_for_is_sampled() {
        let none = HeaderMap::new();
        for (sample, least, most) in [(0.0, 0, 0), (0.25, 4_500, 5_500), (1.0, 20_000, 20_000)] {
            let (recorder, _outlet, _) = recorder(sample, true);
            let sampled = (0..20_000).filter(|_| recorder.accept(&none, || "POST".to_owned()).is_some());
            let sampled = sampled.count();
            assert!((least..=most).contains(&sampled), "{sample}: {sampled}");
        }
    }

    #[test]
    fn the_clients_decision_counts_only_if_it_is_to_be_followed() {
        let (following, _outlet, _) = recorder(0.0, true);
        assert!(following.accept(&with(SAMPLED), || "POST".to_owned()).is_some());
        let (all, _outlet, _) = recorder(1.0, true);
        assert!(all.accept(&with(UNSAMPLED), || "POST".to_owned()).is_none());
        let (deaf, _outlet, _) = recorder(0.0, false);
        assert!(deaf.accept(&with(SAMPLED), || "POST".to_owned()).is_none());
        let (deaf, _outlet, _) = recorder(1.0, false);
        let open = deaf
            .accept(&with(UNSAMPLED), || "POST".to_owned())
            .expect("all are sampled");
        let trace = Context::parse(UNSAMPLED.as_bytes()).unwrap().trace;
        assert_eq!(open.context().trace, trace, "it goes on all the same");
    }

    #[test]
    fn spans_are_parts_of_each_other_and_of_the_clients() {
        let (recorder, mut outlet, _) = recorder(0.0, true);
        let open = recorder.accept(&with(SAMPLED), || "POST".to_owned()).unwrap();
        let part = open.trace().begin("part", SpanKind::Client);
        let carried = part.carried_by(&with(SAMPLED));
        assert_eq!(carried[&TRACEPARENT], part.context().header());
        drop((part, open));
        let (part, root) = (outlet.queue.try_recv().unwrap(), outlet.queue.try_recv().unwrap());
        let client = Context::parse(SAMPLED.as_bytes()).unwrap();
        assert_eq!(root.parent, Some((client.span, true)));
        assert_eq!(part.parent, Some((root.context.span, false)));
        assert_eq!([root.context.trace, part.context.trace], [client.trace; 2]);
        assert!(root.began <= part.began && part.ended <= root.ended);
    }

    #[test]
    fn the_state_of_other_systems_goes_along_only_with_their_trace() {
        let (recorder, _outlet, _) = recorder(1.0, true);
        for (traceparent, kept) in [(SAMPLED, true), ("00-broken", false)] {
            let mut headers = with(traceparent);
            headers.insert("tracestate", "vendor=1".parse().unwrap());
            let open = recorder.accept(&headers, || "POST".to_owned()).unwrap();
            let carried = open.trace().begin("part", SpanKind::Client).carried_by(&headers);
            assert_eq!(carried.contains_key("tracestate"), kept, "{traceparent}");
        }
    }

    #[test]
    fn spans_that_find_the_queue_full_are_counted_and_nobody_waits() {
        let (recorder, _outlet, counts) = recorder(1.0, true);
        for _ in 0..QUEUE_SPANS_MAX + 5 {
            drop(recorder.begin("deliver", SpanKind::Consumer));
        }
        assert_eq!(counts.overflowed(), 5);
    }
}
