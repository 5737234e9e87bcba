//! The places where tasks and threads start: only there, what a panic in them leads to is decided.

use std::path::Path;

/// The crates of programs that run for weeks.
const SERVING: [&str; 8] = [
    "bulk", "cluster", "config", "console", "gateway", "kafka", "log", "wire",
];

/// The modules that start tasks and threads: `wire::guard`, and one in each crate that does not know it.
const STARTERS: [&str; 3] = [
    "crates/kafka/src/client/threads.rs",
    "crates/log/src/threads.rs",
    "crates/wire/src/guard.rs",
];

/// Calls that start a task or a thread. A scope joins its threads, and their panics with them.
const STARTS: [&str; 6] = [
    "spawn_local(",
    "spawn_blocking(",
    "thread::spawn(",
    "thread::Builder",
    "tokio::spawn(",
    "task::spawn(",
];

/// Finds lines that start a task or a thread without `wire::guard`.
pub(super) fn check(file: &Path, text: &str, wrong: &mut Vec<String>) {
    let path = file.to_string_lossy();
    let serves = SERVING
        .iter()
        .any(|name| path.starts_with(&format!("crates/{name}/src/")));
    if !serves || STARTERS.contains(&&*path) || path.ends_with("/tests.rs") {
        return;
    }
    // Tests are at the end, and may start anything.
    let lines = text.lines().enumerate();
    let lines = lines.take_while(|(_, line)| !line.starts_with("mod tests"));
    for (at, line) in lines.filter(|(_, line)| !line.trim_start().starts_with("//")) {
        if let Some(start) = STARTS.iter().find(|start| line.contains(**start)) {
            let at = at + 1;
            wrong.push(format!(
                "{path}:{at}: `{start}` starts what nobody watches over: use `wire::guard`"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_and_threads_start_where_their_panics_are_caught() {
        let found = |file: &str, text: &str| {
            let mut wrong = Vec::new();
            check(Path::new(file), text, &mut wrong);
            wrong.len()
        };
        let spawns = "fn f() {\n    tokio::task::spawn_local(g());\n}\n";
        assert_eq!(found("crates/gateway/src/delivery/lane.rs", spawns), 1);
        assert_eq!(found("crates/wire/src/guard.rs", spawns), 0);
        assert_eq!(found("crates/sink/src/node.rs", spawns), 0);
        let in_tests = format!("fn f() {{}}\n#[cfg(test)]\nmod tests {{\n{spawns}}}\n");
        assert_eq!(found("crates/gateway/src/delivery/lane.rs", &in_tests), 0);
        assert_eq!(found("crates/log/src/log.rs", "std::thread::Builder::new()"), 1);
    }
}
