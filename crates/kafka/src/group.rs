//! What can be done in a consumer group, as one process takes part in it.

use std::pin::Pin;
use std::sync::mpsc::SyncSender;
use std::time::Instant;

use crate::{Cursor, Head, ReadError, StartAt};

/// A consumer group.
pub trait Group: Send + Sync {
    /// Its name at the brokers: `TOPIC.NAME`.
    #[must_use]
    fn id(&self) -> &str;

    /// Takes part from now on: asks the brokers for lanes. `tell` is called on the group's thread, which
    /// waits there. Waits for the end of a [`Running`] that was dropped; nothing of what that handed over may
    /// be held any more.
    ///
    /// # Errors
    /// If the thread or the client cannot be made.
    fn start(&self, tell: Tell) -> Result<Box<dyn Running>, ReadError>;

    /// Reads a lane from what is done.
    ///
    /// # Errors
    /// If there is no such lane.
    fn reader(&self, lane: u32) -> Result<Box<dyn LaneReader>, ReadError>;

    /// Everything of a lane before an offset is done, `dead` of it since the last call by becoming dead
    /// letters, `skipped` by being passed over. Committed soon, or with [`Group::flush`].
    ///
    /// # Errors
    /// If there is no such lane, or it is another's by now.
    fn done(&self, lane: u32, offset: u64, dead: u64, skipped: u64) -> Result<(), ReadError>;

    /// Of what a lane has done, so much is parked now, and so much of what was parked has become dead letters
    /// ever. Committed as [`Group::done`] is; nothing comes of it if the lane is another's by now.
    fn keep(&self, lane: u32, parked: u64, parked_dead: u64);

    /// The same once [`Group::done`] is called next for the lane: whoever reads the offset that it commits
    /// also reads what was parked before it.
    fn keep_when_done(&self, lane: u32, parked: u64, parked_dead: u64);

    /// Commits what is done, and waits for the brokers to say so.
    ///
    /// # Errors
    /// If they do not.
    fn flush(&self) -> Result<(), ReadError>;

    /// Has the brokers say that this process's lanes are its own now.
    ///
    /// # Errors
    /// If they do not.
    fn confirm(&self) -> Result<(), ReadError>;

    /// Goes on from elsewhere, in all lanes or in one. Its running totals stay. Blocks on the brokers.
    ///
    /// # Errors
    /// If a gateway takes part in the group, this one or another: the brokers refuse it then, and nothing has
    /// changed. If there is no such lane, or the brokers do not answer.
    fn seek(&self, to: StartAt, only: Option<u32>) -> Result<Moved, ReadError>;

    /// Until when this process may send what its lanes hold; none: it may not.
    #[must_use]
    fn lease(&self) -> Option<Instant>;

    /// The partition's end as the lane came to this process: what lies before may have been delivered by
    /// another gateway.
    #[must_use]
    fn end_when_taken(&self, lane: u32) -> u64;

    /// Of what lies before that end, the gateway that had the lane last sent nothing from here on: it was
    /// [`SENT_AHEAD_MAX`] messages beyond what it had committed.
    #[must_use]
    fn sent_when_taken(&self, lane: u32) -> u64;

    /// The offset before which this process may send of a lane: [`SENT_AHEAD_MAX`] messages beyond what is
    /// committed, or beyond the first that is there where Kafka has deleted others.
    #[must_use]
    fn may_send_before(&self, lane: u32) -> u64;

    /// Has the group's thread commit what is done as soon as it comes to it.
    fn commit_soon(&self);

    /// For each lane the offset before which what this process has put among the dead letters counts: it
    /// committed past it, or may have.
    #[must_use]
    fn claimed(&self) -> Vec<u64>;

    /// How far it is in each lane. Of lanes that are another's it is as of the last look at the brokers,
    /// every two seconds.
    #[must_use]
    fn status(&self) -> Vec<LaneStatus>;
}

/// So many messages beyond what is committed a lane sends at most. Who has the lane next looks for them
/// before sending them again.
pub const SENT_AHEAD_MAX: u64 = 1024;

/// A group that takes part; stop it, and wait for its end. Dropped without that (its user has failed), it
/// leaves by itself, and [`Group::start`] waits for it.
pub trait Running {
    /// Gives up all lanes, in the usual way, and leaves the group.
    fn stop(&self);

    /// Waits until it has.
    fn join(self: Box<Self>);
}

/// Reads one lane for its group, from what is done on.
pub trait LaneReader: Send {
    /// The lane.
    #[must_use]
    fn lane(&self) -> u32;

    /// Offset of the next message.
    #[must_use]
    fn position(&self) -> u64;

    /// Goes back to a place where it was since the last [`Group::done`].
    fn rewind(&mut self, position: u64);

    /// Ready once there is a message. Needs no runtime.
    fn ready(&self) -> Pin<Box<dyn Future<Output = ()> + Send>>;

    /// Bytes of the next message's lines, and its documents, if it is there.
    #[must_use]
    fn peek(&self) -> Option<(usize, u32)>;

    /// Appends the next message's lines to `out` and tells what it is; none if none has come.
    ///
    /// # Errors
    /// [`ReadError::Foreign`]; the reader stays before it.
    fn next(&mut self, out: &mut Vec<u8>) -> Result<Option<Message>, ReadError>;
}

/// Is told of the lanes of a group that runs.
pub type Tell = Box<dyn Fn(Change) + Send + Sync>;

/// What happens to the lanes of a group that runs.
pub enum Change {
    /// These are this process's from now on; none was before.
    Assigned(Vec<u32>),
    /// All of them go. They are handed over when this is dropped: nothing of theirs may be under way by then.
    Revoked(Handed),
    /// They are gone, what was done is committed if it could be.
    Gone,
}

/// Held while something of the lanes that go may be under way.
pub struct Handed(#[expect(dead_code, reason = "its end is what counts")] pub(crate) SyncSender<()>);

/// A message; its lines are in the buffer given to [`LaneReader::next`].
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

/// One lane of a group, as of a moment ago.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneStatus {
    /// Whether it is this process's.
    pub held: bool,
    /// How far the group is, whoever delivered it.
    pub done: Cursor,
    /// Messages that the group has yet to deliver.
    pub messages: u64,
    /// Of those, what this process has fetched: documents.
    pub fetched_documents: u64,
    /// And their bytes.
    pub fetched_bytes: u64,
}

/// How far a group was set elsewhere, summed over its lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Messages that are passed over.
    pub skipped_messages: u64,
    /// Messages that are gone back over.
    pub rewound_messages: u64,
}
