//! Users with limited rights, and the answers of the servers' security about them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use base64::Engine as _;
use serde_json::{Map, Value, json};

use super::filter_path::matches;
use super::http::Head;
use super::refusal::RequestError;
use super::state::{ClusterContext, ClusterState};

/// A user beside the one who may do everything ([`super::Spec::basic_auth`]).
#[derive(Debug, Clone)]
pub struct User {
    name: String,
    /// The values of `Authorization` that identify this user, all equally valid.
    shown: Vec<String>,
    /// Patterns of index names with the rights there: `index`, `create`, `update`, `delete`, `manage`.
    may: Vec<(String, Vec<&'static str>)>,
    /// The beginnings of paths that the user may not request.
    kept_from: Vec<String>,
}

/// The users of a cluster by their `Authorization`; without users and without [`super::Spec::basic_auth`]
/// there is no security.
pub(super) type Users = HashMap<String, Arc<User>>;

// === impl User ===

impl User {
    /// Makes a user with a password and no rights.
    pub fn new(name: &str, password: &str) -> User {
        User {
            name: name.to_owned(),
            shown: vec![basic(name, password)],
            may: Vec::new(),
            kept_from: Vec::new(),
        }
    }

    /// Lets the user be identified by a bearer token, too.
    #[must_use]
    pub fn token(mut self, token: &str) -> User {
        self.shown.push(format!("Bearer {token}"));
        self
    }

