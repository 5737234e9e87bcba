//! The thread of a group: it fetches, commits, and hands lanes over when the brokers ask for that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{Offset, TopicPartitionList};

use super::config::consumer_config;
use super::group::Inner;
use super::lane::Fetched;
use super::seek::offset_of;
use super::threads::{self, caught};
use super::topic;
use crate::{Cursor, Handed, Head, HeadError, ReadError, Rebalance, Tell};

/// Handles the library's callbacks when lanes come and go.
pub(crate) struct HandOver {
    group: Arc<Inner>,
    tell: Tell,
    /// Whether lanes that came could not be begun, so that the group has to be joined again.
    join_anew: AtomicBool,
    stop: Arc<AtomicBool>,
    /// The time of the last commit, or of the last try.
    committed: Mutex<Option<Instant>>,
    /// Lanes that came and are not announced yet. They are announced once the brokers have accepted a commit
    /// of them.
    begun: Mutex<Option<Vec<u32>>>,
}

impl HandOver {
    pub(crate) fn start(
        group: &Arc<Inner>,
        tell: Tell,
        stop: Arc<AtomicBool>,
    ) -> Result<JoinHandle<()>, ReadError> {
        let failed = |why: String| ReadError::Kafka(why);
        let session = group.topic.options.session_timeout;
        let mut config = consumer_config(&group.topic.options);
        config
            .set("group.id", &group.id)
            .set("session.timeout.ms", session.as_millis().to_string())
            .set("heartbeat.interval.ms", (session.as_millis() / 4).to_string())
            .set("max.poll.interval.ms", HAND_OVER_MAX.as_millis().to_string())
            // All lanes go and come at each change: nothing of any lane can be under way then.
            .set("partition.assignment.strategy", "range")
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            // Where to go on is decided with what was committed (`places`), not by the library: it would
            // begin with the oldest message, and what is there would be taken for delivered.
            .set("auto.offset.reset", "error")
            .set("queued.max.messages.kbytes", "16384")
            .set("fetch.max.bytes", "16777216")
            .set("fetch.wait.max.ms", "100");
        let context = Self {
            group: Arc::clone(group),
            tell,
            join_anew: AtomicBool::new(false),
            stop: Arc::clone(&stop),
            committed: Mutex::default(),
            begun: Mutex::default(),
        };
        let consumer: BaseConsumer<Self> = config
            .create_with_context(context)
            .map_err(|error: KafkaError| failed(error.to_string()))?;
        let consumer = Arc::new(consumer);
        *group.consumer.lock() = Some(Arc::downgrade(&consumer));
        threads::spawn("kafka-group", move || run_to_its_end(&consumer))
            .map_err(|error| failed(error.to_string()))
    }

    /// Begins with the lanes that came. Blocks on the brokers.
    fn take(&self, consumer: &BaseConsumer<Self>, lanes: &[u32]) -> Result<(), ReadError> {
        let group = &self.group;
        let until = Instant::now() + TAKE_MAX;
        let begun = loop {
            let decided = group.decide_claims(lanes);
            match decided.and_then(|()| self.places(consumer, lanes)) {
                Ok(begun) => break begun,
                Err(why) if Instant::now() > until || self.stop.load(Ordering::Relaxed) => return Err(why),
                Err(why) => {
                    group
                        .log_limiter
                        .say(&format!("consumer group {}: {why}", group.id));
                    std::thread::sleep(TAKE_AGAIN);
                }
            }
        };
        let mut list = TopicPartitionList::new();
        for (number, cursor, end, anew) in &begun {
            let offset = i64::try_from(cursor.offset).map_err(|error| ReadError::Kafka(error.to_string()))?;
            let added =
                list.add_partition_offset(&group.topic.options.topic, *number as i32, Offset::Offset(offset));
            added?;
            group.decide(*number, cursor.offset);
            let mut lane = group.lane(*number);
            lane.take(*cursor, *end);
            lane.began_anew = *anew;
        }
        consumer.assign(&list)?;
        // A lane that was paused here before may still be paused.
        Ok(consumer.resume(&list)?)
    }

