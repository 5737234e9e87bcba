//! The same types in a build without the client: none of them can exist.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use crate::{
    AppendError, Browsed, Cursor, Head, Moved, OpenError, Options, Part, ReadError, Receipt, StartAt, Status,
};

/// Of this there is none.
#[derive(Clone, Copy)]
enum Never {}

/// A topic.
#[derive(Clone)]
pub struct Topic(Never);

/// A consumer group.
#[derive(Clone)]
pub struct Group(Never);

/// A topic beside a queue's.
#[derive(Clone)]
pub struct Aside(Never);

/// An append to wait for.
pub struct Append(Never);

/// Reads one lane.
pub struct LaneReader(Never);

/// A group that takes part.
pub struct Running(Never);

/// Held while something is under way.
pub struct Handed(Never);

/// What happens to the lanes of a group.
pub enum Change {
    /// These are this process's.
    Assigned(Vec<u32>),
    /// They go.
    Revoked(Handed),
    /// They are gone.
    Gone,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its offset.
    pub offset: u64,
    /// When it was written, ms since 1970.
    pub time_ms: u64,
    /// What it says of itself.
    pub head: Head,
    /// Its parameters.
    pub params: Vec<u8>,
}

/// One lane of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneStatus {
    /// Whether it is this process's.
    pub held: bool,
    /// How far the group is.
    pub done: Cursor,
    /// Messages to deliver.
    pub messages: u64,
    /// Documents fetched.
    pub fetched_documents: u64,
    /// And their bytes.
    pub fetched_bytes: u64,
}

#[allow(
    missing_docs,
    clippy::missing_errors_doc,
    reason = "as with the client; nothing of it is ever called"
)]
impl Topic {
    pub fn open(_: &Options) -> Result<Self, OpenError> {
        Err(OpenError::NotBuilt)
    }

    pub fn lanes(&self) -> u32 {
        match self.0 {}
    }

    pub fn has_lanes_by_id(&self) -> bool {
        match self.0 {}
    }

    pub fn name(&self) -> &str {
        match self.0 {}
    }

    pub fn part_bytes_max(&self, _: usize) -> usize {
        match self.0 {}
    }

    pub fn append(&self, _: u8, _: &[u8], _: Vec<Part>) -> Append {
        match self.0 {}
    }

    pub fn append_blocking(&self, _: u8, _: &[u8], _: Vec<Part>) -> Result<Receipt, AppendError> {
        match self.0 {}
    }

    pub fn group(&self, _: &str, _: StartAt) -> Result<Group, OpenError> {
        match self.0 {}
    }

    pub fn aside(&self, _: &str) -> Result<Aside, OpenError> {
        match self.0 {}
    }

    pub fn browse(&self, _: u32, _: u64, _: impl FnMut(Browsed) -> bool) -> Result<(), ReadError> {
        match self.0 {}
    }

    pub fn status(&self) -> Status {
        match self.0 {}
    }

    pub fn looks(&self) -> u64 {
        match self.0 {}
    }

    pub fn close(&self) {
        match self.0 {}
    }
}

#[allow(
    missing_docs,
    clippy::missing_errors_doc,
    reason = "as with the client; nothing of it is ever called"
)]
impl Group {
    pub fn id(&self) -> &str {
        match self.0 {}
    }

    pub fn start(&self, _: impl Fn(Change) + Send + Sync + 'static) -> Result<Running, ReadError> {
        match self.0 {}
    }

    pub fn reader(&self, _: u32) -> Result<LaneReader, ReadError> {
        match self.0 {}
    }

    pub fn done(&self, _: u32, _: u64, _: u64, _: u64) -> Result<(), ReadError> {
        match self.0 {}
    }

    pub fn keep(&self, _: u32, _: u64, _: u64) {
        match self.0 {}
    }

    pub fn flush(&self) -> Result<(), ReadError> {
        match self.0 {}
    }

    pub fn confirm(&self) -> Result<(), ReadError> {
        match self.0 {}
    }

    pub fn seek(&self, _: StartAt, _: Option<u32>) -> Result<Moved, ReadError> {
        match self.0 {}
    }

    pub fn lease(&self) -> Option<Instant> {
        match self.0 {}
    }

    pub fn end_when_taken(&self, _: u32) -> u64 {
        match self.0 {}
    }

    pub fn claimed(&self) -> Vec<u64> {
        match self.0 {}
    }

    pub fn status(&self) -> Vec<LaneStatus> {
        match self.0 {}
    }
}

#[allow(
    missing_docs,
    clippy::missing_errors_doc,
    reason = "as with the client; nothing of it is ever called"
)]
impl LaneReader {
    pub fn lane(&self) -> u32 {
        match self.0 {}
    }

    pub fn position(&self) -> u64 {
        match self.0 {}
    }

    pub fn rewind(&mut self, _: u64) {
        match self.0 {}
    }

    pub fn ready(&self) -> impl Future<Output = ()> + Send + 'static {
        std::future::pending()
    }

    pub fn peek(&self) -> Option<(usize, u32)> {
        match self.0 {}
    }

    pub fn next(&mut self, _: &mut Vec<u8>) -> Result<Option<Message>, ReadError> {
        match self.0 {}
    }
}

#[allow(missing_docs, reason = "as with the client; nothing of it is ever called")]
impl Running {
    pub fn stop(&self) {
        match self.0 {}
    }

    pub fn join(self) {
        match self.0 {}
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        match self.0 {}
    }
}

impl Future for Append {
    type Output = Result<Receipt, AppendError>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        match self.0 {}
    }
}

#[allow(
    missing_docs,
    clippy::missing_errors_doc,
    reason = "as with the client; nothing of it is ever called"
)]
impl Aside {
    pub fn name(&self) -> &str {
        match self.0 {}
    }

    pub fn record_bytes_max(&self, _: usize) -> usize {
        match self.0 {}
    }

    pub fn append(&self, _: u8, _: &[u8], _: Vec<Part>) -> Append {
        match self.0 {}
    }

    pub fn append_blocking(&self, _: u8, _: &[u8], _: Vec<Part>) -> Result<Receipt, AppendError> {
        match self.0 {}
    }

    pub fn read(&self, _: &[(u32, u64)], _: impl FnMut(u32, Browsed)) -> Result<(), ReadError> {
        match self.0 {}
    }

    pub fn delete_before(&self, _: &[(u32, u64)]) -> Result<(), ReadError> {
        match self.0 {}
    }

    pub fn close(&self) {
        match self.0 {}
    }
}
