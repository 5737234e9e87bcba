//! Words that users may know from elsewhere and that would have no effect here, although an effect is
//! expected: using them is an error that says so. (Words that can be ignored without harm are in the file's
//! types, with `x-ignored`.)

/// Returns why `key` is refused in the section that the file type `section` describes, or `None` if the key
/// is not a known word.
pub(super) fn refused(section: &str, key: &str) -> Option<&'static str> {
    let why = match (section, key) {
        ("FilterFile", key) if FILTERS.contains(&key) => {
            "Tidegate has no such filter; its filters are `bulk_reshuffle`, `rewrite_to_bulk` and `elasticsearch`"
        }
        ("ProcessorFile", key) if PROCESSORS.contains(&key) => {
            "Tidegate has no such processor, and does not ignore it, because its effect would be missing; the only processor is `bulk_indexing`"
        }
        ("EntryFile" | "RouterFile" | "ConfigFile", "ip_access_control")
        | ("RouterFile", "permitted_client_ip_list" | "denied_client_ip_list" | "ip_access_rules") => {
            "clients are not told apart by address here, and ignoring this would let in whom it keeps out; use a firewall"
        }
        ("ConfigFile", "http_client" | "keystore" | "web" | "redis" | "queue" | "s3") => {
            "Tidegate has no such section"
        }
        ("BulkIndexingFile", "waiting_after") => {
            "queues are delivered independently of one another here, and ignoring this would deliver what is to wait"
        }
        ("QueueSelectorFile", "ids") => {
            "queues have no ids here, and ignoring this would deliver others too: write `keys`"
        }
        ("BulkFile", "retry_rules") => "write `response_handle.retry_rules`",
        ("ConfigFile", "kafka_queue") => {
            "queues in Kafka are described where they are filled: `queue` of `bulk_reshuffle`, with `type: kafka`"
        }
        ("QueueFile", "ssl" | "security_protocol") => "write `tls` and `sasl`",
        ("QueueFile", "username" | "password" | "basic_auth") => {
            "an account at Kafka's brokers is written as `sasl: {mechanism: …, username: …, password: …}`"
        }
        ("ElasticsearchFile", "credential_id") => "accounts are written as `basic_auth` or `api_key`",
        ("ElasticsearchFile", "http_proxy") => "clusters are reached directly, without a proxy",
        ("ConditionFile", "network" | "cluster_available" | "consumer_has_lag" | "queue_has_lag") => {
            "Tidegate has no such condition"
        }
        _ => return None,
    };
    Some(why)
}

/// Returns why a choice that users may know from elsewhere is missing; `known` has the choices that exist.
pub(super) fn missing_choice(choice: &str, known: &[&str]) -> Option<&'static str> {
    if !known.contains(&"SCRAM-SHA-512") {
        return None;
    }
    match choice {
        "GSSAPI" => Some(
            "Kerberos needs Cyrus SASL (`libsasl2`) and `kinit` beside the program, which brings no libraries along; give the brokers a listener with SCRAM, or with certificates (`tls.cert_file`)",
        ),
        "OAUTHBEARER" => Some(
            "the Kafka client fetches tokens from an identity provider only with libcurl, which this build does not have; give the brokers a listener with SCRAM, or with certificates (`tls.cert_file`)",
        ),
        _ => None,
    }
}

const FILTERS: &[&str] = &[
    "auto_generate_doc_id",
    "basic_auth",
    "bulk_request_mutate",
    "bulk_request_resort",
    "bulk_request_throttle",
    "bulk_response_process",
    "cache",
    "clone",
    "context_filter",
    "context_limiter",
    "context_parse",
    "context_regex_replace",
    "context_switch",
    "date_range_precision_tuning",
    "disk_enqueue",
    "drop",
    "dump",
    "echo",
    "elasticsearch_health_check",
    "fast_bulk_indexing",
    "flow",
    "get_cache",
    "hash_mod",
    "http",
    "index_diff",
    "javascript",
    "ldap_auth",
    "logging",
    "queue",
    "ratio",
    "redirect",
    "redis_pubsub",
    "request_api_key_filter",
    "request_body_json_del",
    "request_body_json_set",
    "request_body_limiter",
    "request_body_regex_replace",
    "request_body_truncate",
    "request_client_ip_filter",
    "request_client_ip_limiter",
    "request_header_filter",
    "request_host_filter",
    "request_host_limiter",
    "request_method_filter",
    "request_path_filter",
    "request_path_limiter",
    "request_reshuffle",
    "request_user_filter",
    "request_user_limiter",
    "response_body_regex_replace",
    "response_header_filter",
    "response_header_format",
    "response_status_filter",
    "retry_limiter",
    "sample",
    "search_pagination",
    "security",
    "set_basic_auth",
    "set_cache",
    "set_context",
    "set_hostname",
    "set_request_body",
    "set_request_header",
    "set_request_query_args",
    "set_response",
    "set_response_header",
    "sleep",
    "sliding_window_counter",
    "smart_router",
    "switch",
    "throttle",
    "translog",
    "truncate_doc",
    "url_filter",
    "wildcard_domain",
];

const PROCESSORS: &[&str] = &[
    "consumer",
    "dag",
    "dump_hash",
    "echo",
    "es_scroll",
    "fast_bulk_indexing",
    "flow_runner",
    "hash_diff",
    "http_replicator",
    "index_diff",
    "indexing_merge",
    "json_indexing",
    "kafka_consumer",
    "logs_processor",
    "merge_to_bulk",
    "metrics",
    "queue_consumer",
    "replay",
    "replication_correlation",
];
