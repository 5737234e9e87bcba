//! Asks the question: a bulk of the same form that changes nothing, a delete in an index that is not there.
//! No server makes an index for it, and all servers look at the head first.

use std::sync::Arc;
use std::time::Duration;

use cluster::{PickReason, Snapshot};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode, response};
use memchr::memmem;
use wire::{Chunk, Outgoing, SendError};

use super::known::FormVerdict;
use super::{AnswerHead, Form, Forms, alike};
use crate::admission::is_a_servers_error;
use crate::answer::with_head;
use crate::error::{Fault, Rejection};
use crate::nodes::{Fallback, Message, Outbound, Purpose, strip_for_parts};
use crate::request_id::RequestId;

/// How the cluster refuses a form.
pub(crate) struct Refusal {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
    /// The path of the question, which the body may repeat.
    path: String,
}

/// Why no node said whether it takes a form: the failure of the last question.
#[derive(Debug, thiserror::Error)]
enum Unanswered {
    #[error("{node} answered {status}")]
    Status { node: String, status: StatusCode },
    #[error(transparent)]
    NotSent(#[from] SendError),
}

/// How a cluster is asked: on the way that the client's request would go.
#[derive(Clone, Copy)]
pub(crate) struct FormQuestion<'a> {
    pub(crate) outbound: &'a Outbound,
    pub(crate) fallback: &'a Fallback,
}

impl FormQuestion<'_> {
    /// Lets a request go on if the cluster takes its form, and notes how the request would be answered.
    pub(crate) async fn admit(
        self,
        forms: &Forms,
        head: &mut Parts,
        target: &str,
        snapshot: &Snapshot,
    ) -> Result<(), Rejection> {
        let form = Form::of(head, target);
        let dialect = snapshot.table.dialect();
        let admitted = match forms.verdict(&form, dialect) {
            FormVerdict::Taken(answer_head) => answer_head,
            FormVerdict::Refused(refusal) => return Err(refusal.response(target).into()),
            FormVerdict::Ask(before) => match (self.ask_form(head, &form, snapshot).await, before) {
                (Ok(FormAnswer::Taken(headers)), _) => forms.taken(&form, dialect, headers),
                (Ok(FormAnswer::Refused(refusal)), _) => {
                    let refusal = Arc::new(*refusal);
                    forms.refused(&form, dialect, &refusal);
                    return Err(refusal.response(target).into());
                }
                (Ok(FormAnswer::ToThisClient(answer)), _) => return Err(Rejection::Cluster(answer)),
                // A cluster that is away must not stop the queue: its old answer holds.
                (Err(_), Some(before)) => before,
                (Err(why), None) => return Err(Fault::form_unknown(&why.to_string()).into()),
            },
        };
        head.extensions.insert::<AnswerHead>(admitted);
        Ok(())
    }

    /// Asks one node after another. An error says why none answered.
    async fn ask_form(
        self,
        head: &Parts,
        form: &Form<'_>,
        snapshot: &Snapshot,
    ) -> Result<FormAnswer, Unanswered> {
        let (path, target) = question(form.target);
        let mut headers = head.headers.clone();
        strip_for_parts(&mut headers);
        self.fallback.fill(&mut headers);
        let request_id = RequestId::of(&head.extensions);
        let message = Message {
            request_id: &request_id,
            purpose: Purpose::Ask,
            method: &head.method,
            target: &target,
            headers: &headers,
        };
        let deadline = tokio::time::Instant::now() + ANSWER_WITHIN;
        let mut tried = Vec::new();
        loop {
            let node = self.outbound.pick(snapshot, PickReason::Request, &tried);
            let body = Outgoing::Full(Chunk::from(NOTHING));
            let failure = match self.outbound.whole(&node, message, body, deadline).await {
                Ok((head, body)) => match said(head, &body, &path) {
                    Ok(said) => return Ok(said),
                    Err(status) => Unanswered::Status {
                        node: node.name.clone(),
                        status,
                    },
                },
                Err(error) => error.into(),
            };
            tried.push(node);
            if tried.len() >= snapshot.nodes.len().min(NODES_MAX) {
                return Err(failure);
            }
        }
    }
}

/// A node's answer to the question.
enum FormAnswer {
    /// The node takes such requests, and answers with these headers.
    Taken(HeaderMap),
    Refused(Box<Refusal>),
    /// The node would not hear this client, which says nothing of the form.
    ToThisClient(Box<Response<Outgoing>>),
}

/// Reads a node's answer to the question. An error is a status that says nothing of the form.
fn said(head: response::Parts, body: &[u8], path: &str) -> Result<FormAnswer, StatusCode> {
    match head.status.as_u16() {
        200 => Ok(FormAnswer::Taken(alike(&head.headers))),
        401 | 403 => {
            let answer = with_head(head, &[], Outgoing::from(body.to_vec()));
            Ok(FormAnswer::ToThisClient(Box::new(answer)))
        }
        408 | 429 => Err(head.status),
        // A proxy on the way has pages of its own for what it cannot reach.
        400..=499 if !is_a_servers_error(&head.headers, body) => Err(head.status),
        400..=499 => Ok(FormAnswer::Refused(Box::new(Refusal::new(head, body, path)))),
        _ => Err(head.status),
    }
}

