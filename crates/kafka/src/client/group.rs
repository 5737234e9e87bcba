//! A consumer group, from the view of one process that takes part in it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{Offset, TopicPartitionList};

use super::config::consumer_config;
use super::hand_over::HandOver;
use super::lane::{FetchedLane, Lane};
use super::produce::LogLimiter;
use super::seek::seek;
use super::topic;
use crate::{
    Cursor, Group, LaneReader, LaneStatus, Moved, OpenError, ReadError, Running, SENT_AHEAD_MAX, StartAt,
    Tell,
};

/// A group of an open topic.
pub(crate) struct OpenGroup {
    pub(crate) inner: Arc<Inner>,
}

/// This process's part in a group.
struct Member {
    group: Arc<Inner>,
    stop: Arc<AtomicBool>,
}

pub(crate) struct Inner {
    pub(crate) topic: Arc<topic::Inner>,
    /// The name of the group at the brokers.
    pub(crate) id: String,
    pub(crate) start: StartAt,
    pub(crate) log_limiter: LogLimiter,
    lanes: Vec<Mutex<Lane>>,
    /// A consumer that never takes part, and asks what is committed.
    pub(crate) probe: BaseConsumer<Quiet>,
    pub(crate) consumer: Mutex<Option<Weak<BaseConsumer<HandOver>>>>,
    /// The thread that takes part, or did. There is one at a time, since its knowledge of lanes is kept here.
    member: Mutex<Option<JoinHandle<()>>>,
    /// The time until which no lane of this process can belong to another.
    lease: Mutex<Option<Instant>>,
    /// Held during a commit, so that an older offset cannot follow a newer one.
    pub(crate) committing: Mutex<()>,
    /// Whether a caller waits for what is done to be committed.
    pub(crate) hurry: AtomicBool,
    /// Whether a lane has come of which nothing is committed that its partition has.
    pub(crate) went_back: AtomicBool,
}

/// Passes on what the library logs, and remembers the last problem.
#[derive(Default)]
pub(crate) struct Quiet {
    pub(crate) log_limiter: Arc<LogLimiter>,
    heard: Mutex<LastProblem>,
}

/// The last problems with the brokers.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastProblem {
    pub(crate) why: Option<String>,
    /// The account or a certificate was refused, which does not pass by itself. It stays when other problems
    /// follow: where one address of a broker refuses, another may not even answer.
    pub(crate) refusal: Option<String>,
}

/// Why a commit failed.
#[derive(Debug)]
pub(crate) enum CommitError {
    /// The group has given this process up, and nothing was committed.
    Refused(KafkaError),
    /// It is unknown whether the commit was accepted.
    Unknown(KafkaError),
}

// === impl OpenGroup ===

impl OpenGroup {
    /// Opens a group, which knows its progress when this returns.
    pub(crate) fn open(topic: &Arc<topic::Inner>, name: &str, start: StartAt) -> Result<Self, OpenError> {
        let id = format!("{}.{name}", topic.options.topic);
        let mut config = consumer_config(&topic.options);
        config.set("group.id", &id);
        let failed = |why: String| OpenError::Topic {
            topic: topic.options.topic.clone(),
            why: format!("consumer group {id}: {why}"),
        };
        let quiet = Quiet {
            log_limiter: Arc::clone(&topic.probe.context().log_limiter),
            ..Quiet::default()
        };
        let probe = config
            .create_with_context(quiet)
            .map_err(|error: KafkaError| failed(error.to_string()))?;
        let group = Self {
            inner: Arc::new(Inner {
                topic: Arc::clone(topic),
                start,
                log_limiter: LogLimiter::default(),
                lanes: (0..topic.lanes).map(|_| Mutex::default()).collect(),
                probe,
                consumer: Mutex::default(),
                member: Mutex::default(),
                lease: Mutex::default(),
                committing: Mutex::default(),
                hurry: AtomicBool::default(),
                went_back: AtomicBool::default(),
                id,
            }),
        };
        let until = Instant::now() + topic::OPEN_TIMEOUT;
        // The progress decides which dead letters count.
        while let Err(why) = group.inner.refresh(topic::ASK_TIMEOUT, true) {
            if Instant::now() > until {
                let id = &group.inner.id;
                return Err(OpenError::Topic {
                    topic: topic.options.topic.clone(),
                    why: format!("consumer group {id}: {why}"),
                });
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(group)
    }

    fn commit(&self, consumer: &BaseConsumer<HandOver>, anyway: bool) -> Result<(), ReadError> {
        match self.inner.commit(consumer, anyway) {
            Ok(()) => Ok(()),
            Err(CommitError::Refused(error) | CommitError::Unknown(error)) => {
                Err(ReadError::Kafka(error.to_string()))
            }
        }
    }

    fn lane(&self, lane: u32) -> Result<MutexGuard<'_, Lane>, ReadError> {
        let found = self.inner.lanes.get(lane as usize);
        found.map(Mutex::lock).ok_or(ReadError::NoLane(lane))
    }
}

impl Group for OpenGroup {
    fn id(&self) -> &str {
        &self.inner.id
    }

