//! The log's promises to its users, on a real disk.

#![allow(
    clippy::disallowed_methods,
    reason = "tests sleep, lock and look at clocks as they like"
)]
#![allow(clippy::unwrap_used, reason = "a test that meets something unexpected ends")]

use std::future::Future;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use log::{
    AppendError, Codec, Consumer, Discard, Drive, Event, Fsync, Full, LaneReader, Log, Next, OpenError,
    Options, RealDisk, Record, Retention, StartAt, WhyLost,
};
use parking_lot::Mutex;

fn by_hand() -> Options {
    Options {
        lanes: 2,
        segment_bytes: 8 << 10,
        free_bytes_min: 0,
        drive: Drive::ByHand,
        ..Options::default()
    }
}

fn open(folder: &Path, options: Options) -> Log {
    Log::open(folder, options, RealDisk::default()).unwrap()
}

/// Makes a record of two documents in lane 0, a KiB long.
fn record(log: &Log) -> Record {
    let mut record = log.record(0, b"");
    record.group(0, 2, |out| out.resize(1000, b'x'));
    record
}

/// Appends a hundred records.
fn fill(log: &Log) {
    for _ in 0..100 {
        log.append_blocking(record(log)).unwrap();
    }
}

/// Reads to the end; returns the documents delivered and the documents reported lost.
fn drain(reader: &mut LaneReader) -> (u64, u64) {
    let (mut delivered, mut lost_documents, mut out) = (0, 0, Vec::new());
    while let Some(next) = reader.next(&mut out).unwrap() {
        match next {
            Next::Group(group) => delivered += u64::from(group.documents),
            Next::Lost { lost, .. } => lost_documents += lost.documents.unwrap(),
        }
    }
    (delivered, lost_documents)
}

fn commit_all(consumer: &Consumer) {
    let mut reader = consumer.reader(0).unwrap();
    drain(&mut reader);
    consumer.commit(&[reader.mark().done()]).unwrap();
}

/// Polls a future on this thread until it is ready.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return done;
        }
        thread::park();
    }
}

#[test]
fn one_sync_serves_all_that_gathered() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(
        folder.path(),
        Options {
            segment_bytes: 1 << 20,
            ..by_hand()
        },
    );
    log.append_blocking(record(&log)).unwrap();
    let (before, done) = (log.status().syncs, Arc::new(Mutex::new(0)));
    for _ in 0..20 {
        let done = Arc::clone(&done);
        log.append(record(&log), move |result| {
            *done.lock() += result.unwrap().documents
        });
    }
    assert_eq!(log.write_turn(), 20);
    assert_eq!((log.status().syncs - before, *done.lock()), (1, 40));
}

#[test]
fn threads_append_at_once_and_everything_is_read_once_in_each_threads_order() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(
        folder.path(),
        Options {
            drive: Drive::Threads,
            ..by_hand()
        },
    );
    let consumer = log.consumer("primary", StartAt::Oldest).unwrap();
    thread::scope(|scope| {
        for thread in 0..4u8 {
            let log = log.clone();
            scope.spawn(move || {
                for number in 0..50u8 {
                    let mut record = log.record(thread, &[number]);
                    record.group(1, 1, |out| out.push(number));
                    block_on(log.append_async(record)).unwrap();
                }
            });
        }
    });
    let (mut reader, mut out, mut next) = (consumer.reader(1).unwrap(), Vec::new(), [0u8; 4]);
    while let Some(Next::Group(group)) = reader.next(&mut out).unwrap() {
        let expected = &mut next[usize::from(group.kind)];
        assert_eq!((group.params, out.pop()), (vec![*expected], Some(*expected)));
        *expected += 1;
    }
    assert_eq!(next, [50; 4]);
}

