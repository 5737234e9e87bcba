//! A try under way of what is parked by itself, which others are not to interfere with until it is over,
//! however it ends.

use crate::queue::parked::{Order, ParkKey, Parked, ParkedState, Picked};

/// Ends the try when it is dropped. Tries of other keys are known by their keys' turns alone.
pub(super) struct TryUnderWay<'p> {
    parked: &'p Parked,
    number: Option<u64>,
}

impl Drop for TryUnderWay<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.parked.state().end_try(number);
        }
    }
}

// === impl TryUnderWay ===

impl<'p> TryUnderWay<'p> {
    /// Begins a try of these pieces, while nobody else can pick them: `state` is that of `parked`.
    pub(super) fn begin(
        parked: &'p Parked,
        state: &mut ParkedState,
        key: &ParkKey,
        picked: &[Picked],
    ) -> Self {
        let is_known = *key == ParkKey::Documents && !picked.is_empty();
        let number = is_known.then(|| state.begin_try(picked.iter().map(Picked::operations)));
        Self { parked, number }
    }

    /// Keeps a piece that turned out to be damaged from others until it is given up.
    pub(super) fn keep(parked: &'p Parked, key: &ParkKey, order: Order) -> Self {
        let is_known = *key == ParkKey::Documents;
        let number = is_known.then(|| parked.state().begin_try([(order, None)].into_iter()));
        Self { parked, number }
    }

    /// Ends the try, but for a part that goes on: returns the number by which that is known.
    pub(super) fn leave(mut self) -> Option<u64> {
        self.number.take()
    }

    /// Records that it goes out now: from here on it may be late.
    pub(super) fn sends(&self) {
        if let Some(number) = self.number {
            self.parked.state().sends_try(number);
        }
    }
}
