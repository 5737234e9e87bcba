//! Decides when requests are to be sent, whatever becomes of the earlier ones: the open loop.

use std::time::Duration;

/// A schedule of requests: consecutive stages, each at a constant rate or at one that changes evenly.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    stages: Vec<Stage>,
    /// Whether the last stage goes on for ever.
    endless: bool,
}

/// A stretch of time and its rates, in requests per second.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Stage {
    from: f64,
    to: f64,
    seconds: f64,
}

/// A text that is not a stage of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a stage: write RATE/TIME or FROM..TO/TIME, as in `0..1000/30s`")]
pub struct ScheduleError(String);

// === impl Schedule ===

impl Schedule {
    /// Returns a schedule with this many requests per second, without an end. `None` for a rate of zero.
    pub fn constant(rate: f64) -> Option<Schedule> {
        (rate > 0.0 && rate <= RATE_MAX).then(|| Schedule {
            stages: vec![Stage {
                from: rate,
                to: rate,
                seconds: f64::MAX,
            }],
            endless: true,
        })
    }

    /// Parses `0..1000/30s,1000/1m,5000/5s`: stages, each with a rate or two and a time.
    ///
    /// # Errors
    /// The first text that is not a stage.
    pub fn parse(text: &str) -> Result<Schedule, ScheduleError> {
        let stages = text.split(',').map(|stage| {
            let wrong = || ScheduleError(stage.to_owned());
            let (rates, time) = stage.trim().split_once('/').ok_or_else(wrong)?;
            let (from, to) = rates.split_once("..").unwrap_or((rates, rates));
            let rate = |text: &str| {
                let rate = text.trim().parse().map_err(|_| wrong())?;
                if (0.0..=RATE_MAX).contains(&rate) {
                    Ok(rate)
                } else {
                    Err(wrong())
                }
            };
            Ok(Stage {
                from: rate(from)?,
                to: rate(to)?,
                seconds: seconds(time.trim()).ok_or_else(wrong)?,
            })
        });
        let stages = stages.collect::<Result<Vec<_>, ScheduleError>>()?;
        Ok(Schedule {
            stages,
            endless: false,
        })
    }

    /// Returns how long the schedule lasts; `None` if it has no end.
    pub fn duration(&self) -> Option<Duration> {
        let seconds = self.stages.iter().map(|stage| stage.seconds).sum();
        (!self.endless).then(|| Duration::from_secs_f64(seconds))
    }

    /// Returns how many requests are to be sent before this much time has passed.
    pub(crate) fn due(&self, time: Duration) -> u64 {
        let mut left = time.as_secs_f64();
        let mut due = 0.0;
        for stage in &self.stages {
            let seconds = left.min(stage.seconds);
            let slope = (stage.to - stage.from) / stage.seconds;
            due += stage.from * seconds + slope * seconds * seconds / 2.0;
            left -= seconds;
        }
        // The first request is sent at once; rounding must not turn it into two.
        (due - 1e-6).ceil().max(0.0) as u64
    }

    /// Returns when request `number` (from 0) is to be sent, counted from the beginning; `None` after the
    /// end.
    pub(crate) fn at(&self, number: u64) -> Option<Duration> {
        let mut left = number as f64;
        let mut begin = 0.0;
        for stage in &self.stages {
            if let Some(seconds) = stage.after(left) {
                return Duration::try_from_secs_f64(begin + seconds).ok();
            }
            left -= stage.requests();
            begin += stage.seconds;
        }
        None
    }
}

// === impl Stage ===

impl Stage {
    fn requests(&self) -> f64 {
        (self.from + self.to) / 2.0 * self.seconds
    }

    /// Returns when this many requests have been sent, if that is within the stage.
    fn after(&self, requests: f64) -> Option<f64> {
        if requests >= self.requests() {
            return None;
        }
        // requests = from t + slope t² / 2, solved in the form that is exact for small slopes too.
        let slope = (self.to - self.from) / self.seconds;
        let root = (self.from * self.from + 2.0 * slope * requests).max(0.0).sqrt();
        let seconds = if requests == 0.0 {
            0.0
        } else {
            2.0 * requests / (self.from + root)
        };
        Some(seconds.min(self.seconds))
    }
}