#[test]
fn lent_memory_is_written_from_and_is_back_before_the_record_is_acknowledged_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path(), Options::default());
    let (back, returned) = mpsc::channel();
    let lent = |documents: u32| {
        let mut record = log.record(0, b"");
        assert!(record.is_plain());
        let (memory, back) = (Vec::with_capacity(4000), back.clone());
        let address = memory.as_ptr() as usize;
        record.lend(memory, move |memory| {
            let moved = memory.as_ptr() as usize != address;
            back.send((memory, moved)).unwrap();
        });
        for number in 0..documents {
            record.group(number % 2, 1, |out| {
                out.extend_from_slice(&[b'a' + number as u8; 1000])
            });
        }
        record
    };
    log.append_blocking(lent(3)).unwrap();
    let (memory, moved) = returned.try_recv().unwrap();
    assert!(!moved && memory.len() == 3000, "the groups were made in it");
    let reader = log.consumer("c", StartAt::Oldest).unwrap().reader(0);
    let (mut reader, mut out) = (reader.unwrap(), Vec::new());
    assert!(matches!(reader.next(&mut out), Ok(Some(Next::Group(group))) if group.documents == 1));
    assert!(matches!(reader.next(&mut out), Ok(Some(Next::Group(group))) if group.documents == 1));
    assert_eq!(out, [[b'a'; 1000], [b'c'; 1000]].concat());

    assert!(matches!(log.append_blocking(lent(0)), Err(AppendError::Empty)));
    assert!(returned.try_recv().is_ok(), "a refused record gives it back");
    drop(lent(1));
    assert!(returned.try_recv().is_ok(), "and so does one that is given up");
}

#[test]
fn whoever_waits_for_a_lane_is_woken_by_an_append_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(
        folder.path(),
        Options {
            drive: Drive::Threads,
            ..by_hand()
        },
    );
    let mut reader = log
        .consumer("primary", StartAt::Oldest)
        .unwrap()
        .reader(0)
        .unwrap();
    let ready = reader.ready();
    let waiting = thread::spawn(move || block_on(ready));
    log.append_blocking(record(&log)).unwrap();
    waiting.join().unwrap();
    assert_eq!(drain(&mut reader), (2, 0));
}

#[test]
fn a_log_is_open_once_and_closing_it_writes_what_was_handed_over_and_refuses_more() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path(), by_hand());
    let second = Log::open(folder.path(), by_hand(), RealDisk::default());
    assert!(matches!(second, Err(OpenError::Locked(_))));
    let (sender, receiver) = mpsc::channel();
    log.append(record(&log), move |result| sender.send(result).unwrap());
    log.close();
    assert!(receiver.recv().unwrap().is_ok());
    assert_eq!(log.append_blocking(record(&log)), Err(AppendError::Closed));
    let again = open(folder.path(), by_hand());
    assert_eq!(again.status().documents, 2);
}

#[test]
fn the_last_handle_may_be_dropped_by_a_completion() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(
        folder.path(),
        Options {
            drive: Drive::Threads,
            ..by_hand()
        },
    );
    let (sender, receiver) = mpsc::channel();
    let (record, held) = (record(&log), Arc::new(Mutex::new(Some(log))));
    let log = held.lock().clone().unwrap();
    log.append(record, move |result| {
        held.lock().take();
        sender.send(result).unwrap();
    });
    drop(log);
    assert!(receiver.recv_timeout(Duration::from_secs(20)).unwrap().is_ok());
    let opened = (0..400).any(|_| {
        thread::sleep(Duration::from_millis(50));
        Log::open(folder.path(), by_hand(), RealDisk::default()).is_ok()
    });
    assert!(opened, "it never closes");
}

#[test]
fn a_full_log_refuses_and_takes_more_once_it_was_read() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(
        folder.path(),
        Options {
            quota_bytes: 20 << 10,
            ..by_hand()
        },
    );
    let consumer = log.consumer("primary", StartAt::Oldest).unwrap();
    for _ in 0..3 {
        let refused = (0..100).find_map(|_| log.append_blocking(record(&log)).err());
        assert!(
            matches!(refused, Some(AppendError::Full(Full::Quota { .. }))),
            "{refused:?}"
        );
        assert!(log.status().bytes <= 20 << 10);
        assert!(log.admit(1000).is_err());
        commit_all(&consumer);
        log.keep_turn();
        assert!(log.admit(1000).is_ok());
    }
}

