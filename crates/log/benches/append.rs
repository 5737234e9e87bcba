//! The cost of appending and reading a document: `cargo bench -p tidegate-log --bench append -- [FOLDER
//! [DOCUMENTS]]`.
//!
//! Each round is read and committed before the next, so segments come and go as they do behind a delivery
//! that keeps up. The report gives the CPU time of the whole process, all threads included, and the time by
//! the clock. Each case is the best of five rounds, since a shared machine only ever adds time. The folder
//! should be on the disk to be measured; by default it is the target folder.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "it is a report")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use log::{Codec, Fsync, Log, Next, Options, RealDisk, StartAt};
use rustix::time::{ClockId, clock_gettime};

/// Documents of a record, its lanes, and the records of a round.
const SHAPES: [(usize, u32, usize); 3] = [(5000, 16, 40), (5000, 64, 40), (100, 16, 1000)];
const ROUNDS: usize = 5;
/// Records on their way at a time, as if from so many clients.
const CLIENTS: usize = 8;

fn main() {
    let arguments: Vec<String> = std::env::args()
        .filter(|argument| !argument.starts_with("--"))
        .collect();
    let folder = arguments
        .get(1)
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    println!(
        "ns a document: CPU / clock (best of {ROUNDS}), {CLIENTS} records on their way, in {}",
        folder.display()
    );
    println!(
        "{:>9} {:>5} {:>6} {:>6} {:>17} {:>17} {:>8}",
        "documents", "lanes", "fsync", "codec", "append", "read", "stored"
    );
    let only: Option<usize> = arguments.get(2).map(|text| text.parse().unwrap());
    for (documents, lanes, records) in SHAPES
        .into_iter()
        .filter(|shape| only.is_none_or(|only| only == shape.0))
    {
        let body = body(documents);
        for (fsync, codec) in [
            (Fsync::Always, Codec::None),
            (Fsync::Os, Codec::None),
            (Fsync::Always, Codec::Lz4),
            (Fsync::Always, Codec::Zstd),
        ] {
            case(&folder, &body, lanes, records, fsync, codec);
        }
    }
}

fn case(folder: &Path, body: &[Vec<u8>], lanes: u32, records: usize, fsync: Fsync, codec: Codec) {
    let folder = tempfile::tempdir_in(folder).unwrap();
    let options = Options {
        lanes,
        fsync,
        codec,
        free_bytes_min: 0,
        segment_bytes: 64 << 20,
        ..Options::default()
    };
    let log = Log::open(folder.path(), options, RealDisk::default()).unwrap();
    let consumer = log.consumer("bench", StartAt::Oldest).unwrap();
    let mut readers: Vec<_> = (0..lanes).map(|lane| consumer.reader(lane).unwrap()).collect();
    let mut best = [(Duration::MAX, Duration::MAX); 2];
    let mut keep = |case: usize, spent: (Duration, Duration)| {
        best[case] = (best[case].0.min(spent.0), best[case].1.min(spent.1));
    };
    let (mut out, mut stored) = (Vec::new(), 0);
    for _ in 0..ROUNDS {
        let before = log.status().end;
        keep(0, timed(|| append(&log, body, lanes, records)));
        keep(
            1,
            timed(|| {
                for reader in &mut readers {
                    while let Some(Next::Group(_)) = reader.next(&mut out).unwrap() {
                        if out.len() > 4 << 20 {
                            out.clear();
                        }
                    }
                }
            }),
        );
        stored = log.status().end - before;
        // As in daily use: segments that were read are deleted, and the memory that cached them is reused.
        let marks: Vec<_> = readers.iter().map(|reader| reader.mark().done()).collect();
        consumer.commit(&marks).unwrap();
    }
    let documents = body.len() * records;
    let stored = stored as f64 / documents as f64;
    let each = |time: Duration| time.as_nanos() / documents as u128;
    let shown = best.map(|(cpu, clock)| format!("{} / {}", each(cpu), each(clock)));
    println!(
        "{:>9} {lanes:>5} {:>6} {:>6} {:>17} {:>17} {stored:>6.0} B",
        body.len(),
        if fsync == Fsync::Always { "always" } else { "os" },
        format!("{codec:?}").to_lowercase(),
        shown[0],
        shown[1],
    );
}

/// Appends records, with [`CLIENTS`] of them on their way at a time.
fn append(log: &Log, body: &[Vec<u8>], lanes: u32, records: usize) {
    let (sender, receiver) = std::sync::mpsc::channel();
    for number in 0..records {
        if number >= CLIENTS {
            receiver.recv().unwrap();
        }
        let mut record = log.record(0, b"");
        for lane in 0..lanes as usize {
            let of_lane = || body.iter().skip(lane).step_by(lanes as usize);
            record.group(lane as u32, of_lane().count() as u32, |out| {
                of_lane().for_each(|document| out.extend_from_slice(document));
            });
        }
        let sender = sender.clone();
        log.append(record, move |done| {
            done.unwrap();
            sender.send(()).unwrap();
        });
    }
    drop(sender);
    while receiver.recv().is_ok() {}
}

/// Returns the CPU time of all threads, and the time by the clock.
fn timed(work: impl FnOnce()) -> (Duration, Duration) {
    let cpu = || Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap();
    let (before, start) = (cpu(), Instant::now());
    work();
    (cpu() - before, start.elapsed())
}

/// Makes documents of about 600 bytes with their action lines, like those of a web server's log.
fn body(documents: usize) -> Vec<Vec<u8>> {
    let mut random = fastrand::Rng::with_seed(1);
    let mut document = |number: usize| {
        let mut text = format!("{{\"index\":{{\"_index\":\"nginx\",\"_id\":\"{number:016x}\"}}}}\n{{");
        while text.len() < 660 {
            let (path, address, bytes) = (random.u32(..), random.u32(..), random.u16(..));
            text.push_str(&format!(
                "\"request\":\"GET /shop/{path:x}/item\",\"client\":\"{address}\",\"bytes\":{bytes},"
            ));
        }
        text.push_str("\"status\":200}\n");
        text.into_bytes()
    };
    (0..documents).map(&mut document).collect()
}
