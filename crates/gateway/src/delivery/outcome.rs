//! Derives from an answer, or from the lack of one, the outcome of each operation that was sent: done, to be
//! tried again, or refused for good.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::vec;

use bulk::Reply;
use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use serde_json::Value;
use wire::{Fate, SendError, SendErrorKind};

use crate::delivery::error_scope::{concerned, is_alias_unknown_yet};
use crate::delivery::item_outcome::{LastItem, item_outcome};
use crate::delivery::memory::AnswerHeld;
use crate::delivery::partial_refusal::partial_refusal;
use crate::delivery::server_error::{Error, error_of, is_in_servers_words, is_refused_unexecuted, words_of};
use crate::queue::parked::{Flight, Scope, Unexplained};

/// The outcome of an operation in one try. An outcome is small, since there is one for each operation, and
/// outcomes that say the same share their texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Executed.
    Done,
    /// To be tried again later.
    Again(Arc<Again>),
    /// To be tried again at once, together with fewer others. `doubt`: it may have been executed.
    Split { error: Arc<Error>, doubt: bool },
    /// To be tried again at once, together with fewer others and apart from other lanes: the refusal may be
    /// due to another operation of the request.
    Shared { error: Arc<Error>, doubt: bool },
    /// To be tried again at once, together with fewer others: the node refuses the whole request, but takes
    /// others.
    Whole(Arc<Again>),
    /// To be tried again at once: another writer came in between.
    AtOnce(Arc<Error>),
    /// Not to be sent now, for a reason that concerns only the operations of this scope: the operation waits
    /// apart from its lane.
    Park(Scope, Arc<Again>),
    /// Refused by the cluster for good.
    Refused(Arc<Error>),
}

/// The outcomes of operations that were sent together, in their order.
#[derive(Clone, Debug)]
pub(crate) enum Outcomes {
    /// This many operations are all done. A list that says so would be larger than the answer.
    Done(u32),
    /// The outcome of each operation, and the memory that the outcomes' texts take.
    Each(Vec<Outcome>, Option<Rc<AnswerHeld>>),
}

/// Why an operation is to be tried again, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Again {
    /// The reason; `None` where `error` gives it.
    pub(super) text: Option<String>,
    pub(crate) after: Option<Duration>,
    /// Whether the operation may have been executed.
    pub(crate) doubt: bool,
    /// Whether the node had too much to do.
    pub(crate) busy: bool,
    /// Whether somebody has to put something right.
    pub(crate) paused: bool,
    /// The node's error: for this operation by itself, or for a request with `refused_at`.
    pub(crate) error: Option<Arc<Error>>,
    /// The index that the error names outside its reason.
    pub(crate) index: Option<Box<str>>,
    /// When a request began that a node refused as a whole, if only a part of the request may be to blame.
    pub(crate) refused_at: Option<Instant>,
    /// How the request failed, if this passes by itself, as a rule, and nobody has said that something in it
    /// is to blame.
    pub(crate) unexplained: Option<Unexplained>,
    /// The request with the operation, if it is still under way.
    pub(crate) flight: Option<Arc<Flight>>,
}

// === impl Again ===

impl Again {
    /// A failure that passes by itself, and after which the operation may have been executed.
    pub(crate) fn in_doubt(why: String) -> Self {
        Self {
            text: Some(why),
            after: None,
            doubt: true,
            busy: false,
            paused: false,
            error: None,
            index: None,
            refused_at: None,
            unexplained: None,
            flight: None,
        }
    }

    /// A request that is still under way.
    pub(crate) fn under_way(why: String, flight: Arc<Flight>) -> Self {
        Self {
            flight: Some(flight),
            ..Self::in_doubt(why)
        }
    }

    /// A failure that passes by itself, and before which nothing was sent.
    pub(crate) fn unsent(why: String) -> Self {
        Self {
            doubt: false,
            ..Self::in_doubt(why)
        }
    }

