//! Runs a command that believes it is on a terminal.

use std::io::Write as _;
use std::process::{Command, Stdio};

/// Runs a command line and types this. Returns its status and the terminal's text. Commands ask questions
/// only on a terminal, which `script` provides.
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