    /// Goes on fetching where Kafka has deleted the next messages: with the first one that is there. What is
    /// fetched already is delivered all the same. Returns false if a partition ends before the place that was
    /// reached: what lies in it is not what this process knows.
    fn goes_on_behind_the_gap(&self, consumer: &BaseConsumer<Self>) -> bool {
        let topic = &self.group.topic.options.topic;
        let mut list = TopicPartitionList::new();
        for number in self.group.held() {
            let Ok((low, high)) = consumer.fetch_watermarks(topic, number as i32, topic::ASK_TIMEOUT) else {
                return false;
            };
            let mut lane = self.group.lane(number);
            let next = i64::try_from(lane.next).unwrap_or(i64::MAX);
            if next > high
                || list
                    .add_partition_offset(topic, number as i32, Offset::Offset(next.max(low)))
                    .is_err()
            {
                return false;
            }
            lane.paused = false;
        }
        consumer
            .assign(&list)
            .and_then(|()| consumer.resume(&list))
            .is_ok()
    }

    /// Returns where each lane continues, its end, and whether it began anew.
    fn places(
        &self,
        consumer: &BaseConsumer<Self>,
        lanes: &[u32],
    ) -> Result<Vec<(u32, Cursor, u64, bool)>, ReadError> {
        let group = &self.group;
        let topic = &group.topic.options.topic;
        let known = group.committed_for_good(consumer, lanes)?;
        let mut places = Vec::with_capacity(known.len());
        for (number, cursor) in known {
            let marks = consumer.fetch_watermarks(topic, number as i32, topic::ASK_TIMEOUT);
            let (low, high) = marks?;
            let (low, high) = (low.max(0) as u64, high.max(0) as u64);
            let anew = cursor.is_none_or(|cursor| cursor.offset > high);
            group.went_back.fetch_or(anew, Ordering::Relaxed);
            let cursor = match cursor {
                Some(cursor) if cursor.offset > high => {
                    tracing::error!(
                        topic,
                        lane = number,
                        committed = cursor.offset,
                        end = high,
                        "the group's offset is beyond the partition's end (was the topic made anew?); it begins with the oldest message"
                    );
                    Cursor {
                        offset: low,
                        ..cursor
                    }
                }
                Some(cursor) if cursor.offset < low => {
                    tell_of_loss(group, number, low - cursor.offset);
                    Cursor {
                        offset: low,
                        lost_messages: cursor.lost_messages + low - cursor.offset,
                        ..cursor
                    }
                }
                Some(cursor) => cursor,
                None => Cursor {
                    offset: offset_of(consumer, topic, number, group.start, (low, high))?,
                    ..Cursor::default()
                },
            };
            places.push((number, cursor, high, anew));
        }
        Ok(places)
    }

    /// Gives up all lanes: waits until nothing of them is under way, and commits what is done.
    fn let_go(&self, consumer: &BaseConsumer<Self>) {
        let group = &self.group;
        let held = group.held();
        let told = self.begun.lock().take().is_none();
        if !held.is_empty() {
            if told {
                let (handed, ended) = mpsc::sync_channel(1);
                (self.tell)(Rebalance::Revoked(Handed(handed)));
                // An error means that the other end was dropped, which is what this waits for.
                let _ = ended.recv();
            }
            if consumer.assignment_lost() {
                tracing::warn!(
                    group = group.id,
                    "Kafka has not heard of this gateway for too long: its lanes are others' already; what was not committed is delivered once more"
                );
            }
            match group.commit(consumer, false) {
                Ok(()) => {}
                Err(error) => {
                    tracing::warn!(group = group.id, %error, "the last batches were not committed: they are delivered once more");
                }
            }
            for lane in held {
                group.lane(lane).let_go();
            }
            if told {
                (self.tell)(Rebalance::Gone);
            }
        }
        group.end_lease();
        if let Err(error) = consumer.unassign() {
            tracing::error!(group = group.id, %error, "lanes cannot be let go");
        }
    }

    fn commit(&self, consumer: &BaseConsumer<Self>, anyway: bool) {
        match self.group.commit(consumer, anyway) {
            Ok(()) => {
                if let Some(lanes) = self.begun.lock().take() {
                    (self.tell)(Rebalance::Assigned(lanes));
                }
            }
            Err(error) => {
                let id = &self.group.id;
                self.group
                    .log_limiter
                    .say(&format!("consumer group {id} cannot commit: {error}"));
            }
        }
    }

