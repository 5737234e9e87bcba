use bulk::{Dialect, Flavour, IndexRoute, NodeIx, Version};
use log::{Log, Options, RealDisk, StartAt};

use super::*;
use crate::queue::fence::{Fronts, is_behind};
use crate::queue::journal::Consumer;
use crate::queue::parked::{OperationNames, ParkKey, ParkedOfQueue};

const LANES: u32 = 64;

/// Makes a table in which the alias `a` leads to `index`, which has this many shards, and `other` to itself.
fn table(index: &str, shards: usize) -> Arc<RouteTable> {
    let dialect = Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0));
    let mut builder = RouteTable::builder(dialect, 1);
    let route = |name: &str, shards: usize| {
        Arc::new(IndexRoute::new(
            name,
            Formula::Modulo,
            vec![Some(NodeIx(0)); shards],
        ))
    };
    let write = route(index, shards);
    builder.index(Arc::clone(&write));
    let alias = Target::Alias {
        write,
        index_routing: None,
    };
    builder.name("a", alias);
    builder.index(route("other", 2));
    Arc::new(builder.build())
}

fn number(table: &RouteTable, name: &str) -> u32 {
    let mut numbers = 0..3;
    numbers.find(|number| table.name_of(*number) == name).unwrap()
}

struct Queue {
    folder: tempfile::TempDir,
    journal: Journal,
    whereabouts: Arc<Whereabouts>,
}

impl Queue {
    fn open(folder: tempfile::TempDir) -> Self {
        let options = Options {
            lanes: LANES,
            segment_bytes: 4 << 10,
            free_bytes_min: 0,
            ..Options::default()
        };
        let log = Log::open(folder.path().join("log"), options, RealDisk::default()).unwrap();
        let journal = Journal::Disk(log);
        let options = Options {
            free_bytes_min: 0,
            ..Options::default()
        };
        let parked = ParkedOfQueue::open(folder.path().join("parked"), options, &journal.committed());
        let parked = Arc::new(parked.unwrap());
        let whereabouts = Whereabouts::open(folder.path(), "q", &journal, parked).unwrap();
        Self {
            folder,
            journal,
            whereabouts,
        }
    }

    fn reopened(self) -> Self {
        self.whereabouts.close();
        self.journal.close();
        drop(self.journal);
        Self::open(self.folder)
    }

    /// Puts a document into a lane; returns its position.
    fn append(&self, lane: u32) -> u64 {
        let log = self.journal.on_disk().unwrap();
        let mut record = log.record(0, b"{}");
        record.group(lane, 1, |out| out.push(b'x'));
        log.append_blocking(record).unwrap().position
    }

    fn note(&self, table: &Arc<RouteTable>, newest: &Arc<RouteTable>, name: &str) -> NameNote {
        let names = [number(table, name)];
        let known = &mut NamesOfCore::default();
        self.whereabouts
            .note(table, || Arc::clone(newest), &names, known, &self.journal)
    }

    fn write(&self, table: &Arc<RouteTable>, name: &str, lane: u32) -> u64 {
        let noted = self.note(table, table, name);
        let position = self.append(lane);
        self.durable(noted, position);
        position
    }

    fn durable(&self, noted: NameNote, position: u64) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(self.whereabouts.durable(noted, position));
    }

    fn fences(&self) -> Vec<Arc<Fence>> {
        self.whereabouts.fences().to_vec()
    }
}

fn lanes(index: &str, shards: u32) -> LaneSet {
    lanes_of(index, shards, LANES).collect()
}

