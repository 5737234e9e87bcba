//! Spans: what was done, from when to when, and as part of what.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::HeaderMap;

use crate::context::{Context, TRACEPARENT, TRACESTATE};
use crate::recorder::Recorder;

/// The side of an exchange that a span describes. The numbers are OTLP's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum SpanKind {
    /// A step within the program.
    Internal = 1,
    /// An answer to somebody's request.
    Server = 2,
    /// A request to another program.
    Client = 3,
    /// The hand-over of something that is worked on later.
    Producer = 4,
    /// The work on what was handed over earlier.
    Consumer = 5,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text.
    Text(Cow<'static, str>),
    /// A whole number.
    Number(i64),
    /// Yes or no.
    Flag(bool),
}

/// A span that has ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Span {
    pub(crate) context: Context,
    /// The span that this one is part of, and whether another program has it.
    pub(crate) parent: Option<([u8; 8], bool)>,
    pub(crate) name: Cow<'static, str>,
    pub(crate) kind: SpanKind,
    /// In ns since 1970.
    pub(crate) began: u64,
    pub(crate) ended: u64,
    pub(crate) attributes: Vec<(&'static str, Value)>,
    /// Spans of other traces that this one goes on from.
    pub(crate) links: Vec<Context>,
    /// Why the span failed, if it did.
    pub(crate) failed: Option<Cow<'static, str>>,
}

/// A span under way. It ends, and is recorded, when this is dropped.
#[derive(Debug)]
pub struct OpenSpan {
    recorder: Arc<Recorder>,
    clock: Clock,
    /// Taken when the span ends.
    span: Option<Box<Span>>,
    /// Whether the trace is a client's.
    theirs: bool,
}

/// A trace that is recorded, seen from one of its spans: what is begun here is part of that span. Cheap to
/// clone.
#[derive(Clone, Debug)]
pub struct Trace(Arc<TraceInner>);

#[derive(Debug)]
struct TraceInner {
    recorder: Arc<Recorder>,
    clock: Clock,
    context: Context,
    theirs: bool,
}

/// The clock of all spans of a trace in this program. It starts at the time of day and then runs evenly, so a
/// step never ends after what it is part of, even if somebody sets the time of day.
#[derive(Clone, Copy, Debug)]
struct Clock {
    started: Instant,
    /// In ns since 1970.
    at: u64,
}

// === impl Clock ===

impl Clock {
    fn start() -> Self {
        let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self {
            started: Instant::now(),
            at: at.map_or(0, nanos),
        }
    }

    fn now(&self) -> u64 {
        self.at.saturating_add(nanos(self.started.elapsed()))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

// === impl Trace ===

impl Trace {
    /// Begins a span.
    pub fn begin(&self, name: &'static str, kind: SpanKind) -> OpenSpan {
        let seen = &*self.0;
        let context = seen.context.another();
        let mut open = OpenSpan::at(seen.clock, &seen.recorder, context, name.into(), kind);
        open.theirs = seen.theirs;
        if let Some(span) = &mut open.span {
            span.parent = Some((seen.context.span, false));
        }
        open
    }
}

// === impl OpenSpan ===

impl OpenSpan {
    /// Begins the first span of a trace in this program.
    pub(crate) fn new(
        recorder: &Arc<Recorder>,
        context: Context,
        name: Cow<'static, str>,
        kind: SpanKind,
    ) -> Self {
        Self::at(Clock::start(), recorder, context, name, kind)
    }

    fn at(
        clock: Clock,
        recorder: &Arc<Recorder>,
        context: Context,
        name: Cow<'static, str>,
        kind: SpanKind,
    ) -> Self {
        let began = clock.now();
        Self {
            recorder: Arc::clone(recorder),
            clock,
            span: Some(Box::new(Span {
                context,
                parent: None,
                name,
                kind,
                began,
                ended: began,
                attributes: Vec::new(),
                links: Vec::new(),
                failed: None,
            })),
            theirs: false,
        }
    }

    /// Makes the span part of a client's.
    pub(crate) fn part_of(&mut self, client: Context) {
        self.theirs = true;
        if let Some(span) = &mut self.span {
            span.parent = Some((client.span, true));
        }
    }

    /// Returns the span's identity.
    pub fn context(&self) -> Context {
        let span = self.span.as_ref();
        span.expect("a span is there until it is dropped").context
    }

    /// Returns the trace as this span sees it.
    pub fn trace(&self) -> Trace {
        Trace(Arc::new(TraceInner {
            recorder: Arc::clone(&self.recorder),
            clock: self.clock,
            context: self.context(),
            theirs: self.theirs,
        }))
    }

    /// Adds an attribute.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        if let Some(span) = &mut self.span {
            span.attributes.push((key, value.into()));
        }
    }

    /// Records that what the span describes has failed.
    pub fn fail(&mut self, why: impl Into<Cow<'static, str>>) {
        if let Some(span) = &mut self.span {
            span.failed = Some(why.into());
        }
    }

    /// Records that the span goes on from a span of another trace.
    pub fn link(&mut self, from: Context) {
        if let Some(span) = &mut self.span {
            span.links.push(from);
        }
    }

    /// Returns headers that carry this span to whom they are sent. The state of other tracing systems stays
    /// in them only if it is of this trace.
    pub fn carried_by(&self, headers: &HeaderMap) -> HeaderMap {
        let mut headers = headers.clone();
        headers.insert(&TRACEPARENT, self.context().header());
        if !self.theirs {
            headers.remove(&TRACESTATE);
        }
        headers
    }
}

impl Drop for OpenSpan {
    fn drop(&mut self) {
        if let Some(mut span) = self.span.take() {
            span.ended = self.clock.now();
            self.recorder.record(*span);
        }
    }
}

// === impl Value ===

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<u16> for Value {
    fn from(number: u16) -> Self {
        Self::Number(number.into())
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}
