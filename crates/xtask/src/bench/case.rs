//! The cases that the bench measures.

/// One way to load a proxy.
#[derive(Debug, Clone, serde::Serialize)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// Documents per request.
    pub(super) bulk: u64,
    pub(super) shards: u32,
    pub(super) ids: bool,
    /// Use 200-byte documents in place of access-log lines.
    pub(super) short: bool,
    pub(super) gzip: bool,
    /// Use no id twice.
    pub(super) fresh_ids: bool,
    /// Use TLS to the proxy, and from the proxy to the nodes.
    pub(super) tls: bool,
    pub(super) connections: usize,
    /// Let parts of different requests gather, as they do by default.
    pub(super) combine: bool,
    /// The most that a million documents may cost, in CPU seconds; `None` if there is no target.
    pub(super) target: Option<f64>,
    /// The most that the case may cost in the same run, as a fraction of HAProxy's cost; `None` if there is
    /// no target.
    pub(super) of_haproxy: Option<f64>,
    /// The most that the case may cost, as a fraction of the cost of another case of the run, which is named.
    pub(super) of_case: Option<(&'static str, f64)>,
    /// The style of the bodies, by the load source's name for it.
    pub(super) style: &'static str,
    /// Number of indices that each request writes to.
    pub(super) indices: u32,
}

/// The cases that have targets.
pub(super) fn main_table() -> Vec<Case> {
    let ids_3 = ids_3();
    vec![
        ids_3.clone(),
        Case {
            name: "ids-3-alone",
            about: "the same, and no request's parts wait for another's (combine off)",
            combine: false,
            ..ids_3.clone()
        },
        Case {
            name: "ids-30",
            about: "ids-3 with 30 shards",
            shards: 30,
            ..ids_3.clone()
        },
        Case {
            name: "no-ids",
            about: "ids-3 without ids",
            ids: false,
            ..ids_3.clone()
        },
        Case {
            name: "bulk-100",
            about: "100 access-log lines a request, with ids, 3 shards, 16 connections",
            bulk: 100,
            connections: 16,
            target: Some(1.0),
            of_haproxy: None,
            ..ids_3.clone()
        },
        Case {
            name: "short",
            about: "5,000 documents of 200 bytes a request, with ids",
            short: true,
            ..ids_3.clone()
        },
        Case {
            name: "gzip",
            about: "5,000 lines a request, gzipped by the client",
            gzip: true,
            target: None,
            of_haproxy: None,
            ..ids_3.clone()
        },
        Case {
            name: "tls",
            about: "5,000 lines a request, TLS to the proxy and to the nodes",
            tls: true,
            target: None,
            of_haproxy: None,
            ..ids_3
        },
    ]
}

/// The case that the others vary.
fn ids_3() -> Case {
    Case {
        name: "ids-3",
        about: "5,000 access-log lines a request, with ids, 3 shards",
        bulk: 5_000,
        shards: 3,
        ids: true,
        short: false,
        gzip: false,
        fresh_ids: false,
        tls: false,
        connections: 4,
        combine: true,
        target: Some(0.5),
        of_haproxy: Some(1.0),
        of_case: None,
        style: "compact",
        indices: 1,
    }
}

/// Cases that vary one thing at a time: the cost of a document should stay the same.
pub(super) fn flat_table() -> Vec<Case> {
    let base = Case {
        target: None,
        of_haproxy: None,
        ..main_table().swap_remove(0)
    };
    let many = Case {
        bulk: 500,
        ..base.clone()
    };
    vec![
        Case {
            name: "flat-shards-3",
            about: "5,000 lines, 3 shards",
            ..base.clone()
        },
        Case {
            name: "flat-shards-300",
            about: "5,000 lines, 300 shards",
            shards: 300,
            ..base.clone()
        },
        Case {
            name: "flat-connections-1",
            about: "500 lines, 1 connection",
            connections: 1,
            ..many.clone()
        },
        Case {
            name: "flat-connections-32",
            about: "500 lines, 32 connections",
            connections: 32,
            ..many.clone()
        },
        Case {
            name: "flat-connections-1000",
            about: "500 lines, 1,000 connections",
            connections: 1_000,
            ..many
        },
        Case {
            name: "flat-body-100k",
            about: "bodies of 100 KB (150 lines), 4 connections",
            bulk: 150,
            ..base.clone()
        },
        Case {
            name: "flat-body-3m",
            about: "bodies of 3.4 MB (5,000 lines), 4 connections",
            ..base.clone()
        },
        Case {
            name: "flat-body-90m",
            about: "bodies of 90 MB (134,000 lines), 1 connection",
            bulk: 134_000,
            connections: 1,
            ..base
        },
    ]
}

