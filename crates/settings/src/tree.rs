//! Transformations of a tree: dotted keys are nested, `$[[env.NAME]]` is replaced by its value, and
//! duplicates are refused.

use std::collections::BTreeMap;

use crate::problem::{Position, Problems, Severity, nearest};
use crate::yaml::{Key, Node, Scalar, Value};

/// The source of environment variables; a parameter, so that tests need no process environment.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The treatment of a `$[[name]]` that is not `$[[env.NAME]]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// It is an error.
    Refused,
    /// It stays as it is: a variable for another program.
    Left,
}

/// Nests dotted keys and reports duplicates, in the whole tree.
///
/// A key that begins with `_ctx` names a field of a request and stays whole.
pub fn nest(node: Node, problems: &mut Problems) -> Node {
    let value = match node.value {
        Value::Scalar(scalar) => Value::Scalar(scalar),
        Value::List(list) => Value::List(list.into_iter().map(|node| nest(node, problems)).collect()),
        Value::Map(entries) => {
            let mut nested = Vec::with_capacity(entries.len());
            for (key, value) in entries {
                let value = nest(value, problems);
                insert(&mut nested, key, value, problems);
            }
            Value::Map(nested)
        }
    };
    Node {
        place: node.place,
        value,
    }
}

/// Inserts `value` into `entries` under `key`, whose dots separate levels.
fn insert(entries: &mut Vec<(Key, Node)>, key: Key, value: Node, problems: &mut Problems) {
    let split = (!key.name.starts_with("_ctx"))
        .then(|| key.name.split_once('.'))
        .flatten();
    let (key, value) = match split {
        Some((first, rest)) if !first.is_empty() && !rest.is_empty() => {
            let inner_place = Position {
                column: key.place.column + first.chars().count() as u32 + 1,
                ..key.place
            };
            let mut inner = Vec::new();
            insert(
                &mut inner,
                Key {
                    name: rest.to_owned(),
                    place: inner_place,
                },
                value,
                problems,
            );
            let inner = Node {
                place: inner_place,
                value: Value::Map(inner),
            };
            (
                Key {
                    name: first.to_owned(),
                    place: key.place,
                },
                inner,
            )
        }
        _ => (key, value),
    };
    match entries.iter_mut().find(|(known, _)| known.name == key.name) {
        None => entries.push((key, value)),
        Some((known, old)) => match (&mut old.value, value.value) {
            (Value::Map(old), Value::Map(new)) if !(old.is_empty() || new.is_empty()) => {
                for (key, value) in new {
                    insert(old, key, value, problems);
                }
            }
            _ => problems.error(
                key.place,
                "",
                format!("`{}` is written twice", key.name),
                Some(format!(
                    "the first is at line {}, column {}",
                    known.place.line, known.place.column
                )),
            ),
        },
    }
}

/// Replaces `$[[env.NAME]]` in every value: from the process environment, or else from the file's section
/// `env`.
pub fn substitute(root: &mut Node, environment: Environment<'_>, unknown: Unknown, problems: &mut Problems) {
    if unknown == Unknown::Refused {
        warn_of_shell_variables(root, problems);
    }
    let mut defaults = BTreeMap::new();
    if let Value::Map(entries) = &mut root.value
        && let Some((_, env)) = entries.iter_mut().find(|(key, _)| key.name == "env")
        && let Value::Map(env) = &mut env.value
    {
        for (key, node) in env {
            replace(node, environment, &BTreeMap::new(), unknown, problems);
            if let Value::Scalar(scalar) = &node.value {
                defaults.insert(key.name.clone(), scalar.text.clone());
            }
        }
    }
    replace(root, environment, &defaults, unknown, problems);
}

fn replace(
    node: &mut Node,
    environment: Environment<'_>,
    defaults: &BTreeMap<String, String>,
    unknown: Unknown,
    problems: &mut Problems,
) {
    match &mut node.value {
        Value::List(list) => list
            .iter_mut()
            .for_each(|node| replace(node, environment, defaults, unknown, problems)),
        Value::Map(entries) => {
            entries
                .iter_mut()
                .for_each(|(_, node)| replace(node, environment, defaults, unknown, problems));
        }
        Value::Scalar(scalar) => {
            if let Err(fault) = replace_in(scalar, environment, defaults, unknown) {
                problems.error(node.place, "", fault.to_string(), fault.help());
            }
        }
    }
}

fn warn_of_shell_variables(node: &Node, problems: &mut Problems) {
    match &node.value {
        Value::List(list) => list
            .iter()
            .for_each(|node| warn_of_shell_variables(node, problems)),
        Value::Map(entries) => entries
            .iter()
            .for_each(|(_, node)| warn_of_shell_variables(node, problems)),
        Value::Scalar(scalar) => {
            if let Some((message, help)) = shell_variable(&scalar.text) {
                problems.add(Severity::Warning, Some(node.place), "", message, help);
            }
        }
    }
}

