//! Turning an item of a bulk's answer into the answer of the single-document API.
//!
//! The same code of the servers writes both (`DocWriteResponse.innerToXContent`), with these differences:
//!
//! - The status is the last member `status` of an item; alone it is HTTP's.
//! - If a document was created, the answer alone has a header `Location` (`DocWriteResponse.getLocation`).
//! - An item of an update that changes nothing has `_shards` and `forced_refresh` of the bulk's part
//!   (`BulkShardResponse.setShardInfo`); the answer alone has `_shards` of zeros and no `forced_refresh`
//!   (`TransportUpdateAction`).
//! - An item with an error has `_index`, `_id`, `status` and `error`; the answer alone has `error` with its
//!   `root_cause`, and `status` (`ElasticsearchException.generateFailureXContent`).

use serde_json::value::RawValue;

use crate::Op;
use crate::slow::{Members, members};

/// The result of turning an item into an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turned {
    /// The answer that the single-document API gives, except for header fields.
    Answer(SingleAnswer),
    /// A refusal, in the item's words; the single-document API may word it otherwise. Nothing was executed.
    Refused(SingleAnswer),
    /// The item cannot be read.
    Unread,
}

/// The answer to a single-document request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SingleAnswer {
    /// HTTP status.
    pub status: u16,
    /// JSON.
    pub body: Vec<u8>,
    /// The index and id of a new document, from which `Location` is made.
    pub created: Option<(String, String)>,
}

/// Turns an item, `{"index":{…}}`, into the answer that the single-document API gives.
pub fn single_answer(item: &[u8]) -> Turned {
    turned(item).unwrap_or(Turned::Unread)
}

fn turned(item: &[u8]) -> Option<Turned> {
    let Members(outer) = members(item).ok()?;
    let [(name, inner)] = outer.as_slice() else {
        return None;
    };
    let op = Op::parse(name.as_bytes())?;
    let Members(mut inner) = members(inner.get().as_bytes()).ok()?;
    let value = |inner: &[(String, &RawValue)], key: &str| {
        let mut found = inner.iter().filter(|(name, _)| name == key);
        found.next().map(|(_, value)| value.get().to_owned())
    };
    let status: u16 = value(&inner, "status")?.parse().ok()?;
    if let Some(error) = value(&inner, "error") {
        return failed(status, &error);
    }
    value(&inner, "_id")?;
    let text = |key| serde_json::from_str::<String>(&value(&inner, key)?).ok();
    let created = match status {
        201 => Some((text("_index")?, text("_id")?)),
        _ => None,
    };
    let idle = op == Op::Update && value(&inner, "result")? == "\"noop\"";
    inner.retain(|(name, _)| name != "status" && !(idle && name == "forced_refresh"));
    let mut body = vec![b'{'];
    for (nth, (name, value)) in inner.iter().enumerate() {
        if nth > 0 {
            body.push(b',');
        }
        crate::failed::write_string(&mut body, name);
        body.push(b':');
        let value = match name.as_str() {
            "_shards" if idle => NO_SHARDS,
            _ => value.get(),
        };
        body.extend_from_slice(value.as_bytes());
    }
    body.push(b'}');
    Some(Turned::Answer(SingleAnswer {
        status,
        body,
        created,
    }))
}

/// Turns a failed item into an answer. A refusal is given in its own words if its root cause is known to be
/// itself. So are errors that are not the request's fault (429, 5xx): sending the request again would only
/// add to the trouble, or might execute the operation a second time.
fn failed(status: u16, error: &str) -> Option<Turned> {
    let Members(told) = members(error.as_bytes()).ok()?;
    let kind = told.iter().find(|(name, _)| name == "type")?.1.get();
    let plain = told.iter().all(|(_, value)| !value.get().starts_with(['{', '[']));
    let own_cause = plain && OWN_CAUSES.contains(&(status, kind.trim_matches('"')));
    let refused = (400..500).contains(&status) && !matches!(status, 408 | 429);
    let rest = error.trim().strip_prefix('{')?;
    let body = format!("{{\"error\":{{\"root_cause\":[{error}],{rest},\"status\":{status}}}");
    let answer = SingleAnswer {
        status,
        body: body.into_bytes(),
        created: None,
    };
    Some(match refused && !own_cause {
        true => Turned::Refused(answer),
        false => Turned::Answer(answer),
    })
}

/// Errors that name no other error as their cause, with their status. The shard itself gives each of them, in
/// the same words for either API (`VersionConflictEngineException`, `DocumentMissingException`).
const OWN_CAUSES: [(u16, &str); 2] = [
    (409, "version_conflict_engine_exception"),
    (404, "document_missing_exception"),
];

