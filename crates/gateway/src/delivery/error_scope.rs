//! Decides what the error of an item concerns: the item's index, its shard, or only the item itself.
//!
//! Reasons quote what clients write: names, ids, values, whole documents. So nothing is looked for within a
//! reason: the error's type decides, together with the server's own words at the beginning of the reason.
//! Where these words name an index, it is compared with the index that the operation names: a pipeline may go
//! to another index by a value of the document, and fail there.

use crate::delivery::server_error::Error;
use crate::queue::parked::{OperationNames, Scope};

/// Returns what an error concerns; `None` if it concerns the operation itself, or the whole cluster.
pub(crate) fn concerned(error: &Error) -> Option<Scope> {
    let begins = |text: &str| error.reason.starts_with(text);
    let is_of_index = match (error.status, error.kind.as_str()) {
        // A block on the whole cluster names no index.
        (403 | 429 | 503, "cluster_block_exception") => begins("index ["),
        (403, _) | (400, "index_closed_exception") | (404, "index_not_found_exception") => true,
        (400, "illegal_argument_exception") => {
            begins(NO_WRITE_INDEX) || several_indices(&error.reason).is_some()
        }
        (400, INVALID_NAME) => is_alias_unknown_yet(error),
        (400, "validation_exception") => begins("Validation Failed: 1: this action would add ["),
        (503, "unavailable_shards_exception") => return Some(Scope::Shard),
        _ => false,
    };
    is_of_index.then_some(Scope::Index)
}

/// Whether a node that has just started tried to make an index for a name that the elected node knows as an
/// alias: the node's own state has not come yet (Elasticsearch 7.10, when the whole cluster starts).
pub(crate) fn is_alias_unknown_yet(error: &Error) -> bool {
    error.kind == INVALID_NAME
        && error.reason.starts_with("Invalid index name [")
        && error.reason.ends_with("], already exists as alias")
}

/// Whether a node had too much to do to add a new field; this counts as nobody's failure.
pub(crate) fn is_slow_mapping(error: &Error) -> bool {
    error.status >= 500
        && error.kind == "mapper_exception"
        && error
            .reason
            .starts_with("timed out while waiting for a dynamic mapping update")
}

/// Whether an error says that a shard has fewer copies than the request asks for.
fn lacks_copies(error: &Error) -> bool {
    // "[index][7] Not enough active copies to meet shard count of [9]"; no name of an index has a space.
    let said = error.reason.split_once("] ");
    said.is_some_and(|(_, said)| said.starts_with("Not enough active copies to meet"))
}

/// Whether a request asks for copies.
fn asks_for_copies(target: &str) -> bool {
    let query = target.split_once('?').map_or("", |(_, query)| query);
    query
        .split('&')
        .any(|pair| pair.starts_with("wait_for_active_shards="))
}

/// Whether a failure concerns the requests for its index that have the same parameters, those of this target.
pub(crate) fn concerns_requests(scope: Scope, error: Option<&Error>, target: &str) -> bool {
    let lacks = || error.is_some_and(lacks_copies) && asks_for_copies(target);
    scope == Scope::Request || scope == Scope::Shard && lacks()
}

/// Whether an error speaks of an index that is not one of the operation's. `index` is the index that the
/// error names outside its reason.
pub(crate) fn is_of_another(error: &Error, index: Option<&str>, named: &OperationNames) -> bool {
    let is_own = |name: &str| named.names().any(|own| own == name);
    // The gateway does not know which index the name stands for.
    let stands_for_others = named.concrete.is_none();
    match about(error, index) {
        NamedIndex::Nobody => false,
        NamedIndex::Name(name) => name != named.written && named.concrete.as_deref() != Some(name),
        NamedIndex::Indices(mut names) => !stands_for_others && !names.any(is_own),
    }
}

/// Whether an error names an index. `index` is the index that the error names outside its reason.
pub(crate) fn names_index(error: &Error, index: Option<&str>) -> bool {
    !matches!(about(error, index), NamedIndex::Nobody)
}