#[test]
fn consumers_start_where_they_are_told_and_can_be_set_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path(), by_hand());
    let receipts: Vec<_> = (0..30)
        .map(|_| log.append_blocking(record(&log)).unwrap())
        .collect();
    let pending = |name: &str, start| {
        let consumer = log.consumer(name, start).unwrap();
        let read = drain(&mut consumer.reader(0).unwrap());
        assert_eq!(read, (consumer.status().pending, 0), "{name}");
        read.0
    };
    assert_eq!(pending("oldest", StartAt::Oldest), 60);
    assert_eq!(pending("newest", StartAt::Newest), 0);
    assert_eq!(pending("from", StartAt::Position(receipts[20].position)), 20);
    assert_eq!(
        pending("between", StartAt::Position(receipts[20].position + 1)),
        18
    );
    let consumer = log.consumer("oldest", StartAt::Newest).unwrap();
    commit_all(&consumer);
    assert_eq!(consumer.status().indexed, 60);
    let moved = consumer.seek(StartAt::Position(receipts[10].position)).unwrap();
    assert_eq!((moved.skipped, moved.rewound), (0, 40));
    assert_eq!(drain(&mut consumer.reader(0).unwrap()), (40, 0));
    let status = consumer.status();
    assert_eq!((status.indexed, status.pending, status.rewound), (60, 40, 40));
    let moved = consumer.seek(StartAt::Newest).unwrap();
    assert_eq!((moved.skipped, moved.rewound), (40, 0));
    let status = consumer.status();
    assert_eq!(
        (status.indexed, status.skipped, status.pending),
        (60, 40, 0),
        "60 documents, 40 of them gone back over: 100 to account for"
    );
    let newest = log.consumer("newest", StartAt::Newest).unwrap().status();
    assert_eq!(
        (newest.indexed, newest.skipped),
        (0, 60),
        "what was before is not its doing"
    );
    log.remove_consumer("newest").unwrap();
    assert_eq!(log.consumers(), ["between", "from", "oldest"]);
    assert!(log.consumer("../x", StartAt::Oldest).is_err());
}

#[test]
fn what_is_given_up_unread_is_told_to_everybody_and_the_accounts_still_add_up() {
    let folder = tempfile::tempdir().unwrap();
    let events = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&events);
    let discard = Discard {
        older_than: Duration::MAX,
        beyond_bytes: 20 << 10,
    };
    let log = open(
        folder.path(),
        Options {
            retention: Retention {
                discard: Some(discard),
                ..Retention::default()
            },
            on_event: Arc::new(move |event| told.lock().push(event.clone())),
            ..by_hand()
        },
    );
    let consumer = log.consumer("slow", StartAt::Oldest).unwrap();
    fill(&log);
    log.keep_turn();
    assert!(log.status().bytes <= 20 << 10);
    let discarded = |event: &Event| matches!(event, Event::Lost(lost) if lost.why == WhyLost::Discarded);
    assert!(events.lock().iter().any(discarded));
    let mut reader = consumer.reader(0).unwrap();
    let (delivered, lost) = drain(&mut reader);
    assert!(
        lost > 0 && delivered > 0 && delivered + lost == 200,
        "{delivered} {lost}"
    );
    consumer.commit(&[reader.mark().done_with(1)]).unwrap();
    let (status, consumers) = log.accounts();
    let slow = &consumers[0];
    assert_eq!(
        (slow.indexed, slow.dead, slow.lost, slow.pending),
        (delivered - 1, 1, lost, 0)
    );
    assert_eq!(status.documents, 200);
}

#[test]
fn consumed_segments_are_kept_as_long_as_they_are_to_be() {
    let folder = tempfile::tempdir().unwrap();
    let retention = Retention {
        keep_bytes: 30 << 10,
        ..Retention::default()
    };
    let log = open(
        folder.path(),
        Options {
            retention,
            ..by_hand()
        },
    );
    let consumer = log.consumer("primary", StartAt::Oldest).unwrap();
    fill(&log);
    log.keep_turn();
    assert_eq!(log.status().start, 0, "nobody has read it");
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_millis() as u64;
    let oldest = consumer.oldest_pending_ms().unwrap().unwrap();
    assert!((now - 60_000..=now).contains(&oldest), "{oldest} at {now}");
    commit_all(&consumer);
    assert_eq!(consumer.oldest_pending_ms().unwrap(), None);
    log.keep_turn();
    let kept = log.status().bytes;
    assert!(kept <= 30 << 10 && kept > 20 << 10, "{kept}");
    let late = log.consumer("late", StartAt::Oldest).unwrap();
    assert!(drain(&mut late.reader(0).unwrap()).0 > 30);
}