#[test]
fn a_name_that_comes_to_lead_elsewhere_gets_a_fence_that_closes_once_all_know() {
    let queue = Queue::open(tempfile::tempdir().unwrap());
    let (first, second) = (table("i1", 2), table("i2", 5));
    queue.write(&first, "a", 1);
    queue.write(&first, "other", 2);
    assert!(queue.fences().is_empty());
    // The request is planned by the first table, and is on its way while another one is planned by the
    // second.
    let late = queue.note(&first, &first, "a");
    let end = queue.journal.status().end;
    let by_second = queue.write(&second, "a", 3);
    let [fence] = &queue.fences()[..] else {
        panic!("one")
    };
    assert_eq!((&fence.of, &fence.past), (&lanes("i2", 5), &lanes("i1", 2)));
    assert_eq!((fence.low, fence.end()), (end, None));
    assert!(by_second >= fence.low);
    let position = queue.append(1);
    queue.durable(late, position);
    assert_eq!(fence.end(), None, "nobody has come behind it");
    let next = queue.write(&second, "other", 2);
    assert_eq!(fence.end(), Some(next));
    assert!(next > position);
    assert_eq!(queue.whereabouts.led_to("a", position), ["i1", "i2"]);
    assert_eq!(queue.whereabouts.led_to("a", next), ["i2"]);
    assert_eq!(queue.whereabouts.led_to("other", position), ["other"]);
    assert!(queue.whereabouts.led_to("unknown", position).is_empty());
}

#[test]
fn what_was_planned_before_and_comes_late_is_waited_for_too() {
    let queue = Queue::open(tempfile::tempdir().unwrap());
    let (first, second) = (table("i1", 2), table("i2", 5));
    queue.write(&first, "a", 1);
    queue.write(&second, "a", 3);
    queue.write(&second, "a", 3);
    let late = queue.note(&first, &second, "a");
    let position = queue.append(1);
    queue.durable(late, position);
    let fences = queue.fences();
    let [_, fence] = &fences[..] else {
        panic!("{fences:?}")
    };
    assert_eq!((&fence.of, &fence.past), (&lanes("i2", 5), &lanes("i1", 2)));
    let next = queue.write(&second, "a", 3);
    assert!(fence.end() == Some(next) && next > position);
}

#[test]
fn a_name_that_moves_on_waits_for_all_that_it_led_to() {
    let queue = Queue::open(tempfile::tempdir().unwrap());
    for (index, shards) in [("i1", 2), ("i2", 5), ("i3", 1)] {
        queue.write(&table(index, shards), "a", 1);
    }
    let fences = queue.fences();
    let mut past = lanes("i1", 2);
    past.add(&lanes("i2", 5));
    assert_eq!((&fences[1].of, &fences[1].past), (&lanes("i3", 1), &past));
    assert_eq!(queue.whereabouts.led_to("a", 0), ["i1", "i2", "i3"]);
}

#[test]
fn where_a_name_led_is_known_while_a_topology_does_not_say_where_it_leads() {
    let queue = Queue::open(tempfile::tempdir().unwrap());
    let position = queue.write(&table("i1", 2), "a", 1);
    let dialect = Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0));
    let without_a = Arc::new(RouteTable::builder(dialect, 1).build());
    let look = || Arc::clone(&without_a);
    queue.whereabouts.look(&without_a, look, &queue.journal);
    assert!(queue.fences().is_empty());
    assert_eq!(queue.whereabouts.led_to("a", position), ["i1"]);
    let queue = queue.reopened();
    assert_eq!(queue.whereabouts.led_to("a", position), ["i1"]);
}

#[test]
fn a_restart_forgets_neither_names_nor_fences() {
    let queue = Queue::open(tempfile::tempdir().unwrap());
    queue.journal.consumer("g", StartAt::Oldest).unwrap();
    queue.write(&table("i1", 2), "a", 1);
    queue.write(&table("i2", 5), "a", 3);
    let queue = queue.reopened();
    let end = queue.journal.status().end;
    let fences = queue.fences();
    assert_eq!((fences.len(), fences[0].end()), (1, Some(end)), "{fences:?}");
    // Names that are as they were, and new names, wait for nothing.
    queue.write(&table("i2", 5), "a", 3);
    queue.write(&table("i2", 5), "other", 4);
    assert_eq!(queue.fences().len(), 1);
    let queue = queue.reopened();
    queue
        .whereabouts
        .look(&table("i3", 1), || table("i3", 1), &queue.journal);
    let fences = queue.fences();
    assert_eq!((fences.len(), &fences[1].of), (2, &lanes("i3", 1)));
}