/// Returns what to report about a value with a variable in the notation of shells and other programs. A bare
/// `$NAME` is not repeated, since it may be a password that begins so.
fn shell_variable(text: &str) -> Option<(String, Option<String>)> {
    let is_name = |name: &str| {
        let mut bytes = name.bytes();
        let first = bytes
            .next()
            .is_some_and(|byte| byte.is_ascii_uppercase() || byte == b'_');
        first && bytes.all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
    };
    let braced = || {
        let (_, rest) = text.split_once("${")?;
        let (inner, _) = rest.split_once('}')?;
        let name = inner.split(':').next().unwrap_or(inner);
        is_name(name).then_some(name)
    };
    if let Some(name) = braced() {
        return Some((
            format!("`${{{name}}}` is not replaced: it stays as it is written"),
            Some(format!("for the variable write `$[[env.{name}]]`")),
        ));
    }
    text.strip_prefix('$').filter(|name| is_name(name)).map(|_| {
        let message = "a value that looks like a shell's variable is not replaced: it stays as it is written";
        (
            message.to_owned(),
            Some("for a variable write `$[[env.NAME]]`".to_owned()),
        )
    })
}

/// The fault of a variable in a value.
#[derive(Debug, thiserror::Error)]
enum VariableFault {
    #[error("`$[[` has no `]]`")]
    Open,
    #[error("`$[[{0}]]` is not known")]
    Unknown(String),
    /// `near` is a similar name that has a value.
    #[error("neither the environment nor `env:` has `{name}`")]
    Unset { name: String, near: Option<String> },
}

// === impl VariableFault ===

impl VariableFault {
    /// Returns what to do about it.
    fn help(&self) -> Option<String> {
        let help = match self {
            Self::Open => return None,
            Self::Unknown(_) => "write `$[[env.NAME]]`, and set NAME in the environment",
            Self::Unset { near: Some(near), .. } => return Some(format!("did you mean `{near}`?")),
            Self::Unset { near: None, .. } => "set it, or give a default under `env:`",
        };
        Some(help.to_owned())
    }
}

