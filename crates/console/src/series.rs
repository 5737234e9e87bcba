//! Numbers over time, in memory: every second of the last quarter of an hour, and every ten seconds of the
//! last two hours.
//!
//! A value that was not measured is a gap, never a zero or the previous value.

use std::collections::VecDeque;

/// One series.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    fine: Ring,
    coarse: Ring,
}

/// Mean values over equal steps of time.
#[derive(Debug, Clone)]
struct Ring {
    step_ms: i64,
    len_max: usize,
    /// The number of the last step, counted from 1970.
    newest: i64,
    /// The mean of each step's values; not a number where nothing was measured.
    steps: VecDeque<f64>,
    /// The number of values in the last step's mean. What the others have stays as it is.
    count: u32,
}

impl Default for Series {
    fn default() -> Self {
        Self {
            fine: Ring::new(FINE_MS, FINE_SPAN_MS),
            coarse: Ring::new(COARSE_MS, COARSE_SPAN_MS),
        }
    }
}

impl Series {
    /// Adds a value that was measured over the time from `since_ms` (exclusive) to `at_ms`.
    pub(crate) fn put(&mut self, since_ms: i64, at_ms: i64, value: f64) {
        if value.is_finite() {
            self.fine.put(since_ms, at_ms, value);
            self.coarse.put(since_ms, at_ms, value);
        }
    }

    /// Returns the values of the steps from the step of `from_ms` to the step of `to_ms` (exclusive).
    pub(crate) fn values(&self, step_ms: i64, from_ms: i64, to_ms: i64) -> Vec<Option<f64>> {
        let ring = if step_ms == FINE_MS {
            &self.fine
        } else {
            &self.coarse
        };
        ring.values(from_ms, to_ms)
    }
}

/// Returns the step for a span of minutes, and how many milliseconds back there are values.
pub(crate) fn step_for(minutes: u32) -> (i64, i64) {
    let asked_ms = i64::from(minutes) * 60_000;
    if asked_ms <= FINE_SPAN_MS {
        (FINE_MS, asked_ms)
    } else {
        (COARSE_MS, asked_ms.min(COARSE_SPAN_MS))
    }
}

impl Ring {
    fn new(step_ms: i64, span_ms: i64) -> Self {
        Self {
            step_ms,
            len_max: usize::try_from(span_ms / step_ms).unwrap_or(1) + 1,
            newest: i64::MIN,
            steps: VecDeque::new(),
            count: 0,
        }
    }

    fn put(&mut self, since_ms: i64, at_ms: i64, value: f64) {
        let last = at_ms.div_euclid(self.step_ms);
        let first = (since_ms.div_euclid(self.step_ms) + 1).min(last);
        if self.newest == i64::MIN || last > self.newest + self.len_max as i64 {
            self.steps.clear();
            self.newest = first - 1;
        }
        while self.newest < last {
            self.push_gap();
        }
        for step in first..=last {
            let Some(at) = self.at(step) else { continue };
            let mean = &mut self.steps[at];
            if mean.is_nan() {
                *mean = value;
            } else if step == self.newest {
                *mean += (value - *mean) / f64::from(self.count + 1);
            }
            if step == self.newest {
                self.count += 1;
            }
        }
    }

    fn push_gap(&mut self) {
        if self.steps.len() == self.len_max {
            self.steps.pop_front();
        }
        if self.steps.len() == self.steps.capacity() {
            // Doubling would leave a fifth of the memory of all series unused.
            let more = GROWTH.min(self.len_max - self.steps.len());
            self.steps.reserve_exact(more);
        }
        self.steps.push_back(f64::NAN);
        self.newest += 1;
        self.count = 0;
    }

    fn at(&self, step: i64) -> Option<usize> {
        let back = usize::try_from(self.newest.checked_sub(step)?).ok()?;
        self.steps.len().checked_sub(back + 1)
    }

    fn values(&self, from_ms: i64, to_ms: i64) -> Vec<Option<f64>> {
        let (from, to) = (from_ms.div_euclid(self.step_ms), to_ms.div_euclid(self.step_ms));
        (from..to)
            .map(|step| {
                let at = (self.newest != i64::MIN).then(|| self.at(step)).flatten()?;
                let mean = self.steps[at];
                (!mean.is_nan()).then_some(mean)
            })
            .collect()
    }
}

pub(crate) const FINE_MS: i64 = 1_000;
const FINE_SPAN_MS: i64 = 15 * 60_000;
pub(crate) const COARSE_MS: i64 = 10_000;
const COARSE_SPAN_MS: i64 = 120 * 60_000;
/// The number of steps by which a ring's memory grows.
const GROWTH: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_a_gap() {
        let mut series = Series::default();
        series.put(100_000, 101_000, 5.0);
        series.put(101_000, 103_100, 7.0);
        series.put(109_000, 110_000, 9.0);
        let told = series.values(FINE_MS, 100_000, 111_000);
        let expected = [
            None,
            Some(5.0),
            Some(7.0),
            Some(7.0),
            None,
            None,
            None,
            None,
            None,
            None,
            Some(9.0),
        ];
        assert_eq!(told, expected);
        assert_eq!(
            series.values(COARSE_MS, 90_000, 120_000),
            [None, Some(6.0), Some(9.0)]
        );
    }

    #[test]
    fn a_series_is_bounded_and_a_long_pause_empties_it() {
        let mut series = Series::default();
        for second in 0..10_000 {
            series.put((second - 1) * 1000, second * 1000, second as f64);
        }
        assert_eq!(series.fine.steps.len(), 901);
        assert_eq!(series.coarse.steps.len(), 721);
        assert_eq!(
            series.values(FINE_MS, 9_999_000, 10_001_000),
            [Some(9999.0), None]
        );
        series.put(99_999_000, 100_000_000, 1.0);
        assert_eq!(series.fine.steps.len(), 1);
        assert_eq!(series.values(FINE_MS, 9_999_000, 10_000_000), [None]);
    }

    #[test]
    fn twenty_thousand_full_series_fit_into_the_memory_of_a_console() {
        let mut series = Series::default();
        for second in 0..10_000 {
            series.put((second - 1) * 1000, second * 1000, second as f64);
        }
        let kept = series.fine.steps.capacity() + series.coarse.steps.capacity();
        let bytes = size_of::<Series>() + kept * size_of::<f64>();
        assert!(bytes * 20_000 <= 300 << 20, "{bytes} bytes each");
    }

    #[test]
    fn the_mean_of_a_step_is_that_of_all_its_values() {
        let mut series = Series::default();
        for (second, value) in [(100, 3.0), (101, 5.0), (102, 10.0), (103, 2.0), (111, 7.0)] {
            series.put((second - 1) * 1000, second * 1000, value);
        }
        assert_eq!(series.values(COARSE_MS, 100_000, 120_000), [Some(5.0), Some(7.0)]);
        // A clock that is set back changes nothing that is known.
        series.put(100_000, 101_000, 99.0);
        series.put(101_000, 106_000, 1.0);
        assert_eq!(
            series.values(FINE_MS, 101_000, 107_000),
            [Some(5.0), Some(10.0), Some(2.0), Some(1.0), Some(1.0), Some(1.0)]
        );
    }

    #[test]
    fn long_times_are_told_coarsely_and_not_beyond_what_there_is() {
        assert_eq!(step_for(15), (1_000, 900_000));
        assert_eq!(step_for(60), (10_000, 3_600_000));
        assert_eq!(step_for(1440), (10_000, 7_200_000));
    }
}
