//! A gateway's configuration, changed through the console: who may do it, who is named, what is asked.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::fake::{FakeCluster, Spec};

use super::process::Console;
use crate::gateway::{Gateway, PATIENCE};

const FILTERS: &str = "      - elasticsearch: {elasticsearch: c}";

#[test]
fn a_change_through_the_console_has_its_users_name_and_is_asked_about_once() {
    let cluster = FakeCluster::start(Spec::default()).unwrap();
    let gateway = Gateway::with_filters(&cluster, FILTERS);
    let console = Console::start(&[]).set_up();
    let cluster_id =
        console.register(json!({"name": "prod", "endpoints": cluster.urls(), "protected": true}));
    let entry = json!({"name": "gw", "url": format!("http://{}", gateway.admin)});
    let id = console.post("/api/gateways", &entry).json["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let began = Instant::now();
    while console.get("/api/registry").json["gateways"][0]["clusters"][0]["cluster_id"] != json!(cluster_id) {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(100));
    }
    let call = |method: &str, path: &str, body: Option<&str>, confirm: Value| {
        let call = json!({"method": method, "path": path, "body": body, "confirm": confirm});
        console.post(&format!("/api/gateways/{id}/call"), &call)
    };
    let told = |body: &Value| -> Value { serde_json::from_str(body.as_str().unwrap()).unwrap() };
    let file = told(&call("GET", "/config/_file", None, Value::Null).json["body"]);
    let text = file["text"].as_str().unwrap().to_owned() + "logging.level: debug\n";
    let diff = call("POST", "/config/_diff", Some(&text), Value::Null);
    assert_eq!(
        told(&diff.json["body"])["words"],
        "changed: logging.level",
        "{}",
        diff.text
    );
    let apply = format!(
        "/config/_apply?within_s=600&version={}",
        file["version"].as_str().unwrap()
    );
    let asked = call("POST", &apply, Some(&text), Value::Null);
    assert_eq!(
        (asked.status, &asked.json["confirm"]["index"]),
        (409, &json!("gw"))
    );
    let yes = json!({"index": "gw", "reason": "to see more"});
    let applied = call("POST", &apply, Some(&text), yes);
    let applied = told(&applied.json["body"]);
    assert_eq!(
        (&applied["state"], &applied["actor"]),
        (&json!("unconfirmed"), &json!("ada"))
    );
    // There is little time, so nothing is asked again.
    let kept = call("POST", "/config/_confirm", None, Value::Null);
    assert_eq!(told(&kept.json["body"])["state"], "confirmed", "{}", kept.text);
    assert!(
        gateway
            .logged("applied configuration confirmed")
            .contains("\"actor\":\"ada\"")
    );
    // That would be another change, with nobody asked.
    let late = call(
        "POST",
        "/config/_revert?only_unconfirmed=false",
        None,
        Value::Null,
    );
    assert_eq!(late.json["status"], 400, "{}", late.text);
    let late = call("POST", "/config/_revert", None, Value::Null);
    assert_eq!(late.json["status"], 409, "{}", late.text);
    let audit = console.get("/api/audit?limit=4");
    assert_eq!(audit.json["entries"][3]["what"], format!("POST {apply}"));
    assert_eq!(audit.json["entries"][3]["reason"], "to see more");
    assert!(
        !audit.text.contains("logging"),
        "the text is not stored: {}",
        audit.text
    );
}