    /// Commits what is done, often enough to keep the lease.
    fn commit_in_time(&self, consumer: &BaseConsumer<Self>) {
        let session = self.group.topic.options.session_timeout;
        let mut committed = self.committed.lock();
        let passed = committed.map(|committed| committed.elapsed());
        let held = self.group.held();
        let dirty = held.iter().any(|lane| self.group.lane(*lane).dirty);
        let hurry = self.group.hurry.swap(false, Ordering::Relaxed);
        let keep = !held.is_empty() && passed.is_none_or(|passed| passed > session / 4);
        if keep || (dirty && (hurry || passed.is_none_or(|passed| passed > COMMIT_EVERY))) {
            *committed = Some(Instant::now());
            drop(committed);
            self.commit(consumer, true);
        }
    }

    /// Stops fetching for lanes that have enough, and continues for lanes that need more.
    fn steer(&self, consumer: &BaseConsumer<Self>) {
        let (mut pause, mut resume) = (TopicPartitionList::new(), TopicPartitionList::new());
        let held = self.group.held().into_iter();
        let held: Vec<FetchedOfLane> = held
            .map(|number| {
                let lane = self.group.lane(number);
                FetchedOfLane {
                    number,
                    paused: lane.paused,
                    bytes: lane.bytes,
                    messages: lane.fetched.len(),
                }
            })
            .collect();
        for (number, paused) in steered(&held) {
            self.group.lane(number).paused = paused;
            let list = if paused { &mut pause } else { &mut resume };
            list.add_partition(&self.group.topic.options.topic, number as i32);
        }
        let paused = (pause.count() > 0).then(|| consumer.pause(&pause));
        let resumed = (resume.count() > 0).then(|| consumer.resume(&resume));
        for error in [paused, resumed].into_iter().flatten().filter_map(Result::err) {
            self.group.log_limiter.say(&error.to_string());
        }
    }

    fn fetched(&self, message: &BorrowedMessage<'_>) {
        let (Ok(lane), Ok(offset)) = (
            u32::try_from(message.partition()),
            u64::try_from(message.offset()),
        ) else {
            return;
        };
        if lane >= self.group.topic.lanes {
            return;
        }
        let (head, params) = headers_of(message);
        let fetched = Fetched {
            offset,
            time_ms: message.timestamp().to_millis().map_or(0, |ms| ms.max(0) as u64),
            lost_before: 0,
            head,
            params,
            lines: message.payload().unwrap_or_default().to_vec(),
        };
        let mut state = self.group.lane(lane);
        let expected = state.next;
        let wakers = state.push(fetched);
        let lost = if state.held {
            offset.saturating_sub(expected)
        } else {
            0
        };
        drop(state);
        if lost > 0 {
            tell_of_loss(&self.group, lane, lost);
        }
        for waker in wakers {
            waker.wake();
        }
    }
}

/// What is fetched and not done of a lane.
#[derive(Clone, Debug)]
struct FetchedOfLane {
    number: u32,
    paused: bool,
    bytes: usize,
    messages: usize,
}

/// Returns which lanes to stop fetching for (`true`), and which to go on with. Each lane may have its part,
/// but not all of them at once where there are many. Whoever has next to nothing is always fetched for, so
/// that no lane waits for another.
fn steered(lanes: &[FetchedOfLane]) -> Vec<(u32, bool)> {
    let most = (FETCHED_BYTES_MAX / lanes.len().max(1)).max(LANE_BYTES_MIN);
    let mut all: usize = lanes.iter().map(|lane| lane.bytes).sum();
    let is_over = all > FETCHED_BYTES_MAX;
    let running = lanes.iter().filter(|lane| !lane.paused);
    let full = running.filter(|lane| lane.messages > 1 && (is_over || lane.bytes > most));
    let mut steered: Vec<(u32, bool)> = full.map(|lane| (lane.number, true)).collect();
    let paused = lanes.iter().filter(|lane| lane.paused);
    let mut hungry: Vec<&FetchedOfLane> = paused.filter(|lane| lane.bytes < most / 2).collect();
    hungry.sort_unstable_by_key(|lane| lane.bytes);
    for lane in hungry {
        // It is likely to fetch so much before somebody looks again.
        all = all.saturating_add(most / 2);
        if lane.messages <= 1 || all <= FETCHED_BYTES_MAX {
            steered.push((lane.number, false));
        }
    }
    steered
}

