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
        while let Err(why) = group.inner.begin() {
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
        Ok(self.inner.commit(consumer, anyway)?)
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

    fn began_anew(&self, lane: u32) -> bool {
        self.lane(lane).is_ok_and(|lane| lane.began_anew)
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

    fn is_in_doubt(&self) -> bool {
        let mut lanes = self.inner.lanes.iter();
        lanes.any(|lane| lane.lock().doubted_from.is_some())
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
    pub(crate) fn commit(&self, consumer: &BaseConsumer<HandOver>, anyway: bool) -> Result<(), KafkaError> {
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
                    lane.doubted_from = None;
                }
                let session = self.topic.options.session_timeout;
                *self.lease() = Some(begun + session / 4 * 3);
                Ok(())
            }
            Err(error) => {
                // The library repeats a commit whose answer was lost, and only the last try was refused: an
                // earlier one may have been accepted.
                for (number, tried, before) in committing {
                    self.lane(number).doubt(before, tried.offset);
                }
                if is_refusal(&error) {
                    self.end_lease();
                }
                Err(error)
            }
        }
    }

    /// Decides which claims hold, of lanes with a commit of which it is not known whether the brokers took
    /// it. `lanes` come to this process, and what is committed of them is known by then; of the others it is
    /// asked.
    ///
    /// To be called when the brokers have just made this process a member: they have written that down behind
    /// all earlier commits, and tell of these from then on. Before, they may not: where another broker has
    /// come to lead the partition that keeps the commits, the newest ones show later.
    pub(crate) fn decide_claims(&self, lanes: &[u32]) -> Result<(), ReadError> {
        let doubted = |lane: &u32| self.lane(*lane).doubted_from.is_some();
        let others: Vec<u32> = (0..self.topic.lanes)
            .filter(|lane| !lanes.contains(lane) && doubted(lane))
            .collect();
        if others.is_empty() {
            return Ok(());
        }
        for (number, cursor) in self.committed_for_good(&self.probe, &others)? {
            self.decide(number, cursor.unwrap_or_default().offset);
        }
        Ok(())
    }

    /// Decides about the claim of a lane of which so much is committed.
    pub(crate) fn decide(&self, number: u32, committed: u64) {
        let was_taken = self.lane(number).decide(committed);
        if was_taken {
            tracing::info!(
                group = self.id,
                lane = number,
                "the brokers refused a commit that they have"
            );
        }
    }

    /// Returns what is committed in these lanes, and fails as long as the brokers may have more commits than
    /// they tell of: after another broker has come to lead the partition that keeps them, it does not tell of
    /// the newest ones until its followers have caught up.
    pub(crate) fn committed_for_good<C: ConsumerContext>(
        &self,
        consumer: &BaseConsumer<C>,
        lanes: &[u32],
    ) -> Result<Vec<(u32, Option<Cursor>)>, ReadError> {
        let metadata = self.probe.fetch_metadata(Some(OFFSETS), topic::ASK_TIMEOUT)?;
        let topic = metadata.topics().iter().find(|topic| topic.name() == OFFSETS);
        if let Some(error) = topic.and_then(|topic| topic.error()) {
            let error = KafkaError::MetadataFetch(error.into());
            if passes(&error) {
                return Err(error.into());
            }
        }
        let partitions = topic.map_or(0, |topic| topic.partitions().len());
        // An account may have no right to see it, and what is not Apache Kafka may not have it.
        if let Some(partition) = keeps_commits(&self.id, partitions) {
            // Such a leader answers this with an error.
            let told = self
                .probe
                .fetch_watermarks(OFFSETS, partition, topic::ASK_TIMEOUT);
            match told.err() {
                Some(error) if passes(&error) => return Err(error.into()),
                _ => {}
            }
        }
        self.committed(consumer, lanes, topic::ASK_TIMEOUT)
    }

    pub(crate) fn add(&self, list: &mut TopicPartitionList, number: u32, cursor: &Cursor) {
        let mut one = list.add_partition(&self.topic.options.topic, number as i32);
        let offset = i64::try_from(cursor.offset).unwrap_or(i64::MAX);
        // Setting an offset that is not negative cannot fail.
        let _ = one.set_offset(Offset::Offset(offset));
        one.set_metadata(cursor.metadata(self.topic.lanes));
    }

    /// Asks what is committed, which becomes the claim by which dead letters are judged.
    fn begin(&self) -> Result<(), ReadError> {
        let all: Vec<u32> = (0..self.topic.lanes).collect();
        for (number, cursor) in self.committed_for_good(&self.probe, &all)? {
            let mut lane = self.lane(number);
            lane.committed = cursor.unwrap_or_default();
            // A group commits before it delivers. If nothing is committed, the brokers have forgotten it, and
            // all that was dead counts.
            lane.claimed = cursor.map_or(u64::MAX, |cursor| cursor.offset);
        }
        Ok(())
    }

    /// Asks what is committed in the lanes that do not belong to this process.
    pub(crate) fn refresh(&self) -> Result<(), ReadError> {
        let all: Vec<u32> = (0..self.topic.lanes).collect();
        let known = self.committed(&self.probe, &all, topic::ASK_TIMEOUT)?;
        for (number, cursor) in known {
            let mut lane = self.lane(number);
            if !lane.held {
                lane.committed = cursor.unwrap_or_default();
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

/// Returns the partition of [`OFFSETS`] that keeps the commits of a group, of so many, as Kafka's
/// `GroupMetadataManager` chooses it: by Java's hash of the group's name.
fn keeps_commits(group: &str, partitions: usize) -> Option<i32> {
    let hash = group
        .encode_utf16()
        .fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(unit.into()));
    (hash & i32::MAX).checked_rem(i32::try_from(partitions).ok()?)
}

/// Whether a question about [`OFFSETS`] may be answered in a moment. Any other error says that nobody tells
/// this account, or that these brokers keep no such topic.
fn passes(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        error.rdkafka_error_code(),
        Some(
            Code::OffsetNotAvailable
                | Code::NotLeaderForPartition
                | Code::LeaderNotAvailable
                | Code::ReplicaNotAvailable
                | Code::BrokerNotAvailable
                | Code::FencedLeaderEpoch
                | Code::UnknownLeaderEpoch
                | Code::CoordinatorLoadInProgress
                | Code::RequestTimedOut
                | Code::OperationTimedOut
                | Code::MessageTimedOut
                | Code::TimedOutQueue
                | Code::NetworkException
                | Code::BrokerTransportFailure
                | Code::AllBrokersDown
                | Code::BrokerDestroy
                | Code::Resolve
        )
    )
}

/// Returns whether the brokers refused a commit: this process is no member of the group, or not its only one.
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

/// The topic in which brokers keep what is committed.
const OFFSETS: &str = "__consumer_offsets";
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_partition_with_a_groups_commits_is_the_one_that_the_brokers_choose() {
        // As Java has it: ("drill.c1".hashCode() & 0x7fffffff) % 50, and a hash that is negative.
        assert_eq!(keeps_commits("drill.c1", 50), Some(17));
        assert_eq!(keeps_commits("tidegate.logs", 50), Some(30));
        assert_eq!(keeps_commits("a", 0), None);
    }
}
