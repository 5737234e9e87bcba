//! The operations of a consumer group, from the view of one process that takes part in it.

use std::pin::Pin;
use std::sync::mpsc::SyncSender;
use std::time::Instant;

use crate::{Cursor, Head, ReadError, StartAt};

/// A consumer group.
pub trait Group: Send + Sync {
    /// The name of the group at the brokers: `TOPIC.NAME`.
    #[must_use]
    fn id(&self) -> &str;

    /// Takes part from now on: asks the brokers for lanes. `tell` is called on the group's thread, which
    /// waits for it to return. First waits for the end of a [`Running`] that was dropped; nothing that it
    /// handed over may still be held.
    ///
    /// # Errors
    /// Fails if the thread or the client cannot be created.
    fn start(&self, tell: Tell) -> Result<Box<dyn Running>, ReadError>;

    /// Returns a reader of a lane that starts where the group is done.
    ///
    /// # Errors
    /// Fails if there is no such lane.
    fn reader(&self, lane: u32) -> Result<Box<dyn LaneReader>, ReadError>;

    /// Records that everything of a lane before an offset is done. Since the last call, `dead` of these
    /// documents became dead letters and `skipped` were passed over. This is committed soon, or with
    /// [`Group::flush`].
    ///
    /// # Errors
    /// Fails if there is no such lane, or if the lane belongs to another process by now.
    fn done(&self, lane: u32, offset: u64, dead: u64, skipped: u64) -> Result<(), ReadError>;

    /// Records how many of a lane's done documents are parked now, and how many parked documents have become
    /// dead letters so far. This is committed as [`Group::done`] is. It has no effect if the lane belongs to
    /// another process by now.
    fn keep(&self, lane: u32, parked: u64, parked_dead: u64);

    /// Records the same as [`Group::keep`], but with the next call of [`Group::done`] for the lane: a process
    /// that reads the offset of that commit also reads what was parked before it.
    fn keep_when_done(&self, lane: u32, parked: u64, parked_dead: u64);

    /// Commits what is done, and waits for the brokers to confirm.
    ///
    /// # Errors
    /// Fails if the brokers do not confirm.
    fn flush(&self) -> Result<(), ReadError>;

    /// Has the brokers confirm that the lanes of this process belong to it now.
    ///
    /// # Errors
    /// Fails if the brokers do not confirm.
    fn confirm(&self) -> Result<(), ReadError>;

    /// Moves the group to another place, in all lanes or in one. Its running totals stay. Blocks on the
    /// brokers.
    ///
    /// # Errors
    /// Fails if this or another gateway takes part in the group: the brokers then refuse, and nothing has
    /// changed. Also fails if there is no such lane, or if the brokers do not answer.
    fn seek(&self, to: StartAt, only: Option<u32>) -> Result<Moved, ReadError>;

    /// The time until which this process may send what its lanes hold. `None`: it may not send.
    #[must_use]
    fn lease(&self) -> Option<Instant>;

    /// The end of the partition when this process got the lane. Messages before it may have been delivered by
    /// another gateway.
    #[must_use]
    fn end_when_taken(&self, lane: u32) -> u64;

    /// The offset from which on the previous owner of the lane has sent nothing of the messages before that
    /// end: [`SENT_AHEAD_MAX`] messages beyond what it had committed.
    #[must_use]
    fn sent_when_taken(&self, lane: u32) -> u64;

    /// The offset before which this process may send messages of a lane: [`SENT_AHEAD_MAX`] messages beyond
    /// the committed offset, or beyond the first message that is there where Kafka has deleted others.
    #[must_use]
    fn may_send_before(&self, lane: u32) -> u64;

    /// Has the group's thread commit what is done as soon as it can.
    fn commit_soon(&self);

    /// For each lane, the offset before which the dead letters of this process count: it has committed beyond
    /// them, or may have.
    #[must_use]
    fn claimed(&self) -> Vec<u64>;

    /// Whether it is not known of some lane how much of what is claimed is committed. The claims are decided
    /// before lanes come the next time.
    #[must_use]
    fn is_in_doubt(&self) -> bool {
        false
    }

