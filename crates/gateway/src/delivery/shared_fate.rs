//! Servers that run ingest pipelines for many documents at once fail all of them if one cannot be read:
//! OpenSearch refuses each document with that one's error, and Elasticsearch 8.0 to 9.2 refuses the whole
//! request, as it does for other reasons ([`super::outcome`]). An accepted document must not die because of
//! another document. So where several items of one request are refused in the same words, each is sent again
//! together with fewer others, until it is done or is refused by itself. None of them was executed: pipelines
//! come first.

use std::collections::HashMap;
use std::sync::Arc;

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

    #[test]
    fn who_is_refused_alone_is_refused() {
        let before = vec![refused("not_x_content_exception", "r"), Outcome::Done];
        let mut outcomes = Outcomes::Each(before.clone(), None);
        doubt_shared(&mut outcomes);
        assert_eq!(outcomes.into_iter().collect::<Vec<_>>(), before);
    }
}
