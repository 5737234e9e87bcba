//! Which engine and version a node is, told from `_nodes` alone (`GET /` is not answered by every build).

use std::fmt;

use serde::Serialize;

/// The engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Flavour {
    /// OpenSearch.
    OpenSearch,
    /// Elasticsearch.
    Elasticsearch,
}

/// A version; qualifiers such as `-SNAPSHOT` are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version {
    /// `9` of 9.5.3.
    pub major: u16,
    /// `5` of 9.5.3.
    pub minor: u16,
    /// `3` of 9.5.3.
    pub patch: u16,
}

impl Version {
    /// Reads `9.5.3`, `3.0.0-alpha1`, `8.19`. `None` for anything that begins otherwise.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(['.', '-', '+']).map(|part| part.parse::<u16>().ok());
        Some(Self {
            major: numbers.next()??,
            minor: numbers.next().flatten().unwrap_or(0),
            patch: numbers.next().flatten().unwrap_or(0),
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Tells the engine from what a node says of itself in `_nodes`.
///
/// Elasticsearch has reported a `build_flavor` (`oss`, `default`, `serverless`) since 6.3 and OpenSearch never did;
/// seen on OpenSearch 2.19 and 3.8, Elasticsearch 7.10, 8.19 and 9.5. Before 6.3 the version number decides: OpenSearch
/// began at 1 when Elasticsearch was past 7.
pub(crate) fn flavour_of(version: Version, has_build_flavor: bool) -> Flavour {
    if has_build_flavor || (5..=6).contains(&version.major) {
        Flavour::Elasticsearch
    } else {
        Flavour::OpenSearch
    }
}
