//! A program that was built without the feature `console`.

use std::process::Command;

use crate::gateway::program;

#[test]
#[ignore = "needs a program without default features, which `./dev test` builds"]
fn a_program_without_the_console_says_so_and_still_documents_it() {
    let run = |arguments: &[&str]| Command::new(program()).args(arguments).output().unwrap();
    let output = run(&["console", "--listen", "127.0.0.1:0"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("built without the console"), "{said}");
    assert!(output.stdout.is_empty());

    let help = run(&["console", "--help"]);
    assert!(help.status.success());
    assert!(String::from_utf8_lossy(&help.stdout).contains("--register"));
}
