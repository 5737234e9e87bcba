//! `config show`: the file with all defaults filled in, and secrets masked.

use serde_json::Value as Json;
use settings::MASK;

use super::check::{follow, types};
use super::file::ConfigFile;
use super::schema::cached;

/// Returns the configuration as YAML: what was written, and every default, marked as such. It contains no
/// secret: neither those in secret keys nor those in URLs, and no value of the section `env`.
pub fn show(file: &ConfigFile) -> String {
    let mut out = String::new();
    // The types of the file have no maps with keys other than text.
    let mut json = serde_json::to_value(file).unwrap_or_default();
    // The value of `$[[env.NAME]]` is often a password, and nothing shows which values are.
    if let Some(env) = json.get_mut("env").and_then(Json::as_object_mut) {
        env.values_mut().for_each(|value| *value = MASK.into());
    }
    write_map(&mut out, &json, cached(), 0);
    out
}

fn write_map(out: &mut String, value: &Json, schema: &Json, depth: usize) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let property = schema["properties"].get(key);
        if value.is_null()
            || property.is_some_and(|property| property["deprecated"] == true)
            || is_empty(value)
        {
            continue;
        }
        // A secret prints as its mask, which does not show whether it is the default.
        let secret = property.is_some_and(|property| section_of(property)["format"] == "password");
        let default = !secret && property.and_then(|property| property.get("default")) == Some(value);
        let below = property.map_or(&schema["additionalProperties"], |property| property);
        let below = section_of(below);
        out.push_str(&"  ".repeat(depth));
        out.push_str(&scalar(&Json::String(key.clone())));
        out.push(':');
        write_value(out, value, below, depth);
        if default && !value.is_object() && !value.is_array() {
            out.pop();
            out.push_str("  # default\n");
        }
    }
}

fn write_value(out: &mut String, value: &Json, schema: &Json, depth: usize) {
    match value {
        Json::Object(map) if map.values().all(|value| value.is_null() || is_empty(value)) => {
            out.push_str(" {}\n")
        }
        Json::Object(_) => {
            out.push('\n');
            write_map(out, value, schema, depth + 1);
        }
        Json::Array(list) if list.iter().all(|item| !item.is_object() && !item.is_array()) => {
            let items: Vec<String> = list.iter().map(scalar).collect();
            out.push_str(&format!(" [{}]\n", items.join(", ")));
        }
        Json::Array(list) => {
            out.push('\n');
            for item in list {
                let mut inner = String::new();
                write_map(&mut inner, item, section_of(&schema["items"]), depth + 2);
                let indent = "  ".repeat(depth + 1);
                // The first key is written beside the dash.
                let first = inner.strip_prefix(&format!("{indent}  ")).unwrap_or("{}\n");
                out.push_str(&format!("{indent}- {first}"));
            }
        }
        _ => out.push_str(&format!(" {}\n", scalar(value))),
    }
}

fn is_empty(value: &Json) -> bool {
    value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(serde_json::Map::is_empty)
}

pub(super) fn section_of(schema: &Json) -> &Json {
    let (schema, _) = follow(cached(), schema, "");
    match schema["anyOf"].as_array() {
        Some(branches) => {
            let branches = branches.iter().map(section_of);
            let mut branches = branches.filter(|branch| !types(branch).is_empty());
            branches.next().unwrap_or(schema)
        }
        None => schema,
    }
}

/// Writes a text plain if it reads back as the same text, otherwise in quotes (JSON's are valid in YAML).
fn scalar(value: &Json) -> String {
    let Json::String(text) = value else {
        return value.to_string();
    };
    let text = mask_account(text);
    let plain = text
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"_-./".contains(&b))
        && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && !matches!(
            text.to_ascii_lowercase().as_str(),
            "true" | "false" | "null" | "yes" | "no" | "on" | "off"
        )
        || text.bytes().all(|b| b.is_ascii_alphanumeric())
            && text.starts_with(|c: char| c.is_ascii_digit())
            && text.ends_with(|c: char| c.is_ascii_alphabetic());
    if plain {
        text
    } else {
        Json::String(text).to_string()
    }
}

/// Returns `http://user:password@host` with the password masked.
fn mask_account(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    match authority.rsplit_once('@') {
        Some((account, host)) => {
            let user = account.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}:{MASK}@{host}{path}")
        }
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use crate::Config;

    #[test]
    fn no_value_of_the_section_env_is_shown() {
        let text = "
env:    {ES_PASSWORD: hunter2}
entry:  [{name: e, router: r, network.binding: '127.0.0.1:8000'}]
router: [{name: r, default_flow: f}]
flow:   [{name: f, filter: [{elasticsearch: {elasticsearch: c}}]}]
elasticsearch:
  - {name: c, endpoint: 'http://127.0.0.1:9200', basic_auth: {username: u, password: '$[[env.ES_PASSWORD]]'}}
";
        let loaded = Config::parse(text, None, &|_| None).unwrap();
        let shown = super::show(&loaded.file);
        assert!(shown.contains("ES_PASSWORD"), "{shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
        let password = shown.lines().find(|line| line.contains("password:")).unwrap();
        assert!(!password.contains("default"), "a password was written: {shown}");
    }
}
