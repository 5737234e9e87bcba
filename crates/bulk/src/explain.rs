//! The fate of each operation of a body, in words for people.

use crate::walk::{ShardChoice, Walk};
use crate::{Ask, NodeIx, Op, Pass, RouteTable, Why};

/// One operation, explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// The line of its action, from 1.
    pub line: u32,
    /// The operation.
    pub op: Op,
    /// The name that the operation uses for its index.
    pub name: String,
    /// The concrete index that the operation goes to.
    pub index: String,
    /// The operation's id, decoded.
    pub id: Option<String>,
    /// The effective routing: the operation's own, the URL's or the alias's.
    pub routing: Option<String>,
    /// The operation's shard, where that is known beforehand.
    pub shard: Option<u32>,
    /// The node of the shard's primary.
    pub node: Option<NodeIx>,
    /// The reason for the destination.
    pub by: DecidedBy,
}

/// The reason for an operation's destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecidedBy {
    /// The hash of the id.
    Id,
    /// The hash of the routing (with a share of the id in partitioned indices).
    Routing,
    /// Nothing: without id and routing any node will do, and the server chooses the shard.
    Nobody,
    /// A minted id.
    MintedId,
    /// The turn of a shard: the operation has neither id nor routing.
    RoundRobin,
    /// The shard is known, but has no primary now: any node will do.
    Unassigned,
}

/// Explains a body operation by operation, up to the [`Pass`] at which a plan would be given up, if any.
pub struct Explain<'b, 't> {
    body: &'b [u8],
    table: &'t RouteTable,
    walk: Result<Walk<'b, 't>, Option<Pass>>,
    counted: usize,
    lines: u32,
    docs: u32,
}

/// Begins to explain a body.
pub fn explain<'b, 't>(body: &'b [u8], ask: &'b Ask<'b>, table: &'t RouteTable) -> Explain<'b, 't> {
    Explain {
        body,
        table,
        walk: Walk::new(body, ask, table, true).map_err(Some),
        counted: 0,
        lines: 1,
        docs: 0,
    }
}

// === impl DecidedBy ===

impl DecidedBy {
    /// Returns a few words for a table.
    pub const fn as_str(self) -> &'static str {
        match self {
            DecidedBy::Id => "id",
            DecidedBy::Routing => "routing",
            DecidedBy::Nobody => "no id: any node",
            DecidedBy::MintedId => "minted id",
            DecidedBy::RoundRobin => "no id: a shard in turn",
            DecidedBy::Unassigned => "unassigned primary: any node",
        }
    }
}

// === impl Explain ===

impl Iterator for Explain<'_, '_> {
    type Item = Result<Explained, Pass>;

    fn next(&mut self) -> Option<Self::Item> {
        let walk = match &mut self.walk {
            Ok(walk) => walk,
            Err(pass) => return pass.take().map(Err),
        };
        let explained = match walk.next() {
            Ok(Some(doc)) => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let shard = match doc.choice {
                    ShardChoice::Shard(shard) => Some(shard),
                    ShardChoice::Free | ShardChoice::Mint | ShardChoice::Pack | ShardChoice::Route => None,
                };
                let node = shard.and_then(|shard| doc.route.node(shard));
                let by = match (doc.choice, doc.routing) {
                    (ShardChoice::Free, _) => DecidedBy::Nobody,
                    (ShardChoice::Mint, _) => DecidedBy::MintedId,
                    (ShardChoice::Pack | ShardChoice::Route, _) => DecidedBy::RoundRobin,
                    (ShardChoice::Shard(_), _) if node.is_none() => DecidedBy::Unassigned,
                    (ShardChoice::Shard(_), Some(_)) => DecidedBy::Routing,
                    (ShardChoice::Shard(_), None) if doc.id.is_some() => DecidedBy::Id,
                    (ShardChoice::Shard(_), None) => DecidedBy::RoundRobin,
                };
                self.lines += memchr::memchr_iter(b'\n', &self.body[self.counted..doc.start]).count() as u32;
                self.counted = doc.start;
                self.docs += 1;
                Ok(Explained {
                    line: self.lines,
                    op: doc.op,
                    name: self.table.name_of(doc.name).to_owned(),
                    index: doc.route.name.to_string(),
                    id: doc.id.map(text),
                    routing: doc.routing.map(text),
                    shard,
                    node,
                    by,
                })
            }
            Ok(None) if self.docs == 0 => Err(Pass {
                why: Why::Empty,
                line: None,
            }),
            Ok(None) => {
                self.walk = Err(None);
                return None;
            }
            Err(pass) => Err(pass),
        };
        if explained.is_err() {
            self.walk = Err(None);
        }
        Some(explained)
    }
}
