//! Items for operations that are accepted and not yet executed.

use crate::action::Op;
use crate::failed::{minted_id, write_string};
use crate::ids::ID_MINT;
use crate::walk::Walk;
use crate::{Ask, ID_LENGTH, Plan, RouteTable};

/// The ids that were minted for one body: all that one mint made from `first` to `last`, and no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Minted {
    /// The first.
    pub first: [u8; ID_LENGTH],
    /// The last.
    pub last: [u8; ID_LENGTH],
}

/// Appends the items of an answer that is given before anything is executed, with commas between: for each operation its
/// action, the concrete index, its id (a minted one too), `result` and `status`. An `index` is reported as created; the
/// version, the sequence number and the shards, which nobody knows yet, are left out.
///
/// `body`, `ask` and `table` are those that `plan` was made of. Returns which ids were minted.
pub fn acknowledge(
    plan: &Plan,
    body: &[u8],
    ask: &Ask<'_>,
    table: &RouteTable,
    out: &mut Vec<u8>,
) -> Option<Minted> {
    let typed = table.dialect().items_have_type();
    let mut minted: Option<Minted> = None;
    let mut arena_at = 0;
    let mut walk = Walk::new(body, ask, table, true).ok()?;
    let start = out.len();
    while let Ok(Some(doc)) = walk.next() {
        let id = if doc.aim.mints() {
            let id = minted_id(plan, &mut arena_at, doc.action.place.form);
            if let Ok(id) = <[u8; ID_LENGTH]>::try_from(id) {
                let first = minted.map_or(id, |minted| minted.first);
                minted = Some(Minted { first, last: id });
            }
            Some(id)
        } else {
            doc.action.id
        };
        if out.len() > start {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"");
        out.extend_from_slice(doc.action.op.as_str().as_bytes());
        out.extend_from_slice(b"\":{\"_index\":");
        write_string(out, &doc.route.name);
        if typed {
            out.extend_from_slice(b",\"_type\":\"_doc\"");
        }
        out.extend_from_slice(b",\"_id\":");
        match id {
            Some(id) => write_string(out, &String::from_utf8_lossy(id)),
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(match doc.action.op {
            Op::Index | Op::Create => b",\"result\":\"created\",\"status\":201}}".as_slice(),
            Op::Update => b",\"result\":\"updated\",\"status\":200}}",
            Op::Delete => b",\"result\":\"deleted\",\"status\":200}}",
        });
    }
    minted
}

// === impl Minted ===

impl Minted {
    /// Whether this id is one of them.
    pub fn has(&self, id: &[u8]) -> bool {
        let mint = |id: &[u8]| id.get(ID_MINT).map(<[u8]>::to_vec);
        id.len() == ID_LENGTH
            && mint(id) == mint(&self.first)
            && self.first.as_slice() <= id
            && id <= self.last.as_slice()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        Dialect, Flavour, Formula, Gather, IdMint, IndexRoute, Level, NodeIx, NullId, Reply, Scratch,
        Verdict, Version,
    };

    fn table() -> RouteTable {
        let mut table = RouteTable::builder(Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0)), 2);
        let formula = Formula::Classic {
            routing_num_shards: 1024,
        };
        // One primary is nowhere: its documents have a lane all the same.
        table.index(Arc::new(IndexRoute::new(
            "logs",
            formula,
            [Some(NodeIx(0)), None, Some(NodeIx(1)), Some(NodeIx(0))],
        )));
        table.build()
    }

    #[test]
    fn every_operation_is_acknowledged_in_order_with_the_id_that_its_lane_holds() {
        let table = table();
        let body = b"{\"index\":{}}\n{}\n{\"create\":{\"routing\":\"r\"}}\n{}\n{\"update\":{\"_id\":\"u\"}}\n{\"doc\":{}}\n{\"delete\":{\"_id\":\"d\"}}\n";
        let ask = Ask {
            default_index: Some("logs"),
            level: Level::Lane(5),
            null_id: NullId::Always,
            ..Ask::default()
        };
        let mut scratch = Scratch::default();
        let Verdict::Plan(plan) = crate::plan(body, &ask, &table, &mut IdMint::new(7), &mut scratch) else {
            panic!("plain")
        };
        let mut items = Vec::new();
        let minted = acknowledge(&plan, body, &ask, &table, &mut items).unwrap();
        let answer = [
            b"{\"took\":0,\"errors\":false,\"items\":[",
            items.as_slice(),
            b"]}",
        ]
        .concat();
        let reply = Reply::split(&answer, 4).unwrap();
        let statuses: Vec<_> = (0..4).map(|item| reply.status(item)).collect();
        assert_eq!(statuses, [Some(201), Some(201), Some(200), Some(200)]);

        let mut logged = String::new();
        for part in &plan.parts {
            assert!(part.lane < 5);
            let (mut gather, mut chunk) = (Gather::default(), Vec::new());
            while gather.next(&plan, part, body, &mut chunk, 1 << 20) > 0 {}
            logged.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        for item in 0..2 {
            let item: serde_json::Value = serde_json::from_slice(reply.item(item)).unwrap();
            let id = item.as_object().unwrap().values().next().unwrap()["_id"]
                .as_str()
                .unwrap();
            assert!(minted.has(id.as_bytes()));
            assert!(logged.contains(&format!("\"_id\":\"{id}\"")), "{id} in {logged}");
        }
        assert!(!minted.has(b"u") && !minted.has(&[b'-'; ID_LENGTH]));
    }

    #[test]
    fn a_shard_has_one_lane_wherever_its_primary_is() {
        let lanes = |primaries: [Option<NodeIx>; 4]| {
            let mut table = RouteTable::builder(Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0)), 2);
            let formula = Formula::Classic {
                routing_num_shards: 1024,
            };
            table.index(Arc::new(IndexRoute::new("logs", formula, primaries)));
            let table = table.build();
            let ask = Ask {
                default_index: Some("logs"),
                level: Level::Lane(3),
                null_id: NullId::Always,
                ..Ask::default()
            };
            let lane = |id: u32| {
                let body = format!("{{\"delete\":{{\"_id\":\"{id}\"}}}}\n");
                let verdict = crate::plan(
                    body.as_bytes(),
                    &ask,
                    &table,
                    &mut IdMint::new(7),
                    &mut Scratch::default(),
                );
                let Verdict::Plan(plan) = verdict else {
                    panic!("plain")
                };
                plan.parts[0].lane
            };
            (0..50).map(lane).collect::<Vec<_>>()
        };
        let (here, there) = (lanes([Some(NodeIx(0)); 4]), lanes([None; 4]));
        assert_eq!(here, there);
        assert!((0..3).all(|lane| here.contains(&lane)), "{here:?}");
    }
}
