//! The JSON Schema of the file, and what is made from it: the reference page and `config explain`.

use std::fmt::Write as _;
use std::sync::OnceLock;

use serde::Serialize;
use serde_json::Value as Json;

use super::check::{choices, follow, types};
use super::file::ConfigFile;

/// Returns the JSON Schema of the file, for editors (`# yaml-language-server: $schema=…`).
pub fn schema() -> Json {
    super::published::publish(cached())
}

/// The explanation of one key.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The key, without indices: `entry.network.binding`.
    pub path: String,
    /// The purpose of the key.
    pub description: String,
    /// The possible values, in words.
    pub value: String,
    /// The default. `None`: there is no default.
    pub default: Option<String>,
    /// Why the key has no effect, if it has none.
    pub ignored: Option<String>,
    /// The keys below it, each with the first sentence of its description.
    pub keys: Vec<(String, String)>,
}

/// A key that the file does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place} has no key `{step}`; {hint}")]
pub struct NoSuchKey {
    /// The longest part of the path that exists.
    place: String,
    /// The first part that does not.
    step: String,
    /// A suggestion.
    hint: String,
}

/// Explains the key at `path`, which may have indices.
///
/// # Errors
/// Returns the longest part of the path that exists, and the keys there.
pub fn explain(path: &str) -> Result<Explanation, NoSuchKey> {
    let root = cached();
    let (mut schema, mut walked) = (root, String::new());
    let mut whole = root;
    for step in path.split('.').filter(|step| !step.is_empty()) {
        let step = step.split('[').next().unwrap_or(step);
        let properties = schema["properties"].as_object();
        let Some(next) = properties.and_then(|properties| properties.get(step)) else {
            let keys: Vec<&str> = properties
                .into_iter()
                .flatten()
                .map(|(key, _)| key.as_str())
                .collect();
            let place = if walked.is_empty() {
                "the file".to_owned()
            } else {
                format!("`{walked}`")
            };
            let hint = match super::problem::nearest(step, keys.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None if keys.is_empty() => "it has no keys".to_owned(),
                None => format!("there are {}", keys.join(", ")),
            };
            return Err(NoSuchKey {
                place,
                step: step.to_owned(),
                hint,
            });
        };
        if !walked.is_empty() {
            walked.push('.');
        }
        walked.push_str(step);
        whole = next;
        schema = section(root, next);
    }
    let ignored = whole["x-ignored"].as_str().map(str::to_owned);
    let keys = schema["properties"].as_object().into_iter().flatten();
    let keys = keys.filter(|(_, schema)| schema["deprecated"] != true);
    Ok(Explanation {
        path: walked,
        description: description(whole)
            .or_else(|| description(schema))
            .unwrap_or_default(),
        value: value_in_words(root, whole),
        default: default_in_words(whole),
        ignored,
        keys: keys
            .map(|(key, schema)| {
                (
                    key.clone(),
                    first_sentence(&description(schema).unwrap_or_default()),
                )
            })
            .collect(),
    })
}

/// Returns the reference page: every section, key, unit and default. `docs/configuration.md` contains this
/// page, which a test checks.
pub fn markdown() -> String {
    let root = cached();
    let mut page = Page {
        root,
        tables: String::new(),
        ignored: String::new(),
    };
    page.section("", root);
    let mut out = page.tables;
    out.push_str("## Accepted without effect\n\n");
    out.push_str("These keys are known from elsewhere; a file that has them loads, with a warning that says why they do nothing here.\n\n");
    out.push_str("| key | why |\n|---|---|\n");
    out.push_str(&page.ignored);
    out
}

/// Returns the derived schema.
pub(super) fn cached() -> &'static Json {
    static SCHEMA: OnceLock<Json> = OnceLock::new();
    SCHEMA.get_or_init(|| schemars::schema_for!(ConfigFile).to_value())
}

/// Returns the section that a property leads to, through references, lists and `null` alternatives.
fn section<'a>(root: &'a Json, schema: &'a Json) -> &'a Json {
    let (schema, _) = follow(root, schema, "");
    if let Some(branches) = schema["anyOf"].as_array() {
        let mut branches = branches.iter().map(|branch| section(root, branch));
        return branches
            .rfind(|branch| branch["type"] != "null")
            .unwrap_or(schema);
    }
    if types(schema).contains(&"array") {
        section(root, &schema["items"])
    } else {
        schema
    }
}

fn description(schema: &Json) -> Option<String> {
    schema["description"].as_str().map(|text| text.replace('\n', " "))
}

fn first_sentence(text: &str) -> String {
    text.find(". ").map_or(text, |end| &text[..=end]).to_owned()
}