    /// A failure that somebody has to put right.
    pub(crate) fn paused(why: String) -> Self {
        Self {
            doubt: false,
            paused: true,
            ..Self::in_doubt(why)
        }
    }

    /// Returns the node's error, be it for this operation by itself or for the whole request.
    pub(crate) fn error(&self) -> Option<&Error> {
        self.error.as_deref()
    }

    /// Returns the node's error for this operation by itself.
    pub(crate) fn own_error(&self) -> Option<&Arc<Error>> {
        self.error.as_ref().filter(|_| self.refused_at.is_none())
    }

    /// Returns why the operation is not done, cut short: lanes and keys show it for as long as it holds.
    pub(crate) fn why(&self) -> String {
        let mut why = match (&self.text, &self.error) {
            (Some(text), _) => text.clone(),
            (None, Some(error)) => error.to_string(),
            (None, None) => String::new(),
        };
        why.truncate(why.floor_char_boundary(SHOWN_BYTES_MAX));
        why
    }

    /// Returns this with or without doubt whether the operation was executed.
    pub(crate) fn with_doubt(self, doubt: bool) -> Self {
        Self { doubt, ..self }
    }

    /// A refusal of the operation by itself; the node may take the operation later.
    pub(crate) fn refused(error: Arc<Error>) -> Self {
        Self {
            doubt: error.status >= 500,
            busy: error.status == 429,
            text: None,
            after: None,
            paused: false,
            error: Some(error),
            index: None,
            refused_at: None,
            unexplained: None,
            flight: None,
        }
    }
}

// === impl Outcome ===

impl Outcome {
    /// Makes an outcome that is to be tried again later.
    pub(crate) fn again(again: Again) -> Self {
        Outcome::Again(Arc::new(again))
    }

    /// Returns this outcome as it is where nothing is parked.
    pub(crate) fn without_parking(self) -> Self {
        let again = match self {
            Outcome::Park(_, again) | Outcome::Whole(again) => again,
            outcome => return outcome,
        };
        match again.own_error() {
            Some(error) if matches!(error.status, 400 | 404) && !is_alias_unknown_yet(error) => {
                Outcome::Refused(Arc::clone(error))
            }
            Some(error) if error.status == 413 => {
                let why = format!(
                    "one operation alone is too large for the cluster: {}",
                    error.reason
                );
                Outcome::again(Again::paused(why).with_doubt(again.doubt))
            }
            _ => Outcome::Again(again),
        }
    }

    /// Returns how its request failed, if that passes by itself, as a rule, and nobody has said that
    /// something in it is to blame.
    pub(crate) fn unexplained(&self) -> Option<Unexplained> {
        match self {
            Outcome::Again(again) | Outcome::Whole(again) => again.unexplained,
            _ => None,
        }
    }

    /// Whether the node had too much to do.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self, Outcome::Again(again) if again.busy)
    }
}

// === impl Outcomes ===

impl Outcomes {
    /// Gives this many operations the same outcome.
    pub(crate) fn of_all(outcome: &Outcome, docs: u32) -> Self {
        Outcomes::Each(vec![outcome.clone(); docs as usize], None)
    }

    /// Returns the number of operations.
    pub(crate) fn len(&self) -> usize {
        match self {
            Outcomes::Done(docs) => *docs as usize,
            Outcomes::Each(outcomes, _) => outcomes.len(),
        }
    }

    pub(crate) fn are_done(&self) -> bool {
        match self {
            Outcomes::Done(_) => true,
            Outcomes::Each(outcomes, _) => outcomes.iter().all(|outcome| *outcome == Outcome::Done),
        }
    }

    /// Returns the places of the operations that are done.
    pub(crate) fn done(&self) -> impl Iterator<Item = usize> {
        let is_done = |at: &usize| match self {
            Outcomes::Done(_) => true,
            Outcomes::Each(outcomes, _) => outcomes[*at] == Outcome::Done,
        };
        (0..self.len()).filter(is_done)
    }