fn tell_of_loss(group: &Inner, lane: u32, messages: u64) {
    tracing::error!(
        topic = group.topic.options.topic,
        group = group.id,
        lane,
        messages,
        "Kafka has deleted messages before they were delivered: the topic keeps them for too short a time"
    );
}

/// Whether a lane's next message is not in its partition any more: it was deleted, or the partition was cut
/// or made anew.
fn is_out_of_range(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        error,
        KafkaError::MessageConsumption(Code::AutoOffsetReset | Code::OffsetOutOfRange | Code::LogTruncation)
            | KafkaError::MessageConsumptionFatal(Code::LogTruncation)
    )
}

/// Returns the head of a message, or why the message is not a gateway's, and the parameters.
pub(crate) fn headers_of(message: &BorrowedMessage<'_>) -> (Result<Head, HeadError>, Vec<u8>) {
    let header = |name: &str| {
        let headers = message.headers()?;
        let found = headers.iter().find(|header| header.key == name)?;
        found.value
    };
    let head = match header(Head::NAME) {
        Some(value) => Head::read(value),
        None => Err(HeadError::Missing),
    };
    (head, header(Head::PARAMS).unwrap_or_default().to_vec())
}

/// Runs like [`run`], and also survives a panic: the lanes are given up before the brokers may give them to
/// others.
fn run_to_its_end(consumer: &Arc<BaseConsumer<HandOver>>) {
    if caught("a consumer group gives up its lanes and begins anew", || {
        run(consumer)
    })
    .is_some()
    {
        return;
    }
    let context = consumer.context();
    caught("lanes could not be given up", || context.let_go(consumer));
    *context.group.consumer.lock() = None;
}

/// Runs until the group is stopped and all lanes are given up.
fn run(consumer: &Arc<BaseConsumer<HandOver>>) {
    let context = Arc::clone(consumer.context());
    let topic = context.group.topic.options.topic.clone();
    let (mut joined, mut looked, mut leaving) = (false, Instant::now(), None::<Instant>);
    loop {
        if !joined && leaving.is_none() {
            match consumer.subscribe(&[&topic]) {
                Ok(()) => joined = true,
                Err(error) => context.group.log_limiter.say(&error.to_string()),
            }
        }
        match consumer.poll(POLL) {
            Some(Ok(message)) => context.fetched(&message),
            Some(Err(error)) => {
                context.group.log_limiter.say(&error.to_string());
                if is_out_of_range(&error) && leaving.is_none() && !context.goes_on_behind_the_gap(consumer) {
                    context.join_anew.store(true, Ordering::Relaxed);
                }
            }
            None => {}
        }
        if looked.elapsed() >= LOOK_EVERY {
            context.steer(consumer);
            context.commit_in_time(consumer);
            looked = Instant::now();
        }
        if context.join_anew.swap(false, Ordering::Relaxed) {
            consumer.unsubscribe();
            joined = false;
        }
        match leaving {
            None if context.stop.load(Ordering::Relaxed) => {
                leaving = Some(Instant::now());
                consumer.unsubscribe();
            }
            Some(since) if context.group.held().is_empty() && since.elapsed() > LEAVE_MIN => break,
            _ => {}
        }
    }
    // Dropping the consumer leaves the group.
    *context.group.consumer.lock() = None;
}

impl ClientContext for HandOver {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.group.log_limiter.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.group.log_limiter.say(&format!("{error}: {reason}"));
    }
}

impl ConsumerContext for HandOver {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, what: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let moved = || self.move_lanes(consumer, what, list);
        if caught("a consumer group gives up its lanes and is joined anew", moved).is_none() {
            caught("lanes could not be given up", || self.let_go(consumer));
            self.join_anew.store(true, Ordering::Relaxed);
        }
    }
}