fn default_in_words(schema: &Json) -> Option<String> {
    match schema.get("default")? {
        Json::Null => None,
        Json::Object(_) => None,
        Json::Array(list) if list.is_empty() => None,
        Json::String(text) if text.is_empty() => None,
        Json::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// Describes the possible values in words.
fn value_in_words(root: &Json, schema: &Json) -> String {
    let units = schema["x-units"].as_str();
    let (schema, _) = follow(root, schema, "");
    if let Some(branches) = schema["anyOf"].as_array() {
        let mut words: Vec<String> = branches
            .iter()
            .filter(|branch| branch["type"] != "null")
            .map(|branch| value_in_words(root, branch))
            .collect();
        words.dedup();
        return words.join(" or ");
    }
    let choices = choices(schema);
    if !choices.is_empty() {
        return choices.join(", ");
    }
    let of = |name: &str| match name {
        "object" if schema["properties"].is_object() => "section".to_owned(),
        "object" => "map".to_owned(),
        "array" => format!("list of {}", plural(&value_in_words(root, &schema["items"]))),
        "boolean" => "true or false".to_owned(),
        "integer" => units.unwrap_or("number").to_owned(),
        _ => "text".to_owned(),
    };
    match schema["format"].as_str() {
        Some("time-span") => "time".to_owned(),
        Some("time-or-seconds") => "time, or seconds".to_owned(),
        Some("share") => "share".to_owned(),
        Some("byte-size") => "size".to_owned(),
        Some("byte-size-or-unlimited") => "size or -1".to_owned(),
        Some("password") => "secret".to_owned(),
        _ if schema["deprecated"] == true => "anything".to_owned(),
        _ => types(schema).first().map_or("text".to_owned(), |name| of(name)),
    }
}

fn plural(word: &str) -> String {
    match word {
        "text" => "texts".to_owned(),
        _ if word.ends_with('s') => word.to_owned(),
        _ => format!("{word}s"),
    }
}

struct Page<'a> {
    root: &'a Json,
    tables: String,
    ignored: String,
}

// === impl Page ===

impl Page<'_> {
    /// Writes the table of one section, then those of the sections below it.
    fn section(&mut self, path: &str, schema: &Json) {
        let title = if path.is_empty() { "The file" } else { path };
        let heading = if path.contains('.') { "###" } else { "##" };
        let text = description(schema).unwrap_or_default();
        let tick = if path.is_empty() { "" } else { "`" };
        let _ = write!(self.tables, "{heading} {tick}{title}{tick}\n\n{text}\n\n");
        let required: Vec<&str> = schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Json::as_str)
            .collect();
        self.tables
            .push_str("| key | value | default | meaning |\n|---|---|---|---|\n");
        let properties = schema["properties"].as_object();
        for (key, property) in properties.into_iter().flatten() {
            let key_path = if path.is_empty() {
                key.clone()
            } else {
                format!("{path}.{key}")
            };
            if property["deprecated"] == true {
                if let Some(why) = property["x-ignored"].as_str() {
                    let _ = writeln!(self.ignored, "| `{key_path}` | {why} |");
                }
                continue;
            }
            let default = match default_in_words(property) {
                Some(default) => format!("`{default}`"),
                None if required.contains(&key.as_str()) => "required".to_owned(),
                None => "–".to_owned(),
            };
            let value = value_in_words(self.root, property).replace('|', "\\|");
            let meaning = description(property).unwrap_or_default().replace('|', "\\|");
            let _ = writeln!(self.tables, "| `{key}` | {value} | {default} | {meaning} |");
        }
        self.tables.push('\n');
        for (key, property) in properties.into_iter().flatten() {
            let below = section(self.root, property);
            // Conditions and filters contain themselves.
            let nested = path
                .split('.')
                .any(|step| matches!(step.trim_end_matches("[]"), "if" | "then" | "else" | "when"));
            let again = matches!(key.as_str(), "if" | "then" | "else")
                || (key == "when" && !path.ends_with("bulk_reshuffle"));
            if below["properties"].is_object() && property["deprecated"] != true && !nested && !again {
                let list = is_list(self.root, property);
                let key_path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                self.section(&format!("{key_path}{}", if list { "[]" } else { "" }), below);
            }
        }
    }
}

fn is_list(root: &Json, schema: &Json) -> bool {
    let (schema, _) = follow(root, schema, "");
    types(schema).contains(&"array")
        || schema["anyOf"]
            .as_array()
            .is_some_and(|branches| branches.iter().any(|branch| is_list(root, branch)))
}
