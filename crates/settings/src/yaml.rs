//! Parsing YAML text into a tree that remembers the place of every value. No other module knows the YAML
//! parser.
//!
//! Numbers and booleans stay text here: the key of a scalar decides what the scalar means, so a password
//! `0123` or a name `no` stays as it was written.

use std::collections::HashMap;
use std::ops::Range;

use granit_parser::{Event, Options, Parser, ScalarStyle, Span};

use crate::problem::{Position, Problems};

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The place where it begins.
    pub place: Position,
    /// The value.
    pub value: Value,
}

/// A scalar, a list or a map.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// One word, number or text.
    Scalar(Scalar),
    /// A list: `- a`, `[a]`.
    List(Vec<Node>),
    /// A map: `k: v`, in the file's order; a key that is written twice is there twice.
    Map(Vec<(Key, Node)>),
}

/// A scalar whose meaning is still open.
#[derive(Clone, Debug, PartialEq)]
pub struct Scalar {
    /// The text as written, with quotes and escapes resolved.
    pub text: String,
    /// Whether it was written in quotes or as a block: then it is always text.
    pub quoted: bool,
    /// Whether it came from `$[[env.NAME]]` in part or whole: it may be a secret, so messages don't repeat
    /// it.
    pub from_env: bool,
}

/// A key of a map and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// The key as written.
    pub name: String,
    /// The place where it begins.
    pub place: Position,
}

/// The mark with which some editors begin a file.
const BOM: char = '\u{feff}';
/// The largest file, in bytes.
const FILE_BYTES_MAX: usize = 4 << 20;
/// The deepest nesting; real files reach ten levels.
const DEPTH_MAX: usize = 48;
/// The longest key: its dots become levels, and levels are walked recursively.
const KEY_BYTES_MAX: usize = 512;
/// The most values, including those repeated by aliases.
const NODES_MAX: usize = 40_000;

/// Parses one YAML document. Returns `None` when its syntax is wrong; the problem is added to `problems`.
pub fn parse(text: &str, problems: &mut Problems) -> Option<Node> {
    let start = Position { line: 1, column: 1 };
    if text.len() > FILE_BYTES_MAX {
        problems.error(
            start,
            "",
            format!("the file is larger than {FILE_BYTES_MAX} bytes"),
            None,
        );
        return None;
    }
    let mut builder = Builder {
        problems,
        stack: Vec::new(),
        anchors: HashMap::new(),
        root: None,
        nodes: 0,
    };
    let mut documents = 0;
    for event in Parser::new_from_str_with_options(text.trim_start_matches(BOM), options()) {
        match event {
            Ok((Event::DocumentStart(..), span)) => {
                documents += 1;
                if documents > 1 {
                    builder.problems.error(
                        place(&span),
                        "",
                        "a second YAML document begins here",
                        Some("a file holds one configuration; remove the `---`".to_owned()),
                    );
                    return None;
                }
            }
            Ok((event, span)) => builder.event(event, &span)?,
            Err(error) => {
                let mark = error.marker();
                let place = Position {
                    line: mark.line() as u32,
                    column: mark.col() as u32 + 1,
                };
                let line = text.lines().nth(place.line.saturating_sub(1) as usize);
                let help = line.and_then(advice).map(str::to_owned);
                builder
                    .problems
                    .error(place, "", format!("not valid YAML: {}", error.info()), help);
                return None;
            }
        }
    }
    if builder.root.is_none() {
        builder.problems.error(start, "", "the file is empty", None);
    }
    builder.root
}

/// Returns where each scalar of a text is written, in bytes and with its quotes, by the place where it
/// begins. Empty if the syntax is wrong.
pub fn scalars(text: &str) -> HashMap<Position, Range<usize>> {
    let body = text.trim_start_matches(BOM);
    let before = text.len() - body.len();
    let mut scalars = HashMap::new();
    for event in Parser::new_from_str_with_options(body, options()) {
        let Ok((event, span)) = event else {
            return HashMap::new();
        };
        if let (Event::Scalar(_, style, ..), Some(start), Some(end)) =
            (event, span.start.byte_offset(), span.end.byte_offset())
            && let Some(written) = body.get(start..end)
        {
            let end = start + written.trim_end().len();
            let start = match style {
                ScalarStyle::Literal | ScalarStyle::Folded => head_of_block(body, start),
                _ => start,
            };
            scalars.insert(place(&span), before + start..before + end);
        }
    }
    scalars
}

/// Returns where the `|` or `>` is after which a block begins.
fn head_of_block(text: &str, block: usize) -> usize {
    let above = text[..block].trim_end();
    let line = above.rfind('\n').map_or(0, |end| end + 1);
    let head = above[line..].split(" #").next().unwrap_or_default();
    head.rfind(['|', '>']).map_or(block, |at| line + at)
}

fn options() -> Options {
    granit_parser::options! {
        disallow_directives: true,
        emit_comments: false,
        flow_nesting_limit: DEPTH_MAX,
        block_nesting_limit: DEPTH_MAX,
    }
}

