//! Tells from its head whether a request may write documents, and so must not bypass a queue.

use http::Method;
use percent_encoding::percent_decode_str;

/// Returns whether a request may write documents. When in doubt the answer is yes: the request then waits,
/// and nothing else happens to it. `types`: whether the server has mapping types.
///
/// Segments are decoded first, as servers do before they look for a handler (`PathTrie`).
pub(crate) fn writes_documents(method: &Method, path: &str, types: bool) -> bool {
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return false;
    }
    let segments: Vec<_> = path
        .split('/')
        .filter(|segment| !segment.is_empty())
        .map(|segment| percent_decode_str(segment).decode_utf8_lossy())
        .collect();
    let reads = |segment: &str| READS.contains(&segment);
    let is_api = |segment: &str| segment.starts_with('_');
    let is_read = match segments.as_slice() {
        // The third segment is a document's id here, too.
        [_, _, _, last] if matches!(&**last, "_update" | "_create") => false,
        // The third segment is a document's id, whatever it looks like. Only servers with types treat `POST
        // /{index}/_doc/_search` as a search; other servers match `POST /{index}/_doc/{id}`, and write.
        [_, api, _] if matches!(&**api, "_create" | "_update") => false,
        [_, api, id] if &**api == "_doc" => types && *method == Method::POST && reads(id),
        [index, kind, id] if types && !is_api(index) && !is_api(kind) => match *method {
            Method::POST => reads(id),
            _ => matches!((method, &**id), (&Method::PUT, "_mapping" | "_mappings")),
        },
        segments => segments.iter().skip(1).any(|segment| reads(segment)),
    };
    if is_read {
        return false;
    }
    match segments.as_slice() {
        // Servers with types: `/{index}/{type}`, `/{index}/{type}/{id}` and everything below.
        [index, kind, ..] if !is_api(index) && !is_api(kind) => true,
        segments => segments.iter().any(|segment| WRITES.contains(&&**segment)),
    }
}

/// APIs that write documents, by the segment that identifies them.
const WRITES: [&str; 9] = [
    "_bulk",
    "_doc",
    "_create",
    "_update",
    "_update_by_query",
    "_delete_by_query",
    "_reindex",
    // Metrics, logs and traces that Elasticsearch accepts directly.
    "_otlp",
    "_prometheus",
];

/// APIs below those paths that write nothing: APIs of a type named `_doc`, of one document, or of a task.
const READS: [&str; 12] = [
    "_search",
    "_count",
    "_mget",
    "_msearch",
    "_explain",
    "_validate",
    "_termvector",
    "_termvectors",
    "_mtermvectors",
    "_mapping",
    "_mappings",
    "_rethrottle",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_writes_documents_is_told_from_what_reads_them() {
        for (method, path, expected) in [
            (Method::POST, "/_bulk", true),
            (Method::POST, "/_bulk/stream", true),
            (Method::PUT, "/logs/_doc/1", true),
            (Method::PUT, "/logs/%5Fdoc/1", true),
            (Method::PUT, "//logs//_doc//1/", true),
            (Method::DELETE, "/logs/_doc/1", true),
            (Method::POST, "/logs/_update/1", true),
            (Method::POST, "/logs/_doc/_search", false),
            (Method::PUT, "/logs/_doc/_search", true),
            (Method::DELETE, "/logs/_doc/_count", true),
            (Method::PUT, "/logs/_create/_mapping", true),
            (Method::POST, "/logs/_update/_search", true),
            (Method::PUT, "/logs/logs/1", true),
            (Method::POST, "/logs/logs/1/_update", true),
            // The third segment is the document's id here, too.
            (Method::POST, "/logs/_doc/_search/_update", true),
            (Method::POST, "/logs/logs/_count/_update", true),
            (Method::PUT, "/logs/_doc/_mapping/_create", true),
            (Method::POST, "/logs/logs/1/_explain", false),
            (Method::POST, "/logs/_delete_by_query", true),
            (Method::POST, "/_update_by_query/node:1/_rethrottle", false),
            (Method::POST, "/_reindex", true),
            (Method::POST, "/_otlp/v1/metrics", true),
            (Method::GET, "/logs/_doc/1", false),
            (Method::POST, "/logs/_search", false),
            (Method::POST, "/_search/template", false),
            (Method::PUT, "/logs", false),
            (Method::PUT, "/_ingest/pipeline/_doc_x", false),
            (Method::POST, "/logs/_refresh", false),
            (Method::PUT, "/logs/_mapping/_doc", false),
        ] {
            assert_eq!(writes_documents(&method, path, true), expected, "{method} {path}");
            let is_document = path == "/logs/_doc/_search";
            assert_eq!(
                writes_documents(&method, path, false),
                expected || is_document,
                "{method} {path}"
            );
        }
        for (method, path, expected) in [
            (Method::PUT, "/logs/logs/_search", true),
            (Method::DELETE, "/logs/logs/_mapping", true),
            (Method::POST, "/logs/logs/_search", false),
            (Method::PUT, "/logs/logs/_mapping", false),
        ] {
            assert_eq!(writes_documents(&method, path, true), expected, "{method} {path}");
        }
    }
}
