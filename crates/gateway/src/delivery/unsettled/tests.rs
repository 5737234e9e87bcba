use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kafka::{
    Append, AppendError, Browsed, Cursor, Head, LaneReader, LaneStatus, Moved, OpenError, Part, ReadError,
    Receipt, Running, SideTopic, StartAt, Status, Tell, Topic,
};
use parking_lot::Mutex;

use super::*;
use crate::queue::dead_letters::{Cause, Committed, LetterFilter};
use crate::queue::parked::{GoneEntry, ParkedEntry, ParkedOfQueue, ParkedTopic};

/// A topic in memory, which may take a record and not say so.
#[derive(Clone, Default)]
struct MemoryTopic {
    records: Arc<Mutex<BTreeMap<u32, Vec<Browsed>>>>,
    trouble: Arc<Trouble>,
}

#[derive(Default)]
struct Trouble {
    takes_nothing: AtomicBool,
    says_nothing: AtomicBool,
    tells_nothing: AtomicBool,
}

impl MemoryTopic {
    fn write(&self, kind: u8, params: &[u8], parts: Vec<Part>) -> Result<Receipt, AppendError> {
        let away = || AppendError::Away("timed out".to_owned());
        if self.trouble.takes_nothing.load(Ordering::Relaxed) {
            return Err(away());
        }
        let mut records = self.records.lock();
        let places = parts.into_iter().map(|part| {
            let lane = records.entry(part.lane).or_default();
            let offset = lane.len() as u64;
            lane.push(Browsed {
                offset,
                time_ms: 0,
                head: Ok(Head {
                    kind,
                    documents: part.documents,
                    lanes: LANES,
                    by_id: true,
                }),
                params: params.to_vec(),
                lines: part.bytes,
            });
            (part.lane, offset)
        });
        let places = places.collect();
        match self.trouble.says_nothing.load(Ordering::Relaxed) {
            true => Err(away()),
            false => Ok(Receipt { places }),
        }
    }
}

impl Topic for MemoryTopic {
    fn lanes(&self) -> u32 {
        LANES
    }
    fn has_lanes_by_id(&self) -> bool {
        true
    }
    fn name(&self) -> &str {
        "t"
    }
    fn part_bytes_max(&self, _: usize) -> usize {
        1 << 20
    }
    fn append(&self, kind: u8, params: &[u8], parts: Vec<Part>) -> Append {
        let appended = self.write(kind, params, parts);
        Box::pin(async { appended })
    }
    fn append_blocking(&self, kind: u8, params: &[u8], parts: Vec<Part>) -> Result<Receipt, AppendError> {
        self.write(kind, params, parts)
    }
    fn group(&self, _: &str, _: StartAt) -> Result<Arc<dyn kafka::Group>, OpenError> {
        unreachable!()
    }
    fn side_topic(&self, _: &str) -> Result<Arc<dyn SideTopic>, OpenError> {
        Ok(Arc::new(self.clone()))
    }
    fn browse(&self, _: u32, _: u64, _: &mut dyn FnMut(Browsed) -> bool) -> Result<(), ReadError> {
        unreachable!()
    }
    fn status(&self) -> Status {
        Status::default()
    }
    fn looks(&self) -> u64 {
        0
    }
    fn close(&self) {}
}

impl SideTopic for MemoryTopic {
    fn read(&self, until: &[(u32, u64)], each: &mut dyn FnMut(u32, Browsed)) -> Result<(), ReadError> {
        if self.trouble.tells_nothing.load(Ordering::Relaxed) {
            return Err(ReadError::Kafka("timed out".to_owned()));
        }
        for (lane, last) in until {
            let records = self.records.lock().get(lane).cloned().unwrap_or_default();
            for record in records.into_iter().filter(|record| record.offset <= *last) {
                each(*lane, record);
            }
        }
        Ok(())
    }
    fn delete_before(&self, places: &[(u32, u64)]) -> Result<(), ReadError> {
        let mut records = self.records.lock();
        for (lane, before) in places {
            let lane = records.entry(*lane).or_default();
            lane.retain(|record| record.offset >= *before);
        }
        Ok(())
    }
}