    /// Whether a node has answered, and not the gateway in place of one.
    pub(crate) fn are_answered(&self) -> bool {
        let is_answered = |outcome: &Outcome| match outcome {
            Outcome::Again(again) => again.busy || again.own_error().is_some(),
            Outcome::Park(_, again) => again.flight.is_none(),
            _ => true,
        };
        match self {
            Outcomes::Done(_) => true,
            Outcomes::Each(outcomes, _) => outcomes.iter().any(is_answered),
        }
    }

    /// Whether the node had too much to do for any of them.
    pub(crate) fn are_busy(&self) -> bool {
        match self {
            Outcomes::Done(_) => false,
            Outcomes::Each(outcomes, _) => outcomes.iter().any(Outcome::is_busy),
        }
    }

    /// Returns these outcomes as they are after a try that may have been executed: a conflict may be with
    /// that try, so it is looked at.
    pub(crate) fn in_doubt(self) -> Self {
        let Outcomes::Each(mut outcomes, held) = self else {
            return self;
        };
        // Outcomes that share a text go on sharing it.
        let mut last: Option<(Arc<Again>, Arc<Again>)> = None;
        for outcome in &mut outcomes {
            if let Outcome::Split { doubt, .. } | Outcome::Shared { doubt, .. } = outcome {
                *doubt = true;
            }
            match outcome {
                Outcome::Refused(error) if error.status == 409 => {
                    *outcome = Outcome::again(Again {
                        doubt: true,
                        ..Again::refused(Arc::clone(error))
                    });
                }
                Outcome::Again(again) | Outcome::Park(_, again) if !again.doubt => {
                    let known = last.take().filter(|(before, _)| Arc::ptr_eq(before, again));
                    let (_, doubted) = last.insert(known.unwrap_or_else(|| {
                        let doubted = Again {
                            doubt: true,
                            ..(**again).clone()
                        };
                        (Arc::clone(again), Arc::new(doubted))
                    }));
                    *again = Arc::clone(doubted);
                }
                _ => {}
            }
        }
        Outcomes::Each(outcomes, held)
    }

    /// Returns when their request began, if a node refused it as a whole and only a part of it may be to
    /// blame.
    pub(crate) fn refused_at(&self) -> Option<Instant> {
        match self {
            Outcomes::Each(outcomes, _) => match outcomes.first() {
                Some(Outcome::Again(again)) => again.refused_at,
                _ => None,
            },
            Outcomes::Done(_) => None,
        }
    }

    /// Returns the outcomes of a request that a node refused as a whole, or did not answer, given that it
    /// takes others.
    pub(crate) fn whole(self) -> Self {
        let whole = |outcome| match outcome {
            Outcome::Again(again) if again.refused_at.is_some() || again.unexplained.is_some() => {
                Outcome::Whole(again)
            }
            outcome => outcome,
        };
        match self {
            Outcomes::Each(outcomes, held) => Outcomes::Each(outcomes.into_iter().map(whole).collect(), held),
            done => done,
        }
    }

    /// Whether their request is still under way.
    pub(crate) fn are_under_way(&self) -> bool {
        match self {
            Outcomes::Each(outcomes, _) => {
                matches!(outcomes.first(), Some(Outcome::Park(_, again)) if again.flight.is_some())
            }
            Outcomes::Done(_) => false,
        }
    }

    /// Returns how a request failed, if that passes by itself, as a rule, and nobody has said why.
    pub(crate) fn unexplained(&self) -> Option<Unexplained> {
        match self {
            Outcomes::Done(_) => None,
            Outcomes::Each(outcomes, _) => outcomes.first()?.unexplained(),
        }
    }

