//! Setting the wall clock forward or back changes nothing of what the log promises in time.

#![allow(clippy::unwrap_used, reason = "a test that meets something unexpected ends")]

mod altered;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use altered::{Alter, Altered};
use log::{Discard, Drive, Fsync, Log, Options, RealDisk, Retention, StartAt};

/// A disk with a clock of its own.
#[derive(Clone, Default)]
struct Timed {
    passed_ms: Arc<AtomicU64>,
    ahead_ms: Arc<AtomicI64>,
}

impl Timed {
    fn pass(&self, ms: u64) {
        self.passed_ms.fetch_add(ms, Ordering::Relaxed);
    }

    fn set_clock(&self, by_ms: i64) {
        self.ahead_ms.fetch_add(by_ms, Ordering::Relaxed);
    }
}

impl Alter for Timed {
    fn now_ms(&self, disk: &RealDisk) -> u64 {
        let ahead = self.ahead_ms.load(Ordering::Relaxed);
        (1_000 * HOUR_MS + self.elapsed_ms(disk)).saturating_add_signed(ahead)
    }

    fn elapsed_ms(&self, _: &RealDisk) -> u64 {
        self.passed_ms.load(Ordering::Relaxed)
    }
}

fn open(folder: &Path, disk: &Altered<Timed>, options: Options) -> Log {
    let options = Options {
        lanes: 1,
        segment_bytes: 8 << 10,
        free_bytes_min: 0,
        drive: Drive::ByHand,
        ..options
    };
    Log::open(folder, options, disk.clone()).unwrap()
}

fn append(log: &Log) {
    let mut record = log.record(0, b"");
    record.group(0, 1, |out| out.resize(1000, b'x'));
    log.append_blocking(record).unwrap();
}

#[test]
fn a_clock_set_back_an_hour_puts_no_sync_off() {
    let (folder, disk) = (tempfile::tempdir().unwrap(), Altered::<Timed>::default());
    let options = Options {
        fsync: Fsync::Interval(Duration::from_secs(1)),
        ..Options::default()
    };
    let log = open(folder.path(), &disk, options);
    append(&log);
    disk.set_clock(-(HOUR_MS as i64));
    let before = log.status().syncs;
    disk.pass(999);
    log.write_turn();
    assert_eq!(log.status().syncs, before, "it is not due");
    disk.pass(1);
    log.write_turn();
    assert_eq!(log.status().syncs, before + 1);
    // Nor does setting it forward bring the sync on.
    append(&log);
    disk.set_clock(3 * HOUR_MS as i64);
    log.write_turn();
    assert_eq!(log.status().syncs, before + 1);
}

#[test]
fn segments_age_by_the_time_that_passes() {
    let (folder, disk) = (tempfile::tempdir().unwrap(), Altered::<Timed>::default());
    let options = || Options {
        retention: Retention {
            discard: Some(Discard {
                older_than: Duration::from_secs(3600),
                beyond_bytes: u64::MAX,
            }),
            ..Retention::default()
        },
        ..Options::default()
    };
    let log = open(folder.path(), &disk, options());
    log.consumer("slow", StartAt::Oldest).unwrap();
    (0..20).for_each(|_| append(&log));
    let all = log.status().segments;
    assert!(all > 2);
    disk.set_clock(5 * HOUR_MS as i64);
    log.keep_turn();
    assert_eq!(log.status().segments, all, "nothing has become older");
    disk.set_clock(-9 * HOUR_MS as i64);
    disk.pass(HOUR_MS + 1);
    log.keep_turn();
    assert_eq!(
        log.status().segments,
        1,
        "an hour has passed, whatever the clock says"
    );

    // After a restart the wall clock counts, and from then on the time that passes.
    (0..20).for_each(|_| append(&log));
    log.close();
    drop(log);
    disk.pass(HOUR_MS / 2);
    let log = open(folder.path(), &disk, options());
    let kept = log.status().segments;
    disk.set_clock(HOUR_MS as i64);
    log.keep_turn();
    assert_eq!(log.status().segments, kept);
    disk.pass(HOUR_MS / 2 + 1);
    log.keep_turn();
    assert_eq!(log.status().segments, 1);
}

const HOUR_MS: u64 = 3_600_000;
