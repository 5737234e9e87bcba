//! `.cargo/link-cc` links a released program to two files, and everything else as `cc` does.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a program with debug information, which the linker is told to strip.
fn linked(folder: &Path, program: &str) -> PathBuf {
    let source = folder.join("main.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let program = folder.join(program);
    std::fs::create_dir_all(program.parent().unwrap()).unwrap();
    let linker = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cargo/link-cc");
    let mut command = Command::new(linker);
    command.arg("-g").arg(&source).arg("-Wl,--strip-all");
    let linked = command.arg("-o").arg(&program).status().unwrap();
    assert!(linked.success());
    assert!(Command::new(&program).status().unwrap().success());
    program
}

/// Returns the names of sections, as readelf prints them.
fn sections(file: &Path) -> String {
    let told = Command::new("readelf")
        .args(["--wide", "--sections"])
        .arg(file)
        .output();
    String::from_utf8(told.unwrap().stdout).unwrap()
}

#[test]
fn a_released_program_is_stripped_and_its_debug_information_is_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let program = linked(folder.path(), "release/deps/tidegate-0123");
    let (stripped, debug) = (sections(&program), folder.path().join("release/tidegate.debug"));
    assert!(
        !stripped.contains(".symtab") && !stripped.contains(".debug_line"),
        "{stripped}"
    );
    assert!(stripped.contains(".gnu_debuglink"), "{stripped}");
    let debug = sections(&debug);
    assert!(
        debug.contains(".symtab") && debug.contains(".debug_line"),
        "{debug}"
    );
}

#[test]
fn any_other_program_is_one_file() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["debug/deps/tidegate-0123", "release/deps/sink-0123"] {
        let program = linked(folder.path(), name);
        let stripped = sections(&program);
        assert!(
            !stripped.contains(".symtab") && !stripped.contains(".gnu_debuglink"),
            "{stripped}"
        );
        let beside = program.parent().unwrap().parent().unwrap();
        assert_eq!(std::fs::read_dir(beside).unwrap().count(), 1, "{name}");
    }
}
