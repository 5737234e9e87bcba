//! The section `assert`: the conditions that an answer must meet.

use regex::Regex;
use settings::problem::{Position, Problems, nearest};
use settings::yaml::{Node, Value};

use super::section::list_of;
use super::text::Text;
use crate::condition::{Bound, Condition, Expected, Field, Test};
use crate::template::{Template, TemplateError};

/// A function that compiles the text of an expected value.
pub(super) type Compile<'c> = &'c dyn Fn(&Text) -> Result<Template, TemplateError>;

/// Reads a map of conditions, all of which must hold.
pub(super) fn read(
    node: &Node,
    path: &str,
    compile: Compile<'_>,
    problems: &mut Problems,
) -> Option<Condition> {
    let Value::Map(entries) = &node.value else {
        let message = format!("a map of conditions is expected, not {}", node.describe());
        problems.error(node.place, path, message, None);
        return None;
    };
    let mut all = Vec::new();
    for (key, value) in entries {
        let path = format!("{path}.{}", key.name);
        let condition = match key.name.as_str() {
            "and" => Some(Condition::All(each(value, &path, compile, problems))),
            "or" => Some(Condition::Any(each(value, &path, compile, problems))),
            "not" => Some(Condition::Not(Box::new(match &value.value {
                Value::List(_) => Condition::All(each(value, &path, compile, problems)),
                _ => read(value, &path, compile, problems)?,
            }))),
            "exists" | "has_fields" => Some(Condition::All(exists(value, &path, problems))),
            name if KINDS.contains(&name) => tests(name, value, &path, compile, problems).map(Condition::All),
            other => {
                let known = KINDS.iter().chain(&["and", "or", "not", "exists"]).copied();
                let help = match nearest(other, known.clone()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("known here: {}", known.collect::<Vec<_>>().join(", ")),
                };
                problems.error(key.place, &path, "unknown condition", Some(help));
                None
            }
        };
        all.extend(condition);
    }
    Some(Condition::All(all))
}

fn each(node: &Node, path: &str, compile: Compile<'_>, problems: &mut Problems) -> Vec<Condition> {
    let nodes = match &node.value {
        Value::Map(_) => vec![node],
        _ => list_of(node, path, problems),
    };
    let paths = nodes.iter().enumerate();
    paths
        .filter_map(|(at, node)| read(node, &format!("{path}[{at}]"), compile, problems))
        .collect()
}

fn exists(node: &Node, path: &str, problems: &mut Problems) -> Vec<Condition> {
    let nodes = match &node.value {
        Value::Scalar(_) => vec![node],
        _ => list_of(node, path, problems),
    };
    nodes
        .into_iter()
        .filter_map(|node| {
            let name = Text::of(node, path)?;
            let field = field(&name.text, name.place, path, problems)?;
            Some(Condition::Exists(name.text, field))
        })
        .collect()
}

fn field(name: &str, place: Position, path: &str, problems: &mut Problems) -> Option<Field> {
    Field::parse(name)
        .map_err(|why| problems.error(place, path, why.to_string(), None))
        .ok()
}

/// Reads `KIND: {FIELD: VALUE, …}`.
fn tests(
    kind: &str,
    node: &Node,
    path: &str,
    compile: Compile<'_>,
    problems: &mut Problems,
) -> Option<Vec<Condition>> {
    let Value::Map(entries) = &node.value else {
        let message = format!("`FIELD: VALUE` is expected, not {}", node.describe());
        problems.error(node.place, path, message, None);
        return None;
    };
    let mut conditions = Vec::new();
    for (key, value) in entries {
        let path = format!("{path}.{}", key.name);
        let (name, test) = if kind == "range" {
            range(&key.name, value, &path, problems)
        } else {
            (key.name.as_str(), test(kind, value, &path, compile, problems))
        };
        let field = field(name, key.place, &path, problems);
        if let (Some(field), Some(test)) = (field, test) {
            conditions.push(Condition::Test(name.to_owned(), field, test));
        }
    }
    Some(conditions)
}

fn test(kind: &str, value: &Node, path: &str, compile: Compile<'_>, problems: &mut Problems) -> Option<Test> {
    let mut expected = |node: &Node| {
        let text = Text::of(node, path).or_else(|| {
            // An empty text and `null` are also values to compare with.
            node.is_null().then(|| Text {
                text: "null".to_owned(),
                place: node.place,
                path: path.to_owned(),
            })
        });
        let Some(text) = text else {
            let message = format!("a single value is expected, not {}", node.describe());
            problems.error(node.place, path, message, None);
            return None;
        };
        match compile(&text) {
            Ok(template) => Some(Expected(template)),
            Err(why) => {
                problems.error(text.place, path, why.to_string(), None);
                None
            }
        }
    };
    match kind {
        "equals" => expected(value).map(Test::Equals),
        "contains" => expected(value).map(Test::Contains),
        "prefix" => expected(value).map(Test::Prefix),
        "suffix" => expected(value).map(Test::Suffix),
        "in" => match &value.value {
            Value::List(list) => Some(Test::In(list.iter().filter_map(expected).collect())),
            _ => expected(value).map(|one| Test::In(vec![one])),
        },
        _ => {
            let text = Text::of(value, path)?;
            match Regex::new(&text.text) {
                Ok(regex) => Some(Test::Regexp(regex)),
                Err(error) => {
                    problems.error(text.place, path, format!("no regular expression: {error}"), None);
                    None
                }
            }
        }
    }
}

/// Reads `FIELD.gte: 1`, or `FIELD: {gte: 1, lt: 2}`.
fn range<'n>(name: &'n str, value: &Node, path: &str, problems: &mut Problems) -> (&'n str, Option<Test>) {
    let mut bounds = Vec::new();
    let mut add = |bound: &str, node: &Node| {
        let number = Text::of(node, path).and_then(|text| text.text.parse::<f64>().ok());
        match (Bound::parse(bound), number) {
            (Some(bound), Some(number)) => bounds.push((bound, number)),
            (None, _) => {
                let message = format!("`{bound}` is not a bound: there are gt, gte, lt, lte");
                problems.error(node.place, path, message, None);
            }
            (_, None) => {
                let message = format!("a number is expected, not {}", node.describe());
                problems.error(node.place, path, message, None);
            }
        }
    };
    let name = match &value.value {
        Value::Map(entries) => {
            entries.iter().for_each(|(bound, node)| add(&bound.name, node));
            name
        }
        _ => match name.rsplit_once('.') {
            Some((field, bound)) if Bound::parse(bound).is_some() => {
                add(bound, value);
                field
            }
            _ => {
                let help = Some(format!("write `{name}.gte: NUMBER`, or gt, lt, lte"));
                problems.error(value.place, path, "a range has bounds", help);
                return (name, None);
            }
        },
    };
    let test = (!bounds.is_empty()).then_some(Test::Range(bounds));
    (name, test)
}

const KINDS: [&str; 7] = ["equals", "contains", "prefix", "suffix", "regexp", "range", "in"];
