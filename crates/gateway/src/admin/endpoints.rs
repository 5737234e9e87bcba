//! The endpoints of the admin port, in one table.

use std::sync::Arc;

use axum::routing::{MethodRouter, delete, get, post, put};

use super::{
    AdminState, changes, configs, dead_letters, health, observe, openapi, parked, pipelines, queues,
    switches, trace, upgrade,
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
    reads("/", "The endpoints of this port.", || get(observe::index)),
    reads(
        "/health",
        "The health of each cluster as a colour; 503 while a cluster has no healthy node.",
        || get(health::health),
    ),
    reads(
        "/health/live",
        "Answers 200 as long as the process answers.",
        || get(health::live),
    ),
    reads(
        "/health/ready",
        "Whether this gateway can do what its entries promise: 200, or 503 with the reasons.",
        || get(health::ready),
    ),
    reads(
        "/stats",
        "Counters, entries, queues, memory, and the right of the token that asks.",
        || get(observe::stats),
    ),
    reads("/metrics", "Metrics in Prometheus' text format.", || {
        get(observe::metrics)
    }),
    reads(
        "/elasticsearch",
        "Each cluster: nodes and their health, versions, routes, hit rate.",
        || get(observe::elasticsearch),
    ),
    reads(
        "/heat",
        "Documents and bytes that were sent to each shard, by cluster and index, documents that nodes rejected (429), the time of answers, and the node that the shard's primary is on now. Counting begins with the first question, and ends a minute after the last.",
        || get(observe::heat),
    ),
    reads(
        "/queue/stats",
        "Each queue: accepted documents, and for each consumer group what became of them, lag, lanes, and what they wait for (`waits`).",
        || get(observe::queue_stats),
    ),
    Endpoint {
        method: "GET",
        path: "/changes",
        says: "What has changed since a change: of nodes, clusters, queues, consumer groups, dead letters, switches, the configuration, readiness. With `Accept: text/event-stream` a stream that goes on (server-sent events).",
        parameters: &[
            parameter(
                "since",
                "integer",
                "Only changes after the one with this id; changes from now on by default. A stream prefers the header `Last-Event-ID`.",
            ),
            parameter(
                "wait_s",
                "integer",
                "Waits for a change for this many seconds; 0 by default, 60 at most. Not for a stream.",
            ),
        ],
        body: None,
        route: || get(changes::follow),
    },
    Endpoint {
        method: "GET",
        path: "/trace",
        says: "Where a document is, or what became of a request: for each consumer group pending, parked, dead, delivered, and what its cluster has.",
        parameters: &[
            parameter(
                "index",
                "string",
                "The document's index, an alias or a data stream; with `id`.",
            ),
            parameter("id", "string", "The document's id."),
            parameter(
                "routing",
                "string",
                "The document's routing; not needed if the queue still has a write to the document.",
            ),
            parameter(
                "queue",
                "string",
                "Searches only this queue; with `position`, the queue that the position is in.",
            ),
            parameter(
                "position",
                "integer",
                "The position of a request, from `X-Tidegate-Ack` of its answer: what became of all its documents.",
            ),
            parameter(
                "from",
                "integer",
                "Searches records from this position on: `next` of an answer that is not complete.",
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
        says: "Replaces the running program with the one that is installed now; 409 with the reason if that one cannot be used.",
        parameters: &[],
        body: None,
        route: || post(upgrade::upgrade),
    },
    reads(
        "/openapi.json",
        "This description of the port, for tools (OpenAPI).",
        || get(openapi::describe),
    ),
];

const WITHIN: Parameter = parameter(
    "within_s",
    "integer",
    "Seconds within which it has to be confirmed; 30 by default, 5 to 3600.",
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
        says: "The problems of a text, and what it would change of what is in force.",
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
        says: "Records of a queue: when each was accepted, for which URL, its lanes, and the beginning of its documents.",
        parameters: &[
            NAME,
            parameter("lane", "integer", "Only documents of this lane."),
            parameter(
                "from",
                "integer",
                "Begins with the first record at or after this position: `next` of the previous answer.",
            ),
            parameter(
                "limit",
                "integer",
                "The most records; 20 by default, 1000 at most.",
            ),
            parameter(
                "text_bytes",
                "integer",
                "How many bytes of each record's documents are shown; 4096 by default.",
            ),
        ],
        body: None,
        route: || get(queues::records),
    },
    Endpoint {
        method: "GET",
        path: "/queue/{name}/groups/{group}/offset",
        says: "The position of a consumer group, lane by lane.",
        parameters: &[NAME, OF_GROUP],
        body: None,
        route: || get(queues::offset),
    },
    Endpoint {
        method: "POST",
        path: "/queue/{name}/groups/{group}/offset",
        says: "Moves a consumer group to another position, while its pipeline is stopped.",
        parameters: &[
            NAME,
            OF_GROUP,
            parameter(
                "to",
                "string",
                "`earliest`, `latest`, a position, or a time (RFC 3339).",
            ),
            parameter(
                "lane",
                "integer",
                "Moves only this partition, of a queue in Kafka.",
            ),
            CONFIRM,
        ],
        body: None,
        route: || post(queues::set_offset),
    },
    Endpoint {
        method: "GET",
        path: "/queue/{name}/parked",
        says: "The parked operations of a queue, by what they wait for.",
        parameters: &[
            NAME,
            PARKED_GROUP,
            parameter("limit", "integer", "The most keys of each group; 100 by default."),
        ],
        body: None,
        route: || get(parked::list),
    },
    Endpoint {
        method: "POST",
        path: "/queue/{name}/parked/_release",
        says: "Tries parked operations again at once.",
        parameters: &[NAME, PARKED_GROUP, PARKED_KEY],
        body: None,
        route: || post(parked::release),
    },
    Endpoint {
        method: "POST",
        path: "/queue/{name}/parked/_give_up",
        says: "Turns parked operations into dead letters.",
        parameters: &[NAME, PARKED_GROUP, PARKED_KEY, CONFIRM],
        body: None,
        route: || post(parked::give_up),
    },
    Endpoint {
        method: "DELETE",
        path: "/queue/{name}/groups/{group}",
        says: "Removes a consumer group that the configuration no longer has.",
        parameters: &[NAME, OF_GROUP, CONFIRM],
        body: None,
        route: || delete(queues::remove_group),
    },
];

const PARKED_GROUP: Parameter = parameter("group", "string", "Only of this consumer group.");
const PARKED_KEY: Parameter = parameter(
    "key",
    "string",
    "Only what waits for this `key`, as the list shows it.",
);

const SWITCHES: &[Endpoint] = &[
    reads(
        "/switches",
        "The settings that have been switched at run time.",
        || get(switches::list),
    ),
    Endpoint {
        method: "PUT",
        path: "/switches/{cluster}",
        says: "Switches settings at run time, for a cluster and its indices.",
        parameters: &[parameter("cluster", "string", "The cluster.")],
        body: Some("The settings to switch: see docs/combine.md."),
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
        says: "Starts a pipeline; it runs until it is stopped, or the gateway is.",
        parameters: &[PIPELINE],
        body: None,
        route: || post(pipelines::start),
    },
    Endpoint {
        method: "POST",
        path: "/pipeline/{name}/_stop",
        says: "Lets a pipeline finish its batches under way, and stops it until it is started, or the gateway restarts.",
        parameters: &[
            PIPELINE,
            parameter(
                "wait_s",
                "integer",
                "Answers after this many seconds at the latest; 10 by default, 60 at most.",
            ),
        ],
        body: None,
        route: || post(pipelines::stop),
    },
];

const QUEUE: Parameter = parameter("queue", "string", "The queue; not needed if there is only one.");
const ID: Parameter = parameter("id", "integer", "The dead letter's id, as lists show it.");

const DEAD_LETTERS: &[Endpoint] = &[
    Endpoint {
        method: "GET",
        path: "/dead_letters",
        says: "Dead letters, operations that a cluster has refused for good, with the reason: those that match every parameter.",
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
            BEFORE,
            parameter(
                "from",
                "integer",
                "Where to continue: `next` of the previous answer.",
            ),
            parameter(
                "limit",
                "integer",
                "The most letters; 100 by default, 10000 at most.",
            ),
        ],
        body: None,
        route: || get(dead_letters::list),
    },
    Endpoint {
        method: "GET",
        path: "/dead_letters/_facets",
        says: "How many dead letters match, by reasons that are alike, field, index, type, status and group. `before` of the answer makes an action mean these and no later ones.",
        parameters: &[
            QUEUE, GROUP, INDEX, STATUS, TYPE, REASON, LIKE, FIELD, SINCE, UNTIL, BEFORE,
        ],
        body: None,
        route: || get(dead_letters::facets),
    },
    Endpoint {
        method: "POST",
        path: "/dead_letters/_patch",
        says: "Changes fields in the sources of the matching dead letters: `set`, `remove`, `rename`, `convert`. Other fields stay byte for byte. After 20 s the answer names the letter to go on from, `next`.",
        parameters: &[
            QUEUE,
            IDS,
            GROUP,
            INDEX,
            STATUS,
            TYPE,
            REASON,
            LIKE,
            FIELD,
            SINCE,
            UNTIL,
            ALL,
            parameter(
                "dry_run",
                "boolean",
                "`true`: changes nothing, counts, and shows twenty letters before and after.",
            ),
            parameter(
                "from",
                "integer",
                "Only letters with this id and greater ones: `next` of the previous answer.",
            ),
            BEFORE,
        ],
        body: Some("{\"patch\": [{\"convert\": {\"field\": \"n\", \"to\": \"long\"}}, …]}"),
        route: || post(dead_letters::patch),
    },
    Endpoint {
        method: "GET",
        path: "/dead_letters/{id}",
        says: "One dead letter, with its lines from before the first edit.",
        parameters: &[ID, QUEUE],
        body: None,
        route: || get(dead_letters::show),
    },
    Endpoint {
        method: "PUT",
        path: "/dead_letters/{id}",
        says: "Replaces the action or the source of a dead letter, or both. The lines from before the first edit are kept.",
        parameters: &[ID, QUEUE],
        body: Some("{\"action\": {\"index\": {…}}, \"source\": {…}}"),
        route: || put(dead_letters::edit),
    },
    Endpoint {
        method: "POST",
        path: "/dead_letters/_replay",
        says: "Puts the matching dead letters back into the queue, for the consumer group that gave them up.",
        parameters: &[
            QUEUE, IDS, GROUP, INDEX, STATUS, TYPE, REASON, LIKE, FIELD, SINCE, UNTIL, ALL, DRY_RUN, BEFORE,
        ],
        body: None,
        route: || post(dead_letters::replay),
    },
    Endpoint {
        method: "POST",
        path: "/dead_letters/_purge",
        says: "Deletes the matching dead letters for good.",
        parameters: &[
            QUEUE, IDS, GROUP, INDEX, STATUS, TYPE, REASON, LIKE, FIELD, SINCE, UNTIL, ALL, DRY_RUN, BEFORE,
            CONFIRM,
        ],
        body: None,
        route: || post(dead_letters::purge),
    },
];

