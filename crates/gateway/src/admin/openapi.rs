//! The description of the admin port for tools, in OpenAPI 3.1. It is made from the same table as the routes.

use axum::response::Json;
use config::AdminRight;
use serde_json::{Map, Value, json};

use super::endpoints::{self, Endpoint};
use super::guard::right_for;

pub(super) async fn describe() -> Json<Value> {
    Json(document())
}

fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for endpoint in endpoints::all() {
        let path = paths.entry(endpoint.path).or_insert_with(|| json!({}));
        path[endpoint.method.to_ascii_lowercase()] = operation(endpoint);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tidegate: the admin port",
            "version": env!("CARGO_PKG_VERSION"),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "A token of the configuration, where there is one: `admin.token`, or one of `admin.tokens` with the right that the operation names."},
            },
            "schemas": {
                "Error": {
                    "type": "object",
                    "required": ["error", "status"],
                    "properties": {
                        "error": {
                            "type": "object",
                            "required": ["type", "reason"],
                            "properties": {"type": {"type": "string"}, "reason": {"type": "string"}},
                        },
                        "status": {"type": "integer"},
                    },
                },
            },
        },
    })
}

fn operation(endpoint: &Endpoint) -> Value {
    let parameters = endpoint.parameters.iter().map(|parameter| {
        let in_path = endpoint.path.contains(&format!("{{{}}}", parameter.name));
        json!({
            "name": parameter.name,
            "in": if in_path { "path" } else { "query" },
            "required": in_path,
            "description": parameter.says,
            "schema": {"type": parameter.r#type},
        })
    });
    let content = match endpoint.path {
        "/metrics" => "text/plain",
        "/config" => "application/yaml",
        _ => "application/json",
    };
    let mut operation = json!({
        "operationId": id(endpoint),
        "summary": endpoint.says,
        "parameters": parameters.collect::<Vec<_>>(),
        "security": [{}, {"token": [right_of(endpoint)]}],
        "responses": {
            "200": {"description": "As asked.", "content": {content: {}}},
            "default": {
                "description": "Not done, and why.",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    });
    if endpoint.path == "/changes" {
        operation["responses"]["200"]["content"]["text/event-stream"] = json!({});
    }
    if let Some(body) = endpoint.body {
        let content = match endpoint.path.starts_with("/config/") {
            true => json!({"application/yaml": {"schema": {"type": "string"}}}),
            false => json!({"application/json": {"schema": {"type": "object"}}}),
        };
        operation["requestBody"] = json!({"required": true, "description": body, "content": content});
    }
    operation
}

/// Returns the right that a token needs for an operation.
fn right_of(endpoint: &Endpoint) -> AdminRight {
    endpoint
        .method
        .parse()
        .map_or(AdminRight::Operate, |method| right_for(&method))
}

/// Returns the id of an operation, such as `postDeadLettersReplay`.
fn id(endpoint: &Endpoint) -> String {
    let words = endpoint.path.split(|c: char| !c.is_ascii_alphanumeric());
    let words = words.filter(|word| !word.is_empty()).map(|word| {
        let (first, rest) = word.split_at(1);
        first.to_ascii_uppercase() + rest
    });
    endpoint.method.to_ascii_lowercase() + &words.collect::<String>()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_path_has_its_parameters_and_every_operation_a_name_of_its_own() {
        let mut ids = BTreeSet::new();
        for endpoint in endpoints::all() {
            let named = endpoint.parameters.iter().map(|parameter| parameter.name);
            let in_path: Vec<&str> = endpoint.path.split(['{', '}']).skip(1).step_by(2).collect();
            for name in &in_path {
                assert!(
                    named.clone().any(|other| other == *name),
                    "{} {name}",
                    endpoint.path
                );
            }
            assert!(ids.insert(id(endpoint)), "{}", id(endpoint));
            assert!(endpoint.says.ends_with('.'), "{}", endpoint.says);
        }
        assert!(document()["paths"]["/dead_letters/{id}"]["put"]["requestBody"].is_object());
    }
}
