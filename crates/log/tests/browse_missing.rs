//! Whoever reads all records of a log is told which are missing, wherever these were.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that meets something unexpected ends, and damages files as disks do"
)]

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use log::{Browse, Drive, Found, Log, Missing, Next, Options, RealDisk, Receipt, StartAt};

/// Opens a log of small segments; what happens is as a test makes it happen.
fn open(folder: &Path) -> Log {
    let options = Options {
        lanes: 1,
        segment_bytes: 8 << 10,
        free_bytes_min: 0,
        drive: Drive::ByHand,
        ..Options::default()
    };
    Log::open(folder, options, RealDisk::default()).unwrap()
}

/// Appends records of one document, two, and so on.
fn fill(log: &Log, records: u32) -> Vec<Receipt> {
    let append = |documents| {
        let mut record = log.record(0, b"");
        record.group(0, documents, |out| out.resize(1000, b'x'));
        log.append_blocking(record).unwrap()
    };
    (1..=records).map(append).collect()
}

/// Returns the segment that holds a position, with the position of its first byte.
fn segment_of(folder: &Path, position: u64) -> (PathBuf, u64) {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let segments = files.filter_map(|path| {
        let first = path
            .file_name()?
            .to_str()?
            .strip_suffix(".segment")?
            .parse()
            .ok()?;
        (first <= position).then_some((path, first))
    });
    segments.max_by_key(|(_, first)| *first).unwrap()
}

/// Damages the byte at a position.
fn damage(folder: &Path, position: u64) {
    let (path, first) = segment_of(folder, position);
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, position - first).unwrap();
    file.write_all_at(&[byte[0] ^ 1], position - first).unwrap();
}

/// Reads to the end; returns the number of records, and what is missing.
fn read(browse: &mut Browse) -> (usize, Vec<Missing>) {
    let (mut records, mut missing) = (0, Vec::new());
    let read = browse.each_found(|found| {
        match found {
            Found::Record(_) => records += 1,
            Found::Missing(one) => missing.push(one),
        }
        ControlFlow::Continue(())
    });
    read.unwrap();
    (records, missing)
}

fn missing(from: u64, to: u64, records: u64, documents: u64) -> Missing {
    Missing {
        range: from..to,
        records: Some(records),
        documents: Some(documents),
    }
}

/// Returns the number of the first record that is not in the first segment.
fn first_of_second(folder: &Path, records: &[Receipt]) -> usize {
    let in_first = |receipt: &&Receipt| segment_of(folder, receipt.position).1 == 0;
    records.iter().take_while(in_first).count()
}

#[test]
fn a_whole_log_misses_nothing_also_while_it_grows_and_while_its_beginning_is_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    let consumer = log.consumer("g", StartAt::Oldest).unwrap();
    assert_eq!(read(&mut log.browse(0)), (0, vec![]));
    let mut slow = log.browse(0);
    fill(&log, 30);
    assert!(slow.read().unwrap().is_some());
    let mut fast = log.browse(0);
    assert_eq!(read(&mut fast), (30, vec![]));
    fill(&log, 20);
    assert_eq!(read(&mut fast), (20, vec![]));
    let (mut reader, mut out) = (consumer.reader(0).unwrap(), Vec::new());
    while let Some(next) = reader.next(&mut out).unwrap() {
        assert!(matches!(next, Next::Group(_)));
    }
    consumer.commit(&[reader.mark().done()]).unwrap();
    log.keep_turn();
    assert!(log.status().start > 0);
    let (records, missing) = read(&mut slow);
    assert!(records > 0 && missing.is_empty(), "{records} {missing:?}");
}

#[test]
fn what_comes_to_a_segment_while_it_is_read_is_neither_passed_over_nor_missing() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    fill(&log, 3);
    let (mut found, mut more) = (0, vec![]);
    let read = log.browse(0).each_found(|one| {
        match one {
            Found::Record(_) => found += 1,
            Found::Missing(missing) => more.push(missing),
        }
        // The segment gets full meanwhile, and another is begun.
        if found == 2 {
            fill(&log, 10);
        }
        ControlFlow::Continue(())
    });
    read.unwrap();
    assert_eq!((found, more), (13, vec![]));
}

