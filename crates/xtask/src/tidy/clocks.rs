//! Modules that depend on time but have no clock: the moment is an argument, so that tests can set it. Crates
//! without a clock say so in their `clippy.toml`; clippy does not know folders, so these are listed here.

use std::path::Path;

/// Folders and files whose code takes the moment as an argument, or needs none.
const CLOCKLESS: [&str; 10] = [
    "crates/cluster/src/limiter/",
    "crates/console/src/throttle.rs",
    "crates/gateway/src/delivery/pauses.rs",
    "crates/gateway/src/gather/",
    "crates/gateway/src/reshuffle/directed",
    "crates/gateway/src/switches",
    "crates/loadgen/src/sampler.rs",
    "crates/loadgen/src/schedule.rs",
    "crates/log/src/format/",
    "crates/wire/src/codec",
];

/// Test files in these folders, which may read a clock.
const TESTS: [&str; 3] = ["/model.rs", "/simulated.rs", "/tests.rs"];

/// Calls that read a clock.
const CLOCKS: [&str; 2] = ["Instant::now(", "SystemTime::now("];

/// Finds lines that read a clock in a module without one.
pub(super) fn check(file: &Path, text: &str, wrong: &mut Vec<String>) {
    let path = file.to_string_lossy();
    let clockless = CLOCKLESS.iter().any(|start| path.starts_with(start));
    if !clockless || TESTS.iter().any(|end| path.ends_with(end)) {
        return;
    }
    let lines = text.lines().enumerate();
    let lines = lines.take_while(|(_, line)| !line.starts_with("mod tests"));
    for (at, line) in lines.filter(|(_, line)| !line.trim_start().starts_with("//")) {
        if let Some(clock) = CLOCKS.iter().find(|clock| line.contains(**clock)) {
            let at = at + 1;
            wrong.push(format!(
                "{path}:{at}: `{clock})` in a module without a clock: take the moment as an argument"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_that_take_the_moment_as_an_argument_read_no_clock() {
        let found = |file: &str, text: &str| {
            let mut wrong = Vec::new();
            check(Path::new(file), text, &mut wrong);
            wrong.len()
        };
        let reads = "fn f() {\n    let now = Instant::now();\n}\n";
        assert_eq!(found("crates/gateway/src/gather/slot.rs", reads), 1);
        assert_eq!(found("crates/gateway/src/gather/slot/simulated.rs", reads), 0);
        assert_eq!(found("crates/gateway/src/delivery/lane.rs", reads), 0);
        let in_tests = format!("fn f() {{}}\n#[cfg(test)]\nmod tests {{\n{reads}}}\n");
        assert_eq!(found("crates/gateway/src/gather/slot.rs", &in_tests), 0);
    }
}