/// A group whose gateway may send as long as it holds lanes.
#[derive(Default)]
struct MemoryGroup {
    holds: AtomicBool,
}

impl kafka::Group for MemoryGroup {
    fn id(&self) -> &str {
        "t.g"
    }
    fn start(&self, _: Tell) -> Result<Box<dyn Running>, ReadError> {
        unreachable!()
    }
    fn reader(&self, _: u32) -> Result<Box<dyn LaneReader>, ReadError> {
        unreachable!()
    }
    fn done(&self, _: u32, _: u64, _: u64, _: u64) -> Result<(), ReadError> {
        unreachable!()
    }
    fn keep(&self, _: u32, _: u64, _: u64) {}
    fn keep_when_done(&self, _: u32, _: u64, _: u64) {}
    fn flush(&self) -> Result<(), ReadError> {
        Ok(())
    }
    fn confirm(&self) -> Result<(), ReadError> {
        Ok(())
    }
    fn seek(&self, _: StartAt, _: Option<u32>) -> Result<Moved, ReadError> {
        unreachable!()
    }
    fn lease(&self) -> Option<Instant> {
        let lease = Instant::now() + Duration::from_secs(60);
        self.holds.load(Ordering::Relaxed).then_some(lease)
    }
    fn end_when_taken(&self, _: u32) -> u64 {
        0
    }
    fn sent_when_taken(&self, _: u32) -> u64 {
        0
    }
    fn may_send_before(&self, _: u32) -> u64 {
        u64::MAX
    }
    fn commit_soon(&self) {}
    fn claimed(&self) -> Vec<u64> {
        vec![COMMITTED; LANES as usize]
    }
    fn went_back(&self) -> bool {
        false
    }
    fn began_anew(&self, _: u32) -> bool {
        false
    }
    fn status(&self) -> Vec<LaneStatus> {
        let done = Cursor {
            offset: COMMITTED,
            ..Cursor::default()
        };
        vec![
            LaneStatus {
                done,
                ..LaneStatus::default()
            };
            LANES as usize
        ]
    }
}

struct TestGateway {
    letters: DeadLetters,
    parked: Arc<Parked>,
    group: Arc<MemoryGroup>,
    topic: MemoryTopic,
}

impl TestGateway {
    fn open(folder: &Path, topic: &MemoryTopic) -> Self {
        let options = log::Options {
            lanes: 1,
            quota_bytes: 64 << 20,
            segment_bytes: 1 << 20,
            free_bytes_min: 0,
            ..log::Options::default()
        };
        let letters = DeadLetters::open(&folder.join("letters"), options.clone()).unwrap();
        let all = ParkedOfQueue::in_kafka(folder.join("parked"), options);
        let group = Arc::new(MemoryGroup::default());
        let as_group: Arc<dyn kafka::Group> = Arc::clone(&group) as _;
        let side = ParkedTopic::open(topic, &as_group, "g").unwrap();
        Self {
            letters,
            parked: all.add_in_topic("g", side),
            group,
            topic: topic.clone(),
        }
    }

    fn take_over(&self) {
        self.group.holds.store(true, Ordering::Relaxed);
        let taken = self.parked.take_over(&[LANE], &mut None).unwrap();
        settle_letters(&self.letters, "g", &self.parked, &taken.ends).unwrap();
        let holds = |(number, op)| self.parked.holds(number, op);
        drop_letters(&self.letters, "g", &self.parked, holds).unwrap();
    }

