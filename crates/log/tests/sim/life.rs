//! One seed: a log that is opened, used, and ended badly, several times.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use log::{Codec, Drive, Event, Fsync, LaneReader, Log, Options, StartAt};
use parking_lot::Mutex;

use crate::disk::SimDisk;
use crate::model::{Fate, Model};
use crate::tracked::Tracked;

/// The faults of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
    /// The process or the power ends at any point.
    Crash,
    /// Syncs fail too.
    FailingSync,
    /// The disk is small.
    FullDisk,
    /// Clients don't wait for syncs.
    LazySync,
    /// Reads fail now and then.
    FailingRead,
    /// Bits flip and files vanish while the process is down.
    Damage,
}

pub(crate) struct Life {
    rng: Rng,
    disk: SimDisk,
    harm: Harm,
    options: Options,
    model: Model,
    consumers: Vec<Tracked>,
    events: Arc<Mutex<Vec<Event>>>,
}

// === impl Life ===

impl Life {
    pub(crate) fn new(seed: u64, harm: Harm) -> Self {
        let mut rng = Rng::with_seed(seed);
        let small = harm == Harm::FullDisk;
        let capacity = if small {
            rng.u64(60_000..200_000)
        } else {
            u64::MAX / 4
        };
        let events = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&events);
        let lazy = [Fsync::Os, Fsync::Interval(Duration::from_millis(500))];
        let options = Options {
            lanes: rng.u32(1..6),
            fsync: if harm == Harm::LazySync {
                *rng.choice(&lazy).unwrap()
            } else {
                Fsync::Always
            },
            codec: *rng
                .choice(&[Codec::None, Codec::None, Codec::Lz4, Codec::Zstd])
                .unwrap(),
            segment_bytes: rng.u64(4096..20_000),
            quota_bytes: if small && rng.bool() {
                rng.u64(40_000..80_000)
            } else {
                0
            },
            free_bytes_min: if small && rng.bool() { 10_000 } else { 0 },
            spare_bytes: *rng.choice(&[0, 40_000, 100_000]).unwrap(),
            drive: Drive::ByHand,
            on_event: Arc::new(move |event| {
                if std::env::var_os("SEED").is_some() {
                    println!("{event:?}");
                }
                told.lock().push(event.clone());
            }),
            ..Options::default()
        };
        let lanes = options.lanes;
        let consumers = ["primary", "backup"]
            .map(|name| Tracked::new(name, lanes))
            .into_iter();
        Self {
            consumers: consumers.take(rng.usize(1..3)).collect(),
            disk: SimDisk::new(rng.u64(..), capacity),
            harm,
            options,
            model: Model::default(),
            events,
            rng,
        }
    }

    /// Runs the life; returns how many segments were written into files of used-up ones.
    pub(crate) fn run(mut self) -> u32 {
        let mut cut = false;
        for _ in 0..self.rng.usize(2..6) {
            if let Some(log) = self.open(true) {
                self.restarted(&log, cut);
                cut = false;
                self.use_it(&log);
                self.end(log);
            }
            cut |= self.crash();
        }
        self.calm();
        let log = self.open(false).expect("a disk that behaves");
        self.restarted(&log, cut);
        self.read_all(&log);
        log.close();
        self.disk.world().reused
    }

    /// Opens the log, perhaps after several tries; none if the process died meanwhile.
    fn open(&mut self, perilous: bool) -> Option<Log> {
        if perilous && self.harm != Harm::Damage && self.rng.u8(0..4) == 0 {
            self.disk.world().fuse = Some(self.rng.u64(0..40));
        }
        for _ in 0..50 {
            match Log::open("log", self.options.clone(), self.disk.clone()) {
                Ok(log) => return Some(log),
                Err(_) if self.disk.world().is_dead() => return None,
                Err(_) if matches!(self.harm, Harm::FailingSync | Harm::FailingRead) => {}
                Err(error) => panic!("{error}"),
            }
        }
        panic!("it never opens");
    }

    /// Compares the log with the model.
    fn restarted(&mut self, log: &Log, cut: bool) {
        if self.harm == Harm::Damage {
            assert_eq!(
                log.status().documents,
                self.model.documents(),
                "{:?}",
                self.events.lock()
            );
        } else {
            let failures = std::mem::take(&mut self.disk.world().read_failures);
            let fuse = self.disk.world().fuse.take();
            self.model.restarted(log, cut && self.harm == Harm::LazySync);
            (self.disk.world().read_failures, self.disk.world().fuse) = (failures, fuse);
            assert_eq!(log.status().documents, self.model.documents());
            assert_eq!(log.status().lost, 0);
            let events = self.events.lock();
            let lost = events.iter().find(|event| matches!(event, Event::Lost(_)));
            assert!(lost.is_none(), "{lost:?}");
        }
    }

    fn use_it(&mut self, log: &Log) {
        match self.harm {
            Harm::FailingSync => self.disk.world().sync_failures = 20,
            Harm::FailingRead => self.disk.world().read_failures = 50,
            Harm::FullDisk | Harm::Crash | Harm::LazySync | Harm::Damage => {}
        }
        if self.harm != Harm::Damage && self.rng.bool() {
            self.disk.world().fuse.get_or_insert(self.rng.u64(0..300));
        }
        let mut readers: Vec<(usize, LaneReader)> = Vec::new();
        for number in 0..self.consumers.len() {
            let Ok(consumer) = log.consumer(self.consumers[number].name, StartAt::Oldest) else {
                return;
            };
            self.consumers[number].restarted(&consumer, &self.model, self.harm);
            for lane in 0..log.lanes() {
                readers.push((number, consumer.reader(lane).unwrap()));
            }
        }
        for _ in 0..self.rng.usize(5..60) {
            self.step(log, &mut readers);
            if self.disk.world().is_dead() {
                return;
            }
            self.check_accounts(log);
        }
    }

    fn step(&mut self, log: &Log, readers: &mut [(usize, LaneReader)]) {
        match self.rng.u8(0..16) {
            0..=5 => {
                for _ in 0..self.rng.usize(1..5) {
                    self.submit(log);
                }
                self.write(log);
            }
            // The record waits for a later turn; only settled records are damaged.
            6 if self.harm != Harm::Damage => self.submit(log),
            7..=10 => {
                let Some((number, reader)) = self.rng.choice(readers) else {
                    return;
                };
                let tracked = &mut self.consumers[*number];
                let consumer = log.consumer(tracked.name, StartAt::Oldest).unwrap();
                for _ in 0..self.rng.usize(1..8) {
                    if !tracked.read(reader, &self.model, self.harm) {
                        break;
                    }
                }
                if self.rng.bool() {
                    let dead = self.rng.u64(0..3);
                    tracked.commit(&consumer, reader, dead);
                }
            }
            11 => {
                let tracked = self.rng.choice(&mut self.consumers).unwrap();
                let consumer = log.consumer(tracked.name, StartAt::Oldest).unwrap();
                tracked.flush(&consumer);
            }
            12 => {
                self.disk.world().now_ms += self.rng.u64(0..2000);
                log.keep_turn();
            }
            13..=14 => {
                for (number, reader) in readers.iter_mut() {
                    let tracked = &mut self.consumers[*number];
                    let consumer = log.consumer(tracked.name, StartAt::Oldest).unwrap();
                    while tracked.read(reader, &self.model, self.harm) {}
                    tracked.commit(&consumer, reader, 0);
                }
                log.keep_turn();
            }
            _ => {
                let Some((number, reader)) = self.rng.choice(readers) else {
                    return;
                };
                let consumer = log
                    .consumer(self.consumers[*number].name, StartAt::Oldest)
                    .unwrap();
                reader.rewind(consumer.committed(reader.lane()).unwrap());
            }
        }
    }

    fn submit(&mut self, log: &Log) {
        let rng = &mut self.rng;
        let mut groups = Vec::new();
        for _ in 0..rng.usize(1..5) {
            let mut bytes = format!("{}:", self.model.submitted.len()).into_bytes();
            let most = if rng.u8(0..20) == 0 { 9000 } else { 400 };
            let length = rng.usize(0..most);
            // Bytes that look like a record, now and then.
            if rng.u8(0..5) == 0 {
                bytes.resize(rng.usize(8..64) & !7, b' ');
                bytes.extend_from_slice(b"TGR1");
            }
            let from = rng.usize(0..TEXT.len() - length);
            bytes.extend_from_slice(&TEXT[from..from + length]);
            groups.push((rng.u32(0..log.lanes()), rng.u32(1..9), bytes));
        }
        let params = vec![b'p'; rng.usize(0..40)];
        let kind = rng.u8(0..3);
        self.model.submit(log, kind, params, groups);
    }

    fn write(&mut self, log: &Log) {
        log.write_turn();
        self.model.hear();
        if log.status().poisoned.is_some() {
            self.submit(log);
            log.write_turn();
            let (_, answer) = self.model.answers.lock().pop().unwrap();
            assert!(matches!(answer, Err(log::AppendError::Poisoned(_))), "{answer:?}");
        }
    }

    /// Checks that accepted + rewound = indexed + dead + pending + lost + skipped, at every moment.
    fn check_accounts(&self, log: &Log) {
        let (status, consumers) = log.accounts();
        for one in consumers {
            let sum = one.indexed + one.dead + one.pending + one.lost + one.skipped + status.lost;
            assert_eq!(status.documents + one.rewound, sum, "{one:?} {status:?}");
        }
        let certain = self.model.submitted.iter().all(|one| one.fate != Fate::Unknown);
        if certain {
            assert_eq!(status.documents, self.model.documents());
        }
    }

    /// Ends the process, cleanly or not.
    fn end(&mut self, log: Log) {
        if self.rng.u8(0..3) == 0 {
            log.close();
        }
        self.disk.die();
        drop(log);
        self.model.hear();
        self.model.settle();
    }

    /// Ends the process or the system; returns whether the power was cut.
    fn crash(&mut self) -> bool {
        self.calm();
        if self.harm == Harm::Damage {
            self.disk.kill();
            // Damage only one of them: if the last record and the mark that says it was durable are both
            // damaged, the record is taken for a torn end.
            let flipped = if self.rng.u8(0..6) == 0 {
                "MARK"
            } else {
                ".segment"
            };
            for _ in 0..self.rng.usize(0..4) {
                match self.rng.u8(0..8) {
                    0 => self.disk.steal(".segment"),
                    _ => self.disk.flip(flipped),
                };
            }
            return false;
        }
        let cut = self.rng.bool();
        if cut {
            self.disk.power_cut()
        } else {
            self.disk.kill()
        }
        cut
    }

    fn calm(&mut self) {
        let mut world = self.disk.world();
        (world.sync_failures, world.read_failures) = (0, 0);
    }

    fn read_all(&mut self, log: &Log) {
        for tracked in &mut self.consumers {
            let consumer = log.consumer(tracked.name, StartAt::Oldest).unwrap();
            tracked.restarted(&consumer, &self.model, self.harm);
            for lane in 0..log.lanes() {
                let mut reader = consumer.reader(lane).unwrap();
                while tracked.read(&mut reader, &self.model, self.harm) {}
                tracked.at_end(&reader, &self.model, self.harm, log.status().lost);
                tracked.commit(&consumer, &reader, 0);
            }
            tracked.flush(&consumer);
        }
        self.check_accounts(log);
        // Everything is read: all segments but the last may be deleted.
        log.keep_turn();
        let left = self.disk.names(".segment").len();
        let keeps_broken = self.harm == Harm::Damage;
        assert!(left <= 2 || keeps_broken, "{left} segments are left");
    }
}

/// The text that payloads are cut from: it compresses somewhat, and no two cuts are alike.
static TEXT: [u8; 20_000] = {
    let (mut text, mut at, mut state) = ([0; 20_000], 0, 1u32);
    while at < text.len() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        text[at] = b'a' + (state >> 30) as u8;
        at += 1;
    }
    text
};