const BEFORE: Parameter = parameter(
    "before",
    "integer",
    "Only letters with smaller ids: `before` of the answer that counted them, or that this request goes on with.",
);
const GROUP: Parameter = parameter("group", "string", "Only of this consumer group.");
const INDEX: Parameter = parameter(
    "index",
    "string",
    "Only for this index, as the action or the URL names it.",
);
const STATUS: Parameter = parameter(
    "status",
    "string",
    "Only with this status, as in `400`, `4xx` or `400-404`.",
);
const TYPE: Parameter = parameter("type", "string", "Only with this type of error.");
const REASON: Parameter = parameter(
    "reason",
    "string",
    "Only with this text in the reason, in upper or lower case.",
);
const LIKE: Parameter = parameter(
    "like",
    "string",
    "Only with a reason like this, numbers and quoted text aside: a reason, or a value of `like` in the facets.",
);
const FIELD: Parameter = parameter("field", "string", "Only with a reason that is about this field.");
const SINCE: Parameter = parameter(
    "since",
    "string",
    "Only those given up at this time or later: RFC 3339, or ms since 1970.",
);
const UNTIL: Parameter = parameter(
    "until",
    "string",
    "Only those given up before this time: RFC 3339, or ms since 1970.",
);
const IDS: Parameter = parameter("id", "string", "Only these: ids, separated by commas.");
const ALL: Parameter = parameter(
    "all",
    "boolean",
    "`true`: all dead letters. Needed if no other parameter selects some.",
);
const DRY_RUN: Parameter = parameter("dry_run", "boolean", "`true`: only counts them.");
