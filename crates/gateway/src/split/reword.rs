//! Errors that quote other clients ([`quote`]), worded anew for each client.
//!
//! A client whose item quotes others gets the cluster's own words all the same: what could not be parsed has
//! not been executed, so it is sent once more, with nothing beside it. Where that is not to be done, or
//! brings nothing, the quote is cut out.

use std::collections::HashMap;

use bulk::{Gather, Reply};
use cluster::Node;
use http::StatusCode;
use memchr::memmem;
use wire::{CHUNK_BYTES, Outgoing};

use crate::nodes::quote::{self, cut};
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

/// Nodes say `errors` among the first words of an answer.
const ERRORS_WITHIN: usize = 128;

impl Sender<'_> {
    /// The items of an answer that must not be passed on as they are, by their numbers, and what is said
    /// instead. Answers without failed items are not read for it, and those to one client alone only if the
    /// account was the gateway's.
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

    /// Sends the documents that were refused once more by themselves, for what the cluster says of them then.
    /// What a later operation of the part writes is left alone: it must not come first should the document be
    /// taken after all.
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
    let quotes = (0..reply.items()).filter(|item| quote::find(reply.item(*item)).is_some());
    let quoting = quotes.map(|item| Quoting {
        item,
        words: reply.item(item).to_vec(),
        unexecuted: reply.status(item) == Some(StatusCode::BAD_REQUEST.as_u16()),
        own: false,
    });
    quoting.collect()
}
