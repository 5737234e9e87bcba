//! What `--help` says looks right on a terminal of 80 columns.

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

/// The words of the commands below `command`.
fn commands_of(help: &str) -> Vec<String> {
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let list = list.take_while(|line| !line.is_empty());
    // What a description is continued with stands further to the right.
    let names = list.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Every command, with the words that lead to it; the first has none.
fn commands() -> Vec<Vec<String>> {
    let (mut left, mut all) = (vec![Vec::new()], Vec::new());
    while let Some(command) = left.pop() {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        for name in commands_of(&help(&words, "80")) {
            left.push(command.iter().cloned().chain([name]).collect());
        }
        all.push(command);
    }
    assert!(all.len() > 30, "{all:?}");
    all
}

#[test]
fn the_help_of_every_command_fits_80_columns_as_it_was_written() {
    for command in commands() {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let narrow = help(&words, "80");
        for line in narrow.lines() {
            assert!(line.chars().count() <= 80, "{command:?}: {line}");
        }
        // Text that is wrapped by hand is wrapped once more if it is too wide, which tears its lines apart.
        let written = |help: &str| help.split("Usage:").next().unwrap_or_default().to_owned();
        assert_eq!(written(&narrow), written(&help(&words, "200")), "{command:?}");
    }
}

#[test]
fn every_command_tells_its_version() {
    for command in commands() {
        for flag in ["-V", "--version", "-version"] {
            let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
                .args(&command)
                .arg(flag)
                .output()
                .unwrap();
            let said = String::from_utf8(output.stdout).unwrap();
            assert_eq!(output.status.code(), Some(0), "{command:?} {flag}");
            let version = env!("CARGO_PKG_VERSION");
            assert!(said.trim_end().ends_with(version), "{command:?} {flag}: {said}");
        }
    }
}
