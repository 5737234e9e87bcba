//! Parameters that only shape an answer (`filter_path`, `pretty`, …). In asynchronous mode they are removed
//! from a request before the rest is read, so that the request is queued without them, and the answer from
//! the queue is shaped here.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use config::router::decode;
use http::header::CONTENT_LENGTH;
use http::{Response, StatusCode};
use serde_json::value::RawValue;
use wire::{CHUNK_BYTES, Chunk, Outgoing};

use crate::own_thread::on_own_thread;
use crate::switches::filter_path::FilterPath;
use crate::turns::{AT_ONCE_BYTES, Turns};

/// The shape of the answer that a client asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AnswerShape {
    filter_path: Option<FilterPath>,
    pretty: bool,
}

impl AnswerShape {
    /// Removes the parameters that shape the answer from a target. A parameter that appears twice, or whose
    /// value is not plain, stays, as all other parameters do, since its meaning is not certain.
    pub(crate) fn take_off(target: &str) -> (Self, Cow<'_, str>) {
        let mut shape = Self::default();
        let Some((path, query)) = target.split_once('?') else {
            return (shape, Cow::Borrowed(target));
        };
        // Some servers also separate parameters at semicolons (`RestUtils.decodeQueryString`), and they read
        // what is not escaped as Latin-1.
        if query.contains(';') || !query.is_ascii() {
            return (shape, Cow::Borrowed(target));
        }
        let pairs: Vec<&str> = query.split('&').filter(|pair| !pair.is_empty()).collect();
        let mut times: HashMap<&str, usize> = HashMap::with_capacity(pairs.len());
        for pair in &pairs {
            *times.entry(name_of(pair)).or_default() += 1;
        }
        let mut rest = Vec::with_capacity(pairs.len());
        for pair in &pairs {
            let once = times.get(name_of(pair)) == Some(&1);
            if !once || !shape.takes(pair) {
                rest.push(*pair);
            }
        }
        match rest.len() {
            left if left == pairs.len() => (shape, Cow::Borrowed(target)),
            0 => (shape, Cow::Borrowed(path)),
            _ => (shape, Cow::Owned(format!("{path}?{}", rest.join("&")))),
        }
    }

    /// Returns whether this parameter shapes the answer. If so, it is remembered.
    fn takes(&mut self, pair: &str) -> bool {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let on = match value {
            "" | "true" => Some(true),
            "false" => Some(false),
            _ => None,
        };
        match (name, on) {
            ("filter_path", _) => match decode(value, true) {
                Some(paths) if paths.is_empty() => {
                    self.filter_path = None;
                    true
                }
                Some(paths) => {
                    self.filter_path = FilterPath::within_bounds(&paths);
                    self.filter_path.is_some()
                }
                None => false,
            },
            ("pretty", Some(on)) => {
                self.pretty = on;
                true
            }
            // These answers contain nothing that has another form for people, and no errors.
            ("human" | "error_trace", Some(_)) => true,
            ("format", _) => value == "json",
            _ => false,
        }
    }

    /// Shapes an answer that the queue gave. Other answers are errors of the whole request, and stay as they
    /// are. A long answer is shaped beside the thread that serves requests, since JSON is read in one go.
    pub(crate) async fn apply(&self, answer: Response<Outgoing>) -> Response<Outgoing> {
        if *self == Self::default() || !matches!(answer.status(), StatusCode::OK | StatusCode::CREATED) {
            return answer;
        }
        let (mut head, body) = answer.into_parts();
        let body = Arc::new(whole_in_turns(body).await);
        let shaped = match body.len() > AT_ONCE_BYTES {
            true => {
                let (shape, long) = (self.clone(), Arc::clone(&body));
                let shaped = on_own_thread(move || shape.shaped(&long)).await;
                // If no thread can be started, the answer is shaped here: the documents are queued, and this
                // is the answer to them.
                shaped.unwrap_or_else(|_| self.shaped(&body))
            }
            false => self.shaped(&body),
        };
        let body = match shaped {
            Some(text) => {
                head.headers.remove(CONTENT_LENGTH);
                Outgoing::from(text)
            }
            None => Outgoing::from(Arc::unwrap_or_clone(body)),
        };
        Response::from_parts(head, body)
    }

    /// Returns the text of an answer in this shape, or `None` if it is not JSON.
    fn shaped(&self, body: &[u8]) -> Option<String> {
        let told = serde_json::from_slice::<Box<RawValue>>(body).ok()?;
        let told = match &self.filter_path {
            Some(filter) => filter.apply_text(told).unwrap_or_else(nothing),
            None => told,
        };
        Some(match self.pretty && told.get().len() <= PRETTY_BYTES_MAX {
            true => crate::pretty::pretty_text(&told),
            false => Box::<str>::from(told).into_string(),
        })
    }
}

