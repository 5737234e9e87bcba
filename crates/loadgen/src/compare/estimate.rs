//! Estimates what the rounds say together, and how certain that is.

use serde::Serialize;

/// How much the gateway's way differs from the direct one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RelativeChange {
    /// The change in percent, from the geometric mean of the rounds' ratios.
    pub percent: f64,
    /// The 95 % confidence interval, in percent; none with fewer than two rounds.
    pub interval: Option<(f64, f64)>,
    /// Number of pairs of runs that the estimate comes from.
    pub rounds: usize,
    /// The meaning of the change.
    pub verdict: ChangeVerdict,
}

/// The meaning of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeVerdict {
    /// The interval is above zero.
    More,
    /// The interval is below zero.
    Less,
    /// Zero is in the interval: chance alone could explain the change.
    WithinNoise,
    /// A single pair of runs says nothing about noise.
    Unknown,
}

// === impl RelativeChange ===

impl RelativeChange {
    /// Computes the change from the pairs (direct, gateway) of the rounds; none without a pair.
    ///
    /// The values are paired, since what slows a round down affects both of its runs. It uses logarithms,
    /// since a ratio and its inverse must have the same weight, and Student's t, since rounds are few.
    pub(super) fn of(pairs: &[(f64, f64)]) -> Option<RelativeChange> {
        let usable = pairs
            .iter()
            .filter(|(direct, gateway)| *direct > 0.0 && *gateway > 0.0);
        let logs: Vec<f64> = usable.map(|(direct, gateway)| (gateway / direct).ln()).collect();
        let rounds = logs.len();
        if rounds == 0 {
            return None;
        }
        let mean = logs.iter().sum::<f64>() / rounds as f64;
        let percent = |log: f64| (log.exp() - 1.0) * 100.0;
        let interval = (rounds > 1).then(|| {
            let degrees = (rounds - 1) as f64;
            let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / degrees;
            let half = t_of_95(rounds - 1) * (variance / rounds as f64).sqrt();
            (percent(mean - half), percent(mean + half))
        });
        let verdict = match interval {
            None => ChangeVerdict::Unknown,
            Some((low, _)) if low > 0.0 => ChangeVerdict::More,
            Some((_, high)) if high < 0.0 => ChangeVerdict::Less,
            Some(_) => ChangeVerdict::WithinNoise,
        };
        Some(RelativeChange {
            percent: percent(mean),
            interval,
            rounds,
            verdict,
        })
    }
}

/// Formats as `+12.3 % (+8.1 to +16.7)`.
impl std::fmt::Display for RelativeChange {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:+.1} %", self.percent)?;
        match self.interval {
            Some((low, high)) => write!(out, " ({low:+.1} to {high:+.1})"),
            None => Ok(()),
        }
    }
}

/// Returns the bound that Student's t does not exceed, in either direction, with 95 % probability.
fn t_of_95(degrees: usize) -> f64 {
    match T_OF_95.get(degrees.wrapping_sub(1)) {
        Some(t) => *t,
        // Cornish and Fisher's expansion, which is right to three places from here on.
        None => {
            let (z, n) = (1.959_964_f64, degrees as f64);
            z + (z.powi(3) + z) / (4.0 * n) + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n * n)
        }
    }
}

const T_OF_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_interval_is_that_of_the_textbook() {
        // Logarithms 0.10, 0.20, 0.30: mean 0.2, deviation 0.1, t of 2 degrees 4.303.
        let pairs = [0.1_f64, 0.2, 0.3].map(|log| (2.0, 2.0 * log.exp()));
        let change = RelativeChange::of(&pairs).unwrap();
        let half = 4.303 * 0.1 / 3_f64.sqrt();
        let (low, high) = change.interval.unwrap();
        assert!((change.percent - (0.2_f64.exp() - 1.0) * 100.0).abs() < 1e-9);
        assert!((low - ((0.2 - half).exp() - 1.0) * 100.0).abs() < 1e-9);
        assert!((high - ((0.2 + half).exp() - 1.0) * 100.0).abs() < 1e-9);
        assert_eq!(change.verdict, ChangeVerdict::WithinNoise);
    }

    #[test]
    fn what_is_clear_is_called_so_and_a_single_round_is_not() {
        let verdict = |pairs: &[(f64, f64)]| RelativeChange::of(pairs).map(|change| change.verdict);
        assert_eq!(
            verdict(&[(100.0, 120.0), (101.0, 121.0), (99.0, 120.0)]),
            Some(ChangeVerdict::More)
        );
        assert_eq!(
            verdict(&[(100.0, 80.0), (101.0, 81.0), (99.0, 80.0)]),
            Some(ChangeVerdict::Less)
        );
        assert_eq!(
            verdict(&[(100.0, 130.0), (100.0, 80.0)]),
            Some(ChangeVerdict::WithinNoise)
        );
        assert_eq!(verdict(&[(100.0, 200.0)]), Some(ChangeVerdict::Unknown));
        assert_eq!((verdict(&[]), verdict(&[(0.0, 1.0)])), (None, None));
    }

    #[test]
    fn many_rounds_go_on_where_the_table_ends() {
        assert!((t_of_95(31) - 2.040).abs() < 0.001 && (t_of_95(120) - 1.980).abs() < 0.001);
    }

    proptest! {
        /// In rounds without any effect, chance alone may look like an effect in at most about one case in
        /// twenty.
        #[test]
        fn chance_is_seldom_taken_for_an_effect(seed in any::<u64>(), rounds in 3_usize..8) {
            let mut rng = fastrand::Rng::with_seed(seed);
            // The sum of twelve uniform numbers, less six, is nearly normal with deviation 1.
            let mut noise = || (0..12).map(|_| rng.f64()).sum::<f64>() - 6.0;
            let mut wrong = 0;
            for _ in 0..400 {
                let pairs: Vec<_> = (0..rounds).map(|_| ((0.1 * noise()).exp(), (0.1 * noise()).exp())).collect();
                let verdict = RelativeChange::of(&pairs).map(|change| change.verdict);
                wrong += u32::from(verdict != Some(ChangeVerdict::WithinNoise));
            }
            prop_assert!(wrong <= 50, "{wrong} of 400");
        }
    }
}
