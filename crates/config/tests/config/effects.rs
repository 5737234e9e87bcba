//! Every key has an effect: without its line, a file of `every-key` is another configuration or none.
//!
//! A key exists in three places. The compiler finds a key that is resolved and nowhere written, but not a key
//! that can be written and that nothing resolves: this test does.

use std::collections::BTreeSet;

use config::explain;

use crate::{fixture, parse};

/// The files, in which each key has a line of its own and a value that is not its default.
const FILES: [&str; 4] = ["disk.yml", "kafka.yml", "sync.yml", "older.yml"];

/// Keys without an effect, and why.
const WITHOUT: [(&str, &str); 2] = [
    ("router.rules.description", "a remark for readers of the file"),
    ("flow.filter.elasticsearch.balancer", "there is one balancer"),
];

/// Conditions and filters contain themselves.
const NESTED: [&str; 6] = ["when", "then", "else", "not", "and", "or"];

#[test]
fn every_key_that_may_be_written_has_an_effect() {
    let (mut written, mut idle) = (BTreeSet::new(), Vec::new());
    for file in FILES {
        let text = fixture(&format!("every-key/{file}"));
        let whole = parse(&text).unwrap_or_else(|rejected| panic!("{file}: {:#?}", rejected.problems));
        let whole = format!("{:?}", whole.config);
        for (line, path) in keys(&text) {
            let without = parse(&without(&text, line));
            if without.is_ok_and(|without| format!("{:?}", without.config) == whole) {
                idle.push(format!("{file}:{}: {path}", line + 1));
            }
            written.insert(path);
        }
    }
    assert!(idle.is_empty(), "accepted, and without any effect: {idle:#?}");
    let missing: Vec<String> = all_keys()
        .into_iter()
        .filter(|key| !WITHOUT.iter().any(|(without, _)| without == key))
        .filter(|key| {
            !written
                .iter()
                .any(|path| path == key || path.starts_with(&format!("{key}.")))
        })
        .collect();
    assert!(missing.is_empty(), "no file of `every-key` has {missing:#?}");
}

/// Returns the lines that give a key its value, each with the path of the key.
fn keys(text: &str) -> Vec<(usize, String)> {
    let (mut found, mut around): (_, Vec<(usize, &str)>) = (Vec::new(), Vec::new());
    for (line, text) in text.lines().enumerate() {
        let words = text.trim_start();
        let indent = text.len() - words.len();
        let Some((key, value)) = words.split_once(':').filter(|_| !words.starts_with('#')) else {
            continue;
        };
        around.retain(|(outer, _)| *outer < indent);
        around.push((indent, key));
        if !value.is_empty() {
            let path: Vec<&str> = around.iter().map(|(_, key)| *key).collect();
            found.push((line, path.join(".")));
        }
    }
    found
}

/// Returns the text without one line.
fn without(text: &str, line: usize) -> String {
    let lines = text.lines().enumerate().filter(|(at, _)| *at != line);
    lines.map(|(_, text)| format!("{text}\n")).collect()
}

/// Returns all keys that take a value and have an effect, by the schema.
fn all_keys() -> Vec<String> {
    fn walk(path: String, found: &mut Vec<String>) {
        let last = path.rsplit('.').next().unwrap_or_default();
        let keys = match NESTED.contains(&last) {
            true => Vec::new(),
            false => explain(&path).unwrap().keys,
        };
        for (key, _) in &keys {
            walk(
                if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                },
                found,
            );
        }
        if keys.is_empty() {
            found.push(path);
        }
    }
    let mut found = Vec::new();
    walk(String::new(), &mut found);
    found
}
