//! Values that each core has to itself, because it writes them for every request. A cache line that two cores
//! write travels between them each time, and costs more than the work that the write belongs to.
//!
//! A [`PerCore`] has one value for each thread that asks for its own. Each value is on cache lines of its
//! own. Whoever wants to know about all cores reads all values, which is meant for rare questions: a reader
//! takes the lines from the cores that write them.

use std::cell::Cell;
use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;

use parking_lot::Mutex;

/// One value for each thread that writes: the cores, and the few other threads that do the same work. Threads
/// beyond [`VALUES_MAX`] share values with others, so a value has to be safe to share; it is then only
/// slower.
pub struct PerCore<T> {
    values: [OnceLock<Box<Apart<T>>>; VALUES_MAX],
}

/// A value that shares no cache line with another one. Processors fetch lines in pairs, so it has two.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Apart<T>(pub T);

/// The number of a thread among those that have values. It is given to another thread when this one ends.
struct Number(usize);

/// The numbers of threads that have ended, and the next number that nobody has had.
struct Numbers {
    free: Vec<usize>,
    next: usize,
}

static NUMBERS: Mutex<Numbers> = Mutex::new(Numbers {
    free: Vec::new(),
    next: 0,
});

thread_local! {
    static OWN: Number = Number::take();
    /// The same number, which is read for every request, or [`UNKNOWN`] before the first time.
    static OWN_PLACE: Cell<usize> = const { Cell::new(UNKNOWN) };
}

/// The number of values that there are at most. A place without a value takes 16 bytes.
pub const VALUES_MAX: usize = 64;
const UNKNOWN: usize = usize::MAX;

// === impl Apart ===

impl<T> Deref for Apart<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

// === impl PerCore ===

impl<T> PerCore<T> {
    /// Returns the value of this thread. `make` makes it the first time, from a number that is another one
    /// for each place, and small.
    pub fn own_or(&self, make: impl FnOnce(usize) -> T) -> &T {
        let place = place();
        self.values[place].get_or_init(|| Box::new(Apart(make(place))))
    }

    /// Returns the values of all threads that have one.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.values.iter().filter_map(OnceLock::get).map(|apart| &apart.0)
    }
}

impl<T: Default> PerCore<T> {
    /// Returns the value of this thread.
    pub fn own(&self) -> &T {
        self.own_or(|_| T::default())
    }
}

impl<T> Default for PerCore<T> {
    fn default() -> Self {
        Self {
            values: [const { OnceLock::new() }; VALUES_MAX],
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for PerCore<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all()).finish()
    }
}

fn place() -> usize {
    match OWN_PLACE.get() {
        UNKNOWN => first_place(),
        place => place,
    }
}

#[cold]
fn first_place() -> usize {
    // A thread that is ending has no number any more, and uses the first value.
    let number = OWN.try_with(|number| number.0).unwrap_or(0);
    OWN_PLACE.set(number % VALUES_MAX);
    number % VALUES_MAX
}

// === impl Number ===

impl Number {
    fn take() -> Self {
        let mut numbers = NUMBERS.lock();
        let number = numbers.free.pop().unwrap_or_else(|| {
            numbers.next += 1;
            numbers.next - 1
        });
        Number(number)
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        NUMBERS.lock().free.push(self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    #[test]
    fn threads_that_live_at_once_have_values_on_lines_of_their_own_and_all_of_them_are_seen() {
        let counts: PerCore<AtomicU64> = PerCore::default();
        let all_there = std::sync::Barrier::new(8);
        let mut addresses: Vec<usize> = std::thread::scope(|scope| {
            let thread = || {
                for _ in 0..1_000 {
                    counts.own().fetch_add(1, Relaxed);
                }
                all_there.wait();
                std::ptr::from_ref(counts.own()).addr()
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(thread)).collect();
            let ended = threads
                .into_iter()
                .map(|thread| thread.join().expect("it counts"));
            ended.collect()
        });
        addresses.sort_unstable();
        assert!(
            addresses.windows(2).all(|pair| pair[1] - pair[0] >= 128),
            "{addresses:x?}"
        );
        let sum: u64 = counts.all().map(|count| count.load(Relaxed)).sum();
        assert_eq!(sum, 8_000);
    }

    #[test]
    fn threads_that_end_leave_their_places_to_others() {
        let counts: PerCore<AtomicU64> = PerCore::default();
        let one_after_another = 4 * VALUES_MAX;
        for _ in 0..one_after_another {
            std::thread::scope(|scope| {
                scope.spawn(|| counts.own().fetch_add(1, Relaxed));
            });
        }
        let all: Vec<u64> = counts.all().map(|count| count.load(Relaxed)).collect();
        assert_eq!(all.iter().sum::<u64>(), one_after_another as u64);
        // Other tests have threads too.
        assert!(all.len() < VALUES_MAX, "{all:?}");
    }
}