    fn start(&self, tell: Tell) -> Result<Box<dyn Running>, ReadError> {
        self.inner.wait_for_member();
        let stop = Arc::new(AtomicBool::new(false));
        let thread = HandOver::start(&self.inner, tell, Arc::clone(&stop))?;
        *self.inner.member.lock() = Some(thread);
        Ok(Box::new(Member {
            group: Arc::clone(&self.inner),
            stop,
        }))
    }

    fn reader(&self, lane: u32) -> Result<Box<dyn LaneReader>, ReadError> {
        let position = self.lane(lane)?.done.offset;
        Ok(Box::new(FetchedLane::new(
            Arc::clone(&self.inner),
            lane,
            position,
        )))
    }

    fn done(&self, lane: u32, offset: u64, dead: u64, skipped: u64) -> Result<(), ReadError> {
        let mut state = self.lane(lane)?;
        if !state.held {
            let why = format!("lane {lane} is not this gateway's any more");
            return Err(ReadError::Kafka(why));
        }
        state.settle(offset, dead, skipped);
        Ok(())
    }

    fn keep(&self, lane: u32, parked: u64, parked_dead: u64) {
        if let Ok(mut state) = self.lane(lane)
            && state.held
        {
            state.done.parked = parked;
            state.done.parked_dead = parked_dead;
            state.dirty = true;
        }
    }

    fn keep_when_done(&self, lane: u32, parked: u64, parked_dead: u64) {
        if let Ok(mut state) = self.lane(lane) {
            state.parked_when_done = Some((parked, parked_dead));
        }
    }

    fn flush(&self) -> Result<(), ReadError> {
        match self.inner.consumer() {
            Some(consumer) => self.commit(&consumer, false),
            // The member committed everything it could when it ended.
            None => Ok(()),
        }
    }

    fn confirm(&self) -> Result<(), ReadError> {
        let nobody = || ReadError::Kafka("this gateway takes no part in the group".to_owned());
        let consumer = self.inner.consumer().ok_or_else(nobody)?;
        match self.inner.held().is_empty() {
            true => Err(nobody()),
            false => self.commit(&consumer, true),
        }
    }

    fn seek(&self, to: StartAt, only: Option<u32>) -> Result<Moved, ReadError> {
        seek(&self.inner, to, only)
    }

    fn lease(&self) -> Option<Instant> {
        *self.inner.lease()
    }

    fn end_when_taken(&self, lane: u32) -> u64 {
        self.lane(lane).map_or(0, |lane| lane.end_when_taken)
    }

    fn sent_when_taken(&self, lane: u32) -> u64 {
        self.lane(lane).map_or(0, |lane| lane.sent_when_taken)
    }

    fn may_send_before(&self, lane: u32) -> u64 {
        self.lane(lane)
            .map_or(SENT_AHEAD_MAX, |lane| lane.may_send_before())
    }

    fn commit_soon(&self) {
        self.inner.hurry.store(true, Ordering::Relaxed);
    }

    fn claimed(&self) -> Vec<u64> {
        let lanes = self.inner.lanes.iter();
        lanes.map(|lane| lane.lock().claimed).collect()
    }

    fn went_back(&self) -> bool {
        self.inner.went_back.swap(false, Ordering::Relaxed)
    }

