//! Spans of requests, and their way to an OpenTelemetry collector.
//!
//! A [`Recorder`] decides once for each request, at its head, whether the request is traced
//! ([`Recorder::accept`]). Most requests are not, and cost that decision. A traced request has an
//! [`OpenSpan`], and a [`Trace`] that goes with it everywhere: every step begins a span of its own
//! there. A span ends when it is dropped, so a step that is given up ends its span too.
//!
//! Ended spans go into a bounded queue, and a thread of its own sends them on, in batches, by OTLP over HTTP
//! or gRPC. Nobody waits for that thread: spans that find the queue full are dropped and counted
//! ([`Counts`]).
//!
//! Between programs a trace is W3C's header `traceparent` ([`Context`]).

mod context;
mod export;
mod grpc;
mod gzip;
mod http1;
mod proto;
mod recorder;
mod span;

pub use context::{Context, TRACEPARENT, TRACESTATE};
pub use export::{Protocol, Settings};
pub use recorder::{Counts, Recorder};
pub use span::{OpenSpan, SpanKind, Trace, Value};