/// Parses `30s`, `500ms`, `2m`, `1h`; a bare number means seconds.
fn seconds(text: &str) -> Option<f64> {
    let letters = text
        .find(|letter: char| letter.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(letters);
    let factor = match unit {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "m" => 60.0,
        "h" => 3_600.0,
        _ => return None,
    };
    let seconds = number.parse::<f64>().ok()? * factor;
    (seconds > 0.0 && seconds <= SECONDS_MAX).then_some(seconds)
}

const RATE_MAX: f64 = 1e8;
const SECONDS_MAX: f64 = 365.0 * 86_400.0;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(schedule: &Schedule, number: u64) -> Option<f64> {
        schedule.at(number).map(|at| at.as_secs_f64())
    }

    #[test]
    fn a_constant_rate_spaces_requests_evenly() {
        let schedule = Schedule::constant(4.0).unwrap();
        assert_eq!(
            (at(&schedule, 0), at(&schedule, 1), at(&schedule, 400)),
            (Some(0.0), Some(0.25), Some(100.0))
        );
        assert_eq!((Schedule::constant(0.0), schedule.duration()), (None, None));
    }

    #[test]
    fn a_ramp_sends_half_of_its_requests_in_the_last_third_of_its_time() {
        let schedule = Schedule::parse("0..100/10s, 100/1m, 1000/500ms").unwrap();
        // 500 requests in the ramp; the first 125 take half of its time.
        assert!((at(&schedule, 125).unwrap() - 5.0).abs() < 1e-9);
        assert!((at(&schedule, 500).unwrap() - 10.0).abs() < 1e-9);
        assert!((at(&schedule, 6_500).unwrap() - 70.0).abs() < 1e-9);
        assert!((at(&schedule, 6_999).unwrap() - 70.499).abs() < 1e-9);
        assert_eq!(at(&schedule, 7_000), None);
        assert_eq!(schedule.duration(), Some(Duration::from_millis(70_500)));
    }

    #[test]
    fn what_is_due_is_what_has_a_time_before() {
        let schedule = Schedule::parse("0..100/10s,100/1s,50..0/2s").unwrap();
        for seconds in [0.0, 0.1, 3.3, 10.0, 10.5, 11.2, 12.0, 13.0, 99.0] {
            let time = Duration::from_secs_f64(seconds);
            let before = (0..)
                .map_while(|number| schedule.at(number))
                .take_while(|at| *at < time);
            assert_eq!(schedule.due(time), before.count() as u64, "{seconds}");
        }
        let constant = Schedule::constant(3.0).unwrap();
        assert_eq!(
            (constant.due(Duration::from_secs(7)), constant.due(Duration::ZERO)),
            (21, 0)
        );
    }

    #[test]
    fn what_is_no_schedule_is_refused() {
        for wrong in ["", "10", "10/0s", "-1/3s", "a/3s", "1..x/3s", "1/3d", "1/2s,"] {
            assert!(Schedule::parse(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        /// The number of requests due at a request's time is that request's number.
        #[test]
        fn times_never_go_back_and_fit_the_rates(from in 0.0_f64..500.0, to in 0.0_f64..500.0, seconds in 0.5_f64..20.0) {
            let stage = Stage { from, to, seconds };
            let mut last = 0.0;
            for number in 0..stage.requests() as u64 {
                let Some(at) = stage.after(number as f64) else { break };
                prop_assert!(at >= last && at <= seconds);
                let sent = from * at + (to - from) / seconds * at * at / 2.0;
                prop_assert!((sent - number as f64).abs() < 1e-6 * (1.0 + number as f64), "{sent} {number}");
                last = at;
            }
        }
    }
}