    fn status(&self) -> Vec<LaneStatus> {
        let ends = self.inner.topic.ends.all();
        let lanes = self.inner.lanes.iter().zip(ends);
        let status = lanes.map(|(lane, (_, end))| {
            let lane = lane.lock();
            let done = if lane.held { lane.done } else { lane.committed };
            let (fetched_documents, fetched_bytes) = lane.in_hand();
            LaneStatus {
                held: lane.held,
                done,
                messages: end.max(lane.next).saturating_sub(done.offset),
                fetched_documents,
                fetched_bytes,
            }
        });
        status.collect()
    }
}

// === impl Inner ===

impl Inner {
    /// Locks a lane that is known to exist.
    pub(crate) fn lane(&self, lane: u32) -> MutexGuard<'_, Lane> {
        self.lanes[lane as usize].lock()
    }

    pub(crate) fn held(&self) -> Vec<u32> {
        (0..self.topic.lanes)
            .filter(|lane| self.lane(*lane).held)
            .collect()
    }

    /// Waits until the thread that takes part has ended, if there is one.
    fn wait_for_member(&self) {
        let thread = self.member.lock().take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("a consumer group's thread failed");
        }
    }

    fn consumer(&self) -> Option<Arc<BaseConsumer<HandOver>>> {
        self.consumer.lock().as_ref().and_then(Weak::upgrade)
    }

    fn lease(&self) -> MutexGuard<'_, Option<Instant>> {
        self.lease.lock()
    }

    pub(crate) fn end_lease(&self) {
        *self.lease() = None;
    }

    /// Commits what is done and not committed. With `anyway` it commits in any case, to find out whether this
    /// process is still a member of the group.
    pub(crate) fn commit(&self, consumer: &BaseConsumer<HandOver>, anyway: bool) -> Result<(), CommitError> {
        let _one = self.committing.lock();
        let begun = Instant::now();
        let mut list = TopicPartitionList::new();
        let mut committing = Vec::new();
        let held = self.held();
        for number in held.iter().copied() {
            let mut lane = self.lane(number);
            if lane.dirty || (anyway && committing.is_empty() && Some(&number) == held.last()) {
                committing.push((number, lane.done, lane.claimed));
                lane.claimed = lane.claimed.max(lane.done.offset);
                self.add(&mut list, number, &lane.done);
            }
        }
        if committing.is_empty() {
            return Ok(());
        }
        match consumer.commit(&list, CommitMode::Sync) {
            Ok(()) => {
                for (number, cursor, _) in committing {
                    let mut lane = self.lane(number);
                    lane.committed = cursor;
                    lane.dirty = lane.done != cursor;
                }
                let session = self.topic.options.session_timeout;
                *self.lease() = Some(begun + session / 4 * 3);
                Ok(())
            }
            Err(error) if is_refusal(&error) => {
                self.end_lease();
                self.claim_what_is_committed(&committing);
                Err(CommitError::Refused(error))
            }
            Err(error) => Err(CommitError::Unknown(error)),
        }
    }

    /// Updates the claims after the brokers have refused a commit of these lanes: what the brokers have
    /// counts as claimed, and so does what was claimed before. The library repeats a commit whose answer was
    /// lost, and only the last try was refused: an earlier one may have been accepted. If the brokers cannot
    /// be asked, everything stays claimed.
    fn claim_what_is_committed(&self, refused: &[(u32, Cursor, u64)]) {
        let numbers: Vec<u32> = refused.iter().map(|(number, ..)| *number).collect();
        let known = match self.committed(&self.probe, &numbers, topic::ASK_TIMEOUT) {
            Ok(known) => known,
            Err(error) => {
                tracing::warn!(
                    group = self.id,
                    %error,
                    "whether the last commit was taken cannot be asked: its dead letters stay, and others may have them too"
                );
                return;
            }
        };
        for (number, cursor) in known {
            let before = refused.iter().find(|(refused, ..)| *refused == number);
            let committed = cursor.unwrap_or_default().offset;
            if let Some((_, tried, before)) = before {
                let claimed = committed.min(tried.offset).max(*before);
                if claimed > *before {
                    tracing::info!(
                        group = self.id,
                        lane = number,
                        "the brokers refused a commit that they have"
                    );
                }
                self.lane(number).claimed = claimed;
            }
        }
    }

    pub(crate) fn add(&self, list: &mut TopicPartitionList, number: u32, cursor: &Cursor) {
        let mut one = list.add_partition(&self.topic.options.topic, number as i32);
        let offset = i64::try_from(cursor.offset).unwrap_or(i64::MAX);
        // Setting an offset that is not negative cannot fail.
        let _ = one.set_offset(Offset::Offset(offset));
        one.set_metadata(cursor.metadata(self.topic.lanes));
    }

    /// Asks what is committed in the lanes that do not belong to this process. With `first`, the answer also
    /// becomes the claim by which dead letters are judged.
    pub(crate) fn refresh(&self, within: Duration, first: bool) -> Result<(), ReadError> {
        let all: Vec<u32> = (0..self.topic.lanes).collect();
        let known = self.committed(&self.probe, &all, within)?;
        for (number, cursor) in known {
            let mut lane = self.lane(number);
            if !lane.held {
                lane.committed = cursor.unwrap_or_default();
                if first {
                    // A group commits before it delivers. If nothing is committed, the brokers have forgotten
                    // it, and all that was dead counts.
                    lane.claimed = cursor.map_or(u64::MAX, |cursor| cursor.offset);
                }
            }
        }
        Ok(())
    }

    /// Returns what is committed in these lanes; `None` for a lane without a commit.
    pub(crate) fn committed<C: ConsumerContext>(
        &self,
        consumer: &BaseConsumer<C>,
        lanes: &[u32],
        within: Duration,
    ) -> Result<Vec<(u32, Option<Cursor>)>, ReadError> {
        let mut list = TopicPartitionList::new();
        for lane in lanes {
            list.add_partition(&self.topic.options.topic, *lane as i32);
        }
        let list = consumer.committed_offsets(list, within)?;
        let mut known = Vec::with_capacity(lanes.len());
        for one in list.elements() {
            one.error()?;
            let lane = u32::try_from(one.partition()).map_err(|error| ReadError::Kafka(error.to_string()))?;
            let cursor = match one.offset() {
                Offset::Offset(offset) => {
                    let (cursor, of) =
                        Cursor::read(u64::try_from(offset).unwrap_or_default(), one.metadata());
                    if let Some(of) = of.filter(|of| *of != self.topic.lanes) {
                        let lanes = self.topic.lanes;
                        let why = format!(
                            "the group {} delivered from this topic when it had {of} partitions, and now it has {lanes}: documents would be in other partitions than before, and overtake each other",
                            self.id
                        );
                        self.topic.poison().set(&why);
                        return Err(ReadError::Kafka(why));
                    }
                    Some(cursor)
                }
                _ => None,
            };
            known.push((lane, cursor));
        }
        Ok(known)
    }
}

