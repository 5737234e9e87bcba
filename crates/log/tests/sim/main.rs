//! The log on a disk that misbehaves, compared with a list in memory. `SEED=n` replays one seed, `SEEDS=n`
//! runs the first n.

#![allow(
    clippy::disallowed_methods,
    reason = "tests sleep, lock and look at clocks as they like"
)]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test, whose parts are no tests"
)]

mod disk;
mod life;
mod model;
mod tracked;

use life::{Harm, Life};

/// Runs seeds of a kind, as many as asked for.
fn seeds(usual: u64, harm: Harm) {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u64>().expect("a number"))
    };
    let range = match (number("SEED"), number("SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, Some(seeds)) => 0..seeds,
        (None, None) => 0..usual,
    };
    let (mut reused, all) = (0, range.end - range.start);
    for seed in range {
        let result = std::panic::catch_unwind(|| Life::new(seed, harm).run());
        reused += result.unwrap_or_else(|panic| {
            eprintln!("{harm:?}: replay with SEED={seed}");
            std::panic::resume_unwind(panic)
        });
    }
    // The reuse of files is a good part of what these tests try.
    assert!(
        all < 50 || u64::from(reused) >= all,
        "{reused} files written again in {all} lives"
    );
}

#[test]
fn what_is_acknowledged_outlives_power_cuts_and_kills_in_order_exactly_once() {
    seeds(150, Harm::Crash);
}

#[test]
fn what_is_acknowledged_outlives_failing_syncs_and_a_poisoned_log_accepts_nothing() {
    seeds(80, Harm::FailingSync);
}

#[test]
fn a_full_disk_refuses_and_what_is_refused_is_never_read() {
    seeds(80, Harm::FullDisk);
}

#[test]
fn without_fsync_a_power_cut_takes_only_the_end() {
    seeds(80, Harm::LazySync);
}

#[test]
fn a_disk_that_cannot_be_read_for_a_moment_loses_nothing() {
    seeds(50, Harm::FailingRead);
}

#[test]
fn damage_is_told_and_counted_and_wrong_bytes_are_never_delivered() {
    seeds(150, Harm::Damage);
}
