//! Rights of calls to a cluster: which paths may be called at all, and which calls only read.
//!
//! A call counts as reading only if it is known to read; every other call counts as writing.

use http::Method;

/// The path of a call, split into segments.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CallPath {
    segments: Vec<String>,
}

/// Why a path is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadPath(&'static str);

impl CallPath {
    /// Parses path and query as the page gives them.
    pub(crate) fn parse(target: &str) -> Result<Self, BadPath> {
        if !target.starts_with('/') {
            return Err(BadPath(
                "a path begins with `/`; calls go to the chosen cluster only",
            ));
        }
        if target.len() > PATH_BYTES_MAX {
            return Err(BadPath("the path is too long"));
        }
        if !target.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(BadPath(
                "spaces and other than ASCII characters have to be percent-encoded",
            ));
        }
        if target.contains(['#', '\\']) {
            return Err(BadPath("`#` and `\\` have to be percent-encoded"));
        }
        let path = target.split('?').next().unwrap_or_default();
        if path.contains("//") {
            return Err(BadPath("`//` is not a path of a cluster"));
        }
        let segments: Vec<String> = path
            .split('/')
            .filter(|segment| !segment.is_empty())
            .map(decoded)
            .collect::<Option<_>>()
            .ok_or(BadPath("its percent-encoding is broken"))?;
        let climbs = |segment: &String| segment.split(['/', '\\']).any(|part| part == "." || part == "..");
        if segments.iter().any(climbs) {
            return Err(BadPath("`.` and `..` are not a path of a cluster"));
        }
        Ok(Self { segments })
    }

    /// Returns the index that the path names, as it is written: one, several, or a pattern.
    pub(crate) fn index(&self) -> Option<&str> {
        let first = self.segments.first()?;
        (!first.starts_with('_') || first == "_all").then_some(first)
    }

    /// The segments of the path, decoded.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().map(String::as_str)
    }

    /// Whether the call is known to only read.
    pub(crate) fn only_reads(&self, method: &Method) -> bool {
        let words: Vec<&str> = self.segments.iter().map(String::as_str).collect();
        let (of_index, api): (bool, &[&str]) = match words.as_slice() {
            [] => (false, &[]),
            [first, ..] if first.starts_with('_') && *first != "_all" => (false, &words),
            [_, rest @ ..] => (true, rest),
        };
        if matches!(*method, Method::GET | Method::HEAD) {
            return api.first().is_none_or(|name| !ACT_ON_GET.contains(name));
        }
        *method == Method::POST && (reads_by_post(api) || (!of_index && reads_the_cluster_by_post(api)))
    }
}

/// Whether the API reads although it is called with POST, since its question is a body.
///
/// Every server from Elasticsearch 7.0 and OpenSearch 1.0 on knows each of these. To one that does not, the
/// path would be that of a document with a type, and would make an index; so `_terms_enum` is not among them.
/// It can be asked with GET.
fn reads_by_post(api: &[&str]) -> bool {
    matches!(
        api,
        ["_search" | "_count" | "_msearch" | "_field_caps" | "_analyze" | "_mget" | "_search_shards"]
            | ["_termvectors" | "_mtermvectors" | "_rank_eval"]
            | ["_search" | "_msearch", "template"]
            | ["_validate", "query"]
            | ["_explain" | "_termvectors", _]
    )
}

/// Like [`reads_by_post`], for APIs of the cluster and not of an index.
fn reads_the_cluster_by_post(api: &[&str]) -> bool {
    matches!(
        api,
        ["_search", "scroll"]
            | ["_render", "template"]
            | ["_render", "template", _]
            | ["_index_template", "_simulate"]
            | ["_index_template", "_simulate" | "_simulate_index", _]
            | ["_ingest", "pipeline", "_simulate"]
            | ["_ingest", "pipeline", _, "_simulate"]
    )
}