/// Which index an error names.
enum NamedIndex<'e> {
    Nobody,
    /// A name as an action has it.
    Name(&'e str),
    /// One or more indices, which a name may stand for.
    Indices(std::str::Split<'e, char>),
}

fn about<'e>(error: &'e Error, index: Option<&'e str>) -> NamedIndex<'e> {
    let reason = error.reason.as_str();
    let within = |begins: &str| reason.strip_prefix(begins).and_then(|rest| rest.split_once(']'));
    let found = match error.kind.as_str() {
        "cluster_block_exception" => within("index [").map(|(name, _)| name),
        "index_not_found_exception" => index.or(within("no such index [").map(|(name, _)| name)),
        "index_closed_exception" => index,
        INVALID_NAME => within("Invalid index name [").map(|(name, _)| name),
        "unavailable_shards_exception" => {
            let named = within("[").filter(|(_, rest)| rest.starts_with('['));
            named.map(|(name, _)| name)
        }
        "illegal_argument_exception" => {
            let name = within(NO_WRITE_INDEX).map(|(name, _)| name);
            return match name.or(several_indices(reason)) {
                Some(name) => NamedIndex::Name(name),
                None => NamedIndex::Nobody,
            };
        }
        // Elasticsearch says which indices; the text before that is the account's, and the gateway's own.
        "security_exception" => {
            let said = reason.split_once("] on indices [");
            said.and_then(|(_, rest)| Some(rest.split_once(']')?.0))
        }
        _ => None,
    };
    match found {
        Some(names) => NamedIndex::Indices(names.split(',')),
        None => NamedIndex::Nobody,
    }
}

/// Returns the name of an alias or data stream that stands for several indices, none of which takes writes.
fn several_indices(reason: &str) -> Option<&str> {
    let (kind, rest) = reason.split_once(" [")?;
    let (name, said) = rest.split_once(']')?;
    let is_kind = ["alias", "Alias", "data_stream", "data stream"].contains(&kind);
    let begins = [
        " has more than one index associated with it",
        " has more than one indices associated with it",
    ];
    (is_kind && begins.iter().any(|text| said.starts_with(text))).then_some(name)
}

const INVALID_NAME: &str = "invalid_index_name_exception";
const NO_WRITE_INDEX: &str = "no write index is defined for alias [";

#[cfg(test)]
mod tests {
    use super::*;

    fn error(status: u16, kind: &str, reason: &str) -> Error {
        Error {
            status,
            kind: kind.to_owned(),
            reason: reason.to_owned(),
        }
    }

    #[test]
    fn what_a_reason_quotes_decides_nothing() {
        let block = "index [a] blocked by: [FORBIDDEN/8/index write (api)];";
        let several = "alias [a] has more than one index associated with it [a-1, a-2], can't execute a single index op";
        let shards = "Validation Failed: 1: this action would add [2] total shards, but this cluster currently has [9]/[9] maximum shards open;";
        for (status, kind, reason, scope) in [
            (403, "cluster_block_exception", block, Some(Scope::Index)),
            (503, "cluster_block_exception", block, Some(Scope::Index)),
            (403, "cluster_block_exception", "blocked by: [index [a]]", None),
            (400, "illegal_argument_exception", several, Some(Scope::Index)),
            (
                400,
                "illegal_argument_exception",
                &format!("cannot read {several}"),
                None,
            ),
            (
                400,
                INVALID_NAME,
                "Invalid index name [a], already exists as alias",
                Some(Scope::Index),
            ),
            (
                400,
                INVALID_NAME,
                "Invalid index name [A], must be lowercase",
                None,
            ),
            (400, "validation_exception", shards, Some(Scope::Index)),
            (400, "validation_exception", "no maximum shards open", None),
            (400, "mapper_parsing_exception", several, None),
        ] {
            assert_eq!(concerned(&error(status, kind, reason)), scope, "{reason}");
        }
    }

    #[test]
    fn an_index_that_an_error_names_is_the_operations_own_or_another() {
        let own = OperationNames::new("a".to_owned(), Some("a-1".to_owned()), None);
        let unknown = OperationNames::new("a".to_owned(), None, None);
        let not_found = |name: &str| {
            error(
                404,
                "index_not_found_exception",
                &format!("no such index [{name}]"),
            )
        };
        assert!(names_index(&not_found("a"), None));
        assert!(!names_index(
            &error(403, "security_exception", "no permissions for [x]"),
            None
        ));
        for (name, is_another) in [("a", false), ("a-1", false), ("b", true)] {
            assert_eq!(is_of_another(&not_found(name), None, &own), is_another);
            assert!(!is_of_another(&not_found(name), None, &unknown));
        }
        let closed = error(400, "index_closed_exception", "closed");
        assert!(is_of_another(&closed, Some("b"), &own) && !is_of_another(&closed, None, &own));
        let no_right =
            "action [indices:data/write/bulk[s]] is unauthorized for user [g] on indices [b,a-1], this";
        assert!(!is_of_another(
            &error(403, "security_exception", no_right),
            None,
            &own
        ));
        let alias = error(
            400,
            "illegal_argument_exception",
            "no write index is defined for alias [b]. The",
        );
        assert!(is_of_another(&alias, None, &unknown));
    }

    #[test]
    fn copies_are_asked_for_in_the_query_and_missed_in_the_servers_own_words() {
        assert!(asks_for_copies("/_bulk?a=b&wait_for_active_shards=2"));
        assert!(!asks_for_copies(
            "/wait_for_active_shards=2/_bulk?pipeline=wait_for_active_shards=2"
        ));
        let lacks = |reason: &str| lacks_copies(&error(503, "unavailable_shards_exception", reason));
        assert!(lacks(
            "[a][0] Not enough active copies to meet shard count of [9] (have 1, needed 9)."
        ));
        assert!(!lacks(
            "[a][0] primary shard is not active Timeout: [3s], request: [x] Not enough active copies to meet"
        ));
    }
}
