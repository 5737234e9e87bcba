//! Servers that run ingest pipelines for many documents at once fail all of them if one cannot be read:
//! OpenSearch refuses each document with that one's error, and Elasticsearch 8.0 to 9.2 refuses the whole
//! request, as it does for other reasons ([`super::outcome`]). An accepted document must not die because of
//! another document. So where several items of one request are refused in the same words, each is sent again
//! together with fewer others, until it is done or is refused by itself. None of them was executed: pipelines
//! come first.
//!
//! Such servers also mix up items: those of documents that a pipeline drops, or fails, come in the order in
//! which this happened, in the places of any of them (`TransportBulkAction.BulkRequestModifier`). A document
//! that failed would count as done because another one was dropped. So where documents may go through
//! pipelines, nodes are asked for the ids of the items' documents, and what has another document's item is
//! sent again in the same way.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use bulk::Reply;
use serde::Deserialize;

use crate::delivery::outcome::{Outcome, Outcomes};
use crate::delivery::server_error::Error;

/// Marks refusals that may be due to another operation of the same request.
pub(crate) fn doubt_shared(outcomes: &mut Outcomes) {
    let Outcomes::Each(outcomes, _) = outcomes else {
        return;
    };
    let mut known: HashMap<(&str, &str), u32> = HashMap::new();
    for error in outcomes.iter().filter_map(may_be_shared) {
        *known.entry((&error.kind, &error.reason)).or_default() += 1;
    }
    if known.values().all(|count| *count == 1) {
        return;
    }
    let shared: Vec<bool> = outcomes
        .iter()
        .map(|outcome| may_be_shared(outcome).is_some_and(|error| known[&(&*error.kind, &*error.reason)] > 1))
        .collect();
    for (outcome, shared) in outcomes.iter_mut().zip(shared) {
        if let (true, Outcome::Refused(error)) = (shared, &*outcome) {
            let error = Arc::clone(error);
            *outcome = Outcome::Shared { error, doubt: false };
        }
    }
}

/// Marks operations whose places in an answer have the items of other documents. `ids` has the number of each
/// operation's id.
pub(crate) fn doubt_misplaced(outcomes: &mut Outcomes, answer: &[u8], ids: &[u64]) {
    let Outcomes::Each(outcomes, _) = outcomes else {
        return;
    };
    let is_alone = outcomes.len() == 1;
    let Ok(reply) = Reply::split(answer, outcomes.len() as u32) else {
        return;
    };
    if is_alone || ids.len() != outcomes.len() {
        return;
    }
    let error = Arc::new(Error {
        status: 500,
        kind: "misplaced_item".to_owned(),
        reason: "the answer has the item of another document in the place of this one's".to_owned(),
    });
    for (at, (outcome, id)) in outcomes.iter_mut().zip(ids).enumerate() {
        let answered = id_of_item(reply.item(at as u32));
        if answered != Some(*id) {
            // An answer that was cut short does not tell, and the document may be written.
            let (error, doubt) = (Arc::clone(&error), answered.is_none());
            *outcome = Outcome::Shared { error, doubt };
        }
    }
}

/// Returns the number by which ids are compared.
pub(crate) fn number_of_id(id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

fn id_of_item(item: &[u8]) -> Option<u64> {
    let item: HashMap<Cow<'_, str>, ItemId<'_>> = serde_json::from_slice(item).ok()?;
    let fields = item.into_values().next()?;
    Some(number_of_id(&fields.id?))
}

/// The id in an item of an answer.
#[derive(Deserialize)]
struct ItemId<'a> {
    #[serde(borrow, default, rename = "_id")]
    id: Option<Cow<'a, str>>,
}

fn may_be_shared(outcome: &Outcome) -> Option<&Error> {
    match outcome {
        Outcome::Refused(error) if !OWN.contains(&error.kind.as_str()) => Some(error),
        _ => None,
    }
}

/// Errors that servers give for one document for certain: they come from a shard that has the document before
/// it, or from a processor, and each answers for its own document.
const OWN: [&str; 9] = [
    "document_missing_exception",
    "document_parsing_exception",
    "fail_processor_exception",
    "illegal_argument_exception",
    "mapper_parsing_exception",
    "routing_missing_exception",
    "script_exception",
    "strict_dynamic_mapping_exception",
    "version_conflict_engine_exception",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(kind: &str, reason: &str) -> Outcome {
        Outcome::Refused(Arc::new(Error {
            status: 400,
            kind: kind.to_owned(),
            reason: reason.to_owned(),
        }))
    }

    #[test]
    fn what_several_are_refused_with_in_the_same_words_may_be_one_ones_doing() {
        let each = vec![
            Outcome::Done,
            refused(
                "parse_exception",
                "Failed to parse content to map; caused by x: y",
            ),
            refused("parse_exception", "another"),
            refused(
                "parse_exception",
                "Failed to parse content to map; caused by x: y",
            ),
            refused("mapper_parsing_exception", "failed to parse"),
            refused("mapper_parsing_exception", "failed to parse"),
        ];
        let mut outcomes = Outcomes::Each(each.clone(), None);
        doubt_shared(&mut outcomes);
        let Outcomes::Each(doubted, _) = outcomes else {
            panic!("{outcomes:?}");
        };
        for at in [0, 2, 4, 5] {
            assert_eq!(doubted[at], each[at]);
        }
        for at in [1, 3] {
            assert!(matches!(&doubted[at], Outcome::Shared { error, .. } if error.kind == "parse_exception"));
        }
    }

    /// As OpenSearch 3.8 answered: the third document was dropped, the first and the fourth one failed.
    #[test]
    fn what_has_the_item_of_another_document_is_sent_again() {
        let answer = r#"{"took":1,"errors":true,"items":[{"index":{"_id":"D","status":200}},{"index":{"_id":"G","status":201}},{"index":{"_id":"F","status":500,"error":{"type":"fail_processor_exception","reason":"no one"}}},{"index":{"_id":"\u0046\u0032","status":500,"error":{"type":"fail_processor_exception","reason":"no two"}}},{"index":{"status":200}}]}"#;
        let ids = ["F", "G", "D", "F2", "X"].map(number_of_id);
        let refused = || refused("fail_processor_exception", "no");
        let each = vec![Outcome::Done, Outcome::Done, refused(), refused(), Outcome::Done];
        let mut outcomes = Outcomes::Each(each.clone(), None);
        doubt_misplaced(&mut outcomes, answer.as_bytes(), &ids);
        let all: Vec<Outcome> = outcomes.into_iter().collect();
        for at in [0, 2] {
            assert!(
                matches!(&all[at], Outcome::Shared { doubt: false, .. }),
                "{all:?}"
            );
        }
        assert_eq!((&all[1], &all[3]), (&each[1], &each[3]));
        assert!(
            matches!(&all[4], Outcome::Shared { doubt: true, .. }),
            "nobody knows"
        );
        let mut alone = Outcomes::Each(vec![refused()], None);
        let item = r#"{"took":1,"errors":true,"items":[{"index":{"_id":"other","status":400,"error":{"type":"t","reason":"r"}}}]}"#;
        doubt_misplaced(&mut alone, item.as_bytes(), &ids[..1]);
        assert_eq!(alone.into_iter().collect::<Vec<_>>(), [refused()]);
    }

    #[test]
    fn who_is_refused_alone_is_refused() {
        let before = vec![refused("not_x_content_exception", "r"), Outcome::Done];
        let mut outcomes = Outcomes::Each(before.clone(), None);
        doubt_shared(&mut outcomes);
        assert_eq!(outcomes.into_iter().collect::<Vec<_>>(), before);
    }
}