    /// Returns these outcomes of a request that a node refused as a whole, with a reason beside the node's.
    pub(crate) fn because(self, more: &str) -> Self {
        let Outcomes::Each(mut outcomes, held) = self else {
            return self;
        };
        let mut last: Option<(Arc<Again>, Arc<Again>)> = None;
        for outcome in &mut outcomes {
            if let Outcome::Again(again) = outcome {
                let known = last.take().filter(|(before, _)| Arc::ptr_eq(before, again));
                let (_, told) = last.insert(known.unwrap_or_else(|| {
                    let told = Again {
                        text: Some(format!("{more}; {}", again.why())),
                        ..(**again).clone()
                    };
                    (Arc::clone(again), Arc::new(told))
                }));
                *again = Arc::clone(told);
            }
        }
        Outcomes::Each(outcomes, held)
    }

    /// Returns the memory that the texts take.
    pub(crate) fn held(&self) -> Option<Rc<AnswerHeld>> {
        match self {
            Outcomes::Done(_) => None,
            Outcomes::Each(_, held) => held.clone(),
        }
    }

    /// Returns these outcomes with the memory that their texts take until the last of them is settled.
    pub(crate) fn holding(self, held: Option<AnswerHeld>) -> Self {
        match self {
            Outcomes::Each(outcomes, _) => Outcomes::Each(outcomes, held.map(Rc::new)),
            done => done,
        }
    }

    /// Cuts off the outcomes of the first `docs` operations.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    pub(crate) fn split_off_front(&mut self, docs: u32) -> Self {
        // Otherwise operations would count as done although no answer said so.
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
            Outcomes::Each(outcomes, held) => {
                let all = outcomes.len() == docs as usize;
                let rest = if all {
                    Vec::new()
                } else {
                    outcomes.split_off(docs as usize)
                };
                Outcomes::Each(std::mem::replace(outcomes, rest), held.clone())
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
            Outcomes::Each(outcomes, _) => outcomes.into_iter(),
        }
    }
}

/// Returns the outcome of operations whose request got no answer.
pub(crate) fn unanswered(error: &SendError) -> Again {
    let paused = matches!(error.kind, SendErrorKind::Tls(_) | SendErrorKind::SpeaksTls);
    let doubt = error.fate == Fate::Unknown;
    Again {
        text: Some(error.to_string()),
        after: None,
        doubt,
        busy: false,
        paused,
        error: None,
        index: None,
        refused_at: None,
        unexplained: (doubt && !paused).then_some(Unexplained::Untold),
        flight: None,
    }
}

/// Returns the outcomes of `docs` operations according to the answer of `node` to a request that began at
/// `began`.
pub(crate) fn outcomes(
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    docs: u32,
    (node, began): (&str, Instant),
) -> Outcomes {
    let after = headers.get(RETRY_AFTER);
    let after = after.and_then(|value| value.to_str().ok()?.parse().ok().map(Duration::from_secs));
    let again = |paused: bool, doubt: bool| {
        let refusal = partial_refusal(status, body);
        let text = words_of(body, WHY_BYTES_MAX);
        let passes = doubt && !paused && refusal.is_none();
        Outcome::again(Again {
            text: Some(format!("{node} answered {status}: {text}")),
            after,
            doubt,
            busy: status == StatusCode::TOO_MANY_REQUESTS && refusal.is_none(),
            paused,
            error: refusal.as_ref().and_then(|refusal| refusal.error.clone()),
            index: refusal.as_ref().and_then(|refusal| refusal.index.clone()),
            refused_at: refusal.as_ref().map(|_| began),
            unexplained: (passes && status != StatusCode::TOO_MANY_REQUESTS).then(
                || match is_in_servers_words(status, body) {
                    true => Unexplained::Told,
                    false => Unexplained::Untold,
                },
            ),
            flight: None,
        })
    };
    let doubt = status != StatusCode::OK && !is_refused_unexecuted(status, body);
    let of_error = || error_of(status.as_u16(), &serde_json::from_slice(body).ok()?);
    let one = match status.as_u16() {
        200 if bulk::all_succeeded(body, docs) => return Outcomes::Done(docs),
        200 => match Reply::split(body, docs) {
            Ok(reply) => {
                let mut last = LastItem::default();
                let each = (0..docs).map(|item| last.next(&reply, item));
                return Outcomes::Each(each.collect(), None);
            }
            // A server that answers like this is no cluster, or is not well; or something before it answers.
            Err(_) => again(true, true),
        },
        429 => again(false, doubt),
        408 | 502 | 503 | 504 => again(false, true),
        // The cluster's own rejection of the whole request. An error in anybody else's words is no reason to
        // give up documents.
        400 => refused_for_an_index(body, docs)
            .or_else(|| Some(split(of_error()?, false)))
            .unwrap_or_else(|| again(true, doubt)),
        // Some servers fail the whole request for one operation.
        500 => of_error().map_or_else(|| again(true, true), |error| split(error, true)),
        413 => {
            let error = Error {
                status: 413,
                kind: "content_too_long_exception".to_owned(),
                reason: format!("{node} answered {status}"),
            };
            split(error, doubt)
        }
        _ => again(true, doubt),
    };
    Outcomes::of_all(&one, docs)
}

