//! The JSON Schema as it is published for editors. It accepts what `check` accepts and refuses what `check`
//! refuses (`tests` holds the two equal). So it expresses in JSON Schema what the checker knows by itself:
//! bare numbers are text where text is expected, keys may be dotted, `$[[env.NAME]]` may replace any value,
//! and a key without a value counts as missing.

use serde_json::{Map, Value as Json, json};

use super::check::{choices, follow, types};

/// Returns the published form of `root`, the derived schema.
pub(super) fn publish(root: &Json) -> Json {
    let publisher = Publisher { root };
    let mut out = publisher.schema(root);
    let defs = root["$defs"].as_object().into_iter().flatten();
    let mut defs: Map<String, Json> = defs
        .map(|(name, schema)| (name.clone(), publisher.schema(schema)))
        .collect();
    defs.insert(WORDS.to_owned(), words());
    out["$defs"] = Json::Object(defs);
    out
}

struct Publisher<'a> {
    root: &'a Json,
}

// === impl Publisher ===

impl Publisher<'_> {
    fn schema(&self, schema: &Json) -> Json {
        let Some(map) = schema.as_object() else {
            return schema.clone();
        };
        if !choices(schema).is_empty() {
            return or_variable(map);
        }
        let mut out = map.clone();
        out.remove("$defs");
        if let Some(branches) = map.get("anyOf").and_then(Json::as_array) {
            let branches = branches.iter().map(|branch| self.schema(branch)).collect();
            out.insert("anyOf".to_owned(), branches);
        }
        if let Some(items) = map.get("items") {
            out.insert("items".to_owned(), self.schema(items));
        }
        match map.get("additionalProperties") {
            Some(values @ Json::Object(_)) => {
                out.insert("additionalProperties".to_owned(), self.named(values));
                if types(values) != ["string"] {
                    // A dot means a level, except in the name of a request's field.
                    let whole = json!({ "pattern": "^_ctx|^[^.]*$" });
                    out.insert("propertyNames".to_owned(), whole);
                }
            }
            Some(Json::Bool(false)) => self.section(schema, &mut out),
            _ => {}
        }
        scalar(schema, &mut out);
        Json::Object(out)
    }

    /// Returns the schema of the values of a map whose keys are names chosen by the user.
    fn named(&self, values: &Json) -> Json {
        match types(values).as_slice() {
            ["string"] => json!({ "$ref": format!("#/$defs/{WORDS}") }),
            _ => nullable(self.schema(values)),
        }
    }

    fn section(&self, schema: &Json, out: &mut Map<String, Json>) {
        let mut properties = Map::new();
        for (key, property) in keys_of(schema) {
            properties.insert(key.clone(), self.property(schema, key, property));
        }
        out.insert("properties".to_owned(), Json::Object(properties));
        let mut dotted = Map::new();
        self.dotted("^", schema, &mut vec![schema], &mut dotted);
        if !dotted.is_empty() {
            out.insert("patternProperties".to_owned(), Json::Object(dotted));
        }
        self.required(schema, out);
    }

    fn property(&self, schema: &Json, key: &str, property: &Json) -> Json {
        let published = self.schema(property);
        match is_required(schema, key) || is_ignored(property) {
            true => published,
            false => nullable(published),
        }
    }

    /// Adds the dotted keys below the sections of `schema`. `around` lists the sections that are being
    /// written, since some contain themselves.
    fn dotted<'b>(
        &'b self,
        prefix: &str,
        schema: &'b Json,
        around: &mut Vec<&'b Json>,
        out: &mut Map<String, Json>,
    ) {
        for (key, property) in keys_of(schema) {
            let name = format!("{prefix}{key}");
            if prefix != "^" {
                out.insert(format!("{name}$"), self.property(schema, key, property));
            }
            if is_ignored(property) {
                out.insert(format!("{name}[.]"), json!({}));
            }
            let Some(below) = self.section_of(property) else {
                continue;
            };
            match below.get("additionalProperties") {
                Some(values @ Json::Object(_)) => {
                    out.insert(format!("{name}[.]"), self.named(values));
                }
                _ if around.iter().any(|section| std::ptr::eq(*section, below)) => {
                    out.insert(format!("{name}[.]"), json!({}));
                }
                _ => {
                    around.push(below);
                    self.dotted(&format!("{name}[.]"), below, around, out);
                    around.pop();
                }
            }
        }
    }

    /// Returns the section at a key itself, not one in a list.
    fn section_of<'b>(&'b self, property: &'b Json) -> Option<&'b Json> {
        let (schema, _) = follow(self.root, property, "");
        if let Some(branches) = schema["anyOf"].as_array() {
            return branches.iter().find_map(|branch| self.section_of(branch));
        }
        types(schema).contains(&"object").then_some(schema)
    }

    /// Adds the required keys. A section may be present by its dotted keys only; then the keys that it
    /// requires must be among them.
    fn required(&self, schema: &Json, out: &mut Map<String, Json>) {
        let sections = keys_of(schema).filter_map(|(key, property)| Some((key, self.section_of(property)?)));
        let mut either = Vec::new();
        for (key, below) in sections {
            let dotted: Vec<_> = required_keys(below)
                .map(|inner| format!("{key}.{inner}"))
                .collect();
            let mut ways = vec![json!({ "required": [key] }), json!({ "required": dotted })];
            match (is_required(schema, key), dotted.is_empty()) {
                (true, _) => {}
                (false, true) => continue,
                (false, false) => {
                    let dotted = json!({ "pattern": format!("^{key}[.]") });
                    ways.push(json!({ "propertyNames": { "not": dotted } }));
                }
            }
            either.push(json!({ "anyOf": ways }));
        }
        let plain = |key: &&str| self.section_of(&schema["properties"][*key]).is_none();
        let required: Vec<_> = required_keys(schema).filter(plain).collect();
        if !required.is_empty() {
            out.insert("required".to_owned(), json!(required));
        } else {
            out.remove("required");
        }
        if !either.is_empty() {
            out.insert("allOf".to_owned(), Json::Array(either));
        }
    }
}