#[test]
fn a_record_out_of_bounds_is_refused_and_one_longer_than_a_segment_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path(), by_hand());
    assert_eq!(log.append_blocking(log.record(0, b"")), Err(AppendError::Empty));
    let mut long = log.record(0, &vec![0; log::PARAMS_MAX + 1]);
    long.group(0, 1, |out| out.push(0));
    assert!(matches!(
        log.append_blocking(long),
        Err(AppendError::TooLarge {
            what: "parameters",
            ..
        })
    ));
    for _ in 0..2 {
        let mut large = log.record(0, b"");
        large.group(0, 1, |out| out.resize(100_000, 1));
        log.append_blocking(large).unwrap();
        log.append_blocking(record(&log)).unwrap();
    }
    let consumer = log.consumer("primary", StartAt::Oldest).unwrap();
    assert_eq!(drain(&mut consumer.reader(0).unwrap()), (6, 0));
}

#[test]
fn compression_changes_while_the_log_is_open_and_both_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path(), by_hand());
    let consumer = log.consumer("c", StartAt::Oldest).unwrap();
    let grown = || {
        let before = log.status().bytes;
        log.append_blocking(record(&log)).unwrap();
        log.status().bytes - before
    };
    let plain = grown();
    let packing = Options {
        codec: log::Codec::Zstd,
        ..by_hand()
    };
    log.adjust(&packing).unwrap();
    let packed = grown();
    assert!(2 * packed < plain, "{packed} of {plain}");
    log.adjust(&by_hand()).unwrap();
    assert!(grown() > 2 * packed);
    assert_eq!(drain(&mut consumer.reader(0).unwrap()), (6, 0));
}

#[test]
fn quota_and_syncing_change_while_the_log_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let written = Options {
        fsync: log::Fsync::Os,
        quota_bytes: 16 << 10,
        ..by_hand()
    };
    let log = open(folder.path(), written.clone());
    let consumer = log.consumer("c", StartAt::Oldest).unwrap();
    while log.append_blocking(record(&log)).is_ok() {}
    let full = log.admit(1000);
    assert!(
        matches!(full, Err(AppendError::Full(Full::Quota { .. }))),
        "{full:?}"
    );
    let (before, synced) = (log.status().documents, log.status().syncs);
    log.adjust(&Options {
        fsync: log::Fsync::Always,
        quota_bytes: 64 << 10,
        ..written.clone()
    })
    .unwrap();
    assert!(
        log.status().syncs > synced,
        "what was written before is synced now"
    );
    let synced = log.status().syncs;
    for _ in 0..10 {
        log.append_blocking(record(&log)).unwrap();
    }
    assert!(log.status().syncs >= synced + 10, "each by itself again");
    // A quota below what is used: nothing is dropped, and nothing more is taken.
    log.adjust(&written).unwrap();
    assert!(log.append_blocking(record(&log)).is_err());
    assert_eq!(drain(&mut consumer.reader(0).unwrap()), (before + 20, 0));
    let wrong = Options {
        quota_bytes: 1,
        ..written
    };
    assert!(matches!(log.adjust(&wrong), Err(OpenError::Options(_))));
}

#[test]
fn a_small_group_far_into_a_packed_record_is_read_whole() {
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
        let folder = tempfile::tempdir().unwrap();
        let log = open(folder.path(), Options { codec, ..by_hand() });
        let mut record = log.record(0, b"");
        // Hard to compress, so that what follows lies far behind the head.
        let mut state = 1u32;
        record.group(0, 1, |out| {
            out.extend(
                std::iter::repeat_with(|| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as u8
                })
                .take(20_000),
            );
        });
        record.group(1, 1, |out| out.extend_from_slice(b"small"));
        log.append_blocking(record).unwrap();

        let mut out = Vec::new();
        let mut reader = log
            .consumer("primary", StartAt::Oldest)
            .unwrap()
            .reader(1)
            .unwrap();
        let next = reader.next(&mut out).unwrap();
        assert!(matches!(next, Some(Next::Group(_))), "{codec:?}: {next:?}");
        assert_eq!(out, b"small");
    }
}