/// Returns what to do about a line that is not valid YAML, where that is known.
fn advice(line: &str) -> Option<&'static str> {
    if line.contains(": \\\"") {
        return Some(
            "quotes begin with `\\\"`, as if copied from a page that escapes them: begin and end with `\"`",
        );
    }
    let variable = line.contains("$[[");
    variable.then_some("put `$[[env.NAME]]` in quotes")
}

/// Builds a tree from events.
struct Builder<'a> {
    problems: &'a mut Problems,
    stack: Vec<Open>,
    /// The trees of anchors that are complete.
    anchors: HashMap<usize, Node>,
    root: Option<Node>,
    nodes: usize,
}

/// A collection whose end is still to come.
struct Open {
    place: Position,
    anchor: usize,
    collection: Collection,
}

enum Collection {
    List(Vec<Node>),
    /// A map. `merged` holds the entries from `<<`: they are added at the end, where the map doesn't have the
    /// key itself.
    Map {
        entries: Vec<(Key, Node)>,
        merged: Vec<(Key, Node)>,
        key: Option<Key>,
    },
}

// === impl Builder ===

impl Builder<'_> {
    /// Takes one event; `None` ends the parse, with the problem added.
    fn event(&mut self, event: Event<'_>, span: &Span) -> Option<()> {
        let place = place(span);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.no_tag(tag.is_some(), place)?;
                let quoted = style != ScalarStyle::Plain;
                let scalar = Scalar {
                    text: text.into_owned(),
                    quoted,
                    from_env: false,
                };
                self.complete(
                    Node {
                        place,
                        value: Value::Scalar(scalar),
                    },
                    anchor,
                )
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.no_tag(tag.is_some(), place)?;
                self.open(place, anchor, Collection::List(Vec::new()))
            }
            Event::MappingStart(_, anchor, tag) => {
                self.no_tag(tag.is_some(), place)?;
                self.open(
                    place,
                    anchor,
                    Collection::Map {
                        entries: Vec::new(),
                        merged: Vec::new(),
                        key: None,
                    },
                )
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Open {
                    place,
                    anchor,
                    collection,
                } = self.stack.pop()?;
                let value = match collection {
                    Collection::List(list) => Value::List(list),
                    Collection::Map {
                        mut entries, merged, ..
                    } => {
                        for (key, node) in merged {
                            if !entries.iter().any(|(known, _)| known.name == key.name) {
                                entries.push((key, node));
                            }
                        }
                        Value::Map(entries)
                    }
                };
                self.complete(Node { place, value }, anchor)
            }
            Event::Alias(anchor) => match self.anchors.get(&anchor) {
                Some(node) => {
                    let copy = node.clone();
                    self.nodes += size(&copy);
                    self.complete(copy, 0)
                }
                None => self.fail(place, "an alias within its own anchor"),
            },
            _ => Some(()),
        }
    }

    fn open(&mut self, place: Position, anchor: usize, collection: Collection) -> Option<()> {
        // A map as a key cannot be represented.
        if let Some(Open {
            collection: Collection::Map { key: None, .. },
            ..
        }) = self.stack.last()
        {
            return self.fail(place, "a key must be text");
        }
        self.stack.push(Open {
            place,
            anchor,
            collection,
        });
        Some(())
    }

    /// Takes a complete node, which becomes a key, a value, or the root.
    fn complete(&mut self, node: Node, anchor: usize) -> Option<()> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return self.fail(node.place, "too many values");
        }
        if anchor > 0 {
            self.nodes += size(&node);
            self.anchors.insert(anchor, node.clone());
        }
        match self.stack.last_mut().map(|open| &mut open.collection) {
            None => self.root = Some(node),
            Some(Collection::List(list)) => list.push(node),
            Some(Collection::Map { entries, key, .. }) => match key.take() {
                Some(key) if key.name == "<<" => return self.merge(node),
                Some(key) => entries.push((key, node)),
                None => match node.value {
                    Value::Scalar(scalar) if scalar.text.len() > KEY_BYTES_MAX => {
                        return self.fail(node.place, "a key this long is none of ours");
                    }
                    Value::Scalar(scalar) => {
                        *key = Some(Key {
                            name: scalar.text,
                            place: node.place,
                        })
                    }
                    _ => return self.fail(node.place, "a key must be text"),
                },
            },
        }
        Some(())
    }

    /// Handles `<<: *anchor`: keys that the map doesn't have itself are taken from the other map.
    fn merge(&mut self, node: Node) -> Option<()> {
        let Value::Map(others) = node.value else {
            return self.fail(node.place, "`<<` takes a map");
        };
        if let Some(Collection::Map { merged, .. }) = self.stack.last_mut().map(|open| &mut open.collection) {
            merged.extend(others);
        }
        Some(())
    }

    fn no_tag(&mut self, tagged: bool, place: Position) -> Option<()> {
        if tagged {
            self.fail(place, "YAML tags (`!name`) mean nothing here")
        } else {
            Some(())
        }
    }

    fn fail(&mut self, place: Position, message: &str) -> Option<()> {
        self.problems.error(place, "", message, None);
        None
    }
}

