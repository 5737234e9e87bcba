//! Variables, and how their values are drawn.
//!
//! All cores share the variables of a file; each core has its own [`Draws`]. Before a request is rendered,
//! its draws of numbered variables are reserved together ([`Draws::begin`]), so that a body of 10,000 lines
//! costs one atomic addition per variable and not 10,000.

mod bitmap;
mod layout;
mod moment;
mod words;
mod xid;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;

pub(crate) use self::layout::Layout;
pub(crate) use self::moment::Moment;
pub(crate) use self::words::{Replacements, Words};
use self::xid::{XID_BYTES, Xid};
use crate::slot::Slot;

/// A named source of values.
#[derive(Debug)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) kind: VariableKind,
}

/// The source of a variable's values.
#[derive(Debug)]
pub(crate) enum VariableKind {
    /// One of these values, at random.
    Words(Words),
    /// The one of these values that belongs to the last number drawn from a sequence: the same in every run.
    Tied { words: Words, to: u16 },
    /// The next number.
    Sequence(Sequence),
    /// A random number between these bounds, both included.
    Range { from: i64, to: i64 },
    /// 20 characters, ordered by time, never the same twice.
    Uuid,
    /// The time at which the rendering of the request began.
    Moment(Moment),
    /// Several values of another variable.
    Array(Array),
    /// A set of `size` random numbers between these bounds, as a Roaring bitmap.
    Bitmap { from: u32, to: u32, size: u32 },
}

/// Several values of another variable, with commas between.
#[derive(Debug)]
pub(crate) struct Array {
    /// The other variable, which is not an array itself.
    pub(crate) of: u16,
    pub(crate) size: u32,
    /// The text before and after each value.
    pub(crate) quote: String,
    /// Whether `[` and `]` surround the whole array.
    pub(crate) brackets: bool,
    /// Replacements in the whole text.
    pub(crate) replacements: Replacements,
}

/// Consecutive numbers, shared by all cores; after the last number the first one follows.
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

/// The state with which one core draws values.
pub(crate) struct Draws {
    variables: Arc<[Variable]>,
    hand: DrawState,
    /// Values of runtime variables, of the request and of the body's line.
    request: Words,
    line: Words,
    /// The values that earlier answers registered for this request's user.
    registered: Vec<Vec<u8>>,
}

/// The state that changes while values are drawn.
struct DrawState {
    rng: fastrand::Rng,
    /// The next number reserved for the request being rendered, by variable.
    next: Vec<u64>,
    /// The text of a moment, made when the request first needs it, by variable.
    moments: Vec<Option<Vec<u8>>>,
    now: Timestamp,
    xid: Xid,
    numbers: Vec<u32>,
}

// === impl Sequence ===

impl Sequence {
    /// Creates the sequence from `from` to `to`, both included.
    pub(crate) fn new(from: u64, to: u64) -> Sequence {
        Sequence {
            from,
            to,
            drawn: AtomicU64::new(0),
        }
    }

    /// Reserves `count` numbers, and returns the first one.
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
    /// Creates draws from these variables; random values follow `seed`.
    pub(crate) fn new(variables: Arc<[Variable]>, seed: u64) -> Draws {
        Draws {
            hand: DrawState {
                rng: fastrand::Rng::with_seed(seed),
                next: vec![0; variables.len()],
                moments: variables.iter().map(|_| None).collect(),
                now: Timestamp::UNIX_EPOCH,
                xid: Xid::of_this_process(),
                numbers: Vec::new(),
            },
            request: Words::default(),
            line: Words::default(),
            registered: Vec::new(),
            variables,
        }
    }

    /// Begins a request at the time `now`: reserves what it needs, and draws its runtime variables from the
    /// variables `once`.
    pub(crate) fn begin(&mut self, now: Timestamp, needs: &[Need], once: &[u16]) {
        let hand = &mut self.hand;
        if hand.now != now {
            hand.now = now;
            hand.xid.at(now);
        }
        hand.moments.iter_mut().for_each(|text| *text = None);
        for need in needs {
            let at = usize::from(need.variable);
            hand.next[at] = match &self.variables[at].kind {
                VariableKind::Sequence(sequence) => sequence.reserve(need.draws),
                _ => xid::reserve(need.draws),
            };
        }
        fill(&mut self.request, &self.variables, &mut self.hand, once);
    }

