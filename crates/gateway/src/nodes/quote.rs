//! Quotes in a node's errors. Up to version 7, Elasticsearch ends the messages of its JSON parser with ` at
//! [Source: (byte[])"…"; line: 1, column: 9]`, where the quote starts at the beginning of the memory that
//! holds the document. Mostly this is what was read from the network, so the quote contains the head of the
//! request and its first documents. In a request that carries parts of several clients, these belong to
//! another client, and in a request that was sent with the gateway's own account, the head may contain that
//! account.

use std::ops::Range;

use memchr::{memchr, memmem};
use wire::{Pool, PooledBytes};

/// The text before the name of the quoted source.
const MARK: &[u8] = b"[Source: (";

/// The text that begins and ends a quote.
const OPENS: &[u8] = br#"\""#;

/// The text after a quote.
const AFTER: &[u8] = b"; line: ";

/// Returns an answer without its quotes.
pub(crate) fn without(answer: PooledBytes, pool: &Pool) -> PooledBytes {
    if find(&answer).is_none() {
        return answer;
    }
    let mut own = pool.take(answer.len());
    own.extend_from_slice(&cut(&answer));
    own.freeze()
}

/// Returns a JSON text without its quotes.
pub(crate) fn cut(text: &[u8]) -> Vec<u8> {
    cut_where(text, |_| true)
}

/// Returns whether an answer may contain a quote.
pub(crate) fn has_mark(answer: &[u8]) -> bool {
    memmem::find(answer, MARK).is_some()
}

/// Returns a JSON text without the quotes for which `is_meant` returns true.
pub(crate) fn cut_where(text: &[u8], is_meant: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let (mut out, mut at) = (Vec::with_capacity(text.len()), 0);
    while let Some(quote) = find(&text[at..]) {
        let quote = at + quote.start..at + quote.end;
        let inner = &text[quote.start + OPENS.len()..quote.end];
        let inner = &inner[..memmem::rfind(inner, OPENS).unwrap_or(inner.len())];
        let kept = if is_meant(inner) { quote.start } else { quote.end };
        out.extend_from_slice(&text[at..kept]);
        at = quote.end;
    }
    out.extend_from_slice(&text[at..]);
    out
}

/// Returns an answer in another format than JSON with its quotes replaced by spaces. Texts keep their
/// lengths, which some formats state beforehand.
pub(crate) fn blank(answer: &[u8]) -> Vec<u8> {
    let (mut out, mut at) = (answer.to_vec(), 0);
    while let Some(mark) = memmem::find(&out[at..], MARK) {
        let start = at + mark + MARK.len();
        let end = memmem::find(&out[start..], AFTER).map_or(out.len(), |after| start + after);
        out[start..end].fill(b' ');
        at = end;
    }
    out
}

/// Returns the first quote in a JSON text. The quote extends to the last [`AFTER`] in the same string, since
/// the quoted text may look like the end of a quote. An error with two places quotes the same text twice; the
/// first of these quotes is returned.
pub(crate) fn find(text: &[u8]) -> Option<Range<usize>> {
    let mut from = 0;
    loop {
        let name = from + memmem::find(&text[from..], MARK)? + MARK.len();
        let start = name + memchr(b')', &text[name..])? + 1;
        if text[start..].starts_with(OPENS) {
            let end = end_of_string(text, start);
            let Some(after) = memmem::rfind(&text[start..end], AFTER) else {
                return Some(start..end);
            };
            let quoted = &text[start..start + after];
            return Some(start..start + twin(quoted).unwrap_or(after));
        }
        from = start;
    }
}

/// Returns the length of the first of two quotes, if the text consists of the same quote twice, separated by
/// the end of one place and the beginning of another: `; line: 1, column: 1])\n at [Source: (byte[])`.
fn twin(quoted: &[u8]) -> Option<usize> {
    memmem::find_iter(quoted, AFTER).find(|&first| {
        let second = between(&quoted[first..]).map(|length| first + length);
        second.is_some_and(|second| quoted[..first] == quoted[second..])
    })
}

/// Returns the length of the text between two quotes.
fn between(text: &[u8]) -> Option<usize> {
    let number = |text: &mut &[u8]| {
        let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        *text = &text[digits..];
        (1..=10).contains(&digits).then_some(())
    };
    let mut rest = text.strip_prefix(AFTER)?;
    number(&mut rest)?;
    rest = rest.strip_prefix(b", column: ")?;
    number(&mut rest)?;
    rest = rest.strip_prefix(br"])\n at [Source: (")?;
    rest = &rest[memchr(b')', rest)? + 1..];
    Some(text.len() - rest.len())
}

/// Returns the end of the JSON string that contains `at`.
fn end_of_string(text: &[u8], mut at: usize) -> usize {
    while at < text.len() {
        match text[at] {
            b'"' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_cut_and_all_else_stays() {
        let item = |reason: &str| {
            let reason = serde_json::to_string(reason).unwrap();
            format!(
                "{{\"index\":{{\"error\":{{\"reason\":{reason},\"caused_by\":{{\"reason\":{reason}}}}}}}}}"
            )
        };
        for (reason, expected) in [
            ("no [Source: here", "no [Source: here"),
            (
                "bad\n at [Source: REDACTED (`INCLUDE_SOURCE_IN_LOCATION` disabled); byte offset: #7]",
                "bad\n at [Source: REDACTED (`INCLUDE_SOURCE_IN_LOCATION` disabled); byte offset: #7]",
            ),
            (
                "bad\n at [Source: (org.elasticsearch.StreamInput); line: 1, column: 3]",
                "bad\n at [Source: (org.elasticsearch.StreamInput); line: 1, column: 3]",
            ),
            (
                "bad\n at [Source: (byte[])\"{\"a\":\"\\x\"}\n\"[truncated 7 bytes]; line: 1, column: 9]",
                "bad\n at [Source: (byte[]); line: 1, column: 9]",
            ),
            (
                "bad (at [Source: (byte[])\"{\"; line: 1, column: 1])\n at [Source: (byte[])\"{\"; line: 2, column: 9]",
                "bad (at [Source: (byte[]); line: 1, column: 1])\n at [Source: (byte[]); line: 2, column: 9]",
            ),
            (
                "bad (at [Source: (byte[])\"mine\"; line: 1, column: 1])\n at [Source: (byte[])\"other\"; line: 2, column: 9]",
                "bad (at [Source: (byte[]); line: 2, column: 9]",
            ),
            (
                "bad at [Source: (byte[])\"GET \"; line: 1, column: 1] secret\"; line: 1, column: 9]",
                "bad at [Source: (byte[]); line: 1, column: 9]",
            ),
            (
                "bad at [Source: (byte[])\"never ended",
                "bad at [Source: (byte[])",
            ),
        ] {
            let cut = String::from_utf8(cut(item(reason).as_bytes())).unwrap();
            assert_eq!(cut, item(expected));
        }
    }
}
