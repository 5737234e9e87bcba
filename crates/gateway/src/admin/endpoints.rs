//! The endpoints of the admin port, in one table.

use std::sync::Arc;

use axum::routing::{MethodRouter, delete, get, post, put};

use super::{
    AdminState, configs, dead_letters, health, observe, openapi, parked, pipelines, queues, switches, trace,
    upgrade,
};

/// One method of one path.
pub(super) struct Endpoint {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// The purpose of the endpoint.
    pub(super) says: &'static str,
    pub(super) parameters: &'static [Parameter],
    /// The description of the body, if the endpoint takes one.
    pub(super) body: Option<&'static str>,
    pub(super) route: fn() -> MethodRouter<Arc<AdminState>>,
}

/// A parameter of an endpoint. It belongs to the path if the path names it, otherwise to the query.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    /// A type of JSON Schema.
    pub(super) r#type: &'static str,
    pub(super) says: &'static str,
}

/// Returns all endpoints, in the order in which they are listed.
pub(super) fn all() -> impl Iterator<Item = &'static Endpoint> {
    [OBSERVE, CONFIGS, QUEUES, PIPELINES, DEAD_LETTERS, SWITCHES]
        .into_iter()
        .flatten()
}

const fn reads(
    path: &'static str,
    says: &'static str,
    route: fn() -> MethodRouter<Arc<AdminState>>,
) -> Endpoint {
    Endpoint {
        method: "GET",
        path,
        says,
        parameters: &[],
        body: None,
        route,
    }
}

