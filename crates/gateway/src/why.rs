//! Why a request goes on as it came, for reasons that its head and body show. `bulk::Why` has the reasons
//! that a plan finds.

bulk::whys! {
    /// Why a bulk request is passed through whole without a look at its body.
    pub(crate) enum HeadWhy {
        /// `/{index}/{type}/_bulk` with another type than `_doc`, or of a server that knows no types.
        TypedPath = "typed_path",
        /// An index in the URL that isn't one plain name.
        UrlIndex = "url_index",
        /// A URL parameter that changes the answer's shape, or that isn't known.
        Parameter = "url_parameter",
        /// No content type, or one that isn't JSON.
        ContentType = "content_type",
        /// A content encoding other than gzip.
        ContentEncoding = "content_encoding",
        /// An answer in another format than JSON is asked for.
        Accept = "accept",
        /// `level: cluster`.
        Level = "level_cluster",
        /// The topology isn't known yet.
        NoTopology = "topology_unknown",
        /// Its client may not do all that it asks for: asynchronous mode leaves it to the cluster to say so.
        Rights = "rights",
    }
}

bulk::whys! {
    /// Why a single-document write is not sent as a bulk.
    pub(crate) enum SingleWhy {
        /// An index in the URL that isn't one plain name.
        Index = "url_index",
        /// An id in the URL that can't be decoded, or that begins with `_`: it may name an API.
        Id = "url_id",
        /// A URL parameter that changes the answer's shape, or that isn't known, or a value that isn't plain.
        Parameter = "url_parameter",
        /// No content type, or one that isn't JSON.
        ContentType = "content_type",
        /// A content encoding other than gzip.
        ContentEncoding = "content_encoding",
        /// An answer in another format than JSON is asked for.
        Accept = "accept",
        /// `level: cluster`.
        Level = "level_cluster",
        /// The topology isn't known yet.
        NoTopology = "topology_unknown",
        /// A delete with a body.
        Body = "delete_with_body",
        /// The body isn't an object, as far as its ends show.
        NoObject = "not_an_object",
        /// The document has line breaks, which its `_source` would give back as they came.
        LineBreak = "line_break",
        /// An update with a routing (its own or its alias's), or of an index with a pipeline: a bulk may
        /// leave another routing with the document, or skip the pipeline.
        Update = "update",
    }
}