/// Returns the path, and the path and query, of the question about a target: as long as the target, where
/// that is longer.
fn question(target: &str) -> (String, String) {
    let query = target.find('?').map_or("", |at| &target[at..]);
    let path = |more: usize| format!("/{INDEX}{}/_bulk", "x".repeat(more));
    let path = path(target.len().saturating_sub(path(0).len() + query.len()));
    let target = format!("{path}{query}");
    (path, target)
}

// === impl Refusal ===

impl Refusal {
    pub(super) fn new(head: response::Parts, body: &[u8], path: &str) -> Self {
        let mut headers = alike(&head.headers);
        headers
            .entry(CONTENT_TYPE)
            .or_insert(HeaderValue::from_static("application/json; charset=UTF-8"));
        Self {
            status: head.status,
            headers,
            body: body[..body.len().min(WORDS_BYTES_MAX)].to_vec(),
            path: path.to_owned(),
        }
    }

    /// Returns the refusal as the cluster would have answered a request to this target.
    fn response(&self, target: &str) -> Response<Outgoing> {
        let path = target.split('?').next().unwrap_or_default();
        let path = serde_json::Value::from(path).to_string();
        let path = &path.as_bytes()[1..path.len() - 1];
        let (mut body, mut from) = (Vec::with_capacity(self.body.len()), 0);
        for at in memmem::find_iter(&self.body, self.path.as_bytes()) {
            body.extend_from_slice(&self.body[from..at]);
            body.extend_from_slice(path);
            from = at + self.path.len();
        }
        body.extend_from_slice(&self.body[from..]);
        let mut response = Response::new(Outgoing::from(body));
        *response.status_mut() = self.status;
        response.headers_mut().clone_from(&self.headers);
        response
    }
}

/// The name of an index that nobody has.
const INDEX: &str = "tidegate-asks-about-parameters";
/// If somebody has the index all the same, the condition holds for no document.
const NOTHING: &str = "{\"delete\":{\"_id\":\"tidegate\",\"if_seq_no\":1000000000,\"if_primary_term\":1}}\n";
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const NODES_MAX: usize = 3;
/// The most bytes of a refusal that are kept; errors are shorter.
const WORDS_BYTES_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_has_the_same_parameters_and_is_as_long_if_that_is_longer() {
        let (path, target) = question("/_bulk?a=b");
        assert_eq!(path, "/tidegate-asks-about-parameters/_bulk");
        assert_eq!(target, format!("{path}?a=b"));
        let long = format!("/i/_bulk?routing={}", "r".repeat(3_000));
        let (_, target) = question(&long);
        assert!(target.len() >= long.len() && target.ends_with(&long[8..]));
        let long = format!("/{}/_bulk?refresh", "i".repeat(3_000));
        let (_, target) = question(&long);
        assert_eq!(target.len(), long.len());
    }

    #[test]
    fn a_refusal_names_the_clients_path_and_not_that_of_the_question() {
        let words = b"{\"error\":\"request [/p/_bulk] contains unrecognized parameter: [a]\"}";
        let mut head = Response::new(()).into_parts().0;
        head.status = StatusCode::BAD_REQUEST;
        let mut answer = Refusal::new(head, words, "/p/_bulk").response("/logs/_bulk?a");
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
        let Outgoing::Full(body) = std::mem::take(answer.body_mut()) else {
            panic!("one chunk")
        };
        let body = String::from_utf8_lossy(&body).into_owned();
        assert!(body.contains("request [/logs/_bulk] contains"), "{body}");
    }

    #[test]
    fn only_an_answer_to_the_form_is_one() {
        let of_words = |status: u16, words: &[u8]| {
            let mut head = Response::new(()).into_parts().0;
            head.status = StatusCode::from_u16(status).unwrap();
            said(head, words, "/p")
        };
        let of = |status: u16| of_words(status, b"{\"error\":\"no\",\"status\":400}");
        assert!(matches!(of(200), Ok(FormAnswer::Taken(_))));
        for status in [400, 404, 405, 406, 415] {
            assert!(matches!(of(status), Ok(FormAnswer::Refused(_))), "{status}");
        }
        for status in [401, 403] {
            assert!(matches!(of(status), Ok(FormAnswer::ToThisClient(_))), "{status}");
        }
        for page in ["<html>404 Not Found</html>", "default backend - 404", "{}", ""] {
            assert!(of_words(404, page.as_bytes()).is_err(), "a proxy's page: {page}");
        }
        for status in [301, 408, 429, 500, 503] {
            assert!(of(status).is_err(), "{status}");
        }
    }
}