    /// Parks an operation of a batch that is committed; returns its place.
    fn park(&self) -> u64 {
        let entry = ParkedEntry {
            lane: LANE,
            origins: vec![(1, 1)],
            number: 7,
            ..ParkedEntry::sample()
        };
        let mut copy = None;
        block_on(self.parked.put(entry, LINES, false, &mut copy)).unwrap();
        self.parked.commit(LANE, || Ok::<_, ()>(())).unwrap();
        copy.unwrap().0
    }

    /// Makes a dead letter of a parked operation.
    fn bury(&self, at: u64) -> Result<(), ParkedError> {
        let id = (self.parked.number_of(at), 0);
        let unconfirmed = &self.parked.unconfirmed_letters;
        unconfirmed.begin([id], self.parked.owner());
        let cause = Cause {
            group: "g".to_owned(),
            lane: LANE,
            position: 1,
            parked: Some(id),
            ..Cause::default()
        };
        block_on(self.letters.put(cause, "logs", LINES)).unwrap();
        unconfirmed.put(id);
        let gone = GoneEntry {
            at,
            lane: LANE,
            ops: None,
            dead: 1,
            lost: 0,
        };
        if block_on(self.parked.resolve(vec![gone]))? {
            let letters = unconfirmed.end([id]);
            self.letters.committed("g", letters);
        }
        Ok(())
    }

    /// Buries while the brokers do not answer, and loses the lane.
    fn bury_in_the_dark(&self, at: u64, is_taken: bool) {
        self.group.holds.store(false, Ordering::Relaxed);
        let trouble = &self.topic.trouble;
        trouble.takes_nothing.store(!is_taken, Ordering::Relaxed);
        trouble.says_nothing.store(true, Ordering::Relaxed);
        self.bury(at).expect_err("no broker answers");
        trouble.takes_nothing.store(false, Ordering::Relaxed);
        trouble.says_nothing.store(false, Ordering::Relaxed);
        self.lose_lane();
    }

    fn lose_lane(&self) {
        self.parked.let_go();
        self.letters.drop_unsettled("g", &self.committed(), true).unwrap();
    }

    fn committed(&self) -> Committed {
        Committed {
            lanes: [("g".to_owned(), vec![COMMITTED; LANES as usize])].into(),
            unconfirmed_letters: [("g".to_owned(), Arc::clone(&self.parked.unconfirmed_letters))].into(),
        }
    }

    fn decide(&self) {
        decide_letters(&self.letters, "g", &self.parked).unwrap();
    }

    fn listed(&self) -> usize {
        let filter = LetterFilter::default();
        let page = self.letters.list(&filter, &self.committed(), 0, 10).unwrap();
        page.letters.len()
    }

