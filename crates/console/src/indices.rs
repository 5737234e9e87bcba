//! The indices of a cluster, as `GET _cat/indices` lists them: filtered, sorted and cut into pages here, so
//! that a page gets what it shows and not ten thousand rows.

use std::cmp::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

/// The path that lists all indices, with sizes in bytes.
pub(crate) const PATH: &str = "/_cat/indices?format=json&bytes=b&expand_wildcards=all&h=index,health,status,pri,rep,\
                               docs.count,docs.deleted,store.size,pri.store.size,creation.date";

/// One index. A figure is missing if the server does not know it, as of a closed index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Index {
    pub(crate) name: String,
    /// `green`, `yellow` or `red`.
    health: Option<String>,
    /// `open` or `close`.
    status: Option<String>,
    primaries: Option<u64>,
    replicas: Option<u64>,
    docs: Option<u64>,
    deleted: Option<u64>,
    /// With replicas.
    bytes: Option<u64>,
    primary_bytes: Option<u64>,
    created_ms: Option<u64>,
}

/// What a list is sorted by: names upwards, everything else downwards, and what is not known last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    #[default]
    Name,
    Health,
    Docs,
    Deleted,
    Bytes,
    Primaries,
    Replicas,
    Created,
}

/// The part of a list that is wanted.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Wanted {
    /// A part of the name; `*` stands for anything.
    pub(crate) q: String,
    pub(crate) sort: Order,
    /// The other way round.
    pub(crate) reverse: bool,
    /// With indices whose names begin with a dot.
    pub(crate) hidden: bool,
    pub(crate) from: usize,
}

/// A page of a list.
#[derive(Debug, Serialize)]
pub(crate) struct Page<'a> {
    /// The number of all indices.
    total: usize,
    /// The number of those that match the filter, without hidden ones unless these are wanted.
    matched: usize,
    /// The number of hidden ones that match the filter.
    hidden: usize,
    /// The sums over those that match, as far as they are known.
    docs: u64,
    bytes: u64,
    from: usize,
    rows: Vec<&'a Index>,
}

/// The indices of a cluster as it told them last.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    /// When the cluster was asked, and the same as time of day.
    pub(crate) at: Option<(Instant, i64)>,
    pub(crate) indices: Vec<Index>,
}

impl Listed {
    /// Whether the cluster need not be asked again yet.
    pub(crate) fn is_fresh(&self, now: Instant) -> bool {
        self.is_younger(now, FRESH)
    }

    /// Whether the list is kept although no page shows it.
    pub(crate) fn is_recent(&self, now: Instant) -> bool {
        self.is_younger(now, 2 * FRESH)
    }

    fn is_younger(&self, now: Instant, age: Duration) -> bool {
        self.at
            .is_some_and(|(at, _)| now.saturating_duration_since(at) < age)
    }

    /// Returns the part that is wanted.
    pub(crate) fn page(&self, wanted: &Wanted) -> Page<'_> {
        let filter = wanted.q.to_lowercase();
        let (mut found, mut hidden) = (Vec::new(), 0);
        for index in self.indices.iter().filter(|index| contains(&index.name, &filter)) {
            if index.name.starts_with('.') {
                hidden += 1;
                if !wanted.hidden {
                    continue;
                }
            }
            found.push(index);
        }
        found.sort_unstable_by(|a, b| {
            let order = wanted.sort.compare(a, b, wanted.reverse);
            order.then_with(|| a.name.cmp(&b.name))
        });
        let sum = |of: fn(&Index) -> Option<u64>| {
            let known = found.iter().filter_map(|index| of(index));
            known.fold(0, u64::saturating_add)
        };
        Page {
            total: self.indices.len(),
            matched: found.len(),
            hidden,
            docs: sum(|index| index.docs),
            bytes: sum(|index| index.bytes),
            from: wanted.from,
            rows: found.iter().copied().skip(wanted.from).take(ROWS).collect(),
        }
    }
}

impl Order {
    fn compare(self, a: &Index, b: &Index, reverse: bool) -> Ordering {
        let health = |index: &Index| match index.health.as_deref() {
            Some("red") => Some(3),
            Some("yellow") => Some(2),
            Some("green") => Some(1),
            _ => None,
        };
        let of = |index: &Index| match self {
            Self::Name => None,
            Self::Health => health(index),
            Self::Docs => index.docs,
            Self::Deleted => index.deleted,
            Self::Bytes => index.bytes,
            Self::Primaries => index.primaries,
            Self::Replicas => index.replicas,
            Self::Created => index.created_ms,
        };
        match (of(a), of(b)) {
            (Some(a), Some(b)) if reverse => a.cmp(&b),
            (Some(a), Some(b)) => b.cmp(&a),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) if reverse && self == Self::Name => b.name.cmp(&a.name),
            (None, None) => Ordering::Equal,
        }
    }
}

