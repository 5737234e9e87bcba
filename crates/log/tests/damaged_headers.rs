//! A segment whose header is damaged: what is done can still be deleted, nothing that is not done is, and a
//! consumer group can still be given a place.

#![allow(clippy::unwrap_used, reason = "a test that meets something unexpected ends")]

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use log::{Consumer, Drive, Log, Moved, Next, Options, RealDisk, StartAt};

/// Opens a log of small segments; what happens is as a test makes it happen.
fn open(folder: &Path) -> Log {
    let options = Options {
        lanes: 2,
        segment_bytes: 8 << 10,
        free_bytes_min: 0,
        drive: Drive::ByHand,
        ..Options::default()
    };
    Log::open(folder, options, RealDisk::default()).unwrap()
}

/// Appends records of two documents in lane 0; returns their positions.
fn fill(log: &Log, records: usize) -> Vec<u64> {
    let append = |_| {
        let mut record = log.record(0, b"");
        record.group(0, 2, |out| out.resize(1000, b'x'));
        log.append_blocking(record).unwrap().position
    };
    (0..records).map(append).collect()
}

/// Commits the next groups of lane 0, as many as these; returns how many there were.
fn commit(consumer: &Consumer, most: usize) -> usize {
    let (mut reader, mut out, mut count) = (consumer.reader(0).unwrap(), Vec::new(), 0);
    while count < most {
        match reader.next(&mut out).unwrap() {
            Some(Next::Group(_)) => count += 1,
            None => break,
            lost => panic!("{lost:?}"),
        }
    }
    consumer.commit(&[reader.mark().done()]).unwrap();
    count
}

/// Returns the segments, in order.
fn segments(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut segments: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|ending| ending == "segment"))
        .collect();
    segments.sort();
    segments
}

fn first_of(segment: &Path) -> u64 {
    segment.file_stem().unwrap().to_str().unwrap().parse().unwrap()
}

fn damage(path: &Path, at: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

fn damage_header(segment: &Path) {
    damage(segment, 20);
}

fn damage_footer(segment: &Path) {
    damage(segment, fs::metadata(segment).unwrap().len() - 1);
}

/// Keeps the log as its own thread would, and returns how many segments of these are left.
fn left(log: &Log, before: &[PathBuf]) -> usize {
    log.keep_turn();
    before.iter().filter(|segment| segment.exists()).count()
}

#[test]
fn a_damaged_header_keeps_nothing_that_is_done_and_lets_nothing_else_go() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    let consumer = log.consumer("g", StartAt::Oldest).unwrap();
    let records = fill(&log, 60);
    let before = segments(folder.path());
    assert!(before.len() > 6);
    // Of the first segment, everything is known by its own footer; of the third and fourth, only that they
    // are done once the fifth is reached.
    damage_header(&before[1]);
    damage_header(&before[3]);
    damage_footer(&before[2]);
    let in_segment = |number: usize| {
        let (from, to) = (first_of(&before[number]), first_of(&before[number + 1]));
        records.iter().filter(|at| (from..to).contains(at)).count()
    };
    commit(&consumer, in_segment(0) - 1);
    assert_eq!(left(&log, &before), before.len(), "one record is not done");
    commit(&consumer, 1);
    assert_eq!(left(&log, &before), before.len() - 1, "the first is done");
    commit(&consumer, in_segment(1) + in_segment(2));
    assert_eq!(
        left(&log, &before),
        before.len() - 2,
        "how much the third has is not known"
    );
    commit(&consumer, in_segment(3));
    assert_eq!(left(&log, &before), before.len() - 4);
    commit(&consumer, usize::MAX);
    assert_eq!(left(&log, &before), 1);
}

#[test]
fn where_no_later_header_is_whole_segments_go_once_everything_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    let consumer = log.consumer("g", StartAt::Oldest).unwrap();
    fill(&log, 10);
    let before = segments(folder.path());
    assert_eq!(before.len(), 2);
    damage_header(&before[1]);
    damage_footer(&before[0]);
    commit(&consumer, 9);
    assert_eq!(left(&log, &before), 2);
    commit(&consumer, 1);
    assert_eq!(left(&log, &before), 1);
}

#[test]
fn a_group_is_given_its_place_in_a_segment_with_a_damaged_header() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    let consumer = log.consumer("g", StartAt::Oldest).unwrap();
    let records = fill(&log, 60);
    let before = segments(folder.path());
    for segment in &before[1..] {
        damage_header(segment);
    }
    // The footer before the third segment is damaged too, so its own end says with what it begins; the last
    // one has no footer yet.
    damage_footer(&before[1]);
    damage_footer(&before[before.len() - 2]);
    let mut places = records.clone();
    places.extend(before[1..].iter().map(|segment| first_of(segment)));
    let mut at = 0;
    for place in places {
        let passed = records.iter().filter(|record| **record < place).count() as u64 * 2;
        let moved = consumer.seek(StartAt::Position(place)).unwrap();
        let forward = Moved {
            skipped: passed.saturating_sub(at),
            rewound: at.saturating_sub(passed),
        };
        assert_eq!(moved, forward, "{place}");
        at = passed;
    }
    consumer.seek(StartAt::Position(records[20])).unwrap();
    assert_eq!(commit(&consumer, usize::MAX), 40, "no document is missing");
    let fresh = log.consumer("fresh", StartAt::Position(records[30])).unwrap();
    assert_eq!(commit(&fresh, usize::MAX), 30);
    assert_eq!(log.accounts().1.iter().map(|group| group.pending).sum::<u64>(), 0);
}

#[test]
fn the_oldest_segment_may_have_a_damaged_header_when_a_group_begins_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    let consumer = log.consumer("g", StartAt::Oldest).unwrap();
    let records = fill(&log, 60);
    let before = segments(folder.path());
    commit(&consumer, 30);
    let gone = before.len() - left(&log, &before);
    assert!(gone > 2);
    damage_header(&before[gone]);
    let fresh = log.consumer("fresh", StartAt::Oldest).unwrap();
    let there = records
        .iter()
        .filter(|at| **at >= first_of(&before[gone]))
        .count();
    assert_eq!(commit(&fresh, usize::MAX), there);
    assert_eq!(fresh.status().skipped, (60 - there as u64) * 2);
}
