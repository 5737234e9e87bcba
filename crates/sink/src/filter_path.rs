//! `filter_path`, which selects parts of an answer. `*` stands for any part of a name, `**` for any number of
//! levels, a leading `-` excludes, and a dot separates levels.

use serde_json::Value;

/// Keeps the parts that the parameter selects.
pub(super) fn filter(value: &Value, filter_path: &str) -> Value {
    let (without, with): (Vec<&str>, Vec<&str>) = filter_path
        .split(',')
        .filter(|p| !p.is_empty())
        .partition(|p| p.starts_with('-'));
    let split = |path: &&str| {
        path.trim_start_matches('-')
            .split('.')
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let with: Vec<Vec<String>> = with.iter().map(split).collect();
    let without: Vec<Vec<String>> = without.iter().map(split).collect();
    let mut kept = if with.is_empty() {
        value.clone()
    } else {
        keep(value, &refs(&with)).unwrap_or(Value::Object(Default::default()))
    };
    drop_paths(&mut kept, &refs(&without));
    kept
}

type Path<'a> = &'a [String];

fn refs(paths: &[Vec<String>]) -> Vec<Path<'_>> {
    paths.iter().map(Vec::as_slice).collect()
}

/// Returns the paths below `key`, or `None` when one ends here.
fn below<'a>(paths: &[Path<'a>], key: &str) -> Option<Vec<Path<'a>>> {
    let mut rest = Vec::new();
    for path in paths {
        let Some((first, tail)) = path.split_first() else {
            continue;
        };
        if first == "**" {
            rest.push(*path);
            if let Some((second, tail)) = tail.split_first()
                && matches(second, key)
            {
                if tail.is_empty() {
                    return None;
                }
                rest.push(tail);
            } else if tail.is_empty() {
                return None;
            }
        } else if matches(first, key) {
            if tail.is_empty() {
                return None;
            }
            rest.push(tail);
        }
    }
    Some(rest)
}

fn keep(value: &Value, paths: &[Path<'_>]) -> Option<Value> {
    match value {
        Value::Object(object) => {
            let mut kept = serde_json::Map::new();
            for (key, value) in object {
                match below(paths, key) {
                    None => drop(kept.insert(key.clone(), value.clone())),
                    Some(rest) if rest.is_empty() => {}
                    Some(rest) => {
                        if let Some(value) = keep(value, &rest) {
                            kept.insert(key.clone(), value);
                        }
                    }
                }
            }
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        Value::Array(array) => {
            let kept: Vec<Value> = array.iter().filter_map(|value| keep(value, paths)).collect();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        _ => None,
    }
}

fn drop_paths(value: &mut Value, paths: &[Path<'_>]) {
    match value {
        _ if paths.is_empty() => {}
        Value::Object(object) => object.retain(|key, value| match below(paths, key) {
            None => false,
            Some(rest) => {
                drop_paths(value, &rest);
                true
            }
        }),
        Value::Array(array) => array.iter_mut().for_each(|value| drop_paths(value, paths)),
        _ => {}
    }
}

/// Returns whether a name fits a pattern with `*`.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(rest) = name.strip_prefix(head) else {
        return false;
    };
    (0..=rest.len()).any(|at| rest.is_char_boundary(at) && matches(tail, &rest[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_pick_names_levels_and_list_members() {
        let value = json!({"nodes": {"a": {"http": {"x": 1}, "name": "n"}, "b": {"name": "m"}}, "v": 1, "l": [{"k": 1, "m": 2}]});
        assert_eq!(
            filter(&value, "nodes.*.name,v"),
            json!({"nodes": {"a": {"name": "n"}, "b": {"name": "m"}}, "v": 1})
        );
        assert_eq!(filter(&value, "l.k"), json!({"l": [{"k": 1}]}));
        assert_eq!(
            filter(&value, "**.x"),
            json!({"nodes": {"a": {"http": {"x": 1}}}})
        );
        assert_eq!(
            filter(&value, "nodes,-nodes.*.name"),
            json!({"nodes": {"a": {"http": {"x": 1}}, "b": {}}})
        );
        assert_eq!(filter(&value, "none"), json!({}));
    }
}