impl HandOver {
    fn move_lanes(&self, consumer: &BaseConsumer<Self>, what: RDKafkaRespErr, list: &TopicPartitionList) {
        if what != RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            self.let_go(consumer);
            return;
        }
        let lanes = list.elements().into_iter();
        let lanes = lanes.filter_map(|one| u32::try_from(one.partition()).ok());
        let lanes: Vec<u32> = lanes.filter(|lane| *lane < self.group.topic.lanes).collect();
        match self.take(consumer, &lanes) {
            Ok(()) => {
                (self.tell)(Rebalance::Decided);
                if lanes.is_empty() {
                    return;
                }
                *self.committed.lock() = None;
                *self.begun.lock() = Some(lanes);
            }
            Err(why) => {
                let id = &self.group.id;
                self.group
                    .log_limiter
                    .say(&format!("consumer group {id} cannot begin with its lanes: {why}"));
                for lane in self.group.held() {
                    self.group.lane(lane).let_go();
                }
                // Nothing is fetched; the group is joined again.
                if let Err(error) = consumer.unassign() {
                    self.group.log_limiter.say(&error.to_string());
                }
                self.join_anew.store(true, Ordering::Relaxed);
            }
        }
    }
}

const POLL: Duration = Duration::from_millis(20);
/// The time between two checks of what has to be committed and fetched.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The time between two commits, while there is something to commit.
const COMMIT_EVERY: Duration = Duration::from_millis(200);
/// The time after which a member that was told to leave has certainly had its lanes taken.
const LEAVE_MIN: Duration = Duration::from_millis(100);
/// How long lanes that are given up may take to finish what they have under way. After that the brokers give
/// the gateway up.
const HAND_OVER_MAX: Duration = Duration::from_secs(600);
/// How long the thread tries to learn where new lanes continue.
const TAKE_MAX: Duration = Duration::from_secs(60);
const TAKE_AGAIN: Duration = Duration::from_millis(500);
/// The bytes fetched and not done, for all lanes of a group, beyond which only lanes with one message or none
/// are fetched for.
const FETCHED_BYTES_MAX: usize = 64 << 20;
/// The least limit of one lane, however many lanes there are.
const LANE_BYTES_MIN: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(number: usize, paused: bool, bytes: usize, messages: usize) -> Vec<FetchedOfLane> {
        let lane = |number| FetchedOfLane {
            number: number as u32,
            paused,
            bytes,
            messages,
        };
        (0..number).map(lane).collect()
    }

    #[test]
    fn a_lane_that_has_its_part_waits_until_half_of_that_is_done() {
        let mut two = lanes(2, false, 1 << 20, 9);
        two[0].bytes = FETCHED_BYTES_MAX / 2 + 1;
        assert_eq!(steered(&two), [(0, true)]);
        two[0].paused = true;
        two[0].bytes = FETCHED_BYTES_MAX / 4;
        assert_eq!(steered(&two), []);
        (two[0].bytes, two[1].bytes) = (FETCHED_BYTES_MAX / 4 - 1, FETCHED_BYTES_MAX / 2);
        assert_eq!(steered(&two), [(0, false)], "whatever the other one has");
    }

    #[test]
    fn many_lanes_have_no_more_together_than_few() {
        let mut many = lanes(1000, false, 70 << 10, 5);
        many[7].messages = 1;
        let paused = steered(&many);
        assert_eq!(paused.len(), 999);
        assert!(paused.iter().all(|(number, paused)| *paused && *number != 7));
        // Each has less than half of a lane's least part: those that have least come first.
        let mut many = lanes(1000, true, 40 << 10, 5);
        (many[500].bytes, many[900].bytes) = (10 << 10, 20 << 10);
        let resumed = steered(&many);
        assert_eq!(resumed[..2], [(500, false), (900, false)]);
        assert!(resumed.len() < 30, "{}", resumed.len());
        many.iter_mut().for_each(|lane| lane.bytes = 100 << 10);
        assert_eq!(steered(&many), []);
        (many[3].bytes, many[3].messages) = (0, 0);
        assert_eq!(steered(&many), [(3, false)]);
    }
}