/// Options of a log that reuses used-up files.
fn sparing() -> Options {
    Options {
        spare_bytes: 40 << 10,
        ..by_hand()
    }
}

/// Returns the files of a folder whose names end with `ending`, with their inode numbers.
fn files(folder: &Path, ending: &str) -> Vec<(String, u64)> {
    let named = std::fs::read_dir(folder).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        (name, entry.metadata().unwrap().ino())
    });
    named.filter(|(name, _)| name.ends_with(ending)).collect()
}

#[test]
fn files_that_are_used_up_are_written_again_and_a_kill_in_the_middle_of_one_shows_nothing_of_its_past() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path(), sparing());
    let consumer = log.consumer("primary", StartAt::Oldest).unwrap();
    fill(&log);
    commit_all(&consumer);
    log.keep_turn();
    let spares = files(folder.path(), ".spare");
    assert!(
        !spares.is_empty() && log.status().spare_bytes <= 40 << 10,
        "{spares:?}"
    );

    // Two segments and a bit: the last one is in the middle of a file that was full.
    for _ in 0..20 {
        log.append_blocking(record(&log)).unwrap();
    }
    let again = files(folder.path(), ".segment");
    let reused = again
        .iter()
        .filter(|(_, file)| spares.iter().any(|(_, spare)| spare == file));
    assert!(reused.count() >= 2, "{again:?} of {spares:?}");
    let report = log::check(folder.path(), RealDisk::default()).unwrap();
    assert!(report.is_sound() && report.torn.is_none(), "{report:?}");
    assert_eq!(
        report.segments.last().unwrap().bytes,
        log.status().end - report.segments.last().unwrap().first
    );
    assert_eq!(report.spares.len(), files(folder.path(), ".spare").len());

    // The folder as a kill leaves it.
    let killed = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), killed.path().join(entry.file_name())).unwrap();
    }
    let events = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&events);
    let after = open(
        killed.path(),
        Options {
            on_event: Arc::new(move |event| told.lock().push(event.clone())),
            ..sparing()
        },
    );
    assert_eq!(after.status().documents, log.status().documents);
    assert_eq!(after.status().end, log.status().end);
    after.append_blocking(record(&after)).unwrap();
    let consumer = after.consumer("primary", StartAt::Oldest).unwrap();
    assert_eq!(drain(&mut consumer.reader(0).unwrap()), (42, 0));
    assert!(events.lock().is_empty(), "{events:?}");
}

#[test]
fn a_file_that_somebody_reads_is_not_written_again_under_his_eyes() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path(), sparing());
    let consumer = log.consumer("primary", StartAt::Oldest).unwrap();
    fill(&log);
    let (mut slow, mut out) = (consumer.reader(0).unwrap(), Vec::new());
    assert!(matches!(slow.next(&mut out).unwrap(), Some(Next::Group(_))));
    let first = files(folder.path(), "00000000000000000000.segment")[0].1;
    commit_all(&consumer);
    log.keep_turn();
    fill(&log);
    let all = [files(folder.path(), ".spare"), files(folder.path(), ".segment")].concat();
    assert!(all.iter().all(|(_, file)| *file != first), "{all:?}");
    // The reader still has the rest of its segment, byte for byte; the records after it are gone, since the
    // lane was past them.
    let mut groups = 1;
    while let Some(Next::Group(group)) = slow.next(&mut out).unwrap() {
        groups += 1;
        assert!(group.position < 8 << 10 || group.position >= log.status().start);
    }
    assert_eq!(groups, 7, "of a segment");
    assert!(out.iter().all(|byte| *byte == b'x'));
}