    /// Adds these rights for indices that fit a pattern.
    #[must_use]
    pub fn may(mut self, pattern: &str, what: &[&'static str]) -> User {
        self.may.push((pattern.to_owned(), what.to_vec()));
        self
    }

    /// Refuses the user's requests whose path begins like this.
    #[must_use]
    pub fn kept_from(mut self, path: &str) -> User {
        self.kept_from.push(path.to_owned());
        self
    }

    fn has(&self, what: &str, index: &str) -> bool {
        self.may
            .iter()
            .any(|(pattern, rights)| matches(pattern, index) && rights.contains(&what))
    }
}

pub(super) fn basic(name: &str, password: &str) -> String {
    let encoded = base64::engine::general_purpose::STANDARD.encode(format!("{name}:{password}"));
    format!("Basic {encoded}")
}

/// Adds a user to the others, replacing one of the same name.
pub(super) fn add(users: &mut Users, user: User) {
    remove(users, &user.name);
    let user = Arc::new(user);
    for shown in &user.shown {
        users.insert(shown.clone(), Arc::clone(&user));
    }
}

pub(super) fn remove(users: &mut Users, name: &str) {
    users.retain(|_, user| user.name != name);
}

/// Returns whether the cluster requires users to identify themselves.
pub(super) fn secured(shared: &ClusterContext) -> bool {
    shared.spec.basic_auth.is_some() || shared.has_users()
}

/// Returns the user who sent a request, if that user has limited rights.
pub(super) fn of(shared: &ClusterContext, head: &Head) -> Option<Arc<User>> {
    if !shared.has_users() {
        return None;
    }
    shared.users().get(head.authorization.as_deref()?).cloned()
}

fn name(shared: &ClusterContext, head: &Head) -> String {
    match (of(shared, head), &shared.spec.basic_auth) {
        (Some(user), _) => user.name.clone(),
        (None, Some((name, _))) => name.clone(),
        (None, None) => String::new(),
    }
}

/// Answers `GET _plugins/_security/authinfo`, `GET _security/_authenticate` and `POST
/// _security/user/_has_privileges`; `None` where the cluster has no such API.
pub(super) fn answer(
    shared: &ClusterContext,
    head: &Head,
    path: &[&str],
    body: &[u8],
) -> Option<(u16, Value)> {
    if !secured(shared) {
        return None;
    }
    let opensearch = shared.spec.flavour.is_opensearch();
    match (head.method.as_str(), path) {
        ("GET", ["_plugins", "_security", "authinfo"]) if opensearch => {
            Some((200, json!({"user_name": name(shared, head), "backend_roles": []})))
        }
        ("GET", ["_security", "_authenticate"]) if !opensearch => {
            let realm = json!({"name": "default_file", "type": "file"});
            let user = name(shared, head);
            Some((
                200,
                json!({"username": user, "enabled": true, "authentication_realm": realm}),
            ))
        }
        ("POST", ["_security", "user", "_has_privileges"]) if !opensearch => {
            let body: Value = serde_json::from_slice(body).ok()?;
            Some((200, privileges(shared, head, &body)))
        }
        _ => None,
    }
}

fn privileges(shared: &ClusterContext, head: &Head, body: &Value) -> Value {
    let user = of(shared, head);
    let (mut indices, mut all) = (Map::new(), true);
    let texts = |value: &Value| -> Vec<String> {
        let list = value.as_array().map_or(&[][..], Vec::as_slice);
        list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    for group in body["index"].as_array().map_or(&[][..], Vec::as_slice) {
        for name in texts(&group["names"]) {
            let has = texts(&group["privileges"]).into_iter().map(|privilege| {
                let what = match privilege.as_str() {
                    "indices:data/write/index:op_type/index" => "index",
                    "create_doc" => "create",
                    "indices:data/write/delete" => "delete",
                    "indices:data/write/update" => "update",
                    "indices:admin/settings/update" => "manage",
                    other => other,
                };
                let has = user.as_ref().is_none_or(|user| user.has(what, &name));
                all &= has;
                (privilege, json!(has))
            });
            let has: Map<String, Value> = has.collect();
            match indices.entry(name).or_insert_with(|| json!({})) {
                Value::Object(known) => known.extend(has),
                other => *other = Value::Object(has),
            }
        }
    }
    json!({"username": name(shared, head), "has_all_requested": all, "index": indices})
}

/// Returns the places of the refused items of a bulk: OpenSearch goes by the concrete index, Elasticsearch by
/// the name as written, and both by shard: operations that travel to a shard together are refused together.
pub(super) fn refused(
    user: &User,
    state: &ClusterState,
    operations: &[(&'static str, String, Option<String>)],
) -> HashSet<usize> {
    let mut shards = HashSet::new();
    let shard = |name: &str, key: &Option<String>| {
        let index = state.index(name)?;
        Some((index.name.clone(), key.as_ref().map(|key| index.shard(key))))
    };
    for (operation, name, key) in operations {
        let by = match state.index(name) {
            Some(index) if state.flavour.is_opensearch() => index.name.as_str(),
            _ => name,
        };
        let operation = match *operation {
            // OpenSearch has one right for both operations.
            "create" if state.flavour.is_opensearch() => "index",
            other => other,
        };
        if !user.has(operation, by) {
            shards.insert(shard(name, key).unwrap_or((name.clone(), None)));
        }
    }
    let places = operations
        .iter()
        .enumerate()
        .filter(|(_, (_, name, key))| shards.contains(&shard(name, key).unwrap_or((name.clone(), None))));
    places.map(|(place, _)| place).collect()
}

/// Returns the error of an operation for which a user lacks a right.
pub(super) fn denial(user: &User) -> Value {
    let reason = format!(
        "no permissions for [indices:data/write/bulk[s]] and User [name={}]",
        user.name
    );
    json!({"type": "security_exception", "reason": reason})
}

/// Checks a request that is no bulk. Unless it is refused, the indices that a pattern means are reduced to
/// those that the user manages (Elasticsearch narrows them silently).
pub(super) fn may_manage(
    shared: &ClusterContext,
    head: &Head,
    state: &ClusterState,
    expression: &str,
) -> Result<Option<Vec<String>>, RequestError<'static>> {
    let Some(user) = of(shared, head) else {
        return Ok(None);
    };
    let deny = || {
        Err(RequestError::Refused {
            status: 403,
            error: denial(&user),
        })
    };
    let words: Vec<&str> = expression.split(',').collect();
    let mut meant = Vec::new();
    for word in words {
        let pattern = if matches!(word, "_all" | "") { "*" } else { word };
        let fit = |index: &&String| matches(pattern, index);
        let indices: Vec<&String> = state.indices.keys().filter(fit).collect();
        let wild = pattern.contains('*');
        for index in indices {
            match user.has("manage", index) {
                true => meant.push(index.clone()),
                false if wild && !shared.spec.flavour.is_opensearch() => {}
                false => return deny(),
            }
        }
        if !wild && state.index(pattern).is_none() && !user.has("manage", pattern) {
            return deny();
        }
    }
    Ok(Some(meant))
}

/// Returns the refusal if the user may not do this to the cluster, or to a document.
pub(super) fn refusal(shared: &ClusterContext, head: &Head, path: &[&str]) -> Option<(u16, Value)> {
    let user = of(shared, head)?;
    let state = shared.state();
    let concrete = |name: &str| {
        state
            .index(name)
            .map_or(name.to_owned(), |index| index.name.clone())
    };
    let may = |what: &str, name: &str| user.has(what, &concrete(name));
    let kept_from = user
        .kept_from
        .iter()
        .any(|path| head.path.starts_with(path.as_str()));
    let allowed = match (head.method.as_str(), path) {
        _ if kept_from => false,
        ("PUT" | "POST", ["_cluster", "settings"]) => false,
        ("PUT" | "POST", [index, "_doc", ..]) => may("index", index),
        ("DELETE", [index, "_doc", _]) => may("delete", index),
        ("PUT" | "POST", [index, "_create", _]) => may("index", index) || may("create", index),
        ("POST", [index, "_update", _]) => may("update", index),
        ("PUT" | "DELETE", [index]) => may("manage", index),
        _ => true,
    };
    (!allowed).then(|| (403, json!({"error": denial(&user), "status": 403})))
}