#[test]
fn names_that_nobody_wrote_down_wait_for_what_is_queued() {
    let queue = Queue::open(tempfile::tempdir().unwrap());
    let Journal::Disk(log) = &queue.journal else {
        panic!("a disk")
    };
    let consumer = log.consumer("g", StartAt::Oldest).unwrap();
    queue.write(&table("i1", 2), "a", 7);
    std::fs::remove_file(queue.folder.path().join("whereabouts/q.jsonl")).unwrap();
    drop(consumer);
    let queue = queue.reopened();
    let end = queue.journal.status().end;
    queue.write(&table("i2", 5), "a", 3);
    let fences = queue.fences();
    let [fence] = &fences[..] else {
        panic!("{fences:?}")
    };
    assert_eq!(
        (&fence.of, &fence.past),
        (&lanes("i2", 5), &[7].into_iter().collect())
    );
    assert_eq!(fence.end(), Some(end));
}

#[test]
fn names_that_nobody_wrote_down_are_unknown_after_further_restarts_too() {
    let queue = Queue::open(tempfile::tempdir().unwrap());
    let log = queue.journal.on_disk().unwrap();
    log.consumer("g", StartAt::Oldest).unwrap();
    queue.write(&table("i1", 2), "a", 7);
    std::fs::remove_file(queue.folder.path().join("whereabouts/q.jsonl")).unwrap();
    let end = queue.journal.status().end;
    let queue = queue.reopened();
    queue.write(&table("i1", 2), "other", 7);
    let named = queue.fences().len();
    let queue = queue.reopened().reopened();
    assert!(queue.whereabouts.may_have_lost(&|_| false));
    queue.write(&table("i2", 5), "a", 3);
    let fences = queue.fences();
    let fence = fences[named..].first().expect("a fence for the unknown name");
    assert_eq!(
        (&fence.of, &fence.past),
        (&lanes("i2", 5), &[7].into_iter().collect())
    );
    assert_eq!(fence.end(), Some(end), "only what was there before waits");
}

#[test]
fn a_line_that_cannot_be_read_makes_names_unknown() {
    let queue = Queue::open(tempfile::tempdir().unwrap());
    queue.write(&table("i1", 2), "a", 7);
    let path = queue.folder.path().join("whereabouts/q.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("\"a\""));
    std::fs::write(&path, text.replace("\"a\"", "a")).unwrap();
    let queue = queue.reopened();
    assert!(queue.whereabouts.may_have_lost(&|_| false));
    let queue = queue.reopened();
    assert!(
        queue.whereabouts.may_have_lost(&|_| false),
        "nor does the next start"
    );
}

#[test]
fn many_fences_become_few_and_none_is_forgotten() {
    let queue = Queue::open(tempfile::tempdir().unwrap());
    for number in 0..FENCES_MAX + 40 {
        let table = table(&format!("i{number}"), 1);
        queue.write(&table, "a", 1);
        queue.write(&table, "a", 1);
    }
    let fences = queue.fences();
    assert!(fences.len() <= FENCES_MAX + 1, "{}", fences.len());
    let led_to = queue.whereabouts.led_to("a", 0);
    assert!((0..FENCES_MAX + 40).all(|number| led_to.contains(&format!("i{number}"))));
}

