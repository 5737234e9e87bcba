//! The engine and version of a node, determined from `_nodes` alone (not every build answers `GET /`).

use bulk::{Flavour, Version};

/// Parses `9.5.3`, `3.0.0-alpha1`, `8.19`; qualifiers are dropped. `None` for any text that begins otherwise.
pub(crate) fn parse_version(text: &str) -> Option<Version> {
    let mut numbers = text.split(['.', '-', '+']).map(|part| part.parse::<u16>().ok());
    Some(Version {
        major: numbers.next()??,
        minor: numbers.next().flatten().unwrap_or(0),
        patch: numbers.next().flatten().unwrap_or(0),
    })
}

/// Formats a version as `9.5.3`.
pub(crate) fn show_version(version: &Version) -> String {
    format!("{}.{}.{}", version.major, version.minor, version.patch)
}

/// Determines the engine from a node's description of itself in `_nodes`.
///
/// Elasticsearch has reported a `build_flavor` (`oss`, `default`, `serverless`) since 6.3 and OpenSearch
/// never did; seen on OpenSearch 2.19 and 3.8, Elasticsearch 7.10, 8.19 and 9.5. Before 6.3 the version
/// number decides: OpenSearch began at 1 when Elasticsearch was past 7.
pub(crate) fn flavour_of(version: Version, has_build_flavor: bool) -> Flavour {
    if has_build_flavor || (5..=6).contains(&version.major) {
        Flavour::Elasticsearch
    } else {
        Flavour::OpenSearch
    }
}

/// Returns `opensearch` or `elasticsearch`.
pub(crate) fn show_flavour(flavour: Flavour) -> &'static str {
    match flavour {
        Flavour::OpenSearch => "opensearch",
        Flavour::Elasticsearch => "elasticsearch",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_with_and_without_qualifiers() {
        assert_eq!(parse_version("9.5.3"), Some(Version::new(9, 5, 3)));
        assert_eq!(parse_version("3.0.0-alpha1"), Some(Version::new(3, 0, 0)));
        assert_eq!(parse_version("8.19"), Some(Version::new(8, 19, 0)));
        assert_eq!(parse_version("next"), None);
    }
}
