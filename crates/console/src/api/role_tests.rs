//! Each endpoint for each kind of user: who is let in. What is let in may fail for other reasons.

use std::collections::BTreeSet;

use axum::Router;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::endpoints::ENDPOINTS;
use super::testing::{on_api, send};
use crate::roles::{Role, Roles};
use crate::store::{ClusterEntry, GatewayEntry, Store, Webhook};
use settings::Secret;

/// The columns: nobody, then users by their role for everything and by that on the cluster `a`.
const PEOPLE: [(&str, Role, Option<Role>); 9] = [
    ("none", Role::None, None),
    ("viewer", Role::Viewer, None),
    ("operator", Role::Operator, None),
    ("admin", Role::Admin, None),
    ("viewer of a", Role::None, Some(Role::Viewer)),
    ("operator of a", Role::None, Some(Role::Operator)),
    ("admin of a", Role::None, Some(Role::Admin)),
    ("operator, viewer of a", Role::Operator, Some(Role::Viewer)),
    ("admin, not of a", Role::Admin, Some(Role::None)),
];

const ANY: &str = "yyyyyyyyyy";
const SESSION: &str = ".yyyyyyyyy";
const ADMINS: &str = "....y....y";
/// On the cluster `a`, or a gateway of it alone.
const VIEW_A: &str = "..yyyyyyy.";
const ACT_A: &str = "...yy.yy..";
const ADMIN_A: &str = "....y..y..";
/// On the cluster `b`, or a gateway of both.
const VIEW_B: &str = "..yyy...yy";
const ACT_B: &str = "...yy...yy";
const ADMIN_B: &str = "....y....y";
const VIEW_AB: &str = "..yyy...y.";
const ACT_AB: &str = "...yy.....";
/// Admins for everything who may see the cluster `a`, too.
const ADMIN_ALL: &str = "....y.....";

const READ: &str = r#"{"method": "GET", "path": "/logs/_search"}"#;
const WRITE: &str = r#"{"method": "PUT", "path": "/logs/_doc/1", "body": "{}"}"#;
const DELETE: &str = r#"{"method": "POST", "path": "/logs/%5Fdelete_by_query", "body": "{}"}"#;
const LETTERS: &str = r#"{"method": "GET", "path": "/dead_letters"}"#;
const REPLAY: &str = r#"{"method": "POST", "path": "/dead_letters/_replay"}"#;
const COUNT: &str = r#"{"method": "POST", "path": "/dead_letters/_replay?dry_run=true"}"#;
const STOP: &str = r#"{"method": "POST", "path": "/pipeline/p/_stop"}"#;
const FILE: &str = r#"{"method": "GET", "path": "/config/_file"}"#;
const CHECK: &str = r#"{"method": "POST", "path": "/config/_check", "body": "a: b"}"#;
const APPLY: &str = r#"{"method": "POST", "path": "/config/_apply?version=0", "body": "a: b"}"#;
const KEEP: &str = r#"{"method": "POST", "path": "/config/_confirm"}"#;
const EDIT: &str = r#"{"method": "PUT", "path": "/dead_letters/1?dry_run=true", "body": "{}"}"#;
const NEW: &str = r#"{"name": "new", "url": "http://127.0.0.1:9", "endpoints": ["http://127.0.0.1:9"]}"#;
const OF_A: &str = r#"{"id": "a", "name": "new", "endpoints": ["http://127.0.0.1:9"]}"#;
const OF_B: &str = r#"{"id": "b", "name": "new", "endpoints": ["http://127.0.0.1:9"]}"#;
const ROLES: &str = r#"{"roles": {"role": "viewer"}}"#;

const SILENCE_A: &str =
    r#"{"rule": "no_answer", "kind": "cluster", "id": "a", "minutes": 1, "reason": "known"}"#;
const SILENCE_B: &str =
    r#"{"rule": "no_answer", "kind": "cluster", "id": "b", "minutes": 1, "reason": "known"}"#;
const SILENCE_GA: &str =
    r#"{"rule": "no_answer", "kind": "gateway", "id": "ga", "minutes": 1, "reason": "known"}"#;
const SILENCE_GAB: &str =
    r#"{"rule": "no_answer", "kind": "gateway", "id": "gab", "minutes": 1, "reason": "known"}"#;
