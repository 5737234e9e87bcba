//! The servers' checks of a head before they look at the body: its length, and for bulks media types and
//! parameters. The words are those of OpenSearch 3.8, Elasticsearch 7.10 and Elasticsearch 9.5.

use serde_json::{Value, json};

use super::flavour::Flavour;
use super::http::Head;

/// The longest first line that servers read, in bytes.
pub(super) const LINE_BYTES_MAX: usize = 4_096;

/// Returns the status and body of the answer to a bulk that is refused because of its head.
pub(super) fn refusal(head: &Head, flavour: Flavour) -> Option<(u16, Value)> {
    media_type(head, flavour)
        .or_else(|| parameter(head, flavour))
        .or_else(|| unknown_parameter(head, flavour))
}

/// Returns the media type of the answer.
pub(super) fn answered_type(head: &Head, flavour: Flavour) -> String {
    let vendor = head.accept.as_deref().and_then(compatible_with);
    match vendor {
        _ if !knows_vendor_types(flavour) => "application/json; charset=UTF-8".to_owned(),
        Some(version) => format!("application/vnd.elasticsearch+json;compatible-with={version}"),
        None => "application/json".to_owned(),
    }
}

fn knows_vendor_types(flavour: Flavour) -> bool {
    matches!(flavour, Flavour::Elasticsearch8 | Flavour::Elasticsearch9)
}

/// Returns the status and body of the answer to a request whose head is too long.
pub(super) fn too_long(head: &Head, flavour: Flavour) -> Option<(u16, Value)> {
    let header_bytes_max = match flavour {
        Flavour::Elasticsearch7 | Flavour::OpenSearch1 => 8_192,
        _ => 16_384,
    };
    if head.line_bytes > LINE_BYTES_MAX {
        let reason = "An HTTP line is larger than 4096 bytes.";
        return Some(error(400, "too_long_http_line_exception", reason));
    }
    let reason = format!("HTTP header is larger than {header_bytes_max} bytes.");
    (head.header_bytes > header_bytes_max).then(|| error(400, "too_long_http_header_exception", &reason))
}

fn media_type(head: &Head, flavour: Flavour) -> Option<(u16, Value)> {
    let content_type = head.content_type.as_deref();
    let of = |value: &Option<String>| value.as_deref().and_then(compatible_with);
    let (sent, wanted) = (of(&head.content_type), of(&head.accept));
    if !knows_vendor_types(flavour) {
        let known = content_type.is_some_and(|value| {
            let essence = value.split(';').next().unwrap_or_default().trim();
            ["json", "x-ndjson", "yaml", "cbor", "smile"]
                .iter()
                .any(|known| essence.strip_prefix("application/") == Some(known))
        });
        let named = content_type.unwrap_or_default();
        let words =
            json!({"error": format!("Content-Type header [{named}] is not supported"), "status": 406});
        return (!known).then_some((406, words));
    }
    let own: u32 = match flavour {
        Flavour::Elasticsearch8 => 8,
        _ => 9,
    };
    let known = |version: Option<u32>| version.is_none_or(|version| version == own || version == own - 1);
    if sent == wanted && known(sent) {
        return None;
    }
    Some(error(
        400,
        "media_type_header_exception",
        "Invalid media-type value on headers [Accept, Content-Type]",
    ))
}

/// Returns the version that a vendor type names.
fn compatible_with(media_type: &str) -> Option<u32> {
    let (essence, parameters) = media_type.split_once(';')?;
    essence
        .starts_with("application/vnd.elasticsearch+")
        .then_some(())?;
    parameters.trim().strip_prefix("compatible-with=")?.parse().ok()
}

fn parameter(head: &Head, _: Flavour) -> Option<(u16, Value)> {
    let bad = |reason: String| Some(error(400, "illegal_argument_exception", &reason));
    if let Some(value) = head.parameter("refresh")
        && !["", "true", "false", "wait_for"].contains(&value.as_str())
    {
        return bad(format!("Unknown value for refresh: [{value}]."));
    }
    if let Some(value) = head.parameter("timeout") {
        let units = ["ms", "micros", "nanos", "s", "m", "h", "d"];
        let number = units.iter().find_map(|unit| value.strip_suffix(unit));
        if value != "0" && value != "-1" && number.is_none_or(|number| number.parse::<u32>().is_err()) {
            return bad(format!(
                "failed to parse setting [timeout] with value [{value}] as a time value: unit is missing or unrecognized"
            ));
        }
    }
    if let Some(value) = head.parameter("wait_for_active_shards")
        && value != "all"
        && value.parse::<u32>().is_err()
    {
        return bad(format!("cannot parse ActiveShardCount[{value}]"));
    }
    None
}

fn unknown_parameter(head: &Head, flavour: Flavour) -> Option<(u16, Value)> {
    let elasticsearch = knows_vendor_types(flavour);
    let unknown = head
        .query
        .split('&')
        .map(|pair| pair.split('=').next().unwrap_or_default());
    let unknown = unknown.filter(|name| !name.is_empty()).find(|name| match *name {
        "type" => !flavour.has_types(),
        "require_data_stream" | "list_executed_pipelines" | "include_source_on_error" => !elasticsearch,
        name => !KNOWN.contains(&name),
    })?;
    Some(error(
        400,
        "illegal_argument_exception",
        &format!(
            "request [{}] contains unrecognized parameter: [{unknown}]",
            head.path
        ),
    ))
}

fn error(status: u16, kind: &str, reason: &str) -> (u16, Value) {
    let cause = json!({"type": kind, "reason": reason});
    let error = json!({"root_cause": [cause], "type": kind, "reason": reason});
    (status, json!({"error": error, "status": status}))
}

const KNOWN: [&str; 14] = [
    "refresh",
    "timeout",
    "wait_for_active_shards",
    "routing",
    "pipeline",
    "require_alias",
    "_source",
    "_source_includes",
    "_source_excludes",
    "pretty",
    "human",
    "error_trace",
    "filter_path",
    "format",
];
