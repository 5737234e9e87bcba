//! What an answer, or none, says of the operations that were sent: done, to be tried again, or refused for
//! good.

use std::sync::Arc;
use std::time::Duration;
use std::vec;

use bulk::Reply;
use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use serde_json::Value;
use wire::{Fate, SendError, SendErrorKind};

use crate::delivery::concern::{concerned, is_alias_unknown_yet, is_slow_mapping};
use crate::queue::parked::Scope;

/// What became of an operation in one try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Executed.
    Done,
    /// To be tried again later.
    Again(Again),
    /// To be tried again at once, with fewer others.
    Split(Error),
    /// The same, apart from other lanes: it may be refused for what another operation of its request holds.
    Shared(Error),
    /// To be tried again at once: another writer was in between.
    AtOnce(Error),
    /// Not now, for a reason that concerns no others than these: it waits apart from its lane.
    Park(Scope, Again),
    /// The cluster would not take it.
    Refused(Error),
}

/// Why nobody can say whether an operation that may have been executed was.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Untold {
    #[error("the document that is there cannot be looked at")]
    Unreadable,
    #[error(transparent)]
    Unanswered(#[from] Arc<SendError>),
    #[error("{node} answered {status} when asked for the document")]
    Document { node: String, status: StatusCode },
    #[error("{status} when asked what {name} stands for")]
    Name { name: String, status: StatusCode },
    #[error("{0} when asked for documents that may have been written")]
    Documents(StatusCode),
}

/// What became of operations that were sent together, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcomes {
    /// Of all: so many are done. A list that says so would be larger than the answer.
    Done(u32),
    Each(Vec<Outcome>),
}

/// Why, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Again {
    pub(crate) why: Arc<str>,
    pub(crate) after: Option<Duration>,
    /// It may have been executed.
    pub(crate) doubt: bool,
    /// The node had too much to do.
    pub(crate) busy: bool,
    /// Somebody has to put something right.
    pub(crate) paused: bool,
    /// What a node said of this operation by itself; none: the whole request failed.
    pub(crate) error: Option<Arc<Error>>,
    /// The index that it names beside its words.
    pub(crate) index: Option<Box<str>>,
}

/// As the cluster words it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Error {
    pub(crate) status: u16,
    pub(crate) kind: String,
    pub(crate) reason: String,
}

// === impl Again ===

impl Again {
    /// What passes by itself, and may have been executed.
    pub(crate) fn in_doubt(why: String) -> Self {
        Self {
            why: why.into(),
            after: None,
            doubt: true,
            busy: false,
            paused: false,
            error: None,
            index: None,
        }
    }

    /// Nothing was sent, and that passes by itself.
    pub(crate) fn unsent(why: String) -> Self {
        Self {
            doubt: false,
            ..Self::in_doubt(why)
        }
    }

    /// What somebody has to put right.
    pub(crate) fn paused(why: String) -> Self {
        Self {
            doubt: false,
            paused: true,
            ..Self::in_doubt(why)
        }
    }

    /// What a node failed by itself, in its own words.
    pub(crate) fn error(&self) -> Option<&Error> {
        self.error.as_deref()
    }

    /// What a node refused by itself, and may take later.
    pub(crate) fn refused(error: Error) -> Self {
        let why = error.to_string().into();
        Self::refused_as(why, Arc::new(error))
    }

    /// The same, with texts that many have in common.
    fn refused_as(why: Arc<str>, error: Arc<Error>) -> Self {
        Self {
            doubt: error.status >= 500,
            busy: error.status == 429,
            why,
            after: None,
            paused: false,
            error: Some(error),
            index: None,
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {}: {}", self.status, self.kind, self.reason)
    }
}

// === impl Outcome ===

impl Outcome {
    /// What comes of it where nothing is parked.
    pub(crate) fn without_parking(self) -> Self {
        match self {
            Outcome::Park(_, again) => match again.error {
                Some(error) if matches!(error.status, 400 | 404) && !is_alias_unknown_yet(&error) => {
                    Outcome::Refused((*error).clone())
                }
                Some(error) if error.status == 413 => Outcome::Again(Again::paused(format!(
                    "one operation alone is too large for the cluster: {}",
                    error.reason
                ))),
                error => Outcome::Again(Again { error, ..again }),
            },
            outcome => outcome,
        }
    }

