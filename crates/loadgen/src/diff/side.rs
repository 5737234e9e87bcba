//! One side: an index of a cluster, counted, read as a whole, and looked into by ids.
//!
//! A side is read with scrolls, which every version of both servers has, and which show a shard as it was at
//! one moment. Each slice of the shards gets a scroll of its own, since the server works on one page of a
//! scroll at a time. Slicing costs nothing as long as there are no more slices than shards: each shard is
//! then in one slice as a whole (`SliceBuilder` of both servers). Documents are read in the order in which
//! the shards hold them, since any other order would require sorting, and ids cannot be sorted where
//! `indices.id_field_data.enabled` is false.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::error::Trouble;
use crate::ask::Ask;
use crate::engine::Stop;

/// An index, and the server that is asked for it.
pub(super) struct Side<'s> {
    ask: Ask,
    /// The index's name, escaped for a path.
    index: String,
    /// Number of documents in a page.
    page: u32,
    /// Ends the reading when the comparison is told to stop.
    stop: &'s Stop,
    /// Set when the other side has failed, so nobody needs the rest.
    given_up: &'s Stop,
    /// Number of documents that have been read, for progress reports.
    read: &'s AtomicU64,
}

/// A document as the index shows it.
#[derive(Debug, Deserialize)]
pub(super) struct Hit<'a> {
    #[serde(rename = "_id", borrow)]
    pub(super) id: Cow<'a, str>,
    #[serde(rename = "_routing", default)]
    pub(super) routing: Option<String>,
    #[serde(rename = "_source", borrow, default)]
    pub(super) source: Option<&'a RawValue>,
}

/// An owned copy of a [`Hit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnedHit {
    pub(super) id: String,
    pub(super) routing: Option<String>,
    pub(super) source: Option<String>,
}

/// A slice: every `of`-th shard of an index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice {
    pub(super) number: u32,
    pub(super) of: u32,
}

#[derive(Deserialize)]
struct Settings {
    settings: ShardNumber,
}

#[derive(Deserialize)]
struct ShardNumber {
    #[serde(rename = "index.number_of_shards")]
    shards: String,
}

#[derive(Deserialize)]
struct Count {
    count: u64,
    #[serde(rename = "_shards")]
    shards: Shards,
}

#[derive(Deserialize)]
struct Shards {
    failed: u64,
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(rename = "_scroll_id", default)]
    scroll: Option<String>,
    #[serde(default)]
    timed_out: bool,
    #[serde(rename = "_shards")]
    shards: Shards,
    #[serde(borrow)]
    hits: Hits<'a>,
}

#[derive(Deserialize)]
struct Hits<'a> {
    #[serde(borrow)]
    hits: Vec<Hit<'a>>,
}

// === impl Hit ===

impl Hit<'_> {
    pub(super) fn source(&self) -> Option<&str> {
        self.source.map(RawValue::get)
    }
}

// === impl Side ===

impl<'s> Side<'s> {
    pub(super) fn new(
        ask: Ask,
        index: &str,
        page: u32,
        stop: &'s Stop,
        given_up: &'s Stop,
        read: &'s AtomicU64,
    ) -> Self {
        Self {
            ask,
            index: utf8_percent_encode(index, IN_PATHS).to_string(),
            page,
            stop,
            given_up,
            read,
        }
    }

    /// Refreshes the index, so that earlier writes become visible.
    pub(super) async fn refresh(&self) -> Result<(), Trouble> {
        let path = format!("/{}/_refresh", self.index);
        self.ask.bytes(&Method::POST, &path, None).await.map(drop)?;
        Ok(())
    }

    pub(super) async fn count(&self) -> Result<u64, Trouble> {
        let path = format!("/{}/_count", self.index);
        let count: Count = self.ask.json(&Method::GET, &path, None).await?;
        whole(&path, &count.shards, false)?;
        Ok(count.count)
    }

    /// Returns how many primaries the index has: the fewest, if there are several indices, and 1 if the
    /// account may not know.
    pub(super) async fn shards(&self) -> u32 {
        let path = format!(
            "/{}/_settings/index.number_of_shards?flat_settings=true",
            self.index
        );
        let settings: Result<HashMap<String, Settings>, _> = self.ask.json(&Method::GET, &path, None).await;
        let settings = settings.unwrap_or_default();
        let shards = settings.values().map(|one| one.settings.shards.parse());
        shards.flatten().min().unwrap_or(1).max(1)
    }

