//! The settings with which a body is planned, beside the body itself.

use crate::{Dialect, Directing, Flavour};

/// How finely a body is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Level {
    /// Not at all: one part for any node.
    Cluster,
    /// One part for each node that holds a primary of a document.
    #[default]
    Node,
    /// One part for each node and index.
    Index,
    /// One part for each shard.
    Shard,
    /// One part for each of a log's lanes, whose number is given. A document's lane follows from its concrete
    /// index and its shard, whichever node holds the shard's primary now. Documents whose shard is unknown go
    /// to lane 0: with [`NullId::Always`] there are none.
    Lane(u32),
}

/// The treatment of documents that have neither id nor routing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum NullId {
    /// They stay without, and go together to any node: the cluster's append-only path, which needs no look-up
    /// of the id, stays in use.
    #[default]
    Keep,
    /// They get an id from [`crate::IdMint`] and are routed by it. Retries become safe, but each write then
    /// looks its id up.
    Mint,
    /// Every document that has no id gets one, even if it has a routing. This is for a log: a document that
    /// is delivered later, and perhaps twice, must have the id that was promised to the client.
    Always,
}

/// The statements of the URL and the configuration about a body.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ask<'a> {
    /// The index in the URL, percent-decoded.
    pub default_index: Option<&'a str>,
    /// The URL parameter `routing`, decoded.
    pub url_routing: Option<&'a str>,
    /// The URL parameter `pipeline`, decoded.
    pub url_pipeline: Option<&'a str>,
    /// The URL parameter `require_alias`: actions that don't say otherwise accept only aliases. It counts
    /// only at [`Level::Lane`], as [`Ask::require_data_stream`] does: at the other levels the cluster's own
    /// items give the result.
    pub require_alias: bool,
    /// The URL parameter `require_data_stream`.
    pub require_data_stream: bool,
    /// Whether names that the cluster does not have count as indices of one shard. This is for callers that
    /// ask whether the rest of a body is acceptable before they have such an index created.
    pub suppose_new: bool,
    /// Whether types in action lines are left out: for callers that keep lines for servers that may not know
    /// types.
    pub without_types: bool,
    /// Whether the request says `compatible-with=7`, for which Elasticsearch 8 answers in the form of
    /// version 7.
    pub compatible_with_7: bool,
    /// The level of the split.
    pub level: Level,
    /// At [`Level::Lane`]: whether a document's lane follows from its id alone, and so from nothing that can
    /// change while the document waits there.
    pub lanes_by_id: bool,
    /// At [`Level::Lane`]: whether a lane's documents for one node lie next to each other, where that makes
    /// long stretches of them. A lane may then have several parts ([`crate::Plan::by_lane`]); documents of
    /// one shard keep their order.
    pub nodes_apart: bool,
    /// The treatment of documents that have no id.
    pub null_id: NullId,
    /// The source of shards for documents that have neither id nor routing; `None` if there is none.
    pub direct: Option<&'a dyn Directing>,
}

// === impl Ask ===

impl Ask<'_> {
    /// Returns whether the items of the answer name a `_type`: those of [`Dialect::items_have_type`], and
    /// those of Elasticsearch 8 in the form of version 7 (`DocWriteResponse.innerToXContent`). Other servers
    /// refuse requests for that form.
    pub fn items_have_type(&self, dialect: &Dialect) -> bool {
        let in_old_form =
            self.compatible_with_7 && dialect.flavour == Flavour::Elasticsearch && dialect.version.major == 8;
        dialect.items_have_type() || in_old_form
    }
}
