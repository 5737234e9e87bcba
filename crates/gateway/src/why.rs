//! Why a request goes on unchanged, for reasons that its head and body show. `bulk::Why` has the reasons that
//! a plan finds.

bulk::whys! {
    /// Why a bulk request is passed through whole without a look at its body.
    pub(crate) enum HeadWhy {
        /// `/{index}/{type}/_bulk` with another type than `_doc`, or with any type on a server that knows no
        /// types.
        TypedPath = "typed_path",
        /// The index in the URL isn't one plain name, or the path has empty segments (`//`).
        UrlIndex = "url_index",
        /// A URL parameter that changes the answer's shape, or that isn't known.
        Parameter = "url_parameter",
        /// No content type, or one that isn't JSON.
        ContentType = "content_type",
        /// A content encoding other than gzip.
        ContentEncoding = "content_encoding",
        /// The client asks for an answer in a format other than JSON.
        Accept = "accept",
        /// `level: cluster`.
        Level = "level_cluster",
        /// The topology isn't known yet.
        NoTopology = "topology_unknown",
        /// The client may not do everything that the request asks for; in asynchronous mode, Tidegate leaves
        /// the refusal to the cluster.
        Rights = "rights",
    }
}

bulk::whys! {
    /// Why a single-document write is not sent as a bulk.
    pub(crate) enum SingleWhy {
        /// The index in the URL isn't one plain name, or the path has empty segments (`//`).
        Index = "url_index",
        /// The id in the URL can't be decoded, or begins with `_` and may therefore name an API.
        Id = "url_id",
        /// A URL parameter that changes the answer's shape (`pretty`, `filter_path`, …), that isn't known, or
        /// whose value isn't plain.
        Parameter = "url_parameter",
        /// No content type, or one that isn't JSON.
        ContentType = "content_type",
        /// A content encoding other than gzip.
        ContentEncoding = "content_encoding",
        /// The client asks for an answer in a format other than JSON.
        Accept = "accept",
        /// `level: cluster`.
        Level = "level_cluster",
        /// The topology isn't known yet.
        NoTopology = "topology_unknown",
        /// A delete with a body.
        Body = "delete_with_body",
        /// The body does not begin and end as an object does.
        NoObject = "not_an_object",
        /// The document has line breaks. A bulk can't carry them, and `_source` returns a document as it was
        /// written.
        LineBreak = "line_break",
        /// An update with a routing (its own or its alias's), or of an index with a pipeline: as a bulk it
        /// might leave another routing with the document, or skip the pipeline.
        Update = "update",
    }
}
