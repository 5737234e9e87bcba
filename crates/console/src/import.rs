//! Reads the registry from a file: all of it, or else what is wrong with it, by line and column.

use serde_json::{Value, json};
use settings::Position;
use settings::Secret;
use settings::problem::{Problems, nearest};
use settings::yaml::{self, Node};

use crate::draft::{ClusterDraft, GatewayDraft};
use crate::store::{ClusterEntry, GatewayEntry};

/// The entries that a file asks for.
#[derive(Debug, Default)]
pub(crate) struct Import {
    pub(crate) clusters: Vec<(ClusterDraft, ClusterEntry)>,
    pub(crate) gateways: Vec<(GatewayDraft, GatewayEntry)>,
}

/// Reads a file. An entry with the name of a registered one changes that one; the others are new.
pub(crate) fn read(
    text: &str,
    clusters: &[ClusterEntry],
    gateways: &[GatewayEntry],
) -> Result<Import, Vec<Value>> {
    let mut problems = Problems::new(None);
    let mut import = Import::default();
    if let Some(root) = yaml::parse(text, &mut problems) {
        for (key, list) in entries(&root, "the file", &["clusters", "gateways"], &mut problems) {
            let yaml::Value::List(list) = &list.value else {
                problems.error(
                    list.place,
                    key,
                    format!("a list is wanted, not {}", list.describe()),
                    None,
                );
                continue;
            };
            for node in list {
                if key == "clusters" {
                    cluster(node, clusters, &mut import, &mut problems);
                } else {
                    gateway(node, gateways, &mut import, &mut problems);
                }
            }
        }
    }
    if problems.has_errors() {
        let told = problems.into_sorted().into_iter().map(|problem| {
            let place = problem.place.unwrap_or(Position { line: 1, column: 1 });
            let help = problem.help.map(|help| format!("; {help}")).unwrap_or_default();
            json!({"line": place.line, "column": place.column, "reason": format!("{}{help}", problem.message)})
        });
        return Err(told.collect());
    }
    Ok(import)
}

fn cluster(node: &Node, registered: &[ClusterEntry], import: &mut Import, problems: &mut Problems) {
    let mut draft = ClusterDraft::default();
    for (key, value) in entries(node, "a cluster", &CLUSTER_KEYS, problems) {
        match key {
            "name" => draft.name = text(value, problems),
            "endpoint" => draft.endpoints = text(value, problems).map(|one| vec![one]),
            "endpoints" => draft.endpoints = texts(value, problems),
            "username" => draft.username = Some(text(value, problems)),
            "password" => draft.password = Some(text(value, problems).map(Secret::new)),
            "ca_pem" => draft.ca_pem = Some(text(value, problems)),
            "colour" => draft.colour = Some(text(value, problems)),
            "verify" => draft.verify = flag(value, problems),
            "read_only" => draft.read_only = flag(value, problems),
            _ => draft.protected = flag(value, problems),
        }
    }
    let stored = registered
        .iter()
        .find(|known| Some(&known.name) == draft.name.as_ref());
    let twice = import
        .clusters
        .iter()
        .any(|(_, other)| Some(&other.name) == draft.name.as_ref());
    match draft.on(stored.cloned()) {
        Ok(_) if twice => problems.error(node.place, "", "its name is there twice", None),
        Ok(entry) => import.clusters.push((draft, entry)),
        Err(why) => problems.error(node.place, "", why.to_string(), None),
    }
}

fn gateway(node: &Node, registered: &[GatewayEntry], import: &mut Import, problems: &mut Problems) {
    let mut draft = GatewayDraft::default();
    for (key, value) in entries(node, "a gateway", &GATEWAY_KEYS, problems) {
        match key {
            "name" => draft.name = text(value, problems),
            "url" => draft.url = text(value, problems),
            "token" => draft.token = Some(text(value, problems).map(Secret::new)),
            "ca_pem" => draft.ca_pem = Some(text(value, problems)),
            "client_pem" => {
                draft.client_pem = Some(text(value, problems).map(Secret::new));
                if let Err(why) = draft.check_client_pem() {
                    problems.error(value.place, "", why.to_string(), None);
                }
            }
            _ => draft.verify = flag(value, problems),
        }
    }
    let stored = registered
        .iter()
        .find(|known| Some(&known.name) == draft.name.as_ref());
    let twice = import
        .gateways
        .iter()
        .any(|(_, other)| Some(&other.name) == draft.name.as_ref());
    match draft.on(stored.cloned()) {
        Ok(_) if twice => problems.error(node.place, "", "its name is there twice", None),
        Ok(entry) => import.gateways.push((draft, entry)),
        Err(why) => problems.error(node.place, "", why.to_string(), None),
    }
}