/// Whether a name contains the pieces of a filter, which `*` separates, in their order.
fn contains(name: &str, filter: &str) -> bool {
    let name = name.to_lowercase();
    let mut rest = &*name;
    filter.split('*').all(|piece| {
        let Some(at) = rest.find(piece) else {
            return false;
        };
        rest = &rest[at + piece.len()..];
        true
    })
}

/// Reads the cluster's answer; `None` if it is no list. Entries without a name are left out.
pub(crate) fn read(told: &Value) -> Option<Vec<Index>> {
    let rows = told.as_array()?;
    let read = |row: &Value| {
        let text = |key: &str| row[key].as_str().filter(|text| !text.is_empty());
        let number = |key: &str| text(key).and_then(|text| text.parse().ok());
        Some(Index {
            name: text("index")?.to_owned(),
            health: text("health").map(str::to_owned),
            status: text("status").map(str::to_owned),
            primaries: number("pri"),
            replicas: number("rep"),
            docs: number("docs.count"),
            deleted: number("docs.deleted"),
            bytes: number("store.size"),
            primary_bytes: number("pri.store.size"),
            created_ms: number("creation.date").filter(|ms| *ms <= DATE_MS_MAX),
        })
    };
    Some(rows.iter().filter_map(read).collect())
}

/// The last moment that a browser can show; a cluster may name a later one.
const DATE_MS_MAX: u64 = 8_640_000_000_000_000;
/// The cluster asks all its nodes for this list.
const FRESH: Duration = Duration::from_secs(30);
/// The number of rows of a page.
pub(crate) const ROWS: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn listed() -> Listed {
        let row = |name: &str, docs: Option<&str>, bytes: &str| json!({"index": name, "health": "green", "status": "open", "pri": "3", "rep": "1", "docs.count": docs, "docs.deleted": "0", "store.size": bytes, "pri.store.size": bytes, "creation.date": "1700000000000"});
        let told = json!([
            row("Logs-2", Some("20"), "7"),
            row("logs-1", Some("30"), "900"),
            row(".hidden-logs", Some("5"), "1"),
            {"index": "closed", "status": "close", "health": "", "docs.count": null},
            {"health": "green"},
        ]);
        Listed {
            at: None,
            indices: read(&told).unwrap(),
        }
    }

    fn names<'a>(page: &Page<'a>) -> Vec<&'a str> {
        page.rows.iter().map(|index| &*index.name).collect()
    }

    #[test]
    fn what_is_not_known_comes_last_whichever_way_it_is_sorted() {
        let listed = listed();
        let sorted = |sort, reverse| {
            let wanted = Wanted {
                sort,
                reverse,
                ..Wanted::default()
            };
            names(&listed.page(&wanted))
        };
        assert_eq!(sorted(Order::Docs, false), ["logs-1", "Logs-2", "closed"]);
        assert_eq!(sorted(Order::Docs, true), ["Logs-2", "logs-1", "closed"]);
        assert_eq!(sorted(Order::Health, false), ["Logs-2", "logs-1", "closed"]);
        assert_eq!(sorted(Order::Name, false), ["Logs-2", "closed", "logs-1"]);
        assert_eq!(sorted(Order::Name, true), ["logs-1", "closed", "Logs-2"]);
    }

    #[test]
    fn a_page_counts_what_matches_and_names_what_is_hidden() {
        let listed = listed();
        let wanted = |q: &str, hidden, from| Wanted {
            q: q.to_owned(),
            hidden,
            from,
            ..Wanted::default()
        };
        let page = listed.page(&wanted("LOGS", false, 0));
        assert_eq!(names(&page), ["Logs-2", "logs-1"]);
        let counts = (page.total, page.matched, page.hidden, page.docs, page.bytes);
        assert_eq!(counts, (4, 2, 1, 50, 907));
        assert_eq!(
            names(&listed.page(&wanted("logs", true, 0))),
            [".hidden-logs", "Logs-2", "logs-1"]
        );
        assert_eq!(names(&listed.page(&wanted("l*s-1", false, 0))), ["logs-1"]);
        assert!(names(&listed.page(&wanted("s*l", false, 0))).is_empty());
        let beyond = listed.page(&wanted("", false, usize::MAX));
        assert_eq!((beyond.matched, beyond.rows.len()), (3, 0));
    }

    #[test]
    fn a_moment_that_no_browser_can_show_is_not_told() {
        let created = |ms: &str| read(&json!([{"index": "a", "creation.date": ms}])).unwrap()[0].created_ms;
        assert_eq!(created("8640000000000000"), Some(DATE_MS_MAX));
        assert_eq!(created("8640000000000001"), None);
    }

    #[test]
    fn something_else_than_a_list_is_not_taken_for_an_empty_one() {
        assert_eq!(read(&json!({"error": "half"})), None);
        assert_eq!(read(&json!([5, "x", {}])), Some(Vec::new()));
    }
}
