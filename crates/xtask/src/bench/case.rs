//! What is measured.

/// One way to load a proxy.
#[derive(Debug, Clone, serde::Serialize)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// Documents a request.
    pub(super) bulk: u64,
    pub(super) shards: u32,
    pub(super) ids: bool,
    /// 200-byte documents in place of access-log lines.
    pub(super) short: bool,
    pub(super) gzip: bool,
    /// No id twice.
    pub(super) fresh_ids: bool,
    /// TLS to the proxy and from it to the nodes.
    pub(super) tls: bool,
    pub(super) connections: usize,
    /// Parts of different requests gather, as they do by default.
    pub(super) combine: bool,
    /// The most that a million documents may cost, in CPU seconds; `None` where nothing is promised.
    pub(super) target: Option<f64>,
    /// Whether it may not cost more than HAProxy in the same run.
    pub(super) below_haproxy: bool,
}

/// The cases that the targets are about.
pub(super) fn main_table() -> Vec<Case> {
    let ids_3 = Case {
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
        below_haproxy: true,
    };
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
            below_haproxy: false,
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
            below_haproxy: false,
            ..ids_3.clone()
        },
        Case {
            name: "tls",
            about: "5,000 lines a request, TLS to the proxy and to the nodes",
            tls: true,
            target: None,
            below_haproxy: false,
            ..ids_3
        },
    ]
}

/// One thing varied at a time: the cost of a document should stay the same.
pub(super) fn flat_table() -> Vec<Case> {
    let base = Case {
        target: None,
        below_haproxy: false,
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

// === impl Case ===

impl Case {
    /// So many different bodies that they don't stay in a cache, and no more than 100 MB or so.
    pub(super) fn bodies(&self) -> u64 {
        (20_000 / self.bulk).clamp(1, 64)
    }

    /// A round's documents in whole requests, each connection sending several.
    pub(super) fn docs(&self, wanted: u64) -> u64 {
        let requests = wanted.div_ceil(self.bulk).max(2 * self.connections as u64);
        requests * self.bulk
    }
}