fn replace_in(
    scalar: &mut Scalar,
    environment: Environment<'_>,
    defaults: &BTreeMap<String, String>,
    unknown: Unknown,
) -> Result<(), VariableFault> {
    let mut out = String::new();
    let mut rest = scalar.text.as_str();
    if !rest.contains("$[[") {
        return Ok(());
    }
    let mut replaced = false;
    while let Some(start) = rest.find("$[[") {
        let Some(length) = rest[start..].find("]]") else {
            return Err(VariableFault::Open);
        };
        let name = rest[start + 3..start + length].trim();
        let Some(variable) = name.strip_prefix("env.") else {
            if unknown == Unknown::Left {
                out.push_str(&rest[..start + length + 2]);
                rest = &rest[start + length + 2..];
                continue;
            }
            return Err(VariableFault::Unknown(name.to_owned()));
        };
        let Some(value) = environment(variable).or_else(|| defaults.get(variable).cloned()) else {
            return Err(VariableFault::Unset {
                near: nearest(variable, defaults.keys().map(String::as_str)).map(str::to_owned),
                name: variable.to_owned(),
            });
        };
        out.push_str(&rest[..start]);
        out.push_str(&value);
        replaced = true;
        rest = &rest[start + length + 2..];
    }
    if !replaced {
        return Ok(());
    }
    out.push_str(rest);
    // A variable may stand in quotes and still hold a number, so the result does not count as quoted.
    *scalar = Scalar {
        text: out,
        quoted: false,
        from_env: true,
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::yaml::parse;

    fn read(text: &str) -> (Node, Vec<String>) {
        let mut problems = Problems::new(None);
        let node = parse(text, &mut problems).unwrap();
        let mut node = nest(node, &mut problems);
        let environment = |name: &str| (name == "HOME").then(|| "/root".to_owned());
        substitute(&mut node, &environment, Unknown::Refused, &mut problems);
        (
            node,
            problems.into_sorted().iter().map(ToString::to_string).collect(),
        )
    }

    #[test]
    fn variables_as_shells_write_them_are_warned_of_and_not_repeated_where_they_may_be_secrets() {
        for (text, warned) in [
            ("a: ${ES_PASSWORD}", "`${ES_PASSWORD}` is not replaced"),
            ("a: http://${HOST:localhost}:9200", "write `$[[env.HOST]]`"),
            ("a: $PASSWORD", "for a variable write `$[[env.NAME]]`"),
        ] {
            let (_, problems) = read(text);
            assert!(
                problems.len() == 1 && problems[0].contains("warning: "),
                "{text}: {problems:?}"
            );
            assert!(problems[0].contains(warned), "{text}: {problems:?}");
        }
        assert!(!read("a: $PASSWORD").1[0].contains("PASSWORD"));
        for text in [
            "a: pa$$word",
            "a: ${lower}",
            "a: $5",
            "a: $[[env.HOME]]",
            "a: cost is $FIVE",
        ] {
            assert_eq!(read(text).1, Vec::<String>::new(), "{text}");
        }
    }

    /// Returns the tree without its places.
    fn shape(node: &Node) -> String {
        match &node.value {
            Value::Scalar(scalar) => scalar.text.clone(),
            Value::List(list) => format!("[{}]", list.iter().map(shape).collect::<Vec<_>>().join(",")),
            Value::Map(entries) => {
                let mut parts: Vec<_> = entries
                    .iter()
                    .map(|(k, v)| format!("{}:{}", k.name, shape(v)))
                    .collect();
                parts.sort();
                format!("{{{}}}", parts.join(","))
            }
        }
    }

    #[test]
    fn dotted_and_nested_keys_join() {
        let (node, problems) = read("path.data: d\npath:\n  logs: l\nx: {a.b: 1, a: {c: 2}}\n");
        assert_eq!(shape(&node), "{path:{data:d,logs:l},x:{a:{b:1,c:2}}}");
        assert_eq!(problems, Vec::<String>::new());
    }

    #[test]
    fn names_of_request_fields_keep_their_dots() {
        let (node, _) = read("when.contains:\n  _ctx.request.path: /_bulk\n");
        assert_eq!(shape(&node), "{when:{contains:{_ctx.request.path:/_bulk}}}");
    }

    #[test]
    fn a_key_written_twice_is_an_error_however_it_is_written() {
        for text in [
            "a: 1\na: 2\n",
            "a.b: 1\na: {b: 2}\n",
            "a.b: 1\na.b: 2\n",
            "a.b: 1\na: 2\n",
            "a: 1\na.b: 2\n",
        ] {
            let (_, problems) = read(text);
            assert_eq!(problems.len(), 1, "{text}");
            assert!(problems[0].contains("is written twice"), "{problems:?}");
        }
    }

    #[test]
    fn the_environment_comes_before_the_files_defaults() {
        let (node, problems) = read("env: {HOME: /nowhere, A: x}\np: '$[[env.HOME]]/$[[env.A]]'\n");
        assert_eq!(shape(&node), "{env:{A:x,HOME:/nowhere},p:/root/x}");
        assert_eq!(problems, Vec::<String>::new());
        let (_, problems) =
            read("env: {PASSWORD: x}\np: $[[env.PASWORD]]\nq: $[[keystore.x]]\nr: $[[env.X\n");
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(problems[0].contains("did you mean `PASSWORD`?"), "{problems:?}");
    }

    #[test]
    fn other_variables_stay_where_they_are_left() {
        let mut problems = Problems::new(None);
        let text = "env: {A: x}\np: '$[[env.A]]/$[[id]]'\nq: '$[[id]]'\n";
        let mut node = parse(text, &mut problems).unwrap();
        substitute(&mut node, &|_| None, Unknown::Left, &mut problems);
        assert_eq!(shape(&node), "{env:{A:x},p:x/$[[id]],q:$[[id]]}");
        assert!(!problems.has_errors());
    }

    #[test]
    fn an_empty_variable_leaves_an_empty_text() {
        let (node, problems) = read("env: {E: ''}\np: '$[[env.E]]'\n");
        assert_eq!((shape(&node), problems), ("{env:{E:},p:}".to_owned(), vec![]));
    }

    /// Makes a map of maps, as paths and leaves.
    fn leaves() -> impl Strategy<Value = Vec<(Vec<String>, u32)>> {
        prop::collection::btree_map(prop::collection::vec("[a-d]", 1..5), any::<u32>(), 1..12).prop_map(
            |map| {
                // A path that is the beginning of another one can't be a leaf.
                let paths: Vec<_> = map.keys().cloned().collect();
                map.into_iter()
                    .filter(|(path, _)| !paths.iter().any(|p| p.len() > path.len() && p.starts_with(path)))
                    .collect()
            },
        )
    }

    fn nested_text(leaves: &[(Vec<String>, u32)], depth: usize) -> String {
        let mut out = String::new();
        let mut at = 0;
        while at < leaves.len() {
            let (path, value) = &leaves[at];
            let group = leaves[at..]
                .iter()
                .take_while(|(p, _)| p[depth] == path[depth])
                .count();
            out += &"  ".repeat(depth);
            if path.len() == depth + 1 {
                out += &format!("{}: {value}\n", path[depth]);
            } else {
                out += &format!(
                    "{}:\n{}",
                    path[depth],
                    nested_text(&leaves[at..at + group], depth + 1)
                );
            }
            at += group;
        }
        out
    }

    proptest! {
        #[test]
        fn dotted_equals_nested(leaves in leaves(), seed in any::<u64>()) {
            let nested = nested_text(&leaves, 0);
            let mut lines: Vec<_> = leaves.iter().map(|(path, v)| format!("{}: {v}\n", path.join("."))).collect();
            let by = (seed % lines.len() as u64) as usize;
            lines.rotate_left(by);
            let (dotted, dotted_problems) = read(&lines.concat());
            let (nested, nested_problems) = read(&nested);
            prop_assert_eq!(dotted_problems, Vec::<String>::new());
            prop_assert_eq!(nested_problems, Vec::<String>::new());
            prop_assert_eq!(shape(&dotted), shape(&nested));
        }
    }
}
