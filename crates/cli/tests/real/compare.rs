//! Compares two answers to a bulk, or two index sets.
//!
//! Answers are compared as text: clients must get the nodes' own bytes. Left out is only what differs between
//! any two runs: `took`, the unique ids of indices, ids that a node made up, `_seq_no` in the indices of such
//! documents (their shard is random), and how many copies of a shard there were.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::bulks::replaced;
use super::http::{Answer, Http, Request};
use super::server::{Engine, Server};
use super::world::{self, AUTO, MOVED};

/// The headers that a client may look at.
const HEADERS: [&str; 6] = [
    "content-type",
    "x-elastic-product",
    "warning",
    "x-opaque-id",
    "www-authenticate",
    "deprecation",
];

#[derive(Deserialize)]
struct Bulk<'a> {
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

/// Returns what differs between two answers, with `other` reworded to `direct`'s prefix; `None` if they
/// agree.
pub(crate) fn answers_differ(
    direct: &Answer,
    other: &Answer,
    direct_prefix: &str,
    other_prefix: &str,
) -> Option<String> {
    if direct.status != other.status {
        return Some(format!(
            "status {} and {}\n direct: {}\n other:  {}",
            direct.status,
            other.status,
            direct.text(),
            other.text()
        ));
    }
    for name in HEADERS {
        let (a, b) = (
            direct.header(name),
            other.header(name).map(|v| v.replace(other_prefix, direct_prefix)),
        );
        // A node of OpenSearch reports each deprecation only once (`DeprecationLogger`), and the two sides
        // use different nodes.
        let said_once = |said: &str| name == "warning" && said.starts_with("299 OpenSearch-");
        let excused = match (&a, &b) {
            (Some(said), None) => said_once(said),
            (None, Some(said)) => said_once(said),
            _ => false,
        };
        if a != b && !excused {
            return Some(format!("header {name}: {a:?} and {b:?}"));
        }
    }
    let reworded = replaced(&other.body, other_prefix.as_bytes(), direct_prefix.as_bytes());
    let (a, b) = (
        masked(&direct.body, direct_prefix),
        masked(&reworded, direct_prefix),
    );
    // With `filter_path` the answer does not show whether the bulk went through ingest.
    let ingested = a.contains("\"ingest_took\"") || !a.contains("\"took\"");
    if a == b || (ingested && ordered(&a).is_some_and(|items| ordered(&b) == Some(items))) {
        return None;
    }
    Some(first_difference(&a, &b))
}

/// Returns the items in a fixed order. OpenSearch runs a bulk's documents through ingest in groups by
/// pipeline, in the order of a hash of the names. It answers those that fail there in that order, not in the
/// client's.
fn ordered(body: &str) -> Option<Vec<&str>> {
    let mut items: Vec<&str> = serde_json::from_str::<Bulk<'_>>(body)
        .ok()?
        .items
        .iter()
        .map(|item| item.get())
        .collect();
    items.sort_unstable();
    Some(items)
}

/// Returns the body's text without what differs between any two runs.
fn masked(body: &[u8], prefix: &str) -> String {
    let text = String::from_utf8_lossy(body).into_owned();
    if text.starts_with("---") {
        // YAML passes through whole; comparing its shape and statuses is enough.
        let kept = text
            .lines()
            .filter(|line| line.trim_start().starts_with(['-', 's', 'r']));
        return kept
            .filter(|line| line.contains("status:") || line.starts_with('-'))
            .collect::<Vec<_>>()
            .join("\n");
    }
    let free: Vec<String> = [AUTO, MOVED]
        .iter()
        .flat_map(|suffix| [":", " : "].map(|colon| format!("\"_index\"{colon}\"{prefix}{suffix}\"")))
        .collect();
    let mut out = text.clone();
    if let Ok(bulk) = serde_json::from_str::<Bulk<'_>>(&text) {
        for item in bulk.items {
            let item = item.get();
            if free.iter().any(|f| item.contains(f.as_str())) {
                let without = masked_value(item, "\"_seq_no\":", |c| c.is_ascii_digit());
                let without = masked_value(&without, "\"_seq_no\" : ", |c| c.is_ascii_digit());
                if without != item {
                    out = out.replace(item, &without);
                }
            }
        }
    }
    for key in [
        "\"took\":",
        "\"ingest_took\":",
        "\"took\" : ",
        "\"ingest_took\" : ",
        "\ntook: ",
        "\ningest_took: ",
    ] {
        out = masked_value(&out, key, |c| c.is_ascii_digit());
    }
    // A copy of a shard that is being moved counts twice, which happens right after an index is created.
    out = masked_value(&out, "\"_shards\":{\"total\":", |c| c.is_ascii_digit());
    for key in ["\"index_uuid\":\"", "\"index_uuid\" : \""] {
        out = masked_value(&out, key, |c| c != '"');
    }
    out = as_from_afar(&without_quoted_sources(&out));
    // The words of a set, in the order of a hash that each Java process salts
    // (`ImmutableCollections.SALT32L`).
    out = out.replace("[Accept, Content-Type]", "[Content-Type, Accept]");
    masked_made_up_ids(&out)
}

