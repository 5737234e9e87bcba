//! A slot under random schedules, in a world with a clock of its own: arrivals, answers, timers and leave
//! come in any order.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

/// A part, numbered in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Numbered {
    number: u32,
    bytes: u64,
    docs: u32,
    came: Duration,
}

impl Weight for Numbered {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn docs(&self) -> u32 {
        self.docs
    }
}

#[derive(Clone, Debug)]
enum Event {
    /// A part comes.
    Comes { bytes: u64, docs: u32 },
    /// One of the requests under way is answered.
    Answered(usize),
    /// Time passes.
    Passes { micros: u64 },
    /// The node's limiter gives leave, or takes it back.
    Leave(bool),
}

/// The combiner around a slot.
struct World {
    slot: Slot<Numbered, ()>,
    shifts: Shifts,
    settings: Combine,
    began: Instant,
    now: Duration,
    /// The timers: when they go off, and for which round.
    timers: BTreeMap<(Duration, u64), ()>,
    /// The requests under way: parts, bytes, and since when.
    under_way: Vec<(usize, u64, Duration)>,
    /// The tasks that wait for leave; `free` says whether the node gives leave without waiting.
    asking: u32,
    free: bool,
    came: u32,
    /// The parts that were sent, in this order.
    sent: Vec<u32>,
    /// Whether somebody has been waiting for leave while something waited.
    held_up: bool,
}

impl World {
    fn new(settings: Combine) -> Self {
        let began = Instant::now();
        Self {
            slot: Slot::new(&(), began),
            shifts: Shifts::new(settings.adaptive),
            settings,
            began,
            now: Duration::ZERO,
            timers: BTreeMap::new(),
            under_way: Vec::new(),
            asking: 0,
            free: true,
            came: 0,
            sent: Vec::new(),
            held_up: false,
        }
    }

    fn consider(&mut self) {
        match self
            .slot
            .next_step(&self.shifts, &self.settings, self.began + self.now)
        {
            SlotAction::Nothing => {}
            SlotAction::Send => self.flush(),
            SlotAction::Wait { longest, round } => {
                assert!(longest <= self.settings.interval);
                self.timers.insert((self.now + longest, round), ());
            }
        }
    }

    fn flush(&mut self) {
        if !self.slot.waits() {
            return;
        }
        if self.free {
            return self.send();
        }
        match self.slot.ask() {
            LeaveRequest::Needless => self.send(),
            asking => self.asking += u32::from(asking == LeaveRequest::New),
        }
    }

    fn send(&mut self) {
        let bytes_max = self.settings.flush_bytes * GROWTH_MAX;
        let Some(((), members)) =
            self.slot
                .take(&mut self.shifts, (bytes_max, u64::MAX), self.began + self.now)
        else {
            return;
        };
        let bytes: u64 = members.iter().map(|member| member.bytes).sum();
        assert!(bytes <= bytes_max || members.len() == 1, "{members:?}");
        for member in &members {
            let waited = self.now - member.came;
            assert!(
                waited <= self.settings.interval || self.held_up,
                "{member:?} waited for {waited:?}"
            );
            self.sent.push(member.number);
        }
        self.held_up &= self.slot.waits();
        self.under_way.push((members.len(), bytes, self.now));
        self.consider();
    }