fn decoded(segment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first == b'%' {
            let [high, low, tail @ ..] = tail else { return None };
            let digit = |byte: u8| char::from(byte).to_digit(16);
            bytes.push(u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?);
            rest = tail;
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}

/// APIs that change something although a server accepts them as GET.
const ACT_ON_GET: [&str; 9] = [
    "_bulk",
    "_cache",
    "_flush",
    "_forcemerge",
    "_optimize",
    "_refresh",
    "_reload_search_analyzers",
    "_shutdown",
    "_upgrade",
];
const PATH_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls that change documents, indices, settings or the cluster.
    const WRITING: [(&str, &str); 61] = [
        ("POST", "/logs/_terms_enum"),
        ("POST", "/_bulk"),
        ("PUT", "/_bulk"),
        ("POST", "/logs/_bulk"),
        ("POST", "/logs/_doc"),
        ("PUT", "/logs/_doc/1"),
        ("POST", "/logs/_doc/_search"),
        ("POST", "/logs/_doc/1?op_type=create"),
        ("PUT", "/logs/_create/1"),
        ("POST", "/logs/_create/_count"),
        ("POST", "/logs/_update/1"),
        ("POST", "/logs/_update/_search"),
        ("DELETE", "/logs/_doc/1"),
        ("POST", "/logs/_delete_by_query"),
        ("POST", "/logs/%5Fdelete_by_query"),
        ("POST", "/_all/_delete_by_query"),
        ("POST", "/logs/_update_by_query"),
        ("POST", "/_reindex"),
        ("POST", "/_reindex/1:1/_rethrottle"),
        ("PUT", "/logs"),
        ("DELETE", "/logs"),
        ("DELETE", "/*"),
        ("DELETE", "/_all"),
        ("POST", "/logs/_close"),
        ("POST", "/logs/_open"),
        ("PUT", "/logs/_settings"),
        ("PUT", "/_all/_settings"),
        ("PUT", "/logs/_mapping"),
        ("PUT", "/logs/_block/write"),
        ("POST", "/logs/_rollover"),
        ("POST", "/logs/_shrink/small"),
        ("POST", "/logs/_split/large"),
        ("POST", "/logs/_clone/copy"),
        ("POST", "/logs/_refresh"),
        ("GET", "/logs/_refresh"),
        ("POST", "/logs/_flush"),
        ("GET", "/_flush"),
        ("POST", "/logs/_forcemerge"),
        ("POST", "/logs/_cache/clear"),
        ("POST", "/_aliases"),
        ("PUT", "/logs/_alias/l"),
        ("DELETE", "/logs/_alias/l"),
        ("PUT", "/_template/t"),
        ("PUT", "/_index_template/t"),
        ("PUT", "/_index_template/_simulate"),
        ("DELETE", "/_index_template/t"),
        ("PUT", "/_component_template/t"),
        ("PUT", "/_data_stream/d"),
        ("POST", "/_data_stream/_migrate/d"),
        ("PUT", "/_ingest/pipeline/p"),
        ("DELETE", "/_ingest/pipeline/_simulate"),
        ("PUT", "/_cluster/settings"),
        ("POST", "/_cluster/reroute"),
        ("POST", "/_cluster/voting_config_exclusions?node_names=a"),
        ("PUT", "/_snapshot/r/s"),
        ("POST", "/_snapshot/r/s/_restore"),
        ("POST", "/_tasks/_cancel"),
        ("PUT", "/_scripts/s"),
        ("POST", "/_security/user/eve"),
        ("POST", "/_plugins/_sql"),
        ("PATCH", "/_plugins/_security/api/roles"),
    ];

    const READING: [(&str, &str); 25] = [
        ("GET", "/logs/_terms_enum"),
        ("GET", "/"),
        ("HEAD", "/logs"),
        ("GET", "/_cat/indices?v"),
        ("GET", "/logs/_search?q=a"),
        ("GET", "/logs/_doc/1"),
        ("GET", "/_cluster/health"),
        ("POST", "/_search"),
        ("POST", "/logs/_search"),
        ("POST", "/_all/_search"),
        ("POST", "/logs-*,-logs-1/_search"),
        ("POST", "/logs/_count"),
        ("POST", "/_msearch"),
        ("POST", "/logs/_msearch/template"),
        ("POST", "/logs/_field_caps?fields=*"),
        ("POST", "/_analyze"),
        ("POST", "/logs/_validate/query"),
        ("POST", "/logs/_explain/1"),
        ("POST", "/_mget"),
        ("POST", "/_search/scroll"),
        ("POST", "/_render/template"),
        ("POST", "/_index_template/_simulate"),
        ("POST", "/_index_template/_simulate_index/logs-1"),
        ("POST", "/_ingest/pipeline/_simulate"),
        ("POST", "/_ingest/pipeline/p/_simulate"),
    ];

    #[test]
    fn what_writes_is_known_as_writing_and_what_reads_as_reading() {
        let reads = |(method, path): (&str, &str)| {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            CallPath::parse(path).unwrap().only_reads(&method)
        };
        for call in WRITING {
            assert!(!reads(call), "{call:?} writes");
        }
        for call in READING {
            assert!(reads(call), "{call:?} reads");
        }
        assert!(!reads(("POST", "/_something_new")), "what is not known writes");
    }

    #[test]
    fn only_paths_of_a_cluster_go_out() {
        for path in [
            "",
            "logs/_search",
            "http://other:9200/",
            "//other:9200/",
            "/logs//_search",
            "/../etc/passwd",
            "/logs/../../x",
            "/logs/%2e%2e/x",
            "/logs/%2E./x",
            "/a%2f..%2fb",
            "/a%5c..%5cb",
            "/logs\\..\\x",
            "/logs/_doc/a b",
            "/logs\r\nX: y",
            "/logs#x",
            "/%",
            "/%zz",
            "/%ff",
            "/\u{e9}",
        ] {
            assert!(CallPath::parse(path).is_err(), "{path}");
        }
        let path = CallPath::parse("/%3Clogs-%7Bnow%2Fd%7D%3E/_doc/a%2Fb?q=../..//").unwrap();
        assert_eq!(path.index(), Some("<logs-{now/d}>"));
        assert_eq!(CallPath::parse("/_bulk").unwrap().index(), None);
        assert_eq!(CallPath::parse("/_all/_close").unwrap().index(), Some("_all"));
    }
}