    /// Whether the node had too much to do.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self, Outcome::Again(again) if again.busy)
    }
}

// === impl Outcomes ===

impl Outcomes {
    /// The same for so many.
    pub(crate) fn of_all(outcome: &Outcome, docs: u32) -> Self {
        Outcomes::Each(vec![outcome.clone(); docs as usize])
    }

    /// Of how many operations.
    pub(crate) fn len(&self) -> usize {
        match self {
            Outcomes::Done(docs) => *docs as usize,
            Outcomes::Each(outcomes) => outcomes.len(),
        }
    }

    pub(crate) fn are_done(&self) -> bool {
        match self {
            Outcomes::Done(_) => true,
            Outcomes::Each(outcomes) => outcomes.iter().all(|outcome| *outcome == Outcome::Done),
        }
    }

    /// Whether the node had too much to do for any of them.
    pub(crate) fn are_busy(&self) -> bool {
        match self {
            Outcomes::Done(_) => false,
            Outcomes::Each(outcomes) => outcomes.iter().any(Outcome::is_busy),
        }
    }

    /// The same after a try that may have been executed: what is in conflict may be so with that one, and is
    /// looked at.
    pub(crate) fn in_doubt(self) -> Self {
        let Outcomes::Each(outcomes) = self else {
            return self;
        };
        let doubted = outcomes.into_iter().map(|outcome| match outcome {
            Outcome::Refused(error) if error.status == 409 => Outcome::Again(Again {
                doubt: true,
                ..Again::refused(error)
            }),
            Outcome::Again(again) => Outcome::Again(Again { doubt: true, ..again }),
            outcome => outcome,
        });
        Outcomes::Each(doubted.collect())
    }

    /// Cuts off the first so many.
    ///
    /// # Panics
    /// If there are fewer.
    pub(crate) fn split_off_front(&mut self, docs: u32) -> Self {
        // Otherwise operations would count as done that nobody said so of.
        let left = self.len();
        assert!(
            docs as usize <= left,
            "{docs} outcomes are wanted of {left}: a parcel has more operations than were answered"
        );
        match self {
            Outcomes::Done(left) => {
                *left -= docs;
                Outcomes::Done(docs)
            }
            Outcomes::Each(outcomes) => {
                let rest = outcomes.split_off(docs as usize);
                Outcomes::Each(std::mem::replace(outcomes, rest))
            }
        }
    }
}

impl IntoIterator for Outcomes {
    type Item = Outcome;
    type IntoIter = vec::IntoIter<Outcome>;

    fn into_iter(self) -> Self::IntoIter {
        match self {
            Outcomes::Done(docs) => vec![Outcome::Done; docs as usize].into_iter(),
            Outcomes::Each(outcomes) => outcomes.into_iter(),
        }
    }
}

/// What no answer says of the operations sent.
pub(crate) fn unanswered(error: &SendError) -> Again {
    Again {
        why: error.to_string().into(),
        after: None,
        doubt: error.fate == Fate::Unknown,
        busy: false,
        paused: matches!(error.kind, SendErrorKind::Tls(_) | SendErrorKind::SpeaksTls),
        error: None,
        index: None,
    }
}