/// Returns the entries of a map with known keys; other keys are problems.
pub(crate) fn entries<'a>(
    node: &'a Node,
    what: &str,
    known: &[&'static str],
    problems: &mut Problems,
) -> Vec<(&'static str, &'a Node)> {
    let yaml::Value::Map(map) = &node.value else {
        problems.error(
            node.place,
            "",
            format!("{what} is a map, not {}", node.describe()),
            None,
        );
        return Vec::new();
    };
    let mut found: Vec<(&'static str, &Node)> = Vec::new();
    for (key, value) in map {
        match known.iter().find(|name| **name == key.name) {
            Some(name) if found.iter().any(|(other, _)| other == name) => {
                problems.error(key.place, "", format!("`{name}` is there twice"), None);
            }
            Some(name) => found.push((name, value)),
            None => {
                let help =
                    nearest(&key.name, known.iter().copied()).map(|name| format!("did you mean `{name}`?"));
                problems.error(
                    key.place,
                    "",
                    format!("{what} has no key `{}`", key.name.escape_debug()),
                    help,
                );
            }
        }
    }
    found
}

/// Returns a text. It may be a secret, so a problem is reported without it.
pub(crate) fn text(node: &Node, problems: &mut Problems) -> Option<String> {
    match &node.value {
        _ if node.is_null() => None,
        yaml::Value::Scalar(scalar) => Some(scalar.text.clone()),
        _ => {
            problems.error(node.place, "", "a text is wanted", None);
            None
        }
    }
}

pub(crate) fn texts(node: &Node, problems: &mut Problems) -> Option<Vec<String>> {
    match &node.value {
        yaml::Value::List(list) => Some(list.iter().filter_map(|one| text(one, problems)).collect()),
        _ => text(node, problems).map(|one| vec![one]),
    }
}

pub(crate) fn flag(node: &Node, problems: &mut Problems) -> Option<bool> {
    if let yaml::Value::Scalar(scalar) = &node.value {
        match scalar.text.as_str() {
            "true" => return Some(true),
            "false" => return Some(false),
            _ => {}
        }
    }
    problems.error(node.place, "", "`true` or `false` is wanted", None);
    None
}

const CLUSTER_KEYS: [&str; 10] = [
    "name",
    "endpoint",
    "endpoints",
    "username",
    "password",
    "ca_pem",
    "colour",
    "verify",
    "read_only",
    "protected",
];
const GATEWAY_KEYS: [&str; 6] = ["name", "url", "token", "ca_pem", "client_pem", "verify"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_makes_entries() {
        let text = "
clusters:
  - name: prod
    endpoints: [https://es1:9200, https://es2:9200]
    username: elastic
    password: 0123
    read_only: true
gateways:
  - {name: gw, url: http://127.0.0.1:2900, token: t, client_pem: ''}
";
        let import = read(text, &[], &[]).unwrap();
        let (draft, entry) = &import.clusters[0];
        assert_eq!(
            (&*entry.name, entry.endpoints.len(), entry.read_only),
            ("prod", 2, true)
        );
        assert_eq!(draft.secret().unwrap().unwrap().expose(), "0123");
        let (draft, entry) = &import.gateways[0];
        assert_eq!(entry.url, "http://127.0.0.1:2900");
        assert_eq!(draft.token().unwrap().unwrap().expose(), "t");
        assert!(draft.client_pem().unwrap().is_none(), "an empty one is removed");
    }

    #[test]
    fn a_private_key_without_its_line_breaks_is_refused_and_not_quoted() {
        let text = "gateways:
  - name: gw
    url: https://127.0.0.1:2900
    client_pem: -----BEGIN PRIVATE KEY----- hunter2 -----END PRIVATE KEY-----
";
        let problems = read(text, &[], &[]).unwrap_err();
        let told = serde_json::to_string(&problems).unwrap();
        let quoted = format!("{:?}", b"hunter2");
        assert!(
            !told.contains("hunter2") && !told.contains(quoted.trim_matches(['[', ']'])),
            "{told}"
        );
        assert_eq!((problems.len(), &problems[0]["line"]), (1, &json!(4)), "{told}");
        assert!(told.contains("line breaks"), "{told}");
    }

    #[test]
    fn what_is_wrong_has_its_line_and_column_and_no_secret() {
        let text = "clusters:\n  - name: prod\n    endpints: [http://a:9200]\n    password: [hunter2]\n    verify: perhaps\n";
        let problems = read(text, &[], &[]).unwrap_err();
        let told = serde_json::to_string(&problems).unwrap();
        assert!(!told.contains("hunter2"), "{told}");
        let places: Vec<(u64, u64)> = problems
            .iter()
            .map(|problem| {
                (
                    problem["line"].as_u64().unwrap(),
                    problem["column"].as_u64().unwrap(),
                )
            })
            .collect();
        assert_eq!(places, [(2, 5), (3, 5), (4, 15), (5, 13)]);
        assert!(told.contains("did you mean `endpoints`?"), "{told}");
        assert!(read("clusters: [", &[], &[]).is_err());
    }
}