    /// Begins a repetition of the body: draws its runtime variables.
    pub(crate) fn begin_line(&mut self, once: &[u16]) {
        if !once.is_empty() {
            fill(&mut self.line, &self.variables, &mut self.hand, once);
        }
    }

    /// Draws for a user, with the values that earlier answers registered.
    pub(crate) fn with<T>(&mut self, registered: &mut Vec<Vec<u8>>, draw: impl FnOnce(&mut Self) -> T) -> T {
        std::mem::swap(&mut self.registered, registered);
        let drawn = draw(self);
        std::mem::swap(&mut self.registered, registered);
        drawn
    }

    /// Appends a slot's value.
    pub(crate) fn put(&mut self, slot: Slot, out: &mut Vec<u8>) {
        match slot {
            Slot::Variable(variable) => self.hand.draw(&self.variables, variable, out),
            Slot::Request(at) => out.extend_from_slice(self.request.get(usize::from(at))),
            Slot::Line(at) => out.extend_from_slice(self.line.get(usize::from(at))),
            Slot::Registered(at) => {
                if let Some(value) = self.registered.get(usize::from(at)) {
                    out.extend_from_slice(value);
                }
            }
        }
    }
}

impl std::fmt::Debug for Draws {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Draws")
            .field("now", &self.hand.now)
            .finish_non_exhaustive()
    }
}

fn fill(values: &mut Words, variables: &[Variable], hand: &mut DrawState, once: &[u16]) {
    values.clear();
    for variable in once {
        values.add_with(|out| hand.draw(variables, *variable, out));
    }
}

// === impl DrawState ===

impl DrawState {
    fn draw(&mut self, variables: &[Variable], variable: u16, out: &mut Vec<u8>) {
        let at = usize::from(variable);
        match &variables[at].kind {
            VariableKind::Words(words) => out.extend_from_slice(words.pick(&mut self.rng)),
            VariableKind::Tied { words, to } => {
                let number = self.next[usize::from(*to)] ^ (at as u64) << 48;
                out.extend_from_slice(words.get((scattered(number) % words.len() as u64) as usize));
            }
            VariableKind::Range { from, to } => put_number(self.rng.i64(*from..=*to), out),
            VariableKind::Sequence(sequence) => {
                let number = self.next[at];
                self.next[at] = sequence.after(number);
                put_number(number, out);
            }
            VariableKind::Uuid => {
                let counter = self.next[at];
                self.next[at] = counter.wrapping_add(1);
                out.extend_from_slice(&self.xid.text(counter) as &[u8; XID_BYTES]);
            }
            VariableKind::Moment(moment) => {
                let text = self.moments[at].get_or_insert_with(|| {
                    let mut text = Vec::with_capacity(40);
                    moment.write(self.now, &mut text);
                    text
                });
                out.extend_from_slice(text);
            }
            VariableKind::Array(array) => self.draw_array(variables, array, out),
            VariableKind::Bitmap { from, to, size } => {
                let mut numbers = std::mem::take(&mut self.numbers);
                numbers.clear();
                numbers.extend((0..*size).map(|_| self.rng.u32(*from..=*to)));
                bitmap::put_bitmap(&mut numbers, out);
                self.numbers = numbers;
            }
        }
    }

    fn draw_array(&mut self, variables: &[Variable], array: &Array, out: &mut Vec<u8>) {
        let start = out.len();
        if array.brackets {
            out.push(b'[');
        }
        for at in 0..array.size {
            if at > 0 {
                out.push(b',');
            }
            out.extend_from_slice(array.quote.as_bytes());
            self.draw(variables, array.of, out);
            out.extend_from_slice(array.quote.as_bytes());
        }
        if array.brackets {
            out.push(b']');
        }
        if !array.replacements.is_empty() {
            let text = array.replacements.apply(&String::from_utf8_lossy(&out[start..]));
            out.truncate(start);
            out.extend_from_slice(text.as_bytes());
        }
    }
}