#[test]
fn records_with_damaged_heads_are_missing() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    let records = fill(&log, 30);
    let second = first_of_second(folder.path(), &records);
    // The first of all; two in the middle; the last of a segment; and the first of another.
    for number in [0, 2, 3, second - 1, second] {
        damage(folder.path(), records[number].position + 30);
    }
    let all = [
        missing(records[0].position, records[1].position, 1, 1),
        missing(records[2].position, records[4].position, 2, 3 + 4),
        missing(
            records[second - 1].position,
            records[second + 1].position,
            2,
            2 * second as u64 + 1,
        ),
    ];
    assert_eq!(read(&mut log.browse(0)), (25, all.to_vec()));

    // Whoever breaks off is told nothing twice.
    let (mut browse, mut told) = (log.browse(0), Vec::new());
    loop {
        let before = told.len();
        let step = browse.each_found(|found| {
            told.push(found);
            ControlFlow::Break(())
        });
        step.unwrap();
        if told.len() == before {
            break;
        }
    }
    let told = told.into_iter().filter_map(|found| match found {
        Found::Missing(missing) => Some(missing),
        Found::Record(_) => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), all);
    let mut browse = log.browse(0);
    let mut count = 0;
    while browse.read().unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 25);
}

#[test]
fn a_damaged_header_and_a_segment_that_is_gone_hide_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    let records = fill(&log, 40);
    let second = first_of_second(folder.path(), &records);
    let (path, first) = segment_of(folder.path(), records[second].position);
    damage(folder.path(), first + 20);
    damage(folder.path(), records[second].position + 30);
    let expected = missing(
        records[second].position,
        records[second + 1].position,
        1,
        second as u64 + 1,
    );
    assert_eq!(read(&mut log.browse(0)), (39, vec![expected.clone()]));
    assert_eq!(read(&mut log.browse(first)), (39 - second, vec![expected]));
    log.close();
    drop(log);
    fs::remove_file(path).unwrap();
    let log = open(folder.path());
    let in_it = |receipt: &&Receipt| receipt.position > first && receipt.position < 2 * first;
    let gone: Vec<_> = records.iter().filter(in_it).collect();
    let (found, missing) = read(&mut log.browse(0));
    assert_eq!(found, 40 - gone.len());
    let documents: u64 = gone.iter().map(|receipt| u64::from(receipt.documents)).sum();
    assert_eq!(
        missing.iter().map(|one| one.documents.unwrap()).sum::<u64>(),
        documents
    );
}

#[test]
fn what_is_missing_at_the_end_begins_at_the_same_place_once_the_log_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    let records = fill(&log, 20);
    let (last, first) = segment_of(folder.path(), records[19].position);
    let kept: Vec<_> = records.iter().filter(|one| one.position < first).collect();
    log.close();
    drop(log);
    fs::remove_file(last).unwrap();
    let log = open(folder.path());
    let begins = |(_, missing): (usize, Vec<Missing>)| -> Vec<u64> {
        missing.iter().map(|missing| missing.range.start).collect()
    };
    let end = kept.last().map(|one| one.position + one.bytes).unwrap();
    assert_eq!(begins(read(&mut log.browse(0))), [end]);
    fill(&log, 2);
    assert_eq!(begins(read(&mut log.browse(0))), [end]);
}

#[test]
fn a_damaged_end_is_missing_and_so_it_stays() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    let records = fill(&log, 5);
    log.close();
    drop(log);
    damage(folder.path(), records[4].position + 30);
    for _ in 0..2 {
        let log = open(folder.path());
        let (found, missing) = read(&mut log.browse(0));
        assert_eq!(found, 4);
        let [missing] = &missing[..] else {
            panic!("{missing:?}")
        };
        assert_eq!(
            (missing.range.start, missing.documents),
            (records[4].position, Some(5))
        );
        log.close();
    }
    let log = open(folder.path());
    fill(&log, 3);
    let (found, missing) = read(&mut log.browse(0));
    assert_eq!(found, 7);
    let [missing] = &missing[..] else {
        panic!("{missing:?}")
    };
    assert_eq!(
        (missing.range.start, missing.documents),
        (records[4].position, Some(5))
    );
}