fn split(error: Error, doubt: bool) -> Outcome {
    let error = Arc::new(error);
    Outcome::Split { error, doubt }
}

/// Returns the outcome of an operation whose request, a 400, the cluster refuses as a whole for a reason that
/// concerns an index: that of an item of an answer. With other statuses, the reason may be an index that no
/// operation names, or the whole cluster.
fn refused_for_an_index(body: &[u8], docs: u32) -> Option<Outcome> {
    if docs > 1 {
        return None;
    }
    let said: Value = serde_json::from_slice(body).ok()?;
    let error = error_of(400, &said)?;
    concerned(&error)?;
    let index = said["error"]["index"].as_str().map(Into::into);
    Some(item_outcome(Arc::new(error), index))
}

/// How many bytes are shown of an answer that is not a bulk's, and of the reason why an operation is not
/// done.
pub(super) const WHY_BYTES_MAX: usize = 300;
const SHOWN_BYTES_MAX: usize = 2 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes_of(status: u16, body: &str, docs: u32) -> Vec<Outcome> {
        outcomes(
            StatusCode::from_u16(status).unwrap(),
            &HeaderMap::new(),
            body.as_bytes(),
            docs,
            ("n", Instant::now()),
        )
        .into_iter()
        .collect()
    }

    #[test]
    fn an_item_without_an_error_is_done_only_if_its_status_says_so() {
        let items = [
            r#"{"index":{"_id":"1","status":429}}"#,
            r#"{"index":{"_id":"1","status":503}}"#,
            r#"{"index":{"_id":"1","status":404}}"#,
            r#"{"index":{"_id":"1"}}"#,
            r#"{"index":{"_id":"1","status":200}}"#,
            r#"{"delete":{"_id":"1","status":404}}"#,
        ];
        for errors in [false, true] {
            let body = format!(
                "{{\"took\":1,\"errors\":{errors},\"items\":[{}]}}",
                items.join(",")
            );
            let outcomes = outcomes_of(200, &body, 6);
            let again = |at: usize| matches!(&outcomes[at], Outcome::Again(_));
            assert!((0..4).all(again), "{outcomes:?}");
            assert!(outcomes[0].is_busy());
            assert_eq!(outcomes[4..], [Outcome::Done, Outcome::Done]);
        }
        let busy = r#"{"took":1,"errors":false,"items":[{"index":{"status":429}}]}"#;
        assert!(outcomes_of(200, busy, 1)[0].is_busy());
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
    fn what_many_items_say_in_the_same_words_is_kept_once_and_each_has_its_own_status() {
        let item =
            |status: u16, error: &str| format!("{{\"index\":{{\"status\":{status},\"error\":{error}}}}}");
        let error = "{\"type\":\"t\",\"reason\":\"r\"}";
        let same = format!("{:?}", bulk::SAME_ERROR);
        let items = [
            item(503, error),
            item(503, error),
            item(503, &same),
            item(503, &same),
            item(400, &same),
        ];
        let body = format!("{{\"took\":1,\"errors\":true,\"items\":[{}]}}", items.join(","));
        let outcomes = outcomes_of(200, &body, 5);
        let errors: Vec<_> = outcomes[..4]
            .iter()
            .map(|outcome| match outcome {
                Outcome::Again(again) => again.error.clone().unwrap(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(
            errors
                .iter()
                .all(|one| Arc::ptr_eq(one, &errors[0]) && one.reason == "r")
        );
        let Outcome::Refused(error) = &outcomes[4] else {
            panic!("{:?}", outcomes[4])
        };
        assert_eq!(
            (error.status, error.kind.as_str(), error.reason.as_str()),
            (400, "t", "r")
        );
        assert_eq!(size_of::<Outcome>(), 16);
    }

    #[test]
    fn parcels_get_their_own_outcomes_whether_all_are_done_or_not() {
        let refused = Outcome::Refused(Arc::new(Error {
            status: 400,
            kind: String::new(),
            reason: String::new(),
        }));
        let mut all = Outcomes::Done(5);
        assert!(matches!(all.split_off_front(2), Outcomes::Done(2)));
        assert_eq!(all.into_iter().collect::<Vec<_>>(), vec![Outcome::Done; 3]);
        let mut each = Outcomes::Each(vec![Outcome::Done, refused.clone(), Outcome::Done], None);
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
            [Outcome::Split { doubt: false, .. }, Outcome::Split { .. }]
        ));
        for (body, may_be_executed) in [("", false), ("<html>", true)] {
            let outcomes = outcomes_of(413, body, 1);
            assert!(
                matches!(&outcomes[..], [Outcome::Split { doubt, .. }] if *doubt == may_be_executed),
                "{outcomes:?}"
            );
        }
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
    fn a_request_that_is_refused_for_an_index_waits_with_it_and_one_alone_is_found_by_halves() {
        let whole = |status: u16, kind: &str, reason: &str| {
            let error = format!("{{\"type\":\"{kind}\",\"reason\":\"{reason}\",\"index\":\"i\"}}");
            format!("{{\"error\":{error},\"status\":{status}}}")
        };
        let body = whole(400, "index_closed_exception", "closed");
        let alone = &outcomes_of(400, &body, 1)[0];
        assert!(
            matches!(alone, Outcome::Park(Scope::Index, again) if again.index.as_deref() == Some("i")),
            "{alone:?}"
        );
        let among = &outcomes_of(400, &body, 2)[1];
        assert!(matches!(among, Outcome::Split { doubt: false, .. }), "{among:?}");
        let block = "blocked by: [FORBIDDEN/6/cluster read-only (api)];";
        for (status, kind, reason) in [
            (
                403,
                "security_exception",
                "no permissions for [indices:data/write/bulk]",
            ),
            (403, "cluster_block_exception", block),
            (404, "index_not_found_exception", "no such index [.security]"),
            (
                503,
                "unavailable_shards_exception",
                "at least one primary shard for the index [.security-7] is unavailable",
            ),
        ] {
            let outcome = &outcomes_of(status, &whole(status, kind, reason), 1)[0];
            assert!(
                matches!(outcome, Outcome::Again(again) if again.paused == (status < 500)),
                "it may be the whole cluster's: {outcome:?}"
            );
        }
    }

    #[test]
    fn a_node_that_says_when_to_come_back_is_heard() {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, "7".parse().unwrap());
        for status in [429, 503] {
            let status = StatusCode::from_u16(status).unwrap();
            let outcome = outcomes(status, &headers, b"", 1, ("n", Instant::now()))
                .into_iter()
                .next();
            let Some(Outcome::Again(again)) = outcome else {
                panic!("{outcome:?}")
            };
            assert_eq!(again.after, Some(Duration::from_secs(7)));
        }
    }
}
