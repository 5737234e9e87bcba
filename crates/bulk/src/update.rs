//! The source line of an update, which the coordinating node parses.
//!
//! A malformed line makes the servers reject the whole request (`UpdateRequest.fromXContent`,
//! `UpdateRequest.validate`, `Script.parse`), so a split is safe only for lines that every server certainly
//! accepts.

use crate::strict::Strict;

/// Returns whether every server version certainly accepts this source line of an update.
pub(crate) fn acceptable(source: &[u8], compare_and_set: bool) -> bool {
    read(source, compare_and_set).is_some()
}

fn read(source: &[u8], compare_and_set: bool) -> Option<()> {
    let mut strict = Strict::new(source)?;
    let (mut doc, mut upsert, mut script, mut doc_as_upsert, mut scripted) =
        (false, false, false, false, false);
    strict.peek()?;
    strict.object(|strict, key| {
        match key {
            b"doc" => doc = document(strict)?,
            b"upsert" => upsert = document(strict)?,
            b"script" => script = self::script(strict)?,
            b"doc_as_upsert" => doc_as_upsert = strict.boolean()?,
            b"scripted_upsert" => scripted = strict.boolean()?,
            b"detect_noop" => drop(strict.boolean()?),
            _ => return None,
        }
        Some(())
    })?;
    strict.end()?;
    let upserts = upsert || doc_as_upsert || scripted;
    let sound =
        doc != script && (doc || !doc_as_upsert) && (script || !scripted) && !(compare_and_set && upserts);
    if sound { Some(()) } else { None }
}

fn document(strict: &mut Strict<'_>) -> Option<bool> {
    strict.peek()?;
    strict.object(|strict, _| strict.value())?;
    Some(true)
}

fn script(strict: &mut Strict<'_>) -> Option<bool> {
    if strict.peek()? == b'"' {
        return if strict.string()?.is_empty() {
            None
        } else {
            Some(true)
        };
    }
    let (mut source, mut id, mut lang) = (false, false, false);
    strict.object(|strict, key| {
        match key {
            b"source" => source = !strict.string()?.is_empty(),
            b"id" => id = !strict.string()?.is_empty(),
            b"lang" => lang = !strict.string()?.is_empty(),
            b"params" => drop(document(strict)?),
            _ => return None,
        }
        Some(())
    })?;
    // A stored script has no language of its own to choose.
    if source != id && !(id && lang) {
        Some(true)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_forms_that_clients_write() {
        for source in [
            r#"{"doc":{"a":1}}"#,
            r#"{ "doc" : {"a":{"b":[1,2]}}, "doc_as_upsert" : true }"#,
            "{\"doc\":{},\"detect_noop\":false}\r",
            r#"{"doc":{"a":1},"upsert":{"a":0}}"#,
            r#"{"script":"ctx._source.n++"}"#,
            r#"{"script":{"source":"ctx._source.n+=params.n","lang":"painless","params":{"n":1}},"upsert":{"n":1}}"#,
            r#"{"script":{"id":"stored"},"scripted_upsert":true,"upsert":{}}"#,
        ] {
            assert!(acceptable(source.as_bytes(), false), "{source}");
        }
        // A long document, of texts of a usual length.
        let texts = vec![format!("\"{}\"", "x".repeat(1 << 20)); 8].join(",");
        assert!(acceptable(
            format!("{{\"doc\":{{\"a\":[{texts}]}}}}").as_bytes(),
            false
        ));
    }

    #[test]
    fn refuses_what_is_or_may_be_rejected() {
        for source in [
            "",
            "{}",
            "[]",
            r#"{"doc":1}"#,
            r#"{"doc":null}"#,
            r#"{"doc":{"a":1,"a":2}}"#,
            r#"{"doc":{"a":1}"#,
            r#"{"doc":{}} {}"#,
            r#"{"doc":{},"script":"x"}"#,
            r#"{"doc":{},"unknown":1}"#,
            r#"{"doc":{},"_source":true}"#,
            r#"{"doc":{},"doc_as_upsert":"true"}"#,
            r#"{"doc_as_upsert":true,"script":"x"}"#,
            r#"{"script":""}"#,
            r#"{"script":{"id":"a","source":"b"}}"#,
            r#"{"script":{"id":"a","lang":"painless"}}"#,
            r#"{"script":{"inline":"a"}}"#,
            r#"{"upsert":{}}"#,
        ] {
            assert!(!acceptable(source.as_bytes(), false), "{source}");
        }
        assert!(!acceptable(br#"{"doc":{},"doc_as_upsert":true}"#, true));
        // OpenSearch refuses the whole request for a text of more than 50,000,000 characters, or fewer, as
        // configured.
        let long = "x".repeat(5_000_000);
        assert!(!acceptable(
            format!("{{\"doc\":{{\"a\":\"{long}\"}}}}").as_bytes(),
            false
        ));
        assert!(!acceptable(
            format!("{{\"script\":{{\"source\":\"{long}\"}}}}").as_bytes(),
            false
        ));
        assert!(acceptable(br#"{"doc":{}}"#, true));
    }
}