    fn is_decided(&self) -> bool {
        self.parked.unconfirmed_letters.all().is_empty()
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time();
    runtime.build().unwrap().block_on(future)
}

/// Has the first of two gateways park an operation of a lane, and give it up while no broker answers.
fn two_gateways(end_is_taken: bool, test: impl FnOnce(&TestGateway, &TestGateway)) {
    let folder = tempfile::tempdir().unwrap();
    let topic = MemoryTopic::default();
    let first = TestGateway::open(&folder.path().join("1"), &topic);
    let second = TestGateway::open(&folder.path().join("2"), &topic);
    first.take_over();
    let at = first.park();
    first.bury_in_the_dark(at, end_is_taken);
    assert_eq!(first.listed(), 0, "nobody knows yet");
    test(&first, &second);
}

#[test]
fn a_letter_whose_operations_end_the_brokers_took_without_saying_so_is_there_in_the_end() {
    two_gateways(true, |first, second| {
        first.decide();
        assert_eq!((first.listed(), first.is_decided()), (1, true));
        second.take_over();
        assert!(!second.parked.any());
    });
    two_gateways(true, |first, second| {
        second.take_over();
        first.decide();
        assert_eq!((first.listed(), first.is_decided()), (1, true));
    });
    two_gateways(true, |first, _| {
        first.take_over();
        assert!(!first.parked.any());
        assert_eq!((first.listed(), first.is_decided()), (1, true));
    });
}

#[test]
fn a_letter_whose_operations_end_the_brokers_never_took_goes_once_the_operation_has_an_owner() {
    two_gateways(false, |first, second| {
        first.decide();
        assert_eq!(
            (first.listed(), first.is_decided()),
            (0, false),
            "its end may still be on its way"
        );
        second.take_over();
        assert!(second.parked.any());
        first.decide();
        assert_eq!((first.listed(), first.is_decided()), (0, true));
    });
    two_gateways(false, |first, _| {
        first.take_over();
        assert!(first.parked.any());
        assert_eq!((first.listed(), first.is_decided()), (0, true));
        first.take_over();
        assert_eq!(first.listed(), 0, "it is gone for good");
    });
    two_gateways(false, |first, second| {
        second.take_over();
        let at = second.parked.state().pieces().next().unwrap().at;
        second.bury(at).unwrap();
        first.decide();
        assert_eq!((first.listed(), second.listed()), (0, 1), "one letter in all");
        assert!(first.is_decided());
    });
}

#[test]
fn an_end_that_a_gateway_writes_after_it_has_lost_its_lane_counts_for_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let topic = MemoryTopic::default();
    let [first, second] = ["1", "2"].map(|name| TestGateway::open(&folder.path().join(name), &topic));
    first.take_over();
    let at = first.park();
    // The gateway is frozen, and wakes up as the former owner.
    first.group.holds.store(false, Ordering::Relaxed);
    second.take_over();
    first.bury(at).expect("the brokers take it");
    assert_eq!(first.listed(), 0, "it may not be its lane any more");
    first.lose_lane();
    first.decide();
    assert_eq!((first.listed(), first.is_decided()), (0, true));
    assert!(second.parked.any(), "it dies there, if it must");
}

#[test]
fn a_copy_of_an_entry_that_comes_after_its_end_is_not_executed_by_the_next_owner() {
    let folder = tempfile::tempdir().unwrap();
    let topic = MemoryTopic::default();
    let [first, second] = ["1", "2"].map(|name| TestGateway::open(&folder.path().join(name), &topic));
    first.take_over();
    let at = first.park();
    first.bury(at).unwrap();
    {
        let mut records = topic.records.lock();
        let lane = records.get_mut(&LANE).unwrap();
        let put = lane.iter().find(|record| record.lines.ends_with(LINES));
        let offset = lane.len() as u64;
        let copy = Browsed {
            offset,
            ..put.unwrap().clone()
        };
        lane.push(copy);
    }
    second.take_over();
    assert!(!second.parked.any());
    assert_eq!((first.listed(), second.listed()), (1, 0));
}

#[test]
fn a_gateway_that_cannot_read_what_is_parked_does_not_write_at_each_try() {
    let folder = tempfile::tempdir().unwrap();
    let topic = MemoryTopic::default();
    let gateway = TestGateway::open(folder.path(), &topic);
    gateway.take_over();
    gateway.park();
    gateway.lose_lane();
    topic.trouble.tells_nothing.store(true, Ordering::Relaxed);
    let (mut begun, mut written) = (None, Vec::new());
    for _ in 0..12 {
        assert!(gateway.parked.take_over(&[LANE], &mut begun).is_err());
        written.push(topic.records.lock()[&LANE].len());
    }
    let news = written.windows(2).filter(|two| two[0] < two[1]);
    assert_eq!(
        news.count(),
        1,
        "it begins anew once, if the topic was made anew: {written:?}"
    );
    topic.trouble.tells_nothing.store(false, Ordering::Relaxed);
    assert!(gateway.parked.take_over(&[LANE], &mut begun).is_ok());
    assert!(gateway.parked.any());
}

const LANE: u32 = 1;
const LANES: u32 = 4;
const COMMITTED: u64 = 100;
const LINES: &[u8] = b"{\"delete\":{\"_index\":\"logs\",\"_id\":\"1\"}}\n";
