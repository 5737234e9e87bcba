//! Names in a cluster, for completion: asked for at most once a minute, and never on a keystroke.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

use crate::outbound::{AskError, Outbound};
use crate::target::Target;

/// Sorted names.
type List = Arc<Vec<String>>;

/// The known names by cluster and kind, with the time when they were asked for.
type KnownNames = HashMap<(String, &'static str), (Instant, List)>;

/// A cache of names by cluster and kind.
#[derive(Default)]
pub(crate) struct Names {
    known: Mutex<KnownNames>,
}

impl Names {
    /// Returns the names of a kind; `None` for an unknown kind.
    pub(crate) async fn of(
        &self,
        outbound: &Outbound,
        id: &str,
        target: &Arc<Target>,
        kind: &str,
    ) -> Result<Option<List>, AskError> {
        let Some((kind, paths)) = KINDS.iter().find(|(name, _)| *name == kind) else {
            return Ok(None);
        };
        let key = (id.to_owned(), *kind);
        let fresh = |(at, list): &(Instant, List)| (at.elapsed() < KEPT).then(|| Arc::clone(list));
        if let Some(list) = self.lock().get(&key).and_then(fresh) {
            return Ok(Some(list));
        }
        let mut names = BTreeSet::new();
        let mut failed = None;
        for path in *paths {
            match outbound.get(target, path, WITHIN).await {
                Ok(told) => take(kind, &told, &mut names),
                Err(error) => failed = Some(error),
            }
        }
        // Old servers lack one of the two kinds of templates, which says nothing about the other.
        if let Some(error) = failed.filter(|_| names.is_empty()) {
            return Err(error);
        }
        let list = Arc::new(names.into_iter().collect::<Vec<_>>());
        let mut known = self.lock();
        known.retain(|_, (at, _)| at.elapsed() < KEPT);
        known.insert(key, (Instant::now(), Arc::clone(&list)));
        Ok(Some(list))
    }

    /// Forgets a cluster's names, since something in the cluster may have changed.
    pub(crate) fn forget(&self, id: &str) {
        self.lock().retain(|(of, _), _| of != id);
    }

    fn lock(&self) -> MutexGuard<'_, KnownNames> {
        self.known.lock()
    }
}

fn take(kind: &str, told: &Value, names: &mut BTreeSet<String>) {
    let mut add = |name: &str| {
        if names.len() < NAMES_MAX {
            names.insert(name.to_owned());
        }
    };
    match kind {
        "alias" => {
            let indices = told.as_object().into_iter().flatten();
            let aliases = indices.filter_map(|(_, index)| index["aliases"].as_object());
            aliases
                .flat_map(|aliases| aliases.keys())
                .for_each(|name| add(name));
        }
        "template" if told["index_templates"].is_array() => {
            let list = told["index_templates"].as_array().into_iter().flatten();
            list.filter_map(|template| template["name"].as_str())
                .for_each(add);
        }
        "field" => {
            let indices = told.as_object().into_iter().flatten();
            indices.for_each(|(_, index)| fields("", &index["mappings"], &mut add));
        }
        _ => told
            .as_object()
            .into_iter()
            .flat_map(|map| map.keys())
            .for_each(|name| add(name)),
    }
}

/// Adds the fields of a mapping. Servers limit the depth of mappings, but the answer need not come from one
/// of them.
fn fields(path: &str, mapping: &Value, add: &mut impl FnMut(&str)) {
    if path.matches('.').count() > DEPTH_MAX {
        return;
    }
    for part in ["properties", "fields"] {
        for (name, field) in mapping[part].as_object().into_iter().flatten() {
            let path = if path.is_empty() {
                name.clone()
            } else {
                format!("{path}.{name}")
            };
            add(&path);
            fields(&path, field, add);
        }
    }
}

const KINDS: [(&str, &[&str]); 5] = [
    (
        "index",
        &["/_all/_settings/index.uuid?flat_settings=true&expand_wildcards=all"],
    ),
    ("alias", &["/_alias"]),
    (
        "template",
        &["/_index_template", "/_template?filter_path=*.order"],
    ),
    (
        "pipeline",
        &["/_ingest/pipeline?filter_path=*.description,*.processors"],
    ),
    ("field", &["/_mapping"]),
];
const KEPT: Duration = Duration::from_secs(60);
const WITHIN: Duration = Duration::from_secs(10);
const NAMES_MAX: usize = 100_000;
const DEPTH_MAX: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_found_in_what_servers_tell() {
        let found = |kind: &str, told: Value| {
            let mut names = BTreeSet::new();
            take(kind, &told, &mut names);
            names.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(found("index", json!({"b": {}, "a": {}})), ["a", "b"]);
        assert_eq!(
            found(
                "alias",
                json!({"i": {"aliases": {"x": {}, "y": {}}}, "j": {"aliases": {}}})
            ),
            ["x", "y"]
        );
        assert_eq!(
            found("template", json!({"index_templates": [{"name": "t"}]})),
            ["t"]
        );
        assert_eq!(found("template", json!({"old": {"order": 0}})), ["old"]);
        let mapping = json!({"i": {"mappings": {"properties": {
            "user": {"properties": {"name": {"type": "text", "fields": {"raw": {"type": "keyword"}}}}},
        }}}});
        assert_eq!(found("field", mapping), ["user", "user.name", "user.name.raw"]);
        assert!(found("field", json!(["half", 5])).is_empty());
    }
}
