//! Why a request is not split.

/// The reason for which a whole request goes to one node untouched. Each is a counter.
///
/// Most of these are requests that the cluster itself will reject, and should word the rejection of; the rest are
/// requests whose shards cannot be told beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(u8)]
pub enum Why {
    /// The body has no operation.
    Empty,
    /// The body has 2 GiB or more.
    TooLarge,
    /// The body asks for more parts than a plan can number (65,535).
    TooManyParts,
    /// The last line does not end with a newline.
    NotTerminated,
    /// An action line is not the JSON object that every server version accepts.
    MalformedAction,
    /// An action line names an action other than index, create, update and delete.
    UnknownAction,
    /// An action line has a key that this server version does not know, or that we do not.
    UnknownParameter,
    /// A key of an action line has a value of a kind that we do not follow.
    OddValue,
    /// An action line has the same key twice.
    DuplicateKey,
    /// An action line carries `_type`: the server answers with a deprecation warning or a rejection.
    TypedAction,
    /// An action line names an index, and the cluster forbids that (`rest.action.multi.allow_explicit_index`).
    ExplicitIndex,
    /// No index, neither in the action line nor in the URL.
    NoIndex,
    /// The `_id` is an empty string.
    EmptyId,
    /// The `_id` has more than 512 bytes.
    IdTooLong,
    /// An update or a delete without `_id`.
    NoId,
    /// The routing is an empty string.
    EmptyRouting,
    /// The pipeline is an empty string.
    EmptyPipeline,
    /// Version, version type, sequence number or primary term in a combination that servers reject or that we
    /// do not follow.
    Versioning,
    /// The last action has no source line.
    NoSource,
    /// A source line is empty.
    EmptySource,
    /// The body of an update is not surely one that the server accepts.
    UpdateBody,
    /// Ids are to be minted and an action line has no place for one.
    NoPlaceForId,
    /// The index does not exist (it may be created by this very request).
    UnknownIndex,
    /// The index name is a date math expression.
    DateMath,
    /// An alias that has no single write index, or several routing values.
    AmbiguousAlias,
    /// An operation other than `create` on a data stream. How the servers word its error depends on whether a
    /// `create` on the same stream came before it in the request.
    StreamNotCreate,
    /// The shard is chosen from the document itself (time series, `routing_path`, logsdb sorted routing).
    RoutedByContent,
    /// The index chooses shards by itself (append-only and adaptive indices of OpenSearch 3).
    AdaptiveShards,
    /// A pipeline of the index may change `_index`, `_id` or `_routing`.
    MovingPipeline,
    /// The request names a pipeline that may change `_index`, `_id` or `_routing`, or whose definition is unknown.
    UnknownPipeline,
    /// A pipeline would run, and this server lets a document that fails in one take others of its request with it
    /// ([`crate::Dialect::ingests_singly`]), so the answer follows from what stands together.
    BatchedIngest,
    /// The cluster's own answer disagreed with our prediction for this index.
    PredictionFailed,
    /// The index is closed, blocked or in a state whose routing is not known.
    IndexUnavailable,
    /// The routing formula or the metadata of the index is not understood.
    UnknownFormula,
    /// The cluster's state has not been read yet.
    NoTopology,
}

// === impl Why ===

impl Why {
    /// All reasons, in the order of their declaration: counters are indexed by `why as usize`.
    pub const ALL: [Why; 35] = [
        Why::Empty,
        Why::TooLarge,
        Why::TooManyParts,
        Why::NotTerminated,
        Why::MalformedAction,
        Why::UnknownAction,
        Why::UnknownParameter,
        Why::OddValue,
        Why::DuplicateKey,
        Why::TypedAction,
        Why::ExplicitIndex,
        Why::NoIndex,
        Why::EmptyId,
        Why::IdTooLong,
        Why::NoId,
        Why::EmptyRouting,
        Why::EmptyPipeline,
        Why::Versioning,
        Why::NoSource,
        Why::EmptySource,
        Why::UpdateBody,
        Why::NoPlaceForId,
        Why::UnknownIndex,
        Why::DateMath,
        Why::AmbiguousAlias,
        Why::StreamNotCreate,
        Why::RoutedByContent,
        Why::AdaptiveShards,
        Why::MovingPipeline,
        Why::UnknownPipeline,
        Why::BatchedIngest,
        Why::PredictionFailed,
        Why::IndexUnavailable,
        Why::UnknownFormula,
        Why::NoTopology,
    ];

    /// The label of this reason's counter.
    pub const fn as_str(self) -> &'static str {
        match self {
            Why::Empty => "empty",
            Why::TooLarge => "too_large",
            Why::TooManyParts => "too_many_parts",
            Why::NotTerminated => "not_terminated",
            Why::MalformedAction => "malformed_action",
            Why::UnknownAction => "unknown_action",
            Why::UnknownParameter => "unknown_parameter",
            Why::OddValue => "odd_value",
            Why::DuplicateKey => "duplicate_key",
            Why::TypedAction => "typed_action",
            Why::ExplicitIndex => "explicit_index",
            Why::NoIndex => "no_index",
            Why::EmptyId => "empty_id",
            Why::IdTooLong => "id_too_long",
            Why::NoId => "no_id",
            Why::EmptyRouting => "empty_routing",
            Why::EmptyPipeline => "empty_pipeline",
            Why::Versioning => "versioning",
            Why::NoSource => "no_source",
            Why::EmptySource => "empty_source",
            Why::UpdateBody => "update_body",
            Why::NoPlaceForId => "no_place_for_id",
            Why::UnknownIndex => "unknown_index",
            Why::DateMath => "date_math",
            Why::AmbiguousAlias => "ambiguous_alias",
            Why::StreamNotCreate => "stream_not_create",
            Why::RoutedByContent => "routed_by_content",
            Why::AdaptiveShards => "adaptive_shards",
            Why::MovingPipeline => "moving_pipeline",
            Why::UnknownPipeline => "unknown_pipeline",
            Why::BatchedIngest => "batched_ingest",
            Why::PredictionFailed => "prediction_failed",
            Why::IndexUnavailable => "index_unavailable",
            Why::UnknownFormula => "unknown_formula",
            Why::NoTopology => "no_topology",
        }
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
    }
}
