//! The document that an action line names, for callers that keep back parts of a body.

use std::borrow::Cow;

use serde_json::Value;

use crate::{Op, scan};

/// The names in an action line, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject<'a> {
    /// The operation.
    pub op: Op,
    /// The index, as the line names it.
    pub index: Option<Cow<'a, str>>,
    /// The document's id.
    pub id: Option<Cow<'a, str>>,
}

/// Reads the names in the first line of an operation; none if that is not an action line.
pub fn subject(lines: &[u8]) -> Option<Subject<'_>> {
    if let Some((action, _)) = scan::action(lines, 0) {
        return Some(Subject {
            op: action.op,
            index: action.index.map(String::from_utf8_lossy),
            id: action.id.map(String::from_utf8_lossy),
        });
    }
    let line = lines.split(|byte| *byte == b'\n').next()?;
    let value: Value = serde_json::from_slice(line).ok()?;
    let (op, meta) = value.as_object()?.iter().next()?;
    let op = match Op::parse(op.as_bytes())? {
        Op::Index if meta["op_type"] == "create" => Op::Create,
        op => op,
    };
    let text = |key: &str| {
        let value = meta.get(key).filter(|value| !value.is_null())?;
        let text = value.as_str().map(str::to_owned);
        Some(Cow::Owned(text.unwrap_or_else(|| value.to_string())))
    };
    Some(Subject {
        op,
        index: text("_index"),
        id: text("_id"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_readers_find_the_same_names() {
        let subject_of = |line: &'static str| subject(line.as_bytes()).unwrap();
        let quick = subject_of("{\"index\":{\"_index\":\"logs\",\"_id\":\"1\"}}\n{}\n");
        let slow = subject_of("{ \"index\" : {\"_index\":\"logs\",\"_id\":\"\\u0031\"}}\n{}\n");
        assert_eq!(quick, slow);
        assert_eq!(
            (quick.index.as_deref(), quick.id.as_deref()),
            (Some("logs"), Some("1"))
        );
        let bare = subject_of("{\"create\":{}}\n{}\n");
        assert_eq!((bare.op, bare.index, bare.id), (Op::Create, None, None));
        assert_eq!(subject(b"[]\n"), None);
    }
}
