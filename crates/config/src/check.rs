//! Checks a tree against the schema of the file's types. It reports every unknown key, wrong type and missing
//! key at once, each with its place and the nearest valid key. What passes is JSON that the file's types can
//! read.

use std::collections::HashMap;

use serde_json::{Map, Value as Json};

use super::file::scalar;
use super::problem::{Position, Problems, nearest};
use super::vocabulary;
use super::yaml::{Key, Node, Scalar, Value};

/// The place of each key path: from `entry[0].network.binding` to the place of its value.
#[derive(Debug, Default)]
pub(super) struct Positions(HashMap<String, Position>);

impl Positions {
    /// Returns whether `path` itself was written.
    pub(super) fn has(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }

    /// Returns the place of `path`, or of the nearest section around it.
    pub(super) fn of(&self, path: &str) -> Position {
        let mut path = path;
        loop {
            if let Some(place) = self.0.get(path) {
                return *place;
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = &path[..end],
                None => return self.0.get("").copied().unwrap_or(Position { line: 1, column: 1 }),
            }
        }
    }
}

/// Checks `root` against `schema` (a whole JSON Schema with `$defs`).
pub(super) fn check(root: &Node, schema: &Json, problems: &mut Problems) -> (Json, Positions) {
    let mut checker = Checker {
        schema,
        problems,
        places: Positions::default(),
    };
    // An empty file has no keys, and so lacks the required ones.
    let empty = root.is_null().then(|| Node {
        place: root.place,
        value: Value::Map(Vec::new()),
    });
    let root = empty.as_ref().unwrap_or(root);
    let value = checker
        .node(root, schema, "", "ConfigFile")
        .unwrap_or(Json::Object(Map::new()));
    (value, checker.places)
}

/// Returns the definition that a schema's `$ref` refers to, with its name.
pub(super) fn follow<'a>(root: &'a Json, schema: &'a Json, name: &'a str) -> (&'a Json, &'a str) {
    match schema
        .get("$ref")
        .and_then(Json::as_str)
        .and_then(|path| path.strip_prefix("#/$defs/"))
    {
        Some(name) => (&root["$defs"][name], name),
        None => (schema, name),
    }
}

/// Returns the types that a schema allows, without `null`.
pub(super) fn types(schema: &Json) -> Vec<&str> {
    match &schema["type"] {
        Json::String(one) => vec![one.as_str()],
        Json::Array(many) => many
            .iter()
            .filter_map(Json::as_str)
            .filter(|name| *name != "null")
            .collect(),
        _ => Vec::new(),
    }
}

/// Returns the values of an enumeration, or nothing if the schema is not one.
pub(super) fn choices(schema: &Json) -> Vec<&str> {
    let groups = schema["oneOf"].as_array().map(Vec::as_slice).unwrap_or_default();
    let single = std::slice::from_ref(schema);
    let mut all = Vec::new();
    for group in groups.iter().chain(single) {
        all.extend(group["const"].as_str());
        all.extend(
            group["enum"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Json::as_str),
        );
    }
    all
}

struct Checker<'a> {
    schema: &'a Json,
    problems: &'a mut Problems,
    places: Positions,
}

// === impl Checker ===

impl<'a> Checker<'a> {
    /// Checks a node. `None` means that the key counts as not written.
    fn node(&mut self, node: &Node, schema: &'a Json, path: &str, section: &'a str) -> Option<Json> {
        self.places.0.insert(path.to_owned(), node.place);
        if node.is_null() {
            return None;
        }
        let (schema, section) = self.branch(node, schema, section);
        let types = types(schema);
        match &node.value {
            Value::Map(_) if types.contains(&"object") => self.map(node, schema, path, section),
            Value::List(list) if types.contains(&"array") => {
                let items = &schema["items"];
                let mut out = Vec::with_capacity(list.len());
                for (at, item) in list.iter().enumerate() {
                    let path = format!("{path}[{at}]");
                    if item.is_null() {
                        self.problems.error(item.place, &path, "an empty item", None);
                    }
                    out.extend(self.node(item, items, &path, section));
                }
                Some(Json::Array(out))
            }
            Value::Scalar(scalar) if !types.contains(&"object") && !types.contains(&"array") => {
                match read_scalar(scalar, schema, &types) {
                    Ok(value) => Some(value),
                    Err(Wrong { message, help }) => {
                        let subject = if schema["format"] == "password" {
                            "the value".to_owned()
                        } else {
                            node.describe()
                        };
                        self.problems
                            .error(node.place, path, format!("{subject} {message}"), help);
                        None
                    }
                }
            }
            _ => {
                let wanted = match types.first() {
                    Some(&"object") => "a map of keys",
                    Some(&"array") => "a list",
                    Some(&"boolean") => "`true` or `false`",
                    Some(&"integer") => "a number",
                    _ => "a single value",
                };
                let help = (types.first() == Some(&"array")).then(|| "begin each item with `- `".to_owned());
                let message = format!("{wanted} is expected, not {}", self.name_value(node, schema));
                self.problems.error(node.place, path, message, help);
                None
            }
        }
    }

