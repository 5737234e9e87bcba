//! The reasons why a request is not split.

/// Declares an enum of reasons: each variant has a label for its counter. The enum gets `ALL`, in the order
/// of declaration, so that counters are indexed by `why as usize`, and `as_str`, which returns the label. If
/// the declaration begins with `explained`, the documentation serves as the words for people, and the enum
/// also gets `meaning`, which returns them.
#[macro_export]
macro_rules! whys {
    (explained $(#[$attribute:meta])* $visible:vis enum $Whys:ident {
        $($(#[doc = $doc:literal])+ $name:ident = $label:literal,)+
    }) => {
        $crate::whys! {
            $(#[$attribute])*
            $visible enum $Whys {
                $($(#[doc = $doc])+ $name = $label,)+
            }
        }

        impl $Whys {
            /// Returns the meaning of this reason, in a sentence or two.
            $visible fn meaning(self) -> &'static str {
                match self {
                    $($Whys::$name => concat!($($doc),+).trim_start(),)+
                }
            }
        }
    };
    ($(#[$attribute:meta])* $visible:vis enum $Whys:ident {
        $($(#[doc = $doc:literal])+ $name:ident = $label:literal,)+
    }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        $visible enum $Whys {
            $($(#[doc = $doc])+ $name,)+
        }

        impl $Whys {
            /// All reasons, in the order of their declaration: counters are indexed by `why as usize`.
            $visible const ALL: [$Whys; [$($label),+].len()] = [$($Whys::$name),+];

            /// Returns the label of this reason's counter.
            $visible const fn as_str(self) -> &'static str {
                match self {
                    $($Whys::$name => $label,)+
                }
            }
        }
    };
}

/// The reason why a body is not split, and the place where it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// The reason.
    pub why: Why,
    /// The line of the body where it was found, from 1, if it was found in a line.
    pub line: Option<u32>,
}

whys! {
    explained
    /// The reason why a whole request goes to one node untouched. Each reason has a counter.
    ///
    /// Most reasons concern requests that the cluster itself will reject, in its own words; the rest concern
    /// requests whose shards cannot be determined beforehand.
    #[non_exhaustive]
    pub enum Why {
        /// The body has no operation.
        Empty = "empty",
        /// The body has 2 GiB or more, or the ids that Tidegate makes for its documents bring it beyond the
        /// size that every node accepts (`http.max_content_length`).
        TooLarge = "too_large",
        /// The body asks for more parts than a plan can number (65,535).
        TooManyParts = "too_many_parts",
        /// The last line does not end with a newline.
        NotTerminated = "not_terminated",
        /// An action line is not the JSON object that every server version accepts.
        MalformedAction = "malformed_action",
        /// An action line names an action other than index, create, update and delete.
        UnknownAction = "unknown_action",
        /// An action line has a key that this server version does not know, or that Tidegate does not know.
        UnknownParameter = "unknown_parameter",
        /// A key of an action line has a value of a kind that Tidegate does not interpret.
        OddValue = "odd_value",
        /// An action line has the same key twice.
        DuplicateKey = "duplicate_key",
        /// An action line carries a `_type` other than `_doc`, or the server knows no types.
        TypedAction = "typed_action",
        /// An action line names an index, and the cluster forbids that
        /// (`rest.action.multi.allow_explicit_index`).
        ExplicitIndex = "explicit_index",
        /// There is no index, neither in the action line nor in the URL.
        NoIndex = "no_index",
        /// The `_id` is an empty string.
        EmptyId = "empty_id",
        /// The `_id` has more than 512 bytes.
        IdTooLong = "id_too_long",
        /// An update or a delete has no `_id`.
        NoId = "no_id",
        /// The routing is an empty string.
        EmptyRouting = "empty_routing",
        /// A document has neither id nor routing, and the mapping of its index requires a routing:
        /// OpenSearch, and Elasticsearch before 8, fail the whole request because of it.
        RoutingRequired = "routing_required",
        /// The pipeline is an empty string.
        EmptyPipeline = "empty_pipeline",
        /// Version, version type, sequence number or primary term are combined in a way that servers reject
        /// or that Tidegate does not interpret.
        Versioning = "versioning",
        /// The last action has no source line.
        NoSource = "no_source",
        /// A source line is empty.
        EmptySource = "empty_source",
        /// Tidegate is not sure that the server accepts the body of an update.
        UpdateBody = "update_body",
        /// The index does not exist (it may be created by this very request).
        UnknownIndex = "unknown_index",
        /// The index name is a date math expression.
        DateMath = "date_math",
        /// The alias has no single write index, or several routing values.
        AmbiguousAlias = "ambiguous_alias",
        /// An operation other than `create` is for a data stream. The servers word its error differently if a
        /// `create` on the same stream comes before it in the request.
        StreamNotCreate = "stream_not_create",
        /// The shard is chosen from the document itself (time series, `routing_path`, logsdb sorted routing).
        RoutedByContent = "routed_by_content",
        /// The index chooses shards by itself (append-only and adaptive indices of OpenSearch 3).
        AdaptiveShards = "adaptive_shards",
        /// A pipeline of the index may change `_index`, `_id` or `_routing`.
        MovingPipeline = "moving_pipeline",
        /// The request names a pipeline that may change `_index`, `_id` or `_routing`, or whose definition is
        /// unknown.
        UnknownPipeline = "unknown_pipeline",
        /// A pipeline records who sent the request (`set_security_user`), so it can run only for the client,
        /// and not from a queue.
        CallersPipeline = "callers_pipeline",
        /// `require_alias` or `require_data_stream` is set, and the name is not known to be one: Tidegate
        /// neither queues for nor creates a target that the cluster would refuse to write to.
        RequiredTarget = "required_target",
        /// A pipeline would run, and on this server a document that fails in a pipeline makes others of its
        /// request fail too, so the answer depends on which documents share a request.
        BatchedIngest = "batched_ingest",
        /// The cluster's own answer disagreed with Tidegate's prediction for this index.
        PredictionFailed = "prediction_failed",
        /// The index is new, and Tidegate's prediction of its shards has not been compared with the cluster's
        /// own answer yet. This takes moments.
        UnverifiedIndex = "unverified_index",
        /// The index is closed.
        IndexClosed = "index_closed",
        /// The index is in a state whose routing is not known, for example while it is being created.
        IndexUnavailable = "index_unavailable",
        /// The routing formula or the metadata of the index is not understood.
        UnknownFormula = "unknown_formula",
    }
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_listed_once_at_its_own_place() {
        for (place, why) in Why::ALL.iter().enumerate() {
            assert_eq!(*why as usize, place, "{why}");
        }
        let mut labels: Vec<_> = Why::ALL.iter().map(|why| why.as_str()).collect();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), Why::ALL.len());
        assert!(
            labels
                .iter()
                .all(|l| l.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
        );
        assert!(Why::ALL.iter().all(|why| why.meaning().ends_with('.')));
    }
}
