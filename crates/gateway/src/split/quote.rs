//! What a node's errors quote. Elasticsearch up to 7 ends what its JSON parser says with ` at [Source: (byte[])"…"; line: 1,
//! column: 9]`, where the quote begins at the beginning of the memory that the document lies in: mostly what was read from the
//! network, so the request's head and its first documents. Of a request that carries several clients' parts that is another
//! client's, and of one that was sent with the gateway's own account it may be that account.
//!
//! A client whose item quotes others gets the cluster's own words all the same: what could not be parsed has not been executed,
//! so it is sent once more, with nothing beside it. Where that is not to be done, or brings nothing, the quote is cut out.

use std::collections::HashMap;
use std::ops::Range;

use bulk::{Gather, Reply};
use cluster::Node;
use http::StatusCode;
use memchr::{memchr, memmem};
use wire::{CHUNK_BYTES, Outgoing, Pool, Shared};

use crate::split::part::{Sender, Split, Words};

/// An item that quotes.
struct Quoting {
    /// Its number in the part.
    item: u32,
    words: Vec<u8>,
    /// It says that the document was refused for what it holds.
    unexecuted: bool,
    /// It was asked for again, and quotes nobody else.
    own: bool,
}

/// Before the name of what is quoted.
const MARK: &[u8] = b"[Source: (";

/// How a quote begins, and ends.
const OPENS: &[u8] = br#"\""#;

/// After a quote.
const AFTER: &[u8] = b"; line: ";

/// Nodes say `errors` among the first words of an answer.
const ERRORS_WITHIN: usize = 128;

impl Sender<'_> {
    /// The items of an answer that must not be passed on as they are, by their numbers, and what is said instead. Answers
    /// without failed items are not read for it, and those to one client alone only if the account was the gateway's.
    pub(crate) async fn reword(
        &self,
        words: &Words,
        node: &Node,
        part: usize,
        split: Split<'_>,
    ) -> Vec<(u32, Vec<u8>)> {
        let mut quoting = match &words.share {
            Some(share) if share.errors() => quoting(&share.reply(&words.all)),
            None if split.lent && may_have_errors(&words.all) => {
                let docs = split.load.plan.parts[part].docs;
                Reply::split(&words.all, docs).map_or(Vec::new(), |reply| quoting(&reply))
            }
            _ => return Vec::new(),
        };
        if quoting.is_empty() {
            return Vec::new();
        }
        // The account would stand before the document however often it is sent.
        if !split.lent {
            self.ask_again(&mut quoting, node, part, split).await;
        }
        let reworded = quoting.into_iter().map(|one| match one.own {
            true => (one.item, one.words),
            false => (one.item, cut(&one.words)),
        });
        reworded.collect()
    }

    /// Sends the documents that were refused once more by themselves, for what the cluster says of them then. What a later
    /// operation of the part writes is left alone: it must not come first should the document be taken after all.
    async fn ask_again(&self, quoting: &mut [Quoting], node: &Node, part: usize, split: Split<'_>) {
        let load = split.load;
        let ours = &load.plan.parts[part];
        let (mut gather, mut lines) = (Gather::default(), Vec::new());
        while gather.next(&load.plan, ours, &load.body, &mut lines, CHUNK_BYTES) > 0 {}
        let operations = bulk::operations(&lines, split.ask, &split.snapshot.table);
        let Some(operations) = operations.filter(|found| found.len() == ours.docs as usize) else {
            return;
        };
        let last: HashMap<u64, usize> = operations
            .iter()
            .enumerate()
            .map(|(item, operation)| (operation.document, item))
            .collect();
        let (mut again, mut asked) = (self.pool.take(0), Vec::new());
        for (at, one) in quoting.iter().enumerate() {
            let operation = operations[one.item as usize];
            if one.unexecuted && last.get(&operation.document) == Some(&(one.item as usize)) {
                again.extend_from_slice(&lines[operation.start..operation.end]);
                asked.push(at);
            }
        }
        if asked.is_empty() {
            return;
        }
        let body = Outgoing::from(again.freeze());
        let answer = self
            .outbound
            .whole(node, split.message, body, split.deadline)
            .await;
        let Ok((head, body)) = answer else { return };
        if head.status != StatusCode::OK {
            return;
        }
        if let Ok(reply) = Reply::split(&body, asked.len() as u32) {
            for (item, at) in asked.into_iter().enumerate() {
                let own = &mut quoting[at];
                (own.words, own.own) = (reply.item(item as u32).to_vec(), true);
            }
        }
    }
}

fn may_have_errors(answer: &[u8]) -> bool {
    let begins = &answer[..answer.len().min(ERRORS_WITHIN)];
    memmem::find(begins, br#""errors":false"#).is_none()
}

fn quoting(reply: &Reply<'_>) -> Vec<Quoting> {
    let quotes = (0..reply.items()).filter(|item| find(reply.item(*item)).is_some());
    let quoting = quotes.map(|item| Quoting {
        item,
        words: reply.item(item).to_vec(),
        unexecuted: reply.status(item) == Some(StatusCode::BAD_REQUEST.as_u16()),
        own: false,
    });
    quoting.collect()
}

/// An answer without what it quotes.
pub(crate) fn without(answer: Shared, pool: &Pool) -> Shared {
    if find(&answer).is_none() {
        return answer;
    }
    let mut own = pool.take(answer.len());
    own.extend_from_slice(&cut(&answer));
    own.freeze()
}

/// A text of JSON without what it quotes.
fn cut(text: &[u8]) -> Vec<u8> {
    cut_where(text, |_| true)
}

/// Whether something may be quoted in an answer.
pub(crate) fn has_mark(answer: &[u8]) -> bool {
    memmem::find(answer, MARK).is_some()
}

/// A text of JSON without those quotes that `is_meant` is true of.
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

/// An answer in another form than JSON with nothing but spaces where it quotes: texts keep their lengths, which some
/// forms say beforehand.
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

/// The first quote of a text of JSON: all between its beginning and what follows the last one in the same string, since what
/// is quoted may look like the end of a quote.
fn find(text: &[u8]) -> Option<Range<usize>> {
    let mut from = 0;
    loop {
        let name = from + memmem::find(&text[from..], MARK)? + MARK.len();
        let start = name + memchr(b')', &text[name..])? + 1;
        if text[start..].starts_with(OPENS) {
            let end = end_of_string(text, start);
            let after = memmem::rfind(&text[start..end], AFTER);
            return Some(start..after.map_or(end, |after| start + after));
        }
        from = start;
    }
}

/// The end of the string of JSON that `at` lies in.
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
