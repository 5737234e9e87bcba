//! The documents of a comparison: the same each way, in each round and on each machine.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use super::error::CompareError;
use super::options::{CompareOptions, Phase, Way};
use super::servers::pass_of;
use crate::file::Load;
use crate::request::basic;

/// Returns the settings and mapping of an index.
pub(super) fn index_body(options: &CompareOptions) -> Value {
    let mut settings = json!({
        "number_of_shards": options.shards,
        "number_of_replicas": options.replicas,
    });
    if let Some(interval) = &options.refresh_interval {
        settings["refresh_interval"] = json!(interval);
    }
    for (name, value) in &options.settings {
        settings[name.as_str()] = json!(value);
    }
    json!({
        "settings": {"index": settings},
        "mappings": {"properties": {
            "@timestamp": {"type": "date"},
            "pass": {"type": "integer"},
            "number": {"type": "long"},
            "client": {"type": "ip"},
            "user": {"type": "keyword"},
            "method": {"type": "keyword"},
            "path": {"type": "keyword"},
            "status": {"type": "short"},
            "bytes": {"type": "integer"},
            "agent": {"type": "keyword"},
            "message": {"type": "text"},
        }},
    })
}

/// Returns the load that writes one phase's documents one way. It is a load file that anybody could have
/// written.
pub(super) fn load(
    options: &CompareOptions,
    way: Way,
    phase: Phase,
    index: &str,
) -> Result<Arc<Load>, CompareError> {
    let file = load_file(options, way, phase, index).to_string();
    // The file uses nothing from the environment.
    let loaded = Load::parse(&file, None, Path::new(""), &|_| None);
    let loaded = loaded.map_err(|rejected| CompareError::Load(rejected.to_string()))?;
    Ok(Arc::new(loaded.load))
}

fn load_file(options: &CompareOptions, way: Way, phase: Phase, index: &str) -> Value {
    let servers = match way {
        Way::Direct => &options.direct,
        Way::Gateway => &options.gateway,
    };
    let servers: Vec<&str> = servers.iter().map(|url| url.trim_end_matches('/')).collect();
    let list = |name: &str, data: Value| json!({"name": name, "type": "list", "data": data});
    let tied = |name: &str, data: Value| json!({"name": name, "type": "list", "by": "n", "data": data});
    let mut variables = vec![
        json!({"name": "n", "type": "sequence64", "from": 1}),
        tied("time", times()),
        tied("client", addresses()),
        tied(
            "user",
            json!(["alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi"]),
        ),
        tied(
            "method",
            json!(["GET", "GET", "GET", "GET", "POST", "PUT", "DELETE"]),
        ),
        tied("path", paths()),
        tied(
            "status",
            json!([200, 200, 200, 200, 200, 201, 204, 301, 304, 404, 500]),
        ),
        tied("bytes", sizes()),
        tied("agent", json!(AGENTS)),
    ];
    variables.extend(["a", "b", "c", "d", "e", "f"].map(|name| tied(name, json!(WORDS[..]))));
    let url = match servers.as_slice() {
        [one] => format!("{one}/_bulk"),
        several => {
            variables.push(list("server", json!(several)));
            "$[[server]]/_bulk".to_owned()
        }
    };
    let id = if options.ids { ",\"_id\":\"$[[line]]\"" } else { "" };
    let body = format!(
        "{{\"index\":{{\"_index\":\"{index}\"{id}}}}}\n\
         {{\"@timestamp\":\"$[[time]]\",\"pass\":{},\"number\":$[[line]],\"client\":\"$[[client]]\",\
         \"user\":\"$[[user]]\",\"method\":\"$[[method]]\",\"path\":\"$[[path]]\",\"status\":$[[status]],\
         \"bytes\":$[[bytes]],\"agent\":\"$[[agent]]\",\
         \"message\":\"$[[user]] asked for $[[path]]: $[[a]] $[[b]] $[[c]] $[[d]] $[[e]] $[[f]]\"}}\n",
        pass_of(phase),
    );
    let mut request = json!({
        "method": "POST",
        "url": url,
        "runtime_body_line_variables": {"line": "n"},
        "body_repeat_times": options.batch,
        "body": body,
    });
    if let Some((user, password)) = &options.account {
        // The password is encoded here, so that no part of it is taken for a template.
        let value = basic(format!("{user}:{password}").as_bytes());
        request["headers"] = json!({"Authorization": value.to_str().unwrap_or_default()});
    }
    json!({"variables": variables, "requests": [{"request": request}]})
}

fn times() -> Value {
    let minute = |at: usize| {
        format!(
            "2026-03-01T12:{at:02}:{:02}.{:03}Z",
            at * 7 % 60,
            at * 131 % 1_000
        )
    };
    (0..60).map(minute).collect()
}

fn addresses() -> Value {
    let address = |at: usize| format!("10.{}.{}.{}", at % 4, at * 37 % 256, at * 91 % 256);
    (0..500).map(address).collect()
}

fn paths() -> Value {
    let path = |at: usize| format!("/shop/{}/{}", WORDS[at % WORDS.len()], at * 17 % 1_000);
    (0..1_000).map(path).collect()
}

fn sizes() -> Value {
    (0..1_000).map(|at: usize| at * 7_919 % 100_000).collect()
}

const AGENTS: [&str; 4] = [
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0 Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5",
    "curl/8.8.0",
];

const WORDS: [&str; 48] = [
    "anchor", "basket", "candle", "desk", "envelope", "feather", "garden", "hammer", "island", "jacket",
    "kettle", "lantern", "mirror", "needle", "orchard", "pencil", "quarry", "ribbon", "saddle", "table",
    "umbrella", "violin", "window", "yarn", "zipper", "bridge", "copper", "dragon", "engine", "forest",
    "glacier", "harbour", "ivory", "jungle", "kingdom", "ladder", "meadow", "nickel", "ocean", "planet",
    "quiver", "river", "silver", "timber", "valley", "whistle", "yellow", "zenith",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_settings_are_among_the_indexs() {
        let options = CompareOptions {
            settings: vec![("translog.durability".to_owned(), "async".to_owned())],
            ..CompareOptions::default()
        };
        let index = &index_body(&options)["settings"]["index"];
        assert_eq!(index["translog.durability"], "async");
        assert_eq!(index["number_of_shards"], 3);
    }

    #[test]
    fn the_load_is_understood_with_and_without_ids_one_server_or_several() {
        let mut options = CompareOptions {
            direct: vec!["http://localhost:9200".to_owned()],
            gateway: vec!["https://a:1/".to_owned(), "https://b:2".to_owned()],
            account: Some(("user".to_owned(), "pass$[[word]]: \"".to_owned())),
            ..CompareOptions::default()
        };
        for ids in [true, false] {
            options.ids = ids;
            for way in [Way::Direct, Way::Gateway] {
                for phase in [Phase::New, Phase::Updates] {
                    let load = load(&options, way, phase, "index").unwrap();
                    assert_eq!(load.request_names().count(), 1);
                }
            }
        }
    }
}
