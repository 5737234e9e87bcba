//! Checks that the output of `--help` looks right on a terminal of 80 columns.

#![allow(clippy::unwrap_used, reason = "a test that meets something unexpected ends")]

use std::process::Command;

fn help(command: &[&str], columns: &str) -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(command)
        .arg("--help")
        .env("COLUMNS", columns)
        .output()
        .unwrap();
    assert!(out.status.success(), "{command:?}");
    String::from_utf8(out.stdout).unwrap()
}

/// Returns the names of the commands below `command`.
fn commands_of(help: &str) -> Vec<String> {
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let list = list.take_while(|line| !line.is_empty());
    // Continued descriptions are indented further.
    let names = list.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn the_help_of_every_command_fits_80_columns_as_it_was_written() {
    let mut left: Vec<Vec<String>> = vec![Vec::new()];
    let mut seen = 0;
    while let Some(command) = left.pop() {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let narrow = help(&words, "80");
        for line in narrow.lines() {
            assert!(line.chars().count() <= 80, "{command:?}: {line}");
        }
        // Text that was wrapped by hand would be wrapped again if it were too wide, which would tear its
        // lines apart.
        let written = |help: &str| help.split("Usage:").next().unwrap_or_default().to_owned();
        assert_eq!(written(&narrow), written(&help(&words, "200")), "{command:?}");
        seen += 1;
        for name in commands_of(&narrow) {
            left.push(command.iter().cloned().chain([name]).collect());
        }
    }
    assert!(seen > 10, "{seen}");
}