/// Adapts an answer to one of several clients that write to the same indices: the sequence numbers of its
/// documents depend on the others.
pub(crate) fn among_others(mut answer: Answer) -> Answer {
    let mut text = answer.text();
    for key in ["\"_seq_no\":", "\"_seq_no\" : ", "_seq_no: "] {
        text = masked_value(&text, key, |c| c.is_ascii_digit());
    }
    answer.body = text.into_bytes();
    answer
}

/// Replaces what follows each `key` for as long as `part` holds.
fn masked_value(text: &str, key: &str, part: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(key) {
        let start = at + key.len();
        out.push_str(&rest[..start]);
        out.push('0'); // still a number or a string's text: the result must be JSON
        rest = rest[start..].trim_start_matches(&part);
    }
    out.push_str(rest);
    out
}

/// Removes quoted input: old servers quote what their parser was reading, the whole network buffer and the
/// request's head included.
fn without_quoted_sources(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("[Source: (") {
        out.push_str(&rest[..at]);
        rest = rest[at..].split_once("; line: ").map_or("", |(_, after)| after);
        if text.starts_with("---") {
            return out; // YAML folds the quotation
        }
    }
    out.push_str(rest);
    out
}

/// The name of a cause at the node where it arose, and at the others.
const CAUSES_FROM_AFAR: [(&str, &str); 6] = [
    ("\"x_content_parse_exception\"", "\"illegal_argument_exception\""),
    ("\"x_content_e_o_f_exception\"", "\"illegal_argument_exception\""),
    ("\"json_parse_exception\"", "\"i_o_exception\""),
    ("\"unexpected_end_of_input_exception\"", "\"i_o_exception\""),
    ("\"json_e_o_f_exception\"", "\"i_o_exception\""),
    ("\"stream_read_exception\"", "\"i_o_exception\""),
];

/// Normalises causes. A cause that crossed from one node to another repeats its type in its reason, and a
/// broken document becomes an I/O error; whether a cause crossed depends on the node that was asked.
fn as_from_afar(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("\"reason\"") {
        let after_key = at + "\"reason\"".len();
        let start = after_key + rest[after_key..].find('"').map_or(0, |n| n + 1);
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let word = rest
            .bytes()
            .take_while(|b| b.is_ascii_lowercase() || *b == b'_')
            .count();
        if rest[..word].ends_with("_exception") && rest[word..].starts_with(": ") {
            rest = &rest[word + 2..];
        }
    }
    out.push_str(rest);
    for (local, remote) in CAUSES_FROM_AFAR {
        out = out.replace(local, remote);
    }
    out
}

/// Masks ids that a node made, which have 20 characters of base64url; the random bulks' own ids never do.
fn masked_made_up_ids(text: &str) -> String {
    let made_up = |word: &str| {
        word.len() == 20
            && word
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    let mut text = text.to_owned();
    for opening in ["\"_id\":\"", "\"_id\" : \"", "_id: \"", "document with id '"] {
        let mut out = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some(at) = rest.find(opening) {
            let (before, after) = rest.split_at(at + opening.len());
            let end = after.find(['"', '\'']).unwrap_or(after.len());
            out.push_str(before);
            out.push_str(if made_up(&after[..end]) {
                "*"
            } else {
                &after[..end]
            });
            rest = &after[end..];
        }
        out.push_str(rest);
        text = out;
    }
    text
}

fn first_difference(a: &str, b: &str) -> String {
    let at = a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count();
    let around = |text: &str| {
        let bytes = text.as_bytes();
        let (from, to) = (at.saturating_sub(300), (at + 300).min(bytes.len()));
        String::from_utf8_lossy(&bytes[from.min(to)..to]).into_owned()
    };
    format!(
        "bodies differ from byte {at}\n direct: …{}…\n other:  …{}…",
        around(a),
        around(b)
    )
}

/// A document as the cluster has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Held {
    pub(crate) source: String,
    pub(crate) routing: Option<String>,
    pub(crate) version: u64,
    pub(crate) seq_no: u64,
}