    /// Reads all documents of a slice, a page at a time; the next page is on its way while one is processed.
    pub(super) async fn read(
        &self,
        slice: Slice,
        mut page: impl FnMut(&[Hit<'_>]) -> Result<(), Trouble>,
    ) -> Result<(), Trouble> {
        let begin = format!(
            "/{}/_search?scroll={KEEP_ALIVE}&allow_partial_search_results=false",
            self.index
        );
        let mut query = json!({"size": self.page, "sort": ["_doc"], "_source": true});
        if slice.of > 1 {
            query["slice"] = json!({"id": slice.number, "max": slice.of});
        }
        let mut answer = self.ask.bytes(&Method::POST, &begin, Some(&query)).await?;
        let mut scroll = None;
        let read = loop {
            let parsed = match parse(&begin, &answer) {
                Ok(parsed) => parsed,
                Err(error) => break Err(error),
            };
            // The scroll id may change from page to page; the last one counts.
            scroll = parsed.scroll.clone().or(scroll);
            let more = match &scroll {
                Some(scroll) if !parsed.hits.hits.is_empty() => {
                    Some(json!({"scroll": KEEP_ALIVE, "scroll_id": scroll}))
                }
                _ => None,
            };
            let next = async {
                match &more {
                    Some(more) => self.ask.bytes(&Method::POST, SCROLL, Some(more)).await.map(Some),
                    None => Ok(None),
                }
            };
            let taken = async {
                // The request for the next page goes first.
                tokio::task::yield_now().await;
                self.take(&begin, &parsed, &mut page)
            };
            answer = match tokio::join!(next, taken) {
                (Ok(Some(next)), Ok(())) => next,
                (Err(error), Ok(())) => break Err(error.into()),
                (_, taken) => break taken,
            };
        };
        if let Some(scroll) = scroll {
            // The scroll would end by itself, but costs the cluster until then.
            let end = json!({"scroll_id": [scroll]});
            let _ = self.ask.bytes(&Method::DELETE, SCROLL, Some(&end)).await;
        }
        read
    }

    /// Passes a page on.
    fn take(
        &self,
        path: &str,
        found: &Page<'_>,
        page: &mut impl FnMut(&[Hit<'_>]) -> Result<(), Trouble>,
    ) -> Result<(), Trouble> {
        whole(path, &found.shards, found.timed_out)?;
        if self.stop.is_asked() || self.given_up.is_asked() {
            return Err(Trouble::Stopped);
        }
        page(&found.hits.hits)?;
        self.read
            .fetch_add(found.hits.hits.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the documents with these ids. The query goes over all shards, so an id that was routed two
    /// ways is found twice.
    pub(super) async fn fetch(&self, ids: &[String]) -> Result<Vec<OwnedHit>, Trouble> {
        let path = format!("/{}/_search?allow_partial_search_results=false", self.index);
        let query = json!({"size": ids.len() * COPIES_MAX, "query": {"ids": {"values": ids}}});
        let answer = self.ask.bytes(&Method::POST, &path, Some(&query)).await?;
        let found = parse(&path, &answer)?;
        whole(&path, &found.shards, found.timed_out)?;
        let copies = found.hits.hits.into_iter().map(|hit| OwnedHit {
            source: hit.source().map(str::to_owned),
            id: hit.id.into_owned(),
            routing: hit.routing,
        });
        Ok(copies.collect())
    }
}

fn parse<'a>(path: &str, answer: &'a [u8]) -> Result<Page<'a>, Trouble> {
    serde_json::from_slice(answer).map_err(|error| Trouble::Answer(path.to_owned(), error.to_string()))
}

/// Refuses partial results: a part of an index would be compared with the other side's whole.
fn whole(path: &str, shards: &Shards, timed_out: bool) -> Result<(), Trouble> {
    match (shards.failed, timed_out) {
        (0, false) => Ok(()),
        (0, true) => Err(Trouble::Partial(path.to_owned(), "it took too long".to_owned())),
        (failed, _) => Err(Trouble::Partial(
            path.to_owned(),
            format!("{failed} shards failed"),
        )),
    }
}

/// Characters that are not escaped in the path of one or several indices.
const IN_PATHS: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b',')
    .remove(b'*');
const SCROLL: &str = "/_search/scroll";
/// The time within which the next page must be requested. A longer time would cost the cluster more when a
/// comparison is killed and leaves its scrolls behind.
const KEEP_ALIVE: &str = "5m";
/// The number of copies of an id that are looked at; no id is held by more shards than that.
const COPIES_MAX: usize = 8;
