//! Tests of the reference page, the explanations of keys, and the schema.

use config::*;

use crate::{expect_file, root};

#[test]
fn the_reference_page_is_the_schemas() {
    let path = root().join("docs/configuration.md");
    let page = std::fs::read_to_string(&path).unwrap_or_default();
    let mark =
        "<!-- From here on generated from the schema: UPDATE=1 cargo test -p config --test config -->\n\n";
    let intro = page.split(mark).next().unwrap_or_default();
    assert!(
        !intro.is_empty(),
        "the introduction of docs/configuration.md is gone"
    );
    expect_file(&path, &format!("{intro}{mark}{}", markdown()));
}

#[test]
fn every_key_is_documented_and_can_be_explained() {
    fn walk(path: &str, seen: &mut usize) {
        let explained = explain(path).unwrap();
        assert!(
            path.is_empty() || !explained.description.is_empty(),
            "`{path}` has no documentation"
        );
        assert!(
            path.is_empty() || !explained.value.is_empty(),
            "`{path}` says not what may be written"
        );
        *seen += 1;
        // Conditions and filters contain themselves.
        if ["when", "if", "then", "else"]
            .iter()
            .any(|key| path.ends_with(key))
        {
            return;
        }
        for (key, _) in explained.keys {
            walk(
                &if path.is_empty() {
                    key
                } else {
                    format!("{path}.{key}")
                },
                seen,
            );
        }
    }
    let mut seen = 0;
    walk("", &mut seen);
    assert!(seen > 90, "{seen} keys");
    assert_eq!(
        explain("entry[0].read_timeout").unwrap().default.as_deref(),
        Some("30s")
    );
    assert!(
        explain("disk_queue")
            .unwrap()
            .ignored
            .unwrap()
            .contains("`queue` of `bulk_reshuffle`")
    );
    assert!(
        explain("entry.nmae")
            .unwrap_err()
            .to_string()
            .contains("did you mean `name`?")
    );
}

#[test]
fn the_schema_is_one_and_takes_dotted_keys() {
    let schema = schema();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema["additionalProperties"], false);
    assert!(schema["patternProperties"].is_object());
    assert!(
        schema["$defs"]["BulkReshuffleFile"]["required"]
            .as_array()
            .unwrap()
            .iter()
            .any(|key| key == "elasticsearch")
    );
}
