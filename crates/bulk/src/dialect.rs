//! The server that reads the body: the same line means different things to different versions.

/// The engine's family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavour {
    /// OpenSearch 1, 2, 3.
    OpenSearch,
    /// Elasticsearch 7, 8, 9.
    Elasticsearch,
}

/// A server version. Versions are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version {
    /// First number.
    pub major: u16,
    /// Second number.
    pub minor: u16,
    /// Third number.
    pub patch: u16,
}

/// How the cluster reads a bulk body. In a cluster of mixed versions, the lowest version decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dialect {
    /// The engine's family.
    pub flavour: Flavour,
    /// The lowest version among the nodes.
    pub version: Version,
    /// `rest.action.multi.allow_explicit_index`; `true` unless the cluster says otherwise.
    pub allow_explicit_index: bool,
}

// === impl Version ===

impl Version {
    /// Makes the version `major.minor.patch`.
    pub const fn new(major: u16, minor: u16, patch: u16) -> Self {
        Self { major, minor, patch }
    }
}

// === impl Dialect ===

impl Dialect {
    /// Makes a dialect with the default settings.
    pub const fn new(flavour: Flavour, version: Version) -> Self {
        Self {
            flavour,
            version,
            allow_explicit_index: true,
        }
    }

    /// Returns whether items of replies name a `_type`, as in Elasticsearch 7 and OpenSearch 1
    /// (`BulkItemResponse.toXContent`).
    pub fn items_have_type(&self) -> bool {
        match self.flavour {
            Flavour::Elasticsearch => self.version.major <= 7,
            Flavour::OpenSearch => self.version.major <= 1,
        }
    }

    /// Returns whether action lines may say `"_type":"_doc"`, and paths `/{index}/_doc/_bulk`. Such a type
    /// means the same as no type, and is answered with a deprecation warning: in Elasticsearch up to 7 and in
    /// OpenSearch 1 (`BulkRequestParser`).
    pub fn takes_types(&self) -> bool {
        self.items_have_type()
    }

    /// Returns whether such types may be left out: not before Elasticsearch 7.
    pub fn types_are_optional(&self) -> bool {
        self.takes_types() && !(self.flavour == Flavour::Elasticsearch && self.version.major < 7)
    }

    /// Returns whether a reply begins with `errors`, as in Elasticsearch from 8 on; other replies begin with
    /// `took` (`BulkResponse.toXContent`).
    pub fn errors_first(&self) -> bool {
        self.flavour == Flavour::Elasticsearch && self.version.major >= 8
    }

    /// Returns whether a document that goes through an ingest pipeline fares as it would alone. Otherwise one
    /// document that cannot be parsed takes others down with it: in OpenSearch all documents that its request
    /// sends through the same pipelines (`IngestService.executePipelinesInBatchRequests`), in Elasticsearch 8
    /// and 9 the whole request, until <https://github.com/elastic/elasticsearch/pull/138624>. Of that fix,
    /// the first releases that certainly contain it count.
    pub fn ingests_singly(&self) -> bool {
        let Version { major, minor, patch } = self.version;
        self.flavour == Flavour::Elasticsearch
            && match (major, minor) {
                (..=7, _) => true,
                (8, 19) | (9, 1) => patch >= 9,
                (9, 2) => patch >= 3,
                (8 | 9, _) => major == 9 && minor >= 3,
                _ => true,
            }
    }

    /// Returns whether a document without id and routing, of an index whose mapping requires a routing, fails
    /// its whole request: its `RoutingMissingException` requires an id
    /// (<https://github.com/opensearch-project/OpenSearch/issues/23092>). Elasticsearch makes the id first,
    /// from 8 on (`IndexRouting.IdAndRoutingOnly.process`).
    pub fn fails_whole_without_routing(&self) -> bool {
        !self.elasticsearch_from(8, 0)
    }

    pub(crate) fn elasticsearch_from(&self, major: u16, minor: u16) -> bool {
        self.flavour == Flavour::Elasticsearch && self.version >= Version::new(major, minor, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_ingested_singly_only_where_that_is_certain() {
        let singly = |flavour, major, minor, patch| {
            Dialect::new(flavour, Version::new(major, minor, patch)).ingests_singly()
        };
        for (major, minor, patch, expected) in [
            (7, 10, 2, true),
            (8, 0, 0, false),
            (8, 18, 99, false),
            (8, 19, 8, false),
            (8, 19, 9, true),
            (9, 0, 99, false),
            (9, 1, 9, true),
            (9, 2, 2, false),
            (9, 2, 3, true),
            (9, 3, 0, true),
            (10, 0, 0, true),
        ] {
            let found = singly(Flavour::Elasticsearch, major, minor, patch);
            assert_eq!(found, expected, "{major}.{minor}.{patch}");
        }
        assert!(!singly(Flavour::OpenSearch, 1, 3, 0) && !singly(Flavour::OpenSearch, 3, 8, 0));
    }
}
