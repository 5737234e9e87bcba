//! Why a write of a single document goes on as it came.

macro_rules! whys {
    ($($(#[doc = $doc:literal])+ $name:ident = $label:literal,)+) => {
        /// Why a single-document write is not sent as a bulk, as far as its head and body show. `bulk::Why` has the
        /// reasons that a plan finds.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub(crate) enum SingleWhy {
            $($(#[doc = $doc])+ $name,)+
        }

        impl SingleWhy {
            /// All, in the order of their declaration.
            pub(crate) const ALL: [SingleWhy; [$($label,)+].len()] = [$(SingleWhy::$name,)+];

            /// The label of this reason's counter; distinct from all of `bulk::Why`'s.
            pub(crate) const fn as_str(self) -> &'static str {
                match self {
                    $(SingleWhy::$name => $label,)+
                }
            }
        }
    };
}

whys! {
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
    /// An update with a routing (its own or its alias's), or of an index with a pipeline: a bulk may leave another routing
    /// with the document, or skip the pipeline.
    Update = "update",
}
