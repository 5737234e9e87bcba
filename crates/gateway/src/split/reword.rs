//! Rewords errors that quote other clients ([`quote`]), separately for each client.
//!
//! A client whose item quotes others still gets the cluster's own words: an operation that could not be
//! parsed has not been executed, so it is sent once more, with nothing beside it. Where that must not be
//! done, or brings no other answer, the quote is cut out.

use std::collections::HashMap;

use bulk::{Gather, Reply};
use cluster::Node;
use http::{StatusCode, response};
use memchr::memmem;
use wire::{CHUNK_BYTES, Outgoing, PooledBytes};

use crate::nodes::quote::{self, cut};
use crate::nodes::unquoted::{self, OwnRequest};
use crate::nodes::{Message, Purpose};
use crate::split::part::{AnswerBody, Sender, Split};

/// An item that quotes other operations.
struct Quoting {
    /// Its number in the part.
    item: u32,
    words: Vec<u8>,
    /// Whether the item says that the document was refused because of its content.
    unexecuted: bool,
    /// Whether the operation was sent again and its new item quotes no other client.
    own: bool,
}

/// Nodes put `errors` among the first words of an answer.
const ERRORS_WITHIN: usize = 128;

impl Sender<'_> {
    /// Returns an answer to one client alone without what it quotes from others: connections are shared, and
    /// nodes quote what was in their memory before the request. Quotes of the client's own part stay.
    pub(crate) fn unquoted(
        &self,
        head: &response::Parts,
        words: AnswerBody,
        part: usize,
        split: Split<'_>,
    ) -> AnswerBody {
        let is_fine = head.status.is_success() && !may_have_errors(&words.all);
        // An answer to a request with the gateway's account loses all quotes.
        if words.share.is_some() || split.lent || is_fine {
            return words;
        }
        if !unquoted::may_quote(split.snapshot) || !quote::has_mark(&words.all) {
            return words;
        }
        let (load, mut begins) = (split.load, self.pool.take(0));
        let ours = &load.plan.parts[part];
        // Quotes are shorter than a chunk.
        Gather::default().next(&load.plan, ours, &load.body, begins.as_mut_vec(), CHUNK_BYTES);
        let asked = own_request(split, begins.freeze());
        match unquoted::without_others(head.status, &head.headers, &words.all, &asked) {
            Some(text) => {
                let mut own = self.pool.take(text.len());
                own.extend_from_slice(&text);
                AnswerBody::whole(own.freeze())
            }
            None => words,
        }
    }

    /// Returns the items of an answer that must not be passed on as they are, by number, with the words that
    /// replace them. Answers without failed items are not read. An answer to one client alone is read only if
    /// the account was the gateway's.
    pub(crate) async fn reword(
        &self,
        words: &AnswerBody,
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
        // The gateway's account would precede the document however often it is sent.
        if !split.lent {
            self.ask_again(&mut quoting, node, part, split).await;
        }
        let reworded = quoting.into_iter().map(|one| match one.own {
            true => (one.item, one.words),
            false => (one.item, cut(&one.words)),
        });
        reworded.collect()
    }

    /// Sends the refused documents once more by themselves, to get the cluster's words about each of them. A
    /// document that a later operation of the part writes is left alone: if the cluster took the document
    /// after all, the earlier write would come last.
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
        let again = again.freeze();
        let asked_alone = own_request(split, again.clone());
        let body = Outgoing::from(again);
        let message = Message {
            purpose: Purpose::Ask,
            ..split.message
        };
        let answer = self.outbound.whole(node, message, body, split.deadline).await;
        let Ok((head, body)) = answer else { return };
        if head.status != StatusCode::OK {
            return;
        }
        if let Ok(reply) = Reply::split(&body, asked.len() as u32) {
            for (item, at) in asked.into_iter().enumerate() {
                let own = &mut quoting[at];
                let words = reply.item(item as u32);
                own.words = quote::cut_where(words, |quoted| !asked_alone.has(quoted));
                own.own = true;
            }
        }
    }
}

/// Describes a request of the client's own account that has this body.
fn own_request(split: Split<'_>, body: PooledBytes) -> OwnRequest {
    let Message {
        method,
        target,
        headers,
        ..
    } = split.message;
    OwnRequest::new(method, target, headers, Some(body), split.lent)
}

fn may_have_errors(answer: &[u8]) -> bool {
    let begins = &answer[..answer.len().min(ERRORS_WITHIN)];
    memmem::find(begins, br#""errors":false"#).is_none()
}

fn quoting(reply: &Reply<'_>) -> Vec<Quoting> {
    let quotes = (0..reply.items()).filter(|item| quote::find(reply.item(*item)).is_some());
    let quoting = quotes.map(|item| Quoting {
        item,
        words: reply.item(item).to_vec(),
        unexecuted: reply.status(item) == Some(StatusCode::BAD_REQUEST.as_u16()),
        own: false,
    });
    quoting.collect()
}