    fn name_value(&self, node: &Node, schema: &Json) -> String {
        if schema["format"] == "password" {
            "this".to_owned()
        } else {
            node.describe()
        }
    }

    /// Returns the alternative of a schema that has the shape of `node`.
    fn branch(&self, node: &Node, schema: &'a Json, section: &'a str) -> (&'a Json, &'a str) {
        let (schema, section) = follow(self.schema, schema, section);
        let Some(branches) = schema["anyOf"].as_array() else {
            return (schema, section);
        };
        let wanted: &[&str] = match node.value {
            Value::Map(_) => &["object"],
            Value::List(_) => &["array"],
            Value::Scalar(_) => &["string", "integer", "boolean"],
        };
        let branches: Vec<_> = branches
            .iter()
            .map(|branch| self.branch(node, branch, section))
            .filter(|(branch, _)| branch["type"] != "null")
            .collect();
        let fits = |branch: &Json| {
            types(branch).iter().any(|name| wanted.contains(name))
                || matches!(node.value, Value::Scalar(_)) && !choices(branch).is_empty()
        };
        branches
            .iter()
            .find(|(branch, _)| fits(branch))
            .or(branches.first())
            .copied()
            .unwrap_or((schema, section))
    }

    fn map(&mut self, node: &Node, schema: &'a Json, path: &str, section: &'a str) -> Option<Json> {
        let Value::Map(entries) = &node.value else {
            return None;
        };
        let known = schema["properties"].as_object();
        let free = schema
            .get("additionalProperties")
            .filter(|free| free.is_object() || **free == Json::Bool(true));
        let mut out = Map::new();
        for (key, value) in entries {
            let key_path = if path.is_empty() {
                key.name.clone()
            } else {
                format!("{path}.{}", key.name)
            };
            match (known.and_then(|known| known.get(&key.name)), free) {
                (Some(schema), _) if schema["deprecated"] == true => {
                    if let Some(why) = schema["x-ignored"].as_str() {
                        self.problems
                            .warning(key.place, &key_path, format!("has no effect: {why}"));
                    }
                }
                (None, Some(schema))
                    if types(schema) == ["string"] && matches!(value.value, Value::Map(_)) =>
                {
                    self.names(value, schema, &key_path, &key.name, &mut out);
                }
                (Some(schema), _) | (None, Some(schema)) => {
                    if let Some(json) = self.node(value, schema, &key_path, section) {
                        out.insert(key.name.clone(), json);
                    }
                }
                (None, None) => self.unknown(key.place, &key.name, &key_path, section, known),
            }
        }
        let required: &[Json] = match self.has_missing_choice(entries, known) {
            // Another choice may need other keys.
            true => &[],
            false => schema["required"].as_array().map_or(&[], Vec::as_slice),
        };
        for required in required.iter().filter_map(Json::as_str) {
            let written = entries.iter().find(|(key, _)| key.name == required);
            if written.is_none_or(|(_, value)| value.is_null()) {
                let message = format!("`{required}` is missing");
                let place = written.map_or(node.place, |(key, _)| key.place);
                self.problems.error(place, path, message, None);
            }
        }
        Some(Json::Object(out))
    }

    /// Whether the value of a key is a choice that users may know from elsewhere, and that is not there.
    fn has_missing_choice(&self, entries: &[(Key, Node)], known: Option<&'a Map<String, Json>>) -> bool {
        entries.iter().any(|(key, value)| {
            let (Value::Scalar(scalar), Some(schema)) =
                (&value.value, known.and_then(|known| known.get(&key.name)))
            else {
                return false;
            };
            let (schema, _) = self.branch(value, schema, "");
            vocabulary::missing_choice(&scalar.text, &choices(schema)).is_some()
        })
    }