/// Cases as users of load files and shippers send them: several indices, several styles of JSON.
pub(super) fn guides_table() -> Vec<Case> {
    let combined = Case {
        name: "guides",
        about: "4 indices of 6 shards, 5,000 access-log lines a request with ids, `{ \"create\" : { …` with spaces",
        shards: 6,
        indices: 4,
        style: "spaced",
        connections: 8,
        target: None,
        of_haproxy: Some(1.1),
        ..main_table().swap_remove(0)
    };
    let alone = Case {
        name: "guides-alone",
        about: "guides, and no request's parts wait for another's (combine off)",
        combine: false,
        of_haproxy: Some(0.9),
        ..combined.clone()
    };
    let mut cases = vec![
        combined.clone(),
        alone.clone(),
        Case {
            name: "guides-30",
            about: "guides with 30 shards an index",
            shards: 30,
            ..combined.clone()
        },
        Case {
            name: "guides-30-alone",
            about: "guides-alone with 30 shards an index",
            shards: 30,
            ..alone.clone()
        },
        Case {
            name: "guides-short-alone",
            about: "guides-alone with documents of 200 bytes",
            short: true,
            of_haproxy: Some(1.0),
            ..alone.clone()
        },
        Case {
            name: "guides-100-alone",
            about: "guides-alone with 100 lines a request",
            bulk: 100,
            of_haproxy: Some(1.0),
            ..alone.clone()
        },
    ];
    cases.extend(small(&combined));
    cases.extend(connections(&combined));
    cases.extend(styles(&combined, &alone));
    cases
}

/// Small bulks. What HAProxy takes for a bulk of 33 documents beside one of 100 says what two exchanges cost,
/// whatever is in them: Tidegate needs two more of them for a bulk of 100 that goes to three nodes.
fn small(combined: &Case) -> [Case; 2] {
    let together = Case {
        name: "guides-100",
        about: "guides with 100 lines a request",
        bulk: 100,
        of_haproxy: None,
        ..combined.clone()
    };
    let third = Case {
        name: "guides-33-alone",
        about: "guides-alone with 33 lines a request: a third of guides-100-alone",
        bulk: 33,
        combine: false,
        ..together.clone()
    };
    [together, third]
}

/// Few and many connections: the target limits how much more the second case may cost than the first.
fn connections(combined: &Case) -> [Case; 2] {
    let few = Case {
        name: "guides-connections-32",
        about: "guides with 500 lines a request, 32 connections",
        bulk: 500,
        connections: 32,
        of_haproxy: None,
        ..combined.clone()
    };
    let many = Case {
        name: "guides-connections-1000",
        about: "guides with 500 lines a request, 1,000 connections",
        connections: 1_000,
        of_case: Some((few.name, 1.3)),
        ..few.clone()
    };
    [few, many]
}

/// The styles of JSON that people and programs write.
fn styles(combined: &Case, alone: &Case) -> [Case; 5] {
    [
        Case {
            name: "typed",
            about: "guides with `\"_type\":\"_doc\"` in each action, on Elasticsearch 7",
            style: "typed",
            ..combined.clone()
        },
        Case {
            name: "typed-alone",
            about: "guides-alone with `\"_type\":\"_doc\"` in each action, on Elasticsearch 7",
            style: "typed",
            ..alone.clone()
        },
        Case {
            name: "python",
            about: "guides with a space after each colon and comma, sources too, as Python writes them",
            style: "python",
            ..combined.clone()
        },
        Case {
            name: "python-alone",
            about: "guides-alone with a space after each colon and comma, sources too, as Python writes them",
            style: "python",
            ..alone.clone()
        },
        Case {
            name: "logstash-alone",
            about: "guides-alone with `_id` first and `\"routing\":null`, as Logstash writes them",
            style: "logstash",
            ..alone.clone()
        },
    ]
}

// === impl Case ===

impl Case {
    /// The names of the indices that the load writes to.
    pub(super) fn index_names(&self) -> Vec<String> {
        match self.indices {
            1 => vec!["bench".to_owned()],
            many => (0..many).map(|at| format!("bench-{at}")).collect(),
        }
    }

    /// The kind of server that takes such bodies.
    pub(super) fn flavour(&self) -> &'static str {
        match self.style {
            "typed" => "elasticsearch-7",
            _ => "opensearch-3",
        }
    }

    /// Whether the operations are creates, as those of load files and log shippers are.
    pub(super) fn creates(&self) -> bool {
        self.style != "compact"
    }

    /// The number of different bodies: enough that they don't stay in a cache, and no more than about 100 MB.
    pub(super) fn bodies(&self) -> u64 {
        (20_000 / self.bulk).clamp(1, 64)
    }

    /// A round's documents, rounded to whole requests, with several requests for each connection.
    pub(super) fn docs(&self, wanted: u64) -> u64 {
        let requests = wanted.div_ceil(self.bulk).max(2 * self.connections as u64);
        requests * self.bulk
    }
}