const fn parameter(name: &'static str, r#type: &'static str, says: &'static str) -> Parameter {
    Parameter { name, r#type, says }
}

const OBSERVE: &[Endpoint] = &[
    reads("/", "What there is.", || get(observe::index)),
    reads(
        "/health",
        "The clusters' health as colours: 503 while one of them has no healthy node.",
        || get(health::health),
    ),
    reads("/health/live", "Whether the process answers: 200.", || {
        get(health::live)
    }),
    reads(
        "/health/ready",
        "Whether this gateway can do what its entries promise: 200 or 503, with the reasons.",
        || get(health::ready),
    ),
    reads("/stats", "Counters, entries, queues, memory.", || {
        get(observe::stats)
    }),
    reads("/metrics", "The same for Prometheus.", || get(observe::metrics)),
    reads(
        "/elasticsearch",
        "Each cluster: nodes and their health, versions, routes, hit rate.",
        || get(observe::elasticsearch),
    ),
    reads(
        "/heat",
        "Documents and bytes that were sent to each shard, by cluster and index, and the node that the shard's primary is on now. Counting begins with the first question, and ends a minute after the last.",
        || get(observe::heat),
    ),
    reads(
        "/queue/stats",
        "Each queue: accepted documents, and for each consumer group what became of them, lag, lanes, and what they wait for (`waits`).",
        || get(observe::queue_stats),
    ),
    Endpoint {
        method: "GET",
        path: "/trace",
        says: "Where a document is, or what became of a request: for each consumer group pending, parked, dead, delivered, and what its cluster has.",
        parameters: &[
            parameter(
                "index",
                "string",
                "Its index, an alias or a data stream; with `id`.",
            ),
            parameter("id", "string", "The document's id."),
            parameter(
                "routing",
                "string",
                "Its routing; that of its writes is known without, where there are some.",
            ),
            parameter(
                "queue",
                "string",
                "In this queue alone; with `position`, the queue of the answer.",
            ),
            parameter(
                "position",
                "integer",
                "A request's position, as its answer told: what became of all of it.",
            ),
            parameter(
                "from",
                "integer",
                "Look through records from here on: `next` of a search that time cut off.",
            ),
        ],
        body: None,
        route: || get(trace::trace),
    },
    reads("/config", "The configuration in force, secrets masked.", || {
        get(observe::config)
    }),
    Endpoint {
        method: "POST",
        path: "/upgrade",
        says: "Puts the program that was installed meanwhile in this one's place; 409 with the reason if it is not fit.",
        parameters: &[],
        body: None,
        route: || post(upgrade::upgrade),
    },
    reads("/openapi.json", "All of this for tools: OpenAPI.", || {
        get(openapi::describe)
    }),
];

const WITHIN: Parameter = parameter(
    "within_s",
    "integer",
    "Seconds in which it has to be confirmed; 30 unless said otherwise, 5 to 3600.",
);
const TEXT: &str = "The text of the file (YAML). Secrets may be masked as `GET /config/_file` shows them.";

const CONFIGS: &[Endpoint] = &[
    reads(
        "/config/_file",
        "The file's text with its secrets masked, its version, whether it can be replaced, and what was applied last.",
        || get(configs::file),
    ),
    reads(
        "/config/_applied",
        "What was applied last: whether it is confirmed, how much time is left, or why it was taken back.",
        || get(configs::applied),
    ),
    Endpoint {
        method: "POST",
        path: "/config/_check",
        says: "The problems of a text, with line, column, key and what to write instead.",
        parameters: &[],
        body: Some(TEXT),
        route: || post(configs::check),
    },
    Endpoint {
        method: "POST",
        path: "/config/_diff",
        says: "The same, and what a text would change of what is in force.",
        parameters: &[],
        body: Some(TEXT),
        route: || post(configs::diff),
    },
    Endpoint {
        method: "POST",
        path: "/config/_apply",
        says: "Writes a text into the file and puts it in force; it is taken back unless it is confirmed in time, or if the gateway is not ready with it.",
        parameters: &[
            parameter("version", "string", "The version that the text is a change of."),
            WITHIN,
        ],
        body: Some(TEXT),
        route: || post(configs::apply),
    },
    Endpoint {
        method: "POST",
        path: "/config/_confirm",
        says: "Keeps what was applied.",
        parameters: &[],
        body: None,
        route: || post(configs::confirm),
    },
    Endpoint {
        method: "POST",
        path: "/config/_revert",
        says: "Takes back what was applied; if it is confirmed already, applies the former text.",
        parameters: &[
            WITHIN,
            parameter(
                "only_unconfirmed",
                "boolean",
                "`true`: only takes back what is not confirmed; 409 if nothing waits for its confirmation.",
            ),
        ],
        body: None,
        route: || post(configs::revert),
    },
];

const NAME: Parameter = parameter("name", "string", "The queue.");
const OF_GROUP: Parameter = parameter("group", "string", "The consumer group.");
const CONFIRM: Parameter = parameter("confirm", "boolean", "Must be `true`.");

const QUEUES: &[Endpoint] = &[
    Endpoint {
        method: "GET",
        path: "/queue/{name}",
        says: "One queue: what is in it, lanes, and for each consumer group its accounts, lag and rates.",
        parameters: &[NAME],
        body: None,
        route: || get(queues::show),
    },
    Endpoint {
        method: "GET",
        path: "/queue/{name}/records",
        says: "Records of a queue: when, where to, which lanes, and the beginning of their documents.",
        parameters: &[
            NAME,
            parameter("lane", "integer", "Only documents of this lane."),
            parameter(
                "from",
                "integer",
                "Begin with the first record at or after this position; `next` of the answer before.",
            ),
            parameter(
                "limit",
                "integer",
                "At most so many; 20 unless said otherwise, 1000 at most.",
            ),
            parameter(
                "text_bytes",
                "integer",
                "Bytes of documents shown of a record; 4096 unless said otherwise.",
            ),
        ],
        body: None,
        route: || get(queues::records),
    },
    Endpoint {
        method: "GET",
        path: "/queue/{name}/groups/{group}/offset",
        says: "Where a consumer group is, lane by lane.",
        parameters: &[NAME, OF_GROUP],
        body: None,
        route: || get(queues::offset),
    },
    Endpoint {
        method: "POST",
        path: "/queue/{name}/groups/{group}/offset",
        says: "Sets a consumer group to another place while nothing delivers for it.",
        parameters: &[
            NAME,
            OF_GROUP,
            parameter(
                "to",
                "string",
                "`earliest`, `latest`, a position, or a time (RFC 3339).",
            ),
            parameter("lane", "integer", "Of a queue in Kafka: this partition alone."),
            CONFIRM,
        ],
        body: None,
        route: || post(queues::set_offset),
    },
    Endpoint {
        method: "GET",
        path: "/queue/{name}/parked",
        says: "What is parked of a queue, by what it waits for.",
        parameters: &[
            NAME,
            PARKED_GROUP,
            parameter(
                "limit",
                "integer",
                "At most so many keys of a group; 100 unless said otherwise.",
            ),
        ],
        body: None,
        route: || get(parked::list),
    },
    Endpoint {
        method: "POST",
        path: "/queue/{name}/parked/_release",
        says: "Tries what is parked at once.",
        parameters: &[NAME, PARKED_GROUP, PARKED_KEY],
        body: None,
        route: || post(parked::release),
    },
    Endpoint {
        method: "POST",
        path: "/queue/{name}/parked/_give_up",
        says: "Makes dead letters of what is parked.",
        parameters: &[NAME, PARKED_GROUP, PARKED_KEY, CONFIRM],
        body: None,
        route: || post(parked::give_up),
    },
    Endpoint {
        method: "DELETE",
        path: "/queue/{name}/groups/{group}",
        says: "Forgets a consumer group that the configuration does not have any more.",
        parameters: &[NAME, OF_GROUP, CONFIRM],
        body: None,
        route: || delete(queues::remove_group),
    },
];

const PARKED_GROUP: Parameter = parameter("group", "string", "Of this consumer group alone.");
const PARKED_KEY: Parameter = parameter(
    "key",
    "string",
    "What waits for this alone: a `key` as the list shows it.",
);

const SWITCHES: &[Endpoint] = &[
    reads("/switches", "What has been switched at run time.", || {
        get(switches::list)
    }),
    Endpoint {
        method: "PUT",
        path: "/switches/{cluster}",
        says: "Switches at run time, for a cluster and its indices.",
        parameters: &[parameter("cluster", "string", "The cluster.")],
        body: Some("What to switch: see docs/combine.md."),
        route: || put(switches::set),
    },
];

const PIPELINE: Parameter = parameter("name", "string", "The pipeline.");

const PIPELINES: &[Endpoint] = &[
    reads(
        "/pipeline",
        "Each pipeline: what it delivers, whether it runs, why it waits.",
        || get(pipelines::list),
    ),
    Endpoint {
        method: "POST",
        path: "/pipeline/{name}/_start",
        says: "Starts a pipeline, until it is stopped or the gateway is.",
        parameters: &[PIPELINE],
        body: None,
        route: || post(pipelines::start),
    },
    Endpoint {
        method: "POST",
        path: "/pipeline/{name}/_stop",
        says: "Lets a pipeline's batches under way finish, and stops it until it is started or the gateway is.",
        parameters: &[
            PIPELINE,
            parameter(
                "wait_s",
                "integer",
                "Answer after so many seconds at the latest; 10 unless said otherwise, 60 at most.",
            ),
        ],
        body: None,
        route: || post(pipelines::stop),
    },
];

const QUEUE: Parameter = parameter(
    "queue",
    "string",
    "The queue; not needed where there is only one.",
);
const ID: Parameter = parameter("id", "integer", "The dead letter's id, as lists show it.");

const DEAD_LETTERS: &[Endpoint] = &[
    Endpoint {
        method: "GET",
        path: "/dead_letters",
        says: "Operations that a cluster would not take, with the reason; those that fit all that is said.",
        parameters: &[
            QUEUE,
            GROUP,
            INDEX,
            STATUS,
            TYPE,
            REASON,
            LIKE,
            FIELD,
            SINCE,
            UNTIL,
            parameter("from", "integer", "Where to go on: `next` of the answer before."),
            parameter(
                "limit",
                "integer",
                "At most so many; 100 unless said otherwise, 10000 at most.",
            ),
        ],
        body: None,
        route: || get(dead_letters::list),
    },
    Endpoint {
        method: "GET",
        path: "/dead_letters/_facets",
        says: "Those that fit, counted: by reasons that are alike, field, index, type, status and group.",
        parameters: &[
            QUEUE, GROUP, INDEX, STATUS, TYPE, REASON, LIKE, FIELD, SINCE, UNTIL,
        ],
        body: None,
        route: || get(dead_letters::facets),
    },
    Endpoint {
        method: "POST",
        path: "/dead_letters/_patch",
        says: "Changes fields in the sources of many: `set`, `remove`, `rename`, `convert`. All else stays byte for byte.",
        parameters: &[
            QUEUE, IDS, GROUP, INDEX, STATUS, TYPE, REASON, LIKE, FIELD, SINCE, UNTIL, ALL, DRY_RUN,
        ],
        body: Some("{\"patch\": [{\"convert\": {\"field\": \"n\", \"to\": \"long\"}}, …]}"),
        route: || post(dead_letters::patch),
    },
    Endpoint {
        method: "GET",
        path: "/dead_letters/{id}",
        says: "One of them, with what it was before it was edited.",
        parameters: &[ID, QUEUE],
        body: None,
        route: || get(dead_letters::show),
    },
    Endpoint {
        method: "PUT",
        path: "/dead_letters/{id}",
        says: "Gives it another action or source; what is not given stays. The first lines are kept beside them.",
        parameters: &[ID, QUEUE],
        body: Some("{\"action\": {\"index\": {…}}, \"source\": {…}}"),
        route: || put(dead_letters::edit),
    },
    Endpoint {
        method: "POST",
        path: "/dead_letters/_replay",
        says: "Puts dead letters back into the queue, for the consumer group that had given them up.",
        parameters: &[
            QUEUE, IDS, GROUP, INDEX, STATUS, TYPE, REASON, LIKE, FIELD, SINCE, UNTIL, ALL, DRY_RUN,
        ],
        body: None,
        route: || post(dead_letters::replay),
    },
    Endpoint {
        method: "POST",
        path: "/dead_letters/_purge",
        says: "Throws dead letters away for good.",
        parameters: &[
            QUEUE, IDS, GROUP, INDEX, STATUS, TYPE, REASON, LIKE, FIELD, SINCE, UNTIL, ALL, DRY_RUN, CONFIRM,
        ],
        body: None,
        route: || post(dead_letters::purge),
    },
];

const GROUP: Parameter = parameter("group", "string", "Of this consumer group.");
const INDEX: Parameter = parameter(
    "index",
    "string",
    "For this index, as the action or the URL names it.",
);
const STATUS: Parameter = parameter(
    "status",
    "string",
    "With such a status: `400`, `4xx` or `400-404`.",
);
const TYPE: Parameter = parameter("type", "string", "With this type of error.");
const REASON: Parameter = parameter(
    "reason",
    "string",
    "With this text in the reason; case doesn't matter.",
);
const LIKE: Parameter = parameter(
    "like",
    "string",
    "With a reason like this, numbers and quoted text aside: a reason, or a value of `like` in the facets.",
);
const FIELD: Parameter = parameter("field", "string", "With a reason that is about this field.");
const SINCE: Parameter = parameter(
    "since",
    "string",
    "Given up at this time or later: RFC 3339, or ms since 1970.",
);
const UNTIL: Parameter = parameter(
    "until",
    "string",
    "Given up before this time: RFC 3339, or ms since 1970.",
);
const IDS: Parameter = parameter("id", "string", "These: ids with commas between.");
const ALL: Parameter = parameter(
    "all",
    "boolean",
    "`true`: all of them. Needed where nothing else says which.",
);
const DRY_RUN: Parameter = parameter("dry_run", "boolean", "`true`: only counts them.");