#[derive(Deserialize)]
struct Found<'a> {
    #[serde(borrow)]
    hits: Hits<'a>,
}

#[derive(Deserialize)]
struct Hits<'a> {
    #[serde(borrow)]
    hits: Vec<Hit<'a>>,
}

#[derive(Deserialize)]
struct Hit<'a> {
    _id: String,
    _routing: Option<String>,
    #[serde(borrow)]
    _source: Option<&'a RawValue>,
    #[serde(default)]
    _version: u64,
    #[serde(default)]
    _seq_no: u64,
}

/// Returns every document of an index, by id and routing (one id may be in several shards under several
/// routings).
pub(crate) fn documents(
    http: &mut Http,
    server: &Server,
    index: &str,
) -> Result<BTreeMap<(String, Option<String>), Held>> {
    http.must(&Request::new("POST", &format!("/{index}/_refresh")))?;
    // OpenSearch's replicas lack documents that were acknowledged beside broken ones, without Tidegate too.
    // Servers with this fault but without this parameter have no replicas here.
    let copy = match server.engine {
        Engine::OpenSearch if server.version >= (2, 0) => "&preference=_primary",
        _ => "",
    };
    let target = format!("/{index}/_search?size=10000&version=true&seq_no_primary_term=true{copy}");
    let answer = http.send(&Request::new("GET", &target))?;
    ensure!(
        answer.status == 200,
        "{target}: {} {}",
        answer.status,
        answer.text()
    );
    let found: Found<'_> = serde_json::from_slice(&answer.body)?;
    ensure!(
        found.hits.hits.len() < 10000,
        "{index} has more documents than one search answers"
    );
    let documents = found.hits.hits.into_iter().map(|hit| {
        let source = hit._source.map(|s| s.get().to_owned()).unwrap_or_default();
        (
            (hit._id, hit._routing.clone()),
            Held {
                source,
                routing: hit._routing,
                version: hit._version,
                seq_no: hit._seq_no,
            },
        )
    });
    Ok(documents.collect())
}

/// Whether two index sets were written in the same order, so that sequence numbers must be the same too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Same,
    Any,
}

/// Returns what differs between the contents of two index sets; empty if they are the same. Counts the
/// documents.
pub(crate) fn contents_differ(
    http: &mut Http,
    server: &Server,
    direct_prefix: &str,
    other_prefix: &str,
    order: Order,
) -> Result<(Vec<String>, usize)> {
    let mut differences = Vec::new();
    let mut count = 0;
    let direct = world::indices(http, direct_prefix)?;
    let other = world::indices(http, other_prefix)?;
    let reworded: Vec<String> = other
        .iter()
        .map(|n| n.replace(other_prefix, direct_prefix))
        .collect();
    let (mut a, mut b) = (direct.clone(), reworded);
    a.sort();
    b.sort();
    if a != b {
        differences.push(format!("indices {a:?} and {b:?}"));
    }
    for name in direct {
        let suffix = name
            .split_once(direct_prefix)
            .map(|(_, s)| s.to_owned())
            .context("a name has its prefix")?;
        let twin = name.replace(direct_prefix, other_prefix);
        if suffix == world::CLOSED || !other.contains(&twin) {
            continue;
        }
        let (mut mine, mut theirs) = (documents(http, server, &name)?, documents(http, server, &twin)?);
        // A source may be an action line that a broken bulk has in the wrong place, and then names indices.
        for held in theirs.values_mut() {
            held.source = held.source.replace(other_prefix, direct_prefix);
        }
        if order == Order::Any {
            let all = mine.values_mut().chain(theirs.values_mut());
            all.for_each(|held| held.seq_no = 0);
        }
        count += mine.len();
        if suffix == AUTO || suffix == MOVED {
            let plain = |all: &BTreeMap<(String, Option<String>), Held>| {
                let mut all: Vec<_> = all
                    .values()
                    .map(|h| (h.source.clone(), h.routing.clone(), h.version))
                    .collect();
                all.sort();
                all
            };
            if plain(&mine) != plain(&theirs) {
                differences.push(format!(
                    "{name}: {} and {} documents, or other contents",
                    mine.len(),
                    theirs.len()
                ));
            }
            continue;
        }
        for (key, held) in &mine {
            if theirs.get(key) != Some(held) {
                differences.push(format!("{name} {key:?}: {held:?} and {:?}", theirs.get(key)));
            }
        }
        for key in theirs.keys().filter(|key| !mine.contains_key(*key)) {
            differences.push(format!("{name} {key:?}: absent and {:?}", theirs.get(key)));
        }
    }
    Ok((differences, count))
}
