//! A consumer group that is given a place while segments are deleted finds everything behind that place.

#![allow(clippy::unwrap_used, reason = "a test that meets something unexpected ends")]

mod altered;

use std::sync::Arc;
use std::time::Duration;

use altered::{Alter, Altered};
use log::{Drive, Log, Next, Options, StartAt};
use parking_lot::Mutex;

/// A disk on which the keeper's turn comes just when a segment is opened.
#[derive(Clone, Default)]
struct KeptMeanwhile {
    log: Arc<Mutex<Option<Arc<Log>>>>,
}

impl Alter for KeptMeanwhile {
    fn opened(&self) {
        let log = self.log.lock().take();
        if let Some(log) = log {
            std::thread::spawn(move || log.keep_turn());
            // A turn that does not wait is over by then.
            std::thread::sleep(Duration::from_millis(300));
        }
    }
}

#[test]
fn a_segment_stays_while_a_new_group_is_placed_in_it() {
    let (folder, disk) = (tempfile::tempdir().unwrap(), Altered::<KeptMeanwhile>::default());
    let options = Options {
        lanes: 1,
        segment_bytes: 8 << 10,
        free_bytes_min: 0,
        drive: Drive::ByHand,
        ..Options::default()
    };
    let log = Arc::new(Log::open(folder.path(), options, disk.clone()).unwrap());
    let first = log.consumer("first", StartAt::Oldest).unwrap();
    for _ in 0..40 {
        let mut record = log.record(0, b"");
        record.group(0, 1, |out| out.resize(1000, b'x'));
        log.append_blocking(record).unwrap();
    }
    assert!(log.status().segments > 3);
    // The first group has done everything, so the segments may go.
    let mut reader = first.reader(0).unwrap();
    let mut bytes = Vec::new();
    while let Some(next) = reader.next(&mut bytes).unwrap() {
        let Next::Group(group) = next else {
            panic!("{next:?}")
        };
        first.commit(&[group.mark.done()]).unwrap();
    }
    first.flush().unwrap();
    *disk.log.lock() = Some(Arc::clone(&log));
    let second = log.consumer("second", StartAt::Oldest).unwrap();
    assert!(disk.log.lock().is_none(), "the keeper had its turn");
    let (mut reader, mut found) = (second.reader(0).unwrap(), 0);
    while let Some(next) = reader.next(&mut bytes).unwrap() {
        assert!(matches!(next, Next::Group(_)), "{next:?}");
        found += 1;
    }
    let before_its_start = second.status().skipped;
    assert_eq!(found + before_its_start, 40);
}
