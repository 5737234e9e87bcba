//! The outcome of one operation, as its item of an answer states it.

use std::sync::Arc;

use bulk::{Op, Reply};
use serde_json::Value;

use crate::delivery::error_scope::{concerned, is_slow_mapping};
use crate::delivery::outcome::{Again, Outcome, WHY_BYTES_MAX};
use crate::delivery::server_error::{Error, error_of, words_of};
use crate::queue::parked::{Scope, Unexplained};

/// The last item and its outcome: an error that many items give in the same words is read and kept once.
#[derive(Default)]
pub(super) struct LastItem<'r> {
    item: &'r [u8],
    outcome: Option<Outcome>,
    /// The last error, and the index that it names outside its reason.
    error: Option<(Arc<Error>, Option<Box<str>>)>,
}

impl<'r> LastItem<'r> {
    pub(super) fn next(&mut self, reply: &'r Reply<'r>, number: u32) -> Outcome {
        let item = reply.item(number);
        if let Some(outcome) = &self.outcome
            && self.item == item
        {
            return outcome.clone();
        }
        let facts = reply.facts(number);
        // A delete that found nothing is done. No other status than these is a success, whatever else the
        // answer says.
        let is_success = match facts.status {
            Some(status) => status / 100 == 2 || (status, facts.op) == (404, Some(Op::Delete)),
            None => false,
        };
        if !facts.failed && is_success {
            return Outcome::Done;
        }
        // No server gives such an item; something else has answered.
        if !facts.failed && !matches!(facts.status, Some(429 | 502..=504)) {
            let item = words_of(item, WHY_BYTES_MAX);
            let why = format!("an item says neither that its operation is done nor why not: {item}");
            return Outcome::again(Again {
                unexplained: Some(Unexplained::Untold),
                ..Again::in_doubt(why)
            });
        }
        let (error, index) = self.read(item, facts.status.unwrap_or(500));
        let outcome = item_outcome(error, index);
        self.item = item;
        self.outcome.insert(outcome).clone()
    }

    /// Returns the error of an item, and the index that it names outside its reason.
    fn read(&mut self, item: &[u8], status: u16) -> (Arc<Error>, Option<Box<str>>) {
        let parsed: Value = serde_json::from_slice(item).unwrap_or_default();
        let inner = parsed.as_object().and_then(|item| item.values().next());
        let said = inner.map(|inner| &inner["error"]);
        if let Some((last, index)) = &mut self.error
            && said.is_some_and(|said| said == bulk::SAME_ERROR)
        {
            if last.status != status {
                *last = Arc::new(Error {
                    status,
                    ..(**last).clone()
                });
            }
            return (Arc::clone(last), index.clone());
        }
        let error = inner.and_then(|inner| error_of(status, inner));
        let error = error.unwrap_or_else(|| Error {
            status,
            kind: "exception".to_owned(),
            reason: words_of(item, item.len()),
        });
        let index = said.and_then(|said| said["index"].as_str()).map(Into::into);
        self.error.insert((Arc::new(error), index)).clone()
    }
}

/// Returns the outcome that an error means for its operation. `index` is the index that the error names
/// outside its reason.
pub(super) fn item_outcome(error: Arc<Error>, index: Option<Box<str>>) -> Outcome {
    // The elected node has much to do, and the index waits for a change of its mapping, for 1 s each time. A
    // 500 would count as a failure, and would kill the operation in the end.
    if is_slow_mapping(&error) {
        return Outcome::Park(Scope::Index, Arc::new(Again::unsent(error.to_string())));
    }
    let status = error.status;
    if let Some(scope) = concerned(&error) {
        let again = Again {
            // Missing rights are for somebody to grant; where nothing is parked, the lanes' numbers show
            // that.
            paused: status == 403,
            busy: false,
            index,
            ..Again::refused(error)
        };
        return Outcome::Park(scope, Arc::new(again));
    }
    let paused = match status {
        408 | 429 | 502 | 503 | 504 => false,
        // Rights are missing, or an index is blocked: nothing is wrong with the document.
        401 | 403 => true,
        _ => return Outcome::Refused(error),
    };
    Outcome::again(Again {
        doubt: matches!(status, 502..=504),
        // An index whose disk is full has the status 429 as well, however little its node has to do.
        busy: status == 429 && error.kind != "cluster_block_exception",
        paused,
        ..Again::refused(error)
    })
}