fn keys_of(schema: &Json) -> impl Iterator<Item = (&String, &Json)> {
    schema["properties"].as_object().into_iter().flatten()
}

fn required_keys(schema: &Json) -> impl Iterator<Item = &str> {
    let required = schema["required"].as_array().into_iter().flatten();
    required.filter_map(Json::as_str)
}

fn is_required(schema: &Json, key: &str) -> bool {
    required_keys(schema).any(|required| required == key)
}

fn is_ignored(property: &Json) -> bool {
    property["deprecated"] == true
}

/// Returns the choices of `schema`, or a variable instead.
fn or_variable(schema: &Map<String, Json>) -> Json {
    let mut choices = schema.clone();
    let mut out = Map::new();
    for key in ["description", "default"] {
        out.extend(choices.remove(key).map(|value| (key.to_owned(), value)));
    }
    let variable = json!({ "type": "string", "pattern": VARIABLE });
    out.insert("anyOf".to_owned(), json!([choices, variable]));
    Json::Object(out)
}

/// Describes what may be written as a scalar.
fn scalar(schema: &Json, out: &mut Map<String, Json>) {
    let known = types(schema);
    let none = schema["type"] != json!(known) && schema["type"].is_array();
    let number = r"([0-9]+[.]?[0-9]*|[.][0-9]+)";
    let time = format!(r"^\s*({number}(ns|us|µs|ms|s|m|h|d))+\s*$");
    let bytes = format!(r"^\s*{number}\s*([bB]|[kKmMgGtT]([iI]?[bB])?)?\s*$");
    let (mut kinds, pattern, least) = match schema["format"].as_str() {
        Some("time-span") => (vec!["string"], time, None),
        Some("time-or-seconds") => (vec!["string", "integer"], format!("{time}|^[0-9]+$"), Some(0)),
        Some("share") => (vec!["string", "number"], SHARE.to_owned(), Some(0)),
        Some("byte-size") => (vec!["string", "number"], bytes, Some(0)),
        Some("byte-size-or-unlimited") => {
            (vec!["string", "number"], format!(r"{bytes}|^\s*-1\s*$"), Some(-1))
        }
        _ if known.contains(&"string") => {
            // Any bare value counts as text here.
            let kinds = known.iter().copied().chain(["number", "boolean"]);
            (kinds.collect(), String::new(), None)
        }
        _ if known.iter().any(|name| ["integer", "boolean"].contains(name)) => (
            known.iter().copied().chain(["string"]).collect(),
            "^$.".to_owned(),
            None,
        ),
        _ => return,
    };
    if none {
        kinds.push("null");
    }
    out.insert("type".to_owned(), json!(kinds));
    match pattern.as_str() {
        "" => {}
        "^$." => drop(out.insert("pattern".to_owned(), json!(VARIABLE))),
        pattern => drop(out.insert("pattern".to_owned(), json!(format!("{pattern}|{VARIABLE}")))),
    }
    if let Some(least) = least {
        out.insert("minimum".to_owned(), json!(least));
    }
    if schema["format"] == "share" {
        out.insert("maximum".to_owned(), json!(1));
    }
}

/// A share as text.
const SHARE: &str = r"^\s*([01]|1[.]0*|0?[.][0-9]+|(100|[0-9]{1,2}([.][0-9]+)?)%)\s*$";

/// Returns `schema` extended by null, for a key without a value.
fn nullable(mut schema: Json) -> Json {
    let nothing = json!({ "type": "null" });
    if let Some(branches) = schema.get_mut("anyOf").and_then(Json::as_array_mut) {
        if !branches.contains(&nothing) {
            branches.push(nothing);
        }
        return schema;
    }
    if let Some(kind) = schema.get_mut("type") {
        let mut kinds = kind.as_array().cloned().unwrap_or_else(|| vec![kind.clone()]);
        if !kinds.contains(&json!("null")) {
            kinds.push(json!("null"));
        }
        *kind = Json::Array(kinds);
        return schema;
    }
    if let Some(map) = schema.as_object_mut()
        && let Some(reference) = map.remove("$ref")
    {
        map.insert("anyOf".to_owned(), json!([{ "$ref": reference }, nothing]));
    }
    schema
}

/// Returns the schema of the values of a map whose keys are names chosen by the user. A dot in such a name is
/// read as nesting.
fn words() -> Json {
    json!({
        "type": ["string", "number", "boolean", "null", "object"],
        "additionalProperties": { "$ref": format!("#/$defs/{WORDS}") },
    })
}

const WORDS: &str = "Words";
const VARIABLE: &str = r"[$]\[\[env[.]";

#[cfg(test)]
mod tests;
