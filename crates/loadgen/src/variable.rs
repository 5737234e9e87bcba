//! Variables, and the drawing of their values.
//!
//! The variables of a file are shared by all cores; each core has its own [`Draws`]. Before a request is rendered its
//! draws of numbered variables are reserved together ([`Draws::begin`]), so that a body of 10,000 lines costs one
//! atomic addition for each of them and not 10,000.

mod moment;
mod xid;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;

pub(crate) use self::moment::Moment;
use self::xid::{XID_BYTES, Xid};
use crate::template::Slot;

/// A named source of values.
#[derive(Debug)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

/// Where values come from.
#[derive(Debug)]
pub(crate) enum Kind {
    /// One of these, by chance.
    Words(Words),
    /// The next number.
    Sequence(Sequence),
    /// A number between these, both included, by chance.
    Range { from: i64, to: i64 },
    /// 20 characters, ordered by time, never the same twice.
    Uuid,
    /// The time at which the rendering of the request began.
    Moment(Moment),
}

/// Values one after another in one piece of memory.
#[derive(Debug, Default)]
pub(crate) struct Words {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

/// Numbers in order, shared by all cores; after the last comes the first again.
#[derive(Debug)]
pub(crate) struct Sequence {
    from: u64,
    to: u64,
    drawn: AtomicU64,
}

/// How many values of a numbered variable a request draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) variable: u16,
    pub(crate) draws: u64,
}

/// What one core draws with.
pub(crate) struct Draws {
    variables: Arc<[Variable]>,
    rng: fastrand::Rng,
    /// By variable: the next number that is reserved for the request being rendered.
    next: Vec<u64>,
    /// By variable: the text of a moment, made when the request first wants it.
    moments: Vec<Text>,
    now: Timestamp,
    xid: Xid,
    request: Values,
    line: Values,
}

#[derive(Default)]
struct Text {
    bytes: Vec<u8>,
    /// It was made for the request that is being rendered.
    fresh: bool,
}

/// The values of runtime variables.
#[derive(Default)]
struct Values {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

// === impl Words ===

impl Words {
    pub(crate) fn add(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.ends.push(self.bytes.len() as u32);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    fn pick(&self, rng: &mut fastrand::Rng) -> &[u8] {
        let at = rng.usize(0..self.ends.len());
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        &self.bytes[start..self.ends[at] as usize]
    }
}

// === impl Sequence ===

impl Sequence {
    /// From `from` to `to`, both drawn.
    pub(crate) fn new(from: u64, to: u64) -> Sequence {
        Sequence {
            from,
            to,
            drawn: AtomicU64::new(0),
        }
    }

    /// Reserves so many numbers and gives the first.
    fn reserve(&self, count: u64) -> u64 {
        let drawn = self.drawn.fetch_add(count, Ordering::Relaxed);
        match (self.to - self.from).checked_add(1) {
            Some(span) => self.from + drawn % span,
            None => drawn,
        }
    }

    fn after(&self, number: u64) -> u64 {
        if number == self.to { self.from } else { number + 1 }
    }
}

// === impl Draws ===

impl Draws {
    /// Draws from these variables, by chance as `seed` has it.
    pub(crate) fn new(variables: Arc<[Variable]>, seed: u64) -> Draws {
        Draws {
            rng: fastrand::Rng::with_seed(seed),
            next: vec![0; variables.len()],
            moments: variables.iter().map(|_| Text::default()).collect(),
            now: Timestamp::UNIX_EPOCH,
            xid: Xid::of_this_process(),
            request: Values::default(),
            line: Values::default(),
            variables,
        }
    }

    /// Begins a request that happens `now`: reserves what it needs, draws its runtime variables (`once` says from which
    /// variables they are).
    pub(crate) fn begin(&mut self, now: Timestamp, needs: &[Need], once: &[u16]) {
        if self.now != now {
            self.now = now;
            self.xid.at(now);
        }
        self.moments.iter_mut().for_each(|text| text.fresh = false);
        for need in needs {
            self.next[usize::from(need.variable)] = match &self.variables[usize::from(need.variable)].kind {
                Kind::Sequence(sequence) => sequence.reserve(need.draws),
                Kind::Uuid => xid::reserve(need.draws),
                Kind::Words(_) | Kind::Range { .. } | Kind::Moment(_) => 0,
            };
        }
        let mut values = std::mem::take(&mut self.request);
        self.fill(&mut values, once);
        self.request = values;
    }

    /// Begins a repetition of the body: draws its runtime variables.
    pub(crate) fn begin_line(&mut self, once: &[u16]) {
        if once.is_empty() {
            return;
        }
        let mut values = std::mem::take(&mut self.line);
        self.fill(&mut values, once);
        self.line = values;
    }

    /// Appends a slot's value.
    pub(crate) fn put(&mut self, slot: Slot, out: &mut Vec<u8>) {
        match slot {
            Slot::Variable(variable) => self.draw(variable, out),
            Slot::Request(at) => out.extend_from_slice(self.request.get(at)),
            Slot::Line(at) => out.extend_from_slice(self.line.get(at)),
        }
    }

    fn fill(&mut self, values: &mut Values, once: &[u16]) {
        values.bytes.clear();
        values.ends.clear();
        for variable in once {
            self.draw(*variable, &mut values.bytes);
            values.ends.push(values.bytes.len() as u32);
        }
    }

    fn draw(&mut self, variable: u16, out: &mut Vec<u8>) {
        let at = usize::from(variable);
        match &self.variables[at].kind {
            Kind::Words(words) => out.extend_from_slice(words.pick(&mut self.rng)),
            Kind::Range { from, to } => put_number(self.rng.i64(*from..=*to), out),
            Kind::Sequence(sequence) => {
                let number = self.next[at];
                self.next[at] = sequence.after(number);
                put_number(number, out);
            }
            Kind::Uuid => {
                let counter = self.next[at];
                self.next[at] = counter.wrapping_add(1);
                out.extend_from_slice(&self.xid.text(counter) as &[u8; XID_BYTES]);
            }
            Kind::Moment(moment) => {
                let text = &mut self.moments[at];
                if !text.fresh {
                    text.fresh = true;
                    text.bytes.clear();
                    moment.write(self.now, &mut text.bytes);
                }
                out.extend_from_slice(&text.bytes);
            }
        }
    }
}

impl std::fmt::Debug for Draws {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Draws")
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

// === impl Values ===

impl Values {
    fn get(&self, at: u16) -> &[u8] {
        let at = usize::from(at);
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        &self.bytes[start..self.ends[at] as usize]
    }
}

fn put_number(number: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}
