//! The messages of OTLP (opentelemetry.proto.collector.trace.v1), as far as spans need them.

use prost::Message;

use crate::context::Context;
use crate::span::{Span, Value};

#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<SpanMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct SpanMessage {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "13")]
    links: Vec<Link>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    flags: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Link {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(fixed32, tag = "6")]
    flags: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "AnyOf", tags = "1, 2, 3")]
    value: Option<AnyOf>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum AnyOf {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Flag(bool),
    #[prost(int64, tag = "3")]
    Number(i64),
}

#[derive(Clone, PartialEq, Message)]
struct Response {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected_spans: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

/// `STATUS_CODE_ERROR`.
const FAILED: i32 = 2;

/// Bits of `flags`: the trace is sampled; it is known whether the parent is another program's, and it is.
const SAMPLED: u32 = 1;
const PARENT_IS_KNOWN: u32 = 1 << 8;
const PARENT_IS_REMOTE: u32 = 1 << 9;

/// Returns the body of a request that exports these spans, with `room` free bytes before it.
pub(crate) fn request(spans: &[Span], resource: &[(String, String)], room: usize) -> Vec<u8> {
    let text = |text: &String| Value::Text(text.clone().into());
    let request = Request {
        resource_spans: vec![ResourceSpans {
            resource: Some(Resource {
                attributes: resource
                    .iter()
                    .map(|(key, value)| attribute(key, text(value)))
                    .collect(),
            }),
            scope_spans: vec![ScopeSpans {
                scope: Some(Scope {
                    name: "tidegate".to_owned(),
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                }),
                spans: spans.iter().map(message).collect(),
            }],
        }],
    };
    let mut out = vec![0; room];
    request
        .encode(&mut out)
        .expect("a vector has room for any message");
    out
}

/// Returns how many spans of a request the collector refused, and its reason, from its answer.
pub(crate) fn refused(answer: &[u8]) -> Option<(u64, String)> {
    let partial = Response::decode(answer).ok()?.partial_success?;
    let refused = u64::try_from(partial.rejected_spans).ok()?;
    (refused > 0).then_some((refused, partial.error_message))
}

fn message(span: &Span) -> SpanMessage {
    let remote = span.parent.is_some_and(|(_, remote)| remote);
    SpanMessage {
        trace_id: span.context.trace.to_vec(),
        span_id: span.context.span.to_vec(),
        parent_span_id: span.parent.map_or_else(Vec::new, |(parent, _)| parent.to_vec()),
        name: span.name.clone().into_owned(),
        kind: span.kind as i32,
        start_time_unix_nano: span.began,
        end_time_unix_nano: span.ended,
        attributes: span
            .attributes
            .iter()
            .map(|(key, value)| attribute(key, value.clone()))
            .collect(),
        links: span.links.iter().map(link).collect(),
        status: span.failed.as_ref().map(|why| Status {
            message: why.clone().into_owned(),
            code: FAILED,
        }),
        flags: SAMPLED | PARENT_IS_KNOWN | if remote { PARENT_IS_REMOTE } else { 0 },
    }
}

fn link(to: &Context) -> Link {
    Link {
        trace_id: to.trace.to_vec(),
        span_id: to.span.to_vec(),
        flags: u32::from(to.sampled) | PARENT_IS_KNOWN | PARENT_IS_REMOTE,
    }
}

fn attribute(key: &str, value: Value) -> KeyValue {
    let value = match value {
        Value::Text(text) => AnyOf::Text(text.into_owned()),
        Value::Number(number) => AnyOf::Number(number),
        Value::Flag(flag) => AnyOf::Flag(flag),
    };
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::{
        ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
    };
    use opentelemetry_proto::tonic::common::v1::any_value::Value as Theirs;
    use opentelemetry_proto::tonic::trace::v1::status::StatusCode;

    use super::*;
    use crate::span::SpanKind;

    fn span() -> Span {
        Span {
            context: Context::new(),
            parent: Some(([7; 8], true)),
            name: "part".into(),
            kind: SpanKind::Client,
            began: 1_700_000_000_000_000_001,
            ended: 1_700_000_000_000_000_009,
            attributes: vec![
                ("text", "words".into()),
                ("number", 500u32.into()),
                ("flag", true.into()),
            ],
            links: vec![Context::new()],
            failed: Some("the node broke off".into()),
        }
    }

    #[test]
    fn the_official_messages_read_what_is_written_here() {
        let ours = span();
        let resource = [("service.name".to_owned(), "tidegate".to_owned())];
        let written = request(std::slice::from_ref(&ours), &resource, 5);
        let read = ExportTraceServiceRequest::decode(&written[5..]).unwrap();
        let group = &read.resource_spans[0];
        assert_eq!(group.resource.as_ref().unwrap().attributes[0].key, "service.name");
        let scope = &group.scope_spans[0];
        assert_eq!(scope.scope.as_ref().unwrap().name, "tidegate");
        let theirs = &scope.spans[0];
        assert_eq!(theirs.trace_id, ours.context.trace);
        assert_eq!(theirs.span_id, ours.context.span);
        assert_eq!(theirs.parent_span_id, [7; 8]);
        assert_eq!((&*theirs.name, theirs.kind), ("part", 3));
        assert_eq!(theirs.start_time_unix_nano, ours.began);
        assert_eq!(theirs.end_time_unix_nano, ours.ended);
        assert_eq!(theirs.flags, 0x301);
        let values = theirs.attributes.iter().map(|attribute| {
            let value = attribute.value.clone().unwrap().value.unwrap();
            (&*attribute.key, value)
        });
        assert_eq!(
            values.collect::<Vec<_>>(),
            [
                ("text", Theirs::StringValue("words".to_owned())),
                ("number", Theirs::IntValue(500)),
                ("flag", Theirs::BoolValue(true)),
            ]
        );
        assert_eq!(theirs.links[0].trace_id, ours.links[0].trace);
        assert_eq!(theirs.links[0].span_id, ours.links[0].span);
        let status = theirs.status.as_ref().unwrap();
        assert_eq!(
            (status.code(), &*status.message),
            (StatusCode::Error, "the node broke off")
        );
    }

    #[test]
    fn what_the_collector_refuses_is_read_from_its_answer() {
        let answer = |partial_success| ExportTraceServiceResponse { partial_success }.encode_to_vec();
        assert_eq!(refused(&answer(None)), None);
        let partial = |rejected_spans| ExportTracePartialSuccess {
            rejected_spans,
            error_message: "too old".to_owned(),
        };
        assert_eq!(refused(&answer(Some(partial(0)))), None);
        assert_eq!(
            refused(&answer(Some(partial(3)))),
            Some((3, "too old".to_owned()))
        );
        assert_eq!(refused(b"<html>"), None);
    }
}