const TRIAL: &str = r#"{"cluster": "a", "entry": "e", "indices": "tidegate-trial-12345678", "load":
    {"documents": 1, "batch": 1, "rounds": 1, "clients": 1, "shards": 1, "replicas": 0, "ids": true}}"#;
const HOOK: &str = r#"{"url": "http://127.0.0.1:9/hook"}"#;

/// Method, path of the table, what stands for its parameter, body, who is let in.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
);

const MATRIX: [Row; 85] = [
    ("GET", "/session", "", "", ANY),
    ("POST", "/setup", "", "{}", ANY),
    ("POST", "/login", "", "{}", ANY),
    ("GET", "/oidc/login", "", "", ANY),
    ("GET", "/oidc/callback", "", "", ANY),
    ("POST", "/logout", "", "{}", SESSION),
    ("POST", "/password", "", "{}", SESSION),
    ("GET", "/tabs", "", "", SESSION),
    ("PUT", "/tabs", "", "{}", SESSION),
    ("GET", "/registry", "", "", SESSION),
    ("GET", "/overview", "", "", SESSION),
    ("GET", "/live", "", "", SESSION),
    ("GET", "/users", "", "", ADMINS),
    ("POST", "/users", "", "{}", ADMINS),
    ("PUT", "/users/{name}", "zoe", ROLES, ADMINS),
    ("DELETE", "/users/{name}", "zoe", "", ADMINS),
    ("GET", "/audit", "", "", ADMINS),
    ("GET", "/audit/_download", "", "", ADMINS),
    ("GET", "/alerts", "", "", SESSION),
    ("POST", "/alerts/_silence", "", SILENCE_A, ACT_A),
    ("POST", "/alerts/_silence", "", SILENCE_B, ACT_B),
    ("POST", "/alerts/_silence", "", SILENCE_GA, ACT_A),
    ("POST", "/alerts/_silence", "", SILENCE_GAB, ACT_AB),
    ("GET", "/alerts/webhook", "", "", ADMINS),
    ("PUT", "/alerts/webhook", "", HOOK, ADMINS),
    ("DELETE", "/alerts/webhook", "", "", ADMINS),
    ("POST", "/alerts/webhook/_test", "", HOOK, ADMINS),
    ("POST", "/registry/_import", "", r#"{"yaml": "{}"}"#, ADMINS),
    ("POST", "/clusters", "", NEW, ADMINS),
    ("POST", "/clusters/_test", "", NEW, ADMINS),
    ("POST", "/clusters/_test", "", OF_A, ADMIN_A),
    ("POST", "/clusters/_test", "", OF_B, ADMIN_B),
    ("PUT", "/clusters/{id}", "a", r#"{"read_only": false}"#, ADMIN_A),
    ("PUT", "/clusters/{id}", "b", r#"{"read_only": false}"#, ADMIN_B),
    ("DELETE", "/clusters/{id}", "a", "", ADMIN_A),
    ("DELETE", "/clusters/{id}", "b", "", ADMIN_B),
    ("GET", "/clusters/{id}/series", "a", "", VIEW_A),
    ("GET", "/clusters/{id}/series", "b", "", VIEW_B),
    ("GET", "/clusters/{id}/nodes", "a", "", VIEW_A),
    ("GET", "/clusters/{id}/nodes", "b", "", VIEW_B),
    ("GET", "/clusters/{id}/heat", "a", "", VIEW_A),
    ("GET", "/clusters/{id}/heat", "b", "", VIEW_B),
    ("GET", "/clusters/{id}/indices", "a", "", VIEW_A),
    ("GET", "/clusters/{id}/indices", "b", "", VIEW_B),
    ("GET", "/clusters/{id}/names", "a", "", VIEW_A),
    ("GET", "/clusters/{id}/names", "b", "", VIEW_B),
    ("POST", "/clusters/{id}/call", "a", READ, VIEW_A),
    ("POST", "/clusters/{id}/call", "b", READ, VIEW_B),
    ("POST", "/clusters/{id}/call", "a", WRITE, ACT_A),
    ("POST", "/clusters/{id}/call", "b", WRITE, ACT_B),
    ("POST", "/clusters/{id}/call", "a", DELETE, ACT_A),
    ("POST", "/clusters/{id}/call", "%62", DELETE, ACT_B),
    ("POST", "/gateways", "", NEW, ADMINS),
    ("POST", "/gateways/_test", "", NEW, ADMINS),
    ("PUT", "/gateways/{id}", "ga", "{}", ADMINS),
    ("DELETE", "/gateways/{id}", "ga", "", ADMINS),
    ("GET", "/gateways/{id}/queues", "ga", "", VIEW_A),
    ("GET", "/gateways/{id}/queues", "gab", "", VIEW_AB),
    ("GET", "/gateways/{id}/lag", "ga", "?queue=q", VIEW_A),
    ("GET", "/gateways/{id}/lag", "gab", "?queue=q", VIEW_AB),
    ("GET", "/gateways/{id}/traffic", "ga", "", VIEW_A),
    ("GET", "/gateways/{id}/traffic", "gab", "?minutes=5", VIEW_AB),
    ("GET", "/gateways/{id}/trial", "ga", "", VIEW_A),
    ("GET", "/gateways/{id}/trial", "gab", "", VIEW_AB),
    ("POST", "/gateways/{id}/trial", "ga", TRIAL, ACT_A),
    ("POST", "/gateways/{id}/trial", "gab", TRIAL, ACT_AB),
    ("DELETE", "/gateways/{id}/trial", "ga", "", ACT_A),
    ("DELETE", "/gateways/{id}/trial", "gab", "", ACT_AB),
    ("POST", "/gateways/{id}/call", "ga", LETTERS, VIEW_A),
    ("POST", "/gateways/{id}/call", "gab", LETTERS, VIEW_AB),
    ("POST", "/gateways/{id}/call", "ga", COUNT, VIEW_A),
    ("POST", "/gateways/{id}/call", "gab", COUNT, VIEW_AB),
    ("POST", "/gateways/{id}/call", "ga", REPLAY, ACT_A),
    ("POST", "/gateways/{id}/call", "gab", REPLAY, ACT_AB),
    ("POST", "/gateways/{id}/call", "ga", STOP, ACT_A),
    ("POST", "/gateways/{id}/call", "gab", STOP, ACT_AB),
    ("POST", "/gateways/{id}/call", "ga", FILE, ADMIN_ALL),
    ("POST", "/gateways/{id}/call", "ga", CHECK, ADMIN_ALL),
    ("POST", "/gateways/{id}/call", "gab", APPLY, ADMIN_ALL),
    ("POST", "/gateways/{id}/call", "gab", KEEP, ADMIN_ALL),
    ("POST", "/gateways/{id}/call", "ga", EDIT, ACT_A),
    ("POST", "/gateways/{id}/call", "gab", EDIT, ACT_AB),
    ("GET", "/gateways/{id}/queues", "g", "", "..yyy...yy"),
    ("POST", "/gateways/{id}/call", "g", REPLAY, "...yy...yy"),
    ("POST", "/gateways/{id}/call", "g", LETTERS, "..yyy...yy"),
];

#[test]
fn each_endpoint_lets_in_who_has_the_role_and_nobody_else() {
    let served: BTreeSet<(&str, &str)> = ENDPOINTS.iter().map(|one| (one.method, one.path)).collect();
    let tested: BTreeSet<(&str, &str)> = MATRIX.iter().map(|(method, path, ..)| (*method, *path)).collect();
    assert_eq!(served, tested, "each endpoint is in the matrix");
    let wrong = on_api(async |store, routes| {
        let mut wrong = Vec::new();
        for row in &MATRIX {
            let mut found = String::new();
            for person in std::iter::once(None).chain(PEOPLE.iter().map(Some)) {
                let token = prepare(&store, person);
                let is_let_in = is_let_in(&routes, row, token.as_deref()).await;
                found.push(if is_let_in { 'y' } else { '.' });
            }
            if found != row.4 {
                wrong.push(format!(
                    "{} {} ({}) {}: {found}, not {}",
                    row.0, row.1, row.2, row.3, row.4
                ));
            }
        }
        wrong
    });
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn an_admin_of_one_cluster_does_not_say_where_it_is() {
    on_api(async |store, routes| {
        let is_refused = async |person: usize, method: &str, path: &str, body: &'static str| {
            let token = prepare(&store, Some(&PEOPLE[person]));
            let mut cluster = store.cluster("a").unwrap().unwrap();
            cluster.verify = true;
            store.keep_cluster(&cluster, None).unwrap();
            let answer = send(&routes, method, path, token.as_deref(), body).await;
            answer.status() == StatusCode::FORBIDDEN
        };
        // The admin of `a`, and the admin of everything.
        let (of_a, of_all) = (6, 3);
        for (method, path) in [("PUT", "/clusters/a"), ("POST", "/clusters/_test")] {
            for body in [
                r#"{"id": "a", "endpoints": ["http://127.0.0.1:9", "http://127.0.0.1:7"]}"#,
                r#"{"id": "a", "endpoints": ["http://127.0.0.1:7"], "password": "new"}"#,
                r#"{"id": "a", "verify": false}"#,
                r#"{"id": "a", "ca_pem": "x"}"#,
            ] {
                assert!(is_refused(of_a, method, path, body).await, "{path} {body}");
                assert!(!is_refused(of_all, method, path, body).await, "{path} {body}");
            }
            for body in [
                r#"{"id": "a", "name": "other", "password": "new"}"#,
                r#"{"id": "a", "endpoints": ["http://127.0.0.1:9"]}"#,
            ] {
                assert!(!is_refused(of_a, method, path, body).await, "{path} {body}");
            }
        }
    });
}

/// What earlier requests have changed is as it was; a session's token of this person.
fn prepare(store: &Store, person: Option<&(&str, Role, Option<Role>)>) -> Option<String> {
    for id in ["a", "b"] {
        let cluster = ClusterEntry {
            id: id.into(),
            name: id.into(),
            endpoints: vec!["http://127.0.0.1:9".into()],
            ..ClusterEntry::default()
        };
        store.keep_cluster(&cluster, None).unwrap();
    }
    let webhook = Webhook {
        url: Secret::new("http://127.0.0.1:9/"),
        secret: None,
        ca_pem: None,
        verify: true,
    };
    store.keep_webhook(Some(&webhook)).unwrap();
    for (id, linked) in [("ga", &["a"][..]), ("gab", &["a", "b"]), ("g", &[])] {
        let gateway = GatewayEntry {
            id: id.into(),
            name: id.into(),
            url: "http://127.0.0.1:9".into(),
            ..GatewayEntry::default()
        };
        store.keep_gateway(&gateway, None, None).unwrap();
        for name in linked {
            store.link(id, name, name).unwrap();
        }
    }
    for entry in store
        .clusters()
        .unwrap()
        .into_iter()
        .filter(|entry| entry.name == "new")
    {
        store.forget_cluster(&entry.id).unwrap();
    }
    for entry in store
        .gateways()
        .unwrap()
        .into_iter()
        .filter(|entry| entry.name == "new")
    {
        store.forget_gateway(&entry.id).unwrap();
    }
    let user = |name: &str, roles: &Roles| {
        if let Some((user, _)) = store.user(name).unwrap() {
            store.remove_user(user.id).unwrap();
        }
        store.add_user(name, "hash", roles).unwrap();
        store.user(name).unwrap().unwrap().0.id
    };
    user(
        "zoe",
        &Roles {
            role: Role::None,
            clusters: [].into(),
        },
    );
    let (name, role, on_a) = person?;
    let clusters = on_a.iter().map(|role| ("a".to_owned(), *role)).collect();
    Some(
        store
            .begin_session(user(
                name,
                &Roles {
                    role: *role,
                    clusters,
                },
            ))
            .unwrap(),
    )
}

async fn is_let_in(routes: &Router, row: &Row, token: Option<&str>) -> bool {
    let (method, path, id, body, _) = row;
    let path = path.replace("{id}", id).replace("{name}", id);
    let (query, body) = if body.starts_with('?') {
        (*body, "")
    } else {
        ("", *body)
    };
    let answer = send(routes, method, &format!("{path}{query}"), token, body).await;
    let status = answer.status();
    assert_ne!(status, StatusCode::NOT_FOUND, "{method} {path}");
    assert_ne!(status, StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
    if !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        return true;
    }
    let told = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
    let told: Value = serde_json::from_slice(&told).unwrap();
    told["error"]["type"] != "missing_role" && told["error"]["reason"] != json!("log in first")
}