fn place(span: &Span) -> Position {
    Position {
        line: span.start.line() as u32,
        column: span.start.col() as u32 + 1,
    }
}

/// Returns the number of values in a tree.
fn size(node: &Node) -> usize {
    1 + match &node.value {
        Value::Scalar(_) => 0,
        Value::List(list) => list.iter().map(size).sum(),
        Value::Map(entries) => entries.iter().map(|(_, node)| 1 + size(node)).sum(),
    }
}

// === impl Node ===

impl Node {
    /// Returns whether nothing was written: `key:`, `~` or `null`.
    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar(scalar)
            if !scalar.quoted && !scalar.from_env && matches!(scalar.text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// Returns the words with which a message refers to this node.
    pub fn describe(&self) -> String {
        match &self.value {
            _ if self.is_null() => "nothing".to_owned(),
            Value::Scalar(scalar) if scalar.from_env => "the value taken from the environment".to_owned(),
            Value::Scalar(scalar) => {
                let mut text: String = scalar.text.chars().take(60).collect();
                if text.len() < scalar.text.len() {
                    text.push('…');
                }
                format!("`{}`", text.escape_debug())
            }
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a map".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems_of(text: &str) -> Vec<String> {
        let mut problems = Problems::new(None);
        parse(text, &mut problems);
        problems
            .into_sorted()
            .iter()
            .map(|p| {
                let place = p.place.unwrap();
                format!("{}:{} {}", place.line, place.column, p.message)
            })
            .collect()
    }

    #[test]
    fn places_are_those_of_the_text() {
        let node = parse("a:\n  - b: ü\n    c: [1, \"2\"]\n", &mut Problems::new(None)).unwrap();
        let Value::Map(top) = &node.value else { panic!() };
        assert_eq!(top[0].0.place, Position { line: 1, column: 1 });
        let Value::List(list) = &top[0].1.value else {
            panic!()
        };
        let Value::Map(inner) = &list[0].value else {
            panic!()
        };
        assert_eq!(
            inner[1].0,
            Key {
                name: "c".into(),
                place: Position { line: 3, column: 5 }
            }
        );
        let Value::List(numbers) = &inner[1].1.value else {
            panic!()
        };
        assert_eq!(numbers[1].place, Position { line: 3, column: 12 });
    }

    #[test]
    fn each_scalar_is_found_where_it_is_written() {
        let text = "\u{feff}a: ü # one\nb: 'x y'\nc: {d: \"e\", f: g}\nh: &i j\nk: |\n  l\n  m\nn: > # |\n\n  o\np: q\n";
        let mut found: Vec<_> = scalars(text).into_iter().collect();
        found.sort_by_key(|(place, _)| *place);
        let written: Vec<&str> = found.into_iter().map(|(_, range)| &text[range]).collect();
        let wanted = [
            "a",
            "ü",
            "b",
            "'x y'",
            "c",
            "d",
            "\"e\"",
            "f",
            "g",
            "h",
            "j",
            "k",
            "|\n  l\n  m",
            "n",
            "> # |\n\n  o",
            "p",
            "q",
        ];
        assert_eq!(written, wanted);
        assert!(scalars("a: [").is_empty());
    }

    #[test]
    fn a_merge_key_fills_in_what_is_not_said() {
        let text = "base: &base {a: 1, b: 2}\nuse:\n  <<: *base\n  a: 9\n";
        let node = parse(text, &mut Problems::new(None)).unwrap();
        let Value::Map(top) = &node.value else { panic!() };
        let Value::Map(used) = &top[1].1.value else {
            panic!()
        };
        let read: Vec<_> = used
            .iter()
            .map(|(key, node)| (key.name.as_str(), node.describe()))
            .collect();
        assert_eq!(read, [("a", "`9`".to_owned()), ("b", "`2`".to_owned())]);
    }

    #[test]
    fn hostile_files_are_refused_with_a_place() {
        assert_eq!(problems_of(""), ["1:1 the file is empty"]);
        assert_eq!(
            problems_of("a: 1\n---\nb: 2\n"),
            ["2:1 a second YAML document begins here"]
        );
        assert_eq!(
            problems_of("a: !!binary x\n"),
            ["1:13 YAML tags (`!name`) mean nothing here"]
        );
        assert_eq!(problems_of("? [a]\n: b\n"), ["1:3 a key must be text"]);
        assert!(problems_of(&"[".repeat(1_000))[0].contains("not valid YAML"));
        // Each level is ten times as large as the last: "billion laughs".
        let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for n in 1..12 {
            let last = n - 1;
            laughs += &format!("a{n}: &a{n} [{}]\n", vec![format!("*a{last}"); 10].join(", "));
        }
        assert!(problems_of(&laughs)[0].contains("too many values"));
    }
}
