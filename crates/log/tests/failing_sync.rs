//! A log whose sync has failed takes nothing more, and its threads rest.

#![allow(clippy::unwrap_used, reason = "a test that meets something unexpected ends")]

mod altered;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use altered::{Alter, Altered};
use log::{Fsync, Log, Options, RealDisk};

/// A disk whose syncs fail once it is told so, and that counts looks at its clock.
#[derive(Clone, Default)]
struct Failing {
    fails: Arc<AtomicBool>,
    looks: Arc<AtomicU64>,
}

impl Alter for Failing {
    fn elapsed_ms(&self, disk: &RealDisk) -> u64 {
        self.looks.fetch_add(1, Ordering::Relaxed);
        log::Disk::elapsed_ms(disk)
    }

    fn syncs(&self) -> io::Result<()> {
        match self.fails.load(Ordering::Relaxed) {
            true => Err(io::Error::other("the disk is gone")),
            false => Ok(()),
        }
    }
}

#[test]
fn the_writer_rests_after_a_sync_that_was_due_has_failed() {
    let (folder, disk) = (tempfile::tempdir().unwrap(), Altered::<Failing>::default());
    let options = Options {
        lanes: 1,
        free_bytes_min: 0,
        fsync: Fsync::Interval(Duration::from_millis(20)),
        ..Options::default()
    };
    let log = Log::open(folder.path(), options, disk.clone()).unwrap();
    let append = || {
        let mut record = log.record(0, b"");
        record.group(0, 1, |out| out.push(b'x'));
        log.append_blocking(record)
    };
    append().unwrap();
    disk.fails.store(true, Ordering::Relaxed);
    // Perhaps the sync of the first one is due just now, and fails before this one is written.
    drop(append());
    let began = Instant::now();
    while log.status().poisoned.is_none() {
        assert!(began.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(5));
    }
    let before = disk.looks.load(Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(300));
    let looks = disk.looks.load(Ordering::Relaxed) - before;
    assert!(
        looks < 100,
        "the writer looked {looks} times at a clock that it need not look at"
    );
}
