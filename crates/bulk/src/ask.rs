//! What is asked of a body, beside the body itself.

use crate::Directing;

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
    /// One part for each lane of a log that has so many: a document's lane follows from its concrete index
    /// and its shard, whoever holds the shard's primary now. Documents that no shard is known of go to lane
    /// 0: ask for [`NullId::Always`], and there are none.
    Lane(u32),
}

/// What becomes of documents that have neither id nor routing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum NullId {
    /// They keep having none, and go together to any node: the cluster's append-only path, which needs no
    /// look-up of the id, stays in use.
    #[default]
    Keep,
    /// They get an id from [`crate::IdMint`] and are routed by it. Retries become safe; each write now looks
    /// its id up.
    Mint,
    /// Every document that has no id gets one, those with a routing too. For a log: what is delivered later,
    /// and perhaps twice, must have the id that was promised to the client.
    Always,
}

/// What the URL and the configuration say about a body.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ask<'a> {
    /// The index in the URL, percent-decoded.
    pub default_index: Option<&'a str>,
    /// The URL parameter `routing`, decoded.
    pub url_routing: Option<&'a str>,
    /// The URL parameter `pipeline`, decoded.
    pub url_pipeline: Option<&'a str>,
    /// The URL parameter `require_alias`: actions that don't say otherwise are for aliases only. It counts at
    /// [`Level::Lane`], as [`Ask::require_data_stream`] does: elsewhere the cluster's own items say what
    /// comes of it.
    pub require_alias: bool,
    /// The URL parameter `require_data_stream`.
    pub require_data_stream: bool,
    /// Names that the cluster does not have are taken for indices of one shard. For those who ask whether the
    /// rest of a body is acceptable before they have such an index made.
    pub suppose_new: bool,
    /// Types in action lines are left out: for those who keep lines for servers that may know none.
    pub without_types: bool,
    /// How finely to split.
    pub level: Level,
    /// At [`Level::Lane`]: a document's lane follows from its id alone, so from nothing that can change while
    /// it waits there.
    pub lanes_by_id: bool,
    /// What to do with documents that have no id.
    pub null_id: NullId,
    /// Who gives shards to documents that have neither id nor routing; `None`: nobody does.
    pub direct: Option<&'a dyn Directing>,
}