    /// Returns whether a lane has come, since this was last asked, of which nothing is committed that its
    /// partition has: the group is new, the topic was made anew, or the brokers have forgotten the group's
    /// offsets. Whether what was dead by then is delivered once more does not follow from its place.
    #[must_use]
    fn went_back(&self) -> bool;

    /// Returns whether nothing was committed of the lane that its partition has when it came: the messages of
    /// former owners may not be there any more.
    #[must_use]
    fn began_anew(&self, lane: u32) -> bool;

    /// The progress in each lane. For lanes of other processes it is as of the last look at the brokers,
    /// which happens every two seconds.
    #[must_use]
    fn status(&self) -> Vec<LaneStatus>;
}

/// The number of messages that a lane sends at most beyond the committed offset. The next owner of the lane
/// looks up the documents of these messages before it sends them again.
pub const SENT_AHEAD_MAX: u64 = 1024;

/// A process's part in a group. To end it, stop it and wait. If it is dropped without that (because its user
/// has failed), it leaves the group by itself, and [`Group::start`] waits for it.
pub trait Running {
    /// Gives up all lanes in the usual way, and leaves the group.
    fn stop(&self);

    /// Waits until the process has left the group.
    fn join(self: Box<Self>);
}

/// Reads one lane for its group, starting where the group is done.
pub trait LaneReader: Send {
    /// The lane.
    #[must_use]
    fn lane(&self) -> u32;

    /// The offset of the next message.
    #[must_use]
    fn position(&self) -> u64;

    /// Goes back to a position that the reader has had since the last [`Group::done`].
    fn rewind(&mut self, position: u64);

    /// Returns a future that is ready once there is a message. It needs no runtime.
    fn ready(&self) -> Pin<Box<dyn Future<Output = ()> + Send>>;

    /// The number of bytes and documents of the next message, if it is there.
    #[must_use]
    fn peek(&self) -> Option<(usize, u32)>;

    /// Appends the next message's lines to `out` and returns its description, or `None` if no message has
    /// come.
    ///
    /// # Errors
    /// [`ReadError::Foreign`]. The reader then stays before that message.
    fn next(&mut self, out: &mut Vec<u8>) -> Result<Option<Message>, ReadError>;
}

/// The callback for changes of the lanes of a running group.
pub type Tell = Box<dyn Fn(Rebalance) + Send + Sync>;

/// A change of the lanes of a running group.
pub enum Rebalance {
    /// These lanes belong to this process from now on. It had no lanes before.
    Assigned(Vec<u32>),
    /// All lanes are taken away. They are handed over when the [`Handed`] is dropped: nothing of them may be
    /// under way by then.
    Revoked(Handed),
    /// The lanes are gone. What was done is committed, if that was possible.
    Gone,
    /// What was in doubt ([`Group::is_in_doubt`]) is decided. This comes before lanes do, and also if none
    /// do.
    Decided,
}

/// Held while something of the revoked lanes may be under way.
pub struct Handed(#[expect(dead_code, reason = "its end is what counts")] pub(crate) SyncSender<()>);

/// A message. Its lines are in the buffer that was given to [`LaneReader::next`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The offset of the message.
    pub offset: u64,
    /// When it was written, ms since 1970.
    pub time_ms: u64,
    /// The head of the message.
    pub head: Head,
    /// The parameters of the record.
    pub params: Vec<u8>,
}

/// One lane of a group, as of the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneStatus {
    /// Whether the lane belongs to this process.
    pub held: bool,
    /// The progress of the group, whichever gateway delivered it.
    pub done: Cursor,
    /// Messages that the group has yet to deliver.
    pub messages: u64,
    /// The documents of those messages that this process has fetched.
    pub fetched_documents: u64,
    /// The bytes of those documents.
    pub fetched_bytes: u64,
}

/// How far a group was moved, summed over its lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// The number of messages that are skipped.
    pub skipped_messages: u64,
    /// The number of messages that will be read again.
    pub rewound_messages: u64,
}
