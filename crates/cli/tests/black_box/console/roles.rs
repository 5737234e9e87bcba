//! Users and their roles: what they see, what they may do, and that a change holds at once. Each endpoint for
//! each role is in the console's own tests.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::fake::{FakeCluster, Spec};

use super::process::{Console, PASSWORD, Told};
use crate::gateway::{Gateway, PATIENCE};

const EVES: &str = "another long password";

fn names(told: &Told, list: &str) -> Vec<String> {
    let list = told.json[list]
        .as_array()
        .unwrap_or_else(|| panic!("{}", told.text));
    list.iter()
        .map(|one| one["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_user_sees_and_does_what_the_roles_allow_and_changes_hold_at_once() {
    let cluster = FakeCluster::start(Spec::default().storing()).unwrap();
    let other = FakeCluster::start(Spec::default().storing()).unwrap();
    let console = Console::start(&[]).set_up();
    let prod = console.register(json!({"name": "prod", "endpoints": cluster.urls()}));
    let archive = console.register(json!({"name": "archive", "endpoints": other.urls()}));
    let eve = json!({"name": "eve", "password": EVES, "role": "none", "clusters": {&prod: "viewer"}});
    assert_eq!(console.post("/api/users", &eve).status, 200);
    assert_eq!(console.post("/api/users", &eve).status, 409, "the name is taken");
    let eve = console.logged_in_as("eve", EVES);
    let me = eve.get("/api/session").json["user"].clone();
    assert_eq!(
        me,
        json!({"name": "eve", "role": "none", "clusters": {&prod: "viewer"}})
    );
    assert_eq!(names(&eve.get("/api/registry"), "clusters"), ["prod"]);
    assert_eq!(names(&eve.get("/api/overview"), "rows"), ["prod"]);
    let call = |id: &str, method: &str, path: &str| {
        let call = json!({"method": method, "path": path, "body": "{}"});
        eve.post(&format!("/api/clusters/{id}/call"), &call)
    };
    assert_eq!(call(&prod, "GET", "/_cluster/health").status, 200);
    let refused = call(&prod, "PUT", "/logs/_doc/1");
    assert_eq!(
        (
            refused.status,
            &refused.json["error"]["type"],
            &refused.json["missing"]
        ),
        (
            403,
            &json!("missing_role"),
            &json!({"needs": "operator", "has": "viewer"})
        )
    );
    assert_eq!(
        refused.json["error"]["reason"],
        "this needs the role operator on this cluster, and yours is viewer"
    );
    assert_eq!(
        call(&archive, "GET", "/_cluster/health").json["missing"]["needs"],
        "viewer"
    );
    assert_eq!(eve.get("/api/users").status, 403);
    // The same session may more with the next request, and the stream tells so.
    let grant = |roles: Value| console.put("/api/users/eve", &json!({"roles": roles}));
    let mut event = 0;
    eve.events(6, |told| {
        event += 1;
        if event == 1 {
            assert_eq!(
                (told["rows"].as_array().unwrap().len(), &told["you"]["role"]),
                (1, &json!("none"))
            );
            assert_eq!(
                grant(json!({"role": "viewer", "clusters": {&prod: "operator"}})).status,
                200
            );
        } else if event == 6 {
            assert_eq!(told["rows"].as_array().unwrap().len(), 2);
            assert_eq!(told["you"]["clusters"], json!({&prod: "operator"}));
        }
    });
    assert_eq!(call(&prod, "PUT", "/logs/_doc/1").json["status"], 201);
    assert_eq!(call(&archive, "GET", "/_cluster/health").status, 200);
    assert_eq!(call(&archive, "DELETE", "/logs").status, 403);
    // Nothing of what was refused has gone out, and what was done is in the audit log.
    let audit = console.get("/api/audit?limit=2").json["entries"].clone();
    assert_eq!(
        (&audit[0]["user"], &audit[0]["what"]),
        (&json!("eve"), &json!("PUT /logs/_doc/1"))
    );
    assert_eq!(
        (&audit[1]["what"], &audit[1]["before"], &audit[1]["after"]),
        (
            &json!("change roles"),
            &json!({"role": "none", "clusters": {"prod": "viewer"}}),
            &json!({"role": "viewer", "clusters": {"prod": "operator"}})
        )
    );
    assert_eq!(
        grant(json!({"role": "viewer", "clusters": {"nowhere": "admin"}})).status,
        400
    );
    assert_eq!(grant(json!({"role": "god"})).status, 422);
    // One who is removed is out.
    assert_eq!(console.delete("/api/users/eve").status, 200);
    assert_eq!(eve.get("/api/session").status, 401);
    assert_eq!(console.delete("/api/users/eve").status, 404);
}

#[test]
fn a_gateway_is_for_who_has_the_role_on_all_of_its_clusters() {
    let cluster = FakeCluster::start(Spec::default().storing()).unwrap();
    let gateway = Gateway::before(&cluster);
    let console = Console::start(&[]).set_up();
    let url = format!("http://{}", gateway.admin);
    let made = console.post("/api/gateways", &json!({"name": "gw", "url": url}));
    let id = made.json["id"].as_str().unwrap();
    // It may not have seen its cluster yet when it is registered.
    let began = Instant::now();
    let linked = loop {
        let registry = console.get("/api/registry").json;
        if let Some(linked) = registry["gateways"][0]["clusters"][0]["cluster_id"].as_str() {
            break linked.to_owned();
        }
        assert!(began.elapsed() < PATIENCE, "{registry}");
        std::thread::sleep(Duration::from_millis(100));
    };
    let eve =
        |clusters: Value| json!({"name": "eve", "password": EVES, "role": "viewer", "clusters": clusters});
    console.post("/api/users", &eve(json!({&linked: "none"})));
    let eve = console.logged_in_as("eve", EVES);
    let queues = || eve.get(&format!("/api/gateways/{id}/queues")).status;
    let replay = || {
        let call = json!({"method": "POST", "path": "/dead_letters/_replay"});
        eve.post(&format!("/api/gateways/{id}/call"), &call).status
    };
    assert_eq!((queues(), replay()), (403, 403));
    assert_eq!(names(&eve.get("/api/registry"), "gateways"), Vec::<String>::new());
    console.put(
        "/api/users/eve",
        &json!({"roles": {"role": "none", "clusters": {&linked: "viewer"}}}),
    );
    assert_eq!((queues(), replay()), (200, 403));
    console.put(
        "/api/users/eve",
        &json!({"roles": {"role": "none", "clusters": {&linked: "operator"}}}),
    );
    assert_eq!((queues(), replay()), (200, 200));
}

#[test]
fn passwords_are_changed_by_who_knows_them_and_set_by_admins() {
    let console = Console::start(&[]).set_up();
    let new = "a third long password";
    let user = |name: &str, role: &str| json!({"name": name, "password": EVES, "role": role});
    assert_eq!(console.post("/api/users", &user("eve", "viewer")).status, 200);
    let short = json!({"name": "bob", "password": "short", "role": "viewer"});
    assert_eq!(console.post("/api/users", &short).status, 400);
    let [eve, elsewhere] = [(); 2].map(|()| console.logged_in_as("eve", EVES));
    let change = |old: &str| eve.post("/api/password", &json!({"old": old, "new": new}));
    assert_eq!(change("guessed").json["error"]["type"], "wrong_password");
    assert_eq!(change(EVES).status, 200);
    assert_eq!(
        eve.get("/api/session").status,
        200,
        "the session that did it goes on"
    );
    assert_eq!(elsewhere.get("/api/session").status, 401, "others have ended");
    console.logged_in_as("eve", new);
    assert_eq!(
        console.put("/api/users/eve", &json!({"password": EVES})).status,
        200
    );
    assert_eq!(eve.get("/api/session").status, 401);
    console.logged_in_as("eve", EVES);
    // Guessing from an open page is slowed down.
    let eve = console.logged_in_as("eve", EVES);
    let guess = || {
        eve.post("/api/password", &json!({"old": "guessed", "new": new}))
            .status
    };
    assert_eq!([(); 6].map(|()| guess()), [403, 403, 403, 403, 403, 429]);
    let audit = console.get("/api/audit");
    assert!(!audit.text.contains("password\":"), "{}", audit.text);
    for file in std::fs::read_dir(console.folder()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        for needle in [EVES, new] {
            assert!(
                !bytes
                    .windows(needle.len())
                    .any(|window| window == needle.as_bytes())
            );
        }
    }
}

#[test]
fn the_last_admin_stays() {
    let console = Console::start(&[]).set_up();
    let demoted = console.put("/api/users/ada", &json!({"roles": {"role": "operator"}}));
    assert_eq!(
        (demoted.status, &demoted.json["error"]["type"]),
        (409, &json!("last_admin"))
    );
    assert_eq!(console.delete("/api/users/ada").status, 409);
    let second = json!({"name": "eve", "password": PASSWORD, "role": "admin"});
    assert_eq!(console.post("/api/users", &second).status, 200);
    assert_eq!(
        console
            .put("/api/users/ada", &json!({"roles": {"role": "operator"}}))
            .status,
        200
    );
    assert_eq!(console.get("/api/users").status, 403, "and is none from then on");
    let users = console.logged_in_as("eve", PASSWORD).get("/api/users");
    assert_eq!(names(&users, "users"), ["ada", "eve"]);
    assert!(!users.text.contains("password"), "{}", users.text);
}
