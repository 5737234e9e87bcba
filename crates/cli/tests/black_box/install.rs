//! The files that packages install beside the program: manual pages and completions.

use std::collections::BTreeSet;
use std::process::{Command, Output};

fn tidegate(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(arguments)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{arguments:?}");
    output
}

#[test]
fn every_command_has_a_manual_page_that_man_can_read() {
    let folder = tempfile::tempdir().unwrap();
    tidegate(&["manual", "--to", folder.path().to_str().unwrap()]);
    let pages = std::fs::read_dir(folder.path()).unwrap();
    let pages: BTreeSet<String> = pages
        .map(|page| page.unwrap().file_name().into_string().unwrap())
        .collect();
    for command in [
        "",
        "-gateway",
        "-check",
        "-dead-letters",
        "-dead-letters-list",
        "-service-install",
        "-init",
    ] {
        assert!(
            pages.contains(&format!("tidegate{command}.1")),
            "{command}: {pages:?}"
        );
    }
    for page in &pages {
        let text = std::fs::read_to_string(folder.path().join(page)).unwrap();
        assert!(
            text.contains(".TH ") && text.contains(".SH SYNOPSIS"),
            "{page}: {text}"
        );
    }
    let gateway = std::fs::read_to_string(folder.path().join("tidegate-gateway.1")).unwrap();
    assert!(gateway.contains("share\\-account"), "{gateway}");
    let one = tidegate(&["manual"]);
    assert!(String::from_utf8(one.stdout).unwrap().contains(".TH tidegate 1"));
}

#[test]
fn completions_know_every_command_and_the_shell_can_read_them() {
    for shell in ["bash", "zsh", "fish"] {
        let text = String::from_utf8(tidegate(&["completions", shell]).stdout).unwrap();
        for word in ["dead-letters", "service", "uninstall", "share-account"] {
            assert!(text.contains(word), "{shell}: {word}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidegate.bash");
    std::fs::write(&file, tidegate(&["completions", "bash"]).stdout).unwrap();
    // Bash itself is asked for completions of a word that has begun.
    let asked = format!(
        "source {}; COMP_WORDS=(tidegate dead); COMP_CWORD=1; _tidegate tidegate dead tidegate; echo \"${{COMPREPLY[@]}}\"",
        file.display()
    );
    let output = Command::new("bash").args(["-c", &asked]).output().unwrap();
    let completed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        completed.trim(),
        "dead-letters",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