    /// Reads a map whose keys are names chosen by the user (node attributes). A dot is part of such a name,
    /// so nesting is undone.
    fn names(&mut self, node: &Node, schema: &'a Json, path: &str, name: &str, out: &mut Map<String, Json>) {
        let Value::Map(entries) = &node.value else { return };
        for (key, value) in entries {
            let (path, name) = (format!("{path}.{}", key.name), format!("{name}.{}", key.name));
            if matches!(value.value, Value::Map(_)) {
                self.names(value, schema, &path, &name, out);
            } else if let Some(json) = self.node(value, schema, &path, "") {
                out.insert(name, json);
            }
        }
    }

    fn unknown(
        &mut self,
        place: Position,
        key: &str,
        path: &str,
        section: &str,
        known: Option<&'a Map<String, Json>>,
    ) {
        if let Some(why) = vocabulary::refused(section, key) {
            self.problems.error(place, path, why, None);
            return;
        }
        let known = known.into_iter().flatten();
        let (dropped, live): (Vec<_>, Vec<_>) = known.partition(|(_, schema)| schema["deprecated"] == true);
        let live: Vec<&str> = live.iter().map(|(name, _)| name.as_str()).collect();
        let near = nearest(key, live.iter().copied())
            .or_else(|| nearest(key, dropped.iter().map(|(name, _)| name.as_str())));
        let help = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known here: {}", live.join(", ")),
        };
        self.problems.error(place, path, "unknown key", Some(help));
    }
}

/// Why a scalar is not valid for its key. The message continues a sentence that names the value.
struct Wrong {
    message: String,
    help: Option<String>,
}

fn read_scalar(scalar: &Scalar, schema: &Json, types: &[&str]) -> Result<Json, Wrong> {
    let wrong = |message: String| Wrong { message, help: None };
    let text = scalar.text.as_str();
    let choices = choices(schema);
    if !choices.is_empty() {
        if choices.contains(&text) {
            return Ok(Json::String(text.to_owned()));
        }
        let near = || {
            let near = nearest(text, choices.iter().copied()).filter(|_| choices.len() > 1);
            near.map(|near| format!("did you mean `{near}`?"))
        };
        let help = vocabulary::missing_choice(text, &choices)
            .map(str::to_owned)
            .or_else(near);
        return Err(Wrong {
            message: match choices[..] {
                [only] => format!("is not possible; there is only `{only}`"),
                _ => format!("is none of {}", choices.join(", ")),
            },
            help,
        });
    }
    let parsed = match schema["format"].as_str() {
        Some("time-span") => scalar::parse_time(text).err(),
        Some("time-or-seconds") => scalar::parse_time_or_seconds(text).err(),
        Some("share") => scalar::parse_share(text).err(),
        Some("byte-size") => scalar::parse_bytes(text).err(),
        Some("byte-size-or-unlimited") => scalar::parse_bytes_or_unlimited(text).err(),
        _ => None,
    };
    if let Some(message) = parsed {
        return Err(wrong(message.to_string()));
    }
    if types.contains(&"string") || types.is_empty() {
        return Ok(Json::String(text.to_owned()));
    }
    if types.contains(&"integer") && !scalar.quoted {
        let number: i64 = text
            .parse()
            .map_err(|_| wrong("is not a whole number".to_owned()))?;
        let bound = |name: &str| schema[name].as_f64().map(|bound| bound as i64);
        return match (bound("minimum"), bound("maximum")) {
            (Some(min), _) if number < min => Err(wrong(format!("is less than {min}"))),
            (_, Some(max)) if number > max => Err(wrong(format!("is more than {max}"))),
            _ => Ok(Json::from(number)),
        };
    }
    if types.contains(&"boolean") && !scalar.quoted {
        return match text {
            "true" | "True" | "TRUE" => Ok(Json::Bool(true)),
            "false" | "False" | "FALSE" => Ok(Json::Bool(false)),
            "yes" | "on" => Err(Wrong {
                message: "is text".into(),
                help: Some("write `true`".into()),
            }),
            "no" | "off" => Err(Wrong {
                message: "is text".into(),
                help: Some("write `false`".into()),
            }),
            _ => Err(wrong("is neither `true` nor `false`".to_owned())),
        };
    }
    Err(wrong(format!(
        "is text in quotes, and a {} is expected",
        types.join(" or ")
    )))
}