#[test]
fn what_was_planned_before_and_comes_behind_what_was_not_waits_for_it() {
    let queue = Queue::open(tempfile::tempdir().unwrap());
    let consumer = queue.journal.on_disk().unwrap().consumer("c", StartAt::Oldest);
    let consumer = Consumer::Disk(consumer.unwrap());
    let (first, second) = (table("i1", 2), table("i2", 5));
    let only_of = |one: LaneSet, other: LaneSet| one.iter().find(|lane| !other.has(*lane)).unwrap();
    let led = only_of(lanes("i1", 2), lanes("i2", 5));
    let leads = only_of(lanes("i2", 5), lanes("i1", 2));
    let before = queue.write(&first, "a", led);
    // Requests that are planned by the first table are put into the log behind one that is planned by the
    // second: once noted in time, once later.
    let late = queue.note(&first, &first, "a");
    let by_second = queue.write(&second, "a", leads);
    let behind = queue.append(led);
    queue.durable(late, behind);
    let later = queue.note(&first, &second, "a");
    let last = queue.append(led);
    queue.durable(later, last);

    let fronts = Fronts::new(LANES);
    let awaited = |lane, position| fronts.awaited(&queue.fences(), &consumer, lane, (None, position));
    assert_eq!(awaited(led, before), None);
    assert_eq!(awaited(leads, by_second), Some(led), "what was there before");
    fronts.set(led, Some(behind));
    assert_eq!(awaited(leads, by_second), None);
    assert_eq!(awaited(led, behind), Some(leads), "what came before it");
    fronts.set(leads, Some(by_second));
    assert_eq!(awaited(led, behind), Some(leads), "and is under way");
    fronts.set(led, Some(last));
    assert_eq!(awaited(led, last), Some(leads));
}

#[test]
fn a_kill_between_two_lines_forgets_no_index_that_a_name_led_to() {
    let queue = Queue::open(tempfile::tempdir().unwrap());
    let (first, second) = (table("i1", 2), table("i2", 5));
    queue.write(&first, "a", 1);
    queue
        .whereabouts
        .look(&second, || Arc::clone(&second), &queue.journal);
    queue.whereabouts.close();
    let text = std::fs::read(queue.folder.path().join("whereabouts/q.jsonl")).unwrap();
    let cut = queue.folder.path().join("cut.jsonl");
    let mut moved = 0;
    for (end, _) in text.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
        std::fs::write(&cut, &text[..=end]).unwrap();
        let found = WhereaboutsFile::read(&cut).unwrap();
        let Some(target) = found.targets.get("a") else {
            continue;
        };
        let names = [("a".to_owned(), "i1".to_owned())];
        let told = found.fences.iter().any(|fence| fence.moved == names);
        assert!(target.index == "i1" || told, "{end}");
        moved += u32::from(target.index == "i2");
    }
    assert_eq!(moved, 1);
}

#[test]
fn a_long_file_is_written_anew_beside_what_goes_on_and_lacks_nothing_of_it() {
    let queue = Queue::open(tempfile::tempdir().unwrap());
    let path = queue.folder.path().join("whereabouts/q.jsonl");
    let tables = [table("i1", 2), table("i2", 5)];
    queue.write(&tables[0], "a", 1);
    queue.write(&tables[0], "other", 2);
    for turn in 1..3 * LINES_MIN {
        let newest = &tables[turn % 2];
        queue
            .whereabouts
            .look(newest, || Arc::clone(newest), &queue.journal);
        if turn % 512 == 0 {
            queue.write(newest, "a", 3);
        }
    }
    let fences = queue.fences();
    queue.whereabouts.close();
    assert_eq!(queue.whereabouts.syncs.unsynced(), None);
    let found = WhereaboutsFile::read(&path).unwrap();
    let lines = std::fs::read(&path)
        .unwrap()
        .iter()
        .filter(|byte| **byte == b'\n')
        .count();
    assert!(found.whole && lines < 2 * LINES_MIN, "{lines}");
    let target = &found.targets["a"];
    assert_eq!((&*target.index, target.shards), ("i2", 5));
    let written: HashSet<u64> = found.fences.iter().map(|fence| fence.number).collect();
    let lacking = fences
        .iter()
        .filter(|fence| !written.contains(&fence.number))
        .count();
    assert_eq!(lacking, 0, "of {}", fences.len());
    // What comes after that is done at once.
    let newest = &tables[0];
    queue
        .whereabouts
        .look(newest, || Arc::clone(newest), &queue.journal);
    assert_eq!(queue.whereabouts.syncs.unsynced(), None);
    let found = WhereaboutsFile::read(&path).unwrap();
    assert!(found.fences.len() > written.len());
}