#[test]
fn spare_files_take_no_room_from_the_quota() {
    let folder = tempfile::tempdir().unwrap();
    let quota = 64 << 10;
    let log = open(
        folder.path(),
        Options {
            quota_bytes: quota,
            spare_bytes: 1 << 30,
            ..by_hand()
        },
    );
    let consumer = log.consumer("primary", StartAt::Oldest).unwrap();
    for round in 0..6 {
        let mut taken = 0;
        while log.append_blocking(record(&log)).is_ok() {
            taken += 1;
            let status = log.status();
            assert!(
                status.bytes + status.spare_bytes <= quota + (8 << 10),
                "{status:?}"
            );
        }
        assert!(taken > 40, "in round {round} only {taken} found room");
        commit_all(&consumer);
        log.keep_turn();
        log.keep_turn();
    }
}

/// Leaves a log that is not synced as a killed process leaves it: in another folder, since this process lives
/// on.
fn killed(fsync: Fsync) -> tempfile::TempDir {
    let (folder, left) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let options = Options {
        fsync,
        ..by_hand_in_one_segment()
    };
    let log = open(
        folder.path(),
        Options {
            drive: Drive::Threads,
            ..options
        },
    );
    for _ in 0..3 {
        log.append_blocking(record(&log)).unwrap();
    }
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let file = file.unwrap();
        if file.file_type().unwrap().is_file() {
            std::fs::copy(file.path(), left.path().join(file.file_name())).unwrap();
        }
    }
    left
}

fn by_hand_in_one_segment() -> Options {
    Options {
        segment_bytes: 1 << 20,
        ..by_hand()
    }
}

/// Opens a log; returns it with the events that opening reports.
fn told(folder: &Path) -> (Log, Vec<Event>) {
    let events = Arc::new(Mutex::new(Vec::new()));
    let of_log = Arc::clone(&events);
    let options = Options {
        on_event: Arc::new(move |event| of_log.lock().push(event.clone())),
        ..by_hand_in_one_segment()
    };
    let log = open(folder, options);
    let events = events.lock().clone();
    (log, events)
}

#[test]
fn damage_of_what_was_acknowledged_and_not_synced_is_told_after_a_kill_and_not_taken_for_a_torn_end() {
    for (fsync, of_end) in [
        (Fsync::Os, 500),
        (Fsync::Os, 1_500),
        (Fsync::Interval(Duration::from_secs(3600)), 500),
    ] {
        let left = killed(fsync);
        let segment = std::fs::read_dir(left.path())
            .unwrap()
            .map(|file| file.unwrap().path())
            .find(|path| path.extension().is_some_and(|extension| extension == "segment"))
            .unwrap();
        let whole = std::fs::read(&segment).unwrap();
        let mut bytes = whole.clone();
        let at = bytes.len() - of_end;
        bytes[at] ^= 1;
        std::fs::write(&segment, &bytes).unwrap();
        let (log, events) = told(left.path());
        assert!(
            !events.iter().any(|event| matches!(event, Event::TornTail { .. })),
            "{events:?}"
        );
        assert_eq!(log.status().documents, 6, "{fsync:?} {of_end}: {events:?}");
        let mut reader = log.consumer("g", StartAt::Oldest).unwrap().reader(0).unwrap();
        assert_eq!(drain(&mut reader), (4, 2), "{fsync:?} {of_end}");
        drop(log);
        // The end of the log is gone.
        let left = killed(fsync);
        std::fs::write(
            left.path().join(segment.file_name().unwrap()),
            &whole[..whole.len() - of_end],
        )
        .unwrap();
        let (_log, events) = told(left.path());
        let lost = events
            .iter()
            .any(|event| matches!(event, Event::Lost(lost) if lost.documents.is_some()));
        assert!(lost, "{fsync:?} {of_end}: {events:?}");
    }
}

#[test]
fn what_a_kill_cut_short_beyond_what_was_acknowledged_is_a_torn_end() {
    let left = killed(Fsync::Os);
    let segment = std::fs::read_dir(left.path())
        .unwrap()
        .map(|file| file.unwrap().path())
        .find(|path| path.extension().is_some_and(|extension| extension == "segment"))
        .unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes.extend_from_slice(&[7; 300]);
    std::fs::write(&segment, &bytes).unwrap();
    let (log, events) = told(left.path());
    assert!(
        events.iter().all(|event| matches!(event, Event::TornTail { .. })),
        "{events:?}"
    );
    assert_eq!((events.len(), log.status().documents), (1, 6));
}
