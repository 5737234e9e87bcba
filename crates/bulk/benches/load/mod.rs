//! The bodies, tables and replies with which costs are measured.

use std::cell::Cell;
use std::sync::Arc;

use bulk::{
    Dialect, Direct, Directing, Flavour, Formula, IndexRoute, Level, NodeIx, NullId, Plan, RouteTable, Run,
    Version,
};

/// One thing to measure.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) shards: u16,
    /// The number of indices that documents go to, in turn.
    pub(crate) indices: usize,
    pub(crate) source_bytes: usize,
    pub(crate) ids: bool,
    pub(crate) level: Level,
    pub(crate) null_id: NullId,
    pub(crate) direct: Direct,
}

/// Gives runs of 100 documents to the shards in turn.
#[derive(Debug)]
pub(crate) struct InTurn {
    direct: Direct,
    next: Cell<u32>,
}

impl InTurn {
    pub(crate) fn new(direct: Direct) -> Self {
        Self {
            direct,
            next: Cell::new(0),
        }
    }
}

impl Directing for InTurn {
    fn directs(&self, _index: &str) -> Direct {
        self.direct
    }

    fn begin(&self, index: &IndexRoute) -> Option<Run> {
        let turn = self.next.get();
        self.next.set(turn + 1);
        Some(Run {
            shard: turn % index.shards(),
            docs: 100,
            bytes: u64::MAX,
        })
    }

    fn end(&self, _index: &IndexRoute, _shard: u32, _docs: u32, _bytes: u64) {}
}

const PLAIN: Case = Case {
    name: "",
    shards: 3,
    indices: 1,
    source_bytes: 600,
    ids: true,
    level: Level::Node,
    null_id: NullId::Keep,
    direct: Direct::Off,
};

/// The cases.
pub(crate) const CASES: [Case; 12] = [
    Case {
        name: "ids, 3 shards",
        ..PLAIN
    },
    Case {
        name: "ids, 30 shards",
        shards: 30,
        ..PLAIN
    },
    Case {
        name: "ids, 300 shards",
        shards: 300,
        ..PLAIN
    },
    Case {
        name: "ids, 300 shards, by shard",
        shards: 300,
        level: Level::Shard,
        ..PLAIN
    },
    Case {
        name: "ids, 4 indices by turns",
        indices: 4,
        ..PLAIN
    },
    Case {
        name: "ids, 4 indices, to lanes",
        indices: 4,
        level: Level::Lane(16),
        ..PLAIN
    },
    Case {
        name: "ids, 200-byte documents",
        source_bytes: 200,
        ..PLAIN
    },
    Case {
        name: "no ids",
        ids: false,
        ..PLAIN
    },
    Case {
        name: "ids minted",
        ids: false,
        null_id: NullId::Mint,
        ..PLAIN
    },
    Case {
        name: "ids for shards in turn, 6",
        ids: false,
        shards: 6,
        direct: Direct::Mint,
        ..PLAIN
    },
    Case {
        name: "ids for shards in turn, 300",
        ids: false,
        shards: 300,
        direct: Direct::Mint,
        ..PLAIN
    },
    Case {
        name: "routing to shards in turn, 6",
        ids: false,
        shards: 6,
        direct: Direct::Route,
        ..PLAIN
    },
];

/// Makes a body of `docs` documents.
pub(crate) fn body(case: &Case, docs: usize) -> Vec<u8> {
    let mut body = String::new();
    for number in 0..docs {
        let id = if case.ids {
            format!(",\"_id\":\"doc-{:012}\"", number * 7919)
        } else {
            String::new()
        };
        let index = index_of(case, number % case.indices);
        let filler = "x".repeat(case.source_bytes - 14);
        body.push_str(&format!(
            "{{\"index\":{{\"_index\":\"{index}\"{id}}}}}\n{{\"message\":\"{filler}\"}}\n"
        ));
    }
    body.into_bytes()
}

fn index_of(case: &Case, number: usize) -> String {
    match case.indices {
        1 => "nginx-logs".to_owned(),
        _ => format!("nginx-{number}"),
    }
}

/// Makes a cluster of three nodes with the case's indices.
pub(crate) fn table(case: &Case) -> RouteTable {
    let dialect = Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0));
    let primaries: Vec<_> = (0..case.shards).map(|shard| Some(NodeIx(shard % 3))).collect();
    let formula = Formula::Classic {
        routing_num_shards: u32::from(case.shards) * 16,
    };
    let mut table = RouteTable::builder(dialect, 3);
    for number in 0..case.indices {
        let name = index_of(case, number);
        table.index(Arc::new(IndexRoute::new(&name, formula, primaries.clone())));
    }
    table.build()
}

/// Returns the nodes' answers to a plan's parts.
pub(crate) fn replies(plan: &Plan) -> Vec<String> {
    let item = "{\"index\":{\"_index\":\"nginx-logs\",\"_id\":\"doc-000000123456\",\"_version\":1,\"result\":\"created\",\
                \"_shards\":{\"total\":2,\"successful\":2,\"failed\":0},\"_seq_no\":123456,\"_primary_term\":1,\"status\":201}}";
    let parts = plan.parts.iter();
    parts
        .map(|part| {
            let items = vec![item; part.docs as usize].join(",");
            format!("{{\"took\":30,\"errors\":false,\"items\":[{items}]}}")
        })
        .collect()
}