    fn step(&mut self, event: &Event) {
        match event {
            Event::Comes { bytes, docs } => {
                let member = Numbered {
                    number: self.came,
                    bytes: *bytes,
                    docs: *docs,
                    came: self.now,
                };
                self.came += 1;
                if self.slot.alone(&mut self.shifts, self.began + self.now) {
                    self.sent.push(member.number);
                    self.under_way.push((1, member.bytes, self.now));
                } else {
                    self.slot.push(&(), member);
                    self.consider();
                }
            }
            Event::Answered(which) if !self.under_way.is_empty() => {
                let (parts, bytes, since) = self.under_way.swap_remove(which % self.under_way.len());
                let now = self.began + self.now;
                self.slot
                    .returned(&mut self.shifts, (parts, bytes), self.now - since, now);
                self.consider();
            }
            Event::Answered(_) => {}
            Event::Passes { micros } => {
                let until = self.now + Duration::from_micros(*micros);
                while let Some(((at, round), ())) = self.timers.first_key_value() {
                    let (at, round) = (*at, *round);
                    if at > until {
                        break;
                    }
                    self.timers.pop_first();
                    self.now = self.now.max(at);
                    if self.slot.round() == round {
                        self.flush();
                    }
                }
                self.now = until;
            }
            Event::Leave(free) => {
                self.free = *free;
                if self.free {
                    for _ in 0..std::mem::take(&mut self.asking) {
                        self.slot.got_leave();
                        self.send();
                    }
                }
            }
        }
        self.held_up |= self.asking > 0 && self.slot.waits();
        self.check();
    }

    /// Checks that somebody comes for the parts that wait, and that nothing is counted wrong.
    fn check(&self) {
        let round = self.slot.round();
        let watched = self.timers.keys().any(|(_, of)| *of == round);
        assert!(
            !self.slot.waits() || watched || (self.asking > 0 && !self.under_way.is_empty()),
            "{} wait, and nobody comes for them",
            self.slot.waiting.len()
        );
        assert!(self.asking <= 1, "one is enough");
        let bytes: u64 = self.slot.waiting.iter().map(|member| member.bytes).sum();
        let docs: u64 = self
            .slot
            .waiting
            .iter()
            .map(|member| u64::from(member.docs))
            .sum();
        assert_eq!((self.slot.bytes, self.slot.docs), (bytes, docs));
        assert_eq!(self.slot.under_way as usize, self.under_way.len());
        let parts: usize = self.under_way.iter().map(|(parts, ..)| parts).sum();
        assert_eq!(self.slot.parts_under_way, parts);
        assert_eq!(self.sent.len() + self.slot.waiting.len(), self.came as usize);
    }
}

fn settings() -> Combine {
    Combine {
        enabled: true,
        flush_bytes: 1_000,
        docs_max: 50,
        requests_max: 20,
        interval: Duration::from_millis(50),
        adaptive: true,
    }
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (1..600u64, 1..30u32).prop_map(|(bytes, docs)| Event::Comes { bytes, docs }),
        4 => (0..64usize).prop_map(Event::Answered),
        4 => (0..20_000u64).prop_map(|micros| Event::Passes { micros }),
        1 => any::<bool>().prop_map(Event::Leave),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn each_part_is_sent_once_in_its_turn_and_none_is_forgotten(events in prop::collection::vec(event(), 1..120)) {
        let mut world = World::new(settings());
        for event in &events {
            world.step(event);
        }
        // At the end every request is answered, and the node takes what comes.
        world.step(&Event::Leave(true));
        world.step(&Event::Passes { micros: 60_000 });
        prop_assert_eq!(world.sent, (0..world.came).collect::<Vec<_>>());
    }

    /// With one request at a time, a client that has no company never waits after a pause, whatever events
    /// went before.
    #[test]
    fn a_client_on_its_own_never_waits(
        before in prop::collection::vec(event(), 0..60),
        bulks in prop::collection::vec((1..400u64, 1..20u32, 1..40_000u64), 1..20),
    ) {
        let mut world = World::new(settings());
        for event in &before {
            world.step(event);
        }
        world.step(&Event::Leave(true));
        world.step(&Event::Passes { micros: 60_000 });
        while !world.under_way.is_empty() {
            world.step(&Event::Answered(0));
        }
        world.step(&Event::Passes { micros: 10_000_000 });
        for (bytes, docs, lasts) in bulks {
            world.step(&Event::Comes { bytes, docs });
            prop_assert!(!world.slot.waits(), "it left at once");
            world.step(&Event::Passes { micros: lasts });
            world.step(&Event::Answered(0));
        }
    }
}