/// Maps consecutive numbers to numbers spread over the whole range (the finalizer of SplitMix64).
fn scattered(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn put_number(number: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn draws(kinds: Vec<VariableKind>) -> (Draws, Vec<Need>) {
        let named = kinds.into_iter().map(|kind| Variable {
            name: String::new(),
            kind,
        });
        let variables: Arc<[Variable]> = named.collect();
        let needs = variables.iter().enumerate().filter_map(|(at, variable)| {
            matches!(variable.kind, VariableKind::Sequence(_) | VariableKind::Uuid).then_some(Need {
                variable: at as u16,
                draws: 1_000,
            })
        });
        let needs = needs.collect();
        (Draws::new(variables, 7), needs)
    }

    fn drawn(draws: &mut Draws, variable: u16) -> String {
        let mut out = Vec::new();
        draws.put(Slot::Variable(variable), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn ids_are_never_the_same_twice_even_in_two_draws_at_once() {
        let (mut one, needs) = draws(vec![VariableKind::Uuid]);
        let (mut two, _) = draws(vec![VariableKind::Uuid]);
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let mut ids = HashSet::new();
        for _ in 0..3 {
            one.begin(now, &needs, &[]);
            two.begin(now, &needs, &[]);
            for _ in 0..1_000 {
                ids.extend([drawn(&mut one, 0), drawn(&mut two, 0)]);
            }
        }
        assert_eq!(ids.len(), 6_000);
    }

    #[test]
    fn arrays_hold_values_of_their_variable() {
        let array = |quote: &str, brackets, pairs: Vec<(String, String)>| {
            VariableKind::Array(Array {
                of: 0,
                size: 3,
                quote: quote.to_owned(),
                brackets,
                replacements: Replacements::new(pairs),
            })
        };
        let pairs = vec![("\"".to_owned(), "'".to_owned())];
        let (mut draws, _) = draws(vec![
            VariableKind::Range { from: 7, to: 7 },
            array("", false, vec![]),
            array("\"", true, vec![]),
            array("\"", true, pairs),
        ]);
        assert_eq!(drawn(&mut draws, 1), "7,7,7");
        assert_eq!(drawn(&mut draws, 2), r#"["7","7","7"]"#);
        assert_eq!(drawn(&mut draws, 3), "['7','7','7']");
    }

    #[test]
    fn what_goes_by_a_sequence_is_the_same_for_the_same_number_and_differs_between_numbers() {
        let run = |blocks: &[u64]| -> Vec<String> {
            let mut words = Words::default();
            (0..10).for_each(|word: u8| words.add(&[b'a' + word]));
            let tied = VariableKind::Tied { words, to: 0 };
            let (mut draws, _) = draws(vec![VariableKind::Sequence(Sequence::new(1, 1_000)), tied]);
            let mut drawn_so = Vec::new();
            for block in blocks {
                let need = Need {
                    variable: 0,
                    draws: *block,
                };
                draws.begin(Timestamp::UNIX_EPOCH, &[need], &[]);
                for _ in 0..*block {
                    drawn(&mut draws, 0);
                    drawn_so.push(drawn(&mut draws, 1));
                }
            }
            drawn_so
        };
        let whole = run(&[100]);
        assert_eq!(whole, run(&[1, 50, 49]));
        assert_eq!(whole.iter().collect::<HashSet<_>>().len(), 10);
    }

    proptest! {
        #[test]
        fn sequences_go_on_over_reservations_and_begin_again_after_the_last(
            from in 0_u64..5, span in 0_u64..9, blocks in prop::collection::vec(1_u64..20, 1..6),
        ) {
            let (mut draws, _) = draws(vec![VariableKind::Sequence(Sequence::new(from, from + span))]);
            let mut expected = (from..=from + span).cycle();
            for block in blocks {
                draws.begin(Timestamp::UNIX_EPOCH, &[Need { variable: 0, draws: block }], &[]);
                for _ in 0..block {
                    prop_assert_eq!(drawn(&mut draws, 0), expected.next().unwrap().to_string());
                }
            }
        }

        #[test]
        fn ranges_stay_within_their_bounds(from in any::<i64>(), to in any::<i64>()) {
            let (from, to) = (from.min(to), from.max(to));
            let (mut draws, _) = draws(vec![VariableKind::Range { from, to }]);
            for _ in 0..20 {
                let number: i64 = drawn(&mut draws, 0).parse().unwrap();
                prop_assert!((from..=to).contains(&number));
            }
        }
    }
}