/// Longer answers are not laid out: nobody reads them, and it would take the core's time and memory of twice
/// their length.
const PRETTY_BYTES_MAX: usize = 4 << 20;

/// Returns what is left of an answer when the filter removes everything.
fn nothing() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).unwrap_or_default()
}

/// Returns an answer of the gateway's own in one piece.
pub(crate) fn whole(body: Outgoing) -> Vec<u8> {
    let chunks = chunks(body);
    let mut whole = Vec::with_capacity(chunks.iter().map(|chunk| chunk.len()).sum());
    for chunk in chunks {
        whole.extend_from_slice(&chunk);
    }
    whole
}

/// Returns an answer that may be long in one piece, with turns for other tasks in between.
async fn whole_in_turns(body: Outgoing) -> Vec<u8> {
    let chunks = chunks(body);
    let mut whole = Vec::with_capacity(chunks.iter().map(|chunk| chunk.len()).sum());
    let mut turns = Turns::begin();
    for chunk in chunks {
        for piece in chunk.chunks(CHUNK_BYTES) {
            whole.extend_from_slice(piece);
            turns.pass().await;
        }
    }
    whole
}

fn chunks(body: Outgoing) -> Vec<Chunk> {
    match body {
        Outgoing::Full(chunk) => vec![chunk],
        Outgoing::Chunks(chunks) => chunks.into(),
        Outgoing::Empty | Outgoing::Stream { .. } => Vec::new(),
    }
}

fn name_of(pair: &str) -> &str {
    pair.split_once('=').map_or(pair, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_of_parameters_cost_no_more_than_to_read_them() {
        let many = format!("/_bulk?pretty&{}filter_path=took", "a&".repeat(8_000));
        let began = std::time::Instant::now();
        let (shape, rest) = AnswerShape::take_off(&many);
        assert!(shape.pretty && shape.filter_path.is_some());
        assert_eq!(rest.len(), "/_bulk?".len() + 2 * 8_000 - 1);
        assert!(began.elapsed().as_secs() < 1, "{:?}", began.elapsed());
    }

    #[test]
    fn what_shapes_the_answer_is_taken_off_and_all_else_stays() {
        for (target, left) in [
            ("/_bulk", "/_bulk"),
            ("/_bulk?filter_path=items.*.error,errors", "/_bulk"),
            (
                "/_bulk?timeout=1m&pretty&refresh=true",
                "/_bulk?timeout=1m&refresh=true",
            ),
            ("/_bulk?human=false&error_trace=true&format=json", "/_bulk"),
            ("/_bulk?format=yaml", "/_bulk?format=yaml"),
            ("/_bulk?pretty=maybe", "/_bulk?pretty=maybe"),
            ("/_bulk?pretty&pretty", "/_bulk?pretty&pretty"),
            ("/_bulk?filter_path=%f", "/_bulk?filter_path=%f"),
            ("/_bulk?refresh;pretty&human", "/_bulk?refresh;pretty&human"),
        ] {
            assert_eq!(AnswerShape::take_off(target).1, left, "{target}");
        }
    }

    #[tokio::test]
    async fn an_answer_is_shaped_and_an_error_is_not() {
        let answer = |status| {
            let body = r#"{"took":1,"errors":false,"items":[{"index":{"_id":"1","status":201}}]}"#;
            let mut response = Response::new(Outgoing::from(body.to_owned()));
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            response
        };
        let shaped = async |query: &str, status| {
            let target = format!("/_bulk?{query}");
            let (shape, _) = AnswerShape::take_off(&target);
            String::from_utf8(whole(shape.apply(answer(status)).await.into_body())).unwrap()
        };
        assert_eq!(
            shaped("filter_path=errors,items.*.error", 200).await,
            r#"{"errors":false}"#
        );
        assert_eq!(
            shaped("filter_path=items.*._id", 200).await,
            r#"{"items":[{"index":{"_id":"1"}}]}"#
        );
        assert_eq!(
            shaped("filter_path=-took,-items.*.status", 200).await,
            r#"{"errors":false,"items":[{"index":{"_id":"1"}}]}"#
        );
        assert!(shaped("pretty", 200).await.starts_with("{\n"));
        let long = format!(
            r#"{{"errors":false,"items":["{}"]}}"#,
            "x".repeat(PRETTY_BYTES_MAX)
        );
        let (shape, _) = AnswerShape::take_off("/_bulk?pretty");
        let told = shape.apply(Response::new(Outgoing::from(long.clone()))).await;
        assert_eq!(whole(told.into_body()), long.into_bytes(), "as it is");
        assert!(shaped("filter_path=errors", 429).await.contains("took"));
    }
}
