//! Takes types out of action lines.

use memchr::{memchr, memmem};

use crate::slow::{Members, members};
use crate::{Ask, RouteTable, operations};

/// A body without the `"_type":"_doc"` of its action lines, for clusters that know no types; `None` if it has none, or is not
/// surely a body. Other types stay.
pub fn untyped(body: &[u8], ask: &Ask<'_>, table: &RouteTable) -> Option<Vec<u8>> {
    memmem::find(body, TYPE)?;
    let (mut out, mut done) = (Vec::with_capacity(body.len()), 0);
    for operation in operations(body, ask, table)? {
        let length = memchr(b'\n', &body[operation.start..operation.end])?;
        let line = &body[operation.start..operation.start + length];
        if let Some(plain) = without_type(line) {
            out.extend_from_slice(&body[done..operation.start]);
            out.extend_from_slice(&plain);
            done = operation.start + length;
        }
    }
    if done == 0 {
        return None;
    }
    out.extend_from_slice(&body[done..]);
    Some(out)
}

/// An action line without its type; `None` if it has none, or another one.
fn without_type(line: &[u8]) -> Option<Vec<u8>> {
    memmem::find(line, TYPE)?;
    let Members(outer) = members(line).ok()?;
    let [(operation, inner)] = outer.as_slice() else {
        return None;
    };
    let Members(keys) = members(inner.get().as_bytes()).ok()?;
    let is_type =
        |(key, value): &(String, &serde_json::value::RawValue)| key == "_type" && value.get() == "\"_doc\"";
    if keys.iter().filter(|(key, _)| key == "_type").count() != 1 || !keys.iter().any(is_type) {
        return None;
    }
    let mut plain = b"{".to_vec();
    crate::failed::write_string(&mut plain, operation);
    plain.extend_from_slice(b":{");
    for (nth, (key, value)) in keys.iter().filter(|one| !is_type(one)).enumerate() {
        if nth > 0 {
            plain.push(b',');
        }
        crate::failed::write_string(&mut plain, key);
        plain.push(b':');
        plain.extend_from_slice(value.get().as_bytes());
    }
    plain.extend_from_slice(b"}}");
    Some(plain)
}

const TYPE: &[u8] = b"\"_type\"";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dialect, Flavour, Version};

    #[test]
    fn types_are_taken_out_of_action_lines_only() {
        let table =
            RouteTable::builder(Dialect::new(Flavour::Elasticsearch, Version::new(7, 10, 2)), 1).build();
        let untyped = |body: &str| {
            let body = super::untyped(body.as_bytes(), &Ask::default(), &table);
            body.map(|body| String::from_utf8(body).unwrap())
        };
        let typed = "{\"index\":{\"_index\":\"a\",\"_type\":\"_doc\",\"_id\":\"1\"}}\n{\"_type\":\"_doc\"}\n\
            { \"delete\" : {\"_type\":\"_doc\", \"_id\":\"\\u0031\"}}\r\n{\"create\":{}}\n{}\n";
        let plain = "{\"index\":{\"_index\":\"a\",\"_id\":\"1\"}}\n{\"_type\":\"_doc\"}\n\
            {\"delete\":{\"_id\":\"\\u0031\"}}\n{\"create\":{}}\n{}\n";
        assert_eq!(untyped(typed).as_deref(), Some(plain));
        assert_eq!(untyped(plain), None);
        assert_eq!(untyped("{\"index\":{\"_type\":\"other\"}}\n{}\n"), None);
        assert_eq!(untyped("nonsense \"_type\"\n"), None);
    }
}