/// What a node's answer says of each of `docs` operations.
pub(crate) fn outcomes(
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    docs: u32,
    node: &str,
) -> Outcomes {
    let after = headers.get(RETRY_AFTER);
    let after = after.and_then(|value| value.to_str().ok()?.parse().ok().map(Duration::from_secs));
    let again = |paused: bool, doubt: bool| {
        let text = String::from_utf8_lossy(&body[..body.len().min(WHY_BYTES_MAX)]);
        Outcome::Again(Again {
            why: format!("{node} answered {status}: {text}").into(),
            after,
            doubt,
            busy: status == StatusCode::TOO_MANY_REQUESTS,
            paused,
            error: None,
            index: None,
        })
    };
    let of_error = || error_of(status.as_u16(), serde_json::from_slice(body).ok()?);
    let one = match status.as_u16() {
        200 if bulk::all_succeeded(body, docs) => return Outcomes::Done(docs),
        200 => match Reply::split(body, docs) {
            Ok(reply) => {
                let mut last = None;
                let each = (0..docs).map(|item| item_outcome(&reply, item, &mut last));
                return Outcomes::Each(each.collect());
            }
            // Whoever answers like that is no cluster, or not well.
            Err(_) => again(true, true),
        },
        429 => again(false, false),
        408 | 502 | 503 | 504 => again(false, true),
        // The cluster's own rejection of the whole; what is in somebody else's words is no reason to give up
        // documents.
        400 => of_error().map_or_else(|| again(true, false), Outcome::Split),
        // Some servers fail the whole for one operation.
        500 => of_error().map_or_else(|| again(true, true), Outcome::Split),
        413 => Outcome::Split(Error {
            status: 413,
            kind: "content_too_long_exception".to_owned(),
            reason: format!("{node} answered {status}"),
        }),
        _ => again(true, status.is_server_error()),
    };
    Outcomes::of_all(&one, docs)
}

/// What many items say in the same words is kept once: `last` is what the one before said.
fn item_outcome(reply: &Reply<'_>, item: u32, last: &mut Option<(Arc<str>, Arc<Error>)>) -> Outcome {
    let facts = reply.facts(item);
    let status = facts.status.unwrap_or(500);
    if !facts.failed {
        // A delete that found nothing says 404 and is done.
        return Outcome::Done;
    }
    let parsed: Value = serde_json::from_slice(reply.item(item)).unwrap_or_default();
    let inner = parsed.as_object().and_then(|item| item.values().next());
    let error = inner.and_then(|inner| error_of(status, inner.clone()));
    let error = error.unwrap_or_else(|| Error {
        status,
        kind: "exception".to_owned(),
        reason: String::from_utf8_lossy(reply.item(item)).into_owned(),
    });
    // A cluster with much to do; 500 would count, and kill in the end.
    if is_slow_mapping(&error) {
        return Outcome::Again(Again::unsent(error.to_string()));
    }
    if let Some(scope) = concerned(&error) {
        // Missing rights are for somebody to put right, which the lanes' numbers say where nothing is parked.
        let paused = error.status == 403;
        let busy = false;
        let index = inner.and_then(|inner| inner["error"]["index"].as_str());
        return Outcome::Park(
            scope,
            Again {
                paused,
                busy,
                index: index.map(Into::into),
                ..refused(error, last)
            },
        );
    }
    let paused = match status {
        408 | 429 | 502 | 503 | 504 => false,
        // Rights that are missing, an index that is blocked: nothing that is wrong with the document.
        401 | 403 => true,
        _ => return Outcome::Refused(error),
    };
    Outcome::Again(Again {
        doubt: matches!(status, 502..=504),
        // An index whose disk is full says 429 as well, whatever its node has to do.
        busy: status == 429 && error.kind != "cluster_block_exception",
        paused,
        ..refused(error, last)
    })
}

fn refused(error: Error, last: &mut Option<(Arc<str>, Arc<Error>)>) -> Again {
    let (why, error) = match last.take() {
        Some((why, known)) if *known == error => (why, known),
        _ => (error.to_string().into(), Arc::new(error)),
    };
    *last = Some((Arc::clone(&why), Arc::clone(&error)));
    Again::refused_as(why, error)
}

/// An error as the servers write it, with what caused it.
fn error_of(status: u16, body: Value) -> Option<Error> {
    let error = body.get("error")?;
    let kind = error["type"].as_str()?.to_owned();
    let mut reason = error["reason"].as_str().unwrap_or_default().to_owned();
    let mut cause = &error["caused_by"];
    while let Some(text) = cause["reason"].as_str() {
        reason.push_str("; caused by ");
        reason.push_str(cause["type"].as_str().unwrap_or_default());
        reason.push_str(": ");
        reason.push_str(text);
        cause = &cause["caused_by"];
    }
    Some(Error { status, kind, reason })
}