/// Returns whether the brokers refused, so that nothing can have been committed.
pub(crate) fn is_refusal(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::UnknownMemberId
                | RDKafkaErrorCode::IllegalGeneration
                | RDKafkaErrorCode::FencedInstanceId
                | RDKafkaErrorCode::RebalanceInProgress
        )
    )
}

// === impl Member ===

impl Running for Member {
    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn join(self: Box<Self>) {
        self.stop();
        self.group.wait_for_member();
    }
}

impl Drop for Member {
    /// Does not wait: what the member waits for may be dropped after this.
    fn drop(&mut self) {
        self.stop();
    }
}

/// Lets the library report all that it has to say to a client without a group. Its reports of problems come
/// after its log, of which there may be much.
pub(crate) fn listen(probe: &BaseConsumer<Quiet>) {
    while probe.poll(LISTEN).is_some() {}
}

/// How long a report may take: a call without a limit of its own would hear one line only.
const LISTEN: Duration = Duration::from_millis(10);

// === impl Quiet ===

impl Quiet {
    pub(crate) fn heard(&self) -> LastProblem {
        self.heard.lock().clone()
    }

    /// Returns the last refusal since the last call.
    pub(crate) fn take_refusal(&self) -> Option<String> {
        self.heard.lock().refusal.take()
    }
}

impl ClientContext for Quiet {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.log_limiter.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code();
        // The report that all brokers are down follows the real reason, and tells less.
        if code != Some(RDKafkaErrorCode::AllBrokersDown) {
            let mut heard = self.heard.lock();
            if let Some(RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SSL) = code {
                heard.refusal = Some(reason.to_owned());
            }
            heard.why = Some(reason.to_owned());
        }
        self.log_limiter.say(&format!("{error}: {reason}"));
    }
}

impl ConsumerContext for Quiet {}