#[test]
fn what_is_parked_needs_fences_and_names_for_longer_than_the_log_does() {
    let queue = Queue::open(tempfile::tempdir().unwrap());
    let parked = &queue.whereabouts.parked;
    assert_eq!(needed_from(parked, 700), 700);
    let shards = |index: &str| ParkKey::Shards {
        index: index.to_owned(),
        lane: 1,
        shard: None,
    };
    let index = |index: &str| index.to_owned();
    parked.park_sample(ParkKey::Letters { index: index("i") }, 100);
    parked.park_sample(shards("i"), 500);
    parked.park_sample(shards("j"), 900);
    assert_eq!(needed_from(parked, 700), 500, "what is refused goes nowhere");
    assert_eq!(needed_from(parked, 400), 400);
    parked.park_sample(ParkKey::Index { index: index("i") }, 300);
    assert_eq!(needed_from(parked, 400), 300);
    parked.park_sample(ParkKey::Documents, 200);
    assert_eq!(needed_from(parked, 400), 200);
}

#[test]
fn where_a_name_led_is_known_after_a_restart_for_what_waits_for_an_index() {
    let queue = Queue::open(tempfile::tempdir().unwrap());
    let (first, second) = (table("i1", 2), table("i2", 5));
    let position = queue.write(&first, "a", 1);
    queue.write(&second, "a", 3);
    let closed = queue.write(&second, "a", 3);
    assert!(queue.fences()[0].end().is_some_and(|end| end <= closed));
    // All who read the log are past these records.
    for _ in 0..200 {
        queue.append(3);
    }
    let log = queue.journal.on_disk().unwrap();
    let _consumer = log.consumer("g", StartAt::Newest).unwrap();
    let began = std::time::Instant::now();
    while queue.journal.status().start <= closed {
        assert!(began.elapsed().as_secs() < 60, "{:?}", queue.journal.status());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let restarted = |parked: &Arc<ParkedOfQueue>| {
        let folder = queue.folder.path();
        Whereabouts::open(folder, "q", &queue.journal, Arc::clone(parked)).unwrap()
    };
    let parked = Arc::clone(&queue.whereabouts.parked);
    let index = "i2".to_owned();
    parked.park_sample(ParkKey::Index { index }, position);
    assert_eq!(restarted(&parked).led_to("a", position), ["i1", "i2"]);
    // Without it, nothing needs to know.
    let none = ParkedOfQueue::open(
        queue.folder.path().join("none"),
        Options::default(),
        &queue.journal.committed(),
    );
    assert_eq!(restarted(&Arc::new(none.unwrap())).led_to("a", position), ["i2"]);
}

#[test]
fn fences_that_are_joined_are_about_as_many_names_as_before() {
    let fence = |number, moved: &[(&str, &str)]| {
        let lanes = ([5].into_iter().collect(), [3].into_iter().collect());
        let mut fence = Fence::new(number, 20, lanes, Some(40));
        fence.moved = moved
            .iter()
            .map(|(name, index)| ((*name).to_owned(), (*index).to_owned()))
            .collect();
        Arc::new(fence)
    };
    let is_about = |fences: &[Arc<Fence>], name: &str| {
        let named = OperationNames::new(name.to_owned(), None, Some("1"));
        is_behind(fences, &named, (5, 30), 3)
    };
    let named = joined(&[fence(1, &[("a", "i1")]), fence(2, &[("b", "i2")])]);
    assert_eq!(named.len(), 1);
    assert!(is_about(&named, "a") && is_about(&named, "b") && !is_about(&named, "c"));
    let unknown = joined(&[fence(1, &[]), fence(2, &[("a", "i1")])]);
    assert!(
        is_about(&unknown, "a") && is_about(&unknown, "c"),
        "any name may have moved"
    );
    assert!(unknown.iter().any(|fence| fence.left("a", 30).eq(["i1"])));
}