const WHY_BYTES_MAX: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes_of(status: u16, body: &str, docs: u32) -> Vec<Outcome> {
        outcomes(
            StatusCode::from_u16(status).unwrap(),
            &HeaderMap::new(),
            body.as_bytes(),
            docs,
            "n",
        )
        .into_iter()
        .collect()
    }

    #[test]
    #[should_panic(expected = "3 outcomes are wanted of 2")]
    fn a_parcel_gets_no_outcomes_that_nobody_gave() {
        Outcomes::Done(2).split_off_front(3);
    }

    #[test]
    fn items_are_done_tried_again_or_dead_as_their_status_says() {
        let item = |status: u16| {
            format!(
                "{{\"index\":{{\"_id\":\"1\",\"status\":{status},\"error\":{{\"type\":\"t\",\"reason\":\"r\",\"caused_by\":{{\"type\":\"c\",\"reason\":\"d\"}}}}}}}}"
            )
        };
        let items = [
            "{\"index\":{\"_id\":\"1\",\"status\":201}}".to_owned(),
            "{\"delete\":{\"_id\":\"1\",\"result\":\"not_found\",\"status\":404}}".to_owned(),
            item(429),
            item(503),
            item(403),
            item(400),
            item(404),
        ];
        let body = format!("{{\"took\":1,\"errors\":true,\"items\":[{}]}}", items.join(","));
        let outcomes = outcomes_of(200, &body, 7);
        assert_eq!(outcomes[..2], [Outcome::Done, Outcome::Done]);
        let kinds: Vec<_> = outcomes[2..5]
            .iter()
            .map(|outcome| match outcome {
                Outcome::Again(again) | Outcome::Park(_, again) => (again.paused, again.doubt),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(kinds, [(false, false), (false, true), (true, false)]);
        let Outcome::Refused(error) = &outcomes[5] else {
            panic!("{:?}", outcomes[5])
        };
        assert_eq!((error.status, error.reason.as_str()), (400, "r; caused by c: d"));
        assert!(matches!(&outcomes[6], Outcome::Refused(error) if error.status == 404));
    }

    #[test]
    fn parcels_get_their_own_outcomes_whether_all_are_done_or_not() {
        let refused = Outcome::Refused(Error {
            status: 400,
            kind: String::new(),
            reason: String::new(),
        });
        let mut all = Outcomes::Done(5);
        assert_eq!(all.split_off_front(2), Outcomes::Done(2));
        assert_eq!(all.into_iter().collect::<Vec<_>>(), vec![Outcome::Done; 3]);
        let mut each = Outcomes::Each(vec![Outcome::Done, refused.clone(), Outcome::Done]);
        assert!(!each.are_done());
        let first: Vec<_> = each.split_off_front(2).into_iter().collect();
        assert_eq!(first, [Outcome::Done, refused]);
        assert!(each.are_done() && each.into_iter().count() == 1);
    }

    #[test]
    fn nothing_but_the_clusters_own_rejection_is_a_reason_to_give_up_documents() {
        let own = "{\"error\":{\"type\":\"illegal_argument_exception\",\"reason\":\"no\"},\"status\":400}";
        assert!(matches!(
            &outcomes_of(400, own, 2)[..],
            [Outcome::Split(_), Outcome::Split(_)]
        ));
        assert!(matches!(&outcomes_of(413, "", 1)[..], [Outcome::Split(_)]));
        for (status, body) in [
            (400, "<html>"),
            (401, own),
            (403, own),
            (404, own),
            (405, ""),
            (200, "hello"),
            (302, ""),
        ] {
            let outcome = &outcomes_of(status, body, 1)[0];
            assert!(
                matches!(outcome, Outcome::Again(again) if again.paused),
                "{status}: {outcome:?}"
            );
        }
        for status in [408, 429, 502, 503, 504] {
            let outcome = &outcomes_of(status, "", 1)[0];
            assert!(
                matches!(outcome, Outcome::Again(again) if !again.paused),
                "{status}: {outcome:?}"
            );
        }
    }

    #[test]
    fn a_node_that_says_when_to_come_back_is_heard() {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, "7".parse().unwrap());
        for status in [429, 503] {
            let status = StatusCode::from_u16(status).unwrap();
            let outcome = outcomes(status, &headers, b"", 1, "n").into_iter().next();
            let Some(Outcome::Again(again)) = outcome else {
                panic!("{outcome:?}")
            };
            assert_eq!(again.after, Some(Duration::from_secs(7)));
        }
    }
}
