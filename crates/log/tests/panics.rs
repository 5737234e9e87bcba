//! The effect of a panic on one of the log's own threads: nobody waits for ever, nothing unsound is written,
//! and everything already there can still be read. The disk plants the panics.

#![allow(
    clippy::disallowed_methods,
    reason = "tests sleep, lock and look at clocks as they like"
)]
#![allow(clippy::unwrap_used, reason = "a test that meets something unexpected ends")]

mod altered;

use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use altered::{Alter, Altered};
use log::{AppendError, Disk as _, Event, Log, Next, Options, RealDisk, Record, StartAt};
use parking_lot::Mutex;

/// Panics when the thread of this name asks how much is free.
#[derive(Clone, Default)]
struct Trap {
    thread: Arc<Mutex<&'static str>>,
}

impl Trap {
    fn set(&self, thread: &'static str) {
        *self.thread.lock() = thread;
    }
}

impl Alter for Trap {
    fn free_bytes(&self, disk: &RealDisk, folder: &Path) -> io::Result<u64> {
        let trapped = *self.thread.lock();
        let here = std::thread::current();
        assert!(trapped.is_empty() || here.name() != Some(trapped), "planted");
        disk.free_bytes(folder)
    }
}

/// Opens a log; returns it with the events that it reports.
fn open(folder: &Path, disk: &Altered<Trap>) -> (Log, Arc<Mutex<Vec<String>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let tells = Arc::clone(&told);
    let options = Options {
        lanes: 1,
        free_bytes_min: 0,
        cursor_interval: Duration::from_millis(5),
        on_event: Arc::new(move |event: &Event| tells.lock().push(format!("{event:?}"))),
        ..Options::default()
    };
    (Log::open(folder, options, disk.clone()).unwrap(), told)
}

fn record(log: &Log) -> Record {
    let mut record = log.record(0, b"");
    record.group(0, 1, |out| out.resize(1000, b'x'));
    record
}

fn read(log: &Log) -> usize {
    let mut reader = log.consumer("g", StartAt::Oldest).unwrap().reader(0).unwrap();
    let mut out = Vec::new();
    let mut count = 0;
    while let Some(next) = reader.next(&mut out).unwrap() {
        assert!(matches!(next, Next::Group(_)));
        count += 1;
    }
    count
}

/// Waits for a value, for ten seconds at most.
fn within<T>(what: &str, mut is: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(is) = is() {
            return is;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_writer_that_panics_ends_the_log_and_tells_all_who_wait() {
    let (folder, disk) = (tempfile::tempdir().unwrap(), Altered::<Trap>::default());
    let (log, told) = open(folder.path(), &disk);
    log.append_blocking(record(&log)).unwrap();
    disk.set("log-writer");
    let mut append = pin!(log.append_async(record(&log)));
    let outcome = within("who waits for a record is told", || {
        match append.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    });
    assert!(outcome.is_err(), "{outcome:?}");
    within("the log says so", || {
        let told = told.lock();
        told.iter()
            .any(|event| event.contains("Poisoned") && event.contains("planted"))
            .then_some(())
    });
    let refused = log.append_blocking(record(&log));
    assert!(matches!(refused, Err(AppendError::Poisoned(_))), "{refused:?}");
    assert_eq!(read(&log), 1, "what was accepted is read");
    drop(log);
    disk.set("");
    let (log, _) = open(folder.path(), &disk);
    assert_eq!(read(&log), 1);
    log.append_blocking(record(&log)).unwrap();
    assert_eq!(read(&log), 2);
}

#[test]
fn a_keeper_that_panics_goes_on_with_its_next_round() {
    let (folder, disk) = (tempfile::tempdir().unwrap(), Altered::<Trap>::default());
    let (log, told) = open(folder.path(), &disk);
    disk.set("log-keeper");
    within("several rounds fail", || {
        let told = told.lock();
        (told.iter().filter(|event| event.contains("planted")).count() > 2).then_some(())
    });
    disk.set("");
    log.append_blocking(record(&log)).unwrap();
    assert_eq!(read(&log), 1);
    let rounds = told.lock().len();
    std::thread::sleep(Duration::from_millis(100));
    assert!(told.lock().len() <= rounds + 1, "it is well again");
}
