//! A command that believes to be at a terminal.

use std::io::Write as _;
use std::process::{Command, Stdio};

/// Runs a command line with this typed; its status and what stands on the terminal. Questions are asked there
/// only, and `script` makes one.
pub(crate) fn at_a_terminal(line: &str, typed: &str) -> (Option<i32>, String) {
    let mut process = Command::new("script")
        .args(["-q", "-e", "-c", line, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keyboard = process.stdin.take().unwrap();
    keyboard.write_all(typed.as_bytes()).unwrap();
    drop(keyboard);
    let out = process.wait_with_output().unwrap();
    (out.status.code(), String::from_utf8(out.stdout).unwrap())
}