const NO_SHARDS: &str = r#"{"total":0,"successful":0,"failed":0}"#;

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(item: &str) -> (u16, String, Option<(String, String)>) {
        match single_answer(item.as_bytes()) {
            Turned::Answer(answer) => (
                answer.status,
                String::from_utf8(answer.body).unwrap(),
                answer.created,
            ),
            other => panic!("{item}: {other:?}"),
        }
    }

    #[test]
    fn a_success_loses_its_status_and_keeps_all_else() {
        let item = r#"{"create":{"_index":"a\u00e9","_id":"\"1\"","_version":1,"result":"created","forced_refresh":true,"_shards":{"total":2,"successful":1,"failed":0},"_seq_no":0,"_primary_term":1,"status":201}}"#;
        let (status, body, created) = answer(item);
        assert_eq!(status, 201);
        assert_eq!(
            body,
            item.replace(r#","status":201}}"#, "}")
                .replace(r#"{"create":"#, "")
        );
        assert_eq!(created, Some(("aé".to_owned(), "\"1\"".to_owned())));
        let (status, body, created) = answer(
            r#"{"delete":{"_index":"a","_type":"_doc","_id":"1","_version":1,"result":"not_found","status":404}}"#,
        );
        assert_eq!((status, created), (404, None));
        assert_eq!(
            body,
            r#"{"_index":"a","_type":"_doc","_id":"1","_version":1,"result":"not_found"}"#
        );
    }

    #[test]
    fn an_update_that_changes_nothing_has_touched_no_shard() {
        let item = r#"{"update":{"_index":"a","_id":"1","_version":1,"result":"noop","forced_refresh":true,"_shards":{"total":2,"successful":2,"failed":0},"_seq_no":0,"_primary_term":1,"get":{"found":true},"status":200}}"#;
        assert_eq!(
            answer(item).1,
            r#"{"_index":"a","_id":"1","_version":1,"result":"noop","_shards":{"total":0,"successful":0,"failed":0},"_seq_no":0,"_primary_term":1,"get":{"found":true}}"#
        );
        let dropped = r#"{"index":{"_index":"a","_id":"1","_version":-3,"result":"noop","_shards":{"total":1,"successful":0,"failed":0},"status":200}}"#;
        assert!(answer(dropped).1.contains(r#""total":1"#));
    }

    #[test]
    fn an_error_that_is_its_own_root_cause_is_told_as_one() {
        let error = r#"{"type":"version_conflict_engine_exception","reason":"[1]: no","index_uuid":"u","shard":"0","index":"a"}"#;
        let item = format!(r#"{{"create":{{"_index":"a","_id":"1","status":409,"error":{error}}}}}"#);
        let inner = &error[1..error.len() - 1];
        assert_eq!(
            answer(&item).1,
            format!(r#"{{"error":{{"root_cause":[{error}],{inner}}},"status":409}}"#)
        );
        let busy = r#"{"index":{"_index":"a","_id":null,"status":429,"error":{"type":"es_rejected_execution_exception","reason":"x"}}}"#;
        assert_eq!(answer(busy).0, 429);
        let away = r#"{"index":{"_index":"a","_id":"1","status":503,"error":{"type":"x","reason":"x","caused_by":{"type":"y"}}}}"#;
        assert_eq!(answer(away).0, 503);
    }

    #[test]
    fn other_refusals_are_not_worded_here() {
        for error in [
            r#"{"type":"mapper_parsing_exception","reason":"x","caused_by":{"type":"y","reason":"z"}}"#,
            r#"{"type":"routing_missing_exception","reason":"x"}"#,
            r#"{"type":"version_conflict_engine_exception","reason":"x","caused_by":{"type":"y"}}"#,
        ] {
            let item = format!(r#"{{"index":{{"_index":"a","_id":"1","status":400,"error":{error}}}}}"#);
            let turned = single_answer(item.as_bytes());
            let Turned::Refused(answer) = turned else {
                panic!("{item}: {turned:?}")
            };
            let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!((answer.status, &body["status"]), (400, &400.into()));
            assert_eq!(body["error"]["root_cause"][0]["type"], body["error"]["type"]);
        }
    }

    #[test]
    fn what_is_no_item_is_not_read() {
        for item in [
            "",
            "{}",
            r#"{"get":{"status":200}}"#,
            r#"{"index":{"_id":"1"}}"#,
            r#"{"index":{"status":201}}"#,
            r#"{"update":{"_id":"1","status":200}}"#,
            r#"{"index":{"_id":"1","status":400,"error":"x"}}"#,
            r#"{"index":{"_id":"1","status":200}} x"#,
        ] {
            assert_eq!(single_answer(item.as_bytes()), Turned::Unread, "{item}");
        }
    }
}
